//! Claims: who works on a task, and what to take up next.

use serde_json::{Map, Value as Json, json};

use super::{Edits, LEASE_SECS, Outcome, Reply, call::Call, task::status_json};
use crate::{
    context::CallerKind,
    present,
    refusal::{Code, Refusal},
    schema::Group,
    view::Located,
};

impl Call<'_> {
    pub(super) fn claim(&self) -> Result<Outcome, Refusal> {
        let (view, cx, args) = (self.view, self.cx, &self.args);
        let secs = args.integer("leaseSecs")?.unwrap_or(LEASE_SECS);
        if !(60..=7 * 24 * 3600).contains(&secs) {
            return Err(Refusal::argument(
                "leaseSecs",
                "leaseSecs is out of bounds.",
                "Send 60 to 604800.",
            ));
        }
        if args.some("id").is_none() {
            return self.claim_next(secs);
        }
        let at = self.object("id", "task")?;
        let forced = args.flag("force")?.unwrap_or(false);
        let edits = self.claim_edits(&at, secs, forced)?;
        let resolves = self.check_write(&at, &edits.fields(), false)?;
        if cx.schema.group_of(&present::status_of(&at.row)) == Group::Closed {
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!(
                    "{} is {} and cannot be claimed.",
                    at.id,
                    present::status_word(cx, &present::status_of(&at.row))
                ),
                "Move it to ready first if it has to be done again.",
            )
            .with("current", present::object(view, cx, &at)?));
        }
        if let Some(holder) = self.other_holder(&at)?
            && !forced
        {
            return Err(self.claimed(&at, &holder)?);
        }
        if !forced {
            self.check_dependencies(&at)?;
        }
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    pub(super) fn claim_next(&self, secs: i64) -> Result<Outcome, Refusal> {
        let view = self.view;
        let project = self.project()?;
        let mut leased = 0;
        for id in view.ready(project, CLAIM_CANDIDATES)? {
            let Some(at) = view.object(id)? else { continue };
            if self.other_holder(&at)?.is_some() {
                leased += 1;
                continue;
            }
            let edits = self.claim_edits(&at, secs, false)?;
            // A conflicted field needs somebody to decide; the next task does not.
            if edits.fields().iter().any(|field| {
                at.row
                    .cells
                    .get(field)
                    .is_some_and(crate::row::Cell::is_conflicted)
            }) {
                continue;
            }
            return self.write_at(&at, Vec::new(), edits.list, Reply::Task(at.id, Map::new()));
        }
        let waiting = view.waiting(project)?;
        Ok(Outcome::Nothing(Reply::Json(json!({
            "task": null,
            "why": { "blocked": waiting.blocked, "leased": leased + waiting.leased },
            "hint": "Nothing is ready to be taken. Search for blocked work, or wait.",
        }))))
    }

    pub(super) fn claim_edits<'r>(
        &self,
        at: &'r Located,
        secs: i64,
        forced: bool,
    ) -> Result<Edits<'r>, Refusal> {
        let caller = self.cx.caller;
        let assignee = if caller.kind == CallerKind::Person {
            &caller.member
        } else {
            &caller.credential
        };
        let mut edits = Edits::new(at.id, &at.row);
        edits.put("assignee", assignee.as_str());
        edits.put("status", status_json("in_progress", None, forced));
        edits.clear("blocker");
        let lease = json!({ "by": caller.credential, "secs": secs }).to_string();
        // A lease is as old as the operation that wrote it: renewing one writes it again, though
        // not before half of it is over, or every call would move the revision.
        let half = self.cx.now + secs * 500;
        if self
            .view
            .lease_expires(at)?
            .is_some_and(|expires| expires > half)
        {
            edits.put("lease", lease);
        } else {
            edits.put_again("lease", lease);
        }
        Ok(edits)
    }

    pub(super) fn release(&self) -> Result<Outcome, Refusal> {
        let at = self.object("id", "task")?;
        let mut edits = Edits::new(at.id, &at.row);
        edits.clear("lease");
        if present::status_of(&at.row) == "in_progress" {
            edits.put("status", status_json("ready", None, false));
        }
        let caller = self.cx.caller;
        let own = |id: &str| id == caller.credential || id == caller.member;
        if at.row.text("assignee").is_some_and(own) {
            edits.clear("assignee");
        }
        let resolves = self.check_write(&at, &edits.fields(), false)?;
        if let Some(holder) = self.other_holder(&at)?
            && !self.args.flag("force")?.unwrap_or(false)
        {
            return Err(self.claimed(&at, &holder)?);
        }
        self.write_at(&at, resolves, edits.list, Reply::Task(at.id, Map::new()))
    }

    /// The credential of somebody else whose lease on the task is alive.
    pub(super) fn other_holder(&self, at: &Located) -> Result<Option<String>, Refusal> {
        let Some(lease) = at.row.text("lease").map(present::parsed) else {
            return Ok(None);
        };
        let by = lease
            .get("by")
            .and_then(Json::as_str)
            .unwrap_or_default()
            .to_owned();
        let live = self
            .view
            .lease_expires(at)?
            .is_some_and(|expires| expires > self.cx.now);
        Ok((live && by != self.cx.caller.credential).then_some(by))
    }

    pub(super) fn claimed(&self, at: &Located, holder: &str) -> Result<Refusal, Refusal> {
        let left = self
            .view
            .lease_expires(at)?
            .map_or(0, |expires| (expires - self.cx.now).max(0) / 60_000);
        // The lease names its holder itself, and anybody may have written it.
        let named = if self.cx.directory.credentials.contains_key(holder) {
            holder
        } else {
            "another credential"
        };
        Ok(Refusal::new(
            Code::Claimed,
            format!("{} is held by {named} (lease {left} min left).", at.id),
            "Work elsewhere, comment on it, or pass force: true, which is recorded and tells them.",
        )
        .with("holder", self.cx.directory.actor_json(holder, None))
        .with("current", present::object(self.view, self.cx, at)?))
    }
}

/// How many ready tasks `claim` without an id looks at: those beyond are behind that many leases.
const CLAIM_CANDIDATES: usize = 256;
