//! `task_get`: one task or several, whole or in another view.

use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    change::{Action, Change},
    context::Context,
    id::ObjectId,
    limits, present,
    refusal::{Code, Refusal},
    stale,
    view::{Located, View},
};

use super::{RESULT_BYTES, line, search::title};
use crate::store::{StoreView, Tables};

const ACCEPTED: [&str; 12] = [
    "address",
    "bodyOffset",
    "by",
    "cursor",
    "field",
    "id",
    "ids",
    "limit",
    "number",
    "planId",
    "projectId",
    "view",
];

/// Bytes of a body in one answer.
pub(crate) const BODY_BYTES: usize = 6_000;
/// Characters of a brief.
const BRIEF_CHARS: usize = 3_000;
/// Bytes of the comments in one answer.
const COMMENT_BYTES: usize = 3_000;
/// Bytes of one value in a history.
const HISTORY_VALUE_BYTES: usize = 400;
/// Bytes of an answer around a history's rows.
const HISTORY_FRAME: usize = 256;
/// Changes in one answer of a history.
const HISTORY_ROWS: usize = 20;

/// Gets tasks or a sprint.
pub(crate) fn task_get<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &ACCEPTED)?;
    cx.need("tasks:read")?;
    let shape = args.line("view", 32)?.unwrap_or_else(|| "full".to_owned());
    if !["full", "summary", "brief", "history"].contains(&shape.as_str()) {
        return Err(
            Refusal::argument("view", "view is not known.", "Use one of accepted.")
                .with("given", shape)
                .with("accepted", json!(["full", "summary", "brief", "history"])),
        );
    }
    if let Some(ids) = args.list("ids", limits::GET_IDS)? {
        return several(view, cx, &args, &shape, &ids);
    }
    let Some(given) = args.some("id") else {
        if args.some("number").is_some() || args.some("address").is_some() {
            return Err(Refusal::new(
                Code::UnknownId,
                "no task here has a number or an address.",
                "Use the id from task_search.",
            ));
        }
        return Err(arguments::missing("id"));
    };
    let id = resolve(view, cx, given)?;
    let at = reached(view, cx, id)?;
    one(view, cx, &args, &shape, &at)
}

fn several<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    args: &Arguments,
    shape: &str,
    ids: &[Json],
) -> Result<Json, Refusal> {
    let mut tasks = Vec::new();
    let mut missing = Vec::new();
    let mut bytes = 0;
    for (place, given) in ids.iter().enumerate() {
        let found = resolve(view, cx, given)
            .and_then(|id| reached(view, cx, id))
            .and_then(|at| one(view, cx, args, shape, &at));
        match found {
            Ok(answer) => {
                let task = answer
                    .get("task")
                    .or_else(|| answer.get("sprint"))
                    .cloned()
                    .unwrap_or(answer);
                let size = task.to_string().len() + 1;
                let rest = (ids.len() - place) * MISSING_BYTES;
                if !tasks.is_empty() && bytes + size + rest > RESULT_BYTES {
                    bytes += MISSING_BYTES;
                    missing.push(json!({ "id": given, "why": "no room; ask again for it" }));
                    continue;
                }
                bytes += size;
                tasks.push(task);
            }
            Err(refusal) => missing.push(json!({ "id": given, "why": refusal.code.as_str() })),
        }
    }
    Ok(json!({ "tasks": tasks, "missing": missing }))
}

/// Bytes of an entry for what is not in an answer for several.
const MISSING_BYTES: usize = 64;

/// Objects that are named where the front of an id is not enough.
const BEGINNINGS_SHOWN: usize = 6;
/// Objects that are looked at for that, some of which the caller may not reach.
const BEGINNINGS_LOOKED_AT: usize = 64;

