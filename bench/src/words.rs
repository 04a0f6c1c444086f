//! Text that reads, indexes and compresses like a board's: a first-order Markov chain over words and line breaks.
//!
//! A chain learns either from a real board file, at run time, or from the vocabulary at the end of this file. It holds
//! no clock and no randomness: every draw comes from the [`Rng`] that the caller passes in.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

/// How titles and long text are worded.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    titles: Chain,
    prose: Chain,
}

impl Words {
    /// Learns from a board exported as JSON Lines: `title`, and `description`, `notes` and `design` as long text.
    ///
    /// Nothing of the file enters the project; what it says decides only which word follows which in this run.
    pub(crate) fn from_board(path: &Path) -> anyhow::Result<Self> {
        let file = fs::read_to_string(path)
            .with_context(|| format!("cannot read the board file {}", path.display()))?;
        let (mut titles, mut prose) = (Learner::default(), Learner::default());
        for (index, line) in file.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let issue: serde_json::Value = serde_json::from_str(line).with_context(|| {
                format!("{}, line {}: not a JSON object", path.display(), index + 1)
            })?;
            if let Some(title) = issue["title"].as_str() {
                titles.learn(title);
            }
            for field in ["description", "notes", "design"] {
                if let Some(text) = issue[field].as_str() {
                    prose.learn(text);
                }
            }
        }
        match (titles.finish(), prose.finish()) {
            (Some(titles), Some(prose)) => Ok(Self { titles, prose }),
            _ => bail!(
                "{} holds no titles or no descriptions to learn from",
                path.display()
            ),
        }
    }

    /// The words that are compiled in, for a run without a board file.
    pub(crate) fn builtin() -> Self {
        let vocabulary = Vocabulary::new();
        let mut rng = Rng::new(0, 0, 0);
        let (mut titles, mut prose) = (Learner::default(), Learner::default());
        for _ in 0..BUILTIN_TITLES {
            titles.learn(&vocabulary.sentence(&mut rng, 6, 12));
        }
        for _ in 0..BUILTIN_TEXTS {
            prose.learn(&vocabulary.text(&mut rng));
        }
        match (titles.finish(), prose.finish()) {
            (Some(titles), Some(prose)) => Self { titles, prose },
            _ => unreachable!("the vocabulary is not empty"),
        }
    }

    /// One line of about `bytes` bytes and never more than that, unless its first word alone is longer. Never empty.
    pub(crate) fn title(&self, rng: &mut Rng, bytes: usize) -> String {
        let mut title = self.titles.walk(rng, bytes);
        if title.is_empty() {
            title.push_str(self.titles.first_word(rng));
        }
        title
    }

    /// Text of at most `bytes` bytes, ending with its last whole word before that; empty when nothing fits.
    pub(crate) fn prose(&self, rng: &mut Rng, bytes: usize) -> String {
        self.prose.walk(rng, bytes)
    }
}

/// A splitmix64 stream: small, fast, and the same on every platform.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// The stream for one purpose and one index under a seed; distinct triples give unrelated streams.
    pub(crate) fn new(seed: u64, purpose: u64, index: u64) -> Self {
        let mut state = mix(seed.wrapping_add(GOLDEN));
        state = mix(state ^ purpose.wrapping_add(GOLDEN));
        state = mix(state ^ index.wrapping_add(GOLDEN));
        Self { state }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number in `0..bound`; `bound` is not 0.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        assert!(bound > 0, "nothing is below 0");
        // Lemire's reduction without its rejection step: with 64 bits the bias is under 2^-32.
        let wide = u128::from(self.next()) * u128::from(bound);
        (wide >> 64) as u32
    }

    /// True in `per_mille` of a thousand draws.
    pub(crate) fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < per_mille
    }

    /// One of the values, each drawn in proportion to its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, law: &[(T, u32)]) -> T {
        let total = law.iter().map(|(_, weight)| weight).sum();
        let mut left = self.below(total);
        for &(value, weight) in law {
            if left < weight {
                return value;
            }
            left -= weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// A length from `(per mille, bytes)` points in rising order, straight lines between them. The first point is at
    /// 0, the last at 1000. Whole numbers only: a power or a logarithm differs in its last bit between platforms.
    pub(crate) fn quantile(&mut self, law: &[(u32, u32)]) -> usize {
        const FINE: u32 = 1000;
        let at = self.below(1000 * FINE);
        for pair in law.windows(2) {
            let ((left, low), (right, high)) = (pair[0], pair[1]);
            if at < right * FINE {
                let along = u64::from(at - left * FINE);
                let across = u64::from((right - left) * FINE);
                return (u64::from(low) + u64::from(high - low) * along / across) as usize;
            }
        }
        unreachable!("the last point of the law is at 1000")
    }
}

