//! Computing the view again from the log, and comparing what is stored with what the log says.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use stead_doc::{
    change::Change,
    id::{ActorId, ChangeHash, ObjectId, OpId},
    row::{Row, Value},
    schema::Schema,
};

use super::{
    Batch, Damage, Store, StoreError, VIEW_RULES, codec,
    index::{self, keys_of},
    layers::{Part, Tables},
    packed::Base,
    rows,
};

/// A change of the log with its place and its document.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) arrival: u64,
    pub(crate) document: u32,
    pub(crate) actor: u32,
    pub(crate) seen: i64,
    pub(crate) change: Change,
}

/// Something in the store that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// Where.
    pub place: String,
    /// What to do.
    pub hint: &'static str,
}

const REBUILD: &str = "Run `stead doctor --rebuild`: the view is computed again from the log.";
const RESTORE: &str = "The log itself is damaged: restore a backup with `stead restore`.";

/// Changes read from the log at once.
const WALK: usize = 1_024;

impl Store {
    /// Every change of the log in the order in which it came here.
    pub(crate) fn walk_log(
        &self,
        each: &mut dyn FnMut(Logged) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let view = self.view(0)?;
        let mut from = 0;
        loop {
            let places = self.places_from(from, WALK)?;
            let Some((last, ..)) = places.last() else {
                return Ok(());
            };
            let next = last + 1;
            for (arrival, actor, seq) in places {
                if arrival != from {
                    return Err(Damage {
                        what: "log: a change is missing",
                    }
                    .into());
                }
                from += 1;
                let found = view.change(actor, seq)?.ok_or(Damage {
                    what: "log: a change is missing",
                })?;
                let document = self
                    .state_read()
                    .actors
                    .get(actor as usize)
                    .ok_or(Damage { what: "log record" })?
                    .document;
                each(Logged {
                    arrival,
                    document,
                    actor,
                    seen: found.seen,
                    change: found.change,
                })?;
            }
            from = next;
        }
    }

    /// Whether the view was computed by the rules of this version.
    pub fn view_is_current(&self) -> bool {
        self.meta().view_rules == VIEW_RULES
    }

    /// Computes rows, texts and indexes again from the log, in one transaction of the hot file, and
    /// then folds them; `progress` is told how many changes of how many are done.
    ///
    /// # Errors
    ///
    /// Where the log is damaged or a file fails; the old view or the new one is then there, whole.
    pub fn rebuild_view(
        &mut self,
        schema: &Schema,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let total = self.arrivals();
        let counted = self.state_read().counted();
        if let Err(error) = self.rebuild_rows(schema, total, progress) {
            // The rows on disk are the old ones, and so is what is counted of them.
            self.state_write().put_back(counted);
            return Err(error);
        }
        self.change_meta(|meta| meta.view_rules = VIEW_RULES)?;
        self.rebuild_texts()?;
        *self.hot_texts() = None;
        self.pack()?;
        // The hot file held the whole view for a while.
        self.hot.compact()?;
        progress(total, total);
        Ok(())
    }

    fn rebuild_rows(
        &self,
        schema: &Schema,
        total: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), StoreError> {
        let folded = self.packed.folded()?.fold;
        let txn = self.begin()?;
        self.clear_view(&txn)?;
        self.write_layers(&txn, |layers| layers.rebuilt = folded + 1)?;
        {
            let none = Arc::new(Base::none(folded));
            let mut batch = Batch::over(none, self, &txn, schema, 0)?;
            self.walk_log(&mut |logged| {
                batch.apply_rows(logged.document, &logged.change, logged.arrival, logged.seen)?;
                if logged.arrival.is_multiple_of(1_000) {
                    progress(logged.arrival, total);
                }
                Ok(())
            })?;
            batch.finish(&txn)?;
        }
        txn.commit()?;
        drop(self.packed.show(Base::none(folded)));
        Ok(())
    }

