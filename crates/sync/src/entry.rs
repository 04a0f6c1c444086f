//! Entries: what the roster's log is made of, and their one encoding.
//!
//! On the wire: postcard of (version, workspace, predecessors, seq, signer, kind, payload), then 64 bytes of signature
//! over a domain and everything before it. The payload is bytes to this outer layer, so that an entry of a kind that a
//! newer version made still shows who signed it and where it belongs. The encoding is canonical: what does not come out
//! of encoding again byte for byte is refused.

use crate::id::{CredentialId, MemberId, RosterHead, WorkspaceId, digest, first};
use crate::keys::{DeviceId, DeviceKey, Signature};
use crate::limits::{
    MAX_EMAIL_CHARS, MAX_ENTRY_BYTES, MAX_GRANT_CHARS, MAX_GRANTS, MAX_NAME_CHARS, MAX_PREV,
};
use crate::scope::{Grants, Rank, Scopes};
use serde::{Deserialize, Serialize};

/// The version of the encoding, the first byte of every entry.
pub const FORMAT: u8 = 1;

/// One statement about who takes part, before it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// [`FORMAT`].
    pub version: u8,
    /// The workspace; zeros in a genesis, whose hash it is made of.
    pub workspace: WorkspaceId,
    /// The entries it follows: none for a genesis, else (in this version) exactly one.
    pub prev: Vec<RosterHead>,
    /// Its place in the log; the genesis is 0.
    pub seq: u64,
    /// Who signs it: a device, or the recovery key.
    pub signer: DeviceId,
    /// What it says.
    pub body: Body,
}

impl Entry {
    /// Reads an entry for display. This checks the encoding only, *no signature and no authority*: admission is
    /// [`Roster::admit`](crate::Roster::admit).
    ///
    /// # Errors
    ///
    /// When the bytes are not one canonical entry of a version and kind known here.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let opened = Opened::decode(bytes)?;
        let body = opened
            .body
            .ok_or(DecodeError::UnknownKind { kind: opened.kind })?;
        Ok(Self {
            version: FORMAT,
            workspace: opened.workspace,
            prev: opened.prev,
            seq: opened.seq,
            signer: opened.signer,
            body,
        })
    }

    /// Encodes and signs it. Whether the key may say this is not asked here.
    pub(crate) fn sign(self, key: &DeviceKey) -> Result<SignedEntry, EncodeError> {
        let unsigned = self.unsigned()?;
        let signature = key.sign(&signed_message(&unsigned));
        let mut bytes = unsigned;
        bytes.extend_from_slice(signature.as_bytes());
        if bytes.len() > MAX_ENTRY_BYTES {
            return Err(EncodeError { given: bytes.len() });
        }
        Ok(SignedEntry {
            head: hash_of(&bytes),
            entry: self,
            bytes,
        })
    }

    fn unsigned(&self) -> Result<Vec<u8>, EncodeError> {
        let payload = self.body.payload().map_err(|_| EncodeError { given: 0 })?;
        let wire = Wire {
            version: self.version,
            workspace: self.workspace,
            prev: self.prev.clone(),
            seq: self.seq,
            signer: self.signer,
            kind: self.body.kind(),
            payload: &payload,
        };
        postcard::to_stdvec(&wire).map_err(|_| EncodeError { given: 0 })
    }
}

/// An entry with its signature: the bytes to store and to send, and the head they make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedEntry {
    entry: Entry,
    head: RosterHead,
    bytes: Vec<u8>,
}

impl SignedEntry {
    /// What it says.
    #[must_use]
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The hash of its bytes: the roster's head after it.
    #[must_use]
    pub const fn head(&self) -> RosterHead {
        self.head
    }

