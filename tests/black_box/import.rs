//! The real export of another tracker: in, looked at, and out again.

use std::collections::{BTreeMap, BTreeSet};

use automerge::{Automerge, ReadDoc};
use serde_json::Value;

use crate::{
    issues::{Issues, name, status},
    stead::{Home, Random, text},
};

/// A home with the issues imported, and what is known of them.
struct Imported {
    home: Home,
    issues: Issues,
    file: String,
    report: Value,
}

impl Imported {
    fn new() -> Self {
        let issues = Issues::load();
        let home = Home::with_project("beads");
        let file = home.file("issues.jsonl", issues.text());
        let report = home.data(&["import", "beads", &file, "--project", "beads"]);
        Self {
            home,
            issues,
            file,
            report,
        }
    }

    fn import(&self, file: &str) -> Value {
        self.home
            .data(&["import", "beads", file, "--project", "beads"])
    }
}

/// Every object of an export with its fields' winning values.
fn objects(export: &str) -> Vec<(String, BTreeMap<String, Value>)> {
    let read = |line: &str| -> (String, BTreeMap<String, Value>) {
        let object: Value = serde_json::from_str(line).unwrap();
        let fields = object["fields"].as_object().unwrap().iter();
        let winners = fields.map(|(field, values)| {
            let last = values.as_array().unwrap().last().unwrap();
            (field.clone(), last["value"].clone())
        });
        (text(&object, "id").to_owned(), winners.collect())
    };
    export.lines().map(read).collect()
}

/// Which issue each task was, by the mark that the import leaves.
fn origins(export: &str) -> BTreeMap<String, String> {
    let origin = |(id, fields): (String, BTreeMap<String, Value>)| {
        let mark: Value = serde_json::from_str(fields.get("imported")?.as_str()?).unwrap();
        Some((id, mark["source"]["id"].as_str()?.to_owned()))
    };
    objects(export).into_iter().filter_map(origin).collect()
}

#[test]
fn an_import_brings_in_every_issue_and_every_edge_and_reports_the_others() {
    let Imported {
        home,
        issues,
        report,
        ..
    } = Imported::new();
    let count = issues.lines.len();
    let (found, missing) = issues.edges();
    if issues.real {
        assert_eq!((count, found.len(), missing.len()), (704, 715, 30));
    }
    assert_eq!(report["created"], count);
    assert_eq!(
        (&report["updated"], &report["unchanged"]),
        (&0.into(), &0.into())
    );
    assert_eq!(report["skipped"], serde_json::json!([]));
    let remarks = report["problems"].as_array().unwrap();
    let told = remarks
        .iter()
        .filter(|remark| text(remark, "what").contains("is not in the file"));
    assert_eq!(told.count(), missing.len());

    let export = home.export();
    let origins = origins(&export);
    assert_eq!(origins.len(), count);
    let mut there = BTreeSet::new();
    let mut kept = BTreeSet::new();
    for (id, fields) in objects(&export) {
        let Some(from) = origins.get(&id) else {
            continue;
        };
        for (field, value) in &fields {
            let mut parts = field.splitn(3, '/');
            let parts = (parts.next().unwrap(), parts.next(), parts.next());
            let (kind, target) = match parts {
                ("parentId", ..) => ("parent-child", value.as_str().unwrap()),
                ("edge", Some("depends_on"), Some(target)) => ("blocks", target),
                ("edge", Some("discovered_from"), Some(target)) => ("discovered-from", target),
                ("edge", Some("tracks"), Some(target)) => ("tracks", target),
                ("ref", Some(target), _) if target.starts_with("beads:") => {
                    kept.insert((from.clone(), target.trim_start_matches("beads:").to_owned()));
                    continue;
                }
                _ => continue,
            };
            there.insert((from.clone(), kind, origins[target].clone()));
        }
    }
    let mut expected: BTreeSet<_> = found
        .iter()
        .map(|[from, kind, to]| ((*from).to_owned(), *kind, (*to).to_owned()))
        .collect();
    assert!(
        expected.is_subset(&there),
        "{:?}",
        expected.difference(&there)
    );
    // Whoever has no parent by an edge has the one that its field or its dotted id names.
    for issue in &issues.lines {
        let from = name(issue);
        if expected
            .iter()
            .any(|(other, kind, _)| other == from && *kind == "parent-child")
        {
            continue;
        }
        let dotted = from.rsplit_once('.').map(|(stem, _)| stem);
        let parent = issue["parent"].as_str().into_iter().chain(dotted);
        if let Some(parent) = parent
            .into_iter()
            .find(|parent| issues.names().contains(parent))
        {
            expected.insert((from.to_owned(), "parent-child", parent.to_owned()));
        }
    }
    assert_eq!(there, expected);
    let lost: BTreeSet<_> = missing
        .iter()
        .map(|[from, _, to]| ((*from).to_owned(), (*to).to_owned()))
        .collect();
    assert_eq!(kept, lost);
}

