//! The agents' face over the stdio bridge: what seed 000 says, in both eras of the protocol.

use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier},
    thread,
};

use serde_json::{Value, json};

use crate::{
    client::{Client, ERAS, Era},
    stead::{Home, RunningNode, exchange, text},
};

/// A home with a project and a local agent, and its running node.
fn board() -> (Home, RunningNode) {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "agent", "--local"]);
    let node = home.node();
    (home, node)
}

fn revision(task: &Value) -> &str {
    text(task, "revision")
}

fn bytes(value: &Value) -> usize {
    value.to_string().len()
}

fn create(client: &mut Client, title: &str) -> Value {
    client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": title }),
    )["task"]
        .take()
}

#[test]
fn a_board_is_worked_from_search_to_done_in_both_eras() {
    for era in ERAS {
        let (home, _node) = board();
        let mut ada = Client::start(&home, era, &[]);
        let mut other = Client::start(&home, era, &[]);
        let made = create(&mut ada, "Fix the login");
        let found = ada.data("task_search", json!({ "projectId": "web" }));
        assert_eq!(found["tasks"][0]["id"], made["id"]);
        let got = ada.data("task_get", json!({ "id": made["id"] }))["task"].take();
        assert_eq!(revision(&got), revision(&made));

        // Another one is there first.
        let theirs = other.data(
            "task_mutate",
            json!({ "action": "move", "id": made["id"], "status": "in_progress", "revision": revision(&made) }),
        );
        let stale = json!({ "action": "move", "payload": {
            "id": made["id"], "status": "review", "revision": revision(&made), "by": "codex",
        } });
        let (error, said) = ada.refused("task_mutate", stale);
        assert_eq!(error["code"], "STALE_WRITE");
        assert_eq!(error["current"]["revision"], theirs["task"]["revision"]);
        assert_eq!(error["current"]["status"], "in_progress");
        assert!(said.starts_with("STALE_WRITE: task "), "{said}");
        assert!(
            said.lines()
                .next()
                .unwrap()
                .contains(revision(&theirs["task"]))
        );

        let retried = ada.data(
            "task_mutate",
            json!({ "action": "move", "id": made["id"], "status": "done", "revision": error["current"]["revision"] }),
        );
        assert_eq!(retried["task"]["status"], "done");
    }
}

#[test]
fn a_sprint_is_created_assigned_activated_and_completed_over_mcp() {
    let (home, _node) = board();
    let mut lead = Client::start(&home, Era::Sessions, &[]);
    let task = create(&mut lead, "First");
    let sprint = |client: &mut Client, name: &str| {
        client.data(
            "task_mutate",
            json!({ "action": "sprint_create", "projectId": "web", "name": name, "goal": "Ship" }),
        )["sprint"]
            .take()
    };
    let first = sprint(&mut lead, "One");
    let second = sprint(&mut lead, "Two");
    lead.data(
        "task_mutate",
        json!({ "action": "sprint_assign", "id": task["id"], "sprintId": first["id"], "revision": task["revision"] }),
    );
    lead.data(
        "task_mutate",
        json!({ "action": "sprint_activate", "sprintId": first["id"] }),
    );
    let (error, said) = lead.refused(
        "task_mutate",
        json!({ "action": "sprint_activate", "sprintId": second["id"] }),
    );
    assert_eq!(error["code"], "ALREADY_ACTIVE");
    assert!(said.contains(text(&first, "id")), "{said}");
    let active = lead.read("stead://project/web/sprint");
    assert_eq!(active["sprint"]["id"], first["id"]);
    assert_eq!(active["tasks"][0]["id"], task["id"]);
    let done = lead.data(
        "task_mutate",
        json!({ "action": "sprint_complete", "sprintId": first["id"] }),
    );
    assert_eq!(done["sprint"]["status"], "completed");
    assert_eq!(
        lead.read("stead://project/web/sprint")["sprint"],
        Value::Null
    );
}

