//! Every rule of the roster, and that bytes which nobody signed for us change nothing.

use super::*;
use crate::entry::{CredentialAdded, CredentialRevoked, DeviceAdded, MemberAdded};
use crate::keys::RecoveryKey;
use crate::limits::*;
use crate::scope::{Scope, capabilities};
use crate::token::Token;
use proptest::prelude::*;

/// A workspace with an owner (1), an admin (2) and a member (3), each with a full device and a person's credential, a
/// delegate of the member, a reader and a relay.
struct World {
    roster: Roster,
    log: Vec<Vec<u8>>,
}

fn key(seed: u8) -> DeviceKey {
    DeviceKey::from_seed(&[seed; 32])
}

fn recovery() -> RecoveryKey {
    RecoveryKey::from_entropy(&[0xee; 32])
}

fn member(n: u8) -> MemberId {
    MemberId::from_bytes([n; 8])
}

fn credential(n: u8) -> CredentialId {
    CredentialId::from_bytes([n; 8])
}

fn token(n: u8) -> Token {
    Token::from_entropy(&[n; 20])
}

fn scopes(list: &[Scope]) -> Scopes {
    list.iter().copied().collect()
}

fn founding() -> Founding {
    Founding {
        workspace_name: "Acme".into(),
        device_name: "laptop".into(),
        recovery: recovery().id(),
        nonce: [5; 32],
        created_at: 1_700_000_000_000,
        member: member(1),
        member_name: "Olga Owner".into(),
        email: Some("olga@example.org".into()),
        credential: credential(1),
        credential_name: "olga".into(),
        token_hash: Some(token(1).hash()),
    }
}

fn add_member(n: u8, rank: Rank) -> Body {
    Body::MemberAdded(MemberAdded {
        member: member(n),
        name: format!("Member {n}"),
        email: Some(format!("m{n}@example.org")),
        rank,
        responsibility: Responsibility::Contributor,
    })
}

fn add_device(n: u8, of: u8, role: DeviceRole) -> Body {
    Body::DeviceAdded(DeviceAdded {
        device: key(n).id(),
        member: member(of),
        role,
        name: format!("device {n}"),
    })
}

fn added(n: u8, of: u8, kind: CredentialKind, list: &[Scope]) -> CredentialAdded {
    CredentialAdded {
        credential: credential(n),
        member: member(of),
        name: format!("credential {n}"),
        kind,
        token_hash: Some(token(n).hash()),
        scopes: scopes(list),
        grants: Grants::All,
    }
}

fn add_credential(n: u8, of: u8, kind: CredentialKind, list: &[Scope]) -> Body {
    Body::CredentialAdded(added(n, of, kind, list))
}

fn revoke(n: u8) -> Body {
    Body::CredentialRevoked(CredentialRevoked {
        credential: credential(n),
    })
}

fn set_rank(n: u8, rank: Rank) -> Body {
    Body::MemberChanged(MemberChanged {
        rank: Edit::Set(rank),
        ..MemberChanged::of(member(n))
    })
}

const TASKS: &[Scope] = &[Scope::TasksRead, Scope::TasksWrite];
const OWNER: u8 = 1;
const ADMIN: u8 = 2;
const MEMBER: u8 = 3;
const READER: u8 = 4;
const RELAY: u8 = 5;

fn founded() -> World {
    let (roster, genesis) = Roster::found(&key(OWNER), founding()).unwrap();
    World {
        roster,
        log: vec![genesis.into_bytes()],
    }
}

fn world() -> World {
    let mut world = founded();
    for body in [
        add_member(2, Rank::Admin),
        add_device(ADMIN, 2, DeviceRole::Full),
        add_credential(2, 2, CredentialKind::Person, &Scope::ALL),
        add_member(3, Rank::Member),
        add_device(MEMBER, 3, DeviceRole::Full),
        add_credential(3, 3, CredentialKind::Person, TASKS),
        add_device(READER, 1, DeviceRole::Reader),
        add_device(RELAY, 1, DeviceRole::Relay),
    ] {
        world.says(OWNER, body).unwrap();
    }
    world
        .says(
            MEMBER,
            add_credential(4, 3, CredentialKind::Delegate, TASKS),
        )
        .unwrap();
    world
}

impl World {
    fn says(&mut self, signer: u8, body: Body) -> Result<(), AppendError> {
        self.append(&key(signer), body)
    }

    /// Appends, and checks that admission agrees with appending in every case.
    fn append(&mut self, key: &DeviceKey, body: Body) -> Result<(), AppendError> {
        let before = self.roster.clone();
        let forged = self.entry(key, body.clone());
        let mut reader = before.clone();
        match self.roster.append(key, body) {
            Ok(signed) => {
                let admitted = reader.admit(signed.bytes()).unwrap();
                assert_eq!(admitted.head, self.roster.head());
                assert_eq!(reader, self.roster);
                self.log.push(signed.into_bytes());
                Ok(())
            }
            Err(error) => {
                assert_eq!(self.roster, before, "a refused entry changes nothing");
                if let (AppendError::Refused(refusal), Ok(forged)) = (error, forged.sign(key)) {
                    assert_eq!(
                        reader.admit(forged.bytes()),
                        Err(AdmitError::Refused(refusal))
                    );
                    assert_eq!(reader, before, "a refused entry changes nothing");
                }
                Err(error)
            }
        }
    }

    fn refuses(&mut self, signer: u8, body: Body, refusal: Refusal) {
        assert_eq!(self.says(signer, body), Err(AppendError::Refused(refusal)));
    }

    fn entry(&self, key: &DeviceKey, body: Body) -> Entry {
        Entry {
            version: FORMAT,
            workspace: self.roster.workspace(),
            prev: vec![self.roster.head()],
            seq: self.roster.len(),
            signer: key.id(),
            body,
        }
    }

    fn refuses_bytes(&mut self, bytes: &[u8]) -> AdmitError {
        let before = self.roster.clone();
        let error = self.roster.admit(bytes).unwrap_err();
        assert_eq!(self.roster, before);
        error
    }
}

