//! The roster: the state that the log's entries make, and the one way in.

use crate::authority::{self, Refusal, Signer};
use crate::entry::{
    Body, CredentialKind, DecodeError, DeviceRole, Edit, Entry, FORMAT, FieldError, Genesis,
    MemberChanged, Opened, Responsibility, SignedEntry,
};
use crate::id::{CredentialId, MemberId, RosterHead, WorkspaceId};
use crate::keys::{DeviceId, DeviceKey};
use crate::limits::{MAX_ENTRIES, MAX_ENTRY_BYTES, MAX_TOKEN_BYTES};
use crate::scope::{Grants, Rank, Scopes};
use crate::token::token_hash;
use std::collections::{BTreeMap, BTreeSet};
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Who takes part in one workspace, as the log up to its head says.
///
/// It changes through [`append`](Self::append) and [`admit`](Self::admit) only, and a refused entry leaves it as it was
/// (except that one which cannot be understood marks it [`unsupported`](Self::unsupported)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roster {
    workspace: WorkspaceId,
    genesis: Genesis,
    head: RosterHead,
    next_seq: u64,
    heads: BTreeMap<RosterHead, u64>,
    members: BTreeMap<MemberId, Member>,
    devices: BTreeMap<DeviceId, Device>,
    credentials: BTreeMap<CredentialId, Credential>,
    index: Index,
    unsupported: Option<Unsupported>,
}

/// How a workspace begins. Ids and entropy are the caller's.
#[derive(Debug, Clone)]
pub struct Founding {
    /// The workspace's name.
    pub workspace_name: String,
    /// What the founder calls this device.
    pub device_name: String,
    /// The public half of the recovery key: [`RecoveryKey::id`](crate::RecoveryKey::id).
    pub recovery: DeviceId,
    /// 32 bytes of entropy.
    pub nonce: [u8; 32],
    /// Unix milliseconds, for display.
    pub created_at: u64,
    /// Random id of the founder.
    pub member: MemberId,
    /// The founder's name.
    pub member_name: String,
    /// The founder's email.
    pub email: Option<String>,
    /// Random id of the founder's first credential.
    pub credential: CredentialId,
    /// Its name.
    pub credential_name: String,
    /// The hash of its token; none when it is for local use only.
    pub token_hash: Option<[u8; 32]>,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub id: MemberId,
    /// Their name.
    pub name: String,
    /// Their email, unique in the workspace.
    pub email: Option<String>,
    /// What they may do.
    pub rank: Rank,
    /// What they are asked to do.
    pub responsibility: Responsibility,
    /// The entry that added them.
    pub added_at: u64,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its key.
    pub id: DeviceId,
    /// Whose it is.
    pub member: MemberId,
    /// What it may do.
    pub role: DeviceRole,
    /// What its owner calls it.
    pub name: String,
    /// The entry that added it.
    pub added_at: u64,
}

/// What somebody acts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    /// Which.
    pub id: CredentialId,
    /// In whose stead it acts.
    pub member: MemberId,
    /// Its name, unique among the live ones.
    pub name: String,
    /// What holds it.
    pub kind: CredentialKind,
    /// The hash of its token; none when it is for local use only.
    pub token_hash: Option<[u8; 32]>,
    /// What it may do now: as granted, within what the member has today.
    pub scopes: Scopes,
    /// Where, now.
    pub grants: Grants,
    /// What it was given.
    pub granted_scopes: Scopes,
    /// Where it was given it.
    pub granted_projects: Grants,
    /// The entry that added it.
    pub added_at: u64,
    /// The entry that revoked it, if one has.
    pub revoked_at: Option<u64>,
}

impl Credential {
    /// Whether it has not been revoked.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.revoked_at.is_none()
    }
}

/// An entry that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// Its place.
    pub seq: u64,
    /// The roster's head with it.
    pub head: RosterHead,
    /// Who signed it.
    pub signer: DeviceId,
    /// What it says.
    pub body: Body,
}

/// Why this version cannot follow the log any further: a newer version is needed.
///
/// The roster still answers, as of its head; it appends and admits nothing more. Whoever serves others from it should
/// say so, because the entry may have taken something away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("roster entry {seq} ({what}) needs a newer version of stead")]
#[non_exhaustive]
pub struct Unsupported {
    /// The place of the entry.
    pub seq: u64,
    /// What about it is new.
    pub what: Newer,
}

