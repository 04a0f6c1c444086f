//! Every behavioural sentence of seed 000 that a command can show, by name. `updatedAt` as the
//! write token of the seed is `revision` here.

use serde_json::{Value as Json, json};
use stead_doc::{board::ACTIONS, context::Caller, refusal::Code};

use super::replica::{Replica, codex, person, scout};

#[test]
fn searching_never_creates_a_project() {
    let mut replica = Replica::one();
    replica.project("second");
    let before = replica.standing();
    // Every way in which a command can name a project that does not exist.
    for call in [
        json!({"action": "create", "projectId": "nope", "title": "t"}),
        json!({"action": "claim", "projectId": "nope"}),
        json!({"action": "sprint_create", "projectId": "nope", "name": "s"}),
    ] {
        let refusal = replica.run(call).unwrap_err();
        assert_eq!(refusal.code, Code::UnknownProject);
        assert_eq!(refusal.details["knownProjects"], json!(["second", "stead"]));
        assert_eq!(refusal.details["given"], "nope");
    }
    assert_eq!(replica.standing(), before);
}

#[test]
fn the_unknown_project_error_lists_real_slugs_so_you_can_pick_one_and_retry() {
    let mut replica = Replica::one();
    let mut call = json!({"action": "create", "projectId": "steed", "title": "t"});
    let refusal = replica.run(call.clone()).unwrap_err();
    call["projectId"] = refusal.details["knownProjects"][0].clone();
    assert_eq!(replica.run(call).unwrap()["task"]["title"], "t");
}

#[test]
fn task_get_returns_body_acceptance_criteria_notes_blocker_dependencies_and_the_token() {
    let mut replica = Replica::one();
    let first = replica.task("first");
    let task = replica.done(json!({
        "action": "create", "projectId": "stead", "title": "second", "body": "the body",
        "notes": "the notes", "criteria": ["it works"], "dependsOn": [first],
        "status": "blocked", "reason": "no key",
    }));
    let shown = replica.show(task["id"].as_str().unwrap());
    assert_eq!(shown["body"], "the body");
    assert_eq!(shown["notes"], "the notes");
    assert_eq!(
        shown["criteria"],
        json!([{"id": "1", "text": "it works", "done": false}])
    );
    assert_eq!(shown["dependsOn"], json!([first]));
    assert_eq!(shown["blocker"]["reason"], "no key");
    assert!(shown["updatedAt"].is_string());
    assert!(shown["revision"].is_string());
}

/// All that `ACTIONS` has, so that a new action is decided about here.
#[test]
fn every_mutation_except_create_and_comment_needs_the_revision() {
    let mut replica = Replica::one();
    let (task, other) = (replica.task("one"), replica.task("two"));
    let sprint = replica.sprint("s");
    let call = |action: &str| match action {
        "archive" | "restore" | "unblock" => json!({"action": action, "id": task}),
        "block" => json!({"action": action, "id": task, "reason": "r"}),
        "link" | "unlink" => {
            json!({"action": action, "id": task, "type": "relates_to", "targetId": other})
        }
        "move" => json!({"action": action, "id": task, "status": "review"}),
        "resolve" => json!({"action": action, "id": task, "field": "title", "value": "x"}),
        "sprint_assign" => json!({"action": action, "id": task, "sprintId": sprint}),
        "sprint_update" => json!({"action": action, "sprintId": sprint, "name": "n"}),
        "update" => json!({"action": action, "id": task, "title": "x"}),
        "updates_entry" => json!({"action": action, "id": task, "title": "x"}),
        other => panic!("{other} is new: does it need a revision?"),
    };
    // The seed asks none of sprint_activate and sprint_complete; SURFACE checks one that is given,
    // as for claim and release.
    let free = [
        "claim",
        "comment",
        "create",
        "release",
        "sprint_activate",
        "sprint_complete",
        "sprint_create",
    ];
    let before = replica.standing();
    for (action, _) in ACTIONS {
        if free.contains(&action) {
            continue;
        }
        let refusal = replica.run(call(action)).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument, "{action}");
        assert_eq!(refusal.details["field"], "revision", "{action}");
        // With what a caller needs to do it right.
        assert!(
            refusal.details["current"]["revision"].is_string(),
            "{action}"
        );
    }
    assert_eq!(replica.standing(), before, "nothing is written");
    replica
        .run(json!({"action": "comment", "id": task, "body": "b"}))
        .unwrap();
    replica
        .run(json!({"action": "create", "projectId": "stead", "title": "t"}))
        .unwrap();
}

