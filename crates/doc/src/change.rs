//! One change: decoding hostile bytes strictly, and authoring without an Automerge document.

use std::{
    collections::BTreeSet,
    io::Read,
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
};

use automerge::{
    Change as AutomergeChange, ExpandedChange,
    legacy::{Key, Op as AutomergeOp, OpId as AutomergeOpId, OpType},
};

use crate::{
    document::{bucket, bucket_container, container_bucket, genesis_actor},
    id::{ActorId, ChangeHash, DocumentId, ObjectId, OpId},
    limits,
    message::Message,
    scalar::Scalar,
};

/// A change of the dialect: puts of scalars and deletes on keys of the genesis buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// SHA-256 of the content, as Automerge has it.
    pub hash: ChangeHash,
    /// Who made it.
    pub actor: ActorId,
    /// The how-manieth change of this actor it is, from 1.
    pub seq: u64,
    /// Counter of its first operation.
    pub start_op: u64,
    /// The heads that its author had, and the author's own previous change; strictly ascending.
    pub deps: Vec<ChangeHash>,
    /// Seconds since 1970 by the author's clock: for other tools, never for a rule.
    pub time: i64,
    /// What it says about itself.
    pub message: Message,
    /// Its operations, in order.
    pub ops: Vec<Op>,
    /// Its bytes: one uncompressed Automerge change chunk.
    pub bytes: Vec<u8>,
}

impl Change {
    /// Counter of the last operation; one less than `start_op` where there is none.
    pub fn max_op(&self) -> u64 {
        (self.start_op + self.ops.len() as u64).saturating_sub(1)
    }

    /// The id of the operation at `index`.
    pub fn op_id(&self, index: usize) -> OpId {
        OpId {
            counter: self.start_op + index as u64,
            actor: self.actor,
        }
    }

    /// The operations with their ids.
    pub fn ops_with_ids(&self) -> impl Iterator<Item = (OpId, &Op)> {
        self.ops
            .iter()
            .enumerate()
            .map(|(index, op)| (self.op_id(index), op))
    }

    /// Whether an operation is one of the change's.
    pub fn holds(&self, op: OpId) -> bool {
        op.actor == self.actor && (self.start_op..=self.max_op()).contains(&op.counter)
    }

    /// The objects that the change touches.
    pub fn touched(&self) -> BTreeSet<ObjectId> {
        self.ops.iter().map(|op| op.object).collect()
    }

    /// The object that the change is about.
    pub fn subject(&self) -> Option<ObjectId> {
        self.message
            .subject
            .as_deref()
            .and_then(|text| text.parse().ok())
            .or_else(|| self.ops.first().map(|op| op.object))
    }

    /// Decodes one change of `document` from bytes that nobody vouches for.
    ///
    /// Bounded before it allocates, checked against its own checksum, and refused unless encoding
    /// it again gives the same bytes: one change has one encoding.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the bytes; they never panic and never reach an Automerge document.
    pub fn decode(document: DocumentId, bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes = uncompressed(bytes)?;
        scan(&bytes)?;
        // The scan bounds what the parser reads; a panic in it is still only a refusal.
        let parsed = catch_unwind(AssertUnwindSafe(|| {
            let change = AutomergeChange::from_bytes(bytes.clone()).ok()?;
            let expanded = change.decode();
            let again = AutomergeChange::from(ExpandedChange {
                hash: None,
                ..expanded.clone()
            });
            let unused = unused_actor(&change, &expanded);
            Some((change, expanded, again, unused))
        }));
        let Ok(Some((change, expanded, again, unused_actor))) = parsed else {
            return Err(DecodeError::Malformed);
        };
        let hash = ChangeHash(change.hash().0);
        if bytes.get(4..8) != hash.0.get(..4) {
            return Err(DecodeError::Checksum);
        }
        if !change.extra_bytes().is_empty() || expanded.author.is_some() {
            return Err(DecodeError::Footer);
        }
        if unused_actor {
            return Err(DecodeError::UnusedActor);
        }
        if again.raw_bytes() != bytes {
            return Err(DecodeError::NotCanonical);
        }
        Self::from_expanded(document, hash, bytes, expanded)
    }

