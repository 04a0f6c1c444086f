//! From text to terms: what is indexed and what a query asks for are cut by the same functions, or they would not meet.
//!
//! NFKC, Unicode words, lowercase, English stems. An identifier (`snake_case`, `CamelCase`, `node.js`) is indexed whole and in
//! parts; a Chinese or Japanese character is a term of its own, since nothing marks its words.

use rust_stemmers::{Algorithm, Stemmer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

/// The terms of a text, in order, repetitions included.
#[cfg(test)]
pub(crate) fn terms(text: &str) -> impl Iterator<Item = String> {
    let mut out = Vec::new();
    let text = normalised(text);
    let _: ControlFlow<()> = each_word(&text, &mut |word| {
        word_terms(word, &mut |term| out.push(term.to_owned()));
        ControlFlow::Continue(())
    });
    out.into_iter()
}

/// A part of an object's text; what is said in a title weighs more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    /// The title.
    Title,
    /// The long text.
    Body,
    /// Notes, and any other text that is shown with the object.
    Notes,
}

impl Field {
    /// How many occurrences in a body one occurrence in this field counts for.
    pub(crate) fn weight(self) -> u8 {
        match self {
            Self::Title => TITLE_WEIGHT,
            Self::Body | Self::Notes => 1,
        }
    }
}

/// The searchable form of one object: its distinct terms with their weighted frequency. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedText {
    /// Sorted by term.
    terms: Arc<[(Arc<str>, u8)]>,
    length: u32,
    cut: bool,
}

impl IndexedText {
    /// Analyses the fields of one object; the same field may be given several times.
    pub(crate) fn new<'t>(fields: impl IntoIterator<Item = (Field, &'t str)>) -> Self {
        let mut found: BTreeMap<Arc<str>, u8> = BTreeMap::new();
        let (mut length, mut cut) = (0u32, false);
        for (field, text) in fields {
            let whole = text;
            let text = normalised(text);
            cut |= is_cut(whole, &text);
            let _: ControlFlow<()> = each_word(&text, &mut |word| {
                word_terms(word, &mut |term| {
                    if let Some(frequency) = found.get_mut(term) {
                        *frequency = frequency.saturating_add(field.weight());
                    } else if found.len() < DOCUMENT_TERMS_MAX {
                        found.insert(term.into(), field.weight());
                    } else {
                        cut = true;
                        return;
                    }
                    length = length.saturating_add(1);
                });
                ControlFlow::Continue(())
            });
        }
        Self {
            terms: found.into_iter().collect(),
            length,
            cut,
        }
    }

    /// The same text with each term's string replaced by an equal one (shared ones take no space).
    pub(super) fn map_terms(&self, mut shared: impl FnMut(&Arc<str>) -> Arc<str>) -> Self {
        let terms = self
            .terms
            .iter()
            .map(|(term, frequency)| (shared(term), *frequency))
            .collect();
        Self { terms, ..*self }
    }

    /// The distinct terms, sorted, with their weighted frequency (saturating at 255).
    pub(crate) fn terms(&self) -> &[(Arc<str>, u8)] {
        &self.terms
    }

    /// How many terms the text has, repetitions included and unweighted.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Nothing in it can be searched for.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// The text exceeded a limit ([`FIELD_CHARS_MAX`], [`DOCUMENT_TERMS_MAX`]): its end cannot be found by all its terms.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }
}

/// One word, as the segmentation sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word<'t> {
    /// A character of a script written without spaces.
    Single(&'t str),
    /// A word or an identifier, neither starting nor ending with punctuation.
    Run(&'t str),
}

/// NFKC of the text without invisible joiners, cut to [`FIELD_CHARS_MAX`].
pub(super) fn normalised(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(&text[..text.len().min(FIELD_CHARS_MAX)]);
    }
    let visible = text.nfkc().filter_map(|c| match c {
        // Soft hyphen, (non-)joiners, word joiner, byte order mark: nobody types them in a query.
        '\u{ad}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' => None,
        '\u{2019}' => Some('\''),
        c => Some(c),
    });
    Cow::Owned(visible.take(FIELD_CHARS_MAX).collect())
}

/// Calls `visit` with each word of a normalised text until it breaks.
pub(super) fn each_word<'t, B>(
    text: &'t str,
    visit: &mut dyn FnMut(Word<'t>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    for segment in text.unicode_words() {
        if segment.is_ascii() {
            visit_run(segment, visit)?;
            continue;
        }
        // The segmentation keeps Katakana together, and with Latin when an underscore joins them.
        let mut start = 0;
        for (at, c) in segment.char_indices().filter(|(_, c)| is_unspaced(*c)) {
            visit_run(&segment[start..at], visit)?;
            start = at + c.len_utf8();
            visit(Word::Single(&segment[at..start]))?;
        }
        visit_run(&segment[start..], visit)?;
    }
    ControlFlow::Continue(())
}

