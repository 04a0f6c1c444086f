//! The store: what is kept, where, and in which order it becomes durable.
//!
//! Two redb files. The *hot* one is small and written on every commit: the unpacked log, what of the
//! view (rows, long texts, secondary indexes) changed since the last packing, documents, actors (the
//! frontier) and the roster. The *packed* one is written by packing alone, off the write path:
//! compressed runs of the log with their indexes, the rest of the view, idempotency keys,
//! transitions and the text index. Whatever is in both is the same, or the hot one is newer; the
//! packed copy is durable before the hot one goes.

mod blocks;
mod codec;
mod copy;
mod disk;
pub(crate) mod index;
mod layers;
mod packed;
mod rebuild;
mod rows;
mod state;
mod view;
mod write;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};
use stead_doc::{
    document::DocumentName,
    id::{ActorId, DocumentId, ObjectId},
    view::ProjectEntry,
};

pub(crate) use blocks::LogEntry;
pub use copy::BackupHead;
pub use disk::{Directory, Disk, make_private_dir, replace_file, sync_dir};
pub(crate) use layers::{Snapshot, Tables};
pub(crate) use packed::Packed;
pub use rebuild::Problem;
pub(crate) use rows::Stored;
pub(crate) use state::{Actor, HOT_MAX, State, key_hash};
pub(crate) use view::StoreView;
pub(crate) use write::{Batch, Signed};

use crate::search::HotIndex;
use rows::RowCodec;

/// The store's format. A store of a newer one is refused; one of format 1, which had the whole view
/// in the hot file, is carried over when it is opened.
pub const FORMAT: u32 = 2;
/// The version of the rules by which the view is computed from the log.
pub const VIEW_RULES: u32 = 1;

pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
pub(crate) const STATE: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("state");
pub(crate) const ROSTER: TableDefinition<'static, u32, &[u8]> = TableDefinition::new("roster");
pub(crate) const LOG: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("log");
pub(crate) const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
pub(crate) const TEXTS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("texts");
pub(crate) const INDEX: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("index_keys");
/// What is kept for one credential or member on this machine alone: read positions, visits.
pub(crate) const LOCAL: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("local");

pub(crate) const HOT_FILE: &str = "workspace.redb";
pub(crate) const PACKED_FILE: &str = "packed.redb";
const LEASE_FILE: &str = "lease.json";
const APART: &str = "workspace.redb and packed.redb are not of the same moment: restore a backup";

/// The store of one workspace, open for this process alone.
#[derive(Debug)]
pub struct Store {
    hot: Database,
    pub(crate) packed: Packed,
    state: RwLock<State>,
    texts: Mutex<Option<HotIndex>>,
    /// Held while a packing moves changes from one file to the other.
    packing: Mutex<()>,
    codec: Mutex<RowCodec>,
    disk: Box<dyn Disk>,
    meta: RwLock<Meta>,
    /// The arrival number below which everything is durable.
    durable: AtomicU64,
    /// Bytes written to the hot tables of the view since they were last folded.
    weight: AtomicU64,
}

/// What a store says about itself.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Meta {
    /// The format it is in.
    pub format: u32,
    /// The rules its view was computed by.
    pub view_rules: u32,
    /// 16 random bytes in hexadecimal, new for each store that is made or restored.
    pub generation: String,
    /// Which incarnation of this device writes, in hexadecimal.
    pub incarnation: String,
    /// The workspace, in hexadecimal.
    pub workspace: String,
}

/// The lease beside the store: what it looked like when it was last used.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Lease {
    generation: String,
    commit: u64,
    clean: bool,
}

