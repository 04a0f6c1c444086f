//! One call of `task_mutate`: which action, what it takes, and what all actions share.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::{Dependencies, Edit, Edits, Effect, Outcome, Parents, Reply, link::cycle};
use crate::{
    arguments::{self, Arguments, line, missing},
    context::Context,
    document::DocumentName,
    fields::{self, unknown},
    graph::{self, Graph},
    id::ObjectId,
    limits,
    message::Message,
    present,
    refusal::{Code, Refusal},
    revision::Revision,
    scalar::Scalar,
    stale,
    view::{Located, View},
};

/// What every action takes.
const COMMON: [&str; 5] = ["action", "by", "idempotencyKey", "waitFor", "timeoutMs"];

/// The actions of `task_mutate` with what each takes beside what all take.
pub const ACTIONS: [(&str, &[&str]); 19] = [
    ("archive", &["id", "revision", "resolves"]),
    ("block", &["id", "revision", "resolves", "reason", "taskId"]),
    (
        "claim",
        &[
            "id",
            "projectId",
            "revision",
            "resolves",
            "force",
            "leaseSecs",
        ],
    ),
    ("comment", &["id", "body", "replyTo"]),
    (
        "create",
        &[
            "projectId",
            "status",
            "reason",
            "abandonReason",
            "force",
            "state",
        ],
    ),
    ("link", &["id", "revision", "type", "targetId"]),
    (
        "move",
        &[
            "id",
            "revision",
            "resolves",
            "status",
            "reason",
            "abandonReason",
            "result",
            "childrenSeen",
            "force",
        ],
    ),
    ("release", &["id", "revision", "resolves", "force"]),
    ("resolve", &["id", "revision", "field", "value", "choose"]),
    ("restore", &["id", "revision", "resolves"]),
    ("sprint_activate", &["sprintId", "revision"]),
    ("sprint_assign", &["id", "revision", "resolves", "sprintId"]),
    ("sprint_complete", &["sprintId", "revision", "moveOpenTo"]),
    ("sprint_create", &["projectId", "name", "goal"]),
    (
        "sprint_update",
        &[
            "sprintId", "revision", "resolves", "name", "goal", "position",
        ],
    ),
    ("unblock", &["id", "revision", "resolves"]),
    ("unlink", &["id", "revision", "type", "targetId"]),
    ("update", &["id", "revision", "resolves", "statePatch"]),
    // One entry of `updates[]`: a move, an update, or both at once.
    (
        "updates_entry",
        &[
            "id",
            "revision",
            "resolves",
            "statePatch",
            "status",
            "reason",
            "abandonReason",
            "childrenSeen",
            "force",
        ],
    ),
];

/// The names that an action takes; nothing for an action that does not exist.
pub fn accepted(action: &str) -> Option<Vec<&'static str>> {
    let (_, own) = ACTIONS.iter().find(|(name, _)| *name == action)?;
    let mut all: Vec<&str> = COMMON.iter().chain(*own).copied().collect();
    if matches!(action, "create" | "update" | "updates_entry") {
        all.extend(fields::TASK_FIELDS);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// Splits a call with `updates[]` into its entries, each a complete call of its own; what an entry
/// leaves out comes from the call, and its idempotency key is `<key>#<n>`.
///
/// # Errors
///
/// Where `updates` is no array of objects or too long.
pub fn split_updates(map: &Map<String, Json>) -> Result<Option<Vec<Map<String, Json>>>, Refusal> {
    let Some(updates) = map.get("updates").filter(|updates| !updates.is_null()) else {
        return Ok(None);
    };
    let action = map.get("action").and_then(Json::as_str).unwrap_or("move");
    if !matches!(action, "move" | "update") {
        return Err(Refusal::argument(
            "updates",
            "updates[] goes with move and update alone.",
            "Use one of accepted.",
        )
        .with("accepted", json!(["move", "update"])));
    }
    let entries = arguments::list(updates);
    if entries.is_empty() {
        return Err(Refusal::argument(
            "updates",
            "updates is empty.",
            "Send {id, revision, ...} for each task.",
        ));
    }
    if entries.len() > limits::UPDATES {
        return Err(arguments::too_large(
            "updates",
            entries.len(),
            limits::UPDATES,
            "entries",
        ));
    }
    let mut shared = map.clone();
    shared.remove("updates");
    let key = match shared.remove("idempotencyKey").filter(|key| !key.is_null()) {
        Some(key) => Some(line("idempotencyKey", &key, limits::KEY_CHARS)?),
        None => None,
    };
    let mut calls = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let mut call = shared.clone();
        call.extend(arguments::object("updates", entry)?);
        call.insert("action".into(), "updates_entry".into());
        if let Some(key) = &key {
            call.insert(
                "idempotencyKey".into(),
                format!("{key}#{}", index + 1).into(),
            );
        }
        calls.push(call);
    }
    Ok(Some(calls))
}

