//! What an author vouches for: one change of one document, and with it the actor's earlier ones.

use crate::id::{ActorId, Incarnation, RosterHead, WorkspaceId};
use crate::keys::{DeviceId, DeviceKey, Signature};
use serde::{Deserialize, Serialize};

/// What a signature of a change covers. Every part is of fixed length, so that no two claims share their bytes.
///
/// It vouches for the actor's earlier changes too, because each depends on the one before it, and for no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeClaim {
    /// The workspace, so that a change cannot be grafted onto another one.
    pub workspace: WorkspaceId,
    /// The document.
    pub document: [u8; 16],
    /// The author's actor there.
    pub actor: ActorId,
    /// The place of the change among the actor's.
    pub seq: u64,
    /// The hash of the change.
    pub hash: [u8; 32],
    /// The newest roster entry that the author knew.
    pub roster_head: RosterHead,
}

impl ChangeClaim {
    /// Signs it.
    #[must_use]
    pub fn sign(&self, key: &DeviceKey) -> Signature {
        key.sign(&self.message())
    }

    /// Whether the device signed exactly this.
    ///
    /// This says nothing about whether the device may write: ask the roster.
    ///
    /// # Errors
    ///
    /// When it did not.
    pub fn verify(&self, device: &DeviceId, signature: &Signature) -> Result<(), ClaimError> {
        if device.verify(&self.message(), signature) {
            Ok(())
        } else {
            Err(ClaimError::BadSignature)
        }
    }

    fn message(&self) -> Vec<u8> {
        let mut message = Vec::with_capacity(160);
        message.extend_from_slice(CHANGE_DOMAIN);
        message.push(CLAIM_VERSION);
        message.extend_from_slice(self.workspace.as_bytes());
        message.extend_from_slice(&self.document);
        message.extend_from_slice(self.actor.as_bytes());
        message.extend_from_slice(&self.seq.to_be_bytes());
        message.extend_from_slice(&self.hash);
        message.extend_from_slice(self.roster_head.as_bytes());
        message
    }
}

/// One line of a frontier: how far an actor has come in a document, with the proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorClaim {
    /// The device behind the actor.
    pub device: DeviceId,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The actor, as claimed.
    pub actor: ActorId,
    /// Its newest change.
    pub seq: u64,
    /// The hash of that change.
    pub hash: [u8; 32],
    /// The roster head that the signature covers.
    pub roster_head: RosterHead,
    /// The signature of that change.
    pub signature: Signature,
}

impl ActorClaim {
    /// Whether the actor is this device's in this document. Recomputed, never believed.
    ///
    /// # Errors
    ///
    /// When it is another's.
    pub fn verify_actor(&self, document: &[u8; 16]) -> Result<(), ClaimError> {
        if ActorId::derive(document, &self.device, &self.incarnation) == self.actor {
            Ok(())
        } else {
            Err(ClaimError::ForeignActor)
        }
    }

    /// Whether the actor is this device's and the device signed this change.
    ///
    /// # Errors
    ///
    /// When either is not so.
    pub fn verify(&self, workspace: WorkspaceId, document: &[u8; 16]) -> Result<(), ClaimError> {
        self.verify_actor(document)?;
        let claim = ChangeClaim {
            workspace,
            document: *document,
            actor: self.actor,
            seq: self.seq,
            hash: self.hash,
            roster_head: self.roster_head,
        };
        claim.verify(&self.device, &self.signature)
    }
}

/// A claim does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// The device did not sign this.
    #[error("the signature is not this device's over this change")]
    BadSignature,
    /// The actor does not derive from this device, incarnation and document.
    #[error("the actor is not this device's in this document")]
    ForeignActor,
}

