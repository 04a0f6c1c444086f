//! Edges between tasks, and the circles that some of them must not form.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use super::{Edits, Outcome, Reply, call::Call};
use crate::{
    arguments::{self, missing},
    fields::unknown,
    graph::{self, Graph},
    id::{ObjectId, OpId},
    limits, present,
    refusal::{Code, Refusal},
    row::Row,
    view::{View, ViewError},
};

impl Call<'_> {
    pub(super) fn link(&self, add: bool) -> Result<Outcome, Refusal> {
        let (view, args) = (self.view, &self.args);
        let at = self.object("id", "task")?;
        let target = args.required_id("targetId")?;
        let text = args
            .line("type", limits::SHORT_CHARS)?
            .ok_or_else(|| missing("type"))?;
        let known: Vec<&str> = self
            .cx
            .schema
            .relations
            .iter()
            .flat_map(|relation| [Some(relation.name.as_str()), relation.inverse.as_deref()])
            .flatten()
            .collect();
        let (relation, inverse) = self
            .cx
            .schema
            .relation(&text)
            .ok_or_else(|| unknown("type", &text, json!(known)))?;
        let other = self.target(target, at.project)?;
        // An inverse edge is stored at its other end; the revision given is that of `id`.
        self.check_write(&at, &BTreeSet::new(), true)?;
        let (from, to) = if inverse {
            (&other, at.id)
        } else {
            (&at, target)
        };
        let field = format!("edge/{}/{to}", relation.name);
        let mut edits = Edits::new(from.id, &from.row);
        if add {
            if from.id == to {
                return Err(cycle(&[to, to]));
            }
            let is_new = !from.row.cells.contains_key(&field);
            if is_new && from.row.entries("edge/").count() >= limits::SET_ENTRIES {
                return Err(arguments::too_large(
                    "links",
                    limits::SET_ENTRIES + 1,
                    limits::SET_ENTRIES,
                    "entries",
                ));
            }
            if relation.acyclic {
                let edges = Dependencies(view);
                if let Some(path) = graph::path(&edges, to, from.id)? {
                    return Err(cycle(&path));
                }
            }
            edits.put_again(&field, true);
        } else {
            edits.clear(&field);
        }
        self.write(
            self.document_of(from),
            at.id,
            Vec::new(),
            Vec::new(),
            edits.list,
            Reply::Task(at.id, Map::new()),
        )
    }
}

pub(super) fn cycle(path: &[ObjectId]) -> Refusal {
    let path: Vec<_> = path.iter().map(ToString::to_string).collect();
    Refusal::new(
        Code::Cycle,
        format!("that would close a circle: {}.", path.join(" -> ")),
        "Nothing was written. Remove one of these edges first, or leave this one out.",
    )
    .with("cycle", path)
}

/// The blocking edges of a view.
#[derive(Clone, Copy)]
pub struct Dependencies<'a>(pub &'a dyn View);

/// The parents of a view.
#[derive(Clone, Copy)]
pub struct Parents<'a>(pub &'a dyn View);

impl std::fmt::Debug for Dependencies<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dependencies")
    }
}

impl std::fmt::Debug for Parents<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Parents")
    }
}

impl Graph for Dependencies<'_> {
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
        Ok(self
            .0
            .object(from)?
            .map(|at| present::edges(&at.row, "depends_on").collect())
            .unwrap_or_default())
    }

    fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
        self.0.referrers(to, "depends_on")
    }
}

impl Graph for Parents<'_> {
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
        Ok(self
            .0
            .object(from)?
            .and_then(|at| parent_edge(&at.row))
            .into_iter()
            .collect())
    }

    fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
        self.0.referrers(to, "parent")
    }
}

/// The parent that a row names, with the operation that named it.
pub fn parent_edge(row: &Row) -> Option<(ObjectId, OpId)> {
    let parent = row.text("parentId")?.parse().ok()?;
    Some((parent, row.cells.get("parentId")?.winner_op()?))
}
