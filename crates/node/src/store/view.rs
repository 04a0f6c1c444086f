//! Reading: the merged state and the log, from a snapshot or from inside the open write.

use std::{cell::OnceCell, ops::ControlFlow};

use stead_doc::{
    change::Change as DecodedChange,
    id::{ActorId, ActorTag, ChangeHash, DocumentId, ObjectId, OpId},
    present,
    row::Row,
    verdict::History,
    view::{KeyEffect, Located, ProjectEntry, View, ViewError, Waiting},
};

use super::{
    Damage, LogEntry, Store, StoreError, index,
    layers::{Part, Tables},
    rows::{self, Stored},
    state::{LogRecord, key_hash},
};

/// A change of the log with when it came and the signature beside it, where that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) change: DecodedChange,
    pub(crate) seen: i64,
}

/// The view of a workspace through one set of tables.
pub(crate) struct StoreView<'s, T> {
    pub(crate) store: &'s Store,
    pub(crate) tables: T,
    /// Arrivals at or beyond this are not shown: they are not durable.
    upto: u64,
    now: i64,
    workspace: OnceCell<[u8; 16]>,
}

impl<'s, T: Tables> StoreView<'s, T> {
    pub(crate) fn new(store: &'s Store, tables: T, upto: u64, now: i64) -> Self {
        Self {
            store,
            tables,
            upto,
            now,
            workspace: OnceCell::new(),
        }
    }

    pub(crate) fn workspace(&self) -> [u8; 16] {
        *self
            .workspace
            .get_or_init(|| super::unhex(&self.store.meta().workspace).unwrap_or_default())
    }

    /// A row and the number of its document.
    pub(crate) fn stored(&self, id: ObjectId) -> Result<Option<(u32, Stored)>, StoreError> {
        let Some((key, plain)) = self.tables.first_row(id)? else {
            return Ok(None);
        };
        let (_, document) = index::read_row_key(&key).ok_or(Damage { what: "row key" })?;
        let stored = rows::decode_row(&plain, &*self.store.state_read())?;
        Ok(Some((document, stored)))
    }

    pub(crate) fn stored_in(
        &self,
        document: u32,
        id: ObjectId,
    ) -> Result<Option<Stored>, StoreError> {
        match self.tables.row(&index::row_key(document, id))? {
            Some(plain) => Ok(Some(rows::decode_row(&plain, &*self.store.state_read())?)),
            None => Ok(None),
        }
    }

    pub(crate) fn located(
        &self,
        id: ObjectId,
        document: u32,
        stored: Stored,
    ) -> Result<Located, StoreError> {
        let state = self.store.state_read();
        let known = state.document(document).ok_or(Damage { what: "row key" })?;
        Ok(Located {
            id,
            document: known.id,
            project: known.name.project_id(),
            row: stored.row,
            created_seen: stored.created_seen,
            updated_seen: stored.updated_seen,
        })
    }

    /// Up to `limit` objects whose bits are between two bounds, both included.
    pub(crate) fn objects_between(
        &self,
        low: u64,
        high: u64,
        limit: usize,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let end = high.checked_add(1).map(u64::to_be_bytes);
        let mut found: Vec<ObjectId> = Vec::new();
        self.tables.walk(
            Part::Rows,
            &low.to_be_bytes(),
            end.as_ref().map(<[u8; 8]>::as_slice),
            false,
            &mut |key, _| {
                let (id, _) = index::read_row_key(key).ok_or(Damage { what: "row key" })?;
                if found.last() != Some(&id) {
                    if found.len() == limit {
                        return Ok(ControlFlow::Break(()));
                    }
                    found.push(id);
                }
                Ok(ControlFlow::Continue(()))
            },
        )?;
        Ok(found)
    }

    /// The objects at the ends of all index keys with a prefix.
    pub(crate) fn index_objects(&self, prefix: &[u8]) -> Result<Vec<ObjectId>, StoreError> {
        let mut objects = Vec::new();
        self.tables.scan(prefix, None, false, &mut |key| {
            objects.extend(index::object_at_end(key));
            ControlFlow::Continue(())
        })?;
        Ok(objects)
    }

