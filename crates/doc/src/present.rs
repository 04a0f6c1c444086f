//! Objects as agents and people see them.

use serde_json::{Map, Value as Json, json};

use crate::{
    conflict,
    context::Context,
    id::{ObjectId, OpId},
    revision::Revision,
    row::Row,
    scalar::Scalar,
    schema::Group,
    view::{Located, View, ViewError},
};

/// An object as its kind shows it.
///
/// # Errors
///
/// When the store fails.
pub fn object(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    match at.row.kind() {
        Some("task") => task(view, cx, at),
        Some("sprint") => sprint(view, cx, at),
        Some("comment") => comment(view, cx, at),
        _ => plain(view, cx, at),
    }
}

/// A task, whole.
///
/// # Errors
///
/// When the store fails.
pub fn task(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let row = &at.row;
    let mut out = Map::new();
    for field in [
        "title",
        "body",
        "notes",
        "type",
        "result",
        "abandonReason",
        "branch",
        "anchor",
        "dueDate",
        "rank",
    ] {
        let value = conflict::load_winner(view, at, field)?;
        out.insert(
            field.into(),
            value.map_or(Json::Null, |scalar| scalar.to_json()),
        );
    }
    for field in ["parentId", "ringParentId", "sprintId", "planId"] {
        out.insert(field.into(), row.text(field).map_or(Json::Null, Json::from));
    }
    out.insert("status".into(), status_of(row).into());
    out.insert("statusReason".into(), status_part(row, "reason"));
    out.insert("forced".into(), status_part(row, "forced"));
    out.insert("priority".into(), priority_of(row).into());
    out.insert(
        "assignee".into(),
        row.text("assignee")
            .map_or(Json::Null, |id| cx.directory.assignee_json(id)),
    );
    out.insert(
        "tags".into(),
        row.entries("tag/").map(|(tag, _)| tag).collect(),
    );
    out.insert("criteria".into(), criteria(row));
    out.insert(
        "dependsOn".into(),
        edges(row, "depends_on")
            .map(|(target, _)| target.to_string())
            .collect(),
    );
    let dependents = view.referrers(at.id, "depends_on")?;
    out.insert(
        "dependents".into(),
        dependents.iter().map(ToString::to_string).collect(),
    );
    out.insert("links".into(), links(row));
    out.insert("blocker".into(), authored_json(view, cx, at, "blocker")?);
    out.insert("lease".into(), lease(view, cx, at)?);
    out.insert(
        "worktree".into(),
        row.text("worktree").map_or(Json::Null, parsed),
    );
    out.insert("state".into(), map_entries(view, at, "state/")?);
    out.insert("custom".into(), map_entries(view, at, "x/")?);
    out.insert("externalRefs".into(), external_refs(row));
    out.insert("archivedAt".into(), moment(view, at, "archivedAt")?);
    // Given by the arbiter and by plans, which a board of one toolset does not have.
    out.insert("number".into(), Json::Null);
    out.insert("address".into(), Json::Null);
    out.insert("invalid".into(), invalid(cx, row).into());
    common(view, cx, at, &mut out)?;
    Ok(Json::Object(out))
}

/// A task as a line of a list: enough to move it without a get.
///
/// # Errors
///
/// When the store fails.
pub fn task_summary(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let row = &at.row;
    let title =
        conflict::load_winner(view, at, "title")?.map_or(Json::Null, |title| title.to_json());
    Ok(json!({
        "id": at.id.to_string(),
        "number": null,
        "projectId": at.project.map(|project| project.to_string()),
        "title": title,
        "status": status_of(row),
        "priority": priority_of(row),
        "type": row.text("type").unwrap_or("task"),
        "assignee": row.text("assignee").map(|id| cx.directory.assignee_json(id)),
        "sprintId": row.text("sprintId"),
        "parentId": row.text("parentId"),
        "conflicted": conflict::is_open(row, !view.suspended(at)?.is_empty()),
        "revision": Revision::of(row).to_string(),
    }))
}