#[test]
fn an_import_keeps_titles_texts_statuses_and_priorities() {
    let Imported { home, issues, .. } = Imported::new();
    let export = home.export();
    let origins = origins(&export);
    let titles: BTreeMap<_, _> = home
        .all(&["list", "--status", "any", "-p", "beads"])
        .iter()
        .map(|row| (text(row, "id").to_owned(), row.clone()))
        .collect();
    assert_eq!(titles.len(), issues.lines.len());
    for (id, fields) in objects(&export) {
        let Some(from) = origins.get(&id) else {
            continue;
        };
        let issue = issues.issue(from);
        assert_eq!(titles[&id]["title"], issue["title"], "{from}");
        assert_eq!(titles[&id]["status"], status(issue), "{from}");
        let priority = ["urgent", "high", "medium", "low", "lowest"];
        let rank = issue["priority"].as_u64().unwrap() as usize;
        assert_eq!(titles[&id]["priority"], priority[rank], "{from}");
        let body = fields
            .get("body")
            .and_then(Value::as_str)
            .unwrap_or_default();
        for field in ["description", "design"] {
            assert!(
                body.contains(issue[field].as_str().unwrap_or_default()),
                "{from}"
            );
        }
        let notes = fields
            .get("notes")
            .and_then(Value::as_str)
            .unwrap_or_default();
        assert_eq!(notes, issue["notes"].as_str().unwrap_or_default());
    }
}

#[test]
fn a_second_import_changes_nothing() {
    let imported = Imported::new();
    let before = imported.home.export();
    let changes = imported.home.data(&["doctor"])["counts"]["changes"].clone();
    let again = imported.import(&imported.file);
    assert_eq!(
        (&again["created"], &again["updated"]),
        (&0.into(), &0.into())
    );
    assert_eq!(again["unchanged"], imported.issues.lines.len());
    assert_eq!(imported.home.export(), before);
    assert_eq!(
        imported.home.data(&["doctor"])["counts"]["changes"],
        changes
    );
    // The same through a node.
    let node = imported.home.node();
    let again = imported.import(&imported.file);
    assert_eq!(again["unchanged"], imported.issues.lines.len());
    assert_eq!(imported.home.export(), before);
    drop(node);
}

#[test]
fn a_dry_run_says_what_would_happen_and_writes_nothing() {
    let issues = Issues::load();
    let home = Home::with_project("beads");
    let file = home.file("issues.jsonl", issues.text());
    let before = home.export();
    let args = ["import", "beads", &file, "--project", "beads", "--dry-run"];
    let report = home.data(&args);
    assert_eq!(report["created"], issues.lines.len());
    assert_eq!(report["dryRun"], true);
    assert_eq!(home.export(), before);
    let told = home.run(&args);
    assert!(told.stdout.contains("nothing was written"), "{told:?}");
    // And after it, from stdin.
    let really = home.run_with(
        &["--json", "import", "beads", "-", "-p", "beads"],
        issues.text().as_bytes(),
    );
    assert_eq!(
        really.answer().data(&["import"])["problems"],
        report["problems"]
    );
}

#[test]
fn ready_is_what_a_plain_computation_finds_ready() {
    let Imported { home, issues, .. } = Imported::new();
    let origins = origins(&home.export());
    let rows = home.all(&["ready", "--project", "beads"]);
    let ready: BTreeSet<_> = rows
        .iter()
        .map(|row| origins[text(row, "id")].as_str())
        .collect();
    assert_eq!(ready.len(), rows.len());
    assert_eq!(ready, issues.ready());
    assert!(ready.len() > 10);
    // In the order of priority.
    let order = ["urgent", "high", "medium", "low", "lowest"];
    let ranks: Vec<_> = rows
        .iter()
        .map(|row| {
            order
                .iter()
                .position(|name| *name == text(row, "priority"))
                .unwrap()
        })
        .collect();
    assert!(ranks.is_sorted());
}

