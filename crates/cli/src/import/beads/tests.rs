//! What becomes of issues.

use super::*;

/// All of an import: what is sent and what is said.
struct Plan {
    tasks: Vec<Entry>,
    skipped: Remarks,
    problems: Remarks,
}

fn plan(text: &str) -> Plan {
    let mut people = People::default();
    people.insert("ada@example.com");
    people.insert("me");
    let mut survey = Survey::read(text.as_bytes()).unwrap();
    let mut lines = Lines::new(text.as_bytes());
    let mut tasks = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        tasks.extend(survey.entry(&line, &people));
    }
    assert_eq!(tasks.len(), survey.count());
    Plan {
        tasks,
        skipped: survey.skipped,
        problems: survey.problems,
    }
}

fn one(issue: Value) -> (Entry, Vec<String>) {
    let plan = plan(&issue.to_string());
    let problems = plan
        .problems
        .list
        .into_iter()
        .map(|remark| remark.what)
        .collect();
    (plan.tasks.into_iter().next().unwrap(), problems)
}

#[test]
fn every_field_of_an_issue_is_kept() {
    let (entry, problems) = one(json!({
        "id": "bd-1", "title": "Fix", "description": "Why", "design": "How", "acceptance_criteria": "When",
        "notes": "N", "status": "closed", "priority": 0, "issue_type": "bug", "assignee": "Ada@Example.com",
        "owner": "bob", "created_at": "2026-01-01T00:00:00Z", "created_by": "bob",
        "updated_at": "2026-01-02T00:00:00Z", "closed_at": "2026-01-03T00:00:00Z", "close_reason": "Fixed",
        "labels": ["a", "b"], "external_ref": "gh-7", "ephemeral": true, "estimated_minutes": 30,
        "agent_state": "idle", "empty": "", "nothing": null, "nested": {"x": [1]},
        "comments": [{"id": 5, "issue_id": "bd-1", "author": "eve", "text": "Hm", "created_at": "2026-01-02T00:00:00Z"}],
    }));
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(entry.name, "beads:bd-1");
    assert_eq!(
        Value::Object(entry.fields),
        json!({
            "title": "Fix", "body": "Why\n\n## Design\n\nHow\n\n## Acceptance criteria\n\nWhen", "notes": "N",
            "status": "done", "result": "Fixed", "priority": "urgent", "type": "bug",
            "assignee": "Ada@Example.com", "tags": ["a", "b"], "externalRefs": [{"ref": "gh-7"}],
            "imported": {"system": "beads", "id": "bd-1", "createdAt": "2026-01-01T00:00:00Z", "createdBy": "bob",
                "updatedAt": "2026-01-02T00:00:00Z", "closedAt": "2026-01-03T00:00:00Z"},
            "custom": {"beadsOwner": "bob", "beadsEphemeral": true, "beadsEstimatedMinutes": 30,
                "beadsAgentState": "idle", "beadsNested": "{\"x\":[1]}"},
        })
    );
    assert_eq!(
        entry.comments,
        [Comment {
            name: "beads:bd-1#comment-1".into(),
            body: "Hm".into(),
            by: Some("eve".into()),
            at: Some("2026-01-02T00:00:00Z".into()),
        }]
    );
}

#[test]
fn words_of_another_world_are_translated_or_kept() {
    let statuses = [
        ("open", "ready", false),
        ("in_progress", "in_progress", false),
        ("closed", "done", false),
        ("blocked", "blocked", false),
        ("deferred", "backlog", false),
        ("hooked", "ready", true),
        ("pinned", "ready", true),
        ("tombstone", "abandoned", true),
        ("x\u{1b}", "ready", true),
    ];
    for (given, status, kept) in statuses {
        let (entry, problems) = one(json!({"id": "a", "title": "t", "status": given}));
        assert_eq!(entry.fields["status"], status);
        assert_eq!(!problems.is_empty(), kept, "{given}");
        let original = entry
            .fields
            .get("custom")
            .map(|custom| &custom["beadsStatus"]);
        assert_eq!(original, kept.then(|| json!(given)).as_ref());
    }
    let (entry, problems) = one(
        json!({"id": "a", "title": "t", "issue_type": "convoy", "priority": 9, "assignee": "me"}),
    );
    assert_eq!(entry.fields["type"], "task");
    assert_eq!(
        entry.fields["custom"],
        json!({"beadsType": "convoy", "beadsPriority": "9", "beadsAssignee": "me"})
    );
    assert!(!entry.fields.contains_key("assignee") && !entry.fields.contains_key("priority"));
    assert_eq!(problems.len(), 2);
}

