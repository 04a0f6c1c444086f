//! `task_search` against a plain computation over what `task_get` shows of every task.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::world::{Replica, Rng, exchange, ids_of, replica, replicas};

/// A board in which every filter finds some and leaves some out.
fn board() -> (Replica, Vec<Json>, Vec<Json>) {
    let mut nodes = replicas(2);
    let other = nodes.pop().unwrap();
    let node = nodes.pop().unwrap();
    let mut rng = Rng::new(77);
    let sprints: Vec<Json> = (0..3)
        .map(|n| {
            node.mutate(
                "sprint_create",
                json!({ "projectId": "board", "name": format!("s{n}") }),
            )["sprint"]["id"]
                .take()
        })
        .collect();
    node.mutate("sprint_activate", json!({ "sprintId": sprints[1] }));
    node.ok("project_add", json!({ "slug": "other" }));
    let mut ids: Vec<Json> = Vec::new();
    for n in 0..120 {
        node.clock.advance(rng.below(3_000) as i64);
        let mut fields = json!({
            "title": format!("{} {} {n}", rng.pick(&["walk", "run", "swim"]), rng.pick(&["fast", "slow"])),
            "body": rng.pick(&["about the river", "about the road", ""]).repeat(1 + rng.below(3)),
            "status": *rng.pick(&["ready", "ready", "backlog", "in_progress", "review", "done"]),
            "priority": rng.below(5),
            "type": *rng.pick(&["task", "bug", "feature"]),
            "tags": *rng.pick(&[&["a"][..], &["b"], &["a", "b"], &[]]),
            "projectId": if rng.below(8) == 0 { "other" } else { "board" },
        });
        let assignee = rng.below(4);
        if assignee < 3 {
            fields["assignee"] = ["me", "scout", "bea@example.org"][assignee].into();
        }
        if rng.below(3) == 0 {
            fields["rank"] = (rng.below(90) as f64 / 7.0 - 3.0).into();
        }
        if rng.below(4) == 0 {
            fields["dueDate"] = format!("2026-1{}-0{}", rng.below(3), 1 + rng.below(9)).into();
        }
        let task = node.create(fields);
        if task["projectId"] == node.task(&task["id"])["projectId"]
            && rng.below(3) == 0
            && !ids.is_empty()
        {
            let target = rng.pick(&ids).clone();
            let action = if rng.below(2) == 0 {
                json!({ "action": "link", "type": "depends_on", "targetId": target })
            } else {
                json!({ "action": "update", "parentId": target })
            };
            let mut call = action;
            call["id"] = task["id"].clone();
            call["revision"] = task["revision"].clone();
            drop(node.call("task_mutate", call));
        }
        let now = node.task(&task["id"]);
        if rng.below(3) == 0 {
            drop(node.call("task_mutate", json!({ "action": "sprint_assign", "id": task["id"], "revision": now["revision"], "sprintId": rng.pick(&sprints) })));
        }
        let now = node.task(&task["id"]);
        match rng.below(10) {
            0 => drop(node.mutate(
                "archive",
                json!({ "id": task["id"], "revision": now["revision"] }),
            )),
            1 => drop(node.mutate(
                "block",
                json!({ "id": task["id"], "revision": now["revision"], "reason": "waits" }),
            )),
            _ => {}
        }
        ids.push(task["id"].clone());
    }
    // Some written apart.
    exchange(&node, &other);
    for id in ids.iter().step_by(13) {
        node.update(id, json!({ "title": "walk here" }));
        other.update(id, json!({ "title": "walk there" }));
    }
    exchange(&node, &other);
    node.mutate("claim", json!({ "projectId": "board" }));
    (node, ids, sprints)
}

fn all_of(node: &Replica, ids: &[Json]) -> Vec<Json> {
    ids.iter().map(|id| node.task(id)).collect()
}

fn slug(node: &Replica, name: &str) -> Json {
    let list = node.ok("project_list", json!({}));
    let found = list["projects"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["slug"] == name)
        .unwrap()
        .clone();
    found["id"].clone()
}

