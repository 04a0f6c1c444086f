//! A project at a glance: its board by status, and its active sprint.

use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    board,
    context::Context,
    present,
    refusal::Refusal,
    schema::Group,
    view::{ProjectEntry, View},
};

use super::{RESULT_BYTES, task_get, task_search};
use crate::store::{StoreView, Tables};

/// Tasks of one status that a board may show.
const COLUMN_ROWS: usize = 20;
/// Bytes that the rest of a board takes beside its rows.
const BOARD_FRAME: usize = 2_048;

/// The columns of a project's board, the most urgent tasks of each, as many as fit.
pub(crate) fn project_board<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let project = project(view, cx, arguments)?;
    let statuses: Vec<&str> = cx
        .schema
        .statuses
        .iter()
        .map(|status| status.name.as_str())
        .collect();
    let mut columns = Vec::new();
    for status in statuses {
        let found = task_search(
            view,
            cx,
            json!({ "projectId": project.slug, "status": [status], "limit": COLUMN_ROWS }),
        )?;
        let rows: Vec<Json> = found
            .get("tasks")
            .and_then(Json::as_array)
            .into_iter()
            .flatten()
            .map(card)
            .collect();
        let left = found.get("left").and_then(Json::as_u64).unwrap_or(0);
        columns.push((status, rows.len() as u64 + left, rows));
    }
    // One row of each column in turn, so that a long column leaves room for the others; what is
    // finished comes last.
    let order = |status: &str| cx.schema.group_of(status) == Group::Closed;
    let mut shown = vec![0; columns.len()];
    let mut bytes = 0;
    'full: for depth in 0..COLUMN_ROWS {
        for closed in [false, true] {
            for (slot, (status, _, rows)) in columns.iter().enumerate() {
                let Some(row) = rows.get(depth).filter(|_| order(status) == closed) else {
                    continue;
                };
                bytes += row.to_string().len() + 1;
                if bytes > RESULT_BYTES - BOARD_FRAME {
                    break 'full;
                }
                if let Some(count) = shown.get_mut(slot) {
                    *count = depth + 1;
                }
            }
        }
    }
    let columns: Vec<Json> = columns
        .into_iter()
        .zip(shown)
        .map(|((status, total, mut rows), shown)| {
            rows.truncate(shown);
            json!({ "status": status, "count": total, "left": total - shown as u64, "tasks": rows })
        })
        .collect();
    Ok(json!({
        "project": board::project_json(&project),
        "columns": columns,
        "activeSprintId": active(view, cx, &project)?,
    }))
}

/// The active sprint of a project with its tasks by priority, or the planned ones where none is.
pub(crate) fn project_sprint<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let project = project(view, cx, arguments)?;
    let mut out = Map::new();
    out.insert("project".into(), board::project_json(&project));
    match active(view, cx, &project)? {
        Some(id) => {
            if let Json::Object(sprint) = task_get(view, cx, json!({ "id": id }))? {
                out.extend(sprint);
            }
        }
        None => {
            out.insert("sprint".into(), Json::Null);
            let found = task_search(
                view,
                cx,
                json!({ "projectId": project.slug, "limit": 1, "status": ["review"] }),
            )?;
            out.insert(
                "planned".into(),
                found.get("sprints").cloned().unwrap_or_default(),
            );
        }
    }
    Ok(Json::Object(out))
}

fn project<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<ProjectEntry, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &["projectId"])?;
    cx.need("tasks:read")?;
    let text = args
        .line("projectId", stead_doc::limits::SHORT_CHARS)?
        .ok_or_else(|| arguments::missing("projectId"))?;
    cx.project(view, &text)
}

fn active<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    project: &ProjectEntry,
) -> Result<Option<String>, Refusal> {
    let Some(id) = present::active_sprint(view, cx, project.id)? else {
        return Ok(None);
    };
    let Some(at) = view.object(id)? else {
        return Ok(None);
    };
    Ok((present::sprint_status(view, cx, &at)? == "active").then(|| id.to_string()))
}

/// What a card shows of a task's summary.
fn card(summary: &Json) -> Json {
    let mut card = Map::new();
    for name in ["id", "title", "priority", "revision"] {
        card.insert(name.into(), summary.get(name).cloned().unwrap_or_default());
    }
    card.insert(
        "assignee".into(),
        summary
            .pointer("/assignee/name")
            .cloned()
            .unwrap_or_default(),
    );
    if summary.get("conflicted") == Some(&Json::Bool(true)) {
        card.insert("conflicted".into(), true.into());
    }
    Json::Object(card)
}