    /// Its encoding, for the store and for peers.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its encoding, by value.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// What an entry says.
///
/// Kinds have fixed numbers; a changed payload is a new kind. Numbers 6 to 31 are kept for what is to come (member and
/// device removed, invite, joined, arbiter). A kind that is not here is never skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Body {
    /// Kind 0: the workspace begins.
    Genesis(Genesis),
    /// Kind 1: a person takes part.
    MemberAdded(MemberAdded),
    /// Kind 2: a person's name, email, rank or responsibility changes.
    MemberChanged(MemberChanged),
    /// Kind 3: a device takes part.
    DeviceAdded(DeviceAdded),
    /// Kind 4: a credential is given.
    CredentialAdded(CredentialAdded),
    /// Kind 5: a credential is taken back, for good.
    CredentialRevoked(CredentialRevoked),
}

/// The first entry. It is signed by the founder's device, and the workspace id is its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Genesis {
    /// The version of the workspace's rules; 1.
    pub format: u16,
    /// The workspace's name.
    pub workspace_name: String,
    /// The founder's device, which signs this.
    pub device: DeviceId,
    /// What the founder calls that device.
    pub device_name: String,
    /// The public half of the recovery key.
    pub recovery: DeviceId,
    /// Entropy, so that two workspaces of one name and key differ.
    pub nonce: [u8; 32],
    /// Unix milliseconds by the founder's clock; for display only.
    pub created_at: u64,
    /// The founder, who becomes an owner and a lead.
    pub member: MemberId,
    /// The founder's name.
    pub member_name: String,
    /// The founder's email.
    pub email: Option<String>,
    /// The founder's first credential, of kind person, with every scope and project.
    pub credential: CredentialId,
    /// Its name.
    pub credential_name: String,
    /// The hash of its token; none when it is for local use only.
    pub token_hash: Option<[u8; 32]>,
}

/// A person takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberAdded {
    /// The new member's id; random bytes.
    pub member: MemberId,
    /// Their name.
    pub name: String,
    /// Their email, unique in the workspace.
    pub email: Option<String>,
    /// What they may do.
    pub rank: Rank,
    /// What they are asked to do.
    pub responsibility: Responsibility,
}

/// Something about a person changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberChanged {
    /// Whom.
    pub member: MemberId,
    /// Their name.
    pub name: Edit<String>,
    /// Their email; `Set(None)` removes it.
    pub email: Edit<Option<String>>,
    /// What they may do.
    pub rank: Edit<Rank>,
    /// What they are asked to do.
    pub responsibility: Edit<Responsibility>,
}

impl MemberChanged {
    /// No change of this member yet: set the fields that change.
    #[must_use]
    pub const fn of(member: MemberId) -> Self {
        Self {
            member,
            name: Edit::Keep,
            email: Edit::Keep,
            rank: Edit::Keep,
            responsibility: Edit::Keep,
        }
    }
}

/// A field in a change: left as it is, or set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Edit<T> {
    /// It stays.
    Keep,
    /// It becomes this.
    Set(T),
}

impl<T> Edit<T> {
    /// What it is set to, if it is.
    pub const fn set(&self) -> Option<&T> {
        match self {
            Self::Keep => None,
            Self::Set(value) => Some(value),
        }
    }
}

/// A device takes part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAdded {
    /// Its key.
    pub device: DeviceId,
    /// Whose it is.
    pub member: MemberId,
    /// What it may do.
    pub role: DeviceRole,
    /// What its owner calls it.
    pub name: String,
}

/// A credential is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialAdded {
    /// The new credential's id; random bytes, never used again after it is revoked.
    pub credential: CredentialId,
    /// In whose stead it acts.
    pub member: MemberId,
    /// Its name, unique among the live ones of the workspace.
    pub name: String,
    /// What holds it.
    pub kind: CredentialKind,
    /// The hash of its token; none when it is for local use only.
    pub token_hash: Option<[u8; 32]>,
    /// What it may do.
    pub scopes: Scopes,
    /// Where.
    pub grants: Grants,
}

/// A credential is taken back. Final for its id, its token and what it did from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRevoked {
    /// Which.
    pub credential: CredentialId,
}

