//! Every method of a node by its name: arguments as JSON in, an answer or a refusal out. The same
//! for the command line in this process, over HTTP, and for the agents' and people's faces.

mod admin;
mod import;
mod maintenance;

use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    board::{self, Command},
    context::Caller,
    fit, limits,
    refusal::{Code, Refusal},
};

use crate::{core::Job, handle::Node, query};

pub use maintenance::{doctor_store, restore};

impl Node {
    /// Calls a method.
    ///
    /// # Errors
    ///
    /// A typed refusal. Nothing was written then, unless its code is `RETRY`.
    pub fn call(&self, caller: &Caller, method: &str, arguments: Json) -> Result<Json, Refusal> {
        let answer = self.dispatch(caller, method, arguments);
        if TOOLS.contains(&method) {
            bounded(answer)
        } else {
            answer
        }
    }

    fn dispatch(&self, caller: &Caller, method: &str, arguments: Json) -> Result<Json, Refusal> {
        match method {
            "task_search" => self.read(caller, |view, cx| query::task_search(view, cx, arguments)),
            "task_get" => self.read(caller, |view, cx| query::task_get(view, cx, arguments)),
            "task_mutate" => self.task_mutate(caller, arguments),
            "conflicts" => self.read(caller, |view, cx| query::conflicts(view, cx, arguments)),
            "dep_tree" => self.read(caller, |view, cx| query::dep_tree(view, cx, arguments)),
            "transitions" => self.read(caller, |view, cx| query::transitions(view, cx, arguments)),
            "changes_since" => {
                self.read(caller, |view, cx| query::changes_since(view, cx, arguments))
            }
            "project_board" => {
                self.read(caller, |view, cx| query::project_board(view, cx, arguments))
            }
            "project_sprint" => self.read(caller, |view, cx| {
                query::project_sprint(view, cx, arguments)
            }),
            "project_list" => self.read(caller, query::projects),
            "project_add" => self.project_add(caller, arguments),
            "import_tasks" => self.import_tasks(caller, arguments),
            "member_add" => self.member_add(caller, arguments),
            "member_list" => self.member_list(caller),
            "member_change" => self.member_change(caller, arguments),
            "agent_add" => self.agent_add(caller, arguments),
            "agent_list" => self.agent_list(caller),
            "agent_revoke" => self.agent_revoke(caller, arguments),
            "status" => self.status(caller),
            "whoami" => self.whoami(caller),
            "workspace" => self.workspace(caller),
            "export" => self.export(caller, arguments),
            "backup" => self.backup(caller, arguments),
            "doctor" => self.doctor(caller, arguments),
            "compact" => self.compact(caller),
            _ => {
                Err(
                    Refusal::argument("method", "there is no such method.", "Use one of accepted.")
                        .with("given", method)
                        .with("accepted", json!(METHODS)),
                )
            }
        }
    }

    fn task_mutate(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let mut map = Arguments::flatten(arguments)?;
        let wait = Wait::take(&mut map)?;
        let mut answer = match board::split_updates(&map)? {
            None => self.run(Job::Command {
                caller: caller.clone(),
                command: Command::Task(map),
            })?,
            Some(calls) => self.updates(caller, calls),
        };
        if let Some(entry) = answer.as_object_mut() {
            wait.tell(entry);
        }
        Ok(answer)
    }

    /// Each entry is a command of its own; the answer names what moved and what did not.
    fn updates(&self, caller: &Caller, calls: Vec<Map<String, Json>>) -> Json {
        let ids: Vec<Json> = calls
            .iter()
            .map(|call| call.get("id").cloned().unwrap_or_default())
            .collect();
        let jobs = calls
            .into_iter()
            .map(|call| Job::Command {
                caller: caller.clone(),
                command: Command::Task(call),
            })
            .collect();
        let mut moved = Vec::new();
        let mut refused = Vec::new();
        for (id, answer) in ids.into_iter().zip(self.run_all(jobs)) {
            match answer {
                Ok(answer) => {
                    let part = |name: &str| {
                        answer
                            .pointer(&format!("/task/{name}"))
                            .cloned()
                            .unwrap_or_default()
                    };
                    moved.push(json!({ "id": part("id"), "status": part("status"), "revision": part("revision") }));
                }
                Err(refusal) => {
                    let mut error = refusal.to_json();
                    // The whole object of each refusal would fill the answer; its revision is what
                    // the next call needs.
                    if let Some(error) = error.as_object_mut()
                        && let Some(current) = error.remove("current")
                    {
                        error.insert(
                            "currentRevision".into(),
                            current.get("revision").cloned().unwrap_or_default(),
                        );
                        error.remove("conflicts");
                    }
                    refused.push(json!({ "id": id, "error": error }));
                }
            }
        }
        let mut answer = json!({ "moved": moved, "refused": refused, "transaction": false });
        // Every id is named, whatever else has to go.
        for kept in [&["code", "currentRevision"][..], &["code"]] {
            if answer.to_string().len() <= query::RESULT_BYTES {
                break;
            }
            shorten_refusals(&mut answer, kept);
        }
        answer
    }

