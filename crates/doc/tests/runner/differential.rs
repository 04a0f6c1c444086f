//! The licence for authoring and applying without Automerge: it does the same.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use stead_doc::{id::ObjectId, refusal::Code, row::INLINE_BYTES, scalar::Scalar};

use super::{
    random::{Random, count},
    replica::{Replica, codex, person, scout, stead},
};

/// Commands and raw writes on 2 to 5 replicas with random exchange. After every step the keys that
/// it touched, and at the end all keys, are equal in view and Automerge on each replica: values,
/// winners, conflicts with their op ids, heads. The bytes of what is authored are equal at once.
#[test]
fn the_view_is_what_automerge_says_and_writes() {
    let wanted = count("STEAD_DIFFERENTIAL_OPS", 16_000);
    let mut total = Tally::default();
    let mut seed = 0;
    while total.operations < wanted {
        total.add(&episode(seed));
        seed += 1;
    }
    assert!(total.authored > 1_000, "{total:?}");
    assert!(
        total.bytes * 10 > total.authored * 8,
        "too few of the authored changes could be compared: {total:?}"
    );
    assert!(total.conflicts > 100, "no conflicts to speak of: {total:?}");
    assert!(total.accepted > 500, "{total:?}");
    announce(&format!("{seed} episodes: {total:?}"));
}

#[expect(
    clippy::print_stderr,
    reason = "the figures of a long run, shown with --nocapture"
)]
fn announce(text: &str) {
    eprintln!("{text}");
}

#[derive(Debug, Default)]
struct Tally {
    /// Puts and deletes authored, once each.
    operations: u64,
    authored: u64,
    /// Authored changes that Automerge wrote byte for byte alike.
    bytes: u64,
    /// Changes taken from others.
    applied: u64,
    /// Keys compared with everything in them.
    keys: u64,
    /// Keys with several values among them, at the end of the episodes.
    conflicts: u64,
    accepted: u64,
    refused: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.authored += other.authored;
        self.bytes += other.bytes;
        self.applied += other.applied;
        self.keys += other.keys;
        self.conflicts += other.conflicts;
        self.accepted += other.accepted;
        self.refused += other.refused;
    }
}

/// One workspace from its beginning; short, because what a change costs Automerge grows with it.
fn episode(seed: u64) -> Tally {
    let mut random = Random::seeded(seed);
    let mut tally = Tally::default();
    let replicas = 2 + random.below(4) as u8;
    let mut first = Replica::new(1).with_automerge();
    first.project("stead");
    let mut nodes = vec![first];
    for device in 2..=replicas {
        let mut node = Replica::new(device).with_automerge();
        node.exchange_from(&nodes[0]);
        nodes.push(node);
    }
    for _ in 0..220 {
        let at = random.below(nodes.len());
        let before: Vec<usize> = nodes[at]
            .documents()
            .map(|document| document.changes.len())
            .collect();
        if random.once_in(5) {
            let from = random.below(nodes.len());
            if from == at {
                continue;
            }
            let limit = if random.once_in(3) {
                1 + random.below(4)
            } else {
                usize::MAX
            };
            let (to, from) = two(&mut nodes, at, from);
            to.exchange_some(from, limit);
        } else if random.once_in(3) {
            raw(&mut nodes[at], &mut random);
        } else {
            let caller = match random.below(3) {
                0 => person("ada"),
                1 => codex(),
                _ => scout(),
            };
            let command = command(&nodes[at], &mut random);
            match nodes[at].run_as(&caller, command.clone()) {
                Ok(_) => tally.accepted += 1,
                Err(refusal) => {
                    assert_ne!(refusal.code, Code::Unavailable, "seed {seed}: {command}");
                    tally.refused += 1;
                }
            }
        }
        tally.keys += compare_newer(&nodes[at], &before);
    }
    Replica::exchange_all(&mut nodes);
    let export = nodes[0].export();
    for node in &nodes {
        assert!(node.export() == export, "seed {seed}: replicas differ");
        for document in node.documents() {
            tally.keys += document.compare(document.keys()) as u64;
            assert_eq!(document.stray_texts(), 0, "seed {seed}");
            tally.bytes += document.bytes_compared;
            let own = node.actor(document.id);
            for (change, _) in &document.changes {
                if change.actor == own {
                    tally.authored += 1;
                    tally.operations += change.ops.len() as u64;
                } else {
                    tally.applied += 1;
                }
            }
        }
    }
    for document in nodes[0].documents() {
        let cells = document.rows.values().flat_map(|row| row.cells.values());
        tally.conflicts += cells.filter(|cell| cell.0.len() > 1).count() as u64;
    }
    tally
}

fn two(nodes: &mut [Replica], a: usize, b: usize) -> (&mut Replica, &Replica) {
    let [a, b] = nodes.get_disjoint_mut([a, b]).unwrap();
    (a, b)
}

/// The keys of the changes that a node took since it had `before` of them.
fn compare_newer(node: &Replica, before: &[usize]) -> u64 {
    let mut compared = 0;
    for (document, before) in node.documents().zip(before) {
        let keys: BTreeSet<_> = document.changes[*before..]
            .iter()
            .flat_map(|(change, _)| &change.ops)
            .map(|op| (op.object, op.field.clone()))
            .collect();
        compared += document.compare(keys) as u64;
    }
    compared
}