#[test]
fn a_revision_that_is_given_where_none_is_needed_is_checked() {
    let mut replica = Replica::one();
    let (task, sprint) = (replica.task("one"), replica.sprint("s"));
    let seen = (replica.revision(&task), replica.revision(&sprint));
    replica.on_done(&task, json!({"action": "update", "title": "two"}));
    replica.on_done(&sprint, json!({"action": "sprint_update", "name": "two"}));
    for call in [
        json!({"action": "claim", "id": task, "revision": seen.0}),
        json!({"action": "release", "id": task, "revision": seen.0}),
        json!({"action": "sprint_activate", "sprintId": sprint, "revision": seen.1}),
        json!({"action": "sprint_complete", "sprintId": sprint, "revision": seen.1}),
    ] {
        assert_eq!(
            replica.run(call.clone()).unwrap_err().code,
            Code::StaleWrite,
            "{call}"
        );
    }
}

#[test]
fn if_another_agent_won_the_race_stale_write_holds_the_fresh_task() {
    let mut replica = Replica::one();
    let task = replica.task("one");
    let seen = replica.revision(&task);
    let call = |status: &str| {
        json!({
            "action": "move",
            "payload": {"id": task, "status": status, "revision": seen, "by": "codex"},
        })
    };
    replica.run_as(&codex(), call("in_progress")).unwrap();
    let refusal = replica.run_as(&scout(), call("review")).unwrap_err();
    assert_eq!(refusal.code, Code::StaleWrite);
    assert_eq!(refusal.details["current"], replica.show(&task));
    assert_eq!(refusal.details["current"]["status"], "in_progress");
    // In the text too, for clients that show a model the text alone.
    assert!(refusal.to_text().contains(&replica.revision(&task)));
}

#[test]
fn retry_with_that_fresh_row_and_it_succeeds() {
    let mut replica = Replica::one();
    let task = replica.task("one");
    let seen = replica.revision(&task);
    replica.on_done(&task, json!({"action": "update", "title": "two"}));
    let mut call = json!({"action": "move", "id": task, "status": "review", "revision": seen});
    let refusal = replica.run(call.clone()).unwrap_err();
    call["revision"] = refusal.details["current"]["revision"].clone();
    let moved = replica.run(call).unwrap();
    assert_eq!(
        (&moved["task"]["status"], &moved["task"]["title"]),
        (&json!("review"), &json!("two"))
    );
}

#[test]
fn task_mutate_creates_updates_moves_comments_and_blocks() {
    let mut replica = Replica::one();
    let task = replica.task("one");
    assert_eq!(
        replica.on_done(&task, json!({"action": "update", "title": "two"}))["title"],
        "two"
    );
    let moved = replica.on_done(&task, json!({"action": "move", "status": "review"}));
    assert_eq!(moved["status"], "review");
    let comment = replica
        .run(json!({"action": "comment", "id": task, "body": "hello"}))
        .unwrap();
    assert_eq!(comment["comment"]["body"], "hello");
    assert_eq!(comment["comment"]["taskId"], task);
    let blocked = replica.on_done(&task, json!({"action": "block", "reason": "no key"}));
    assert_eq!(blocked["status"], "blocked");
    assert_eq!(blocked["blocker"]["reason"], "no key");
    assert_eq!(blocked["blocker"]["by"]["credential"], "c_ada");
    assert!(blocked["blocker"]["at"].is_string());
}

// -- sprints