/// The object that a whole id or, for reading alone, the front of one names.
fn resolve<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    given: &Json,
) -> Result<ObjectId, Refusal> {
    let whole = arguments::id("id", given);
    let text = given.as_str().unwrap_or_default().trim();
    if whole.is_ok() || !(3..ObjectId::LEN).contains(&text.len()) {
        return whole;
    }
    let Some(front) = stead_doc::id::from_base32(text) else {
        return whole;
    };
    let shift = 5 * (12 - text.len() as u32);
    let mut found = Vec::new();
    for id in view.objects_between(
        front << shift,
        ((front + 1) << shift) - 1,
        BEGINNINGS_LOOKED_AT,
    )? {
        // What this caller does not reach begins nothing either.
        if let Some(at) = view.object(id)?
            && reaches(view, cx, &at)?
        {
            found.push(id);
        }
        if found.len() == BEGINNINGS_SHOWN {
            break;
        }
    }
    match found.as_slice() {
        [id] => Ok(*id),
        [] => whole,
        several => Err(Refusal::new(
            Code::InvalidId,
            format!("{} objects begin so.", several.len()),
            "Send more of the id.",
        )
        .with("field", "id")
        .with("given", text)
        .with(
            "accepted",
            several.iter().map(ToString::to_string).collect::<Vec<_>>(),
        )),
    }
}

fn reached<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    id: ObjectId,
) -> Result<Located, Refusal> {
    match view.object(id)? {
        Some(at) if reaches(view, cx, &at)? => Ok(at),
        _ => Err(stale::unknown_id(view, cx, id, None)?),
    }
}

fn reaches<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    at: &Located,
) -> Result<bool, Refusal> {
    if cx.caller.grants.is_none() {
        return Ok(true);
    }
    let known = cx.reachable(view)?;
    Ok(at
        .project
        .is_some_and(|project| known.iter().any(|entry| entry.id == project)))
}

fn one<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    args: &Arguments,
    shape: &str,
    at: &Located,
) -> Result<Json, Refusal> {
    if at.row.kind() == Some("sprint") {
        return sprint(view, cx, at);
    }
    match shape {
        "summary" => Ok(json!({ "task": present::task_summary(view, cx, at)? })),
        "brief" => Ok(json!({ "brief": brief(view, cx, at)? })),
        "history" => history(view, cx, args, at),
        _ => {
            let task = present::object(view, cx, at)?;
            let task = with_details(view, cx, at, task, &Reading::of(args)?)?;
            Ok(json!({ "task": task }))
        }
    }
}

/// Adds to a task what belongs to reading it whole: comments, what it depends on with titles and
/// states, its children; and cuts a long body.
fn with_details<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    at: &Located,
    task: Json,
    reading: &Reading,
) -> Result<Json, Refusal> {
    let Json::Object(mut task) = task else {
        return Ok(task);
    };
    for field in ["body", "notes", "result"] {
        let Some(Json::String(text)) = task.get(field) else {
            continue;
        };
        let offset = reading.offset_of(field);
        let start = text.floor_char_boundary(offset.min(text.len()));
        let end = text.floor_char_boundary((start + BODY_BYTES).min(text.len()));
        let (cut, next, total) = (
            text.get(start..end).unwrap_or_default().to_owned(),
            (end < text.len()).then_some(end),
            text.len(),
        );
        task.insert(format!("{field}Next"), next.map_or(Json::Null, Json::from));
        if next.is_some() || start > 0 {
            task.insert(format!("{field}Bytes"), total.into());
        }
        task.insert(field.to_owned(), cut.into());
    }
    if at.row.kind() != Some("task") {
        return Ok(Json::Object(task));
    }
    let (comments, left) = comments(view, cx, at)?;
    task.insert("comments".into(), comments);
    task.insert("commentsLeft".into(), left.into());
    let lines = |ids: Vec<ObjectId>| -> Result<Json, Refusal> {
        ids.into_iter()
            .take(RELATED)
            .map(|id| line(view, id))
            .collect::<Result<Vec<_>, _>>()
            .map(Json::from)
    };
    let dependencies = present::edges(&at.row, "depends_on")
        .map(|(id, _)| id)
        .collect();
    task.insert("dependencies".into(), lines(dependencies)?);
    task.insert(
        "dependentTasks".into(),
        lines(view.referrers(at.id, "depends_on")?)?,
    );
    let children = view.referrers(at.id, "parent")?;
    task.insert("childrenCount".into(), children.len().into());
    task.insert("children".into(), lines(children)?);
    Ok(Json::Object(task))
}

