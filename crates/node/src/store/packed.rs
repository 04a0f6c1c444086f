//! The packed part of the log and the indexes over it: written by packing alone.

pub(crate) mod ancestry;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use stead_doc::id::{ChangeHash, ObjectId};

use super::{
    Damage, HOT_MAX, LOG, Store, StoreError,
    blocks::{self, BLOCK_CHANGES, LogEntry, SLICE_BYTES},
    codec::{self, Reader, put_uint},
    index,
    state::LogRecord,
    view::{StoreView, Tables},
};
use crate::search::{self, Field, IndexedText, ObjectKey};

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

/// Changes that one packing takes: half of what may be hot, so that readers of the rest stay fast
/// and the next packing is not due at once.
pub(crate) const PACK_CHANGES: usize = HOT_MAX / 2;

/// The packed file.
#[derive(Debug)]
pub(crate) struct Packed {
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
        drop(read);
        Ok(Self {
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

    pub(crate) fn check_pages(&mut self) -> Result<bool, StoreError> {
        Ok(self.database.check_integrity()?)
    }

    pub(crate) fn compact(&mut self) -> Result<(), StoreError> {
        self.database.compact()?;
        Ok(())
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
        let mut cache = self
            .cache
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
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
        self.begin().and_then(|txn| Ok(txn.abort()?)).is_ok()
    }

    fn begin(&self) -> Result<WriteTransaction, StoreError> {
        let mut txn = self.database.begin_write()?;
        // Written seldom and not waited for: the longer commit buys a short walk after a kill.
        txn.set_quick_repair(true);
        Ok(txn)
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

impl Store {
    /// Whether so much is unpacked that packing is due.
    pub fn wants_packing(&self) -> bool {
        self.unpacked() > HOT_MAX
    }

    /// Packs the oldest unpacked changes, at most [`PACK_CHANGES`]: first durably into the packed
    /// file, then out of the hot one. Returns how many. May run beside readers and the writer.
    ///
    /// # Errors
    ///
    /// Where a file fails; what was packed so far is in both files then, and equal.
    pub fn pack(&self) -> Result<usize, StoreError> {
        let packing = self.packing();
        let view = self.view(0)?;
        let end = self.arrivals();
        let begin = self.packed.end();
        let arrivals: Vec<u64> = (begin..end).take(PACK_CHANGES).collect();
        let Some(last) = arrivals.last().copied() else {
            return Ok(0);
        };
        let mut records = Vec::with_capacity(arrivals.len());
        for arrival in &arrivals {
            let record = view
                .tables
                .log(*arrival)?
                .ok_or(Damage { what: "log record" })?;
            records.push((*arrival, LogRecord::decode(&record)?));
        }
        let txn = self.packed.begin()?;
        let texts = self.pack_log(&view, &txn, &records)?;
        let merged = search::merge(&txn, &texts)?;
        txn.commit()?;
        self.packed.end.store(last + 1, Ordering::Release);
        if merged.needs_rebuild {
            self.rebuild_texts()?;
        }
        self.forget_hot(&arrivals)?;
        let mut hot_texts = self.hot_texts();
        if let Some(hot) = hot_texts.as_mut() {
            // What is still unpacked stays in the index in memory.
            let state = self.state_read();
            let waiting: std::collections::BTreeSet<ObjectKey> = state
                .hot
                .entries
                .values()
                .flat_map(|entry| {
                    entry.texts.iter().filter_map(|object| {
                        let document = state.actors.get(entry.actor as usize)?.document;
                        Some(ObjectKey(index::row_key(document, *object)))
                    })
                })
                .collect();
            for (key, _) in texts.iter().filter(|(key, _)| !waiting.contains(key)) {
                hot.remove(key);
            }
        }
        drop(packing);
        Ok(arrivals.len())
    }

    fn pack_log<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        txn: &WriteTransaction,
        records: &[(u64, LogRecord)],
    ) -> Result<Vec<(ObjectKey, Option<IndexedText>)>, StoreError> {
        let mut places = Vec::new();
        let mut hashes: BTreeMap<Vec<u8>, Vec<(u32, u64)>> = BTreeMap::new();
        let mut keys: BTreeMap<Vec<u8>, Vec<(u32, u64)>> = BTreeMap::new();
        let mut touches: BTreeMap<[u8; 12], Vec<(u64, u32, u64)>> = BTreeMap::new();
        let mut runs: BTreeMap<u32, Vec<(u64, u64, &LogRecord, LogEntry)>> = BTreeMap::new();
        let mut texts = std::collections::BTreeSet::new();
        let mut transitions = txn.open_table(TRANSITIONS)?;
        for (arrival, record) in records {
            let document = {
                let state = self.state_read();
                let actor = state
                    .actors
                    .get(record.entry.actor as usize)
                    .ok_or(Damage { what: "log record" })?;
                (
                    actor.document,
                    state
                        .document(actor.document)
                        .ok_or(Damage { what: "log record" })?
                        .id,
                )
            };
            let (number, id) = document;
            let change = stead_doc::change::Change::decode(id, &record.bytes)?;
            let place = (record.entry.actor, change.seq);
            places.push(place);
            hashes
                .entry(change.hash.0.get(..8).unwrap_or_default().to_vec())
                .or_default()
                .push(place);
            if let Some(key) = &change.message.key {
                let hash = super::key_hash(&change.message.credential, key);
                keys.entry(hash.get(..8).unwrap_or_default().to_vec())
                    .or_default()
                    .push(place);
            }
            for object in change.touched() {
                touches
                    .entry(index::row_key(number, object))
                    .or_default()
                    .push((*arrival, place.0, place.1));
            }
            for op in &change.ops {
                if TEXT_FIELDS.iter().any(|(field, _)| *field == op.field) {
                    texts.insert((number, op.object));
                }
                if let Some(value) = transition(&op.field, &op.action) {
                    let mut key = number.to_be_bytes().to_vec();
                    key.extend(arrival.to_be_bytes());
                    key.extend(op.object.to_bits().to_be_bytes());
                    key.extend(op.field.as_bytes());
                    transitions.insert(key.as_slice(), value.as_bytes())?;
                }
            }
            let entry = LogEntry {
                seen: record.seen,
                hash: change.hash.0,
                bytes: record.bytes.clone(),
            };
            runs.entry(record.entry.actor).or_default().push((
                change.seq,
                change.max_op(),
                record,
                entry,
            ));
        }
        drop(transitions);
        for (first, chunk) in records
            .chunks(ARRIVAL_CHUNK)
            .zip(places.chunks(ARRIVAL_CHUNK))
        {
            let first = first.first().map_or(0, |(arrival, _)| *arrival);
            txn.open_table(ARRIVALS)?
                .insert(first, codec::seal(&encode_places(chunk)).as_slice())?;
        }
        for (table, rows) in [(HASHES, hashes), (KEYS, keys)] {
            let mut table = txn.open_table(table)?;
            for (key, new) in rows {
                let mut all = match table.get(key.as_slice())? {
                    Some(row) => decode_places(row.value())?,
                    None => Vec::new(),
                };
                all.extend(new);
                table.insert(key.as_slice(), encode_places(&all).as_slice())?;
            }
        }
        let mut table = txn.open_table(TOUCHES)?;
        for (row, list) in touches {
            // On with the object's last row while it is short, so that an object has few.
            let (mut low, mut high) = (row.to_vec(), row.to_vec());
            low.extend(0u64.to_be_bytes());
            high.extend(u64::MAX.to_be_bytes());
            let last = match table
                .range::<&[u8]>(low.as_slice()..=high.as_slice())?
                .next_back()
            {
                Some(found) => {
                    let (key, value) = found?;
                    Some((key.value().to_vec(), decode_touches(value.value())?))
                }
                None => None,
            };
            let (key, mut all) = match last {
                Some((key, all)) if all.len() < TOUCHES_ROW => (key, all),
                _ => {
                    let first = list.first().map_or(0, |(arrival, _, _)| *arrival);
                    ([row.as_slice(), &first.to_be_bytes()].concat(), Vec::new())
                }
            };
            all.extend(list);
            table.insert(key.as_slice(), encode_touches(&all).as_slice())?;
        }
        drop(table);
        for (actor, run) in runs {
            self.pack_run(txn, actor, &run)?;
        }
        let mut indexed = Vec::new();
        for (document, object) in texts {
            let text = self.indexed_text(view, document, object)?;
            indexed.push((ObjectKey(index::row_key(document, object)), text));
        }
        Ok(indexed)
    }

    fn pack_run(
        &self,
        txn: &WriteTransaction,
        actor: u32,
        run: &[(u64, u64, &LogRecord, LogEntry)],
    ) -> Result<(), StoreError> {
        let id = self
            .state_read()
            .actors
            .get(actor as usize)
            .ok_or(Damage { what: "log record" })?
            .id;
        let mut before = match run.first() {
            Some((first, ..)) if *first > 1 => {
                let previous = self.packed.entry(actor, first - 1)?;
                Some(previous.ok_or(Damage { what: "log block" })?.hash)
            }
            _ => None,
        };
        let mut blocks = txn.open_table(BLOCKS)?;
        let mut ends = txn.open_table(BLOCK_ENDS)?;
        for chunk in run.chunks(BLOCK_CHANGES) {
            let (Some((first, _, _, first_entry)), Some((_, max_op, record, last))) =
                (chunk.first(), chunk.last())
            else {
                continue;
            };
            let entries: Vec<LogEntry> = chunk.iter().map(|(.., entry)| entry.clone()).collect();
            let packed = blocks::pack(id.0, before, &entries)?;
            for (slice, bytes) in packed.chunks(SLICE_BYTES).enumerate() {
                let slice = u16::try_from(slice)
                    .map_err(|_| StoreError::Broken("a block has too many slices"))?;
                blocks.insert(block_key(actor, *first, slice).as_slice(), bytes)?;
            }
            let end = BlockEnd {
                first: *first,
                max_op: *max_op,
                roster: record.roster,
                signature: record.signature,
            };
            let start = start_op_of(&first_entry.bytes).ok_or(Damage { what: "log record" })?;
            ends.insert(end_key(actor, start).as_slice(), end.encode().as_slice())?;
            before = Some(last.hash);
        }
        Ok(())
    }

    /// The text of an object as search knows it; nothing where it has none.
    pub(crate) fn indexed_text<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        document: u32,
        object: ObjectId,
    ) -> Result<Option<IndexedText>, StoreError> {
        let Some(stored) = view.stored_in(document, object)? else {
            return Ok(None);
        };
        if stored.row.kind() != Some("task") {
            return Ok(None);
        }
        let at = view.located(object, document, stored)?;
        let mut texts = Vec::new();
        for (field, weight) in TEXT_FIELDS {
            let value = stead_doc::conflict::load_winner(view, &at, field)
                .map_err(|error| StoreError::Io(std::io::Error::other(error)))?;
            if let Some(text) = value.as_ref().and_then(|value| value.as_str()) {
                texts.push((weight, text.to_owned()));
            }
        }
        let indexed = IndexedText::new(texts.iter().map(|(field, text)| (*field, text.as_str())));
        if indexed.is_cut() {
            tracing::debug!(%object, "the end of this text is beyond what search indexes");
        }
        Ok(Some(indexed))
    }

    /// Feeds every text to a new text index.
    ///
    /// # Errors
    ///
    /// Where a file fails.
    pub fn rebuild_texts(&self) -> Result<(), StoreError> {
        let view = self.view(0)?;
        let mut keys = Vec::new();
        view.tables.all_rows(&mut |key, _| {
            keys.extend(index::read_row_key(key));
            Ok(())
        })?;
        let txn = self.packed.begin()?;
        let mut merger = search::Merger::rebuild(&txn)?;
        for (object, document) in keys {
            let text = self.indexed_text(&view, document, object)?;
            merger.set(ObjectKey(index::row_key(document, object)), text.as_ref())?;
        }
        merger.finish()?;
        txn.commit()?;
        Ok(())
    }
}

/// The fields that search reads.
pub(crate) const TEXT_FIELDS: [(&str, Field); 3] = [
    ("title", Field::Title),
    ("body", Field::Body),
    ("notes", Field::Notes),
];

/// The value of an operation that moves a status or an assignee.
pub(crate) fn transition(field: &str, action: &stead_doc::change::Action) -> Option<String> {
    use stead_doc::change::Action;
    if field != "status" && field != "assignee" {
        return None;
    }
    Some(match action {
        Action::Put(scalar) => stead_doc::present::field_json(field, scalar)
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        Action::Delete => String::new(),
    })
}

const ARRIVAL_CHUNK: usize = 256;

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

impl Store {
    pub(crate) fn hot_texts(&self) -> std::sync::MutexGuard<'_, Option<search::HotIndex>> {
        self.texts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A log record that is not packed, for whoever walks arrivals.
    pub(crate) fn places_from(
        &self,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        self.settled(|| self.places_once(from, limit))
    }

    fn places_once(&self, from: u64, limit: usize) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        let mut found = if from < self.packed.end() {
            self.packed.arrivals(from, limit)?
        } else {
            Vec::new()
        };
        let next = found.last().map_or(from, |(arrival, ..)| arrival + 1);
        let upto = self.arrivals();
        let state = self.state_read();
        for (arrival, entry) in state.hot.entries.range(next..upto) {
            if found.len() == limit {
                break;
            }
            found.push((*arrival, entry.actor, entry.seq));
        }
        Ok(found)
    }

    /// The signature that vouches for an actor's change, for whoever checks the log.
    pub(crate) fn unpacked_record(&self, arrival: u64) -> Result<Option<LogRecord>, StoreError> {
        let table = self.hot.begin_read()?.open_table(LOG)?;
        match table.get(arrival)? {
            Some(record) => Ok(Some(LogRecord::decode(record.value())?)),
            None => Ok(None),
        }
    }
}

/// Consecutive changes of an actor, the last one signed.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) document: stead_doc::document::DocumentName,
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) device: [u8; 32],
    pub(crate) incarnation: [u8; 16],
    pub(crate) signature: [u8; 64],
    pub(crate) roster: u32,
}