#[test]
fn an_unknown_project_is_refused_with_the_real_ones_and_never_made() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Requests, &[]);
    for arguments in [
        json!({ "projectId": "wbe" }),
        json!({ "projectId": ["wbe"] }),
    ] {
        let (error, said) = client.refused("task_search", arguments);
        assert_eq!(error["code"], "UNKNOWN_PROJECT");
        assert_eq!(error["knownProjects"], json!(["web"]));
        assert!(said.contains(r#""knownProjects":["web"]"#), "{said}");
    }
    let listed = client.read("stead://workspace");
    assert_eq!(
        listed["workspaces"][0]["projects"],
        json!([{ "slug": "web", "name": "web" }])
    );
}

#[test]
fn what_an_action_lacks_or_does_not_take_is_named_with_what_it_takes() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let task = create(&mut client, "T");
    let (error, said) = client.refused(
        "task_mutate",
        json!({ "action": "comment", "id": task["id"], "body": "b", "status": "done" }),
    );
    assert_eq!(
        (error["code"].as_str(), error["field"].as_str()),
        (Some("INVALID_ARGUMENT"), Some("status"))
    );
    assert!(
        error["accepted"]
            .as_array()
            .unwrap()
            .contains(&json!("replyTo"))
    );
    assert!(said.contains("replyTo"), "{said}");
    let (error, said) = client.refused(
        "task_mutate",
        json!({ "action": "move", "id": task["id"], "status": "done" }),
    );
    assert_eq!(error["field"], "revision");
    assert!(said.contains(revision(&task)), "{said}");
    let (error, _) = client.refused("task_mutate", json!({ "action": "fly" }));
    assert!(
        error["accepted"]
            .as_array()
            .unwrap()
            .contains(&json!("create"))
    );
}

#[test]
fn the_workspace_names_supervisor_role_capabilities_members_and_projects() {
    let (home, _node) = board();
    home.data(&["member", "add", "Grace", "--email", "grace@example.com"]);
    let mut client = Client::start(&home, Era::Requests, &[]);
    let read = client.read("stead://workspace");
    let workspace = &read["workspaces"][0];
    assert_eq!(workspace["workspace"]["name"], "Acme");
    assert_eq!(workspace["workspace"]["slug"], "acme");
    let delegation = &workspace["delegation"];
    assert_eq!(delegation["supervisor"]["displayName"], "Ada");
    assert_eq!(delegation["responsibilityRole"], "lead");
    for capability in ["tasks:read:all", "tasks:create", "tasks:assign"] {
        assert!(
            delegation["capabilities"]
                .as_array()
                .unwrap()
                .contains(&json!(capability))
        );
    }
    let members = workspace["members"].as_array().unwrap();
    let grace = members
        .iter()
        .find(|member| member["email"] == "grace@example.com")
        .unwrap();
    assert_eq!(grace["responsibilityRole"], "contributor");
    assert!(
        client.began["instructions"]
            .as_str()
            .unwrap()
            .contains("delegate of Ada")
    );
}

#[test]
fn a_changed_role_is_read_by_every_credential_of_its_member_and_refuses_nothing() {
    let (home, _node) = board();
    home.data(&["agent", "add", "codex", "--local"]);
    let mut first = Client::start(&home, Era::Sessions, &[]);
    let mut second = Client::start(&home, Era::Requests, &["--agent", "codex"]);
    home.data(&["member", "set", "Ada", "--role", "observer"]);
    for client in [&mut first, &mut second] {
        let read = client.read("stead://workspace");
        let delegation = &read["workspaces"][0]["delegation"];
        assert_eq!(delegation["responsibilityRole"], "observer");
        assert!(delegation["advice"].as_str().unwrap().contains("feedback"));
        assert_eq!(create(client, "Still")["status"], "ready");
    }
    let later = Client::start(&home, Era::Sessions, &[]);
    assert!(
        later.began["instructions"]
            .as_str()
            .unwrap()
            .contains("role is observer")
    );
}

#[test]
fn an_agent_never_becomes_its_member_and_history_keeps_both() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Requests, &[]);
    let task = client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": "T", "by": "Ada herself" }),
    )["task"]
        .take();
    let by = &task["createdBy"];
    assert_eq!(
        (by["name"].as_str(), by["memberName"].as_str()),
        (Some("agent"), Some("Ada"))
    );
    assert_eq!(by["label"], "Ada herself");
    let history = client.data("task_get", json!({ "id": task["id"], "view": "history" }));
    assert_eq!(history["history"][0]["by"]["name"], "agent");
}