/// What about an entry is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Newer {
    /// Its kind.
    #[error("kind {kind}")]
    Kind {
        /// The kind's number.
        kind: u16,
    },
    /// The workspace's rules, in a genesis.
    #[error("workspace format {format}")]
    Format {
        /// The format's number.
        format: u16,
    },
    /// It joins several branches.
    #[error("{count} predecessors")]
    Predecessors {
        /// How many it follows.
        count: usize,
    },
}

/// A workspace was not founded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FoundError {
    /// A field is outside its bounds.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The device's or the recovery key is not usable, or they are the same.
    #[error("the recovery key must be a usable key and not the device's")]
    BadKey,
    /// The entry is too long altogether.
    #[error("the entry has {given} bytes, more than {limit}")]
    TooLarge {
        /// How long it is.
        given: usize,
        /// [`MAX_ENTRY_BYTES`].
        limit: usize,
    },
}

/// An entry of this node's own was not appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The signer may not say this, or it cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The log goes on in a way this version does not know; appending would fork it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The log is as long as it may be.
    #[error("the roster has {limit} entries, which is all it may have")]
    Full {
        /// [`MAX_ENTRIES`].
        limit: u64,
    },
    /// The entry is too long altogether.
    #[error("the entry has {given} bytes, more than {limit}")]
    TooLarge {
        /// How long it is.
        given: usize,
        /// [`MAX_ENTRY_BYTES`].
        limit: usize,
    },
}

/// An entry from the disk or a peer was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The bytes are not an entry that can be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It belongs to another workspace.
    #[error("the entry belongs to another workspace")]
    OtherWorkspace,
    /// This very entry is in the log.
    #[error("entry {seq} is in the log already")]
    AlreadyHeld {
        /// Its place.
        seq: u64,
    },
    /// Entries before it are missing.
    #[error("entry {seq} came before entry {expected}")]
    Ahead {
        /// Its place.
        seq: u64,
        /// The next place of the log.
        expected: u64,
    },
    /// Another entry than ours at a place that is taken: two devices extended the log apart, or one forked it.
    #[error("another entry {seq} than the one in the log")]
    Fork {
        /// The place.
        seq: u64,
    },
    /// It follows another entry than the log's newest.
    #[error("entry {seq} does not follow the newest entry")]
    NotLinked {
        /// Its place.
        seq: u64,
    },
    /// The log is as long as it may be.
    #[error("the roster has {limit} entries, which is all it may have")]
    Full {
        /// [`MAX_ENTRIES`].
        limit: u64,
    },
    /// The signature is not the signer's over this entry.
    #[error("the signature is not the signer's over this entry")]
    BadSignature,
    /// The first entry is no sound genesis.
    #[error("not a sound genesis entry")]
    NotGenesis,
    /// The signer may not say this, or it cannot be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A newer version is needed from here on.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// A stored log does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// There is nothing in it.
    #[error("the roster log is empty")]
    Empty,
    /// An entry was not admitted.
    #[error("roster entry {place} of the log")]
    Entry {
        /// Which one, counted from 0.
        place: usize,
        /// Why.
        source: AdmitError,
    },
}

impl Roster {
    /// Founds a workspace: the roster, and the genesis entry to store.
    ///
    /// # Errors
    ///
    /// When a field is outside its bounds or a key is not usable.
    pub fn found(key: &DeviceKey, founding: Founding) -> Result<(Self, SignedEntry), FoundError> {
        let genesis = Genesis {
            format: GENESIS_FORMAT,
            workspace_name: founding.workspace_name,
            device: key.id(),
            device_name: founding.device_name,
            recovery: founding.recovery,
            nonce: founding.nonce,
            created_at: founding.created_at,
            member: founding.member,
            member_name: founding.member_name,
            email: founding.email,
            credential: founding.credential,
            credential_name: founding.credential_name,
            token_hash: founding.token_hash,
        };
        if !has_sound_keys(&genesis) {
            return Err(FoundError::BadKey);
        }
        let entry = Entry {
            version: FORMAT,
            workspace: UNFOUNDED,
            prev: Vec::new(),
            seq: 0,
            signer: key.id(),
            body: Body::Genesis(genesis.clone()),
        };
        entry.body.check_fields()?;
        let signed = entry.sign(key).map_err(|error| FoundError::TooLarge {
            given: error.given,
            limit: MAX_ENTRY_BYTES,
        })?;
        Ok((Self::begin(signed.founds(), signed.head(), genesis), signed))
    }