/// Whether a task is what a filter asks for, from the whole task alone.
fn passes(task: &Json, filter: &Json, tasks: &[Json], board: &Json, sprints: &[Json]) -> bool {
    let list = |name: &str| -> Option<Vec<String>> {
        let value = filter.get(name)?;
        Some(match value {
            Json::String(one) => vec![one.clone()],
            Json::Array(many) => many
                .iter()
                .map(|one| one.as_str().unwrap().to_owned())
                .collect(),
            _ => panic!("{value}"),
        })
    };
    let status = task["status"].as_str().unwrap();
    let archived = !task["archivedAt"].is_null();
    let wide = ["parentId", "sprint", "q", "conflicted"]
        .iter()
        .any(|name| filter.get(name).is_some());
    let words =
        list("status").unwrap_or_else(|| vec![if wide { "any" } else { "active" }.to_owned()]);
    let in_status = words.iter().any(|word| match word.as_str() {
        "archived" => archived,
        _ if archived => false,
        "active" => ["ready", "in_progress", "blocked", "review"].contains(&status),
        "open" => ["ready", "in_progress", "blocked", "review", "backlog"].contains(&status),
        "closed" => ["done", "abandoned"].contains(&status),
        "any" => true,
        other => other == status,
    });
    let assignee = |wanted: &str| match wanted {
        "none" => task["assignee"].is_null(),
        "me" => {
            task["assignee"].to_string().contains("Ada")
                && !task["assignee"].to_string().contains("scout")
        }
        name => task["assignee"]
            .to_string()
            .to_lowercase()
            .contains(&name.split('@').next().unwrap().to_lowercase()),
    };
    let sprint = |wanted: &str| match wanted {
        "none" => task["sprintId"].is_null(),
        "active" => task["sprintId"] == sprints[1],
        id => task["sprintId"] == id,
    };
    let all_words = |q: &str| {
        let text = format!("{} {} {}", task["title"], task["body"], task["notes"]).to_lowercase();
        q.split(' ').all(|word| text.contains(word))
    };
    let next = || {
        let unmet = task["dependsOn"].as_array().unwrap().iter().any(|id| {
            !tasks
                .iter()
                .any(|other| other["id"] == *id && other["status"] == "done")
        });
        status == "ready"
            && !archived
            && !unmet
            && task["blocker"].is_null()
            && task["lease"]["live"] != true
    };
    let text = |name: &str| filter.get(name).and_then(Json::as_str);
    in_status
        && filter
            .get("projectId")
            .is_none_or(|_| task["projectId"] == *board)
        && text("assignee").is_none_or(assignee)
        && text("sprint").is_none_or(sprint)
        && list("tag").is_none_or(|tags| {
            tags.iter()
                .all(|tag| task["tags"].as_array().unwrap().contains(&json!(tag)))
        })
        && list("type")
            .is_none_or(|types| types.contains(&task["type"].as_str().unwrap_or("task").to_owned()))
        && list("priority")
            .is_none_or(|known| known.contains(&task["priority"].as_str().unwrap().to_owned()))
        && filter
            .get("parentId")
            .is_none_or(|parent| task["parentId"] == *parent)
        && text("q").is_none_or(all_words)
        && filter.get("next").is_none_or(|_| next())
        && filter.get("conflicted").is_none_or(|wanted| {
            task["conflicts"].as_array().unwrap().is_empty() != wanted.as_bool().unwrap()
        })
}