/// What a member is asked to do. Advice, never a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Responsibility {
    /// Coordinates plans, assignments, reviews and direction.
    Lead,
    /// Implements and collaborates.
    Contributor,
    /// Monitors, analyses and gives feedback.
    Observer,
}

impl Responsibility {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lead => "lead",
            Self::Contributor => "contributor",
            Self::Observer => "observer",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// All of them.
    pub const ALL: [Self; 3] = [Self::Lead, Self::Contributor, Self::Observer];

    /// What a delegate of such a member is told. It gates nothing.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Lead => "Coordinate plans, assignments, reviews and direction.",
            Self::Contributor => "Implement, and collaborate across the project.",
            Self::Observer => "Monitor, analyse and give feedback.",
        }
    }
}

/// What a device may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceRole {
    /// Reads and writes, and signs roster entries as far as its member may.
    Full,
    /// Reads; signs nothing.
    Reader,
    /// Stores and forwards; signs nothing.
    Relay,
}

impl DeviceRole {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Reader => "reader",
            Self::Relay => "relay",
        }
    }
}

/// What holds a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialKind {
    /// The member in person.
    Person,
    /// An agent in the member's stead.
    Delegate,
    /// A script or service of one or some projects.
    ProjectKey,
    /// The node itself.
    System,
}

impl CredentialKind {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Delegate => "delegate",
            Self::ProjectKey => "project_key",
            Self::System => "system",
        }
    }
}

/// Bytes are not an entry that this version can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Longer than any entry.
    #[error("{given} bytes, more than the {limit} of an entry")]
    TooLarge {
        /// How many there are.
        given: usize,
        /// [`MAX_ENTRY_BYTES`].
        limit: usize,
    },
    /// Made in another format, by a newer version. Nothing of it can be checked.
    #[error("entry format {version} is not known to this version")]
    UnsupportedVersion {
        /// The format.
        version: u8,
    },
    /// Cut short, or not an entry at all.
    #[error("not an entry")]
    Malformed,
    /// An entry, but not in its one encoding.
    #[error("not in its canonical encoding")]
    NotCanonical,
    /// An entry of a kind that a newer version made.
    #[error("entry kind {kind} is not known to this version")]
    UnknownKind {
        /// The kind's number.
        kind: u16,
    },
}

/// A field of an entry is outside its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// Longer than it may be.
    #[error("{field} has {given} {unit}, more than {limit}")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// How long it is.
        given: usize,
        /// How long it may be.
        limit: usize,
        /// What is counted.
        unit: &'static str,
    },
    /// Empty where something must stand.
    #[error("{field} is empty")]
    Empty {
        /// Which field.
        field: &'static str,
    },
    /// Control, invisible or text-direction characters, or blanks at an end: such a name can pass for another.
    #[error("{field} has characters that do not show")]
    Invisible {
        /// Which field.
        field: &'static str,
    },
    /// Not an email address.
    #[error("email is not an address")]
    Email,
}

impl Body {
    /// The number of its kind.
    pub(crate) const fn kind(&self) -> u16 {
        match self {
            Self::Genesis(_) => 0,
            Self::MemberAdded(_) => 1,
            Self::MemberChanged(_) => 2,
            Self::DeviceAdded(_) => 3,
            Self::CredentialAdded(_) => 4,
            Self::CredentialRevoked(_) => 5,
        }
    }

