//! The behavioural sentences of `seeds/000`, as far as the command line shows them. The seed's
//! `updatedAt` is `revision` here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::stead::{Called, Home, ids, text};

fn titles(data: &Value) -> Vec<String> {
    let rows = data["tasks"].as_array().unwrap();
    rows.iter()
        .map(|row| text(row, "title").to_owned())
        .collect()
}

/// A project with a task in every status.
fn every_status() -> Home {
    let home = Home::with_project("web");
    for (status, more) in [
        ("backlog", &[][..]),
        ("ready", &[]),
        ("in_progress", &[]),
        ("blocked", &["--reason", "waiting"]),
        ("review", &[]),
        ("done", &[]),
        ("abandoned", &["--abandon-reason", "no use"]),
    ] {
        home.create("web", status, &[&["--status", status][..], more].concat());
    }
    home
}

fn statuses(home: &Home, args: &[&str]) -> BTreeSet<String> {
    titles(&home.data(args)).into_iter().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_search_returns_lightweight_summaries_that_are_enough_to_move_one() {
    let home = Home::with_project("web");
    home.create(
        "web",
        "Login",
        &["--body", "A long story", "--notes", "And notes"],
    );
    let data = home.data(&["list"]);
    let row = &data["tasks"][0];
    for heavy in ["body", "notes", "criteria", "comments", "state"] {
        assert!(row.get(heavy).is_none(), "{row}");
    }
    for light in [
        "id",
        "number",
        "title",
        "status",
        "priority",
        "assignee",
        "sprintId",
        "next",
        "conflicted",
        "revision",
    ] {
        assert!(row.get(light).is_some(), "no {light}: {row}");
    }
    let args = [
        "move",
        text(row, "id"),
        "in_progress",
        "--revision",
        text(row, "revision"),
    ];
    assert_eq!(home.data(&args)["task"]["status"], "in_progress");
}

#[test]
fn a_search_defaults_to_active_work_and_says_what_it_left_out() {
    let home = every_status();
    let active = set(&["ready", "in_progress", "blocked", "review"]);
    assert_eq!(statuses(&home, &["list"]), active);
    let data = home.data(&["list"]);
    assert_eq!(data["hidden"]["count"], 3);
    assert_eq!(statuses(&home, &["list", "--status", "active"]), active);
    assert_eq!(statuses(&home, &["list", "--status", "open"]).len(), 5);
    assert_eq!(
        statuses(&home, &["list", "--status", "closed"]),
        set(&["done", "abandoned"])
    );
    assert_eq!(statuses(&home, &["list", "--status", "any"]).len(), 7);
    assert_eq!(
        statuses(&home, &["list", "--status", "active,in_progress"]),
        active
    );
    assert_eq!(
        statuses(&home, &["list", "--status", "in_progress,done"]),
        set(&["in_progress", "done"])
    );
    // Words are looked for in all of it.
    assert_eq!(statuses(&home, &["search", "done"]), set(&["done"]));
}

#[test]
fn a_search_is_limited_and_goes_on_where_it_stopped() {
    let home = Home::with_project("web");
    for n in 0..23 {
        home.create("web", &format!("t{n}"), &[]);
    }
    let first = home.data(&["list"]);
    assert_eq!(first["tasks"].as_array().unwrap().len(), 10);
    assert_eq!(first["left"], 13);
    let mut seen = ids(first["tasks"].as_array().unwrap());
    let second = home.data(&[
        "list",
        "--cursor",
        text(&first, "nextCursor"),
        "--limit",
        "12",
    ]);
    seen.extend(ids(second["tasks"].as_array().unwrap()));
    let third = home.data(&["list", "--cursor", text(&second, "nextCursor")]);
    seen.extend(ids(third["tasks"].as_array().unwrap()));
    assert_eq!(third["nextCursor"], Value::Null);
    assert_eq!(seen.len(), 23);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 23);
}