impl Store {
    /// The runs of all actors beyond a frontier.
    pub(crate) fn signed_runs(
        &self,
        frontier: &dyn Fn(stead_doc::id::ActorId) -> u64,
    ) -> Result<Vec<StoredRun>, StoreError> {
        self.settled(|| self.runs_once(frontier))
    }

    fn runs_once(
        &self,
        frontier: &dyn Fn(stead_doc::id::ActorId) -> u64,
    ) -> Result<Vec<StoredRun>, StoreError> {
        let actors: Vec<_> = {
            let state = self.state_read();
            let named = |actor: &super::Actor| {
                state
                    .document(actor.document)
                    .map(|document| document.name.clone())
            };
            state
                .actors
                .iter()
                .enumerate()
                .filter(|(_, actor)| actor.seq > frontier(actor.id))
                .filter_map(|(number, actor)| Some((number as u32, actor.clone(), named(actor)?)))
                .collect()
        };
        let mut runs = Vec::new();
        for (number, actor, document) in actors {
            let mut from = frontier(actor.id) + 1;
            let run = |changes, roster, signature| StoredRun {
                document: document.clone(),
                changes,
                device: actor.device,
                incarnation: actor.incarnation,
                signature,
                roster,
            };
            for (changes, end) in self.packed.runs(number, from)? {
                // What is packed already may be unpacked still: it is sent once.
                from = from.max(end.first) + changes.len() as u64;
                runs.push(run(changes, end.roster, end.signature));
            }
            let arrivals: Vec<u64> = {
                let state = self.state_read();
                state
                    .hot
                    .by_actor
                    .range((number, from)..(number, from.max(actor.seq + 1)))
                    .map(|(_, arrival)| *arrival)
                    .collect()
            };
            let mut changes = Vec::new();
            let (mut roster, mut signature) = (actor.roster, actor.signature);
            for arrival in arrivals {
                if let Some(record) = self.unpacked_record(arrival)? {
                    (roster, signature) = (record.roster, record.signature);
                    changes.push(record.bytes);
                }
            }
            if !changes.is_empty() {
                runs.push(run(changes, roster, signature));
            }
        }
        Ok(runs)
    }

