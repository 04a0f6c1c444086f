//! Reaching the core: over HTTP where a node runs, in this process where none does. One method
//! call for everything, the same on both ways.

use std::{
    fs,
    io::{self, Read as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use serde_json::{Value, json};
use stead_doc::refusal::{Code, Refusal};

use crate::local;

/// What answers method calls.
pub(crate) trait Backend {
    /// Calls a method.
    ///
    /// # Errors
    ///
    /// A typed refusal; nothing was written then, unless it is `RETRY`.
    fn call(&self, method: &str, arguments: Value) -> Result<Value, Refusal>;
}

/// As whom to call; with neither, as the person whose home it is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    /// A credential's token.
    pub(crate) token: Option<String>,
    /// The name of a local credential.
    pub(crate) agent: Option<String>,
}

impl Identity {
    /// From `--agent` and `STEAD_TOKEN`; a token has no place on a command line that others see.
    pub(crate) fn new(agent: Option<String>) -> Self {
        let token = std::env::var("STEAD_TOKEN").ok();
        Self {
            token: token
                .map(|token| token.trim().to_owned())
                .filter(|token| !token.is_empty()),
            agent,
        }
    }

    /// With a name where neither a name nor a token says who asks.
    pub(crate) fn or_agent(mut self, name: &str) -> Self {
        if self.token.is_none() && self.agent.is_none() {
            self.agent = Some(name.to_owned());
        }
        self
    }
}

/// The running node of a home, or the store itself where no node runs.
///
/// # Errors
///
/// `UNAVAILABLE` where neither can be reached.
pub(crate) fn connect(home: &Path, identity: &Identity) -> Result<Box<dyn Backend>, Refusal> {
    let wait = local::LockWait::begin();
    loop {
        if let Some(node) = running(home, identity)? {
            return Ok(Box::new(node));
        }
        match local::open(home, identity) {
            // Another command, or a node that is about to say where it listens.
            Err(refusal) if wait.goes_on(&refusal) => {}
            opened => return opened,
        }
    }
}

/// The node that runs on a home, if one does.
///
/// # Errors
///
/// `UNAVAILABLE` where the home's record of it cannot be used.
pub(crate) fn running(home: &Path, identity: &Identity) -> Result<Option<Http>, Refusal> {
    let record = home.join("node.json");
    let text = match read_small(&record) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&record, &error)),
    };
    let Some(address) = address_of(&text) else {
        return Err(Refusal::new(
            Code::Unavailable,
            format!("{} names no loopback address.", record.display()),
            "If no node runs, delete that file; else stop the node and start it again: stead node stop.",
        ));
    };
    // A record that a killed node left behind: nothing listens there, so the store is free.
    if TcpStream::connect_timeout(&address, CONNECT).is_err() {
        return Ok(None);
    }
    let path = home.join("token");
    let own = read_small(&path).map(|text| text.trim().to_owned());
    let token = match (&identity.token, &own) {
        (Some(token), _) => token.clone(),
        (None, Ok(own)) => own.clone(),
        (None, Err(error)) => return Err(unreadable(&path, error)),
    };
    let http = Http::new(address, token, identity.agent.clone());
    // Somebody else's program may have the port of a node that was killed; it is not handed a
    // token. Who may not read the home's token cannot ask, and speaks with one of its own.
    match own {
        Ok(own) if !http.proves(&own) => Ok(None),
        _ => Ok(Some(http)),
    }
}

/// The address in a node's record. Any other than a loopback one is not ours: the token never
/// leaves the machine.
fn address_of(record: &str) -> Option<SocketAddr> {
    let record: Value = serde_json::from_str(record).ok()?;
    let address: SocketAddr = record.get("address")?.as_str()?.parse().ok()?;
    address.ip().is_loopback().then_some(address)
}

fn read_small(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?
        .take(RECORD_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("cannot read {}: {error}.", path.display()),
        "Run this as the user whose home it is, or name another with --home.",
    )
}

/// A running node.
#[derive(Debug)]
pub(crate) struct Http {
    agent: ureq::Agent,
    url: String,
    address: SocketAddr,
    authorization: String,
    name: Option<String>,
}