/// Calls `emit` with the terms of one word: the word itself, and of an identifier the parts too.
pub(super) fn word_terms(word: Word<'_>, emit: &mut dyn FnMut(&str)) {
    let run = match word {
        Word::Single(character) => return emit(character),
        Word::Run(run) => run,
    };
    emit_term(run, emit);
    let mut parts = Parts { rest: run };
    let first = parts.next();
    if first == Some(run) {
        return;
    }
    first
        .into_iter()
        .chain(parts)
        .for_each(|part| emit_term(part, emit));
}

/// The form of a word that is compared with other words, before stemming: lowercase, cut to [`TERM_CHARS_MAX`].
pub(super) fn folded(word: &str) -> String {
    let mut lower = if word.is_ascii() {
        word.to_ascii_lowercase()
    } else {
        word.to_lowercase()
    };
    if lower.len() > TERM_CHARS_MAX
        && let Some((end, _)) = lower.char_indices().nth(TERM_CHARS_MAX)
    {
        lower.truncate(end);
    }
    lower
}

/// The English stem; anything that is not made of ASCII letters is its own stem.
pub(super) fn stem(folded: &str) -> Cow<'_, str> {
    // The stemmer slices by bytes: other alphabets gain nothing from an English stemmer and could only make it panic.
    if folded.len() > 2 && folded.bytes().all(|b| b.is_ascii_lowercase() || b == b'\'') {
        Stemmer::create(Algorithm::English).stem(folded)
    } else {
        Cow::Borrowed(folded)
    }
}

fn visit_run<'t, B>(
    run: &'t str,
    visit: &mut dyn FnMut(Word<'t>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    // A combining mark makes a word, for the segmentation, of the space or the control character that it follows.
    match run
        .trim_matches(|c: char| c.is_ascii_punctuation() || c.is_whitespace() || c.is_control())
    {
        "" => ControlFlow::Continue(()),
        run => visit(Word::Run(run)),
    }
}

fn emit_term(word: &str, emit: &mut dyn FnMut(&str)) {
    let folded = folded(word);
    let term = stem(&folded);
    let mut characters = term.chars();
    match (characters.next(), characters.next()) {
        (None, _) => {}
        // A lone letter of an alphabet finds everything and nothing. Caseless scripts have one-letter words.
        (Some(c), None) if c.is_lowercase() || c.is_uppercase() => {}
        _ => emit(&term),
    }
}

/// The parts of an identifier: cut at punctuation (an apostrophe belongs to its word) and where the case says so.
struct Parts<'t> {
    rest: &'t str,
}

impl<'t> Iterator for Parts<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        self.rest = self.rest.trim_start_matches(separates);
        let mut characters = self.rest.char_indices().peekable();
        let (_, mut previous) = characters.next()?;
        let mut end = self.rest.len();
        while let Some((at, c)) = characters.next() {
            let word_starts = c.is_uppercase()
                && (!previous.is_uppercase()
                    || characters
                        .peek()
                        .is_some_and(|(_, next)| next.is_lowercase()));
            if separates(c) || (word_starts && previous != '\'') {
                end = at;
                break;
            }
            previous = c;
        }
        let (part, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(part)
    }
}

fn separates(c: char) -> bool {
    c.is_ascii_punctuation() && c != '\''
}

/// Scripts written without spaces whose every character carries meaning: Han, Hiragana, Katakana, Bopomofo.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3040}'..='\u{312f}' | '\u{31a0}'..='\u{31bf}' | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

fn is_cut(whole: &str, normalised: &str) -> bool {
    // Shorter bytes can hide more characters (composition), so only a text that filled the limit is counted.
    normalised.len() >= FIELD_CHARS_MAX
        && match normalised.is_ascii() && whole.is_ascii() {
            true => whole.len() > FIELD_CHARS_MAX,
            false => whole.nfkc().take(FIELD_CHARS_MAX + 1).count() > FIELD_CHARS_MAX,
        }
}

