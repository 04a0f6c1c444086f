//! The packed part of the log and the indexes over it: written by packing alone.

pub(crate) mod ancestry;
mod base;
mod fold;
mod packing;
mod runs;
mod texts;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use stead_doc::id::{ChangeHash, ObjectId};

use super::{
    Damage, StoreError,
    blocks::{self, LogEntry},
    codec::{self, Reader, put_uint},
    index,
};

pub(crate) use base::{Base, Blocks};
pub(crate) use packing::transition;
pub(crate) use texts::TEXT_FIELDS;

const BLOCKS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("blocks");
/// `(actor, first op counter)` -> where the block is and how it ends.
const BLOCK_ENDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("block_ends");
/// The front of a change's hash -> where changes of such a hash are, to be looked at.
const HASHES: TableDefinition<'static, &[u8; FRONT], &[u8]> = TableDefinition::new("hash_places");
const ARRIVALS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("arrivals");
const TOUCHES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("touches");
/// The same for idempotency keys.
const KEYS: TableDefinition<'static, &[u8; FRONT], &[u8]> = TableDefinition::new("key_places");
const PACKED_META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("packed_meta");

/// The packed file.
#[derive(Debug)]
pub(crate) struct Packed {
    /// The packed layer of the view, for whoever reads from now on.
    base: RwLock<Arc<Base>>,
    database: Database,
    /// Every change that came before this is packed.
    end: AtomicU64,
    cache: Mutex<BTreeMap<(u32, u64), Arc<Vec<LogEntry>>>>,
    pub(crate) ancestry: Mutex<ancestry::Cache>,
}

/// Bytes of a hash that are indexed: enough that two of a million changes seldom share them.
const FRONT: usize = 6;

fn front(hash: &[u8]) -> [u8; FRONT] {
    hash.first_chunk().copied().unwrap_or_default()
}

/// Blocks kept unpacked for the next reader: history is read in runs.
const CACHED_BLOCKS: usize = 8;

impl Packed {
    pub(crate) fn init(database: &Database, generation: &str) -> Result<(), StoreError> {
        let mut txn = database.begin_write()?;
        txn.set_quick_repair(true);
        txn.open_table(PACKED_META)?
            .insert("generation", generation.as_bytes())?;
        for table in [BLOCKS, BLOCK_ENDS, TOUCHES] {
            txn.open_table(table)?;
        }
        for table in [HASHES, KEYS] {
            txn.open_table(table)?;
        }
        for blocks in Blocks::ALL {
            txn.open_table(blocks.table())?;
        }
        txn.open_table(ARRIVALS)?;
        txn.commit()?;
        Ok(())
    }

