//! `stead setup` connects clients, and leaves alone what it did not write.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::stead::{Home, finished, text};

const CLIENTS: [(&str, &str, &str); 5] = [
    ("claude", "code/.mcp.json", "code/CLAUDE.md"),
    ("codex", ".codex/config.toml", "code/AGENTS.md"),
    ("cursor", "code/.cursor/mcp.json", "code/AGENTS.md"),
    ("vscode", "code/.vscode/mcp.json", "code/AGENTS.md"),
    ("gemini", "code/.gemini/settings.json", "code/GEMINI.md"),
];

/// A home with a directory of code beside it.
fn with_code() -> Home {
    let home = Home::with_project("web");
    fs::create_dir(home.beside("code")).unwrap();
    home
}

fn setup<'a>(client: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["setup", client, "--dir", "code"], more].concat()
}

fn states(data: &Value) -> Vec<&str> {
    let files = data["files"].as_array().unwrap();
    files.iter().map(|file| text(file, "state")).collect()
}

fn read(home: &Home, name: &str) -> String {
    fs::read_to_string(home.beside(name)).unwrap()
}

/// All files in a directory with their bytes.
fn tree(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.push((path.display().to_string(), Vec::new()));
            found.extend(tree(&path));
        } else {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn every_client_is_connected_checked_and_taken_out_again() {
    let home = with_code();
    for (client, config, instructions) in CLIENTS {
        let check = setup(client, &["--check"]);
        let missing = home.json(&check);
        assert_eq!(missing.code, 1, "{client}");
        assert_eq!(states(&missing.body["data"]), ["missing", "missing"]);
        assert_eq!(missing.body["data"]["agentMissing"], true);
        assert!(!home.beside(config).exists());

        let done = home.data(&setup(client, &[]));
        assert_eq!(
            (text(&done, "client"), text(&done, "agent")),
            (client, client)
        );
        assert_eq!(done["agentMade"], true);
        assert_eq!(states(&done), ["written", "written"]);
        let written = read(&home, config);
        for part in [env!("CARGO_BIN_EXE_stead"), "\"mcp\"", client, "--home"] {
            assert!(written.contains(part), "{client}, {part}: {written}");
        }
        assert!(read(&home, instructions).contains("stead://workspace"));

        let again = home.data(&setup(client, &[]));
        assert_eq!(again["agentMade"], false);
        assert_eq!(states(&again), ["unchanged", "unchanged"]);
        assert_eq!(read(&home, config), written);
        assert_eq!(home.json(&check).code, 0);

        let gone = home.data(&setup(client, &["--remove"]));
        assert_eq!(states(&gone), ["removed", "removed"]);
        assert_eq!(gone["agent"], client);
        assert_eq!(tree(&home.beside("code")), []);
        assert!(!home.beside(config).parent().unwrap().join("x").exists());
    }
    assert!(!home.beside(".codex").exists());
    let agents = home.data(&["agent", "list"]);
    let agents = agents["agents"].as_array().unwrap();
    assert_eq!(agents.len(), CLIENTS.len());
    assert!(
        agents
            .iter()
            .all(|agent| agent["local"] == true && agent["live"] == true)
    );
}

#[test]
fn the_entry_is_what_the_client_reads() {
    let home = with_code();
    home.data(&setup("claude", &["--agent", "Ada's own"]));
    let claude: Value = serde_json::from_str(&read(&home, "code/.mcp.json")).unwrap();
    let args = json!(["mcp", "--agent", "Ada's own", "--home", home.path()]);
    assert_eq!(
        claude,
        json!({"mcpServers": {"stead": {"type": "stdio", "command": env!("CARGO_BIN_EXE_stead"), "args": args}}})
    );
    home.data(&setup("vscode", &[]));
    let vscode: Value = serde_json::from_str(&read(&home, "code/.vscode/mcp.json")).unwrap();
    assert_eq!(vscode["servers"]["stead"]["type"], "stdio");
    // The place where a program looks by itself is not named.
    let usual = home.beside(".local/share/stead");
    let usual = usual.to_str().unwrap();
    home.data(&["--home", usual, "init", "--project", "api"]);
    if cfg!(target_os = "linux") {
        home.data(&setup("gemini", &["--home", usual]));
        let gemini: Value =
            serde_json::from_str(&read(&home, "code/.gemini/settings.json")).unwrap();
        assert_eq!(
            gemini["mcpServers"]["stead"]["args"],
            json!(["mcp", "--agent", "gemini"])
        );
    }
}

#[test]
fn what_was_in_the_files_before_is_there_afterwards() {
    let home = with_code();
    let before = [
        (
            "code/.mcp.json",
            "\u{feff}{\r\n  // mine\r\n  \"mcpServers\": {\"a\": {\"command\": \"x\",},},\r\n}",
        ),
        ("code/CLAUDE.md", "# Mine\r\n\r\nno line end"),
        ("code/AGENTS.md", "# For all\n"),
        ("code/.cursor/mcp.json", "{}\n"),
    ];
    fs::create_dir(home.beside("code/.cursor")).unwrap();
    for (name, content) in before {
        fs::write(home.beside(name), content).unwrap();
    }
    for client in ["claude", "cursor"] {
        assert_eq!(
            states(&home.data(&setup(client, &[]))),
            ["written", "written"]
        );
        assert_eq!(home.json(&setup(client, &["--check"])).code, 0);
    }
    let with = read(&home, "code/.mcp.json");
    assert!(
        with.starts_with("\u{feff}{\r\n  // mine\r\n")
            && with.contains("\"a\": {\"command\": \"x\",}")
    );
    for client in ["claude", "cursor"] {
        assert_eq!(
            states(&home.data(&setup(client, &["--remove"]))),
            ["removed", "removed"]
        );
    }
    for (name, content) in before {
        assert_eq!(read(&home, name), content, "{name}");
    }
}

#[test]
fn a_check_names_what_differs_and_writes_nothing() {
    let home = with_code();
    home.data(&setup("claude", &[]));
    let path = home.beside("code/.mcp.json");
    let moved = read(&home, "code/.mcp.json").replace(env!("CARGO_BIN_EXE_stead"), "/gone/stead");
    fs::write(&path, moved).unwrap();
    fs::write(home.beside("code/CLAUDE.md"), "# Mine\n").unwrap();
    let before = tree(&home.beside("code"));
    let ran = home.run(&setup("claude", &["--check"]));
    assert_eq!(ran.code, 1);
    for part in [
        "differs",
        ".mcp.json: `command` of",
        "CLAUDE.md: it has no block",
    ] {
        assert!(ran.stdout.contains(part), "{ran:?}");
    }
    assert!(ran.stderr.contains("stead setup claude"), "{ran:?}");
    assert_eq!(tree(&home.beside("code")), before);
    home.data(&setup("claude", &[]));
    assert_eq!(home.json(&setup("claude", &["--check"])).code, 0);
    let both = home.json(&setup("claude", &["--check", "--remove"]));
    assert_eq!(both.code, 2);
}

#[test]
fn somebody_elses_entry_and_broken_files_stop_everything() {
    for (name, content, says) in [
        (
            "code/.mcp.json",
            "{\"mcpServers\": {\"stead\": {\"command\": \"npx\", \"args\": [\"other\"]}}}",
            "did not write",
        ),
        ("code/.mcp.json", "{\n  \"a\" 1\n}", "line 2"),
        ("code/.mcp.json", "[]", "not an object"),
        (
            "code/CLAUDE.md",
            "x\n<!-- stead:begin -->\n",
            "line 2 has no",
        ),
        (
            "code/CLAUDE.md",
            "<!-- stead:begin -->\n<!-- stead:end -->\n<!-- stead:begin -->\n<!-- stead:end -->\n",
            "2 marks",
        ),
    ] {
        let home = with_code();
        home.file(name, content);
        let before = tree(&home.beside("code"));
        for more in [&[][..], &["--check"]] {
            let error = home.refused(&setup("claude", more));
            assert!(text(&error, "message").contains(says), "{error}");
            assert!(
                text(&error, "message").contains("Nothing was changed"),
                "{error}"
            );
            assert!(text(&error, "path").ends_with(name), "{error}");
        }
        assert_eq!(tree(&home.beside("code")), before);
        let agents = home.data(&["agent", "list"]);
        assert_eq!(agents["agents"], json!([]), "no agent is left behind");
    }
    // What is not ours is not taken out either.
    let home = with_code();
    let content = "{\"mcpServers\": {\"stead\": {\"url\": \"http://x\"}}}";
    home.file("code/.mcp.json", content);
    let kept = home.data(&setup("claude", &["--remove"]));
    assert_eq!(states(&kept), ["unchanged", "unchanged"]);
    assert!(text(&kept["files"][0], "why").contains("did not write"));
    assert_eq!(read(&home, "code/.mcp.json"), content);
}

#[test]
fn an_agent_that_cannot_be_used_by_name_is_refused() {
    let home = with_code();
    home.data(&["agent", "add", "claude"]);
    home.data(&["agent", "add", "codex", "--local"]);
    home.data(&["agent", "revoke", "codex"]);
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        for (client, why) in [("claude", "token"), ("codex", "revoked")] {
            let error = home.refused(&setup(client, &[]));
            assert!(text(&error, "message").contains(why), "{error}");
            assert!(text(&error, "hint").contains("--agent OTHER"), "{error}");
        }
        assert_eq!(tree(&home.beside("code")), []);
        drop(node);
    }
    let other = home.data(&setup("claude", &["--agent", "claude-2"]));
    assert_eq!(other["agentMade"], true);
    // It works for Ada at once.
    let task = home.data(&["--agent", "claude-2", "create", "x", "-p", "web"]);
    assert_eq!(task["task"]["createdBy"]["name"], "claude-2");
}

