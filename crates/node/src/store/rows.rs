//! How a row is stored: op ids with short actor numbers, compressed with a built-in dictionary.

use std::collections::BTreeMap;

use stead_doc::{
    hlc::Hlc,
    id::{ActorId, OpId},
    row::{Cell, Collapse, Row, Stamp, TextRef, Touch, Value},
    scalar::Scalar,
};
use zstd::bulk::{Compressor, Decompressor};

use super::{
    Damage, StoreError,
    codec::{self, Reader, put_bytes, put_int, put_uint},
};

/// A row with what this node alone knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stored {
    /// The merged state.
    pub(crate) row: Row,
    /// When the change with the least stamp came here.
    pub(crate) created_seen: i64,
    /// When the change with the greatest stamp came here.
    pub(crate) updated_seen: i64,
    /// The arrival number of the last change that touched it here.
    pub(crate) arrival: u64,
    /// Whether it stands in the index of tasks to take up.
    pub(crate) next: bool,
    /// Whether somebody has to decide something about it.
    pub(crate) open: bool,
}

/// Numbers for actors and credentials, which rows hold many of.
pub(crate) trait Numbers {
    /// The number of an actor, given now where it has none.
    fn actor_number(&mut self, actor: ActorId) -> u32;
    /// The actor of a number.
    fn actor(&self, number: u32) -> Option<ActorId>;
    /// The number of a name, given now where it has none.
    fn name_number(&mut self, name: &str) -> u32;
    /// The name of a number.
    fn name(&self, number: u32) -> Option<&str>;
}

/// Encodes and decodes rows; holds the prepared dictionary.
pub(crate) struct RowCodec {
    compressor: Compressor<'static>,
}

impl std::fmt::Debug for RowCodec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RowCodec")
    }
}

impl RowCodec {
    pub(crate) fn new() -> Result<Self, StoreError> {
        Ok(Self {
            compressor: Compressor::with_dictionary(LEVEL, DICTIONARY).map_err(StoreError::Io)?,
        })
    }

    pub(crate) fn encode(
        &mut self,
        stored: &Stored,
        numbers: &mut dyn Numbers,
    ) -> Result<Vec<u8>, StoreError> {
        let plain = encode(stored, numbers);
        Ok(codec::seal(
            &self.compressor.compress(&plain).map_err(StoreError::Io)?,
        ))
    }

    /// A long text as it is kept.
    pub(crate) fn encode_text(&mut self, text: &str) -> Result<Vec<u8>, StoreError> {
        Ok(codec::seal(
            &self
                .compressor
                .compress(text.as_bytes())
                .map_err(StoreError::Io)?,
        ))
    }
}

/// What a row's record holds, for [`decode_row`].
///
/// # Errors
///
/// Where the record is damaged.
pub(crate) fn open_row(record: &[u8]) -> Result<Vec<u8>, Damage> {
    inflate(codec::open(record, "row")?, ROW_BYTES, "row")
}

/// What a long text's record holds.
///
/// # Errors
///
/// Where the record is damaged.
pub(crate) fn open_text(record: &[u8]) -> Result<Vec<u8>, Damage> {
    let text = codec::open(record, "text")?;
    inflate(text, stead_doc::limits::TEXT_BYTES, "text")
}

/// A long text.
///
/// # Errors
///
/// Where it is damaged.
pub(crate) fn decode_text(plain: Vec<u8>) -> Result<String, Damage> {
    String::from_utf8(plain).map_err(|_| Damage { what: "text" })
}

fn inflate(bytes: &[u8], max: usize, what: &'static str) -> Result<Vec<u8>, Damage> {
    thread_local! {
        // A prepared dictionary for each thread that reads: preparing it costs more than using it.
        static DECOMPRESSOR: std::cell::RefCell<Option<Decompressor<'static>>> = const { std::cell::RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = Decompressor::with_dictionary(DICTIONARY).ok();
        }
        let size = zstd::zstd_safe::get_frame_content_size(bytes)
            .ok()
            .flatten()
            .unwrap_or(0);
        let capacity = usize::try_from(size)
            .ok()
            .filter(|size| *size <= max)
            .ok_or(Damage { what })?;
        let decompressor = slot.as_mut().ok_or(Damage { what })?;
        decompressor
            .decompress(bytes, capacity)
            .map_err(|_| Damage { what })
    })
}

/// Bytes of a row before compression: more than [`stead_doc::limits`] let one object hold.
const ROW_BYTES: usize = 64 << 20;

