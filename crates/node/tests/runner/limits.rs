//! The named limits of the node: one below, at, one above.

use serde_json::{Value as Json, json};
use stead_doc::{board::Command, limits};
use stead_node::{
    core::Job,
    handle::{BATCH_JOBS, QUEUE_JOBS},
};

use super::world::replica;

#[test]
fn updates_of_one_call() {
    let node = replica();
    let tasks: Vec<Json> = (0..=limits::UPDATES)
        .map(|n| node.create(json!({ "title": format!("t{n}") })))
        .collect();
    let updates = |many: usize| -> Json {
        tasks
            .iter()
            .take(many)
            .map(|task| json!({ "id": task["id"], "revision": node.task(&task["id"])["revision"] }))
            .collect()
    };
    for (many, title) in [(limits::UPDATES - 1, "a"), (limits::UPDATES, "b")] {
        let answer = node.mutate(
            "update",
            json!({ "updates": updates(many), "title": title }),
        );
        assert_eq!(answer["moved"].as_array().unwrap().len(), many);
        assert_eq!(answer["refused"], json!([]));
    }
    let before = node.arrivals();
    node.refused(
        "TOO_LARGE",
        "task_mutate",
        json!({ "action": "update", "updates": updates(limits::UPDATES + 1), "title": "c" }),
    );
    assert_eq!(node.arrivals(), before);
    // Of a list some may be refused; each is named.
    let mut some = updates(3);
    some[1]["revision"] = tasks[1]["revision"].clone();
    let answer = node.mutate("update", json!({ "updates": some, "title": "d" }));
    assert_eq!(answer["moved"].as_array().unwrap().len(), 2);
    assert_eq!(answer["refused"][0]["id"], tasks[1]["id"]);
    assert_eq!(answer["refused"][0]["error"]["code"], "STALE_WRITE");
    assert!(answer["refused"][0]["error"]["currentRevision"].is_string());
}

#[test]
fn tasks_of_one_import() {
    let node = replica();
    let tasks = |many: usize| -> Vec<Json> {
        (0..many)
            .map(|n| json!({ "name": format!("x:{n}"), "fields": { "title": "t" } }))
            .collect()
    };
    for many in [99, 100] {
        let answer = node.ok(
            "import_tasks",
            json!({ "projectId": "board", "tasks": tasks(many) }),
        );
        assert_eq!(answer["results"].as_array().unwrap().len(), many);
    }
    node.refused(
        "TOO_LARGE",
        "import_tasks",
        json!({ "projectId": "board", "tasks": tasks(101) }),
    );
    assert_eq!(node.all_pages(&json!({ "status": ["any"] })).len(), 100);
}

#[test]
fn ids_of_one_get() {
    let node = replica();
    let ids: Vec<Json> = (0..limits::GET_IDS + 1)
        .map(|n| node.create(json!({ "title": format!("t{n}") }))["id"].take())
        .collect();
    for many in [limits::GET_IDS - 1, limits::GET_IDS] {
        let answer = node.ok("task_get", json!({ "ids": ids[..many], "view": "summary" }));
        assert_eq!(
            answer["tasks"].as_array().unwrap().len() + answer["missing"].as_array().unwrap().len(),
            many
        );
    }
    node.refused(
        "TOO_LARGE",
        "task_get",
        json!({ "ids": ids, "view": "summary" }),
    );
}

#[test]
fn rows_of_one_page() {
    let node = replica();
    node.create(json!({ "title": "t" }));
    for limit in [1, limits::PAGE_ROWS - 1, limits::PAGE_ROWS] {
        node.ok("task_search", json!({ "limit": limit }));
    }
    for limit in [json!(0), json!(limits::PAGE_ROWS + 1), json!(-1)] {
        node.refused("INVALID_ARGUMENT", "task_search", json!({ "limit": limit }));
    }
}

#[test]
fn characters_and_bytes_of_a_long_text() {
    let node = replica();
    for (text, fits) in [
        ("x".repeat(limits::TEXT_CHARS - 1), true),
        ("x".repeat(limits::TEXT_CHARS), true),
        ("x".repeat(limits::TEXT_CHARS + 1), false),
        ("😀".repeat(limits::TEXT_CHARS), true),
    ] {
        let call = json!({ "action": "create", "projectId": "board", "title": "t", "body": text });
        match node.call("task_mutate", call) {
            Ok(_) => assert!(fits),
            Err(refusal) => assert!(!fits && refusal.code.as_str() == "TOO_LARGE", "{refusal}"),
        }
    }
    for (chars, fits) in [
        (limits::TITLE_CHARS - 1, true),
        (limits::TITLE_CHARS, true),
        (limits::TITLE_CHARS + 1, false),
    ] {
        let call = json!({ "action": "create", "projectId": "board", "title": "ä".repeat(chars) });
        assert_eq!(node.call("task_mutate", call).is_ok(), fits);
    }
    node.pack();
    node.assert_clean();
}

#[test]
fn jobs_of_one_commit_and_of_the_queue() {
    let node = replica();
    let owner = node.owner();
    let job = |n: usize| Job::Command {
        caller: owner.clone(),
        command: Command::Task(
            json!({ "action": "create", "projectId": "board", "title": format!("t{n}") })
                .as_object()
                .unwrap()
                .clone(),
        ),
    };
    // More than a commit takes and more than the queue holds: whoever waits is served in order.
    for many in [BATCH_JOBS - 1, BATCH_JOBS, BATCH_JOBS + 1, QUEUE_JOBS + 1] {
        let before = node.arrivals() as usize;
        let answers = node.node().run_all((0..many).map(job).collect());
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(node.arrivals() as usize, before + many);
    }
}

#[test]
fn a_full_queue_is_said_and_nothing_of_it_is_written() {
    let node = replica();
    let before = node.arrivals();
    // The writer waits for the store while a maintenance call has it for itself.
    let owner = node.owner();
    let call = || {
        node.node().call(
            &owner,
            "task_mutate",
            json!({ "action": "create", "projectId": "board", "title": "t" }),
        )
    };
    let (mut written, mut full) = (0, 0);
    std::thread::scope(|scope| {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (held, holds) = std::sync::mpsc::channel::<()>();
        let holder = scope.spawn({
            let node = &node;
            move || {
                node.node()
                    .exclusive(|_| {
                        held.send(()).unwrap();
                        released.recv().unwrap();
                        Ok(())
                    })
                    .unwrap();
            }
        });
        holds.recv().unwrap();
        let (answer, answers) = std::sync::mpsc::channel();
        // One batch that the writer has taken, a whole queue, and some more.
        for _ in 0..QUEUE_JOBS + BATCH_JOBS + 20 {
            let (answer, call) = (answer.clone(), &call);
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, move || answer.send(call()).unwrap())
                .unwrap();
        }
        drop(answer);
        // Those that found no room answer at once; the others only when the store is free.
        let first = answers.recv().unwrap();
        assert_eq!(first.unwrap_err().code.as_str(), "UNAVAILABLE");
        full += 1;
        release.send(()).unwrap();
        for answer in answers {
            match answer {
                Ok(_) => written += 1,
                Err(refusal) => {
                    assert_eq!(refusal.code.as_str(), "UNAVAILABLE");
                    assert!(refusal.hint.contains("Nothing was written"));
                    full += 1;
                }
            }
        }
        holder.join().unwrap();
    });
    assert!(written >= QUEUE_JOBS, "{written} written, {full} refused");
    assert_eq!(node.arrivals() - before, written as u64);
    node.assert_clean();
}
