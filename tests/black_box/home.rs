//! From nothing to a running node, and back.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::json;

#[cfg(unix)]
use crate::stead::mode;
use crate::stead::{Called, Home, Running, RunningNode, text};

#[test]
fn up_in_a_fresh_home_ends_in_a_running_node_and_says_where_it_listens() {
    let home = Home::fresh();
    let node = RunningNode::start(
        &home,
        &["up", "--json", "--member", "Ada", "--project", "web"],
    );
    assert!(text(&node.ready, "url").starts_with("http://127.0.0.1:"));
    assert_eq!(node.ready["made"]["member"], "Ada");
    assert!(text(&node.ready["made"], "recoveryKey").len() > 32);
    assert_eq!(
        node.data("project_list", json!({}))["projects"][0]["slug"],
        "web"
    );
    // The record in the home is what other commands find it by.
    let record = std::fs::read_to_string(home.path().join("node.json")).unwrap();
    assert!(record.contains(&node.address().to_string()), "{record}");
    home.create("web", "First", &[]);
    assert_eq!(home.data(&["list"])["tasks"][0]["title"], "First");
}

#[test]
fn a_second_up_says_that_it_runs_already_and_where() {
    let home = Home::fresh();
    let node = RunningNode::start(&home, &["up", "--json"]);
    // Nothing was asked for, and still a task can be created at once.
    home.create("main", "First", &[]);
    let again = home.run(&["up"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.stderr.contains("runs here already"), "{again:?}");
    assert!(
        again.stdout.contains(&node.address().to_string()),
        "{again:?}"
    );
    let program = home.data(&["up"]);
    assert_eq!(program["url"], format!("http://{}", node.address()));
}

#[test]
fn a_node_says_how_it_is_and_stops_when_told() {
    let home = Home::with_project("web");
    let none = home
        .json(&["node", "status"])
        .failed(3, &["node", "status"]);
    assert_eq!(none["code"], "UNAVAILABLE");
    assert_eq!(home.json(&["node", "stop"]).code, 3);
    let node = home.node();
    let status = home.data(&["node", "status"]);
    assert_eq!(status["workspace"]["name"], "Acme");
    assert_eq!(status["url"], format!("http://{}", node.address()));
    assert_eq!(home.data(&["node", "stop"])["stopping"], true);
    assert!(node.wait().success());
    assert!(!home.path().join("node.json").exists());
    assert_eq!(home.json(&["node", "status"]).code, 3);
    // What it served is there without it.
    assert_eq!(
        home.data(&["project", "list"])["projects"][0]["slug"],
        "web"
    );
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_node_cleanly() {
    let home = Home::with_project("web");
    let node = home.node();
    home.create("web", "Kept", &[]);
    assert!(node.stop().success());
    assert!(!home.path().join("node.json").exists());
    let lease = std::fs::read_to_string(home.store().join("lease.json")).unwrap();
    assert!(lease.contains("\"clean\":true"), "{lease}");
}

#[cfg(unix)]
#[test]
fn what_is_in_a_home_is_its_owners_alone() {
    let home = Home::with_project("web");
    let node = home.node();
    home.create("web", "One", &[]);
    home.data(&["backup", home.beside("kept.stead").to_str().unwrap()]);
    home.data(&["export", "-o", home.beside("out.json").to_str().unwrap()]);
    assert_eq!(mode(&home.path()), 0o700);
    for name in ["token", "device.key", "node.json"] {
        assert_eq!(mode(&home.path().join(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&home.path().join("workspaces")), 0o700);
    assert_eq!(mode(&home.store()), 0o700);
    for name in ["workspace.redb", "packed.redb", "lease.json"] {
        assert_eq!(mode(&home.store().join(name)), 0o600, "{name}");
    }
    for name in ["kept.stead", "out.json"] {
        assert_eq!(mode(&home.beside(name)), 0o600, "{name}");
    }
    drop(node);
}

#[test]
fn init_makes_a_workspace_once() {
    let home = Home::with_project("web");
    let before = home.export();
    let error = home.json(&["init"]).failed(3, &["init"]);
    assert!(text(&error, "message").contains("holds a workspace already"));
    assert_eq!(home.export(), before);
}

#[test]
fn inits_at_once_make_one_workspace_that_works() {
    let home = Home::fresh();
    let running: Vec<_> = (0..6)
        .map(|n| {
            let name = format!("n{n}");
            Running::spawn(home.command(&["--json", "init", "--name", &name]), b"")
        })
        .collect();
    let answers: Vec<_> = running
        .into_iter()
        .map(|one| one.finish().answer())
        .collect();
    let made = answers.iter().filter(|answer| answer.code == 0).count();
    assert_eq!(made, 1, "{answers:?}");
    home.store();
    home.data(&["project", "add", "web"]);
    home.create("web", "Works", &[]);
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

#[test]
fn ups_at_once_end_in_one_node_and_the_others_say_that_it_runs() {
    let home = Home::fresh();
    let node = std::thread::scope(|scope| {
        let first = scope.spawn(|| home.run(&["--json", "up"]));
        // Whichever comes first keeps running; the other one must come back.
        let second = scope.spawn(|| home.run(&["--json", "up"]));
        // The one that serves ends when it is stopped, which is when the other one has ended.
        while !first.is_finished() && !second.is_finished() {
            std::thread::yield_now();
        }
        let status = home.data(&["node", "status"]);
        home.data(&["node", "stop"]);
        let (first, second) = (first.join().unwrap(), second.join().unwrap());
        assert_eq!((first.code, second.code), (0, 0), "{first:?} {second:?}");
        status
    });
    assert!(text(&node, "url").starts_with("http://127.0.0.1:"));
    home.store();
}

#[test]
fn a_command_that_comes_while_a_node_starts_is_answered() {
    let home = Home::with_project("web");
    // Commands without a node hold the store for a moment each; a node that starts waits for its
    // turn, and a command that finds the store taken by a node asks that node.
    let commands: Vec<_> = (0..4)
        .map(|n| {
            let title = format!("c{n}");
            let args = ["--json", "create", &title, "-p", "web"];
            Running::spawn(home.command(&args), b"")
        })
        .collect();
    let node = home.node();
    for command in commands {
        assert_eq!(command.finish().answer().code, 0);
    }
    assert_eq!(home.data(&["list"])["tasks"].as_array().unwrap().len(), 4);
    drop(node);
}

#[test]
fn a_record_that_a_killed_node_left_behind_is_in_nobodys_way() {
    let home = Home::with_project("web");
    let node = home.node();
    let task = home.create("web", "Kept", &[]);
    node.kill();
    assert!(home.path().join("node.json").exists());
    assert_eq!(home.task(text(&task, "id"))["title"], "Kept");
    assert_eq!(home.json(&["node", "status"]).code, 3);
    let node = home.node();
    assert!(matches!(node.call("status", json!({})), Called::Ok(_)));
}

#[test]
fn a_stranger_on_the_port_of_a_killed_node_is_handed_no_token() {
    let home = Home::with_project("web");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let record = format!("{{\"address\":\"{address}\",\"pid\":1}}");
    std::fs::write(home.path().join("node.json"), record).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stranger = {
        let over = over.clone();
        std::thread::spawn(move || {
            let mut heard = Vec::new();
            while let Ok((mut stream, _)) = listener.accept() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let mut chunk = [0; 4096];
                stream
                    .set_read_timeout(Some(Duration::from_secs(20)))
                    .unwrap();
                if let Ok(count) = stream.read(&mut chunk) {
                    heard.extend_from_slice(&chunk[..count]);
                }
                let body = "{\"ok\":true,\"data\":{\"tasks\":[]},\"proof\":\"x\"}";
                let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length";
                drop(write!(stream, "{head}: {}\r\n\r\n{body}", body.len()));
            }
            heard
        })
    };
    // The store is free, so the command works on it itself.
    home.create("web", "Mine", &[]);
    assert_eq!(home.data(&["list"])["tasks"][0]["title"], "Mine");
    over.store(true, Ordering::Relaxed);
    drop(TcpStream::connect(address).unwrap());
    let heard = String::from_utf8_lossy(&stranger.join().unwrap()).into_owned();
    assert!(!heard.contains(&home.token()), "{heard}");
}

#[test]
fn a_home_without_a_workspace_is_named_and_not_made() {
    let home = Home::fresh();
    for args in [
        &["list"][..],
        &["create", "x", "-p", "web"],
        &["node", "run"],
        &["doctor"],
    ] {
        let error = home.json(args).failed(3, args);
        assert!(
            text(&error, "message").contains("holds no workspace"),
            "{error}"
        );
        assert!(text(&error, "hint").contains("stead up"), "{error}");
    }
    assert!(!home.path().exists());
}

#[test]
fn home_is_an_option_or_an_environment_variable_and_the_option_wins() {
    let home = Home::with_project("web");
    let other = home.beside("other");
    let other = other.to_str().unwrap();
    home.data(&["--home", other, "init", "--project", "api"]);
    let slug = |args: &[&str]| home.data(args)["projects"][0]["slug"].clone();
    assert_eq!(slug(&["project", "list"]), "web");
    assert_eq!(slug(&["project", "list", "--home", other]), "api");
}