#[test]
fn sprint_create_makes_a_planned_sprint_with_a_goal() {
    let mut replica = Replica::one();
    let sprint = replica.done(json!({
        "action": "sprint_create", "projectId": "stead", "name": "one", "goal": "ship it",
    }));
    assert_eq!(sprint["status"], "planned");
    assert_eq!(sprint["name"], "one");
    assert_eq!(sprint["goal"], "ship it");
    // The goal may be left out, the name may not.
    let bare =
        replica.done(json!({"action": "sprint_create", "projectId": "stead", "name": "two"}));
    assert_eq!(bare["goal"], Json::Null);
    let nameless = json!({"action": "sprint_create", "projectId": "stead"});
    assert_eq!(replica.run(nameless).unwrap_err().details["field"], "name");
}

#[test]
fn sprint_assign_puts_a_task_in_a_sprint_and_null_removes_it() {
    let mut replica = Replica::one();
    let (task, sprint) = (replica.task("one"), replica.sprint("s"));
    let assigned = replica.on_done(
        &task,
        json!({"action": "sprint_assign", "sprintId": sprint}),
    );
    assert_eq!(assigned["sprintId"], sprint);
    assert_eq!(replica.show(&sprint)["counts"], json!({"ready": 1}));
    let removed = replica.on_done(&task, json!({"action": "sprint_assign", "sprintId": null}));
    assert_eq!(removed["sprintId"], Json::Null);
    assert_eq!(replica.show(&sprint)["counts"], json!({}));
    let silent = replica
        .on(&task, json!({"action": "sprint_assign"}))
        .unwrap_err();
    assert_eq!(silent.details["field"], "sprintId");
}

#[test]
fn sprint_assign_needs_the_tasks_token_and_stale_write_applies() {
    let mut replica = Replica::one();
    let (task, sprint) = (replica.task("one"), replica.sprint("s"));
    let seen = replica.revision(&task);
    replica.on_done(&task, json!({"action": "update", "title": "two"}));
    let call = json!({"action": "sprint_assign", "id": task, "sprintId": sprint, "revision": seen});
    assert_eq!(replica.run(call).unwrap_err().code, Code::StaleWrite);
    // The sprint's own is not the task's.
    let call = json!({
        "action": "sprint_assign", "id": task, "sprintId": sprint,
        "revision": replica.revision(&sprint),
    });
    assert_eq!(replica.run(call).unwrap_err().code, Code::StaleWrite);
}

#[test]
fn a_sprint_goes_planned_active_completed() {
    let mut replica = Replica::one();
    let sprint = replica.sprint("s");
    assert_eq!(replica.show(&sprint)["status"], "planned");
    let active = replica
        .done(json!({"action": "sprint_activate", "payload": {"sprintId": sprint, "by": "codex"}}));
    assert_eq!(active["status"], "active");
    assert!(active["startedAt"].is_string());
    assert_eq!(active["completedAt"], Json::Null);
    let completed = replica.done(json!({"action": "sprint_complete", "sprintId": sprint}));
    assert_eq!(completed["status"], "completed");
    assert!(completed["completedAt"].is_string());
}

#[test]
fn exactly_one_active_sprint_per_project() {
    let mut replica = Replica::one();
    replica.project("second");
    let [one, two] = ["one", "two"].map(|name| replica.sprint(name));
    let other =
        replica.done(json!({"action": "sprint_create", "projectId": "second", "name": "s"}));
    let other = other["id"].as_str().unwrap().to_owned();
    for sprint in [&one, &other] {
        replica.on_done(sprint, json!({"action": "sprint_activate"}));
    }
    assert!(
        replica
            .on(&two, json!({"action": "sprint_activate"}))
            .is_err()
    );
    let status = |id: &str| replica.show(id)["status"].clone();
    // One in each project.
    assert_eq!(
        [status(&one), status(&two), status(&other)],
        [json!("active"), json!("planned"), json!("active")]
    );
    // When it is completed the next may follow.
    replica.on_done(&one, json!({"action": "sprint_complete"}));
    replica.on_done(&two, json!({"action": "sprint_activate"}));
    let status = |id: &str| replica.show(id)["status"].clone();
    assert_eq!(
        [status(&one), status(&two)],
        [json!("completed"), json!("active")]
    );
}

