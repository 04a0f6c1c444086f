//! Conflicts as values: what they are called, what they hold, and a proposal for long texts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use crate::{
    context::Context,
    id::{ObjectId, OpId, base32},
    limits, present,
    row::{Cell, Collapse, Row, Value},
    scalar::Scalar,
    view::{Located, View, ViewError},
};

/// The version of a conflict: a hash of its sorted op ids, equal on every node that sees them.
pub fn version(cell: &Cell) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"stead conflict 1");
    for (op, _) in &cell.0 {
        hasher.update(&op.counter.to_le_bytes());
        hasher.update(&op.actor.0);
    }
    let hash = hasher.finalize();
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    base32(u64::from_le_bytes([a, b, c, d, e, f, g, h]), 8)
}

/// The names by which the values of a cell are chosen: `<counter>@<actor tag>`, with as much more
/// of the actor as tells two of them apart.
pub fn choices(ops: impl IntoIterator<Item = OpId>) -> BTreeMap<OpId, String> {
    let ops: Vec<_> = ops.into_iter().collect();
    let mut seen = BTreeMap::<String, usize>::new();
    for op in &ops {
        *seen.entry(op.to_string()).or_default() += 1;
    }
    ops.into_iter()
        .map(|op| {
            let short = op.to_string();
            let unique = seen.get(&short) == Some(&1);
            (
                op,
                if unique {
                    short
                } else {
                    format!("{}@{}", op.counter, op.actor)
                },
            )
        })
        .collect()
}

/// All open conflicts of an object, for an answer: fields with several values, collapses nobody
/// has acknowledged, and suspended edges.
///
/// # Errors
///
/// When the store fails.
pub fn present_all(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
) -> Result<Vec<Json>, ViewError> {
    let mut all = Vec::new();
    for (field, cell) in at.row.conflicted() {
        all.push(present_one(view, cx, at, field, cell)?);
    }
    for (by, collapse) in at.row.unseen_collapses() {
        all.push(present_collapse(view, cx, at, by, collapse)?);
    }
    for field in view.suspended(at)? {
        all.push(json!({
            "field": field,
            "suspended": true,
            "why": "closes a cycle; it is kept and has no effect until one edge of the cycle is removed",
        }));
    }
    Ok(all)
}

fn present_one(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    field: &str,
    cell: &Cell,
) -> Result<Json, ViewError> {
    let names = choices(cell.0.iter().map(|(op, _)| *op));
    let mut values = Vec::new();
    for (op, value) in cell.0.iter().rev() {
        let scalar = load(view, at, *op, value)?;
        values.push(value_json(
            view,
            cx,
            at,
            field,
            *op,
            names.get(op),
            &scalar,
            Some(*op) == cell.winner_op(),
        )?);
    }
    let mut conflict = Map::new();
    conflict.insert("field".into(), field.into());
    conflict.insert("version".into(), version(cell).into());
    conflict.insert("values".into(), values.into());
    if LONG_FIELDS.contains(&field)
        && let Some(proposal) = merge_proposal(view, at, field, cell)?
    {
        conflict.insert("merge".into(), proposal);
    }
    Ok(Json::Object(conflict))
}

/// The fields for which a merge is proposed.
const LONG_FIELDS: [&str; 3] = ["body", "notes", "result"];

#[expect(
    clippy::too_many_arguments,
    reason = "one line of a list; a struct would be built and taken apart at once"
)]
fn value_json(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    field: &str,
    op: OpId,
    choose: Option<&String>,
    scalar: &Scalar,
    winner: bool,
) -> Result<Json, ViewError> {
    let change = view.change_of(at.document, op)?;
    let by = change.as_ref().map(|(change, _)| {
        cx.directory
            .actor_json(&change.message.credential, change.message.label.as_deref())
    });
    let time = change
        .as_ref()
        .map(|(change, seen)| present::time(change.message.stamp().shown(*seen)));
    Ok(json!({
        "value": present::field_json(field, scalar),
        "choose": choose,
        "by": by,
        "at": time,
        "winner": winner,
    }))
}

fn present_collapse(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    by: OpId,
    collapse: &Collapse,
) -> Result<Json, ViewError> {
    let mut lost = Vec::new();
    let names = choices(collapse.lost.iter().copied());
    for op in &collapse.lost {
        if let Some(scalar) = scalar_of(view, at, *op)? {
            lost.push(value_json(
                view,
                cx,
                at,
                &collapse.field,
                *op,
                names.get(op),
                &scalar,
                false,
            )?);
        }
    }
    let author = view.change_of(at.document, by)?.map(|(change, _)| {
        cx.directory
            .actor_json(&change.message.credential, change.message.label.as_deref())
    });
    Ok(json!({
        "field": collapse.field,
        "collapsedBy": author,
        "collapse": format!("{}.{}", by.counter, by.actor),
        "lost": lost,
    }))
}

