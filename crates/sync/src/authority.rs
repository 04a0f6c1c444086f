//! Who may say what. One pure function, the same for what this node writes and for what it reads.
//!
//! - A reader or a relay signs nothing. A full device speaks for its member.
//! - Owners and admins add and change members, devices and credentials. An admin's word covers members of rank member
//!   and the admin; only an owner's covers other admins and owners, because a device or a person's credential given to
//!   an owner's name would be an owner's power.
//! - Only an owner makes or unmakes admins and owners, and the last owner stays one.
//! - Any member gives and takes back delegates of their own.
//! - No credential goes beyond its member: a person's stays within the rank, any other within what the member's own
//!   live credentials reach.
//! - The recovery key raises a member to admin or owner and adds a full device of such a member, and nothing else.

use crate::entry::{
    Body, CredentialAdded, CredentialKind, CredentialRevoked, DeviceAdded, DeviceRole, Edit,
    FieldError, MemberAdded, MemberChanged,
};
use crate::id::MemberId;
use crate::keys::DeviceId;
use crate::limits::MAX_LIVE_CREDENTIALS;
use crate::roster::{Member, Roster};
use crate::scope::Rank;

/// An entry says what its signer may not say, or what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A field is outside its bounds.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The signer is not on the roster.
    #[error("the signing device is not on the roster")]
    UnknownSigner,
    /// The signer is a reader or a relay.
    #[error("a {} device signs nothing", .role.as_str())]
    SignsNothing {
        /// What the device is.
        role: DeviceRole,
    },
    /// Only an owner or an admin may say this.
    #[error("only an owner or an admin may do this")]
    NeedsAdmin,
    /// Only an owner may say this.
    #[error("only an owner may do this")]
    NeedsOwner,
    /// The recovery key may only name an admin or owner and add a device of theirs.
    #[error("the recovery key only names an admin or owner and adds a full device of theirs")]
    NotForRecovery,
    /// The workspace would be left without an owner.
    #[error("the last owner stays an owner")]
    LastOwner,
    /// There is one genesis.
    #[error("the workspace is founded already")]
    SecondGenesis,
    /// No such member.
    #[error("no such member")]
    UnknownMember,
    /// No such credential.
    #[error("no such credential")]
    UnknownCredential,
    /// It was revoked before, and that is final.
    #[error("the credential is revoked already")]
    AlreadyRevoked,
    /// It would leave everything as it is.
    #[error("nothing would change")]
    NothingChanges,
    /// Taken already: an id or key for good, a token for good, an email while a member has it, a name while a credential
    /// with it is live.
    #[error("this {what} is taken")]
    Taken {
        /// What is taken.
        what: &'static str,
    },
    /// The bytes are not a key that one secret signs for.
    #[error("not a usable public key")]
    BadKey,
    /// Scopes that the member does not have.
    #[error("the scopes go beyond the member's")]
    BeyondScopes,
    /// Projects that the member does not reach.
    #[error("the grants go beyond the member's")]
    BeyondGrants,
    /// The member has as many live credentials as a member may have.
    #[error("the member has {limit} live credentials already; revoke some")]
    TooManyCredentials {
        /// [`MAX_LIVE_CREDENTIALS`].
        limit: usize,
    },
}

/// Whether this signer may say this now.
pub(crate) fn check(roster: &Roster, signer: &DeviceId, body: &Body) -> Result<(), Refusal> {
    let signer = Signer::find(roster, signer)?;
    body.check_fields()?;
    match body {
        Body::Genesis(_) => Err(Refusal::SecondGenesis),
        Body::MemberAdded(added) => member_added(roster, signer, added),
        Body::MemberChanged(changed) => member_changed(roster, signer, changed),
        Body::DeviceAdded(added) => device_added(roster, signer, added),
        Body::CredentialAdded(added) => credential_added(roster, signer, added),
        Body::CredentialRevoked(revoked) => credential_revoked(roster, signer, revoked),
    }
}

/// Who speaks: a full device for its member, or the recovery key.
#[derive(Clone, Copy)]
pub(crate) enum Signer<'a> {
    Recovery,
    Member(&'a Member),
}

impl<'a> Signer<'a> {
    /// Finds who is behind a key, or that nobody is who may sign.
    pub(crate) fn find(roster: &'a Roster, key: &DeviceId) -> Result<Self, Refusal> {
        if *key == roster.recovery() {
            return Ok(Self::Recovery);
        }
        let device = roster.device(key).ok_or(Refusal::UnknownSigner)?;
        if device.role != DeviceRole::Full {
            return Err(Refusal::SignsNothing { role: device.role });
        }
        roster
            .member(device.member)
            .map(Self::Member)
            .ok_or(Refusal::UnknownSigner)
    }

    /// Whether it is an owner, an admin or the recovery key.
    pub(crate) fn administers(self) -> bool {
        match self {
            Self::Recovery => true,
            Self::Member(member) => member.rank >= Rank::Admin,
        }
    }

    fn administrator(self) -> Result<&'a Member, Refusal> {
        match self {
            Self::Recovery => Err(Refusal::NotForRecovery),
            Self::Member(member) if member.rank >= Rank::Admin => Ok(member),
            Self::Member(_) => Err(Refusal::NeedsAdmin),
        }
    }

    /// An owner, or an admin where the target is a plain member or that admin.
    fn administrator_of(self, target: &Member) -> Result<&'a Member, Refusal> {
        let admin = self.administrator()?;
        if admin.rank == Rank::Owner || target.rank == Rank::Member || target.id == admin.id {
            Ok(admin)
        } else {
            Err(Refusal::NeedsOwner)
        }
    }

    fn is(self, member: MemberId) -> bool {
        matches!(self, Self::Member(signer) if signer.id == member)
    }
}

