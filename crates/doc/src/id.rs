//! Identifiers: objects with a check character, documents, actors, operations, changes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of an object: 59 bits, one bit that says whether they are random or derived, and a
/// check character.
///
/// Shown as 13 lower-case Crockford base32 characters. The check is a weighted sum over GF(32)
/// with distinct weights, so every single wrong character and every swap of two characters is
/// noticed: a mistyped id is an error and never another object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(u64);

impl ObjectId {
    /// An id from 59 bits of entropy; the rest of `entropy` is ignored.
    pub const fn random(entropy: u64) -> Self {
        Self((entropy & (Self::LIMIT - 1)) & !Self::DERIVED)
    }

    /// The id that `name` has in the document `document`: the same on every node, so that equal
    /// creates made apart converge on one object.
    pub fn derived(document: DocumentId, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"stead object id 1");
        hasher.update(&document.0);
        hasher.update(name.as_bytes());
        let hash = hasher.finalize();
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        let bits = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        Self((bits & (Self::LIMIT - 1)) | Self::DERIVED)
    }

    /// Whether the id was derived from a name, so that whoever creates it must show the name.
    pub const fn is_derived(self) -> bool {
        self.0 & Self::DERIVED != 0
    }

    /// The 60 bits as a number.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The id with these 60 bits, or nothing where there are more.
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits < Self::LIMIT {
            Some(Self(bits))
        } else {
            None
        }
    }

    const LIMIT: u64 = 1 << 60;
    /// The top bit of the sixty.
    const DERIVED: u64 = 1 << 59;
    const DIGITS: usize = 12;
    /// Characters of an id as it is shown, check included.
    pub const LEN: usize = Self::DIGITS + 1;

    fn digits(self) -> [u8; Self::DIGITS] {
        let mut digits = [0; Self::DIGITS];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = ((self.0 >> (5 * (Self::DIGITS - 1 - i))) & 31) as u8;
        }
        digits
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        let mut text = [0u8; Self::LEN];
        for (to, digit) in text.iter_mut().zip(digits.iter().chain([&check(&digits)])) {
            *to = symbol(*digit);
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ObjectId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let mut digits = [0u8; Self::LEN];
        let mut count = 0;
        for character in text.trim().chars() {
            let slot = digits.get_mut(count).ok_or(InvalidId::Length)?;
            *slot = value(character).ok_or(InvalidId::Character(character))?;
            count += 1;
        }
        if count != Self::LEN {
            return Err(InvalidId::Length);
        }
        let (body, last) = digits.split_at(Self::DIGITS);
        if last != [check(body)] {
            return Err(InvalidId::Check);
        }
        Ok(Self(
            body.iter()
                .fold(0, |bits, digit| (bits << 5) | u64::from(*digit)),
        ))
    }
}

impl Serialize for ObjectId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Why a text is no object id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidId {
    /// One character is not right, or two changed places.
    #[error("its check character does not match")]
    Check,
    /// A character that no id has.
    #[error("{0:?} is in no id")]
    Character(char),
    /// Too short or too long.
    #[error("an id has {len} characters", len = ObjectId::LEN)]
    Length,
}

/// A document: 16 bytes derived from the workspace and the document's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentId(pub [u8; 16]);

/// Who made a change, as Automerge sees it: one device in one document in one incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorId(pub [u8; 16]);

impl ActorId {
    /// Five characters that stand for the actor in revisions and op ids shown to people.
    pub fn tag(self) -> ActorTag {
        let [a, b, c, d, ..] = self.0;
        ActorTag(u32::from_be_bytes([a, b, c, d]) >> 7)
    }
}

/// The first 25 bits of an actor, shown as five base32 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorTag(u32);

impl ActorTag {
    /// Characters of a tag.
    pub const LEN: usize = 5;
}

impl fmt::Display for ActorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32(u64::from(self.0), Self::LEN))
    }
}

impl fmt::Debug for ActorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ActorTag {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.chars().count() != Self::LEN {
            return Err(InvalidId::Length);
        }
        let mut bits = 0;
        for character in text.chars() {
            bits =
                (bits << 5) | u32::from(value(character).ok_or(InvalidId::Character(character))?);
        }
        Ok(Self(bits))
    }
}

/// One operation of one change. Ordered as Automerge orders it: counter first, then actor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// The Lamport counter of the operation.
    pub counter: u64,
    /// The actor that made it.
    pub actor: ActorId,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.counter, self.actor.tag())
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The SHA-256 that names a change, as Automerge computes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeHash(pub [u8; 32]);

