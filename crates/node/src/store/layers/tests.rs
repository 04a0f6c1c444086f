//! The two layers against a map, and against everybody at once.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use proptest::prelude::*;
use redb::ReadableTable;

use super::{GONE, Part, THERE, Tables};
use crate::store::{Cache, Directory, Store};

fn store(place: &tempfile::TempDir) -> Store {
    let disk = Directory::new(place.path().join("store")).unwrap();
    let cache = Cache {
        hot: 8 << 20,
        packed: 8 << 20,
    };
    Store::create(Box::new(disk), [1; 16], [2; 16], &[], cache).unwrap()
}

/// Puts texts under keys, in the index too, or takes both away.
fn put(store: &Store, entries: &[(Vec<u8>, Option<String>)]) {
    let txn = store.begin().unwrap();
    {
        let mut texts = txn.open_table(Part::Texts.hot()).unwrap();
        let mut index = txn.open_table(Part::Index.hot()).unwrap();
        for (key, text) in entries {
            match text {
                Some(text) => {
                    let record = store.codec().encode_text(text).unwrap();
                    texts.insert(key.as_slice(), record.as_slice()).unwrap();
                    index.insert(key.as_slice(), THERE).unwrap();
                }
                None => {
                    texts.insert(key.as_slice(), GONE).unwrap();
                    index.insert(key.as_slice(), GONE).unwrap();
                }
            }
        }
    }
    txn.commit().unwrap();
}

type Entries = Vec<(Vec<u8>, String)>;

