//! What a bridge remembers of its client, so that a node which was started anew is where the old
//! one was: what was opened, what is watched, what waits for an answer.
//!
//! It neither reads nor writes: lines and time in, lines out. After each call, whatever is in
//! [`Session::out`] is to be written in that order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};
use stead_doc::refusal::{Code, Refusal};

/// How long a request waits for a node before its client is told that none is there.
pub(crate) const NODE_WAIT_MS: u64 = 15_000;

/// How long the end of a subscription is held back: a node that is stopped ends them all, and the
/// next one takes them up again.
const END_HOLD_MS: u64 = 1_000;

/// Nodes that are asked the same: one that each of them ends by is not given to the next.
const SENDS: u32 = 3;

/// Requests that may wait at once; a client with more is told to come again.
const WAITING: usize = 1_024;

/// Where a line goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// To the client, on stdout.
    Client(String),
    /// To the node.
    Node(String),
}

/// The state of one client's conversation.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The lines to write, in order.
    pub(crate) out: VecDeque<Line>,
    linked: bool,
    /// Why no node answers for good, where that is so.
    refused: Option<Refusal>,
    /// The client's `initialize`, once it was answered.
    opened: Option<Value>,
    /// Its word that it is ready, sent again after each reopening.
    initialized: Option<Value>,
    /// What it watches in the older protocol.
    subscribed: BTreeSet<String>,
    /// What it watches in the newer one: the requests, by their ids.
    listening: BTreeMap<String, Value>,
    /// Subscriptions that the node ended, and when.
    ended: BTreeMap<String, (Value, String, u64)>,
    /// Requests without an answer, in their order.
    waiting: BTreeMap<u64, Waiting>,
    next: u64,
    /// Answers to what the bridge asked by itself.
    own: BTreeSet<String>,
    /// Subscriptions that were taken up again, whose acknowledgement the client has already.
    acknowledged: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Waiting {
    id: String,
    request: Value,
    since: u64,
    /// Whether the node that is linked has it.
    sent: bool,
    /// How many nodes have had it.
    sends: u32,
}

impl Waiting {
    /// Why it is answered without a node: where one may have done it, its outcome is unknown.
    fn given_up(&self, why: &Refusal) -> Refusal {
        if self.sends == 0 || !writes(&self.request) {
            return why.clone();
        }
        unknown_outcome()
    }
}

fn unknown_outcome() -> Refusal {
    Refusal::new(
        Code::Retry,
        "the node went away before it answered; the outcome is unknown.",
        "With an idempotencyKey send the same call again. Without one read the task first; do not repeat a create.",
    )
}