    /// Compares rows, texts, indexes and frontier with what the log says, and calls `each_document`
    /// with every document's changes and rows for a further opinion.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read at all.
    pub(crate) fn compare_with_log(
        &self,
        schema: &Schema,
        each_document: &mut dyn FnMut(&str, &[Vec<u8>], &BTreeMap<ObjectId, Row>) -> Vec<Problem>,
    ) -> Result<Vec<Problem>, StoreError> {
        let mut problems = Vec::new();
        let mut rows: BTreeMap<u32, BTreeMap<ObjectId, Row>> = BTreeMap::new();
        let mut texts: BTreeMap<(u32, ObjectId, OpId), String> = BTreeMap::new();
        let mut raw: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        let mut ends: BTreeMap<u32, (ActorId, u64, ChangeHash)> = BTreeMap::new();
        let walked = self.walk_log(&mut |logged| {
            let (document, change) = (logged.document, &logged.change);
            let before = ends.get(&logged.actor);
            let follows = before.map_or(change.seq == 1, |(_, seq, hash)| {
                change.seq == seq + 1 && change.deps.binary_search(hash).is_ok()
            });
            if !follows {
                problems.push(problem(
                    format!(
                        "change {} does not follow its actor's previous one",
                        change.seq
                    ),
                    format!("arrival {}", logged.arrival),
                    RESTORE,
                ));
            }
            ends.insert(logged.actor, (change.actor, change.seq, change.hash));
            for object in change.touched() {
                let row = rows.entry(document).or_default().entry(object).or_default();
                let applied = row.apply(object, change);
                for (op, text) in applied.texts {
                    texts.insert((document, object, op), text);
                }
                for op in applied.dropped {
                    texts.remove(&(document, object, op));
                }
            }
            raw.entry(document).or_default().push(change.bytes.clone());
            Ok(())
        });
        if let Err(error) = walked {
            problems.push(problem(error.to_string(), "log".to_owned(), RESTORE));
            return Ok(problems);
        }
        self.compare_frontier(&ends, &mut problems);
        self.compare_rows(schema, &rows, &texts, &mut problems)?;
        let names: BTreeMap<u32, String> = self
            .state_read()
            .documents
            .iter()
            .enumerate()
            .map(|(number, document)| {
                (
                    number as u32,
                    format!("{} {}", document.name.kind, document.name.key),
                )
            })
            .collect();
        for (document, rows) in &mut rows {
            inline_texts(*document, rows, &texts);
            let genesis = self
                .state_read()
                .document(*document)
                .map(|known| stead_doc::document::Genesis::of(known.id).bytes);
            let mut chunks: Vec<Vec<u8>> = genesis.into_iter().collect();
            chunks.extend(raw.remove(document).unwrap_or_default());
            problems.extend(each_document(
                names.get(document).map_or("", String::as_str),
                &chunks,
                rows,
            ));
        }
        Ok(problems)
    }

    fn compare_frontier(
        &self,
        ends: &BTreeMap<u32, (ActorId, u64, ChangeHash)>,
        problems: &mut Vec<Problem>,
    ) {
        let state = self.state_read();
        for (number, actor) in state.actors.iter().enumerate() {
            let end = ends.get(&(number as u32));
            let same = match end {
                Some((id, seq, hash)) => (*id, *seq, hash.0) == (actor.id, actor.seq, actor.hash),
                None => actor.seq == 0,
            };
            if !same {
                problems.push(problem(
                    "the frontier names another change than the log ends with".to_owned(),
                    format!("actor {}", actor.id),
                    RESTORE,
                ));
            }
        }
    }

    fn compare_rows(
        &self,
        schema: &Schema,
        rows: &BTreeMap<u32, BTreeMap<ObjectId, Row>>,
        texts: &BTreeMap<(u32, ObjectId, OpId), String>,
        problems: &mut Vec<Problem>,
    ) -> Result<(), StoreError> {
        let view = self.view(0)?;
        let mut seen = BTreeSet::new();
        let mut keys = BTreeSet::new();
        let mut failed = Vec::new();
        let walked = view.tables.all_rows(&mut |key, found| {
            let Some((object, document)) = index::read_row_key(key) else {
                failed.push(problem(
                    "a row has no readable key".to_owned(),
                    "rows".to_owned(),
                    REBUILD,
                ));
                return Ok(());
            };
            seen.insert((document, object));
            let place = format!("object {object}");
            let decoded = found
                .plain(Part::Rows)
                .and_then(|plain| rows::decode_row(&plain, &*self.state_read()));
            let stored = match decoded {
                Ok(stored) => stored,
                Err(error) => {
                    failed.push(problem(error.to_string(), place, REBUILD));
                    return Ok(());
                }
            };
            match rows.get(&document).and_then(|rows| rows.get(&object)) {
                Some(row) if *row == stored.row => {}
                Some(_) => failed.push(problem(
                    "a row says something else than the log".to_owned(),
                    place.clone(),
                    REBUILD,
                )),
                None => failed.push(problem(
                    "a row stands for nothing in the log".to_owned(),
                    place.clone(),
                    REBUILD,
                )),
            }
            let open =
                stored.row.is_conflicted() || !view.suspended_fields(document, object)?.is_empty();
            if stored.next != view.is_next(schema, document, object, &stored.row)?
                || stored.open != open
            {
                failed.push(problem(
                    "what is computed of a row is out of date".to_owned(),
                    place,
                    REBUILD,
                ));
            }
            keys.extend(keys_of(
                schema,
                document,
                object,
                &stored.row,
                stored.next,
                stored.open,
            ));
            Ok(())
        });
        problems.append(&mut failed);
        damaged(walked, "rows", problems)?;
        for (document, rows) in rows {
            for object in rows
                .keys()
                .filter(|object| !seen.contains(&(*document, **object)))
            {
                problems.push(problem(
                    "the log has an object that the view lacks".to_owned(),
                    format!("object {object}"),
                    REBUILD,
                ));
            }
        }
        for ((document, object, op), text) in texts {
            let Some(actor) = self.state_read().known_actor(op.actor) else {
                continue;
            };
            let key = super::view::text_key(*document, *object, op.counter, actor);
            let stored = match view.tables.text(&key) {
                Ok(plain) => plain.and_then(|plain| rows::decode_text(plain).ok()),
                Err(StoreError::Damage(_)) => None,
                Err(error) => return Err(error),
            };
            if stored.as_ref() != Some(text) {
                problems.push(problem(
                    "a long text is missing or says something else than the log".to_owned(),
                    format!("object {object}"),
                    REBUILD,
                ));
            }
        }
        for (document, rows) in rows {
            match view.all_suspended(*document, rows) {
                Ok(suspended) => keys.extend(suspended),
                Err(error) => damaged(Err(error), "rows", problems)?,
            }
        }
        let mut stored: BTreeSet<Vec<u8>> = BTreeSet::new();
        let walked = view
            .tables
            .walk(Part::Index, &[], None, false, &mut |key, _| {
                stored.insert(key.to_vec());
                Ok(ControlFlow::Continue(()))
            });
        damaged(walked, "index", problems)?;
        let wrong = stored.symmetric_difference(&keys).count();
        if wrong > 0 {
            problems.push(problem(
                format!("{wrong} index entries are missing or stand for nothing"),
                "index".to_owned(),
                REBUILD,
            ));
        }
        Ok(())
    }

