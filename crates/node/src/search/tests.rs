//! The two indexes together, in a real redb file, against a plain computation over the texts.

use super::cold::Merged;
use super::cold::{
    DEAD_KEPT, DOC_OF, DOCS, DOCS_PER_CHUNK, DOCUMENT_NUMBERS_MAX, PENDING_POSTINGS_MAX, POSTINGS,
    PREFIX_TERMS_MAX, TEXT_META,
};
use super::query::QueryTerm;
use super::terms::terms;
use super::*;
use proptest::prelude::*;
use redb::{Database, ReadableDatabase, ReadableTable};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
enum Step {
    Set(u8, String, String),
    Delete(u8),
    /// Set while a merge is running: after the changes were taken and before the mark is forgotten.
    Merge(Option<(u8, String)>),
    Rebuild,
}

/// The plain computation: every version of every text, as terms.
#[derive(Default)]
struct Model {
    live: BTreeMap<ObjectKey, Vec<(String, u32)>>,
    raw: BTreeMap<ObjectKey, (String, String)>,
    /// As of the last merge; what the next one supersedes.
    settled: BTreeMap<ObjectKey, Vec<(String, u32)>>,
    superseded: Vec<Vec<(String, u32)>>,
    hot: BTreeMap<ObjectKey, Option<Vec<(String, u32)>>>,
}

impl Model {
    fn set(&mut self, key: ObjectKey, title: &str, body: &str) {
        let weighted = terms(title)
            .map(|t| (t, 3))
            .chain(terms(body).map(|t| (t, 1)));
        let text: Vec<_> = weighted.collect();
        match text.is_empty() {
            true => self.delete(key),
            false => {
                self.live.insert(key, text.clone());
                self.raw.insert(key, (title.to_owned(), body.to_owned()));
                self.hot.insert(key, Some(text));
            }
        }
    }

    fn delete(&mut self, key: ObjectKey) {
        self.live.remove(&key);
        self.raw.remove(&key);
        self.hot.insert(key, None);
    }

    fn merge(&mut self) {
        for (key, text) in std::mem::take(&mut self.hot) {
            self.superseded.extend(self.settled.remove(&key));
            self.settled.extend(text.map(|text| (key, text)));
        }
    }

    /// Ascending keys with their scores.
    fn answer(&self, query: &Query) -> BTreeMap<ObjectKey, f64> {
        let tf = |text: &[(String, u32)], term: &QueryTerm| {
            let fits = |t: &str| match term {
                QueryTerm::Exact(term) => t == term,
                QueryTerm::Prefix { start, stems } => {
                    t.starts_with(start) || stems.iter().any(|s| s == t)
                }
            };
            let sum: u32 = text.iter().filter(|(t, _)| fits(t)).map(|(_, w)| w).sum();
            f64::from(sum.min(255))
        };
        // No text here is longer than 15 terms, so the quantised length is the length.
        let known: Vec<_> = self
            .settled
            .values()
            .chain(self.hot.values().flatten())
            .collect();
        let counted: Vec<_> = known.iter().copied().chain(&self.superseded).collect();
        let mean = (known.iter().map(|t| t.len()).sum::<usize>() as f64
            / known.len().max(1) as f64)
            .max(1.0);
        let score = |text: &[(String, u32)]| {
            let parts = query.terms.iter().map(|term| {
                let df = counted.iter().filter(|t| tf(t, term) > 0.0).count() as f64;
                let idf = (1.0 + (counted.len() as f64 - df + 0.5) / (df + 0.5)).ln();
                let tf = tf(text, term);
                idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * text.len() as f64 / mean))
            });
            parts.sum::<f64>()
        };
        let matching = self
            .live
            .iter()
            .filter(|(_, text)| query.terms.iter().all(|term| tf(text, term) > 0.0));
        matching.map(|(key, text)| (*key, score(text))).collect()
    }
}

struct Board {
    _dir: tempfile::TempDir,
    db: Database,
    hot: HotIndex,
    model: Model,
}

