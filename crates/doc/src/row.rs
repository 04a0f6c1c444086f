//! The view of one object: every visible operation of every field. This *is* the merged state.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    change::{Action, Change, Op},
    hlc::Hlc,
    id::{ActorId, ChangeHash, ObjectId, OpId},
    scalar::Scalar,
};

/// An object as the changes applied so far leave it. Equal sets of changes give equal rows, in
/// whatever order they came.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// The visible operations of each field that ever had one and still has.
    pub cells: BTreeMap<String, Cell>,
    /// The version vector: for each actor that touched the object, its last change that did.
    pub touched: BTreeMap<ActorId, Touch>,
    /// Sum over the touching changes, independent of their order.
    pub sum: u128,
    /// The change with the least counter: by counters whoever made an object comes before all who
    /// saw it, and by clocks, which may be wrong, it would be whoever has the slowest.
    pub created: Option<Stamp>,
    /// The change with the greatest counter.
    pub updated: Option<Stamp>,
    /// Conflicts that a change replaced without naming them, by the operation that did. Only ever
    /// grows; what has been acknowledged is a field of its own, see [`Collapse::ack_field`].
    pub collapsed: BTreeMap<OpId, Collapse>,
}

/// The last change of one actor that touched an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    /// Counter of the change's last operation, for order among actors.
    pub max_op: u64,
    /// Its place among the actor's changes.
    pub seq: u64,
}

/// When a change was made and by whom, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// When, by its author's clock.
    pub hlc: Hlc,
    /// The actor of the change.
    pub actor: ActorId,
    /// Counter of the change's last operation.
    pub counter: u64,
    /// The credential that asked for it.
    pub credential: String,
    /// What the caller called itself.
    pub label: Option<String>,
}

/// A conflict that was replaced without being named, by foreign software: an operation with two or
/// more predecessors whose change does not name the field. Stead's own changes always do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collapse {
    /// The field.
    pub field: String,
    /// The operations whose values were lost from view.
    pub lost: Vec<OpId>,
}

impl Collapse {
    /// The field that says that the collapse made by `by` has been seen.
    pub fn ack_field(by: OpId) -> String {
        format!("collapse/{}.{}", by.counter, by.actor)
    }
}

/// The visible operations of one field, ascending by op id. Never empty in a row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell(pub Vec<(OpId, Value)>);

/// A visible value, long texts kept apart from the row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The value itself.
    Inline(Scalar),
    /// A text kept under its op id in a row of its own, so that writing another field does not
    /// write it again.
    Apart(TextRef),
}

/// What a row says about a text kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRef {
    /// Its length in bytes.
    pub bytes: u32,
    /// The first half of its BLAKE3 hash, so that equal texts are equal values.
    pub digest: [u8; 16],
}

/// Texts of long fields beyond this many bytes are kept apart from the row.
pub const INLINE_BYTES: usize = 240;

/// Texts of all other fields beyond this many bytes are kept apart. Rules read these fields in the
/// row, so whatever a command can write into one stays in it: [`crate::limits::SHORT_CHARS`] of a
/// reason, each of which JSON may escape to six bytes, and the JSON around them.
pub const INLINE_SHORT_BYTES: usize = 12_500;

/// The fields that hold long texts, the entries of `state/` and `x/` aside.
const LONG_FIELDS: [&str; 5] = ["body", "goal", "imported", "notes", "result"];

fn is_kept_apart(field: &str, text: &str) -> bool {
    let long =
        LONG_FIELDS.contains(&field) || field.starts_with("state/") || field.starts_with("x/");
    text.len()
        > if long {
            INLINE_BYTES
        } else {
            INLINE_SHORT_BYTES
        }
}

/// What applying a change did to one row beside the row itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// Texts to keep apart under their op ids.
    pub texts: Vec<(OpId, String)>,
    /// Texts kept apart that are visible no more.
    pub dropped: Vec<OpId>,
    /// The fields that the change wrote.
    pub fields: BTreeSet<String>,
}

impl Row {
    /// Applies the operations of `change` that touch `object`.
    ///
    /// The change has been admitted: its predecessors are operations of the same fields and its
    /// own previous change is applied.
    pub fn apply(&mut self, object: ObjectId, change: &Change) -> Applied {
        let mut applied = Applied::default();
        let mut any = false;
        for (id, op) in change.ops_with_ids().filter(|(_, op)| op.object == object) {
            any = true;
            applied.fields.insert(op.field.clone());
            self.apply_op(object, change, id, op, &mut applied);
        }
        if any {
            self.touch(object, change);
        }
        applied
    }

    /// The kind of the object: `task`, `sprint`, ...; nothing while its first change is missing.
    pub fn kind(&self) -> Option<&str> {
        self.winner("kind").and_then(Value::as_str)
    }

    /// The value of a field: the one with the greatest op id.
    pub fn winner(&self, field: &str) -> Option<&Value> {
        self.cells.get(field).and_then(Cell::winner)
    }