    /// The roster of a genesis entry alone: where a node begins that was invited. Compare
    /// [`workspace`](Self::workspace) with the one that was asked for.
    ///
    /// # Errors
    ///
    /// When the bytes are not a sound genesis entry.
    pub fn from_genesis(bytes: &[u8]) -> Result<Self, AdmitError> {
        let opened = Opened::decode(bytes)?;
        let Some(body @ Body::Genesis(genesis)) = &opened.body else {
            return Err(AdmitError::NotGenesis);
        };
        if genesis.format > GENESIS_FORMAT {
            let what = Newer::Format {
                format: genesis.format,
            };
            return Err(Unsupported { seq: 0, what }.into());
        }
        let first = opened.workspace == UNFOUNDED && opened.prev.is_empty() && opened.seq == 0;
        let own = opened.signer == genesis.device && genesis.format == GENESIS_FORMAT;
        if !first || !own || !has_sound_keys(genesis) {
            return Err(AdmitError::NotGenesis);
        }
        if !opened.is_signed() {
            return Err(AdmitError::BadSignature);
        }
        body.check_fields().map_err(Refusal::Field)?;
        Ok(Self::begin(opened.founds(), opened.head, genesis.clone()))
    }

    /// The roster of a stored log, every entry checked as if a peer had sent it.
    ///
    /// # Errors
    ///
    /// At the first entry that is not admitted.
    pub fn replay<I>(entries: I) -> Result<Self, ReplayError>
    where
        I: IntoIterator<Item: AsRef<[u8]>>,
    {
        let mut entries = entries.into_iter().enumerate();
        let (place, genesis) = entries.next().ok_or(ReplayError::Empty)?;
        let mut roster = Self::from_genesis(genesis.as_ref())
            .map_err(|source| ReplayError::Entry { place, source })?;
        for (place, entry) in entries {
            roster
                .admit(entry.as_ref())
                .map_err(|source| ReplayError::Entry { place, source })?;
        }
        Ok(roster)
    }

    /// Adds an entry of our own, signed by a device of ours or by [`RecoveryKey::signer`](crate::RecoveryKey::signer).
    /// Nothing counts before the returned bytes are durable: append to a clone, and swap it in afterwards.
    ///
    /// # Errors
    ///
    /// When the signer may not say this, or the log cannot grow.
    pub fn append(&mut self, key: &DeviceKey, body: Body) -> Result<SignedEntry, AppendError> {
        if let Some(unsupported) = self.unsupported {
            return Err(unsupported.into());
        }
        if self.next_seq >= MAX_ENTRIES {
            return Err(AppendError::Full { limit: MAX_ENTRIES });
        }
        authority::check(self, &key.id(), &body)?;
        let entry = Entry {
            version: FORMAT,
            workspace: self.workspace,
            prev: vec![self.head],
            seq: self.next_seq,
            signer: key.id(),
            body,
        };
        let signed = entry.sign(key).map_err(|error| AppendError::TooLarge {
            given: error.given,
            limit: MAX_ENTRY_BYTES,
        })?;
        self.apply(signed.head(), &signed.entry().body);
        Ok(signed)
    }

