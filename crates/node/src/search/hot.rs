//! The index in memory: the texts of objects that changed since the last merge, found at once and without writing anything.

use super::ObjectKey;
use super::bm25::{length_code, length_of};
use super::query::{Query, QueryTerm};
use super::terms::IndexedText;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// What changed since the last merge. Every object in it hides what the index on disk says about that object.
///
/// A packer merges and commits texts, and only then takes out with [`remove`](Self::remove) those that have not changed since; a
/// reader holds this index (a lock) while it opens the read transaction. Then every reader sees each text in one of the two at least,
/// and the newer one if they differ.
#[derive(Debug, Default)]
pub(crate) struct HotIndex {
    objects: BTreeMap<ObjectKey, Entry>,
    words: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    texts: u32,
    length: u64,
    bytes: usize,
}

/// The index in memory is at [`HOT_BYTES_MAX`]: merge, forget, and set again. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the index of recent texts is full")]
pub(crate) struct HotFull;

#[derive(Debug)]
struct Entry {
    text: Option<IndexedText>,
}

impl HotIndex {
    /// An index of nothing.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The object's text is now this; `None` takes the object out of the results.
    pub(crate) fn set(&mut self, key: ObjectKey, text: Option<IndexedText>) -> Result<(), HotFull> {
        let text = text.filter(|text| !text.is_empty());
        // Counted as if no word were known yet, so that the bound holds whatever the other texts are.
        let needed = OBJECT_BYTES
            + text.as_ref().map_or(0, |text| {
                text.terms()
                    .iter()
                    .map(|(term, _)| POSTING_BYTES + word_bytes(term))
                    .sum()
            });
        if self.bytes + needed > HOT_BYTES_MAX {
            return Err(HotFull);
        }
        self.remove(&key);
        let text = text.map(|text| {
            self.texts += 1;
            self.length += quantised(&text);
            text.map_terms(|term| self.add_posting(term, key))
        });
        self.bytes += OBJECT_BYTES;
        self.objects.insert(key, Entry { text });
        Ok(())
    }

    /// Forgets the object: what the index on disk says about it counts again.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        let Some(entry) = self.objects.remove(key) else {
            return;
        };
        self.bytes -= OBJECT_BYTES;
        let Some(text) = entry.text else { return };
        self.texts -= 1;
        self.length -= quantised(&text);
        for (term, _) in text.terms() {
            self.bytes -= POSTING_BYTES;
            if let Some(objects) = self.words.get_mut(term) {
                objects.remove(key);
                if objects.is_empty() {
                    self.words.remove(term);
                    self.bytes -= word_bytes(term);
                }
            }
        }
    }

    /// The object changed since the last merge (it may have no text).
    pub(crate) fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// Every object with its text.
    #[cfg(test)]
    pub(super) fn entries(&self) -> Vec<(ObjectKey, Option<IndexedText>)> {
        self.objects
            .iter()
            .map(|(key, entry)| (*key, entry.text.clone()))
            .collect()
    }

    /// How many texts there are.
    pub(super) fn texts(&self) -> u32 {
        self.texts
    }

    /// Sum of the texts' quantised lengths.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// How many texts have this term.
    pub(super) fn frequency(&self, term: &QueryTerm) -> u64 {
        match term {
            QueryTerm::Exact(term) => self
                .words
                .get(term.as_str())
                .map_or(0, |objects| objects.len() as u64),
            QueryTerm::Prefix { .. } => self.having(term).len() as u64,
        }
    }

    /// Calls `found` with each object whose text has all terms: its length code and the frequencies in the query's order.
    pub(super) fn run(&self, query: &Query, found: &mut dyn FnMut(ObjectKey, u8, &[u8])) {
        // A prefix needs a union to be walked; it leads only where there is nothing else.
        let exact = query
            .terms
            .iter()
            .filter(|term| matches!(term, QueryTerm::Exact(_)));
        let Some(rarest) = exact
            .min_by_key(|term| self.frequency(term))
            .or(query.terms.first())
        else {
            return;
        };
        let mut frequencies = Vec::with_capacity(query.terms.len());
        for key in self.having(rarest) {
            let Some(text) = self.objects.get(&key).and_then(|entry| entry.text.as_ref()) else {
                continue;
            };
            frequencies.clear();
            frequencies.extend(
                query
                    .terms
                    .iter()
                    .map(|term| frequency_in(text, term))
                    .take_while(|frequency| *frequency > 0),
            );
            if frequencies.len() == query.terms.len() {
                found(key, length_code(text.length()), &frequencies);
            }
        }
    }

    /// The objects that have the term, ascending.
    fn having(&self, term: &QueryTerm) -> Vec<ObjectKey> {
        let mut keys: Vec<ObjectKey> = match term {
            QueryTerm::Exact(term) => {
                return self
                    .words
                    .get(term.as_str())
                    .into_iter()
                    .flatten()
                    .copied()
                    .collect();
            }
            QueryTerm::Prefix { start, stems } => {
                let started = self
                    .words
                    .range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded))
                    .take_while(|(term, _)| term.starts_with(start.as_str()));
                let stemmed = stems
                    .iter()
                    .filter_map(|stem| self.words.get(stem.as_str()));
                started
                    .map(|(_, objects)| objects)
                    .chain(stemmed)
                    .flatten()
                    .copied()
                    .collect()
            }
        };
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn add_posting(&mut self, term: &Arc<str>, key: ObjectKey) -> Arc<str> {
        self.bytes += POSTING_BYTES;
        if let Some((known, _)) = self.words.get_key_value(term) {
            let known = Arc::clone(known);
            self.words
                .entry(Arc::clone(&known))
                .or_default()
                .insert(key);
            return known;
        }
        self.bytes += word_bytes(term);
        self.words.insert(Arc::clone(term), BTreeSet::from([key]));
        Arc::clone(term)
    }
}