/// The whole value of a visible operation.
///
/// # Errors
///
/// When the store fails.
pub fn load(view: &dyn View, at: &Located, op: OpId, value: &Value) -> Result<Scalar, ViewError> {
    match value {
        Value::Inline(scalar) => Ok(scalar.clone()),
        Value::Apart(_) => Ok(Scalar::Str(view.text(at, op)?.unwrap_or_default())),
    }
}

/// The whole value of the winner of a field.
///
/// # Errors
///
/// When the store fails.
pub fn load_winner(
    view: &dyn View,
    at: &Located,
    field: &str,
) -> Result<Option<Scalar>, ViewError> {
    match at.row.cells.get(field).and_then(|cell| cell.0.last()) {
        Some((op, value)) => load(view, at, *op, value).map(Some),
        None => Ok(None),
    }
}

/// The value that any operation put, visible or not, from its change.
pub(crate) fn scalar_of(
    view: &dyn View,
    at: &Located,
    op: OpId,
) -> Result<Option<Scalar>, ViewError> {
    let Some((change, _)) = view.change_of(at.document, op)? else {
        return Ok(None);
    };
    let found = change
        .ops_with_ids()
        .find(|(id, _)| *id == op)
        .map(|(_, op)| op.action.clone());
    Ok(match found {
        Some(crate::change::Action::Put(scalar)) => Some(scalar),
        _ => None,
    })
}

/// A three-way merge of the values of a long text, from their nearest common ancestor.
fn merge_proposal(
    view: &dyn View,
    at: &Located,
    field: &str,
    cell: &Cell,
) -> Result<Option<Json>, ViewError> {
    let mut texts = Vec::new();
    for (op, value) in &cell.0 {
        match load(view, at, *op, value)? {
            Scalar::Str(text) if !texts.contains(&text) => texts.push(text),
            Scalar::Str(_) => {}
            _ => return Ok(None),
        }
    }
    let base_op = merge_base(view, at, at.id, field, cell)?;
    let base = match base_op {
        Some(op) => scalar_of(view, at, op)?.and_then(|scalar| scalar.as_str().map(str::to_owned)),
        None => None,
    };
    let base_text = base.clone().unwrap_or_default();
    let mut texts = texts.into_iter();
    let Some(mut merged) = texts.next() else {
        return Ok(None);
    };
    let mut clean = true;
    for text in texts {
        match diffy::merge(&base_text, &merged, &text) {
            Ok(both) => merged = both,
            Err(marked) => {
                merged = marked;
                clean = false;
            }
        }
    }
    Ok(Some(
        json!({ "text": merged, "clean": clean, "hasBase": base.is_some() }),
    ))
}

/// The nearest operation on the field from which every value of the cell descends.
fn merge_base(
    view: &dyn View,
    at: &Located,
    object: ObjectId,
    field: &str,
    cell: &Cell,
) -> Result<Option<OpId>, ViewError> {
    // Walk back from all values at once, greatest op id first: an operation is looked at after
    // everything that descends from it, so the first one reached from all values is the nearest.
    let mut reached: BTreeMap<OpId, BTreeSet<usize>> = BTreeMap::new();
    for (index, (op, _)) in cell.0.iter().enumerate() {
        reached.entry(*op).or_default().insert(index);
    }
    for _ in 0..limits::MERGE_BASE_WALK {
        let Some((op, from)) = reached.pop_last() else {
            return Ok(None);
        };
        if from.len() == cell.0.len() {
            return Ok(Some(op));
        }
        let Some((change, _)) = view.change_of(at.document, op)? else {
            continue;
        };
        let own = change
            .ops_with_ids()
            .find(|(id, found)| *id == op && found.object == object && found.field == field);
        for pred in own
            .map(|(_, found)| found.preds.as_slice())
            .unwrap_or_default()
        {
            reached.entry(*pred).or_default().extend(&from);
        }
    }
    Ok(None)
}

/// Whether a row needs somebody to decide something.
pub fn is_open(row: &Row, suspended: bool) -> bool {
    suspended || row.is_conflicted()
}