/// A sprint with the counts of its tasks by status.
///
/// # Errors
///
/// When the store fails.
pub fn sprint(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let mut counts = Map::new();
    for task in view.referrers(at.id, "sprint")? {
        if let Some(task) = view.object(task)?.filter(|task| !is_archived(&task.row)) {
            let slot = counts.entry(status_of(&task.row)).or_insert(json!(0));
            *slot = json!(slot.as_u64().unwrap_or(0) + 1);
        }
    }
    let mut out = Map::new();
    for field in ["name", "goal", "position"] {
        let value = conflict::load_winner(view, at, field)?;
        out.insert(
            field.into(),
            value.map_or(Json::Null, |scalar| scalar.to_json()),
        );
    }
    for field in ["startedAt", "completedAt"] {
        out.insert(field.into(), moment(view, at, field)?);
    }
    out.insert("status".into(), sprint_status(view, cx, at)?.into());
    out.insert("counts".into(), Json::Object(counts));
    common(view, cx, at, &mut out)?;
    Ok(Json::Object(out))
}

/// Where a sprint stands: completed if it says so, else active if it holds its project's
/// register, else planned.
///
/// # Errors
///
/// When the store fails.
pub fn sprint_status(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
) -> Result<&'static str, ViewError> {
    if at.row.cells.contains_key("completedAt") {
        return Ok("completed");
    }
    let active = match at.project {
        Some(project) => active_sprint(view, cx, project)?,
        None => None,
    };
    Ok(if active == Some(at.id) {
        "active"
    } else {
        "planned"
    })
}

/// The sprint that a project's register names, completed or not.
///
/// # Errors
///
/// When the store fails.
pub fn active_sprint(
    view: &dyn View,
    cx: &Context<'_>,
    project: ObjectId,
) -> Result<Option<ObjectId>, ViewError> {
    let register = crate::board::active_sprint_register(cx, project);
    Ok(view
        .object(register)?
        .and_then(|at| at.row.text("sprint")?.parse().ok()))
}

/// A comment.
///
/// # Errors
///
/// When the store fails.
pub fn comment(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let body = conflict::load_winner(view, at, "body")?;
    Ok(json!({
        "id": at.id.to_string(),
        "taskId": at.row.text("subject"),
        "replyTo": at.row.text("replyTo"),
        "body": body.map(|body| body.to_json()),
        "by": at.row.created.as_ref().map(|stamp| cx.directory.stamp_json(stamp)),
        "at": at.row.created.as_ref().map(|stamp| time(stamp.hlc.shown(at.created_seen))),
    }))
}

/// An object of a kind that this version does not know: everything it holds.
fn plain(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let mut fields = Map::new();
    for field in at.row.cells.keys() {
        if let Some(value) = conflict::load_winner(view, at, field)? {
            fields.insert(field.clone(), field_json(field, &value));
        }
    }
    let mut out = Map::new();
    out.insert("kind".into(), at.row.kind().map_or(Json::Null, Json::from));
    out.insert("fields".into(), Json::Object(fields));
    common(view, cx, at, &mut out)?;
    Ok(Json::Object(out))
}

/// What every object shows.
fn common(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    out: &mut Map<String, Json>,
) -> Result<(), ViewError> {
    let row = &at.row;
    out.insert("id".into(), at.id.to_string().into());
    out.insert(
        "projectId".into(),
        at.project
            .map_or(Json::Null, |project| project.to_string().into()),
    );
    let stamp = |stamp: &Option<crate::row::Stamp>, seen: i64| match stamp {
        Some(stamp) => (
            json!(time(stamp.hlc.shown(seen))),
            cx.directory.stamp_json(stamp),
        ),
        None => (Json::Null, Json::Null),
    };
    let (created_at, created_by) = stamp(&row.created, at.created_seen);
    let (updated_at, updated_by) = stamp(&row.updated, at.updated_seen);
    out.insert("createdAt".into(), created_at);
    out.insert("createdBy".into(), created_by);
    out.insert("updatedAt".into(), updated_at);
    out.insert("updatedBy".into(), updated_by);
    out.insert("revision".into(), Revision::of(row).to_string().into());
    out.insert(
        "conflicts".into(),
        conflict::present_all(view, cx, at)?.into(),
    );
    Ok(())
}

/// The status of a task; `ready` where it has none.
pub fn status_of(row: &Row) -> String {
    let stored = row.text("status").map(parsed);
    stored
        .as_ref()
        .and_then(|status| status.get("value")?.as_str())
        .unwrap_or("ready")
        .to_owned()
}

/// A status for a sentence. One that the schema does not know may be any text that somebody else's
/// software wrote, and whoever reads a sentence may obey it.
pub(crate) fn status_word<'a>(cx: &'a Context<'_>, status: &str) -> &'a str {
    let known = cx.schema.statuses.iter().find(|known| known.name == status);
    known.map_or(UNKNOWN, |known| known.name.as_str())
}

