//! The command line's grammar: what goes in, what comes out, and the exit code.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::stead::{Home, finished, text};

fn titles(data: &Value) -> BTreeSet<String> {
    let rows = data["tasks"].as_array().unwrap();
    rows.iter()
        .map(|row| text(row, "title").to_owned())
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn filters_take_several_values_with_commas_or_repeated_and_never_override_one_another() {
    let home = Home::with_project("web");
    home.create(
        "web",
        "a",
        &["--status", "ready", "--tag", "x", "--type", "bug"],
    );
    home.create(
        "web",
        "b",
        &["--status", "review", "--tag", "y", "--type", "feature"],
    );
    home.create(
        "web",
        "c",
        &["--status", "in_progress", "--tag", "x,y", "--type", "epic"],
    );
    home.create("web", "d", &["--status", "done", "--type", "task"]);
    let list = |args: &[&str]| titles(&home.data(&[&["list"][..], args].concat()));
    let expected = set(&["a", "b"]);
    assert_eq!(list(&["--status", "ready,review"]), expected);
    assert_eq!(list(&["--status", "ready", "--status", "review"]), expected);
    assert_eq!(
        list(&["--status=ready", "--status=review,done"]),
        set(&["a", "b", "d"])
    );
    assert_eq!(list(&["--type", "bug,feature"]), expected);
    assert_eq!(list(&["--type", "bug", "--type", "epic"]), set(&["a", "c"]));
    assert_eq!(list(&["--tag", "x"]), set(&["a", "c"]));
    let both = list(&["--tag", "x,y"]);
    assert_eq!(list(&["--tag", "x", "--tag", "y"]), both);
    // Filters of different kinds all hold.
    assert_eq!(list(&["--tag", "x", "--status", "ready"]), set(&["a"]));
    assert_eq!(
        list(&["--tag", "x", "--type", "bug", "--status", "review"]),
        set(&[])
    );
}

#[test]
fn a_unique_beginning_of_an_id_is_enough_to_read_and_never_to_write() {
    let home = Home::with_project("web");
    let made: Vec<String> = (0..40)
        .map(|n| text(&home.create("web", &format!("t{n}"), &[]), "id").to_owned())
        .collect();
    let id = &made[0];
    let length = (3..=12).find(|length| {
        made.iter()
            .filter(|other| other.starts_with(&id[..*length]))
            .count()
            == 1
    });
    let beginning = &id[..length.unwrap()];
    assert_eq!(home.task(beginning)["id"], *id);
    for args in [
        &["history", beginning][..],
        &["dep", "tree", beginning],
        &["show", beginning, &made[1]],
    ] {
        home.data(args);
    }
    // Some two of forty ids begin alike.
    let shared = (1..=2).rev().find_map(|length| {
        let one = made.iter().find(|one| {
            made.iter()
                .filter(|other| other[..length] == one[..length])
                .count()
                > 1
        });
        one.map(|one| one[..length].to_owned())
    });
    let shared = shared.unwrap();
    let error = home.refused(&["show", &shared]);
    assert!(
        ["INVALID_ID", "INVALID_ARGUMENT", "UNKNOWN_ID"].contains(&text(&error, "code")),
        "{error}"
    );
    let before = home.export();
    for args in [
        &["update", beginning, "--title", "x"][..],
        &["move", beginning, "done"],
        &["close", beginning],
        &["comment", beginning, "x"],
        &["claim", beginning],
        &["release", beginning],
        &["block", beginning, "--reason", "x"],
        &["unblock", beginning],
        &["archive", beginning],
        &["dep", "add", &made[1], beginning],
        &["dep", "add", beginning, &made[1]],
        &["sprint", "assign", beginning, "none"],
        &["resolve", beginning, "title", "--value", "x"],
        &["update", &made[1], "--parent", beginning],
    ] {
        let error = home.refused(args);
        assert_eq!(error["code"], "INVALID_ID", "{args:?}: {error}");
    }
    assert_eq!(home.export(), before);
}

#[test]
fn a_mistyped_id_is_invalid_and_a_strange_one_unknown() {
    let home = Home::with_project("web");
    let other = Home::with_project("web");
    let id = text(&home.create("web", "x", &[]), "id").to_owned();
    let last = if id.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &id[..12]);
    assert_eq!(home.refused(&["show", &mistyped])["code"], "INVALID_ID");
    assert_eq!(
        home.refused(&["update", &mistyped, "--title", "y"])["code"],
        "INVALID_ID"
    );
    let foreign = text(&other.create("web", "x", &[]), "id").to_owned();
    assert_eq!(home.refused(&["show", &foreign])["code"], "UNKNOWN_ID");
    assert_eq!(
        home.refused(&["update", &foreign, "--title", "y"])["code"],
        "UNKNOWN_ID"
    );
    let two = home.data(&["show", &id, &foreign]);
    assert_eq!(
        two["missing"],
        json!([{"id": foreign, "why": "UNKNOWN_ID"}])
    );
}