/// The store failed, or what is in it is not what was put there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Reading or writing a file failed.
    #[error("reading or writing a file failed: {0}")]
    Io(#[source] io::Error),
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[source] Box<redb::Error>),
    /// Something stored is damaged.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// Another process has it open.
    #[error("another process has the store open")]
    Locked,
    /// There is none here.
    #[error("there is no store here")]
    Missing,
    /// A newer version wrote it.
    #[error("the store has format {0}, this version knows formats up to {FORMAT}")]
    Newer(u32),
    /// The two files do not belong together or one is gone.
    #[error("{0}")]
    Broken(&'static str),
    /// The text index failed.
    #[error("the text index failed: {0}")]
    Texts(String),
    /// A change in the log does not decode.
    #[error("a change in the log does not decode: {0}")]
    Change(#[from] stead_doc::change::DecodeError),
}

/// Stored bytes that are not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {what} is damaged")]
pub struct Damage {
    /// What kind of record.
    pub what: &'static str,
}

impl From<crate::search::TextError> for StoreError {
    fn from(error: crate::search::TextError) -> Self {
        Self::Texts(error.to_string())
    }
}

macro_rules! from_redb {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                match redb::Error::from(error) {
                    redb::Error::DatabaseAlreadyOpen => Self::Locked,
                    error => Self::Database(Box::new(error)),
                }
            }
        }
    )*};
}
from_redb!(
    DatabaseError,
    TransactionError,
    TableError,
    StorageError,
    CommitError,
    CompactionError
);

impl From<StoreError> for stead_doc::view::ViewError {
    fn from(error: StoreError) -> Self {
        Self(Box::new(error))
    }
}

impl From<StoreError> for stead_doc::refusal::Refusal {
    fn from(error: StoreError) -> Self {
        stead_doc::view::ViewError::from(error).into()
    }
}

/// How memory is shared out between the two databases, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// For the hot file.
    pub hot: usize,
    /// For the packed file.
    pub packed: usize,
}

impl Default for Cache {
    fn default() -> Self {
        // Together with the code, the index of the unpacked log, unpacked blocks and a page of
        // answers this keeps a node below 150 MB whatever its store's size.
        Self {
            hot: 32 << 20,
            packed: 48 << 20,
        }
    }
}

impl Store {
    /// Makes a store for a workspace, its roster's first entries in it.
    ///
    /// # Errors
    ///
    /// Where there is one already, or it cannot be written.
    pub fn create(
        disk: Box<dyn Disk>,
        workspace: [u8; 16],
        generation: [u8; 16],
        roster: &[&[u8]],
        cache: Cache,
    ) -> Result<Self, StoreError> {
        let (hot, existed) = open_database(&*disk, HOT_FILE, cache.hot)?;
        if existed && hot.begin_read()?.list_tables()?.next().is_some() {
            return Err(StoreError::Broken("there is a store here already"));
        }
        let (packed, _) = open_database(&*disk, PACKED_FILE, cache.packed)?;
        let meta = Meta {
            format: FORMAT,
            view_rules: VIEW_RULES,
            generation: hex(&generation),
            incarnation: String::new(),
            workspace: hex(&workspace),
        };
        // The packed file first: a hot file without it is refused, one the other way round is not
        // yet a store.
        Packed::init(&packed, &meta.generation)?;
        let txn = begin(&hot)?;
        {
            write_meta(&txn, &meta)?;
            let mut table = txn.open_table(ROSTER)?;
            for (seq, entry) in roster.iter().enumerate() {
                table.insert(seq as u32, codec::seal(entry).as_slice())?;
            }
            txn.open_table(STATE)?;
            txn.open_table(LOG)?;
            txn.open_table(ROWS)?;
            txn.open_table(TEXTS)?;
            txn.open_table(INDEX)?;
            txn.open_table(LOCAL)?;
        }
        txn.commit()?;
        Self::assemble(disk, hot, packed, meta)
    }

    /// Opens the store that is there.
    ///
    /// # Errors
    ///
    /// Where there is none, another process has it, a newer version wrote it, or it is damaged.
    /// Never makes an empty one.
    pub fn open(disk: Box<dyn Disk>, cache: Cache) -> Result<Self, StoreError> {
        // Before either is opened: redb writes into a file that it opens.
        let size = |name| disk.size(name).map_err(StoreError::Io);
        match (size(HOT_FILE)?, size(PACKED_FILE)?) {
            (0, 0) => return Err(StoreError::Missing),
            (0, _) => {
                return Err(StoreError::Broken(
                    "workspace.redb is gone or empty while packed.redb is there: restore a backup",
                ));
            }
            (_, 0) => {
                return Err(StoreError::Broken(
                    "packed.redb is gone or empty while workspace.redb is there: restore a backup",
                ));
            }
            _ => {}
        }
        if !read_lease(&*disk)?.is_some_and(|lease| lease.clean) {
            // Not closed by whoever had it open: redb is about to read every page that is in use,
            // each by itself and in no order.
            disk.read_ahead(HOT_FILE, READ_AHEAD_BYTES);
        }
        let (hot, _) = open_database(&*disk, HOT_FILE, cache.hot)?;
        let meta = read_meta(&hot)?;
        if meta.format > FORMAT {
            return Err(StoreError::Newer(meta.format));
        }
        let (packed, _) = open_database(&*disk, PACKED_FILE, cache.packed)?;
        if Packed::generation(&packed)? != meta.generation {
            return Err(StoreError::Broken(
                "workspace.redb and packed.redb are of different stores: restore a backup",
            ));
        }
        let meta = if meta.format < FORMAT {
            carry_over(&hot, &packed, meta)?
        } else {
            meta
        };
        Self::assemble(disk, hot, packed, meta)
    }

