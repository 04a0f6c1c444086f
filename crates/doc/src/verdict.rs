//! The strict verdict on one decoded change: everything that needs no roster.

use crate::{
    change::{Action, Change},
    document::genesis_actor,
    id::{ActorId, ChangeHash, DocumentId, ObjectId, OpId},
    view::ViewError,
};

/// What a verdict needs to know of the changes already admitted to the document.
pub trait History {
    /// The last admitted change of an actor: its seq and hash.
    ///
    /// # Errors
    ///
    /// When the store fails; likewise for the other methods.
    fn last_of(&self, actor: ActorId) -> Result<Option<(u64, ChangeHash)>, ViewError>;

    /// The greatest op counter of an admitted change, the genesis included.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn max_op_of(&self, change: ChangeHash) -> Result<Option<u64>, ViewError>;

    /// The field that an admitted put is on, and the seq of its change. Nothing for a delete:
    /// Automerge keeps none, and a document whose changes name one as a predecessor can be saved
    /// and never be loaded again.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn field_of(&self, op: OpId) -> Result<Option<(ObjectId, String, u64)>, ViewError>;

    /// Whether the change `(actor, seq)` is one of `heads` or an ancestor of one.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn is_ancestor(
        &self,
        heads: &[ChangeHash],
        actor: ActorId,
        seq: u64,
    ) -> Result<bool, ViewError>;
}

/// Judges a change of `document` against the changes admitted before it.
///
/// A pure function of the change and its ancestors, so that every node that has the ancestors says
/// the same. Whoever asks has decoded the change with [`Change::decode`], which checks its bytes.
///
/// # Errors
///
/// Says why the change is not admitted, or that the store failed.
pub fn judge(document: DocumentId, history: &dyn History, change: &Change) -> Result<(), Verdict> {
    if change.actor == genesis_actor(document) {
        return Err(Verdict::GenesisActor);
    }
    let expected = match history.last_of(change.actor)? {
        Some((seq, hash)) => {
            if change.seq == seq + 1 && change.deps.binary_search(&hash).is_err() {
                return Err(Verdict::OwnPreviousMissing);
            }
            seq + 1
        }
        None => 1,
    };
    if change.seq != expected {
        return Err(Verdict::Sequence {
            expected,
            given: change.seq,
        });
    }
    let mut max_op = 0;
    for dep in &change.deps {
        max_op = max_op.max(history.max_op_of(*dep)?.ok_or(Verdict::DepMissing(*dep))?);
    }
    if change.deps.is_empty() {
        return Err(Verdict::NoDeps);
    }
    // Equality, where Automerge asks for no more than "at most": honest nodes always name all
    // their heads, and with it an ancestor always has the smaller counter.
    if change.start_op != max_op + 1 {
        return Err(Verdict::StartOp {
            expected: max_op + 1,
            given: change.start_op,
        });
    }
    for (id, op) in change.ops_with_ids() {
        for pred in &op.preds {
            if pred.actor == change.actor && pred.counter >= change.start_op {
                return Err(Verdict::PredOfOwn { op: id });
            }
            let (object, field, seq) = history.field_of(*pred)?.ok_or(Verdict::PredUnknown {
                op: id,
                pred: *pred,
            })?;
            if (object, field.as_str()) != (op.object, op.field.as_str()) {
                return Err(Verdict::PredOfOtherField {
                    op: id,
                    pred: *pred,
                });
            }
            if !history.is_ancestor(&change.deps, pred.actor, seq)? {
                return Err(Verdict::PredNotAncestor {
                    op: id,
                    pred: *pred,
                });
            }
        }
    }
    derived_ids(document, change)
}

/// An object with a derived id is created only by a change that shows the name.
fn derived_ids(document: DocumentId, change: &Change) -> Result<(), Verdict> {
    let creates = |op: &&crate::change::Op| {
        op.object.is_derived()
            && op.field == "kind"
            && op.preds.is_empty()
            && matches!(op.action, Action::Put(_))
    };
    let mut made = change.ops.iter().filter(creates).peekable();
    if made.peek().is_none() {
        return Ok(());
    }
    let mut ids: Vec<_> = change
        .message
        .names
        .iter()
        .filter(|name| change.message.may_name(name))
        .map(|name| ObjectId::derived(document, name))
        .collect();
    ids.sort_unstable();
    for op in made {
        if ids.binary_search(&op.object).is_err() {
            return Err(Verdict::DerivedId(op.object));
        }
    }
    Ok(())
}

/// Why a change is not admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Verdict {
    /// A head that is not here yet: the change waits.
    #[error("needs change {0}, which is not here")]
    DepMissing(ChangeHash),
    /// An object whose derived id does not come from a name that the change may give.
    #[error("object {0} has a derived id that no name of the change gives")]
    DerivedId(ObjectId),
    /// The genesis actor made the genesis and makes nothing else.
    #[error("made by the genesis actor")]
    GenesisActor,
    /// Only the genesis has no dependencies.
    #[error("depends on nothing")]
    NoDeps,
    /// The actor's own previous change is not among the dependencies.
    #[error("its actor's previous change is not among its dependencies")]
    OwnPreviousMissing,
    /// A predecessor whose change the author cannot have seen.
    #[error("operation {op} replaces {pred}, which is no ancestor")]
    PredNotAncestor {
        /// The operation.
        op: OpId,
        /// Its predecessor.
        pred: OpId,
    },
    /// A predecessor on another field.
    #[error("operation {op} replaces {pred}, which is on another field")]
    PredOfOtherField {
        /// The operation.
        op: OpId,
        /// Its predecessor.
        pred: OpId,
    },
    /// A predecessor in the change itself.
    #[error("operation {op} replaces an operation of its own change")]
    PredOfOwn {
        /// The operation.
        op: OpId,
    },
    /// A predecessor that does not exist or is a delete.
    #[error("operation {op} replaces {pred}, which is no value")]
    PredUnknown {
        /// The operation.
        op: OpId,
        /// Its predecessor.
        pred: OpId,
    },
    /// Not the next change of its actor.
    #[error("change {given} of its actor, expected {expected}")]
    Sequence {
        /// One more than the last one here.
        expected: u64,
        /// What the change says.
        given: u64,
    },
    /// Not the next op counter.
    #[error("operations start at {given}, expected {expected}")]
    StartOp {
        /// One more than the greatest of its dependencies.
        expected: u64,
        /// What the change says.
        given: u64,
    },
    /// The store failed; nothing is said about the change.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl Verdict {
    /// Whether the change may still be admitted once more is known.
    pub fn may_wait(&self) -> bool {
        match self {
            Self::DepMissing(_) | Self::View(_) => true,
            Self::Sequence { expected, given } => given > expected,
            _ => false,
        }
    }
}
