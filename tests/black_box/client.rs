//! A client of the agents' face over the stdio bridge, as plain as can be: lines of JSON out, lines
//! of JSON in.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{ChildStdin, ExitStatus},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::stead::Home;

/// The longest that an answer may take; none takes a hundredth of it.
const ANSWER: Duration = Duration::from_secs(60);

/// Which lifecycle of the protocol a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// `initialize`, then a session.
    Sessions,
    /// Each request says everything about itself.
    Requests,
}

pub(crate) const ERAS: [Era; 2] = [Era::Sessions, Era::Requests];

/// A client with its bridge.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) era: Era,
    pub(crate) pid: u32,
    /// What it was told when it began, in either era.
    pub(crate) began: Value,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    ended: Receiver<ExitStatus>,
    notes: Vec<Value>,
    next: u64,
}

impl Client {
    /// Starts `stead mcp` with these arguments and begins a conversation.
    pub(crate) fn start(home: &Home, era: Era, args: &[&str]) -> Self {
        Self::start_with(home, era, args, &[])
    }

    pub(crate) fn start_with(home: &Home, era: Era, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut client = Self::spawn(home, era, args, env);
        client.began = match era {
            Era::Sessions => {
                let began = client.ok(
                    "initialize",
                    json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": {},
                        "clientInfo": { "name": "black box", "version": "1" },
                    }),
                );
                client.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
                began
            }
            Era::Requests => client.ok("server/discover", json!({})),
        };
        client
    }

    /// Starts the bridge and says nothing yet.
    pub(crate) fn spawn(home: &Home, era: Era, args: &[&str], env: &[(&str, &str)]) -> Self {
        let args = [&["mcp"], args].concat();
        let mut command = home.command(&args);
        command.stdin(std::process::Stdio::piped());
        // What it logs is not read, so it has no pipe to fill.
        command.stderr(std::process::Stdio::null());
        command.envs(env.iter().copied());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let pid = child.id();
        let (line_to, lines) = mpsc::channel();
        let (end_to, ended) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                drop(line_to.send(line));
            }
            let _ = end_to.send(child.wait().unwrap());
        });
        Self {
            era,
            pid,
            began: Value::Null,
            stdin,
            lines,
            ended,
            notes: Vec::new(),
            next: 1,
        }
    }

    /// Writes a message as it is.
    pub(crate) fn say(&mut self, message: Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
        stdin.flush().unwrap();
    }

    /// Sends a request; its id.
    pub(crate) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        if self.era == Era::Requests {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "black box", "version": "1" },
            });
        }
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Asks and waits: the result or the error.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// What a request that succeeds gives.
    pub(crate) fn ok(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params.clone())
            .unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    }

    /// Waits for the answer to a request that was sent.
    pub(crate) fn answer(&mut self, id: u64) -> Result<Value, Value> {
        let until = Instant::now() + ANSWER;
        loop {
            let mut message = self
                .hear(until)
                .unwrap_or_else(|| panic!("no answer to request {id}"));
            if message.get("id") == Some(&json!(id)) && message.get("method").is_none() {
                return match message.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(message["error"].take()),
                };
            }
            self.notes.push(message);
        }
    }

    /// The next message; every line is one.
    fn hear(&mut self, until: Instant) -> Option<Value> {
        let left = until.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                let message: Value = serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("stdout holds {line:?}: {error}"));
                assert_eq!(message["jsonrpc"], "2.0", "{message}");
                Some(message)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Calls a tool; the whole result.
    pub(crate) fn tool(&mut self, name: &str, arguments: Value) -> Value {
        self.ok(
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
    }

    /// What a tool that succeeds answers.
    pub(crate) fn data(&mut self, name: &str, arguments: Value) -> Value {
        let mut result = self.tool(name, arguments.clone());
        assert_ne!(result["isError"], true, "{name} {arguments}: {result}");
        result["structuredContent"].take()
    }

    /// Why a tool refuses: the structure and the text.
    pub(crate) fn refused(&mut self, name: &str, arguments: Value) -> (Value, String) {
        let mut result = self.tool(name, arguments.clone());
        assert_eq!(result["isError"], true, "{name} {arguments}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        (result["structuredContent"]["error"].take(), text)
    }

    /// What a resource holds.
    pub(crate) fn read(&mut self, uri: &str) -> Value {
        let result = self.ok("resources/read", json!({ "uri": uri }));
        let content = &result["contents"][0];
        assert_eq!(content["mimeType"], "application/json");
        assert_eq!(content["uri"], uri);
        serde_json::from_str(content["text"].as_str().unwrap()).unwrap()
    }

    /// Watches resources, as the era does it.
    pub(crate) fn watch(&mut self, uris: &[&str]) {
        match self.era {
            Era::Sessions => {
                for uri in uris {
                    self.ok("resources/subscribe", json!({ "uri": uri }));
                }
            }
            Era::Requests => {
                self.send(
                    "subscriptions/listen",
                    json!({ "notifications": { "resourceSubscriptions": uris } }),
                );
                self.notice("notifications/subscriptions/acknowledged", |_| true);
            }
        }
    }

    /// Waits until it is told that a resource changed.
    pub(crate) fn told(&mut self, uri: &str) {
        self.notice("notifications/resources/updated", |params| {
            params["uri"] == uri
        });
    }

    /// Waits for a notification; what came before it is forgotten.
    pub(crate) fn notice(&mut self, method: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + ANSWER;
        let fits = |message: &Value| message["method"] == method && wanted(&message["params"]);
        if let Some(place) = self.notes.iter().position(fits) {
            let found = self.notes.remove(place);
            self.notes.drain(..place);
            return found;
        }
        self.notes.clear();
        loop {
            let message = self
                .hear(until)
                .unwrap_or_else(|| panic!("{method} did not come"));
            if fits(&message) {
                return message;
            }
        }
    }

    /// What it was told of so far, without waiting.
    pub(crate) fn heard(&mut self) -> Vec<Value> {
        while let Ok(line) = self.lines.try_recv() {
            self.notes.push(serde_json::from_str(&line).unwrap());
        }
        std::mem::take(&mut self.notes)
    }

    /// Ends its side; how the bridge ended, how long that took, and what it said until then.
    pub(crate) fn end(mut self) -> (ExitStatus, Duration, Vec<Value>) {
        drop(self.stdin.take());
        let begun = Instant::now();
        let status = self.wait();
        let took = begun.elapsed();
        (status, took, self.heard())
    }

    /// Waits until the bridge has ended by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.ended
            .recv_timeout(ANSWER)
            .unwrap_or_else(|_| panic!("the bridge did not end"))
    }
}