macro_rules! hexadecimal {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
hexadecimal!(DocumentId, ActorId, ChangeHash);

/// The low `digits * 5` bits of `bits` in lower-case Crockford base32, most significant first.
pub fn base32(bits: u64, digits: usize) -> String {
    (0..digits)
        .rev()
        .map(|i| char::from(symbol(((bits >> (5 * i)) & 31) as u8)))
        .collect()
}

/// The number that a base32 text of at most 12 characters shows.
pub fn from_base32(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > ObjectId::DIGITS {
        return None;
    }
    text.chars().try_fold(0, |bits, character| {
        Some((bits << 5) | u64::from(value(character)?))
    })
}

const SYMBOLS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

fn symbol(digit: u8) -> u8 {
    SYMBOLS
        .get(usize::from(digit & 31))
        .copied()
        .unwrap_or(b'0')
}

/// The digit that a character stands for; `i` and `l` read as 1 and `o` as 0, as Crockford has it.
fn value(character: char) -> Option<u8> {
    let lower = match character.to_ascii_lowercase() {
        'i' | 'l' => '1',
        'o' => '0',
        other => other,
    };
    SYMBOLS
        .iter()
        .position(|symbol| char::from(*symbol) == lower)
        .map(|at| at as u8)
}

/// The weighted sum of the digits over GF(32), weights being the powers of x from x on.
fn check(digits: &[u8]) -> u8 {
    // x^5 + x^2 + 1 is primitive, so the first 31 powers of x differ from each other.
    let double = |a: u8| {
        if a & 16 == 0 {
            a << 1
        } else {
            ((a << 1) ^ 0b10_0101) & 31
        }
    };
    digits
        .iter()
        .rev()
        .fold(0, |sum, digit| double(sum ^ digit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_survive_a_round_trip(bits in 0..1u64 << 60) {
            let id = ObjectId::from_bits(bits).unwrap();
            prop_assert_eq!(id.to_string().parse::<ObjectId>().unwrap(), id);
            prop_assert_eq!(id.to_string().to_uppercase().parse::<ObjectId>().unwrap(), id);
        }

        #[test]
        fn one_wrong_character_is_noticed(bits in 0..1u64 << 60, at in 0..13usize, by in 1..32u8) {
            let text = ObjectId::from_bits(bits).unwrap().to_string();
            let mut bytes = text.into_bytes();
            bytes[at] = symbol((value(char::from(bytes[at])).unwrap() + by) % 32);
            let text = String::from_utf8(bytes).unwrap();
            prop_assert_eq!(text.parse::<ObjectId>(), Err(InvalidId::Check));
        }

        #[test]
        fn two_swapped_characters_are_noticed(bits in 0..1u64 << 60, a in 0..13usize, b in 0..13usize) {
            let text = ObjectId::from_bits(bits).unwrap().to_string();
            let mut bytes = text.clone().into_bytes();
            bytes.swap(a, b);
            let swapped = String::from_utf8(bytes).unwrap();
            prop_assume!(swapped != text);
            prop_assert_eq!(swapped.parse::<ObjectId>(), Err(InvalidId::Check));
        }
    }

    #[test]
    fn one_character_less_or_more_is_no_id() {
        let text = ObjectId::random(7).to_string();
        assert_eq!(text.len(), ObjectId::LEN);
        assert_eq!(text[1..].parse::<ObjectId>(), Err(InvalidId::Length));
        assert_eq!(
            format!("{text}0").parse::<ObjectId>(),
            Err(InvalidId::Length)
        );
        assert_eq!(
            "u000000000000".parse::<ObjectId>(),
            Err(InvalidId::Character('u'))
        );
    }

    #[test]
    fn derived_ids_say_so_and_depend_on_the_document() {
        let (a, b) = (DocumentId([1; 16]), DocumentId([2; 16]));
        assert!(ObjectId::derived(a, "k").is_derived());
        assert!(!ObjectId::random(u64::MAX).is_derived());
        assert_eq!(ObjectId::derived(a, "k"), ObjectId::derived(a, "k"));
        assert_ne!(ObjectId::derived(a, "k"), ObjectId::derived(b, "k"));
    }

    #[test]
    fn op_ids_order_by_counter_and_then_actor() {
        let op = |counter, actor| OpId {
            counter,
            actor: ActorId([actor; 16]),
        };
        assert!(op(1, 9) < op(2, 0));
        assert!(op(2, 0) < op(2, 1));
    }
}