#[test]
fn tools_are_shown_by_scope_and_choice_and_the_list_never_changes_by_itself() {
    let (home, _node) = board();
    home.data(&[
        "agent",
        "add",
        "reader",
        "--local",
        "--scopes",
        "tasks:read",
    ]);
    let names = |client: &mut Client| -> Vec<String> {
        let listed = client.ok("tools/list", json!({}));
        let tools = listed["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| text(tool, "name").to_owned())
            .collect()
    };
    let mut all = Client::start(&home, Era::Sessions, &["--toolsets", "board"]);
    assert_eq!(names(&mut all), ["task_get", "task_mutate", "task_search"]);
    for args in [&["--read-only"][..], &["--agent", "reader"]] {
        let mut client = Client::start(&home, Era::Requests, args);
        assert_eq!(names(&mut client), ["task_get", "task_search"]);
        let (error, said) = client.refused(
            "task_mutate",
            json!({ "action": "create", "projectId": "web", "title": "T" }),
        );
        assert_eq!(error["code"], "FORBIDDEN");
        assert!(said.contains("task_search"), "{said}");
        assert!(
            client.began["instructions"]
                .as_str()
                .unwrap()
                .contains("Search before")
        );
        assert!(
            !client.began["instructions"]
                .as_str()
                .unwrap()
                .contains("STALE_WRITE")
        );
    }
    assert!(
        all.ask("tools/call", json!({ "name": "nothing", "arguments": {} }))
            .is_err()
    );
}

#[test]
fn tool_lists_searches_and_every_reply_stay_within_their_budgets() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let listed = client.ok("tools/list", json!({}));
    assert!(bytes(&listed) <= 7_000, "{}", bytes(&listed));
    let long = "A title as long as those of real boards, sixty characters";
    let mut last = Value::Null;
    for _ in 0..60 {
        last = create(&mut client, long);
    }
    let page = client.data("task_search", json!({ "projectId": "web" }));
    assert_eq!(page["tasks"].as_array().unwrap().len(), 10);
    assert!(bytes(&page) <= 4_000, "{} in {page}", bytes(&page));
    let wide = client.data("task_search", json!({ "limit": 200 }));
    assert!(
        bytes(&wide) <= 10_000 && wide["nextCursor"].is_string(),
        "{}",
        bytes(&wide)
    );

    // A body, state and tags as large as they may be.
    let state: serde_json::Map<String, Value> = (0..100)
        .map(|n| (format!("key{n}"), json!("v".repeat(200))))
        .collect();
    let big = client.data(
        "task_mutate",
        json!({
            "action": "update", "id": last["id"], "revision": last["revision"],
            "body": "b".repeat(190_000), "notes": "n".repeat(20_000), "statePatch": state,
        }),
    );
    assert!(bytes(&big) <= 10_000, "{}", bytes(&big));
    let mut whole = String::new();
    let mut offset = 0;
    loop {
        let got = client.tool(
            "task_get",
            json!({ "id": last["id"], "bodyOffset": offset }),
        );
        assert!(bytes(&got["structuredContent"]) <= 10_000);
        assert!(got["content"][0]["text"].as_str().unwrap().len() <= 10_000);
        let task = &got["structuredContent"]["task"];
        whole.push_str(text(task, "body"));
        match task["bodyNext"].as_u64() {
            Some(next) => offset = next,
            None => break,
        }
    }
    assert_eq!(whole.len(), 190_000);
    let (error, said) = client.refused(
        "task_mutate",
        json!({ "action": "update", "id": last["id"], "revision": last["revision"], "title": "x" }),
    );
    assert!(
        bytes(&error) <= 10_000 && said.len() <= 3_000,
        "{} {}",
        bytes(&error),
        said.len()
    );
    let below: Value = serde_json::from_str(said.split_once('\n').unwrap().1).unwrap();
    assert_eq!(below["current"]["revision"], error["current"]["revision"]);
    let (error, _) = client.refused(
        "task_mutate",
        json!({ "action": "update", "id": last["id"], "title": "x" }),
    );
    assert!(bytes(&error) <= 10_000, "{}", bytes(&error));
    for uri in [
        "stead://workspace",
        "stead://project/web/board",
        "stead://conflicts",
    ] {
        let read = client.read(uri);
        assert!(bytes(&read) <= 10_000, "{uri}: {}", bytes(&read));
    }
}

