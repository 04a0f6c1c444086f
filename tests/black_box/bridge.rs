//! The bridge as a process: it starts a node, outlives it, is light, and ends with its client.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{
    client::{Client, ERAS, Era},
    stead::{Home, RunningNode, finished, text},
};

/// A home with a project and a local agent.
fn home() -> Home {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "agent", "--local"]);
    home
}

#[test]
fn a_bridge_ends_within_a_second_of_its_client_in_both_eras() {
    for era in ERAS {
        let home = home();
        let _node = home.node();
        let mut client = Client::start(&home, era, &[]);
        client.watch(&["stead://conflicts"]);
        let (status, took, _) = client.end();
        assert!(status.success(), "{status}");
        assert!(took < Duration::from_secs(1), "{took:?}");
        // And before it said anything at all.
        let silent = Client::spawn(&home, era, &[], &[]);
        let (status, took, said) = silent.end();
        assert!(status.success() && said.is_empty(), "{status} {said:?}");
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn what_was_asked_before_the_end_is_answered_still() {
    let home = home();
    let _node = home.node();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let id = client.send(
        "tools/call",
        json!({ "name": "task_search", "arguments": {} }),
    );
    let (_, _, said) = client.end();
    assert!(
        said.iter()
            .any(|said| said["id"] == id && said["result"].is_object()),
        "{said:?}"
    );
}

#[test]
fn a_bridge_starts_a_node_where_none_runs_and_the_node_outlives_it() {
    let home = home();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": "T" }),
    );
    let (status, _, _) = client.end();
    assert!(status.success());
    let running = home.data(&["node", "status"]);
    assert_eq!(running["connected"], json!([]));
    home.data(&["node", "stop"]);
    // The store is free again, and what was acknowledged is there.
    assert_eq!(home.data(&["list"])["tasks"].as_array().unwrap().len(), 1);
}

#[test]
fn a_node_that_nobody_needs_ends_by_itself_and_one_with_a_client_does_not() {
    let home = home();
    let node = RunningNode::start(&home, &["node", "run", "--idle-exit", "1s", "--json"]);
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let connected = home.data(&["node", "status"])["connected"][0].take();
    assert_eq!(connected["pid"], client.pid);
    assert_eq!(connected["by"]["name"], "agent");
    assert_eq!(client.data("task_search", json!({}))["tasks"], json!([]));
    drop(client.end());
    assert!(node.wait().success());
}

#[test]
fn a_client_keeps_its_bridge_while_its_node_is_killed_and_started_again() {
    for era in ERAS {
        let home = home();
        let node = home.node();
        let mut client = Client::start(&home, era, &[]);
        let made = client.data(
            "task_mutate",
            json!({ "action": "create", "projectId": "web", "title": "T" }),
        );
        let uri = format!("stead://task/{}", text(&made["task"], "id"));
        client.watch(&[&uri]);
        node.kill();
        // Asked while none runs: answered by the next, which the bridge starts itself.
        let found = client.data("task_search", json!({ "projectId": "web" }));
        assert_eq!(found["tasks"][0]["id"], made["task"]["id"]);
        // It may have changed meanwhile, so the client is told to read it again.
        client.told(&uri);
        // And what it watched is watched still.
        home.data(&["comment", text(&made["task"], "id"), "later"]);
        client.told(&uri);
        drop(client.end());
        home.data(&["node", "stop"]);
    }
}

#[test]
fn a_write_with_a_key_is_sent_again_after_a_kill_and_has_one_effect() {
    let home = home();
    let node = home.node();
    let kill = node.killer();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    let create = json!({ "name": "task_mutate", "arguments": {
        "action": "create", "projectId": "web", "title": "Once", "idempotencyKey": "k",
    } });
    let id = client.send("tools/call", create);
    kill();
    let answer = client.answer(id).unwrap();
    assert_ne!(answer["isError"], true, "{answer}");
    drop(client.end());
    home.data(&["node", "stop"]);
    assert_eq!(home.data(&["list"])["tasks"].as_array().unwrap().len(), 1);
    drop(node);
}

#[test]
fn who_may_not_come_in_is_told_at_once_and_nothing_is_on_stdout() {
    let home = Home::with_project("web");
    let _node = home.node();
    let asked = |args: &[&str], env: &[(&str, &str)]| {
        let mut command = home.command(args);
        command.envs(env.iter().copied());
        finished(command, b"")
    };
    for (args, env, says) in [
        (&["mcp"][..], &[][..], "stead agent add"),
        (&["mcp", "--agent", "nobody"], &[], "stead agent add"),
        (&["mcp"], &[("STEAD_TOKEN", "guess")], "STEAD_TOKEN"),
    ] {
        let ran = asked(args, env);
        assert_eq!(ran.code, 1, "{args:?}: {ran:?}");
        assert!(
            ran.stdout.is_empty() && ran.stderr.contains(says),
            "{args:?}: {ran:?}"
        );
    }
    let nowhere = Home::fresh();
    let ran = nowhere.run(&["mcp"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (3, ""));
    assert!(ran.stderr.contains("stead up"), "{ran:?}");
    let ran = home.run(&["mcp", "--toolsets", "nothing"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("board"), "{ran:?}");
}

#[test]
fn a_token_names_any_credential() {
    let home = Home::with_project("web");
    let token = home.data(&["agent", "add", "remote"])["token"]
        .as_str()
        .unwrap()
        .to_owned();
    let _node = home.node();
    let mut client = Client::start_with(&home, Era::Requests, &[], &[("STEAD_TOKEN", &token)]);
    let made = client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": "T" }),
    );
    assert_eq!(made["task"]["createdBy"]["name"], "remote");
}

#[test]
fn a_name_outside_ascii_reaches_the_node() {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "größe 7", "--local"]);
    let _node = home.node();
    let mut client = Client::start(&home, Era::Sessions, &["--agent", "größe 7"]);
    let made = client.data(
        "task_mutate",
        json!({ "action": "create", "projectId": "web", "title": "T" }),
    );
    assert_eq!(made["task"]["createdBy"]["name"], "größe 7");
}

