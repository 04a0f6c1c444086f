//! Many processes at once.

use std::collections::BTreeSet;

use serde_json::json;

use crate::stead::{Home, Running, text};

#[test]
fn processes_that_create_at_once_without_a_node_all_succeed() {
    let home = Home::with_project("web");
    let running: Vec<_> = (0..8)
        .map(|n| {
            let title = format!("t{n}");
            Running::spawn(
                home.command(&["--json", "create", &title, "-p", "web"]),
                b"",
            )
        })
        .collect();
    for one in running {
        let answer = one.finish().answer();
        assert_eq!(answer.code, 0, "{answer:?}");
    }
    let mut titles: Vec<_> = home
        .all(&["list"])
        .iter()
        .map(|row| text(row, "title").to_owned())
        .collect();
    titles.sort();
    assert_eq!(titles, ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"]);
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

/// Claims from several processes at once; the ids that came back.
fn claim_at_once(home: &Home, processes: usize) -> Vec<Option<String>> {
    let running: Vec<_> = (0..processes)
        .map(|n| {
            let agent = format!("a{}", n % 3);
            let args = ["--json", "--agent", &agent, "claim", "--project", "web"];
            Running::spawn(home.command(&args), b"")
        })
        .collect();
    running
        .into_iter()
        .map(|one| {
            let data = one.finish().answer().data(&["claim"]);
            data["task"]["id"].as_str().map(str::to_owned)
        })
        .collect()
}

fn with_agents(tasks: usize) -> Home {
    let home = Home::with_project("web");
    for agent in ["a0", "a1", "a2"] {
        home.data(&["agent", "add", agent, "--local"]);
    }
    for n in 0..tasks {
        home.create("web", &format!("t{n}"), &[]);
    }
    home
}

#[test]
fn no_task_goes_to_two_callers_of_one_node() {
    let home = with_agents(4);
    let node = home.node();
    let claimed: Vec<_> = claim_at_once(&home, 6).into_iter().collect();
    let taken: Vec<_> = claimed.iter().flatten().collect();
    assert_eq!(taken.len(), 4, "{claimed:?}");
    assert_eq!(
        taken.iter().collect::<BTreeSet<_>>().len(),
        4,
        "{claimed:?}"
    );
    let nothing = home.data(&["claim", "--project", "web"]);
    assert_eq!(nothing["task"], json!(null));
    assert!(nothing["why"].is_object(), "{nothing}");
    for id in taken {
        let task = home.task(id);
        assert_eq!(task["status"], "in_progress");
        assert!(task["assignee"].is_object(), "{task}");
        assert!(task["lease"].is_object(), "{task}");
    }
    drop(node);
}

#[test]
fn no_task_goes_to_two_callers_without_a_node_either() {
    let home = with_agents(4);
    let claimed = claim_at_once(&home, 6);
    let taken: BTreeSet<_> = claimed.iter().flatten().collect();
    assert_eq!(taken.len(), 4, "{claimed:?}");
    assert_eq!(claimed.iter().flatten().count(), 4);
}

#[test]
fn one_task_that_many_claim_goes_to_one() {
    let home = with_agents(1);
    let node = home.node();
    let task = home.all(&["ready"])[0].clone();
    let id = text(&task, "id");
    let running: Vec<_> = (0..3)
        .map(|n| {
            let agent = format!("a{n}");
            Running::spawn(
                home.command(&["--json", "--agent", &agent, "claim", id]),
                b"",
            )
        })
        .collect();
    let answers: Vec<_> = running
        .into_iter()
        .map(|one| one.finish().answer())
        .collect();
    let won = answers.iter().filter(|answer| answer.code == 0).count();
    assert_eq!(won, 1, "{answers:?}");
    for answer in answers {
        if answer.code != 0 {
            assert_eq!(answer.refused(&["claim"])["code"], "CLAIMED");
        }
    }
    drop(node);
}

#[test]
fn an_import_beside_writers_ends_with_all_of_both() {
    let home = Home::with_project("web");
    let node = home.node();
    let issues: String = (0..300)
        .map(|n| format!("{{\"id\":\"i{n}\",\"title\":\"imported {n}\"}}\n"))
        .collect();
    let file = home.file("issues.jsonl", issues);
    let import = Running::spawn(
        home.command(&["--json", "import", "beads", &file, "-p", "web"]),
        b"",
    );
    let creating: Vec<_> = (0..6)
        .map(|n| {
            let title = format!("created {n}");
            Running::spawn(
                home.command(&["--json", "create", &title, "-p", "web"]),
                b"",
            )
        })
        .collect();
    let backup = home.beside("kept.stead");
    home.data(&["backup", backup.to_str().unwrap()]);
    for one in creating {
        assert_eq!(one.finish().answer().code, 0);
    }
    assert_eq!(import.finish().answer().data(&["import"])["created"], 300);
    assert_eq!(home.all(&["list"]).len(), 306);
    // What was saved in the middle is whole, whatever it holds.
    let other = home.beside("restored");
    let other = other.to_str().unwrap();
    home.data(&["--home", other, "restore", backup.to_str().unwrap()]);
    assert_eq!(home.data(&["--home", other, "doctor"])["ok"], true);
    drop(node);
}

/// The first search builds the index of what was written last. A write that was on its way just
/// then used to be in neither: answered, and found by no search until the next start.
#[test]
fn a_search_finds_what_was_on_its_way_while_the_first_search_ran() {
    for round in 0..4 {
        let home = Home::with_project("web");
        let node = home.node();
        let word = |writer: usize, turn: usize| format!("w{writer}t{turn}x");
        let search = |q: &str| {
            let arguments = json!({ "projectId": "web", "q": q });
            node.data("task_search", arguments)["tasks"].take()
        };
        let (began, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for writer in 0..6 {
                let (node, began) = (&node, began.clone());
                scope.spawn(move || {
                    for turn in 0..6 {
                        let title = word(writer, turn);
                        let create =
                            json!({ "action": "create", "projectId": "web", "title": title });
                        node.data("task_mutate", create);
                        began.send(()).unwrap();
                    }
                });
            }
            // The others go on writing while this is answered.
            begun.recv().unwrap();
            search("anything");
        });
        for writer in 0..6 {
            for turn in 0..6 {
                let title = word(writer, turn);
                assert_eq!(search(&title)[0]["title"], title, "round {round}");
            }
        }
    }
}
