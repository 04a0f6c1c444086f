//! The packed layer of the view: rows, long texts and index keys in sorted blocks of a page each.
//!
//! A block stands under its first key and holds the entries up to the next block's: keys without
//! what they share with the one before, values as they are, compressed together.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use redb::{Range, ReadOnlyTable, ReadTransaction, TableDefinition};

use crate::store::{
    Damage, StoreError,
    codec::{self, Reader, put_bytes, put_uint},
};

/// What is kept in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocks {
    Rows,
    Texts,
    Index,
    /// `(document, arrival, object, field)` -> value: how status and assignee moved.
    Transitions,
}

impl Blocks {
    pub(crate) const ALL: [Self; 4] = [Self::Rows, Self::Texts, Self::Index, Self::Transitions];

    /// The table that holds them.
    pub(crate) fn table(self) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
        TableDefinition::new(match self {
            Self::Rows => "blocks_of_rows",
            Self::Texts => "blocks_of_texts",
            Self::Index => "blocks_of_index",
            Self::Transitions => "blocks_of_transitions",
        })
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Rows => "block of rows",
            Self::Texts => "block of texts",
            Self::Index => "block of index keys",
            Self::Transitions => "block of transitions",
        }
    }
}

type BlockTable = ReadOnlyTable<&'static [u8], &'static [u8]>;

enum Tables {
    Open([BlockTable; 4]),
    /// There is no packed layer: a view made anew lies hot alone until it is folded.
    None,
    /// The file is being worked on, or could not be read after that.
    Away,
}

/// The packed layer as one folding left it.
pub(crate) struct Base {
    /// The number of that folding.
    pub(crate) fold: u64,
    tables: Tables,
    cache: Mutex<Cache>,
}

impl std::fmt::Debug for Base {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Base")
            .field("fold", &self.fold)
            .finish_non_exhaustive()
    }
}

impl Base {
    /// Nothing packed.
    pub(crate) fn none(fold: u64) -> Self {
        Self {
            fold,
            tables: Tables::None,
            cache: Mutex::default(),
        }
    }

    /// Nothing that could be read.
    pub(crate) fn away() -> Self {
        Self {
            fold: 0,
            tables: Tables::Away,
            cache: Mutex::default(),
        }
    }

    pub(crate) fn open(read: &ReadTransaction, fold: u64) -> Result<Self, StoreError> {
        let [rows, texts, index, transitions] =
            Blocks::ALL.map(|blocks| read.open_table(blocks.table()));
        Ok(Self {
            fold,
            tables: Tables::Open([rows?, texts?, index?, transitions?]),
            cache: Mutex::default(),
        })
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self.tables, Tables::None)
    }

    pub(crate) fn is_away(&self) -> bool {
        matches!(self.tables, Tables::Away)
    }

    fn table(&self, of: Blocks) -> Result<Option<&BlockTable>, StoreError> {
        match &self.tables {
            Tables::Open([rows, texts, index, transitions]) => Ok(Some(match of {
                Blocks::Rows => rows,
                Blocks::Texts => texts,
                Blocks::Index => index,
                Blocks::Transitions => transitions,
            })),
            Tables::None => Ok(None),
            Tables::Away => Err(StoreError::Broken("packed.redb cannot be read now")),
        }
    }

    pub(crate) fn get(&self, of: Blocks, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(table) = self.table(of)? else {
            return Ok(None);
        };
        let Some(row) = table.range::<&[u8]>(..=key)?.next_back() else {
            return Ok(None);
        };
        let (first, record) = row?;
        let block = self.block(of, first.value(), record.value())?;
        Ok(block.find(key).map(<[u8]>::to_vec))
    }

    fn block(&self, of: Blocks, first: &[u8], record: &[u8]) -> Result<Arc<Block>, Damage> {
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = lock().get(of, first) {
            return Ok(block);
        }
        let block = Arc::new(Block::decode(record, of.what())?);
        lock().insert(of, first, &block);
        Ok(block)
    }

    /// Entries from `start` on and before `end`.
    pub(crate) fn cursor(
        &self,
        of: Blocks,
        start: &[u8],
        end: Option<&[u8]>,
        reverse: bool,
    ) -> Result<Cursor<'_>, StoreError> {
        let mut cursor = Cursor {
            base: self,
            of,
            blocks: None,
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            reverse,
            block: None,
            at: 0,
        };
        if let Some(table) = self.table(of)? {
            let first = match table.range::<&[u8]>(..=start)?.next_back() {
                Some(row) => row?.0.value().to_vec(),
                None => start.to_vec(),
            };
            cursor.blocks = Some(table.range::<&[u8]>((
                Bound::Included(first.as_slice()),
                end.map_or(Bound::Unbounded, Bound::Excluded),
            ))?);
            cursor.next_block()?;
        }
        Ok(cursor)
    }
}

/// Walks the entries of a part of the packed layer, a block at a time.
pub(crate) struct Cursor<'b> {
    base: &'b Base,
    of: Blocks,
    blocks: Option<Range<'b, &'static [u8], &'static [u8]>>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    reverse: bool,
    block: Option<Arc<Block>>,
    at: usize,
}

