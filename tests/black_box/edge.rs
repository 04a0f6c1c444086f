//! The HTTP edge: loopback, one Host, no strange Origin, a token.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::stead::{Called, Home, Response, RunningNode, call, exchange, text};

/// One request: its first line's parts and its headers as given.
struct Asked<'a> {
    line: &'a str,
    headers: Vec<String>,
    body: &'a str,
}

impl<'a> Asked<'a> {
    fn status(node: &RunningNode, token: &str) -> Self {
        Self {
            line: "POST /api/v1/call",
            headers: vec![
                format!("Host: {}", node.address()),
                format!("Authorization: Bearer {token}"),
            ],
            body: "{\"method\":\"status\",\"arguments\":{}}",
        }
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|header| !header.starts_with(name));
        self
    }

    fn with(mut self, header: impl Into<String>) -> Self {
        self.headers.push(header.into());
        self
    }

    fn line(mut self, line: &'a str) -> Self {
        self.line = line;
        self
    }

    fn body(mut self, body: &'a str) -> Self {
        self.body = body;
        self
    }

    fn send(self, node: &RunningNode) -> Response {
        let mut text = format!("{} HTTP/1.1\r\n", self.line);
        for header in self.headers {
            text.push_str(&header);
            text.push_str("\r\n");
        }
        text.push_str(&format!(
            "Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
            self.body.len(),
            self.body
        ));
        let response = exchange(node.address(), text.as_bytes()).unwrap();
        for name in response.headers.keys() {
            assert!(!name.starts_with("access-control-"), "{response:?}");
        }
        response
    }
}

const ROUTES: [&str; 5] = [
    "POST /api/v1/call",
    "GET /api/v1/health",
    "GET /",
    "OPTIONS /api/v1/call",
    "GET /nowhere",
];

fn running() -> (Home, RunningNode, String) {
    let home = Home::with_project("web");
    let node = home.node();
    let token = home.token();
    (home, node, token)
}

fn refused(response: &Response, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.body["ok"], false, "{response:?}");
    assert_eq!(response.body["error"]["code"], "FORBIDDEN");
    assert!(!text(&response.body["error"], "message").is_empty());
}

#[test]
fn a_foreign_host_is_refused_on_every_route() {
    let (_home, node, token) = running();
    let port = node.address().port();
    for route in ROUTES {
        for host in [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            "127.0.0.1".to_owned(),
            "127.0.0.1:1".to_owned(),
            format!("127.0.0.1.evil.example:{port}"),
            format!("evil@127.0.0.1:{port}"),
            format!("0.0.0.0:{port}"),
            format!("127.0.0.1:{port}, 127.0.0.1:{port}"),
            String::new(),
        ] {
            let asked = Asked::status(&node, &token).line(route).without("Host");
            refused(&asked.with(format!("Host: {host}")).send(&node), 403);
        }
    }
    for host in [format!("127.0.0.1:{port}"), format!("LOCALHOST:{port}")] {
        let asked = Asked::status(&node, &token).without("Host");
        assert_eq!(asked.with(format!("Host: {host}")).send(&node).status, 200);
    }
}

#[test]
fn a_missing_or_a_second_host_is_refused() {
    let (_home, node, token) = running();
    for route in ROUTES {
        let none = Asked::status(&node, &token).line(route).without("Host");
        refused(&none.send(&node), 403);
        let two = Asked::status(&node, &token).line(route);
        refused(
            &two.with(format!("Host: {}", node.address())).send(&node),
            403,
        );
    }
}

