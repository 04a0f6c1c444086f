//! The commands of the board: arguments, view, time and entropy in; one change or a typed refusal
//! out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::{
    arguments::{self, Arguments, line, missing},
    change::{Action, Draft, Op},
    conflict,
    context::{CallerKind, Context},
    document::DocumentName,
    fields::{self, unknown},
    graph::{self, Graph},
    id::{ActorId, ChangeHash, ObjectId, OpId},
    limits,
    message::Message,
    present,
    refusal::{Code, Refusal},
    revision::Revision,
    row::{Collapse, Row},
    scalar::Scalar,
    schema::Group,
    stale,
    view::{KeyEffect, Located, View, ViewError},
};

/// A command on a workspace.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// One action of `task_mutate`, arguments flattened.
    Task(Map<String, Json>),
    /// Makes a project; the id derives from the slug, so that two nodes make one.
    Project {
        /// The project's short name.
        slug: String,
        /// Its long one.
        name: String,
    },
    /// Brings in one task from elsewhere, or brings it up to date.
    Import(Import),
    /// Brings in one comment from elsewhere; one that is there already is left alone.
    ImportComment(ImportComment),
}

/// A task from another system.
#[derive(Debug, Clone, PartialEq)]
pub struct Import {
    /// The project, by slug or id.
    pub project: String,
    /// The name from which the task's id derives: `<system>:<id there>`.
    pub name: String,
    /// The fields, as `create` takes them, status included; ids derived by [`imported_id`].
    pub fields: Map<String, Json>,
    /// Edges other than dependencies and the parent: relation and target.
    pub links: Vec<(String, ObjectId)>,
}

/// A comment from another system.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportComment {
    /// The project, by slug or id.
    pub project: String,
    /// The name from which the comment's id derives.
    pub name: String,
    /// The task that it is on.
    pub task: ObjectId,
    /// What it says.
    pub body: String,
    /// Who said it and when, as the other system has it.
    pub source: Json,
}

/// What a command comes to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// One change.
    Write(Box<Effect>),
    /// Nothing to write; the answer.
    Nothing(Reply),
    /// The key was used before with the same payload: the answer is that of the first time.
    Replay(KeyEffect, Reply),
}

/// One change to come: what it writes where, and what is answered once it is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The document that it is a change of.
    pub document: DocumentName,
    /// What it says about itself, the stamp included.
    pub message: Message,
    /// What it writes.
    pub edits: Vec<Edit>,
    /// What is answered.
    pub reply: Reply,
}

/// One field's new value; nothing deletes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The object.
    pub object: ObjectId,
    /// The field.
    pub field: String,
    /// The value.
    pub value: Option<Scalar>,
}

/// What is answered, rendered from the view after the change.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// `{task}` and whatever else belongs to it.
    Task(ObjectId, Map<String, Json>),
    /// `{sprint}` and whatever else belongs to it.
    Sprint(ObjectId, Map<String, Json>),
    /// `{comment, taskId}`.
    Comment(ObjectId),
    /// `{project}`.
    Project(ObjectId),
    /// An answer that no object is behind.
    Json(Json),
}

/// Where a document stands, to author the next change of an actor.
#[derive(Debug, Clone)]
pub struct DocumentState {
    /// The changes nothing depends on yet.
    pub heads: Vec<ChangeHash>,
    /// The greatest op counter.
    pub max_op: u64,
    /// Who authors.
    pub actor: ActorId,
    /// The actor's last change.
    pub last: Option<(u64, ChangeHash)>,
}

/// Evaluates one command against the view.
///
/// # Errors
///
/// A typed refusal; nothing is to be written then.
pub fn evaluate(view: &dyn View, cx: &Context<'_>, command: &Command) -> Result<Outcome, Refusal> {
    match command {
        Command::Task(map) => task_mutate(view, cx, map),
        Command::Project { slug, name } => project_create(view, cx, slug, name),
        Command::Import(import) => import_task(view, cx, import),
        Command::ImportComment(comment) => import_comment(view, cx, comment),
    }
}

/// Renders an answer from the view as it is now.
///
/// # Errors
///
/// When the store fails.
pub fn render(view: &dyn View, cx: &Context<'_>, reply: &Reply) -> Result<Json, Refusal> {
    let rendered =
        |name: &str, id: &ObjectId, extra: &Map<String, Json>| -> Result<Json, Refusal> {
            let at = view.object(*id)?;
            let mut out = extra.clone();
            let shown = at.map(|at| present::object(view, cx, &at)).transpose()?;
            out.insert(name.into(), shown.unwrap_or(Json::Null));
            Ok(Json::Object(out))
        };
    match reply {
        Reply::Task(id, extra) => rendered("task", id, extra),
        Reply::Sprint(id, extra) => rendered("sprint", id, extra),
        Reply::Comment(id) => rendered("comment", id, &Map::new()),
        Reply::Project(id) => {
            let entry = view
                .projects()?
                .into_iter()
                .find(|project| project.id == *id);
            Ok(json!({ "project": entry.map(|project| project_json(&project)) }))
        }
        Reply::Json(json) => Ok(json.clone()),
    }
}

/// A project of an answer.
pub fn project_json(project: &crate::view::ProjectEntry) -> Json {
    json!({
        "id": project.id.to_string(),
        "slug": project.slug,
        "name": project.name,
        "archived": project.archived,
    })
}

impl Effect {
    /// The draft of the change: predecessors are all visible ops of each field, counters follow
    /// the document's greatest.
    ///
    /// A field that has several equal values written apart is named as settled, so that no node
    /// takes the change for one that lost a conflict.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub fn draft(
        self,
        state: &DocumentState,
        row: &mut dyn FnMut(ObjectId) -> Result<Option<Row>, ViewError>,
    ) -> Result<Draft, ViewError> {
        let mut rows: BTreeMap<ObjectId, Option<Row>> = BTreeMap::new();
        let mut message = self.message;
        let mut ops: Vec<Op> = Vec::with_capacity(self.edits.len());
        for edit in self.edits {
            let row = match rows.entry(edit.object) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(row(edit.object)?)
                }
            };
            let preds = row
                .as_ref()
                .map(|row| row.preds(&edit.field))
                .unwrap_or_default();
            let named = format!("{}/{}", edit.object, edit.field);
            if preds.len() > 1 && !message.resolves.contains(&named) {
                message.resolves.push(named);
            }
            let action = match edit.value {
                Some(value) => Action::Put(value),
                None if preds.is_empty() => continue,
                None => Action::Delete,
            };
            ops.push(Op {
                object: edit.object,
                field: edit.field,
                action,
                preds,
            });
        }
        let mut deps = state.heads.clone();
        deps.extend(state.last.map(|(_, hash)| hash));
        Ok(Draft {
            actor: state.actor,
            seq: state.last.map_or(1, |(seq, _)| seq + 1),
            start_op: state.max_op + 1,
            deps,
            time: Message::stamp(&message).millis() / 1000,
            message,
            ops,
        })
    }
}