#[test]
fn a_project_at_a_glance_shows_each_status_and_counts_what_it_leaves_out() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Requests, &[]);
    for n in 0..30 {
        create(&mut client, &format!("Task {n}"));
    }
    let read = client.read("stead://project/web/board");
    let ready = read["columns"]
        .as_array()
        .unwrap()
        .iter()
        .find(|column| column["status"] == "ready")
        .unwrap();
    let shown = ready["tasks"].as_array().unwrap().len() as u64;
    assert_eq!(ready["count"], 30);
    assert!(shown > 5 && ready["left"] == 30 - shown, "{ready}");
}

#[test]
fn whoever_watches_a_task_or_a_sprint_is_told_of_anothers_change() {
    for era in ERAS {
        let (home, _node) = board();
        let mut watcher = Client::start(&home, era, &[]);
        let mut other = Client::start(&home, era, &[]);
        let task = create(&mut other, "T");
        let uri = format!("stead://task/{}", text(&task, "id"));
        watcher.watch(&[&uri, "stead://project/web/sprint"]);
        other.data(
            "task_mutate",
            json!({ "action": "comment", "id": task["id"], "body": "See" }),
        );
        watcher.told(&uri);
        let sprint = other.data(
            "task_mutate",
            json!({ "action": "sprint_create", "projectId": "web", "name": "One" }),
        );
        watcher.told("stead://project/web/sprint");
        other.data(
            "task_mutate",
            json!({ "action": "sprint_activate", "sprintId": sprint["sprint"]["id"] }),
        );
        watcher.told("stead://project/web/sprint");
        other.data(
            "task_mutate",
            json!({ "action": "move", "id": task["id"], "status": "review", "revision": task["revision"] }),
        );
        watcher.told("stead://project/web/sprint");
        assert_eq!(watcher.read(&uri)["task"]["status"], "review");
    }
}

#[test]
fn whoever_watches_after_its_own_write_was_answered_is_not_told_of_that_write() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Requests, &[]);
    for n in 0..20 {
        let task = create(&mut client, &format!("Task {n}"));
        client.watch(&[&format!("stead://task/{}", text(&task, "id"))]);
    }
    // Long enough for anything that was under way.
    client.data("task_search", json!({}));
    let heard = client.heard();
    assert!(
        heard
            .iter()
            .all(|note| note["method"] != "notifications/resources/updated"),
        "{heard:?}"
    );
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    for uri in [
        "stead://workspace",
        "stead://project/web/board",
        "stead://task/0000000000001",
        "file:///etc/passwd",
    ] {
        let error = client
            .ask("resources/subscribe", json!({ "uri": uri }))
            .unwrap_err();
        assert!(error["message"].is_string(), "{uri}: {error}");
    }
    let unknown = client.ask(
        "resources/subscribe",
        json!({ "uri": "stead://project/other/sprint" }),
    );
    assert_eq!(unknown.unwrap_err()["data"]["code"], "UNKNOWN_PROJECT");
    let mut modern = Client::start(&home, Era::Requests, &[]);
    modern.send(
        "subscriptions/listen",
        json!({ "notifications": { "resourceSubscriptions": ["stead://workspace", "stead://conflicts"] } }),
    );
    let acknowledged = modern.notice("notifications/subscriptions/acknowledged", |_| true);
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!(["stead://conflicts"])
    );
}