    /// The texts of objects as search will know them, once the open write is durable.
    pub(crate) fn index_hot_texts<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        objects: &std::collections::BTreeSet<(u32, ObjectId)>,
    ) -> Result<Vec<(ObjectKey, Option<IndexedText>)>, StoreError> {
        if objects.is_empty() || self.hot_texts().is_none() {
            return Ok(Vec::new());
        }
        objects
            .iter()
            .map(|(document, object)| {
                let text = self.indexed_text(view, *document, *object)?;
                Ok((ObjectKey(index::row_key(*document, *object)), text))
            })
            .collect()
    }

    pub(crate) fn keep_hot_texts(&self, texts: Vec<(ObjectKey, Option<IndexedText>)>) {
        let mut hot = self.hot_texts();
        let full = hot.as_mut().is_some_and(|hot| {
            texts
                .into_iter()
                .any(|(key, text)| hot.set(key, text).is_err())
        });
        if full {
            // Built again from the log by the next search.
            *hot = None;
        }
    }

    /// Runs a search with the index of unpacked texts, built by the first one that needs it.
    pub(crate) fn with_texts<T: Tables, R>(
        &self,
        view: &StoreView<'_, T>,
        run: impl FnOnce(&search::Cold, &search::HotIndex) -> Result<R, search::TextError>,
    ) -> Result<R, StoreError> {
        let mut hot = self.hot_texts();
        if hot.is_none() {
            let objects: std::collections::BTreeSet<(u32, ObjectId)> = {
                let state = self.state_read();
                state
                    .hot
                    .entries
                    .values()
                    .flat_map(|entry| {
                        let document = state
                            .actors
                            .get(entry.actor as usize)
                            .map(|actor| actor.document);
                        entry
                            .texts
                            .iter()
                            .filter_map(move |object| Some((document?, *object)))
                    })
                    .collect()
            };
            let mut texts = search::HotIndex::new();
            for (document, object) in objects {
                let text = self.indexed_text(view, document, object)?;
                texts
                    .set(ObjectKey(index::row_key(document, object)), text)
                    .map_err(|error| StoreError::Texts(error.to_string()))?;
            }
            *hot = Some(texts);
        }
        let Some(hot) = hot.as_ref() else {
            return Err(StoreError::Broken("no text index"));
        };
        let cold = search::Cold::open(&self.packed.read()?)?;
        Ok(run(&cold, hot)?)
    }
}

/// The number of the first packed table in a backup; those before are of the hot file.
pub(crate) const FIRST_TABLE: u8 = 32;
/// The packed tables in a backup, by number from [`FIRST_TABLE`] on. The text index is made anew.
const COPIED: [TableDefinition<'static, &[u8], &[u8]>; 6] =
    [BLOCKS, BLOCK_ENDS, HASHES, TOUCHES, KEYS, TRANSITIONS];
const COPIED_ARRIVALS: u8 = FIRST_TABLE + COPIED.len() as u8;

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
    let known = COPIED
        .get(usize::from(table.wrapping_sub(FIRST_TABLE)))
        .ok_or_else(damaged)?;
    txn.open_table(*known)?.insert(key, value)?;
    Ok(())
}
