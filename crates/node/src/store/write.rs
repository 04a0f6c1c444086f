//! Writing: applying changes inside the one open write transaction, rows and indexes with them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use redb::WriteTransaction;
use stead_doc::{
    board::{self, Dependencies, Parents},
    change::Change,
    graph,
    id::{ObjectId, OpId},
    present,
    row::{Applied, Row},
    schema::Schema,
};

use super::{
    INDEX, LOCAL, LOG, ROWS, STATE, Store, StoreError, TEXTS, codec,
    index::{self, keys_of},
    layers::{GONE, Part, THERE, Tables, Writing},
    packed::Base,
    rows::{self, Stored},
    state::{Actor, HotEntry, LogRecord},
    view::{StoreView, text_key},
};

/// The open write: a view of everything that is in it, and the ways to add to it.
pub(crate) struct Batch<'s, 't> {
    pub(crate) view: StoreView<'s, Writing<'t>>,
    schema: &'s Schema,
    /// The objects that were touched, for those who watch.
    pub(crate) touched: BTreeMap<ObjectId, Touched>,
    /// The objects whose text changed, for search.
    pub(crate) texts: BTreeSet<(u32, ObjectId)>,
}

/// An object that a batch touched, and how it stood before the batch.
#[derive(Debug, Clone)]
pub(crate) struct Touched {
    /// Its document.
    pub(crate) document: u32,
    /// Its status before; nothing where it was not there.
    pub(crate) status: Option<String>,
    /// Whether somebody had to decide something about it.
    pub(crate) open: bool,
}

impl Touched {
    fn before(document: u32, old: Option<&Stored>) -> Self {
        Self {
            document,
            status: old
                .filter(|old| old.row.kind() == Some("task"))
                .map(|old| present::status_of(&old.row)),
            open: old.is_some_and(|old| old.open),
        }
    }
}

/// What stands beside a change: who vouches for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signed {
    /// The device that made it.
    pub(crate) device: [u8; 32],
    /// In which of its incarnations.
    pub(crate) incarnation: [u8; 16],
    /// Its signature.
    pub(crate) signature: [u8; 64],
    /// The roster entry, counted from 0, that the signature names as the head.
    pub(crate) roster: u32,
}

impl<'s, 't> Batch<'s, 't> {
    /// Over the packed layer as it is now, `txn` being open already: a folding that is durable by
    /// now was begun from a snapshot that `txn` is not older than, for nothing has been committed
    /// beside it; and none is removed beside it either.
    pub(crate) fn open(
        store: &'s Store,
        txn: &'t WriteTransaction,
        schema: &'s Schema,
        now: i64,
    ) -> Result<Self, StoreError> {
        Self::over(store.packed.base(), store, txn, schema, now)
    }

    /// Over another packed layer: none, where the view is made anew.
    pub(crate) fn over(
        base: Arc<Base>,
        store: &'s Store,
        txn: &'t WriteTransaction,
        schema: &'s Schema,
        now: i64,
    ) -> Result<Self, StoreError> {
        let tables = Writing {
            rows: txn.open_table(ROWS)?,
            texts: txn.open_table(TEXTS)?,
            index: txn.open_table(INDEX)?,
            log: txn.open_table(LOG)?,
            base,
        };
        Ok(Self {
            view: StoreView::new(store, tables, u64::MAX, now),
            schema,
            touched: BTreeMap::new(),
            texts: BTreeSet::new(),
        })
    }

    /// Applies an admitted change of a document: log, rows, indexes, frontier.
    pub(crate) fn apply(
        &mut self,
        document: u32,
        change: &Change,
        signed: Signed,
    ) -> Result<(), StoreError> {
        let seen = self.view.now();
        let store = self.view.store;
        let actor = Actor {
            id: change.actor,
            document,
            device: signed.device,
            incarnation: signed.incarnation,
            seq: change.seq,
            hash: change.hash.0,
            signature: signed.signature,
            roster: signed.roster,
            frozen: None,
        };
        let arrival = store.state_write().advance(document, actor, change);
        let number = store
            .state_read()
            .known_actor(change.actor)
            .unwrap_or_default();
        let record = LogRecord {
            entry: HotEntry::of(number, change),
            seen,
            roster: signed.roster,
            signature: signed.signature,
            bytes: change.bytes.clone(),
        };
        self.view
            .tables
            .log
            .insert(arrival, record.encode().as_slice())?;
        self.apply_rows(document, change, arrival, seen)
    }