#[test]
fn every_filter_finds_what_a_plain_computation_finds() {
    let (mut node, ids, sprints) = board();
    let parents: BTreeSet<String> = all_of(&node, &ids)
        .iter()
        .filter_map(|task| task["parentId"].as_str().map(str::to_owned))
        .collect();
    let parent = parents.first().unwrap();
    let singles = [
        json!({}),
        json!({ "status": "active" }),
        json!({ "status": ["open"] }),
        json!({ "status": ["closed"] }),
        json!({ "status": ["any"] }),
        json!({ "status": ["archived"] }),
        json!({ "status": ["any", "archived"] }),
        json!({ "status": ["review", "done"] }),
        json!({ "assignee": "me" }),
        json!({ "assignee": "none" }),
        json!({ "assignee": "scout" }),
        json!({ "assignee": "bea@example.org" }),
        json!({ "sprint": sprints[0] }),
        json!({ "sprint": "none" }),
        json!({ "sprint": "active", "projectId": "board" }),
        json!({ "tag": "a" }),
        json!({ "tag": ["a", "b"] }),
        json!({ "type": ["bug", "feature"] }),
        json!({ "priority": ["urgent", "lowest"] }),
        json!({ "parentId": parent }),
        json!({ "q": "walk" }),
        json!({ "q": "slow river" }),
        json!({ "next": true }),
        json!({ "conflicted": true }),
        json!({ "conflicted": false }),
        json!({ "projectId": "board" }),
    ];
    for round in 0..2 {
        let tasks = all_of(&node, &ids);
        let board = slug(&node, "board");
        let arrivals = node.arrivals();
        // Each filter alone, and pairs of them in turn.
        for (place, one) in singles.iter().enumerate() {
            let pairs = singles
                .iter()
                .enumerate()
                .filter(|(other, _)| *other == 0 || (place + other + round).is_multiple_of(9));
            for (_, two) in pairs {
                let mut filter = one.clone();
                for (name, value) in two.as_object().unwrap() {
                    filter[name] = value.clone();
                }
                if filter["sprint"] == "active" {
                    filter["projectId"] = "board".into();
                }
                for name in ["sprint", "projectId"] {
                    if filter[name].is_null() {
                        filter.as_object_mut().unwrap().remove(name);
                    }
                }
                let expected: BTreeSet<String> = tasks
                    .iter()
                    .filter(|task| passes(task, &filter, &tasks, &board, &sprints))
                    .map(|task| task["id"].as_str().unwrap().to_owned())
                    .collect();
                filter["limit"] = 17.into();
                let found = node.all_pages(&filter);
                let set: BTreeSet<String> = found.iter().cloned().collect();
                assert_eq!(found.len(), set.len(), "{filter}: a match twice");
                let (more, less): (Vec<_>, Vec<_>) = (
                    set.difference(&expected).collect(),
                    expected.difference(&set).collect(),
                );
                assert!(
                    more.is_empty() && less.is_empty(),
                    "round {round}, {filter}: too many {more:?}, missing {less:?}"
                );
            }
        }
        assert_eq!(node.arrivals(), arrivals, "a search wrote something");
        node.pack();
        node.restart();
    }
}

#[test]
fn orders_are_those_of_the_values() {
    let (node, ids, _) = board();
    let tasks = all_of(&node, &ids);
    let task = |id: &str| tasks.iter().find(|task| task["id"] == id).unwrap();
    let rank = |task: &Json| task["rank"].as_f64().unwrap_or(f64::INFINITY);
    let priorities = ["urgent", "high", "medium", "low", "lowest"];
    let place = |task: &Json| {
        priorities
            .iter()
            .position(|one| task["priority"] == *one)
            .unwrap()
    };
    for order in ["priority", "created", "updated", "due", "rank"] {
        for reverse in [false, true] {
            let name = if reverse {
                format!("-{order}")
            } else {
                order.to_owned()
            };
            let mut found =
                node.all_pages(&json!({ "status": ["any"], "order": name, "limit": 7 }));
            let plain = node.all_pages(&json!({ "status": ["any"], "order": name, "limit": 200 }));
            assert_eq!(found, plain, "{name}: pages of seven");
            if reverse {
                found.reverse();
            }
            for pair in found.windows(2) {
                let [a, b] = [task(&pair[0]), task(&pair[1])];
                let ordered = match order {
                    "priority" => (place(a), rank(a)) <= (place(b), rank(b)),
                    "created" => a["createdAt"].as_str() <= b["createdAt"].as_str(),
                    "updated" => a["updatedAt"].as_str() <= b["updatedAt"].as_str(),
                    "due" => {
                        a["dueDate"].as_str().unwrap_or("~") <= b["dueDate"].as_str().unwrap_or("~")
                    }
                    _ => rank(a) <= rank(b),
                };
                assert!(ordered, "{name}: {} before {}", a["title"], b["title"]);
            }
        }
    }
}

