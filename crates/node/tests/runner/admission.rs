//! What a node lets in from other devices: who may, in which order, and what it keeps of those it
//! does not let in.

use serde_json::json;
use stead_doc::{
    change::{Action, Change, Draft, Op},
    document::{DocumentName, Genesis},
    id::{ActorId, ChangeHash, ObjectId},
    message::Message,
    scalar::Scalar,
};
use stead_node::core::SignedRun;
use stead_sync::{ChangeClaim, DeviceKey, Incarnation, RosterHead, WorkspaceId};

use super::world::{Founded, Replica, found_apart, replicas};

/// A hand that signs whatever it is told.
struct Forger {
    key: DeviceKey,
    workspace: WorkspaceId,
    roster_head: RosterHead,
    credential: String,
    incarnation: Incarnation,
    document: DocumentName,
}

impl Forger {
    fn new(node: &Replica, seed: &[u8; 32], credential: stead_sync::CredentialId) -> Self {
        let project = node.ok("project_list", json!({}))["projects"][0]["id"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        Self {
            key: DeviceKey::from_seed(seed),
            workspace: node.founded.roster.workspace(),
            roster_head: node.founded.roster.head(),
            credential: credential.to_string(),
            incarnation: Incarnation::from_bytes([66; 16]),
            document: DocumentName::project(project),
        }
    }

    fn id(&self) -> stead_doc::id::DocumentId {
        self.document.id(*self.workspace.as_bytes())
    }

    fn actor(&self) -> stead_sync::ActorId {
        stead_sync::ActorId::derive(&self.id().0, &self.key.id(), &self.incarnation)
    }

    /// A change that makes a task, on top of the genesis alone and of `last`.
    fn change(&self, seq: u64, last: Option<&Change>, edit: impl FnOnce(&mut Draft)) -> Change {
        let genesis = Genesis::of(self.id());
        let mut deps = vec![genesis.hash];
        let mut start_op = Genesis::MAX_OP + 1;
        if let Some(last) = last {
            deps = vec![last.hash];
            start_op = last.max_op() + 1;
        }
        let put = |object, field: &str, value: &str| Op {
            object,
            field: field.to_owned(),
            action: Action::Put(Scalar::Str(value.into())),
            preds: Vec::new(),
        };
        let object = ObjectId::random(1_000 + seq);
        let mut draft = Draft {
            actor: ActorId(*self.actor().as_bytes()),
            seq,
            start_op,
            deps,
            time: 0,
            message: Message {
                command: "create".to_owned(),
                credential: self.credential.clone(),
                ..Message::default()
            },
            ops: vec![
                put(object, "kind", "task"),
                put(object, "title", "forged or not"),
            ],
        };
        edit(&mut draft);
        Change::author(self.id(), draft).unwrap()
    }

    fn run(&self, changes: &[&Change]) -> SignedRun {
        let last = changes.last().unwrap();
        let claim = ChangeClaim {
            workspace: self.workspace,
            document: self.id().0,
            actor: self.actor(),
            seq: last.seq,
            hash: last.hash.0,
            roster_head: self.roster_head,
        };
        SignedRun {
            document: self.document.clone(),
            changes: changes.iter().map(|change| change.bytes.clone()).collect(),
            device: self.key.id(),
            incarnation: self.incarnation,
            signature: claim.sign(&self.key),
            roster_head: self.roster_head,
        }
    }
}

fn world() -> (Replica, Founded) {
    let node = replicas(1).remove(0);
    let founded = node.founded.clone();
    (node, founded)
}

#[track_caller]
fn refused(node: &Replica, run: SignedRun, why: &str) {
    let before = node.arrivals();
    let answer = node.admit(vec![run]);
    assert_eq!(answer["admitted"], 0, "{answer}");
    assert!(
        answer["refused"][0]
            .as_str()
            .unwrap_or_default()
            .contains(why),
        "{why}: {answer}"
    );
    assert_eq!(node.arrivals(), before);
}

#[test]
fn a_change_of_a_rostered_device_is_let_in() {
    let (node, founded) = world();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let first = bea.change(1, None, |_| {});
    let answer = node.admit(vec![bea.run(&[&first])]);
    assert_eq!(
        answer,
        json!({ "admitted": 1, "waiting": 0, "refused": [] })
    );
    // Again: it is here already, which is no refusal.
    let answer = node.admit(vec![bea.run(&[&first])]);
    assert_eq!(
        answer,
        json!({ "admitted": 0, "waiting": 0, "refused": [] })
    );
    let task = node.task(&json!(ObjectId::random(1_001).to_string()));
    assert_eq!(task["createdBy"]["memberName"], "Bea");
    node.assert_clean();
}

#[test]
fn who_is_not_on_the_roster_or_speaks_for_another_is_refused() {
    let (node, founded) = world();
    let bea = |change: &dyn Fn(&mut Forger)| {
        let mut forger = Forger::new(&node, &founded.bea, founded.bea_credential);
        change(&mut forger);
        forger
    };
    let stranger = Forger::new(&node, &[200; 32], founded.bea_credential);
    let change = stranger.change(1, None, |_| {});
    refused(&node, stranger.run(&[&change]), "may not write here");

    // Bea's device with Ada's credential, with one that nobody has, and with none.
    for credential in [
        founded.owner.to_string(),
        "c_0000000000000".to_owned(),
        String::new(),
    ] {
        let foreign = bea(&|forger| forger.credential.clone_from(&credential));
        let change = foreign.change(1, None, |_| {});
        refused(
            &node,
            foreign.run(&[&change]),
            "credential is not of its device's member",
        );
    }
    // A signature for another workspace, another document, another change, and by another key.
    let honest = bea(&|_| {});
    let change = honest.change(1, None, |_| {});
    let elsewhere = bea(&|forger| forger.workspace = WorkspaceId::from_bytes([1; 16]));
    let mut run = honest.run(&[&change]);
    run.signature = ChangeClaim {
        workspace: elsewhere.workspace,
        document: honest.id().0,
        actor: honest.actor(),
        seq: 1,
        hash: change.hash.0,
        roster_head: honest.roster_head,
    }
    .sign(&honest.key);
    refused(&node, run, "signature");
    let mut run = honest.run(&[&change]);
    run.signature = honest
        .run(&[&honest.change(1, None, |draft| draft.time = 7)])
        .signature;
    refused(&node, run, "signature");
    let mut run = honest.run(&[&change]);
    run.roster_head = founded.heads[0];
    refused(&node, run, "signature");
    let unknown = bea(&|forger| forger.roster_head = RosterHead::from_bytes([9; 32]));
    refused(&node, unknown.run(&[&change]), "signature");
    // Another device's actor, another incarnation, another document than the change was made for.
    let mut run = honest.run(&[&change]);
    run.incarnation = Incarnation::from_bytes([67; 16]);
    refused(&node, run, "actor");
    let mut run = honest.run(&[&change]);
    run.document = DocumentName::workspace();
    let before = node.arrivals();
    assert_eq!(node.admit(vec![run])["admitted"], 0);
    assert_eq!(node.arrivals(), before);
    // After all that the honest change still gets in.
    assert_eq!(node.admit(vec![honest.run(&[&change])])["admitted"], 1);
    node.assert_clean();
}

#[test]
fn a_run_that_is_not_chained_is_refused_whole() {
    let (node, founded) = world();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let first = bea.change(1, None, |_| {});
    let apart = bea.change(2, None, |draft| {
        draft.deps = vec![Genesis::of(bea.id()).hash]
    });
    refused(
        &node,
        bea.run(&[&first, &apart]),
        "do not follow each other",
    );
    let second = bea.change(2, Some(&first), |_| {});
    let third = bea.change(3, Some(&second), |_| {});
    refused(
        &node,
        bea.run(&[&first, &third]),
        "do not follow each other",
    );
    assert_eq!(
        node.admit(vec![bea.run(&[&first, &second, &third])])["admitted"],
        3
    );
    node.assert_clean();
}

#[test]
fn what_cannot_follow_yet_waits_and_freezes_nobody() {
    let (node, founded) = world();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let first = bea.change(1, None, |_| {});
    let second = bea.change(2, Some(&first), |_| {});
    let answer = node.admit(vec![bea.run(&[&second])]);
    assert_eq!(
        answer,
        json!({ "admitted": 0, "waiting": 1, "refused": [] })
    );
    // A dependency that is nowhere here.
    let lost = bea.change(1, None, |draft| draft.deps.push(ChangeHash([5; 32])));
    assert_eq!(node.admit(vec![bea.run(&[&lost])])["waiting"], 1);
    // In one batch the order does not matter.
    let answer = node.admit(vec![bea.run(&[&second]), bea.run(&[&first])]);
    assert_eq!(
        answer,
        json!({ "admitted": 2, "waiting": 0, "refused": [] })
    );
    node.assert_clean();
}

#[test]
fn a_frozen_actor_stays_frozen_after_a_restart_while_others_land() {
    let mut nodes = replicas(2);
    let other = nodes.pop().unwrap();
    let mut node = nodes.pop().unwrap();
    let founded = node.founded.clone();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let first = bea.change(1, None, |_| {});
    // An op that starts far beyond what its dependencies allow: never right, whatever comes.
    let hostile = bea.change(2, Some(&first), |draft| draft.start_op += 1_000);
    other.create(json!({ "title": "honest work" }));
    let mut runs = vec![bea.run(&[&first, &hostile])];
    runs.extend(other.runs_for(&node));
    let answer = node.admit(runs);
    assert_eq!(answer["admitted"], 2, "{answer}");
    assert_eq!(answer["refused"].as_array().unwrap().len(), 1, "{answer}");
    for round in ["at once", "restarted", "killed", "packed"] {
        match round {
            "restarted" => node.restart(),
            "killed" => node.kill(),
            "packed" => {
                node.pack();
                node.restart();
            }
            _ => {}
        }
        // Even a change that would follow is not taken any more.
        let valid = bea.change(2, Some(&first), |_| {});
        refused(&node, bea.run(&[&first, &valid]), "frozen");
        refused(&node, bea.run(&[&valid]), "frozen");
        node.assert_clean();
    }
    // Another incarnation of the same device is another actor, and honest.
    let mut again = Forger::new(&node, &founded.bea, founded.bea_credential);
    again.incarnation = Incarnation::from_bytes([68; 16]);
    let change = again.change(1, None, |draft| draft.ops[0].object = ObjectId::random(5));
    assert_eq!(node.admit(vec![again.run(&[&change])])["admitted"], 1);
    other.create(json!({ "title": "more honest work" }));
    assert_eq!(node.admit(other.runs_for(&node))["admitted"], 1);
    node.assert_clean();
}

#[test]
fn an_actor_whose_very_first_change_is_refused_is_frozen_too() {
    let (mut node, founded) = world();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let hostile = bea.change(1, None, |draft| draft.start_op += 1_000);
    let before = node.arrivals();
    assert_eq!(node.admit(vec![bea.run(&[&hostile])])["admitted"], 0);
    let valid = bea.change(1, None, |_| {});
    for round in 0..2 {
        refused(&node, bea.run(&[&valid]), "frozen");
        if round == 0 {
            node.restart();
        }
    }
    assert_eq!(node.arrivals(), before);
    node.assert_clean();
}

#[test]
fn a_revoked_credential_writes_here_no_more() {
    let (node, _) = world();
    node.ok("agent_add", json!({ "name": "brief", "local": true }));
    let agent = node.agent("brief");
    node.node()
        .call(
            &agent,
            "task_mutate",
            json!({ "action": "create", "projectId": "board", "title": "x" }),
        )
        .unwrap();
    node.ok("agent_revoke", json!({ "name": "brief" }));
    assert!(node.node().local_caller(Some("brief")).is_err());
    // What it did stays, with its name.
    let id = node.all_pages(&json!({})).remove(0);
    assert_eq!(node.task(&json!(id))["createdBy"]["name"], "brief");
    node.assert_clean();
}

#[test]
fn bytes_that_are_no_change_are_refused_and_nothing_else_happens() {
    let (node, founded) = world();
    let bea = Forger::new(&node, &founded.bea, founded.bea_credential);
    let change = bea.change(1, None, |_| {});
    let good = bea.run(&[&change]);
    for at in (0..change.bytes.len()).step_by(7) {
        let mut run = good.clone();
        run.changes[0][at] ^= 1 << (at % 8);
        assert_eq!(node.admit(vec![run])["admitted"], 0, "flipped at {at}");
        let mut run = good.clone();
        run.changes[0].truncate(at);
        assert_eq!(node.admit(vec![run])["admitted"], 0, "cut at {at}");
    }
    for run in [
        SignedRun {
            changes: Vec::new(),
            ..good.clone()
        },
        SignedRun {
            changes: vec![Vec::new()],
            ..good.clone()
        },
    ] {
        assert_eq!(node.admit(vec![run])["admitted"], 0);
    }
    assert_eq!(node.admit(vec![good])["admitted"], 1);
    node.assert_clean();
}

#[test]
fn nothing_of_another_workspace_gets_in_even_from_the_same_devices() {
    let (node, founded) = world();
    let elsewhere = found_apart(1, 9);
    assert_ne!(elsewhere.roster.workspace(), founded.roster.workspace());
    let other = elsewhere.replica(elsewhere.seeds[0], 3);
    other.ok("project_add", json!({ "slug": "board" }));
    other.create(json!({ "title": "of another workspace" }));
    let before = node.arrivals();
    for run in other.runs_beyond(&|_| 0) {
        let answer = node.admit(vec![run]);
        assert_eq!(answer["admitted"], 0, "{answer}");
        assert_eq!(answer["refused"].as_array().unwrap().len(), 1, "{answer}");
    }
    assert_eq!(node.arrivals(), before);
    node.assert_clean();
}