pub(super) struct Call<'a> {
    pub(super) view: &'a dyn View,
    pub(super) cx: &'a Context<'a>,
    pub(super) args: Arguments,
    pub(super) action: &'static str,
    pub(super) key: Option<String>,
    pub(super) payload: String,
}

pub(super) fn task_mutate(
    view: &dyn View,
    cx: &Context<'_>,
    map: &Map<String, Json>,
) -> Result<Outcome, Refusal> {
    let given = map.get("action").and_then(Json::as_str).unwrap_or_default();
    let names: Vec<&str> = ACTIONS
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| *name != "updates_entry")
        .collect();
    let Some((action, _)) = ACTIONS.iter().find(|(name, _)| *name == given) else {
        return Err(unknown("action", given, json!(names)));
    };
    let args = Arguments::accept(map.clone(), &accepted(action).unwrap_or_default())?;
    cx.need("tasks:write")?;
    // The key of an entry is the call's with its place behind it.
    let room = match *action {
        "updates_entry" => limits::KEY_CHARS + "#100".len(),
        _ => limits::KEY_CHARS,
    };
    let key = args.line("idempotencyKey", room)?;
    if key.as_deref() == Some("") {
        return Err(Refusal::argument(
            "idempotencyKey",
            "idempotencyKey is empty, which protects no retry.",
            "Send 1 to 128 characters, or leave it out.",
        ));
    }
    let call = Call {
        view,
        cx,
        action,
        key,
        payload: arguments::payload_hash(map),
        args,
    };
    if let Some(key) = &call.key
        && let Some(effect) = view.key_effect(&cx.caller.credential, key)?
    {
        if effect.payload != call.payload {
            return Err(Refusal::new(
                Code::KeyReused,
                format!(
                    "this key already wrote {} with other content.",
                    effect.subject
                ),
                "Use a new key, or send the first content again.",
            )
            .with("key", key.as_str())
            .with("id", effect.subject.to_string()));
        }
        let reply = call.reply_about(effect.subject)?;
        return Ok(Outcome::Replay(effect, reply));
    }
    match *action {
        "archive" => call.archive(true),
        "block" => call.block(),
        "claim" => call.claim(),
        "comment" => call.comment(),
        "create" => call.create(),
        "link" => call.link(true),
        "move" | "update" | "updates_entry" => call.change(),
        "release" => call.release(),
        "resolve" => call.resolve(),
        "restore" => call.archive(false),
        "sprint_activate" => call.sprint_activate(),
        "sprint_assign" => call.sprint_assign(),
        "sprint_complete" => call.sprint_complete(),
        "sprint_create" => call.sprint_create(),
        "sprint_update" => call.sprint_update(),
        "unblock" => call.unblock(),
        "unlink" => call.link(false),
        _ => Err(unknown("action", given, json!(names))),
    }
}

