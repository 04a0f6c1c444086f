//! Bytes and changes from somebody who means harm: each refused with its reason, and whatever is
//! admitted is the same to Automerge.

use std::io::Write;

use automerge::{
    Automerge, ExpandedChange, ObjType, ReadDoc, ScalarValue,
    legacy::{ElementId, Key, ObjectId as Container, OpId as ForeignOp, OpType},
};
use stead_doc::{
    change::{Action, Change, DecodeError, Draft, Op},
    document::{DocumentName, Genesis, bucket},
    id::{ActorId, ChangeHash, DocumentId, ObjectId, OpId},
    limits,
    message::Message,
    scalar::Scalar,
    verdict::{History, Verdict},
};

use super::{
    random::{Random, count},
    replica::{Refused, Replica, WORKSPACE, stead},
    sha256::sha256,
};

pub(crate) const EVIL: ActorId = ActorId([0xee; 16]);

/// A document with two tasks, `other` written by somebody else after `task`.
pub(crate) struct Target {
    pub(crate) replica: Replica,
    pub(crate) document: DocumentId,
    pub(crate) task: ObjectId,
}

impl Target {
    pub(crate) fn new() -> Self {
        let mut replica = Replica::new(1).with_automerge();
        replica.project("stead");
        let task = replica.task("mine").parse().unwrap();
        replica.task("other");
        Self {
            replica,
            document: stead().id(WORKSPACE),
            task,
        }
    }

    pub(crate) fn preds(&self, field: &str) -> Vec<OpId> {
        self.replica.row(&self.task.to_string()).preds(field)
    }

    pub(crate) fn put(&self, field: &str, value: impl Into<Scalar>) -> Op {
        Op {
            object: self.task,
            field: field.to_owned(),
            action: Action::Put(value.into()),
            preds: self.preds(field),
        }
    }

    /// A first change of a newcomer that is all right: it gives the task another title.
    pub(crate) fn draft(&self) -> Draft {
        let state = self.replica.state(&stead());
        Draft {
            actor: EVIL,
            seq: 1,
            start_op: state.max_op + 1,
            deps: state.heads,
            time: 1_780_000_000,
            message: Message {
                command: "update".into(),
                credential: "c_ada".into(),
                hlc: 1_780_000_000_000 << 16,
                ..Message::default()
            },
            ops: vec![self.put("title", "theirs")],
        }
    }

    pub(crate) fn author(&self, change: impl FnOnce(&mut Draft)) -> Change {
        let mut draft = self.draft();
        change(&mut draft);
        Change::author(self.document, draft).unwrap()
    }

    /// The bytes of the same with Automerge's own form of the change edited.
    pub(crate) fn foreign(&self, change: impl FnOnce(&mut ExpandedChange)) -> Vec<u8> {
        let good = self.author(|_| ());
        let mut expanded = automerge::Change::from_bytes(good.bytes).unwrap().decode();
        expanded.hash = None;
        change(&mut expanded);
        automerge::Change::from(expanded).raw_bytes().to_vec()
    }

    /// The bytes of the same with the encoding edited and a checksum that is right.
    fn encoded(&self, change: impl FnOnce(&mut Parts)) -> Vec<u8> {
        let mut parts = Parts::of(&self.author(|_| ()).bytes);
        change(&mut parts);
        parts.seal()
    }

    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Change, DecodeError> {
        Change::decode(self.document, bytes)
    }

    /// What a node says to a change, which has nothing of it afterwards.
    fn verdict(&mut self, change: &Change) -> Verdict {
        let before = self.replica.standing();
        let refused = self.replica.receive(&stead(), &change.bytes);
        assert_eq!(self.replica.standing(), before, "nothing is written");
        match refused {
            Err(Refused::Verdict(verdict)) => verdict,
            other => panic!("decodes and is not admitted: {other:?}"),
        }
    }

    fn refuses(&mut self, bytes: &[u8]) -> DecodeError {
        let before = self.replica.standing();
        let refused = self.replica.receive(&stead(), bytes);
        assert_eq!(self.replica.standing(), before, "nothing is written");
        match refused {
            Err(Refused::Decode(error)) => error,
            other => panic!("does not decode: {other:?}"),
        }
    }

    /// Has the node and Automerge take a change, and compares everything.
    fn admits(&mut self, change: &Change) {
        self.replica.receive(&stead(), &change.bytes).unwrap();
        let document = self.replica.document(&stead());
        document.compare(document.keys());
        let automerge = document.automerge.as_ref().unwrap();
        let loaded = Automerge::load(&automerge.save()).unwrap();
        assert_eq!(loaded.get_heads(), automerge.get_heads());
        let saved = loaded
            .get_change_by_hash(&automerge::ChangeHash(change.hash.0))
            .expect("it survives Automerge's own file");
        assert_eq!(saved.raw_bytes(), change.bytes);
    }
}

/// A change chunk taken apart as the format has it.
#[derive(Debug, Clone)]
struct Parts {
    deps: Vec<[u8; 32]>,
    actor: Vec<u8>,
    seq: u64,
    start_op: u64,
    time: Vec<u8>,
    message: Vec<u8>,
    actors: Vec<Vec<u8>>,
    columns: Vec<(u64, Vec<u8>)>,
    rest: Vec<u8>,
}