    fn project_add(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(Arguments::flatten(arguments)?, &["slug", "name", "by"])?;
        let slug = args
            .line("slug", 200)?
            .ok_or_else(|| arguments::missing("slug"))?;
        let name = args.line("name", limits::TITLE_CHARS)?.unwrap_or_default();
        self.run(Job::Command {
            caller: caller.clone(),
            command: Command::Project { slug, name },
        })
    }
}

/// The methods that are agents' tools: their answers are bounded, refusals included.
const TOOLS: [&str; 3] = ["task_get", "task_mutate", "task_search"];

/// The answer of a tool at a size that a reader's context can pay for.
fn bounded(answer: Result<Json, Refusal>) -> Result<Json, Refusal> {
    match answer {
        Ok(mut answer) => {
            fit::cut_paged(&mut answer, query::BODY_BYTES);
            fit::fit(&mut answer, query::RESULT_BYTES);
            Ok(answer)
        }
        Err(mut refusal) => {
            let mut details = Json::Object(std::mem::take(&mut refusal.details));
            fit::cut_paged(&mut details, query::BODY_BYTES);
            fit::fit(&mut details, query::RESULT_BYTES - SENTENCE_BYTES);
            if let Json::Object(details) = details {
                refusal.details = details;
            }
            Err(refusal)
        }
    }
}

/// Room for code, message and hint of a refusal within the bytes of a result.
const SENTENCE_BYTES: usize = 1_000;

/// Leaves of each refusal of many only what is named.
fn shorten_refusals(answer: &mut Json, kept: &[&str]) {
    let refused = answer.get_mut("refused").and_then(Json::as_array_mut);
    for error in refused.into_iter().flatten() {
        if let Some(error) = error.get_mut("error").and_then(Json::as_object_mut) {
            error.retain(|name, _| kept.contains(&name.as_str()));
        }
    }
}

/// The names of all methods.
pub const METHODS: [&str; 25] = [
    "agent_add",
    "agent_list",
    "agent_revoke",
    "backup",
    "changes_since",
    "compact",
    "conflicts",
    "dep_tree",
    "doctor",
    "export",
    "import_tasks",
    "member_add",
    "member_change",
    "member_list",
    "project_add",
    "project_board",
    "project_list",
    "project_sprint",
    "status",
    "task_get",
    "task_mutate",
    "task_search",
    "transitions",
    "whoami",
    "workspace",
];

/// Where else a write should be before it is answered.
struct Wait(Option<String>);

impl Wait {
    fn take(map: &mut Map<String, Json>) -> Result<Self, Refusal> {
        let wait = map.remove("waitFor").filter(|value| !value.is_null());
        map.remove("timeoutMs");
        match wait
            .as_ref()
            .map(|value| value.as_str().unwrap_or_default())
        {
            None => Ok(Self(None)),
            Some(place @ ("peer" | "relay")) => Ok(Self(Some(place.to_owned()))),
            Some(_) => {
                Err(
                    Refusal::argument("waitFor", "waitFor is not known.", "Use one of accepted.")
                        .with("accepted", json!(["peer", "relay"])),
                )
            }
        }
    }

    /// This node has no peers yet, so a write is safe here and nowhere else; said, not hidden.
    fn tell(&self, answer: &mut Map<String, Json>) {
        if let Some(place) = &self.0 {
            answer.insert("replicated".into(), json!({ "peers": 0, "relay": false }));
            answer.insert(
                "waited".into(),
                format!("safe on this machine; no {place} is connected").into(),
            );
        }
    }
}

/// Refuses callers that are not people: what only a person may do.
fn need_person(caller: &Caller, what: &str) -> Result<(), Refusal> {
    if caller.kind == stead_doc::context::CallerKind::Person {
        return Ok(());
    }
    Err(Refusal::new(
        Code::HumanRequired,
        format!("only a person may {what}."),
        "Ask your supervisor to run it in a terminal.",
    ))
}