/// A word of a title says what the object is about: three times as much as a mention does.
pub(crate) const TITLE_WEIGHT: u8 = 3;
/// Longer than any English word and than a hash in hex; a longer identifier is found by its first 40 characters and its parts.
pub(crate) const TERM_CHARS_MAX: usize = 40;
/// Twice the longest long text, since NFKC can lengthen one, and an end: one ligature can become 18 characters.
pub(crate) const FIELD_CHARS_MAX: usize = 400_000;
/// A book of 35,000 words has fewer distinct ones; more is a pasted dump, which would fill the in-memory index alone.
pub(crate) const DOCUMENT_TERMS_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(
            terms(text).collect::<Vec<_>>().join(" "),
            expected,
            "{text:?}"
        );
    }

    #[test]
    fn words_are_folded_and_stemmed() {
        check("Crashes crashed, CRASHING!", "crash crash crash");
        check("the user's café", "the user café");
        check("don\u{2019}t", "don't");
        check("Ｆｕｌｌ ﬁle soft\u{ad}ware", "full file softwar");
        check("cafe\u{301}", "café");
        check("a b c 7 #42 x", "7 42");
        check("Жук жуки ΑΘΗΝΑ", "жук жуки αθηνα");
        check("", "");
        check("!?… 👍 \0 \u{7f}", "");
        check("\0\u{345} \u{37a} \0\u{903}", "\u{903}");
    }

    #[test]
    fn identifiers_are_kept_whole_and_in_parts() {
        check("parse_changes", "parse_changes pars chang");
        check("getUserName", "getusernam get user name");
        check("HTTPServer", "httpserver http server");
        check("APIs", "api ap is");
        check("__init__ _x_", "init");
        check("src/main.rs", "src main.rs main rs");
        check(
            "v2Beta sha256 1.25 a::bc",
            "v2beta v2 beta sha256 1.25 1 25 bc",
        );
        check("MAX_LEN2", "max_len2 max len2");
        check("l'Avion", "l'avion");
    }

    #[test]
    fn unspaced_scripts_are_one_term_a_character() {
        check("数据库 is データ_x2", "数 据 库 is デ ー タ x2");
        check("ひらがな", "ひ ら が な");
        check("한국어 검색", "한국어 검색");
        check("हिन्दी", "हिन्दी");
    }

    #[test]
    fn a_term_is_cut_at_its_limit() {
        for (length, expected) in [(39, 39), (40, 40), (41, 40), (100_000, 40)] {
            let term: String = terms(&"é".repeat(length)).collect();
            assert_eq!(term, "é".repeat(expected));
            let term: String = terms(&"7".repeat(length)).collect();
            assert_eq!(term, "7".repeat(expected));
        }
    }

    #[test]
    fn a_field_is_cut_at_its_limit() {
        for (text, unit) in [("字", "字"), ("x ", "xx ")] {
            for extra in [-1i32, 0, 1] {
                let characters = FIELD_CHARS_MAX.strict_add_signed(extra as isize);
                let long: String = text.chars().cycle().take(characters).collect();
                let indexed =
                    IndexedText::new([(Field::Body, long.as_str()), (Field::Notes, unit)]);
                assert_eq!(indexed.is_cut(), extra > 0);
                assert!(!indexed.is_empty());
            }
        }
        // 100,000 characters that become 1,800,000 are cut, not followed.
        assert!(IndexedText::new([(Field::Body, "\u{fdfa}".repeat(100_000).as_str())]).is_cut());
    }

    #[test]
    fn a_document_keeps_a_bounded_number_of_terms() {
        for extra in [-1i32, 0, 1] {
            let count = DOCUMENT_TERMS_MAX.strict_add_signed(extra as isize);
            let text: String = (0..count).map(|n| format!("{n} ")).collect();
            let indexed = IndexedText::new([(Field::Body, text.as_str())]);
            assert_eq!(indexed.terms().len(), count.min(DOCUMENT_TERMS_MAX));
            assert_eq!(indexed.is_cut(), extra > 0);
        }
    }

    #[test]
    fn frequencies_are_weighted_and_saturate() {
        let body = "fix ".repeat(300);
        let indexed = IndexedText::new([
            (Field::Title, "Fix parser"),
            (Field::Notes, "parsers"),
            (Field::Body, &body),
        ]);
        let terms: Vec<_> = indexed.terms().iter().map(|(t, f)| (&**t, *f)).collect();
        assert_eq!(terms, [("fix", 255), ("parser", 4)]);
        assert_eq!(indexed.length(), 303);
    }

    proptest! {
        #[test]
        fn any_text_gives_clean_terms(text in "\\PC{0,60}|.{0,60}|[a-zA-Z_.:' 0-9é字\u{301}\0]{0,60}") {
            for term in terms(&text) {
                prop_assert!(!term.is_empty() && term.chars().count() <= TERM_CHARS_MAX);
                prop_assert!(!term.chars().any(|c| c.is_control() || c.is_whitespace()), "{:?}", term);
            }
            let counted = IndexedText::new([(Field::Body, text.as_str())]);
            prop_assert_eq!(counted.length() as usize, terms(&text).count());
            prop_assert_eq!(counted.terms().iter().map(|(_, f)| *f as usize).sum::<usize>(), terms(&text).count());
        }
    }
}