    /// Authors the change that `draft` describes, byte for byte as Automerge would write it.
    ///
    /// # Errors
    ///
    /// Refuses what would not fit a change; nothing of it is written then.
    pub fn author(document: DocumentId, draft: Draft) -> Result<Self, AuthorError> {
        if draft.ops.len() > limits::CHANGE_OPS {
            return Err(AuthorError::Ops(draft.ops.len()));
        }
        if draft.start_op + draft.ops.len() as u64 >= limits::OP_COUNTER {
            return Err(AuthorError::Counter);
        }
        draft.check()?;
        let message = draft.message.to_text();
        if message.len() > limits::MESSAGE_BYTES {
            return Err(AuthorError::Message(message.len()));
        }
        let genesis = automerge_actor(genesis_actor(document));
        let operations = draft
            .ops
            .iter()
            .map(|op| AutomergeOp {
                action: match &op.action {
                    Action::Put(value) => OpType::Put(value.to_automerge()),
                    Action::Delete => OpType::Delete,
                },
                obj: bucket_container(&genesis, bucket(op.object)),
                key: Key::Map(op.key().into()),
                pred: op
                    .preds
                    .iter()
                    .map(|pred| AutomergeOpId(pred.counter, automerge_actor(pred.actor)))
                    .collect::<Vec<_>>()
                    .into(),
                insert: false,
            })
            .collect();
        let mut deps = draft.deps;
        deps.sort_unstable();
        deps.dedup();
        if deps.len() > limits::CHANGE_DEPS {
            return Err(AuthorError::Deps(deps.len()));
        }
        let change = AutomergeChange::from(ExpandedChange {
            operations,
            actor_id: automerge_actor(draft.actor),
            hash: None,
            seq: draft.seq,
            start_op: NonZeroU64::new(draft.start_op).ok_or(AuthorError::Counter)?,
            time: draft.time,
            message: Some(message),
            deps: deps
                .iter()
                .map(|hash| automerge::ChangeHash(hash.0))
                .collect(),
            extra_bytes: Vec::new(),
            author: None,
        });
        let bytes = change.raw_bytes().to_vec();
        if bytes.len() > limits::CHANGE_BYTES {
            return Err(AuthorError::Bytes(bytes.len()));
        }
        Ok(Self {
            hash: ChangeHash(change.hash().0),
            actor: draft.actor,
            seq: draft.seq,
            start_op: draft.start_op,
            deps,
            time: draft.time,
            message: draft.message,
            ops: draft.ops,
            bytes,
        })
    }

    fn from_expanded(
        document: DocumentId,
        hash: ChangeHash,
        bytes: Vec<u8>,
        expanded: ExpandedChange,
    ) -> Result<Self, DecodeError> {
        let genesis = automerge_actor(genesis_actor(document));
        let actor = own_actor(&expanded.actor_id)?;
        let deps: Vec<_> = expanded
            .deps
            .iter()
            .map(|hash| ChangeHash(hash.0))
            .collect();
        if !deps.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::DepsOrder);
        }
        if expanded
            .message
            .as_ref()
            .is_some_and(|text| text.len() > limits::MESSAGE_BYTES)
        {
            return Err(DecodeError::Message);
        }
        let max_op = expanded
            .start_op
            .get()
            .saturating_add(expanded.operations.len() as u64);
        if max_op >= limits::OP_COUNTER {
            return Err(DecodeError::Counter);
        }
        if expanded.operations.is_empty() {
            return Err(DecodeError::Empty);
        }
        if !(-limits::CHANGE_SECS..=limits::CHANGE_SECS).contains(&expanded.time) {
            return Err(DecodeError::Time);
        }
        let ops = expanded
            .operations
            .iter()
            .map(|op| Op::from_automerge(&genesis, op))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            hash,
            actor,
            seq: expanded.seq,
            start_op: expanded.start_op.get(),
            deps,
            time: expanded.time,
            message: Message::parse(expanded.message.as_deref()),
            ops,
            bytes,
        })
    }
}

/// What a change is authored from.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Who makes it.
    pub actor: ActorId,
    /// One more than the actor's last.
    pub seq: u64,
    /// One more than the document's greatest op counter.
    pub start_op: u64,
    /// The document's heads and the actor's own previous change.
    pub deps: Vec<ChangeHash>,
    /// Seconds since 1970.
    pub time: i64,
    /// What it says about itself.
    pub message: Message,
    /// What it does.
    pub ops: Vec<Op>,
}

