//! Posting blocks: for each term the numbers of the documents that have it, ascending, with their frequencies.
//!
//! A term's blocks hold [`BLOCK_POSTINGS`] each except the last, because postings are only ever appended. A block's value is its
//! index among its term's blocks (so that the last one tells how many postings there are), then for each posting a varint of
//! `(distance to the previous document << 1) | (frequency > 1)` and, if so flagged, the frequency.

use super::{Damaged, TextError};
use redb::{AccessGuard, ReadOnlyTable};
use std::ops::Bound;

/// The open table of blocks.
pub(super) type Blocks = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// The bytes of a block, in redb's page.
pub(super) type Bytes = AccessGuard<'static, &'static [u8]>;

/// A decoded block.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// The place among its term's blocks.
    pub(super) index: u32,
    /// Ascending document numbers, at least one.
    pub(super) documents: Vec<u32>,
    /// For each document, from 1.
    pub(super) frequencies: Vec<u8>,
}

impl Block {
    /// How many postings the term has up to and with this block.
    pub(super) fn postings(&self) -> u64 {
        u64::from(self.index) * BLOCK_POSTINGS as u64 + self.documents.len() as u64
    }
}

/// The key of the block of `term` that starts with document `first`. Terms never contain a zero byte.
pub(super) fn block_key(term: &str, first: u32) -> Vec<u8> {
    let mut key = Vec::with_capacity(term.len() + 5);
    key.extend_from_slice(term.as_bytes());
    key.push(0);
    key.extend_from_slice(&first.to_be_bytes());
    key
}

/// Greater than the key of every block of `term`, and than none of a later term.
pub(super) fn end_key(term: &str) -> Vec<u8> {
    let mut key = term.as_bytes().to_vec();
    key.push(1);
    key
}

/// The term and the first document of a block.
pub(super) fn parse_key(key: &[u8]) -> Result<(&str, u32), Damaged> {
    let (rest, first) = key.split_last_chunk::<4>().ok_or(Damaged("posting key"))?;
    let term = rest
        .strip_suffix(&[0])
        .filter(|term| !term.contains(&0))
        .and_then(|term| std::str::from_utf8(term).ok())
        .ok_or(Damaged("posting key"))?;
    Ok((term, u32::from_be_bytes(*first)))
}

/// Encodes one block; `postings` are ascending.
pub(super) fn encode(index: u32, postings: &[(u32, u8)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(postings.len() + 8);
    put_varint(&mut out, u64::from(index));
    let mut previous = postings.first().map_or(0, |(first, _)| *first);
    for &(document, frequency) in postings {
        let many = frequency > 1;
        put_varint(
            &mut out,
            u64::from(document - previous) << 1 | u64::from(many),
        );
        if many {
            out.push(frequency);
        }
        previous = document;
    }
    out
}

/// Decodes a block whose key says that it starts with document `first`. `end` is one more than the greatest document there is.
pub(super) fn decode(bytes: &[u8], first: u32, end: u32, block: &mut Block) -> Result<(), Damaged> {
    block.documents.clear();
    block.frequencies.clear();
    let mut rest = bytes;
    block.index = take_varint(&mut rest)
        .and_then(|index| u32::try_from(index).ok())
        .ok_or(Damaged("posting block"))?;
    let mut document = u64::from(first);
    while !rest.is_empty() {
        let coded = take_varint(&mut rest).ok_or(Damaged("posting block"))?;
        let distance = coded >> 1;
        document += distance;
        if (distance == 0) != block.documents.is_empty()
            || document >= u64::from(end)
            || block.documents.len() == BLOCK_POSTINGS
        {
            return Err(Damaged("posting block"));
        }
        let frequency = if coded & 1 == 0 {
            1
        } else {
            *rest
                .split_off_first()
                .filter(|f| **f > 1)
                .ok_or(Damaged("posting block"))?
        };
        block.documents.push(document as u32);
        block.frequencies.push(frequency);
    }
    if block.documents.is_empty() {
        Err(Damaged("posting block"))
    } else {
        Ok(())
    }
}

/// Walks the postings of one term, decoding only the blocks that it is asked to look into.
pub(super) struct Cursor<'b> {
    blocks: &'b Blocks,
    term: String,
    end: u32,
    postings: u64,
    range: redb::Range<'static, &'static [u8], &'static [u8]>,
    /// Read from the range and not yet looked into: its first document and its bytes.
    ahead: Option<(u32, Bytes)>,
    block: Block,
    at: usize,
}