#[test]
fn search_finds_what_a_plain_scan_finds() {
    let Imported { home, issues, .. } = Imported::new();
    let origins = origins(&home.export());
    let texts: BTreeMap<&str, String> = issues
        .lines
        .iter()
        .map(|issue| {
            let fields = [
                "title",
                "description",
                "design",
                "acceptance_criteria",
                "notes",
            ];
            let texts = fields.map(|field| issue[field].as_str().unwrap_or_default());
            (name(issue), texts.join("\n").to_lowercase())
        })
        .collect();
    let whole = |word: &str| -> BTreeSet<&str> {
        let words = |text: &str| {
            text.split(|letter: char| !letter.is_alphanumeric())
                .any(|found| found == word)
        };
        texts
            .iter()
            .filter(|(_, text)| words(text))
            .map(|(name, _)| *name)
            .collect()
    };
    let within = |word: &str| -> BTreeSet<&str> {
        texts
            .iter()
            .filter(|(_, text)| text.contains(word))
            .map(|(name, _)| *name)
            .collect()
    };
    // Words that are their own stems, where a word and a part of one are the same issues: there
    // is one right answer, whatever one thinks of stems and of `snake_case`.
    let candidates = [
        "dolt", "mayor", "sqlite", "json", "golang", "wisp", "export", "hook", "molecul",
        "polecat", "convoy", "witness", "branch", "mutex", "socket", "yaml", "regex", "webhook",
        "gastown", "goroutin", "daemon", "flag", "lock", "crew", "github", "jira", "linear",
        "prefix", "audit",
    ];
    let clear: Vec<(&str, BTreeSet<&str>)> = candidates
        .into_iter()
        .map(|word| (word, whole(word)))
        .filter(|(word, found)| !found.is_empty() && *found == within(word))
        .collect();
    assert!(clear.len() >= 4, "{clear:?}");
    let _node = home.node();
    let mut shared = 0;
    for (index, (one, with_one)) in clear.iter().enumerate() {
        for (other, with_other) in &clear[index + 1..] {
            let both: BTreeSet<_> = with_one.intersection(with_other).copied().collect();
            let rows = home.all(&["search", other, one, "--project", "beads"]);
            let found: BTreeSet<_> = rows
                .iter()
                .map(|row| origins[text(row, "id")].as_str())
                .collect();
            assert_eq!(found, both, "{one} {other}");
            shared += usize::from(!both.is_empty());
        }
    }
    assert!(shared >= 2, "no two of the words meet");
    assert_eq!(
        home.data(&["search", "zzyzx", "-p", "beads"])["tasks"],
        serde_json::json!([])
    );
}

/// A tree of an answer as the set of its paths.
fn paths(
    tree: &Value,
    origins: &BTreeMap<String, String>,
    above: &str,
    out: &mut BTreeSet<String>,
) {
    let path = format!("{above}/{}", origins[text(tree, "id")]);
    for child in tree["children"].as_array().unwrap() {
        paths(child, origins, &path, out);
    }
    out.insert(path);
}

fn walk(
    blocks: &BTreeMap<&str, BTreeSet<&str>>,
    from: &str,
    above: &str,
    out: &mut BTreeSet<String>,
) {
    let path = format!("{above}/{from}");
    for next in blocks.get(from).into_iter().flatten() {
        walk(blocks, next, &path, out);
    }
    out.insert(path);
}

