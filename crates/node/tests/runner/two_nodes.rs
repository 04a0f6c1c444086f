//! Two and more nodes of one workspace: what one wrote, the other refuses, shows or keeps exactly
//! as it would its own.

use serde_json::{Value as Json, json};

use super::world::{Replica, Rng, converge, count, exchange, replica, replicas};

/// Issues as the importer of `stead import` hands them over: fields, edges to others by name, a
/// comment here and there.
fn issues(many: usize) -> Vec<Json> {
    let mut rng = Rng::new(704);
    (0..many)
        .map(|n| {
            let mut edges = Vec::new();
            if n > 10 && rng.below(3) == 0 {
                edges.push(json!({ "type": "depends_on", "target": format!("gen:{}", rng.below(n)) }));
            }
            if n > 10 && n % 7 == 0 {
                edges.push(json!({ "type": "parent", "target": format!("gen:{}", n % 10) }));
            }
            if n > 10 && n % 11 == 0 {
                edges.push(json!({ "type": "relates_to", "target": format!("gen:{}", rng.below(n)) }));
            }
            json!({
                "name": format!("gen:{n}"),
                "fields": {
                    "title": format!("Issue {n}"),
                    "body": "word ".repeat(1 + rng.below(400)),
                    "status": *rng.pick(&["ready", "backlog", "done", "in_progress"]),
                    "priority": rng.below(5),
                    "tags": [format!("area-{}", n % 5)],
                },
                "edges": edges,
                "comments": if n % 9 == 0 {
                    json!([{ "name": format!("gen:{n}:c1"), "body": "seen", "by": "somebody", "at": "2026-01-01T00:00:00Z" }])
                } else {
                    json!([])
                },
            })
        })
        .collect()
}

fn import(node: &Replica, issues: &[Json]) -> Vec<String> {
    let mut outcomes = Vec::new();
    for chunk in issues.chunks(100) {
        let answer = node.ok(
            "import_tasks",
            json!({ "projectId": "board", "tasks": chunk }),
        );
        for part in ["results", "comments"] {
            for result in answer[part].as_array().unwrap() {
                assert_ne!(result["outcome"], "refused", "{result}");
                outcomes.push(result["outcome"].as_str().unwrap_or_default().to_owned());
            }
        }
    }
    outcomes
}

fn tasks_in(export: &str) -> usize {
    export
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap())
        .filter(|object| object["fields"]["kind"][0]["value"] == "task")
        .count()
}

#[test]
fn the_same_import_on_two_nodes_is_one_board_without_conflicts() {
    let nodes = replicas(2);
    let issues = issues(300);
    for node in &nodes {
        import(node, &issues);
    }
    let export = converge(&nodes);
    assert_eq!(tasks_in(&export), 300);
    for node in &nodes {
        let page = node.ok("conflicts", json!({}));
        assert_eq!(page["conflicts"], json!([]));
        // Again: nothing is written.
        let before = node.arrivals();
        import(node, &issues);
        assert_eq!(node.arrivals(), before);
    }
    let ids = nodes[0].all_pages(&json!({ "status": ["any"], "limit": 200 }));
    assert_eq!(ids.len(), 300);
    assert_eq!(
        ids,
        nodes[1].all_pages(&json!({ "status": ["any"], "limit": 200 }))
    );
    for id in ids.iter().step_by(17) {
        let [a, b] = [0, 1].map(|n| nodes[n].task(&json!(id)));
        assert_eq!(a["revision"], b["revision"]);
    }
}

