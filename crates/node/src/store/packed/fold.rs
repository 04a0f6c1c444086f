//! Folding: what changed of the view goes into the packed layer's blocks.

use std::collections::{BTreeSet, VecDeque};

use redb::{ReadableTable, Table, WriteTransaction};

use super::base::{self, Base, Block, Blocks};
use crate::store::{
    StoreError,
    codec::{self, put_uint},
};

/// Bytes of a block's record and key: with redb's own numbers they fill a page of 4 KiB, or one of
/// 8 KiB where entries are so long that few of them make a block.
fn block_bytes(of: Blocks) -> usize {
    const OWN: usize = 4 + 8;
    match of {
        Blocks::Rows | Blocks::Index | Blocks::Transitions => 4_096 - OWN,
        Blocks::Texts => 8_192 - OWN,
    }
}

/// How full blocks are made, so that one that grows a little need not be parted.
const FILLED: f64 = 0.94;
/// A block that would be left emptier than this takes a neighbour's entries in.
const WANTED: f64 = 0.72;
/// Neighbours that one rewritten stretch may take in.
const NEIGHBOURS: usize = 2;
/// Blocks' worth of entries held in memory at most.
const HELD: f64 = 12.0;
/// What a folding writes is soon folded over.
const LEVEL: i32 = 3;
/// What is packed anew stays for longer, and nobody waits for it.
const DENSE_LEVEL: i32 = 9;

type Entry = (Vec<u8>, Vec<u8>);

/// Packs the entries of `base` anew, as full as blocks are made: those that grew and were parted in
/// many foldings leave a fifth of their pages empty.
pub(super) fn pack_anew(txn: &WriteTransaction, of: Blocks, base: &Base) -> Result<(), StoreError> {
    let mut cursor = base.cursor(of, &[], None, false)?;
    let all = std::iter::from_fn(|| {
        let (key, value) = cursor.entry()?;
        let entry = (key.to_vec(), Some(value.to_vec()));
        Some(cursor.advance().map(|()| entry))
    });
    txn.delete_table(of.table())?;
    fold_at(DENSE_LEVEL, txn, of, all)
}

/// Puts changed entries, in key order, into blocks; those without a value go.
pub(super) fn fold(
    txn: &WriteTransaction,
    of: Blocks,
    changed: impl Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), StoreError>>,
) -> Result<(), StoreError> {
    fold_at(LEVEL, txn, of, changed)
}

fn fold_at(
    level: i32,
    txn: &WriteTransaction,
    of: Blocks,
    changed: impl Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), StoreError>>,
) -> Result<(), StoreError> {
    let mut folder = Folder {
        table: txn.open_table(of.table())?,
        compressor: zstd::bulk::Compressor::new(level).map_err(StoreError::Io)?,
        what: of.what(),
        block_bytes: block_bytes(of),
        ratio: 0.5,
        pending: VecDeque::new(),
        pending_bytes: 0,
        stale: BTreeSet::new(),
    };
    let mut changed = Changed {
        rows: changed,
        next: None,
    };
    changed.step()?;
    while let Some(key) = changed.key() {
        let mut at = folder.covering(key)?;
        let mut neighbours = 0;
        loop {
            let beyond = match &at {
                Some(first) => folder.after(first)?,
                None => None,
            };
            let entries = match at {
                Some(first) => folder.take(first)?,
                None => Vec::new(),
            };
            folder.merge(entries, &mut changed, beyond.as_deref())?;
            let Some(next) = beyond else { break };
            let goes_on = match (changed.key(), folder.after(&next)?) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(key), Some(after)) => key < after.as_slice(),
            };
            if !goes_on {
                if neighbours == NEIGHBOURS || !folder.is_ill_filled() {
                    break;
                }
                neighbours += 1;
            }
            at = Some(next);
        }
        folder.finish()?;
    }
    Ok(())
}

struct Changed<I> {
    rows: I,
    next: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl<I: Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), StoreError>>> Changed<I> {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Option<Vec<u8>>)>, StoreError> {
        let next = self.rows.next().transpose()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    fn key(&self) -> Option<&[u8]> {
        self.next.as_ref().map(|(key, _)| key.as_slice())
    }
}

struct Folder<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
    compressor: zstd::bulk::Compressor<'static>,
    what: &'static str,
    block_bytes: usize,
    /// Bytes on disk for a byte of an entry, as the blocks at hand have it.
    ratio: f64,
    pending: VecDeque<Entry>,
    pending_bytes: usize,
    /// First keys of blocks whose entries are pending or written under another key.
    stale: BTreeSet<Vec<u8>>,
}

