//! Bytes on disk: records with version, length and checksum, and varints inside them.

use super::Damage;

/// The version of the record frame.
const VERSION: u8 = 1;
const HEADER: usize = 9;

/// A record: version, length, checksum, content.
pub(crate) fn seal(content: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + content.len());
    record.push(VERSION);
    record.extend((content.len() as u32).to_le_bytes());
    record.extend(checksum(content));
    record.extend(content);
    record
}

/// The content of a record.
///
/// # Errors
///
/// Where the record is not what was written.
pub(crate) fn open<'a>(record: &'a [u8], what: &'static str) -> Result<&'a [u8], Damage> {
    let damage = || Damage { what };
    let (header, content) = record.split_at_checked(HEADER).ok_or_else(damage)?;
    let [version, a, b, c, d, sum @ ..] = header else {
        return Err(damage());
    };
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    if *version != VERSION || length != content.len() || sum != checksum(content) {
        return Err(damage());
    }
    Ok(content)
}

fn checksum(content: &[u8]) -> [u8; 4] {
    let [a, b, c, d, ..] = *blake3::hash(content).as_bytes();
    [a, b, c, d]
}

/// Appends a varint.
pub(crate) fn put_uint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Appends bytes with their length before them.
pub(crate) fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(to, bytes.len() as u64);
    to.extend(bytes);
}

/// Appends a signed number as a varint.
pub(crate) fn put_int(to: &mut Vec<u8>, value: i64) {
    put_uint(to, ((value << 1) ^ (value >> 63)) as u64);
}

/// Reads what the `put` functions wrote; running out is damage.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn damage(&self) -> Damage {
        Damage { what: self.what }
    }

    pub(crate) fn uint(&mut self) -> Result<u64, Damage> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.damage())
    }

    pub(crate) fn int(&mut self) -> Result<i64, Damage> {
        let raw = self.uint()?;
        Ok(((raw >> 1) as i64) ^ -((raw & 1) as i64))
    }

    pub(crate) fn small(&mut self) -> Result<u32, Damage> {
        u32::try_from(self.uint()?).map_err(|_| self.damage())
    }

    /// A count of things that each take at least one byte of what is left.
    pub(crate) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.uint()?;
        if count > self.bytes.len() as u64 {
            Err(self.damage())
        } else {
            Ok(count as usize)
        }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Damage> {
        let (front, rest) = self
            .bytes
            .split_at_checked(count)
            .ok_or_else(|| self.damage())?;
        self.bytes = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        self.take(N)?.try_into().map_err(|_| self.damage())
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let count = self.count()?;
        self.take(count)
    }

    /// Bytes that are still to be read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    pub(crate) fn text(&mut self) -> Result<String, Damage> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.damage())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_and_bytes_survive(a in any::<u64>(), b in any::<i64>(), c in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = Vec::new();
            put_uint(&mut bytes, a);
            put_int(&mut bytes, b);
            put_bytes(&mut bytes, &c);
            let mut reader = Reader::new(&bytes, "test");
            prop_assert_eq!(reader.uint().unwrap(), a);
            prop_assert_eq!(reader.int().unwrap(), b);
            prop_assert_eq!(reader.bytes().unwrap(), c);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn a_flipped_bit_in_a_record_is_damage(content in proptest::collection::vec(any::<u8>(), 1..60), at in any::<proptest::sample::Index>(), bit in 0..8u32) {
            let mut record = seal(&content);
            prop_assert_eq!(open(&record, "test").unwrap(), content);
            let index = at.index(record.len());
            record[index] ^= 1 << bit;
            prop_assert!(open(&record, "test").is_err());
        }

        #[test]
        fn reading_hostile_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut reader = Reader::new(&bytes, "test");
            while let Ok(text) = reader.bytes() {
                let _ = text.len();
                if reader.is_empty() { break; }
            }
        }
    }

    #[test]
    fn a_truncated_record_is_damage() {
        let record = seal(b"content");
        for end in 0..record.len() {
            assert!(open(&record[..end], "test").is_err());
        }
    }
}