impl Call<'_> {
    pub(super) fn project(&self) -> Result<ObjectId, Refusal> {
        let Some(text) = self.args.line("projectId", limits::SHORT_CHARS)? else {
            let known = self.cx.reachable(self.view)?;
            return Err(
                missing("projectId").with("knownProjects", crate::context::known_projects(&known))
            );
        };
        let project = self.cx.project(self.view, &text)?;
        if project.archived {
            return Err(Refusal::argument(
                "projectId",
                "the project is archived.",
                "Use one of knownProjects.",
            )
            .with(
                "knownProjects",
                crate::context::known_projects(&self.cx.reachable(self.view)?),
            ));
        }
        Ok(project.id)
    }

    /// The object that an argument names, of the kind that the action is about.
    pub(super) fn object(&self, argument: &str, kind: &str) -> Result<Located, Refusal> {
        let id = self.args.required_id(argument)?;
        let at = self.find(id, self.args.revision("revision")?.as_ref())?;
        if !kind.is_empty() && at.row.kind() != Some(kind) {
            return Err(Refusal::argument(
                argument,
                format!("{id} is a {}, not a {kind}.", present::kind_word(&at.row)),
                "Send the id of one.",
            ));
        }
        Ok(at)
    }

    pub(super) fn find(
        &self,
        id: ObjectId,
        revision: Option<&Revision>,
    ) -> Result<Located, Refusal> {
        let reached = |at: &Located| -> Result<bool, Refusal> {
            let Some(project) = at.project else {
                return Ok(self.cx.caller.grants.is_none());
            };
            Ok(self.cx.caller.grants.is_none()
                || self
                    .cx
                    .reachable(self.view)?
                    .iter()
                    .any(|known| known.id == project))
        };
        match self.view.object(id)? {
            Some(at) if reached(&at)? => Ok(at),
            _ => Err(stale::unknown_id(self.view, self.cx, id, revision)?),
        }
    }

    /// The other end of an edge: an object of the same project.
    pub(super) fn target(
        &self,
        id: ObjectId,
        project: Option<ObjectId>,
    ) -> Result<Located, Refusal> {
        let at = self.find(id, None)?;
        if at.project != project {
            return Err(Refusal::argument(
                "targetId",
                format!("{id} is in another project."),
                "Link tasks of one project; mention others in externalRefs.",
            ));
        }
        Ok(at)
    }

    pub(super) fn status(&self, text: &str) -> Result<String, Refusal> {
        let names: Vec<_> = self
            .cx
            .schema
            .statuses
            .iter()
            .map(|status| status.name.as_str())
            .collect();
        let status = self
            .cx
            .schema
            .status(text)
            .ok_or_else(|| unknown("status", text, json!(names)))?;
        Ok(status.name.clone())
    }

    /// A fresh id, or the one that the idempotency key gives, with the name to show for it.
    pub(super) fn new_id(&self, document: &DocumentName) -> (ObjectId, Vec<String>) {
        match &self.key {
            Some(key) => {
                let name = Message::key_name(&self.cx.caller.credential, key);
                (
                    ObjectId::derived(self.cx.document(document), &name),
                    vec![name],
                )
            }
            None => (self.cx.fresh_id(0), Vec::new()),
        }
    }

    pub(super) fn document_of(&self, at: &Located) -> DocumentName {
        at.project
            .map_or_else(DocumentName::workspace, DocumentName::project)
    }

    /// The revision rule and the conflict rule for the fields that are about to be written;
    /// returns the conflicts that the write settles by name.
    pub(super) fn check_write(
        &self,
        at: &Located,
        writes: &BTreeSet<String>,
        required: bool,
    ) -> Result<Vec<String>, Refusal> {
        match self.args.revision("revision")? {
            Some(revision) => stale::check(self.view, self.cx, at, &revision, writes)?,
            None if required => {
                return Err(Refusal::argument(
                    "revision",
                    "revision is missing.",
                    "Read the object and send its revision.",
                )
                .with("current", present::object(self.view, self.cx, at)?));
            }
            None => {}
        }
        let accepted = accepted(self.action).unwrap_or_default();
        let settled = if accepted.contains(&"resolves") {
            self.args
                .words("resolves", limits::SET_ENTRIES)?
                .unwrap_or_default()
        } else {
            Vec::new()
        };
        let open: Vec<&String> = writes
            .iter()
            .filter(|field| {
                at.row
                    .cells
                    .get(*field)
                    .is_some_and(crate::row::Cell::is_conflicted)
            })
            .collect();
        let unnamed: Vec<&String> = open
            .iter()
            .copied()
            .filter(|field| !settled.contains(field))
            .collect();
        if let Some(field) = unnamed.first() {
            let values = at.row.cells.get(*field).map_or(0, |cell| cell.0.len());
            let fresh = present::object(self.view, self.cx, at)?;
            // Of an entry the kind alone: its name is text that somebody wrote.
            let (named, settle) = match field.split_once('/') {
                Some((kind, _)) => (format!("{kind}/…"), "resolves: fields (below)".to_owned()),
                None => (field.to_string(), format!("resolves:[\"{field}\"]")),
            };
            return Err(Refusal::new(
                Code::ConflictOpen,
                format!(
                    "field {named} of {} has {values} values written apart. Nothing was written.",
                    at.id
                ),
                format!("Pick one with action resolve, or send {settle} with your own."),
            )
            .with("fields", json!(unnamed))
            .with(
                "conflicts",
                fresh.get("conflicts").cloned().unwrap_or_default(),
            )
            .with("current", fresh));
        }
        Ok(open
            .into_iter()
            .map(|field| format!("{}/{field}", at.id))
            .collect())
    }

    /// Ends of new edges exist in the same project, and no circle is closed.
    pub(super) fn check_links(
        &self,
        id: ObjectId,
        project: ObjectId,
        edits: &Edits<'_>,
    ) -> Result<(), Refusal> {
        for edit in &edits.list {
            let Some(Scalar::Str(text)) = &edit.value else {
                if let Some(target) = edit
                    .field
                    .strip_prefix("edge/depends_on/")
                    .filter(|_| edit.value.is_some())
                {
                    self.check_edge(id, project, target, &Dependencies(self.view))?;
                }
                continue;
            };
            match edit.field.as_str() {
                "parentId" => self.check_edge(id, project, text, &Parents(self.view))?,
                "ringParentId" => {
                    let target = arguments::id("ringParentId", &text.as_str().into())?;
                    self.target(target, Some(project))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn check_edge(
        &self,
        from: ObjectId,
        project: ObjectId,
        target: &str,
        edges: &dyn Graph,
    ) -> Result<(), Refusal> {
        let target = arguments::id("targetId", &target.into())?;
        if target == from {
            return Err(cycle(&[from, from]));
        }
        self.target(target, Some(project))?;
        match graph::path(edges, target, from)? {
            Some(path) => Err(cycle(&path)),
            None => Ok(()),
        }
    }

    pub(super) fn write_at(
        &self,
        at: &Located,
        resolves: Vec<String>,
        edits: Vec<Edit>,
        reply: Reply,
    ) -> Result<Outcome, Refusal> {
        self.write(
            self.document_of(at),
            at.id,
            Vec::new(),
            resolves,
            edits,
            reply,
        )
    }

    pub(super) fn write(
        &self,
        document: DocumentName,
        subject: ObjectId,
        names: Vec<String>,
        resolves: Vec<String>,
        edits: Vec<Edit>,
        reply: Reply,
    ) -> Result<Outcome, Refusal> {
        if edits.is_empty() {
            return Ok(Outcome::Nothing(reply));
        }
        let first = edits.first().map(|edit| edit.object);
        let command = if self.action == "updates_entry" {
            "update"
        } else {
            self.action
        };
        let message = Message {
            command: command.to_owned(),
            credential: self.cx.caller.credential.clone(),
            hlc: self.cx.hlc.0,
            key: self.key.clone(),
            payload: self.key.as_ref().map(|_| self.payload.clone()),
            subject: (first != Some(subject)).then(|| subject.to_string()),
            names,
            resolves,
            label: match self.args.line("by", limits::TAG_CHARS)? {
                Some(label) => Some(label),
                None => self.cx.caller.label.clone(),
            },
            ..Message::default()
        };
        Ok(Outcome::Write(Box::new(Effect {
            document,
            message,
            edits,
            reply,
        })))
    }

    pub(super) fn reply_about(&self, subject: ObjectId) -> Result<Reply, Refusal> {
        let kind = self
            .view
            .object(subject)?
            .and_then(|at| at.row.kind().map(str::to_owned));
        Ok(match kind.as_deref() {
            Some("sprint") => Reply::Sprint(subject, Map::new()),
            Some("comment") => Reply::Comment(subject),
            _ => Reply::Task(subject, Map::new()),
        })
    }
}