#[test]
fn a_search_finds_what_an_assignee_has() {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "codex", "--local"]);
    home.create("web", "Mine", &["--assignee", "me"]);
    home.create("web", "By mail", &["--assignee", "ada@example.com"]);
    home.create("web", "Codex's", &["--assignee", "codex"]);
    home.create("web", "Nobody's", &[]);
    assert_eq!(
        statuses(&home, &["list", "--assignee", "codex"]),
        set(&["Codex's"])
    );
    assert_eq!(
        statuses(&home, &["list", "--assignee", "none"]),
        set(&["Nobody's"])
    );
    let mine = statuses(&home, &["list", "--assignee", "me"]);
    assert!(mine.is_superset(&set(&["Mine", "By mail"])), "{mine:?}");
    assert!(!mine.contains("Nobody's"));
    assert_eq!(
        statuses(&home, &["list", "--assignee", "codex,none"]),
        set(&["Codex's", "Nobody's"])
    );
    let error = home.refused(&["create", "x", "-p", "web", "--assignee", "stranger"]);
    assert!(
        error.to_string().contains("codex"),
        "names the assignable ones: {error}"
    );
}

#[test]
fn searching_is_truly_read_only_and_an_unknown_project_is_never_created() {
    let home = Home::with_project("web");
    let before = home.export();
    for args in [
        &["list", "-p", "nope"][..],
        &["search", "x", "-p", "nope"],
        &["ready", "-p", "nope"],
        &["create", "x", "-p", "nope"],
        &["claim", "--project", "nope"],
        &["sprint", "create", "x", "-p", "nope"],
        &["sprint", "list", "-p", "nope"],
    ] {
        let error = home.refused(args);
        assert_eq!(error["code"], "UNKNOWN_PROJECT", "{args:?}");
        assert_eq!(error["knownProjects"], json!(["web"]));
    }
    let none = home.refused(&["create", "x"]);
    assert_eq!(
        (&none["code"], &none["knownProjects"]),
        (&json!("INVALID_ARGUMENT"), &json!(["web"]))
    );
    assert_eq!(home.export(), before);
    assert_eq!(
        home.data(&["project", "list"])["projects"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    // Nor does reading what is there write anything.
    home.data(&["list"]);
    home.data(&["search", "x"]);
    home.data(&["ready"]);
    assert_eq!(home.export(), before);
}

#[test]
fn a_search_can_be_scoped_to_a_sprint_to_the_active_one_or_to_none() {
    let home = Home::with_project("web");
    let one = home.data(&["sprint", "create", "One", "-p", "web"])["sprint"].take();
    let two = home.data(&["sprint", "create", "Two", "-p", "web"])["sprint"].take();
    let (one, two) = (text(&one, "id"), text(&two, "id"));
    home.create("web", "In one", &["--sprint", one]);
    home.create("web", "In two", &["--sprint", two]);
    home.create("web", "Backlog", &[]);
    let scoped = |sprint: &str| statuses(&home, &["list", "-p", "web", "--sprint", sprint]);
    assert_eq!(scoped(one), set(&["In one"]));
    assert_eq!(scoped(two), set(&["In two"]));
    assert_eq!(scoped("none"), set(&["Backlog"]));
    assert_eq!(scoped("active"), set(&[]));
    home.data(&["sprint", "activate", two]);
    assert_eq!(scoped("active"), set(&["In two"]));
    let listed = home.data(&["list", "-p", "web"]);
    assert_eq!(listed["sprints"].as_array().unwrap().len(), 2);
}

#[test]
fn get_returns_body_criteria_notes_blocker_dependencies_and_the_revision() {
    let home = Home::with_project("web");
    let first = home.create("web", "First", &[]);
    let first = text(&first, "id");
    let task = home.create(
        "web",
        "Second",
        &[
            "--body",
            "The whole body",
            "--notes",
            "Notes",
            "--criterion",
            "It works",
            "--depends-on",
            first,
        ],
    );
    let id = text(&task, "id");
    home.data(&["block", id, "--reason", "No key", "--by", first]);
    let task = home.task(id);
    assert_eq!(task["body"], "The whole body");
    assert_eq!(task["notes"], "Notes");
    assert_eq!(task["criteria"][0]["text"], "It works");
    assert_eq!(task["criteria"][0]["done"], false);
    assert_eq!(task["blocker"]["reason"], "No key");
    assert_eq!(task["blocker"]["taskId"], first);
    assert_eq!(task["blocker"]["by"]["memberName"], "Ada");
    assert_eq!(task["dependsOn"], json!([first]));
    assert_eq!(task["dependencies"][0]["title"], "First");
    assert!(!text(&task, "revision").is_empty());
    assert_eq!(home.task(first)["dependents"], json!([id]));
}

#[test]
fn every_mutation_except_create_and_comment_needs_the_revision() {
    let home = Home::with_project("web");
    let node = home.node();
    let call = |arguments: Value| node.call("task_mutate", arguments);
    let made = call(json!({"action": "create", "projectId": "web", "title": "x"}));
    let Called::Ok(made) = made else {
        panic!("{made:?}")
    };
    let id = made["task"]["id"].clone();
    let other = home.create("web", "other", &[]);
    let sprint = home.data(&["sprint", "create", "s", "-p", "web"])["sprint"]["id"].take();
    assert!(matches!(
        call(json!({"action": "comment", "id": id, "body": "y"})),
        Called::Ok(_)
    ));
    let before = home.export();
    for arguments in [
        json!({"action": "update", "title": "z"}),
        json!({"action": "move", "status": "done"}),
        json!({"action": "block", "reason": "z"}),
        json!({"action": "unblock"}),
        json!({"action": "link", "type": "depends_on", "targetId": other["id"]}),
        json!({"action": "unlink", "type": "depends_on", "targetId": other["id"]}),
        json!({"action": "archive"}),
        json!({"action": "restore"}),
        json!({"action": "resolve", "field": "title", "value": "z"}),
        json!({"action": "sprint_assign", "sprintId": sprint}),
    ] {
        let mut arguments = arguments;
        arguments["id"] = id.clone();
        let answer = call(arguments.clone());
        let Called::Refused(error) = answer else {
            panic!("{arguments}: {answer:?}")
        };
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{arguments}: {error}");
        assert_eq!(error["field"], "revision", "{arguments}: {error}");
    }
    assert_eq!(home.export(), before);
}

#[test]
fn if_another_agent_won_the_race_the_fresh_task_is_inside_the_error_and_a_retry_with_it_works() {
    let home = Home::with_project("web");
    for agent in ["codex", "claude"] {
        home.data(&["agent", "add", agent, "--local"]);
    }
    let task = home.create("web", "Race", &[]);
    let (id, seen) = (text(&task, "id"), text(&task, "revision"));
    home.data(&[
        "--agent",
        "codex",
        "move",
        id,
        "in_progress",
        "--revision",
        seen,
    ]);
    let late = [
        "--agent",
        "claude",
        "move",
        id,
        "review",
        "--revision",
        seen,
    ];
    let error = home.refused(&late);
    assert_eq!(error["code"], "STALE_WRITE");
    assert_eq!(error["current"]["status"], "in_progress");
    assert_eq!(error["changed"][0]["by"]["name"], "codex");
    let fresh = text(&error["current"], "revision");
    let retry = [
        "--agent",
        "claude",
        "move",
        id,
        "review",
        "--revision",
        fresh,
    ];
    assert_eq!(home.data(&retry)["task"]["status"], "review");
}

#[test]
fn mutations_create_update_move_comment_and_block() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let id = text(&task, "id");
    assert_eq!(task["status"], "ready");
    home.data(&[
        "update",
        id,
        "--priority",
        "P0",
        "--tag",
        "a,b",
        "--state",
        "k=v",
    ]);
    home.data(&["move", id, "in_progress"]);
    home.data(&["comment", id, "Half way"]);
    home.data(&["block", id, "--reason", "No key"]);
    let task = home.task(id);
    assert_eq!(task["status"], "blocked");
    assert_eq!(task["priority"], "urgent");
    assert_eq!(task["tags"], json!(["a", "b"]));
    assert_eq!(task["state"]["k"], "v");
    assert_eq!(task["comments"][0]["body"], "Half way");
    assert_eq!(home.data(&["unblock", id])["task"]["status"], "in_progress");
    assert_eq!(home.task(id)["blocker"], Value::Null);
    let closed = home.data(&["close", id, "--reason", "Fixed"])["task"].take();
    assert_eq!(
        (&closed["status"], &closed["result"]),
        (&json!("done"), &json!("Fixed"))
    );
    let reason = home.refused(&["move", id, "blocked"]);
    assert_eq!(reason["code"], "REASON_REQUIRED");
    assert_eq!(
        home.refused(&["move", id, "abandoned"])["code"],
        "REASON_REQUIRED"
    );
    home.data(&["archive", id]);
    assert!(titles(&home.data(&["list", "--status", "any"])).is_empty());
    assert_eq!(home.task(id)["title"], "One");
    home.data(&["archive", id, "--undo"]);
    assert_eq!(titles(&home.data(&["list", "--status", "any"])), ["One"]);
}

#[test]
fn the_seeds_words_for_statuses_are_understood_in_writes() {
    let home = Home::with_project("web");
    let task = home.create("web", "One", &[]);
    let id = text(&task, "id");
    for (word, status) in [
        ("active", "in_progress"),
        ("pending", "ready"),
        ("completed", "done"),
    ] {
        assert_eq!(home.data(&["move", id, word])["task"]["status"], status);
    }
}

#[test]
fn starting_with_unmet_dependencies_is_refused_unless_forced_and_a_cycle_always() {
    let home = Home::with_project("web");
    let first = home.create("web", "First", &[]);
    let first = text(&first, "id");
    let second = home.create("web", "Second", &["--depends-on", first]);
    let second = text(&second, "id");
    let error = home.refused(&["move", second, "in_progress"]);
    assert_eq!(error["code"], "UNMET_DEPENDENCIES");
    assert!(error.to_string().contains(first), "{error}");
    assert_eq!(titles(&home.data(&["ready"])), ["First"]);
    let cycle = home.refused(&["dep", "add", first, second]);
    assert_eq!(cycle["code"], "CYCLE");
    assert!(
        cycle["cycle"].as_array().unwrap().contains(&json!(second)),
        "{cycle}"
    );
    let forced = home.data(&["move", second, "in_progress", "--force"])["task"].take();
    assert_eq!(forced["status"], "in_progress");
    assert!(!forced["forced"].is_null(), "{forced}");
    home.data(&["close", first]);
    let tree = home.data(&["dep", "tree", second]);
    assert_eq!(tree["tree"]["children"][0]["status"], "done");
    home.data(&["dep", "rm", second, first]);
    assert_eq!(home.task(second)["dependsOn"], json!([]));
}

#[test]
fn sprint_create_makes_a_planned_sprint_with_or_without_a_goal() {
    let home = Home::with_project("web");
    let with =
        home.data(&["sprint", "create", "One", "-p", "web", "--goal", "Ship it"])["sprint"].take();
    assert_eq!(
        (&with["status"], &with["goal"]),
        (&json!("planned"), &json!("Ship it"))
    );
    assert_eq!(
        (&with["name"], &with["projectId"]),
        (
            &json!("One"),
            &home.data(&["project", "list"])["projects"][0]["id"]
        )
    );
    let without = home.data(&["sprint", "create", "Two", "-p", "web"])["sprint"].take();
    assert_eq!(
        (&without["status"], &without["goal"]),
        (&json!("planned"), &Value::Null)
    );
    let listed = home.data(&["sprint", "list", "-p", "web"]);
    assert_eq!(listed["sprints"].as_array().unwrap().len(), 2);
}

#[test]
fn sprint_assign_needs_the_tasks_revision_and_null_removes() {
    let home = Home::with_project("web");
    let sprint = home.data(&["sprint", "create", "One", "-p", "web"])["sprint"].take();
    let sprint = text(&sprint, "id");
    let task = home.create("web", "x", &[]);
    let (id, old) = (text(&task, "id"), text(&task, "revision"));
    home.data(&["update", id, "--title", "y"]);
    let error = home.refused(&["sprint", "assign", id, sprint, "--revision", old]);
    assert_eq!(error["code"], "STALE_WRITE");
    let fresh = text(&error["current"], "revision");
    let put = home.data(&["sprint", "assign", id, sprint, "--revision", fresh]);
    assert_eq!(put["task"]["sprintId"], sprint);
    let out = home.data(&["sprint", "assign", id, "none"]);
    assert_eq!(out["task"]["sprintId"], Value::Null);
}

#[test]
fn exactly_one_sprint_is_active_and_activating_fails_with_the_name_of_the_other() {
    let home = Home::with_project("web");
    home.data(&["project", "add", "api"]);
    let make = |name: &str, project: &str| {
        let sprint = home.data(&["sprint", "create", name, "-p", project]);
        text(&sprint["sprint"], "id").to_owned()
    };
    let (one, two, elsewhere) = (make("One", "web"), make("Two", "web"), make("Else", "api"));
    let active = home.data(&["sprint", "activate", &one])["sprint"].take();
    assert_eq!(active["status"], "active");
    assert!(active["startedAt"].is_string());
    let error = home.refused(&["sprint", "activate", &two]);
    assert_eq!(error["code"], "ALREADY_ACTIVE");
    assert!(
        error.to_string().contains("One") && error.to_string().contains(&one),
        "{error}"
    );
    // Another project has its own.
    assert_eq!(
        home.data(&["sprint", "activate", &elsewhere])["sprint"]["status"],
        "active"
    );
    home.data(&["sprint", "complete", &one]);
    assert_eq!(
        home.data(&["sprint", "activate", &two])["sprint"]["status"],
        "active"
    );
    let listed = home.data(&["sprint", "list", "-p", "web"]);
    let active = listed["sprints"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|sprint| sprint["status"] == "active");
    assert_eq!(active.count(), 1);
}

#[test]
fn a_sprint_goes_from_planned_to_active_to_completed_and_not_back() {
    let home = Home::with_project("web");
    let sprint = home.data(&["sprint", "create", "One", "-p", "web"])["sprint"].take();
    let id = text(&sprint, "id");
    assert_eq!(
        home.json(&["sprint", "complete", id]).code,
        1,
        "a planned one is not completed"
    );
    let open = home.create("web", "open", &["--sprint", id]);
    home.create("web", "finished", &["--sprint", id, "--status", "done"]);
    home.data(&["sprint", "activate", id]);
    let done = home.data(&["sprint", "complete", id]);
    assert_eq!(done["sprint"]["status"], "completed");
    assert!(done["sprint"]["completedAt"].is_string());
    assert!(
        done.to_string().contains(text(&open, "id")),
        "open tasks are reported: {done}"
    );
    assert_eq!(home.task(text(&open, "id"))["sprintId"], id);
    assert_eq!(home.json(&["sprint", "activate", id]).code, 1);
    assert_eq!(
        home.json(&["sprint", "assign", text(&open, "id"), id]).code,
        1
    );
    // Nor across projects.
    home.data(&["project", "add", "api"]);
    let foreign = home.data(&["sprint", "create", "Else", "-p", "api"])["sprint"]["id"].take();
    assert_eq!(
        home.json(&[
            "sprint",
            "assign",
            text(&open, "id"),
            foreign.as_str().unwrap()
        ])
        .code,
        1
    );
}

#[test]
fn completing_a_sprint_can_move_what_is_open_to_another() {
    let home = Home::with_project("web");
    let make = |name: &str| {
        home.data(&["sprint", "create", name, "-p", "web"])["sprint"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, two) = (make("One"), make("Two"));
    let open = home.create("web", "open", &["--sprint", &one]);
    let finished = home.create("web", "finished", &["--sprint", &one, "--status", "done"]);
    home.data(&["sprint", "activate", &one]);
    home.data(&["sprint", "complete", &one, "--move-open-to", &two]);
    assert_eq!(home.task(text(&open, "id"))["sprintId"], two);
    assert_eq!(home.task(text(&finished, "id"))["sprintId"], one);
}

#[test]
fn the_active_sprint_has_a_queue_in_the_order_of_priority() {
    let home = Home::with_project("web");
    let sprint = home.data(&["sprint", "create", "One", "-p", "web"])["sprint"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for priority in ["low", "urgent", "medium", "lowest", "high"] {
        home.create(
            "web",
            priority,
            &["--sprint", &sprint, "--priority", priority],
        );
    }
    home.data(&["sprint", "activate", &sprint]);
    let expected = ["urgent", "high", "medium", "low", "lowest"];
    assert_eq!(
        titles(&home.data(&["ready", "-p", "web", "--sprint", "active"])),
        expected
    );
    let shown = home.data(&["sprint", "show", &sprint]);
    assert_eq!(titles(&shown), expected, "{shown}");
}

#[test]
fn a_delegate_never_becomes_a_member_and_history_keeps_both() {
    let home = Home::with_project("web");
    home.data(&["agent", "add", "claude", "--local"]);
    let members = home.data(&["member", "list"])["members"].take();
    assert_eq!(members.as_array().unwrap().len(), 1);
    let task = home.data(&["--agent", "claude", "create", "x", "-p", "web"])["task"].take();
    let history = home.data(&["history", text(&task, "id")]);
    let by = &history["history"][0]["by"];
    assert_eq!(
        (&by["name"], &by["memberName"]),
        (&json!("claude"), &json!("Ada"))
    );
    assert_eq!(by["memberId"], members[0]["id"]);
    assert_ne!(by["credential"], by["memberId"]);
}

#[test]
fn responsibilities_never_filter_what_is_seen_or_reject_an_action() {
    let home = Home::with_project("web");
    home.create("web", "Seen by all", &[]);
    for role in ["lead", "contributor", "observer"] {
        let mail = format!("{role}@example.com");
        home.data(&["member", "add", role, "--email", &mail, "--role", role]);
        home.data(&[
            "agent",
            "add",
            &format!("{role}-bot"),
            "--member",
            &mail,
            "--local",
        ]);
    }
    let capabilities: Vec<_> = home.data(&["agent", "list"])["agents"]
        .as_array()
        .unwrap()
        .iter()
        .map(|agent| agent["capabilities"].clone())
        .collect();
    assert!(
        capabilities.windows(2).all(|two| two[0] == two[1]),
        "{capabilities:?}"
    );
    for role in ["lead", "contributor", "observer"] {
        let bot = format!("{role}-bot");
        let seen = home.data(&["--agent", &bot, "list", "--status", "any"]);
        assert!(titles(&seen).contains(&"Seen by all".to_owned()));
        let title = format!("by {role}");
        home.data(&[
            "--agent",
            &bot,
            "create",
            &title,
            "-p",
            "web",
            "--assignee",
            "ada@example.com",
        ]);
    }
    let members = home.data(&["member", "list"])["members"].take();
    let roles: BTreeSet<_> = members
        .as_array()
        .unwrap()
        .iter()
        .map(|member| text(member, "responsibility"))
        .collect();
    assert!(roles.is_superset(&BTreeSet::from(["lead", "contributor", "observer"])));
}

#[test]
fn capabilities_report_what_a_credential_can_do() {
    let home = Home::with_project("web");
    let of = |args: &[&str]| {
        let added = home.data(&[&["agent", "add"][..], args].concat());
        let list = added["agent"]["capabilities"].as_array().unwrap().clone();
        list.iter()
            .map(|one| one.as_str().unwrap().to_owned())
            .collect::<BTreeSet<_>>()
    };
    let reader = of(&["reader", "--scopes", "tasks:read"]);
    let writer = of(&["writer"]);
    assert!(reader.contains("tasks:read:all"), "{reader:?}");
    assert!(!reader.contains("tasks:create"));
    for capability in ["tasks:read:all", "tasks:create", "tasks:assign"] {
        assert!(writer.contains(capability), "{writer:?}");
    }
    let limited = of(&["limited", "--projects", "web"]);
    assert!(!limited.contains("tasks:read:all"), "{limited:?}");
}

#[test]
fn a_plan_becomes_a_sprint_with_tasks_for_members_by_their_addresses() {
    let home = Home::with_project("web");
    home.data(&[
        "member",
        "add",
        "Grace",
        "--email",
        "grace@example.com",
        "--role",
        "contributor",
    ]);
    home.data(&["agent", "add", "lead", "--local"]);
    let lead = |args: &[&str]| home.data(&[&["--agent", "lead"][..], args].concat());
    let sprint = lead(&[
        "sprint",
        "create",
        "Delivery",
        "-p",
        "web",
        "--goal",
        "The plan's goal",
    ])["sprint"]
        .take();
    let sprint = text(&sprint, "id");
    for title in ["Build", "Test"] {
        let task = lead(&[
            "create",
            title,
            "-p",
            "web",
            "--assignee",
            "grace@example.com",
        ])["task"]
            .take();
        assert_eq!(task["assignee"]["memberName"], "Grace", "{task}");
        let revision = text(&task, "revision");
        lead(&[
            "sprint",
            "assign",
            text(&task, "id"),
            sprint,
            "--revision",
            revision,
        ]);
    }
    let shown = lead(&["sprint", "show", sprint]);
    assert_eq!(shown["tasks"].as_array().unwrap().len(), 2);
    let hers = home.data(&[
        "list",
        "--assignee",
        "grace@example.com",
        "--sprint",
        sprint,
    ]);
    assert_eq!(hers["tasks"].as_array().unwrap().len(), 2);
}

#[test]
fn owners_and_admins_alone_add_members_and_give_responsibilities() {
    let home = Home::with_project("web");
    let grace = home.data(&["member", "add", "Grace", "--role", "observer"])["member"].take();
    assert_eq!(
        (&grace["responsibility"], &grace["rank"]),
        (&json!("observer"), &json!("member"))
    );
    home.data(&["agent", "add", "claude", "--local"]);
    let error = home.refused(&[
        "--agent", "claude", "member", "add", "Eve", "--rank", "owner",
    ]);
    assert_eq!(error["code"], "HUMAN_REQUIRED");
    assert_eq!(
        home.data(&["member", "list"])["members"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn the_workspace_can_be_read_before_acting() {
    let home = Home::with_project("web");
    let node = home.node();
    let who = node.data("whoami", json!({}));
    assert_eq!(who["supervisor"]["email"], "ada@example.com");
    assert!(!who["capabilities"].as_array().unwrap().is_empty());
    assert_eq!(
        home.data(&["project", "list"])["projects"][0]["slug"],
        "web"
    );
    let member = home.data(&["member", "list"])["members"][0].take();
    assert_eq!(
        (&member["name"], &member["email"]),
        (&json!("Ada"), &json!("ada@example.com"))
    );
}

#[test]
fn a_returning_reader_is_told_what_changed_since_then() {
    let home = Home::with_project("web");
    home.create("web", "Old", &[]);
    let cursor = home.data(&["list"])["updateCursor"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(titles(&home.data(&["list", "--updated-since", &cursor])).is_empty());
    let task = home.create("web", "New", &[]);
    assert_eq!(
        titles(&home.data(&["list", "--updated-since", &cursor])),
        ["New"]
    );
    let next = home.data(&["list", "--updated-since", &cursor])["updateCursor"]
        .as_str()
        .unwrap()
        .to_owned();
    home.data(&["comment", text(&task, "id"), "More"]);
    home.data(&["update", text(&task, "id"), "--title", "Newer"]);
    assert_eq!(
        titles(&home.data(&["list", "--updated-since", &next])),
        ["Newer"]
    );
    assert_eq!(
        titles(&home.data(&["list", "--updated-since", "1970-01-01T00:00:00Z"])).len(),
        2
    );
}