const UNKNOWN: &str = "unknown";

/// The kind of an object for a sentence; see [`status_word`].
pub(crate) fn kind_word(row: &Row) -> &'static str {
    const KINDS: [&str; 4] = ["comment", "project", "sprint", "task"];
    let kind = row.kind().unwrap_or_default();
    KINDS
        .into_iter()
        .find(|known| *known == kind)
        .unwrap_or("object")
}

fn status_part(row: &Row, part: &str) -> Json {
    row.text("status")
        .map(parsed)
        .and_then(|status| status.get(part).cloned())
        .unwrap_or(Json::Null)
}

/// The priority of a task; `medium` where it has none.
pub fn priority_of(row: &Row) -> &str {
    row.text("priority").unwrap_or("medium")
}

/// Whether an object is hidden from lists.
pub fn is_archived(row: &Row) -> bool {
    row.cells.contains_key("archivedAt") || row.cells.contains_key("deletedAt")
}

/// The edges of one relation that leave an object, with the operation that made each.
pub fn edges<'a>(row: &'a Row, relation: &str) -> impl Iterator<Item = (ObjectId, OpId)> + use<'a> {
    let prefix = format!("edge/{relation}/");
    row.cells
        .range(prefix.clone()..)
        .map_while(move |(field, cell)| Some((field.strip_prefix(&prefix)?.to_owned(), cell)))
        .filter_map(|(target, cell)| Some((target.parse().ok()?, cell.winner_op()?)))
}

/// A field's value as it is shown: what is stored as JSON text is shown as what it means.
pub fn field_json(field: &str, scalar: &Scalar) -> Json {
    let Some(text) = scalar.as_str() else {
        return scalar.to_json();
    };
    if field == "status" {
        return parsed(text)
            .get("value")
            .cloned()
            .unwrap_or_else(|| text.into());
    }
    let structured = ["blocker", "lease", "worktree"].contains(&field)
        || ["ref/", "edge/"]
            .iter()
            .any(|prefix| field.starts_with(prefix));
    // Of a caller's own map: what was given as an object or a list comes back as one.
    let own = ["state/", "x/"]
        .iter()
        .any(|prefix| field.starts_with(prefix));
    if structured || own && text.starts_with(['{', '[']) {
        parsed(text)
    } else {
        text.into()
    }
}

/// A moment as RFC 3339 in milliseconds.
pub fn time(millis: i64) -> String {
    jiff::Timestamp::from_millisecond(millis)
        .map_or_else(|_| millis.to_string(), |at| format!("{at:.3}"))
}

/// The unmet ones among what a task depends on, archived ones included: archiving is no outcome.
///
/// # Errors
///
/// When the store fails.
pub fn unmet_dependencies(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
) -> Result<Vec<(ObjectId, String)>, ViewError> {
    let suspended = view.suspended(at)?;
    let targets = edges(&at.row, "depends_on")
        .map(|(target, _)| target)
        .filter(|target| !suspended.contains(&format!("edge/depends_on/{target}")));
    unmet_among(view, cx, targets)
}

/// Those of `targets` that are not done.
pub(crate) fn unmet_among(
    view: &dyn View,
    cx: &Context<'_>,
    targets: impl Iterator<Item = ObjectId>,
) -> Result<Vec<(ObjectId, String)>, ViewError> {
    let mut unmet = Vec::new();
    for target in targets {
        match view.object(target)? {
            Some(task) => {
                let status = status_of(&task.row);
                // An abandoned one will never be done; whoever waits for it must decide, so it
                // counts as unmet and is named.
                if status != "done" && cx.schema.group_of(&status) != Group::Closed
                    || status == "abandoned"
                {
                    unmet.push((target, status));
                }
            }
            None => unmet.push((target, "unknown".to_owned())),
        }
    }
    Ok(unmet)
}

fn criteria(row: &Row) -> Json {
    let mut list: Vec<_> = row
        .entries("criterion/")
        .filter_map(|(rest, cell)| Some((rest.strip_suffix("/text")?, cell)))
        .collect();
    list.sort_by_key(|(id, _)| {
        let place = crate::fields::criterion_place(id).unwrap_or(u32::MAX);
        (place, id.to_string())
    });
    list.into_iter()
        .map(|(id, cell)| {
            let text = cell.winner().and_then(crate::row::Value::as_str);
            let done = row
                .winner(&format!("criterion/{id}/done"))
                .is_some_and(crate::row::Value::is_true);
            json!({ "id": id, "text": text, "done": done })
        })
        .collect()
}