#[test]
fn a_page_gives_each_match_once_and_in_order_while_others_change() {
    for filter in [
        json!({ "limit": 5 }),
        json!({ "limit": 5, "order": "created" }),
        json!({ "limit": 5, "order": "-created" }),
        json!({ "limit": 5, "order": "-priority" }),
        json!({ "limit": 5, "tag": "watched" }),
        json!({ "limit": 5, "tag": "watched", "order": "rank" }),
        json!({ "limit": 5, "status": ["active", "archived"] }),
        json!({ "limit": 5, "q": "word", "order": "created" }),
        json!({ "limit": 5, "conflicted": false }),
        json!({ "limit": 5, "updatedSince": "0" }),
    ] {
        let node = replica();
        let ids: Vec<Json> = (0..40).map(|n| {
            node.clock.advance(10);
            node.create(json!({ "title": format!("word {n}"), "priority": n % 5, "rank": (n * 7 % 11), "tags": ["watched"] }))["id"].take()
        }).collect();
        let before = node.all_pages(&filter);
        let mut gone: BTreeSet<String> = BTreeSet::new();
        let mut seen: Vec<String> = Vec::new();
        let mut asked = filter.clone();
        let mut turn = 0;
        loop {
            let page = node.ok("task_search", asked.clone());
            seen.extend(ids_of(&page));
            if page["nextCursor"].is_null() {
                break;
            }
            asked["cursor"] = page["nextCursor"].clone();
            // One that was shown, and one that was not, leave the filter; new ones come.
            for pick in [seen[turn].clone(), before[before.len() - 1 - turn].clone()] {
                if gone.insert(pick.clone()) && filter["status"].is_null() && filter["q"].is_null()
                {
                    let revision = node.task(&json!(pick))["revision"].take();
                    node.mutate("move", json!({ "id": pick, "revision": revision, "status": "abandoned", "abandonReason": "no" }));
                } else {
                    gone.remove(&pick);
                }
            }
            turn += 1;
        }
        // Whatever stayed in the filter came exactly once, in the order of before. With a filter
        // that includes closed tasks those that were abandoned may come too.
        let stayed: Vec<&String> = before.iter().filter(|id| !gone.contains(*id)).collect();
        let shown: Vec<&String> = seen.iter().filter(|id| !gone.contains(*id)).collect();
        assert_eq!(shown, stayed, "{filter}");
        let set: BTreeSet<&String> = seen.iter().collect();
        assert_eq!(set.len(), seen.len(), "{filter}: one came twice");
        assert_eq!(ids.len(), 40);
    }
}

#[test]
fn a_cursor_of_another_order_is_refused() {
    let node = replica();
    for n in 0..9 {
        node.create(json!({ "title": format!("word {n}") }));
    }
    let cursor = |filter: &Json| node.ok("task_search", filter.clone())["nextCursor"].take();
    let filters = [
        json!({ "limit": 2 }),
        json!({ "limit": 2, "order": "created" }),
        json!({ "limit": 2, "q": "word" }),
    ];
    for (n, one) in filters.iter().enumerate() {
        for (m, two) in filters.iter().enumerate() {
            let mut asked = one.clone();
            asked["cursor"] = cursor(two);
            if n == m {
                assert_eq!(ids_of(&node.ok("task_search", asked)).len(), 2);
            } else {
                node.refused("INVALID_ARGUMENT", "task_search", asked);
            }
        }
    }
    for bad in [
        "",
        "x",
        "o",
        "p1",
        "p1.zz",
        "k1",
        "k1.00",
        "k1.0.x",
        "k1.00.nonsense",
        "o-1",
        "p1.00",
    ] {
        if !bad.is_empty() {
            node.refused("INVALID_ARGUMENT", "task_search", json!({ "cursor": bad }));
        }
    }
}