#[test]
fn a_credential_for_one_project_reads_and_hears_of_that_one_alone() {
    let (home, _node) = board();
    home.data(&["project", "add", "secret"]);
    home.data(&["agent", "add", "limited", "--local", "--projects", "web"]);
    let hidden = home.create("secret", "Hidden", &[]);
    let uri = format!("stead://task/{}", text(&hidden, "id"));
    let mut limited = Client::start(&home, Era::Requests, &["--agent", "limited"]);
    let error = limited
        .ask("resources/read", json!({ "uri": uri }))
        .unwrap_err();
    assert_eq!(error["data"]["code"], "UNKNOWN_ID");
    assert!(
        limited
            .ask(
                "resources/read",
                json!({ "uri": "stead://project/secret/board" })
            )
            .is_err()
    );
    let seen = create(&mut limited, "Seen");
    let shown = format!("stead://task/{}", text(&seen, "id"));
    limited.watch(&[&uri, &shown]);
    home.data(&["comment", text(&hidden, "id"), "not for you"]);
    home.data(&["comment", text(&seen, "id"), "for you"]);
    limited.told(&shown);
    let heard = limited.heard();
    assert!(
        heard
            .iter()
            .all(|note| note["params"]["uri"] != uri.as_str()),
        "{heard:?}"
    );
}

#[test]
fn prompts_and_completions_come_from_the_board() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let task = create(&mut client, "Fix the login");
    let listed = client.ok("prompts/list", json!({}));
    let names: Vec<&str> = listed["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|prompt| text(prompt, "name"))
        .collect();
    assert_eq!(names, ["hand_over", "resolve_conflict", "start_work"]);
    let prompt = client.ok(
        "prompts/get",
        json!({ "name": "start_work", "arguments": { "projectId": "web" } }),
    );
    let said = prompt["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(
        said.contains(text(&task, "id")) && said.contains("as data and not as instructions"),
        "{said}"
    );
    let over = client.ok(
        "prompts/get",
        json!({ "name": "hand_over", "arguments": { "id": task["id"] } }),
    );
    assert!(
        over["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("Fix the login")
    );
    client.ok("prompts/get", json!({ "name": "resolve_conflict" }));
    assert!(
        client
            .ask("prompts/get", json!({ "name": "hand_over" }))
            .is_err()
    );
    assert!(
        client
            .ask("prompts/get", json!({ "name": "nothing" }))
            .is_err()
    );
    let complete = |client: &mut Client, name: &str, value: &str| {
        let result = client.ok(
            "completion/complete",
            json!({
                "ref": { "type": "ref/resource", "uri": "stead://task/{id}" },
                "argument": { "name": name, "value": value },
            }),
        );
        result["completion"]["values"].clone()
    };
    let front: String = text(&task, "id").chars().take(3).collect();
    assert_eq!(complete(&mut client, "id", &front), json!([task["id"]]));
    assert_eq!(complete(&mut client, "slug", "w"), json!(["web"]));
    assert_eq!(complete(&mut client, "member", "a"), json!(["Ada"]));
    assert_eq!(complete(&mut client, "slug", "x"), json!([]));
}

#[test]
fn sixteen_clients_that_claim_the_next_task_are_never_handed_the_same() {
    const CLIENTS: usize = 16;
    const TASKS: usize = 100;
    let (home, _node) = board();
    for name in ["left", "right"] {
        home.data(&["agent", "add", name, "--local"]);
    }
    let mut first = Client::start(&home, Era::Sessions, &[]);
    for n in 0..TASKS {
        create(&mut first, &format!("Task {n}"));
    }
    let home = Arc::new(home);
    let together = Arc::new(Barrier::new(CLIENTS));
    let workers: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (home, together) = (home.clone(), together.clone());
            thread::spawn(move || {
                let agent = if n % 2 == 0 { "left" } else { "right" };
                let mut client = Client::start(&home, ERAS[n % 2], &["--agent", agent]);
                together.wait();
                let mut taken = Vec::new();
                loop {
                    let got = client.data(
                        "task_mutate",
                        json!({ "action": "claim", "projectId": "web" }),
                    );
                    if got["task"].is_null() {
                        assert!(got["why"]["leased"].as_u64().unwrap() > 0, "{got}");
                        return taken;
                    }
                    taken.push(text(&got["task"], "id").to_owned());
                }
            })
        })
        .collect();
    let taken: Vec<String> = workers
        .into_iter()
        .flat_map(|worker| worker.join().unwrap())
        .collect();
    assert_eq!(taken.len(), TASKS);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), TASKS);
}