impl Board {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::create(dir.path().join("packed.redb")).unwrap();
        Self {
            _dir: dir,
            db,
            hot: HotIndex::new(),
            model: Model::default(),
        }
    }

    fn set(&mut self, key: ObjectKey, title: &str, body: &str) {
        self.hot.set(key, Some(text(title, body))).unwrap();
        self.model.set(key, title, body);
    }

    fn merge_with(&mut self, changed: &[(ObjectKey, Option<IndexedText>)]) -> Merged {
        let txn = self.db.begin_write().unwrap();
        let merged = merge(&txn, changed).unwrap();
        txn.commit().unwrap();
        merged
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Set(n, title, body) => self.set(key(*n), title, body),
            Step::Delete(n) => {
                self.hot.set(key(*n), None).unwrap();
                self.model.delete(key(*n));
            }
            Step::Merge(meanwhile) => {
                let changes = self.hot.entries();
                let merged = self.merge_with(&changes);
                self.model.merge();
                assert_eq!(merged.live as usize, self.model.settled.len());
                assert!(!merged.needs_rebuild);
                if let Some((n, body)) = meanwhile {
                    self.set(key(*n), "", body);
                }
                let late = meanwhile.as_ref().map(|(n, _)| key(*n));
                for (key, _) in changes.iter().filter(|(key, _)| Some(*key) != late) {
                    self.hot.remove(key);
                }
            }
            Step::Rebuild => {
                let txn = self.db.begin_write().unwrap();
                let mut merger = Merger::rebuild(&txn).unwrap();
                for (key, (title, body)) in &self.model.raw {
                    merger.set(*key, Some(&text(title, body))).unwrap();
                }
                merger.finish().unwrap();
                txn.commit().unwrap();
                self.hot = HotIndex::new();
                self.model.hot.clear();
                self.model.superseded.clear();
                self.model.settled = self.model.live.clone();
            }
        }
    }

    fn cold(&self) -> Cold {
        Cold::open(&self.db.begin_read().unwrap()).unwrap()
    }

    fn found(&self, query: &Query, limit: usize) -> Found {
        search(&self.cold(), &self.hot, query, limit, &mut |_| true).unwrap()
    }

    fn keys(&self, query: &str) -> Vec<ObjectKey> {
        let query = Query::parse(query, false).unwrap();
        self.found(&query, 100)
            .hits
            .into_iter()
            .map(|hit| hit.key)
            .collect()
    }

    fn check(&self, query: &Query, limit: usize, hidden: u8) {
        let expected = self.model.answer(query);
        let cold = self.cold();
        assert_eq!(
            matches(&cold, &self.hot, query).unwrap(),
            Matches {
                keys: expected.keys().copied().collect(),
                cut: false
            },
            "{query:?}"
        );

        let passes = |key: &ObjectKey| key.0[0] % 4 != hidden;
        let mut asked = 0;
        let found = search(&cold, &self.hot, query, limit, &mut |key| {
            asked += 1;
            passes(key)
        })
        .unwrap();
        assert_eq!(
            (found.matches, found.prefix_cut),
            (expected.len(), false),
            "{query:?}"
        );
        let passing: BTreeMap<_, _> = expected.iter().filter(|(key, _)| passes(key)).collect();
        assert_eq!(found.hits.len(), passing.len().min(limit), "{query:?}");
        assert!(asked <= expected.len());
        for hit in &found.hits {
            let score = *passing[&hit.key];
            assert!(
                (f64::from(hit.score) - score).abs() < 1e-4 * score.max(1.0),
                "{query:?}: {} is not {score}",
                hit.score
            );
        }
        assert!(
            found
                .hits
                .is_sorted_by(|a, b| a.score > b.score || (a.score == b.score && a.key < b.key)),
            "{:?}",
            found.hits
        );
        if let Some(worst) = found.hits.last().filter(|_| found.hits.len() == limit) {
            let better = passing.iter().filter(|(key, score)| {
                ***score > f64::from(worst.score) + 1e-3
                    && !found.hits.iter().any(|h| h.key == ***key)
            });
            assert_eq!(better.count(), 0, "{query:?}");
        }
    }
}

fn key(n: u8) -> ObjectKey {
    ObjectKey([n; 12])
}

fn wide_key(n: u32) -> ObjectKey {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    ObjectKey(bytes)
}

fn text(title: &str, body: &str) -> IndexedText {
    IndexedText::new([(Field::Title, title), (Field::Body, body)])
}

fn body(words: &str) -> Option<IndexedText> {
    Some(text("", words))
}

const WORDS: [&str; 16] = [
    "crash",
    "crashing",
    "parse_changes",
    "changes",
    "getUser",
    "user",
    "数据",
    "café",
    "42",
    "7",
    "sync",
    "synced",
    "don't",
    "Жук",
    "node.js",
    "x",
];