    /// Applies a change to rows and indexes alone, as a rebuild of the view does.
    pub(crate) fn apply_rows(
        &mut self,
        document: u32,
        change: &Change,
        arrival: u64,
        seen: i64,
    ) -> Result<(), StoreError> {
        let mut edges = Vec::new();
        let mut done_changed = Vec::new();
        for object in change.touched() {
            let old = self.view.stored_in(document, object)?;
            let mut new = old.clone().unwrap_or_default();
            let (created, updated) = (new.row.created.clone(), new.row.updated.clone());
            let applied = new.row.apply(object, change);
            if new.row.created != created {
                new.created_seen = seen;
            }
            if new.row.updated != updated {
                new.updated_seen = seen;
            }
            new.arrival = arrival;
            self.put_texts(document, object, &applied)?;
            if applied.fields.iter().any(|field| {
                super::packed::TEXT_FIELDS
                    .iter()
                    .any(|(text, _)| text == field)
            }) {
                self.texts.insert((document, object));
            }
            let is_done = |row: &Row| present::status_of(row) == "done";
            if old
                .as_ref()
                .is_none_or(|old| is_done(&old.row) != is_done(&new.row))
            {
                done_changed.push(object);
            }
            let before = old
                .as_ref()
                .map(|old| acyclic_edges(&old.row))
                .unwrap_or_default();
            let after = acyclic_edges(&new.row);
            if before != after {
                edges.push((object, before, after));
            }
            self.touched
                .entry(object)
                .or_insert_with(|| Touched::before(document, old.as_ref()));
            self.put_row(document, object, old.as_ref(), new)?;
        }
        for (object, before, after) in edges {
            self.edges_changed(document, object, &before, &after)?;
        }
        for object in done_changed {
            for dependent in self
                .view
                .index_objects(&index::edges_prefix(object, "depends_on"))?
            {
                self.refresh(document, dependent)?;
            }
        }
        Ok(())
    }

    /// Writes a row with its index keys, those that did not change left alone.
    fn put_row(
        &mut self,
        document: u32,
        object: ObjectId,
        old: Option<&Stored>,
        mut new: Stored,
    ) -> Result<(), StoreError> {
        new.next = self.view.is_next(self.schema, document, object, &new.row)?;
        new.open =
            new.row.is_conflicted() || !self.view.suspended_fields(document, object)?.is_empty();
        let keys = |stored: &Stored| {
            keys_of(
                self.schema,
                document,
                object,
                &stored.row,
                stored.next,
                stored.open,
            )
        };
        let (before, after) = (old.map(keys).unwrap_or_default(), keys(&new));
        for key in before.difference(&after) {
            self.put(Part::Index, key, GONE)?;
        }
        for key in after.difference(&before) {
            self.put(Part::Index, key, THERE)?;
        }
        let status = |stored: &Stored| {
            let counted = stored.row.kind() == Some("task") && !present::is_archived(&stored.row);
            counted.then(|| present::status_of(&stored.row))
        };
        let (was, is) = (old.and_then(status), status(&new));
        let store = self.view.store;
        let mut state = store.state_write();
        if was != is
            && let Some(known) = state.documents.get_mut(document as usize)
        {
            if let Some(was) = was
                && let Some(count) = known.counts.get_mut(&was)
            {
                *count = count.saturating_sub(1);
            }
            if let Some(is) = is {
                *known.counts.entry(is).or_default() += 1;
            }
            state.dirty.insert(super::state::Dirty::Document(document));
        }
        if new.row.kind() == Some("project") {
            state
                .projects
                .insert(object, super::project_entry(object, &new));
        }
        let record = store.codec().encode(&new, &mut *state)?;
        drop(state);
        self.put(Part::Rows, &index::row_key(document, object), &record)
    }

    /// Puts a value, or [`GONE`], above whatever is packed under the key. Nothing is taken out of
    /// the hot table, not even what is not packed yet: a folding may be about to pack it.
    fn put(&mut self, part: Part, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.view.store.weigh((key.len() + value.len()) as u64);
        self.view.tables.part_mut(part).insert(key, value)?;
        Ok(())
    }

    /// Brings what depends on other objects up to date: whether a task can be taken up, whether
    /// something about it is open.
    fn refresh(&mut self, document: u32, object: ObjectId) -> Result<(), StoreError> {
        let Some(stored) = self.view.stored_in(document, object)? else {
            return Ok(());
        };
        let next = self
            .view
            .is_next(self.schema, document, object, &stored.row)?;
        let open =
            stored.row.is_conflicted() || !self.view.suspended_fields(document, object)?.is_empty();
        if (next, open) == (stored.next, stored.open) {
            return Ok(());
        }
        self.put_row(document, object, Some(&stored), stored.clone())
    }