/// No domain of this crate is the beginning of another: what is signed for one purpose never passes for another.
pub(crate) const CHANGE_DOMAIN: &[u8] = b"stead change1";
const CLAIM_VERSION: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::ENTRY_DOMAIN;

    fn claim() -> ChangeClaim {
        ChangeClaim {
            workspace: WorkspaceId::from_bytes([1; 16]),
            document: [2; 16],
            actor: ActorId::from_bytes([3; 16]),
            seq: 4,
            hash: [5; 32],
            roster_head: RosterHead::from_bytes([6; 32]),
        }
    }

    #[test]
    fn every_part_is_covered() {
        let key = DeviceKey::from_seed(&[1; 32]);
        let base = claim();
        let signature = base.sign(&key);
        assert_eq!(base.verify(&key.id(), &signature), Ok(()));
        let others = [
            ChangeClaim {
                workspace: WorkspaceId::from_bytes([9; 16]),
                ..base
            },
            ChangeClaim {
                document: [9; 16],
                ..base
            },
            ChangeClaim {
                actor: ActorId::from_bytes([9; 16]),
                ..base
            },
            ChangeClaim { seq: 5, ..base },
            ChangeClaim {
                hash: [9; 32],
                ..base
            },
            ChangeClaim {
                roster_head: RosterHead::from_bytes([9; 32]),
                ..base
            },
        ];
        for other in others {
            assert_eq!(
                other.verify(&key.id(), &signature),
                Err(ClaimError::BadSignature)
            );
        }
        let stranger = DeviceKey::from_seed(&[2; 32]);
        assert_eq!(
            base.verify(&stranger.id(), &signature),
            Err(ClaimError::BadSignature)
        );
        assert!(
            base.verify(&DeviceId::from_bytes([0xff; 32]), &signature)
                .is_err()
        );
        let mut bytes = *signature.as_bytes();
        for place in 0..bytes.len() * 8 {
            bytes[place / 8] ^= 1 << (place % 8);
            assert!(
                base.verify(&key.id(), &Signature::from_bytes(bytes))
                    .is_err()
            );
            bytes[place / 8] ^= 1 << (place % 8);
        }
    }

    #[test]
    fn message_is_pinned() {
        let message = claim().message();
        assert_eq!(message.len(), 13 + 1 + 16 + 16 + 16 + 8 + 32 + 32);
        assert_eq!(&message[..15], b"stead change1\x01\x01");
        assert_eq!(message[62..70], [0, 0, 0, 0, 0, 0, 0, 4]);
    }

    #[test]
    fn domains_are_apart() {
        assert!(!CHANGE_DOMAIN.starts_with(ENTRY_DOMAIN));
        assert!(!ENTRY_DOMAIN.starts_with(CHANGE_DOMAIN));
    }

    #[test]
    fn actors_are_self_certifying() {
        let key = DeviceKey::from_seed(&[1; 32]);
        let incarnation = Incarnation::from_bytes([7; 16]);
        let base = ChangeClaim {
            actor: ActorId::derive(&[2; 16], &key.id(), &incarnation),
            ..claim()
        };
        let line = ActorClaim {
            device: key.id(),
            incarnation,
            actor: base.actor,
            seq: base.seq,
            hash: base.hash,
            roster_head: base.roster_head,
            signature: base.sign(&key),
        };
        assert_eq!(line.verify(base.workspace, &[2; 16]), Ok(()));
        assert_eq!(line.verify_actor(&[3; 16]), Err(ClaimError::ForeignActor));
        let other = DeviceKey::from_seed(&[2; 32]);
        let stolen = ActorClaim {
            device: other.id(),
            ..line
        };
        assert_eq!(stolen.verify_actor(&[2; 16]), Err(ClaimError::ForeignActor));
        let moved = ActorClaim {
            incarnation: Incarnation::from_bytes([8; 16]),
            ..line
        };
        assert_eq!(moved.verify_actor(&[2; 16]), Err(ClaimError::ForeignActor));
        let further = ActorClaim { seq: 5, ..line };
        assert_eq!(
            further.verify(base.workspace, &[2; 16]),
            Err(ClaimError::BadSignature)
        );
    }
}