#[test]
fn long_texts_come_from_stdin_or_a_file() {
    let home = Home::with_project("web");
    let story = "Line one\n\n  line two — ümläut 漢字 🎉\n";
    let file = home.file("story.md", story);
    let create = |body: &str, stdin: &[u8]| {
        let args = ["--json", "create", "x", "-p", "web", "--body", body];
        let made = home.run_with(&args, stdin).answer().data(&args);
        made["task"]["body"].as_str().unwrap().to_owned()
    };
    let kept = story.trim_end_matches('\n');
    assert_eq!(create(&format!("@{file}"), b""), kept);
    assert_eq!(create("@story.md", b""), kept);
    assert_eq!(create("-", story.as_bytes()), kept);
    assert_eq!(create("@@literal", b""), "@literal");
    let task = home.create("web", "y", &[]);
    let id = text(&task, "id");
    let args = ["--json", "comment", id, "-"];
    home.run_with(&args, b"From stdin\n").answer().data(&args);
    home.data(&["close", id, "--reason", &format!("@{file}")]);
    let task = home.task(id);
    assert_eq!(
        (&task["comments"][0]["body"], &task["result"]),
        (&json!("From stdin"), &json!(kept))
    );
    // A file that is not there, two texts from one stdin, and bytes that are no text.
    assert_eq!(
        home.json(&["create", "x", "-p", "web", "--body", "@nowhere"])
            .code,
        2
    );
    assert_eq!(
        home.json(&["create", "x", "-p", "web", "--body", "-", "--notes", "-"])
            .code,
        2
    );
    let args = ["--json", "create", "x", "-p", "web", "--body", "-"];
    assert_eq!(home.run_with(&args, b"\xff\xfe").answer().code, 2);
}

#[test]
fn exit_codes_tell_success_refusal_usage_and_trouble_apart() {
    let home = Home::with_project("web");
    let id = text(&home.create("web", "x", &[]), "id").to_owned();
    for (code, args) in [
        (0, &["list"][..]),
        (0, &["show", &id]),
        (0, &["list", "--status", "done"]),
        (0, &["doctor"]),
        (1, &["list", "-p", "nope"]),
        (1, &["show", "zzzzz"]),
        (1, &["move", &id, "nonsense"]),
        (1, &["list", "--status", "nonsense"]),
        (2, &["nonsense"]),
        (2, &["list", "--nonsense"]),
        (2, &["list", "--limit", "0"]),
        (2, &["list", "--limit", "201"]),
        (2, &["update", &id]),
        (2, &["create"]),
        (2, &["claim"]),
        (2, &["claim", &id, "--lease", "1"]),
        (2, &["close", &id, "--abandon"]),
        (2, &["dep"]),
        (2, &["import", "beads", "/nonexistent", "-p", "web"]),
        (2, &["batch", "/nonexistent"]),
        (2, &["export", "--format", "automerge", "-p", "web"]),
        (3, &["node", "status"]),
        (3, &["--home", "/nonexistent/home", "list"]),
        (3, &["restore", "/nonexistent"]),
    ] {
        let human = home.run(args);
        assert_eq!(human.code, code, "{args:?}: {human:?}");
        assert!(
            !(human.stderr.is_empty() && human.stdout.is_empty()),
            "{args:?} says nothing"
        );
        if code != 0 {
            assert_eq!(human.stdout, "", "{args:?}");
        }
        let program = home.json(args);
        assert_eq!(program.code, code, "{args:?}: {program:?}");
        if code != 0 {
            program.failed(code, args);
        }
    }
}