#[test]
fn founding_binds_the_keys() {
    let world = founded();
    let roster = &world.roster;
    assert_eq!(roster.len(), 1);
    assert_eq!(roster.member(member(1)).unwrap().rank, Rank::Owner);
    assert!(roster.may_write(&key(OWNER).id()));
    let other = |change: fn(&mut Founding)| {
        let mut other = founding();
        change(&mut other);
        Roster::found(&key(OWNER), other).unwrap().0.workspace()
    };
    assert_eq!(other(|_| {}), roster.workspace());
    assert_ne!(
        other(|founding| founding.nonce = [6; 32]),
        roster.workspace()
    );
    assert_ne!(
        other(|founding| founding.recovery = key(9).id()),
        roster.workspace()
    );
    let elsewhere = Roster::found(&key(2), founding()).unwrap().0;
    assert_ne!(elsewhere.workspace(), roster.workspace());
    let same = Founding {
        recovery: key(OWNER).id(),
        ..founding()
    };
    assert_eq!(
        Roster::found(&key(OWNER), same).unwrap_err(),
        FoundError::BadKey
    );
    let weak = Founding {
        recovery: DeviceId::from_bytes([0; 32]),
        ..founding()
    };
    assert_eq!(
        Roster::found(&key(OWNER), weak).unwrap_err(),
        FoundError::BadKey
    );
}

#[test]
fn genesis_is_checked() {
    let world = founded();
    let genesis = Entry::decode(&world.log[0]).unwrap();
    let forge = |change: fn(&mut Entry), by: u8| {
        let mut entry = genesis.clone();
        change(&mut entry);
        Roster::from_genesis(entry.sign(&key(by)).unwrap().bytes()).unwrap_err()
    };
    assert_eq!(forge(|_| {}, ADMIN), AdmitError::BadSignature);
    assert_eq!(
        forge(|entry| entry.signer = key(ADMIN).id(), ADMIN),
        AdmitError::NotGenesis
    );
    assert_eq!(forge(|entry| entry.seq = 1, OWNER), AdmitError::NotGenesis);
    assert_eq!(
        forge(
            |entry| entry.prev.push(RosterHead::from_bytes([1; 32])),
            OWNER
        ),
        AdmitError::NotGenesis
    );
    let elsewhere = |entry: &mut Entry| entry.workspace = WorkspaceId::from_bytes([1; 16]);
    assert_eq!(forge(elsewhere, OWNER), AdmitError::NotGenesis);
    let newer = |entry: &mut Entry| {
        if let Body::Genesis(genesis) = &mut entry.body {
            genesis.format = 2;
        }
    };
    let what = Newer::Format { format: 2 };
    assert_eq!(
        forge(newer, OWNER),
        AdmitError::Unsupported(Unsupported { seq: 0, what })
    );
    let nameless = |entry: &mut Entry| {
        if let Body::Genesis(genesis) = &mut entry.body {
            genesis.member_name.clear();
        }
    };
    let empty = FieldError::Empty {
        field: "member name",
    };
    assert_eq!(
        forge(nameless, OWNER),
        AdmitError::Refused(Refusal::Field(empty))
    );
    let mut world = world;
    let second = genesis.body.clone();
    world.refuses(OWNER, second, Refusal::SecondGenesis);
    assert_eq!(
        Roster::replay([[0u8; 0]; 0]).unwrap_err(),
        ReplayError::Empty
    );
}

#[test]
fn replay_is_the_live_roster() {
    let mut world = world();
    world.says(OWNER, revoke(4)).unwrap();
    world.says(OWNER, set_rank(3, Rank::Admin)).unwrap();
    world
        .append(recovery().signer(), set_rank(3, Rank::Owner))
        .unwrap();
    assert_eq!(Roster::replay(&world.log).unwrap(), world.roster);
    for place in 0..world.log.len() {
        let mut holed = world.log.clone();
        holed.remove(place);
        assert!(place + 1 == world.log.len() || Roster::replay(&holed).is_err());
    }
    for (seq, bytes) in world.log.iter().enumerate() {
        let entry = Entry::decode(bytes).unwrap();
        assert_eq!(entry.seq, seq as u64);
    }
}

#[test]
fn order_replay_graft_and_fork() {
    let mut world = world();
    let known = world.log[3].clone();
    assert_eq!(
        world.refuses_bytes(&known),
        AdmitError::AlreadyHeld { seq: 3 }
    );
    let body = || add_member(9, Rank::Member);
    let expected = world.roster.len();
    let entry = world.entry(&key(OWNER), body());
    let sign = |entry: Entry| entry.sign(&key(OWNER)).unwrap().into_bytes();
    let ahead = sign(Entry {
        seq: expected + 1,
        ..entry.clone()
    });
    assert_eq!(
        world.refuses_bytes(&ahead),
        AdmitError::Ahead {
            seq: expected + 1,
            expected
        }
    );
    let fork = sign(Entry {
        seq: 3,
        ..entry.clone()
    });
    assert_eq!(world.refuses_bytes(&fork), AdmitError::Fork { seq: 3 });
    let old = vec![Opened::decode(&known).unwrap().head];
    let unlinked = sign(Entry {
        prev: old,
        ..entry.clone()
    });
    assert_eq!(
        world.refuses_bytes(&unlinked),
        AdmitError::NotLinked { seq: expected }
    );
    let rootless = sign(Entry {
        prev: vec![],
        ..entry.clone()
    });
    assert_eq!(
        world.refuses_bytes(&rootless),
        AdmitError::NotLinked { seq: expected }
    );
    let graft = sign(Entry {
        workspace: WorkspaceId::from_bytes([1; 16]),
        ..entry.clone()
    });
    assert_eq!(world.refuses_bytes(&graft), AdmitError::OtherWorkspace);
    let version = sign(Entry {
        version: 2,
        ..entry.clone()
    });
    let newer = DecodeError::UnsupportedVersion { version: 2 };
    assert_eq!(world.refuses_bytes(&version), AdmitError::Decode(newer));
    // Another key's signature under the owner's name.
    let forged = entry.clone().sign(&key(MEMBER)).unwrap().into_bytes();
    assert_eq!(world.refuses_bytes(&forged), AdmitError::BadSignature);
    let stranger = world
        .entry(&key(77), body())
        .sign(&key(77))
        .unwrap()
        .into_bytes();
    assert_eq!(
        world.refuses_bytes(&stranger),
        AdmitError::Refused(Refusal::UnknownSigner)
    );
    world.roster.admit(&sign(entry)).unwrap();
}

