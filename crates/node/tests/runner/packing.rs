//! Packing moves the log from one file to the other and changes nothing that anybody can see.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value as Json, json};
use stead_node::store::Store;

use super::{
    disk::{Cut, Fault},
    world::{Replica, Rng, exchange, replica, replicas},
};

/// A board with a history: `changes` on it, several actors, conflicts, keys.
fn busy(changes: usize) -> (Replica, Vec<Json>) {
    let mut nodes = replicas(2);
    let other = nodes.pop().unwrap();
    let mut node = nodes.pop().unwrap();
    let mut rng = Rng::new(42);
    let mut ids: Vec<Json> = Vec::new();
    let words = ["alpha", "beta", "gamma", "delta", "epsilon"];
    let mut done = 0;
    while done < changes {
        let calls: Vec<Json> = (0..50)
            .map(|n| {
                if ids.len() < 40 || rng.below(6) == 0 {
                    json!({ "action": "create", "projectId": "board", "title": format!("{} {} {done} {n}", rng.pick(&words), rng.pick(&words)), "body": format!("{} ", rng.pick(&words)).repeat(rng.below(80)), "idempotencyKey": format!("k{done}-{n}") })
                } else {
                    let id = rng.pick(&ids).clone();
                    json!({ "action": "update", "id": id, "statePatch": { format!("s{}", rng.below(6)): rng.below(9) } })
                }
            })
            .collect();
        let mut jobs = Vec::new();
        for mut call in calls {
            if call["action"] == "update" {
                call["revision"] = node.task(&call["id"])["revision"].clone();
            }
            jobs.push(call);
        }
        for call in jobs {
            if let Ok(mut answer) = node.call("task_mutate", call.clone()) {
                done += 1;
                if call["action"] == "create" {
                    ids.push(answer["task"]["id"].take());
                }
            }
        }
        if done % 400 < 50 {
            node.kill();
            exchange(&node, &other);
            let id = rng.pick(&ids).clone();
            for (side, title) in [(&node, "this"), (&other, "that")] {
                drop(side.call("task_mutate", json!({ "action": "update", "id": id, "revision": side.task(&id)["revision"], "title": title, "resolves": ["title"] })));
            }
            exchange(&node, &other);
        }
    }
    (node, ids)
}

/// Everything that a reader can ask.
fn shown(node: &Replica, ids: &[Json]) -> Vec<Json> {
    let mut all = Vec::new();
    all.push(json!(node.export()));
    for id in ids.iter().step_by(ids.len() / 12 + 1) {
        all.push(node.task(id));
        let mut cursor = Json::Null;
        loop {
            let page = node.ok(
                "task_get",
                json!({ "id": id, "view": "history", "limit": 7, "cursor": cursor }),
            );
            cursor = page["nextCursor"].clone();
            all.push(page["history"].clone());
            if cursor.is_null() {
                break;
            }
        }
    }
    all.push(node.ok("conflicts", json!({})));
    for q in ["alpha", "beta gamma", "delta epsilon", "this", "nothing"] {
        let mut found = node.all_pages(&json!({ "q": q, "limit": 50, "order": "created" }));
        found.sort();
        all.push(json!(found));
    }
    let mut cursor = json!(0);
    loop {
        let page = node.ok("changes_since", json!({ "cursor": cursor, "limit": 150 }));
        cursor = page["cursor"].clone();
        let ended = page["cursor"] == page["newest"];
        all.push(page);
        if ended {
            break;
        }
    }
    let mut cursor = Json::Null;
    loop {
        let page = node.ok(
            "transitions",
            json!({ "projectId": "board", "cursor": cursor, "limit": 13 }),
        );
        cursor = page["nextCursor"].clone();
        all.extend(page["transitions"].as_array().unwrap().clone());
        if cursor.is_null() {
            break;
        }
    }
    all
}

#[test]
fn nothing_that_is_shown_changes_by_packing() {
    let (mut node, ids) = busy(1_500);
    let old = node.ok("task_get", json!({ "id": ids[0], "view": "history" }));
    assert!(!old["history"].as_array().unwrap().is_empty());
    let before = shown(&node, &ids);
    let stale: Vec<(Json, Json)> = ids
        .iter()
        .take(8)
        .map(|id| {
            let first = node.task(id)["revision"].take();
            node.update(id, json!({ "title": "moved on" }));
            (id.clone(), first)
        })
        .collect();
    let refusals = |node: &Replica| -> Vec<Json> {
        stale
            .iter()
            .map(|(id, revision)| {
                node.refused(
                    "STALE_WRITE",
                    "task_mutate",
                    json!({ "action": "update", "id": id, "revision": revision, "title": "x" }),
                )
            })
            .collect()
    };
    let before_stale = refusals(&node);
    let with_updates = shown(&node, &ids);
    assert!(before.len() <= with_updates.len() + 40);
    assert!(node.pack() > 1_000);
    assert_eq!(
        node.node()
            .with_store(|store| Ok(store.unpacked()))
            .unwrap(),
        0
    );
    let compare = |node: &Replica, when: &str| {
        for (before, after) in with_updates.iter().zip(shown(node, &ids)) {
            assert!(*before == after, "{when}: {before:#} is now {after:#}");
        }
        assert_eq!(before_stale, refusals(node), "{when}");
    };
    compare(&node, "packed");
    node.restart();
    compare(&node, "packed and restarted");
    node.ok("compact", json!({}));
    compare(&node, "compacted");
    node.ok("doctor", json!({ "rebuild": true }));
    compare(&node, "rebuilt");
    // Keys too.
    let before = node.arrivals();
    let again = node.ok("task_mutate", json!({ "action": "create", "projectId": "board", "title": node.task(&ids[0])["title"], "idempotencyKey": "another" }));
    assert!(again["task"]["id"].is_string());
    assert_eq!(node.arrivals(), before + 1);
    // Another node is filled from the packed log alone.
    let peer = node.founded.replica(node.founded.bea, 9);
    exchange(&node, &peer);
    assert!(node.export() == peer.export());
    peer.assert_clean();
}