#[test]
fn usage_errors_are_json_with_json_and_nothing_else_is_on_stdout() {
    let home = Home::fresh();
    for args in [
        &["nonsense"][..],
        &["list", "--nonsense"],
        &["create"],
        &["claim", "a", "-p", "b"],
        &["list", "--limit", "x"],
        &["completions", "nonsense"],
        &["\u{1b}[31m"],
        &["export"],
    ] {
        let error = home.json(args);
        let code = error.code;
        let error = error.failed(code, args);
        if args != ["export"] {
            assert_eq!(code, 2, "{args:?}");
            assert_eq!(error["code"], "INVALID_ARGUMENT");
        }
        // Wherever it stands.
        let late = home.run(&[args, &["--json"]].concat());
        assert_eq!(late.code, code);
        assert!(late.stdout.starts_with("{\"ok\":false,"), "{late:?}");
        assert!(!late.stdout.contains('\u{1b}'));
    }
}

#[test]
fn json_answers_are_one_line_with_ok_and_data_or_error() {
    let home = Home::with_project("web");
    let id = text(&home.create("web", "x", &["--body", "a\nb"]), "id").to_owned();
    for args in [
        &["list"][..],
        &["ready"],
        &["search", "x"],
        &["show", &id],
        &["history", &id],
        &["conflicts"],
        &["dep", "tree", &id],
        &["project", "list"],
        &["member", "list"],
        &["agent", "list"],
        &["sprint", "list", "-p", "web"],
        &["doctor"],
        &["compact"],
        &["node", "unit"],
        &["completions", "bash"],
        &["claim", "--project", "web"],
        &["release", &id],
    ] {
        let ran = home.run(&[&["--json"][..], args].concat());
        assert_eq!(
            (ran.code, ran.stderr.as_str()),
            (0, ""),
            "{args:?}: {ran:?}"
        );
        assert_eq!(ran.stdout.lines().count(), 1, "{args:?}");
        assert!(ran.stdout.starts_with("{\"ok\":true,\"data\":{"), "{ran:?}");
    }
}

#[test]
fn there_is_no_colour_where_nobody_looks() {
    let home = Home::with_project("web");
    let id = text(&home.create("web", "x", &["--priority", "urgent"]), "id").to_owned();
    for args in [
        &["list"][..],
        &["show", &id],
        &["history", &id],
        &["show", "zzzz"],
        &["nonsense"],
        &["--help"],
        &["doctor"],
        &["project", "list"],
    ] {
        for variable in [
            None,
            Some("NO_COLOR"),
            Some("CLICOLOR_FORCE"),
            Some("FORCE_COLOR"),
        ] {
            let mut command = home.command(args);
            command.env("TERM", "xterm-256color");
            if let Some(variable) = variable {
                command.env(variable, "1");
            }
            let ran = finished(command, b"");
            // Who asks the parser for colour gets it from the parser alone.
            if variable != Some("CLICOLOR_FORCE") {
                assert!(
                    !ran.stdout.contains('\u{1b}') && !ran.stderr.contains('\u{1b}'),
                    "{args:?} {variable:?}: {ran:?}"
                );
            }
        }
    }
}