#[test]
fn only_administrators_manage() {
    let mut world = world();
    for body in [
        add_member(9, Rank::Member),
        add_device(9, 3, DeviceRole::Full),
        add_credential(9, 3, CredentialKind::Person, TASKS),
        add_credential(9, 3, CredentialKind::ProjectKey, TASKS),
        add_credential(9, 3, CredentialKind::System, TASKS),
        set_rank(3, Rank::Owner),
        revoke(3),
    ] {
        world.refuses(MEMBER, body.clone(), Refusal::NeedsAdmin);
        world.refuses(
            READER,
            body.clone(),
            Refusal::SignsNothing {
                role: DeviceRole::Reader,
            },
        );
        world.refuses(
            RELAY,
            body.clone(),
            Refusal::SignsNothing {
                role: DeviceRole::Relay,
            },
        );
        world.refuses(99, body, Refusal::UnknownSigner);
    }
    let rename = MemberChanged {
        name: Edit::Set("M".into()),
        ..MemberChanged::of(member(3))
    };
    world.refuses(
        MEMBER,
        Body::MemberChanged(rename.clone()),
        Refusal::NeedsAdmin,
    );
    world.says(ADMIN, Body::MemberChanged(rename)).unwrap();
    world.says(ADMIN, add_member(9, Rank::Member)).unwrap();
    world
        .says(ADMIN, add_device(9, 9, DeviceRole::Full))
        .unwrap();
    world
        .says(ADMIN, add_credential(9, 9, CredentialKind::Person, TASKS))
        .unwrap();
    let role = Edit::Set(Responsibility::Observer);
    let watch = MemberChanged {
        responsibility: role,
        ..MemberChanged::of(member(9))
    };
    world.says(ADMIN, Body::MemberChanged(watch)).unwrap();
}

#[test]
fn an_admin_never_gets_an_owners_power() {
    let mut world = world();
    world.refuses(ADMIN, add_member(9, Rank::Admin), Refusal::NeedsOwner);
    world.refuses(ADMIN, add_member(9, Rank::Owner), Refusal::NeedsOwner);
    world.refuses(ADMIN, set_rank(3, Rank::Admin), Refusal::NeedsOwner);
    world.refuses(ADMIN, set_rank(2, Rank::Owner), Refusal::NeedsOwner);
    world.refuses(ADMIN, set_rank(1, Rank::Member), Refusal::NeedsOwner);
    // A device, a credential or an email of the owner's would be the owner.
    world.refuses(
        ADMIN,
        add_device(9, 1, DeviceRole::Full),
        Refusal::NeedsOwner,
    );
    world.refuses(
        ADMIN,
        add_credential(9, 1, CredentialKind::Person, TASKS),
        Refusal::NeedsOwner,
    );
    world.refuses(
        ADMIN,
        add_credential(9, 1, CredentialKind::Delegate, TASKS),
        Refusal::NeedsOwner,
    );
    world.refuses(ADMIN, revoke(1), Refusal::NeedsOwner);
    let email = Edit::Set(Some("evil@example.org".into()));
    let mail = MemberChanged {
        email,
        ..MemberChanged::of(member(1))
    };
    world.refuses(ADMIN, Body::MemberChanged(mail), Refusal::NeedsOwner);
    world
        .says(ADMIN, add_device(9, 2, DeviceRole::Full))
        .unwrap();
}

#[test]
fn the_last_owner_stays() {
    let mut world = world();
    world.refuses(OWNER, set_rank(1, Rank::Admin), Refusal::LastOwner);
    world.refuses(OWNER, set_rank(1, Rank::Owner), Refusal::NothingChanges);
    world.refuses(
        OWNER,
        Body::MemberChanged(MemberChanged::of(member(1))),
        Refusal::NothingChanges,
    );
    world.says(OWNER, set_rank(2, Rank::Owner)).unwrap();
    world.says(OWNER, set_rank(1, Rank::Member)).unwrap();
    world.refuses(OWNER, set_rank(1, Rank::Owner), Refusal::NeedsAdmin);
    world.refuses(ADMIN, set_rank(2, Rank::Member), Refusal::LastOwner);
}

#[test]
fn the_recovery_key_names_an_admin_and_nothing_else() {
    let mut world = world();
    let recovery = recovery();
    let not = Err(AppendError::Refused(Refusal::NotForRecovery));
    let name = Edit::Set("X".into());
    let named = MemberChanged {
        name,
        rank: Edit::Set(Rank::Owner),
        ..MemberChanged::of(member(3))
    };
    for body in [
        add_member(9, Rank::Owner),
        add_credential(9, 1, CredentialKind::Person, TASKS),
        revoke(1),
        set_rank(1, Rank::Admin),
        set_rank(3, Rank::Member),
        add_device(9, 3, DeviceRole::Full),
        add_device(9, 1, DeviceRole::Reader),
        Body::MemberChanged(named),
    ] {
        assert_eq!(world.append(recovery.signer(), body), not);
    }
    world
        .append(recovery.signer(), set_rank(3, Rank::Owner))
        .unwrap();
    world
        .append(recovery.signer(), add_device(9, 3, DeviceRole::Full))
        .unwrap();
    world.says(9, add_member(10, Rank::Owner)).unwrap();
    assert!(!world.roster.may_write(&recovery.id()));
    // It cannot become a device, and the wrong paper opens nothing.
    let as_device = Body::DeviceAdded(DeviceAdded {
        device: recovery.id(),
        member: member(1),
        role: DeviceRole::Full,
        name: "r".into(),
    });
    world.refuses(OWNER, as_device, Refusal::Taken { what: "device key" });
    let other = RecoveryKey::from_entropy(&[0xef; 32]);
    let unknown = Err(AppendError::Refused(Refusal::UnknownSigner));
    assert_eq!(
        world.append(other.signer(), set_rank(2, Rank::Owner)),
        unknown
    );
}