impl Parts {
    fn of(chunk: &[u8]) -> Self {
        let mut at = &chunk[9..];
        let length = uleb(&mut at);
        assert_eq!(length as usize, at.len());
        let take = |at: &mut &[u8], count: usize| {
            let (front, rest) = at.split_at(count);
            *at = rest;
            front.to_vec()
        };
        let block = |at: &mut &[u8]| {
            let count = uleb(at) as usize;
            take(at, count)
        };
        let deps = (0..uleb(&mut at))
            .map(|_| take(&mut at, 32).try_into().unwrap())
            .collect();
        let actor = block(&mut at);
        let (seq, start_op) = (uleb(&mut at), uleb(&mut at));
        let length = 1 + at.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let time = take(&mut at, length);
        let message = block(&mut at);
        let actors = (0..uleb(&mut at)).map(|_| block(&mut at)).collect();
        let heads: Vec<(u64, u64)> = (0..uleb(&mut at))
            .map(|_| (uleb(&mut at), uleb(&mut at)))
            .collect();
        let columns = heads
            .into_iter()
            .map(|(specification, length)| (specification, take(&mut at, length as usize)))
            .collect();
        Self {
            deps,
            actor,
            seq,
            start_op,
            time,
            message,
            actors,
            columns,
            rest: at.to_vec(),
        }
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let block = |body: &mut Vec<u8>, bytes: &[u8]| {
            push_uleb(body, bytes.len() as u64);
            body.extend(bytes);
        };
        push_uleb(&mut body, self.deps.len() as u64);
        body.extend(self.deps.iter().flatten());
        block(&mut body, &self.actor);
        push_uleb(&mut body, self.seq);
        push_uleb(&mut body, self.start_op);
        body.extend(&self.time);
        block(&mut body, &self.message);
        push_uleb(&mut body, self.actors.len() as u64);
        for actor in &self.actors {
            block(&mut body, actor);
        }
        push_uleb(&mut body, self.columns.len() as u64);
        for (specification, column) in &self.columns {
            push_uleb(&mut body, *specification);
            push_uleb(&mut body, column.len() as u64);
        }
        body.extend(self.columns.iter().flat_map(|(_, column)| column));
        body.extend(&self.rest);
        body
    }

    fn seal(&self) -> Vec<u8> {
        seal(1, &self.body())
    }

    fn column(&mut self, specification: u64) -> &mut Vec<u8> {
        let found = self
            .columns
            .iter_mut()
            .find(|(own, _)| *own == specification);
        &mut found.expect("the column is there").1
    }
}

const ACTION: u64 = 0x42;
const GROUP: u64 = 0x70;

/// A chunk of these bytes with the checksum that belongs to them.
fn seal(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut hashed = vec![kind];
    push_uleb(&mut hashed, body.len() as u64);
    hashed.extend(body);
    let mut chunk = vec![0x85, 0x6f, 0x4a, 0x83];
    chunk.extend(&sha256(&hashed)[..4]);
    chunk.extend(hashed);
    chunk
}

fn uleb(at: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = at[0];
        *at = &at[1..];
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return value;
        }
    }
}