#[test]
fn what_somebody_wrote_cannot_act_on_a_terminal() {
    let home = Home::with_project("web");
    let hostile =
        "\u{1b}[31mred\u{1b}]0;title\u{7} \u{202e}desrever\u{2066} \u{200b}\u{feff}\u{9b}2J end";
    let acting = |text: &str| {
        text.chars().find(|letter| {
            (letter.is_control() && *letter != '\n' && *letter != '\t')
                || ('\u{202a}'..='\u{202e}').contains(letter)
                || ('\u{2066}'..='\u{2069}').contains(letter)
                || ['\u{200b}', '\u{feff}'].contains(letter)
        })
    };
    // A title with control characters is refused; the node keeps what is only strange.
    let refused = home.json(&["create", hostile, "-p", "web"]);
    let title = if refused.code == 0 {
        hostile
    } else {
        "\u{202e}desrever\u{2066} \u{200b}\u{feff} end"
    };
    let made = home.json(&[
        "create",
        title,
        "-p",
        "web",
        "--body",
        hostile,
        "--notes",
        hostile,
        "--tag",
        "t\u{202e}ag",
        "--criterion",
        "\u{202e}c",
        "--state",
        "k=\u{202e}v",
        "--branch",
        "\u{202e}b",
    ]);
    assert_eq!(made.code, 0, "{made:?}");
    let id = text(&made.body["data"]["task"], "id").to_owned();
    assert_eq!(home.task(&id)["title"], title);
    home.data(&["comment", &id, hostile]);
    home.data(&["block", &id, "--reason", "\u{202e}why"]);
    home.data(&["--by", "\u{202e}who", "unblock", &id]);
    let old = text(&made.body["data"]["task"], "revision").to_owned();
    home.data(&["project", "add", "odd", "--name", "\u{202e}odd"]);
    let sprint = home.data(&["sprint", "create", "\u{202e}s", "-p", "web"])["sprint"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    home.data(&["sprint", "activate", &sprint]);
    for args in [
        &["list"][..],
        &["list", "--json"],
        &["search", "end"],
        &["ready"],
        &["show", &id],
        &["show", &id, "--json"],
        &["show", &id, "--view", "brief"],
        &["history", &id],
        &["dep", "tree", &id],
        &["update", &id, "--title", "x", "--revision", &old],
        &["update", &id, "--title", "x", "--revision", &old, "--json"],
        &["project", "list"],
        &["sprint", "list", "-p", "web"],
        &["sprint", "show", &sprint],
        &["move", &id, "\u{1b}[31m"],
        &["list", "-p", "\u{1b}[31m"],
        &["show", "\u{1b}[31m"],
        &["\u{1b}[31m\u{202e}"],
        &["list", "--limit", "\u{1b}[31m"],
        &["export", "-o", "\u{202e}file"],
    ] {
        let ran = home.run(args);
        assert_eq!(acting(&ran.stdout), None, "{args:?}: {ran:?}");
        assert_eq!(acting(&ran.stderr), None, "{args:?}: {ran:?}");
    }
    // What imports bring is no better.
    let file = home.file(
        "odd.jsonl",
        json!({"id": "\u{202e}odd", "title": hostile, "status": hostile, "labels": [hostile]})
            .to_string(),
    );
    let ran = home.run(&["import", "beads", &file, "-p", "web"]);
    assert_eq!(
        (acting(&ran.stdout), acting(&ran.stderr)),
        (None, None),
        "{ran:?}"
    );
}

#[test]
fn every_shell_has_its_completions() {
    let home = Home::fresh();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.text(&["completions", shell]);
        assert!(
            script.contains("stead") && script.contains("doctor"),
            "{shell}"
        );
        assert_eq!(
            home.data(&["completions", shell])["script"],
            script.as_str()
        );
    }
    assert!(!home.path().exists(), "nothing is made");
}