fn links(row: &Row) -> Json {
    row.entries("edge/")
        .filter_map(|(rest, _)| rest.split_once('/'))
        .filter(|(relation, _)| *relation != "depends_on")
        .map(|(relation, target)| json!({ "type": relation, "targetId": target }))
        .collect()
}

fn external_refs(row: &Row) -> Json {
    row.entries("ref/")
        .map(|(name, cell)| {
            let mut entry = match cell
                .winner()
                .and_then(crate::row::Value::as_str)
                .map(parsed)
            {
                Some(Json::Object(entry)) => entry,
                _ => Map::new(),
            };
            entry.insert("ref".into(), name.into());
            Json::Object(entry)
        })
        .collect()
}

fn map_entries(view: &dyn View, at: &Located, prefix: &str) -> Result<Json, ViewError> {
    let mut map = Map::new();
    for (key, cell) in at.row.entries(prefix) {
        if let Some((op, value)) = cell.0.last() {
            let value = conflict::load(view, at, *op, value)?;
            map.insert(
                key.to_owned(),
                field_json(&format!("{prefix}{key}"), &value),
            );
        }
    }
    Ok(Json::Object(map))
}

/// A JSON field with the author and the time of the change that wrote it.
fn authored_json(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    field: &str,
) -> Result<Json, ViewError> {
    let Some(Json::Object(mut value)) = at.row.text(field).map(parsed) else {
        return Ok(Json::Null);
    };
    let op = at
        .row
        .cells
        .get(field)
        .and_then(crate::row::Cell::winner_op);
    if let Some(op) = op
        && let Some((change, seen)) = view.change_of(at.document, op)?
    {
        let actor = cx
            .directory
            .actor_json(&change.message.credential, change.message.label.as_deref());
        value.insert("by".into(), actor);
        value.insert("at".into(), time(change.message.stamp().shown(seen)).into());
    }
    Ok(Json::Object(value))
}

fn lease(view: &dyn View, cx: &Context<'_>, at: &Located) -> Result<Json, ViewError> {
    let Some(Json::Object(value)) = at.row.text("lease").map(parsed) else {
        return Ok(Json::Null);
    };
    let by = value.get("by").and_then(Json::as_str).unwrap_or_default();
    let expires = view.lease_expires(at)?;
    Ok(json!({
        "by": cx.directory.actor_json(by, None),
        "secs": value.get("secs"),
        "expiresAt": expires.map(time),
        "live": expires.is_some_and(|expires| expires > cx.now),
        "standing": "provisional",
    }))
}

/// When what a field says happened. The field holds `true` and the time is that of its change: two
/// who archive a task apart agree, and would not if each had written a time.
fn moment(view: &dyn View, at: &Located, field: &str) -> Result<Json, ViewError> {
    let Some((op, value)) = at.row.cells.get(field).and_then(|cell| cell.0.last()) else {
        return Ok(Json::Null);
    };
    if let crate::row::Value::Inline(Scalar::Timestamp(millis)) = value {
        return Ok(time(*millis).into());
    }
    let change = view.change_of(at.document, *op)?;
    Ok(change.map_or(Json::Null, |(change, seen)| {
        time(change.message.stamp().shown(seen)).into()
    }))
}

/// The fields whose stored value the schema does not know; they are kept and shown.
fn invalid(cx: &Context<'_>, row: &Row) -> Vec<String> {
    let mut fields = Vec::new();
    let unreadable = row.winner("status").is_some() && !status_part(row, "value").is_string();
    if unreadable || status_word(cx, &status_of(row)) == UNKNOWN {
        fields.push("status".to_owned());
    }
    if row
        .text("priority")
        .is_some_and(|priority| !cx.schema.priorities.iter().any(|known| known == priority))
    {
        fields.push("priority".to_owned());
    }
    if row
        .text("type")
        .is_some_and(|kind| !cx.schema.types.iter().any(|known| known == kind))
    {
        fields.push("type".to_owned());
    }
    fields
}

/// A stored JSON text as what it means; the text itself where it is none.
pub fn parsed(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}
