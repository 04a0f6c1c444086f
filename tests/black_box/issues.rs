//! The real export that imports are tested on, and a plain reading of it that shares no code with
//! Stead.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::stead::Random;

/// The issues of a file.
#[derive(Debug)]
pub(crate) struct Issues {
    /// Whether it is the real one.
    pub(crate) real: bool,
    pub(crate) lines: Vec<Value>,
}

impl Issues {
    /// The real file where it is beside the checkout or where `STEAD_BEADS` says; else generated
    /// issues of the same shapes, so that a stranger's clone tests the same rules.
    pub(crate) fn load() -> Self {
        let beside: PathBuf = std::env::var_os("STEAD_BEADS").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/beads-704.jsonl"),
            PathBuf::from,
        );
        match std::fs::read_to_string(&beside) {
            Ok(text) => Self {
                real: true,
                lines: text
                    .lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect(),
            },
            Err(error) => {
                // Straight to stderr, past what the harness keeps to itself: nobody should take
                // this for the real file.
                let note = format!(
                    "NOTE: {} cannot be read ({error}); generated issues stand in for it\n",
                    beside.display()
                );
                std::io::stderr().write_all(note.as_bytes()).unwrap();
                Self::generated(120)
            }
        }
    }

    /// Issues of the shapes that the real file has.
    pub(crate) fn generated(count: u64) -> Self {
        let mut random = Random(704);
        let name = |n: u64| {
            if n % 10 == 3 {
                format!("bd-g{}.{n}", n - 3)
            } else {
                format!("bd-g{n}")
            }
        };
        let words = [
            "dolt", "mayor", "sqlite", "branch", "json", "golang", "export", "wisp",
        ];
        let lines = (0..count)
            .map(|n| {
                let status = ["closed", "open", "open", "in_progress", "hooked", "pinned"]
                    [random.below(6) as usize];
                let kind = ["task", "epic", "bug", "feature", "agent", "chore"][random.below(6) as usize];
                let mut edges = Vec::new();
                let mut edge = |target: String, kind: &str| {
                    edges.push(json!({"issue_id": name(n), "depends_on_id": target, "type": kind,
                        "created_at": "2026-02-27T19:42:48Z", "created_by": "mayor", "metadata": "{}"}));
                };
                if n > 2 && n % 2 == 0 {
                    edge(name(random.below(n)), "blocks");
                }
                if n > 5 && n % 7 == 0 {
                    edge(name(n - 5), "parent-child");
                }
                if n > 5 && n % 11 == 0 {
                    edge(name(n - 1), "discovered-from");
                }
                if n % 13 == 0 {
                    edge(format!("bd-wisp-{n}"), "blocks");
                }
                if n % 17 == 0 {
                    edge("external:gastown:gt-5kjn".to_owned(), "tracks");
                }
                let mut text: Vec<&str> = Vec::new();
                for _ in 0..12 {
                    text.push(words[random.below(8) as usize]);
                }
                json!({"id": name(n), "title": format!("Issue {n} – {}", text[0]), "status": status,
                    "priority": random.below(5), "issue_type": kind, "description": text.join(" "),
                    "created_at": "2026-02-27T19:42:48Z", "updated_at": "2026-02-28T19:42:48Z",
                    "labels": ["gt:merge-request"], "dependencies": edges, "owner": "owner@example.com",
                    "close_reason": if status == "closed" { "merged" } else { "" },
                    "assignee": "beads/polecats/obsidian", "comment_count": 0})
            })
            .collect();
        Self { real: false, lines }
    }

    /// The file itself.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub(crate) fn names(&self) -> BTreeSet<&str> {
        self.lines.iter().map(name).collect()
    }

    /// Every edge of the file as (from, its type there, to): those whose target is in the file,
    /// and those whose target is not.
    pub(crate) fn edges(&self) -> (BTreeSet<[&str; 3]>, BTreeSet<[&str; 3]>) {
        let names = self.names();
        let all = self.lines.iter().flat_map(|issue| {
            let edges = issue["dependencies"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            edges.iter().map(|edge| {
                [
                    name(issue),
                    edge["type"].as_str().unwrap(),
                    edge["depends_on_id"].as_str().unwrap(),
                ]
            })
        });
        all.partition(|[_, _, target]| names.contains(target))
    }

    /// What each issue waits for, as far as it is in the file.
    pub(crate) fn blocks(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut blocks: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for [from, kind, to] in self.edges().0 {
            if kind == "blocks" {
                blocks.entry(from).or_default().insert(to);
            }
        }
        blocks
    }

    pub(crate) fn issue(&self, wanted: &str) -> &Value {
        self.lines
            .iter()
            .find(|issue| name(issue) == wanted)
            .unwrap()
    }

    /// What can be taken up: neither closed nor under way, and nothing that it waits for is open.
    pub(crate) fn ready(&self) -> BTreeSet<&str> {
        let blocks = self.blocks();
        self.lines
            .iter()
            .filter(|issue| status(issue) == "ready")
            .map(name)
            .filter(|name| {
                let mut waits = blocks.get(name).into_iter().flatten();
                waits.all(|other| status(self.issue(other)) == "done")
            })
            .collect()
    }
}

pub(crate) fn name(issue: &Value) -> &str {
    issue["id"].as_str().unwrap()
}

/// The status here of an issue there.
pub(crate) fn status(issue: &Value) -> &'static str {
    match issue["status"].as_str().unwrap() {
        "closed" => "done",
        "in_progress" => "in_progress",
        _ => "ready",
    }
}