    pub(crate) fn generation(database: &Database) -> Result<String, StoreError> {
        let read = database.begin_read()?;
        let table = match read.open_table(PACKED_META) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(String::new()),
            Err(error) => return Err(error.into()),
        };
        let row = table.get("generation")?;
        Ok(row
            .map(|row| String::from_utf8_lossy(row.value()).into_owned())
            .unwrap_or_default())
    }

    pub(crate) fn open(database: Database) -> Result<Self, StoreError> {
        let read = database.begin_read()?;
        let end = match read.open_table(ARRIVALS)?.last()? {
            Some((first, chunk)) => {
                first.value() + decode_places(codec::open(chunk.value(), "arrivals")?)?.len() as u64
            }
            None => 0,
        };
        let base = open_base(&read)?;
        drop(read);
        Ok(Self {
            base: RwLock::new(Arc::new(base)),
            database,
            end: end.into(),
            cache: Mutex::default(),
            ancestry: Mutex::default(),
        })
    }

    /// Every change that came before this is packed.
    pub(crate) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// The packed layer of the view.
    pub(crate) fn base(&self) -> Arc<Base> {
        self.base
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Shows another packed layer from now on; returns the one before.
    pub(crate) fn show(&self, base: Base) -> Arc<Base> {
        let mut shown = self.base.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *shown, Arc::new(base))
    }

    /// How far the packed layer of the view goes.
    pub(crate) fn folded(&self) -> Result<Folded, StoreError> {
        Folded::read(&self.database.begin_read()?)
    }

    pub(crate) fn check_pages(&mut self) -> Result<bool, StoreError> {
        self.alone(|database| Ok(database.check_integrity()?))
    }

    pub(crate) fn compact(&mut self) -> Result<(), StoreError> {
        if !self.base().is_none() {
            // As it is now: the log's transitions go on where the view had nothing to fold.
            let now = Base::open(&self.read()?, 0)?;
            let txn = self.begin()?;
            for blocks in Blocks::ALL {
                fold::pack_anew(&txn, blocks, &now)?;
            }
            txn.commit()?;
        }
        self.alone(|database| {
            database.compact()?;
            Ok(())
        })
    }

    /// Runs what redb does only where nobody reads.
    fn alone<R>(
        &mut self,
        run: impl FnOnce(&mut Database) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let shown = self.show(Base::away());
        let (fold, was_none) = (shown.fold, shown.is_none());
        drop(shown);
        let done = run(&mut self.database);
        let base = if was_none {
            Base::none(fold)
        } else {
            open_base(&self.database.begin_read()?)?
        };
        drop(self.show(base));
        done
    }

    pub(crate) fn read(&self) -> Result<ReadTransaction, StoreError> {
        Ok(self.database.begin_read()?)
    }

    /// A packed change.
    pub(crate) fn entry(&self, actor: u32, seq: u64) -> Result<Option<LogEntry>, StoreError> {
        let read = self.database.begin_read()?;
        let blocks = read.open_table(BLOCKS)?;
        let high = block_key(actor, seq, u16::MAX);
        let low = block_key(actor, 0, 0);
        let Some(row) = blocks
            .range::<&[u8]>(low.as_slice()..=high.as_slice())?
            .next_back()
        else {
            return Ok(None);
        };
        let first = read_block_key(row?.0.value()).ok_or(Damage { what: "block key" })?;
        let block = self.block(&blocks, actor, first)?;
        let Some(offset) = seq.checked_sub(first) else {
            return Ok(None);
        };
        Ok(usize::try_from(offset)
            .ok()
            .and_then(|offset| block.get(offset))
            .cloned())
    }

    fn block(
        &self,
        blocks: &impl ReadableTable<&'static [u8], &'static [u8]>,
        actor: u32,
        first: u64,
    ) -> Result<Arc<Vec<LogEntry>>, StoreError> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = cache.get(&(actor, first)) {
            return Ok(block.clone());
        }
        let mut record = Vec::new();
        let (low, high) = (
            block_key(actor, first, 0),
            block_key(actor, first, u16::MAX),
        );
        for slice in blocks.range::<&[u8]>(low.as_slice()..=high.as_slice())? {
            record.extend(slice?.1.value());
        }
        let block = Arc::new(blocks::unpack(&record)?);
        if cache.len() >= CACHED_BLOCKS {
            cache.pop_first();
        }
        cache.insert((actor, first), block.clone());
        Ok(block)
    }

    /// The seq of the packed change of an actor that holds an op counter.
    pub(crate) fn holding(&self, actor: u32, counter: u64) -> Result<Option<u64>, StoreError> {
        let read = self.database.begin_read()?;
        let ends = read.open_table(BLOCK_ENDS)?;
        let (low, high) = (end_key(actor, 0), end_key(actor, counter));
        let Some(row) = ends
            .range::<&[u8]>(low.as_slice()..=high.as_slice())?
            .next_back()
        else {
            return Ok(None);
        };
        let (_, value) = row?;
        let end = BlockEnd::decode(value.value())?;
        if counter > end.max_op {
            return Ok(None);
        }
        let blocks = read.open_table(BLOCKS)?;
        let block = self.block(&blocks, actor, end.first)?;
        // The counters are in the changes themselves; a block is at most 256 of them.
        let offset = block.partition_point(|entry| {
            start_op_of(&entry.bytes).is_some_and(|start| start <= counter)
        });
        Ok(offset
            .checked_sub(1)
            .map(|offset| end.first + offset as u64))
    }

    /// The packed changes of an actor from a seq on, in runs that each end on a signed change.
    fn runs(&self, actor: u32, from: u64) -> Result<Vec<(Vec<Vec<u8>>, BlockEnd)>, StoreError> {
        let read = self.database.begin_read()?;
        let blocks = read.open_table(BLOCKS)?;
        let (low, high) = (end_key(actor, 0), end_key(actor, u64::MAX));
        let mut runs = Vec::new();
        for row in read
            .open_table(BLOCK_ENDS)?
            .range::<&[u8]>(low.as_slice()..=high.as_slice())?
        {
            let end = BlockEnd::decode(row?.1.value())?;
            let block = self.block(&blocks, actor, end.first)?;
            let skip = usize::try_from(from.saturating_sub(end.first)).unwrap_or(usize::MAX);
            let changes: Vec<_> = block
                .iter()
                .skip(skip)
                .map(|entry| entry.bytes.clone())
                .collect();
            if !changes.is_empty() {
                runs.push((changes, end));
            }
        }
        Ok(runs)
    }

    /// Where a change with this hash may be, to be checked by whoever asks.
    pub(crate) fn hash(&self, hash: &ChangeHash) -> Result<Vec<(u32, u64)>, StoreError> {
        self.places(HASHES, &front(&hash.0))
    }

    /// Where an idempotency key may have been used.
    pub(crate) fn key(&self, hash: &[u8; 16]) -> Result<Vec<(u32, u64)>, StoreError> {
        self.places(KEYS, &front(hash))
    }

    fn places(
        &self,
        table: TableDefinition<'static, &'static [u8; FRONT], &'static [u8]>,
        front: &[u8; FRONT],
    ) -> Result<Vec<(u32, u64)>, StoreError> {
        let read = self.database.begin_read()?;
        match read.open_table(table)?.get(front)? {
            Some(row) => Ok(decode_places(row.value())?),
            None => Ok(Vec::new()),
        }
    }

    /// The packed changes to an object, oldest first.
    pub(crate) fn touches(
        &self,
        document: u32,
        object: ObjectId,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        let read = self.database.begin_read()?;
        let key = index::row_key(document, object);
        let (mut low, mut high) = (key.to_vec(), key.to_vec());
        low.extend(0u64.to_be_bytes());
        high.extend(u64::MAX.to_be_bytes());
        let mut all = Vec::new();
        for row in read
            .open_table(TOUCHES)?
            .range::<&[u8]>(low.as_slice()..=high.as_slice())?
        {
            let (_, value) = row?;
            all.extend(decode_touches(value.value())?);
        }
        Ok(all)
    }

    /// The packed changes from an arrival on, oldest first, at most `limit`: `(arrival, actor, seq)`.
    pub(crate) fn arrivals(
        &self,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        let read = self.database.begin_read()?;
        let table = read.open_table(ARRIVALS)?;
        let start = match table.range(..=from)?.next_back() {
            Some(row) => row?.0.value(),
            None => 0,
        };
        let mut found = Vec::new();
        for row in table.range(start..)? {
            let (first, chunk) = row?;
            for (offset, (actor, seq)) in decode_places(codec::open(chunk.value(), "arrivals")?)?
                .into_iter()
                .enumerate()
            {
                let arrival = first.value() + offset as u64;
                if arrival >= from {
                    if found.len() == limit {
                        return Ok(found);
                    }
                    found.push((arrival, actor, seq));
                }
            }
        }
        Ok(found)
    }

    /// How status and assignee of a document's tasks moved: `(arrival, object, field, value)`.
    pub(crate) fn transitions(
        &self,
        document: u32,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, ObjectId, String, String)>, StoreError> {
        let read = self.database.begin_read()?;
        let low = [document.to_be_bytes().as_slice(), &from.to_be_bytes()].concat();
        let high = document.saturating_add(1).to_be_bytes();
        let mut all: Vec<(u64, ObjectId, String, String)> = Vec::new();
        let base = Base::open(&read, 0)?;
        let mut cursor = base.cursor(Blocks::Transitions, &low, Some(&high), false)?;
        while let Some((key, value)) = cursor.entry() {
            let mut reader = Reader::new(key, "transition");
            reader.take(4)?;
            let arrival = u64::from_be_bytes(reader.array()?);
            // A change that moves both stays whole: the cursor behind it is its arrival.
            if all.len() >= limit && all.last().is_none_or(|(last, ..)| *last != arrival) {
                break;
            }
            let object = ObjectId::from_bits(u64::from_be_bytes(reader.array()?))
                .ok_or_else(|| reader.damage())?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            all.push((arrival, object, text(reader.rest()), text(value)));
            cursor.advance()?;
        }
        Ok(all)
    }

    /// Whether the database still takes writes.
    pub(super) fn works(&self) -> bool {
        !self.base().is_away() && self.begin().and_then(|txn| Ok(txn.abort()?)).is_ok()
    }

    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let mut txn = self.database.begin_write()?;
        // Written seldom and not waited for: the longer commit buys a short walk after a kill.
        txn.set_quick_repair(true);
        Ok(txn)
    }
}