fn walked(tables: &impl Tables, start: &[u8], end: Option<&[u8]>, reverse: bool) -> Entries {
    let mut all = Vec::new();
    tables
        .walk(Part::Texts, start, end, reverse, &mut |key, found| {
            let text = found.plain(Part::Texts)?.into_owned();
            all.push((key.to_vec(), String::from_utf8(text).unwrap()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    let mut keys = Vec::new();
    tables
        .walk(Part::Index, start, end, reverse, &mut |key, _| {
            keys.push(key.to_vec());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    assert!(keys.iter().eq(all.iter().map(|(key, _)| key)));
    all
}

fn expected(
    model: &BTreeMap<Vec<u8>, String>,
    start: &[u8],
    end: Option<&[u8]>,
    reverse: bool,
) -> Entries {
    let inside = model
        .iter()
        .filter(|(key, _)| key.as_slice() >= start && end.is_none_or(|end| key.as_slice() < end))
        .map(|(key, text)| (key.clone(), text.clone()));
    let mut all: Entries = inside.collect();
    if reverse {
        all.reverse();
    }
    all
}

/// Text of a length that compression does not take away.
fn noise(seed: u64, length: usize) -> String {
    let mut state = seed;
    let mut text = String::new();
    while text.len() < length {
        state = state
            .wrapping_mul(0x5851_F42D_4C95_7F2D)
            .wrapping_add(0x1405_7B7E_F767_814F);
        text.push_str(&format!("{:x}", state >> 33));
    }
    text.truncate(length);
    text
}

fn a_key() -> impl Strategy<Value = Vec<u8>> {
    // Few first bytes, so that keys share fronts and are fronts of each other.
    proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(7), Just(255)], 1..7)
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<(Vec<u8>, Option<(u64, usize)>)>),
    Fold,
}

fn a_step() -> impl Strategy<Value = Step> {
    let length = prop_oneof![4 => 0..400usize, 1 => 3_000..9_000usize];
    let entry = (
        a_key(),
        proptest::option::weighted(0.7, (any::<u64>(), length)),
    );
    prop_oneof![
        3 => proptest::collection::vec(entry, 1..120).prop_map(Step::Put),
        2 => Just(Step::Fold),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_read_is_what_was_written_wherever_it_lies(
        steps in proptest::collection::vec(a_step(), 1..12),
        bounds in proptest::collection::vec((a_key(), proptest::option::of(a_key())), 1..6),
    ) {
        let place = tempfile::tempdir().unwrap();
        let store = store(&place);
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(entries) => {
                    let entries: Vec<_> = entries
                        .into_iter()
                        .map(|(key, text)| (key, text.map(|(seed, length)| noise(seed, length))))
                        .collect();
                    put(&store, &entries);
                    for (key, text) in entries {
                        match text {
                            Some(text) => drop(model.insert(key, text)),
                            None => drop(model.remove(&key)),
                        }
                    }
                }
                Step::Fold => {
                    store.pack().unwrap();
                    let view = store.view(0).unwrap();
                    prop_assert!(!view.tables.is_changed().unwrap());
                }
            }
            let view = store.view(0).unwrap();
            for reverse in [false, true] {
                prop_assert_eq!(
                    walked(&view.tables, &[], None, reverse),
                    expected(&model, &[], None, reverse)
                );
                for (start, end) in &bounds {
                    let end = end.as_deref();
                    prop_assert_eq!(
                        walked(&view.tables, start, end, reverse),
                        expected(&model, start, end, reverse)
                    );
                }
            }
            // Ends that are keys: where a block or a group of one begins, too.
            for (key, _) in model.iter().step_by(1 + model.len() / 30) {
                for reverse in [false, true] {
                    prop_assert_eq!(
                        walked(&view.tables, &[], Some(key), reverse),
                        expected(&model, &[], Some(key), reverse)
                    );
                }
            }
            for (key, _) in &bounds {
                let text = view.tables.text(key).unwrap().map(|text| String::from_utf8(text).unwrap());
                prop_assert_eq!(text.as_ref(), model.get(key));
            }
        }
    }
}

const KEYS: u64 = 700;

fn mixed(a: u64, b: u64) -> u64 {
    let hash = blake3::hash(&[a.to_le_bytes(), b.to_le_bytes()].concat());
    u64::from_le_bytes(*hash.as_bytes().first_chunk().unwrap())
}

/// What write number `n` does to a key, where it does anything.
fn done(n: u64, key: u64) -> Option<Option<String>> {
    let chance = mixed(n, key);
    match chance % 16 {
        0 => Some(None),
        1..=3 => Some(Some(format!(
            "{n} {}",
            noise(chance, (chance >> 8) as usize % 300)
        ))),
        _ => None,
    }
}

fn key_of(key: u64) -> Vec<u8> {
    mixed(key, 77).to_be_bytes().to_vec()
}

/// Every view is exactly the state after one write, whichever folding and removal it falls between.
#[test]
fn a_view_taken_while_others_write_and_fold_is_of_one_moment() {
    let place = tempfile::tempdir().unwrap();
    let store = store(&place);
    let (ended, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let number = b"\0the number of the last write".to_vec();
    std::thread::scope(|scope| {
        let (store, ended, checked, number) = (&store, &ended, &checked, &number);
        scope.spawn(move || {
            for n in 1..=260 {
                let mut entries: Vec<_> = (0..KEYS)
                    .filter_map(|key| Some((key_of(key), done(n, key)?)))
                    .collect();
                entries.push((number.clone(), Some(n.to_string())));
                put(store, &entries);
            }
            ended.store(true, Ordering::Release);
        });
        scope.spawn(move || {
            while !ended.load(Ordering::Acquire) {
                store.pack().unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                let mut model: BTreeMap<Vec<u8>, String> = BTreeMap::new();
                let mut upto = 0;
                while !ended.load(Ordering::Acquire) || upto < 260 {
                    let view = store.view(0).unwrap();
                    let found = view.tables.text(number).unwrap();
                    let n =
                        found.map_or(0, |text| String::from_utf8(text).unwrap().parse().unwrap());
                    assert!(n >= upto, "a later view is of an earlier moment");
                    for step in upto + 1..=n {
                        for key in 0..KEYS {
                            match done(step, key) {
                                Some(Some(text)) => drop(model.insert(key_of(key), text)),
                                Some(None) => drop(model.remove(&key_of(key))),
                                None => {}
                            }
                        }
                        model.insert(number.clone(), step.to_string());
                    }
                    upto = n;
                    let reverse = n % 2 == 0;
                    let seen = walked(&view.tables, &[], None, reverse);
                    assert!(
                        seen == expected(&model, &[], None, reverse),
                        "after write {n}"
                    );
                    for key in (0..KEYS).step_by(13) {
                        let text = view.tables.text(&key_of(key)).unwrap();
                        let text = text.map(|text| String::from_utf8(text).unwrap());
                        assert_eq!(text.as_ref(), model.get(&key_of(key)), "after write {n}");
                    }
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(checked.load(Ordering::Relaxed) > 20);
    store.pack().unwrap();
    assert!(store.packed.folded().unwrap().fold > 5);
}

/// Whatever order entries come in, their blocks fit pages and fill most of them.
#[test]
fn blocks_fill_their_pages() {
    let place = tempfile::tempdir().unwrap();
    let store = store(&place);
    for round in 0..40 {
        let entries: Vec<_> = (0..150)
            .map(|n| {
                let chance = mixed(round, n);
                let key = mixed(chance % 3_000, 5).to_be_bytes().to_vec();
                let text = (!chance.is_multiple_of(11))
                    .then(|| noise(chance, 40 + (chance >> 20) as usize % 900));
                (key, text)
            })
            .collect();
        put(&store, &entries);
        store.pack().unwrap();
    }
    let read = store.packed.read().unwrap();
    for (part, page) in [(Part::Texts, 8_192), (Part::Index, 4_096)] {
        let table = read.open_table(part.packed().table()).unwrap();
        let (mut blocks, mut bytes) = (0, 0);
        for row in table.iter().unwrap() {
            let (key, record) = row.unwrap();
            let size = key.value().len() + record.value().len() + 12;
            assert!(size <= page, "a block of {size} bytes");
            blocks += 1;
            bytes += size;
        }
        assert!(blocks > 4, "{blocks} blocks");
        let filled = bytes as f64 / (blocks * page) as f64;
        assert!(
            filled > 0.7,
            "{part:?}: {blocks} blocks are filled to {filled}"
        );
    }
}
