//! What commands read: the merged state, as a value behind a trait so that this crate does no IO.

use crate::{
    change::Change,
    id::{ActorId, ActorTag, DocumentId, ObjectId, OpId},
    row::Row,
};

/// The store failed while a view was read.
#[derive(Debug, thiserror::Error)]
#[error("the store failed: {0}")]
pub struct ViewError(pub Box<dyn std::error::Error + Send + Sync>);

/// An object and where it is.
#[derive(Debug, Clone)]
pub struct Located {
    /// Its id.
    pub id: ObjectId,
    /// The document that holds it.
    pub document: DocumentId,
    /// The project whose document that is; nothing for objects of the workspace document.
    pub project: Option<ObjectId>,
    /// Its merged state.
    pub row: Row,
    /// When this node first saw the change that made it, in milliseconds since 1970.
    pub created_seen: i64,
    /// When this node first saw the newest change to it.
    pub updated_seen: i64,
}

/// A project, as names are resolved against it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectEntry {
    /// Its id.
    pub id: ObjectId,
    /// Its slug.
    pub slug: String,
    /// Its name.
    pub name: String,
    /// Whether it is archived.
    pub archived: bool,
}

/// What an idempotency key already did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEffect {
    /// The payload hash that the key was used with.
    pub payload: String,
    /// The object that the command was about.
    pub subject: ObjectId,
    /// The document.
    pub document: DocumentId,
    /// The change's actor and seq.
    pub change: (ActorId, u64),
}

/// How many open tasks of a project cannot be taken up, by what stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waiting {
    /// Blocked, or with unmet dependencies.
    pub blocked: usize,
    /// In progress under somebody's live lease.
    pub leased: usize,
}

/// The merged state of a workspace. Inside a write, it shows what the same batch wrote before.
pub trait View {
    /// An object, wherever it is.
    ///
    /// # Errors
    ///
    /// When the store fails; likewise for the other methods.
    fn object(&self, id: ObjectId) -> Result<Option<Located>, ViewError>;

    /// A text kept apart from its row.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn text(&self, at: &Located, op: OpId) -> Result<Option<String>, ViewError>;

    /// All projects, by slug.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn projects(&self) -> Result<Vec<ProjectEntry>, ViewError>;

    /// The objects that point at `target` with `relation` (`parent`, `subject`, `sprint`, or the
    /// type of an edge), by id.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn referrers(&self, target: ObjectId, relation: &str) -> Result<Vec<ObjectId>, ViewError>;

    /// The fields of an object whose edge is suspended because it would close a cycle.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn suspended(&self, at: &Located) -> Result<Vec<String>, ViewError>;

    /// The actors of a document that a tag may stand for, each with its last seq here.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn actors(&self, document: DocumentId, tag: ActorTag)
    -> Result<Vec<(ActorId, u64)>, ViewError>;

    /// The changes that touched an object and for which `wanted(actor, seq)` holds, in the order
    /// in which they came here, each with when it came (milliseconds since 1970).
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn touching(
        &self,
        at: &Located,
        wanted: &dyn Fn(ActorId, u64) -> bool,
    ) -> Result<Vec<(Change, i64)>, ViewError>;

    /// The change that holds an operation, and when it came.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn change_of(&self, document: DocumentId, op: OpId)
    -> Result<Option<(Change, i64)>, ViewError>;

    /// What a credential's idempotency key already did here.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn key_effect(&self, credential: &str, key: &str) -> Result<Option<KeyEffect>, ViewError>;

    /// The tasks of a project that could be taken up now, by priority and rank: status ready, no
    /// unmet dependency, no blocker. A lease may still be on them.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn ready(&self, project: ObjectId, limit: usize) -> Result<Vec<ObjectId>, ViewError>;

    /// Why the open tasks of a project cannot be taken up.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn waiting(&self, project: ObjectId) -> Result<Waiting, ViewError>;

    /// When the lease on an object ends by this node's reckoning, in milliseconds since 1970;
    /// nothing where there is none.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn lease_expires(&self, at: &Located) -> Result<Option<i64>, ViewError>;
}
