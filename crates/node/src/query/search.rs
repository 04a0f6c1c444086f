//! `task_search`: light summaries, paged, in a stable order.

mod asked;
mod streams;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::Arguments,
    conflict,
    context::Context,
    id::ObjectId,
    present,
    refusal::Refusal,
    row::Row,
    view::{Located, ProjectEntry, View},
};

use super::RESULT_BYTES;
use crate::{
    search::{self as text, ObjectKey, Query},
    store::{StoreView, Stored, Tables, index},
};

use asked::no_cursor;
use streams::Streams;

const ACCEPTED: [&str; 20] = [
    "assignee",
    "conflicted",
    "cursor",
    "fields",
    "limit",
    "next",
    "number",
    "order",
    "parentId",
    "planId",
    "priority",
    "projectId",
    "q",
    "sprint",
    "status",
    "tag",
    "type",
    "updatedSince",
    "by",
    "prefix",
];

/// Rows looked at to count what a page or the default filter left out, beyond which the count says
/// `more`.
const COUNTED_ROWS: usize = 500;

/// Rows of a page where nothing is asked.
const PAGE_ROWS: usize = 10;

/// Searches tasks.
pub(crate) fn task_search<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    arguments: Json,
) -> Result<Json, Refusal> {
    let args = Arguments::accept(Arguments::flatten(arguments)?, &ACCEPTED)?;
    cx.need("tasks:read")?;
    let asked = Asked::read(view, cx, &args)?;
    let mut page = asked.page(view, cx)?;
    let mut out = Map::new();
    out.insert("tasks".into(), std::mem::take(&mut page.rows).into());
    out.insert(
        "nextCursor".into(),
        page.cursor.map_or(Json::Null, Json::from),
    );
    out.insert("left".into(), page.left.map_or(Json::Null, Json::from));
    out.insert("filter".into(), asked.filter_json());
    out.insert("hidden".into(), asked.hidden(view, cx)?);
    out.insert(
        "updateCursor".into(),
        view.store.arrivals().to_string().into(),
    );
    if let [project] = asked.projects.as_slice()
        && args.some("projectId").is_some()
    {
        out.insert("sprints".into(), sprints(view, cx, project.id)?);
    }
    Ok(Json::Object(out))
}

/// The active and the planned sprints of a project.
fn sprints<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    project: ObjectId,
) -> Result<Json, Refusal> {
    let Some(document) = view.project_document(project) else {
        return Ok(json!([]));
    };
    let mut open = Vec::new();
    for id in view.index_objects(&index::sprints_prefix(document))? {
        let Some(at) = view.object(id)? else { continue };
        let status = present::sprint_status(view, cx, &at)?;
        if status != "completed" && !present::is_archived(&at.row) {
            open.push((status, present::sprint(view, cx, &at)?));
        }
    }
    open.sort_by_key(|(status, _)| *status);
    Ok(open.into_iter().map(|(_, sprint)| sprint).collect())
}

struct Asked {
    projects: Vec<ProjectEntry>,
    statuses: BTreeSet<String>,
    statuses_given: Option<Vec<String>>,
    by_default: bool,
    archived: bool,
    /// Any of these; everybody and nobody where it is empty.
    assignee: Vec<Assignee>,
    sprint: Option<SprintFilter>,
    tags: Vec<String>,
    types: Vec<String>,
    priorities: Vec<String>,
    parent: Option<ObjectId>,
    query: Option<(String, Query)>,
    next: bool,
    conflicted: Option<bool>,
    since: Option<Since>,
    fields: Option<Vec<String>>,
    order: OrderBy,
    limit: usize,
    cursor: Option<Cursor>,
    /// Filters that match nothing here, `number` and `planId` among them until something gives
    /// numbers and plans.
    nothing: bool,
}

#[derive(Clone, PartialEq)]
enum Assignee {
    Nobody,
    One(String),
}

impl Assignee {
    fn as_str(&self) -> &str {
        match self {
            Self::Nobody => "none",
            Self::One(id) => id,
        }
    }
}

#[derive(PartialEq)]
enum SprintFilter {
    None,
    One(ObjectId),
    /// The active sprint of a project that has none.
    NoActive,
}

enum Since {
    Arrival(u64),
    Time(i64),
}

#[derive(Clone, Copy, PartialEq)]
struct OrderBy {
    by: By,
    reverse: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    Relevance,
    Priority,
    Created,
    Updated,
    Due,
    Rank,
}