impl Session {
    /// A line from the client.
    pub(crate) fn client_said(&mut self, line: &str, now: u64) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            tracing::warn!("a line from the client is no JSON and was left out");
            return;
        };
        let method = message
            .get("method")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let parts = ["method", "result", "error"];
        if !parts.iter().any(|part| message.get(part).is_some()) || !has_good_id(&message) {
            self.not_a_message("this is no message of the protocol.");
            return;
        }
        let Some(id) = id_of(&message) else {
            match method.as_str() {
                "notifications/initialized" => self.initialized = Some(message.clone()),
                "notifications/cancelled" => self.cancelled(&message),
                _ => {}
            }
            self.pass_on(line);
            return;
        };
        if method.is_empty() {
            // An answer to the node's own request.
            self.pass_on(line);
            return;
        }
        if let Some(refusal) = self.refused.clone() {
            self.refuse(&message, &refusal);
            return;
        }
        if self.waiting.len() >= WAITING {
            let full = Refusal::new(
                Code::Unavailable,
                "too many requests wait already.",
                "Nothing was written. Send it again in a moment.",
            );
            self.refuse(&message, &full);
            return;
        }
        self.pass_on(line);
        let number = self.next;
        self.next += 1;
        self.waiting.insert(
            number,
            Waiting {
                id,
                request: message,
                since: now,
                sent: self.linked,
                sends: u32::from(self.linked),
            },
        );
    }

    /// A line from the node.
    pub(crate) fn node_said(&mut self, line: &str, now: u64) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            tracing::warn!("a line from the node is no JSON and was left out");
            return;
        };
        let has_method = message.get("method").is_some();
        if let Some(id) = id_of(&message).filter(|_| !has_method) {
            if self.own.remove(&id) {
                return;
            }
            self.answered(&id, &message, line, now);
            return;
        }
        if let Some(id) = subscription_of(&message)
            && message.get("method").and_then(Value::as_str)
                == Some("notifications/subscriptions/acknowledged")
        {
            self.hold_listening(&id);
            if self.acknowledged.remove(&id) {
                return;
            }
        }
        self.out.push_back(Line::Client(line.trim_end().to_owned()));
    }

    /// To the node as the client wrote it, where one is there.
    fn pass_on(&mut self, line: &str) {
        if self.linked {
            self.out.push_back(Line::Node(line.trim_end().to_owned()));
        }
    }

    /// A node answers from now on: what was open is opened again, what waits is sent.
    pub(crate) fn linked(&mut self) {
        self.linked = true;
        self.refused = None;
        self.own.clear();
        if let Some(opened) = self.opened.clone() {
            self.ask_again(&opened);
            if let Some(initialized) = self.initialized.clone() {
                self.ask_node(&initialized);
            }
            for uri in self.subscribed.clone() {
                let subscribe = json!({
                    "jsonrpc": "2.0", "method": "resources/subscribe", "params": { "uri": uri },
                });
                self.ask_again(&subscribe);
                self.hint(&uri, None);
            }
        }
        for (id, request) in self.listening.clone() {
            self.acknowledged.insert(id);
            self.ask_node(&request);
            let uris = request
                .pointer("/params/notifications/resourceSubscriptions")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            for uri in uris.iter().filter_map(Value::as_str) {
                self.hint(uri, request.get("id"));
            }
        }
        let often: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.sends >= SENDS)
            .map(|(number, _)| *number)
            .collect();
        for number in often {
            if let Some(waiting) = self.waiting.remove(&number) {
                let why = Refusal::new(
                    Code::Unavailable,
                    "every node that was asked this went away.",
                    "Do not send it again; ask your supervisor to run `stead doctor`.",
                );
                self.refuse(&waiting.request, &waiting.given_up(&why));
            }
        }
        for waiting in self.waiting.values_mut() {
            waiting.sent = true;
            waiting.sends += 1;
            self.out.push_back(Line::Node(waiting.request.to_string()));
        }
    }

    /// The node is gone. What may have been done and cannot be asked again is said to be unknown;
    /// everything else waits for the next one.
    pub(crate) fn lost(&mut self, now: u64) {
        self.linked = false;
        for (id, (request, _, _)) in std::mem::take(&mut self.ended) {
            self.listening.insert(id, request);
        }
        let doubtful: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.sent && leaves_doubt(&waiting.request))
            .map(|(number, _)| *number)
            .collect();
        for number in doubtful {
            if let Some(waiting) = self.waiting.remove(&number) {
                self.refuse(&waiting.request, &unknown_outcome());
            }
        }
        for waiting in self.waiting.values_mut() {
            // What the last node had for long waits for the next one as long as anything else.
            if waiting.sent {
                waiting.since = now;
            }
            waiting.sent = false;
        }
    }

    /// No node will answer, because of what the client is.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            self.refuse(&waiting.request, &waiting.given_up(&refusal));
        }
        self.refused = Some(refusal);
    }

    /// Time went by: whoever waited long enough is told why.
    pub(crate) fn tick(&mut self, now: u64, why: Option<&Refusal>) {
        let done: Vec<_> = self
            .ended
            .iter()
            .filter(|(_, (_, _, at))| at + END_HOLD_MS <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in done {
            if let Some((_, end, _)) = self.ended.remove(&id) {
                self.out.push_back(Line::Client(end));
            }
        }
        if self.linked {
            return;
        }
        let late: Vec<u64> = self
            .waiting
            .iter()
            .filter(|(_, waiting)| waiting.since + NODE_WAIT_MS <= now)
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            if let Some(waiting) = self.waiting.remove(&number) {
                let refusal = why.cloned().unwrap_or_else(|| {
                    Refusal::new(
                        Code::Unavailable,
                        "no node answers on this machine.",
                        "Nothing was written. Send it again in a moment, or ask your supervisor to run `stead up`.",
                    )
                });
                self.refuse(&waiting.request, &waiting.given_up(&refusal));
            }
        }
    }

    /// A line of the client's was longer than any message may be.
    pub(crate) fn too_long(&mut self, bytes: usize) {
        self.not_a_message(&format!(
            "a message of more than {bytes} bytes was left out."
        ));
    }

    /// Says what is wrong with something that has no id to answer to.
    fn not_a_message(&mut self, why: &str) {
        let answer = json!({ "jsonrpc": "2.0", "id": null, "error": {
            "code": INVALID_REQUEST, "message": why,
        } });
        self.out.push_back(Line::Client(answer.to_string()));
    }

    /// Whether an answer is still owed.
    pub(crate) fn owes(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn answered(&mut self, id: &str, message: &Value, line: &str, now: u64) {
        let line = line.trim_end().to_owned();
        if let Some(request) = self.listening.remove(id) {
            self.ended.insert(id.to_owned(), (request, line, now));
            return;
        }
        let number = self
            .waiting
            .iter()
            .find(|(_, waiting)| waiting.id == id)
            .map(|(number, _)| *number);
        if let Some(waiting) = number.and_then(|number| self.waiting.remove(&number))
            && message.get("error").is_none()
        {
            let uri = waiting
                .request
                .pointer("/params/uri")
                .and_then(Value::as_str);
            match (waiting.request.get("method").and_then(Value::as_str), uri) {
                (Some("initialize"), _) => self.opened = Some(waiting.request),
                (Some("resources/subscribe"), Some(uri)) => {
                    self.subscribed.insert(uri.to_owned());
                }
                (Some("resources/unsubscribe"), Some(uri)) => {
                    self.subscribed.remove(uri);
                }
                _ => {}
            }
        }
        self.out.push_back(Line::Client(line));
    }

    /// A subscription that was acknowledged waits for changes and for no answer.
    fn hold_listening(&mut self, id: &str) {
        let number = self
            .waiting
            .iter()
            .find(|(_, waiting)| waiting.id == id)
            .map(|(number, _)| *number);
        if let Some(waiting) = number.and_then(|number| self.waiting.remove(&number)) {
            self.listening.insert(id.to_owned(), waiting.request);
        }
    }

    fn cancelled(&mut self, message: &Value) {
        let Some(id) = message.pointer("/params/requestId").map(Value::to_string) else {
            return;
        };
        self.listening.remove(&id);
        self.ended.remove(&id);
        self.waiting.retain(|_, waiting| waiting.id != id);
    }

    /// Asks the node for what the client has asked before, under an id of the bridge's own.
    fn ask_again(&mut self, request: &Value) {
        let mut request = request.clone();
        let id = format!("stead-bridge-{}", self.next);
        self.next += 1;
        self.own.insert(Value::from(id.as_str()).to_string());
        if let Some(request) = request.as_object_mut() {
            request.insert("id".into(), id.into());
        }
        self.ask_node(&request);
    }

    /// Something watched may have changed while no node was there.
    fn hint(&mut self, uri: &str, subscription: Option<&Value>) {
        let mut params = Map::new();
        params.insert("uri".into(), uri.into());
        if let Some(id) = subscription {
            params.insert("_meta".into(), json!({ SUBSCRIPTION: id }));
        }
        let note = json!({
            "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params,
        });
        self.out.push_back(Line::Client(note.to_string()));
    }

    fn ask_node(&mut self, message: &Value) {
        self.out.push_back(Line::Node(message.to_string()));
    }

    /// A tool's refusal is a result that its model reads; anything else's is the protocol's error.
    fn refuse(&mut self, request: &Value, refusal: &Refusal) {
        let id = request.get("id").cloned().unwrap_or_default();
        let answer = if request.get("method").and_then(Value::as_str) == Some("tools/call") {
            json!({ "jsonrpc": "2.0", "id": id, "result": {
                "content": [{ "type": "text", "text": refusal.to_text() }],
                "structuredContent": { "error": refusal.to_json() },
                "isError": true,
                "resultType": "complete",
            } })
        } else {
            json!({ "jsonrpc": "2.0", "id": id, "error": {
                "code": INTERNAL_ERROR, "message": refusal.to_string(), "data": refusal.to_json(),
            } })
        };
        self.out.push_back(Line::Client(answer.to_string()));
    }
}