fn words(most: usize) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..=most)
        .prop_map(|words| words.join(" "))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0u8..24, words(1), words(3)).prop_map(|(n, title, body)| Step::Set(n, title, body)),
        2 => (0u8..24).prop_map(Step::Delete),
        3 => prop::option::of((0u8..24, words(3))).prop_map(Step::Merge),
        1 => Just(Step::Rebuild),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn both_indexes_answer_as_a_plain_computation_does(
        steps in prop::collection::vec(step(), 1..80),
        queries in prop::collection::vec((words(3), any::<bool>(), 0usize..6, 0u8..5, 1usize..8), 1..12),
    ) {
        let mut board = Board::new();
        for (at, step) in steps.iter().enumerate() {
            board.step(step);
            if at % 16 != 0 && at + 1 != steps.len() {
                continue;
            }
            for (text, prefix, limit, hidden, length) in &queries {
                let open: String = text.chars().take(text.chars().count().saturating_sub(length % 3)).collect();
                if let Ok(query) = Query::parse(if *prefix { &open } else { text }, *prefix) {
                    board.check(&query, *limit, *hidden);
                }
            }
        }
    }
}

#[test]
fn many_blocks_and_chunks_answer_as_a_plain_computation_does() {
    let mut board = Board::new();
    for round in 0..3u32 {
        for n in (0..3000u32).filter(|n| round == 0 || n % 7 == round) {
            let has = |every: u32, word: &'static str| {
                if (n + round).is_multiple_of(every) {
                    word
                } else {
                    ""
                }
            };
            board.set(
                wide_key(n),
                has(5, "fifth"),
                &format!(
                    "all {} {} {} {} w{n}",
                    has(2, "second"),
                    has(97, "rarely"),
                    has(1409, "gems"),
                    has(3, "thirds")
                ),
            );
        }
        if round < 2 {
            board.step(&Step::Merge(None));
        }
    }
    for text in [
        "all second",
        "thirds second",
        "rarely all",
        "gem all",
        "all gem fifth",
        "w2999 all",
        "all",
        "none all",
        "fifth rarely second thirds",
    ] {
        let query = Query::parse(text, false).unwrap();
        let expected = board.model.answer(&query);
        let found = matches(&board.cold(), &board.hot, &query).unwrap();
        assert_eq!(
            found.keys,
            expected.into_keys().collect::<Vec<_>>(),
            "{text}"
        );
    }
    for (text, prefix) in [
        ("rar", true),
        ("gem all", false),
        ("w2999", false),
        ("all w29", true),
    ] {
        board.check(&Query::parse(text, prefix).unwrap(), 10, 9);
    }
    // With every text settled anew nothing is superseded, and an answer does not change when its texts move to disk.
    board.step(&Step::Rebuild);
    let query = Query::parse("second rarely", false).unwrap();
    let settled = board.found(&query, 20);
    let (recent, empty) = (&mut HotIndex::new(), Cold::empty());
    for (key, (title, body)) in &board.model.raw {
        recent.set(*key, Some(text(title, body))).unwrap();
    }
    assert_eq!(
        search(&empty, recent, &query, 20, &mut |_| true).unwrap(),
        settled
    );
}

#[test]
fn identifiers_scripts_and_inflections_are_found() {
    let mut board = Board::new();
    board.set(
        key(1),
        "Crash in parse_changes",
        "getUserName returns 数据库",
    );
    board.set(
        key(2),
        "Parsing of changes",
        "the user's naïve café, ＨＴＴＰ",
    );
    board.step(&Step::Merge(None));
    board.set(key(3), "Running migrations", "data");
    for (query, expected) in [
        ("changes parse", vec![1, 2]),
        ("PARSE_CHANGES", vec![1]),
        ("username", vec![]),
        ("user name", vec![1]),
        ("getusername", vec![1]),
        ("据数", vec![1]),
        ("cafe\u{301} http", vec![2]),
        ("migration run", vec![3]),
        ("crashed", vec![1]),
        ("crash data", vec![]),
    ] {
        let mut found = board.keys(query);
        found.sort();
        assert_eq!(
            found,
            expected.into_iter().map(key).collect::<Vec<_>>(),
            "{query}"
        );
    }
    for prefix in [
        "runni", "Migrati", "run", "par", "parse_ch", "getUserN", "ca",
    ] {
        assert!(
            !board
                .found(&Query::parse(prefix, true).unwrap(), 9)
                .hits
                .is_empty(),
            "{prefix}"
        );
    }
    assert!(
        board.keys("par").is_empty(),
        "a prefix only where asked for"
    );
}