/// Where a long text is read on from: `bodyOffset` of the body, or of the field that is named.
struct Reading {
    field: String,
    offset: usize,
}

impl Reading {
    fn of(args: &Arguments) -> Result<Self, Refusal> {
        let field = args.line("field", limits::FIELD_BYTES)?;
        let offset = args.integer("bodyOffset")?.unwrap_or(0);
        Ok(Self {
            field: field.unwrap_or_else(|| "body".to_owned()),
            offset: usize::try_from(offset).unwrap_or(0),
        })
    }

    fn offset_of(&self, field: &str) -> usize {
        if self.field == field { self.offset } else { 0 }
    }
}

/// Related tasks shown with a task.
const RELATED: usize = 20;

fn comments<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    at: &Located,
) -> Result<(Json, usize), Refusal> {
    let mut all = Vec::new();
    for id in view.referrers(at.id, "subject")? {
        if let Some(found) = view
            .object(id)?
            .filter(|found| found.row.kind() == Some("comment"))
        {
            all.push(found);
        }
    }
    all.sort_by_key(|found| (found.row.created.as_ref().map(|stamp| stamp.hlc), found.id));
    let mut shown = Vec::new();
    let mut bytes = 0;
    for found in all.iter().rev() {
        let comment = present::comment(view, cx, found)?;
        bytes += comment.to_string().len();
        if !shown.is_empty() && bytes > COMMENT_BYTES {
            break;
        }
        shown.push(comment);
    }
    let left = all.len() - shown.len();
    shown.reverse();
    Ok((shown.into(), left))
}

fn sprint<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    at: &Located,
) -> Result<Json, Refusal> {
    let mut tasks = Vec::new();
    for id in view.referrers(at.id, "sprint")? {
        if let Some((document, stored)) = view.stored(id)?
            && super::search::is_task(&stored.row)
            && !present::is_archived(&stored.row)
        {
            let order = crate::store::index::order_of(cx.schema, &stored.row);
            tasks.push((order, id, view.located(id, document, stored)?));
        }
    }
    tasks.sort_by_key(|(order, id, _)| (*order, *id));
    let total = tasks.len();
    let mut shown = Vec::new();
    let mut bytes = 0;
    for (_, _, task) in &tasks {
        let summary = present::task_summary(view, cx, task)?;
        bytes += summary.to_string().len();
        if !shown.is_empty() && bytes > RESULT_BYTES - 2_048 {
            break;
        }
        shown.push(summary);
    }
    let left = total - shown.len();
    Ok(json!({ "sprint": present::sprint(view, cx, at)?, "tasks": shown, "left": left }))
}

