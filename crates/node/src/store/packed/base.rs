//! The packed layer of the view: rows, long texts and index keys in sorted blocks of a page each.
//!
//! A block stands under its first key and holds the entries up to the next block's, compressed
//! together.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, PoisonError},
};

use redb::{AccessGuard, ReadOnlyTable, ReadTransaction, TableDefinition};

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
type BlockRow = (
    AccessGuard<'static, &'static [u8]>,
    AccessGuard<'static, &'static [u8]>,
);

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
        Ok(block.find(key)?)
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
            table: self.table(of)?,
            start: start.to_vec(),
            end: end.map(<[u8]>::to_vec),
            reverse,
            block: None,
            first: Vec::new(),
            group: 0,
            entries: Group::default(),
            at: 0,
        };
        cursor.begin()?;
        Ok(cursor)
    }
}

/// Walks entries of the packed layer, a few at a time.
pub(crate) struct Cursor<'b> {
    base: &'b Base,
    of: Blocks,
    table: Option<&'b BlockTable>,
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    reverse: bool,
    block: Option<Arc<Block>>,
    /// The key that the block stands under.
    first: Vec<u8>,
    /// The group of the block that it is in, and the place in that.
    group: usize,
    entries: Group,
    at: usize,
}

impl Cursor<'_> {
    /// Where it stands.
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = self.entries.entry(self.block.as_ref()?, self.at)?;
        let inside =
            key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end);
        inside.then_some((key, value))
    }

    pub(crate) fn advance(&mut self) -> Result<(), StoreError> {
        let next = if self.reverse {
            self.at.checked_sub(1)
        } else {
            Some(self.at + 1)
        };
        match next.filter(|at| *at < self.entries.len()) {
            Some(at) => {
                self.at = at;
                Ok(())
            }
            None => self.next_group(),
        }
    }

    fn next_group(&mut self) -> Result<(), StoreError> {
        let Some(block) = self.block.clone() else {
            return Ok(());
        };
        let next = if self.reverse {
            self.group.checked_sub(1)
        } else {
            Some(self.group + 1)
        };
        match next.filter(|group| *group < block.groups()) {
            Some(group) => {
                self.group = group;
                self.entries = block.group(group)?;
                self.at = if self.reverse {
                    self.entries.len().saturating_sub(1)
                } else {
                    0
                };
                Ok(())
            }
            None => self.next_block(),
        }
    }

    /// To the first entry: most walks end in the block that they begin in.
    fn begin(&mut self) -> Result<(), StoreError> {
        let Some(table) = self.table else {
            return Ok(());
        };
        let row = if self.reverse {
            let end = self.end.as_deref();
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            table.range::<&[u8]>((Bound::Unbounded, end))?.next_back()
        } else {
            let start = self.start.as_slice();
            match table.range::<&[u8]>(..=start)?.next_back() {
                Some(row) => Some(row),
                None => table.range::<&[u8]>(start..)?.next(),
            }
        };
        self.enter(row.transpose()?)
    }

    fn next_block(&mut self) -> Result<(), StoreError> {
        self.block = None;
        let Some(table) = self.table else {
            return Ok(());
        };
        let first = self.first.as_slice();
        let row = if self.reverse {
            if first <= self.start.as_slice() {
                return Ok(());
            }
            table.range::<&[u8]>(..first)?.next_back()
        } else {
            let behind = (Bound::Excluded(first), Bound::Unbounded);
            table.range::<&[u8]>(behind)?.next()
        };
        self.enter(row.transpose()?)
    }

    /// To the last entry of a block below the end, or to the first that is not below the start.
    fn enter(&mut self, row: Option<BlockRow>) -> Result<(), StoreError> {
        let Some((first, record)) = row else {
            return Ok(());
        };
        let block = self.base.block(self.of, first.value(), record.value())?;
        self.first.clear();
        self.first.extend(first.value());
        let bound = if self.reverse {
            self.end.as_deref()
        } else {
            Some(self.start.as_slice())
        };
        self.group = match bound {
            Some(bound) => block.group_of(bound)?,
            None => block.groups() - 1,
        };
        self.entries = block.group(self.group)?;
        let below = bound.map_or(self.entries.len(), |bound| self.entries.lower(bound));
        self.block = Some(block);
        let at = if self.reverse {
            // Nothing of the group where it begins with the end; the block begins below it.
            below.checked_sub(1)
        } else {
            Some(below).filter(|at| *at < self.entries.len())
        };
        match at {
            Some(at) => {
                self.at = at;
                Ok(())
            }
            None => self.next_group(),
        }
    }
}

/// A block, unpacked: groups of entries, in each the first key whole and the others without what
/// they share with the one before, so that finding one reads a few.
#[derive(Debug)]
pub(crate) struct Block {
    plain: Vec<u8>,
    /// Where each group begins, and where the last one ends.
    groups: Vec<u32>,
    what: &'static str,
}