#[test]
fn a_foreign_origin_is_refused_and_an_absent_one_is_not() {
    let (_home, node, token) = running();
    let port = node.address().port();
    for route in ROUTES {
        for origin in [
            "null",
            "http://evil.example",
            "https://127.0.0.1",
            "http://127.0.0.1",
            "http://127.0.0.1:1",
            "file://",
            "",
        ] {
            let asked = Asked::status(&node, &token).line(route);
            refused(&asked.with(format!("Origin: {origin}")).send(&node), 403);
        }
        // TLS is not ours: another origin.
        let asked = Asked::status(&node, &token).line(route);
        refused(
            &asked
                .with(format!("Origin: https://127.0.0.1:{port}"))
                .send(&node),
            403,
        );
    }
    assert_eq!(Asked::status(&node, &token).send(&node).status, 200);
    let own = Asked::status(&node, &token).with(format!("Origin: http://127.0.0.1:{port}"));
    assert_eq!(own.send(&node).status, 200);
    let two = Asked::status(&node, &token)
        .with(format!("Origin: http://127.0.0.1:{port}"))
        .with("Origin: http://evil.example");
    refused(&two.send(&node), 403);
}

#[test]
fn no_token_and_a_wrong_token_are_refused_even_on_loopback() {
    let (_home, node, token) = running();
    let asked = || Asked::status(&node, &token).without("Authorization");
    refused(&asked().send(&node), 401);
    for wrong in [
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer wrong".to_owned(),
        format!("Bearer {token}x"),
        format!("Bearer {}", &token[..token.len() - 1]),
        format!("Basic {token}"),
        token.clone(),
    ] {
        refused(
            &asked().with(format!("Authorization: {wrong}")).send(&node),
            401,
        );
    }
    // A token in the place that logs and histories keep is none.
    let line = format!("POST /api/v1/call?token={token}");
    refused(&asked().line(&line).send(&node), 401);
    // Two of them are not a choice.
    let two = Asked::status(&node, "wrong").with(format!("Authorization: Bearer {token}"));
    refused(&two.send(&node), 401);
}

#[test]
fn only_post_calls_and_other_paths_hold_nothing() {
    let (_home, node, token) = running();
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let line = format!("{method} /api/v1/call");
        let response = Asked::status(&node, &token).line(&line).send(&node);
        assert_eq!(response.status, 405, "{method}");
    }
    for path in ["/", "/api", "/api/v1/call/x", "/token", "/../token"] {
        let line = format!("GET {path}");
        let response = Asked::status(&node, &token).line(&line).send(&node);
        assert_eq!(response.status, 404, "{path}");
    }
    let health = Asked::status(&node, &token).without("Authorization");
    let health = health.line("GET /api/v1/health").body("").send(&node);
    assert_eq!((health.status, &health.body["ok"]), (200, &json!(true)));
    let names: Vec<_> = health.body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["ok", "proof", "version"], "it says no more");
    assert_eq!(health.body["proof"], Value::Null);
}

#[test]
fn a_body_over_the_limit_is_refused_and_one_at_the_limit_is_read() {
    let (_home, node, token) = running();
    let limit = 16 << 20;
    let padded = |length: usize| {
        let text = "{\"method\":\"status\",\"arguments\":{}}";
        text.to_owned() + &" ".repeat(length - text.len())
    };
    let at = Asked::status(&node, &token)
        .body(&padded(limit))
        .send(&node);
    assert_eq!((at.status, &at.body["ok"]), (200, &json!(true)), "{at:?}");
    let over = Asked::status(&node, &token)
        .body(&padded(limit + 1))
        .send(&node);
    assert_eq!(over.status, 413);
    assert!(matches!(node.call("status", json!({})), Called::Ok(_)));
}