impl Http {
    fn new(address: SocketAddr, token: String, name: Option<String>) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            // A proxy of the environment is for the world, not for this machine's own node; it
            // would be handed the token.
            .proxy(None)
            .max_redirects(0)
            .build();
        Self {
            agent: config.new_agent(),
            url: format!("http://{address}/api/v1/call"),
            address,
            authorization: format!("Bearer {token}"),
            name,
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What stands in the header of that name.
    pub(crate) fn authorization(&self) -> &str {
        &self.authorization
    }

    /// The local agent as whom it is asked.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether what listens there holds the home's token.
    fn proves(&self, token: &str) -> bool {
        let (nonce, proof) = local::challenge(token);
        let answer = self
            .agent
            .get(format!(
                "http://{}/api/v1/health?nonce={nonce}",
                self.address
            ))
            .config()
            .timeout_global(Some(CONNECT))
            .build()
            .call();
        let text = answer.ok().and_then(|mut answer| {
            answer
                .body_mut()
                .with_config()
                .limit(RECORD_BYTES)
                .read_to_string()
                .ok()
        });
        let said = text.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        said.and_then(|said| Some(said.get("proof")?.as_str()? == proof))
            .unwrap_or(false)
    }

    /// Where the board is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn unreachable(&self, error: &ureq::Error) -> Refusal {
        Refusal::new(
            Code::Unavailable,
            format!("the node at {} does not answer: {error}.", self.address),
            "Look whether it runs: stead node status. Start it: stead up.",
        )
    }

    /// What becomes of a call whose answer did not come.
    fn lost(&self, method: &str, sent: bool, error: &ureq::Error) -> Refusal {
        if !sent || READS.contains(&method) {
            return self.unreachable(error);
        }
        Refusal::new(
            Code::Retry,
            format!(
                "the node at {} went away while it worked ({error}); the outcome is unknown.",
                self.address
            ),
            "With an idempotency key send the same call again; without one read first and do not repeat a create.",
        )
    }

    fn refused(&self, status: u16, body: &str) -> Refusal {
        let error = serde_json::from_str::<Value>(body)
            .ok()
            .and_then(|mut body| body.get_mut("error").map(Value::take));
        if let Some(refusal) = error.as_ref().and_then(Refusal::from_json) {
            return refusal;
        }
        match status {
            401 | 403 => Refusal::new(
                Code::Forbidden,
                format!("the node at {} does not accept this token.", self.address),
                "Unset STEAD_TOKEN to use the home's own token, check --home, or make a new credential: stead agent add NAME.",
            ),
            413 => Refusal::new(
                Code::TooLarge,
                format!("the node at {} takes no call of this size.", self.address),
                "Send less at once.",
            ),
            _ => Refusal::new(
                Code::Unavailable,
                format!(
                    "what listens at {} does not answer like a node of this version (status {status}).",
                    self.address
                ),
                "Stop the node and start it with this version: stead node stop, then stead up. If none runs, delete node.json in the home.",
            ),
        }
    }
}

impl Backend for Http {
    fn call(&self, method: &str, arguments: Value) -> Result<Value, Refusal> {
        let mut body = json!({ "method": method, "arguments": arguments });
        if let (Some(name), Some(body)) = (&self.name, body.as_object_mut()) {
            body.insert("agent".into(), name.as_str().into());
        }
        let patience = if SLOW.contains(&method) {
            SLOW_CALL
        } else {
            CALL
        };
        let sent = self
            .agent
            .post(&self.url)
            .config()
            .timeout_global(Some(patience))
            .build()
            .header("Authorization", &self.authorization)
            .header("Content-Type", "application/json")
            // In one piece, its length known: serialised on the way it travels in a chunk a token.
            .send(body.to_string());
        let mut response = sent.map_err(|error| {
            let connected = !matches!(
                error,
                ureq::Error::ConnectionFailed
                    | ureq::Error::HostNotFound
                    | ureq::Error::Timeout(ureq::Timeout::Connect)
            ) && !matches!(&error, ureq::Error::Io(io) if io.kind() == io::ErrorKind::ConnectionRefused);
            self.lost(method, connected, &error)
        })?;
        let status = response.status().as_u16();
        let text = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES)
            .read_to_string()
            .map_err(|error| self.lost(method, true, &error))?;
        let mut answer: Value = match serde_json::from_str(&text) {
            Ok(answer) => answer,
            Err(_) => return Err(self.refused(status, &text)),
        };
        match answer.get("ok").and_then(Value::as_bool) {
            Some(true) => Ok(answer.get_mut("data").map(Value::take).unwrap_or_default()),
            _ => Err(self.refused(status, &text)),
        }
    }
}