/// A row is compressed on every write; level 3 costs microseconds more than 1 and saves a tenth.
const LEVEL: i32 = 3;

/// What rows and texts of a board have in common. Part of the store's format: another text here is
/// another [`super::FORMAT`].
const DICTIONARY: &[u8] = br#"The problem is that when the node is not running we should add a test for this and make sure that it works with existing data. Currently there is no way to see which tasks are blocked, so that agents do not pick up the same issue. Steps to reproduce: Expected: Actual: ## Summary ## Context ## Acceptance Criteria - [ ] ## Notes Implementation: update the documentation and the README, fix the error message, handle the case where the file does not exist, return an error instead of panic. This should be done after the change in https://github.com/ function command line configuration database server client request response version migration performance integration tests pull request merge conflict review commit branch main "#;

fn encode(stored: &Stored, numbers: &mut dyn Numbers) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    let row = &stored.row;
    put_uint(&mut out, row.cells.len() as u64);
    for (field, cell) in &row.cells {
        match COMMON_FIELDS.iter().position(|known| known == field) {
            Some(at) => put_uint(&mut out, at as u64 + 1),
            None => {
                put_uint(&mut out, 0);
                put_bytes(&mut out, field.as_bytes());
            }
        }
        put_uint(&mut out, cell.0.len() as u64);
        for (op, value) in &cell.0 {
            put_op(&mut out, *op, numbers);
            put_value(&mut out, value);
        }
    }
    put_uint(&mut out, row.touched.len() as u64);
    for (actor, touch) in &row.touched {
        put_uint(&mut out, u64::from(numbers.actor_number(*actor)));
        put_uint(&mut out, touch.max_op);
        put_uint(&mut out, touch.seq);
    }
    out.extend(row.sum.to_le_bytes());
    for stamp in [&row.created, &row.updated] {
        match stamp {
            None => out.push(0),
            Some(stamp) => {
                out.push(if stamp.label.is_some() { 2 } else { 1 });
                put_uint(&mut out, stamp.hlc.0);
                put_uint(&mut out, u64::from(numbers.actor_number(stamp.actor)));
                put_uint(&mut out, stamp.counter);
                put_uint(&mut out, u64::from(numbers.name_number(&stamp.credential)));
                if let Some(label) = &stamp.label {
                    put_bytes(&mut out, label.as_bytes());
                }
            }
        }
    }
    put_uint(&mut out, row.collapsed.len() as u64);
    for (by, collapse) in &row.collapsed {
        put_op(&mut out, *by, numbers);
        put_bytes(&mut out, collapse.field.as_bytes());
        put_uint(&mut out, collapse.lost.len() as u64);
        for op in &collapse.lost {
            put_op(&mut out, *op, numbers);
        }
    }
    put_int(&mut out, stored.created_seen);
    put_int(&mut out, stored.updated_seen - stored.created_seen);
    put_uint(&mut out, stored.arrival);
    out.push(u8::from(stored.next) | u8::from(stored.open) << 1);
    out
}

/// Decodes a row.
///
/// # Errors
///
/// Where it is damaged.
pub(crate) fn decode_row(plain: &[u8], numbers: &dyn Numbers) -> Result<Stored, Damage> {
    let mut reader = Reader::new(plain, "row");
    let mut row = Row::default();
    for _ in 0..reader.count()? {
        let field = match reader.uint()? {
            0 => reader.text()?,
            known => COMMON_FIELDS
                .get(known as usize - 1)
                .map(|field| (*field).to_owned())
                .ok_or_else(|| reader.damage())?,
        };
        let mut cell = Vec::new();
        for _ in 0..reader.count()? {
            let op = read_op(&mut reader, numbers)?;
            cell.push((op, read_value(&mut reader)?));
        }
        row.cells.insert(field, Cell(cell));
    }
    let mut touched = BTreeMap::new();
    for _ in 0..reader.count()? {
        let actor = read_actor(&mut reader, numbers)?;
        touched.insert(
            actor,
            Touch {
                max_op: reader.uint()?,
                seq: reader.uint()?,
            },
        );
    }
    row.touched = touched;
    row.sum = u128::from_le_bytes(reader.array()?);
    row.created = read_stamp(&mut reader, numbers)?;
    row.updated = read_stamp(&mut reader, numbers)?;
    for _ in 0..reader.count()? {
        let by = read_op(&mut reader, numbers)?;
        let field = reader.text()?;
        let mut lost = Vec::new();
        for _ in 0..reader.count()? {
            lost.push(read_op(&mut reader, numbers)?);
        }
        row.collapsed.insert(by, Collapse { field, lost });
    }
    let created_seen = reader.int()?;
    let updated_seen = created_seen + reader.int()?;
    let arrival = reader.uint()?;
    let [flags] = reader.array()?;
    if !reader.is_empty() {
        return Err(reader.damage());
    }
    Ok(Stored {
        row,
        created_seen,
        updated_seen,
        arrival,
        next: flags & 1 != 0,
        open: flags & 2 != 0,
    })
}