#[test]
fn only_a_person_makes_an_agent() {
    let home = with_code();
    let token = text(&home.data(&["agent", "add", "ci"]), "token").to_owned();
    for through_node in [false, true] {
        let node = through_node.then(|| home.node());
        let args = setup("claude", &[]);
        let error = home.json_with_token(&token, &args).refused(&args);
        assert_eq!(error["code"], "HUMAN_REQUIRED", "{error}");
        assert_eq!(tree(&home.beside("code")), []);
        drop(node);
    }
    // Through a node, as the owner.
    let node = home.node();
    assert_eq!(home.data(&setup("claude", &[]))["agentMade"], true);
    drop(node);
}

#[test]
fn the_block_stays_while_another_client_reads_it() {
    let home = with_code();
    for client in ["cursor", "vscode"] {
        home.data(&setup(client, &[]));
    }
    let first = home.run(&setup("cursor", &["--remove"]));
    assert!(
        first
            .stdout
            .contains("AGENTS.md: vscode reads the block too"),
        "{first:?}"
    );
    assert!(
        first.stderr.contains("stead agent revoke cursor"),
        "{first:?}"
    );
    assert!(!home.beside("code/.cursor").exists());
    assert!(home.beside("code/AGENTS.md").exists());
    assert_eq!(home.json(&setup("vscode", &["--check"])).code, 0);
    home.data(&setup("vscode", &["--remove"]));
    assert_eq!(tree(&home.beside("code")), []);
}