impl<'b> Cursor<'b> {
    /// Opens the postings of a term; `None` if no document has it. `end` is one more than the greatest document number.
    pub(super) fn open(
        blocks: &'b Blocks,
        term: &str,
        end: u32,
    ) -> Result<Option<Self>, TextError> {
        let (from, to) = (block_key(term, 0), end_key(term));
        let Some(last) = blocks.range(from.as_slice()..to.as_slice())?.next_back() else {
            return Ok(None);
        };
        let (key, value) = last?;
        let mut block = Block::default();
        decode(value.value(), parse_key(key.value())?.1, end, &mut block)?;
        let postings = block.postings();
        block.documents.clear();
        let range = blocks.range(from.as_slice()..to.as_slice())?;
        let mut cursor = Self {
            blocks,
            term: term.to_owned(),
            end,
            postings,
            range,
            ahead: None,
            block,
            at: 0,
        };
        cursor.ahead = cursor.pull()?;
        Ok(Some(cursor))
    }

    /// How many documents have the term, superseded ones included.
    pub(super) fn postings(&self) -> u64 {
        self.postings
    }

    /// The first posting at or after `target`. Targets must not go back.
    pub(super) fn advance(&mut self, target: u32) -> Result<Option<(u32, u8)>, TextError> {
        loop {
            let rest = &self.block.documents[self.at..];
            // Next to one another in a dense intersection, far apart in a sparse one.
            let step = match rest.iter().take(NEAR).position(|d| *d >= target) {
                Some(step) => step,
                None if rest.last().is_some_and(|last| *last >= target) => {
                    rest.partition_point(|d| *d < target)
                }
                None => rest.len(),
            };
            self.at += step;
            if let Some(&document) = self.block.documents.get(self.at) {
                return Ok(Some((document, self.block.frequencies[self.at])));
            }
            if !self.load(target)? {
                return Ok(None);
            }
        }
    }

    /// Decodes the next block that can hold `target`; false at the end.
    fn load(&mut self, target: u32) -> Result<bool, TextError> {
        let Some(mut candidate) = self.ahead.take() else {
            return Ok(false);
        };
        let mut skipped = 0;
        self.ahead = self.pull()?;
        while self
            .ahead
            .as_ref()
            .is_some_and(|(first, _)| *first <= target)
        {
            skipped += 1;
            if skipped == BLOCKS_WALKED {
                // Far away: the block that can hold the target is the last one that starts at or before it.
                let (from, to) = (
                    block_key(&self.term, candidate.0),
                    block_key(&self.term, target),
                );
                if let Some(found) = self
                    .blocks
                    .range(from.as_slice()..=to.as_slice())?
                    .next_back()
                {
                    let (key, value) = found?;
                    let end = end_key(&self.term);
                    self.range = self.blocks.range::<&[u8]>((
                        Bound::Excluded(key.value()),
                        Bound::Excluded(end.as_slice()),
                    ))?;
                    candidate = (parse_key(key.value())?.1, value);
                }
                self.ahead = self.pull()?;
                break;
            }
            if let Some(next) = self.ahead.take() {
                candidate = next;
            }
            self.ahead = self.pull()?;
        }
        decode(candidate.1.value(), candidate.0, self.end, &mut self.block)?;
        self.at = 0;
        Ok(true)
    }

    fn pull(&mut self) -> Result<Option<(u32, Bytes)>, TextError> {
        let Some(entry) = self.range.next() else {
            return Ok(None);
        };
        let (key, value) = entry?;
        Ok(Some((parse_key(key.value())?.1, value)))
    }
}

/// The terms that start with `start`, at most `limit`, and whether there are more.
pub(super) fn terms_from(
    blocks: &Blocks,
    start: &str,
    limit: usize,
) -> Result<(Vec<String>, bool), TextError> {
    let mut found = Vec::new();
    let mut from = start.as_bytes().to_vec();
    loop {
        let Some(entry) = blocks.range(from.as_slice()..)?.next() else {
            return Ok((found, false));
        };
        let (key, _) = entry?;
        let (term, _) = parse_key(key.value())?;
        if !term.starts_with(start) {
            return Ok((found, false));
        }
        if found.len() == limit {
            return Ok((found, true));
        }
        from = end_key(term);
        found.push(term.to_owned());
    }
}

/// Adds the postings of one term to the frequencies by document number.
pub(super) fn add_all(
    blocks: &Blocks,
    term: &str,
    end: u32,
    into: &mut Vec<u8>,
) -> Result<(), TextError> {
    let mut block = Block::default();
    for entry in blocks.range(block_key(term, 0).as_slice()..end_key(term).as_slice())? {
        let (key, value) = entry?;
        decode(value.value(), parse_key(key.value())?.1, end, &mut block)?;
        if let Some(&last) = block.documents.last()
            && into.len() <= last as usize
        {
            into.resize(last as usize + 1, 0);
        }
        for (&document, &frequency) in block.documents.iter().zip(&block.frequencies) {
            let sum = &mut into[document as usize];
            *sum = sum.saturating_add(frequency);
        }
    }
    Ok(())
}