/// Which word follows which. Repeated successors stand as often as they were seen, so a draw needs no weights.
#[derive(Clone, Debug)]
struct Chain {
    tokens: Vec<String>,
    starts: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

impl Chain {
    fn first_word(&self, rng: &mut Rng) -> &str {
        &self.tokens[self.draw(rng, &self.starts) as usize]
    }

    fn walk(&self, rng: &mut Rng, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes);
        let mut next = self.draw(rng, &self.starts);
        loop {
            let token = &self.tokens[next as usize];
            let line_break = token.starts_with('\n');
            let gap = !line_break && !text.is_empty() && !text.ends_with('\n');
            if text.len() + usize::from(gap) + token.len() > bytes {
                break;
            }
            if gap {
                text.push(' ');
            }
            text.push_str(token);
            let followers = &self.successors[next as usize];
            next = if followers.is_empty() {
                self.draw(rng, &self.starts)
            } else {
                self.draw(rng, followers)
            };
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn draw(&self, rng: &mut Rng, from: &[u32]) -> u32 {
        from[rng.below(from.len() as u32) as usize]
    }
}

#[derive(Debug, Default)]
struct Learner {
    ids: BTreeMap<String, u32>,
    tokens: Vec<String>,
    starts: Vec<u32>,
    successors: Vec<Vec<u32>>,
}

impl Learner {
    fn learn(&mut self, text: &str) {
        let mut before: Option<u32> = None;
        let mut blank_lines = 0;
        for line in text.lines() {
            let mut at_line_start = true;
            for word in line
                .split_whitespace()
                .filter(|word| word.len() <= TOKEN_BYTES_MAX)
            {
                if at_line_start && let Some(last) = before {
                    before = Some(self.follow(last, if blank_lines > 0 { "\n\n" } else { "\n" }));
                }
                at_line_start = false;
                blank_lines = 0;
                before = Some(match before {
                    Some(last) => self.follow(last, word),
                    None => {
                        let id = self.id(word);
                        self.starts.push(id);
                        id
                    }
                });
            }
            if at_line_start {
                blank_lines += 1;
            }
        }
    }

    fn follow(&mut self, last: u32, token: &str) -> u32 {
        let id = self.id(token);
        self.successors[last as usize].push(id);
        id
    }

    fn id(&mut self, token: &str) -> u32 {
        if let Some(&id) = self.ids.get(token) {
            return id;
        }
        let id = self.tokens.len() as u32;
        self.ids.insert(token.to_owned(), id);
        self.tokens.push(token.to_owned());
        self.successors.push(Vec::new());
        id
    }

    fn finish(self) -> Option<Chain> {
        let Self {
            tokens,
            starts,
            successors,
            ..
        } = self;
        (!starts.is_empty()).then_some(Chain {
            tokens,
            starts,
            successors,
        })
    }
}

/// The compiled-in words under Zipf's law: the word of rank r is drawn in proportion to 1 / (r + 2).
#[derive(Debug)]
struct Vocabulary {
    words: Vec<&'static str>,
    /// For each word, the sum of the weights up to and including its own.
    weights: Vec<u32>,
}

impl Vocabulary {
    fn new() -> Self {
        let words: Vec<&str> = VOCABULARY.split_ascii_whitespace().collect();
        let mut sum = 0;
        let weights = (2..)
            .take(words.len())
            .map(|rank: u32| {
                sum += 1_000_000 / rank;
                sum
            })
            .collect();
        Self { words, weights }
    }