#[test]
fn titles_come_first_and_equal_scores_by_key() {
    let mut board = Board::new();
    board.set(key(9), "", "login slow here");
    board.set(key(5), "", "slow login here");
    board.set(key(7), "login", "slow here");
    assert_eq!(board.keys("login slow"), [key(7), key(5), key(9)]);
    board.step(&Step::Merge(Some((1, "here slow login".into()))));
    assert_eq!(board.keys("login slow"), [key(7), key(1), key(5), key(9)]);
}

#[test]
fn the_filter_is_asked_from_the_best_down_and_no_further() {
    let mut board = Board::new();
    for n in 0..200 {
        board.set(key(n), "", &format!("word {}", "pad ".repeat(n.into())));
    }
    board.step(&Step::Merge(None));
    let query = Query::parse("word", false).unwrap();
    let mut asked = Vec::new();
    let found = search(&board.cold(), &board.hot, &query, 3, &mut |key| {
        asked.push(key.0[0]);
        key.0[0] % 2 == 1
    });
    assert_eq!(
        found
            .unwrap()
            .hits
            .iter()
            .map(|hit| hit.key)
            .collect::<Vec<_>>(),
        [key(1), key(3), key(5)]
    );
    assert_eq!(asked, [0, 1, 2, 3, 4, 5]);
    assert!(
        search(&board.cold(), &board.hot, &query, 0, &mut |_| panic!())
            .unwrap()
            .hits
            .is_empty()
    );
}

#[test]
fn the_last_of_several_entries_counts() {
    let mut board = Board::new();
    let merged = board.merge_with(&[
        (key(1), body("one")),
        (key(1), body("two")),
        (key(2), body("two")),
        (key(2), None),
        (key(3), body("?")),
    ]);
    assert_eq!(merged.live, 1);
    assert_eq!(board.keys("two"), [key(1)]);
    assert!(board.keys("one").is_empty());
    assert_eq!(
        board.merge_with(&[(key(1), body("")), (key(4), None)]).live,
        0
    );
    assert!(board.keys("two").is_empty());
    assert_eq!(board.merge_with(&[]).live, 0);
}

#[test]
fn a_rebuild_is_asked_for_when_superseded_texts_pile_up() {
    let mut board = Board::new();
    let all = |words: &str, n: u32| {
        (0..n)
            .map(|n| (wide_key(n), body(words)))
            .collect::<Vec<_>>()
    };
    assert!(!board.merge_with(&all("one", DEAD_KEPT)).needs_rebuild);
    assert!(
        !board.merge_with(&all("two", DEAD_KEPT)).needs_rebuild,
        "at the limit"
    );
    assert!(
        board
            .merge_with(&[(wide_key(0), body("three"))])
            .needs_rebuild
    );
    // A larger index may keep as much as half.
    let more: Vec<_> = (0..DEAD_KEPT + 2)
        .map(|n| (wide_key(1_000_000 + n), body("more")))
        .collect();
    assert!(!board.merge_with(&more).needs_rebuild);
    assert!(!board.merge_with(&[]).needs_rebuild);
    let live = 2 * DEAD_KEPT + 2;
    assert!(
        board
            .merge_with(&[(wide_key(1), body("three"))])
            .needs_rebuild,
        "{live}"
    );
    assert_eq!(board.keys("two").len(), 100);
}

#[test]
fn a_merge_writes_in_parts_and_answers_the_same() {
    let long: String = (0..20_000).map(|n| format!("{n} ")).collect();
    let long = text("", &long);
    for extra in [-1i32, 0, 1] {
        let mut board = Board::new();
        let txn = board.db.begin_write().unwrap();
        let mut merger = Merger::open(&txn).unwrap();
        assert_eq!(merger.pending_max, PENDING_POSTINGS_MAX);
        merger.pending_max = 60_000usize.strict_add_signed(extra as isize);
        for n in 0..10 {
            merger.set(wide_key(n), Some(&long)).unwrap();
        }
        merger.set(wide_key(0), body("moved").as_ref()).unwrap();
        merger.set(wide_key(1), None).unwrap();
        merger.set(wide_key(9), None).unwrap();
        assert_eq!(merger.finish().unwrap().live, 8);
        txn.commit().unwrap();
        assert_eq!(board.keys("19999 777").len(), 7);
        assert_eq!(board.keys("moved"), [wide_key(0)]);
        assert_eq!(board.merge_with(&[(wide_key(5), body("moved"))]).live, 8);
        assert_eq!(board.keys("moved"), [wide_key(0), wide_key(5)]);
    }
}