#[test]
fn a_client_that_never_reads_slows_nobody() {
    let (home, _node) = board();
    let mut other = Client::start(&home, Era::Sessions, &[]);
    let task = create(&mut other, "T");
    let uri = format!("stead://task/{}", text(&task, "id"));
    // Its pipe is full after a while, and nobody ever empties it.
    let mut deaf = home.command(&["mcp"]);
    deaf.stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut deaf = deaf.spawn().unwrap();
    let mut stdin = deaf.stdin.take().unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = |id: u64, method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        format!(
            "{}\n",
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        )
    };
    use std::io::Write as _;
    let listen = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    stdin
        .write_all(request(1, "subscriptions/listen", listen).as_bytes())
        .unwrap();
    for id in 2..60 {
        stdin
            .write_all(request(id, "tools/list", json!({})).as_bytes())
            .unwrap();
    }
    let mut watcher = Client::start(&home, Era::Requests, &[]);
    watcher.watch(&[&uri]);
    for n in 0..200 {
        other.data(
            "task_mutate",
            json!({ "action": "comment", "id": task["id"], "body": format!("{n}") }),
        );
    }
    watcher.told(&uri);
    assert_eq!(
        watcher.read(&uri)["task"]["commentsLeft"].as_u64().unwrap()
            + watcher.read(&uri)["task"]["comments"]
                .as_array()
                .unwrap()
                .len() as u64,
        200
    );
    deaf.kill().unwrap();
    deaf.wait().unwrap();
}

#[test]
fn a_revoked_credential_is_refused_at_its_next_call_and_hears_no_more() {
    for era in ERAS {
        let (home, _node) = board();
        let mut client = Client::start(&home, era, &[]);
        let task = create(&mut client, "T");
        let uri = format!("stead://task/{}", text(&task, "id"));
        client.watch(&[&uri]);
        home.data(&["agent", "revoke", "agent"]);
        let (error, said) = client.refused("task_get", json!({ "id": task["id"] }));
        assert_eq!(error["code"], "FORBIDDEN");
        assert!(said.contains("revoked"), "{said}");
        assert!(client.ask("resources/read", json!({ "uri": uri })).is_err());
        home.data(&["comment", text(&task, "id"), "later"]);
        let (_, _, rest) = client.end();
        assert!(
            rest.iter()
                .all(|note| note["method"] != "notifications/resources/updated"),
            "{rest:?}"
        );
    }
}

/// A request to `/mcp` over HTTP, with these headers beside what every one has.
fn post(node: &RunningNode, headers: &[String]) -> (u16, Value) {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    } } })
    .to_string();
    let mut request = String::from("POST /mcp HTTP/1.1\r\n");
    let fixed = [
        "Content-Type: application/json".to_owned(),
        "Accept: application/json, text/event-stream".to_owned(),
        "MCP-Protocol-Version: 2026-07-28".to_owned(),
        "Mcp-Method: tools/list".to_owned(),
        "Connection: close".to_owned(),
        format!("Content-Length: {}", body.len()),
    ];
    for header in headers.iter().chain(&fixed) {
        request.push_str(header);
        request.push_str("\r\n");
    }
    let answer = exchange(node.address(), format!("{request}\r\n{body}").as_bytes()).unwrap();
    (answer.status, answer.body)
}

