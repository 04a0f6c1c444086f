//! Settling a conflict by name.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::{
    Edits, Outcome, Reply,
    call::Call,
    task::{reason_required, status_json},
};
use crate::{
    arguments::{self, line, missing},
    conflict,
    fields::{self, unknown},
    id::OpId,
    limits, present,
    refusal::Refusal,
    row::Collapse,
    scalar::Scalar,
    stale,
    view::Located,
};

impl Call<'_> {
    pub(super) fn resolve(&self) -> Result<Outcome, Refusal> {
        let (view, cx, args) = (self.view, self.cx, &self.args);
        let at = self.object("id", "")?;
        let field = args
            .line("field", limits::FIELD_BYTES)?
            .ok_or_else(|| missing("field"))?;
        let mut edits = Edits::new(at.id, &at.row);
        let collapses: Vec<OpId> = at
            .row
            .unseen_collapses()
            .filter(|(_, collapse)| collapse.field == field)
            .map(|(by, _)| by)
            .collect();
        let empty = crate::row::Cell::default();
        let cell = at.row.cells.get(&field).unwrap_or(&empty);
        if !cell.is_conflicted() && collapses.is_empty() {
            let open: Vec<String> = at
                .row
                .conflicted()
                .map(|(field, _)| field.to_owned())
                .chain(
                    at.row
                        .unseen_collapses()
                        .map(|(_, collapse)| collapse.field.clone()),
                )
                .collect();
            self.check_write(&at, &BTreeSet::from([field.clone()]), true)?;
            return Err(unknown("field", &field, json!(open))
                .with("current", present::object(view, cx, &at)?));
        }
        let revision = args.revision("revision")?;
        let revision = revision.ok_or_else(|| missing("revision"))?;
        stale::check(view, cx, &at, &revision, &BTreeSet::from([field.clone()]))?;
        match (args.some("choose"), args.given("value")) {
            (Some(choose), None) => {
                let choose = line("choose", choose, 80)?;
                let mut names = conflict::choices(cell.0.iter().map(|(op, _)| *op));
                // A collapse shows the lost values with names too.
                for by in &collapses {
                    let lost = at.row.collapsed.get(by).map(|collapse| &collapse.lost);
                    for (op, name) in conflict::choices(lost.into_iter().flatten().copied()) {
                        names.entry(op).or_insert(name);
                    }
                }
                let chosen = names.iter().find(|(_, name)| **name == choose);
                let Some((op, _)) = chosen else {
                    let accepted: Vec<_> = names.into_values().collect();
                    return Err(unknown("choose", &choose, json!(accepted)));
                };
                let visible = cell.0.iter().find(|(id, _)| id == op);
                let scalar = match visible {
                    Some((op, value)) => Some(conflict::load(view, &at, *op, value)?),
                    None => conflict::scalar_of(view, &at, *op)?,
                };
                if let Some(scalar) = scalar {
                    edits.put(&field, scalar);
                }
            }
            (None, Some(value)) => match self.value_for(&at, &field, value)? {
                Some(scalar) => edits.put(&field, scalar),
                None => edits.clear(&field),
            },
            (None, None) if !cell.is_conflicted() => {}
            _ => {
                return Err(Refusal::argument(
                    "choose",
                    "one of choose and value is needed.",
                    "Send choose with a value's id, or value with your own.",
                ));
            }
        }
        for by in collapses {
            edits.put(&Collapse::ack_field(by), true);
        }
        let resolves = vec![format!("{}/{field}", at.id)];
        let reply = if at.row.kind() == Some("sprint") {
            Reply::Sprint(at.id, Map::new())
        } else {
            Reply::Task(at.id, Map::new())
        };
        self.write_at(&at, resolves, edits.list, reply)
    }

    /// The stored form of a value for a field that may be of any kind.
    pub(super) fn value_for(
        &self,
        at: &Located,
        field: &str,
        value: &Json,
    ) -> Result<Option<Scalar>, Refusal> {
        if field == "title" {
            return fields::title_of(value).map(Some);
        }
        if field == "status" {
            let status = self.status(&line("value", value, limits::SHORT_CHARS)?)?;
            // These come with a reason, which only a move takes.
            if matches!(status.as_str(), "abandoned" | "blocked") {
                let field = if status == "blocked" {
                    "reason"
                } else {
                    "abandonReason"
                };
                return Err(reason_required(&status, field)
                    .with("use", "action move with resolves: [\"status\"]"));
            }
            return Ok(Some(status_json(&status, None, false).into()));
        }
        if let Some((name, form)) = fields::PLAIN.iter().find(|(name, _)| *name == field) {
            return fields::plain(self.cx, name, *form, value);
        }
        if let Json::Bool(yes) = value {
            return Ok(Some((*yes).into()));
        }
        if value.is_null() {
            return Ok(None);
        }
        if field == "sprint" || field == "sprintId" {
            let sprint = arguments::id("value", value)?;
            self.target(sprint, at.project)?;
            return Ok(Some(sprint.to_string().into()));
        }
        match value {
            Json::String(_) => arguments::long("value", value).map(|text| Some(text.into())),
            Json::Number(number) => Ok(Some(number.as_i64().map_or_else(
                || Scalar::F64(number.as_f64().unwrap_or_default()),
                Scalar::Int,
            ))),
            nested => Ok(Some(nested.to_string().into())),
        }
    }
}