fn open_base(read: &ReadTransaction) -> Result<Base, StoreError> {
    Base::open(read, Folded::read(read)?.fold)
}

/// How far the packed layer of the view goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Folded {
    /// The number of the newest folding.
    pub(crate) fold: u64,
    /// The changes that came before this are in it.
    pub(crate) upto: u64,
}

impl Folded {
    const KEY: &'static str = "folded";

    fn read(read: &ReadTransaction) -> Result<Self, StoreError> {
        let table = read.open_table(PACKED_META)?;
        let Some(row) = table.get(Self::KEY)? else {
            return Ok(Self::default());
        };
        let what = "description of the packed file";
        let mut reader = Reader::new(codec::open(row.value(), what)?, what);
        Ok(Self {
            fold: reader.uint()?,
            upto: reader.uint()?,
        })
    }

    fn write(self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let mut content = Vec::new();
        put_uint(&mut content, self.fold);
        put_uint(&mut content, self.upto);
        txn.open_table(PACKED_META)?
            .insert(Self::KEY, codec::seal(&content).as_slice())?;
        Ok(())
    }
}

/// What is known of a block without unpacking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockEnd {
    first: u64,
    max_op: u64,
    /// The roster entry that the last change's signature names.
    roster: u32,
    /// The signature of the last change, which vouches for the others through their own
    /// dependencies.
    signature: [u8; 64],
}