#[test]
fn over_http_only_an_agents_own_token_on_the_right_host_comes_in() {
    let (home, node) = board();
    let token = home.data(&["agent", "add", "remote"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let other = Home::with_project("web");
    let foreign = other.data(&["agent", "add", "remote"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let host = format!("Host: {}", node.address());
    let bearer = |token: &str| format!("Authorization: Bearer {token}");
    let status = |headers: &[String]| post(&node, headers).0;
    assert_eq!(status(&[host.clone(), bearer(&token)]), 200);
    assert_eq!(status(std::slice::from_ref(&host)), 401);
    assert_eq!(status(&[host.clone(), bearer("guess")]), 401);
    assert_eq!(status(&[host.clone(), bearer(&foreign)]), 401);
    assert_eq!(status(&["Host: evil.example".into(), bearer(&token)]), 403);
    assert_eq!(
        status(&[
            host.clone(),
            bearer(&token),
            "Origin: http://evil.example".into()
        ]),
        403
    );
    // The home's own token is a person's; with the name of a local agent it is that agent's.
    assert_eq!(status(&[host.clone(), bearer(&home.token())]), 403);
    assert_eq!(
        status(&[
            host.clone(),
            bearer(&home.token()),
            "Stead-Agent: agent".into()
        ]),
        200
    );
    home.data(&["agent", "revoke", "remote"]);
    assert_eq!(status(&[host, bearer(&token)]), 401);
}

#[test]
fn a_node_answers_to_the_hosts_that_it_is_told_to() {
    let home = Home::with_project("web");
    let token = home.data(&["agent", "add", "remote"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let node = RunningNode::start(
        &home,
        &["node", "run", "--allow-host", "board.example", "--json"],
    );
    for (name, expected) in [
        ("board.example", 200),
        ("board.example:8443", 200),
        ("other.example", 403),
    ] {
        let headers = [
            format!("Host: {name}"),
            format!("Authorization: Bearer {token}"),
        ];
        assert_eq!(post(&node, &headers).0, expected, "{name}");
    }
}

#[test]
fn calls_leave_a_trail_without_anybodys_text() {
    let (home, node) = board();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let task = client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": "Title-nobody-logs", "body": "Body-nobody-logs" }),
    );
    client.refused("task_get", json!({ "id": "0000000000001" }));
    let by = text(&task["task"]["createdBy"], "credential").to_owned();
    // Nor what a client says in other places.
    assert!(
        client
            .ask(
                "prompts/get",
                json!({ "name": "hand_over", "arguments": { "id": "Id-nobody-logs" } })
            )
            .is_err()
    );
    client.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 99, "reason": "Reason-nobody-logs" } }));
    client.data("task_search", json!({}));
    node.call("Method-nobody-logs", json!({}));
    drop(client.end());
    let token = home.token();
    drop(node);
    let log = home.log();
    let line = |outcome: &str, tool: &str| {
        log.lines().any(|line| {
            line.contains(&by)
                && line.contains(outcome)
                && line.contains(tool)
                && line.contains("micros")
        })
    };
    assert!(
        line("ok", "task_mutate") && line("INVALID_ID", "task_get"),
        "{log}"
    );
    for secret in ["nobody-logs", &token] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn beyond_this_machine_needs_a_certificate_or_the_word_for_going_without() {
    let home = Home::with_project("web");
    let ran = home.run(&["node", "run", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(
        ran.stderr.contains("--tls-cert") && ran.stderr.contains("--plain-http"),
        "{ran:?}"
    );
    let ran = home.run(&["node", "run", "--plain-http"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let missing = home.beside("none.pem").display().to_string();
    let args = [
        "node",
        "run",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        &missing,
        "--tls-key",
        &missing,
    ];
    let ran = home.run(&args);
    assert!(ran.code == 1 && ran.stderr.contains("none.pem"), "{ran:?}");

    let token = home.data(&["agent", "add", "remote"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let node = RunningNode::start(
        &home,
        &[
            "node",
            "run",
            "--listen",
            "127.0.0.1:0",
            "--plain-http",
            "--json",
        ],
    );
    let place = text(&node.ready, "network");
    let address = place
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/mcp")
        .unwrap();
    let request = format!(
        "GET /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let answer = exchange(address.parse().unwrap(), request.as_bytes()).unwrap();
    // Let in by the gate, and told by the protocol that a GET there needs a session.
    assert!(![401, 403].contains(&answer.status), "{answer:?}");
}

/// A request of the older protocol over HTTP; the status and the session that it opened.
fn session(
    node: &RunningNode,
    verb: &str,
    token: &str,
    id: Option<&str>,
    body: &Value,
) -> (u16, Option<String>) {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let mut request = format!(
        "{verb} /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
        node.address(),
        body.len()
    );
    if let Some(id) = id {
        request.push_str(&format!("Mcp-Session-Id: {id}\r\n"));
    }
    let answer = exchange(node.address(), format!("{request}\r\n{body}").as_bytes()).unwrap();
    (answer.status, answer.headers.get("mcp-session-id").cloned())
}

#[test]
fn a_session_is_open_to_the_credential_that_made_it_and_to_no_other() {
    let (home, node) = board();
    let token = |name: &str| {
        home.data(&["agent", "add", name])["token"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, two) = (token("one"), token("two"));
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    } });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let (status, id) = session(&node, "POST", &one, None, &begin);
    assert_eq!(status, 200);
    let id = id.unwrap();
    assert_eq!(session(&node, "POST", &one, Some(&id), &ready).0, 202);
    for verb in ["POST", "GET", "DELETE"] {
        let body = if verb == "POST" { &ready } else { &Value::Null };
        assert_eq!(session(&node, verb, &two, Some(&id), body).0, 404, "{verb}");
    }
    // A script that opens one for each run loses its own oldest ones and shuts nobody out.
    let (_, other) = session(&node, "POST", &two, None, &begin);
    for _ in 0..64 {
        assert_eq!(session(&node, "POST", &one, None, &begin).0, 200);
    }
    assert_eq!(session(&node, "POST", &one, Some(&id), &ready).0, 404);
    assert_eq!(
        session(&node, "POST", &two, other.as_deref(), &ready).0,
        202
    );
}

#[test]
fn what_does_not_fit_is_named_and_can_be_read_on() {
    let (home, _node) = board();
    let mut client = Client::start(&home, Era::Requests, &[]);
    // Of many updates every id is named.
    let tasks: Vec<Value> = (0..100)
        .map(|n| create(&mut client, &format!("{n}")))
        .collect();
    let entries: Vec<Value> = tasks
        .iter()
        .map(|task| json!({ "id": task["id"], "revision": task["revision"], "status": "review" }))
        .collect();
    let first = client.data(
        "task_mutate",
        json!({ "action": "move", "updates": entries }),
    );
    assert_eq!(first["moved"].as_array().unwrap().len(), 100);
    let again = client.data(
        "task_mutate",
        json!({ "action": "move", "updates": entries }),
    );
    let refused = again["refused"].as_array().unwrap();
    assert_eq!(refused.len(), 100);
    assert!(bytes(&again) <= 10_000, "{}", bytes(&again));
    assert!(
        refused
            .iter()
            .all(|entry| entry["error"]["code"] == "STALE_WRITE" && entry["id"].is_string())
    );

    // A long comment is read on like a body.
    let long: String = (0..20_000)
        .map(|n| char::from(b'a' + (n % 26) as u8))
        .collect();
    let made = client.data(
        "task_mutate",
        json!({ "action": "comment", "id": tasks[0]["id"], "body": long }),
    );
    let id = &made["comment"]["id"];
    let mut read = String::new();
    while read.len() < long.len() {
        let got = client.data("task_get", json!({ "id": id, "bodyOffset": read.len() }));
        read.push_str(text(&got["task"], "body"));
    }
    assert_eq!(read, long);

    // And so is each value that a field had.
    let mut task = tasks[1].clone();
    for n in 0..3 {
        let current = client.data("task_get", json!({ "id": task["id"], "view": "summary" }));
        task = client.data(
            "task_mutate",
            json!({ "action": "update", "id": task["id"], "revision": current["task"]["revision"], "notes": format!("{n}{long}") }),
        )["task"]
            .take();
    }
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let page = client.data(
            "task_get",
            json!({ "id": task["id"], "view": "history", "field": "notes", "cursor": cursor }),
        );
        assert!(bytes(&page) <= 10_000);
        for row in page["history"].as_array().unwrap() {
            let field = &row["fields"][0];
            assert_eq!(
                field["valueNext"].as_u64().unwrap(),
                text(field, "value").len() as u64
            );
            seen.push(text(field, "value").chars().next().unwrap());
        }
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(seen, ['2', '1', '0']);
}
