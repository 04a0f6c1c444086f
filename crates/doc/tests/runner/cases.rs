//! Written apart: what two or three nodes do without hearing of each other, and what all see
//! afterwards.

use serde_json::{Value as Json, json};
use stead_doc::{
    board::{self, Command, Import},
    change::{Action, Change, Draft, Op},
    id::ObjectId,
    message::Message,
    refusal::Code,
    row::Collapse,
    scalar::Scalar,
};

use super::replica::{Replica, WORKSPACE, codex, person, scout, stead};

/// Both nodes hold one task; each then does its own part, and they exchange.
fn apart(first: Json, second: Json) -> (Replica, Replica, String) {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    b.exchange_from(&a);
    apart_on(&mut a, &mut b, &task, first, second);
    (a, b, task)
}

fn apart_on(a: &mut Replica, b: &mut Replica, task: &str, first: Json, second: Json) {
    a.run_as(&codex(), a.with_revision(task, first)).unwrap();
    b.run_as(&scout(), b.with_revision(task, second)).unwrap();
    a.exchange(b);
    agree(&[a, b]);
}

/// Equal canonical exports, revisions and views.
fn agree(replicas: &[&Replica]) {
    let export = replicas[0].export();
    for replica in replicas {
        assert_eq!(replica.export(), export);
        let documents = replica.documents().zip(replicas[0].documents());
        for (one, other) in documents {
            assert_eq!(one.rows, other.rows);
        }
    }
}

fn conflict(shown: &Json, field: &str) -> Json {
    let conflicts = shown["conflicts"].as_array().unwrap();
    let mut found = conflicts
        .iter()
        .filter(|conflict| conflict["field"] == field);
    let conflict = found
        .next()
        .unwrap_or_else(|| panic!("no conflict of {field} in {shown}"));
    assert!(found.next().is_none());
    conflict.clone()
}

fn values(conflict: &Json) -> Vec<&Json> {
    let values = conflict["values"].as_array().unwrap().iter();
    values.map(|value| &value["value"]).collect()
}

#[test]
fn the_same_field_apart_is_a_conflict_that_shows_both() {
    let (a, b, task) = apart(
        json!({"action": "update", "title": "from a"}),
        json!({"action": "update", "title": "from b"}),
    );
    let shown = a.show(&task);
    let title = conflict(&shown, "title");
    assert_eq!(title["values"].as_array().unwrap().len(), 2);
    assert_eq!(title["values"][0]["winner"], true);
    assert_eq!(title["values"][0]["value"], shown["title"]);
    assert_eq!(title["values"][1]["winner"], false);
    for value in title["values"].as_array().unwrap() {
        let by = if value["value"] == "from a" {
            "d_codex"
        } else {
            "d_scout"
        };
        assert_eq!(value["by"]["credential"], by);
        assert!(value["at"].is_string());
        assert!(value["choose"].is_string());
    }
    // Values, names and version are the same on both; only the times of arrival may differ.
    let other = conflict(&b.show(&task), "title");
    assert_eq!(values(&other), values(&title));
    assert_eq!(other["version"], title["version"]);
    assert_eq!(other["values"][0]["choose"], title["values"][0]["choose"]);
}

#[test]
fn different_fields_apart_are_no_conflict() {
    let (a, _, task) = apart(
        json!({"action": "update", "title": "from a"}),
        json!({"action": "move", "status": "review"}),
    );
    let shown = a.show(&task);
    assert_eq!(shown["title"], "from a");
    assert_eq!(shown["status"], "review");
    assert_eq!(shown["conflicts"], json!([]));
}

#[test]
fn an_edit_beside_an_archive_stays_visible() {
    let (a, b, task) = apart(
        json!({"action": "archive"}),
        json!({"action": "update", "title": "edited"}),
    );
    for replica in [&a, &b] {
        let shown = replica.show(&task);
        assert!(shown["archivedAt"].is_string());
        assert_eq!(shown["title"], "edited");
        assert_eq!(shown["conflicts"], json!([]));
    }
}

/// Each says that it is archived, and about that they agree.
#[test]
fn archived_on_two_nodes_is_no_conflict_and_restores_at_once() {
    let (mut a, mut b, task) = apart(json!({"action": "archive"}), json!({"action": "archive"}));
    assert_eq!(a.show(&task)["conflicts"], json!([]));
    assert_eq!(
        a.on_done(&task, json!({"action": "restore"}))["archivedAt"],
        Json::Null
    );
    a.exchange(&mut b);
    assert_eq!(b.show(&task)["archivedAt"], Json::Null);
    agree(&[&a, &b]);
}