    /// Takes in an entry from the disk or a peer, after the same check that [`append`](Self::append) makes.
    ///
    /// Cheap checks come first and the signature before anything that a stranger could make us do.
    ///
    /// # Errors
    ///
    /// When anything about it is not in order.
    pub fn admit(&mut self, bytes: &[u8]) -> Result<Admitted, AdmitError> {
        let opened = Opened::decode(bytes)?;
        if let Some(seq) = self.seq_of(opened.head) {
            return Err(AdmitError::AlreadyHeld { seq });
        }
        if opened.workspace != self.workspace {
            return Err(AdmitError::OtherWorkspace);
        }
        if let Some(unsupported) = self.unsupported {
            return Err(unsupported.into());
        }
        let (seq, expected) = (opened.seq, self.next_seq);
        if seq > expected {
            return Err(AdmitError::Ahead { seq, expected });
        }
        if seq < expected {
            return Err(AdmitError::Fork { seq });
        }
        if !opened.prev.contains(&self.head) {
            return Err(AdmitError::NotLinked { seq });
        }
        if seq >= MAX_ENTRIES {
            return Err(AdmitError::Full { limit: MAX_ENTRIES });
        }
        let signer = Signer::find(self, &opened.signer)?;
        if !opened.is_signed() {
            return Err(AdmitError::BadSignature);
        }
        let administers = signer.administers();
        let newer = match opened.body {
            Some(body) if opened.prev.len() == 1 => Ok(body),
            Some(_) => Err(Newer::Predecessors {
                count: opened.prev.len(),
            }),
            None => Err(Newer::Kind { kind: opened.kind }),
        };
        let body = newer.map_err(|what| self.stop(Unsupported { seq, what }, administers))?;
        authority::check(self, &opened.signer, &body)?;
        self.apply(opened.head, &body);
        Ok(Admitted {
            seq,
            head: opened.head,
            signer: opened.signer,
            body,
        })
    }

    /// The workspace.
    #[must_use]
    pub const fn workspace(&self) -> WorkspaceId {
        self.workspace
    }

    /// How the workspace began: its name, founder and time.
    #[must_use]
    pub const fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The public half of the recovery key.
    #[must_use]
    pub const fn recovery(&self) -> DeviceId {
        self.genesis.recovery
    }

    /// The hash of the newest entry.
    #[must_use]
    pub const fn head(&self) -> RosterHead {
        self.head
    }