    fn put_texts(
        &mut self,
        document: u32,
        object: ObjectId,
        applied: &Applied,
    ) -> Result<(), StoreError> {
        let store = self.view.store;
        for (op, text) in &applied.texts {
            let key = self.key_of_text(document, object, *op);
            let record = store.codec().encode_text(text)?;
            self.put(Part::Texts, &key, &record)?;
        }
        for op in &applied.dropped {
            let key = self.key_of_text(document, object, *op);
            self.put(Part::Texts, &key, GONE)?;
        }
        Ok(())
    }

    fn key_of_text(&self, document: u32, object: ObjectId, op: OpId) -> [u8; 24] {
        let actor = rows::Numbers::actor_number(&mut *self.view.store.state_write(), op.actor);
        text_key(document, object, op.counter, actor)
    }

    /// Decides anew which edges are suspended, where a new one may close a circle or one that is
    /// gone may have opened it.
    fn edges_changed(
        &mut self,
        document: u32,
        object: ObjectId,
        before: &Edges,
        after: &Edges,
    ) -> Result<(), StoreError> {
        let error =
            |error: stead_doc::view::ViewError| StoreError::Io(std::io::Error::other(error));
        for relation in [Relation::Parent, Relation::DependsOn] {
            let (was, is) = (relation.of(before), relation.of(after));
            if was.iter().any(|edge| !is.contains(edge)) {
                self.reopen(document, relation)?;
            }
            let referred = !self
                .view
                .index_objects(&index::edges_prefix(object, relation.index_name()))?
                .is_empty();
            for target in is.iter().filter(|edge| !was.contains(edge)) {
                // Nobody points at the object, so no circle goes through it.
                if !referred && *target != object {
                    continue;
                }
                let closes = match relation {
                    Relation::Parent => graph::path(&Parents(&self.view), *target, object),
                    Relation::DependsOn => graph::path(&Dependencies(&self.view), *target, object),
                };
                if closes.map_err(error)?.is_some() {
                    self.suspend(document, relation, object)?;
                }
            }
        }
        Ok(())
    }