/// Puts and deletes that no rule of the board would write.
fn raw(node: &mut Replica, random: &mut Random) {
    let object = ObjectId::random(random.below(6) as u64 * 97 + 1);
    let fields = ["kind", "title", "body", "status", "tag/ä/b", "state/", "x"];
    // Now and then a long one, with keys that only long ones write.
    let more: Vec<String> = if random.once_in(2) {
        (0..random.below(240))
            .map(|n| format!("state/{n}"))
            .collect()
    } else {
        Vec::new()
    };
    let mut edits: Vec<(&str, Option<Scalar>)> = Vec::new();
    for field in fields.into_iter().chain(more.iter().map(String::as_str)) {
        if random.once_in(3) {
            let value = (!random.once_in(4)).then(|| scalar(random));
            edits.push((field, value));
        }
    }
    // What deletes nothing is not written, and a change of nothing else is not either.
    let writes = edits.iter().any(|(field, value)| {
        value.is_some() || {
            let document = node.document(&stead());
            let row = document.rows.get(&object);
            row.is_some_and(|row| row.cells.contains_key(*field))
        }
    });
    if writes {
        node.put(&stead(), object, &edits);
    }
}

fn scalar(random: &mut Random) -> Scalar {
    match random.below(11) {
        0 => Scalar::Null,
        1 => Scalar::Bool(random.once_in(2)),
        2 => Scalar::Int(random.next() as i64 >> random.below(64)),
        3 => Scalar::Uint(random.next()),
        4 => Scalar::F64(f64::from_bits(random.next() >> 2)),
        5 => Scalar::Timestamp(random.next() as i64 >> 20),
        6 => Scalar::Bytes(random.bytes()[..random.below(33)].to_vec()),
        7 => Scalar::Str(String::new()),
        8 => "ß\u{0}\u{10ffff}".into(),
        9 => "long "
            .repeat(INLINE_BYTES / 5 - 1 + random.below(3))
            .into(),
        _ => format!("v{}", random.below(3)).into(),
    }
}

/// Arguments that make sense often enough.
fn command(node: &Replica, random: &mut Random) -> Json {
    let of_kind = |kind: &str| -> Vec<String> {
        let rows = &node.document(&stead()).rows;
        rows.iter()
            .filter(|(_, row)| row.kind() == Some(kind))
            .map(|(id, _)| id.to_string())
            .collect()
    };
    let (tasks, sprints) = (of_kind("task"), of_kind("sprint"));
    if tasks.len() < 3 || random.once_in(12) {
        let key = random
            .once_in(2)
            .then(|| format!("key {}", random.below(8)));
        return json!({
            "action": "create", "projectId": "stead", "title": format!("t{}", random.below(9)),
            "body": "b".repeat(random.below(2 * INLINE_BYTES)), "idempotencyKey": key,
            "tags": ["ui", "db"], "criteria": ["it works", "it is fast"], "priority": random.below(5),
        });
    }
    if sprints.is_empty() || random.once_in(25) {
        return json!({"action": "sprint_create", "projectId": "stead", "name": "s", "goal": "g"});
    }
    let id = random.pick(&tasks).clone();
    let other = random.pick(&tasks).clone();
    let sprint = random.pick(&sprints).clone();
    let word = format!("w{}", random.below(5));
    let mut call = match random.below(18) {
        0 => json!({"action": "update", "title": word, "priority": random.below(5)}),
        1 => json!({"action": "update", "body": word.repeat(random.below(120)), "notes": word}),
        2 => json!({"action": "update", "addTags": [word], "removeTags": ["ui"]}),
        3 => json!({"action": "update", "statePatch": {word: random.below(3), "phase": null}}),
        4 => json!({"action": "update", "criteria": [{"text": word}, {"text": "x", "done": true}]}),
        5 => json!({"action": "update", "parentId": other, "rank": random.below(9)}),
        6 => {
            json!({"action": "move", "status": random.pick(&["backlog", "ready", "in_progress", "review", "done"]), "force": true})
        }
        7 => json!({"action": "move", "status": "abandoned", "abandonReason": word}),
        8 => json!({"action": "comment", "body": word}),
        9 => json!({"action": "block", "reason": word}),
        10 => json!({"action": "unblock"}),
        11 => json!({"action": "claim", "force": random.once_in(2)}),
        12 => json!({"action": "release", "force": random.once_in(2)}),
        13 => {
            json!({"action": "link", "type": random.pick(&["depends_on", "blocks", "relates_to"]), "targetId": other})
        }
        14 => json!({"action": "unlink", "type": "depends_on", "targetId": other}),
        15 => json!({"action": random.pick(&["archive", "restore"])}),
        16 => json!({"action": "sprint_assign", "sprintId": sprint}),
        _ => {
            json!({"action": random.pick(&["sprint_activate", "sprint_complete"]), "sprintId": sprint})
        }
    };
    if call.get("sprintId").is_none() || call["action"] == "sprint_assign" {
        if call["action"] != "comment" {
            call["revision"] = node.revision(&id).into();
        }
        // Without naming conflicts sometimes, so that some stay.
        let takes = [
            "update",
            "move",
            "block",
            "unblock",
            "claim",
            "release",
            "archive",
            "restore",
            "sprint_assign",
        ];
        if takes.iter().any(|action| call["action"] == *action) && random.once_in(2) {
            let open: Vec<String> = node
                .row(&id)
                .conflicted()
                .map(|(field, _)| field.to_owned())
                .collect();
            call["resolves"] = open.into();
        }
        call["id"] = id.into();
    }
    call
}