    /// Whether every field is within its bounds.
    pub(crate) fn check_fields(&self) -> Result<(), FieldError> {
        match self {
            Self::Genesis(genesis) => {
                check_name("workspace name", &genesis.workspace_name)?;
                check_name("device name", &genesis.device_name)?;
                check_name("member name", &genesis.member_name)?;
                check_name("credential name", &genesis.credential_name)?;
                genesis.email.as_deref().map_or(Ok(()), check_email)
            }
            Self::MemberAdded(added) => {
                check_name("member name", &added.name)?;
                added.email.as_deref().map_or(Ok(()), check_email)
            }
            Self::MemberChanged(changed) => {
                if let Edit::Set(name) = &changed.name {
                    check_name("member name", name)?;
                }
                match &changed.email {
                    Edit::Set(Some(email)) => check_email(email),
                    Edit::Set(None) | Edit::Keep => Ok(()),
                }
            }
            Self::DeviceAdded(added) => check_name("device name", &added.name),
            Self::CredentialAdded(added) => {
                check_name("credential name", &added.name)?;
                if added.scopes.is_empty() {
                    return Err(FieldError::Empty { field: "scopes" });
                }
                check_grants(&added.grants)
            }
            Self::CredentialRevoked(_) => Ok(()),
        }
    }

    fn payload(&self) -> Result<Vec<u8>, postcard::Error> {
        match self {
            Self::Genesis(payload) => postcard::to_stdvec(payload),
            Self::MemberAdded(payload) => postcard::to_stdvec(payload),
            Self::MemberChanged(payload) => postcard::to_stdvec(payload),
            Self::DeviceAdded(payload) => postcard::to_stdvec(payload),
            Self::CredentialAdded(payload) => postcard::to_stdvec(payload),
            Self::CredentialRevoked(payload) => postcard::to_stdvec(payload),
        }
    }
}

/// An encoded entry taken apart: well-formed and canonical, neither its signature nor its authority checked yet.
pub(crate) struct Opened<'a> {
    pub(crate) workspace: WorkspaceId,
    pub(crate) prev: Vec<RosterHead>,
    pub(crate) seq: u64,
    pub(crate) signer: DeviceId,
    pub(crate) kind: u16,
    /// None when only a newer version can tell what it says.
    pub(crate) body: Option<Body>,
    pub(crate) head: RosterHead,
    unsigned: &'a [u8],
    signature: Signature,
}

impl<'a> Opened<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_ENTRY_BYTES {
            return Err(DecodeError::TooLarge {
                given: bytes.len(),
                limit: MAX_ENTRY_BYTES,
            });
        }
        match bytes.first() {
            Some(&FORMAT) => {}
            Some(&version) => return Err(DecodeError::UnsupportedVersion { version }),
            None => return Err(DecodeError::Malformed),
        }
        let (unsigned, signature) = bytes
            .split_last_chunk::<{ Signature::LEN }>()
            .ok_or(DecodeError::Malformed)?;
        let wire: Wire<'a> = exactly(unsigned)?;
        // Decoding forgives what encoding never makes, such as a padded number; two byte strings for one entry would
        // be two heads.
        if postcard::to_stdvec(&wire).map_err(|_| DecodeError::Malformed)? != unsigned {
            return Err(DecodeError::NotCanonical);
        }
        if wire.prev.len() > MAX_PREV {
            return Err(DecodeError::Malformed);
        }
        Ok(Self {
            kind: wire.kind,
            body: Body::decode(wire.kind, wire.payload)?,
            workspace: wire.workspace,
            prev: wire.prev,
            seq: wire.seq,
            signer: wire.signer,
            head: hash_of(bytes),
            unsigned,
            signature: Signature::from_bytes(*signature),
        })
    }

    /// Whether the signer it names signed it.
    pub(crate) fn is_signed(&self) -> bool {
        self.signer
            .verify(&signed_message(self.unsigned), &self.signature)
    }

    /// The workspace that this genesis founds.
    pub(crate) fn founds(&self) -> WorkspaceId {
        workspace_of(self.unsigned)
    }
}

impl Body {
    fn decode(kind: u16, payload: &[u8]) -> Result<Option<Self>, DecodeError> {
        let body = match kind {
            0 => Self::Genesis(exactly(payload)?),
            1 => Self::MemberAdded(exactly(payload)?),
            2 => Self::MemberChanged(exactly(payload)?),
            3 => Self::DeviceAdded(exactly(payload)?),
            4 => Self::CredentialAdded(exactly(payload)?),
            5 => Self::CredentialRevoked(exactly(payload)?),
            _ => return Ok(None),
        };
        if body.payload().map_err(|_| DecodeError::Malformed)? != payload {
            return Err(DecodeError::NotCanonical);
        }
        Ok(Some(body))
    }
}