#[test]
fn what_is_left_and_what_is_hidden_is_counted() {
    let node = replica();
    for n in 0..23 {
        node.create(json!({ "title": format!("t{n}"), "status": if n % 4 == 0 { "done" } else { "ready" } }));
    }
    let page = node.ok("task_search", json!({ "projectId": "board", "limit": 5 }));
    assert_eq!(page["left"], 12);
    assert_eq!(page["hidden"]["count"], 6);
    assert_eq!(page["hidden"]["byStatus"], json!({ "done": 6 }));
    assert_eq!(
        page["filter"]["status"],
        json!(["blocked", "in_progress", "ready", "review"])
    );
    let mut left = 17;
    let mut asked = json!({ "limit": 5 });
    while left > 0 {
        let page = node.ok("task_search", asked.clone());
        left -= ids_of(&page).len();
        assert_eq!(page["left"], left);
        asked["cursor"] = page["nextCursor"].clone();
    }
    assert!(asked["cursor"].is_null());
    let page = node.ok("task_search", json!({ "status": ["any"] }));
    assert_eq!(page["hidden"]["count"], 0);
    // Nothing found is an answer, not a failure; an unknown project is a failure and made by nobody.
    assert_eq!(
        node.ok("task_search", json!({ "q": "unheard" }))["tasks"],
        json!([])
    );
    node.refused(
        "UNKNOWN_PROJECT",
        "task_search",
        json!({ "projectId": "nowhere" }),
    );
    assert_eq!(
        node.ok("project_list", json!({}))["projects"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_page_ends_at_ten_kilobytes() {
    let node = replica();
    for n in 0..60 {
        node.create(json!({ "title": format!("{n} {}", "ü".repeat(400)) }));
    }
    let page = node.ok("task_search", json!({ "limit": 200 }));
    let shown = ids_of(&page).len();
    assert!((1..60).contains(&shown), "{shown}");
    assert!(page.to_string().len() <= 10 << 10);
    assert_eq!(page["left"], 60 - shown);
    let all = node.all_pages(&json!({ "limit": 200 }));
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 60);
    assert_eq!(all.len(), 60);
}

#[test]
fn fields_pick_what_is_shown() {
    let node = replica();
    node.create(json!({ "title": "t", "body": "long", "branch": "main" }));
    let page = node.ok("task_search", json!({ "fields": ["title", "branch"] }));
    let row = page["tasks"][0].as_object().unwrap();
    assert_eq!(
        row.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        BTreeSet::from(["branch", "id", "revision", "title"])
    );
    let refused = node.refused(
        "INVALID_ARGUMENT",
        "task_search",
        json!({ "fields": ["titel"] }),
    );
    assert!(
        refused["accepted"]
            .as_array()
            .unwrap()
            .contains(&json!("title"))
    );
}

#[test]
fn updated_since_counts_arrival_here_whatever_a_clock_said() {
    let nodes = replicas(2);
    let [node, late] = [&nodes[0], &nodes[1]];
    late.create(json!({ "title": "made offline, long ago" }));
    node.clock.advance(3_600_000);
    node.create(json!({ "title": "before" }));
    let cursor = node.ok("task_search", json!({}))["updateCursor"].clone();
    let found = |node: &Replica, since: &Json| -> BTreeSet<String> {
        let page = node.ok(
            "task_search",
            json!({ "updatedSince": since, "limit": 200 }),
        );
        page["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["title"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(found(node, &cursor).is_empty());
    exchange(node, late);
    assert_eq!(
        found(node, &cursor),
        BTreeSet::from(["made offline, long ago".to_owned()])
    );
    // By time: when this node saw it.
    let since = json!("2026-09-21T15:00:00Z");
    assert_eq!(found(node, &since).len(), 2);
    assert!(found(node, &json!("2026-09-22")).is_empty());
    assert_eq!(found(node, &json!("2026-09-21")).len(), 2);
    node.pack();
    assert_eq!(found(node, &cursor).len(), 1);
    assert_eq!(found(node, &since).len(), 2);
    node.refused(
        "INVALID_ARGUMENT",
        "task_search",
        json!({ "updatedSince": "yesterday" }),
    );
}