#[test]
fn equal_creates_with_one_key_on_two_nodes_are_one_object_without_conflict() {
    let (mut a, mut b) = Replica::pair();
    let create = json!({
        "action": "create", "projectId": "stead", "title": "t", "idempotencyKey": "k",
        "criteria": ["works"], "tags": ["ui"], "body": "long ".repeat(100),
    });
    let first = a.run_as(&codex(), create.clone()).unwrap();
    let second = b.run_as(&codex(), create.clone()).unwrap();
    let task = first["task"]["id"].as_str().unwrap();
    assert_eq!(second["task"]["id"], task);
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let shown = b.show(task);
    assert_eq!(shown["conflicts"], json!([]));
    assert_eq!(shown["criteria"].as_array().unwrap().len(), 1);
    // One more time, on either, writes nothing.
    let standing = (a.standing(), b.standing());
    assert_eq!(
        a.run_as(&codex(), create.clone()).unwrap()["task"]["id"],
        task
    );
    assert_eq!(b.run_as(&codex(), create).unwrap()["task"]["id"], task);
    assert_eq!((a.standing(), b.standing()), standing);
    // And an update of what two made is no collapse of a conflict.
    a.on_done(task, json!({"action": "update", "title": "u"}));
    assert_eq!(a.show(task)["conflicts"], json!([]));
}

#[test]
fn one_key_of_two_credentials_makes_two_objects() {
    let (mut a, mut b) = Replica::pair();
    let create =
        json!({"action": "create", "projectId": "stead", "title": "t", "idempotencyKey": "k"});
    let first = a.run_as(&codex(), create.clone()).unwrap();
    let second = b.run_as(&scout(), create).unwrap();
    assert_ne!(first["task"]["id"], second["task"]["id"]);
}

#[test]
fn one_project_made_on_two_nodes_is_one_project() {
    let (mut a, mut b) = (Replica::new(1), Replica::new(2));
    assert_eq!(a.project("stead"), b.project("stead"));
    a.task("from a");
    b.task("from b");
    a.exchange(&mut b);
    agree(&[&a, &b]);
    assert_eq!(a.document(&stead()).rows.len(), 2);
    let project = board::project_id(WORKSPACE, "stead");
    assert!(!a.row(&project.to_string()).is_conflicted());
}

#[test]
fn equal_values_written_apart_are_no_conflict() {
    let write = json!({"action": "update", "title": "the same", "body": "the same ".repeat(99)});
    let (mut a, _, task) = apart(write.clone(), write);
    assert_eq!(a.show(&task)["conflicts"], json!([]));
    assert_eq!(
        a.row(&task).preds("title").len(),
        2,
        "both writes are there"
    );
    // Whoever writes next need not name anything.
    let shown = a.on_done(&task, json!({"action": "update", "title": "next"}));
    assert_eq!(shown["title"], "next");
    assert_eq!(shown["conflicts"], json!([]));
    assert_eq!(a.row(&task).preds("title").len(), 1);
}

/// 1 and 1.0 are two values, and -0.0 is not 0.0: what is equal is decided by bits everywhere.
#[test]
fn numbers_are_equal_by_their_bits() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    b.exchange_from(&a);
    let id: ObjectId = task.parse().unwrap();
    for (field, one, other, conflicted) in [
        ("x/a", Scalar::Int(1), Scalar::F64(1.0), true),
        ("x/b", Scalar::F64(0.0), Scalar::F64(-0.0), true),
        ("x/c", Scalar::F64(f64::NAN), Scalar::F64(f64::NAN), false),
        ("x/d", Scalar::Int(1), Scalar::Uint(1), true),
        ("x/e", Scalar::Null, Scalar::Null, false),
    ] {
        a.put(&stead(), id, &[(field, Some(one))]);
        b.put(&stead(), id, &[(field, Some(other))]);
        a.exchange(&mut b);
        agree(&[&a, &b]);
        assert_eq!(
            a.row(&task).cells[field].is_conflicted(),
            conflicted,
            "{field}"
        );
    }
}

#[test]
fn a_three_way_conflict_shows_three_values() {
    let mut nodes = Replica::several(3);
    let task = nodes[0].task("one");
    Replica::exchange_all(&mut nodes);
    for (node, title) in nodes.iter_mut().zip(["a", "b", "c"]) {
        node.on_done(&task, json!({"action": "update", "title": title}));
    }
    Replica::exchange_all(&mut nodes);
    agree(&[&nodes[0], &nodes[1], &nodes[2]]);
    let shown = nodes[0].show(&task);
    let title = conflict(&shown, "title");
    let mut all: Vec<_> = values(&title).into_iter().map(Json::to_string).collect();
    all.sort();
    assert_eq!(all, ["\"a\"", "\"b\"", "\"c\""]);
    // One resolution settles all three, everywhere.
    let choose = title["values"][2]["choose"].clone();
    let chosen = title["values"][2]["value"].clone();
    let resolve = json!({"action": "resolve", "field": "title", "choose": choose});
    assert_eq!(nodes[1].on_done(&task, resolve)["title"], chosen);
    Replica::exchange_all(&mut nodes);
    agree(&[&nodes[0], &nodes[1], &nodes[2]]);
    for node in &nodes {
        assert_eq!(node.show(&task)["conflicts"], json!([]));
        assert_eq!(node.show(&task)["title"], chosen);
    }
}

