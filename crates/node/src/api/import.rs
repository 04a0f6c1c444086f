//! Bringing in tasks from elsewhere: names become ids, each task is one command.

use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    board::{self, Command, Import, ImportComment, Outcome, Reply},
    context::Caller,
    id::ObjectId,
    limits,
    refusal::Refusal,
};

use crate::{core::Job, handle::Node};

/// Tasks of one call, so that it stays within a request and a commit.
const TASKS: usize = 100;

impl Node {
    pub(super) fn import_tasks(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(
            Arguments::flatten(arguments)?,
            &["projectId", "tasks", "dryRun"],
        )?;
        let project = args
            .line("projectId", 200)?
            .ok_or_else(|| arguments::missing("projectId"))?;
        let dry = args.flag("dryRun")?.unwrap_or(false);
        let entries = args
            .list("tasks", TASKS)?
            .ok_or_else(|| arguments::missing("tasks"))?;
        let commands = self.read(caller, |view, cx| {
            cx.need("tasks:write")?;
            let known = cx.project(view, &project)?;
            let id = |name: &str| board::imported_id(cx, known.id, name);
            entries
                .into_iter()
                .map(|entry| command(&known.id.to_string(), entry, &id))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let (tasks, comments): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .map(|entry| (entry.task, entry.comments))
            .unzip();
        let comments: Vec<_> = comments.into_iter().flatten().collect();
        let results = self.import_all(caller, tasks, dry);
        let commented = self.import_all(caller, comments, dry);
        Ok(json!({ "results": results, "comments": commented }))
    }

    fn import_all(&self, caller: &Caller, commands: Vec<Command>, dry: bool) -> Vec<Json> {
        let answers: Vec<Result<Json, Refusal>> = if dry {
            commands
                .iter()
                .map(|command| self.foresee(caller, command))
                .collect()
        } else {
            let jobs = commands
                .into_iter()
                .map(|command| Job::Command {
                    caller: caller.clone(),
                    command,
                })
                .collect();
            self.run_all(jobs)
        };
        answers
            .into_iter()
            .map(|answer| {
                answer.unwrap_or_else(
                    |refusal| json!({ "outcome": "refused", "error": refusal.to_json() }),
                )
            })
            .collect()
    }

    /// What a command would answer, without doing it.
    fn foresee(&self, caller: &Caller, command: &Command) -> Result<Json, Refusal> {
        self.read(caller, |view, cx| {
            let reply = match board::evaluate(view, cx, command)? {
                Outcome::Write(effect) => effect.reply,
                Outcome::Nothing(reply) | Outcome::Replay(_, reply) => reply,
            };
            Ok(match reply {
                Reply::Json(answer) => answer,
                _ => Json::Null,
            })
        })
    }
}

struct Entry {
    task: Command,
    comments: Vec<Command>,
}

fn command(project: &str, entry: Json, id: &dyn Fn(&str) -> ObjectId) -> Result<Entry, Refusal> {
    let entry = Arguments::accept(
        arguments::object("tasks", entry)?,
        &["name", "fields", "edges", "comments"],
    )?;
    let name = entry
        .line("name", limits::FIELD_BYTES)?
        .ok_or_else(|| arguments::missing("name"))?;
    let mut fields =
        arguments::object("fields", entry.some("fields").cloned().unwrap_or_default())?;
    let mut depends_on = Vec::new();
    let mut links = Vec::new();
    for edge in entry
        .list("edges", limits::SET_ENTRIES)?
        .unwrap_or_default()
    {
        let edge = Arguments::accept(arguments::object("edges", edge)?, &["type", "target"])?;
        let target = edge
            .line("target", limits::FIELD_BYTES)?
            .ok_or_else(|| arguments::missing("target"))?;
        let target = id(&target);
        match edge.line("type", 64)?.as_deref() {
            Some("depends_on") => depends_on.push(Json::from(target.to_string())),
            Some("parent") => {
                fields.insert("parentId".into(), target.to_string().into());
            }
            Some(relation) => links.push((relation.to_owned(), target)),
            None => return Err(arguments::missing("type")),
        }
    }
    if !depends_on.is_empty() {
        fields.insert("dependsOn".into(), depends_on.into());
    }
    let task = id(&name);
    let comments = entry
        .list("comments", limits::SET_ENTRIES)?
        .unwrap_or_default()
        .into_iter()
        .map(|comment| comment_command(project, task, comment))
        .collect::<Result<_, _>>()?;
    Ok(Entry {
        task: Command::Import(Import {
            project: project.to_owned(),
            name,
            fields,
            links,
        }),
        comments,
    })
}

fn comment_command(project: &str, task: ObjectId, comment: Json) -> Result<Command, Refusal> {
    let comment = Arguments::accept(
        arguments::object("comments", comment)?,
        &["name", "body", "by", "at"],
    )?;
    let mut source = Map::new();
    for field in ["by", "at"] {
        source.insert(
            field.into(),
            comment.some(field).cloned().unwrap_or_default(),
        );
    }
    Ok(Command::ImportComment(ImportComment {
        project: project.to_owned(),
        name: comment
            .line("name", limits::FIELD_BYTES)?
            .ok_or_else(|| arguments::missing("name"))?,
        task,
        body: comment.long("body")?.unwrap_or_default(),
        source: Json::Object(source),
    }))
}
