//! No silent overwrite: a write names what it saw.

use serde_json::{Value, json};

use crate::stead::{Called, Home, text};

/// Has `one` moved on by another title, and a write on the old revision refused.
fn refused_and_repeated(home: &Home) {
    let task = home.create("web", "Login", &["--body", "The whole story"]);
    let (id, old) = (text(&task, "id"), text(&task, "revision"));
    let moved = home.data(&[
        "update",
        id,
        "--title",
        "Log in",
        "--priority",
        "high",
        "--revision",
        old,
    ]);
    let before = home.export();
    let error = home.refused(&["update", id, "--revision", old, "--title", "x"]);
    assert_eq!(error["code"], "STALE_WRITE");
    let current = &error["current"];
    assert_eq!(current["title"], "Log in");
    assert_eq!(current["body"], "The whole story");
    assert_eq!(current["revision"], moved["task"]["revision"]);
    let changed = error["changed"].as_array().unwrap();
    let title = changed
        .iter()
        .find(|change| change["field"] == "title")
        .unwrap();
    assert_eq!(
        (&title["before"], &title["now"]),
        (&json!("Login"), &json!("Log in"))
    );
    assert_eq!(title["by"]["memberName"], "Ada");
    assert!(title["at"].is_string());
    assert!(changed.iter().any(|change| change["field"] == "priority"));
    assert_eq!(error["overlap"], json!(["title"]));
    assert!(error["conflicts"].is_array());
    // The sentence names ids and statuses, never what somebody wrote.
    assert!(!text(&error, "message").contains("Log in"));
    assert_eq!(home.export(), before, "nothing was written");
    // A field that nobody else touched is stale too, and overlaps with nothing.
    let error = home.refused(&["move", id, "review", "--revision", old]);
    assert_eq!(
        (&error["code"], &error["overlap"]),
        (&json!("STALE_WRITE"), &json!([]))
    );
    let fresh = text(&error["current"], "revision");
    let done = home.data(&["update", id, "--revision", fresh, "--title", "x"]);
    assert_eq!(done["task"]["title"], "x");
    assert_eq!(home.task(id)["title"], "x");
}

#[test]
fn a_write_on_an_old_revision_is_refused_with_the_fresh_task_and_works_on_the_new_one() {
    refused_and_repeated(&Home::with_project("web"));
}

#[test]
fn the_same_through_a_running_node() {
    let home = Home::with_project("web");
    let node = home.node();
    refused_and_repeated(&home);
    drop(node);
}

#[test]
fn an_old_revision_is_told_apart_after_a_restart_and_after_a_kill() {
    let home = Home::with_project("web");
    let mut node = home.node();
    let task = home.create("web", "One", &[]);
    let (id, old) = (
        text(&task, "id").to_owned(),
        text(&task, "revision").to_owned(),
    );
    home.data(&["update", &id, "--title", "Two"]);
    for killed in [false, true] {
        if killed {
            node.kill();
        } else {
            assert!(node.stop().success());
        }
        node = home.node();
        let error = home.refused(&["update", &id, "--revision", &old, "--title", "x"]);
        assert_eq!(error["code"], "STALE_WRITE");
        assert_eq!(error["changed"][0]["before"], "One");
        assert_eq!(error["current"]["title"], "Two");
        let fresh = text(&error["current"], "revision").to_owned();
        let done = home.data(&["update", &id, "--revision", &fresh, "--title", "Two"]);
        assert_eq!(done["task"]["title"], "Two");
    }
    drop(node);
    // And without a node.
    let error = home.refused(&["update", &id, "--revision", &old, "--title", "x"]);
    assert_eq!(error["code"], "STALE_WRITE");
}

#[test]
fn a_human_sees_what_changed_and_where_it_touches_their_write() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let (id, old) = (text(&task, "id"), text(&task, "revision"));
    home.data(&["update", id, "--title", "Two"]);
    let ran = home.run(&["update", id, "--revision", old, "--title", "x"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.starts_with("STALE_WRITE: "), "{ran:?}");
    assert!(ran.stderr.contains("title: One -> Two"), "{ran:?}");
    assert!(ran.stderr.contains("(you were writing this)"), "{ran:?}");
}

#[test]
fn of_two_writes_on_one_revision_exactly_one_wins() {
    let home = Home::with_project("web");
    let node = home.node();
    let task = home.create("web", "One", &[]);
    let (id, revision) = (text(&task, "id"), text(&task, "revision"));
    let arguments = |n: usize| json!({"action": "update", "id": id, "revision": revision, "title": format!("n{n}")});
    let answers: Vec<Called> = std::thread::scope(|scope| {
        let node = &node;
        let calls: Vec<_> = (0..16)
            .map(|n| scope.spawn(move || node.call("task_mutate", arguments(n))))
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let won: Vec<_> = answers
        .iter()
        .filter(|answer| matches!(answer, Called::Ok(_)))
        .collect();
    assert_eq!(won.len(), 1, "{answers:?}");
    let codes = answers.iter().filter_map(|answer| match answer {
        Called::Refused(error) => Some(error["code"].clone()),
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), vec![json!("STALE_WRITE"); 15]);
    // And in one batch.
    let task = home.task(id);
    let (id, revision) = (text(&task, "id"), text(&task, "revision"));
    let entry = |title: &str| json!({"id": id, "revision": revision, "title": title});
    let ran = home.run_with(
        &["--json", "batch", "-"],
        json!([entry("a"), entry("b")]).to_string().as_bytes(),
    );
    assert_eq!(ran.code, 1);
    let data: Value = ran.answer().body["data"].take();
    assert_eq!(data["moved"].as_array().unwrap().len(), 1, "{data}");
    assert_eq!(data["refused"][0]["error"]["code"], "STALE_WRITE");
    assert_eq!(home.task(id)["title"], "a");
}

#[test]
fn without_a_revision_a_write_says_which_one_it_used() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let (id, revision) = (text(&task, "id"), text(&task, "revision"));
    let data = home.data(&["update", id, "--title", "Two"]);
    assert_eq!(data["usedRevision"], revision);
    let human = home.run(&["update", id, "--title", "Three"]);
    let used = format!("used revision {}", text(&data["task"], "revision"));
    assert!(human.stderr.contains(&used), "{human:?}");
}

#[test]
fn a_revision_from_elsewhere_is_not_caught_up_and_nonsense_is_no_revision() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let id = text(&task, "id");
    let before = home.export();
    // Well formed: a check, a dot, and an actor that nobody here has heard of.
    let error = home.refused(&["update", id, "--revision", "000000.zzzzzz9", "--title", "x"]);
    assert!(
        ["NOT_CAUGHT_UP", "INVALID_ARGUMENT"].contains(&text(&error, "code")),
        "{error}"
    );
    for nonsense in ["", "x", "0", "zzzzzz", "\u{1b}[31m", "a.b.c"] {
        let error = home.refused(&["update", id, "--revision", nonsense, "--title", "x"]);
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{nonsense:?}: {error}");
    }
    assert_eq!(home.export(), before);
}