#[test]
fn writing_a_conflicted_field_needs_its_name() {
    let (mut a, _, task) = apart(
        json!({"action": "update", "title": "a"}),
        json!({"action": "update", "title": "b"}),
    );
    let standing = a.standing();
    let refusal = a
        .on(&task, json!({"action": "update", "title": "c"}))
        .unwrap_err();
    assert_eq!(refusal.code, Code::ConflictOpen);
    assert_eq!(a.standing(), standing, "nothing is written");
    assert_eq!(refusal.details["fields"], json!(["title"]));
    assert_eq!(refusal.details["current"], a.show(&task));
    assert_eq!(values(&refusal.details["conflicts"][0]).len(), 2);
    assert!(refusal.hint.contains("resolves:[\"title\"]"));
    // The value that wins already does not settle it unnamed either.
    let winner = a.show(&task)["title"].clone();
    let same = json!({"action": "update", "title": winner});
    assert_eq!(a.on(&task, same).unwrap_err().code, Code::ConflictOpen);
    // Another field is free, and naming it is enough.
    a.on_done(&task, json!({"action": "update", "priority": "high"}));
    let named = json!({"action": "update", "title": "c", "resolves": ["title"]});
    assert_eq!(a.on_done(&task, named)["conflicts"], json!([]));
}

#[test]
fn a_conflict_is_resolved_with_a_value_of_ones_own() {
    let (mut a, mut b, task) = apart(
        json!({"action": "move", "status": "review"}),
        json!({"action": "move", "status": "done"}),
    );
    let resolve = json!({"action": "resolve", "field": "status", "value": "active"});
    let shown = a.on_done(&task, resolve);
    assert_eq!(shown["status"], "in_progress");
    assert_eq!(shown["conflicts"], json!([]));
    a.exchange(&mut b);
    agree(&[&a, &b]);
    assert_eq!(b.show(&task)["conflicts"], json!([]));
}

#[test]
fn resolve_says_what_it_needs() {
    let (mut a, _, task) = apart(
        json!({"action": "update", "title": "a"}),
        json!({"action": "update", "title": "b"}),
    );
    let code = |a: &mut Replica, call: Json| a.on(&task, call).unwrap_err();
    let nothing = code(&mut a, json!({"action": "resolve", "field": "title"}));
    assert_eq!(
        (nothing.code, &nothing.details["field"]),
        (Code::InvalidArgument, &json!("choose"))
    );
    let both = json!({"action": "resolve", "field": "title", "choose": "1@00000", "value": "x"});
    assert_eq!(code(&mut a, both).code, Code::InvalidArgument);
    let wrong = code(
        &mut a,
        json!({"action": "resolve", "field": "title", "choose": "1@00000"}),
    );
    assert_eq!(wrong.details["accepted"].as_array().unwrap().len(), 2);
    let other = code(
        &mut a,
        json!({"action": "resolve", "field": "body", "value": "x"}),
    );
    assert_eq!(other.details["accepted"], json!(["title"]));
    let missing = a
        .run(json!({"action": "resolve", "id": task, "field": "title", "value": "x"}))
        .unwrap_err();
    assert_eq!(missing.details["field"], "revision");
}

/// What was chosen is gone because somebody else was faster: that is what the caller must hear.
#[test]
fn a_resolution_of_what_has_moved_on_is_stale() {
    let (mut a, mut b, task) = apart(
        json!({"action": "update", "title": "a"}),
        json!({"action": "update", "title": "b"}),
    );
    let seen = a.revision(&task);
    let choose = conflict(&a.show(&task), "title")["values"][1]["choose"].clone();
    let resolve = json!({
        "action": "resolve", "id": task, "revision": seen, "field": "title", "choose": choose,
    });
    let named = json!({"action": "update", "title": "c", "resolves": ["title"]});
    a.on_done(&task, named);
    assert_eq!(a.run(resolve.clone()).unwrap_err().code, Code::StaleWrite);
    // And likewise where another conflict has taken its place.
    b.run_as(
        &scout(),
        b.with_revision(
            &task,
            json!({"action": "update", "title": "d", "resolves": ["title"]}),
        ),
    )
    .unwrap();
    a.exchange(&mut b);
    let refusal = a.run(resolve).unwrap_err();
    assert_eq!(refusal.code, Code::StaleWrite);
    assert_eq!(refusal.details["overlap"], json!(["title"]));
}

#[test]
fn a_resolution_beside_a_third_value_stays_a_conflict() {
    let mut nodes = Replica::several(3);
    let task = nodes[0].task("one");
    Replica::exchange_all(&mut nodes);
    for (node, title) in nodes.iter_mut().zip(["a", "b", "c"]) {
        node.on_done(&task, json!({"action": "update", "title": title}));
    }
    // The first two meet and settle it; the third is still away.
    let (front, third) = nodes.split_at_mut(2);
    let [a, b] = front else { unreachable!() };
    a.exchange(b);
    a.on_done(
        &task,
        json!({"action": "resolve", "field": "title", "value": "settled"}),
    );
    assert_eq!(a.show(&task)["conflicts"], json!([]));
    a.exchange(&mut third[0]);
    b.exchange_from(a);
    agree(&[a, b, &third[0]]);
    let shown = a.show(&task);
    let conflict = conflict(&shown, "title");
    let mut all: Vec<_> = values(&conflict).into_iter().map(Json::to_string).collect();
    all.sort();
    assert_eq!(all, ["\"c\"", "\"settled\""]);
}