#[test]
fn edges_are_kept_and_those_to_nowhere_reported() {
    let edge = |from: &str, to: &str, kind: &str| json!({"issue_id": from, "depends_on_id": to, "type": kind});
    let file = [
        json!({"id": "a", "title": "A"}),
        json!({"id": "b", "title": "B"}),
        json!({"id": "a.1", "title": "C", "dependencies": [
            edge("a.1", "b", "blocks"), edge("a.1", "b", "discovered-from"), edge("a.1", "b", "relates-to"),
            edge("a.1", "b", "replies-to"), edge("a.1", "gone", "blocks"), edge("a.1", "gone", "tracks"),
            edge("a.1", "a.1", "blocks"), edge("b", "a", "blocks"), json!({"type": "blocks"}),
        ]}),
        json!({"id": "d", "title": "D", "parent": "b", "dependencies": [
            edge("d", "a", "parent-child"), edge("d", "b", "parent-child"),
        ]}),
        json!({"id": "e.1", "title": "E", "parent": "e", "dependencies": [edge("e.1", "e", "parent-child")]}),
        json!({"id": "a.x", "title": "F"}),
    ];
    let text: Vec<_> = file.iter().map(Value::to_string).collect();
    let plan = plan(&text.join("\n"));
    let edges = |index: usize| -> Vec<(&str, &str)> {
        plan.tasks[index]
            .edges
            .iter()
            .map(|edge| (edge.kind.as_str(), edge.target.as_str()))
            .collect()
    };
    assert_eq!(
        edges(2),
        [
            ("depends_on", "beads:b"),
            ("discovered_from", "beads:b"),
            ("parent", "beads:a"),
            ("relates_to", "beads:b")
        ]
    );
    assert_eq!(
        plan.tasks[2].fields["externalRefs"],
        json!([
            {"ref": "beads:a.1", "type": "blocks"},
            {"ref": "beads:b", "type": "replies-to"},
            {"ref": "beads:gone", "type": "blocks,tracks"},
        ])
    );
    let raw = plan.tasks[2].fields["custom"]["beadsDependencies"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(raw)
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        9
    );
    // The parent that the issue names wins; the other is told.
    assert_eq!(edges(3), [("parent", "beads:b")]);
    assert_eq!(
        plan.tasks[3].fields["externalRefs"],
        json!([{"ref": "beads:a", "type": "parent-child"}])
    );
    // A missing parent is told once, and `a.x` is no child of `a`.
    assert_eq!((edges(4), edges(5)), (vec![], vec![]));
    let told: Vec<_> = plan
        .problems
        .list
        .iter()
        .map(|remark| (remark.line, remark.what.as_str()))
        .collect();
    let of = |line: u64| told.iter().filter(|(at, _)| *at == line).count();
    assert_eq!((of(3), of(4), of(5), of(6)), (6, 1, 1, 0), "{told:?}");
}

#[test]
fn bad_lines_are_named_and_the_rest_goes_on() {
    let plan = plan(
        "{\"id\":\"a\",\"title\":\"old\"}\nnonsense\n\n[1]\n{\"title\":\"x\"}\n{\"id\":\"a\",\"title\":\"new\"}\r\n{\"id\":\"b\",\"title\":\"B\"}",
    );
    let titles: Vec<_> = plan
        .tasks
        .iter()
        .map(|task| task.fields["title"].as_str().unwrap())
        .collect();
    assert_eq!(titles, ["new", "B"]);
    let lines: Vec<_> = plan.skipped.list.iter().map(|remark| remark.line).collect();
    assert_eq!(lines, [2, 4, 5, 1]);
    assert_eq!(
        plan.skipped.list[3].what,
        "the id comes again on line 6; the last one counts"
    );
}

#[test]
fn titles_end_at_their_limit_and_stay_whole_in_the_body() {
    let of = |title: &str| one(json!({"id": "a", "title": title, "description": "d"}));
    for length in [limits::TITLE_CHARS - 1, limits::TITLE_CHARS] {
        let (entry, problems) = of(&"x".repeat(length));
        assert_eq!(
            (entry.fields["body"].as_str(), problems.len()),
            (Some("d"), 0)
        );
    }
    let long = "x".repeat(limits::TITLE_CHARS + 1);
    let (entry, problems) = of(&long);
    assert_eq!(
        entry.fields["title"].as_str().unwrap().chars().count(),
        limits::TITLE_CHARS
    );
    assert_eq!(
        entry.fields["body"],
        format!("## Title\n\n{long}\n\n## Description\n\nd")
    );
    assert_eq!(problems.len(), 1);
    let (entry, problems) = of("two\nlines");
    assert_eq!(entry.fields["title"], "two lines");
    assert_eq!(problems.len(), 1);
    let (entry, _) = of("");
    assert_eq!(
        (&entry.fields["title"], &entry.fields["body"]),
        (&json!("Untitled beads:a"), &json!("d"))
    );
}