fn push_uleb(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn push_sleb(to: &mut Vec<u8>, mut value: i64) {
    loop {
        let byte = (value & 0x7f) as u8;
        value >>= 7;
        if (value == 0 && byte & 0x40 == 0) || (value == -1 && byte & 0x40 != 0) {
            to.push(byte);
            return;
        }
        to.push(byte | 0x80);
    }
}

fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

// ---------------------------------------------------------------------------------------------
// what is all right, so that the rest fails for its own reason

#[test]
fn a_good_change_of_a_newcomer_is_admitted() {
    let mut target = Target::new();
    let change = target.author(|_| ());
    assert_eq!(target.foreign(|_| ()), change.bytes);
    assert_eq!(target.encoded(|_| ()), change.bytes);
    target.admits(&change);
    assert_eq!(
        target.replica.show(&target.task.to_string())["title"],
        "theirs"
    );
}

#[test]
fn a_compressed_change_is_the_same_change() {
    let target = Target::new();
    let change = target.author(|draft| {
        draft
            .ops
            .push(target.put("body", "again and again ".repeat(200)));
    });
    let body = &change.bytes[9..];
    let body = &body[1 + body.iter().position(|byte| byte & 0x80 == 0).unwrap()..];
    let mut packed = change.bytes[..8].to_vec();
    packed.push(2);
    let deflated = deflate(body);
    push_uleb(&mut packed, deflated.len() as u64);
    packed.extend(deflated);
    assert!(packed.len() < change.bytes.len());
    assert_eq!(target.decode(&packed), Ok(change));
}

// ---------------------------------------------------------------------------------------------
// bytes

#[test]
fn truncated_at_every_byte() {
    let target = Target::new();
    let good = target.author(|_| ()).bytes;
    for end in 0..good.len() {
        assert!(
            target.decode(&good[..end]).is_err(),
            "the first {end} bytes"
        );
        // Likewise where the length says so and the checksum is right.
        let body = Parts::of(&good).body();
        if end < body.len() {
            let short = seal(1, &body[..end]);
            assert!(
                target.decode(&short).is_err(),
                "the first {end} bytes of the body"
            );
        }
    }
    assert!(target.decode(&good).is_ok());
}

#[test]
fn bytes_behind_the_chunk() {
    let mut target = Target::new();
    let mut bytes = target.author(|_| ()).bytes;
    bytes.push(0);
    assert_eq!(target.refuses(&bytes), DecodeError::Malformed);
}

#[test]
fn two_changes_in_one() {
    let mut target = Target::new();
    let bytes = target.author(|_| ()).bytes;
    assert_eq!(target.refuses(&bytes.repeat(2)), DecodeError::Malformed);
}

#[test]
fn a_whole_document_in_place_of_a_change() {
    let mut target = Target::new();
    let document = target.replica.document(&stead());
    let saved = document.automerge.as_ref().unwrap().save();
    assert_eq!(target.refuses(&saved), DecodeError::NotAChange);
    assert_eq!(
        target.refuses(b"\x85\x6f\x4b\x83 something else"),
        DecodeError::NotAChange
    );
    assert_eq!(target.refuses(b""), DecodeError::Malformed);
}

#[test]
fn a_wrong_checksum() {
    let mut target = Target::new();
    let mut bytes = target.author(|_| ()).bytes;
    for at in 4..8 {
        bytes[at] ^= 1;
        assert_eq!(target.refuses(&bytes), DecodeError::Checksum);
        bytes[at] ^= 1;
    }
}

#[test]
fn an_inflate_bomb() {
    let mut target = Target::new();
    // 1 GiB of zeros would be 1 MiB packed; what is refused is refused as soon as it is too long.
    let zeros = deflate(&vec![0; 64 << 20]);
    assert!(zeros.len() < limits::CHANGE_BYTES / 8);
    let mut bytes = vec![0x85, 0x6f, 0x4a, 0x83, 0, 0, 0, 0, 2];
    push_uleb(&mut bytes, zeros.len() as u64);
    bytes.extend(zeros);
    assert_eq!(target.refuses(&bytes), DecodeError::InflateBomb);
}

#[test]
fn a_run_that_stands_for_more_operations_than_there_may_be() {
    let mut target = Target::new();
    for run in [limits::CHANGE_OPS as i64 + 1, 1 << 40, i64::MAX] {
        let bytes = target.encoded(|parts| {
            let column = parts.column(ACTION);
            column.clear();
            push_sleb(column, run);
            column.push(1);
        });
        assert_eq!(target.refuses(&bytes), DecodeError::TooMany("operations"));
        let bytes = target.encoded(|parts| {
            let column = parts.column(ACTION);
            column.clear();
            column.push(0);
            push_uleb(column, run as u64);
        });
        assert_eq!(target.refuses(&bytes), DecodeError::TooMany("operations"));
    }
}

#[test]
fn a_group_that_stands_for_more_predecessors_than_there_may_be() {
    let mut target = Target::new();
    for (run, group) in [
        (2, limits::CHANGE_PREDS as u64 / 2 + 1),
        (2, u64::MAX),
        (40_000, 1 << 20),
    ] {
        let bytes = target.encoded(|parts| {
            let column = parts.column(GROUP);
            column.clear();
            push_sleb(column, run);
            push_uleb(column, group);
        });
        assert_eq!(target.refuses(&bytes), DecodeError::TooMany("predecessors"));
    }
}

#[test]
fn a_count_without_the_bytes_for_it() {
    let target = Target::new();
    let mut body = vec![];
    push_uleb(&mut body, limits::CHANGE_DEPS as u64);
    assert_eq!(target.decode(&seal(1, &body)), Err(DecodeError::Malformed));
    let mut body = vec![];
    push_uleb(&mut body, u64::MAX);
    assert_eq!(
        target.decode(&seal(1, &body)),
        Err(DecodeError::TooMany("heads"))
    );
}

#[test]
fn a_literal_run_where_a_repeat_would_do() {
    let mut target = Target::new();
    let change = target.author(|draft| {
        let ops = ["body", "notes", "branch"].map(|field| target.put(field, "x"));
        draft.ops.extend(ops);
    });
    let mut parts = Parts::of(&change.bytes);
    // -4 and then each value, in place of 4 and the value once.
    *parts.column(ACTION) = vec![0x7c, 1, 1, 1, 1];
    assert_eq!(target.refuses(&parts.seal()), DecodeError::NotCanonical);
    *parts.column(ACTION) = vec![2, 1, 2, 1];
    let refused = target.refuses(&parts.seal());
    assert!(
        matches!(refused, DecodeError::NotCanonical | DecodeError::Malformed),
        "{refused:?}"
    );
}

#[test]
fn numbers_longer_than_they_need_be() {
    let target = Target::new();
    let body = Parts::of(&target.author(|_| ()).bytes).body();
    // One dep, written in two bytes.
    assert_eq!(body[0], 1);
    let mut long = vec![0x81, 0x00];
    long.extend(&body[1..]);
    let refused = target.decode(&seal(1, &long)).unwrap_err();
    assert!(
        matches!(refused, DecodeError::NotCanonical | DecodeError::Malformed),
        "{refused:?}"
    );
}

#[test]
fn an_unknown_column() {
    let mut target = Target::new();
    let bytes = target.encoded(|parts| parts.columns.push((0x1f3, vec![0x7f, 1])));
    assert_eq!(target.refuses(&bytes), DecodeError::UnknownColumn);
}

#[test]
fn a_column_twice() {
    let mut target = Target::new();
    let bytes = target.encoded(|parts| {
        let column = parts.column(ACTION).clone();
        parts.columns.push((ACTION, column));
    });
    let refused = target.refuses(&bytes);
    assert!(
        matches!(refused, DecodeError::NotCanonical | DecodeError::Malformed),
        "{refused:?}"
    );
}

#[test]
fn an_actor_that_nothing_uses() {
    let mut target = Target::new();
    // Behind all others, so that no index moves.
    let bytes = target.encoded(|parts| parts.actors.push(vec![0xff; 16]));
    assert_eq!(target.refuses(&bytes), DecodeError::UnusedActor);
}

#[test]
fn bytes_behind_the_operations() {
    let mut target = Target::new();
    let bytes = target.encoded(|parts| parts.rest = vec![9]);
    assert_eq!(target.refuses(&bytes), DecodeError::Footer);
}

#[test]
fn an_author_footer_on_the_first_change_and_on_a_later_one() {
    let mut target = Target::new();
    for seq in [1, 2] {
        let bytes = target.encoded(|parts| {
            parts.seq = seq;
            parts.rest = vec![1, 3, 9, 9, 9];
        });
        assert_eq!(target.refuses(&bytes), DecodeError::Footer);
    }
}

#[test]
fn deps_out_of_order_or_twice() {
    let mut target = Target::new();
    let mut deps = [ChangeHash([3; 32]), ChangeHash([4; 32])]
        .map(|hash| hash.0)
        .to_vec();
    let bytes = target.encoded(|parts| parts.deps = deps.clone());
    // In order and all different: unknown, and not malformed.
    let change = target.decode(&bytes).unwrap();
    assert!(matches!(target.verdict(&change), Verdict::DepMissing(_)));
    deps.reverse();
    for wrong in [deps.clone(), vec![deps[0], deps[0]]] {
        let bytes = target.encoded(|parts| parts.deps = wrong);
        let refused = target.refuses(&bytes);
        assert!(
            matches!(refused, DecodeError::DepsOrder | DecodeError::NotCanonical),
            "{refused:?}"
        );
    }
}

#[test]
fn an_actor_of_another_length() {
    let mut target = Target::new();
    for length in [0, 15, 17, 64] {
        let bytes = target.encoded(|parts| parts.actor = vec![0xee; length]);
        let refused = target.refuses(&bytes);
        assert!(
            matches!(refused, DecodeError::Actor | DecodeError::Malformed),
            "{refused:?}"
        );
    }
}

#[test]
fn a_start_op_at_the_end_of_what_automerge_can_count() {
    let mut target = Target::new();
    for start_op in [
        u64::from(u32::MAX),
        u64::from(u32::MAX) - 1,
        u64::MAX,
        limits::OP_COUNTER,
    ] {
        let bytes = target.encoded(|parts| parts.start_op = start_op);
        assert_eq!(target.refuses(&bytes), DecodeError::Counter);
    }
    let bytes = target.encoded(|parts| parts.start_op = 0);
    let refused = target.refuses(&bytes);
    assert_eq!(refused, DecodeError::Malformed);
}

// ---------------------------------------------------------------------------------------------
// the dialect

#[test]
fn an_operation_on_an_unknown_object() {
    let mut target = Target::new();
    let genesis = automerge::ActorId::from(Genesis::of(target.document).actor.0.as_slice());
    let elsewhere = Genesis::of(DocumentName::workspace().id(WORKSPACE)).actor;
    let elsewhere = automerge::ActorId::from(elsewhere.0.as_slice());
    let own = automerge::ActorId::from(EVIL.0.as_slice());
    for container in [
        Container::Root,
        Container::Id(ForeignOp(77, own)),
        Container::Id(ForeignOp(1, elsewhere)),
        Container::Id(ForeignOp(Genesis::MAX_OP + 1, genesis)),
    ] {
        let bytes = target.foreign(|change| change.operations[0].obj = container.clone());
        assert_eq!(
            target.refuses(&bytes),
            DecodeError::UnknownObject,
            "{container:?}"
        );
    }
}

#[test]
fn a_map_made_after_the_genesis() {
    let mut target = Target::new();
    for kind in [ObjType::Map, ObjType::List, ObjType::Text, ObjType::Table] {
        for at_root in [false, true] {
            let bytes = target.foreign(|change| {
                change.operations[0].action = OpType::Make(kind);
                if at_root {
                    change.operations[0].obj = Container::Root;
                }
            });
            assert_eq!(target.refuses(&bytes), DecodeError::MapMade);
        }
    }
}

#[test]
fn the_genesis_again_is_no_change() {
    let mut target = Target::new();
    let genesis = Genesis::of(target.document);
    assert_eq!(target.refuses(&genesis.bytes), DecodeError::MapMade);
}

#[test]
fn operations_of_lists_texts_counters_and_marks() {
    let mut target = Target::new();
    let mark = automerge::legacy::MarkData {
        name: "bold".into(),
        value: ScalarValue::Boolean(true),
        expand: false,
    };
    type Case = Box<dyn Fn(&mut automerge::legacy::Op)>;
    let cases: Vec<(&str, Case)> = vec![
        (
            "a counter",
            Box::new(|op| {
                op.action = OpType::Put(ScalarValue::counter(1));
            }),
        ),
        (
            "an increment",
            Box::new(|op| op.action = OpType::Increment(1)),
        ),
        ("an insert", Box::new(|op| op.insert = true)),
        (
            "an element of a list",
            Box::new(|op| op.key = Key::Seq(ElementId::Head)),
        ),
        (
            "a mark",
            Box::new(move |op| op.action = OpType::MarkBegin(mark.clone())),
        ),
        (
            "the end of a mark",
            Box::new(|op| op.action = OpType::MarkEnd(false)),
        ),
    ];
    for (name, case) in cases {
        let bytes = target.foreign(|change| case(&mut change.operations[0]));
        let refused = target.refuses(&bytes);
        assert!(
            matches!(
                refused,
                DecodeError::Dialect | DecodeError::UnknownColumn | DecodeError::NotCanonical
            ),
            "{name}: {refused:?}"
        );
    }
}

#[test]
fn a_value_of_a_type_that_nobody_knows() {
    let mut target = Target::new();
    let bytes = target.foreign(|change| {
        change.operations[0].action = OpType::Put(ScalarValue::Unknown {
            type_code: 12,
            bytes: vec![1, 2, 3],
        });
    });
    assert_eq!(target.refuses(&bytes), DecodeError::Dialect);
}

#[test]
fn a_key_in_the_wrong_bucket_or_the_wrong_form() {
    let mut target = Target::new();
    let id = target.task.to_string();
    let other = ObjectId::random(target.task.to_bits() + 1);
    assert_ne!(bucket(other), bucket(target.task));
    let mut mistyped = id.clone();
    mistyped.replace_range(..1, if id.starts_with('0') { "1" } else { "0" });
    // The spellings below are all read as the same id where people type them.
    let upper = ObjectId::random(0xabcd_ef12_3456).to_string();
    for (key, of) in [
        (format!("{other}/title"), target.task),
        (format!("{mistyped}/title"), target.task),
        (upper.to_uppercase() + "/title", upper.parse().unwrap()),
        (format!(" {id}/title"), target.task),
        (id.clone(), target.task),
        ("title".to_owned(), target.task),
    ] {
        let genesis = Genesis::of(target.document).actor;
        let genesis = automerge::ActorId::from(genesis.0.as_slice());
        let bytes = target.foreign(|change| {
            change.operations[0].key = Key::Map(key.as_str().into());
            change.operations[0].obj = Container::Id(ForeignOp(u64::from(bucket(of)) + 1, genesis));
        });
        assert_eq!(target.refuses(&bytes), DecodeError::Key, "{key:?}");
    }
    let bytes = target.foreign(|change| {
        change.operations[0].key = Key::Map(format!("{id}/").as_str().into());
    });
    assert_eq!(target.refuses(&bytes), DecodeError::Field);
}

#[test]
fn a_delete_of_nothing() {
    let mut target = Target::new();
    let bytes = target.foreign(|change| {
        change.operations[0].action = OpType::Delete;
        change.operations[0].pred = Vec::new().into();
    });
    assert_eq!(target.refuses(&bytes), DecodeError::DeleteOfNothing);
}

#[test]
fn a_time_that_automerge_cannot_subtract() {
    let mut target = Target::new();
    for time in [
        i64::MIN,
        -limits::CHANGE_SECS - 1,
        limits::CHANGE_SECS + 1,
        i64::MAX,
    ] {
        let bytes = target.foreign(|change| change.time = time);
        assert_eq!(target.refuses(&bytes), DecodeError::Time);
    }
    let bytes = target.foreign(|change| change.time = limits::CHANGE_SECS);
    let change = target.decode(&bytes).unwrap();
    target.admits(&change);
}

#[test]
fn no_operations() {
    let mut target = Target::new();
    let bytes = target.foreign(|change| change.operations.clear());
    let refused = target.refuses(&bytes);
    assert!(
        matches!(refused, DecodeError::Empty | DecodeError::UnusedActor),
        "{refused:?}"
    );
}

// ---------------------------------------------------------------------------------------------
// the verdict

#[test]
fn a_gap_in_the_sequence() {
    let mut target = Target::new();
    for given in [0, 2, 5, u64::MAX] {
        let change = target.author(|draft| draft.seq = given);
        let verdict = target.verdict(&change);
        assert!(
            matches!(verdict, Verdict::Sequence { expected: 1, given: found } if found == given),
            "{verdict}"
        );
        // What comes later may still be right; a place that is taken never is.
        assert_eq!(verdict.may_wait(), given > 1);
    }
}

#[test]
fn another_change_in_a_place_that_is_taken() {
    let mut target = Target::new();
    let first = target.author(|_| ());
    let twin = target.author(|draft| draft.time += 1);
    target.admits(&first);
    let verdict = target.verdict(&twin);
    assert!(
        matches!(
            verdict,
            Verdict::Sequence {
                expected: 2,
                given: 1
            }
        ),
        "{verdict}"
    );
    assert!(!verdict.may_wait());
}

#[test]
fn its_own_previous_change_is_missing_among_the_deps() {
    let mut target = Target::new();
    let before = target.replica.state(&stead());
    let first = target.author(|_| ());
    target.admits(&first);
    let second = target.author(|draft| {
        draft.seq = 2;
        draft.deps = before.heads.clone();
        draft.start_op = before.max_op + 1;
        draft.ops = vec![target.put("branch", "x")];
    });
    assert!(matches!(
        target.verdict(&second),
        Verdict::OwnPreviousMissing
    ));
    let second = target.author(|draft| {
        draft.seq = 2;
        draft.ops = vec![target.put("branch", "x")];
    });
    target.admits(&second);
}

#[test]
fn a_dep_that_is_not_here_may_come() {
    let mut target = Target::new();
    let change = target.author(|draft| draft.deps.push(ChangeHash([1; 32])));
    let verdict = target.verdict(&change);
    assert!(matches!(verdict, Verdict::DepMissing(hash) if hash == ChangeHash([1; 32])));
    assert!(verdict.may_wait());
}

#[test]
fn no_deps_at_all() {
    let mut target = Target::new();
    let change = target.author(|draft| {
        draft.deps.clear();
        draft.start_op = 1;
        draft.ops[0].preds.clear();
    });
    assert!(matches!(target.verdict(&change), Verdict::NoDeps));
}

#[test]
fn op_counters_that_do_not_follow_the_deps() {
    let mut target = Target::new();
    let expected = target.draft().start_op;
    for given in [expected - 1, expected + 1, limits::OP_COUNTER - 2] {
        let change = target.author(|draft| draft.start_op = given);
        let verdict = target.verdict(&change);
        assert!(matches!(verdict, Verdict::StartOp { .. }), "{verdict}");
        assert!(!verdict.may_wait());
    }
}

#[test]
fn a_predecessor_on_another_field_or_another_object() {
    let mut target = Target::new();
    let other = target
        .replica
        .document(&stead())
        .rows
        .iter()
        .find(|(id, _)| **id != target.task)
        .map(|(_, row)| row.preds("title")[0])
        .unwrap();
    for pred in [target.preds("status")[0], other] {
        let change = target.author(|draft| draft.ops[0].preds = vec![pred]);
        let verdict = target.verdict(&change);
        assert!(
            matches!(verdict, Verdict::PredOfOtherField { .. }),
            "{verdict}"
        );
    }
}

#[test]
fn a_predecessor_in_the_change_itself() {
    let mut target = Target::new();
    let start_op = target.draft().start_op;
    for (op, pred) in [(0, 0), (1, 0), (0, 1)] {
        let change = target.author(|draft| {
            draft.ops.push(draft.ops[0].clone());
            draft.ops[op].preds = vec![OpId {
                counter: start_op + pred,
                actor: EVIL,
            }];
        });
        let verdict = target.verdict(&change);
        assert!(matches!(verdict, Verdict::PredOfOwn { .. }), "{verdict}");
    }
}

#[test]
fn a_predecessor_that_does_not_exist() {
    let mut target = Target::new();
    let start_op = target.draft().start_op;
    let own = target.preds("title")[0].actor;
    let genesis = Genesis::of(target.document).actor;
    for (counter, actor) in [
        (1, ActorId([1; 16])),
        (start_op + 5, own),
        (1, own),
        (u64::from(bucket(target.task)) + 1, genesis),
        (0, own),
    ] {
        let change = target.author(|draft| draft.ops[0].preds = vec![OpId { counter, actor }]);
        // Some of these do not even encode to what decodes again, which is as good.
        if target.decode(&change.bytes).is_err() {
            assert_eq!(counter, 0);
            continue;
        }
        let verdict = target.verdict(&change);
        assert!(matches!(verdict, Verdict::PredUnknown { .. }), "{verdict}");
    }
}

/// Who replaces what he cannot have seen would take it away from those who can see it.
#[test]
fn a_predecessor_that_is_no_ancestor() {
    let mut target = Target::new();
    let before = target.draft();
    let id = target.task.to_string();
    target.replica.on_done(
        &id,
        serde_json::json!({"action": "update", "title": "newer"}),
    );
    let newer = target.preds("title");
    assert_ne!(newer, before.ops[0].preds);
    let mut draft = before.clone();
    draft.ops[0].preds = newer;
    let change = Change::author(target.document, draft).unwrap();
    let verdict = target.verdict(&change);
    assert!(
        matches!(verdict, Verdict::PredNotAncestor { .. }),
        "{verdict}"
    );
    // What he has seen is replaced and the newer value stays beside his.
    let change = Change::author(target.document, before).unwrap();
    target.admits(&change);
    assert_eq!(target.preds("title").len(), 2);
}

/// Automerge takes such a change, saves the document, and cannot load what it saved.
#[test]
fn a_predecessor_that_is_a_delete() {
    let mut target = Target::new();
    let id = target.task.to_string();
    target
        .replica
        .on_done(&id, serde_json::json!({"action": "update", "branch": "x"}));
    let put = target.preds("branch");
    target
        .replica
        .on_done(&id, serde_json::json!({"action": "update", "branch": null}));
    let delete = OpId {
        counter: target.draft().start_op - 1,
        ..put[0]
    };
    for preds in [vec![delete], vec![put[0], delete]] {
        let op = Op {
            preds,
            ..target.put("branch", "y")
        };
        let change = target.author(|draft| draft.ops = vec![op]);
        let verdict = target.verdict(&change);
        assert!(
            matches!(verdict, Verdict::PredUnknown { pred, .. } if pred == delete),
            "{verdict}"
        );
    }
    // What was deleted is replaced by nobody and may be named.
    let op = Op {
        preds: put.clone(),
        ..target.put("branch", "y")
    };
    let change = target.author(|draft| draft.ops = vec![op]);
    target.admits(&change);
}

#[test]
fn a_derived_id_needs_the_name_that_gives_it() {
    let mut target = Target::new();
    let made_by = |target: &Target, id: ObjectId, message: Message| {
        target.author(|draft| {
            draft.message = message;
            draft.ops = vec![Op {
                object: id,
                field: "kind".into(),
                action: Action::Put("task".into()),
                preds: Vec::new(),
            }];
        })
    };
    let name = Message::key_name("c_ada", "k");
    let id = ObjectId::derived(target.document, &name);
    let named = |credential: &str, key: Option<&str>, names: &[&str]| Message {
        credential: credential.into(),
        key: key.map(Into::into),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Message::default()
    };
    let elsewhere = ObjectId::derived(DocumentName::workspace().id(WORKSPACE), &name);
    for (object, message) in [
        (id, named("c_ada", Some("k"), &[])),
        (id, named("c_ada", Some("k"), &["key:c_ada:kk"])),
        (id, named("c_ada", None, &[&name])),
        (id, named("c_ada", Some("kk"), &[&name])),
        (id, named("c_grace", Some("k"), &[&name])),
        (elsewhere, named("c_ada", Some("k"), &[&name])),
    ] {
        let change = made_by(&target, object, message);
        let verdict = target.verdict(&change);
        assert!(
            matches!(verdict, Verdict::DerivedId(found) if found == object),
            "{verdict}"
        );
    }
    let change = made_by(&target, id, named("c_ada", Some("k"), &[&name]));
    target.admits(&change);
}

#[test]
fn a_change_of_the_genesis_actor() {
    let mut target = Target::new();
    let genesis = Genesis::of(target.document);
    for seq in [1, 2] {
        let change = target.author(|draft| {
            draft.actor = genesis.actor;
            draft.seq = seq;
        });
        assert!(matches!(target.verdict(&change), Verdict::GenesisActor));
    }
}

// ---------------------------------------------------------------------------------------------
// odd, admitted, and the same to Automerge

#[test]
fn a_field_twice_in_one_change() {
    let mut target = Target::new();
    let change = target.author(|draft| {
        draft.ops.push(target.put("title", "once more"));
        draft.ops.push(target.put("branch", "x"));
        draft.ops.push(target.put("title", "and more"));
        draft.ops.push(target.put("branch", "y"));
    });
    target.admits(&change);
    assert_eq!(target.preds("title").len(), 3);
    let preds = target.preds("branch");
    let change = target.author(|draft| {
        draft.seq = 2;
        let delete = Op {
            action: Action::Delete,
            ..target.put("branch", "")
        };
        draft.ops = vec![delete.clone(), target.put("branch", "z"), delete];
    });
    assert_eq!(preds.len(), 2);
    target.admits(&change);
    assert_eq!(target.preds("branch").len(), 1);
}

#[test]
fn a_dep_that_another_dep_covers() {
    let mut target = Target::new();
    let change = target.author(|draft| {
        let document = target.replica.document(&stead());
        draft.deps.push(document.changes[0].0.hash);
        draft.deps.push(Genesis::of(target.document).hash);
    });
    assert_eq!(change.deps.len(), 3);
    target.admits(&change);
}

/// Foreign software may replace an older value and leave a newer one that it has seen.
#[test]
fn a_predecessor_that_is_replaced_already() {
    let mut target = Target::new();
    let id = target.task.to_string();
    let old = target.preds("title");
    target.replica.on_done(
        &id,
        serde_json::json!({"action": "update", "title": "newer"}),
    );
    let change = target.author(|draft| draft.ops[0].preds = old.clone());
    target.admits(&change);
    assert_eq!(target.preds("title").len(), 2);
}

#[test]
fn an_overwrite_that_names_no_predecessor() {
    let mut target = Target::new();
    let change = target.author(|draft| draft.ops[0].preds.clear());
    target.admits(&change);
    assert_eq!(target.preds("title").len(), 2);
}

#[test]
fn a_message_that_is_no_json_or_none_at_all() {
    let mut target = Target::new();
    let bytes = target.foreign(|change| change.message = Some("fix typo \u{1f}".into()));
    let change = target.decode(&bytes).unwrap();
    assert_eq!(change.message, Message::default());
    target.admits(&change);
    let mut target = Target::new();
    let bytes = target.foreign(|change| {
        change.message = None;
        change.time = -limits::CHANGE_SECS;
    });
    let change = target.decode(&bytes).unwrap();
    target.admits(&change);
    // Shown, though it says nothing about who made it and when.
    assert_eq!(
        target.replica.show(&target.task.to_string())["title"],
        "theirs"
    );
}

// ---------------------------------------------------------------------------------------------
// chance

/// Random damage to good changes, the checksum made right again: refused, or admitted and then
/// the same to Automerge, which still saves and loads the document.
#[test]
fn random_damage_is_refused_or_harmless() {
    let rounds = count("STEAD_MUTATIONS", 6_000);
    let mut target = Target::new();
    let id = target.task.to_string();
    // A conflict, so that there are changes with several predecessors from several actors.
    let apart = target.author(|_| ());
    target.replica.on_done(
        &id,
        serde_json::json!({"action": "update", "title": "mine again"}),
    );
    target.admits(&apart);
    let second = |draft: &mut Draft| draft.seq = 2;
    let seeds = [
        target.author(|draft| {
            second(draft);
            draft.ops.push(target.put("tag/ui", true));
            draft.ops.push(target.put("rank", Scalar::F64(0.5)));
        }),
        target.author(|draft| {
            second(draft);
            draft.ops[0].action = Action::Delete;
        }),
        target.author(|draft| {
            second(draft);
            for n in 0..40 {
                draft.ops.push(target.put(&format!("state/{n}"), n));
            }
        }),
    ];
    for change in &seeds {
        assert!(target.decode(&change.bytes).is_ok());
    }
    let (mut decoded, mut admitted) = (0, 0);
    for round in 0..rounds {
        let mut random = Random::seeded(round);
        let mut parts = Parts::of(&random.pick(&seeds).bytes);
        let bytes = if random.once_in(2) {
            damage(&mut parts, &mut random);
            parts.seal()
        } else {
            let mut body = parts.body();
            splice(&mut body, &mut random);
            seal(1, &body)
        };
        let Ok(change) = target.decode(&bytes) else {
            continue;
        };
        decoded += 1;
        let document = target.replica.document(&stead());
        if stead_doc::verdict::judge(target.document, document, &change).is_err() {
            continue;
        }
        admitted += 1;
        let mut copy = Target {
            replica: target.replica.clone(),
            ..target
        };
        copy.admits(&change);
        copy.replica.export();
        copy.replica.show(&id);
    }
    assert!(
        decoded > rounds / 100,
        "{decoded} of {rounds} decoded: the damage is too blunt"
    );
    assert!(
        admitted > rounds / 500,
        "{admitted} of {decoded} admitted: the damage is too blunt"
    );
}

/// Damage where it means something: a field of the format gets another value.
fn damage(parts: &mut Parts, random: &mut Random) {
    for _ in 0..=random.below(2) {
        match random.below(9) {
            0 => splice(&mut parts.message, random),
            1 => splice(&mut parts.actor, random),
            2 => parts.seq = random.below(5) as u64,
            3 => parts.start_op = parts.start_op.wrapping_add(random.below(3) as u64),
            4 => {
                parts.deps.push(random.bytes());
                parts.deps.sort_unstable();
            }
            5 => {
                if let Some(actor) = parts.actors.last_mut() {
                    splice(actor, random);
                }
            }
            6 => {
                let at = random.below(parts.columns.len());
                parts.columns[at].0 ^= 1 << random.below(8);
            }
            _ => {
                let at = random.below(parts.columns.len());
                splice(&mut parts.columns[at].1, random);
            }
        }
    }
}

fn splice(bytes: &mut Vec<u8>, random: &mut Random) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    let at = random.below(bytes.len());
    match random.below(6) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes.insert(at, random.next() as u8),
        3 => {
            bytes.remove(at);
        }
        4 => bytes[at] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
        _ => {
            let end = (at + 1 + random.below(8)).min(bytes.len());
            let copy = bytes[at..end].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, copy);
        }
    }
}

/// The replica used here answers `History` from vector clocks; on that rests what was tested.
#[test]
fn the_test_replica_knows_ancestors() {
    let target = Target::new();
    let document = target.replica.document(&stead());
    let heads: Vec<_> = document.heads.iter().copied().collect();
    for (change, _) in &document.changes {
        assert!(
            document
                .is_ancestor(&heads, change.actor, change.seq)
                .unwrap()
        );
        assert!(
            !document
                .is_ancestor(&change.deps, change.actor, change.seq)
                .unwrap()
        );
    }
}