#[test]
fn a_malformed_call_gets_a_clear_error_and_the_node_stays_up() {
    let (_home, node, token) = running();
    let deep = "[".repeat(100_000);
    for (body, field) in [
        ("", "body"),
        ("{", "body"),
        ("nonsense", "body"),
        ("\u{0}", "body"),
        (deep.as_str(), "body"),
        ("[]", "method"),
        ("3", "method"),
        ("{}", "method"),
        ("{\"method\":3}", "method"),
        ("{\"method\":\"rm\"}", "method"),
    ] {
        let response = Asked::status(&node, &token).body(body).send(&node);
        let error = &response.body["error"];
        assert_eq!(
            error["code"], "INVALID_ARGUMENT",
            "{body:.20}: {response:?}"
        );
        assert_eq!(error["field"], field, "{body:.20}: {response:?}");
    }
    for arguments in [
        json!(3),
        json!([]),
        json!("x"),
        json!({"action": {}}),
        json!({"action": "create", "projectId": [], "title": 3}),
    ] {
        let Called::Refused(error) = node.call("task_mutate", arguments.clone()) else {
            panic!("{arguments} passes")
        };
        assert_eq!(error["code"], "INVALID_ARGUMENT", "{arguments}: {error}");
    }
    let unknown = node.call("task_search", json!({"projectId": "web", "colour": "red"}));
    let Called::Refused(error) = unknown else {
        panic!("{unknown:?}")
    };
    assert!(error.to_string().contains("colour"), "{error}");
    assert!(error["accepted"].is_array(), "{error}");
    assert!(matches!(node.call("status", json!({})), Called::Ok(_)));
}

#[test]
fn bytes_that_are_no_request_do_no_harm() {
    let (_home, node, _) = running();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"\r\n\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/call HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzzz\r\n",
        &[0; 4096],
    ] {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        // A server that has seen enough may close before the end.
        drop(stream.write_all(bytes));
        drop(stream.shutdown(Shutdown::Write));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert!(matches!(node.call("status", json!({})), Called::Ok(_)));
}

#[test]
fn a_request_that_never_ends_keeps_nobody_from_stopping_the_node() {
    let (home, node, token) = running();
    let mut halves: Vec<TcpStream> = Vec::new();
    for half in [
        String::new(),
        "POST /api/v1/call HTTP/1.1\r\nHost:".to_owned(),
        format!(
            "POST /api/v1/call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nContent-Length: 100\r\n\r\n{{",
            node.address()
        ),
    ] {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        stream.write_all(half.as_bytes()).unwrap();
        halves.push(stream);
    }
    assert_eq!(home.data(&["node", "stop"])["stopping"], true);
    assert!(node.wait().success());
    drop(halves);
    assert_eq!(home.data(&["doctor"])["ok"], true);
}

#[test]
fn it_listens_on_loopback_alone() {
    let (_home, node, _) = running();
    assert!(node.address().ip().is_loopback());
    // Linux lists every listener; of this port there is one, and on 127.0.0.1.
    let Ok(listening) = std::fs::read_to_string("/proc/net/tcp") else {
        return;
    };
    let port = format!(":{:04X}", node.address().port());
    let sixth = std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let local: Vec<_> = listening
        .lines()
        .chain(sixth.lines())
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|parts| parts.get(3) == Some(&"0A"))
        .map(|parts| parts[1].to_owned())
        .filter(|local| local.ends_with(&port))
        .collect();
    assert_eq!(local, [format!("0100007F{port}")]);
}

#[test]
fn two_homes_listen_side_by_side_and_keep_their_tokens_apart() {
    let (_one_home, one, one_token) = running();
    let (_two_home, two, two_token) = running();
    assert_ne!(one.address(), two.address());
    refused(&Asked::status(&two, &one_token).send(&two), 401);
    refused(&Asked::status(&one, &two_token).send(&one), 401);
}

#[test]
fn tokens_and_texts_do_not_go_into_the_log() {
    let (home, node, token) = running();
    let secret = "a title that nobody logs";
    node.data(
        "task_mutate",
        json!({"action": "create", "projectId": "web", "title": secret}),
    );
    assert!(matches!(
        call(node.address(), "stead_wrong", "status", &Value::Null),
        Called::Refused(_)
    ));
    let log = home.log() + &node.log();
    // An answer comes after its line in the log.
    assert!(log.contains("task_mutate"), "{log}");
    for hidden in [secret, token.as_str(), "stead_wrong"] {
        assert!(!log.contains(hidden), "{log}");
    }
}
