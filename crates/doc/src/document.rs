//! Documents: their names, their ids and the change that each begins with.

use std::num::NonZeroU64;

use automerge::{
    Change as AutomergeChange, ExpandedChange,
    legacy::{Key, ObjectId as Container, Op as AutomergeOp, OpId as AutomergeOpId, OpType},
};

use crate::id::{ActorId, ChangeHash, DocumentId, ObjectId};

/// What a document is called: a kind, a key within the kind, and an epoch that counts how often
/// the document was rolled over.
///
/// The workspace document is `("workspace", "", 0)`; a project's is `("project", <project id>, 0)`.
/// The kinds are an open set: log, frontier, view and sync do not care which there are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentName {
    /// What the document is about.
    pub kind: String,
    /// Which one of its kind.
    pub key: String,
    /// Zero, until the document is rolled over.
    pub epoch: u32,
}

impl DocumentName {
    /// The document that holds the workspace's projects and settings.
    pub fn workspace() -> Self {
        Self {
            kind: "workspace".into(),
            key: String::new(),
            epoch: 0,
        }
    }

    /// The document of one project.
    pub fn project(project: ObjectId) -> Self {
        Self {
            kind: "project".into(),
            key: project.to_string(),
            epoch: 0,
        }
    }

    /// The project that the document belongs to, where it is a project's.
    pub fn project_id(&self) -> Option<ObjectId> {
        if self.kind == "project" {
            self.key.parse().ok()
        } else {
            None
        }
    }

    /// The id of the document of this name in the workspace.
    pub fn id(&self, workspace: [u8; 16]) -> DocumentId {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"stead document id 1");
        hasher.update(&workspace);
        for part in [self.kind.as_bytes(), self.key.as_bytes()] {
            // The length first, so that no two names run together to the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.update(&self.epoch.to_le_bytes());
        let mut id = [0; 16];
        id.copy_from_slice(hasher.finalize().as_bytes().get(..16).unwrap_or(&[0; 16]));
        DocumentId(id)
    }
}

/// How many bucket maps each document has. Remote creates in Automerge cost in proportion to the
/// keys of the map they land in; 512 buckets hold 100,000 objects at 200 a bucket.
pub const BUCKETS: u16 = 512;

/// The bucket that an object's fields are in.
pub fn bucket(object: ObjectId) -> u16 {
    (object.to_bits() % u64::from(BUCKETS)) as u16
}

/// The first change of a document: it makes the bucket maps, the only map objects there ever are.
///
/// A pure function of the document's id, so every node has the same one and it is admitted by its
/// hash alone.
#[derive(Debug, Clone)]
pub struct Genesis {
    /// The actor that made it and no other change.
    pub actor: ActorId,
    /// Its hash.
    pub hash: ChangeHash,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Genesis {
    /// The genesis of a document.
    pub fn of(document: DocumentId) -> Self {
        let actor = genesis_actor(document);
        let operations = (0..BUCKETS)
            .map(|bucket| AutomergeOp {
                action: OpType::Make(automerge::ObjType::Map),
                obj: Container::Root,
                key: Key::Map(format!("{bucket:03x}").into()),
                pred: Vec::new().into(),
                insert: false,
            })
            .collect();
        let change = AutomergeChange::from(ExpandedChange {
            operations,
            actor_id: automerge::ActorId::from(actor.0.as_slice()),
            hash: None,
            seq: 1,
            start_op: NonZeroU64::MIN,
            time: 0,
            message: None,
            deps: Vec::new(),
            extra_bytes: Vec::new(),
            author: None,
        });
        Self {
            actor,
            hash: ChangeHash(change.hash().0),
            bytes: change.raw_bytes().to_vec(),
        }
    }

    /// The greatest op counter of every genesis.
    pub const MAX_OP: u64 = BUCKETS as u64;
}

/// The actor of a document's genesis.
pub(crate) fn genesis_actor(document: DocumentId) -> ActorId {
    let hash = blake3::derive_key("stead genesis actor 1", &document.0);
    let mut actor = [0; 16];
    actor.copy_from_slice(hash.get(..16).unwrap_or(&[0; 16]));
    ActorId(actor)
}

/// The Automerge object of a bucket.
pub(crate) fn bucket_container(genesis: &automerge::ActorId, bucket: u16) -> Container {
    Container::Id(AutomergeOpId(u64::from(bucket) + 1, genesis.clone()))
}

/// The bucket that an Automerge object is, if it is one.
pub(crate) fn container_bucket(genesis: &automerge::ActorId, container: &Container) -> Option<u16> {
    match container {
        Container::Id(AutomergeOpId(counter, actor))
            if actor == genesis && (1..=Genesis::MAX_OP).contains(counter) =>
        {
            u16::try_from(counter - 1).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use automerge::{Automerge, ObjType, ReadDoc, transaction::Transactable};

    use super::*;

    fn document() -> DocumentId {
        DocumentName::workspace().id([7; 16])
    }

    /// Changing these bytes makes every existing workspace unreadable to new nodes.
    #[test]
    fn genesis_bytes_are_pinned() {
        assert_eq!(document().to_string(), PINNED_DOCUMENT);
        assert_eq!(Genesis::of(document()).hash.to_string(), PINNED_GENESIS);
    }
    const PINNED_DOCUMENT: &str = "9f5e0e11719feda984a8dba6206eb2b1";
    const PINNED_GENESIS: &str = "4702fe57a29ee62a56188f74356fb257362291f837accb6f43bd3b1d01134835";

    #[test]
    fn genesis_is_what_automerge_would_write() {
        let genesis = Genesis::of(document());
        let mut automerge =
            Automerge::new().with_actor(automerge::ActorId::from(genesis.actor.0.as_slice()));
        automerge
            .transact_with::<_, _, automerge::AutomergeError, _>(
                |_| automerge::transaction::CommitOptions::default().with_time(0),
                |tx| {
                    for bucket in 0..BUCKETS {
                        tx.put_object(automerge::ROOT, format!("{bucket:03x}"), ObjType::Map)?;
                    }
                    Ok(())
                },
            )
            .unwrap();
        assert_eq!(
            automerge.get_last_local_change().unwrap().raw_bytes(),
            genesis.bytes
        );
        assert_eq!(
            automerge.keys(automerge::ROOT).count(),
            usize::from(BUCKETS)
        );
    }

    #[test]
    fn names_do_not_run_together() {
        let name = |kind: &str, key: &str| DocumentName {
            kind: kind.into(),
            key: key.into(),
            epoch: 0,
        };
        assert_ne!(name("ab", "c").id([0; 16]), name("a", "bc").id([0; 16]));
        assert_ne!(name("a", "").id([0; 16]), name("a", "").id([1; 16]));
    }
}