/// Splits the postings that follow a last, not yet full block into blocks; each is rewritten once.
pub(super) fn append(last: Option<&Block>, new: &[(u32, u8)]) -> Vec<(u32, Vec<u8>)> {
    let mut all = Vec::with_capacity(BLOCK_POSTINGS + new.len());
    let mut index = 0;
    if let Some(last) = last {
        index = last.index + u32::from(last.documents.len() == BLOCK_POSTINGS);
        if last.documents.len() < BLOCK_POSTINGS {
            all.extend(
                last.documents
                    .iter()
                    .copied()
                    .zip(last.frequencies.iter().copied()),
            );
        }
    }
    all.extend_from_slice(new);
    all.chunks(BLOCK_POSTINGS)
        .zip(index..)
        .map(|(chunk, index)| (chunk[0].0, encode(index, chunk)))
        .collect()
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    // 35 bits hold a document number and the flag.
    for shift in (0..35).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// At a byte or two a posting, a dozen blocks share a page; measured at 100,000 texts: 512 fill pages worse (14.7 MB against 13.4), 128 cost
/// more in keys than they gain, and all three answer equally fast.
pub(crate) const BLOCK_POSTINGS: usize = 256;
/// Reading on to the next block is cheaper than a new descent of the tree up to about this many.
const BLOCKS_WALKED: usize = 8;
/// Postings looked at one by one before halving the rest of the block.
const NEAR: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redb::{ReadableDatabase, TableDefinition};
    use std::collections::BTreeMap;

    const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("t");

    fn decoded(bytes: &[u8], first: u32, end: u32) -> Result<Vec<(u32, u8)>, Damaged> {
        let mut block = Block::default();
        decode(bytes, first, end, &mut block)?;
        Ok(block.documents.into_iter().zip(block.frequencies).collect())
    }

    fn store(rows: &[(Vec<u8>, Vec<u8>)]) -> (tempfile::TempDir, redb::Database) {
        let dir = tempfile::tempdir().unwrap();
        let db = redb::Database::create(dir.path().join("t.redb")).unwrap();
        let txn = db.begin_write().unwrap();
        {
            let mut table = txn.open_table(TABLE).unwrap();
            for (key, value) in rows {
                table.insert(key.as_slice(), value.as_slice()).unwrap();
            }
        }
        txn.commit().unwrap();
        (dir, db)
    }

    fn blocks_of(db: &redb::Database) -> Blocks {
        db.begin_read().unwrap().open_table(TABLE).unwrap()
    }

    #[test]
    fn damage_is_named_not_followed() {
        let good = encode(3, &[(10, 1), (12, 9), (500, 2)]);
        assert_eq!(
            decoded(&good, 10, 501).unwrap(),
            [(10, 1), (12, 9), (500, 2)]
        );
        assert!(
            decoded(&good, 10, 500).is_err(),
            "a document that does not exist"
        );
        for cut in [0, 1, 3, 5, 6] {
            assert!(decoded(&good[..cut], 10, 501).is_err(), "cut at {cut}");
        }
        for bad in [
            &[0, 2][..],
            &[0, 0, 0],
            &[0, 1, 0],
            &[0, 1, 1],
            &[0, 1],
            &[0x80; 9],
            &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert!(decoded(bad, 10, 501).is_err(), "{bad:?}");
        }
        for length in [BLOCK_POSTINGS - 1, BLOCK_POSTINGS, BLOCK_POSTINGS + 1] {
            let postings: Vec<_> = (0..length as u32).map(|d| (d, 1)).collect();
            assert_eq!(
                decoded(&encode(0, &postings), 0, u32::MAX).is_ok(),
                length <= BLOCK_POSTINGS
            );
        }
        for key in [
            &b""[..],
            b"abc",
            b"term\x01\0\0\0\0",
            b"\xff\0\0\0\0\0",
            b"a\0\0\0\0\0\0",
        ] {
            assert!(parse_key(key).is_err(), "{key:?}");
        }
        assert_eq!(parse_key(&block_key("né", 7)).unwrap(), ("né", 7));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_damaged(bytes in prop::collection::vec(any::<u8>(), 0..40), first: u32, end: u32) {
            if let Ok(postings) = decoded(&bytes, first, end) {
                prop_assert!(postings.is_sorted_by(|a, b| a.0 < b.0) && postings.iter().all(|(d, f)| *d < end && *f > 0));
            }
        }

        #[test]
        fn a_cursor_finds_what_a_list_has(
            steps in prop::collection::vec((1u32..40, 1u8..4), 1..9000),
            targets in prop::collection::btree_set(0u32..200_000, 1..40),
            pieces in 1usize..4,
        ) {
            let mut document = 0;
            let all: Vec<(u32, u8)> = steps.into_iter().map(|(step, frequency)| { document += step; (document, frequency) }).collect();
            let mut rows = BTreeMap::new();
            for other in ["wor", "word2", "words"] {
                rows.insert(block_key(other, 0), encode(0, &[(0, 1)]));
            }
            // Appended in several pieces, as packings do.
            let mut last: Option<Block> = None;
            for piece in all.chunks(all.len().div_ceil(pieces)) {
                for (first, bytes) in append(last.as_ref(), piece) {
                    let mut block = Block::default();
                    decode(&bytes, first, u32::MAX, &mut block).unwrap();
                    last = Some(block);
                    rows.insert(block_key("word", first), bytes);
                }
            }
            prop_assert_eq!(rows.len() - 3, all.len().div_ceil(BLOCK_POSTINGS));
            let (_dir, db) = store(&rows.into_iter().collect::<Vec<_>>());
            let blocks = blocks_of(&db);
            let mut cursor = Cursor::open(&blocks, "word", document + 1).unwrap().unwrap();
            prop_assert_eq!(cursor.postings(), all.len() as u64);
            for target in targets {
                let expected = all.iter().find(|(d, _)| *d >= target).copied();
                prop_assert_eq!(cursor.advance(target).unwrap(), expected);
            }
            let mut cursor = Cursor::open(&blocks, "word", document + 1).unwrap().unwrap();
            let mut next = 0;
            let mut walked = Vec::new();
            while let Some(posting) = cursor.advance(next).unwrap() {
                walked.push(posting);
                next = posting.0 + 1;
            }
            prop_assert_eq!(&walked, &all);
            let mut sums = Vec::new();
            add_all(&blocks, "word", document + 1, &mut sums).unwrap();
            add_all(&blocks, "words", document + 1, &mut sums).unwrap();
            prop_assert_eq!(sums.iter().map(|s| u64::from(*s)).sum::<u64>(), all.iter().map(|(_, f)| u64::from(*f)).sum::<u64>() + 1);
            prop_assert!(Cursor::open(&blocks, "w", u32::MAX).unwrap().is_none());
        }
    }

    #[test]
    fn a_far_target_lands_in_the_block_that_holds_it() {
        for step in [1, 2] {
            let all: Vec<_> = (0..30 * BLOCK_POSTINGS as u32)
                .map(|n| (step * n, 1))
                .collect();
            let blocks = append(None, &all).into_iter();
            let rows: Vec<_> = blocks
                .map(|(first, bytes)| (block_key("word", first), bytes))
                .collect();
            let (_dir, db) = store(&rows);
            let blocks = blocks_of(&db);
            let last = step * (all.len() as u32 - 1);
            for first in (1..30).map(|block| step * block * BLOCK_POSTINGS as u32) {
                for target in first - 3..=first + 3 {
                    let mut cursor = Cursor::open(&blocks, "word", u32::MAX).unwrap().unwrap();
                    for target in [0, target, first + 4, last - 1, last] {
                        let expected = target.next_multiple_of(step);
                        assert_eq!(cursor.advance(target).unwrap(), Some((expected, 1)));
                    }
                    assert_eq!(cursor.advance(last + 1).unwrap(), None);
                    assert_eq!(cursor.advance(last + 1).unwrap(), None);
                }
            }
        }
    }

    #[test]
    fn terms_are_listed_by_their_start() {
        let mut rows = Vec::new();
        for term in ["b", "ba", "bar", "bars", "bé", "c"] {
            for first in [0, 900] {
                rows.push((
                    block_key(term, first),
                    encode(u32::from(first > 0), &[(first, 1)]),
                ));
            }
        }
        let (_dir, db) = store(&rows);
        let list = |start: &str, limit| terms_from(&blocks_of(&db), start, limit).unwrap();
        assert_eq!(
            list("ba", 4),
            (vec!["ba".into(), "bar".into(), "bars".into()], false)
        );
        assert!(!list("ba", 3).1);
        assert_eq!(list("ba", 2), (vec!["ba".into(), "bar".into()], true));
        assert_eq!(list("bé", 9), (vec!["bé".into()], false));
        assert_eq!(list("c", 1), (vec!["c".into()], false));
        assert_eq!(list("d", 1), (vec![], false));
    }
}