/// The commands that a help text lists.
fn listed(help: &str) -> Vec<String> {
    let Some((_, after)) = help.split_once("Commands:\n") else {
        return Vec::new();
    };
    after
        .lines()
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_command_has_help() {
    let home = Home::fresh();
    let mut open = vec![Vec::new()];
    let mut seen = BTreeSet::new();
    while let Some(path) = open.pop() {
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let help = home.run(&args);
        assert_eq!((help.code, help.stderr.as_str()), (0, ""), "{path:?}");
        assert!(
            help.stdout.contains("Usage: stead"),
            "{path:?}: {}",
            help.stdout
        );
        args.pop();
        args.push("-h");
        assert_eq!(home.run(&args).code, 0);
        for name in listed(&help.stdout) {
            open.push([path.clone(), vec![name]].concat());
        }
        seen.insert(path.join(" "));
    }
    // Everything that the issue and SURFACE.md name so far.
    for name in [
        "up",
        "init",
        "create",
        "list",
        "ready",
        "search",
        "show",
        "update",
        "move",
        "claim",
        "release",
        "close",
        "comment",
        "block",
        "unblock",
        "dep add",
        "dep rm",
        "dep tree",
        "sprint create",
        "sprint list",
        "sprint show",
        "sprint update",
        "sprint assign",
        "sprint activate",
        "sprint complete",
        "history",
        "conflicts",
        "resolve",
        "archive",
        "batch",
        "project add",
        "project list",
        "member add",
        "member list",
        "agent add",
        "agent list",
        "agent revoke",
        "import beads",
        "export",
        "backup",
        "restore",
        "doctor",
        "compact",
        "node run",
        "node status",
        "node stop",
        "node unit",
        "completions",
    ] {
        assert!(seen.contains(name), "no {name} in {seen:?}");
    }
    assert!(!home.path().exists(), "nothing is made");
    let none = home.run(&[]);
    assert_eq!(none.code, 2);
    assert!(none.stderr.contains("Usage: stead"), "{none:?}");
}

#[test]
fn it_says_its_version() {
    let home = Home::fresh();
    let said = format!("stead {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(home.text(&["--version"]), said);
    assert_eq!(home.text(&["-V"]), said);
}

#[test]
fn an_empty_list_is_no_failure_and_says_what_to_do() {
    let home = Home::with_project("web");
    for args in [
        &["list"][..],
        &["ready"],
        &["search", "nothing"],
        &["conflicts"],
        &["agent", "list"],
        &["sprint", "list", "-p", "web"],
        &["claim", "--project", "web"],
    ] {
        let ran = home.run(args);
        assert_eq!((ran.code, ran.stdout.trim()), (0, ""), "{args:?}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{args:?}");
        assert_eq!(home.json(args).code, 0);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = Home::with_project("web");
    let issues: String = (0..400)
        .map(|n| format!("{{\"id\":\"i{n}\",\"title\":\"{}\"}}\n", "long ".repeat(60)))
        .collect();
    let file = home.file("issues.jsonl", issues);
    home.data(&["import", "beads", &file, "-p", "web"]);
    let mut child = home.command(&["export"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_large_answer_is_cut_and_goes_on() {
    let home = Home::with_project("web");
    let body = "0123456789".repeat(2_000);
    let file = home.file("body", &body);
    let id = text(
        &home.create("web", "Long", &["--body", &format!("@{file}")]),
        "id",
    )
    .to_owned();
    let mut whole = String::new();
    let mut offset = "0".to_owned();
    for _ in 0..20 {
        let task = home.data(&["show", &id, "--body-offset", &offset])["task"].take();
        let part = text(&task, "body");
        assert!(part.len() <= 6_000);
        whole.push_str(part);
        match task["bodyNext"].as_u64() {
            Some(next) => offset = next.to_string(),
            None => break,
        }
    }
    assert_eq!(whole, body);
}

#[test]
fn a_text_at_its_limit_is_kept_and_one_over_it_is_refused() {
    let home = Home::with_project("web");
    let over = home.file("over", "x".repeat(200_001));
    let at = home.file("at", "x".repeat(200_000));
    let task = home.create("web", "At", &["--body", &format!("@{at}")]);
    assert_eq!(
        home.json(&["create", "Over", "-p", "web", "--body", &format!("@{over}")])
            .refused(&["create"])["code"],
        "TOO_LARGE"
    );
    let id = text(&task, "id");
    assert_eq!(
        home.json(&["comment", id, &format!("@{over}")])
            .refused(&["comment"])["code"],
        "TOO_LARGE"
    );
    let export = home.export();
    assert!(export.contains(&"x".repeat(200_000)));
    assert_eq!(home.data(&["doctor"])["ok"], true);
}
