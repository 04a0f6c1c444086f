//! A disk that fails under a running node: callers are told that the outcome is unknown, the store
//! is opened again, and the node goes on.

use serde_json::{Value as Json, json};

use super::{
    disk::Fault,
    world::{Replica, replica},
};

fn create(node: &Replica, title: &str) -> Result<Json, stead_doc::refusal::Refusal> {
    node.call(
        "task_mutate",
        json!({ "action": "create", "projectId": "board", "title": title, "idempotencyKey": title }),
    )
}

#[test]
fn a_commit_that_fails_is_answered_retry_and_the_same_key_then_has_one_effect() {
    for fault in [Fault::Error, Fault::SyncKept] {
        let mut came = 0;
        for at in 1..14 {
            let mut node = replica();
            node.create(json!({ "title": "kept" }));
            let before = (node.incarnation(), node.all_pages(&json!({})));
            node.disk.fail_in(at, fault);
            let answer = create(&node, "new");
            if answer.is_ok() {
                // The fault was planned for later than this write reaches.
                node.disk.heal();
                continue;
            }
            came += 1;
            let refusal = answer.unwrap_err();
            assert_eq!(refusal.code.as_str(), "RETRY", "{refusal}");
            assert!(refusal.hint.contains("idempotencyKey"));
            // At once, on the same handle: what was acknowledged is there, and the retry works.
            for id in &before.1 {
                node.task(&json!(id));
            }
            let made = create(&node, "new").unwrap()["task"]["id"].take();
            assert_eq!(create(&node, "new").unwrap()["task"]["id"], made);
            node.create(json!({ "title": "after" }));
            assert_ne!(
                node.incarnation(),
                before.0,
                "the incarnation is not used again"
            );
            assert_eq!(node.all_pages(&json!({})).len(), 3, "{fault:?} at {at}");
            node.kill();
            assert_eq!(node.all_pages(&json!({})).len(), 3);
            node.assert_clean();
        }
        assert!(came > 0, "{fault:?} never came");
    }
}

#[test]
fn everybody_in_a_failed_batch_is_told_and_the_next_batch_is_written() {
    let mut node = replica();
    node.disk.fail_in(3, Fault::Error);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..12)
            .map(|n| {
                let node = &node;
                scope.spawn(move || (n, create(node, &format!("t{n}"))))
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    assert!(answers.iter().any(|(_, answer)| answer.is_err()));
    for (n, answer) in &answers {
        match answer {
            Ok(answer) => drop(node.task(&answer["task"]["id"])),
            Err(refusal) => {
                assert_eq!(refusal.code.as_str(), "RETRY");
                create(&node, &format!("t{n}")).unwrap();
            }
        }
    }
    node.kill();
    assert_eq!(node.all_pages(&json!({ "limit": 50 })).len(), 12);
    node.assert_clean();
}

#[test]
fn a_disk_that_is_full_refuses_writes_answers_reads_and_recovers() {
    let node = replica();
    let id = node.create(json!({ "title": "kept" }))["id"].take();
    node.disk.fail_in(1, Fault::Full);
    let mut refused = 0;
    for n in 0..400 {
        match create(&node, &format!("filler {n}")) {
            Ok(_) => {}
            Err(refusal) => {
                assert!(
                    ["RETRY", "UNAVAILABLE"].contains(&refusal.code.as_str()),
                    "{refusal}"
                );
                refused += 1;
                if refused > 3 {
                    break;
                }
            }
        }
        let big = json!({ "action": "create", "projectId": "board", "title": "big", "body": random_text(n) });
        drop(node.call("task_mutate", big));
    }
    assert!(refused > 0, "the disk never filled");
    node.disk.heal();
    create(&node, "after").unwrap();
    assert_eq!(node.task(&id)["title"], "kept");
    node.assert_clean();
}

fn random_text(seed: u64) -> String {
    let mut rng = super::world::Rng::new(seed);
    (0..20_000)
        .map(|_| format!("{:016x}", rng.next()))
        .collect::<Vec<_>>()
        .concat()[..190_000]
        .to_owned()
}

#[test]
fn a_store_that_cannot_be_opened_again_is_tried_with_each_command() {
    let node = replica();
    let id = node.create(json!({ "title": "kept" }))["id"].take();
    node.disk.fail_reads();
    node.disk.fail_in(2, Fault::Error);
    let refusal = create(&node, "one").unwrap_err();
    assert_eq!(refusal.code.as_str(), "RETRY", "{refusal}");
    // Closed: nothing is answered from memory.
    let refusal = node.call("task_get", json!({ "id": id })).unwrap_err();
    assert_eq!(refusal.code.as_str(), "UNAVAILABLE", "{refusal}");
    assert_eq!(
        create(&node, "two").unwrap_err().code.as_str(),
        "UNAVAILABLE"
    );
    node.disk.heal();
    create(&node, "one").unwrap();
    assert_eq!(node.task(&id)["title"], "kept");
    node.assert_clean();
}

#[test]
fn a_packing_that_fails_does_not_keep_the_node_from_answering() {
    let mut node = replica();
    for n in 0..40 {
        create(&node, &format!("t{n}")).unwrap();
    }
    node.pack();
    let id = create(&node, "t3").unwrap()["task"]["id"].take();
    node.update(&id, json!({ "title": "moved" }));
    let before = node.export();
    for at in 1..8 {
        node.disk.fail_in(at, Fault::Error);
        let packed = node.node().with_store(stead_node::store::Store::pack);
        if packed.is_ok() {
            node.disk.heal();
            break;
        }
        // A redb database does not work on after an error: the node has to open it again.
        let answered = create(&node, "t3");
        if let Err(refusal) = answered {
            assert_eq!(refusal.code.as_str(), "RETRY");
        }
        assert_eq!(
            create(&node, "t3").unwrap()["task"]["id"],
            id,
            "failed at {at}"
        );
        let history = node.ok("task_get", json!({ "id": id, "view": "history" }));
        assert_eq!(history["history"].as_array().unwrap().len(), 2);
    }
    assert!(node.export() == before);
    node.pack();
    node.kill();
    assert!(node.export() == before);
    node.assert_clean();
}