    /// The value of a field that is short text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.winner(field).and_then(Value::as_str)
    }

    /// The visible op ids of a field: the predecessors of whoever writes it next.
    pub fn preds(&self, field: &str) -> Vec<OpId> {
        self.cells
            .get(field)
            .map(|cell| cell.0.iter().map(|(id, _)| *id).collect())
            .unwrap_or_default()
    }

    /// The entries of a set or map field: what follows `prefix` and the cell.
    pub fn entries<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Cell)> + 'a {
        self.cells
            .range(prefix.to_owned()..)
            .map_while(move |(field, cell)| Some((field.strip_prefix(prefix)?, cell)))
    }

    /// The fields with two or more distinct values.
    pub fn conflicted(&self) -> impl Iterator<Item = (&str, &Cell)> {
        self.cells
            .iter()
            .filter(|(_, cell)| cell.is_conflicted())
            .map(|(field, cell)| (field.as_str(), cell))
    }

    /// The collapses that nobody has acknowledged.
    pub fn unseen_collapses(&self) -> impl Iterator<Item = (OpId, &Collapse)> {
        self.collapsed
            .iter()
            .filter(|(by, _)| !self.cells.contains_key(&Collapse::ack_field(**by)))
            .map(|(by, collapse)| (*by, collapse))
    }

    /// Whether any field is in conflict or was collapsed unseen.
    pub fn is_conflicted(&self) -> bool {
        self.conflicted().next().is_some() || self.unseen_collapses().next().is_some()
    }

    fn apply_op(
        &mut self,
        object: ObjectId,
        change: &Change,
        id: OpId,
        op: &Op,
        applied: &mut Applied,
    ) {
        let cell = self.cells.entry(op.field.clone()).or_default();
        let replaced: Vec<_> = cell
            .0
            .extract_if(.., |(visible, _)| op.preds.binary_search(visible).is_ok())
            .collect();
        // Judged by the change alone and not by what is visible here, or replicas that heard two
        // such changes in different orders would differ.
        if op.preds.len() > 1
            && !change
                .message
                .resolves
                .contains(&format!("{object}/{}", op.field))
        {
            self.collapsed.insert(
                id,
                Collapse {
                    field: op.field.clone(),
                    lost: op.preds.clone(),
                },
            );
        }
        for (dropped, value) in replaced {
            if matches!(value, Value::Apart(_)) {
                applied.dropped.push(dropped);
                applied.texts.retain(|(text, _)| *text != dropped);
            }
        }
        if let Action::Put(scalar) = &op.action {
            let value = match scalar {
                Scalar::Str(text) if is_kept_apart(&op.field, text) => {
                    applied.texts.push((id, text.clone()));
                    Value::Apart(TextRef::of(text))
                }
                other => Value::Inline(other.clone()),
            };
            let at = cell.0.partition_point(|(visible, _)| *visible < id);
            cell.0.insert(at, (id, value));
        }
        if cell.0.is_empty() {
            self.cells.remove(&op.field);
        }
    }

    fn touch(&mut self, object: ObjectId, change: &Change) {
        let touch = Touch {
            max_op: change.max_op(),
            seq: change.seq,
        };
        let entry = self.touched.entry(change.actor).or_insert(touch);
        if touch.seq > entry.seq {
            *entry = touch;
        }
        self.sum = self.sum.wrapping_add(revision_term(object, change.hash));
        let stamp = Stamp {
            hlc: change.message.stamp(),
            actor: change.actor,
            counter: change.max_op(),
            credential: change.message.credential.clone(),
            label: change.message.label.clone(),
        };
        let order = |stamp: &Stamp| (stamp.counter, stamp.actor);
        if self
            .created
            .as_ref()
            .is_none_or(|created| order(&stamp) < order(created))
        {
            self.created = Some(stamp.clone());
        }
        if self
            .updated
            .as_ref()
            .is_none_or(|updated| order(&stamp) > order(updated))
        {
            self.updated = Some(stamp);
        }
    }
}

impl Cell {
    /// The value with the greatest op id.
    pub fn winner(&self) -> Option<&Value> {
        self.0.last().map(|(_, value)| value)
    }

    /// The op id of the winner.
    pub fn winner_op(&self) -> Option<OpId> {
        self.0.last().map(|(id, _)| *id)
    }

    /// Whether two values differ: equal values written apart are no conflict.
    pub fn is_conflicted(&self) -> bool {
        self.0.iter().any(|(_, value)| Some(value) != self.winner())
    }
}

impl Value {
    /// The text, where it is one and kept in the row.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Inline(scalar) => scalar.as_str(),
            Self::Apart(_) => None,
        }
    }

    /// Whether it is yes.
    pub fn is_true(&self) -> bool {
        *self == Self::Inline(Scalar::Bool(true))
    }

    /// Whether it is an explicit nothing.
    pub fn is_null(&self) -> bool {
        *self == Self::Inline(Scalar::Null)
    }

    /// Whether it is what writing `scalar` would give.
    pub fn is(&self, scalar: &Scalar) -> bool {
        match (self, scalar) {
            (Self::Apart(text), Scalar::Str(other)) => *text == TextRef::of(other),
            (Self::Inline(own), other) => own == other,
            (Self::Apart(_), _) => false,
        }
    }
}

impl TextRef {
    /// What a row says about `text`.
    pub fn of(text: &str) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(
            blake3::hash(text.as_bytes())
                .as_bytes()
                .get(..16)
                .unwrap_or(&[0; 16]),
        );
        Self {
            bytes: u32::try_from(text.len()).unwrap_or(u32::MAX),
            digest,
        }
    }
}

/// What one touching change adds to an object's sum.
pub fn revision_term(object: ObjectId, hash: ChangeHash) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"stead revision 1");
    hasher.update(&object.to_bits().to_le_bytes());
    hasher.update(&hash.0);
    let mut term = [0; 16];
    term.copy_from_slice(hasher.finalize().as_bytes().get(..16).unwrap_or(&[0; 16]));
    u128::from_le_bytes(term)
}