#[test]
fn a_conflict_resolved_on_two_nodes_to_one_value_is_settled() {
    let (mut a, mut b, task) = apart(
        json!({"action": "update", "title": "a"}),
        json!({"action": "update", "title": "b"}),
    );
    let resolve = json!({"action": "resolve", "field": "title", "value": "c"});
    apart_on(&mut a, &mut b, &task, resolve.clone(), resolve);
    assert_eq!(a.show(&task)["conflicts"], json!([]));
    assert_eq!(a.show(&task)["title"], "c");
}

#[test]
fn an_add_beside_a_remove_of_a_tag_wins() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    a.on_done(&task, json!({"action": "update", "tags": ["ui", "db"]}));
    b.exchange_from(&a);
    // The tag is there; adding it says that it has to be.
    apart_on(
        &mut a,
        &mut b,
        &task,
        json!({"action": "update", "removeTags": ["ui"]}),
        json!({"action": "update", "addTags": ["ui"]}),
    );
    assert_eq!(a.show(&task)["tags"], json!(["db", "ui"]));
    assert_eq!(a.show(&task)["conflicts"], json!([]));
    // A whole list adds what is new alone: what it merely repeats does not win over a removal.
    apart_on(
        &mut a,
        &mut b,
        &task,
        json!({"action": "update", "removeTags": ["ui"]}),
        json!({"action": "update", "tags": ["db", "ui", "new"]}),
    );
    assert_eq!(a.show(&task)["tags"], json!(["db", "new"]));
}

#[test]
fn tags_added_apart_are_both_there() {
    let (a, _, task) = apart(
        json!({"action": "update", "addTags": ["x"]}),
        json!({"action": "update", "tags": ["y"]}),
    );
    assert_eq!(a.show(&task)["tags"], json!(["x", "y"]));
    assert_eq!(a.show(&task)["conflicts"], json!([]));
}

#[test]
fn criteria_added_apart_are_both_there() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    a.on_done(&task, json!({"action": "update", "criteria": ["first"]}));
    b.exchange_from(&a);
    apart_on(
        &mut a,
        &mut b,
        &task,
        json!({"action": "update", "criteria": ["first", "from a"]}),
        json!({"action": "update", "criteria": ["first", "from b"]}),
    );
    let shown = a.show(&task);
    assert_eq!(shown["conflicts"], json!([]));
    let criteria = shown["criteria"].as_array().unwrap();
    let mut texts: Vec<_> = criteria
        .iter()
        .map(|entry| entry["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts[0], "first");
    texts.sort_unstable();
    assert_eq!(texts, ["first", "from a", "from b"]);
}

/// A place is not given again, or somebody's tick would land on another criterion.
#[test]
fn a_tick_beside_a_criterion_that_goes_does_not_tick_the_next_one() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    let shown = a.on_done(&task, json!({"action": "update", "criteria": ["old"]}));
    let old = shown["criteria"][0]["id"].clone();
    b.exchange_from(&a);
    a.on_done(&task, json!({"action": "update", "criteria": []}));
    a.on_done(&task, json!({"action": "update", "criteria": ["new"]}));
    b.on_done(
        &task,
        json!({"action": "update", "criteria": [{"id": old, "done": true}]}),
    );
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let criteria = a.show(&task)["criteria"].clone();
    let new = criteria
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["text"] == "new")
        .unwrap();
    assert_eq!(new["done"], false);
}

#[test]
fn two_keys_of_one_state_both_stay() {
    let (a, _, task) = apart(
        json!({"action": "update", "statePatch": {"phase": "build"}}),
        json!({"action": "update", "statePatch": {"tries": 3, "log": ["x"]}}),
    );
    let shown = a.show(&task);
    assert_eq!(
        shown["state"],
        json!({"phase": "build", "tries": 3, "log": ["x"]})
    );
    assert_eq!(shown["conflicts"], json!([]));
}

#[test]
fn one_key_of_one_state_is_a_conflict_of_that_key() {
    let (a, _, task) = apart(
        json!({"action": "update", "statePatch": {"phase": {"n": 1}}}),
        json!({"action": "update", "statePatch": {"phase": {"n": 2}}}),
    );
    let shown = a.show(&task);
    let phase = conflict(&shown, "state/phase");
    assert_eq!(values(&phase).len(), 2);
    assert_eq!(values(&phase)[0], &shown["state"]["phase"]);
    assert!(shown["state"]["phase"]["n"].is_number());
}