    fn assemble(
        disk: Box<dyn Disk>,
        hot: Database,
        packed: Database,
        meta: Meta,
    ) -> Result<Self, StoreError> {
        let packed = Packed::open(packed)?;
        let mut state = State::default();
        state.next_arrival = packed.end();
        let read = hot.begin_read()?;
        let layers = LayersMeta::read(&read.open_table(META)?)?;
        let folded = packed.folded()?;
        if layers.rebuilt > folded.fold {
            // The view was made anew and not folded since: what is packed of it is of the old one.
            drop(packed.show(packed::Base::none(folded.fold)));
        }
        let mut weight = 0;
        for part in layers::Part::ALL {
            weight += read.open_table(part.hot())?.len()? * ENTRY_BYTES;
        }
        for row in read.open_table(STATE)?.iter()? {
            let (key, value) = row?;
            state.restore(key.value(), codec::open(value.value(), "state row")?)?;
        }
        let mut packed_already = Vec::new();
        for row in read.open_table(LOG)?.iter()? {
            let (arrival, record) = row?;
            let arrival = arrival.value();
            let record = state::LogRecord::decode(record.value())?;
            if arrival < packed.end() {
                packed_already.push(arrival);
                continue;
            }
            if arrival != state.next_arrival {
                return Err(StoreError::Broken(APART));
            }
            if state.actors.get(record.entry.actor as usize).is_none() {
                return Err(Damage { what: "log record" }.into());
            }
            state.hot.insert(arrival, record.entry);
            state.next_arrival = arrival + 1;
        }
        drop(read);
        // The frontier counts every change of every actor, so two files of different moments do
        // not add up.
        if state.actors.iter().map(|actor| actor.seq).sum::<u64>() != state.next_arrival {
            return Err(StoreError::Broken(APART));
        }
        // Nor does a view whose layers are of different moments.
        let apart = layers.removed > folded.fold
            || layers.rebuilt > folded.fold + 1
            || folded.upto > state.next_arrival;
        if apart {
            return Err(StoreError::Broken(APART));
        }
        let durable = state.next_arrival.into();
        let store = Self {
            hot,
            packed,
            state: RwLock::new(state),
            texts: Mutex::new(None),
            packing: Mutex::new(()),
            codec: Mutex::new(RowCodec::new()?),
            disk,
            meta: RwLock::new(meta),
            durable,
            weight: weight.into(),
        };
        if !packed_already.is_empty() {
            store.forget_hot(&packed_already)?;
        }
        store.load_projects()?;
        Ok(store)
    }