#[test]
fn sprint_activate_fails_if_another_is_already_active() {
    let mut replica = Replica::one();
    let [one, two] = ["one", "two"].map(|name| replica.sprint(name));
    replica.on_done(&one, json!({"action": "sprint_activate"}));
    let before = replica.standing();
    let refusal = replica
        .on(&two, json!({"action": "sprint_activate"}))
        .unwrap_err();
    assert_eq!(refusal.code, Code::AlreadyActive);
    assert_eq!(refusal.details["current"]["id"], one);
    assert_eq!(refusal.details["current"]["name"], "one");
    assert_eq!(replica.standing(), before);
    // The one that is active is so already, and that is no failure.
    assert_eq!(
        replica.on_done(&one, json!({"action": "sprint_activate"}))["status"],
        "active"
    );
    assert_eq!(replica.standing(), before);
}

#[test]
fn sprint_complete_closes_the_sprint() {
    let mut replica = Replica::one();
    let (sprint, task) = (replica.sprint("s"), replica.task("t"));
    replica.on_done(&sprint, json!({"action": "sprint_activate"}));
    replica.on_done(&sprint, json!({"action": "sprint_complete"}));
    for call in [
        json!({"action": "sprint_activate", "sprintId": sprint}),
        json!({"action": "sprint_complete", "sprintId": sprint}),
        replica.with_revision(
            &task,
            json!({"action": "sprint_assign", "sprintId": sprint}),
        ),
    ] {
        let refusal = replica.run(call).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidArgument);
        assert_eq!(refusal.details["field"], "sprintId");
    }
    assert_eq!(replica.show(&sprint)["status"], "completed");
}

// -- delegates and roles

#[test]
fn a_delegate_never_becomes_the_member() {
    let mut replica = Replica::one();
    let create = json!({
        "action": "create", "projectId": "stead", "title": "t", "assignee": "me", "by": "Ada",
    });
    let task = replica.run_as(&codex(), create).unwrap()["task"].clone();
    // Whatever it calls itself: that is kept beside who it is.
    let by = json!({
        "credential": "d_codex", "name": "codex", "memberId": "ada", "memberName": "Ada", "label": "Ada",
    });
    assert_eq!(task["createdBy"], by);
    assert_eq!(task["assignee"]["id"], "d_codex");
    assert_eq!(task["assignee"]["name"], "codex");
    let id = task["id"].as_str().unwrap();
    let claimed = replica
        .run_as(&codex(), json!({"action": "claim", "id": id}))
        .unwrap();
    assert_eq!(claimed["task"]["lease"]["by"]["credential"], "d_codex");
    assert_eq!(claimed["task"]["assignee"]["id"], "d_codex");
    // A person in person is the member.
    let own = json!({"action": "create", "projectId": "stead", "title": "t", "assignee": "me"});
    let own = replica.run_as(&person("ada"), own).unwrap()["task"].clone();
    assert_eq!(own["assignee"]["id"], "ada");
}

#[test]
fn task_history_keeps_both_the_agent_credential_and_the_accountable_human() {
    let mut replica = Replica::one();
    let task = replica.task("one");
    let seen = replica.revision(&task);
    replica
        .run_as(
            &scout(),
            replica.with_revision(&task, json!({"action": "update", "title": "two"})),
        )
        .unwrap();
    let shown = replica.show(&task);
    for (actor, credential, member) in [
        (&shown["createdBy"], "c_ada", "Ada"),
        (&shown["updatedBy"], "d_scout", "Grace"),
    ] {
        assert_eq!(actor["credential"], credential);
        assert_eq!(actor["memberName"], member);
    }
    let refusal = replica
        .run(json!({"action": "archive", "id": task, "revision": seen}))
        .unwrap_err();
    assert_eq!(refusal.details["changed"][0]["by"]["credential"], "d_scout");
    assert_eq!(refusal.details["changed"][0]["by"]["memberId"], "grace");
}

#[test]
fn roles_never_reject_an_action() {
    // Ada is lead and Grace contributor; their agents have the same scopes and can do the same.
    for role in ["lead", "contributor", "observer"] {
        for caller in [codex(), scout(), person("ada"), person("grace")] {
            let mut replica = Replica::one();
            replica.set_responsibility(&caller.member, role);
            everything(&mut replica, &caller);
        }
    }
}