#[test]
fn members_manage_their_own_delegates() {
    let mut world = world();
    world
        .says(
            MEMBER,
            add_credential(9, 3, CredentialKind::Delegate, TASKS),
        )
        .unwrap();
    world.says(MEMBER, revoke(9)).unwrap();
    // Never another member's: no impersonation in either direction.
    world.refuses(
        MEMBER,
        add_credential(10, 1, CredentialKind::Delegate, TASKS),
        Refusal::NeedsAdmin,
    );
    world
        .says(
            OWNER,
            add_credential(11, 1, CredentialKind::Delegate, TASKS),
        )
        .unwrap();
    world.refuses(MEMBER, revoke(11), Refusal::NeedsAdmin);
    world.says(ADMIN, revoke(4)).unwrap();
    let device = key(MEMBER).id();
    assert!(
        world
            .roster
            .credential_of_device(credential(4), &device)
            .is_some(),
        "revoked, still its"
    );
    assert!(
        world
            .roster
            .credential_of_device(credential(11), &device)
            .is_none()
    );
    assert!(
        world
            .roster
            .credential_of_device(credential(4), &key(99).id())
            .is_none()
    );
    assert!(world.roster.device_of_member(&device, member(3)).is_some());
    assert!(world.roster.device_of_member(&device, member(1)).is_none());
    assert_eq!(world.roster.devices_of_member(member(1)).count(), 3);
}

#[test]
fn nothing_goes_beyond_the_member() {
    let mut world = world();
    let wide = &[Scope::TasksRead, Scope::ProjectsWrite];
    // The rank would allow it, the member's own credential does not.
    for signer in [MEMBER, ADMIN, OWNER] {
        world.refuses(
            signer,
            add_credential(9, 3, CredentialKind::Delegate, wide),
            Refusal::BeyondScopes,
        );
    }
    let admin = &[Scope::WorkspaceAdmin];
    world.refuses(
        OWNER,
        add_credential(9, 3, CredentialKind::Person, admin),
        Refusal::BeyondScopes,
    );
    world.says(OWNER, add_member(9, Rank::Member)).unwrap();
    world
        .says(OWNER, add_device(9, 9, DeviceRole::Full))
        .unwrap();
    let none = add_credential(10, 9, CredentialKind::Delegate, TASKS);
    world.refuses(9, none, Refusal::BeyondScopes);
    let grants = Grants::projects(["site", "shop"]);
    let person = CredentialAdded {
        grants,
        ..added(9, 9, CredentialKind::Person, TASKS)
    };
    world.says(OWNER, Body::CredentialAdded(person)).unwrap();
    let delegate = |grants| {
        let delegate = added(10, 9, CredentialKind::Delegate, TASKS);
        Body::CredentialAdded(CredentialAdded { grants, ..delegate })
    };
    world.refuses(9, delegate(Grants::All), Refusal::BeyondGrants);
    world.refuses(
        9,
        delegate(Grants::projects(["site", "core"])),
        Refusal::BeyondGrants,
    );
    world.says(9, delegate(Grants::projects(["site"]))).unwrap();
}

#[test]
fn delegates_shrink_with_their_member() {
    let mut world = world();
    world
        .says(
            OWNER,
            add_credential(9, 2, CredentialKind::Delegate, &Scope::ALL),
        )
        .unwrap();
    let can = |world: &World, n| capabilities(world.roster.credential(credential(n)).unwrap());
    assert!(can(&world, 9).contains(&"members:manage"));
    world.says(OWNER, set_rank(2, Rank::Member)).unwrap();
    assert!(!can(&world, 9).contains(&"members:manage"));
    assert!(!can(&world, 2).contains(&"members:manage"));
    world.says(OWNER, set_rank(2, Rank::Admin)).unwrap();
    assert!(
        can(&world, 9).contains(&"members:manage"),
        "as granted, again"
    );
    world.says(OWNER, revoke(2)).unwrap();
    assert!(can(&world, 9).is_empty());
    assert!(can(&world, 2).is_empty());
    world
        .says(OWNER, add_credential(12, 2, CredentialKind::Person, TASKS))
        .unwrap();
    assert!(can(&world, 9).contains(&"tasks:create"));
    assert!(!can(&world, 9).contains(&"workspace:admin"));
    assert_eq!(Roster::replay(&world.log).unwrap(), world.roster);
}

#[test]
fn nothing_is_given_twice() {
    let mut world = world();
    let taken = |what| Refusal::Taken { what };
    world.refuses(OWNER, add_member(3, Rank::Member), taken("member id"));
    world.refuses(
        OWNER,
        add_device(MEMBER, 3, DeviceRole::Full),
        taken("device key"),
    );
    let base = || added(9, 3, CredentialKind::Delegate, TASKS);
    let again = |change: CredentialAdded| Body::CredentialAdded(change);
    let id = CredentialAdded {
        credential: credential(4),
        ..base()
    };
    world.refuses(OWNER, again(id.clone()), taken("credential id"));
    let name = CredentialAdded {
        name: "CREDENTIAL 4".into(),
        ..base()
    };
    world.refuses(OWNER, again(name.clone()), taken("credential name"));
    let secret = CredentialAdded {
        token_hash: Some(token(4).hash()),
        ..base()
    };
    world.refuses(OWNER, again(secret.clone()), taken("token"));
    let mail = |n, email: &str| {
        Body::MemberAdded(MemberAdded {
            member: member(n),
            name: "Twin".into(),
            email: Some(email.into()),
            rank: Rank::Member,
            responsibility: Responsibility::Observer,
        })
    };
    world.refuses(OWNER, mail(9, "OLGA@example.org"), taken("email"));
    let email = Edit::Set(Some("olga@example.org".into()));
    let moved = MemberChanged {
        email,
        ..MemberChanged::of(member(3))
    };
    world.refuses(OWNER, Body::MemberChanged(moved), taken("email"));
    // A revoked credential frees its name, and nothing else of it.
    world.says(OWNER, revoke(4)).unwrap();
    world.refuses(OWNER, revoke(4), Refusal::AlreadyRevoked);
    world.refuses(OWNER, again(id), taken("credential id"));
    world.refuses(OWNER, again(secret), taken("token"));
    world.says(OWNER, again(name)).unwrap();
    // An email that its member gave up is free.
    let gone = MemberChanged {
        email: Edit::Set(None),
        ..MemberChanged::of(member(1))
    };
    world.says(OWNER, Body::MemberChanged(gone)).unwrap();
    world.says(OWNER, mail(9, "OLGA@example.org")).unwrap();
    assert_eq!(
        world.roster.member_by_email("olga@EXAMPLE.org").unwrap().id,
        member(9)
    );
}