    /// How many entries the log has.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.next_seq
    }

    /// Never: a roster has at least its genesis.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.next_seq == 0
    }

    /// Why this version cannot follow the log any further, if so.
    #[must_use]
    pub const fn unsupported(&self) -> Option<Unsupported> {
        self.unsupported
    }

    /// The place of the entry with this hash: whether a head that somebody names is one of ours, and how old.
    #[must_use]
    pub fn seq_of(&self, head: RosterHead) -> Option<u64> {
        self.heads.get(&head).copied()
    }

    /// Every member, by id.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// A member.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// The member with this email; upper and lower case of ASCII are the same.
    #[must_use]
    pub fn member_by_email(&self, email: &str) -> Option<&Member> {
        self.member(*self.index.emails.get(&folded(email))?)
    }

    /// Every device, by key.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    /// A device.
    #[must_use]
    pub fn device(&self, key: &DeviceId) -> Option<&Device> {
        self.devices.get(key)
    }

    /// The device, if it is this member's.
    #[must_use]
    pub fn device_of_member(&self, key: &DeviceId, member: MemberId) -> Option<&Device> {
        self.device(key).filter(|device| device.member == member)
    }

    /// A member's devices, by key.
    pub fn devices_of_member(&self, member: MemberId) -> impl Iterator<Item = &Device> {
        self.devices().filter(move |device| device.member == member)
    }

    /// Whether changes of this device may enter documents.
    #[must_use]
    pub fn may_write(&self, key: &DeviceId) -> bool {
        self.device(key)
            .is_some_and(|device| device.role == DeviceRole::Full)
    }

    /// Every credential, the revoked ones included, by id.
    pub fn credentials(&self) -> impl Iterator<Item = &Credential> {
        self.credentials.values()
    }

    /// A credential, revoked or not.
    #[must_use]
    pub fn credential(&self, id: CredentialId) -> Option<&Credential> {
        self.credentials.get(&id)
    }

    /// The live credential of this name; upper and lower case of ASCII are the same.
    #[must_use]
    pub fn credential_by_name(&self, name: &str) -> Option<&Credential> {
        self.credential(*self.index.names.get(&folded(name))?)
    }

    /// The credential, if it acts in the stead of the member whose device this is: what a change may name. A revoked one
    /// too, because changes made before the revocation stay valid.
    #[must_use]
    pub fn credential_of_device(&self, id: CredentialId, key: &DeviceId) -> Option<&Credential> {
        let device = self.device(key)?;
        self.credential(id)
            .filter(|credential| credential.member == device.member)
    }

    /// The live credential that this token belongs to. How long it takes does not tell how near a guess was.
    #[must_use]
    pub fn authenticate(&self, token: &str) -> Option<&Credential> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let presented = token_hash(token);
        let mut found = 0u64;
        for (place, credential) in (1u64..).zip(self.credentials.values()) {
            if let (Some(hash), true) = (&credential.token_hash, credential.is_live()) {
                found.conditional_assign(&place, presented.ct_eq(hash));
            }
        }
        let place = usize::try_from(found).ok()?.checked_sub(1)?;
        self.credentials.values().nth(place)
    }

    /// Whether a credential, live or revoked, ever had this token.
    pub(crate) fn knows_token(&self, hash: &[u8; 32]) -> bool {
        self.index.tokens.contains(hash)
    }

    /// How many live credentials act in the member's stead, the member's own included.
    pub(crate) fn live_credentials_of(&self, member: MemberId) -> usize {
        self.index.live.get(&member).map_or(0, BTreeSet::len)
    }

    /// What the member's own live credentials reach together, today.
    pub(crate) fn reach_of(&self, member: MemberId) -> (Scopes, Grants) {
        let live = self.index.live.get(&member).into_iter().flatten();
        live.filter_map(|id| self.credentials.get(id))
            .filter(|credential| credential.kind == CredentialKind::Person)
            .fold(
                (Scopes::default(), Grants::none()),
                |(scopes, grants), own| (scopes.or(&own.scopes), grants.or(&own.grants)),
            )
    }

    fn begin(workspace: WorkspaceId, head: RosterHead, genesis: Genesis) -> Self {
        let mut roster = Self {
            workspace,
            genesis: genesis.clone(),
            head,
            next_seq: 0,
            heads: BTreeMap::new(),
            members: BTreeMap::new(),
            devices: BTreeMap::new(),
            credentials: BTreeMap::new(),
            index: Index::default(),
            unsupported: None,
        };
        roster.apply(head, &Body::Genesis(genesis));
        roster
    }

    /// Notes that the log goes on beyond us. Only an administrator's entry is noted for good: a hostile member could
    /// otherwise stop every node with one entry that nobody else would ever extend.
    fn stop(&mut self, unsupported: Unsupported, administers: bool) -> AdmitError {
        if administers {
            self.unsupported = Some(unsupported);
        }
        unsupported.into()
    }

    /// Takes a checked entry into the state.
    fn apply(&mut self, head: RosterHead, body: &Body) {
        let seq = self.next_seq;
        match body {
            Body::Genesis(genesis) => {
                self.insert_member(Member {
                    id: genesis.member,
                    name: genesis.member_name.clone(),
                    email: genesis.email.clone(),
                    rank: Rank::Owner,
                    responsibility: Responsibility::Lead,
                    added_at: seq,
                });
                self.insert_device(Device {
                    id: genesis.device,
                    member: genesis.member,
                    role: DeviceRole::Full,
                    name: genesis.device_name.clone(),
                    added_at: seq,
                });
                self.insert_credential(Credential {
                    id: genesis.credential,
                    member: genesis.member,
                    name: genesis.credential_name.clone(),
                    kind: CredentialKind::Person,
                    token_hash: genesis.token_hash,
                    scopes: Scopes::all(),
                    grants: Grants::All,
                    granted_scopes: Scopes::all(),
                    granted_projects: Grants::All,
                    added_at: seq,
                    revoked_at: None,
                });
            }
            Body::MemberAdded(added) => self.insert_member(Member {
                id: added.member,
                name: added.name.clone(),
                email: added.email.clone(),
                rank: added.rank,
                responsibility: added.responsibility,
                added_at: seq,
            }),
            Body::MemberChanged(changed) => self.change_member(changed),
            Body::DeviceAdded(added) => self.insert_device(Device {
                id: added.device,
                member: added.member,
                role: added.role,
                name: added.name.clone(),
                added_at: seq,
            }),
            Body::CredentialAdded(added) => self.insert_credential(Credential {
                id: added.credential,
                member: added.member,
                name: added.name.clone(),
                kind: added.kind,
                token_hash: added.token_hash,
                scopes: added.scopes.clone(),
                grants: added.grants.clone(),
                granted_scopes: added.scopes.clone(),
                granted_projects: added.grants.clone(),
                added_at: seq,
                revoked_at: None,
            }),
            Body::CredentialRevoked(revoked) => self.revoke(revoked.credential, seq),
        }
        self.heads.insert(head, seq);
        self.head = head;
        self.next_seq = seq + 1;
    }

    fn insert_member(&mut self, member: Member) {
        if let Some(email) = &member.email {
            self.index.emails.insert(folded(email), member.id);
        }
        self.members.insert(member.id, member);
    }

    fn change_member(&mut self, changed: &MemberChanged) {
        let Some(member) = self.members.get_mut(&changed.member) else {
            return;
        };
        if let Some(email) = &member.email {
            self.index.emails.remove(&folded(email));
        }
        member.change(changed);
        if let Some(email) = &member.email {
            self.index.emails.insert(folded(email), changed.member);
        }
        if changed.rank != Edit::Keep {
            self.settle(changed.member);
        }
    }

    fn insert_device(&mut self, device: Device) {
        self.devices.insert(device.id, device);
    }

    fn insert_credential(&mut self, credential: Credential) {
        let (id, member, kind) = (credential.id, credential.member, credential.kind);
        self.index.names.insert(folded(&credential.name), id);
        self.index.tokens.extend(credential.token_hash);
        self.index.live.entry(member).or_default().insert(id);
        self.credentials.insert(id, credential);
        // Any other kind was checked against the reach as it stands, and adds nothing to it.
        if kind == CredentialKind::Person {
            self.settle(member);
        }
    }

    fn revoke(&mut self, id: CredentialId, seq: u64) {
        let Some(credential) = self.credentials.get_mut(&id) else {
            return;
        };
        credential.revoked_at = Some(seq);
        let (member, kind) = (credential.member, credential.kind);
        self.index.names.remove(&folded(&credential.name));
        if let Some(live) = self.index.live.get_mut(&member) {
            live.remove(&id);
        }
        if kind == CredentialKind::Person {
            self.settle(member);
        }
    }

    /// Brings what a member's live credentials may do now within the member's rank, and all but the member's own within
    /// the reach of those: no delegate outlives or outranks whom it stands for.
    fn settle(&mut self, member: MemberId) {
        let Some(rank) = self.members.get(&member).map(|member| member.rank) else {
            return;
        };
        let live = self.index.live.get(&member).cloned().unwrap_or_default();
        self.limit(&live, true, &rank.scopes(), &Grants::All);
        let (scopes, grants) = self.reach_of(member);
        self.limit(&live, false, &scopes, &grants);
    }

    fn limit(
        &mut self,
        live: &BTreeSet<CredentialId>,
        persons: bool,
        scopes: &Scopes,
        grants: &Grants,
    ) {
        for id in live {
            if let Some(credential) = self.credentials.get_mut(id)
                && (credential.kind == CredentialKind::Person) == persons
            {
                credential.scopes = credential.granted_scopes.and(scopes);
                credential.grants = credential.granted_projects.and(grants);
            }
        }
    }
}

