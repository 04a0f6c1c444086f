//! Moving the oldest unpacked changes into the packed file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata, WriteTransaction};

use super::{
    ARRIVALS, BLOCK_ENDS, BLOCKS, Base, BlockEnd, Blocks, FRONT, Folded, HASHES, KEYS, TEXT_FIELDS,
    TOUCHES, TOUCHES_ROW, block_key, decode_places, decode_touches, encode_places, encode_touches,
    end_key, fold, front, start_op_of,
};
use crate::{
    search::{self, IndexedText, ObjectKey},
    store::{
        Damage, HOT_MAX, Store, StoreError,
        blocks::{self, BLOCK_CHANGES, LogEntry, SLICE_BYTES},
        codec, index, key_hash,
        layers::{GONE, Part, Snapshot, Tables},
        state::LogRecord,
        view::StoreView,
    },
};

/// Changes that one packing takes: all that may be hot, for the fewer packings there are, the fewer
/// times a page of the packed file is written.
pub(crate) const PACK_CHANGES: usize = HOT_MAX;
/// Bytes of changes that one packing holds in memory, and one more change.
const PACK_BYTES: usize = 32 << 20;
/// Bytes of rows, texts and index keys that may lie hot before folding starts: one change can touch
/// many objects or bring long texts.
const HOT_BYTES: u64 = 24 << 20;
/// Entries that one commit takes out of the hot tables: the writer waits so long.
const REMOVED_AT_ONCE: usize = 2_048;

impl Store {
    /// Whether so much is unpacked that packing is due.
    pub fn wants_packing(&self) -> bool {
        self.unpacked() > HOT_MAX || self.weight() > HOT_BYTES
    }

    /// Whether so much more is unpacked that whoever writes should wait for packing.
    pub(crate) fn is_behind(&self) -> bool {
        self.unpacked() > 3 * HOT_MAX || self.weight() > 3 * HOT_BYTES
    }

    /// Packs the oldest unpacked changes, at most half of what may be unpacked, and folds all that
    /// changed of the view: first durably into the packed file, then out of the hot one. Returns
    /// how many changes. May run beside readers and the writer.
    ///
    /// # Errors
    ///
    /// Where a file fails; what was packed so far is in both files then, and equal.
    pub fn pack(&self) -> Result<usize, StoreError> {
        let packing = self.packing();
        let end = self.arrivals();
        let weight = self.weight();
        let view = self.view(0)?;
        let begin = self.packed.end();
        let hot = &view.tables;
        let folds = hot.is_changed()?;
        if begin == end && !folds {
            // What was counted was never committed.
            self.lighten(weight);
            return Ok(0);
        }
        let mut records = Vec::new();
        let mut bytes = 0;
        for arrival in (begin..end).take(PACK_CHANGES) {
            let record = hot.log(arrival)?.ok_or(Damage { what: "log record" })?;
            bytes += record.len();
            records.push((arrival, LogRecord::decode(&record)?));
            if bytes > PACK_BYTES {
                break;
            }
        }
        let arrivals: Vec<u64> = records.iter().map(|(arrival, _)| *arrival).collect();
        let txn = self.packed.begin()?;
        let texts = self.pack_log(&view, &txn, &records)?;
        let merged = search::merge(&txn, &texts)?;
        let folded = if folds {
            Some(self.fold(&txn, hot)?)
        } else {
            None
        };
        txn.commit()?;
        if let Some(last) = arrivals.last() {
            self.packed.end.store(last + 1, Ordering::Release);
        }
        if let Some(folded) = folded {
            let base = Base::open(&self.packed.database.begin_read()?, folded.fold)?;
            drop(self.packed.show(base));
        }
        if merged.needs_rebuild {
            self.rebuild_texts()?;
        }
        self.forget_hot(&arrivals)?;
        if let Some(folded) = folded {
            self.remove_folded(hot, folded.fold)?;
        }
        self.lighten(weight);
        let mut hot_texts = self.hot_texts();
        if let Some(hot) = hot_texts.as_mut() {
            // What is still unpacked stays in the index in memory.
            let state = self.state_read();
            let waiting: BTreeSet<ObjectKey> = state
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

    /// Puts everything hot into the packed layer's blocks.
    fn fold(&self, txn: &WriteTransaction, hot: &Snapshot) -> Result<Folded, StoreError> {
        if hot.base.is_none() {
            for part in Part::ALL {
                txn.delete_table(part.packed().table())?;
            }
        }
        for part in Part::ALL {
            let changed = hot.part(part).iter()?.map(|row| {
                let (key, value) = row?;
                let plain = match value.value() {
                    GONE => None,
                    value => Some(part.plain(value)?),
                };
                Ok((key.value().to_vec(), plain))
            });
            fold::fold(txn, part.packed(), changed)?;
        }
        let folded = Folded {
            fold: hot.base.fold + 1,
            upto: match hot.log.last()? {
                Some((arrival, _)) => arrival.value() + 1,
                None => self.packed.end(),
            },
        };
        folded.write(txn)?;
        Ok(folded)
    }

    /// Takes what was folded out of the hot tables, but what has another value by now: each commit
    /// a part of it, for whatever stays hides an equal value.
    fn remove_folded(&self, hot: &Snapshot, fold: u64) -> Result<(), StoreError> {
        for part in Part::ALL {
            let mut folded = hot.part(part).iter()?.peekable();
            while folded.peek().is_some() {
                let txn = self.begin()?;
                {
                    let mut table = txn.open_table(part.hot())?;
                    for row in folded.by_ref().take(REMOVED_AT_ONCE) {
                        let (key, value) = row?;
                        let is_equal = table
                            .get(key.value())?
                            .is_some_and(|now| now.value() == value.value());
                        if is_equal {
                            table.remove(key.value())?;
                        }
                    }
                }
                self.write_layers(&txn, |layers| layers.removed = fold)?;
                txn.commit()?;
            }
        }
        Ok(())
    }

    fn pack_log<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        txn: &WriteTransaction,
        records: &[(u64, LogRecord)],
    ) -> Result<Vec<(ObjectKey, Option<IndexedText>)>, StoreError> {
        let mut places = Vec::new();
        let mut hashes: BTreeMap<[u8; FRONT], Vec<(u32, u64)>> = BTreeMap::new();
        let mut keys: BTreeMap<[u8; FRONT], Vec<(u32, u64)>> = BTreeMap::new();
        let mut touches: BTreeMap<[u8; 12], Vec<(u64, u32, u64)>> = BTreeMap::new();
        let mut runs: BTreeMap<u32, Vec<(u64, u64, &LogRecord, LogEntry)>> = BTreeMap::new();
        let mut texts = BTreeSet::new();
        let mut transitions: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
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
            hashes.entry(front(&change.hash.0)).or_default().push(place);
            if let Some(key) = &change.message.key {
                let hash = key_hash(&change.message.credential, key);
                keys.entry(front(&hash)).or_default().push(place);
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
                    transitions.insert(key, value.into_bytes());
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
        let moved = transitions.into_iter();
        fold::fold(
            txn,
            Blocks::Transitions,
            moved.map(|(key, value)| Ok((key, Some(value)))),
        )?;
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
                let mut all = match table.get(&key)? {
                    Some(row) => decode_places(row.value())?,
                    None => Vec::new(),
                };
                all.extend(new);
                table.insert(&key, encode_places(&all).as_slice())?;
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
}

impl Snapshot {
    /// Whether anything lies above the packed layer.
    pub(crate) fn is_changed(&self) -> Result<bool, StoreError> {
        for part in Part::ALL {
            if !self.part(part).is_empty()? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

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
