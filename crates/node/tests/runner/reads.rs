//! The other questions: `task_get` in its views, dependency trees, history.

use serde_json::{Value as Json, json};

use super::world::replica;

#[test]
fn a_body_of_any_length_is_walked_to_its_end() {
    let node = replica();
    let body: String = (0..40_000)
        .map(|n| ["word", "wörd", "字", "😀", "\n"][n % 5])
        .collect::<String>()
        .chars()
        .take(200_000)
        .collect();
    let id = node.create(json!({ "title": "t", "body": body }))["id"].take();
    let mut read = String::new();
    let mut offset = json!(0);
    let mut calls = 0;
    loop {
        let answer = node.ok("task_get", json!({ "id": id, "bodyOffset": offset }));
        assert!(answer.to_string().len() <= 10 << 10);
        read.push_str(answer["task"]["body"].as_str().unwrap());
        calls += 1;
        offset = answer["task"]["bodyNext"].clone();
        if offset.is_null() {
            break;
        }
    }
    assert!(read == body, "the parts are not the whole");
    assert!(calls > 10);
    // Beyond the end and inside a character.
    assert_eq!(
        node.ok("task_get", json!({ "id": id, "bodyOffset": 10_000_000 }))["task"]["body"],
        ""
    );
    for offset in 0..12 {
        node.ok("task_get", json!({ "id": id, "bodyOffset": offset }));
    }
}

#[test]
fn every_view_shows_what_it_is_for() {
    let node = replica();
    let dep = node.create(json!({ "title": "first this" }));
    let task = node.create(json!({ "title": "then that", "body": "why\n".repeat(2_000), "criteria": ["it works"], "dependsOn": [dep["id"]] }));
    let child = node.create(json!({ "title": "part", "parentId": task["id"] }));
    node.mutate("comment", json!({ "id": task["id"], "body": "a remark" }));
    let full = node.task(&task["id"]);
    assert_eq!(full["comments"][0]["body"], "a remark");
    assert_eq!(full["dependencies"][0]["title"], "first this");
    assert_eq!(full["dependencies"][0]["status"], "ready");
    assert_eq!(full["children"][0]["id"], child["id"]);
    assert_eq!(node.task(&dep["id"])["dependentTasks"][0]["id"], task["id"]);
    let summary = node.ok("task_get", json!({ "id": task["id"], "view": "summary" }));
    assert_eq!(summary["task"]["revision"], full["revision"]);
    assert!(summary["task"].get("body").is_none());
    let brief = node.ok("task_get", json!({ "id": task["id"], "view": "brief" }))["brief"].take();
    let brief = brief.as_str().unwrap();
    assert!(brief.chars().count() <= 3_000);
    assert!(
        brief.contains("then that")
            && brief.contains("it works")
            && brief.contains(dep["id"].as_str().unwrap())
    );
    node.refused(
        "INVALID_ARGUMENT",
        "task_get",
        json!({ "id": task["id"], "view": "nonsense" }),
    );
    node.refused("INVALID_ARGUMENT", "task_get", json!({}));
}

