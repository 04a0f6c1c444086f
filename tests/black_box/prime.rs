//! `stead prime` says in few words what an agent needs when a session starts.

use serde_json::json;

use crate::stead::{Home, text};

/// Bytes that 2,000 tokens have at least.
const BYTES: usize = 7_000;

#[test]
fn an_agent_reads_who_it_is_and_what_to_do() {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "claude", "--local"]);
    let held = home.create("web", "Held by me", &["--priority", "high"]);
    home.data(&["--agent", "claude", "claim", text(&held, "id")]);
    let next = home.create("web", "Free to take", &[]);
    let stuck = home.create("web", "Stuck", &[]);
    home.data(&["block", text(&stuck, "id"), "--reason", "no key\u{1b}[2J"]);
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        let digest = home.text(&["prime", "--agent", "claude"]);
        for part in [
            "You are claude on this Stead board, an agent working for Ada",
            "\nProjects:\n- web: ",
            &format!(
                "\nYours, in progress:\n- {} Held by me [high, lease until ",
                text(&held, "id")
            ),
            &format!(
                "\nTo do next:\n- {} Free to take [medium]\n",
                text(&next, "id")
            ),
            &format!(
                "\nBlocked:\n- {} Stuck [no key\\u{{1b}}[2J]\n",
                text(&stuck, "id")
            ),
            "\nOpen conflicts: none\n",
            "\nRules:\n",
            "put --agent claude into every stead command",
            "STALE_WRITE",
        ] {
            assert!(digest.contains(part), "{part}\n{digest}");
        }
        let asked = home.data(&["--agent", "claude", "prime"]);
        assert_eq!(asked, json!({ "text": digest }));
        drop(node);
    }
    // The owner holds nothing.
    let owner = home.text(&["prime"]);
    assert!(
        owner.starts_with("You are Ada on this Stead board ("),
        "{owner}"
    );
    assert!(owner.contains("\nYours, in progress: none\n"), "{owner}");
}

#[test]
fn one_project_is_told_of_alone() {
    let home = Home::with_project("web");
    home.data(&["project", "add", "ios"]);
    home.create("web", "Of the web", &[]);
    home.create("ios", "Of the phone", &[]);
    let digest = home.text(&["prime", "-p", "ios"]);
    assert!(
        digest.contains("Of the phone") && !digest.contains("Of the web"),
        "{digest}"
    );
    assert!(
        digest.contains("- ios: ") && !digest.contains("- web: "),
        "{digest}"
    );
    let error = home.refused(&["prime", "-p", "none"]);
    assert_eq!(error["code"], "UNKNOWN_PROJECT");
}

#[test]
fn a_token_sees_what_it_reaches_and_what_it_may_do() {
    let home = Home::with_project("web");
    home.data(&["project", "add", "secret"]);
    home.create("secret", "Hidden", &[]);
    let added = home.data(&[
        "agent",
        "add",
        "r",
        "--scopes",
        "tasks:read",
        "--projects",
        "web",
    ]);
    let answer = home.json_with_token(text(&added, "token"), &["prime"]);
    let data = answer.data(&["prime"]);
    let digest = text(&data, "text");
    assert!(digest.contains("You are r on"), "{digest}");
    assert!(
        !digest.contains("ecret") && !digest.contains("Hidden"),
        "{digest}"
    );
    assert!(digest.contains("You may read and not write"), "{digest}");
    assert!(!digest.contains("stead claim"), "{digest}");
}

#[test]
fn a_full_board_of_long_titles_stays_within_the_bound() {
    let home = Home::with_project("web");
    let node = home.node();
    let title = format!("\u{202e}{}", "漢🎉".repeat(80));
    for n in 0..36 {
        let made = node.data(
            "task_mutate",
            json!({"action": "create", "projectId": "web", "title": format!("{n} {title}")}),
        );
        let id = text(&made["task"], "id");
        match n % 3 {
            0 => drop(node.data("task_mutate", json!({"action": "claim", "id": id}))),
            1 => drop(node.data(
                "task_mutate",
                json!({"action": "block", "id": id, "revision": made["task"]["revision"], "reason": title}),
            )),
            _ => {}
        }
    }
    let digest = home.text(&["prime"]);
    assert!(digest.len() <= BYTES, "{} bytes", digest.len());
    assert!(digest.len() > BYTES / 2, "{digest}");
    for heading in ["Yours, in progress:\n", "To do next:\n", "Blocked:\n"] {
        let list = digest.split(heading).nth(1).unwrap();
        let list = list.split("\n\n").next().unwrap();
        assert!(list.lines().count() >= 4, "{heading}{list}");
        assert!(
            list.lines().last().unwrap().contains("more: stead "),
            "{list}"
        );
    }
    assert!(!digest.contains(['\u{1b}', '\u{202e}']), "{digest}");
    assert!(digest.contains("\nRules:\n"));
}