/// The entries of a group.
#[derive(Debug, Default)]
pub(super) struct Group {
    keys: Vec<u8>,
    places: Vec<Place>,
}

/// Where a key ends, and where a value is.
#[derive(Debug, Clone, Copy)]
struct Place {
    key_end: u32,
    value: u32,
    value_end: u32,
}

/// Entries of a group.
const GROUP: usize = 16;

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
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            lengths.push(reader.small()?);
        }
        let mut at = plain.len() - reader.left();
        let mut groups = Vec::with_capacity(count + 1);
        groups.push(at as u32);
        for length in lengths {
            at += length as usize;
            groups.push(at as u32);
        }
        if at != plain.len() || count == 0 {
            return Err(Damage { what });
        }
        Ok(Self {
            plain,
            groups,
            what,
        })
    }

    pub(super) fn groups(&self) -> usize {
        self.groups.len() - 1
    }

    fn bytes_of(&self, group: usize) -> &[u8] {
        let bound = |at: usize| self.groups.get(at).map_or(0, |at| *at as usize);
        self.plain
            .get(bound(group)..bound(group + 1))
            .unwrap_or_default()
    }

    fn first_key(&self, group: usize) -> Result<&[u8], Damage> {
        let mut reader = Reader::new(self.bytes_of(group), self.what);
        match reader.uint()? {
            0 => reader.bytes(),
            _ => Err(reader.damage()),
        }
    }

    /// The last group that begins below a key or with it, or else the first.
    fn group_of(&self, key: &[u8]) -> Result<usize, Damage> {
        let (mut low, mut high) = (0, self.groups());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.first_key(middle)? <= key {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    pub(super) fn group(&self, group: usize) -> Result<Group, Damage> {
        let bytes = self.bytes_of(group);
        let start = self.groups.get(group).map_or(0, |at| *at as usize);
        let mut reader = Reader::new(bytes, self.what);
        let mut found = Group {
            keys: Vec::with_capacity(GROUP * 48),
            places: Vec::with_capacity(GROUP),
        };
        let mut before = 0;
        while !reader.is_empty() {
            let shared = reader.small()? as usize;
            if shared > found.keys.len() - before {
                return Err(reader.damage());
            }
            let here = found.keys.len();
            found.keys.extend_from_within(before..before + shared);
            found.keys.extend(reader.bytes()?);
            before = here;
            let value = reader.bytes()?.len();
            let value_end = start + bytes.len() - reader.left();
            found.places.push(Place {
                key_end: found.keys.len() as u32,
                value: (value_end - value) as u32,
                value_end: value_end as u32,
            });
        }
        Ok(found)
    }

    /// All entries, in order.
    pub(super) fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Damage> {
        let mut all = Vec::new();
        for group in 0..self.groups() {
            let group = self.group(group)?;
            all.extend(
                (0..group.len())
                    .filter_map(|at| group.entry(self, at))
                    .map(|(key, value)| (key.to_vec(), value.to_vec())),
            );
        }
        Ok(all)
    }

    fn find(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Damage> {
        let group = self.group(self.group_of(key)?)?;
        let found = group.entry(self, group.lower(key));
        Ok(found
            .filter(|(found, _)| *found == key)
            .map(|(_, value)| value.to_vec()))
    }

    fn bytes(&self) -> usize {
        self.plain.len() + self.groups.len() * 4
    }
}

impl Group {
    fn len(&self) -> usize {
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

    fn entry<'g>(&'g self, block: &'g Block, at: usize) -> Option<(&'g [u8], &'g [u8])> {
        let place = self.places.get(at)?;
        let value = block
            .plain
            .get(place.value as usize..place.value_end as usize)?;
        Some((self.key(at), value))
    }

    /// The place of the first key that is not below this one.
    fn lower(&self, key: &[u8]) -> usize {
        (0..self.len())
            .find(|at| self.key(*at) >= key)
            .unwrap_or(self.len())
    }
}

/// Entries as a block holds them before compression.
pub(super) fn encode<'e>(entries: impl Iterator<Item = &'e (Vec<u8>, Vec<u8>)>) -> Vec<u8> {
    let mut groups: Vec<usize> = Vec::new();
    let mut content = Vec::new();
    let mut before: &[u8] = &[];
    for (at, (key, value)) in entries.enumerate() {
        if at.is_multiple_of(GROUP) {
            groups.push(content.len());
            before = &[];
        }
        let shared = before
            .iter()
            .zip(key)
            .take_while(|(before, here)| before == here)
            .count();
        put_uint(&mut content, shared as u64);
        put_bytes(&mut content, key.get(shared..).unwrap_or_default());
        put_bytes(&mut content, value);
        before = key;
    }
    let mut plain = Vec::with_capacity(content.len() + 2 * groups.len() + 4);
    put_uint(&mut plain, groups.len() as u64);
    let ends = groups.iter().skip(1).copied().chain([content.len()]);
    for (start, end) in groups.iter().zip(ends) {
        put_uint(&mut plain, (end - start) as u64);
    }
    plain.extend(content);
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