#[test]
fn two_sprints_activated_apart_are_one_active_and_one_planned() {
    let (mut a, mut b) = Replica::pair();
    let (one, two) = (a.sprint("one"), a.sprint("two"));
    b.exchange_from(&a);
    a.on_done(&one, json!({"action": "sprint_activate"}));
    b.on_done(&two, json!({"action": "sprint_activate"}));
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let register = {
        let caller = person("ada");
        let cx = a.context(&caller, Default::default(), [0; 32]);
        board::active_sprint_register(&cx, board::project_id(WORKSPACE, "stead")).to_string()
    };
    // The winner by op id, whatever any clock says.
    let winner = a.row(&register).text("sprint").unwrap().to_owned();
    let cell = a.row(&register).cells["sprint"].clone();
    assert_eq!(cell.0.iter().map(|(op, _)| *op).max(), cell.winner_op());
    for replica in [&a, &b] {
        let mut statuses = [&one, &two].map(|id| replica.show(id)["status"].clone());
        assert_eq!(replica.show(&winner)["status"], "active");
        statuses.sort_by_key(Json::to_string);
        assert_eq!(statuses, [json!("active"), json!("planned")]);
        let conflict = conflict(&replica.show(&register), "sprint");
        assert_eq!(values(&conflict)[0], &json!(winner));
        assert_eq!(values(&conflict).len(), 2);
    }
    // Whoever decides for the other one resolves the register.
    let loser = if winner == one { &two } else { &one };
    let resolve = a.with_revision(
        &register,
        json!({"action": "resolve", "field": "sprint", "value": loser}),
    );
    a.run(resolve).unwrap();
    a.exchange(&mut b);
    agree(&[&a, &b]);
    assert_eq!(b.show(loser)["status"], "active");
    assert_eq!(b.show(&winner)["status"], "planned");
    assert_eq!(b.show(&register)["conflicts"], json!([]));
}

#[test]
fn one_sprint_activated_and_completed_on_two_nodes_is_no_conflict() {
    let (mut a, mut b) = Replica::pair();
    let sprint = a.sprint("one");
    b.exchange_from(&a);
    for action in ["sprint_activate", "sprint_complete"] {
        a.on_done(&sprint, json!({"action": action}));
        b.on_done(&sprint, json!({"action": action}));
        a.exchange(&mut b);
        agree(&[&a, &b]);
        assert_eq!(a.show(&sprint)["conflicts"], json!([]));
        for document in a.documents() {
            assert!(document.rows.values().all(|row| !row.is_conflicted()));
        }
    }
    assert_eq!(b.show(&sprint)["status"], "completed");
}

/// Nobody who completes a sprint can know which of two sprints a task was meant for.
#[test]
fn completing_a_sprint_does_not_settle_where_a_task_belongs() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("t");
    let [one, two, next] = ["one", "two", "next"].map(|name| a.sprint(name));
    b.exchange_from(&a);
    a.on_done(&task, json!({"action": "sprint_assign", "sprintId": one}));
    b.on_done(&task, json!({"action": "sprint_assign", "sprintId": two}));
    a.exchange(&mut b);
    let winner = a.row(&task).text("sprintId").unwrap().to_owned();
    a.on_done(&winner, json!({"action": "sprint_activate"}));
    let call = a.with_revision(
        &winner,
        json!({"action": "sprint_complete", "moveOpenTo": next}),
    );
    let reply = a.run(call).unwrap();
    assert_eq!(reply["openTasks"], json!([task]));
    assert_eq!(reply["notMoved"], json!([task]));
    assert_eq!(values(&conflict(&a.show(&task), "sprintId")).len(), 2);
}

#[test]
fn mutual_parents_are_kept_and_one_has_no_effect() {
    let (mut a, mut b) = Replica::pair();
    let (x, y) = (a.task("x"), a.task("y"));
    b.exchange_from(&a);
    a.on_done(&x, json!({"action": "update", "parentId": y}));
    b.on_done(&y, json!({"action": "update", "parentId": x}));
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let suspended = |replica: &Replica| {
        [&x, &y].map(|id| {
            let conflicts = replica.show(id)["conflicts"].as_array().unwrap().clone();
            conflicts
                .iter()
                .any(|conflict| conflict["suspended"] == true && conflict["field"] == "parentId")
        })
    };
    let (on_a, on_b) = (suspended(&a), suspended(&b));
    assert_eq!(on_a, on_b);
    assert_eq!(on_a.iter().filter(|suspended| **suspended).count(), 1);
    // Both are still said.
    assert_eq!(a.show(&x)["parentId"], json!(y));
    assert_eq!(a.show(&y)["parentId"], json!(x));
    // Taking either away ends it.
    let kept = if on_a[0] { &y } else { &x };
    a.on_done(kept, json!({"action": "update", "parentId": null}));
    assert_eq!(suspended(&a), [false, false]);
}

