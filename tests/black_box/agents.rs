//! Agents work for a member with a credential of their own, and never become that member.

use serde_json::{Value, json};

use crate::stead::{Called, Home, call, text};

/// A home with two projects, a task in each, and what the tasks are.
fn two_projects() -> (Home, Value, Value) {
    let home = Home::with_project("web");
    home.data(&["project", "add", "secret"]);
    let open = home.create("web", "Open to all", &["--body", "needle"]);
    let hidden = home.create("secret", "Hidden plan", &["--body", "needle"]);
    (home, open, hidden)
}

fn token(home: &Home, args: &[&str]) -> String {
    let added = home.data(&[&["agent", "add"][..], args].concat());
    text(&added, "token").to_owned()
}

fn create<'a>(title: &'a str, project: &'a str) -> [&'a str; 4] {
    ["create", title, "-p", project]
}

#[test]
fn a_token_is_shown_once() {
    let home = Home::with_project("web");
    let added = home.data(&["agent", "add", "claude"]);
    let token = text(&added, "token");
    assert!(token.len() >= 32, "{token}");
    assert_eq!(added["agent"]["local"], false);
    let listed = home.text(&["agent", "list", "--json"]);
    assert!(listed.contains("claude"));
    assert!(!listed.contains(token));
    // Nothing in the home holds it either: it is stored hashed.
    let store = crate::stead::bytes_of(&home.store());
    for (name, bytes) in store {
        assert!(
            !bytes
                .windows(token.len())
                .any(|part| part == token.as_bytes()),
            "{name}"
        );
    }
    let human = home.run(&["agent", "add", "codex"]);
    assert!(human.stderr.contains("shown this once"), "{human:?}");
    let taken = home.refused(&["agent", "add", "claude"]);
    assert_eq!(
        (&taken["code"], &taken["field"]),
        (&json!("INVALID_ARGUMENT"), &json!("name"))
    );
}

#[test]
fn a_token_works_over_http_and_in_this_process() {
    let home = Home::with_project("web");
    let token = token(&home, &["claude"]);
    let there = home.json_with_token(&token, &create("In process", "web"));
    let created = there.data(&["create"]);
    assert_eq!(created["task"]["createdBy"]["name"], "claude");
    let node = home.node();
    let created = home
        .json_with_token(&token, &create("Through a node", "web"))
        .data(&["create"]);
    assert_eq!(created["task"]["createdBy"]["name"], "claude");
    let direct = call(node.address(), &token, "whoami", &json!({}));
    let Called::Ok(who) = direct else {
        panic!("{direct:?}")
    };
    assert_eq!(who["actor"]["name"], "claude");
    assert_eq!(who["supervisor"]["email"], "ada@example.com");
}

#[test]
fn an_unknown_token_is_refused_over_http_and_in_this_process() {
    let home = Home::with_project("web");
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        for wrong in [
            "stead_0000000000000000000000000000000",
            "x",
            &"y".repeat(10_000),
        ] {
            let error = home.json_with_token(wrong, &["list"]).refused(&["list"]);
            assert_eq!(error["code"], "FORBIDDEN");
        }
        drop(node);
    }
}

#[test]
fn a_local_agent_is_named_and_needs_no_token() {
    let home = Home::with_project("web");
    let added = home.data(&["agent", "add", "claude", "--local"]);
    assert_eq!(added["token"], Value::Null);
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        let args = [&["--agent", "claude"][..], &create("By claude", "web")].concat();
        let by = home.data(&args)["task"]["createdBy"].take();
        assert_eq!(by["name"], "claude");
        assert_eq!(by["memberName"], "Ada");
        let error = home.refused(&["--agent", "nobody", "list"]);
        assert_eq!(error["accepted"], json!(["claude"]), "{error}");
        drop(node);
    }
}

#[test]
fn a_name_alone_does_not_make_one_an_agent_that_has_a_token() {
    let home = Home::with_project("web");
    token(&home, &["remote"]);
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        let error = home.refused(&["--agent", "remote", "list"]);
        assert_eq!(error["accepted"], json!([]), "{error}");
        drop(node);
    }
    // Nor the person.
    let error = home.refused(&["--agent", "Ada", "list"]);
    assert_eq!(error["code"], "INVALID_ARGUMENT");
}

