//! Reading: `task_search`, `task_get` and the other questions, from a view.

mod get;
mod overview;
mod search;
mod walk;

use serde_json::{Value as Json, json};
use stead_doc::{
    board::{self, Reply},
    conflict,
    context::Context,
    present,
    refusal::Refusal,
    row::Row,
    view::{KeyEffect, Located, View},
};

pub(crate) use get::{BODY_BYTES, task_get};
pub(crate) use overview::{project_board, project_sprint};
pub(crate) use search::task_search;
pub(crate) use walk::{changes_since, conflicts, dep_tree, projects, transitions};

use crate::store::{StoreView, Tables};

/// Bytes of one result: an agent's context is what it pays with.
pub(crate) const RESULT_BYTES: usize = 10_000;

/// The answer to a repeated call: what the first one was told, from the object as that change
/// left it.
pub(crate) fn replayed<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    effect: &KeyEffect,
    reply: &Reply,
) -> Result<Json, Refusal> {
    let Some(now) = view.object(effect.subject)? else {
        return board::render(view, cx, reply);
    };
    let then = as_of(view, &now, effect)?;
    let shown = present::object(&AsOf { view, then: &then }, cx, &then)?;
    Ok(match reply {
        Reply::Sprint(..) => json!({ "sprint": shown }),
        Reply::Comment(_) => json!({ "comment": shown }),
        _ => json!({ "task": shown }),
    })
}

/// An object as the change of `effect` left it here.
fn as_of<T: Tables>(
    view: &StoreView<'_, T>,
    now: &Located,
    effect: &KeyEffect,
) -> Result<Located, Refusal> {
    let mut row = Row::default();
    let mut then = now.clone();
    for (change, seen) in view.touching(now, &|_, _| true)? {
        row.apply(now.id, &change);
        then.updated_seen = seen;
        if (change.actor, change.seq) == effect.change {
            break;
        }
    }
    then.row = row;
    Ok(then)
}

/// The view with one object as it was.
struct AsOf<'a, V> {
    view: &'a V,
    then: &'a Located,
}

impl<V: View> View for AsOf<'_, V> {
    fn object(
        &self,
        id: stead_doc::id::ObjectId,
    ) -> Result<Option<Located>, stead_doc::view::ViewError> {
        if id == self.then.id {
            Ok(Some(self.then.clone()))
        } else {
            self.view.object(id)
        }
    }

    fn text(
        &self,
        at: &Located,
        op: stead_doc::id::OpId,
    ) -> Result<Option<String>, stead_doc::view::ViewError> {
        // A text that is visible no more is still in its change.
        let Some((change, _)) = self.view.change_of(at.document, op)? else {
            return Ok(None);
        };
        let found = change.ops_with_ids().find(|(id, _)| *id == op);
        Ok(found.and_then(|(_, op)| match &op.action {
            stead_doc::change::Action::Put(scalar) => scalar.as_str().map(str::to_owned),
            stead_doc::change::Action::Delete => None,
        }))
    }

    fn projects(&self) -> Result<Vec<stead_doc::view::ProjectEntry>, stead_doc::view::ViewError> {
        self.view.projects()
    }

    fn referrers(
        &self,
        target: stead_doc::id::ObjectId,
        relation: &str,
    ) -> Result<Vec<stead_doc::id::ObjectId>, stead_doc::view::ViewError> {
        self.view.referrers(target, relation)
    }

    fn suspended(&self, at: &Located) -> Result<Vec<String>, stead_doc::view::ViewError> {
        self.view.suspended(at)
    }

    fn actors(
        &self,
        document: stead_doc::id::DocumentId,
        tag: stead_doc::id::ActorTag,
    ) -> Result<Vec<(stead_doc::id::ActorId, u64)>, stead_doc::view::ViewError> {
        self.view.actors(document, tag)
    }

    fn touching(
        &self,
        at: &Located,
        wanted: &dyn Fn(stead_doc::id::ActorId, u64) -> bool,
    ) -> Result<Vec<(stead_doc::change::Change, i64)>, stead_doc::view::ViewError> {
        self.view.touching(at, wanted)
    }

    fn change_of(
        &self,
        document: stead_doc::id::DocumentId,
        op: stead_doc::id::OpId,
    ) -> Result<Option<(stead_doc::change::Change, i64)>, stead_doc::view::ViewError> {
        self.view.change_of(document, op)
    }

    fn key_effect(
        &self,
        credential: &str,
        key: &str,
    ) -> Result<Option<KeyEffect>, stead_doc::view::ViewError> {
        self.view.key_effect(credential, key)
    }

    fn ready(
        &self,
        project: stead_doc::id::ObjectId,
        limit: usize,
    ) -> Result<Vec<stead_doc::id::ObjectId>, stead_doc::view::ViewError> {
        self.view.ready(project, limit)
    }

    fn waiting(
        &self,
        project: stead_doc::id::ObjectId,
    ) -> Result<stead_doc::view::Waiting, stead_doc::view::ViewError> {
        self.view.waiting(project)
    }

    fn lease_expires(&self, at: &Located) -> Result<Option<i64>, stead_doc::view::ViewError> {
        self.view.lease_expires(at)
    }
}

/// A line about a task: id, title, status.
pub(crate) fn line<T: Tables>(
    view: &StoreView<'_, T>,
    id: stead_doc::id::ObjectId,
) -> Result<Json, Refusal> {
    Ok(match view.object(id)? {
        Some(at) => {
            let title = conflict::load_winner(view, &at, "title")?;
            json!({
                "id": id.to_string(),
                "title": title.map(|title| title.to_json()),
                "status": present::status_of(&at.row),
            })
        }
        None => json!({ "id": id.to_string(), "title": null, "status": "unknown" }),
    })
}