    /// Paragraphs, lists and now and then a heading, as on a board whose authors are mostly agents.
    fn text(&self, rng: &mut Rng) -> String {
        let mut text = String::new();
        for _ in 0..2 + rng.below(4) {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            if rng.chance(200) {
                text.push_str("## ");
                text.push_str(&self.sentence(rng, 1, 4));
                text.push_str("\n\n");
            }
            if rng.chance(350) {
                for item in 0..2 + rng.below(4) {
                    text.push_str(if item == 0 { "- " } else { "\n- " });
                    text.push_str(&self.sentence(rng, 3, 10));
                }
            } else {
                for sentence in 0..1 + rng.below(4) {
                    if sentence > 0 {
                        text.push(' ');
                    }
                    text.push_str(&self.sentence(rng, 6, 18));
                    text.push('.');
                }
            }
        }
        text
    }

    /// A capital first, commas now and then, no full stop.
    fn sentence(&self, rng: &mut Rng, least: u32, most: u32) -> String {
        let mut sentence = String::new();
        for place in 0..least + rng.below(most - least + 1) {
            let word = self.word(rng);
            if place == 0 {
                let mut letters = word.chars();
                sentence.extend(letters.next().into_iter().flat_map(char::to_uppercase));
                sentence.push_str(letters.as_str());
                continue;
            }
            sentence.push(' ');
            if rng.chance(15) {
                // An identifier: two words joined, a pair that hardly another text repeats.
                sentence.push_str(&format!("`{word}_{}`", self.word(rng)));
            } else {
                sentence.push_str(word);
            }
            if rng.chance(40) {
                sentence.push(',');
            }
        }
        sentence.truncate(sentence.trim_end_matches(',').len());
        sentence
    }