#[test]
fn an_older_revision_of_another_node_is_stale_and_a_newer_one_not_caught_up() {
    let mut nodes = replicas(2);
    let id = nodes[0].create(json!({ "title": "one", "body": "b".repeat(3_000) }))["id"].take();
    let [mut a, mut b] = [nodes.remove(0), nodes.remove(0)];
    exchange(&a, &b);
    let old = b.task(&id)["revision"].take();
    assert_eq!(old, a.task(&id)["revision"]);
    a.update(&id, json!({ "title": "two" }));
    a.update(&id, json!({ "priority": "high" }));
    let newer = a.task(&id)["revision"].take();

    for round in ["fresh", "packed", "restarted"] {
        match round {
            "packed" => {
                a.pack();
                b.pack();
            }
            "restarted" => {
                a.restart();
                b.kill();
            }
            _ => {}
        }
        // The revision was read on b, and a has moved on.
        let refused = a.refused(
            "STALE_WRITE",
            "task_mutate",
            json!({ "action": "update", "id": id, "revision": old, "title": "mine" }),
        );
        assert_eq!(refused["current"]["title"], "two");
        assert_eq!(refused["current"]["revision"], newer);
        assert_eq!(refused["overlap"], json!(["title"]), "{round}");
        let changed: Vec<_> = refused["changed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| {
                (
                    change["field"].as_str().unwrap(),
                    &change["before"],
                    &change["now"],
                )
            })
            .collect();
        assert!(
            changed.contains(&("title", &json!("one"), &json!("two"))),
            "{refused:#}"
        );
        assert!(
            changed
                .iter()
                .any(|(field, _, now)| *field == "priority" && **now == "high"),
            "{refused:#}"
        );
        // The revision was read on a, and b has not heard of it.
        b.refused(
            "NOT_CAUGHT_UP",
            "task_mutate",
            json!({ "action": "update", "id": id, "revision": newer, "title": "mine" }),
        );
        // What a alone has is not unknown to b, only not there yet.
        if round == "fresh" {
            let fresh = a.create(json!({ "title": "of a alone" }));
            b.refused(
                "NOT_CAUGHT_UP",
                "task_mutate",
                json!({ "action": "update", "id": fresh["id"], "revision": fresh["revision"], "title": "x" }),
            );
        }
    }
    exchange(&a, &b);
    // Caught up, the revision of a holds on b.
    b.mutate(
        "update",
        json!({ "id": id, "revision": newer, "title": "three" }),
    );
    exchange(&a, &b);
    assert_eq!(a.task(&id)["title"], "three");
    // A revision of the first days still says what changed since, on the other host.
    let refused = b.refused(
        "STALE_WRITE",
        "task_mutate",
        json!({ "action": "move", "id": id, "revision": old, "status": "done" }),
    );
    assert!(refused["changed"].as_array().unwrap().len() >= 2);
    assert_eq!(refused["current"]["revision"], a.task(&id)["revision"]);
}