impl Draft {
    /// Refuses what [`Change::decode`] would refuse elsewhere: a change that is written here and
    /// admitted nowhere would cut this actor off.
    fn check(&self) -> Result<(), AuthorError> {
        if self.ops.is_empty() {
            return Err(AuthorError::Empty);
        }
        let preds: usize = self.ops.iter().map(|op| op.preds.len()).sum();
        if preds > limits::CHANGE_PREDS {
            return Err(AuthorError::Preds(preds));
        }
        let actors: BTreeSet<ActorId> = self
            .ops
            .iter()
            .flat_map(|op| &op.preds)
            .map(|pred| pred.actor)
            .filter(|actor| *actor != self.actor)
            .collect();
        // The genesis actor is the other one more: it made the buckets.
        if actors.len() + 1 > limits::CHANGE_ACTORS {
            return Err(AuthorError::Actors(actors.len() + 1));
        }
        for op in &self.ops {
            if op.field.is_empty() || op.field.len() > limits::FIELD_BYTES {
                return Err(AuthorError::Field(op.field.len()));
            }
            if let Action::Put(value) = &op.action
                && value.len() > limits::TEXT_BYTES
            {
                return Err(AuthorError::Value(value.len()));
            }
        }
        Ok(())
    }
}

/// One operation on one field of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The object.
    pub object: ObjectId,
    /// The field, entry of a set or map included: `title`, `tag/ui`, `state/phase`.
    pub field: String,
    /// What it does.
    pub action: Action,
    /// The operations on the same field that it replaces, ascending.
    pub preds: Vec<OpId>,
}

impl Op {
    /// The Automerge key: `<id>/<field>`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.object, self.field)
    }

    fn from_automerge(genesis: &automerge::ActorId, op: &AutomergeOp) -> Result<Self, DecodeError> {
        let bucket_of_op = match container_bucket(genesis, &op.obj) {
            Some(bucket) => bucket,
            None if matches!(op.action, OpType::Make(_)) => return Err(DecodeError::MapMade),
            None => return Err(DecodeError::UnknownObject),
        };
        let action = match &op.action {
            OpType::Put(value) => {
                Action::Put(Scalar::from_automerge(value).ok_or(DecodeError::Dialect)?)
            }
            OpType::Delete => Action::Delete,
            OpType::Make(_) => return Err(DecodeError::MapMade),
            OpType::Increment(_) | OpType::MarkBegin(_) | OpType::MarkEnd(_) => {
                return Err(DecodeError::Dialect);
            }
        };
        let Key::Map(key) = &op.key else {
            return Err(DecodeError::Dialect);
        };
        if op.insert {
            return Err(DecodeError::Dialect);
        }
        let (object, field) = key.split_once('/').ok_or(DecodeError::Key)?;
        let id: ObjectId = object.parse().map_err(|_| DecodeError::Key)?;
        // The id in one spelling only, or one field would have two keys.
        if id.to_string() != object || bucket(id) != bucket_of_op {
            return Err(DecodeError::Key);
        }
        if field.is_empty() || field.len() > limits::FIELD_BYTES {
            return Err(DecodeError::Field);
        }
        let size = match &action {
            Action::Put(value) => value.len(),
            Action::Delete => 0,
        };
        if size > limits::TEXT_BYTES {
            return Err(DecodeError::Value);
        }
        let preds = op
            .pred
            .iter()
            .map(|pred| {
                Ok(OpId {
                    counter: pred.counter(),
                    actor: own_actor(pred.actor())?,
                })
            })
            .collect::<Result<Vec<_>, DecodeError>>()?;
        if !preds.is_sorted_by(|a, b| a < b) {
            return Err(DecodeError::NotCanonical);
        }
        if action == Action::Delete && preds.is_empty() {
            return Err(DecodeError::DeleteOfNothing);
        }
        Ok(Self {
            object: id,
            field: field.to_owned(),
            action,
            preds,
        })
    }
}

/// What an operation does to its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Gives it a value.
    Put(Scalar),
    /// Takes its values away.
    Delete,
}

