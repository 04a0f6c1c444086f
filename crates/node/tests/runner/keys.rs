//! Idempotency: the same key and content have one effect and one answer, whatever happened since.

use serde_json::{Value as Json, json};

use super::world::{Replica, converge, exchange, replica, replicas};

/// What an answer says of the object itself; other objects and the clock move the rest.
fn own(mut answer: Json) -> Json {
    // What completing a sprint left behind is counted over other objects and kept by none.
    for field in ["openTasks", "notMoved", "movedTo"] {
        answer.as_object_mut().unwrap().remove(field);
    }
    for name in ["task", "sprint"] {
        if let Some(task) = answer.get_mut(name).and_then(Json::as_object_mut) {
            for field in ["dependents", "counts"] {
                task.remove(field);
            }
            if name == "sprint" {
                // Which one is active says the project's register, an object of its own.
                task.remove("status");
            }
        }
    }
    answer
}

/// Every kind of mutation with a key, and its answer.
fn calls(node: &Replica) -> Vec<(Json, Json)> {
    let mut done = Vec::new();
    let mut key = 0;
    let mut say = |action: &str, mut call: Json| -> Json {
        key += 1;
        call["action"] = action.into();
        call["idempotencyKey"] = format!("key-{key}").into();
        let answer = node.ok("task_mutate", call.clone());
        done.push((call, answer.clone()));
        answer
    };
    let mut task = say("create", json!({ "projectId": "board", "title": "one", "body": "b".repeat(5_000), "criteria": ["c1"] }))["task"].take();
    let other = say("create", json!({ "projectId": "board", "title": "two" }))["task"].take();
    let id = task["id"].clone();
    let revise = |task: &Json, mut call: Json| {
        call["id"] = id.clone();
        call["revision"] = task["revision"].clone();
        call
    };
    task = say(
        "update",
        revise(
            &task,
            json!({ "title": "renamed", "statePatch": { "a": 1 } }),
        ),
    )["task"]
        .take();
    task = say("move", revise(&task, json!({ "status": "review" })))["task"].take();
    say("comment", json!({ "id": id, "body": "a remark" }));
    task = say("block", revise(&task, json!({ "reason": "waits" })))["task"].take();
    task = say("unblock", revise(&task, json!({})))["task"].take();
    task = say(
        "link",
        revise(
            &task,
            json!({ "type": "relates_to", "targetId": other["id"] }),
        ),
    )["task"]
        .take();
    task = say("claim", revise(&task, json!({})))["task"].take();
    task = say("release", revise(&task, json!({})))["task"].take();
    say("claim", json!({ "projectId": "board" }));
    let sprint = say(
        "sprint_create",
        json!({ "projectId": "board", "name": "s" }),
    )["sprint"]
        .take();
    task = say(
        "sprint_assign",
        revise(&task_now(node, &task), json!({ "sprintId": sprint["id"] })),
    )["task"]
        .take();
    say("sprint_activate", json!({ "sprintId": sprint["id"] }));
    say("sprint_complete", json!({ "sprintId": sprint["id"] }));
    task = say("archive", revise(&task, json!({})))["task"].take();
    say("restore", revise(&task, json!({})));
    done
}

fn task_now(node: &Replica, task: &Json) -> Json {
    node.task(&task["id"])
}

#[track_caller]
fn replay(node: &Replica, calls: &[(Json, Json)], when: &str) {
    let before = node.arrivals();
    for (call, answer) in calls {
        let again = node.ok("task_mutate", call.clone());
        assert_eq!(own(again), own(answer.clone()), "{when}: {call}");
    }
    assert_eq!(
        node.arrivals(),
        before,
        "{when}: a repeated call wrote something"
    );
}