#[cfg(target_os = "linux")]
#[test]
fn a_bridge_is_light() {
    let home = home();
    let _node = home.node();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    for _ in 0..20 {
        client.data("task_search", json!({}));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", client.pid)).unwrap();
    let kib: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap();
    // A build without optimisation is the larger one; the benchmark says what a release takes.
    assert!(kib < 40 << 10, "{kib} KiB");
    drop(client.end());
}

#[test]
fn what_is_no_message_of_the_protocol_is_left_out() {
    let home = home();
    let _node = home.node();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    client.say(json!("just a text"));
    client.say(json!({ "jsonrpc": "2.0", "method": "notifications/of/nothing" }));
    client.say(Value::Null);
    assert_eq!(client.data("task_search", json!({}))["tasks"], json!([]));
}

#[test]
fn a_bridge_whose_client_is_killed_ends_too() {
    let home = home();
    let node = home.node();
    let mut client = Client::start(&home, Era::Sessions, &[]);
    client.watch(&["stead://conflicts"]);
    drop(client);
    // Its pipes are closed; the node sees the connection end.
    let until = Instant::now() + Duration::from_secs(60);
    while node.data("status", json!({}))["connected"] != json!([]) {
        assert!(Instant::now() < until, "the node still counts the bridge");
    }
}

#[test]
fn a_bridge_whose_answers_nobody_reads_ends_with_its_client_all_the_same() {
    use std::io::Write as _;
    let home = home();
    let _node = home.node();
    let mut command = home.command(&["mcp"]);
    command
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for id in 0..100 {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        } } });
        writeln!(stdin, "{request}").unwrap();
    }
    drop(stdin);
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it goes on");
        std::thread::yield_now();
    }
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
}

#[cfg(unix)]
#[test]
fn a_bridge_ends_in_time_while_its_node_says_nothing() {
    let home = home();
    let node = home.node();
    node.pause();
    let silent = Client::spawn(&home, Era::Sessions, &[], &[]);
    let (status, took, said) = silent.end();
    assert!(status.success() && said.is_empty(), "{status} {said:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    node.go_on();
}

#[test]
fn a_node_of_another_version_names_the_toolsets_that_it_lacks_and_a_long_report_is_cut() {
    let home = home();
    let _node = home.node();
    let long = "x".repeat(70_000);
    let mut client = Client::start_with(&home, Era::Sessions, &[], &[("CLAUDE_CODE_X", &long)]);
    assert_eq!(client.data("task_search", json!({}))["tasks"], json!([]));
}