/// Why bytes are not a change of the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// More bytes than [`limits::CHANGE_BYTES`].
    #[error("a change is at most {} bytes", limits::CHANGE_BYTES)]
    TooLarge,
    /// A compressed chunk that inflates to more than it may.
    #[error("it inflates beyond {} bytes", limits::CHANGE_BYTES)]
    InflateBomb,
    /// Not a change chunk: a whole document, a bundle, or nothing that Automerge wrote.
    #[error("not an automerge change chunk")]
    NotAChange,
    /// The structure does not parse.
    #[error("malformed change")]
    Malformed,
    /// The checksum is not that of the content.
    #[error("wrong checksum")]
    Checksum,
    /// No operation: it would change nothing and break the order that counters give.
    #[error("it has no operations")]
    Empty,
    /// Bytes behind the operations.
    #[error("a footer, which is outside the dialect")]
    Footer,
    /// An actor that no operation uses.
    #[error("names an actor that it does not use")]
    UnusedActor,
    /// A column that is outside the dialect or unknown.
    #[error("a column that is outside the dialect")]
    UnknownColumn,
    /// Encoding it again gives other bytes.
    #[error("not in canonical encoding")]
    NotCanonical,
    /// More operations, predecessors, heads or actors than a change may have.
    #[error("more {0} than a change may have")]
    TooMany(&'static str),
    /// Heads not strictly ascending.
    #[error("heads not strictly ascending")]
    DepsOrder,
    /// A message beyond [`limits::MESSAGE_BYTES`].
    #[error("a message is at most {} bytes", limits::MESSAGE_BYTES)]
    Message,
    /// An op counter at or beyond [`limits::OP_COUNTER`].
    #[error("op counter beyond {}", limits::OP_COUNTER)]
    Counter,
    /// A map or list made after the genesis.
    #[error("makes an object; only the genesis does")]
    MapMade,
    /// An operation on something that is not a bucket of this document.
    #[error("operates on an object that is no bucket of this document")]
    UnknownObject,
    /// A counter, a mark, a list operation.
    #[error("an operation outside the dialect")]
    Dialect,
    /// Not `<id>/<field>` in the bucket of the id.
    #[error("a key that is not <id>/<field> in the bucket of the id")]
    Key,
    /// A field name that is empty or beyond [`limits::FIELD_BYTES`].
    #[error("a field name is 1 to {} bytes", limits::FIELD_BYTES)]
    Field,
    /// A time further from 1970 than [`limits::CHANGE_SECS`].
    #[error("a time is at most {} seconds from 1970", limits::CHANGE_SECS)]
    Time,
    /// A value beyond [`limits::TEXT_BYTES`].
    #[error("a value is at most {} bytes", limits::TEXT_BYTES)]
    Value,
    /// A delete that replaces no operation.
    #[error("deletes nothing")]
    DeleteOfNothing,
    /// An actor that is not 16 bytes.
    #[error("an actor is 16 bytes")]
    Actor,
}

/// Why a change was not authored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorError {
    /// Its fields have values from too many actors.
    #[error("it would name {0} actors; one change names {max}", max = limits::CHANGE_ACTORS)]
    Actors(usize),
    /// Its bytes would not fit a frame.
    #[error("it would be {0} bytes; one change holds {max}", max = limits::CHANGE_BYTES)]
    Bytes(usize),
    /// The document has no op counters left.
    #[error("the document's op counters are used up")]
    Counter,
    /// The document has too many heads.
    #[error("it would name {0} heads; one change names {max}", max = limits::CHANGE_DEPS)]
    Deps(usize),
    /// Nothing to write.
    #[error("it would have no operations")]
    Empty,
    /// The name of a field, entry of a set or map included.
    #[error("a field's name would be {0} bytes; it is 1 to {max}", max = limits::FIELD_BYTES)]
    Field(usize),
    /// Its message would be too long.
    #[error("its message would be {0} bytes; one change holds {max}", max = limits::MESSAGE_BYTES)]
    Message(usize),
    /// Too many operations.
    #[error("it would be {0} operations; one change holds {max}", max = limits::CHANGE_OPS)]
    Ops(usize),
    /// Its fields have too many values.
    #[error("it would replace {0} values; one change replaces {max}", max = limits::CHANGE_PREDS)]
    Preds(usize),
    /// A value that is too long.
    #[error("a value would be {0} bytes; it is at most {max}", max = limits::TEXT_BYTES)]
    Value(usize),
}

const MAGIC: [u8; 4] = [0x85, 0x6f, 0x4a, 0x83];
const CHUNK_CHANGE: u8 = 1;
const CHUNK_COMPRESSED: u8 = 2;