impl Cursor<'_> {
    /// Where it stands.
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.block.as_ref()?.entry(self.at)?;
        let inside =
            key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end);
        inside.then_some((key, value))
    }

    pub(crate) fn advance(&mut self) -> Result<(), StoreError> {
        let length = self.block.as_ref().map_or(0, |block| block.len());
        let next = if self.reverse {
            self.at.checked_sub(1)
        } else {
            Some(self.at + 1).filter(|at| *at < length)
        };
        match next {
            Some(at) => self.at = at,
            None => self.next_block()?,
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<(), StoreError> {
        loop {
            self.block = None;
            let Some(blocks) = &mut self.blocks else {
                return Ok(());
            };
            let row = if self.reverse {
                blocks.next_back()
            } else {
                blocks.next()
            };
            let Some(row) = row else { return Ok(()) };
            let (first, record) = row?;
            let block = self.base.block(self.of, first.value(), record.value())?;
            let at = if self.reverse {
                let below = self.end.as_deref().map(|end| block.lower(end));
                below.unwrap_or(block.len()).checked_sub(1)
            } else {
                Some(block.lower(&self.start)).filter(|at| *at < block.len())
            };
            if let Some(at) = at {
                self.at = at;
                self.block = Some(block);
                return Ok(());
            }
        }
    }
}

/// A block, unpacked.
#[derive(Debug)]
pub(crate) struct Block {
    keys: Vec<u8>,
    plain: Vec<u8>,
    places: Vec<Place>,
}

/// Where a key ends, and where a value is.
#[derive(Debug, Clone, Copy)]
struct Place {
    key_end: u32,
    value: u32,
    value_end: u32,
}

impl Block {
    pub(super) fn decode(record: &[u8], what: &'static str) -> Result<Self, Damage> {
        let mut outer = Reader::new(codec::open(record, what)?, what);
        let size = usize::try_from(outer.uint()?)
            .ok()
            .filter(|size| *size <= PLAIN_MAX)
            .ok_or(Damage { what })?;
        let plain = inflate(outer.rest(), size).ok_or(Damage { what })?;
        let mut reader = Reader::new(&plain, what);
        let count = reader.count()?;
        let mut places = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(plain.len() / 4);
        let mut before = 0;
        for _ in 0..count {
            let shared = reader.small()? as usize;
            if shared > keys.len() - before {
                return Err(reader.damage());
            }
            let start = keys.len();
            keys.extend_from_within(before..before + shared);
            keys.extend(reader.bytes()?);
            before = start;
            let value = reader.bytes()?.len();
            let value_end = plain.len() - reader.left();
            places.push(Place {
                key_end: keys.len() as u32,
                value: (value_end - value) as u32,
                value_end: value_end as u32,
            });
        }
        if !reader.is_empty() {
            return Err(reader.damage());
        }
        Ok(Self {
            keys,
            plain,
            places,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = match at.checked_sub(1) {
            Some(before) => self.places.get(before).map_or(0, |place| place.key_end),
            None => 0,
        };
        let end = self.places.get(at).map_or(start, |place| place.key_end);
        self.keys
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    pub(super) fn entry(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let place = self.places.get(at)?;
        let value = self
            .plain
            .get(place.value as usize..place.value_end as usize)?;
        Some((self.key(at), value))
    }

    /// The place of the first key that is not below this one.
    fn lower(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.key(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn find(&self, key: &[u8]) -> Option<&[u8]> {
        let (found, value) = self.entry(self.lower(key))?;
        (found == key).then_some(value)
    }

    fn bytes(&self) -> usize {
        self.keys.len() + self.plain.len() + self.places.len() * size_of::<Place>()
    }
}

/// Entries as a block holds them before compression.
pub(super) fn encode<'e>(
    entries: impl ExactSizeIterator<Item = &'e (Vec<u8>, Vec<u8>)>,
) -> Vec<u8> {
    let mut plain = Vec::new();
    put_uint(&mut plain, entries.len() as u64);
    let mut before: &[u8] = &[];
    for (key, value) in entries {
        let shared = before
            .iter()
            .zip(key)
            .take_while(|(before, here)| before == here)
            .count();
        put_uint(&mut plain, shared as u64);
        put_bytes(&mut plain, key.get(shared..).unwrap_or_default());
        put_bytes(&mut plain, value);
        before = key;
    }
    plain
}

/// Bytes of a block before compression: one entry of the largest size, with room.
const PLAIN_MAX: usize = 65 << 20;

fn inflate(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    thread_local! {
        static INFLATER: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    INFLATER.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = zstd::bulk::Decompressor::new().ok();
        }
        let plain = slot.as_mut()?.decompress(bytes, size).ok()?;
        (plain.len() == size).then_some(plain)
    })
}

/// Blocks kept unpacked: those that lists and prefixes begin in are read again and again. Two
/// generations: what is not asked for while one fills up goes with the other.
#[derive(Default)]
struct Cache {
    young: BTreeMap<(Blocks, Box<[u8]>), Arc<Block>>,
    old: BTreeMap<(Blocks, Box<[u8]>), Arc<Block>>,
    young_bytes: usize,
}

/// Bytes of one generation.
const CACHE_BYTES: usize = 4 << 20;
/// A larger block is one long text, which is no better kept here.
const CACHED_BLOCK_BYTES: usize = 128 << 10;

impl Cache {
    fn get(&mut self, of: Blocks, first: &[u8]) -> Option<Arc<Block>> {
        let key = (of, Box::from(first));
        if let Some(block) = self.young.get(&key) {
            return Some(block.clone());
        }
        let block = self.old.remove(&key)?;
        self.keep(key, block.clone());
        Some(block)
    }

    fn insert(&mut self, of: Blocks, first: &[u8], block: &Arc<Block>) {
        if block.bytes() <= CACHED_BLOCK_BYTES {
            self.keep((of, Box::from(first)), block.clone());
        }
    }

    fn keep(&mut self, key: (Blocks, Box<[u8]>), block: Arc<Block>) {
        if self.young_bytes > CACHE_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += block.bytes();
        self.young.insert(key, block);
    }
}