enum Cursor {
    /// Behind this place of the priority order; so many rows were given before.
    Place(Vec<u8>, usize),
    /// Behind this place of another order; so many rows were given before.
    Key(SortKey, usize),
    /// So many rows were given before: of what is ranked by relevance.
    Offset(usize),
}

/// By what rows are ordered where it is not the index; empty where the rank says it.
type SortKey = (Vec<u8>, ObjectId);

struct Page {
    rows: Vec<Json>,
    cursor: Option<String>,
    left: Option<usize>,
}

impl Asked {
    fn page<T: Tables>(&self, view: &StoreView<'_, T>, cx: &Context<'_>) -> Result<Page, Refusal> {
        if self.nothing || self.sprint == Some(SprintFilter::NoActive) || self.projects.is_empty() {
            return Ok(Page {
                rows: Vec::new(),
                cursor: None,
                left: Some(0),
            });
        }
        match self.collected(view, cx)? {
            Some(all) => self.page_of(view, cx, all),
            None => self.page_of_streams(view, cx),
        }
    }

    /// All matches at once, where the filter names few or another order is wanted.
    fn collected<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
    ) -> Result<Option<Vec<SortKey>>, Refusal> {
        let documents = self.documents(view);
        if let Some((_, query)) = &self.query {
            return self.found(view, cx, query, &documents).map(Some);
        }
        let candidates = if let Some(SprintFilter::One(sprint)) = &self.sprint {
            view.referrers(*sprint, "sprint")?
        } else if let Some(parent) = self.parent {
            view.referrers(parent, "parent")?
        } else if self.conflicted == Some(true) {
            let mut all = Vec::new();
            for document in &documents {
                all.extend(view.index_objects(&index::conflicts_prefix(*document))?);
            }
            all
        } else if let Some(since) = &self.since {
            changed_since(view, since)?
        } else if self.order.by != By::Priority || self.order.reverse || self.archived {
            let mut all = Vec::new();
            for document in &documents {
                for status in &self.statuses {
                    all.extend(view.index_objects(&index::status_prefix(*document, status))?);
                }
                if self.archived {
                    all.extend(view.index_objects(&index::archived_prefix(*document))?);
                }
            }
            all
        } else {
            return Ok(None);
        };
        let mut matching = Vec::new();
        for id in candidates {
            if let Some((document, stored)) = view.stored(id)?
                && documents.contains(&document)
                && self.matches(view, cx, document, id, &stored)?
            {
                matching.push(self.sort_key(cx, id, &stored));
            }
        }
        matching.sort();
        matching.dedup();
        if self.order.reverse {
            matching.reverse();
        }
        Ok(Some(matching))
    }

    fn found<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        query: &Query,
        documents: &[u32],
    ) -> Result<Vec<SortKey>, Refusal> {
        let passing = |key: &ObjectKey| -> Result<Option<(ObjectId, Stored)>, Refusal> {
            let Some((id, document)) = index::read_row_key(&key.0) else {
                return Ok(None);
            };
            if !documents.contains(&document) {
                return Ok(None);
            }
            let Some(stored) = view.stored_in(document, id)? else {
                return Ok(None);
            };
            Ok(self
                .matches(view, cx, document, id, &stored)?
                .then_some((id, stored)))
        };
        if self.order.by != By::Relevance {
            // An order of its own needs every match.
            let all = view
                .store
                .with_texts(|cold, hot| text::matches(cold, hot, query))?;
            let mut sorted = Vec::new();
            for key in all.keys {
                if let Some((id, stored)) = passing(&key)? {
                    sorted.push(self.sort_key(cx, id, &stored));
                }
            }
            sorted.sort();
            if self.order.reverse {
                sorted.reverse();
            }
            return Ok(sorted);
        }
        let mut failed = None;
        let mut check = |key: &ObjectKey| match passing(key) {
            Ok(found) => found.is_some(),
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        // The page asked for and one row more.
        let wanted = match &self.cursor {
            Some(Cursor::Offset(offset)) => offset.saturating_add(self.limit + 1),
            _ => self.limit + 1,
        };
        let found = view
            .store
            .with_texts(|cold, hot| text::search(cold, hot, query, wanted, &mut check))?;
        if let Some(error) = failed {
            return Err(error);
        }
        let ids = found.hits.iter();
        Ok(ids
            .filter_map(|hit| Some((Vec::new(), index::read_row_key(&hit.key.0)?.0)))
            .collect())
    }

    fn page_of<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        all: Vec<SortKey>,
    ) -> Result<Page, Refusal> {
        let ranked = self.order.by == By::Relevance;
        // What changes between two pages moves no row that it is not about: the next page begins
        // behind the last row's place, wherever that is now.
        let (offset, before) = match &self.cursor {
            None => (0, 0),
            Some(Cursor::Offset(offset)) if ranked => (*offset, *offset),
            Some(Cursor::Key(last, given)) if !ranked => {
                let reverse = self.order.reverse;
                let passed = |key: &SortKey| if reverse { key >= last } else { key <= last };
                (all.partition_point(passed), *given)
            }
            Some(_) => return Err(no_cursor()),
        };
        let mut rows = Rows::new(self);
        let mut given = 0;
        for (_, id) in all.iter().skip(offset).take(self.limit) {
            if let Some((document, stored)) = view.stored(*id)?
                && !rows.push(view, cx, document, *id, stored)?
            {
                break;
            }
            given += 1;
        }
        let left = all.len().saturating_sub(offset + given);
        let next = match all.get(offset + given.max(1) - 1) {
            Some((key, id)) if !ranked => {
                let key = crate::store::hex(key);
                format!("k{}.{key}.{id}", before + given)
            }
            _ => format!("o{}", offset + given),
        };
        Ok(Page {
            rows: rows.list,
            cursor: (left > 0).then_some(next),
            // Ranked results are found as far as asked, so what is left is known only to be there.
            left: if ranked && left > 0 { None } else { Some(left) },
        })
    }

    /// The page in priority order straight from the index, reading no more than it shows.
    fn page_of_streams<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
    ) -> Result<Page, Refusal> {
        let (after, before) = match &self.cursor {
            Some(Cursor::Place(place, given)) => (Some(place.as_slice()), *given),
            None => (None, 0),
            Some(_) => return Err(no_cursor()),
        };
        let mut streams = Streams::new(self.prefixes(view), after);
        let mut rows = Rows::new(self);
        let mut last = None;
        let mut more = false;
        let mut given = 0;
        while let Some((place, id)) = streams.next(view)? {
            let Some((document, stored)) = view.stored(id)? else {
                continue;
            };
            if !self.matches(view, cx, document, id, &stored)? {
                continue;
            }
            if given == self.limit || !rows.push(view, cx, document, id, stored)? {
                more = true;
                break;
            }
            given += 1;
            last = Some(place);
        }
        let left = if !more {
            Some(0)
        } else if self.is_plain() {
            let total: u64 = self.total(view);
            Some((total as usize).saturating_sub(before + given))
        } else {
            None
        };
        let cursor = last
            .filter(|_| more)
            .map(|place| format!("p{}.{}", before + given, crate::store::hex(&place)));
        Ok(Page {
            rows: rows.list,
            cursor,
            left,
        })
    }

    /// Whether nothing but project and status is asked, so that counts are known.
    fn is_plain(&self) -> bool {
        !self.next
            && self.assignee.is_empty()
            && self.sprint.is_none()
            && self.tags.is_empty()
            && self.types.is_empty()
            && self.priorities.is_empty()
            && self.conflicted.is_none()
            && self.parent.is_none()
            && self.query.is_none()
            && self.since.is_none()
    }

    fn total<T: Tables>(&self, view: &StoreView<'_, T>) -> u64 {
        let state = view.store.state_read();
        self.documents(view)
            .iter()
            .filter_map(|document| state.document(*document))
            .flat_map(|document| {
                self.statuses
                    .iter()
                    .filter_map(|status| document.counts.get(status))
            })
            .sum()
    }

    fn prefixes<T: Tables>(&self, view: &StoreView<'_, T>) -> Vec<Vec<u8>> {
        let mut prefixes = Vec::new();
        for document in self.documents(view) {
            if self.next {
                prefixes.push(index::next_prefix(document));
            } else if let [tag] = self.tags.as_slice() {
                prefixes.push(index::tag_prefix(document, tag));
            } else {
                for status in &self.statuses {
                    prefixes.push(match self.assignee.as_slice() {
                        [Assignee::One(assignee)] => {
                            index::assigned_prefix(assignee, document, status)
                        }
                        _ => index::status_prefix(document, status),
                    });
                }
            }
        }
        prefixes
    }

    fn documents<T: Tables>(&self, view: &StoreView<'_, T>) -> Vec<u32> {
        self.projects
            .iter()
            .filter_map(|project| view.project_document(project.id))
            .collect()
    }

    fn matches<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        document: u32,
        id: ObjectId,
        stored: &Stored,
    ) -> Result<bool, Refusal> {
        let row = &stored.row;
        if row.kind() != Some("task") {
            return Ok(false);
        }
        let archived = present::is_archived(row);
        let in_status = if archived {
            self.archived
        } else {
            self.statuses.contains(&present::status_of(row))
        };
        let assignee = row.text("assignee").unwrap_or("none");
        let by_assignee =
            self.assignee.is_empty() || self.assignee.iter().any(|one| one.as_str() == assignee);
        let by_sprint = match &self.sprint {
            None => true,
            Some(SprintFilter::None) => row.text("sprintId").is_none(),
            Some(SprintFilter::One(id)) => row.text("sprintId") == Some(id.to_string().as_str()),
            Some(SprintFilter::NoActive) => false,
        };
        let has = |list: &[String], value: &str| {
            list.is_empty() || list.iter().any(|known| known == value)
        };
        let passed = in_status
            && by_assignee
            && by_sprint
            && has(&self.types, row.text("type").unwrap_or("task"))
            && has(&self.priorities, present::priority_of(row))
            && self
                .tags
                .iter()
                .all(|tag| row.cells.contains_key(&format!("tag/{tag}")))
            && self
                .parent
                .is_none_or(|parent| row.text("parentId") == Some(parent.to_string().as_str()))
            && self.conflicted.is_none_or(|wanted| stored.open == wanted);
        if !passed || !self.next {
            return Ok(passed);
        }
        Ok(stored.next && !leased(view, cx, id, document, stored)?)
    }

    fn sort_key(&self, cx: &Context<'_>, id: ObjectId, stored: &Stored) -> SortKey {
        let order = index::order_of(cx.schema, &stored.row);
        let bytes = |number: u64| number.to_be_bytes().to_vec();
        let key = match self.order.by {
            By::Relevance | By::Priority => [
                vec![order.priority],
                bytes(order.rank),
                bytes(order.created),
            ]
            .concat(),
            By::Created => bytes(stored.row.created.as_ref().map_or(0, |stamp| stamp.hlc.0)),
            By::Updated => bytes(stored.row.updated.as_ref().map_or(0, |stamp| stamp.hlc.0)),
            By::Due => stored
                .row
                .text("dueDate")
                .unwrap_or("~")
                .as_bytes()
                .to_vec(),
            By::Rank => [bytes(order.rank), bytes(order.created)].concat(),
        };
        (key, id)
    }

    /// How many matches the default filter left out.
    fn hidden<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
    ) -> Result<Json, Refusal> {
        if !self.by_default || self.nothing {
            return Ok(json!({ "count": 0 }));
        }
        let others: BTreeSet<String> = cx
            .schema
            .statuses
            .iter()
            .map(|status| status.name.clone())
            .filter(|status| !self.statuses.contains(status))
            .collect();
        if self.is_plain() {
            let state = view.store.state_read();
            let mut by_status = BTreeMap::new();
            for document in self
                .documents(view)
                .iter()
                .filter_map(|number| state.document(*number))
            {
                for (status, count) in document
                    .counts
                    .iter()
                    .filter(|(status, count)| others.contains(*status) && **count > 0)
                {
                    *by_status.entry(status.clone()).or_insert(0) += count;
                }
            }
            return Ok(json!({ "count": by_status.values().sum::<u64>(), "byStatus": by_status }));
        }
        let mut counted = 0;
        let mut looked_at = 0;
        let all = Self {
            statuses: others,
            ..self.without_page()
        };
        let mut streams = Streams::new(all.prefixes(view), None);
        while let Some((_, id)) = streams.next(view)? {
            looked_at += 1;
            if looked_at > COUNTED_ROWS {
                return Ok(json!({ "count": counted, "more": true }));
            }
            if let Some((document, stored)) = view.stored(id)?
                && all.matches(view, cx, document, id, &stored)?
            {
                counted += 1;
            }
        }
        Ok(json!({ "count": counted }))
    }

    /// The same filter without page, text or time.
    fn without_page(&self) -> Self {
        Self {
            projects: self.projects.clone(),
            statuses: BTreeSet::new(),
            statuses_given: None,
            by_default: false,
            archived: false,
            assignee: self.assignee.clone(),
            sprint: None,
            tags: self.tags.clone(),
            types: self.types.clone(),
            priorities: self.priorities.clone(),
            parent: None,
            query: None,
            next: false,
            conflicted: None,
            since: None,
            fields: None,
            order: self.order,
            limit: self.limit,
            cursor: None,
            nothing: false,
        }
    }
}