#[test]
fn mutual_dependencies_are_kept_and_one_has_no_effect() {
    let (mut a, mut b) = Replica::pair();
    let (x, y) = (a.task("x"), a.task("y"));
    b.exchange_from(&a);
    let link = |target: &str| json!({"action": "link", "type": "dependsOn", "targetId": target});
    a.on_done(&x, link(&y));
    b.on_done(&y, link(&x));
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let suspended = |replica: &Replica| {
        [(&x, &y), (&y, &x)].map(|(from, to)| {
            let field = format!("edge/depends_on/{to}");
            let conflicts = replica.show(from)["conflicts"].as_array().unwrap().clone();
            conflicts
                .iter()
                .any(|conflict| conflict["suspended"] == true && conflict["field"] == json!(field))
        })
    };
    let on_a = suspended(&a);
    assert_eq!(on_a, suspended(&b));
    assert_eq!(on_a.iter().filter(|suspended| **suspended).count(), 1);
    // The task whose edge is suspended waits for nothing; the other one does.
    let (free, waits) = if on_a[0] { (&x, &y) } else { (&y, &x) };
    let start = json!({"action": "move", "status": "in_progress"});
    assert_eq!(
        a.on(waits, start.clone()).unwrap_err().code,
        Code::UnmetDependencies
    );
    a.on_done(free, start.clone());
    a.on_done(free, json!({"action": "move", "status": "ready"}));
    // With the other edge gone it counts again, on both nodes.
    a.on_done(
        waits,
        json!({"action": "unlink", "type": "depends_on", "targetId": free}),
    );
    a.exchange(&mut b);
    agree(&[&a, &b]);
    for replica in [&mut a, &mut b] {
        assert_eq!(suspended(replica), [false, false]);
        assert_eq!(
            replica.on(free, start.clone()).unwrap_err().code,
            Code::UnmetDependencies
        );
    }
}

#[test]
fn a_circle_of_three_suspends_one_edge_the_same_everywhere() {
    let mut nodes = Replica::several(3);
    let tasks: Vec<String> = (0..3).map(|n| nodes[0].task(&format!("t{n}"))).collect();
    Replica::exchange_all(&mut nodes);
    for at in 0..3 {
        let link = json!({"action": "link", "type": "depends_on", "targetId": tasks[(at + 1) % 3]});
        nodes[at].on_done(&tasks[at], link);
    }
    Replica::exchange_all(&mut nodes);
    agree(&[&nodes[0], &nodes[1], &nodes[2]]);
    let suspended: Vec<bool> = tasks
        .iter()
        .map(|task| nodes[0].show(task)["conflicts"] != json!([]))
        .collect();
    assert_eq!(suspended.iter().filter(|suspended| **suspended).count(), 1);
}

/// A change of software that puts a value over a conflict and says nothing about it.
fn foreign_put(replica: &mut Replica, task: &str, field: &str, value: &str) {
    let state = replica.state(&stead());
    let object: ObjectId = task.parse().unwrap();
    let draft = Draft {
        actor: super::hostile::EVIL,
        seq: 1,
        start_op: state.max_op + 1,
        deps: state.heads,
        time: 1_780_000_000,
        message: Message {
            credential: "c_grace".into(),
            ..Message::default()
        },
        ops: vec![Op {
            object,
            field: field.into(),
            action: Action::Put(value.into()),
            preds: replica.row(task).preds(field),
        }],
    };
    let change = Change::author(stead().id(WORKSPACE), draft).unwrap();
    replica.receive(&stead(), &change.bytes).unwrap();
}

