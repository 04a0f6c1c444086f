//! What comes from other systems.

use serde_json::{Map, Value as Json, json};

use super::{Edits, Effect, Import, ImportComment, Outcome, Reply, imported_id, task::status_json};
use crate::{
    arguments::{self, Arguments},
    conflict,
    context::Context,
    document::DocumentName,
    fields::{self, unknown},
    limits,
    message::Message,
    present,
    refusal::Refusal,
    row::Row,
    scalar::Scalar,
    view::View,
};

pub(super) fn import_task(
    view: &dyn View,
    cx: &Context<'_>,
    import: &Import,
) -> Result<Outcome, Refusal> {
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

pub(super) fn import_comment(
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
pub(super) fn digest(value: &Scalar) -> String {
    let hash = match value {
        Scalar::Str(text) => blake3::hash(text.as_bytes()),
        other => blake3::hash(other.to_json().to_string().as_bytes()),
    };
    hash.to_hex().get(..8).unwrap_or_default().to_owned()
}

pub(super) fn digest_of(row: &Row, field: &str) -> Option<String> {
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