impl BlockEnd {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_uint(&mut out, self.first);
        put_uint(&mut out, self.max_op);
        put_uint(&mut out, u64::from(self.roster));
        out.extend(self.signature);
        codec::seal(&out)
    }

    fn decode(record: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(codec::open(record, "block end")?, "block end");
        Ok(Self {
            first: reader.uint()?,
            max_op: reader.uint()?,
            roster: reader.small()?,
            signature: reader.array()?,
        })
    }
}

fn block_key(actor: u32, first: u64, slice: u16) -> [u8; 14] {
    let mut key = [0; 14];
    key[..4].copy_from_slice(&actor.to_be_bytes());
    key[4..12].copy_from_slice(&first.to_be_bytes());
    key[12..].copy_from_slice(&slice.to_be_bytes());
    key
}

fn read_block_key(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(4..12)?.try_into().ok()?))
}

fn end_key(actor: u32, start_op: u64) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&actor.to_be_bytes());
    key[4..].copy_from_slice(&start_op.to_be_bytes());
    key
}

/// Changes in one row of an object's history, beyond which the next row begins.
const TOUCHES_ROW: usize = 256;

fn encode_touches(touches: &[(u64, u32, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before = 0;
    for (arrival, actor, seq) in touches {
        put_uint(&mut out, arrival - before);
        before = *arrival;
        put_uint(&mut out, u64::from(*actor));
        put_uint(&mut out, *seq);
    }
    out
}

fn decode_touches(bytes: &[u8]) -> Result<Vec<(u64, u32, u64)>, Damage> {
    let mut reader = Reader::new(bytes, "touches");
    let mut all = Vec::new();
    let mut arrival = 0u64;
    while !reader.is_empty() {
        arrival = arrival
            .checked_add(reader.uint()?)
            .ok_or_else(|| reader.damage())?;
        all.push((arrival, reader.small()?, reader.uint()?));
    }
    Ok(all)
}

fn encode_places(places: &[(u32, u64)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (actor, seq) in places {
        put_uint(&mut out, u64::from(*actor));
        put_uint(&mut out, *seq);
    }
    out
}

fn decode_places(bytes: &[u8]) -> Result<Vec<(u32, u64)>, Damage> {
    let mut reader = Reader::new(bytes, "places");
    let mut places = Vec::new();
    while !reader.is_empty() {
        places.push((reader.small()?, reader.uint()?));
    }
    Ok(places)
}

/// The first op counter of a change chunk, read from its header.
fn start_op_of(chunk: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(chunk.get(9..)?, "change");
    reader.uint().ok()?;
    let deps = usize::try_from(reader.uint().ok()?).ok()?;
    reader.take(deps.checked_mul(32)?).ok()?;
    reader.bytes().ok()?;
    reader.uint().ok()?;
    reader.uint().ok()
}

/// The number of the first packed table in a backup; those before are of the hot file.
pub(crate) const FIRST_TABLE: u8 = 32;
/// Packed tables in a backup, with their numbers. The text index is made anew.
const COPIED: [(u8, TableDefinition<'static, &[u8], &[u8]>); 3] =
    [(32, BLOCKS), (33, BLOCK_ENDS), (35, TOUCHES)];
/// Those that format 1 had, too.
const COPIED_1: [(u8, TableDefinition<'static, &[u8], &[u8]>); 3] =
    [(34, HASHES_1), (36, KEYS_1), (37, TRANSITIONS_1)];
const COPIED_ARRIVALS: u8 = 38;
const COPIED_FOLDED: u8 = 39;
const COPIED_PLACES: [(u8, TableDefinition<'static, &[u8; FRONT], &[u8]>); 2] =
    [(40, HASHES), (41, KEYS)];
/// The first of the tables of blocks.
const COPIED_IN_BLOCKS: u8 = 42;

/// Every row of the packed file, for a backup.
pub(crate) fn copy_out(
    read: &ReadTransaction,
    each: &mut dyn FnMut(u8, &[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let in_blocks = (COPIED_IN_BLOCKS..).zip(Blocks::ALL.map(Blocks::table));
    for (number, table) in COPIED.into_iter().chain(in_blocks) {
        for row in read.open_table(table)?.iter()? {
            let (key, value) = row?;
            each(number, key.value(), value.value())?;
        }
    }
    for (number, table) in COPIED_PLACES {
        for row in read.open_table(table)?.iter()? {
            let (key, value) = row?;
            each(number, key.value(), value.value())?;
        }
    }
    for row in read.open_table(ARRIVALS)?.iter()? {
        let (key, value) = row?;
        each(COPIED_ARRIVALS, &key.value().to_be_bytes(), value.value())?;
    }
    if let Some(row) = read.open_table(PACKED_META)?.get(Folded::KEY)? {
        each(COPIED_FOLDED, Folded::KEY.as_bytes(), row.value())?;
    }
    Ok(())
}

/// Puts a row of a backup back.
pub(crate) fn copy_in(
    txn: &WriteTransaction,
    table: u8,
    key: &[u8],
    value: &[u8],
) -> Result<(), StoreError> {
    let damaged = || StoreError::Broken("the backup is damaged or cut");
    match table {
        COPIED_ARRIVALS => {
            let first = u64::from_be_bytes(key.try_into().map_err(|_| damaged())?);
            txn.open_table(ARRIVALS)?.insert(first, value)?;
        }
        COPIED_FOLDED => drop(txn.open_table(PACKED_META)?.insert(Folded::KEY, value)?),
        _ => {
            if let Some((_, places)) = COPIED_PLACES.iter().find(|(number, _)| *number == table) {
                let front: &[u8; FRONT] = key.try_into().map_err(|_| damaged())?;
                txn.open_table(*places)?.insert(front, value)?;
                return Ok(());
            }
            let in_blocks = (COPIED_IN_BLOCKS..).zip(Blocks::ALL.map(Blocks::table));
            let mut known = COPIED.into_iter().chain(COPIED_1).chain(in_blocks);
            let (_, known) = known
                .find(|(number, _)| *number == table)
                .ok_or_else(damaged)?;
            txn.open_table(known)?.insert(key, value)?;
        }
    }
    Ok(())
}

const HASHES_1: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("hashes");
const KEYS_1: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("keys");
const TRANSITIONS_1: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("transitions");

/// Makes a packed file of format 1 one of this format.
pub(super) fn carry_over(database: &Database, generation: &str) -> Result<(), StoreError> {
    Packed::init(database, generation)?;
    let mut txn = database.begin_write()?;
    txn.set_quick_repair(true);
    for (old, new) in [(HASHES_1, HASHES), (KEYS_1, KEYS)] {
        {
            let old = txn.open_table(old)?;
            let mut new = txn.open_table(new)?;
            let mut same: ([u8; FRONT], Vec<u8>) = Default::default();
            for row in old.iter()? {
                let (key, places) = row?;
                let front = front(key.value());
                if same.0 != front {
                    same = (front, Vec::new());
                }
                same.1.extend(places.value());
                new.insert(&front, same.1.as_slice())?;
            }
        }
        txn.delete_table(old)?;
    }
    {
        let old = txn.open_table(TRANSITIONS_1)?;
        let all = old.iter()?.map(|row| {
            let (key, value) = row?;
            Ok((key.value().to_vec(), Some(value.value().to_vec())))
        });
        fold::fold(&txn, Blocks::Transitions, all)?;
    }
    txn.delete_table(TRANSITIONS_1)?;
    txn.commit()?;
    Ok(())
}