#[test]
fn several_ids_say_which_are_missing_and_why() {
    let node = replica();
    let one = node.create(json!({ "title": "one" }));
    let id = one["id"].as_str().unwrap();
    let mistyped: String = id.chars().rev().collect();
    let unknown = stead_doc::id::ObjectId::random(123_456).to_string();
    let answer = node.ok(
        "task_get",
        json!({ "ids": [id, mistyped, unknown, 5], "view": "summary" }),
    );
    assert_eq!(answer["tasks"].as_array().unwrap().len(), 1);
    let why: Vec<&str> = answer["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["why"].as_str().unwrap())
        .collect();
    assert_eq!(why.len(), 3);
    assert_eq!(why[1], "UNKNOWN_ID");
    assert!(
        why[0] == "INVALID_ID" && ["INVALID_ID", "INVALID_ARGUMENT"].contains(&why[2]),
        "{why:?}"
    );
}

#[test]
fn the_front_of_an_id_reads_and_never_writes() {
    let node = replica();
    let tasks: Vec<Json> = (0..40)
        .map(|n| node.create(json!({ "title": format!("t{n}") })))
        .collect();
    let id = tasks[0]["id"].as_str().unwrap();
    let front = &id[..8];
    assert_eq!(node.task(&json!(front))["id"], id);
    assert_eq!(node.task(&json!(front.to_uppercase()))["id"], id);
    node.refused(
        "INVALID_ID",
        "task_mutate",
        json!({ "action": "update", "id": front, "revision": tasks[0]["revision"], "title": "x" }),
    );
    node.refused("INVALID_ID", "task_get", json!({ "id": "zz" }));
    let mut mistyped = id.to_owned();
    let last = if mistyped.ends_with('2') { "3" } else { "2" };
    mistyped.replace_range(12.., last);
    node.refused("INVALID_ID", "task_get", json!({ "id": mistyped }));
}

#[test]
fn a_dependency_tree_is_bounded_in_depth_and_in_tasks() {
    let node = replica();
    let mut chain: Vec<Json> = Vec::new();
    for n in 0..30 {
        let mut fields = json!({ "title": format!("c{n}") });
        if let Some(last) = chain.last() {
            fields["dependsOn"] = json!([last]);
        }
        chain.push(node.create(fields)["id"].take());
    }
    let depth_of = |answer: &Json| {
        let (mut depth, mut at) = (0, &answer["tree"]);
        while let Some(next) = at["children"]
            .as_array()
            .and_then(|children| children.first())
        {
            depth += 1;
            at = next;
        }
        (depth, at.get("deeper").cloned())
    };
    let top = &chain[29];
    assert_eq!(
        depth_of(&node.ok("dep_tree", json!({ "id": top }))),
        (10, Some(json!(1)))
    );
    assert_eq!(
        depth_of(&node.ok("dep_tree", json!({ "id": top, "depth": 3 }))),
        (3, Some(json!(1)))
    );
    assert_eq!(
        depth_of(&node.ok("dep_tree", json!({ "id": top, "depth": 29 }))),
        (29, None)
    );
    assert_eq!(
        depth_of(&node.ok("dep_tree", json!({ "id": top, "depth": 1_000_000 }))),
        (29, None)
    );
    assert_eq!(
        depth_of(&node.ok("dep_tree", json!({ "id": top, "depth": 0 }))),
        (0, Some(json!(1)))
    );

    // A lattice has very many paths; each task is opened once.
    let mut layer: Vec<Json> = Vec::new();
    for row in 0..9 {
        layer = (0..8)
            .map(|n| {
                node.create(json!({ "title": format!("l{row}/{n}"), "dependsOn": layer }))["id"]
                    .take()
            })
            .collect();
    }
    let answer = node.ok("dep_tree", json!({ "id": layer[0], "depth": 100 }));
    assert_eq!(answer["tasks"], 65);
    assert_eq!(answer["cut"], false);
    assert!(answer.to_string().len() < 200_000);
}

#[test]
fn a_history_is_paged_once_and_newest_first_while_it_grows() {
    let node = replica();
    let id = node.create(json!({ "title": "v0" }))["id"].take();
    for n in 1..=45 {
        node.update(&id, json!({ "title": format!("v{n}") }));
        if n == 30 {
            node.pack();
        }
    }
    let mut titles = Vec::new();
    let mut cursor = Json::Null;
    loop {
        let page = node.ok(
            "task_get",
            json!({ "id": id, "view": "history", "field": "title", "limit": 4, "cursor": cursor }),
        );
        for row in page["history"].as_array().unwrap() {
            titles.push(row["fields"][0]["value"].as_str().unwrap().to_owned());
        }
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert_eq!(page["left"], 46 - titles.len());
        // It goes on while somebody reads.
        node.update(
            &id,
            json!({ "priority": if titles.len() % 8 == 0 { "high" } else { "low" } }),
        );
    }
    let expected: Vec<String> = (0..=45).rev().map(|n| format!("v{n}")).collect();
    assert_eq!(titles, expected);
    node.refused(
        "INVALID_ARGUMENT",
        "task_get",
        json!({ "id": id, "view": "history", "cursor": "x" }),
    );
}

#[test]
fn a_caller_with_one_project_sees_nothing_of_another() {
    let node = replica();
    node.ok("project_add", json!({ "slug": "secret" }));
    let hidden = node.create(json!({ "projectId": "secret", "title": "hidden words" }));
    let open = node.create(json!({ "title": "open words" }));
    node.ok(
        "agent_add",
        json!({ "name": "narrow", "local": true, "projects": ["board"] }),
    );
    let narrow = node.agent("narrow");
    let call = |method: &str, arguments: Json| node.node().call(&narrow, method, arguments);
    let page = call("task_search", json!({ "status": ["any"] })).unwrap();
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(
        call("task_search", json!({ "q": "words" })).unwrap()["tasks"][0]["id"],
        open["id"]
    );
    for (method, arguments) in [
        ("task_get", json!({ "id": hidden["id"] })),
        ("dep_tree", json!({ "id": hidden["id"] })),
        (
            "task_mutate",
            json!({ "action": "update", "id": hidden["id"], "revision": hidden["revision"], "title": "x" }),
        ),
        (
            "task_mutate",
            json!({ "action": "comment", "id": hidden["id"], "body": "x" }),
        ),
    ] {
        let refusal = call(method, arguments).unwrap_err();
        // As if it were not there at all.
        let code = refusal.code.as_str();
        assert!(
            ["UNKNOWN_ID", "NOT_CAUGHT_UP"].contains(&code),
            "{method}: {refusal}"
        );
        assert!(!refusal.to_json().to_string().contains("hidden words"));
    }
    for method in ["task_search", "transitions", "conflicts"] {
        let refusal = call(method, json!({ "projectId": "secret" })).unwrap_err();
        assert_eq!(refusal.code.as_str(), "UNKNOWN_PROJECT");
        assert!(!refusal.to_json().to_string().contains("secret words"));
    }
    let changes = call("changes_since", json!({ "cursor": 0 })).unwrap();
    assert!(!changes.to_string().contains("hidden words"));
    let listed = call("project_list", json!({})).unwrap();
    assert_eq!(listed["projects"].as_array().unwrap().len(), 1);
    for (method, arguments) in [
        ("agent_add", json!({ "name": "x" })),
        ("backup", json!({ "path": "/tmp/x" })),
        ("doctor", json!({ "rebuild": true })),
        ("export", json!({ "path": "/tmp/x" })),
        ("compact", json!({})),
    ] {
        assert_eq!(
            call(method, arguments).unwrap_err().code.as_str(),
            "HUMAN_REQUIRED",
            "{method}"
        );
    }
}