fn frequency_in(text: &IndexedText, term: &QueryTerm) -> u8 {
    let terms = text.terms();
    let exact = |term: &str| {
        terms
            .binary_search_by(|(t, _)| (**t).cmp(term))
            .map_or(0, |at| terms[at].1)
    };
    match term {
        QueryTerm::Exact(term) => exact(term),
        QueryTerm::Prefix { start, stems } => {
            let from = terms.partition_point(|(term, _)| **term < **start);
            let started = terms[from..]
                .iter()
                .take_while(|(term, _)| term.starts_with(start.as_str()))
                .map(|(_, f)| *f);
            started
                .chain(stems.iter().map(|stem| exact(stem)))
                .fold(0, u8::saturating_add)
        }
    }
}

fn quantised(text: &IndexedText) -> u64 {
    u64::from(length_of(length_code(text.length())))
}

fn word_bytes(term: &str) -> usize {
    WORD_BYTES + term.len()
}

/// Some ten thousand objects of 500 characters: an import is merged a few times, a day's work once.
pub(crate) const HOT_BYTES_MAX: usize = 32 << 20;
/// Key, entry and their share of a tree.
const OBJECT_BYTES: usize = 150;
/// A fat pointer with a frequency, and a key in a tree's leaf at usual fill.
const POSTING_BYTES: usize = 24 + 20;
/// The string's counters, the map's slot and the first leaf of the set.
const WORD_BYTES: usize = 230;

#[cfg(test)]
mod tests {
    use super::super::terms::Field;
    use super::*;

    fn key(n: u32) -> ObjectKey {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        ObjectKey(bytes)
    }

    fn text(text: &str) -> IndexedText {
        IndexedText::new([(Field::Body, text)])
    }

    #[test]
    fn what_is_taken_out_leaves_nothing_behind() {
        let mut hot = HotIndex::new();
        for n in 0..50 {
            hot.set(key(n), Some(text(&format!("common word w{n} w{}", n % 7))))
                .unwrap();
            hot.set(key(n % 5), (n % 2 == 0).then(|| text("other word")))
                .unwrap();
        }
        assert_eq!(hot.entries().len(), 50);
        for n in (0..50).filter(|n| *n != 3) {
            hot.remove(&key(n));
        }
        assert_eq!(
            (
                hot.entries().len(),
                hot.contains(&key(3)),
                hot.contains(&key(4))
            ),
            (1, true, false)
        );
        hot.remove(&key(3));
        hot.remove(&key(3));
        assert!(hot.objects.is_empty() && hot.words.is_empty());
        assert_eq!((hot.bytes, hot.length, hot.texts), (0, 0, 0));
    }

    #[test]
    fn memory_is_bounded_and_a_refusal_changes_nothing() {
        let mut hot = HotIndex::new();
        let big: String = (0..20_000).map(|n| format!("w{n} ")).collect();
        let big = text(&big);
        let mut n = 0;
        while hot.set(key(n), Some(big.clone())).is_ok() {
            n += 1;
        }
        assert!(n > 2 && hot.bytes <= HOT_BYTES_MAX && hot.bytes > HOT_BYTES_MAX / 2);
        let (bytes, count) = (hot.bytes, hot.objects.len());
        assert_eq!(hot.set(key(0), Some(big)), Err(HotFull));
        assert_eq!((hot.bytes, hot.objects.len()), (bytes, count));
        // Exactly at, one below and one above the bound, with entries of known size.
        while hot.bytes + OBJECT_BYTES <= HOT_BYTES_MAX {
            n += 1;
            hot.set(key(n), None).unwrap();
        }
        assert_eq!(hot.set(key(n + 1), None), Err(HotFull));
        hot.bytes = HOT_BYTES_MAX - OBJECT_BYTES + 1;
        assert_eq!(hot.set(key(n + 1), None), Err(HotFull));
        hot.bytes = HOT_BYTES_MAX - OBJECT_BYTES;
        assert_eq!(hot.set(key(n + 1), None), Ok(()));
        assert_eq!(hot.bytes, HOT_BYTES_MAX);
    }

    #[test]
    fn equal_words_are_stored_once() {
        let mut hot = HotIndex::new();
        hot.set(key(1), Some(text("shared"))).unwrap();
        hot.set(key(2), Some(text("shared"))).unwrap();
        let changes = hot.entries();
        let of = |n: usize| &changes[n].1.as_ref().unwrap().terms()[0].0;
        assert!(Arc::ptr_eq(of(0), of(1)));
    }
}
