//! Judging the revision that a caller holds, and telling what changed since.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value as Json, json};

use crate::{
    change::{Action, Change},
    conflict,
    context::Context,
    id::{ActorId, DocumentId, ObjectId, OpId},
    present,
    refusal::{Code, Refusal},
    revision::{Revision, check_of},
    row::{Cell, revision_term},
    scalar::Scalar,
    view::{Located, View},
};

/// Lets a write pass whose caller saw the object as it is.
///
/// # Errors
///
/// `NOT_CAUGHT_UP` where the revision names changes that are not here; `STALE_WRITE` with the
/// merged object, what changed, what of it the caller wanted to write, and the open conflicts,
/// where the object moved on.
pub fn check(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    revision: &Revision,
    writes: &BTreeSet<String>,
) -> Result<(), Refusal> {
    let current = Revision::of(&at.row);
    if *revision == current {
        return Ok(());
    }
    if beyond(view, at.document, revision)? {
        return Err(not_caught_up(revision));
    }
    let changes = uncovered(view, at, revision)?;
    let changed = changed_fields(view, cx, at, &changes)?;
    let overlap: Vec<_> = changed
        .iter()
        .filter(|(field, _)| writes.contains(*field))
        .map(|(field, _)| field.clone())
        .collect();
    let status = changed.get("status").map_or(String::new(), |entry| {
        let name = |side: &str| match entry.get(side).and_then(|value| value.as_str()) {
            Some(status) => present::status_word(cx, status).to_owned(),
            None => "none".to_owned(),
        };
        format!(" (status: {} -> {})", name("before"), name("now"))
    });
    let fresh = present::object(view, cx, at)?;
    let conflicts = fresh.get("conflicts").cloned().unwrap_or_else(|| json!([]));
    Err(Refusal::new(
        Code::StaleWrite,
        format!("{} {} moved on since revision {revision}{status}. Nothing was written.", present::kind_word(&at.row), at.id),
        format!("Decide again from the {} below; if your change still makes sense, send it with revision {current}.", present::kind_word(&at.row)),
    )
    .with("current", fresh)
    .with("changed", changed.into_values().collect::<Vec<_>>())
    .with("overlap", overlap)
    .with("conflicts", conflicts))
}

/// A revision that speaks of changes which are not here.
pub fn not_caught_up(revision: &Revision) -> Refusal {
    Refusal::new(
        Code::NotCaughtUp,
        format!(
            "revision {revision} comes from a node this one has not heard from yet. Nothing was written."
        ),
        "Read the object here and use that revision, or retry in a few seconds.",
    )
}

