//! Keys and signatures: Ed25519, strict verification, secrets that are never printed by accident.

use crate::base32;
use crate::fixed_bytes::serde_as_text_or_bytes;
use crate::id::{IdError, digest};
use crate::limits::MAX_TYPED_CHARS;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// The secret key of a device: it signs roster entries and changes. Wiped from memory when dropped.
#[derive(Clone)]
pub struct DeviceKey(SigningKey);

impl DeviceKey {
    /// The key of this seed: 32 bytes of the operating system's entropy, made once and kept by the caller.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public half, which names the device.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId(self.0.verifying_key().to_bytes())
    }

    /// Signs bytes that begin with a domain of this crate.
    pub(crate) fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message).to_bytes())
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceKey({})", self.id())
    }
}

/// A device: its Ed25519 public key. Shown as base32 in groups, which is the fingerprint that two people compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId([u8; 32]);

impl DeviceId {
    /// From the bytes of the public key. Whether they are a usable key shows when one is added to a roster.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the public key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The bytes of the public key, by value.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether the bytes are a point that only one secret key signs for. Weak keys accept signatures nobody made.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| !key.is_weak())
    }

    /// Whether this key made the signature over exactly these bytes.
    pub(crate) fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        // Strict: the lax rule lets one signature have several spellings, and nodes disagree about the odd ones.
        VerifyingKey::from_bytes(&self.0).is_ok_and(|key| {
            let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
            key.verify_strict(message, &signature).is_ok()
        })
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base32::grouped(&base32::encode(&self.0)))
    }
}

impl fmt::Debug for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DeviceId {
    type Err = IdError;

    /// People type fingerprints, so case, groups and `o` for `0` are forgiven.
    fn from_str(typed: &str) -> Result<Self, IdError> {
        let refused = IdError {
            kind: "device",
            prefix: "",
            chars: 52,
        };
        if typed.len() > MAX_TYPED_CHARS {
            return Err(refused);
        }
        base32::decode(&base32::normalise(typed))
            .map(Self)
            .ok_or(refused)
    }
}

serde_as_text_or_bytes!(DeviceId, 32);

/// The key that is printed once and kept on paper. It can name an admin again when every admin's device is lost, and
/// nothing else.
#[derive(Clone)]
pub struct RecoveryKey(DeviceKey);

/// A typed recovery key was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryKeyError {
    /// Too short, too long, or with characters that are never printed.
    #[error("a recovery key is 14 groups of 4 letters and digits")]
    Malformed,
    /// The right form, but the check at its end does not fit: a character is mistyped.
    #[error("the check at the end does not fit: a character is mistyped")]
    Mistyped,
}

impl RecoveryKey {
    /// The key of this entropy.
    #[must_use]
    pub fn from_entropy(entropy: &[u8; 32]) -> Self {
        Self(DeviceKey::from_seed(entropy))
    }

    /// The public half, which stands in the genesis entry and is the signer of what this key signs.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        self.0.id()
    }

    /// The key to pass to [`Roster::append`](crate::Roster::append).
    #[must_use]
    pub fn signer(&self) -> &DeviceKey {
        &self.0
    }

    /// The secret in a form for paper: 14 groups of 4, the last one a check. Named so that it is not printed by accident.
    #[must_use]
    pub fn reveal(&self) -> String {
        let secret = self.0.0.as_bytes();
        base32::grouped(&format!(
            "{}{}",
            base32::encode(secret),
            recovery_check(secret)
        ))
    }

    /// Reads what [`reveal`](Self::reveal) printed; case, spaces and `o` for `0` are forgiven.
    ///
    /// # Errors
    ///
    /// When the form or the check is wrong.
    pub fn parse(typed: &str) -> Result<Self, RecoveryKeyError> {
        if typed.len() > MAX_TYPED_CHARS {
            return Err(RecoveryKeyError::Malformed);
        }
        let text = base32::normalise(typed);
        let (secret, check) = text
            .split_at_checked(52)
            .ok_or(RecoveryKeyError::Malformed)?;
        if check.len() != 4 {
            return Err(RecoveryKeyError::Malformed);
        }
        // A wrong last character may set padding bits; that is a typing mistake too, but indistinguishable from noise.
        let secret = base32::decode::<32>(secret).ok_or(RecoveryKeyError::Malformed)?;
        if recovery_check(&secret) != check {
            return Err(RecoveryKeyError::Mistyped);
        }
        Ok(Self::from_entropy(&secret))
    }
}

impl fmt::Debug for RecoveryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecoveryKey({})", self.id())
    }
}