/// The object that says which sprint of a project is active.
pub fn active_sprint_register(cx: &Context<'_>, project: ObjectId) -> ObjectId {
    ObjectId::derived(cx.document(&DocumentName::project(project)), ACTIVE_SPRINT)
}

const ACTIVE_SPRINT: &str = "active-sprint";

/// The id of a task that came from elsewhere: the same on every node that imports it.
pub fn imported_id(cx: &Context<'_>, project: ObjectId, name: &str) -> ObjectId {
    ObjectId::derived(cx.document(&DocumentName::project(project)), name)
}

/// The id of the project of a slug.
pub fn project_id(workspace: [u8; 16], slug: &str) -> ObjectId {
    ObjectId::derived(DocumentName::workspace().id(workspace), &project_name(slug))
}

fn project_name(slug: &str) -> String {
    format!("project:{slug}")
}

/// How long a lease lasts without a sign of its holder: four hours.
pub const LEASE_SECS: i64 = 4 * 60 * 60;

/// Edits of one object, skipping what is already so.
#[derive(Debug)]
pub struct Edits<'a> {
    object: ObjectId,
    row: &'a Row,
    list: Vec<Edit>,
}

impl<'a> Edits<'a> {
    /// No edits yet.
    pub fn new(object: ObjectId, row: &'a Row) -> Self {
        Self {
            object,
            row,
            list: Vec::new(),
        }
    }

    /// Gives a field a value, unless it has just that and nothing else.
    pub fn put(&mut self, field: &str, value: impl Into<Scalar>) {
        let value = value.into();
        let same = self.row.cells.get(field).is_some_and(|cell| {
            !cell.is_conflicted() && cell.winner().is_some_and(|winner| winner.is(&value))
        });
        self.drop_earlier(field);
        if !same {
            self.list.push(Edit {
                object: self.object,
                field: field.to_owned(),
                value: Some(value),
            });
        }
    }

    /// Gives a field a value even where it has it, so that the write wins over a removal made
    /// apart.
    pub fn put_again(&mut self, field: &str, value: impl Into<Scalar>) {
        self.drop_earlier(field);
        self.list.push(Edit {
            object: self.object,
            field: field.to_owned(),
            value: Some(value.into()),
        });
    }

    /// Takes a field's values away, where it has any.
    pub fn clear(&mut self, field: &str) {
        self.drop_earlier(field);
        if self.row.cells.contains_key(field) {
            self.list.push(Edit {
                object: self.object,
                field: field.to_owned(),
                value: None,
            });
        }
    }

    fn drop_earlier(&mut self, field: &str) {
        self.list.retain(|edit| edit.field != field);
    }

    fn fields(&self) -> BTreeSet<String> {
        self.list.iter().map(|edit| edit.field.clone()).collect()
    }
}

// ---------------------------------------------------------------------------------------------
// task_mutate

/// What every action takes.
const COMMON: [&str; 5] = ["action", "by", "idempotencyKey", "waitFor", "timeoutMs"];

/// The actions of `task_mutate` with what each takes beside [`COMMON`].
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
    let key = key.filter(|key| !key.is_empty());
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

struct Call<'a> {
    view: &'a dyn View,
    cx: &'a Context<'a>,
    args: Arguments,
    action: &'static str,
    key: Option<String>,
    payload: String,
}