fn member_added(roster: &Roster, signer: Signer<'_>, added: &MemberAdded) -> Result<(), Refusal> {
    let admin = signer.administrator()?;
    if added.rank >= Rank::Admin && admin.rank != Rank::Owner {
        return Err(Refusal::NeedsOwner);
    }
    if roster.member(added.member).is_some() {
        return Err(Refusal::Taken { what: "member id" });
    }
    email_is_free(roster, added.member, added.email.as_deref())
}

fn member_changed(
    roster: &Roster,
    signer: Signer<'_>,
    changed: &MemberChanged,
) -> Result<(), Refusal> {
    let before = roster
        .member(changed.member)
        .ok_or(Refusal::UnknownMember)?;
    let mut after = before.clone();
    after.change(changed);
    if let Signer::Recovery = signer {
        let only_rank = MemberChanged {
            rank: changed.rank,
            ..MemberChanged::of(changed.member)
        };
        // Upwards only: a found piece of paper must not unmake anybody.
        return if *changed == only_rank && after.rank > before.rank {
            Ok(())
        } else {
            Err(Refusal::NotForRecovery)
        };
    }
    let admin = signer.administrator_of(before)?;
    if after.rank != before.rank {
        if before.rank.max(after.rank) >= Rank::Admin && admin.rank != Rank::Owner {
            return Err(Refusal::NeedsOwner);
        }
        let owners = roster
            .members()
            .filter(|member| member.rank == Rank::Owner)
            .count();
        if before.rank == Rank::Owner && owners == 1 {
            return Err(Refusal::LastOwner);
        }
    }
    if after == *before {
        return Err(Refusal::NothingChanges);
    }
    match &changed.email {
        Edit::Keep => Ok(()),
        Edit::Set(email) => email_is_free(roster, changed.member, email.as_deref()),
    }
}

fn device_added(roster: &Roster, signer: Signer<'_>, added: &DeviceAdded) -> Result<(), Refusal> {
    let member = roster.member(added.member).ok_or(Refusal::UnknownMember)?;
    match signer {
        Signer::Recovery if member.rank >= Rank::Admin && added.role == DeviceRole::Full => {}
        Signer::Recovery => return Err(Refusal::NotForRecovery),
        Signer::Member(_) => {
            signer.administrator_of(member)?;
        }
    }
    // A device that held the recovery key's place would inherit its exceptions.
    if roster.device(&added.device).is_some() || added.device == roster.recovery() {
        return Err(Refusal::Taken { what: "device key" });
    }
    if !added.device.is_usable() {
        return Err(Refusal::BadKey);
    }
    Ok(())
}

fn credential_added(
    roster: &Roster,
    signer: Signer<'_>,
    added: &CredentialAdded,
) -> Result<(), Refusal> {
    let member = roster.member(added.member).ok_or(Refusal::UnknownMember)?;
    if added.kind != CredentialKind::Delegate || !signer.is(member.id) {
        signer.administrator_of(member)?;
    }
    if roster.credential(added.credential).is_some() {
        return Err(Refusal::Taken {
            what: "credential id",
        });
    }
    if roster.credential_by_name(&added.name).is_some() {
        return Err(Refusal::Taken {
            what: "credential name",
        });
    }
    if added
        .token_hash
        .is_some_and(|hash| roster.knows_token(&hash))
    {
        return Err(Refusal::Taken { what: "token" });
    }
    if roster.live_credentials_of(member.id) >= MAX_LIVE_CREDENTIALS {
        return Err(Refusal::TooManyCredentials {
            limit: MAX_LIVE_CREDENTIALS,
        });
    }
    let (scopes, grants) = match added.kind {
        CredentialKind::Person => (member.rank.scopes(), crate::scope::Grants::All),
        CredentialKind::Delegate | CredentialKind::ProjectKey | CredentialKind::System => {
            roster.reach_of(member.id)
        }
    };
    if !added.scopes.within(&scopes) {
        return Err(Refusal::BeyondScopes);
    }
    if !added.grants.within(&grants) {
        return Err(Refusal::BeyondGrants);
    }
    Ok(())
}

fn credential_revoked(
    roster: &Roster,
    signer: Signer<'_>,
    revoked: &CredentialRevoked,
) -> Result<(), Refusal> {
    let credential = roster
        .credential(revoked.credential)
        .ok_or(Refusal::UnknownCredential)?;
    let member = roster
        .member(credential.member)
        .ok_or(Refusal::UnknownMember)?;
    if credential.kind != CredentialKind::Delegate || !signer.is(member.id) {
        signer.administrator_of(member)?;
    }
    if credential.revoked_at.is_some() {
        return Err(Refusal::AlreadyRevoked);
    }
    Ok(())
}

fn email_is_free(roster: &Roster, member: MemberId, email: Option<&str>) -> Result<(), Refusal> {
    let Some(email) = email else {
        return Ok(());
    };
    match roster.member_by_email(email) {
        Some(other) if other.id != member => Err(Refusal::Taken { what: "email" }),
        Some(_) | None => Ok(()),
    }
}