#[test]
fn a_revoked_agent_is_refused_at_once() {
    let home = Home::with_project("web");
    let token = token(&home, &["claude"]);
    home.data(&["agent", "add", "codex", "--local"]);
    let node = home.node();
    assert!(matches!(
        call(node.address(), &token, "status", &json!({})),
        Called::Ok(_)
    ));
    home.data(&["agent", "revoke", "claude"]);
    home.data(&["agent", "revoke", "codex"]);
    for running in [true, false] {
        let node = running.then_some(&node);
        if let Some(node) = node {
            assert!(matches!(
                call(node.address(), &token, "status", &json!({})),
                Called::Refused(_)
            ));
        }
        let error = home.json_with_token(&token, &["list"]).refused(&["list"]);
        assert_eq!(error["code"], "FORBIDDEN");
        assert_eq!(home.json(&["--agent", "codex", "list"]).code, 1);
    }
    node.stop();
    let error = home.json_with_token(&token, &["list"]).refused(&["list"]);
    assert_eq!(error["code"], "FORBIDDEN");
    let agents = home.data(&["agent", "list"]);
    let live = agents["agents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|agent| agent["live"] == true);
    assert_eq!(live.count(), 0);
    assert_eq!(
        home.refused(&["agent", "revoke", "claude"])["code"],
        "INVALID_ARGUMENT"
    );
}

#[test]
fn a_reader_may_read_and_is_told_what_writing_needs() {
    let (home, open, _) = two_projects();
    let token = token(&home, &["reader", "--scopes", "tasks:read"]);
    let id = text(&open, "id");
    let node = home.node();
    for args in [
        &["list"][..],
        &["show", id],
        &["search", "needle"],
        &["project", "list"],
        &["agent", "list"],
        &["member", "list"],
        &["conflicts"],
        &["dep", "tree", id],
        &["history", id],
    ] {
        home.json_with_token(&token, args).data(args);
    }
    let before = home.export();
    for args in [
        &["create", "x", "-p", "web"][..],
        &["update", id, "--title", "x"],
        &["move", id, "done"],
        &["comment", id, "x"],
        &["claim", id],
        &["claim", "--project", "web"],
        &["block", id, "--reason", "x"],
        &["archive", id],
        &["sprint", "create", "x", "-p", "web"],
    ] {
        let error = home.json_with_token(&token, args).refused(args);
        assert_eq!(error["code"], "FORBIDDEN", "{args:?}: {error}");
        assert!(
            error.to_string().contains("tasks:write"),
            "{args:?}: {error}"
        );
    }
    let project = ["project", "add", "mine"];
    let error = home.json_with_token(&token, &project).refused(&project);
    assert!(error.to_string().contains("projects:write"), "{error}");
    assert_eq!(home.export(), before);
    drop(node);
}

#[test]
fn an_agent_that_reaches_one_project_does_not_learn_of_another() {
    let (home, open, hidden) = two_projects();
    let token = token(&home, &["limited", "--projects", "web"]);
    let (open, hidden) = (text(&open, "id"), text(&hidden, "id"));
    let sprint = home.data(&["sprint", "create", "Secret sprint", "-p", "secret"])["sprint"].take();
    let node = home.node();
    let ask = |args: &[&str]| home.json_with_token(&token, args);
    for args in [
        &["list"][..],
        &["list", "--status", "any"],
        &["search", "needle"],
        &["ready"],
    ] {
        let data = ask(args).data(args);
        let rows = data["tasks"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{args:?}");
        assert_eq!(rows[0]["id"], open);
        assert_eq!(data["hidden"]["count"], 0);
        assert!(!data.to_string().contains("secret"), "{data}");
    }
    for args in [
        &["list", "-p", "secret"][..],
        &["create", "x", "-p", "secret"],
        &["claim", "--project", "secret"],
        &["sprint", "create", "x", "-p", "secret"],
    ] {
        let error = ask(args).refused(args);
        assert_eq!(error["code"], "UNKNOWN_PROJECT", "{args:?}");
        assert_eq!(error["knownProjects"], json!(["web"]));
    }
    let sprint = text(&sprint, "id");
    for args in [
        &["show", hidden][..],
        &["show", &hidden[..6]],
        &["history", hidden],
        &["dep", "tree", hidden],
        &["update", hidden, "--title", "x"],
        &["comment", hidden, "x"],
        &["claim", hidden],
        &["show", sprint],
        &["sprint", "activate", sprint],
        &["sprint", "assign", open, sprint],
        &["dep", "add", open, hidden],
        &["update", open, "--parent", hidden],
        &["block", open, "--reason", "x", "--by", hidden],
    ] {
        let answer = ask(args);
        assert!(
            !answer.raw.contains("Hidden plan") && !answer.raw.contains("Secret sprint"),
            "{args:?}"
        );
        let error = answer.refused(args);
        // A beginning of an id begins nothing; of a whole one nothing is known.
        let code = if args[1] == &hidden[..6] {
            "INVALID_ID"
        } else {
            "UNKNOWN_ID"
        };
        assert_eq!(error["code"], code, "{args:?}: {error}");
    }
    let projects = ask(&["project", "list"]).data(&[]);
    assert_eq!(projects["projects"].as_array().unwrap().len(), 1);
    let status = call(node.address(), &token, "status", &json!({}));
    assert!(!format!("{status:?}").contains("secret"), "{status:?}");
    // Not even the owner makes a link across, which would show one the other's title.
    assert_eq!(home.json(&["dep", "add", open, hidden]).code, 1);
}

#[test]
fn what_only_a_person_may_do_is_refused_to_an_agent_with_every_scope() {
    let home = Home::with_project("web");
    let scopes = "tasks:read,tasks:write,projects:write,members:write,workspace:admin";
    let token = token(&home, &["mighty", "--scopes", scopes]);
    home.data(&["agent", "add", "local", "--local", "--scopes", scopes]);
    let backup = home.beside("stolen");
    let backup = backup.to_str().unwrap();
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        for args in [
            &["agent", "add", "another"][..],
            &["agent", "revoke", "mighty"],
            &["member", "add", "Eve"],
            &["backup", backup],
            &["doctor"],
            &["doctor", "--rebuild"],
            &["compact"],
            &["export", "-o", backup],
        ] {
            let error = home.json_with_token(&token, args).refused(args);
            assert_eq!(error["code"], "HUMAN_REQUIRED", "{args:?}: {error}");
            let named = [&["--agent", "local"][..], args].concat();
            assert_eq!(home.refused(&named)["code"], "HUMAN_REQUIRED", "{named:?}");
        }
        if let Some(node) = &node {
            let stop = ["node", "stop"];
            assert_eq!(
                home.json_with_token(&token, &stop).refused(&stop)["code"],
                "HUMAN_REQUIRED"
            );
            assert_eq!(
                home.refused(&["--agent", "local", "node", "stop"])["code"],
                "HUMAN_REQUIRED"
            );
            assert!(matches!(node.call("status", json!({})), Called::Ok(_)));
        }
        drop(node);
    }
    assert!(!home.beside("stolen").exists());
    assert_eq!(
        home.data(&["agent", "list"])["agents"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn history_keeps_the_agent_and_the_accountable_person_and_a_label_is_not_believed() {
    let home = Home::with_project("web");
    let added = home.data(&["agent", "add", "claude", "--local"]);
    let args = [
        "--agent",
        "claude",
        "--by",
        "Ada herself",
        "create",
        "x",
        "-p",
        "web",
    ];
    let task = home.data(&args)["task"].take();
    let by = &task["createdBy"];
    assert_eq!(by["credential"], added["agent"]["id"]);
    assert_eq!(by["name"], "claude");
    assert_eq!(by["memberName"], "Ada");
    assert_eq!(by["memberId"], added["agent"]["memberId"]);
    assert_eq!(by["label"], "Ada herself");
    let id = text(&task, "id");
    home.data(&["update", id, "--title", "y", "--by", "claude"]);
    let task = home.task(id);
    assert_eq!(
        (&task["updatedBy"]["name"], &task["updatedBy"]["label"]),
        (&json!("Ada"), &json!("claude"))
    );
    assert_eq!(task["createdBy"]["label"], "Ada herself");
    let history = home.data(&["history", id]);
    let names: Vec<_> = history["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["by"]["name"].clone())
        .collect();
    assert_eq!(names, [json!("Ada"), json!("claude")]);
    // A label gives no rights.
    home.data(&[
        "agent",
        "add",
        "reader",
        "--local",
        "--scopes",
        "tasks:read",
    ]);
    let error = home.refused(&[
        "--agent", "reader", "--by", "Ada", "create", "x", "-p", "web",
    ]);
    assert_eq!(error["code"], "FORBIDDEN");
}

#[test]
fn a_delegate_has_no_rights_that_its_member_lacks() {
    let home = Home::with_project("web");
    home.data(&["member", "add", "Grace", "--email", "grace@example.com"]);
    // A plain member may not make projects, so no agent of hers may.
    let error = home.json(&[
        "agent",
        "add",
        "hers",
        "--member",
        "grace@example.com",
        "--scopes",
        "workspace:admin",
    ]);
    if error.code == 0 {
        let hers = ["project", "add", "x"];
        let token = text(&error.body["data"], "token").to_owned();
        let refused = home.json_with_token(&token, &hers).refused(&hers);
        assert_eq!(refused["code"], "FORBIDDEN");
    } else {
        assert_eq!(error.code, 1);
    }
    let known = home.refused(&["agent", "add", "x", "--member", "nobody"]);
    assert_eq!(known["accepted"], json!(["Ada", "Grace"]));
    let unknown = home.refused(&["agent", "add", "x", "--scopes", "everything"]);
    assert!(
        unknown["accepted"]
            .as_array()
            .unwrap()
            .contains(&json!("tasks:read"))
    );
    let project = home.refused(&["agent", "add", "x", "--projects", "nope"]);
    assert_eq!(
        (&project["code"], &project["knownProjects"]),
        (&json!("UNKNOWN_PROJECT"), &json!(["web"]))
    );
}
