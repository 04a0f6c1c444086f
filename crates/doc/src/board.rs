//! The commands of the board: arguments, view, time and entropy in; one change or a typed refusal
//! out.
//!
//! Here: what a command is, what comes of it, and how one change is drafted from that. In the
//! files beside: the actions.

mod call;
mod claim;
mod import;
mod link;
mod project;
mod resolve;
mod sprint;
mod task;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::{
    change::{Action, Draft, Op},
    context::Context,
    document::DocumentName,
    id::{ActorId, ChangeHash, ObjectId},
    message::Message,
    present,
    refusal::Refusal,
    row::Row,
    scalar::Scalar,
    view::{KeyEffect, View, ViewError},
};

pub use call::{ACTIONS, accepted, split_updates};
pub use import::IMPORT_MARK;
pub use link::{Dependencies, Parents, parent_edge};

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
        Command::Task(map) => call::task_mutate(view, cx, map),
        Command::Project { slug, name } => project::project_create(view, cx, slug, name),
        Command::Import(import) => import::import_task(view, cx, import),
        Command::ImportComment(comment) => import::import_comment(view, cx, comment),
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