    /// What the store says about itself.
    pub fn meta(&self) -> Meta {
        self.meta
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// The roster's entries, in order.
    ///
    /// # Errors
    ///
    /// Where the store fails or one is damaged.
    pub fn roster(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let table = self.hot.begin_read()?.open_table(ROSTER)?;
        table
            .iter()?
            .map(|row| Ok(codec::open(row?.1.value(), "roster entry")?.to_vec()))
            .collect()
    }

    /// Adds an entry to the roster, durably before it returns.
    ///
    /// # Errors
    ///
    /// Where the commit fails; whether it is there is then unknown.
    pub fn append_roster(&self, seq: u32, entry: &[u8]) -> Result<(), StoreError> {
        let txn = begin(&self.hot)?;
        txn.open_table(ROSTER)?
            .insert(seq, codec::seal(entry).as_slice())?;
        txn.commit()?;
        Ok(())
    }

    /// Takes the lease before the first commit, and says whether this store is the one that the
    /// lease was last closed with: if not, changes may be missing that others have, and the
    /// incarnation must not be used again.
    ///
    /// # Errors
    ///
    /// Where the lease cannot be read or written.
    pub fn take_lease(&self) -> Result<bool, StoreError> {
        let lease = read_lease(&*self.disk)?;
        let commit = self.state_read().next_arrival;
        let meta = self.meta();
        let trusted = lease.is_some_and(|lease| {
            lease.clean && lease.commit == commit && lease.generation == meta.generation
        });
        self.write_lease(false)?;
        Ok(trusted && !meta.incarnation.is_empty())
    }

    /// Closes the lease at a clean end.
    ///
    /// # Errors
    ///
    /// Where it cannot be written.
    pub fn close_lease(&self) -> Result<(), StoreError> {
        self.write_lease(true)
    }

    fn write_lease(&self, clean: bool) -> Result<(), StoreError> {
        let lease = Lease {
            generation: self.meta().generation,
            commit: self.state_read().next_arrival,
            clean,
        };
        let content = serde_json::to_vec(&lease).map_err(|error| StoreError::Io(error.into()))?;
        self.disk
            .write(LEASE_FILE, &content)
            .map_err(StoreError::Io)
    }

    /// Stores which incarnation writes from now on.
    ///
    /// # Errors
    ///
    /// Where the commit fails.
    pub fn set_incarnation(&self, incarnation: [u8; 16]) -> Result<(), StoreError> {
        self.change_meta(|meta| meta.incarnation = hex(&incarnation))
    }

    pub(crate) fn change_meta(&self, change: impl FnOnce(&mut Meta)) -> Result<(), StoreError> {
        let mut meta = self.meta();
        change(&mut meta);
        let txn = begin(&self.hot)?;
        write_meta(&txn, &meta)?;
        txn.commit()?;
        *self
            .meta
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = meta;
        Ok(())
    }

    /// A view of what is durable now.
    ///
    /// The packed layer first, then the hot snapshot, and both again where another layer is shown
    /// by then: a folding is shown before its removal begins, so that as long as the same one is
    /// shown, the snapshot has seen the removal of none that is newer.
    ///
    /// # Errors
    ///
    /// Where the database fails.
    pub(crate) fn view(&self, now: i64) -> Result<StoreView<'_, Snapshot>, StoreError> {
        let upto = self.durable.load(Ordering::Acquire);
        loop {
            let base = self.packed.base();
            let snapshot = Snapshot::open(&self.hot, base.clone())?;
            if Arc::ptr_eq(&base, &self.packed.base()) {
                return Ok(StoreView::new(self, snapshot, upto, now));
            }
        }
    }

    /// Bytes of the view that lie hot, about.
    fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    fn weigh(&self, bytes: u64) {
        self.weight.fetch_add(bytes, Ordering::Relaxed);
    }