/// The change as an uncompressed chunk, inflating a compressed one within bounds.
fn uncompressed(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    if bytes.len() > limits::CHANGE_BYTES {
        return Err(DecodeError::TooLarge);
    }
    let mut reader = Reader(bytes);
    if reader.take(4)? != MAGIC {
        return Err(DecodeError::NotAChange);
    }
    let checksum = reader.take(4)?;
    let kind = reader.take(1)?;
    let length = reader.uleb()?;
    if length != reader.0.len() as u64 {
        return Err(DecodeError::Malformed);
    }
    match kind {
        [CHUNK_CHANGE] => Ok(bytes.to_vec()),
        [CHUNK_COMPRESSED] => {
            let mut content = Vec::new();
            flate2::read::DeflateDecoder::new(reader.0)
                .take(limits::CHANGE_BYTES as u64 + 1)
                .read_to_end(&mut content)
                .map_err(|_| DecodeError::Malformed)?;
            if content.len() > limits::CHANGE_BYTES {
                return Err(DecodeError::InflateBomb);
            }
            let mut chunk = Vec::with_capacity(content.len() + 16);
            chunk.extend(MAGIC);
            chunk.extend(checksum);
            chunk.push(CHUNK_CHANGE);
            push_uleb(&mut chunk, content.len() as u64);
            chunk.extend(content);
            if chunk.len() > limits::CHANGE_BYTES {
                return Err(DecodeError::InflateBomb);
            }
            Ok(chunk)
        }
        _ => Err(DecodeError::NotAChange),
    }
}

/// Bounds everything that Automerge's parser will count to, without allocating for any of it.
fn scan(chunk: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader(chunk);
    reader.take(9)?;
    reader.uleb()?;
    let deps = reader.count(limits::CHANGE_DEPS, "heads")?;
    reader.take(deps * 32)?;
    let actor = reader.count(limits::CHANGE_BYTES, "bytes of an actor")?;
    reader.take(actor)?;
    let (_seq, start_op) = (reader.uleb()?, reader.uleb()?);
    if start_op >= limits::OP_COUNTER {
        return Err(DecodeError::Counter);
    }
    reader.skip_leb()?;
    let message = reader.count(limits::CHANGE_BYTES, "bytes of a message")?;
    if message > limits::MESSAGE_BYTES {
        return Err(DecodeError::Message);
    }
    reader.take(message)?;
    for _ in 0..reader.count(limits::CHANGE_ACTORS, "actors")? {
        let length = reader.count(limits::CHANGE_BYTES, "bytes of an actor")?;
        reader.take(length)?;
    }
    let mut columns = Vec::new();
    for _ in 0..reader.count(COLUMNS.len(), "columns")? {
        let specification = reader.uleb()?;
        let known = COLUMNS
            .iter()
            .find(|(known, _)| u64::from(*known) == specification);
        let (specification, encoding) = *known.ok_or(DecodeError::UnknownColumn)?;
        columns.push((
            specification,
            encoding,
            reader.count(limits::CHANGE_BYTES, "bytes of a column")?,
        ));
    }
    for (specification, encoding, length) in columns {
        let rows = match specification {
            PRED_ACTOR | PRED_COUNTER => (limits::CHANGE_PREDS, "predecessors"),
            _ => (limits::CHANGE_OPS, "operations"),
        };
        encoding.bound(Reader(reader.take(length)?), rows)?;
    }
    Ok(())
}

/// The columns of a change chunk that the dialect uses: specification and encoding. See
/// "Change columns" in <https://automerge.org/automerge-binary-format-spec/>.
const COLUMNS: [(u8, Encoding); 13] = [
    (0x01, Encoding::Rle(RunValue::Leb)),  // object, actor
    (0x02, Encoding::Rle(RunValue::Leb)),  // object, counter
    (0x11, Encoding::Rle(RunValue::Leb)),  // key, actor
    (0x13, Encoding::Rle(RunValue::Leb)),  // key, counter (delta)
    (0x15, Encoding::Rle(RunValue::Text)), // key, text
    (0x34, Encoding::Boolean),             // insert
    (0x42, Encoding::Rle(RunValue::Leb)),  // action
    (0x56, Encoding::Rle(RunValue::Leb)),  // value, type and length
    (0x57, Encoding::Raw),                 // value, bytes
    (0x70, Encoding::Group),               // predecessors, how many
    (PRED_ACTOR, Encoding::Rle(RunValue::Leb)),
    (PRED_COUNTER, Encoding::Rle(RunValue::Leb)), // delta
    (0x94, Encoding::Boolean),                    // expand, all false
];