#[test]
fn transitions_of_one_change_are_never_parted_by_a_page() {
    for packed in [false, true] {
        let node = replica();
        // Claiming moves status and assignee in one change.
        for n in 0..9 {
            node.create(json!({ "title": format!("t{n}") }));
            node.mutate("claim", json!({ "projectId": "board" }));
        }
        if packed {
            node.pack();
        }
        let all = node.ok(
            "transitions",
            json!({ "projectId": "board", "limit": 1_000 }),
        )["transitions"]
            .take();
        assert_eq!(all.as_array().unwrap().len(), 27);
        for limit in 1..8 {
            let mut paged = Vec::new();
            let mut cursor = Json::Null;
            loop {
                let page = node.ok(
                    "transitions",
                    json!({ "projectId": "board", "cursor": cursor, "limit": limit }),
                );
                paged.extend(page["transitions"].as_array().unwrap().clone());
                cursor = page["nextCursor"].clone();
                if cursor.is_null() {
                    break;
                }
            }
            assert_eq!(json!(paged), all, "limit {limit}, packed {packed}");
        }
    }
}

#[test]
fn who_reads_while_it_packs_sees_what_was_there_before() {
    let (node, ids) = busy(400);
    let watched: Vec<Json> = ids.iter().step_by(21).cloned().collect();
    let expected: Vec<(Json, Json)> = watched
        .iter()
        .map(|id| {
            (
                node.task(id),
                node.ok(
                    "task_get",
                    json!({ "id": id, "view": "history", "limit": 200 }),
                ),
            )
        })
        .collect();
    let newest = node.arrivals();
    let changes = node.ok(
        "changes_since",
        json!({ "cursor": newest - 60, "limit": 60 }),
    );
    let hits = node.all_pages(&json!({ "q": "alpha", "order": "created", "limit": 200 }));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut rounds = 0;
                    while !stop.load(Ordering::Acquire) || rounds == 0 {
                        for (id, (task, history)) in watched.iter().zip(&expected) {
                            assert_eq!(node.task(id), *task);
                            assert_eq!(
                                node.ok(
                                    "task_get",
                                    json!({ "id": id, "view": "history", "limit": 200 })
                                ),
                                *history
                            );
                        }
                        assert_eq!(
                            node.ok(
                                "changes_since",
                                json!({ "cursor": newest - 60, "limit": 60 })
                            ),
                            changes
                        );
                        assert_eq!(
                            node.all_pages(
                                &json!({ "q": "alpha", "order": "created", "limit": 200 })
                            ),
                            hits
                        );
                        let runs = node.runs_beyond(&|_| 0);
                        assert_eq!(
                            runs.iter().map(|run| run.changes.len() as u64).sum::<u64>(),
                            newest
                        );
                        rounds += 1;
                    }
                })
            })
            .collect();
        node.pack();
        stop.store(true, Ordering::Release);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    node.assert_clean();
}

#[test]
fn a_crash_between_the_two_files_leaves_each_change_once() {
    let (mut node, ids) = busy(120);
    let before = shown(&node, &ids);
    let arrivals = node.arrivals();
    node.stop();
    let whole = node.disk.copy();
    let store = Store::open(Box::new(whole.clone()), super::world::CACHE).unwrap();
    let (start, unpacked) = (whole.ops(), store.unpacked());
    assert_eq!(store.pack().unwrap(), unpacked);
    let ops = whole.ops() - start;
    drop(store);
    let mut rng = Rng::new(6);
    let mut both = 0;
    for at in 1..=ops {
        let disk = node.disk.copy();
        let store = Store::open(Box::new(disk.clone()), super::world::CACHE).unwrap();
        disk.fail_in(at, Fault::Crash);
        drop(store.pack());
        drop(store);
        let disk = disk.after(Cut::ALL[at as usize % Cut::ALL.len()], &mut rng);
        let back = Store::open(Box::new(disk.clone()), super::world::CACHE).unwrap();
        both += usize::from(back.unpacked() == 0);
        assert_eq!(back.arrivals(), arrivals);
        drop(back);
        let back = Replica::start(&node.founded, disk, node.seed, node.clock.clone());
        if at % 16 == 0 || at == ops {
            assert_eq!(shown(&back, &ids), before, "crash at {at} of {ops}");
        }
        back.assert_clean();
    }
    assert!(both > 0, "no crash came after the packed file was durable");
}

#[test]
fn the_node_packs_by_itself_when_much_is_unpacked() {
    let mut node = replica();
    let owner = node.owner();
    let job = |n: usize| {
        stead_node::core::Job::Command {
        caller: owner.clone(),
        command: stead_doc::board::Command::Task(json!({ "action": "create", "projectId": "board", "title": format!("t{n}"), "idempotencyKey": format!("k{n}") }).as_object().unwrap().clone()),
    }
    };
    let mut made = 0;
    let answers = node.node().run_all((0..4_200).map(job).collect());
    made += answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(made, 4_200);
    // Stopping waits for a packing that is under way.
    node.restart();
    assert!(
        node.node()
            .with_store(|store| Ok(store.unpacked()))
            .unwrap()
            < 4_200
    );
    let first = node.create(json!({ "title": "t7", "idempotencyKey": "k7" }));
    assert_eq!(first["id"], answers[7].as_ref().unwrap()["task"]["id"]);
    assert_eq!(
        node.ok("task_search", json!({ "projectId": "board", "limit": 1 }))["left"],
        4_199
    );
}