#[test]
fn what_does_not_exist_is_refused() {
    let mut world = world();
    world.refuses(OWNER, revoke(99), Refusal::UnknownCredential);
    world.refuses(OWNER, set_rank(99, Rank::Admin), Refusal::UnknownMember);
    world.refuses(
        OWNER,
        add_device(9, 99, DeviceRole::Full),
        Refusal::UnknownMember,
    );
    world.refuses(
        OWNER,
        add_credential(9, 99, CredentialKind::Delegate, TASKS),
        Refusal::UnknownMember,
    );
    let weak = DeviceAdded {
        device: DeviceId::from_bytes([0; 32]),
        member: member(3),
        role: DeviceRole::Full,
        name: "weak".into(),
    };
    world.refuses(OWNER, Body::DeviceAdded(weak), Refusal::BadKey);
}

#[test]
fn tokens_open_what_they_belong_to() {
    let mut world = world();
    let roster = &world.roster;
    for n in 1..=4 {
        let found = roster.authenticate(token(n).as_str()).unwrap();
        assert_eq!(found.id, credential(n));
    }
    assert!(roster.authenticate(token(9).as_str()).is_none());
    assert!(roster.authenticate("").is_none());
    assert!(
        roster
            .authenticate(&token(1).as_str().to_uppercase())
            .is_none()
    );
    world.says(OWNER, revoke(4)).unwrap();
    assert!(world.roster.authenticate(token(4).as_str()).is_none());
    // A credential without a token is opened by none.
    let local = CredentialAdded {
        token_hash: None,
        ..added(9, 3, CredentialKind::Delegate, TASKS)
    };
    world.says(MEMBER, Body::CredentialAdded(local)).unwrap();
    assert!(world.roster.authenticate(token(9).as_str()).is_none());
    assert_eq!(
        world.roster.credential_by_name("Credential 9").unwrap().id,
        credential(9)
    );
    assert!(world.roster.credential_by_name("credential 4").is_none());
}

#[test]
fn token_length_limit() {
    let mut world = world();
    for (n, len) in [
        (20, MAX_TOKEN_BYTES - 1),
        (21, MAX_TOKEN_BYTES),
        (22, MAX_TOKEN_BYTES + 1),
    ] {
        let token = "x".repeat(len);
        let hash = Some(token_hash(&token));
        let long = CredentialAdded {
            token_hash: hash,
            ..added(n, 3, CredentialKind::Delegate, TASKS)
        };
        world.says(MEMBER, Body::CredentialAdded(long)).unwrap();
        assert_eq!(
            world.roster.authenticate(&token).is_some(),
            len <= MAX_TOKEN_BYTES
        );
    }
}

/// An entry of a kind that does not exist yet, soundly signed.
fn newer(world: &World, by: u8) -> Vec<u8> {
    // A revocation's payload under another number; the kind is the varint before the payload's length.
    let entry = world.entry(&key(by), revoke(4)).sign(&key(by)).unwrap();
    let mut bytes = entry.into_bytes();
    bytes.truncate(bytes.len() - 64);
    let place = bytes.len() - 10;
    assert_eq!(bytes[place], 5);
    bytes[place] = 20;
    let signature = key(by).sign(&[crate::entry::ENTRY_DOMAIN, &bytes].concat());
    bytes.extend_from_slice(signature.as_bytes());
    bytes
}

#[test]
fn what_is_newer_is_never_skipped() {
    let mut world = world();
    let unknown = newer(&world, OWNER);
    let kind = DecodeError::UnknownKind { kind: 20 };
    assert_eq!(Entry::decode(&unknown), Err(kind));
    let unsupported = Unsupported {
        seq: world.roster.len(),
        what: Newer::Kind { kind: 20 },
    };
    // Unsigned, it says nothing.
    let mut forged = unknown.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(world.refuses_bytes(&forged), AdmitError::BadSignature);
    // A member's is refused alike, but does not stop the others.
    let of_member = newer(&world, MEMBER);
    assert_eq!(
        world.refuses_bytes(&of_member),
        AdmitError::Unsupported(unsupported)
    );
    let head = world.roster.head();
    assert_eq!(
        world.roster.admit(&unknown),
        Err(AdmitError::Unsupported(unsupported))
    );
    assert_eq!(world.roster.unsupported(), Some(unsupported));
    assert_eq!(world.roster.head(), head);
    let fork = add_member(9, Rank::Member);
    let good = world
        .entry(&key(OWNER), fork.clone())
        .sign(&key(OWNER))
        .unwrap();
    assert_eq!(
        world.roster.append(&key(OWNER), fork),
        Err(AppendError::Unsupported(unsupported))
    );
    assert_eq!(
        world.roster.admit(good.bytes()),
        Err(AdmitError::Unsupported(unsupported))
    );
    assert!(world.roster.member(member(3)).is_some(), "it still answers");
    let mut log = world.log.clone();
    log.push(unknown);
    let place = world.log.len();
    let source = AdmitError::Unsupported(unsupported);
    assert_eq!(
        Roster::replay(&log).unwrap_err(),
        ReplayError::Entry { place, source }
    );
}