const PRED_ACTOR: u8 = 0x71;
const PRED_COUNTER: u8 = 0x73;

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Rle(RunValue),
    Group,
    Boolean,
    Raw,
}

#[derive(Debug, Clone, Copy)]
enum RunValue {
    Leb,
    Text,
}

impl Encoding {
    /// Refuses a column that stands for more rows, or a group column for more predecessors, than
    /// a change may have.
    fn bound(
        self,
        mut column: Reader<'_>,
        (max, what): (usize, &'static str),
    ) -> Result<(), DecodeError> {
        let at_most = |sum: &mut u64, count: u64, max: usize, what| {
            *sum = sum.saturating_add(count);
            if *sum > max as u64 {
                Err(DecodeError::TooMany(what))
            } else {
                Ok(())
            }
        };
        let (mut rows, mut grouped) = (0, 0);
        let mut add = |count| at_most(&mut rows, count, max, what);
        let mut group = |count| at_most(&mut grouped, count, limits::CHANGE_PREDS, "predecessors");
        match self {
            Self::Raw => {}
            Self::Boolean => {
                while !column.0.is_empty() {
                    add(column.uleb()?)?;
                }
            }
            Self::Rle(_) | Self::Group => {
                while !column.0.is_empty() {
                    match column.sleb()? {
                        0 => add(column.uleb()?)?,
                        run if run > 0 => {
                            let value = column.value(self)?;
                            add(run.unsigned_abs())?;
                            // A run of n groups of m stands for n * m predecessors.
                            group(value.saturating_mul(run.unsigned_abs()))?;
                        }
                        literals => {
                            for _ in 0..literals.unsigned_abs() {
                                let value = column.value(self)?;
                                add(1)?;
                                group(value)?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads a chunk from the front, never past its end.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (front, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(DecodeError::Malformed)?;
        self.0 = rest;
        Ok(front)
    }

    fn uleb(&mut self) -> Result<u64, DecodeError> {
        let mut value: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Malformed)
    }

    fn sleb(&mut self) -> Result<i64, DecodeError> {
        let mut value: i64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= i64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let width = shift + 7;
                return Ok(if byte & 0x40 != 0 && width < 64 {
                    value | (-1 << width)
                } else {
                    value
                });
            }
        }
        Err(DecodeError::Malformed)
    }

    fn skip_leb(&mut self) -> Result<(), DecodeError> {
        while self.byte()? & 0x80 != 0 {}
        Ok(())
    }

    fn count(&mut self, max: usize, what: &'static str) -> Result<usize, DecodeError> {
        usize::try_from(self.uleb()?)
            .ok()
            .filter(|n| *n <= max)
            .ok_or(DecodeError::TooMany(what))
    }

    /// Skips one value of a run; for a group column says how large the group is.
    fn value(&mut self, encoding: Encoding) -> Result<u64, DecodeError> {
        match encoding {
            Encoding::Group => self.uleb(),
            Encoding::Rle(RunValue::Text) => {
                let length = self.count(limits::CHANGE_BYTES, "bytes of a key")?;
                self.take(length).map(|_| 0)
            }
            Encoding::Rle(RunValue::Leb) | Encoding::Boolean | Encoding::Raw => {
                self.skip_leb().map(|()| 0)
            }
        }
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Malformed)?;
        self.0 = rest;
        Ok(*first)
    }
}

fn push_uleb(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn unused_actor(change: &AutomergeChange, expanded: &ExpandedChange) -> bool {
    let mut used = BTreeSet::new();
    for op in &expanded.operations {
        if let automerge::legacy::ObjectId::Id(id) = &op.obj {
            used.insert(id.actor());
        }
        used.extend(op.pred.iter().map(AutomergeOpId::actor));
    }
    change
        .other_actor_ids()
        .iter()
        .any(|actor| !used.contains(actor))
}

fn automerge_actor(actor: ActorId) -> automerge::ActorId {
    automerge::ActorId::from(actor.0.as_slice())
}

fn own_actor(actor: &automerge::ActorId) -> Result<ActorId, DecodeError> {
    actor
        .to_bytes()
        .try_into()
        .map(ActorId)
        .map_err(|_| DecodeError::Actor)
}
