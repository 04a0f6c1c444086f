//! Tasks: create, update, move, block, comment, archive.

use serde_json::{Map, Value as Json, json};

use super::{Edits, Outcome, Reply, call::Call};
use crate::{
    arguments::{Arguments, missing},
    document::DocumentName,
    fields::{self},
    id::ObjectId,
    limits, present,
    refusal::{Code, Refusal},
    row::Row,
    schema::Group,
    view::Located,
};

impl Call<'_> {
    pub(super) fn create(&self) -> Result<Outcome, Refusal> {
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
    pub(super) fn change(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn move_edits(
        &self,
        at: &Located,
        status: &str,
        edits: &mut Edits<'_>,
    ) -> Result<(), Refusal> {
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

    pub(super) fn check_move(&self, at: &Located, status: &str) -> Result<(), Refusal> {
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

    pub(super) fn check_dependencies(&self, at: &Located) -> Result<(), Refusal> {
        let unmet = present::unmet_dependencies(self.view, self.cx, at)?;
        if unmet.is_empty() {
            return Ok(());
        }
        Err(self
            .unmet(at.id, &unmet)
            .with("current", present::object(self.view, self.cx, at)?))
    }

    /// The same for a task that is about to be created in progress.
    pub(super) fn check_new_dependencies(
        &self,
        id: ObjectId,
        edits: &Edits<'_>,
    ) -> Result<(), Refusal> {
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

    pub(super) fn unmet(&self, id: ObjectId, unmet: &[(ObjectId, String)]) -> Refusal {
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

    pub(super) fn block(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn unblock(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn comment(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn archive(&self, hide: bool) -> Result<Outcome, Refusal> {
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
}

pub(super) fn status_json(status: &str, reason: Option<&str>, forced: bool) -> String {
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

pub(super) fn blocker_json(reason: Option<&str>, task: Option<ObjectId>, was: &str) -> String {
    let mut value = Map::new();
    value.insert("reason".into(), reason.unwrap_or_default().into());
    value.insert(
        "taskId".into(),
        task.map_or(Json::Null, |task| task.to_string().into()),
    );
    value.insert("was".into(), was.into());
    Json::Object(value).to_string()
}

pub(super) fn was_before_block(row: &Row) -> String {
    let blocker = row.text("blocker").map(present::parsed);
    let was = blocker
        .as_ref()
        .and_then(|blocker| blocker.get("was")?.as_str());
    was.filter(|was| *was != "blocked")
        .unwrap_or("ready")
        .to_owned()
}

pub(super) fn reason_required(status: &str, field: &str) -> Refusal {
    Refusal::new(
        Code::ReasonRequired,
        format!("a task becomes {status} with a reason alone. Nothing was written."),
        format!("Send {field}: whoever comes next reads it."),
    )
    .with("field", field)
}