#[test]
fn long_texts_go_on_in_comments() {
    for (length, comments) in [
        (TEXT_BYTES - 1, 0),
        (TEXT_BYTES, 0),
        (TEXT_BYTES + 1, 1),
        (3 * TEXT_BYTES, 2),
    ] {
        let text = "x".repeat(length);
        let (entry, problems) = one(json!({"id": "a", "title": "t", "description": text}));
        let rest: String = entry
            .comments
            .iter()
            .map(|comment| comment.body.as_str())
            .collect();
        assert_eq!(
            entry.fields["body"].as_str().unwrap().to_owned() + &rest,
            text
        );
        assert_eq!(entry.comments.len(), comments);
        assert_eq!(problems.is_empty(), comments == 0);
    }
    let (entry, _) = one(json!({"id": "a", "title": "t", "description": "ä".repeat(TEXT_BYTES)}));
    assert_eq!(entry.comments[0].name, "beads:a#body-2");
    let (entry, problems) = one(json!({"id": "a", "title": "t", "blob": "x".repeat(CUSTOM_BYTES)}));
    assert!(entry.comments[0].body.starts_with("blob:\nxxx"));
    assert_eq!(problems.len(), 1);
}

#[test]
fn labels_that_are_no_tags_are_kept_whole() {
    let (entry, problems) =
        one(json!({"id": "a", "title": "t", "labels": ["ok", "a,b", "x".repeat(65), " "]}));
    assert_eq!(entry.fields["tags"], json!(["ok"]));
    assert!(
        entry.fields["custom"]["beadsLabels"]
            .as_str()
            .unwrap()
            .contains("a,b")
    );
    assert_eq!(problems.len(), 1);
}

#[test]
fn hostile_fields_find_a_place() {
    let (entry, problems) = one(json!({
        "id": "a\u{202e}", "title": {"not": "text"}, "description": 5, "dependencies": "x", "comments": [{"odd": 1}, "plain"],
        "labels": 3, "agent_state": "1", "agentState": "2", "created_at": 7, "a\nb": 1, "parent": "x".repeat(300),
    }));
    assert_eq!(entry.fields["title"], "{\"not\":\"text\"}");
    assert_eq!(entry.fields["body"], "5");
    assert_eq!(entry.fields["custom"]["beadsDependencies"], "x");
    assert_eq!(entry.fields["custom"]["beadsCreatedAt"], 7);
    assert_eq!(
        entry.fields["custom"]["beadsEdgeParentChild"],
        "x".repeat(300)
    );
    let bodies: Vec<_> = entry
        .comments
        .iter()
        .map(|comment| comment.body.as_str())
        .collect();
    assert_eq!(bodies[..2], ["{\"odd\":1}", "plain"]);
    assert!(bodies.contains(&"a\nb:\n1"));
    assert!(entry.fields["custom"]["beadsAgentState"] == "2" || bodies.contains(&"agentState:\n2"));
    assert!(problems.len() >= 6, "{problems:?}");
}

#[test]
fn edges_and_comments_end_at_what_a_task_takes() {
    let comments = |count: usize| {
        let list: Vec<_> = (0..count)
            .map(|n| json!({"author": "eve", "text": format!("c{n}"), "created_at": "now"}))
            .collect();
        one(json!({"id": "a", "title": "t", "comments": list}))
    };
    for count in [limits::SET_ENTRIES - 1, limits::SET_ENTRIES] {
        let (entry, problems) = comments(count);
        assert_eq!((entry.comments.len(), problems.len()), (count, 0));
    }
    let (entry, problems) = comments(limits::SET_ENTRIES + 1);
    assert_eq!((entry.comments.len(), problems.len()), (COMMENTS + 1, 1));
    assert!(entry.comments[COMMENTS].body.ends_with("eve now\nc500\n\n"));

    let mut file: Vec<_> = (0..=limits::SET_ENTRIES)
        .map(|n| json!({"id": format!("x{n}"), "title": "t"}).to_string())
        .collect();
    let edges: Vec<_> = (0..limits::SET_ENTRIES)
        .map(|n| json!({"depends_on_id": format!("x{n}"), "type": "blocks"}))
        .collect();
    file.push(
        json!({"id": "a", "title": "t", "parent": "x500", "dependencies": edges}).to_string(),
    );
    let plan = plan(&file.join("\n"));
    let entry = plan.tasks.last().unwrap();
    assert_eq!(entry.edges.len(), limits::SET_ENTRIES);
    assert_eq!(entry.fields["externalRefs"].as_array().unwrap().len(), 1);
    assert_eq!(plan.problems.count, 1);
}

#[test]
fn ids_that_are_no_names_are_skipped() {
    let file = ["a\u{7}", " a", "", &"x".repeat(ID_BYTES + 1)]
        .map(|id| json!({"id": id, "title": "t"}).to_string());
    let plan = plan(&file.join("\n"));
    assert_eq!((plan.tasks.len(), plan.skipped.count), (0, 4));
    assert_eq!(
        one(json!({"id": "x".repeat(ID_BYTES), "title": "t"}))
            .1
            .len(),
        0
    );
}