/// A task in plain text, to hand to somebody who has nothing else.
fn brief<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    at: &Located,
) -> Result<String, Refusal> {
    let task = present::task(view, cx, at)?;
    let text = |field: &str| {
        task.get(field)
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let mut out = format!(
        "{}\nid {} · {} · {} · revision {}\n",
        title(view, at)?,
        at.id,
        text("status"),
        text("priority"),
        text("revision"),
    );
    if let Some(reason) = task.pointer("/blocker/reason").and_then(Json::as_str) {
        out.push_str(&format!("Blocked: {reason}\n"));
    }
    for (target, status) in present::unmet_dependencies(view, cx, at)? {
        out.push_str(&format!("Waits for {target} ({status})\n"));
    }
    for entry in task
        .get("criteria")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
    {
        let mark = if entry.get("done").and_then(Json::as_bool) == Some(true) {
            "x"
        } else {
            " "
        };
        out.push_str(&format!(
            "- [{mark}] {}\n",
            entry.get("text").and_then(Json::as_str).unwrap_or_default()
        ));
    }
    for (field, heading) in [("body", ""), ("notes", "Notes:\n")] {
        let value = text(field);
        if !value.is_empty() {
            out.push_str(&format!("\n{heading}{value}\n"));
        }
    }
    if out.chars().count() > BRIEF_CHARS {
        const MARK: &str = "\n… [cut; task_get has the rest]";
        out = out
            .chars()
            .take(BRIEF_CHARS - MARK.chars().count())
            .chain(MARK.chars())
            .collect();
    }
    Ok(out)
}

/// Who changed what, newest first; with `field`, that field's whole value at each change.
fn history<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    args: &Arguments,
    at: &Located,
) -> Result<Json, Refusal> {
    let field = args.line("field", limits::FIELD_BYTES)?;
    let offset = args.integer("bodyOffset")?.unwrap_or(0);
    let offset = usize::try_from(offset).unwrap_or(0);
    // The place of a change in the log: what is written meanwhile moves no page.
    let before = match args.line("cursor", 32)? {
        Some(text) => text.parse::<u64>().map_err(|_| {
            Refusal::argument(
                "cursor",
                "cursor is none that a history gave.",
                "Copy nextCursor.",
            )
        })?,
        None => u64::MAX,
    };
    let limit = args.integer("limit")?.map_or(HISTORY_ROWS, |limit| {
        limit.clamp(1, limits::PAGE_ROWS as i64) as usize
    });
    let Some(document) = view.document_number(at.document) else {
        return Ok(json!({ "history": [] }));
    };
    let touches = view.touches(document, at.id)?;
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut looked_at = before;
    for (arrival, actor, seq) in touches.iter().rev().filter(|place| place.0 < before) {
        if rows.len() == limit {
            break;
        }
        let Some(found) = view.change(*actor, *seq)? else {
            looked_at = *arrival;
            continue;
        };
        let row = history_row(
            cx,
            at.id,
            &found.change,
            found.seen,
            field.as_deref(),
            offset,
        );
        if let Some(row) = row {
            bytes += row.to_string().len() + 1;
            // The first is shown whatever it takes, so that there is a way on.
            if !rows.is_empty() && bytes > RESULT_BYTES - HISTORY_FRAME {
                break;
            }
            rows.push(row);
        }
        looked_at = *arrival;
    }
    let left = touches.iter().filter(|place| place.0 < looked_at).count();
    Ok(json!({
        "id": at.id.to_string(),
        "history": rows,
        "nextCursor": (left > 0).then(|| looked_at.to_string()),
        "left": left,
    }))
}

fn history_row(
    cx: &Context<'_>,
    id: ObjectId,
    change: &Change,
    seen: i64,
    only: Option<&str>,
    offset: usize,
) -> Option<Json> {
    let mut fields = Vec::new();
    for op in change.ops.iter().filter(|op| op.object == id) {
        if only.is_some_and(|only| only != op.field) {
            continue;
        }
        let value = match &op.action {
            Action::Put(scalar) => present::field_json(&op.field, scalar),
            Action::Delete => Json::Null,
        };
        let mut entry = Map::new();
        entry.insert("field".into(), op.field.as_str().into());
        match (&value, only) {
            (Json::String(text), None) if text.len() > HISTORY_VALUE_BYTES => {
                let end = text.floor_char_boundary(HISTORY_VALUE_BYTES);
                entry.insert("value".into(), text.get(..end).unwrap_or_default().into());
                entry.insert("bytes".into(), text.len().into());
            }
            (Json::String(text), Some(_)) => {
                let start = text.floor_char_boundary(offset.min(text.len()));
                let end = text.floor_char_boundary((start + BODY_BYTES).min(text.len()));
                entry.insert(
                    "value".into(),
                    text.get(start..end).unwrap_or_default().into(),
                );
                if end < text.len() {
                    entry.insert("valueNext".into(), end.into());
                }
            }
            _ => {
                entry.insert("value".into(), value);
            }
        }
        if op.preds.len() > 1 {
            entry.insert("replaced".into(), op.preds.len().into());
        }
        fields.push(Json::Object(entry));
    }
    if fields.is_empty() {
        return None;
    }
    Some(json!({
        "at": present::time(change.message.stamp().shown(seen)),
        "by": cx.directory.actor_json(&change.message.credential, change.message.label.as_deref()),
        "command": change.message.command,
        "cause": change.message.cause,
        "resolves": change.message.resolves,
        "fields": fields,
    }))
}