    pub(crate) fn count(&self, prefix: &[u8]) -> Result<usize, StoreError> {
        let mut count = 0;
        self.tables.scan(prefix, None, false, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }

    pub(crate) fn document_number(&self, id: DocumentId) -> Option<u32> {
        self.store.state_read().document_number(id)
    }

    pub(crate) fn suspended_fields(
        &self,
        document: u32,
        id: ObjectId,
    ) -> Result<Vec<String>, StoreError> {
        let prefix = index::suspended_prefix(document, id);
        let mut fields = Vec::new();
        self.tables.scan(&prefix, None, false, &mut |key| {
            let field = key
                .get(prefix.len()..)
                .and_then(|rest| std::str::from_utf8(rest).ok());
            fields.extend(field.map(str::to_owned));
            ControlFlow::Continue(())
        })?;
        Ok(fields)
    }

    /// A change of an actor, with when it came.
    pub(crate) fn change(&self, actor: u32, seq: u64) -> Result<Option<Change>, StoreError> {
        let document = {
            let state = self.store.state_read();
            let Some(actor) = state.actors.get(actor as usize) else {
                return Ok(None);
            };
            state
                .document(actor.document)
                .ok_or(Damage { what: "actor row" })?
                .id
        };
        let Some(entry) = self.entry(actor, seq)? else {
            return Ok(None);
        };
        Ok(Some(Change {
            change: DecodedChange::decode(document, &entry.bytes)?,
            seen: entry.seen,
        }))
    }

    fn entry(&self, actor: u32, seq: u64) -> Result<Option<LogEntry>, StoreError> {
        let arrival = self
            .store
            .state_read()
            .hot
            .by_actor
            .get(&(actor, seq))
            .copied();
        if let Some(arrival) = arrival.filter(|arrival| *arrival < self.upto)
            && let Some(record) = self.tables.log(arrival)?
        {
            let record = LogRecord::decode(&record)?;
            return Ok(Some(LogEntry {
                seen: record.seen,
                hash: record.entry.hash.0,
                bytes: record.bytes,
            }));
        }
        self.store.packed.entry(actor, seq)
    }

    /// The change of an actor that holds an op counter.
    pub(crate) fn holding(&self, actor: u32, counter: u64) -> Result<Option<Change>, StoreError> {
        let seq = {
            let state = self.store.state_read();
            state
                .hot
                .holding(actor, counter)
                .filter(|(arrival, _)| *arrival < self.upto)
                .map(|(_, entry)| entry.seq)
        };
        let seq = match seq {
            Some(seq) => Some(seq),
            None => self.store.packed.holding(actor, counter)?,
        };
        match seq {
            Some(seq) => self.change(actor, seq),
            None => Ok(None),
        }
    }

    /// Where the changes to an object came, oldest first: `(arrival, actor, seq)`.
    pub(crate) fn touches(
        &self,
        document: u32,
        id: ObjectId,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        self.store.settled(|| self.touches_once(document, id))
    }

    fn touches_once(
        &self,
        document: u32,
        id: ObjectId,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        let mut all = self.store.packed.touches(document, id)?;
        let last = all.last().map(|(arrival, _, _)| *arrival);
        let state = self.store.state_read();
        for arrival in state.hot.by_object.get(&id).into_iter().flatten() {
            let here = |actor: u32| {
                state
                    .actors
                    .get(actor as usize)
                    .is_some_and(|actor| actor.document == document)
            };
            if let Some(entry) = state.hot.entries.get(arrival)
                && here(entry.actor)
                && *arrival < self.upto
                && last.is_none_or(|last| *arrival > last)
            {
                all.push((*arrival, entry.actor, entry.seq));
            }
        }
        Ok(all)
    }

    /// Whether a task could be taken up as far as its row and what it waits for say.
    pub(crate) fn is_next(
        &self,
        schema: &stead_doc::schema::Schema,
        document: u32,
        id: ObjectId,
        row: &Row,
    ) -> Result<bool, StoreError> {
        let ready = row.kind() == Some("task")
            && present::status_of(row) == "ready"
            && !present::is_archived(row)
            && !row.cells.contains_key("blocker");
        if !ready {
            return Ok(false);
        }
        let mut suspended = None;
        for (target, _) in present::edges(row, "depends_on") {
            let fields = match &suspended {
                Some(fields) => fields,
                None => suspended.insert(self.suspended_fields(document, id)?),
            };
            if fields.contains(&format!("edge/depends_on/{target}")) {
                continue;
            }
            let met = match self.stored_in(document, target)? {
                Some(other) => present::status_of(&other.row) == "done",
                None => false,
            };
            if !met {
                return Ok(false);
            }
        }
        let _ = schema;
        Ok(true)
    }

    /// Each lease is counted from the newest change of its holder to the task that this node saw.
    fn lease_seen(&self, at: &Located, holder: &str) -> Result<Option<i64>, StoreError> {
        let Some(updated) = &at.row.updated else {
            return Ok(None);
        };
        if updated.credential == holder {
            return Ok(Some(at.updated_seen));
        }
        let Some(document) = self.document_number(at.document) else {
            return Ok(None);
        };
        for (_, actor, seq) in self
            .touches(document, at.id)?
            .into_iter()
            .rev()
            .take(LEASE_WALK)
        {
            if let Some(change) = self.change(actor, seq)?
                && change.change.message.credential == holder
            {
                return Ok(Some(change.seen));
            }
        }
        Ok(None)
    }
}

/// Tasks in progress that are looked at to say how many are held: beyond, "many" is as good.
const LEASES_COUNTED: usize = 500;

/// Changes that are looked back on for a sign of a lease's holder.
const LEASE_WALK: usize = 64;

impl<T: Tables> View for StoreView<'_, T> {
    fn object(&self, id: ObjectId) -> Result<Option<Located>, ViewError> {
        match self.stored(id)? {
            Some((document, stored)) => Ok(Some(self.located(id, document, stored)?)),
            None => Ok(None),
        }
    }

