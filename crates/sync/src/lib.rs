//! Who may take part in a workspace, and what may enter it.
//!
//! No sockets, files, clock, entropy or threads: bytes and arguments in, verdicts and bytes out, so that a node, a relay
//! and the simulator reach the same verdict from the same bytes. `clippy.toml` beside this crate enforces it. This crate
//! does not know what a task is and does not link Automerge; a document is 16 bytes and a change is a hash.
//!
//! # Which calls, in which order
//!
//! 1. *Once for each workspace*: [`Roster::found`] gives the roster and its genesis entry. Store
//!    [`SignedEntry::bytes`] durably before anything else.
//! 2. *At each start*: [`Roster::replay`] over the stored bytes in their order. It checks everything again; the disk is
//!    not trusted more than a peer is.
//! 3. *To change who takes part*: clone the roster, [`Roster::append`] a [`Body`] to the clone, make the returned bytes
//!    durable, then put the clone in place. (A commit that failed leaves the old roster as it was.)
//! 4. *What a peer sends*: [`Roster::admit`], the same check on bytes; again on a clone until they are durable.
//! 5. *On each request*: [`Roster::authenticate`] a token, then [`capabilities`] of the credential. Rights are computed
//!    anew from the roster, so keep the credential's id between requests, never the credential.
//! 6. *For each change of a document*: [`ChangeClaim::sign`] by the author, [`ChangeClaim::verify`] by everybody else,
//!    after [`Roster::may_write`], [`Roster::credential_of_device`] and [`Roster::seq_of`] (the roster head it names).
//!
//! # What is deliberately absent
//!
//! One device at a time extends the log. Ordering entries that devices wrote concurrently, removals, invites, joins, the
//! arbiter and the exchange of frontiers come later. They fit: an entry already carries a *list* of predecessors (this
//! version admits exactly one), and a kind this version does not know is refused by name and makes the roster
//! [`Unsupported`], never skipped, because skipping it could skip a revocation.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod authority;
mod base32;
mod entry;
mod fixed_bytes;
mod id;
mod keys;
pub mod limits;
mod roster;
mod scope;
mod signature;
mod token;

pub use authority::Refusal;
pub use entry::{
    Body, CredentialAdded, CredentialKind, CredentialRevoked, DecodeError, DeviceAdded, DeviceRole,
    Edit, Entry, FORMAT, FieldError, Genesis, MemberAdded, MemberChanged, Responsibility,
    SignedEntry,
};
pub use id::{ActorId, CredentialId, IdError, Incarnation, MemberId, RosterHead, WorkspaceId};
pub use keys::{DeviceId, DeviceKey, RecoveryKey, RecoveryKeyError, Signature};
pub use roster::{
    AdmitError, Admitted, AppendError, Credential, Device, FoundError, Founding, Member, Newer,
    ReplayError, Roster, Unsupported,
};
pub use scope::{Grants, Rank, Scope, ScopeError, Scopes, capabilities};
pub use signature::{ActorClaim, ChangeClaim, ClaimError};
pub use token::{Token, token_hash};