impl Folder<'_> {
    /// The first key of the block that a key belongs into.
    fn covering(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let row = match self.table.range::<&[u8]>(..=key)?.next_back() {
            Some(row) => Some(row),
            None => self.table.iter()?.next(),
        };
        Ok(row.transpose()?.map(|(first, _)| first.value().to_vec()))
    }

    /// The first key of the block behind one.
    fn after(&self, first: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        use std::ops::Bound;
        let behind = (Bound::Excluded(first), Bound::Unbounded);
        let row = self.table.range::<&[u8]>(behind)?.next().transpose()?;
        Ok(row.map(|(first, _)| first.value().to_vec()))
    }

    /// The entries of a block, which is written anew.
    fn take(&mut self, first: Vec<u8>) -> Result<Vec<Entry>, StoreError> {
        let Some(record) = self.table.get(first.as_slice())? else {
            return Ok(Vec::new());
        };
        let entries = Block::decode(record.value(), self.what)?.entries()?;
        let plain: usize = entries
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        self.ratio = (first.len() + record.value().len()) as f64 / plain.max(1) as f64;
        drop(record);
        self.stale.insert(first);
        Ok(entries)
    }

    /// A block's entries with what changed before `beyond`.
    fn merge<I: Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), StoreError>>>(
        &mut self,
        entries: Vec<Entry>,
        changed: &mut Changed<I>,
        beyond: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        for (key, value) in entries {
            while changed
                .key()
                .is_some_and(|changed| changed < key.as_slice())
            {
                self.push_changed(changed)?;
            }
            if changed.key() == Some(key.as_slice()) {
                self.push_changed(changed)?;
            } else {
                self.push(key, value)?;
            }
        }
        while changed
            .key()
            .is_some_and(|changed| beyond.is_none_or(|beyond| changed < beyond))
        {
            self.push_changed(changed)?;
        }
        Ok(())
    }

    fn push_changed<I: Iterator<Item = Result<(Vec<u8>, Option<Vec<u8>>), StoreError>>>(
        &mut self,
        changed: &mut Changed<I>,
    ) -> Result<(), StoreError> {
        match changed.step()? {
            Some((key, Some(value))) => self.push(key, value),
            _ => Ok(()),
        }
    }

    fn push(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<(), StoreError> {
        self.pending_bytes += key.len() + value.len();
        self.pending.push_back((key, value));
        if self.blocks() > HELD {
            while self.blocks() > HELD / 2.0 {
                self.write_about(FILLED * self.block_bytes as f64)?;
            }
        }
        Ok(())
    }

    /// How many blocks the pending entries would fill.
    fn blocks(&self) -> f64 {
        self.pending_bytes as f64 * self.ratio / self.block_bytes as f64
    }

    fn is_ill_filled(&self) -> bool {
        let blocks = self.blocks();
        let pages = (blocks / FILLED).ceil().max(1.0);
        !self.pending.is_empty() && blocks / pages < WANTED
    }

    /// Writes everything pending, evenly, and takes the old blocks out.
    fn finish(&mut self) -> Result<(), StoreError> {
        while !self.pending.is_empty() {
            let mut pages = (self.blocks() / FILLED).ceil();
            if pages <= 1.0 {
                let record = self.record(self.pending.len())?;
                if self.fits(&record) || self.pending.len() == 1 {
                    self.write(self.pending.len(), &record)?;
                    continue;
                }
                pages = 2.0;
            }
            self.write_about(self.blocks() * self.block_bytes as f64 / pages)?;
        }
        for first in std::mem::take(&mut self.stale) {
            self.table.remove(first.as_slice())?;
        }
        Ok(())
    }

    /// Writes the front of what is pending as a block of about so many bytes.
    fn write_about(&mut self, bytes: f64) -> Result<(), StoreError> {
        let mut count = self.front(bytes / self.ratio);
        let mut was_too_large = false;
        for attempt in 0.. {
            let record = self.record(count)?;
            let size = self.size(&record) as f64;
            if !self.fits(&record) && count > 1 {
                was_too_large = true;
                let fewer =
                    (count as f64 * bytes.min(self.block_bytes as f64 * 0.97) / size) as usize;
                count = if attempt < 5 { fewer } else { count / 2 }.clamp(1, count - 1);
                continue;
            }
            let more = self.front(bytes / self.ratio);
            if size < bytes * 0.92 && more > count && attempt < 3 && !was_too_large {
                count = more;
                continue;
            }
            return self.write(count, &record);
        }
        Ok(())
    }

    /// How many pending entries hold so many bytes before compression, one at least.
    fn front(&self, bytes: f64) -> usize {
        let mut sum = 0;
        let fitting = self.pending.iter().take_while(|(key, value)| {
            sum += key.len() + value.len();
            sum as f64 <= bytes
        });
        fitting.count().max(1)
    }

    fn record(&mut self, count: usize) -> Result<Vec<u8>, StoreError> {
        let front = self.pending.range(..count);
        let bytes: usize = front
            .clone()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        let plain = base::encode(front);
        let mut out = Vec::with_capacity(self.block_bytes);
        put_uint(&mut out, plain.len() as u64);
        out.extend(self.compressor.compress(&plain).map_err(StoreError::Io)?);
        let record = codec::seal(&out);
        self.ratio = self.size(&record) as f64 / bytes.max(1) as f64;
        Ok(record)
    }

    fn size(&self, record: &[u8]) -> usize {
        record.len() + self.pending.front().map_or(0, |(key, _)| key.len())
    }

    fn fits(&self, record: &[u8]) -> bool {
        self.size(record) <= self.block_bytes
    }

    fn write(&mut self, count: usize, record: &[u8]) -> Result<(), StoreError> {
        let Some((first, _)) = self.pending.front() else {
            return Ok(());
        };
        self.table.insert(first.as_slice(), record)?;
        self.stale.remove(first);
        for (key, value) in self.pending.drain(..count) {
            self.pending_bytes -= key.len() + value.len();
        }
        Ok(())
    }
}
