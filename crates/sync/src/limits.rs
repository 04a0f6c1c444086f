//! Every bound of this crate, by name and with its reason.
//!
//! They are checked on what this node writes and on what it reads alike. Raising one is a format change: an older node
//! would refuse what a newer one wrote.

/// Bytes of one encoded entry, signature included. Sixteen of them fit one 1 MiB frame; the largest honest entry (a
/// credential with [`MAX_GRANTS`] grants) stays below it.
pub const MAX_ENTRY_BYTES: usize = 64 * 1024;

/// Entries of one roster, genesis included. It bounds memory (about 30 MB at its worst) and the time a start takes to
/// check every signature (a few seconds).
pub const MAX_ENTRIES: u64 = 100_000;

/// Characters of a name: of a workspace, member, device or credential. They are shown in one line.
pub const MAX_NAME_CHARS: usize = 200;

/// Characters of an email address: 64 before the `@`, 255 after it (RFC 5321).
pub const MAX_EMAIL_CHARS: usize = 320;

/// Scopes in one list as a caller gives it, repetitions included. There are fewer scopes than this; it leaves room for
/// new ones and refuses a list that is clearly not one.
pub const MAX_SCOPES: usize = 32;

/// Projects one credential is granted by name. Whoever needs more is granted all.
pub const MAX_GRANTS: usize = 200;

/// Characters of one project in a grant, all of ASCII. A slug or an id is shorter.
pub const MAX_GRANT_CHARS: usize = 100;

/// Live credentials of one member. Rights are recomputed over them when one of them changes.
pub const MAX_LIVE_CREDENTIALS: usize = 1_000;

/// Predecessors an entry may list before it is not even looked at. This version admits one.
pub const MAX_PREV: usize = 64;

/// Bytes of a token as presented. A longer one is refused unhashed, so that nobody makes us hash megabytes.
pub const MAX_TOKEN_BYTES: usize = 128;

/// Characters of a typed key or fingerprint, separators included.
pub const MAX_TYPED_CHARS: usize = 256;
