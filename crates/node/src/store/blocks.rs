//! Packed runs of the log: at most 256 consecutive changes of one actor, compressed, without the
//! bytes that can be derived.

use sha2::{Digest, Sha256};

use super::{
    Damage, StoreError,
    codec::{self, Reader, put_bytes, put_int, put_uint},
};

/// One change as the log holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEntry {
    /// When it came here, milliseconds since 1970.
    pub(crate) seen: i64,
    /// Its hash.
    pub(crate) hash: [u8; 32],
    /// Its bytes, as received.
    pub(crate) bytes: Vec<u8>,
}

/// The most changes of a block: what is read to serve one of them stays small.
pub(crate) const BLOCK_CHANGES: usize = 256;

/// Bytes of a slice of a block: redb rounds large values up to powers of two, and a slice of this
/// size fills a page of 4 KiB with its key.
pub(crate) const SLICE_BYTES: usize = 3_900;

const LEVEL: i32 = 9;

/// Packs consecutive changes of one actor; `before` is the hash of the change before the first.
pub(crate) fn pack(
    actor: [u8; 16],
    before: Option<[u8; 32]>,
    entries: &[LogEntry],
) -> Result<Vec<u8>, StoreError> {
    let mut plain = Vec::new();
    plain.extend(actor);
    plain.push(u8::from(before.is_some()));
    plain.extend(before.unwrap_or_default());
    put_uint(&mut plain, entries.len() as u64);
    let mut previous = before;
    let mut seen = 0;
    for entry in entries {
        put_int(&mut plain, entry.seen - seen);
        seen = entry.seen;
        match strip(&entry.bytes, actor, previous) {
            Some((dep, stripped)) => {
                plain.push(dep);
                put_bytes(&mut plain, &stripped);
            }
            None => {
                plain.push(WHOLE);
                put_bytes(&mut plain, &entry.bytes);
            }
        }
        previous = Some(entry.hash);
    }
    let mut out = Vec::new();
    put_uint(&mut out, plain.len() as u64);
    out.extend(zstd::bulk::compress(&plain, LEVEL).map_err(StoreError::Io)?);
    Ok(codec::seal(&out))
}

/// The changes of a block, byte for byte as they were packed.
///
/// # Errors
///
/// Where the block is damaged.
pub(crate) fn unpack(record: &[u8]) -> Result<Vec<LogEntry>, Damage> {
    const WHAT: &str = "log block";
    let mut outer = Reader::new(codec::open(record, WHAT)?, WHAT);
    let size = usize::try_from(outer.uint()?)
        .ok()
        .filter(|size| *size <= BLOCK_BYTES)
        .ok_or_else(|| outer.damage())?;
    let plain = zstd::bulk::decompress(outer.rest(), size).map_err(|_| Damage { what: WHAT })?;
    let mut reader = Reader::new(&plain, WHAT);
    let actor: [u8; 16] = reader.array()?;
    let [has_before] = reader.array()?;
    let before: [u8; 32] = reader.array()?;
    let mut previous = (has_before != 0).then_some(before);
    let mut entries = Vec::new();
    let mut seen = 0;
    for _ in 0..reader.count()? {
        seen += reader.int()?;
        let [dep] = reader.array()?;
        let content = reader.bytes()?;
        let (bytes, hash) = if dep == WHOLE {
            (
                content.to_vec(),
                hash_of(content).ok_or_else(|| reader.damage())?,
            )
        } else {
            restore(dep, content, actor, previous).ok_or_else(|| reader.damage())?
        };
        entries.push(LogEntry { seen, hash, bytes });
        previous = Some(hash);
    }
    Ok(entries)
}

/// Bytes of a block before compression: 256 changes of the largest size.
const BLOCK_BYTES: usize = BLOCK_CHANGES * (1 << 20);
/// In place of the index of the own previous change: the change is kept whole.
const WHOLE: u8 = 255;
/// In place of that index: there is no previous change.
const NONE: u8 = 254;

/// The body of a change chunk without its own previous hash and its actor, and where that hash was.
fn strip(bytes: &[u8], actor: [u8; 16], previous: Option<[u8; 32]>) -> Option<(u8, Vec<u8>)> {
    let body = body(bytes)?;
    let (count, rest) = read_uleb(body)?;
    let (deps, rest) = rest.split_at_checked(usize::try_from(count).ok()?.checked_mul(32)?)?;
    let rest = rest.strip_prefix(&[16])?.strip_prefix(&actor)?;
    let dep = match previous {
        Some(hash) => {
            let at = deps.chunks_exact(32).position(|dep| dep == hash)?;
            u8::try_from(at).ok().filter(|at| *at < NONE)?
        }
        None => NONE,
    };
    let mut out = Vec::with_capacity(body.len());
    put_uint(&mut out, count);
    for (at, hash) in deps.chunks_exact(32).enumerate() {
        if at != usize::from(dep) {
            out.extend(hash);
        }
    }
    out.extend(rest);
    // Only where putting it back gives the same bytes: a packed change is never another one.
    (restore(dep, &out, actor, previous)?.0 == bytes).then_some((dep, out))
}

fn restore(
    dep: u8,
    stripped: &[u8],
    actor: [u8; 16],
    previous: Option<[u8; 32]>,
) -> Option<(Vec<u8>, [u8; 32])> {
    let (count, mut rest) = read_uleb(stripped)?;
    let mut body = Vec::with_capacity(stripped.len() + 56);
    put_uint(&mut body, count);
    for at in 0..count {
        if at == u64::from(dep) {
            body.extend(previous?);
        } else {
            let (hash, after) = rest.split_at_checked(32)?;
            body.extend(hash);
            rest = after;
        }
    }
    body.push(16);
    body.extend(actor);
    body.extend(rest);
    let mut hashed = vec![1];
    put_uint(&mut hashed, body.len() as u64);
    hashed.extend(&body);
    let hash: [u8; 32] = Sha256::digest(&hashed).into();
    let mut bytes = vec![0x85, 0x6f, 0x4a, 0x83];
    bytes.extend(hash.get(..4)?);
    bytes.extend(hashed);
    Some((bytes, hash))
}

/// The hash of an uncompressed change chunk.
pub(crate) fn hash_of(chunk: &[u8]) -> Option<[u8; 32]> {
    body(chunk)?;
    Some(Sha256::digest(chunk.get(8..)?).into())
}

fn body(chunk: &[u8]) -> Option<&[u8]> {
    let rest = chunk.get(8..)?.strip_prefix(&[1])?;
    let (length, body) = read_uleb(rest)?;
    (length == body.len() as u64).then_some(body)
}

fn read_uleb(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}