/// Fields that nearly every row has, stored as one byte. Part of the format.
const COMMON_FIELDS: [&str; 24] = [
    "kind",
    "title",
    "body",
    "status",
    "priority",
    "type",
    "assignee",
    "parentId",
    "sprintId",
    "notes",
    "result",
    "lease",
    "blocker",
    "subject",
    "rank",
    "branch",
    "worktree",
    "dueDate",
    "abandonReason",
    "name",
    "goal",
    "archivedAt",
    "replyTo",
    "slug",
];

fn put_op(out: &mut Vec<u8>, op: OpId, numbers: &mut dyn Numbers) {
    put_uint(out, op.counter);
    put_uint(out, u64::from(numbers.actor_number(op.actor)));
}

fn read_op(reader: &mut Reader<'_>, numbers: &dyn Numbers) -> Result<OpId, Damage> {
    Ok(OpId {
        counter: reader.uint()?,
        actor: read_actor(reader, numbers)?,
    })
}

fn read_actor(reader: &mut Reader<'_>, numbers: &dyn Numbers) -> Result<ActorId, Damage> {
    let number = reader.small()?;
    numbers.actor(number).ok_or_else(|| reader.damage())
}

fn read_stamp(reader: &mut Reader<'_>, numbers: &dyn Numbers) -> Result<Option<Stamp>, Damage> {
    let [tag] = reader.array()?;
    if tag == 0 {
        return Ok(None);
    }
    let hlc = Hlc(reader.uint()?);
    let actor = read_actor(reader, numbers)?;
    let counter = reader.uint()?;
    let number = reader.small()?;
    let credential = numbers
        .name(number)
        .ok_or_else(|| reader.damage())?
        .to_owned();
    let label = if tag == 2 { Some(reader.text()?) } else { None };
    Ok(Some(Stamp {
        hlc,
        actor,
        counter,
        credential,
        label,
    }))
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Inline(Scalar::Null) => out.push(0),
        Value::Inline(Scalar::Bool(yes)) => out.push(1 + u8::from(*yes)),
        Value::Inline(Scalar::Int(number)) => {
            out.push(3);
            put_int(out, *number);
        }
        Value::Inline(Scalar::Uint(number)) => {
            out.push(4);
            put_uint(out, *number);
        }
        Value::Inline(Scalar::F64(number)) => {
            out.push(5);
            out.extend(number.to_bits().to_le_bytes());
        }
        Value::Inline(Scalar::Timestamp(number)) => {
            out.push(6);
            put_int(out, *number);
        }
        Value::Inline(Scalar::Bytes(bytes)) => {
            out.push(7);
            put_bytes(out, bytes);
        }
        Value::Inline(Scalar::Str(text)) => {
            out.push(8);
            put_bytes(out, text.as_bytes());
        }
        Value::Apart(text) => {
            out.push(9);
            put_uint(out, u64::from(text.bytes));
            out.extend(text.digest);
        }
    }
}

fn read_value(reader: &mut Reader<'_>) -> Result<Value, Damage> {
    let [tag] = reader.array()?;
    Ok(Value::Inline(match tag {
        0 => Scalar::Null,
        1 => Scalar::Bool(false),
        2 => Scalar::Bool(true),
        3 => Scalar::Int(reader.int()?),
        4 => Scalar::Uint(reader.uint()?),
        5 => Scalar::F64(f64::from_bits(u64::from_le_bytes(reader.array()?))),
        6 => Scalar::Timestamp(reader.int()?),
        7 => Scalar::Bytes(reader.bytes()?.to_vec()),
        8 => Scalar::Str(reader.text()?),
        9 => {
            return Ok(Value::Apart(TextRef {
                bytes: reader.small()?,
                digest: reader.array()?,
            }));
        }
        _ => return Err(reader.damage()),
    }))
}