/// Rows of a page as they are added, up to the bytes of a result.
struct Rows<'a> {
    asked: &'a Asked,
    list: Vec<Json>,
    bytes: usize,
}

impl<'a> Rows<'a> {
    fn new(asked: &'a Asked) -> Self {
        Self {
            asked,
            list: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a row; false where the page is full, the row then being left for the next.
    fn push<T: Tables>(
        &mut self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        document: u32,
        id: ObjectId,
        stored: Stored,
    ) -> Result<bool, Refusal> {
        let next = stored.next && !leased(view, cx, id, document, &stored)?;
        let at = view.located(id, document, stored)?;
        let row = self.row(view, cx, &at, next)?;
        let bytes = row.to_string().len();
        // What surrounds the rows takes its share of the result.
        if !self.list.is_empty() && self.bytes + bytes > RESULT_BYTES - 2_048 {
            return Ok(false);
        }
        self.bytes += bytes;
        self.list.push(row);
        Ok(true)
    }

    fn row<T: Tables>(
        &self,
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        at: &Located,
        next: bool,
    ) -> Result<Json, Refusal> {
        let mut row = present::task_summary(view, cx, at)?;
        if let Some(row) = row.as_object_mut() {
            row.insert("next".into(), next.into());
        }
        let Some(fields) = &self.asked.fields else {
            return Ok(row);
        };
        let summary = row.as_object().cloned().unwrap_or_default();
        let beyond = fields.iter().any(|field| !summary.contains_key(field));
        let whole = if beyond {
            present::task(view, cx, at)?
                .as_object()
                .cloned()
                .unwrap_or_default()
        } else {
            summary.clone()
        };
        let mut picked = Map::new();
        for field in fields.iter().map(String::as_str).chain(["id", "revision"]) {
            let Some(value) = whole.get(field).or_else(|| summary.get(field)) else {
                let known: BTreeSet<_> = whole.keys().chain(summary.keys()).cloned().collect();
                return Err(Refusal::argument(
                    "fields",
                    "one of fields is not known.",
                    "Use those in accepted.",
                )
                .with("given", field)
                .with("accepted", json!(known)));
            };
            picked.insert(field.to_owned(), value.clone());
        }
        Ok(Json::Object(picked))
    }
}

/// Whether somebody's lease on a task is alive.
fn leased<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    id: ObjectId,
    document: u32,
    stored: &Stored,
) -> Result<bool, Refusal> {
    if !stored.row.cells.contains_key("lease") {
        return Ok(false);
    }
    let at = view.located(id, document, stored.clone())?;
    Ok(view
        .lease_expires(&at)?
        .is_some_and(|expires| expires > cx.now))
}

fn changed_since<T: Tables>(
    view: &StoreView<'_, T>,
    since: &Since,
) -> Result<Vec<ObjectId>, Refusal> {
    let mut objects = BTreeSet::new();
    let (mut from, time) = match since {
        Since::Arrival(arrival) => (*arrival, None),
        // Arrivals are in the order of this node's clock but for its jumps, so a time is looked
        // for from the start.
        Since::Time(time) => (0, Some(*time)),
    };
    loop {
        let places = view.store.places_from(from, 1_000)?;
        let Some((last, ..)) = places.last() else {
            break;
        };
        from = last + 1;
        for (_, actor, seq) in places {
            if let Some(found) = view.change(actor, seq)?
                && time.is_none_or(|time| found.seen >= time)
            {
                objects.extend(found.change.touched());
            }
        }
    }
    Ok(objects.into_iter().collect())
}

/// Whether a row is one that anybody sees.
pub(crate) fn is_task(row: &Row) -> bool {
    row.kind() == Some("task")
}

/// The title of a task, whole.
pub(crate) fn title<T: Tables>(view: &StoreView<'_, T>, at: &Located) -> Result<String, Refusal> {
    let title = conflict::load_winner(view, at, "title")?;
    Ok(title
        .and_then(|title| title.as_str().map(str::to_owned))
        .unwrap_or_default())
}