#[test]
fn dep_tree_is_what_a_plain_walk_finds() {
    let Imported { home, issues, .. } = Imported::new();
    let _node = home.node();
    let origins = origins(&home.export());
    let ids: BTreeMap<_, _> = origins
        .iter()
        .map(|(id, name)| (name.as_str(), id))
        .collect();
    let blocks = issues.blocks();
    let mut compared = 0;
    for from in blocks.keys() {
        let mut expected = BTreeSet::new();
        walk(&blocks, from, "", &mut expected);
        // Small enough to be answered whole.
        if expected.len() < 2 || expected.len() > 25 || compared == 25 {
            continue;
        }
        let data = home.data(&["dep", "tree", ids[from], "--depth", "30"]);
        assert_eq!(data["cut"], false, "{from}");
        let mut found = BTreeSet::new();
        paths(&data["tree"], &origins, "", &mut found);
        // Below a task that was shown already nothing is repeated.
        let names = |paths: &BTreeSet<String>| -> BTreeSet<String> {
            paths
                .iter()
                .map(|path| path.rsplit('/').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(names(&found), names(&expected), "{from}");
        assert!(found.is_subset(&expected), "{from}: {found:?}");
        compared += 1;
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn an_automerge_export_opens_in_stock_automerge_and_shows_the_same_values() {
    let imported = Imported::new();
    let home = &imported.home;
    // Some history of this node's own on top.
    let id = text(&home.all(&["ready", "-p", "beads"])[0], "id").to_owned();
    home.data(&["update", &id, "--title", "Another title", "--tag", "a,b"]);
    home.data(&["move", &id, "in_progress"]);
    home.data(&["comment", &id, "A remark"]);
    let file = home.beside("board.automerge");
    home.data(&[
        "export",
        "--format",
        "automerge",
        "-p",
        "beads",
        "-o",
        file.to_str().unwrap(),
    ]);
    let document = Automerge::load(&std::fs::read(&file).unwrap()).unwrap();
    let shown: BTreeMap<(String, String), Vec<Value>> = document
        .map_range(automerge::ROOT, ..)
        .flat_map(|bucket| {
            let name = bucket.key.to_string();
            let (_, container) = document
                .get(automerge::ROOT, name.as_str())
                .unwrap()
                .unwrap();
            let keys: Vec<String> = document.keys(&container).collect();
            let document = &document;
            keys.into_iter().map(move |key| {
                let (id, field) = key.split_once('/').unwrap();
                let all = document.get_all(&container, key.as_str()).unwrap();
                let values = all
                    .iter()
                    .map(|(value, _)| json_of(value.as_scalar().unwrap()));
                ((id.to_owned(), field.to_owned()), values.collect())
            })
        })
        .collect();
    let mut ours = BTreeMap::new();
    let mut document_of_tasks = None;
    for line in home.text(&["export", "-p", "beads"]).lines() {
        let object: Value = serde_json::from_str(line).unwrap();
        let fields = object["fields"].as_object().unwrap();
        // The project itself is kept in the workspace's document, not in its own.
        if fields["kind"][0]["value"] == "project" {
            continue;
        }
        document_of_tasks.get_or_insert(object["document"].clone());
        assert_eq!(document_of_tasks.as_ref(), Some(&object["document"]));
        for (field, values) in fields {
            let values = values
                .as_array()
                .unwrap()
                .iter()
                .map(|value| value["value"].clone());
            ours.insert(
                (text(&object, "id").to_owned(), field.clone()),
                values.collect(),
            );
        }
    }
    assert_eq!(shown, ours);
    assert!(shown.len() > imported.issues.lines.len() * 5);
}

fn json_of(value: &automerge::ScalarValue) -> Value {
    use automerge::ScalarValue as Scalar;
    match value {
        Scalar::Str(text) => text.as_str().into(),
        Scalar::Int(number) => (*number).into(),
        Scalar::Uint(number) => (*number).into(),
        Scalar::F64(number) => (*number).into(),
        Scalar::Boolean(yes) => (*yes).into(),
        Scalar::Null => Value::Null,
        other => panic!("{other:?} is in no document of ours"),
    }
}

#[test]
fn a_beads_export_imports_elsewhere_with_equal_titles_statuses_and_edges() {
    let imported = Imported::new();
    let file = imported.home.beside("out.jsonl");
    let args = [
        "export",
        "--format",
        "beads",
        "-p",
        "beads",
        "-o",
        file.to_str().unwrap(),
    ];
    imported.home.data(&args);
    let other = Home::with_project("beads");
    let report = other.data(&["import", "beads", file.to_str().unwrap(), "-p", "beads"]);
    assert_eq!(report["created"], imported.issues.lines.len());
    assert_eq!(report["skipped"], serde_json::json!([]));
    // Everything that has an id is named by what it was there.
    let seen = |home: &Home| -> BTreeMap<String, BTreeMap<String, Value>> {
        let export = home.export();
        let origins = origins(&export);
        let named = |(id, fields): (String, BTreeMap<String, Value>)| {
            let fields = fields.into_iter().filter_map(|(field, value)| {
                let wanted = ["title", "status", "priority", "body", "notes", "parentId"];
                if let Some((edge, target)) = field
                    .rsplit_once('/')
                    .filter(|_| field.starts_with("edge/"))
                {
                    return Some((format!("{edge}/{}", origins[target]), value));
                }
                let value = if field == "parentId" {
                    origins[value.as_str()?].as_str().into()
                } else {
                    value
                };
                (wanted.contains(&field.as_str()) || field.starts_with("tag/"))
                    .then_some((field, value))
            });
            Some((origins.get(&id)?.clone(), fields.collect()))
        };
        objects(&export).into_iter().filter_map(named).collect()
    };
    let (here, there) = (seen(&imported.home), seen(&other));
    for (name, fields) in &here {
        assert_eq!(there.get(name), Some(fields), "{name}");
    }
    assert_eq!(here.len(), there.len());
}

#[test]
fn an_import_again_keeps_what_was_changed_here_and_takes_what_was_changed_there() {
    let mut imported = Imported::new();
    let origins = origins(&imported.home.export());
    let mut random = Random(5);
    let names: Vec<String> = imported
        .issues
        .names()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let mine = names[random.below(names.len() as u64 / 2) as usize].clone();
    let theirs = names[names.len() / 2 + random.below(names.len() as u64 / 2) as usize].clone();
    let id_of = |name: &str| {
        origins
            .iter()
            .find(|(_, other)| *other == name)
            .unwrap()
            .0
            .clone()
    };
    let (my_id, their_id) = (id_of(&mine), id_of(&theirs));
    let home = &imported.home;
    home.data(&["update", &my_id, "--title", "Mine"]);
    for issue in &mut imported.issues.lines {
        if name(issue) == mine {
            issue["title"] = "Theirs of mine".into();
            issue["description"] = "Their new text of mine".into();
        }
        if name(issue) == theirs {
            issue["title"] = "Theirs".into();
        }
    }
    let changed = home.file("changed.jsonl", imported.issues.text());
    let report = imported.import(&changed);
    assert_eq!(report["created"], 0);
    assert_eq!(report["updated"], 2);
    assert_eq!(report["unchanged"], imported.issues.lines.len() - 2);
    assert_eq!(
        report["keptHere"],
        serde_json::json!([{ "id": my_id, "fields": ["title"] }])
    );
    let (my_task, their_task) = (home.task(&my_id), home.task(&their_id));
    assert_eq!(my_task["title"], "Mine");
    assert!(text(&my_task, "body").contains("Their new text of mine"));
    assert_eq!(their_task["title"], "Theirs");
    // And once more: settled.
    let again = imported.import(&changed);
    assert_eq!(again["unchanged"], imported.issues.lines.len(), "{again}");
    assert_eq!(imported.home.task(&my_id)["title"], "Mine");
}

#[test]
fn what_cannot_be_read_is_told_line_by_line_and_keeps_nothing_else_out() {
    let home = Home::with_project("web");
    let file = home.file(
        "mixed.jsonl",
        "{\"id\":\"a\",\"title\":\"One\"}\nnonsense\n[]\n{\"title\":\"no id\"}\n\n{\"id\":\"b\",\"title\":\"Two\",\"status\":\"odd\"}\n\
         {\"id\":\"a\",\"title\":\"One again\"}\n\u{0}\n",
    );
    let report = home.data(&["import", "beads", &file, "-p", "web"]);
    assert_eq!(report["created"], 2);
    let lines: Vec<_> = report["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|skip| skip["line"].clone())
        .collect();
    assert_eq!(lines.len(), 5, "{report}");
    for line in [1, 2, 3, 4, 8] {
        assert!(lines.contains(&line.into()), "line {line}: {report}");
    }
    assert!(report["problems"].to_string().contains("odd"), "{report}");
    let titles: BTreeSet<_> = home
        .all(&["list"])
        .iter()
        .map(|row| text(row, "title").to_owned())
        .collect();
    assert_eq!(
        titles,
        BTreeSet::from(["One again".to_owned(), "Two".to_owned()])
    );
    let unknown = home.refused(&["import", "beads", &file, "-p", "nope"]);
    assert_eq!(unknown["code"], "UNKNOWN_PROJECT");
    assert_eq!(unknown["knownProjects"], serde_json::json!(["web"]));
}