fn task_mutate(
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
    let key = args
        .line("idempotencyKey", room)?
        .filter(|key| !key.is_empty());
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
    fn create(&self) -> Result<Outcome, Refusal> {
        let (view, cx, args) = (self.view, self.cx, &self.args);
        let project = self.project()?;
        let document = DocumentName::project(project);
        let (id, names) = self.new_id(&document);
        let empty = Row::default();
        let mut edits = Edits::new(id, &empty);
        edits.put("kind", "task");
        if args.some("title").is_none() {
            return Err(missing("title"));
        }
        fields::edit_fields(cx, args, &empty, &mut edits)?;
        if let Some(state) = args.some("state") {
            let map = Map::from_iter([("statePatch".to_owned(), state.clone())]);
            let state = Arguments::accept(map, &["statePatch"])?;
            fields::edit_fields(cx, &state, &empty, &mut edits)?;
        }
        let status = match args.line("status", limits::SHORT_CHARS)? {
            Some(text) => self.status(&text)?,
            None => "ready".to_owned(),
        };
        let reason = args.short("reason")?.filter(|reason| !reason.is_empty());
        if status == "blocked" && reason.is_none() {
            return Err(reason_required("blocked", "reason"));
        }
        let forced = args.flag("force")?.unwrap_or(false) && status == "in_progress";
        edits.put("status", status_json(&status, reason.as_deref(), forced));
        if status == "blocked" {
            edits.put("blocker", blocker_json(reason.as_deref(), None, "ready"));
        }
        match args.short("abandonReason")?.filter(|why| !why.is_empty()) {
            Some(why) => edits.put("abandonReason", why),
            None if status == "abandoned" => {
                return Err(reason_required("abandoned", "abandonReason"));
            }
            None => {}
        }
        self.sprint_of_create(project, &mut edits)?;
        self.check_links(id, project, &edits)?;
        // Equal creates made apart converge on one object; here it is simply there already.
        if let Some(at) = view.object(id)? {
            return Ok(Outcome::Nothing(Reply::Task(at.id, Map::new())));
        }
        if status == "in_progress" && !forced {
            self.check_new_dependencies(id, &edits)?;
        }
        self.write(
            document,
            id,
            names,
            Vec::new(),
            edits.list,
            Reply::Task(id, Map::new()),
        )
    }

    /// `update` and `move`, alone or together.
    fn change(&self) -> Result<Outcome, Refusal> {
        let (cx, args) = (self.cx, &self.args);
        let at = self.object("id", "task")?;
        let mut edits = Edits::new(at.id, &at.row);
        if self.action != "move" {
            fields::edit_fields(cx, args, &at.row, &mut edits)?;
            if args.given("sprintId").is_some() {
                self.sprint_edit(&at, &mut edits)?;
            }
        }
        let moved = match args.line("status", limits::SHORT_CHARS)? {
            Some(text) => Some(self.status(&text)?),
            None if self.action == "move" => return Err(missing("status")),
            None => None,
        };
        if let Some(status) = &moved {
            self.move_edits(&at, status, &mut edits)?;
        }
        let writes = edits.fields();
        // Staleness first: what the rules would say of the merged state is of no use to a caller
        // who has not seen it.
        let resolves = self.check_write(&at, &writes, true)?;
        if let Some(status) = &moved {
            self.check_move(&at, status)?;
        }
        if let Some(project) = at.project {
            self.check_links(at.id, project, &edits)?;
        }
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    fn move_edits(&self, at: &Located, status: &str, edits: &mut Edits<'_>) -> Result<(), Refusal> {
        let args = &self.args;
        let forced = args.flag("force")?.unwrap_or(false);
        let reason = args.short("reason")?;
        let before = present::status_of(&at.row);
        let force_matters = forced && status == "in_progress";
        edits.put(
            "status",
            status_json(status, reason.as_deref(), force_matters),
        );
        if status == "blocked" {
            let was = if before == "blocked" {
                was_before_block(&at.row)
            } else {
                before
            };
            edits.put("blocker", blocker_json(reason.as_deref(), None, &was));
        } else {
            edits.clear("blocker");
        }
        if let Some(result) = args.long("result")? {
            edits.put("result", result);
        }
        match args.short("abandonReason")? {
            Some(why) => edits.put("abandonReason", why),
            None if status != "abandoned" => edits.clear("abandonReason"),
            None => {}
        }
        if self.cx.schema.group_of(status) == Group::Closed {
            edits.clear("lease");
        }
        Ok(())
    }

    fn check_move(&self, at: &Located, status: &str) -> Result<(), Refusal> {
        let args = &self.args;
        let given = |name: &str| {
            args.some(name)
                .and_then(Json::as_str)
                .is_some_and(|text| !text.trim().is_empty())
        };
        if status == "abandoned" && !given("abandonReason") {
            return Err(reason_required("abandoned", "abandonReason"));
        }
        if status == "blocked" && !given("reason") {
            return Err(reason_required("blocked", "reason"));
        }
        let forced = args.flag("force")?.unwrap_or(false);
        if status == "in_progress" && !forced {
            self.check_dependencies(at)?;
        }
        Ok(())
    }

    fn check_dependencies(&self, at: &Located) -> Result<(), Refusal> {
        let unmet = present::unmet_dependencies(self.view, self.cx, at)?;
        if unmet.is_empty() {
            return Ok(());
        }
        Err(self
            .unmet(at.id, &unmet)
            .with("current", present::object(self.view, self.cx, at)?))
    }

    /// The same for a task that is about to be created in progress.
    fn check_new_dependencies(&self, id: ObjectId, edits: &Edits<'_>) -> Result<(), Refusal> {
        let targets = edits
            .list
            .iter()
            .filter_map(|edit| edit.field.strip_prefix("edge/depends_on/")?.parse().ok());
        let unmet = present::unmet_among(self.view, self.cx, targets)?;
        if unmet.is_empty() {
            return Ok(());
        }
        Err(self.unmet(id, &unmet))
    }

    fn unmet(&self, id: ObjectId, unmet: &[(ObjectId, String)]) -> Refusal {
        let shown: Vec<_> = unmet
            .iter()
            .take(5)
            .map(|(id, status)| format!("{id} ({})", present::status_word(self.cx, status)))
            .collect();
        let more = if unmet.len() > 5 {
            format!(" and {} more", unmet.len() - 5)
        } else {
            String::new()
        };
        Refusal::new(
            Code::UnmetDependencies,
            format!("{id} waits for {}{more}.", shown.join(", ")),
            "Finish it, or pass force: true, which is recorded.",
        )
        .with(
            "unmet",
            unmet
                .iter()
                .map(|(id, status)| json!({ "id": id.to_string(), "status": status }))
                .collect::<Vec<_>>(),
        )
    }

    fn block(&self) -> Result<Outcome, Refusal> {
        let args = &self.args;
        let at = self.object("id", "task")?;
        let reason = args.short("reason")?.filter(|reason| !reason.is_empty());
        let reason = reason.ok_or_else(|| reason_required("blocked", "reason"))?;
        let blocked_by = args.id("taskId")?;
        if let Some(task) = blocked_by {
            self.target(task, at.project)?;
        }
        let before = present::status_of(&at.row);
        let was = if before == "blocked" {
            was_before_block(&at.row)
        } else {
            before
        };
        let mut edits = Edits::new(at.id, &at.row);
        edits.put("status", status_json("blocked", Some(&reason), false));
        edits.put("blocker", blocker_json(Some(&reason), blocked_by, &was));
        let resolves = self.check_write(&at, &edits.fields(), true)?;
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    fn unblock(&self) -> Result<Outcome, Refusal> {
        let at = self.object("id", "task")?;
        let mut edits = Edits::new(at.id, &at.row);
        edits.clear("blocker");
        if present::status_of(&at.row) == "blocked" {
            edits.put(
                "status",
                status_json(&was_before_block(&at.row), None, false),
            );
        }
        let resolves = self.check_write(&at, &edits.fields(), true)?;
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    fn claim(&self) -> Result<Outcome, Refusal> {
        let (view, cx, args) = (self.view, self.cx, &self.args);
        let secs = args.integer("leaseSecs")?.unwrap_or(LEASE_SECS);
        if !(60..=7 * 24 * 3600).contains(&secs) {
            return Err(Refusal::argument(
                "leaseSecs",
                "leaseSecs is out of bounds.",
                "Send 60 to 604800.",
            ));
        }
        if args.some("id").is_none() {
            return self.claim_next(secs);
        }
        let at = self.object("id", "task")?;
        let forced = args.flag("force")?.unwrap_or(false);
        let edits = self.claim_edits(&at, secs, forced)?;
        let resolves = self.check_write(&at, &edits.fields(), false)?;
        if cx.schema.group_of(&present::status_of(&at.row)) == Group::Closed {
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!(
                    "{} is {} and cannot be claimed.",
                    at.id,
                    present::status_word(cx, &present::status_of(&at.row))
                ),
                "Move it to ready first if it has to be done again.",
            )
            .with("current", present::object(view, cx, &at)?));
        }
        if let Some(holder) = self.other_holder(&at)?
            && !forced
        {
            return Err(self.claimed(&at, &holder)?);
        }
        if !forced {
            self.check_dependencies(&at)?;
        }
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    fn claim_next(&self, secs: i64) -> Result<Outcome, Refusal> {
        let view = self.view;
        let project = self.project()?;
        let mut leased = 0;
        for id in view.ready(project, CLAIM_CANDIDATES)? {
            let Some(at) = view.object(id)? else { continue };
            if self.other_holder(&at)?.is_some() {
                leased += 1;
                continue;
            }
            let edits = self.claim_edits(&at, secs, false)?;
            // A conflicted field needs somebody to decide; the next task does not.
            if edits.fields().iter().any(|field| {
                at.row
                    .cells
                    .get(field)
                    .is_some_and(crate::row::Cell::is_conflicted)
            }) {
                continue;
            }
            return self.write_at(&at, Vec::new(), edits.list, Reply::Task(at.id, Map::new()));
        }
        let blocked = view.waiting(project)?;
        Ok(Outcome::Nothing(Reply::Json(json!({
            "task": null,
            "why": { "blocked": blocked, "leased": leased },
            "hint": "Nothing is ready to be taken. Search for blocked work, or wait.",
        }))))
    }

    fn claim_edits<'r>(
        &self,
        at: &'r Located,
        secs: i64,
        forced: bool,
    ) -> Result<Edits<'r>, Refusal> {
        let caller = self.cx.caller;
        let assignee = if caller.kind == CallerKind::Person {
            &caller.member
        } else {
            &caller.credential
        };
        let mut edits = Edits::new(at.id, &at.row);
        edits.put("assignee", assignee.as_str());
        edits.put("status", status_json("in_progress", None, forced));
        edits.clear("blocker");
        let lease = json!({ "by": caller.credential, "secs": secs }).to_string();
        // A lease is as old as the operation that wrote it: renewing one writes it again, though
        // not before half of it is over, or every call would move the revision.
        let half = self.cx.now + secs * 500;
        if self
            .view
            .lease_expires(at)?
            .is_some_and(|expires| expires > half)
        {
            edits.put("lease", lease);
        } else {
            edits.put_again("lease", lease);
        }
        Ok(edits)
    }

    fn release(&self) -> Result<Outcome, Refusal> {
        let at = self.object("id", "task")?;
        let mut edits = Edits::new(at.id, &at.row);
        edits.clear("lease");
        if present::status_of(&at.row) == "in_progress" {
            edits.put("status", status_json("ready", None, false));
        }
        let caller = self.cx.caller;
        let own = |id: &str| id == caller.credential || id == caller.member;
        if at.row.text("assignee").is_some_and(own) {
            edits.clear("assignee");
        }
        let resolves = self.check_write(&at, &edits.fields(), false)?;
        if let Some(holder) = self.other_holder(&at)?
            && !self.args.flag("force")?.unwrap_or(false)
        {
            return Err(self.claimed(&at, &holder)?);
        }
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    /// The credential of somebody else whose lease on the task is alive.
    fn other_holder(&self, at: &Located) -> Result<Option<String>, Refusal> {
        let Some(lease) = at.row.text("lease").map(present::parsed) else {
            return Ok(None);
        };
        let by = lease
            .get("by")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned();
        let live = self
            .view
            .lease_expires(at)?
            .is_some_and(|expires| expires > self.cx.now);
        Ok((live && by != self.cx.caller.credential).then_some(by))
    }

    fn claimed(&self, at: &Located, holder: &str) -> Result<Refusal, Refusal> {
        let left = self
            .view
            .lease_expires(at)?
            .map_or(0, |expires| (expires - self.cx.now).max(0) / 60_000);
        // The lease names its holder itself, and anybody may have written it.
        let named = if self.cx.directory.credentials.contains_key(holder) {
            holder
        } else {
            "another credential"
        };
        Ok(Refusal::new(
            Code::Claimed,
            format!("{} is held by {named} (lease {left} min left).", at.id),
            "Work elsewhere, comment on it, or pass force: true, which is recorded and tells them.",
        )
        .with("holder", self.cx.directory.actor_json(holder, None))
        .with("current", present::object(self.view, self.cx, at)?))
    }

    fn comment(&self) -> Result<Outcome, Refusal> {
        let at = self.object("id", "task")?;
        let body = self
            .args
            .long("body")?
            .filter(|body| !body.trim().is_empty())
            .ok_or_else(|| missing("body"))?;
        let document = self.document_of(&at);
        let (id, names) = self.new_id(&document);
        let empty = Row::default();
        let mut edits = Edits::new(id, &empty);
        edits.put("kind", "comment");
        edits.put("subject", at.id.to_string());
        edits.put("body", body);
        if let Some(parent) = self.args.id("replyTo")? {
            let found = self.view.object(parent)?;
            if found
                .is_none_or(|found| found.row.text("subject") != Some(at.id.to_string().as_str()))
            {
                return Err(Refusal::argument(
                    "replyTo",
                    "replyTo is no comment on this task.",
                    "Copy the comment's id from task_get.",
                ));
            }
            edits.put("replyTo", parent.to_string());
        }
        if self.view.object(id)?.is_some() {
            return Ok(Outcome::Nothing(Reply::Comment(id)));
        }
        self.write(
            document,
            id,
            names,
            Vec::new(),
            edits.list,
            Reply::Comment(id),
        )
    }

    fn link(&self, add: bool) -> Result<Outcome, Refusal> {
        let (view, args) = (self.view, &self.args);
        let at = self.object("id", "task")?;
        let target = args.required_id("targetId")?;
        let text = args
            .line("type", limits::SHORT_CHARS)?
            .ok_or_else(|| missing("type"))?;
        let known: Vec<&str> = self
            .cx
            .schema
            .relations
            .iter()
            .flat_map(|relation| [Some(relation.name.as_str()), relation.inverse.as_deref()])
            .flatten()
            .collect();
        let (relation, inverse) = self
            .cx
            .schema
            .relation(&text)
            .ok_or_else(|| unknown("type", &text, json!(known)))?;
        let other = self.target(target, at.project)?;
        // An inverse edge is stored at its other end; the revision given is that of `id`.
        self.check_write(&at, &BTreeSet::new(), true)?;
        let (from, to) = if inverse {
            (&other, at.id)
        } else {
            (&at, target)
        };
        let field = format!("edge/{}/{to}", relation.name);
        let mut edits = Edits::new(from.id, &from.row);
        if add {
            if from.id == to {
                return Err(cycle(&[to, to]));
            }
            let is_new = !from.row.cells.contains_key(&field);
            if is_new && from.row.entries("edge/").count() >= limits::SET_ENTRIES {
                return Err(arguments::too_large(
                    "links",
                    limits::SET_ENTRIES + 1,
                    limits::SET_ENTRIES,
                    "entries",
                ));
            }
            if relation.acyclic {
                let edges = Dependencies(view);
                if let Some(path) = graph::path(&edges, to, from.id)? {
                    return Err(cycle(&path));
                }
            }
            edits.put_again(&field, true);
        } else {
            edits.clear(&field);
        }
        self.write(
            self.document_of(from),
            at.id,
            Vec::new(),
            Vec::new(),
            edits.list,
            Reply::Task(at.id, Map::new()),
        )
    }

    fn resolve(&self) -> Result<Outcome, Refusal> {
        let (view, cx, args) = (self.view, self.cx, &self.args);
        let at = self.object("id", "")?;
        let field = args
            .line("field", limits::FIELD_BYTES)?
            .ok_or_else(|| missing("field"))?;
        let mut edits = Edits::new(at.id, &at.row);
        let collapses: Vec<OpId> = at
            .row
            .unseen_collapses()
            .filter(|(_, collapse)| collapse.field == field)
            .map(|(by, _)| by)
            .collect();
        let empty = crate::row::Cell::default();
        let cell = at.row.cells.get(&field).unwrap_or(&empty);
        if !cell.is_conflicted() && collapses.is_empty() {
            let open: Vec<String> = at
                .row
                .conflicted()
                .map(|(field, _)| field.to_owned())
                .chain(
                    at.row
                        .unseen_collapses()
                        .map(|(_, collapse)| collapse.field.clone()),
                )
                .collect();
            self.check_write(&at, &BTreeSet::from([field.clone()]), true)?;
            return Err(unknown("field", &field, json!(open))
                .with("current", present::object(view, cx, &at)?));
        }
        let revision = args.revision("revision")?;
        let revision = revision.ok_or_else(|| missing("revision"))?;
        stale::check(view, cx, &at, &revision, &BTreeSet::from([field.clone()]))?;
        match (args.some("choose"), args.given("value")) {
            (Some(choose), None) => {
                let choose = line("choose", choose, 80)?;
                let mut names = conflict::choices(cell.0.iter().map(|(op, _)| *op));
                // A collapse shows the lost values with names too.
                for by in &collapses {
                    let lost = at.row.collapsed.get(by).map(|collapse| &collapse.lost);
                    for (op, name) in conflict::choices(lost.into_iter().flatten().copied()) {
                        names.entry(op).or_insert(name);
                    }
                }
                let chosen = names.iter().find(|(_, name)| **name == choose);
                let Some((op, _)) = chosen else {
                    let accepted: Vec<_> = names.into_values().collect();
                    return Err(unknown("choose", &choose, json!(accepted)));
                };
                let visible = cell.0.iter().find(|(id, _)| id == op);
                let scalar = match visible {
                    Some((op, value)) => Some(conflict::load(view, &at, *op, value)?),
                    None => conflict::scalar_of(view, &at, *op)?,
                };
                if let Some(scalar) = scalar {
                    edits.put(&field, scalar);
                }
            }
            (None, Some(value)) => match self.value_for(&at, &field, value)? {
                Some(scalar) => edits.put(&field, scalar),
                None => edits.clear(&field),
            },
            (None, None) if !cell.is_conflicted() => {}
            _ => {
                return Err(Refusal::argument(
                    "choose",
                    "one of choose and value is needed.",
                    "Send choose with a value's id, or value with your own.",
                ));
            }
        }
        for by in collapses {
            edits.put(&Collapse::ack_field(by), true);
        }
        let resolves = vec![format!("{}/{field}", at.id)];
        let reply = if at.row.kind() == Some("sprint") {
            Reply::Sprint(at.id, Map::new())
        } else {
            Reply::Task(at.id, Map::new())
        };
        self.write_at(&at, resolves, edits.list, reply)
    }

    /// The stored form of a value for a field that may be of any kind.
    fn value_for(
        &self,
        at: &Located,
        field: &str,
        value: &Json,
    ) -> Result<Option<Scalar>, Refusal> {
        if field == "title" {
            return fields::title_of(value).map(Some);
        }
        if field == "status" {
            let status = self.status(&line("value", value, limits::SHORT_CHARS)?)?;
            return Ok(Some(status_json(&status, None, false).into()));
        }
        if let Some((name, form)) = fields::PLAIN.iter().find(|(name, _)| *name == field) {
            return fields::plain(self.cx, name, *form, value);
        }
        if let Json::Bool(yes) = value {
            return Ok(Some((*yes).into()));
        }
        if value.is_null() {
            return Ok(None);
        }
        if field == "sprint" || field == "sprintId" {
            let sprint = arguments::id("value", value)?;
            self.target(sprint, at.project)?;
            return Ok(Some(sprint.to_string().into()));
        }
        match value {
            Json::String(_) => arguments::long("value", value).map(|text| Some(text.into())),
            Json::Number(number) => Ok(Some(number.as_i64().map_or_else(
                || Scalar::F64(number.as_f64().unwrap_or_default()),
                Scalar::Int,
            ))),
            nested => Ok(Some(nested.to_string().into())),
        }
    }

    fn archive(&self, hide: bool) -> Result<Outcome, Refusal> {
        let at = self.object("id", "")?;
        let mut edits = Edits::new(at.id, &at.row);
        if hide {
            if !present::is_archived(&at.row) {
                edits.put("archivedAt", true);
            }
        } else {
            edits.clear("archivedAt");
            edits.clear("deletedAt");
        }
        let resolves = self.check_write(&at, &edits.fields(), true)?;
        let reply = match at.row.kind() {
            Some("sprint") => Reply::Sprint(at.id, Map::new()),
            _ => Reply::Task(at.id, Map::new()),
        };
        self.write_at(&at, resolves, edits.list, reply)
    }

    fn sprint_create(&self) -> Result<Outcome, Refusal> {
        let project = self.project()?;
        let document = DocumentName::project(project);
        let (id, names) = self.new_id(&document);
        let empty = Row::default();
        let mut edits = Edits::new(id, &empty);
        edits.put("kind", "sprint");
        let name = self
            .args
            .line("name", limits::TITLE_CHARS)?
            .filter(|name| !name.is_empty());
        edits.put("name", name.ok_or_else(|| missing("name"))?);
        if let Some(goal) = self.args.long("goal")? {
            edits.put("goal", goal);
        }
        if self.view.object(id)?.is_some() {
            return Ok(Outcome::Nothing(Reply::Sprint(id, Map::new())));
        }
        self.write(
            document,
            id,
            names,
            Vec::new(),
            edits.list,
            Reply::Sprint(id, Map::new()),
        )
    }

    fn sprint_update(&self) -> Result<Outcome, Refusal> {
        let at = self.object("sprintId", "sprint")?;
        let mut edits = Edits::new(at.id, &at.row);
        if let Some(name) = self
            .args
            .line("name", limits::TITLE_CHARS)?
            .filter(|name| !name.is_empty())
        {
            edits.put("name", name);
        }
        match self.args.given("goal") {
            Some(Json::Null) => edits.clear("goal"),
            Some(goal) => edits.put("goal", arguments::long("goal", goal)?),
            None => {}
        }
        if let Some(position) = self.args.integer("position")? {
            edits.put("position", position);
        }
        let resolves = self.check_write(&at, &edits.fields(), true)?;
        self.write_at(&at, resolves, edits.list, Reply::Sprint(at.id, Map::new()))
    }

    fn sprint_assign(&self) -> Result<Outcome, Refusal> {
        let at = self.object("id", "task")?;
        if self.args.given("sprintId").is_none() {
            return Err(missing("sprintId"));
        }
        let mut edits = Edits::new(at.id, &at.row);
        let checked = self.sprint_edit(&at, &mut edits);
        let resolves = self.check_write(&at, &BTreeSet::from(["sprintId".to_owned()]), true)?;
        checked?;
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    fn sprint_of_create(&self, project: ObjectId, edits: &mut Edits<'_>) -> Result<(), Refusal> {
        if let Some(sprint) = self.args.id("sprintId")? {
            self.assignable_sprint(sprint, Some(project))?;
            edits.put("sprintId", sprint.to_string());
        }
        Ok(())
    }

    fn sprint_edit(&self, at: &Located, edits: &mut Edits<'_>) -> Result<(), Refusal> {
        match self.args.id("sprintId")? {
            Some(sprint) => {
                self.assignable_sprint(sprint, at.project)?;
                edits.put("sprintId", sprint.to_string());
            }
            None => edits.clear("sprintId"),
        }
        Ok(())
    }

    fn assignable_sprint(
        &self,
        sprint: ObjectId,
        project: Option<ObjectId>,
    ) -> Result<(), Refusal> {
        let found = self.find(sprint, None)?;
        if found.row.kind() != Some("sprint") || found.project != project {
            return Err(Refusal::argument(
                "sprintId",
                format!("{sprint} is no sprint of the task's project."),
                "Use a sprint that task_search lists for the project.",
            ));
        }
        if present::sprint_status(self.view, self.cx, &found)? == "completed" {
            return Err(Refusal::argument(
                "sprintId",
                format!("sprint {sprint} is completed."),
                "Assign to an active or planned sprint.",
            ));
        }
        Ok(())
    }

    fn sprint_activate(&self) -> Result<Outcome, Refusal> {
        let (view, cx) = (self.view, self.cx);
        let at = self.object("sprintId", "sprint")?;
        self.check_write(&at, &BTreeSet::from(["startedAt".to_owned()]), false)?;
        let status = present::sprint_status(view, cx, &at)?;
        if status == "completed" {
            return Err(Refusal::argument(
                "sprintId",
                format!("sprint {} is completed; there is no way back.", at.id),
                "Create a new sprint.",
            )
            .with("current", present::object(view, cx, &at)?));
        }
        let project = at.project.ok_or_else(|| missing("sprintId"))?;
        if let Some(active) = present::active_sprint(view, cx, project)?
            && active != at.id
            && let Some(incumbent) = view.object(active)?
            && present::sprint_status(view, cx, &incumbent)? == "active"
        {
            return Err(Refusal::new(
                Code::AlreadyActive,
                format!(
                    "sprint {active} of the project is active; a project has one active sprint."
                ),
                "Complete it first.",
            )
            .with("current", present::object(view, cx, &incumbent)?));
        }
        let register = active_sprint_register(cx, project);
        let row = view.object(register)?.map(|at| at.row).unwrap_or_default();
        let mut edits = Edits::new(at.id, &at.row);
        if !at.row.cells.contains_key("startedAt") {
            edits.put("startedAt", true);
        }
        let mut list = edits.list;
        let mut edits = Edits::new(register, &row);
        edits.put("kind", "active_sprint");
        edits.put("sprint", at.id.to_string());
        let resolves = if row
            .cells
            .get("sprint")
            .is_some_and(crate::row::Cell::is_conflicted)
        {
            vec![format!("{register}/sprint")]
        } else {
            Vec::new()
        };
        list.extend(edits.list);
        self.write(
            DocumentName::project(project),
            at.id,
            vec![ACTIVE_SPRINT.to_owned()],
            resolves,
            list,
            Reply::Sprint(at.id, Map::new()),
        )
    }

    fn sprint_complete(&self) -> Result<Outcome, Refusal> {
        let (view, cx) = (self.view, self.cx);
        let at = self.object("sprintId", "sprint")?;
        self.check_write(&at, &BTreeSet::from(["completedAt".to_owned()]), false)?;
        let status = present::sprint_status(view, cx, &at)?;
        if status != "active" {
            return Err(Refusal::argument(
                "sprintId",
                format!("sprint {} is {status}, not active.", at.id),
                "Only the active sprint can be completed.",
            )
            .with("current", present::object(view, cx, &at)?));
        }
        let move_to = self.args.id("moveOpenTo")?;
        if let Some(target) = move_to {
            if target == at.id {
                return Err(Refusal::argument(
                    "moveOpenTo",
                    "moveOpenTo is the sprint itself.",
                    "Name another sprint, or leave it out.",
                ));
            }
            self.assignable_sprint(target, at.project)?;
        }
        let mut edits = Edits::new(at.id, &at.row);
        edits.put("completedAt", true);
        let mut list = edits.list;
        let (mut open, mut not_moved) = (Vec::new(), Vec::new());
        for task in view.referrers(at.id, "sprint")? {
            let Some(task) = view.object(task)? else {
                continue;
            };
            if cx.schema.group_of(&present::status_of(&task.row)) == Group::Closed
                || present::is_archived(&task.row)
            {
                continue;
            }
            open.push(task.id.to_string());
            if let Some(target) = move_to {
                // Two sprints written apart are for somebody to decide who sees both.
                let conflicted = task
                    .row
                    .cells
                    .get("sprintId")
                    .is_some_and(crate::row::Cell::is_conflicted);
                if conflicted {
                    not_moved.push(task.id.to_string());
                    continue;
                }
                let mut edits = Edits::new(task.id, &task.row);
                edits.put("sprintId", target.to_string());
                list.extend(edits.list);
            }
        }
        let mut extra = Map::new();
        extra.insert("openTasks".into(), open.into());
        extra.insert("notMoved".into(), not_moved.into());
        extra.insert(
            "movedTo".into(),
            move_to.map_or(Json::Null, |target| target.to_string().into()),
        );
        let document = self.document_of(&at);
        self.write(
            document,
            at.id,
            Vec::new(),
            Vec::new(),
            list,
            Reply::Sprint(at.id, extra),
        )
    }

    // -- what the actions share

    fn project(&self) -> Result<ObjectId, Refusal> {
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
    fn object(&self, argument: &str, kind: &str) -> Result<Located, Refusal> {
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

    fn find(&self, id: ObjectId, revision: Option<&Revision>) -> Result<Located, Refusal> {
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
    fn target(&self, id: ObjectId, project: Option<ObjectId>) -> Result<Located, Refusal> {
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

    fn status(&self, text: &str) -> Result<String, Refusal> {
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
    fn new_id(&self, document: &DocumentName) -> (ObjectId, Vec<String>) {
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

    fn document_of(&self, at: &Located) -> DocumentName {
        at.project
            .map_or_else(DocumentName::workspace, DocumentName::project)
    }

    /// The revision rule and the conflict rule for the fields that are about to be written;
    /// returns the conflicts that the write settles by name.
    fn check_write(
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
    fn check_links(
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

    fn check_edge(
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

    fn write_at(
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

    fn write(
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

    fn reply_about(&self, subject: ObjectId) -> Result<Reply, Refusal> {
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

/// How many ready tasks `claim` without an id looks at: those beyond are behind that many leases.
const CLAIM_CANDIDATES: usize = 256;

fn status_json(status: &str, reason: Option<&str>, forced: bool) -> String {
    let mut value = Map::new();
    if forced {
        value.insert("forced".into(), true.into());
    }
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        value.insert("reason".into(), reason.into());
    }
    value.insert("value".into(), status.into());
    Json::Object(value).to_string()
}

fn blocker_json(reason: Option<&str>, task: Option<ObjectId>, was: &str) -> String {
    let mut value = Map::new();
    value.insert("reason".into(), reason.unwrap_or_default().into());
    value.insert(
        "taskId".into(),
        task.map_or(Json::Null, |task| task.to_string().into()),
    );
    value.insert("was".into(), was.into());
    Json::Object(value).to_string()
}

fn was_before_block(row: &Row) -> String {
    let blocker = row.text("blocker").map(present::parsed);
    let was = blocker
        .as_ref()
        .and_then(|blocker| blocker.get("was")?.as_str());
    was.filter(|was| *was != "blocked")
        .unwrap_or("ready")
        .to_owned()
}

fn reason_required(status: &str, field: &str) -> Refusal {
    Refusal::new(
        Code::ReasonRequired,
        format!("a task becomes {status} with a reason alone. Nothing was written."),
        format!("Send {field}: whoever comes next reads it."),
    )
    .with("field", field)
}

fn cycle(path: &[ObjectId]) -> Refusal {
    let path: Vec<_> = path.iter().map(ToString::to_string).collect();
    Refusal::new(
        Code::Cycle,
        format!("that would close a circle: {}.", path.join(" -> ")),
        "Nothing was written. Remove one of these edges first, or leave this one out.",
    )
    .with("cycle", path)
}

/// The blocking edges of a view.
#[derive(Clone, Copy)]
pub struct Dependencies<'a>(pub &'a dyn View);

/// The parents of a view.
#[derive(Clone, Copy)]
pub struct Parents<'a>(pub &'a dyn View);

impl std::fmt::Debug for Dependencies<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dependencies")
    }
}

impl std::fmt::Debug for Parents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parents")
    }
}

impl Graph for Dependencies<'_> {
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
        Ok(self
            .0
            .object(from)?
            .map(|at| present::edges(&at.row, "depends_on").collect())
            .unwrap_or_default())
    }

    fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
        self.0.referrers(to, "depends_on")
    }
}

impl Graph for Parents<'_> {
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
        Ok(self
            .0
            .object(from)?
            .and_then(|at| parent_edge(&at.row))
            .into_iter()
            .collect())
    }

    fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
        self.0.referrers(to, "parent")
    }
}

/// The parent that a row names, with the operation that named it.
pub fn parent_edge(row: &Row) -> Option<(ObjectId, OpId)> {
    let parent = row.text("parentId")?.parse().ok()?;
    Some((parent, row.cells.get("parentId")?.winner_op()?))
}

// ---------------------------------------------------------------------------------------------
// projects and imports

fn project_create(
    view: &dyn View,
    cx: &Context<'_>,
    slug: &str,
    name: &str,
) -> Result<Outcome, Refusal> {
    cx.need("projects:write")?;
    if cx.caller.grants.is_some() {
        return Err(Refusal::new(
            Code::Forbidden,
            "this credential is limited to some projects and makes none.",
            "Ask your supervisor.",
        ));
    }
    let slug_ok = (1..=64).contains(&slug.len())
        && slug
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !slug.starts_with('-');
    if !slug_ok {
        return Err(Refusal::argument(
            "slug",
            "a slug is 1 to 64 of a-z, 0-9 and -, not - first.",
            "Choose another.",
        )
        .with("given", slug));
    }
    let name = line("name", &name.into(), limits::TITLE_CHARS)?;
    let id = project_id(cx.workspace, slug);
    let row = view.object(id)?.map(|at| at.row);
    if row.is_some() {
        return Ok(Outcome::Nothing(Reply::Project(id)));
    }
    let empty = Row::default();
    let mut edits = Edits::new(id, &empty);
    edits.put("kind", "project");
    edits.put("slug", slug);
    edits.put(
        "name",
        if name.is_empty() {
            slug.to_owned()
        } else {
            name
        },
    );
    let message = Message {
        command: "project_create".into(),
        credential: cx.caller.credential.clone(),
        hlc: cx.hlc.0,
        names: vec![project_name(slug)],
        label: cx.caller.label.clone(),
        ..Message::default()
    };
    Ok(Outcome::Write(Box::new(Effect {
        document: DocumentName::workspace(),
        message,
        edits: edits.list,
        reply: Reply::Project(id),
    })))
}

fn import_task(view: &dyn View, cx: &Context<'_>, import: &Import) -> Result<Outcome, Refusal> {
    cx.need("tasks:write")?;
    let project = cx.project(view, &import.project)?.id;
    let document = DocumentName::project(project);
    let id = imported_id(cx, project, &import.name);
    let found = view.object(id)?;
    let row = found.as_ref().map(|at| at.row.clone()).unwrap_or_default();
    let mut allowed = fields::TASK_FIELDS.to_vec();
    allowed.extend(["status", "reason", "abandonReason", "imported"]);
    let args = Arguments::accept(import.fields.clone(), &allowed)?;
    let mut edits = Edits::new(id, &row);
    edits.put("kind", "task");
    fields::edit_fields(cx, &args, &row, &mut edits)?;
    for (relation, target) in &import.links {
        let (known, inverse) = cx
            .schema
            .relation(relation)
            .ok_or_else(|| unknown("type", relation, Json::Null))?;
        if inverse || known.acyclic {
            return Err(unknown("type", relation, Json::Null));
        }
        edits.put(&format!("edge/{}/{target}", known.name), true);
    }
    let status = args
        .line("status", limits::SHORT_CHARS)?
        .unwrap_or_else(|| "ready".to_owned());
    let known = cx
        .schema
        .status(&status)
        .ok_or_else(|| unknown("status", &status, Json::Null))?
        .name
        .clone();
    if let Some(reason) = args.short("abandonReason")? {
        edits.put("abandonReason", reason);
    }
    edits.put(
        "status",
        status_json(&known, args.short("reason")?.as_deref(), false),
    );
    // What this import wrote, by field: the next one changes a field only where nobody else has.
    let mark = match &found {
        Some(at) => conflict::load_winner(view, at, IMPORT_MARK)?,
        None => None,
    };
    let before: Map<String, Json> =
        match mark.as_ref().and_then(Scalar::as_str).map(present::parsed) {
            Some(Json::Object(map)) => map,
            _ => Map::new(),
        };
    let imported = args.some("imported").cloned().unwrap_or_default();
    let mut kept_here = Vec::new();
    if found.is_some() {
        let mut kept = Vec::new();
        edits.list.retain(|edit| {
            let known_here = before
                .get("fields")
                .and_then(|fields| fields.get(&edit.field))
                .and_then(Json::as_str);
            let current = digest_of(&row, &edit.field);
            // Values written apart are for somebody to decide who sees them.
            let conflicted = row
                .cells
                .get(&edit.field)
                .is_some_and(crate::row::Cell::is_conflicted);
            let untouched = known_here == current.as_deref() && !conflicted;
            if !untouched {
                kept.push(edit.field.clone());
            }
            untouched
        });
        kept_here = kept;
    }
    let mut written: Map<String, Json> = before
        .get("fields")
        .and_then(|fields| fields.as_object().cloned())
        .unwrap_or_default();
    for edit in &edits.list {
        match &edit.value {
            Some(value) => written.insert(edit.field.clone(), digest(value).into()),
            None => written.remove(&edit.field),
        };
    }
    written.remove("kind");
    let mut mark = Map::new();
    mark.insert("fields".into(), Json::Object(written));
    mark.insert("source".into(), imported);
    let answer = |outcome: &str| {
        Reply::Json(json!({ "id": id.to_string(), "outcome": outcome, "keptHere": kept_here }))
    };
    if edits.list.is_empty() {
        return Ok(Outcome::Nothing(answer("unchanged")));
    }
    let reply = answer(if found.is_some() {
        "updated"
    } else {
        "created"
    });
    edits.put(IMPORT_MARK, Json::Object(mark).to_string());
    let message = Message {
        command: "import".into(),
        credential: cx.caller.credential.clone(),
        hlc: cx.hlc.0,
        names: vec![import.name.clone()],
        cause: Some("import".into()),
        label: cx.caller.label.clone(),
        ..Message::default()
    };
    Ok(Outcome::Write(Box::new(Effect {
        document,
        message,
        edits: edits.list,
        reply,
    })))
}

fn import_comment(
    view: &dyn View,
    cx: &Context<'_>,
    comment: &ImportComment,
) -> Result<Outcome, Refusal> {
    cx.need("tasks:write")?;
    let project = cx.project(view, &comment.project)?.id;
    let id = imported_id(cx, project, &comment.name);
    let answer = |outcome: &str| Reply::Json(json!({ "id": id.to_string(), "outcome": outcome }));
    if view.object(id)?.is_some() {
        return Ok(Outcome::Nothing(answer("unchanged")));
    }
    let empty = Row::default();
    let mut edits = Edits::new(id, &empty);
    edits.put("kind", "comment");
    edits.put("subject", comment.task.to_string());
    edits.put(
        "body",
        arguments::long("body", &comment.body.as_str().into())?,
    );
    edits.put(IMPORT_MARK, json!({ "source": comment.source }).to_string());
    let message = Message {
        command: "import".into(),
        credential: cx.caller.credential.clone(),
        hlc: cx.hlc.0,
        names: vec![comment.name.clone()],
        cause: Some("import".into()),
        label: cx.caller.label.clone(),
        ..Message::default()
    };
    Ok(Outcome::Write(Box::new(Effect {
        document: DocumentName::project(project),
        message,
        edits: edits.list,
        reply: answer("created"),
    })))
}

/// The field in which an import keeps what it wrote, to know at the next one what others changed.
pub const IMPORT_MARK: &str = "imported";

/// Eight characters that tell one value from another; of a text, the same whether it is kept in
/// its row or apart.
fn digest(value: &Scalar) -> String {
    let hash = match value {
        Scalar::Str(text) => blake3::hash(text.as_bytes()),
        other => blake3::hash(other.to_json().to_string().as_bytes()),
    };
    hash.to_hex().get(..8).unwrap_or_default().to_owned()
}

fn digest_of(row: &Row, field: &str) -> Option<String> {
    match row.winner(field)? {
        crate::row::Value::Inline(scalar) => Some(digest(scalar)),
        crate::row::Value::Apart(text) => Some(
            text.digest
                .iter()
                .take(4)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        ),
    }
}