    /// For tests of what doctor finds: replaces a row's bytes, checksum made right.
    #[doc(hidden)]
    pub fn alter_row_for_test(
        &self,
        object: ObjectId,
        field: &str,
        value: &str,
    ) -> Result<bool, StoreError> {
        let Some((document, mut stored)) = self.view(0)?.stored(object)? else {
            return Ok(false);
        };
        if let Some(cell) = stored.row.cells.get_mut(field)
            && let Some(last) = cell.0.last_mut()
        {
            last.1 = Value::Inline(value.into());
        }
        let record = self.codec().encode(&stored, &mut *self.state_write())?;
        let txn = self.begin()?;
        txn.open_table(super::ROWS)?.insert(
            index::row_key(document, object).as_slice(),
            record.as_slice(),
        )?;
        txn.commit()?;
        Ok(true)
    }

    /// For tests of what a start finds: flips a bit of a stored log record or of a row.
    #[doc(hidden)]
    pub fn damage_for_test(&self, arrival: u64) -> Result<bool, StoreError> {
        use redb::ReadableTable;
        let txn = self.begin()?;
        let done = {
            let mut log = txn.open_table(super::LOG)?;
            let record = log.get(arrival)?.map(|record| record.value().to_vec());
            match record {
                Some(mut record) => {
                    if let Some(last) = record.last_mut() {
                        *last ^= 1;
                    }
                    log.insert(arrival, record.as_slice())?;
                    true
                }
                None => false,
            }
        };
        txn.commit()?;
        Ok(done)
    }

    /// For tests of what an old version does with a newer store.
    #[doc(hidden)]
    pub fn set_format_for_test(&self, format: u32) -> Result<(), StoreError> {
        self.set_meta_for_test(&super::Meta {
            format,
            ..self.meta()
        })
    }

    /// For tests of what a start does with a store that says something else about itself.
    #[doc(hidden)]
    pub fn set_meta_for_test(&self, meta: &super::Meta) -> Result<(), StoreError> {
        let content = serde_json::to_vec(meta).map_err(|error| StoreError::Io(error.into()))?;
        let txn = self.begin()?;
        txn.open_table(super::META)?
            .insert("store", codec::seal(&content).as_slice())?;
        txn.commit()?;
        Ok(())
    }
}

/// Puts texts kept apart back into the rows, for whoever compares whole values.
fn inline_texts(
    document: u32,
    rows: &mut BTreeMap<ObjectId, Row>,
    texts: &BTreeMap<(u32, ObjectId, OpId), String>,
) {
    for (object, row) in rows {
        for cell in row.cells.values_mut() {
            for (op, value) in &mut cell.0 {
                if let Value::Apart(_) = value
                    && let Some(text) = texts.get(&(document, *object, *op))
                {
                    *value = Value::Inline(text.as_str().into());
                }
            }
        }
    }
}

/// Damage is a problem to name; another error is one.
fn damaged(
    walked: Result<(), StoreError>,
    place: &str,
    problems: &mut Vec<Problem>,
) -> Result<(), StoreError> {
    match walked {
        Err(StoreError::Damage(damage)) => {
            problems.push(problem(damage.to_string(), place.to_owned(), REBUILD));
            Ok(())
        }
        other => other,
    }
}

fn problem(what: String, place: String, hint: &'static str) -> Problem {
    Problem { what, place, hint }
}