/// JSON-RPC's code for a fault that is not the caller's.
const INTERNAL_ERROR: i32 = -32_603;

/// JSON-RPC's code for what is no request.
const INVALID_REQUEST: i32 = -32_600;

/// Where a notification names its subscription.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

fn id_of(message: &Value) -> Option<String> {
    message
        .get("id")
        .filter(|id| !id.is_null())
        .map(Value::to_string)
}

/// Whether a message has no id, or one that can be answered to.
fn has_good_id(message: &Value) -> bool {
    message
        .get("id")
        .is_none_or(|id| id.is_string() || id.is_number() || id.is_null())
}

fn subscription_of(message: &Value) -> Option<String> {
    let meta = message.pointer("/params/_meta")?;
    meta.get(SUBSCRIPTION).map(Value::to_string)
}

/// Whether a request may change something.
fn writes(request: &Value) -> bool {
    let reads = ["task_get", "task_search"];
    let name = request.pointer("/params/name").and_then(Value::as_str);
    request.get("method").and_then(Value::as_str) == Some("tools/call")
        && !name.is_some_and(|name| reads.contains(&name))
}

/// Whether a request that nobody answered may have changed something that asking again would
/// change twice.
fn leaves_doubt(request: &Value) -> bool {
    if !writes(request) {
        return false;
    }
    let keyed = [
        "/params/arguments/idempotencyKey",
        "/params/arguments/payload/idempotencyKey",
    ]
    .iter()
    .any(|place| {
        request
            .pointer(place)
            .and_then(Value::as_str)
            .is_some_and(|key| !key.is_empty())
    });
    !keyed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(session: &mut Session) -> Vec<Value> {
        drain(session, |line| match line {
            Line::Client(line) => Some(line),
            Line::Node(_) => None,
        })
    }

    fn drain(session: &mut Session, pick: fn(Line) -> Option<String>) -> Vec<Value> {
        let lines = session.out.drain(..).filter_map(pick);
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    }

    fn node(session: &mut Session) -> Vec<Value> {
        drain(session, |line| match line {
            Line::Node(line) => Some(line),
            Line::Client(_) => None,
        })
    }

    fn request(id: u64, method: &str, params: Value) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
    }

    fn result(id: u64) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string()
    }

    fn call(id: u64, name: &str, arguments: Value) -> String {
        request(
            id,
            "tools/call",
            json!({ "name": name, "arguments": arguments }),
        )
    }

    /// A session of the older protocol that watches one resource.
    fn opened() -> Session {
        let mut session = Session::default();
        session.linked();
        session.client_said(&request(1, "initialize", json!({})), 0);
        session.node_said(&result(1), 0);
        session.client_said(
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            0,
        );
        session.client_said(
            &request(
                2,
                "resources/subscribe",
                json!({ "uri": "stead://conflicts" }),
            ),
            0,
        );
        session.node_said(&result(2), 0);
        session.out.clear();
        session
    }

    #[test]
    fn what_comes_before_the_node_is_sent_once_it_is_there() {
        let mut session = Session::default();
        session.client_said(&request(1, "initialize", json!({})), 0);
        assert!(session.out.is_empty());
        session.linked();
        assert_eq!(node(&mut session).len(), 1);
        session.node_said(&result(1), 0);
        assert_eq!(client(&mut session).len(), 1);
        assert!(!session.owes());
    }

    #[test]
    fn a_new_node_is_brought_to_where_the_old_one_was() {
        let mut session = opened();
        session.lost(0);
        session.linked();
        let lines: Vec<Line> = session.out.drain(..).collect();
        let sent: Vec<Value> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Node(line) => Some(serde_json::from_str(line).unwrap()),
                Line::Client(_) => None,
            })
            .collect();
        let methods: Vec<&str> = sent
            .iter()
            .map(|sent| sent["method"].as_str().unwrap())
            .collect();
        assert_eq!(
            methods,
            [
                "initialize",
                "notifications/initialized",
                "resources/subscribe"
            ]
        );
        // The client is told to read again what it watches, and hears nothing of the reopening.
        let told: Vec<&Line> = lines
            .iter()
            .filter(|line| matches!(line, Line::Client(_)))
            .collect();
        assert_eq!(told.len(), 1);
        for own in [&sent[0], &sent[2]] {
            let answer = json!({ "jsonrpc": "2.0", "id": own["id"], "result": {} });
            session.node_said(&answer.to_string(), 0);
        }
        assert!(session.out.is_empty());
    }

    #[test]
    fn reads_and_keyed_writes_are_asked_again_and_others_are_in_doubt() {
        let mut session = opened();
        session.client_said(&call(3, "task_get", json!({ "id": "x" })), 0);
        session.client_said(&call(4, "task_mutate", json!({ "action": "create" })), 0);
        session.client_said(&call(5, "task_mutate", json!({ "idempotencyKey": "k" })), 0);
        session.out.clear();
        session.lost(0);
        let told = client(&mut session);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0]["id"], 4);
        assert_eq!(
            told[0]["result"]["structuredContent"]["error"]["code"],
            "RETRY"
        );
        session.linked();
        let again: Vec<u64> = node(&mut session)
            .iter()
            .filter_map(|sent| sent["id"].as_u64())
            .collect();
        assert_eq!(again, [3, 5]);
    }

    #[test]
    fn what_no_node_had_yet_is_in_no_doubt() {
        let mut session = opened();
        session.lost(0);
        session.client_said(&call(4, "task_mutate", json!({ "action": "create" })), 0);
        session.lost(0);
        assert!(client(&mut session).is_empty());
        session.linked();
        assert!(node(&mut session).iter().any(|sent| sent["id"] == 4));
    }

    #[test]
    fn whoever_waits_too_long_is_told() {
        let mut session = opened();
        session.lost(0);
        session.client_said(&call(3, "task_search", json!({})), 100);
        session.client_said(&request(4, "resources/list", json!({})), 100);
        session.tick(100 + NODE_WAIT_MS - 1, None);
        assert!(session.out.is_empty());
        session.tick(100 + NODE_WAIT_MS, None);
        let told = client(&mut session);
        assert_eq!(told[0]["result"]["isError"], true);
        assert!(
            told[0]["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .starts_with("UNAVAILABLE: ")
        );
        assert_eq!(told[1]["error"]["code"], INTERNAL_ERROR);
        assert!(!session.owes());
    }

    fn acknowledged(id: u64) -> String {
        json!({
            "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
            "params": { "_meta": { SUBSCRIPTION: id } },
        })
        .to_string()
    }

    #[test]
    fn a_subscription_outlives_its_node() {
        let mut session = Session::default();
        session.linked();
        let filter = json!({ "notifications": { "resourceSubscriptions": ["stead://conflicts"] } });
        session.client_said(&request(7, "subscriptions/listen", filter), 0);
        session.node_said(&acknowledged(7), 0);
        assert_eq!(client(&mut session).len(), 1);
        assert!(!session.owes());
        // The node is stopped and ends it; the client is not told, because the next one goes on.
        session.node_said(&result(7), 10);
        assert!(session.out.is_empty());
        session.lost(0);
        session.linked();
        let lines: Vec<Line> = session.out.drain(..).collect();
        assert!(matches!(&lines[0], Line::Node(line) if line.contains("subscriptions/listen")));
        assert!(
            matches!(&lines[1], Line::Client(line) if line.contains("updated") && line.contains("subscriptionId\":7"))
        );
        session.node_said(&acknowledged(7), 20);
        assert!(session.out.is_empty());
        // One that really ends does, a moment later.
        session.node_said(&result(7), 30);
        session.tick(30 + END_HOLD_MS, None);
        assert_eq!(client(&mut session)[0]["id"], 7);
    }

    #[test]
    fn a_keyed_write_that_a_node_had_is_in_doubt_when_no_other_comes() {
        let mut session = opened();
        session.client_said(&call(5, "task_mutate", json!({ "idempotencyKey": "k" })), 0);
        session.lost(NODE_WAIT_MS + 5);
        session.out.clear();
        // It waits anew from the loss on.
        session.tick(NODE_WAIT_MS + 6, None);
        assert!(session.out.is_empty());
        session.tick(2 * NODE_WAIT_MS + 5, None);
        let told = client(&mut session);
        assert_eq!(
            told[0]["result"]["structuredContent"]["error"]["code"],
            "RETRY"
        );
        // And when the next node does not let this client in.
        session.linked();
        session.client_said(&call(6, "task_mutate", json!({ "idempotencyKey": "k" })), 0);
        session.lost(0);
        session.out.clear();
        session.refused(Refusal::new(Code::Forbidden, "revoked.", "Ask."));
        let told = client(&mut session);
        assert_eq!(
            told[0]["result"]["structuredContent"]["error"]["code"],
            "RETRY"
        );
    }

    #[test]
    fn what_ends_every_node_is_not_given_to_another() {
        let mut session = opened();
        session.client_said(&call(5, "task_get", json!({ "id": "x" })), 0);
        for _ in 1..SENDS {
            session.lost(0);
            session.linked();
        }
        session.out.clear();
        session.lost(0);
        session.linked();
        let told = client(&mut session);
        let given_up = told.iter().find(|told| told["id"] == 5).unwrap();
        assert_eq!(
            given_up["result"]["structuredContent"]["error"]["code"],
            "UNAVAILABLE"
        );
        assert!(!session.owes());
    }

    #[test]
    fn a_cancelled_subscription_is_not_taken_up_again() {
        let mut session = Session::default();
        session.linked();
        session.client_said(&request(7, "subscriptions/listen", json!({})), 0);
        session.node_said(&acknowledged(7), 0);
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        session.client_said(&cancel.to_string(), 0);
        session.lost(0);
        session.out.clear();
        session.linked();
        assert!(session.out.is_empty());
    }

    #[test]
    fn a_refused_client_is_answered_at_once() {
        let mut session = Session::default();
        session.client_said(&call(1, "task_get", json!({})), 0);
        session.refused(Refusal::new(Code::Forbidden, "revoked.", "Ask."));
        session.client_said(&call(2, "task_get", json!({})), 0);
        let codes: Vec<Value> = client(&mut session)
            .iter()
            .map(|told| told["result"]["structuredContent"]["error"]["code"].clone())
            .collect();
        assert_eq!(codes, ["FORBIDDEN", "FORBIDDEN"]);
    }

    #[test]
    fn the_nodes_own_requests_and_their_answers_pass() {
        let mut session = opened();
        session.node_said(&request(9, "sampling/createMessage", json!({})), 0);
        assert_eq!(client(&mut session)[0]["id"], 9);
        session.client_said(&result(9), 0);
        assert_eq!(node(&mut session)[0]["id"], 9);
        assert!(!session.owes());
    }

    #[test]
    fn what_is_no_json_goes_nowhere() {
        let mut session = opened();
        session.client_said("not json", 0);
        session.node_said("nor this", 0);
        assert!(session.out.is_empty());
        for wrong in ["7", r#"{"id":1}"#, r#"{"id":{},"method":"x"}"#] {
            session.client_said(wrong, 0);
            let lines: Vec<Line> = session.out.drain(..).collect();
            assert!(
                matches!(&lines[..], [Line::Client(line)] if line.contains("-32600")),
                "{wrong}: {lines:?}"
            );
        }
    }
}
