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
    layers::Part,
};

pub(crate) use base::Base;
pub(crate) use packing::transition;
pub(crate) use texts::TEXT_FIELDS;

const BLOCKS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("blocks");
/// `(actor, first op counter)` -> where the block is and how it ends.
const BLOCK_ENDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("block_ends");
const HASHES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("hashes");
const ARRIVALS: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("arrivals");
const TOUCHES: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("touches");
const KEYS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("keys");
/// `(document, arrival, object, field)` -> value: how status and assignee moved.
const TRANSITIONS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("transitions");
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

/// Blocks kept unpacked for the next reader: history is read in runs.
const CACHED_BLOCKS: usize = 8;

impl Packed {
    pub(crate) fn init(database: &Database, generation: &str) -> Result<(), StoreError> {
        let mut txn = database.begin_write()?;
        txn.set_quick_repair(true);
        txn.open_table(PACKED_META)?
            .insert("generation", generation.as_bytes())?;
        for table in [BLOCKS, BLOCK_ENDS, HASHES, TOUCHES, KEYS, TRANSITIONS] {
            txn.open_table(table)?;
        }
        for part in Part::ALL {
            txn.open_table(base::table(part))?;
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

    /// The arrival number up to which the packed layer of the view goes.
    pub(crate) fn folded(&self) -> Result<Folded, StoreError> {
        Ok(Folded::read(&self.database.begin_read()?)?)
    }

    pub(crate) fn check_pages(&mut self) -> Result<bool, StoreError> {
        self.alone(|database| Ok(database.check_integrity()?))
    }

    pub(crate) fn compact(&mut self) -> Result<(), StoreError> {
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

    /// Where a change with this hash may be, to be checked by whoever asks: 8 bytes are indexed.
    pub(crate) fn hash(&self, hash: &ChangeHash) -> Result<Vec<(u32, u64)>, StoreError> {
        self.places(HASHES, hash.0.get(..8).unwrap_or_default())
    }

    /// Where an idempotency key may have been used.
    pub(crate) fn key(&self, hash: &[u8; 16]) -> Result<Vec<(u32, u64)>, StoreError> {
        self.places(KEYS, hash.get(..8).unwrap_or_default())
    }

    fn places(
        &self,
        table: TableDefinition<'static, &'static [u8], &'static [u8]>,
        prefix: &[u8],
    ) -> Result<Vec<(u32, u64)>, StoreError> {
        let read = self.database.begin_read()?;
        match read.open_table(table)?.get(prefix)? {
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
        for row in read
            .open_table(TRANSITIONS)?
            .range::<&[u8]>(low.as_slice()..high.as_slice())?
        {
            let (key, value) = row?;
            let mut reader = Reader::new(key.value(), "transition");
            reader.take(4)?;
            let arrival = u64::from_be_bytes(reader.array()?);
            // A change that moves both stays whole: the cursor behind it is its arrival.
            if all.len() >= limit && all.last().is_none_or(|(last, ..)| *last != arrival) {
                break;
            }
            let object = ObjectId::from_bits(u64::from_be_bytes(reader.array()?))
                .ok_or_else(|| reader.damage())?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            all.push((arrival, object, text(reader.rest()), text(value.value())));
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
/// The packed tables in a backup, by number from [`FIRST_TABLE`] on. The text index is made anew.
const COPIED: [TableDefinition<'static, &[u8], &[u8]>; 6] =
    [BLOCKS, BLOCK_ENDS, HASHES, TOUCHES, KEYS, TRANSITIONS];
const COPIED_ARRIVALS: u8 = FIRST_TABLE + COPIED.len() as u8;
const COPIED_FOLDED: u8 = COPIED_ARRIVALS + 1;
/// The first of the three parts of the view.
const COPIED_VIEW: u8 = COPIED_FOLDED + 1;

/// Every row of the packed file, for a backup.
pub(crate) fn copy_out(
    read: &ReadTransaction,
    each: &mut dyn FnMut(u8, &[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for (number, table) in COPIED.iter().enumerate() {
        for row in read.open_table(*table)?.iter()? {
            let (key, value) = row?;
            each(FIRST_TABLE + number as u8, key.value(), value.value())?;
        }
    }
    for row in read.open_table(ARRIVALS)?.iter()? {
        let (key, value) = row?;
        each(COPIED_ARRIVALS, &key.value().to_be_bytes(), value.value())?;
    }
    if let Some(row) = read.open_table(PACKED_META)?.get(Folded::KEY)? {
        each(COPIED_FOLDED, Folded::KEY.as_bytes(), row.value())?;
    }
    for (number, part) in Part::ALL.into_iter().enumerate() {
        for row in read.open_table(base::table(part))?.iter()? {
            let (key, value) = row?;
            each(COPIED_VIEW + number as u8, key.value(), value.value())?;
        }
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
    if table == COPIED_ARRIVALS {
        let first = u64::from_be_bytes(key.try_into().map_err(|_| damaged())?);
        txn.open_table(ARRIVALS)?.insert(first, value)?;
        return Ok(());
    }
    if table == COPIED_FOLDED {
        txn.open_table(PACKED_META)?.insert(Folded::KEY, value)?;
        return Ok(());
    }
    if let Some(number) = table.checked_sub(COPIED_VIEW) {
        let part = Part::ALL.get(usize::from(number)).ok_or_else(damaged)?;
        txn.open_table(base::table(*part))?.insert(key, value)?;
        return Ok(());
    }
    let known = COPIED
        .get(usize::from(table.wrapping_sub(FIRST_TABLE)))
        .ok_or_else(damaged)?;
    txn.open_table(*known)?.insert(key, value)?;
    Ok(())
}
