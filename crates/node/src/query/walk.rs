//! Questions across objects: open conflicts, dependency trees, projects, what changed since.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use stead_doc::{
    arguments::Arguments, board, conflict, context::Context, id::ObjectId, present,
    refusal::Refusal, view::View,
};

use super::{line, search::title};
use crate::store::{StoreView, Tables, index};

/// Depth of a dependency tree where nothing is asked.
const TREE_DEPTH: i64 = 10;
/// Tasks of a dependency tree.
const TREE_TASKS: usize = 500;
/// Conflicted objects in one answer.
const CONFLICTS: usize = 50;

/// All open conflicts of the projects that the caller reaches.
pub(crate) fn conflicts<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &["projectId"])?;
    cx.need("tasks:read")?;
    let projects = match args.line("projectId", 200)? {
        Some(text) => vec![cx.project(view, &text)?],
        None => cx.reachable(view)?,
    };
    let mut found = Vec::new();
    let mut left = 0;
    let workspace = if cx.caller.grants.is_none() && args.some("projectId").is_none() {
        view.document_number(cx.document(&stead_doc::document::DocumentName::workspace()))
    } else {
        None
    };
    let documents = projects
        .iter()
        .filter_map(|project| view.project_document(project.id))
        .chain(workspace);
    for document in documents.collect::<Vec<_>>() {
        for id in view.index_objects(&index::conflicts_prefix(document))? {
            if found.len() == CONFLICTS {
                left += 1;
                continue;
            }
            let Some(at) = view.object(id)? else { continue };
            let project = projects
                .iter()
                .find(|project| Some(project.id) == at.project);
            found.push(json!({
                "id": id.to_string(),
                "kind": at.row.kind(),
                "title": title(view, &at)?,
                "projectId": project.map(|project| project.slug.as_str()),
                "revision": stead_doc::revision::Revision::of(&at.row).to_string(),
                "conflicts": conflict::present_all(view, cx, &at)?,
            }));
        }
    }
    Ok(json!({ "conflicts": found, "left": left }))
}

/// What a task waits for, and what that waits for.
pub(crate) fn dep_tree<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &["id", "depth"])?;
    let root = super::task_get(
        view,
        cx,
        json!({ "id": args.some("id"), "view": "summary" }),
    )?;
    let id: ObjectId = root
        .pointer("/task/id")
        .and_then(Json::as_str)
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| stead_doc::arguments::missing("id"))?;
    let depth = args.integer("depth")?.unwrap_or(TREE_DEPTH).clamp(0, 100);
    let mut seen = BTreeSet::new();
    let tree = branch(view, id, depth, &mut seen)?;
    Ok(json!({ "tree": tree, "tasks": seen.len(), "cut": seen.len() >= TREE_TASKS }))
}

fn branch<T: Tables>(
    view: &StoreView<'_, T>,
    id: ObjectId,
    depth: i64,
    seen: &mut BTreeSet<ObjectId>,
) -> Result<Json, Refusal> {
    let mut node = line(view, id)?;
    let first = seen.len() < TREE_TASKS && seen.insert(id);
    let Some(entry) = node.as_object_mut() else {
        return Ok(node);
    };
    if !first {
        entry.insert("seen".into(), true.into());
        return Ok(node);
    }
    let Some(at) = view.object(id)? else {
        return Ok(node);
    };
    let suspended = view.suspended(&at)?;
    let targets: Vec<ObjectId> = present::edges(&at.row, "depends_on")
        .map(|(target, _)| target)
        .filter(|target| !suspended.contains(&format!("edge/depends_on/{target}")))
        .collect();
    if depth == 0 {
        if !targets.is_empty() {
            entry.insert("deeper".into(), targets.len().into());
        }
        return Ok(node);
    }
    let mut children = Vec::new();
    for target in targets {
        children.push(branch(view, target, depth - 1, seen)?);
    }
    entry.insert("children".into(), children.into());
    Ok(node)
}

/// The projects with their counts by status.
pub(crate) fn projects<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
) -> Result<Json, Refusal> {
    cx.need("tasks:read")?;
    let known = cx.reachable(view)?;
    let rows: Vec<Json> = known
        .iter()
        .map(|project| {
            let mut row = board::project_json(project);
            let state = view.store.state_read();
            let counts = view
                .project_document(project.id)
                .and_then(|number| Some(state.document(number)?.counts.clone()));
            if let Some(row) = row.as_object_mut() {
                row.insert("counts".into(), json!(counts.unwrap_or_default()));
            }
            row
        })
        .collect();
    Ok(json!({ "projects": rows }))
}

/// How status and assignee of a project's tasks moved, oldest first.
pub(crate) fn transitions<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(
        Arguments::flatten(arguments)?,
        &["projectId", "cursor", "limit"],
    )?;
    cx.need("tasks:read")?;
    let project = args
        .line("projectId", 200)?
        .ok_or_else(|| stead_doc::arguments::missing("projectId"))?;
    let project = cx.project(view, &project)?;
    let Some(document) = view.project_document(project.id) else {
        return Ok(json!({ "transitions": [], "nextCursor": null }));
    };
    let from = args
        .integer("cursor")?
        .map_or(0, |cursor| cursor.max(0) as u64);
    let limit = args
        .integer("limit")?
        .map_or(100, |limit| limit.clamp(1, 1_000) as usize);
    let all = view.transitions(document, from, limit)?;
    let next = if all.len() >= limit {
        all.last().map(|row| row.arrival + 1)
    } else {
        None
    };
    let rows: Vec<Json> = all
        .iter()
        .map(|row| json!({ "taskId": row.object.to_string(), "field": row.field, "value": row.value, "at": present::time(row.at) }))
        .collect();
    Ok(json!({ "transitions": rows, "nextCursor": next }))
}

/// What changed since an arrival cursor: objects with their kinds, oldest change first.
pub(crate) fn changes_since<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &["cursor", "limit"])?;
    cx.need("tasks:read")?;
    let from = args
        .integer("cursor")?
        .map_or(0, |cursor| cursor.max(0) as u64);
    let limit = args
        .integer("limit")?
        .map_or(50, |limit| limit.clamp(1, 200) as usize);
    let reachable: BTreeSet<ObjectId> = cx
        .reachable(view)?
        .iter()
        .map(|project| project.id)
        .collect();
    let mut rows = Vec::new();
    let mut cursor = from;
    for (arrival, actor, seq) in view.store.places_from(from, limit)? {
        cursor = arrival + 1;
        let Some(found) = view.change(actor, seq)? else {
            continue;
        };
        let Some(subject) = found.change.subject() else {
            continue;
        };
        let Some(at) = view.object(subject)? else {
            continue;
        };
        if cx.caller.grants.is_some()
            && !at
                .project
                .is_some_and(|project| reachable.contains(&project))
        {
            continue;
        }
        let fields: BTreeSet<&str> = found
            .change
            .ops
            .iter()
            .filter(|op| op.object == subject)
            .map(|op| op.field.as_str())
            .collect();
        rows.push(json!({
            "id": subject.to_string(),
            "kind": at.row.kind(),
            "title": title(view, &at)?,
            "command": found.change.message.command,
            "fields": fields,
            "by": cx.directory.actor_json(&found.change.message.credential, found.change.message.label.as_deref()),
            "at": present::time(found.change.message.stamp().shown(found.seen)),
        }));
    }
    Ok(json!({ "changes": rows, "cursor": cursor, "newest": view.store.arrivals() }))
}
