//! Retrying is safe: one key, one effect, one answer.

use serde_json::{Value, json};

use crate::stead::{Called, Home, text};

const CREATE: [&str; 9] = [
    "create",
    "Once",
    "--project",
    "web",
    "--body",
    "text",
    "--idempotency-key",
    "key-1",
    "--tag=a",
];

fn titles(home: &Home) -> Vec<String> {
    let rows = home.all(&["list", "--status", "any"]);
    rows.iter()
        .map(|row| text(row, "title").to_owned())
        .collect()
}

#[test]
fn the_same_key_and_content_gives_the_same_answer_and_one_effect() {
    let home = Home::with_project("web");
    let first = home.json(&CREATE);
    assert_eq!(first.code, 0);
    // Without a node, again.
    assert_eq!(home.json(&CREATE).raw, first.raw);
    // Through a node, after a restart, after a kill, and without a node again.
    let node = home.node();
    assert_eq!(home.json(&CREATE).raw, first.raw);
    node.stop();
    let node = home.node();
    assert_eq!(home.json(&CREATE).raw, first.raw);
    node.kill();
    let node = home.node();
    assert_eq!(home.json(&CREATE).raw, first.raw);
    node.stop();
    assert_eq!(home.json(&CREATE).raw, first.raw);
    assert_eq!(titles(&home), ["Once"]);
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

#[test]
fn other_content_under_a_key_is_refused_naming_what_was_made() {
    let home = Home::with_project("web");
    let made = home.data(&CREATE);
    let id = text(&made["task"], "id");
    let before = home.export();
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        for args in [
            &["create", "Other", "-p", "web", "--idempotency-key", "key-1"][..],
            &["create", "Once", "-p", "web", "--idempotency-key", "key-1"],
            &["comment", id, "text", "--idempotency-key", "key-1"],
            &["move", id, "done", "--idempotency-key", "key-1"],
        ] {
            let error = home.refused(args);
            assert_eq!(error["code"], "KEY_REUSED", "{error}");
            assert_eq!((&error["id"], &error["key"]), (&json!(id), &json!("key-1")));
        }
        drop(node);
    }
    assert_eq!(home.export(), before);
}

#[test]
fn an_update_sent_again_under_its_key_is_the_same_answer_and_no_stale_write() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let (id, revision) = (text(&task, "id"), text(&task, "revision"));
    let args = [
        "update",
        id,
        "--title",
        "Two",
        "--revision",
        revision,
        "--idempotency-key",
        "u1",
    ];
    let first = home.data(&args);
    let again = home.data(&args);
    assert_eq!(again["task"]["revision"], first["task"]["revision"]);
    // Others go on in between; what was done stays done once.
    home.data(&["update", id, "--title", "Three"]);
    let late = home.data(&args);
    assert_eq!(late["task"]["id"], id);
    assert_eq!(home.task(id)["title"], "Three");
    // A comment, which takes no revision at all.
    let comment = ["comment", id, "Said once", "--idempotency-key", "c1"];
    let said = home.json(&comment);
    assert_eq!(home.json(&comment).raw, said.raw);
    assert_eq!(home.task(id)["comments"].as_array().unwrap().len(), 1);
}

#[test]
fn one_key_sent_by_many_at_once_makes_one_task() {
    let home = Home::with_project("web");
    let node = home.node();
    let arguments =
        json!({"action": "create", "projectId": "web", "title": "T", "idempotencyKey": "k"});
    let answers: Vec<Called> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| node.call("task_mutate", arguments.clone())))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let Called::Ok(first) = &answers[0] else {
        panic!("{answers:?}")
    };
    for answer in &answers {
        assert_eq!(answer, &Called::Ok(first.clone()));
    }
    assert_eq!(titles(&home), ["T"]);
}

#[test]
fn a_key_belongs_to_its_credential() {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "claude", "--local"]);
    let mine = home.data(&CREATE);
    let theirs = home.data(&[&["--agent", "claude"][..], &CREATE].concat());
    assert_ne!(mine["task"]["id"], theirs["task"]["id"]);
    assert_eq!(titles(&home).len(), 2);
}

#[test]
fn a_batch_that_is_sent_again_goes_on_where_it_stopped() {
    let home = Home::with_project("web");
    let entries: Vec<Value> = (0..5)
        .map(|n| {
            let task = home.create("web", &format!("t{n}"), &[]);
            json!({"id": task["id"], "revision": task["revision"], "status": "done"})
        })
        .collect();
    let send = |entries: &[Value]| {
        let args = [
            "--json",
            "batch",
            "-",
            "--action",
            "move",
            "--idempotency-key",
            "b",
        ];
        home.run_with(&args, json!(entries).to_string().as_bytes())
            .answer()
            .data(&args)
    };
    // Cut after three: as if the first call had got that far.
    let first = send(&entries[..3]);
    assert_eq!(first["moved"].as_array().unwrap().len(), 3);
    let whole = send(&entries);
    assert_eq!(whole["moved"].as_array().unwrap().len(), 5, "{whole}");
    assert_eq!(whole["moved"][0], first["moved"][0]);
    let before = home.export();
    assert_eq!(send(&entries), whole);
    assert_eq!(home.export(), before);
}

#[test]
fn a_key_has_one_to_128_characters() {
    let home = Home::with_project("web");
    let key = "k".repeat(128);
    home.create("web", "At the limit", &["--idempotency-key", &key]);
    home.create("web", "The least", &["--idempotency-key", "k"]);
    // An empty one is a variable that was not set, and protects from nothing.
    let empty = ["create", "x", "-p", "web", "--idempotency-key", ""];
    home.json(&empty).failed(2, &empty);
    let key = "k".repeat(129);
    let error = home.refused(&["create", "x", "-p", "web", "--idempotency-key", &key]);
    assert!(
        ["INVALID_ARGUMENT", "TOO_LARGE"].contains(&text(&error, "code")),
        "{error}"
    );
    assert!(error.to_string().contains("idempotencyKey"), "{error}");
    assert_eq!(titles(&home).len(), 2);
}