#[test]
fn branches_are_for_a_newer_version() {
    let mut world = world();
    let mut entry = world.entry(&key(OWNER), add_member(9, Rank::Member));
    entry.prev.push(RosterHead::from_bytes([1; 32]));
    let bytes = entry.sign(&key(OWNER)).unwrap().into_bytes();
    let what = Newer::Predecessors { count: 2 };
    let unsupported = Unsupported {
        seq: world.roster.len(),
        what,
    };
    assert_eq!(
        world.roster.admit(&bytes),
        Err(AdmitError::Unsupported(unsupported))
    );
    assert_eq!(world.roster.unsupported(), Some(unsupported));
}

#[test]
fn predecessors_limit() {
    let world = world();
    let with = |count| {
        let mut entry = world.entry(&key(OWNER), add_member(9, Rank::Member));
        entry.prev = vec![world.roster.head(); count];
        world
            .roster
            .clone()
            .admit(entry.sign(&key(OWNER)).unwrap().bytes())
            .unwrap_err()
    };
    assert!(matches!(with(MAX_PREV - 1), AdmitError::Unsupported(_)));
    assert!(matches!(with(MAX_PREV), AdmitError::Unsupported(_)));
    assert_eq!(
        with(MAX_PREV + 1),
        AdmitError::Decode(DecodeError::Malformed)
    );
}

#[test]
fn name_and_email_limits() {
    let named = |name: String| {
        Body::MemberChanged(MemberChanged {
            name: Edit::Set(name),
            ..MemberChanged::of(member(3))
        })
    };
    let mailed = |len: usize| {
        Body::MemberChanged(MemberChanged {
            email: Edit::Set(Some(format!("{}@x.org", "é".repeat(len - 6)))),
            ..MemberChanged::of(member(3))
        })
    };
    let mut world = world();
    world
        .says(OWNER, named("é".repeat(MAX_NAME_CHARS - 1)))
        .unwrap();
    world
        .says(OWNER, named("é".repeat(MAX_NAME_CHARS)))
        .unwrap();
    let (given, limit, unit) = (MAX_NAME_CHARS + 1, MAX_NAME_CHARS, "characters");
    let long = FieldError::TooLong {
        field: "member name",
        given,
        limit,
        unit,
    };
    world.refuses(OWNER, named("é".repeat(given)), Refusal::Field(long));
    world.says(OWNER, mailed(MAX_EMAIL_CHARS - 1)).unwrap();
    world.says(OWNER, mailed(MAX_EMAIL_CHARS)).unwrap();
    let (given, limit) = (MAX_EMAIL_CHARS + 1, MAX_EMAIL_CHARS);
    let long = FieldError::TooLong {
        field: "email",
        given,
        limit,
        unit,
    };
    world.refuses(OWNER, mailed(given), Refusal::Field(long));
    let field = "member name";
    world.refuses(
        OWNER,
        named(String::new()),
        Refusal::Field(FieldError::Empty { field }),
    );
    for name in ["a\nb", "a\u{202e}b", "a\u{200b}b", "\u{1b}[31m", " a", "a "] {
        world.refuses(
            OWNER,
            named(name.into()),
            Refusal::Field(FieldError::Invisible { field }),
        );
    }
    for email in ["", "x", "@", "a@", "@b"] {
        let email = Edit::Set(Some(email.into()));
        let changed = MemberChanged {
            email,
            ..MemberChanged::of(member(3))
        };
        world.refuses(
            OWNER,
            Body::MemberChanged(changed),
            Refusal::Field(FieldError::Email),
        );
    }
}

#[test]
fn every_name_is_bounded() {
    let long = || "x".repeat(MAX_NAME_CHARS + 1);
    let bodies = [
        Body::MemberAdded(MemberAdded {
            member: member(9),
            name: long(),
            email: None,
            rank: Rank::Member,
            responsibility: Responsibility::Lead,
        }),
        Body::DeviceAdded(DeviceAdded {
            device: key(9).id(),
            member: member(3),
            role: DeviceRole::Full,
            name: long(),
        }),
        Body::CredentialAdded(CredentialAdded {
            name: long(),
            ..added(9, 3, CredentialKind::Delegate, TASKS)
        }),
    ];
    let mut world = world();
    for body in bodies {
        let error = world.says(OWNER, body).unwrap_err();
        assert!(matches!(
            error,
            AppendError::Refused(Refusal::Field(FieldError::TooLong { .. }))
        ));
    }
    let change: [fn(&mut Founding, String); 4] = [
        |founding, name| founding.workspace_name = name,
        |founding, name| founding.device_name = name,
        |founding, name| founding.member_name = name,
        |founding, name| founding.credential_name = name,
    ];
    for change in change {
        let mut founding = founding();
        change(&mut founding, long());
        let error = Roster::found(&key(OWNER), founding).unwrap_err();
        assert!(matches!(
            error,
            FoundError::Field(FieldError::TooLong { .. })
        ));
    }
}

#[test]
fn grants_limits() {
    let mut world = world();
    let mut n = 10;
    let mut give = |grants| {
        n += 1;
        let base = added(n, 3, CredentialKind::Delegate, TASKS);
        world.says(
            MEMBER,
            Body::CredentialAdded(CredentialAdded { grants, ..base }),
        )
    };
    let many =
        |count| Grants::projects((0..count).map(|place| format!("{place:0>MAX_GRANT_CHARS$}")));
    give(many(MAX_GRANTS - 1)).unwrap();
    give(many(MAX_GRANTS)).unwrap();
    assert!(give(many(MAX_GRANTS + 1)).is_err());
    let one = |len| Grants::projects(["x".repeat(len)]);
    give(one(MAX_GRANT_CHARS - 1)).unwrap();
    give(one(MAX_GRANT_CHARS)).unwrap();
    assert!(give(one(MAX_GRANT_CHARS + 1)).is_err());
    for bad in [
        Grants::none(),
        Grants::projects([""]),
        Grants::projects(["a b"]),
    ] {
        assert!(matches!(
            give(bad),
            Err(AppendError::Refused(Refusal::Field(_)))
        ));
    }
    let nothing = add_credential(99, 3, CredentialKind::Delegate, &[]);
    world.refuses(
        MEMBER,
        nothing,
        Refusal::Field(FieldError::Empty { field: "scopes" }),
    );
}