fn everything(replica: &mut Replica, caller: &Caller) {
    let mut run = |call: Json| {
        let call = match call["id"].as_str().or(call["sprintId"].as_str()) {
            Some(id) if call["action"] != "comment" => {
                let mut call = call.clone();
                call["revision"] = replica.revision(id).into();
                call
            }
            _ => call,
        };
        replica.run_as(caller, call).unwrap()
    };
    let task = run(json!({"action": "create", "projectId": "stead", "title": "t"}));
    let task = &task["task"]["id"];
    let sprint = run(json!({"action": "sprint_create", "projectId": "stead", "name": "s"}));
    let sprint = &sprint["sprint"]["id"];
    run(json!({"action": "update", "id": task, "assignee": "grace@example.com"}));
    run(json!({"action": "sprint_assign", "id": task, "sprintId": sprint}));
    run(json!({"action": "sprint_activate", "sprintId": sprint}));
    run(json!({"action": "claim", "id": task}));
    run(json!({"action": "comment", "id": task, "body": "b"}));
    run(json!({"action": "block", "id": task, "reason": "r"}));
    run(json!({"action": "unblock", "id": task}));
    run(json!({"action": "move", "id": task, "status": "done"}));
    run(json!({"action": "sprint_complete", "sprintId": sprint}));
    run(json!({"action": "archive", "id": task}));
}

#[test]
fn credential_scopes_are_the_authorization_boundary() {
    let mut replica = Replica::one();
    let task = replica.task("one");
    let before = replica.standing();
    let reader = Caller {
        scopes: ["tasks:read".to_owned()].into(),
        ..codex()
    };
    for (action, _) in ACTIONS {
        let refusal = replica
            .run_as(&reader, json!({"action": action}))
            .unwrap_err();
        // Before anything is said about what the call lacks.
        assert_eq!(refusal.code, Code::Forbidden, "{action}");
    }
    let refusal = replica
        .run_as(
            &reader,
            replica.with_revision(&task, json!({"action": "archive"})),
        )
        .unwrap_err();
    assert_eq!(refusal.details["needs"], "tasks:write");
    assert_eq!(refusal.details["supervisor"]["displayName"], "Ada");
    assert!(refusal.message.contains("tasks:read"), "{refusal}");
    assert_eq!(replica.standing(), before);
}

#[test]
fn a_lead_turns_a_plan_into_sprint_tasks_by_member_email_and_assignments() {
    let mut replica = Replica::one();
    let run = |replica: &mut Replica, call: Json| replica.run_as(&codex(), call).unwrap();
    let sprint = run(
        &mut replica,
        json!({
            "action": "sprint_create", "projectId": "stead", "name": "plan", "goal": "the plan's goal",
        }),
    );
    let sprint = sprint["sprint"]["id"].as_str().unwrap().to_owned();
    for email in ["grace@example.com", "ADA@example.com"] {
        let task = run(
            &mut replica,
            json!({
                "action": "create", "projectId": "stead", "title": email, "assignee": email,
            }),
        );
        let id = task["task"]["id"].as_str().unwrap().to_owned();
        assert_eq!(
            task["task"]["assignee"]["id"],
            email.split('@').next().unwrap().to_lowercase()
        );
        let assign =
            replica.with_revision(&id, json!({"action": "sprint_assign", "sprintId": sprint}));
        run(&mut replica, assign);
    }
    assert_eq!(replica.show(&sprint)["counts"], json!({"ready": 2}));
}

#[test]
fn an_unknown_assignee_is_refused_with_the_assignable_ones() {
    let mut replica = Replica::one();
    let call = |assignee: &str| json!({"action": "create", "projectId": "stead", "title": "t", "assignee": assignee});
    // A revoked agent is no longer one.
    for nobody in ["eve@example.com", "gone"] {
        let refusal = replica.run(call(nobody)).unwrap_err();
        assert_eq!(refusal.details["field"], "assignee");
        assert_eq!(
            refusal.details["accepted"],
            json!(["ada@example.com", "codex", "grace@example.com", "scout"])
        );
    }
    for somebody in [
        "ada@example.com",
        "grace",
        "Grace",
        "codex",
        "d_scout",
        "me",
    ] {
        assert!(replica.run(call(somebody)).is_ok(), "{somebody}");
    }
}