#[test]
fn counts_and_lists_are_bounded() {
    let mut board = Board::new();
    let query = Query::parse("every", false).unwrap();
    let add = |board: &mut Board, from: usize, to: usize| {
        let changes: Vec<_> = (from..to)
            .map(|n| (wide_key(n as u32), body("every")))
            .collect();
        board.merge_with(&changes);
    };
    let mut from = 0;
    for limit in [MATCHES_COUNTED_MAX, RESULTS_MAX, MATCHES_MAX] {
        for count in [limit - 1, limit, limit + 1] {
            add(&mut board, from, count);
            from = count;
            let found = board.found(&query, usize::MAX);
            assert_eq!(found.matches, count.min(MATCHES_COUNTED_MAX));
            assert_eq!(found.hits.len(), count.min(RESULTS_MAX));
            assert!(found.hits.is_sorted_by_key(|hit| hit.key));
            let all = matches(&board.cold(), &board.hot, &query).unwrap();
            assert_eq!(
                (all.keys.len(), all.cut),
                (count.min(MATCHES_MAX), count > MATCHES_MAX)
            );
        }
    }
    // Hidden ones beyond the count are still not shown.
    for n in 0..20 {
        board.hot.set(wide_key(n * 5000), None).unwrap();
    }
    let found = board.found(&query, usize::MAX);
    assert!(found.hits.iter().all(|hit| !board.hot.contains(&hit.key)));
    assert_eq!(found.hits.len(), RESULTS_MAX);
}

#[test]
fn a_prefix_of_too_many_words_says_so() {
    for (count, cut) in [
        (PREFIX_TERMS_MAX - 1, false),
        (PREFIX_TERMS_MAX, false),
        (PREFIX_TERMS_MAX + 1, true),
    ] {
        let mut board = Board::new();
        let words: String = (0..count).map(|n| format!("w{n:04} ")).collect();
        board.merge_with(&[
            (key(1), body(&words)),
            (key(2), body(&format!("w{:04}", count - 1))),
        ]);
        let query = Query::parse("w0", true).unwrap();
        assert_eq!(board.found(&query, 9).prefix_cut, cut);
        assert_eq!(board.found(&query, 9).hits.len(), if cut { 1 } else { 2 });
        assert_eq!(matches(&board.cold(), &board.hot, &query).unwrap().cut, cut);
    }
}