#[test]
fn nothing_to_take_out_is_no_failure_and_needs_no_workspace() {
    let home = Home::fresh();
    let done = home.data(&["setup", "claude", "--remove"]);
    assert_eq!(states(&done), ["unchanged", "unchanged"]);
    assert!(!home.path().exists());
    let error = home.json(&["setup", "claude"]).failed(3, &["setup"]);
    assert!(
        text(&error, "message").contains("holds no workspace"),
        "{error}"
    );
    assert!(!home.beside(".mcp.json").exists());
    let error = home.json(&["setup", "claude", "--dir", "nowhere"]);
    assert_eq!(error.code, 2);
}

#[test]
fn codex_home_is_honoured() {
    let home = with_code();
    let run = |more: &[&str]| {
        let mut args = vec!["--json"];
        args.extend(setup("codex", more));
        let mut command = home.command(&args);
        command.env("CODEX_HOME", home.beside("elsewhere"));
        finished(command, b"").answer()
    };
    assert_eq!(run(&[]).code, 0);
    assert!(read(&home, "elsewhere/config.toml").contains("[mcp_servers.stead]"));
    assert!(!home.beside(".codex").exists());
    assert_eq!(run(&["--check"]).code, 0);
    assert_eq!(run(&["--remove"]).code, 0);
    assert!(!home.beside("elsewhere/config.toml").exists());
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = with_code();
    home.file("code/AGENTS.md", "# All\n");
    std::os::unix::fs::symlink("AGENTS.md", home.beside("code/CLAUDE.md")).unwrap();
    let config = home.file("code/.mcp.json", "{}");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
    let done = home.data(&setup("claude", &[]));
    assert!(
        text(&done["files"][1], "target").ends_with("AGENTS.md"),
        "{done}"
    );
    let link = fs::symlink_metadata(home.beside("code/CLAUDE.md")).unwrap();
    assert!(link.is_symlink());
    assert!(read(&home, "code/AGENTS.md").contains("stead:begin"));
    let mode = fs::metadata(&config).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another client reads the file behind the link.
    home.data(&setup("cursor", &[]));
    let kept = home.data(&setup("claude", &["--remove"]));
    assert_eq!(states(&kept), ["removed", "unchanged"]);
    home.data(&setup("cursor", &["--remove"]));
    assert_eq!(read(&home, "code/AGENTS.md"), "# All\n");
    assert_eq!(read(&home, "code/.mcp.json"), "{}");
}
