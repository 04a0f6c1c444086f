//! Identifiers: fixed bytes, one spelling each, no two kinds interchangeable.

use crate::base32;
use crate::fixed_bytes::fixed_bytes;
use crate::keys::DeviceId;
use std::fmt;
use std::str::FromStr;

fixed_bytes! {
    /// A workspace: the first 16 bytes of the hash of its unsigned genesis entry, so that the id binds the founding keys.
    WorkspaceId, 16, "w_", "workspace"
}
fixed_bytes! {
    /// A member, that is a person.
    MemberId, 8, "m_", "member"
}
fixed_bytes! {
    /// A credential: what a person, a delegate or a project key acts with.
    CredentialId, 8, "c_", "credential"
}
fixed_bytes! {
    /// One unbroken life of a device's store. A restored or doubtful store starts another, so that no sequence number is
    /// ever used twice.
    Incarnation, 16, "n_", "incarnation"
}
fixed_bytes! {
    /// Who writes into one document: a device in one incarnation. See [`ActorId::derive`].
    ActorId, 16, "a_", "actor"
}
fixed_bytes! {
    /// The hash of a signed roster entry. The newest one stands for the whole log, because each entry names the one
    /// before it.
    RosterHead, 32, "r_", "roster head"
}

/// A text is not an identifier of the kind asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind} id: expected {prefix:?} and {chars} characters of lowercase base32")]
#[non_exhaustive]
pub struct IdError {
    /// What was asked for, in words.
    pub kind: &'static str,
    /// What such an id begins with.
    pub prefix: &'static str,
    /// How many characters follow.
    pub chars: usize,
}

impl ActorId {
    /// The one actor of this device and incarnation in this document. Anybody can recompute it, so an actor cannot be
    /// claimed by another device or carried into another document.
    #[must_use]
    pub fn derive(document: &[u8; 16], device: &DeviceId, incarnation: &Incarnation) -> Self {
        let hash = digest(
            b"actor1",
            &[document, device.as_bytes(), incarnation.as_bytes()],
        );
        Self::from_bytes(first(&hash))
    }
}

/// BLAKE3 over the domain and the parts. Callers pass parts of fixed length, or one only: nothing marks where one ends.
pub(crate) fn digest(domain: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(domain);
    for part in parts {
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// The first `N` bytes of a hash.
pub(crate) fn first<const N: usize>(hash: &[u8; 32]) -> [u8; N] {
    const { assert!(N <= 32) };
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(hash) {
        *to = *from;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        let member = MemberId::from_bytes([0xa5; 8]);
        let text = member.to_string();
        assert_eq!(text, "m_mpjtb9d5mpjta");
        assert_eq!(text.parse::<MemberId>(), Ok(member));
        assert!(
            text.parse::<CredentialId>().is_err(),
            "another kind's prefix"
        );
        assert!(text.to_uppercase().parse::<MemberId>().is_err());
        assert!("m_".parse::<MemberId>().is_err());
        assert!("".parse::<MemberId>().is_err());
        assert!(format!("{text}0").parse::<MemberId>().is_err());
    }

    #[test]
    fn bytes_in_postcard() {
        let head = RosterHead::from_bytes([7; 32]);
        let bytes = postcard::to_stdvec(&head).unwrap();
        assert_eq!(bytes, [7; 32]);
        assert_eq!(postcard::from_bytes::<RosterHead>(&bytes).unwrap(), head);
    }

    #[test]
    fn actor_is_the_documented_hash() {
        let (document, device, incarnation) = ([1; 16], [2; 32], [3; 16]);
        let mut input = b"actor1".to_vec();
        input.extend_from_slice(&document);
        input.extend_from_slice(&device);
        input.extend_from_slice(&incarnation);
        let expected: [u8; 16] = blake3::hash(&input).as_bytes()[..16].try_into().unwrap();
        let actor = ActorId::derive(
            &document,
            &DeviceId::from_bytes(device),
            &Incarnation::from_bytes(incarnation),
        );
        assert_eq!(actor.to_bytes(), expected);
    }
}