/// An Ed25519 signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Signature([u8; 64]);

impl Signature {
    /// How many bytes a signature has.
    pub const LEN: usize = 64;

    /// From its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({})", base32::encode(&self.0))
    }
}

// serde knows arrays up to 32 bytes; the halves are the same 64 bytes on the wire.
impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (left, right) = self.0.split_at(32);
        let halves = (<[u8; 32]>::try_from(left), <[u8; 32]>::try_from(right));
        let (Ok(left), Ok(right)) = halves else {
            return Err(serde::ser::Error::custom("a signature has 64 bytes"));
        };
        (left, right).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let halves = <([u8; 32], [u8; 32])>::deserialize(deserializer)?;
        let mut bytes = [0; 64];
        for (to, from) in bytes.iter_mut().zip(halves.0.iter().chain(&halves.1)) {
            *to = *from;
        }
        Ok(Self(bytes))
    }
}

/// Four characters, 20 bits: one mistyped key in a million passes, and then it is simply another key.
fn recovery_check(secret: &[u8; 32]) -> String {
    let hash = digest(b"stead recovery check1", &[secret]);
    base32::encode(&hash).chars().take(4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_secrets() {
        let seed = [0x42; 32];
        let key = DeviceKey::from_seed(&seed);
        let recovery = RecoveryKey::from_entropy(&seed);
        let secret = base32::encode(&seed);
        for shown in [format!("{key:?}"), format!("{recovery:?}")] {
            assert!(!shown.replace('-', "").contains(&secret), "{shown}");
            assert!(!shown.contains("66, 66"), "{shown}");
        }
    }

    #[test]
    fn fingerprint_there_and_back() {
        let id = DeviceKey::from_seed(&[1; 32]).id();
        let shown = id.to_string();
        assert_eq!(shown.split('-').count(), 13);
        assert!(shown.split('-').all(|group| group.len() == 4));
        assert_eq!(shown.parse(), Ok(id));
        assert_eq!(shown.to_uppercase().replace('-', " ").parse(), Ok(id));
        assert!("".parse::<DeviceId>().is_err());
        assert!(shown.replacen('-', "0", 1).parse::<DeviceId>().is_err());
        let padded = |len: usize| format!("{shown}{}", "-".repeat(len - shown.len()));
        assert!(padded(MAX_TYPED_CHARS - 1).parse::<DeviceId>().is_ok());
        assert!(padded(MAX_TYPED_CHARS).parse::<DeviceId>().is_ok());
        assert!(padded(MAX_TYPED_CHARS + 1).parse::<DeviceId>().is_err());
    }

    #[test]
    fn recovery_key_on_paper() {
        let key = RecoveryKey::from_entropy(&[9; 32]);
        let paper = key.reveal();
        assert_eq!(paper.split('-').count(), 14);
        assert_eq!(RecoveryKey::parse(&paper).unwrap().id(), key.id());
        let typed = paper.to_uppercase().replace('-', " ");
        assert_eq!(RecoveryKey::parse(&typed).unwrap().id(), key.id());
        // One wrong character anywhere is caught.
        for place in (0..paper.len()).filter(|place| paper.as_bytes()[*place] != b'-') {
            let mut wrong = paper.clone();
            let other = if paper.as_bytes()[place] == b'7' {
                "8"
            } else {
                "7"
            };
            wrong.replace_range(place..=place, other);
            assert!(RecoveryKey::parse(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            RecoveryKey::parse("").unwrap_err(),
            RecoveryKeyError::Malformed
        );
        assert_eq!(
            RecoveryKey::parse(&paper[..60]).unwrap_err(),
            RecoveryKeyError::Malformed
        );
        let long = "é".repeat(56);
        assert_eq!(
            RecoveryKey::parse(&long).unwrap_err(),
            RecoveryKeyError::Malformed
        );
    }

    #[test]
    fn weak_keys_are_not_usable() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert!(!DeviceId::from_bytes(identity).is_usable());
        assert!(!DeviceId::from_bytes([0; 32]).is_usable());
        assert!(DeviceKey::from_seed(&[1; 32]).id().is_usable());
    }

    #[test]
    fn signature_in_postcard() {
        let signature = DeviceKey::from_seed(&[1; 32]).sign(b"x");
        let bytes = postcard::to_stdvec(&signature).unwrap();
        assert_eq!(bytes, signature.as_bytes());
        assert_eq!(
            postcard::from_bytes::<Signature>(&bytes).unwrap(),
            signature
        );
    }
}