    /// Judges every edge of a relation that is suspended in the document again.
    fn reopen(&mut self, document: u32, relation: Relation) -> Result<(), StoreError> {
        let prefix = index::all_suspended_prefix(document);
        let mut suspended = BTreeSet::new();
        self.view.tables.scan(&prefix, None, false, &mut |key| {
            let object = key
                .get(prefix.len()..prefix.len() + 8)
                .and_then(index::object_at_end);
            let field = key.get(prefix.len() + 8..).unwrap_or_default();
            if relation.has_field(field) {
                suspended.extend(object);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        for object in suspended {
            self.suspend(document, relation, object)?;
        }
        Ok(())
    }

    fn suspend(
        &mut self,
        document: u32,
        relation: Relation,
        seed: ObjectId,
    ) -> Result<(), StoreError> {
        let component = match relation {
            Relation::Parent => graph::suspended(&Parents(&self.view), seed),
            Relation::DependsOn => graph::suspended(&Dependencies(&self.view), seed),
        }
        .map_err(|error| StoreError::Io(std::io::Error::other(error)))?;
        for object in &component.objects {
            let is: BTreeSet<String> = component
                .suspended
                .iter()
                .filter(|(from, _)| from == object)
                .map(|(_, to)| relation.field(*to))
                .collect();
            let fields = self.view.suspended_fields(document, *object)?;
            let was: BTreeSet<String> = fields
                .into_iter()
                .filter(|field| relation.has_field(field.as_bytes()))
                .collect();
            for field in was.difference(&is) {
                let key = index::suspended(document, *object, field);
                self.put(Part::Index, &key, GONE)?;
            }
            for field in is.difference(&was) {
                let key = index::suspended(document, *object, field);
                self.put(Part::Index, &key, THERE)?;
            }
            if was != is {
                let old = self.view.stored_in(document, *object)?;
                self.touched
                    .entry(*object)
                    .or_insert_with(|| Touched::before(document, old.as_ref()));
                self.refresh(document, *object)?;
            }
        }
        Ok(())
    }

    /// Writes what the state has gathered and lets the tables go, so that the transaction can be
    /// committed.
    pub(crate) fn finish(self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let rows = self.view.store.state_write().take_dirty();
        let mut table = txn.open_table(STATE)?;
        for (key, value) in rows {
            table.insert(key.as_slice(), codec::seal(&value).as_slice())?;
        }
        Ok(())
    }
}

/// The edges of a row that must not form circles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Edges {
    parent: Vec<ObjectId>,
    depends_on: Vec<ObjectId>,
}

fn acyclic_edges(row: &Row) -> Edges {
    Edges {
        parent: board::parent_edge(row)
            .map(|(parent, _)| parent)
            .into_iter()
            .collect(),
        depends_on: present::edges(row, "depends_on")
            .map(|(target, _)| target)
            .collect(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Parent,
    DependsOn,
}

impl Relation {
    fn of(self, edges: &Edges) -> &[ObjectId] {
        match self {
            Self::Parent => &edges.parent,
            Self::DependsOn => &edges.depends_on,
        }
    }

    fn index_name(self) -> &'static str {
        match self {
            Self::Parent => "parent",
            Self::DependsOn => "depends_on",
        }
    }

    fn field(self, to: ObjectId) -> String {
        match self {
            Self::Parent => "parentId".to_owned(),
            Self::DependsOn => format!("edge/depends_on/{to}"),
        }
    }

    fn has_field(self, field: &[u8]) -> bool {
        match self {
            Self::Parent => field == b"parentId",
            Self::DependsOn => field.starts_with(b"edge/depends_on/"),
        }
    }
}

impl<T: Tables> StoreView<'_, T> {
    /// The index keys of all suspended edges of a document, computed from its rows.
    pub(crate) fn all_suspended(
        &self,
        document: u32,
        rows: &BTreeMap<ObjectId, Row>,
    ) -> Result<BTreeSet<Vec<u8>>, StoreError> {
        let mut keys = BTreeSet::new();
        for relation in [Relation::Parent, Relation::DependsOn] {
            let mut judged = BTreeSet::new();
            for seed in not_free_of_circles(relation, rows) {
                if judged.contains(&seed) {
                    continue;
                }
                let component = match relation {
                    Relation::Parent => graph::suspended(&Parents(self), seed),
                    Relation::DependsOn => graph::suspended(&Dependencies(self), seed),
                }
                .map_err(|error| StoreError::Io(std::io::Error::other(error)))?;
                for (from, to) in component.suspended {
                    keys.insert(index::suspended(document, from, &relation.field(to)));
                }
                judged.extend(component.objects);
            }
        }
        Ok(keys)
    }
}

/// The objects whose edges lead into a circle: what is left when those that lead nowhere are taken
/// away again and again.
fn not_free_of_circles(relation: Relation, rows: &BTreeMap<ObjectId, Row>) -> Vec<ObjectId> {
    let mut referrers: BTreeMap<ObjectId, Vec<ObjectId>> = BTreeMap::new();
    let mut leads_on: BTreeMap<ObjectId, usize> = BTreeMap::new();
    for (object, row) in rows {
        let edges = acyclic_edges(row);
        let targets = relation.of(&edges);
        leads_on.insert(
            *object,
            targets.iter().filter(|to| rows.contains_key(to)).count(),
        );
        for target in targets {
            referrers.entry(*target).or_default().push(*object);
        }
    }
    let mut ends: Vec<ObjectId> = leads_on
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(object, _)| *object)
        .collect();
    while let Some(end) = ends.pop() {
        leads_on.remove(&end);
        for object in referrers.remove(&end).unwrap_or_default() {
            if let Some(count) = leads_on.get_mut(&object) {
                *count -= 1;
                if *count == 0 {
                    ends.push(object);
                }
            }
        }
    }
    leads_on.into_keys().collect()
}

impl Store {
    pub(crate) fn codec(&self) -> std::sync::MutexGuard<'_, rows::RowCodec> {
        self.codec
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Empties everything that is computed from the log, to compute it again.
    pub(crate) fn clear_view(&self, txn: &WriteTransaction) -> Result<(), StoreError> {
        for part in Part::ALL {
            txn.delete_table(part.hot())?;
            txn.open_table(part.hot())?;
        }
        let mut state = self.state_write();
        state.projects.clear();
        for number in 0..state.documents.len() {
            if let Some(document) = state.documents.get_mut(number) {
                document.counts.clear();
            }
            state
                .dirty
                .insert(super::state::Dirty::Document(number as u32));
        }
        Ok(())
    }

    /// A value kept for this machine alone.
    ///
    /// # Errors
    ///
    /// Where the database fails or the value is damaged.
    pub fn local(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        use redb::ReadableDatabase;
        let table = self.hot.begin_read()?.open_table(LOCAL)?;
        match table.get(key)? {
            Some(value) => Ok(Some(codec::open(value.value(), "local value")?.to_vec())),
            None => Ok(None),
        }
    }

    /// Keeps a value for this machine alone.
    ///
    /// # Errors
    ///
    /// Where the commit fails.
    pub fn set_local(&self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let txn = self.begin()?;
        txn.open_table(LOCAL)?
            .insert(key, codec::seal(value).as_slice())?;
        txn.commit()?;
        Ok(())
    }
}