    fn word(&self, rng: &mut Rng) -> &'static str {
        let total = self.weights[self.weights.len() - 1];
        let drawn = rng.below(total);
        self.words[self.weights.partition_point(|&sum| sum <= drawn)]
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Longer ones are addresses, hashes and pasted output: they would say nothing about words and overflow a title.
const TOKEN_BYTES_MAX: usize = 40;

/// Enough for every common word to have many followers, little enough to be learnt in a few milliseconds.
const BUILTIN_TITLES: u32 = 600;
const BUILTIN_TEXTS: u32 = 300;

/// By falling frequency.
const VOCABULARY: &str = "
the to and a of is in for with on it when not that from as be this are by if or at an after before one each no
task node store test error file write read change sync key value should must can all any same only new first last
agent board state list run add check fix make use show keep return set get update create remove move open close
revision conflict merge message peer device commit log table field row index cursor page limit status priority
title body comment project workspace sprint session claim lease token secret signature hash roster invite relay
into out over under between without while until then so but because than more less most other both every never
command line option flag output input json text name path home folder port address socket server client request
response retry timeout connection network offline online reconnect stream frame header payload encode decode parse
validate refuse accept missing unknown invalid empty stale broken slow fast large small old wrong right clear
user person owner admin member reader writer reviewer team customer operator developer maintainer
build release version branch review merge-request regression crash panic restart recovery backup restore export
import migration schema format compatibility fallback default configuration environment variable process thread
lock queue batch buffer cache memory disk fsync durable transaction snapshot rollback compaction rebuild replay
search filter sort order group count total sum median percentile ratio benchmark profile measure figure budget
window table-view column button link form label tooltip dialog theme contrast keyboard focus scroll render layout
stylesheet template browser terminal colour table-row width height icon
document history author time clock date duration interval schedule deadline expiry renew expire wake sleep
dependency blocker parent child tree root leaf edge cycle depth order-key position rank tag type kind scope grant
capability permission policy role credential delegate identity fingerprint certificate handshake cipher
random seed generator fixture oracle invariant property fuzz corpus sample coverage assertion harness suite flaky
deterministic simulation fault injection partition latency loss duplicate reorder truncate corrupt checksum
documentation example guide changelog licence note summary question answer decision reason follow-up cleanup
refactor rename split extract inline simplify describe explain investigate reproduce confirm verify
prevent detect report warn notify announce publish subscribe listen accept-loop shutdown drain abort cancel resume
again already still often sometimes instead together twice exactly silently quietly directly safely carefully
within across against during through beyond behind beside per via
tokio redb automerge quic http stdio unicode utf-8 base32 blake3 ed25519 zstd postcard proptest clippy
acceptance criterion goal scope-note risk estimate milestone outcome progress estimate-note handover stand-up
laptop container host machine kernel systemd windows macos linux architecture binary package dependency-tree
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_board_file_decides_the_words() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            file,
            r#"{{"title": "alpha beta", "description": "one two\n\n- three\n- four"}}"#
        )
        .unwrap();
        writeln!(file).unwrap();
        writeln!(file, r#"{{"title": "alpha gamma", "notes": "one five"}}"#).unwrap();
        let words = Words::from_board(file.path()).unwrap();
        let mut rng = Rng::new(1, 2, 3);
        let text = words.prose(&mut rng, 400);
        assert!(text.len() > 300 && text.len() <= 400, "{text}");
        assert!(text.contains("\n\n- three\n- four"), "{text}");
        for word in text.split_whitespace() {
            assert!(
                ["one", "two", "-", "three", "four", "five"].contains(&word),
                "{word}"
            );
        }
        assert!(words.title(&mut rng, 40).starts_with("alpha "));
    }

    #[test]
    fn a_board_that_cannot_be_learnt_from_is_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        assert!(Words::from_board(file.path()).is_err());
        writeln!(file, "{{}}\n{{").unwrap();
        let error = format!("{:#}", Words::from_board(file.path()).unwrap_err());
        assert!(error.contains("line 2"), "{error}");
        assert!(Words::from_board(Path::new("no/such/board.jsonl")).is_err());
    }

    #[test]
    fn a_title_is_never_empty_and_text_never_too_long() {
        let words = Words::builtin();
        for index in 0..500 {
            let mut rng = Rng::new(9, 9, index);
            let title = words.title(&mut rng, 1);
            assert!(!title.is_empty() && !title.contains('\n'));
            let bytes = index as usize * 7;
            assert!(words.prose(&mut rng, bytes).len() <= bytes);
        }
    }

    #[test]
    fn a_quantile_law_is_met_at_its_points() {
        let mut rng = Rng::new(4, 5, 6);
        let mut drawn: Vec<usize> = (0..20_000)
            .map(|_| rng.quantile(&[(0, 0), (500, 100), (1000, 1000)]))
            .collect();
        drawn.sort_unstable();
        assert!((95..=115).contains(&drawn[10_000]), "{}", drawn[10_000]);
        assert!(drawn[19_999] < 1000 && drawn[19_999] > 950);
    }

    #[test]
    fn a_vocabulary_of_a_few_hundred_words_follows_zipf() {
        let vocabulary = Vocabulary::new();
        let count = vocabulary.words.len();
        assert!((300..1000).contains(&count), "{count}");
        let distinct: BTreeSet<&str> = vocabulary.words.iter().copied().collect();
        assert_eq!(distinct.len(), count, "a word stands twice");
        let mut rng = Rng::new(7, 8, 9);
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for _ in 0..50_000 {
            *seen.entry(vocabulary.word(&mut rng)).or_default() += 1;
        }
        assert!(seen.len() > count * 9 / 10, "{} of {count}", seen.len());
        assert!(seen["the"] > seen["task"] * 5);
    }
}