#[test]
fn damage_is_named() {
    fn damaged(name: &str, spoil: impl FnOnce(&redb::WriteTransaction)) {
        let mut board = Board::new();
        board.merge_with(&[(key(1), body("word other")), (key(2), body("word"))]);
        let txn = board.db.begin_write().unwrap();
        spoil(&txn);
        txn.commit().unwrap();
        let query = Query::parse("word", false).unwrap();
        let read = Cold::open(&board.db.begin_read().unwrap())
            .and_then(|cold| search(&cold, &board.hot, &query, 9, &mut |_| true));
        assert!(
            matches!(read, Err(TextError::Damaged(_))),
            "{name}: {read:?}"
        );
        let txn = board.db.begin_write().unwrap();
        let written = merge(&txn, &[(key(1), body("word")), (key(3), body("word"))]);
        assert!(
            matches!(written, Err(TextError::Damaged(_))),
            "{name}: {written:?}"
        );
        txn.abort().unwrap();
        // The way out of it.
        let txn = board.db.begin_write().unwrap();
        let mut merger = Merger::rebuild(&txn).unwrap();
        merger.set(key(1), body("word").as_ref()).unwrap();
        merger.finish().unwrap();
        txn.commit().unwrap();
        assert_eq!(board.keys("word"), [key(1)]);
    }
    let blocks = |txn: &redb::WriteTransaction, value: &[u8]| {
        txn.open_table(POSTINGS)
            .unwrap()
            .insert(&b"word\0\0\0\0\0"[..], value)
            .map(drop)
            .unwrap();
    };
    let docs = |txn: &redb::WriteTransaction, value: &[u8]| {
        txn.open_table(DOCS)
            .unwrap()
            .insert(0, value)
            .map(drop)
            .unwrap()
    };
    let meta = |txn: &redb::WriteTransaction, value: &[u8]| {
        txn.open_table(TEXT_META)
            .unwrap()
            .insert("meta", value)
            .map(drop)
            .unwrap()
    };
    damaged("empty block", |txn| blocks(txn, b""));
    damaged("a document that does not exist", |txn| {
        blocks(txn, &[0, 0, 200, 1])
    });
    damaged("a key that is none", |txn| {
        drop(
            txn.open_table(POSTINGS)
                .unwrap()
                .insert(&b"word\0\0\0\0\0\0"[..], &b"x"[..])
                .unwrap(),
        )
    });
    damaged("documents cut", |txn| docs(txn, &[0; 12]));
    damaged("documents gone", |txn| {
        drop(txn.open_table(DOCS).unwrap().remove(0).unwrap())
    });
    damaged("no counts", |txn| meta(txn, b""));
    damaged("more live than made", |txn| meta(txn, &[1, 9, 2, 4]));
    damaged("too many documents", |txn| {
        meta(txn, &[1, 2, 0xff, 0xff, 0xff, 0xff, 0x0f, 4])
    });

    let board = Board::new();
    let txn = board.db.begin_write().unwrap();
    meta(&txn, &[2]);
    txn.commit().unwrap();
    assert!(matches!(
        Cold::open(&board.db.begin_read().unwrap()),
        Err(TextError::OtherFormat { found: 2 })
    ));
}

#[test]
fn an_object_that_is_dead_twice_is_damage() {
    let mut board = Board::new();
    board.merge_with(&[(key(1), body("word")), (key(2), body("word"))]);
    let txn = board.db.begin_write().unwrap();
    txn.open_table(DOC_OF)
        .unwrap()
        .insert(&key(2).0, 0)
        .map(drop)
        .unwrap();
    assert!(matches!(
        merge(&txn, &[(key(1), None), (key(2), None)]),
        Err(TextError::Damaged(_))
    ));
}

#[test]
fn document_numbers_end() {
    let board = Board::new();
    let chunk = DOCUMENT_NUMBERS_MAX / DOCS_PER_CHUNK;
    let used = (DOCUMENT_NUMBERS_MAX % DOCS_PER_CHUNK) as usize;
    let txn = board.db.begin_write().unwrap();
    assert!(used > 3, "the last chunk is begun");
    let next = DOCUMENT_NUMBERS_MAX - 2;
    let mut meta = vec![1, 0];
    meta.extend(postcard::to_stdvec(&next).unwrap());
    meta.push(0);
    txn.open_table(TEXT_META)
        .unwrap()
        .insert("meta", meta.as_slice())
        .map(drop)
        .unwrap();
    txn.open_table(DOCS)
        .unwrap()
        .insert(chunk, vec![255; (used - 2) * 13].as_slice())
        .map(drop)
        .unwrap();
    let mut merger = Merger::open(&txn).unwrap();
    merger.set(key(1), body("one").as_ref()).unwrap();
    merger.set(key(2), body("two").as_ref()).unwrap();
    assert!(matches!(
        merger.set(key(3), body("three").as_ref()),
        Err(TextError::Full)
    ));
    assert!(matches!(
        merger.set(key(1), body("three").as_ref()),
        Err(TextError::Full)
    ));
    merger.set(key(3), None).unwrap();
    assert!(merger.finish().unwrap().needs_rebuild);
    txn.commit().unwrap();
    assert_eq!(board.keys("two"), [key(2)]);
    let table = board.db.begin_read().unwrap().open_table(DOCS).unwrap();
    assert_eq!(table.last().unwrap().unwrap().1.value().len(), used * 13);
}

#[test]
fn an_empty_store_has_an_empty_index() {
    let board = Board::new();
    assert!(board.keys("anything").is_empty());
    assert_eq!(board.cold().live(), 0);
    let txn = board.db.begin_write().unwrap();
    merge(&txn, &[]).unwrap();
    txn.commit().unwrap();
    assert!(board.keys("anything").is_empty());
}