    fn lighten(&self, bytes: u64) {
        self.weight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Changes what the open write says of the two layers.
    fn write_layers(
        &self,
        txn: &WriteTransaction,
        change: impl FnOnce(&mut LayersMeta),
    ) -> Result<(), StoreError> {
        let mut table = txn.open_table(META)?;
        let mut layers = LayersMeta::read(&table)?;
        change(&mut layers);
        layers.write(&mut table)
    }

    /// Begins the one write there is at a time.
    ///
    /// # Errors
    ///
    /// Where the database fails.
    pub(crate) fn begin(&self) -> Result<WriteTransaction, StoreError> {
        begin(&self.hot)
    }

    pub(crate) fn state_read(&self) -> RwLockReadGuard<'_, State> {
        self.state
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn state_write(&self) -> RwLockWriteGuard<'_, State> {
        self.state
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The number of the next change to come: everything below it is durable.
    pub fn arrivals(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn published(&self) {
        let next = self.state_read().next_arrival;
        self.durable.store(next, Ordering::Release);
    }

    /// The projects, by slug.
    pub fn projects(&self) -> Vec<ProjectEntry> {
        let mut all: Vec<_> = self.state_read().projects.values().cloned().collect();
        all.sort_by(|a, b| (&a.slug, a.id).cmp(&(&b.slug, b.id)));
        all
    }

    fn load_projects(&self) -> Result<(), StoreError> {
        match self.read_projects() {
            Ok(projects) => self.state_write().projects = projects,
            Err(StoreError::Damage(damage)) => {
                // The view is computed from the log; refusing the store over it would leave nobody
                // who could compute it again.
                tracing::error!(%damage, "the view has to be computed again");
                self.meta
                    .write()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .view_rules = 0;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn read_projects(&self) -> Result<BTreeMap<ObjectId, ProjectEntry>, StoreError> {
        let view = self.view(0)?;
        let mut projects = BTreeMap::new();
        for id in view.index_objects(&index::projects_prefix())? {
            if let Some((_, stored)) = view.stored(id)? {
                projects.insert(id, project_entry(id, &stored));
            }
        }
        Ok(projects)
    }

    /// Bytes that the store's files take.
    ///
    /// # Errors
    ///
    /// Where a file cannot be asked.
    pub fn sizes(&self) -> Result<(u64, u64), StoreError> {
        let size = |name| self.disk.size(name).map_err(StoreError::Io);
        Ok((size(HOT_FILE)?, size(PACKED_FILE)?))
    }

    /// The documents with their names.
    pub fn documents(&self) -> Vec<(DocumentName, DocumentId)> {
        self.state_read()
            .documents
            .iter()
            .map(|document| (document.name.clone(), document.id))
            .collect()
    }

    /// Checks every page of both files against its checksum, and repairs what redb can.
    ///
    /// # Errors
    ///
    /// Where a file is damaged beyond that.
    pub fn check_pages(&mut self) -> Result<bool, StoreError> {
        let hot = self.hot.check_integrity()?;
        Ok(self.packed.check_pages()? && hot)
    }

    /// Gives unused pages of both files back.
    ///
    /// # Errors
    ///
    /// Where the database fails.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.hot.compact()?;
        self.packed.compact()
    }

    /// The newest stamp that this node gave.
    pub fn newest_stamp(&self) -> u64 {
        self.state_read()
            .documents
            .iter()
            .map(|document| document.hlc)
            .max()
            .unwrap_or(0)
    }

    pub(crate) fn packing(&self) -> std::sync::MutexGuard<'_, ()> {
        self.packing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// How many changes wait for packing.
    pub fn unpacked(&self) -> usize {
        self.state_read().hot.entries.len()
    }

    pub(crate) fn forget_hot(&self, arrivals: &[u64]) -> Result<(), StoreError> {
        let txn = self.begin()?;
        {
            let mut log = txn.open_table(LOG)?;
            for arrival in arrivals {
                log.remove(arrival)?;
            }
        }
        txn.commit()?;
        let mut state = self.state_write();
        for arrival in arrivals {
            state.hot.remove(*arrival);
        }
        Ok(())
    }

    /// The seq of an actor's last change that is here; 0 where there is none.
    pub fn frontier_of(&self, actor: ActorId) -> u64 {
        self.actor(actor).map_or(0, |known| known.seq)
    }

    pub(crate) fn actor(&self, id: ActorId) -> Option<Actor> {
        self.state_read()
            .actor_by_id(id)
            .filter(|actor| actor.seq > 0 || actor.frozen.is_some())
            .cloned()
    }

    /// Whether both databases still take writes: after an error of its file redb wants to be
    /// dropped and opened again.
    pub(crate) fn works(&self) -> bool {
        let packing = self.packing();
        let hot = self.begin().and_then(|txn| Ok(txn.abort()?));
        let works = hot.is_ok() && self.packed.works();
        drop(packing);
        works
    }

    /// Reads what is in part packed and in part not, again where a packing moved changes from one
    /// to the other meanwhile.
    pub(crate) fn settled<R>(
        &self,
        read: impl Fn() -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        loop {
            let end = self.packed.end();
            let found = read()?;
            if self.packed.end() == end {
                return Ok(found);
            }
        }
    }
}

/// What a verdict on a change of a document asks the view.
pub(crate) fn view_history<'v, 's, T>(
    view: &'v StoreView<'s, T>,
    document: u32,
) -> view::DocumentHistory<'v, 's, T> {
    view::DocumentHistory { view, document }
}

pub(crate) fn project_entry(id: ObjectId, stored: &Stored) -> ProjectEntry {
    let text = |field: &str| stored.row.text(field).unwrap_or_default().to_owned();
    ProjectEntry {
        id,
        slug: text("slug"),
        name: text("name"),
        archived: stead_doc::present::is_archived(&stored.row),
    }
}

fn begin(database: &Database) -> Result<WriteTransaction, StoreError> {
    let mut txn = database.begin_write()?;
    txn.set_durability(Durability::Immediate)
        .map_err(|error| StoreError::Io(io::Error::other(error.to_string())))?;
    Ok(txn)
}

/// What lies hot and some more: redb puts pages at the front of the file where there is room.
const READ_AHEAD_BYTES: u64 = 32 << 20;

fn read_lease(disk: &dyn Disk) -> Result<Option<Lease>, StoreError> {
    let lease = disk.read(LEASE_FILE).map_err(StoreError::Io)?;
    Ok(lease.and_then(|content| serde_json::from_slice(&content).ok()))
}

fn open_database(
    disk: &dyn Disk,
    name: &str,
    cache: usize,
) -> Result<(Database, bool), StoreError> {
    let (backend, existed) = disk.backend(name).map_err(StoreError::Io)?;
    let database = Database::builder()
        .set_cache_size(cache)
        .create_with_backend(disk::Boxed(backend))?;
    Ok((database, existed))
}

/// Bytes that an entry of the hot view takes, about.
const ENTRY_BYTES: u64 = 200;

/// What the hot file knows of the packed layer of its view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LayersMeta {
    /// The newest folding of which something was taken out here.
    removed: u64,
    /// The first folding after the view was last made anew: an older packed layer is not of it.
    rebuilt: u64,
}

impl LayersMeta {
    const KEY: &'static str = "layers";

    fn read(table: &impl ReadableTable<&'static str, &'static [u8]>) -> Result<Self, StoreError> {
        let Some(row) = table.get(Self::KEY)? else {
            return Ok(Self::default());
        };
        let what = "description of the layers";
        let mut reader = codec::Reader::new(codec::open(row.value(), what)?, what);
        Ok(Self {
            removed: reader.uint()?,
            rebuilt: reader.uint()?,
        })
    }

    fn write(
        self,
        table: &mut redb::Table<'_, &'static str, &'static [u8]>,
    ) -> Result<(), StoreError> {
        let mut content = Vec::new();
        codec::put_uint(&mut content, self.removed);
        codec::put_uint(&mut content, self.rebuilt);
        table.insert(Self::KEY, codec::seal(&content).as_slice())?;
        Ok(())
    }
}

/// The index of format 1.
pub(crate) const INDEX_1: TableDefinition<'static, &[u8], ()> = TableDefinition::new("index");

/// Makes a store of format 1 one of this format: its whole view lies hot, over an empty packed
/// layer, until it is folded.
fn carry_over(hot: &Database, packed: &Database, meta: Meta) -> Result<Meta, StoreError> {
    packed::carry_over(packed, &meta.generation)?;
    let meta = Meta {
        format: FORMAT,
        ..meta
    };
    let txn = begin(hot)?;
    {
        let old = txn.open_table(INDEX_1)?;
        let mut new = txn.open_table(INDEX)?;
        for row in old.iter()? {
            new.insert(row?.0.value(), layers::THERE)?;
        }
    }
    txn.delete_table(INDEX_1)?;
    write_meta(&txn, &meta)?;
    txn.commit()?;
    tracing::info!("the store was carried over from an older format");
    Ok(meta)
}

fn read_meta(hot: &Database) -> Result<Meta, StoreError> {
    let read = hot.begin_read()?;
    let table = match read.open_table(META) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(StoreError::Broken(
                "workspace.redb holds no store: restore a backup",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let row = table.get("store")?.ok_or(StoreError::Broken(
        "workspace.redb says nothing about itself: restore a backup",
    ))?;
    let content = codec::open(row.value(), "store description")?;
    // The format first, alone: what else a newer version says may not parse here.
    #[derive(serde::Deserialize)]
    struct Format {
        format: u32,
    }
    let damage = |_| Damage {
        what: "store description",
    };
    let Format { format } = serde_json::from_slice(content).map_err(damage)?;
    if format > FORMAT {
        return Err(StoreError::Newer(format));
    }
    Ok(serde_json::from_slice(content).map_err(damage)?)
}

fn write_meta(txn: &WriteTransaction, meta: &Meta) -> Result<(), StoreError> {
    let content = serde_json::to_vec(meta).map_err(|error| StoreError::Io(error.into()))?;
    txn.open_table(META)?
        .insert("store", codec::seal(&content).as_slice())?;
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (slot, pair) in out.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *slot = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(out)
}
