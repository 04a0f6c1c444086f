//! Sprints: planned, active, completed, and no way back.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::{ACTIVE_SPRINT, Edits, Outcome, Reply, active_sprint_register, call::Call};
use crate::{
    arguments::{self, missing},
    document::DocumentName,
    id::ObjectId,
    limits, present,
    refusal::{Code, Refusal},
    row::Row,
    schema::Group,
    view::Located,
};

impl Call<'_> {
    pub(super) fn sprint_create(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn sprint_update(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn sprint_assign(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn sprint_of_create(
        &self,
        project: ObjectId,
        edits: &mut Edits<'_>,
    ) -> Result<(), Refusal> {
        if let Some(sprint) = self.args.id("sprintId")? {
            self.assignable_sprint(sprint, Some(project))?;
            edits.put("sprintId", sprint.to_string());
        }
        Ok(())
    }

    pub(super) fn sprint_edit(&self, at: &Located, edits: &mut Edits<'_>) -> Result<(), Refusal> {
        match self.args.id("sprintId")? {
            Some(sprint) => {
                self.assignable_sprint(sprint, at.project)?;
                edits.put("sprintId", sprint.to_string());
            }
            None => edits.clear("sprintId"),
        }
        Ok(())
    }

    pub(super) fn assignable_sprint(
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

    pub(super) fn sprint_activate(&self) -> Result<Outcome, Refusal> {
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

    pub(super) fn sprint_complete(&self) -> Result<Outcome, Refusal> {
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
}