/// Whether a revision names a change of the document that is not here.
///
/// # Errors
///
/// When the store fails.
pub fn beyond(view: &dyn View, document: DocumentId, revision: &Revision) -> Result<bool, Refusal> {
    for (tag, seq) in &revision.entries {
        let actors = view.actors(document, *tag)?;
        if !actors.iter().any(|(_, last)| last >= seq) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The changes to an object that a revision does not cover, in the order in which they came.
fn uncovered(
    view: &dyn View,
    at: &Located,
    revision: &Revision,
) -> Result<Vec<(Change, i64)>, Refusal> {
    let named: BTreeMap<ActorId, u64> = at
        .row
        .touched
        .keys()
        .filter_map(|actor| Some((*actor, revision.covers(*actor)?)))
        .collect();
    if !revision.more {
        let wanted =
            |actor: ActorId, seq: u64| named.get(&actor).is_none_or(|covered| seq > *covered);
        return Ok(view.touching(at, &wanted)?);
    }
    // The revision shows its newest four actors. Of the others it covers nothing above the least
    // of the four, and below it a front of each actor's changes; which, the check decides.
    let all = view.touching(at, &|_, _| true)?;
    let oldest_shown = all
        .iter()
        .filter(|(change, _)| named.get(&change.actor) == Some(&change.seq))
        .map(|(change, _)| change.max_op())
        .min()
        .unwrap_or(0);
    let term = |change: &Change| revision_term(at.id, change.hash);
    let mut sum = 0u128;
    let mut doubtful: BTreeMap<ActorId, Vec<&Change>> = BTreeMap::new();
    for (change, _) in &all {
        match named.get(&change.actor) {
            Some(last) if change.seq <= *last => sum = sum.wrapping_add(term(change)),
            None if change.max_op() <= oldest_shown => {
                sum = sum.wrapping_add(term(change));
                doubtful.entry(change.actor).or_default().push(change);
            }
            _ => {}
        }
    }
    let doubtful: Vec<(ActorId, Vec<(u64, u128)>)> = doubtful
        .into_iter()
        .map(|(actor, mut changes)| {
            changes.sort_unstable_by_key(|change| change.seq);
            let steps = changes.iter().map(|change| (change.seq, term(change)));
            (actor, steps.collect())
        })
        .collect();
    let fronts = fronts(&doubtful, sum, revision.check);
    Ok(all
        .into_iter()
        .filter(|(change, _)| {
            let last = named
                .get(&change.actor)
                .or_else(|| fronts.get(&change.actor));
            last.is_none_or(|last| change.seq > *last)
        })
        .collect())
}

/// How far a revision covers the actors that it does not name: the fronts of their changes that
/// leave the sum with the revision's check, fewest changes taken away first, because a caller's
/// revision is seldom old. Where none fits in [`FRONT_TRIALS`], no front at all: telling too much
/// of what changed is harmless, telling too little is not.
fn fronts(
    doubtful: &[(ActorId, Vec<(u64, u128)>)],
    sum: u128,
    check: u32,
) -> BTreeMap<ActorId, u64> {
    let mut queue = VecDeque::from([(vec![0usize; doubtful.len()], 0usize, sum)]);
    for _ in 0..FRONT_TRIALS {
        let Some((taken, from, sum)) = queue.pop_front() else {
            break;
        };
        if check_of(sum) == check {
            return doubtful
                .iter()
                .zip(taken)
                .map(|((actor, changes), taken)| {
                    let kept = changes.len().checked_sub(taken + 1);
                    let last = kept.and_then(|at| changes.get(at));
                    (*actor, last.map_or(0, |(seq, _)| *seq))
                })
                .collect();
        }
        if queue.len() > FRONT_TRIALS {
            continue;
        }
        // Only actors from the last one on, so that no combination comes up twice.
        for (index, (_, changes)) in doubtful.iter().enumerate().skip(from) {
            let count = taken.get(index).copied().unwrap_or(0);
            let next = changes.len().checked_sub(count + 1);
            if let Some((_, term)) = next.and_then(|at| changes.get(at)) {
                let mut more = taken.clone();
                if let Some(slot) = more.get_mut(index) {
                    *slot += 1;
                }
                queue.push_back((more, index, sum.wrapping_sub(*term)));
            }
        }
    }
    BTreeMap::new()
}

/// Combinations that are tried; a check of 30 bits is then met by chance once in 200,000 times.
const FRONT_TRIALS: usize = 5_000;

/// For each field that the changes wrote: before, now, by whom and when.
fn changed_fields(
    view: &dyn View,
    cx: &Context<'_>,
    at: &Located,
    changes: &[(Change, i64)],
) -> Result<BTreeMap<String, Json>, Refusal> {
    let covered = |op: &OpId| !changes.iter().any(|(change, _)| change.holds(*op));
    let mut newest: BTreeMap<String, (&Change, i64)> = BTreeMap::new();
    let mut before: BTreeMap<String, OpId> = BTreeMap::new();
    for (change, seen) in changes {
        for op in change.ops.iter().filter(|op| op.object == at.id) {
            // Whoever wrote what is there now; of a field that is gone, whoever came last.
            let winner = at.row.cells.get(&op.field).and_then(Cell::winner_op);
            let known = newest.get(&op.field);
            if known.is_none_or(|(known, _)| winner.is_none_or(|winner| !known.holds(winner))) {
                newest.insert(op.field.clone(), (change, *seen));
            }
            let known = op.preds.iter().copied().filter(|pred| covered(pred));
            let still = at
                .row
                .preds(&op.field)
                .into_iter()
                .filter(|visible| covered(visible));
            if let Some(op_before) = known.chain(still).max() {
                let slot = before.entry(op.field.clone()).or_insert(op_before);
                *slot = (*slot).max(op_before);
            }
        }
    }
    let mut fields = BTreeMap::new();
    for (field, (change, seen)) in newest {
        let now = conflict::load_winner(view, at, &field)?;
        let was = match before.get(&field) {
            Some(op) => value_at(view, at, *op, &field)?,
            None => None,
        };
        let shown = |scalar: Option<Scalar>| {
            scalar.map_or(Json::Null, |scalar| present::field_json(&field, &scalar))
        };
        let entry = json!({
            "field": field,
            "before": shown(was),
            "now": shown(now),
            "by": cx.directory.actor_json(&change.message.credential, change.message.label.as_deref()),
            "at": present::time(change.message.stamp().shown(seen)),
        });
        fields.insert(field, entry);
    }
    Ok(fields)
}

fn value_at(
    view: &dyn View,
    at: &Located,
    op: OpId,
    field: &str,
) -> Result<Option<Scalar>, Refusal> {
    let visible = at
        .row
        .cells
        .get(field)
        .and_then(|cell| cell.0.iter().find(|(id, _)| *id == op));
    if let Some((id, value)) = visible {
        return Ok(Some(conflict::load(view, at, *id, value)?));
    }
    let Some((change, _)) = view.change_of(at.document, op)? else {
        return Ok(None);
    };
    Ok(change
        .ops_with_ids()
        .find(|(id, _)| *id == op)
        .and_then(|(_, op)| match &op.action {
            Action::Put(scalar) => Some(scalar.clone()),
            Action::Delete => None,
        }))
}

/// A well-formed id that nothing here has: unknown, or not here yet when the caller's revision
/// says that it exists elsewhere.
///
/// # Errors
///
/// When the store fails; otherwise the refusal to give.
pub fn unknown_id(
    view: &dyn View,
    cx: &Context<'_>,
    id: ObjectId,
    revision: Option<&Revision>,
) -> Result<Refusal, Refusal> {
    if let Some(revision) = revision {
        let mut known = false;
        for project in cx.reachable(view)? {
            let document = cx.document(&crate::document::DocumentName::project(project.id));
            known |= !beyond(view, document, revision)?;
        }
        if !known {
            return Ok(not_caught_up(revision));
        }
    }
    Ok(Refusal::new(
        Code::UnknownId,
        format!("nothing in this workspace on this node has the id {id}."),
        "Search for it; if it was made on another host, wait until that host has synced.",
    )
    .with("id", id.to_string()))
}