    fn text(&self, at: &Located, op: OpId) -> Result<Option<String>, ViewError> {
        let key = {
            let state = self.store.state_read();
            let (Some(document), Some(actor)) = (
                state.document_number(at.document),
                state.known_actor(op.actor),
            ) else {
                return Ok(None);
            };
            text_key(document, at.id, op.counter, actor)
        };
        match self.tables.text(&key)? {
            Some(plain) => Ok(Some(rows::decode_text(plain).map_err(StoreError::from)?)),
            None => Err(StoreError::from(Damage { what: "long text" }).into()),
        }
    }

    fn projects(&self) -> Result<Vec<ProjectEntry>, ViewError> {
        Ok(self.store.projects())
    }

    fn referrers(&self, target: ObjectId, relation: &str) -> Result<Vec<ObjectId>, ViewError> {
        Ok(self.index_objects(&index::edges_prefix(target, relation))?)
    }

    fn suspended(&self, at: &Located) -> Result<Vec<String>, ViewError> {
        match self.document_number(at.document) {
            Some(document) => Ok(self.suspended_fields(document, at.id)?),
            None => Ok(Vec::new()),
        }
    }

    fn actors(
        &self,
        document: DocumentId,
        tag: ActorTag,
    ) -> Result<Vec<(ActorId, u64)>, ViewError> {
        let state = self.store.state_read();
        let Some(document) = state.document_number(document) else {
            return Ok(Vec::new());
        };
        Ok(state
            .actors_by_tag(document, tag)
            .filter(|actor| actor.seq > 0)
            .map(|actor| (actor.id, actor.seq))
            .collect())
    }

    fn touching(
        &self,
        at: &Located,
        wanted: &dyn Fn(ActorId, u64) -> bool,
    ) -> Result<Vec<(DecodedChange, i64)>, ViewError> {
        let Some(document) = self.document_number(at.document) else {
            return Ok(Vec::new());
        };
        let mut changes = Vec::new();
        for (_, actor, seq) in self.touches(document, at.id)? {
            let id = self
                .store
                .state_read()
                .actors
                .get(actor as usize)
                .map(|actor| actor.id);
            if id.is_some_and(|id| wanted(id, seq))
                && let Some(change) = self.change(actor, seq)?
            {
                changes.push((change.change, change.seen));
            }
        }
        Ok(changes)
    }

    fn change_of(
        &self,
        document: DocumentId,
        op: OpId,
    ) -> Result<Option<(DecodedChange, i64)>, ViewError> {
        let actor = {
            let state = self.store.state_read();
            let document = state.document_number(document);
            state.known_actor(op.actor).filter(|number| {
                state
                    .actors
                    .get(*number as usize)
                    .is_some_and(|actor| Some(actor.document) == document)
            })
        };
        let Some(actor) = actor else { return Ok(None) };
        Ok(self
            .holding(actor, op.counter)?
            .map(|change| (change.change, change.seen)))
    }

    fn key_effect(&self, credential: &str, key: &str) -> Result<Option<KeyEffect>, ViewError> {
        let hash = key_hash(credential, key);
        let hot = {
            let state = self.store.state_read();
            let arrival = state
                .hot
                .by_key
                .get(&hash)
                .copied()
                .filter(|arrival| *arrival < self.upto);
            arrival
                .and_then(|arrival| state.hot.entries.get(&arrival))
                .map(|entry| (entry.actor, entry.seq))
        };
        let places = match hot {
            Some(place) => vec![place],
            None => self.store.packed.key(&hash)?,
        };
        for (actor, seq) in places {
            let Some(found) = self.change(actor, seq)? else {
                continue;
            };
            let message = &found.change.message;
            if message.credential == credential && message.key.as_deref() == Some(key) {
                let state = self.store.state_read();
                let Some(known) = state.actors.get(actor as usize) else {
                    continue;
                };
                let Some(document) = state.document(known.document) else {
                    continue;
                };
                let Some(subject) = found.change.subject() else {
                    continue;
                };
                return Ok(Some(KeyEffect {
                    payload: message.payload.clone().unwrap_or_default(),
                    subject,
                    document: document.id,
                    change: (known.id, seq),
                }));
            }
        }
        Ok(None)
    }