/// Methods that write nothing: a lost answer to them leaves nothing in doubt.
const READS: [&str; 10] = [
    "task_search",
    "task_get",
    "project_list",
    "member_list",
    "agent_list",
    "conflicts",
    "dep_tree",
    "status",
    "export",
    "whoami",
];

/// Methods that go through the whole store.
const SLOW: [&str; 5] = ["backup", "compact", "doctor", "export", "import_tasks"];

/// To a port of this machine; whatever takes longer does not answer.
const CONNECT: Duration = Duration::from_secs(2);

/// A call waits for at most one commit of a batch, and a sync of at most the caller's own timeout.
const CALL: Duration = Duration::from_secs(120);

/// A store of millions of changes read or rebuilt.
const SLOW_CALL: Duration = Duration::from_secs(2 * 60 * 60);

/// Bytes of an answer: 50 tasks with long texts at their limit.
const ANSWER_BYTES: u64 = 256 << 20;

/// Bytes of `node.json` and of `token`.
const RECORD_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::TcpListener,
        thread::{self, JoinHandle},
    };

    use super::*;

    #[test]
    fn only_a_loopback_address_is_believed() {
        assert!(address_of(r#"{"address":"127.0.0.1:4000","pid":1}"#).is_some());
        assert!(address_of(r#"{"address":"[::1]:4000"}"#).is_some());
        assert_eq!(address_of(r#"{"address":"10.0.0.1:4000"}"#), None);
        assert_eq!(address_of(r#"{"address":"localhost"}"#), None);
        assert_eq!(address_of("not json"), None);
    }

    /// Answers one call with this status and body, and gives back what was asked.
    fn node(status: &str, body: &str) -> (Http, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let asked = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut chunk = [0; 4096];
            while !String::from_utf8_lossy(&request).contains("\"method\"") {
                let count = stream.read(&mut chunk).unwrap();
                request.extend_from_slice(&chunk[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (
            Http::new(address, "secret".into(), Some("ada".into())),
            asked,
        )
    }

    #[test]
    fn a_call_travels_and_its_answer_comes_back() {
        let (http, asked) = node("200 OK", r#"{"ok":true,"data":{"n":1}}"#);
        let answer = http.call("status", json!({"a": 1}));
        assert_eq!(answer, Ok(json!({"n": 1})));
        let asked = asked.join().unwrap();
        assert!(asked.starts_with("POST /api/v1/call "));
        assert!(asked.contains("Bearer secret"));
        assert!(asked.contains(r#""agent":"ada""#));
    }

    #[test]
    fn refusals_keep_their_code_and_strangers_are_named() {
        let codes = [
            (
                "200 OK",
                r#"{"ok":false,"error":{"code":"STALE_WRITE","message":"m","hint":"h"}}"#,
                Code::StaleWrite,
            ),
            ("401 Unauthorized", "no", Code::Forbidden),
            ("413 Too Large", "", Code::TooLarge),
            ("404 Not Found", "<html>", Code::Unavailable),
            ("200 OK", "{}", Code::Unavailable),
        ];
        for (status, body, code) in codes {
            let (http, asked) = node(status, body);
            assert_eq!(
                http.call("task_mutate", json!({})).unwrap_err().code,
                code,
                "{status} {body}"
            );
            asked.join().unwrap();
        }
    }

    #[test]
    fn a_lost_answer_leaves_only_writes_in_doubt() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closing = thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                drop(stream);
            }
        });
        let call = |method: &str| {
            let http = Http::new(address, String::new(), None);
            http.call(method, json!({})).unwrap_err().code
        };
        assert_eq!(call("task_mutate"), Code::Retry);
        assert_eq!(call("task_get"), Code::Unavailable);
        closing.join().unwrap();
        assert_eq!(call("task_mutate"), Code::Unavailable);
    }
}