impl SignedEntry {
    /// The workspace that this genesis founds.
    pub(crate) fn founds(&self) -> WorkspaceId {
        let unsigned = self.bytes.split_last_chunk::<{ Signature::LEN }>();
        workspace_of(unsigned.map_or(&[], |(unsigned, _)| unsigned))
    }
}

/// The entry's encoding is longer than [`MAX_ENTRY_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EncodeError {
    pub(crate) given: usize,
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    version: u8,
    workspace: WorkspaceId,
    prev: Vec<RosterHead>,
    seq: u64,
    signer: DeviceId,
    kind: u16,
    #[serde(borrow)]
    payload: &'a [u8],
}

/// Decodes all of the bytes.
fn exactly<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(DecodeError::Malformed),
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), FieldError> {
    let given = name.chars().count();
    if given == 0 {
        return Err(FieldError::Empty { field });
    }
    if given > MAX_NAME_CHARS {
        return Err(FieldError::TooLong {
            field,
            given,
            limit: MAX_NAME_CHARS,
            unit: "characters",
        });
    }
    if name.chars().any(does_not_show) || name.starts_with(' ') || name.ends_with(' ') {
        return Err(FieldError::Invisible { field });
    }
    Ok(())
}

fn check_email(email: &str) -> Result<(), FieldError> {
    let field = "email";
    let given = email.chars().count();
    if given > MAX_EMAIL_CHARS {
        return Err(FieldError::TooLong {
            field,
            given,
            limit: MAX_EMAIL_CHARS,
            unit: "characters",
        });
    }
    if email
        .chars()
        .any(|character| character == ' ' || does_not_show(character))
    {
        return Err(FieldError::Invisible { field });
    }
    // Only mail itself can tell whether an address exists; this catches what is not one.
    match email.rsplit_once('@') {
        Some((local, domain)) if !local.is_empty() && !domain.is_empty() => Ok(()),
        _ => Err(FieldError::Email),
    }
}

fn check_grants(grants: &Grants) -> Result<(), FieldError> {
    let Grants::Projects(names) = grants else {
        return Ok(());
    };
    let field = "grants";
    if names.is_empty() {
        return Err(FieldError::Empty { field });
    }
    if names.len() > MAX_GRANTS {
        let given = names.len();
        return Err(FieldError::TooLong {
            field,
            given,
            limit: MAX_GRANTS,
            unit: "projects",
        });
    }
    for name in names {
        let field = "granted project";
        if name.is_empty() {
            return Err(FieldError::Empty { field });
        }
        if name.len() > MAX_GRANT_CHARS {
            let (given, limit) = (name.len(), MAX_GRANT_CHARS);
            return Err(FieldError::TooLong {
                field,
                given,
                limit,
                unit: "characters",
            });
        }
        if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(FieldError::Invisible { field });
        }
    }
    Ok(())
}

/// A list of our own and not the current Unicode tables: those differ between builds, and then so would verdicts.
const fn does_not_show(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Over the signature too, so that a head stands for one byte string.
fn hash_of(bytes: &[u8]) -> RosterHead {
    RosterHead::from_bytes(digest(b"stead head1", &[bytes]))
}

fn workspace_of(unsigned: &[u8]) -> WorkspaceId {
    WorkspaceId::from_bytes(first(&digest(b"stead workspace1", &[unsigned])))
}

fn signed_message(unsigned: &[u8]) -> Vec<u8> {
    [ENTRY_DOMAIN, unsigned].concat()
}

/// See [`CHANGE_DOMAIN`](crate::signature::CHANGE_DOMAIN).
pub(crate) const ENTRY_DOMAIN: &[u8] = b"stead entry1";