    fn ready(&self, project: ObjectId, limit: usize) -> Result<Vec<ObjectId>, ViewError> {
        let Some(document) = self.project_document(project) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        self.tables
            .scan(&index::next_prefix(document), None, false, &mut |key| {
                found.extend(index::object_at_end(key));
                if found.len() < limit {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        Ok(found)
    }

    fn waiting(&self, project: ObjectId) -> Result<Waiting, ViewError> {
        let Some(document) = self.project_document(project) else {
            return Ok(Waiting::default());
        };
        let total = {
            let state = self.store.state_read();
            let counts = state.document(document).map(|document| &document.counts);
            let count = |status: &str| counts.and_then(|counts| counts.get(status)).copied();
            (count("ready").unwrap_or(0) + count("blocked").unwrap_or(0)) as usize
        };
        let mut under_way = Vec::new();
        self.tables.scan(
            &index::status_prefix(document, "in_progress"),
            None,
            false,
            &mut |key| {
                under_way.extend(index::object_at_end(key));
                if under_way.len() < LEASES_COUNTED {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        )?;
        let mut leased = 0;
        for id in under_way {
            if let Some(at) = self.object(id)?
                && self
                    .lease_expires(&at)?
                    .is_some_and(|expires| expires > self.now)
            {
                leased += 1;
            }
        }
        Ok(Waiting {
            blocked: total.saturating_sub(self.count(&index::next_prefix(document))?),
            leased,
        })
    }

    fn lease_expires(&self, at: &Located) -> Result<Option<i64>, ViewError> {
        let Some(lease) = at.row.text("lease").map(present::parsed) else {
            return Ok(None);
        };
        let by = lease
            .get("by")
            .and_then(|by| by.as_str())
            .unwrap_or_default();
        let secs = lease
            .get("secs")
            .and_then(serde_json::Value::as_i64)
            .unwrap_or(0);
        Ok(self
            .lease_seen(at, by)?
            .map(|seen| seen.saturating_add(secs.saturating_mul(1000))))
    }
}

impl<T: Tables> StoreView<'_, T> {
    pub(crate) fn project_document(&self, project: ObjectId) -> Option<u32> {
        let id = stead_doc::document::DocumentName::project(project).id(self.workspace());
        self.document_number(id)
    }

    pub(crate) fn now(&self) -> i64 {
        self.now
    }
}

/// How a status or an assignee moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) arrival: u64,
    pub(crate) at: i64,
    pub(crate) object: ObjectId,
    pub(crate) field: String,
    pub(crate) value: String,
}

impl<T: Tables> StoreView<'_, T> {
    /// How status and assignee of a document's tasks moved, in order of arrival; a change that
    /// moves several things is never parted, so there may be a few more than `limit`.
    pub(crate) fn transitions(
        &self,
        document: u32,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Transition>, StoreError> {
        self.store
            .settled(|| self.transitions_once(document, from, limit))
    }

    fn transitions_once(
        &self,
        document: u32,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Transition>, StoreError> {
        let mut all = Vec::new();
        for (arrival, object, field, value) in
            self.store.packed.transitions(document, from, limit)?
        {
            let place = self.store.places_from(arrival, 1)?;
            let Some((_, actor, seq)) = place.first() else {
                continue;
            };
            let at = self
                .change(*actor, *seq)?
                .map_or(0, |change| change.change.message.stamp().shown(change.seen));
            all.push(Transition {
                arrival,
                at,
                object,
                field,
                value,
            });
        }
        let hot: Vec<(u64, u32, u64)> = {
            let state = self.store.state_read();
            let here = |actor: u32| {
                state
                    .actors
                    .get(actor as usize)
                    .is_some_and(|actor| actor.document == document)
            };
            let shown = all.last().map_or(0, |last: &Transition| last.arrival + 1);
            let next = self.store.packed.end().max(from).max(shown);
            state
                .hot
                .entries
                .range(next..)
                .filter(|(arrival, entry)| **arrival < self.upto && here(entry.actor))
                .map(|(arrival, entry)| (*arrival, entry.actor, entry.seq))
                .collect()
        };
        for (arrival, actor, seq) in hot {
            if all.len() >= limit {
                break;
            }
            let Some(change) = self.change(actor, seq)? else {
                continue;
            };
            for op in &change.change.ops {
                if let Some(value) = super::packed::transition(&op.field, &op.action) {
                    let at = change.change.message.stamp().shown(change.seen);
                    all.push(Transition {
                        arrival,
                        at,
                        object: op.object,
                        field: op.field.clone(),
                        value,
                    });
                }
            }
        }
        Ok(all)
    }
}

/// The key of a long text.
pub(crate) fn text_key(document: u32, object: ObjectId, counter: u64, actor: u32) -> [u8; 24] {
    let mut key = [0; 24];
    key[..12].copy_from_slice(&index::row_key(document, object));
    key[12..20].copy_from_slice(&counter.to_be_bytes());
    key[20..].copy_from_slice(&actor.to_be_bytes());
    key
}

/// What a verdict on a change of one document asks.
pub(crate) struct DocumentHistory<'v, 's, T> {
    pub(crate) view: &'v StoreView<'s, T>,
    pub(crate) document: u32,
}

impl<T: Tables> History for DocumentHistory<'_, '_, T> {
    fn last_of(&self, actor: ActorId) -> Result<Option<(u64, ChangeHash)>, ViewError> {
        let state = self.view.store.state_read();
        Ok(state
            .actor_by_id(actor)
            .filter(|actor| actor.seq > 0)
            .map(|actor| (actor.seq, ChangeHash(actor.hash))))
    }

    fn max_op_of(&self, change: ChangeHash) -> Result<Option<u64>, ViewError> {
        {
            let state = self.view.store.state_read();
            let Some(document) = state.document(self.document) else {
                return Ok(None);
            };
            if change == document.genesis {
                return Ok(Some(document_genesis_max()));
            }
            if let Some(entry) = state
                .hot
                .by_hash
                .get(&change)
                .and_then(|arrival| state.hot.entries.get(arrival))
            {
                let here = state
                    .actors
                    .get(entry.actor as usize)
                    .is_some_and(|actor| actor.document == self.document);
                return Ok(here.then_some(entry.max_op));
            }
        }
        Ok(self.packed_change(change)?.map(|found| found.max_op()))
    }

    fn field_of(&self, op: OpId) -> Result<Option<(ObjectId, String, u64)>, ViewError> {
        let actor = {
            let state = self.view.store.state_read();
            state.known_actor(op.actor).filter(|number| {
                state
                    .actors
                    .get(*number as usize)
                    .is_some_and(|actor| actor.document == self.document && actor.seq > 0)
            })
        };
        let Some(actor) = actor else { return Ok(None) };
        let Some(found) = self.view.holding(actor, op.counter)? else {
            return Ok(None);
        };
        let seq = found.change.seq;
        Ok(found
            .change
            .ops_with_ids()
            .find(|(id, found)| {
                *id == op && matches!(found.action, stead_doc::change::Action::Put(_))
            })
            .map(|(_, op)| (op.object, op.field.clone(), seq)))
    }

    fn is_ancestor(
        &self,
        heads: &[ChangeHash],
        actor: ActorId,
        seq: u64,
    ) -> Result<bool, ViewError> {
        let (number, all) = {
            let state = self.view.store.state_read();
            let Some(document) = state.document(self.document) else {
                return Ok(false);
            };
            let named: std::collections::BTreeSet<_> = heads.iter().copied().collect();
            (state.known_actor(actor), document.heads.is_subset(&named))
        };
        // Whoever names all our heads has seen everything that is here.
        if all {
            return Ok(number.is_some());
        }
        let Some(number) = number else {
            return Ok(false);
        };
        Ok(super::packed::ancestry::covers(self, heads, number, seq)?)
    }
}

impl<T: Tables> DocumentHistory<'_, '_, T> {
    /// A packed change of this document by its hash.
    pub(crate) fn packed_change(
        &self,
        hash: ChangeHash,
    ) -> Result<Option<DecodedChange>, StoreError> {
        for (actor, seq) in self.view.store.packed.hash(&hash)? {
            let here = self
                .view
                .store
                .state_read()
                .actors
                .get(actor as usize)
                .is_some_and(|actor| actor.document == self.document);
            if here
                && let Some(found) = self.view.change(actor, seq)?
                && found.change.hash == hash
            {
                return Ok(Some(found.change));
            }
        }
        Ok(None)
    }
}

fn document_genesis_max() -> u64 {
    stead_doc::document::Genesis::MAX_OP
}