#[test]
fn entry_bytes_limit() {
    let mut world = world();
    let sized = |world: &World, size: usize| {
        let name = |len| {
            Body::DeviceAdded(DeviceAdded {
                device: key(9).id(),
                member: member(3),
                role: DeviceRole::Full,
                name: "x".repeat(len),
            })
        };
        let entry = |len| world.entry(&key(OWNER), name(len));
        // Both length prefixes have three bytes at this size.
        let rest = entry(60_000).sign(&key(OWNER)).unwrap().bytes().len() - 60_000;
        entry(size - rest).sign(&key(OWNER))
    };
    for size in [MAX_ENTRY_BYTES - 1, MAX_ENTRY_BYTES] {
        let signed = sized(&world, size).unwrap();
        assert_eq!(signed.bytes().len(), size);
        // Read, and then refused for its name alone.
        let error = world.refuses_bytes(&signed.into_bytes());
        assert!(
            matches!(error, AdmitError::Refused(Refusal::Field(_))),
            "{error}"
        );
    }
    assert_eq!(
        sized(&world, MAX_ENTRY_BYTES + 1).unwrap_err().given,
        MAX_ENTRY_BYTES + 1
    );
    let given = MAX_ENTRY_BYTES + 1;
    let large = DecodeError::TooLarge {
        given,
        limit: MAX_ENTRY_BYTES,
    };
    assert_eq!(
        world.refuses_bytes(&vec![FORMAT; given]),
        AdmitError::Decode(large)
    );
}

#[test]
fn entries_limit() {
    let mut world = world();
    // As if the log were that long; what is before does not matter to the next entry.
    world.roster.next_seq = MAX_ENTRIES - 2;
    world.says(OWNER, add_member(9, Rank::Member)).unwrap();
    world.says(OWNER, add_member(10, Rank::Member)).unwrap();
    assert_eq!(world.roster.len(), MAX_ENTRIES);
    let full = Err(AppendError::Full { limit: MAX_ENTRIES });
    assert_eq!(world.says(OWNER, add_member(11, Rank::Member)), full);
    let entry = world.entry(&key(OWNER), add_member(11, Rank::Member));
    let bytes = entry.sign(&key(OWNER)).unwrap().into_bytes();
    assert_eq!(
        world.refuses_bytes(&bytes),
        AdmitError::Full { limit: MAX_ENTRIES }
    );
}

#[test]
fn live_credentials_limit() {
    let mut roster = world().roster;
    let give = |roster: &mut Roster, n: usize| {
        let mut id = [0xff; 8];
        id[..2].copy_from_slice(&u16::try_from(n).unwrap().to_be_bytes());
        let body = Body::CredentialAdded(CredentialAdded {
            credential: CredentialId::from_bytes(id),
            name: format!("agent {n}"),
            token_hash: None,
            ..added(9, 3, CredentialKind::Delegate, TASKS)
        });
        roster.append(&key(MEMBER), body)
    };
    for n in roster.live_credentials_of(member(3))..MAX_LIVE_CREDENTIALS {
        give(&mut roster, n).unwrap();
    }
    assert_eq!(roster.live_credentials_of(member(3)), MAX_LIVE_CREDENTIALS);
    let refusal = Refusal::TooManyCredentials {
        limit: MAX_LIVE_CREDENTIALS,
    };
    assert_eq!(give(&mut roster, 5000), Err(AppendError::Refused(refusal)));
    roster.append(&key(MEMBER), revoke(4)).unwrap();
    give(&mut roster, 5000).unwrap();
}

#[test]
fn the_encoding_is_pinned() {
    let mut world = world();
    let changed = MemberChanged {
        name: Edit::Set("N".into()),
        email: Edit::Set(None),
        rank: Edit::Set(Rank::Admin),
        responsibility: Edit::Set(Responsibility::Observer),
        ..MemberChanged::of(member(3))
    };
    world.says(OWNER, Body::MemberChanged(changed)).unwrap();
    world.says(OWNER, revoke(4)).unwrap();
    // The head hashes every kind of entry there is. A change here means that logs written before can no longer be read.
    assert_eq!(world.roster.workspace().to_string(), PINNED_WORKSPACE);
    assert_eq!(world.roster.head().to_string(), PINNED_HEAD);
}

const PINNED_WORKSPACE: &str = "w_zczhcyvqv724tf0vbttfqx069g";
const PINNED_HEAD: &str = "r_zyvbvbd5g97gmwqq6ydg44veq0de2a7szrts2feftyd05n22r0jg";

#[test]
fn only_the_canonical_encoding() {
    let mut world = world();
    let entry = world
        .entry(&key(OWNER), revoke(4))
        .sign(&key(OWNER))
        .unwrap();
    let resign = |mut bytes: Vec<u8>| {
        let signature = key(OWNER).sign(&[crate::entry::ENTRY_DOMAIN, &bytes].concat());
        bytes.extend_from_slice(signature.as_bytes());
        bytes
    };
    let unsigned = entry.bytes()[..entry.bytes().len() - 64].to_vec();
    let kind = unsigned.len() - 10;
    // The kind with a padded number, soundly signed.
    let mut padded = unsigned.clone();
    padded[kind] = 0x85;
    padded.insert(kind + 1, 0);
    let error = world.refuses_bytes(&resign(padded));
    assert!(matches!(error, AdmitError::Decode(_)), "{error}");
    // Bytes after the end, outside the payload and in it.
    let mut long = unsigned.clone();
    long.push(0);
    let malformed = AdmitError::Decode(DecodeError::Malformed);
    assert_eq!(world.refuses_bytes(&resign(long)), malformed);
    let mut long = unsigned.clone();
    long[kind + 1] += 1;
    long.push(0);
    assert_eq!(world.refuses_bytes(&resign(long)), malformed);
    // A set out of order.
    let entry = world.entry(
        &key(OWNER),
        add_credential(9, 3, CredentialKind::Delegate, TASKS),
    );
    let entry = entry.sign(&key(OWNER)).unwrap();
    let mut swapped = entry.bytes()[..entry.bytes().len() - 64].to_vec();
    let last = swapped.len();
    assert_eq!(swapped[last - 4..], [2, 0, 1, 0], "two scopes, all grants");
    swapped.swap(last - 3, last - 2);
    let error = world.refuses_bytes(&resign(swapped));
    assert_eq!(error, AdmitError::Decode(DecodeError::NotCanonical));
    world.roster.admit(&resign(unsigned)).unwrap();
}