#[test]
fn values_written_apart_are_both_listed_and_resolved_by_name() {
    let nodes = replicas(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    let id = a.create(json!({ "title": "base", "body": "line one\nline two\nline three\n" }))["id"]
        .take();
    exchange(a, b);
    a.update(
        &id,
        json!({ "title": "of a", "body": "line ONE\nline two\nline three\n" }),
    );
    b.update(
        &id,
        json!({ "title": "of b", "body": "line one\nline two\nline THREE\n" }),
    );
    exchange(a, b);
    let [seen_a, seen_b] = [a, b].map(|node| node.task(&id));
    assert_eq!(seen_a, seen_b, "both show the same object");
    let conflicts = seen_a["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 2, "{conflicts:?}");
    let title = conflicts
        .iter()
        .find(|one| one["field"] == "title")
        .unwrap();
    let values: Vec<_> = title["values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["value"].as_str().unwrap())
        .collect();
    assert!(
        values.contains(&"of a") && values.contains(&"of b"),
        "{title}"
    );
    let body = conflicts.iter().find(|one| one["field"] == "body").unwrap();
    assert!(
        body.to_string().contains("line ONE") && body.to_string().contains("line THREE"),
        "{body}"
    );
    for node in [a, b] {
        assert_eq!(
            node.all_pages(&json!({ "conflicted": true })),
            [id.as_str().unwrap()]
        );
        let listed = node.ok("conflicts", json!({}));
        assert_eq!(listed["conflicts"].as_array().unwrap().len(), 1);
        let refused = node.refused(
            "CONFLICT_OPEN",
            "task_mutate",
            json!({ "action": "update", "id": id, "revision": seen_a["revision"], "title": "third" }),
        );
        assert_eq!(refused["current"]["id"], id);
    }
    let choose = title["values"][1]["choose"].clone();
    let chosen = title["values"][1]["value"].clone();
    a.mutate(
        "resolve",
        json!({ "id": id, "revision": seen_a["revision"], "field": "title", "choose": choose }),
    );
    a.update(
        &id,
        json!({ "body": "line ONE\nline two\nline THREE\n", "resolves": ["body"] }),
    );
    exchange(a, b);
    for node in [a, b] {
        assert_eq!(node.task(&id)["title"], chosen);
        assert_eq!(node.task(&id)["conflicts"], json!([]));
        assert_eq!(
            node.all_pages(&json!({ "conflicted": true })),
            Vec::<String>::new()
        );
    }
    converge(&nodes);
}

#[test]
fn a_cycle_made_apart_is_suspended_on_both_nodes_in_the_same_place() {
    let mut nodes = replicas(2);
    let ids: Vec<Json> = (0..3)
        .map(|n| nodes[0].create(json!({ "title": format!("t{n}") }))["id"].take())
        .collect();
    exchange(&nodes[0], &nodes[1]);
    for (node, from, to) in [(0, 0, 1), (1, 1, 2), (0, 2, 0)] {
        let revision = nodes[node].task(&ids[from])["revision"].take();
        nodes[node].mutate("link", json!({ "id": ids[from], "revision": revision, "type": "depends_on", "targetId": ids[to] }));
    }
    // And a circle of parents.
    nodes[0].update(&ids[0], json!({ "parentId": ids[1] }));
    nodes[1].update(&ids[1], json!({ "parentId": ids[0] }));
    converge(&nodes);
    let shown = |node: &Replica| node.ok("conflicts", json!({}));
    let before = shown(&nodes[0]);
    assert_eq!(before, shown(&nodes[1]));
    assert!(before.to_string().contains("suspended"), "{before:#}");
    let open: Vec<_> = before["conflicts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].clone())
        .collect();
    assert!(!open.is_empty());
    // Dependencies without the suspended edge still order the three: one is ready, two wait.
    let next = nodes[0].all_pages(&json!({ "next": true }));
    assert_eq!(next, nodes[1].all_pages(&json!({ "next": true })));
    assert_eq!(next.len(), 1);
    for node in &mut nodes {
        node.pack();
        node.restart();
        node.ok("doctor", json!({ "rebuild": true }));
    }
    assert_eq!(before, shown(&nodes[0]));
    assert_eq!(before, shown(&nodes[1]));
    // Taking one edge out opens the circle on both.
    let revision = nodes[1].task(&ids[1])["revision"].take();
    nodes[1].mutate(
        "unlink",
        json!({ "id": ids[1], "revision": revision, "type": "depends_on", "targetId": ids[2] }),
    );
    converge(&nodes);
    assert!(!shown(&nodes[0]).to_string().contains("depends_on"));
    assert_eq!(shown(&nodes[0]), shown(&nodes[1]));
}

#[test]
fn of_two_sprints_activated_apart_both_nodes_show_the_same_one_active() {
    let nodes = replicas(2);
    let sprints: Vec<Json> = ["one", "two"]
        .iter()
        .map(|name| {
            nodes[0].mutate(
                "sprint_create",
                json!({ "projectId": "board", "name": name }),
            )["sprint"]["id"]
                .take()
        })
        .collect();
    exchange(&nodes[0], &nodes[1]);
    for (node, sprint) in nodes.iter().zip(&sprints) {
        node.mutate("sprint_activate", json!({ "sprintId": sprint }));
    }
    converge(&nodes);
    let states: Vec<Vec<Json>> = nodes
        .iter()
        .map(|node| {
            sprints
                .iter()
                .map(|id| node.ok("task_get", json!({ "id": id }))["sprint"].take())
                .collect()
        })
        .collect();
    assert_eq!(states[0], states[1]);
    let active = states[0]
        .iter()
        .filter(|sprint| sprint["status"] == "active")
        .count();
    assert_eq!(active, 1, "{states:#?}");
    // The loser is planned again and says nothing of having run.
    assert!(states[0].iter().any(|sprint| sprint["status"] == "planned"));
    for node in &nodes {
        let listed = node.ok("conflicts", json!({}));
        assert_eq!(listed, nodes[0].ok("conflicts", json!({})));
    }
}

#[test]
fn equal_keys_on_two_nodes_make_one_object() {
    let nodes = replicas(2);
    let call = json!({ "title": "once", "body": "the same", "idempotencyKey": "k-1" });
    let ids: Vec<Json> = nodes
        .iter()
        .map(|node| node.create(call.clone())["id"].take())
        .collect();
    assert_eq!(ids[0], ids[1]);
    converge(&nodes);
    for node in &nodes {
        assert_eq!(node.task(&ids[0])["conflicts"], json!([]));
        assert_eq!(node.all_pages(&json!({ "status": ["any"] })).len(), 1);
        // Whichever effect a node holds first, the answer is about that object.
        assert_eq!(node.create(call.clone())["id"], ids[0]);
    }
}

/// Commands at random; refusals are part of it, panics and lost work are not.
fn random_command(
    node: &Replica,
    rng: &mut Rng,
    known: &[Json],
    sprints: &[Json],
    n: usize,
) -> Option<Json> {
    let id = || {
        known
            .get(n % known.len().max(1))
            .cloned()
            .unwrap_or_default()
    };
    let picked = if known.is_empty() {
        id()
    } else {
        known[rng.below(known.len())].clone()
    };
    let other = if known.is_empty() {
        id()
    } else {
        known[rng.below(known.len())].clone()
    };
    let revision = node
        .call("task_get", json!({ "id": picked, "view": "summary" }))
        .map(|mut answer| answer["task"]["revision"].take())
        .unwrap_or_default();
    let mut call = match rng.below(14) {
        0..=2 => {
            json!({ "action": "create", "projectId": "board", "title": format!("t{}", rng.below(40)), "tags": [format!("g{}", rng.below(3))] })
        }
        3 | 4 => {
            json!({ "action": "update", "title": format!("title {}", rng.below(9)), "resolves": ["title"] })
        }
        5 => {
            json!({ "action": "update", "body": "long ".repeat(rng.below(600)), "resolves": ["body"] })
        }
        6 => {
            json!({ "action": "move", "status": *rng.pick(&["ready", "in_progress", "review", "done", "backlog"]), "force": true, "resolves": ["status", "blocker", "lease"] })
        }
        7 => {
            json!({ "action": "link", "type": *rng.pick(&["depends_on", "blocks", "relates_to"]), "targetId": other })
        }
        8 => json!({ "action": "unlink", "type": "depends_on", "targetId": other }),
        9 => json!({ "action": "update", "parentId": other, "resolves": ["parentId"] }),
        10 => json!({ "action": *rng.pick(&["archive", "restore"]) }),
        11 => json!({ "action": "comment", "body": "noted" }),
        12 => {
            json!({ "action": "update", "statePatch": { format!("k{}", rng.below(3)): rng.below(5) }, "addTags": [format!("g{}", rng.below(3))] })
        }
        _ if !sprints.is_empty() && rng.below(2) == 0 => {
            json!({ "action": "sprint_activate", "sprintId": rng.pick(sprints) })
        }
        _ => json!({ "action": "claim", "projectId": "board" }),
    };
    let action = call["action"].as_str().unwrap().to_owned();
    if action == "update" && call.get("addTags").is_some() {
        call.as_object_mut().unwrap().remove("addTags");
    }
    if !["create", "sprint_activate", "claim"].contains(&action.as_str()) {
        call["id"] = picked;
        if action != "comment" {
            call["revision"] = revision;
        }
    }
    match node.call("task_mutate", call.clone()) {
        Ok(mut answer) if action == "create" => Some(answer["task"]["id"].take()),
        Ok(_) => None,
        Err(refusal) => {
            let code = refusal.code.as_str();
            assert!(
                code != "RETRY" && code != "UNAVAILABLE",
                "{call}: {refusal}"
            );
            None
        }
    }
}

#[test]
fn random_commands_on_three_nodes_converge_whatever_happens_between() {
    for seed in 0..count("STEAD_ROUNDS", 3) as u64 {
        let mut rng = Rng::new(seed);
        let mut nodes = replicas(3);
        let mut known: Vec<Json> = Vec::new();
        let sprints: Vec<Json> = (0..2)
            .map(|n| {
                nodes[0].mutate(
                    "sprint_create",
                    json!({ "projectId": "board", "name": format!("s{n}") }),
                )["sprint"]["id"]
                    .take()
            })
            .collect();
        for step in 0..160 {
            let at = rng.below(3);
            match rng.below(40) {
                0 => nodes[at].restart(),
                1 => nodes[at].kill(),
                2 => {
                    nodes[at].pack();
                }
                3..=8 => {
                    let other = (at + 1 + rng.below(2)) % 3;
                    exchange(&nodes[at], &nodes[other]);
                }
                _ => {
                    nodes[at].clock.advance(rng.below(5_000) as i64 - 1_000);
                    known.extend(random_command(&nodes[at], &mut rng, &known, &sprints, step));
                }
            }
        }
        let export = converge(&nodes);
        let listed = nodes[0].ok("conflicts", json!({}));
        for node in &mut nodes {
            assert_eq!(node.ok("conflicts", json!({})), listed, "seed {seed}");
            node.pack();
            node.ok("doctor", json!({ "rebuild": true }));
            assert!(
                node.export() == export,
                "seed {seed}: a rebuild shows something else"
            );
            node.assert_clean();
        }
    }
}

#[test]
fn a_node_that_has_nothing_is_filled_in_any_number_of_steps() {
    let a = replica();
    let mut rng = Rng::new(5);
    for n in 0..60 {
        let id = a.create(json!({ "title": format!("t{n}") }))["id"].take();
        if rng.below(2) == 0 {
            a.update(&id, json!({ "body": "x".repeat(rng.below(3_000)) }));
        }
        if n == 30 {
            a.pack();
        }
    }
    let mut founded = a.founded.clone();
    founded.seeds.push(founded.bea);
    let b = founded.replica(founded.bea, 7);
    // Runs in any order and one at a time: what cannot follow yet waits with the sender.
    let mut runs = a.runs_for(&b);
    rng.shuffle(&mut runs);
    for _ in 0..runs.len() {
        for run in &runs {
            b.admit(vec![run.clone()]);
        }
    }
    assert_eq!(a.arrivals(), b.arrivals());
    assert!(a.export() == b.export());
    b.assert_clean();
}