#[test]
fn a_conflict_collapsed_by_foreign_software_is_shown_until_acknowledged() {
    let (mut a, mut b, task) = apart(
        json!({"action": "update", "body": "from a ".repeat(60)}),
        json!({"action": "update", "body": "from b"}),
    );
    foreign_put(&mut a, &task, "body", "foreign");
    a.exchange(&mut b);
    agree(&[&a, &b]);
    for replica in [&a, &b] {
        let shown = replica.show(&task);
        assert_eq!(shown["body"], "foreign");
        let body = conflict(&shown, "body");
        assert_eq!(body["collapsedBy"]["credential"], "c_grace");
        let lost = body["lost"].as_array().unwrap();
        let mut texts: Vec<_> = lost
            .iter()
            .map(|lost| lost["value"].as_str().unwrap())
            .collect();
        texts.sort_unstable();
        assert_eq!(texts, [&"from a ".repeat(60), "from b"]);
    }
    // Others may go on writing the field; it stays shown.
    a.on_done(&task, json!({"action": "update", "body": "next"}));
    assert_eq!(
        conflict(&a.show(&task), "body")["lost"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let shown = a.on_done(&task, json!({"action": "resolve", "field": "body"}));
    assert_eq!(shown["conflicts"], json!([]));
    assert_eq!(shown["body"], "next");
    a.exchange(&mut b);
    agree(&[&a, &b]);
    assert_eq!(b.show(&task)["conflicts"], json!([]));
    let (by, _) = b.row(&task).collapsed.pop_first().unwrap();
    assert!(b.row(&task).cells.contains_key(&Collapse::ack_field(by)));
}

#[test]
fn a_value_lost_to_foreign_software_can_be_chosen_again() {
    let (mut a, _, task) = apart(
        json!({"action": "update", "title": "from a"}),
        json!({"action": "update", "title": "from b"}),
    );
    foreign_put(&mut a, &task, "title", "foreign");
    let lost = conflict(&a.show(&task), "title")["lost"][0].clone();
    let resolve = json!({"action": "resolve", "field": "title", "choose": lost["choose"]});
    let shown = a.on_done(&task, resolve);
    assert_eq!(shown["title"], lost["value"]);
    assert_eq!(shown["conflicts"], json!([]));
}

#[test]
fn long_texts_edited_in_different_places_merge_cleanly() {
    let (mut a, mut b) = Replica::pair();
    let lines = |first: &str, last: &str| format!("{first}\n{}{last}\n", "same\n".repeat(80));
    let task = a.task("one");
    a.on_done(
        &task,
        json!({"action": "update", "body": lines("one", "two")}),
    );
    b.exchange_from(&a);
    // More than one step each: the base is where they parted and not where each was last.
    a.on_done(
        &task,
        json!({"action": "update", "body": lines("ONE?", "two")}),
    );
    apart_on(
        &mut a,
        &mut b,
        &task,
        json!({"action": "update", "body": lines("ONE", "two")}),
        json!({"action": "update", "body": lines("one", "TWO")}),
    );
    let merge = conflict(&a.show(&task), "body")["merge"].clone();
    assert_eq!(
        merge,
        json!({"text": lines("ONE", "TWO"), "clean": true, "hasBase": true})
    );
    assert_eq!(conflict(&b.show(&task), "body")["merge"], merge);
}

#[test]
fn long_texts_edited_in_one_place_merge_with_marks() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    a.on_done(
        &task,
        json!({"action": "update", "notes": "start\nmiddle\nend\n"}),
    );
    b.exchange_from(&a);
    apart_on(
        &mut a,
        &mut b,
        &task,
        json!({"action": "update", "notes": "start\nA\nend\n"}),
        json!({"action": "update", "notes": "start\nB\nend\n"}),
    );
    let merge = conflict(&a.show(&task), "notes")["merge"].clone();
    assert_eq!(
        (&merge["clean"], &merge["hasBase"]),
        (&json!(false), &json!(true))
    );
    let text = merge["text"].as_str().unwrap();
    for part in ["start\n", "A\n", "B\n", "end\n", "<<<<<<<", ">>>>>>>"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn long_texts_without_a_common_past_have_no_base() {
    let (a, _, task) = apart(
        json!({"action": "update", "body": "from a\n"}),
        json!({"action": "update", "body": "from b\n"}),
    );
    let merge = conflict(&a.show(&task), "body")["merge"].clone();
    assert_eq!(merge["hasBase"], false);
    assert_eq!(merge["clean"], false);
}

#[test]
fn a_claim_on_two_nodes_shows_both_and_one_is_assigned() {
    let (mut a, mut b) = Replica::pair();
    let task = a.task("one");
    b.exchange_from(&a);
    a.run_as(&codex(), json!({"action": "claim", "id": task}))
        .unwrap();
    b.run_as(&scout(), json!({"action": "claim", "id": task}))
        .unwrap();
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let shown = a.show(&task);
    assert_eq!(values(&conflict(&shown, "assignee")).len(), 2);
    assert_eq!(values(&conflict(&shown, "lease")).len(), 2);
    // Assignee and lease are of one change, so that they name the same one.
    assert_eq!(shown["assignee"]["id"], shown["lease"]["by"]["credential"]);
    // Both say in progress, about which they agree.
    assert_eq!(shown["conflicts"].as_array().unwrap().len(), 2);
}

fn import(title: &str, criteria: &[&str]) -> Command {
    let fields = json!({
        "title": title, "status": "open", "criteria": criteria, "body": "b".repeat(900),
        "tags": ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        "externalRefs": ["beads:bd-1"], "imported": {"source": "beads", "id": "bd-1"},
    });
    Command::Import(Import {
        project: "stead".into(),
        name: "beads:bd-1".into(),
        fields: fields.as_object().unwrap().clone(),
        links: Vec::new(),
    })
}

#[test]
fn one_import_on_two_nodes_is_one_task() {
    let (mut a, mut b) = Replica::pair();
    let first = a.execute(&person("ada"), &import("t", &["works"])).unwrap();
    let second = b.execute(&person("ada"), &import("t", &["works"])).unwrap();
    assert_eq!(first["id"], second["id"]);
    assert_eq!(second["outcome"], "created");
    a.exchange(&mut b);
    agree(&[&a, &b]);
    let shown = a.show(first["id"].as_str().unwrap());
    assert_eq!(shown["conflicts"], json!([]));
    assert_eq!(shown["externalRefs"], json!([{"ref": "beads:bd-1"}]));
}

#[test]
fn an_import_again_writes_what_changed_there_and_was_not_touched_here() {
    let mut replica = Replica::one();
    let ada = person("ada");
    let reply = replica.execute(&ada, &import("t", &["works"])).unwrap();
    let task = reply["id"].as_str().unwrap().to_owned();
    let standing = replica.standing();
    let again = replica.execute(&ada, &import("t", &["works"])).unwrap();
    assert_eq!(again["outcome"], "unchanged");
    assert_eq!(
        replica.standing(),
        standing,
        "an unchanged source writes nothing"
    );
    assert_eq!(again["keptHere"], json!([]));
    // The source moves on and nobody touched it here.
    let reply = replica
        .execute(&ada, &import("t2", &["works", "fast"]))
        .unwrap();
    assert_eq!(
        (&reply["outcome"], &reply["keptHere"]),
        (&json!("updated"), &json!([]))
    );
    assert_eq!(replica.show(&task)["title"], "t2");
    assert_eq!(replica.show(&task)["criteria"].as_array().unwrap().len(), 2);
    // Somebody does, and keeps it; references of others do not make the import forget.
    let ours = json!({"action": "update", "title": "ours", "externalRefs": ["beads:bd-1", "pr:7"]});
    replica.on_done(&task, ours);
    let reply = replica.execute(&ada, &import("t3", &["works"])).unwrap();
    assert_eq!(reply["keptHere"], json!(["title", "ref/pr:7"]));
    assert_eq!(replica.show(&task)["title"], "ours");
    assert_eq!(replica.show(&task)["criteria"].as_array().unwrap().len(), 1);
}

#[test]
fn an_import_does_not_settle_a_conflict() {
    let (mut a, mut b) = Replica::pair();
    let ada = person("ada");
    let reply = a.execute(&ada, &import("t", &[])).unwrap();
    let task = reply["id"].as_str().unwrap().to_owned();
    b.exchange_from(&a);
    // Whichever wins: what the import had written, written again by the one who loses or wins.
    let id: ObjectId = task.parse().unwrap();
    for (replica, title) in [(&mut a, "t"), (&mut b, "u")] {
        replica.put(&stead(), id, &[("title", Some(title.into()))]);
    }
    a.exchange(&mut b);
    assert_eq!(values(&conflict(&a.show(&task), "title")).len(), 2);
    let reply = a.execute(&ada, &import("t2", &[])).unwrap();
    assert_eq!(reply["keptHere"], json!(["title"]));
    assert_eq!(values(&conflict(&a.show(&task), "title")).len(), 2);
}

/// By the clock of the second node, an hour behind, the edit was made before the task.
#[test]
fn a_wrong_clock_does_not_change_who_made_an_object_and_who_wrote_last() {
    for behind in [true, false] {
        let (mut a, mut b) = Replica::pair();
        let hour = if behind { -3_600_000 } else { 3_600_000 };
        b.now += hour;
        let task = a.run_as(
            &codex(),
            json!({"action": "create", "projectId": "stead", "title": "t"}),
        );
        let task = task.unwrap()["task"]["id"].as_str().unwrap().to_owned();
        b.exchange_from(&a);
        b.run_as(
            &scout(),
            b.with_revision(&task, json!({"action": "update", "title": "u"})),
        )
        .unwrap();
        a.exchange(&mut b);
        agree(&[&a, &b]);
        let last = json!({"action": "update", "title": "v"});
        a.run_as(&person("grace"), a.with_revision(&task, last))
            .unwrap();
        let shown = a.show(&task);
        assert_eq!(shown["createdBy"]["credential"], "d_codex");
        assert_eq!(shown["updatedBy"]["credential"], "c_grace");
    }
}

/// A clock that is far ahead is shown no further than five minutes after its change came.
#[test]
fn a_clock_that_is_ahead_is_clamped_where_it_is_shown() {
    let (mut a, mut b) = Replica::pair();
    b.now += 86_400_000;
    let task = b.task("t");
    a.exchange_from(&b);
    let at = |text: &Json| {
        text.as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
            .as_millisecond()
    };
    let shown = at(&a.show(&task)["createdAt"]);
    assert!(
        shown > a.now && shown <= a.now + 300_000,
        "{shown} at {}",
        a.now
    );
    // What it says is kept as it is: the revision and the export are the same on both.
    agree(&[&a, &b]);
    assert_eq!(a.revision(&task), b.revision(&task));
}

/// In every order in which changes can come, rows are equal, down to what was collapsed.
#[test]
fn any_order_of_arrival_gives_the_same_rows() {
    let (mut a, mut b, task) = apart(
        json!({"action": "update", "title": "a", "addTags": ["x"]}),
        json!({"action": "update", "title": "b", "addTags": ["x"]}),
    );
    foreign_put(&mut a, &task, "title", "foreign");
    b.on_done(
        &task,
        json!({"action": "resolve", "field": "title", "value": "c"}),
    );
    a.exchange(&mut b);
    let (mut c, mut d) = (Replica::new(3), Replica::new(4));
    c.exchange_from(&a);
    d.exchange_from(&b);
    agree(&[&a, &b, &c, &d]);
    let shown = a.show(&task);
    assert_eq!(
        shown["conflicts"].as_array().unwrap().len(),
        2,
        "values and a collapse: {shown}"
    );
}