#[test]
fn a_repeated_call_has_the_first_answer_and_no_further_effect() {
    let mut node = replica();
    let calls = calls(&node);
    replay(&node, &calls, "at once");
    node.restart();
    replay(&node, &calls, "after a restart");
    node.kill();
    replay(&node, &calls, "after a kill");
    node.pack();
    replay(&node, &calls, "after packing");
    // The object moves on; the answer is that of then.
    let id = calls[0].1["task"]["id"].clone();
    node.update(
        &id,
        json!({ "title": "much later", "body": "c".repeat(9_000) }),
    );
    replay(&node, &calls, "after the object moved on");
    node.pack();
    node.restart();
    replay(&node, &calls, "after it moved on and was packed");
    node.ok("doctor", json!({ "rebuild": true }));
    replay(&node, &calls, "after a rebuild of the view");
    node.assert_clean();
}

#[test]
fn an_unmoved_object_is_answered_in_the_same_bytes() {
    let mut node = replica();
    let call =
        json!({ "action": "create", "projectId": "board", "title": "one", "idempotencyKey": "k" });
    let first = node.ok("task_mutate", call.clone()).to_string();
    assert_eq!(node.ok("task_mutate", call.clone()).to_string(), first);
    node.pack();
    node.restart();
    assert_eq!(node.ok("task_mutate", call).to_string(), first);
}

#[test]
fn another_node_that_holds_the_effect_gives_the_same_answer() {
    let nodes = replicas(2);
    let calls = calls(&nodes[0]);
    exchange(&nodes[0], &nodes[1]);
    replay(&nodes[1], &calls, "on the other node");
    nodes[1].pack();
    replay(&nodes[1], &calls, "on the other node, packed");
    converge(&nodes);
}

#[test]
fn the_same_key_with_other_content_is_refused_and_names_what_was_made() {
    let mut node = replica();
    let call = |title: &str| json!({ "action": "create", "projectId": "board", "title": title, "idempotencyKey": "k" });
    let made = node.ok("task_mutate", call("one"))["task"]["id"].take();
    for when in ["at once", "packed", "restarted"] {
        let refused = node.refused("KEY_REUSED", "task_mutate", call("two"));
        assert_eq!(refused["id"], made, "{when}: {refused}");
        assert!(!refused["message"].as_str().unwrap().contains("two"));
        match when {
            "at once" => drop(node.pack()),
            _ => node.restart(),
        }
    }
    assert_eq!(node.all_pages(&json!({})).len(), 1);
    // Keys are a credential's own: another one's equal key is another key.
    let agent = node.agent("scout");
    let other = node
        .node()
        .call(&agent, "task_mutate", call("two"))
        .unwrap();
    assert_ne!(other["task"]["id"], made);
}

#[test]
fn a_key_in_one_batch_twice_has_one_effect() {
    let node = replica();
    let call =
        json!({ "action": "create", "projectId": "board", "title": "one", "idempotencyKey": "k" });
    let before = node.arrivals();
    let answers: Vec<Json> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| node.ok("task_mutate", call.clone())))
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    assert_eq!(node.arrivals(), before + 1);
    for answer in &answers {
        assert_eq!(answer.to_string(), answers[0].to_string());
    }
}

#[test]
fn a_list_of_updates_goes_on_where_it_stopped() {
    let node = replica();
    let tasks: Vec<Json> = (0..5)
        .map(|n| node.create(json!({ "title": format!("t{n}") })))
        .collect();
    let updates: Vec<Json> = tasks
        .iter()
        .map(|task| json!({ "id": task["id"], "revision": task["revision"] }))
        .collect();
    let call = |updates: &[Json]| json!({ "action": "move", "status": "done", "updates": updates, "idempotencyKey": "list" });
    let first = node.ok("task_mutate", call(&updates));
    assert_eq!(first["moved"].as_array().unwrap().len(), 5, "{first}");
    let before = node.arrivals();
    let again = node.ok("task_mutate", call(&updates));
    assert_eq!(again, first);
    assert_eq!(node.arrivals(), before);
}