impl Member {
    /// Sets what the change sets.
    pub(crate) fn change(&mut self, changed: &MemberChanged) {
        if let Edit::Set(name) = &changed.name {
            self.name.clone_from(name);
        }
        if let Edit::Set(email) = &changed.email {
            self.email.clone_from(email);
        }
        if let Edit::Set(rank) = changed.rank {
            self.rank = rank;
        }
        if let Edit::Set(responsibility) = changed.responsibility {
            self.responsibility = responsibility;
        }
    }
}

/// Ways to find what is above by something other than its id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Index {
    emails: BTreeMap<String, MemberId>,
    /// Of live credentials.
    names: BTreeMap<String, CredentialId>,
    /// Of all credentials ever: a revoked token never comes back.
    tokens: BTreeSet<[u8; 32]>,
    live: BTreeMap<MemberId, BTreeSet<CredentialId>>,
}

/// `Alice` must not pass for `alice`. ASCII only, because the Unicode tables differ between builds.
fn folded(name: &str) -> String {
    name.to_ascii_lowercase()
}

fn has_sound_keys(genesis: &Genesis) -> bool {
    genesis.device.is_usable() && genesis.recovery.is_usable() && genesis.device != genesis.recovery
}

/// What stands for the workspace in its genesis, before it has an id.
const UNFOUNDED: WorkspaceId = WorkspaceId::from_bytes([0; 16]);
/// The version of the workspace's rules.
const GENESIS_FORMAT: u16 = 1;

#[cfg(test)]
mod tests;