/// What a hostile disk or peer does to a log.
#[derive(Debug, Clone)]
enum Harm {
    Flip(usize, usize),
    Cut(usize, usize),
    Grow(usize, Vec<u8>),
    Swap(usize, usize),
    Repeat(usize, usize),
    Graft(usize),
    Noise(usize, Vec<u8>),
}

fn harm() -> impl Strategy<Value = Harm> {
    let place = || any::<usize>();
    prop_oneof![
        4 => (place(), place()).prop_map(|(entry, bit)| Harm::Flip(entry, bit)),
        2 => (place(), place()).prop_map(|(entry, len)| Harm::Cut(entry, len)),
        1 => (place(), prop::collection::vec(any::<u8>(), 1..80)).prop_map(|(entry, more)| Harm::Grow(entry, more)),
        2 => (place(), place()).prop_map(|(one, other)| Harm::Swap(one, other)),
        2 => (place(), place()).prop_map(|(entry, at)| Harm::Repeat(entry, at)),
        2 => place().prop_map(Harm::Graft),
        1 => (place(), prop::collection::vec(any::<u8>(), 0..300)).prop_map(|(entry, noise)| Harm::Noise(entry, noise)),
    ]
}

thread_local! {
    static HONEST: World = world();
    /// The same people and keys, another workspace.
    static OTHER: World = {
        let (roster, genesis) = Roster::found(&key(OWNER), Founding { nonce: [6; 32], ..founding() }).unwrap();
        let mut other = World { roster, log: vec![genesis.into_bytes()] };
        let bodies = HONEST.with(|world| {
            world.log[1..].iter().map(|bytes| Entry::decode(bytes).unwrap()).collect::<Vec<_>>()
        });
        for entry in bodies {
            let signer = if entry.signer == key(OWNER).id() { OWNER } else { MEMBER };
            other.says(signer, entry.body).unwrap();
        }
        other
    };
}

fn harmed(harm: &Harm) -> Option<Vec<Vec<u8>>> {
    let mut log = HONEST.with(|world| world.log.clone());
    let honest = log.clone();
    let count = log.len();
    match harm {
        Harm::Flip(entry, bit) => {
            let bytes = &mut log[entry % count];
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        Harm::Cut(entry, len) => {
            let bytes = &mut log[entry % count];
            bytes.truncate(len % bytes.len());
        }
        Harm::Grow(entry, more) => log[entry % count].extend_from_slice(more),
        Harm::Swap(one, other) => log.swap(one % count, other % count),
        Harm::Repeat(entry, at) => {
            let again = log[entry % count].clone();
            log.insert(at % (count + 1), again);
        }
        Harm::Graft(entry) => {
            let place = entry % count;
            log[place] = OTHER.with(|other| other.log[place].clone());
        }
        Harm::Noise(entry, noise) => log[entry % count] = noise.clone(),
    }
    (log != honest).then_some(log)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn a_harmed_log_is_refused(harm in harm()) {
        if let Some(log) = harmed(&harm) {
            prop_assert!(Roster::replay(&log).is_err(), "{harm:?}");
        }
    }

    /// The same on a running roster: what is refused leaves no trace, and the honest entry still gets in.
    #[test]
    fn a_harmed_entry_leaves_no_trace(harm in harm()) {
        let Some(log) = harmed(&harm) else { return Ok(()) };
        let honest = HONEST.with(|world| world.log.clone());
        let mut roster = Roster::from_genesis(&honest[0]).unwrap();
        let mut good = honest.iter().skip(1);
        for bytes in &log {
            let before = roster.clone();
            if roster.admit(bytes).is_err() {
                prop_assert_eq!(&roster, &before);
            } else {
                prop_assert_eq!(Some(bytes), good.next());
            }
        }
        for bytes in good {
            roster.admit(bytes).unwrap();
        }
        prop_assert_eq!(roster, HONEST.with(|world| world.roster.clone()));
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut versioned = noise.clone();
        versioned.insert(0, FORMAT);
        for bytes in [noise, versioned] {
            prop_assert!(Entry::decode(&bytes).is_err());
            prop_assert!(Roster::from_genesis(&bytes).is_err());
        }
    }

    /// Whatever is said by whomever, what got in replays to the same roster, and no right goes beyond the member's.
    #[test]
    fn any_conversation_replays(
        said in prop::collection::vec((1u8..6, 0u8..6, 1u8..8, 1u8..8, 0u8..3), 0..40)
    ) {
        let mut world = founded();
        for (signer, what, one, other, choice) in said {
            let rank = [Rank::Member, Rank::Admin, Rank::Owner][usize::from(choice)];
            let role = [DeviceRole::Full, DeviceRole::Reader, DeviceRole::Relay][usize::from(choice)];
            let body = match what {
                0 => add_member(one, rank),
                1 => set_rank(one, rank),
                2 => add_device(one, other, role),
                3 => add_credential(one, other, CredentialKind::Person, &Scope::ALL[..3]),
                4 => add_credential(one, other, CredentialKind::Delegate, &Scope::ALL[..usize::from(choice) + 1]),
                _ => revoke(one),
            };
            // The check that admission agrees is in here.
            let _refused = world.says(signer, body);
        }
        let roster = &world.roster;
        prop_assert_eq!(&Roster::replay(&world.log).unwrap(), roster);
        prop_assert!(roster.members().any(|member| member.rank == Rank::Owner));
        for credential in roster.credentials().filter(|credential| credential.is_live()) {
            let (scopes, grants) = roster.reach_of(credential.member);
            prop_assert!(credential.scopes.within(&scopes));
            prop_assert!(credential.grants.within(&grants));
            prop_assert!(scopes.within(&roster.member(credential.member).unwrap().rank.scopes()));
        }
    }
}
