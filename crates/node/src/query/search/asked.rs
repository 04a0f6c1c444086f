//! What a search asks for, read from its arguments.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};
use stead_doc::{
    arguments::Arguments,
    context::Context,
    limits, present,
    refusal::Refusal,
    schema::Group,
    view::{ProjectEntry, View},
};

use crate::{
    search::{self as text, Query, QueryError},
    store::{StoreView, Tables},
};

use super::{Asked, Assignee, By, Cursor, OrderBy, PAGE_ROWS, Since, SprintFilter};

impl Asked {
    pub(super) fn read<T: Tables>(
        view: &StoreView<'_, T>,
        cx: &Context<'_>,
        args: &Arguments,
    ) -> Result<Self, Refusal> {
        let projects: Vec<ProjectEntry> = match args.words("projectId", limits::SET_ENTRIES)? {
            Some(words) => words
                .iter()
                .map(|word| cx.project(view, word))
                .collect::<Result<_, _>>()?,
            None => {
                let all = cx.reachable(view)?;
                all.into_iter()
                    .filter(|project| !project.archived)
                    .collect()
            }
        };
        let query = match args
            .line("q", text::QUERY_CHARS_MAX)?
            .filter(|q| !q.is_empty())
        {
            Some(q) => {
                let prefix = args.flag("prefix")?.unwrap_or(false);
                match Query::parse(&q, prefix) {
                    Ok(query) => Some((q, query)),
                    Err(QueryError::NoWords) => None,
                    Err(error) => {
                        return Err(Refusal::argument(
                            "q",
                            format!("q: {error}."),
                            "Use a few words.",
                        ));
                    }
                }
            }
            None => None,
        };
        let conflicted = args.flag("conflicted")?;
        let next = args.flag("next")?.unwrap_or(false);
        let sprint = match args.line("sprint", limits::SHORT_CHARS)? {
            Some(text) => Some(sprint_filter(view, cx, &projects, &text)?),
            None => None,
        };
        let wide = ["planId", "parentId", "sprint", "q", "number", "conflicted"]
            .iter()
            .any(|name| args.some(name).is_some());
        let statuses_given = args
            .words("status", limits::SET_ENTRIES)?
            .filter(|words| !words.is_empty());
        let default = if wide { "any" } else { "active" };
        let (statuses, archived) = match &statuses_given {
            Some(words) => statuses(cx, words)?,
            None => statuses(cx, &[default.to_owned()])?,
        };
        Ok(Self {
            by_default: statuses_given.is_none() && !wide && !next,
            statuses,
            archived,
            assignee: assignees(args, cx)?,
            sprint,
            tags: args.words("tag", limits::SET_ENTRIES)?.unwrap_or_default(),
            types: args.words("type", limits::SET_ENTRIES)?.unwrap_or_default(),
            priorities: args
                .words("priority", limits::SET_ENTRIES)?
                .unwrap_or_default()
                .iter()
                .map(|text| match cx.schema.priority(text) {
                    Some(known) => Ok(known.to_owned()),
                    None => Err(Refusal::argument(
                        "priority",
                        "priority is none of the known ones.",
                        "Use one of accepted.",
                    )
                    .with("accepted", json!(cx.schema.priorities))),
                })
                .collect::<Result<_, _>>()?,
            parent: args.id("parentId")?,
            next,
            conflicted,
            since: match args.line("updatedSince", 64)? {
                Some(text) => Some(since(&text)?),
                None => None,
            },
            fields: args.words("fields", limits::SET_ENTRIES)?,
            order: match args.line("order", 32)? {
                Some(text) => order(&text)?,
                None if query.is_some() => OrderBy {
                    by: By::Relevance,
                    reverse: false,
                },
                None => OrderBy {
                    by: By::Priority,
                    reverse: false,
                },
            },
            query,
            limit: match args.integer("limit")? {
                Some(limit) if (1..=limits::PAGE_ROWS as i64).contains(&limit) => limit as usize,
                Some(limit) => {
                    return Err(Refusal::argument(
                        "limit",
                        "limit is out of bounds.",
                        "Send 1 to 200; page with nextCursor.",
                    )
                    .with("given", limit));
                }
                None => PAGE_ROWS,
            },
            cursor: match args.line("cursor", 256)? {
                Some(text) => Some(cursor(&text)?),
                None => None,
            },
            nothing: args.some("number").is_some() || args.some("planId").is_some(),
            statuses_given,
            projects,
        })
    }

    pub(super) fn filter_json(&self) -> Json {
        let mut statuses: Vec<&str> = self.statuses.iter().map(String::as_str).collect();
        if self.archived {
            statuses.push("archived");
        }
        json!({
            "projects": self.projects.iter().map(|project| project.slug.as_str()).collect::<Vec<_>>(),
            "status": statuses,
            "statusGiven": self.statuses_given,
            "assignee": match self.assignee.as_slice() {
                [] => Json::Null,
                [one] => one.as_str().into(),
                many => many.iter().map(Assignee::as_str).collect(),
            },
            "sprint": match &self.sprint {
                Some(SprintFilter::One(id)) => Json::from(id.to_string()),
                Some(SprintFilter::None) => "none".into(),
                Some(SprintFilter::NoActive) => "no active sprint".into(),
                None => Json::Null,
            },
            "tag": self.tags,
            "type": self.types,
            "priority": self.priorities,
            "parentId": self.parent.map(|parent| parent.to_string()),
            "q": self.query.as_ref().map(|(q, _)| q.as_str()),
            "next": self.next,
            "conflicted": self.conflicted,
            "limit": self.limit,
        })
    }
}

/// One, or a list of them. A name may hold a comma, so one text is one name.
pub(super) fn assignees(args: &Arguments, cx: &Context<'_>) -> Result<Vec<Assignee>, Refusal> {
    let given = match args.some("assignee") {
        Some(Json::Array(_)) => args
            .list("assignee", limits::SET_ENTRIES)?
            .unwrap_or_default(),
        _ => args
            .line("assignee", limits::SHORT_CHARS)?
            .map(Json::from)
            .into_iter()
            .collect(),
    };
    given
        .iter()
        .map(|name| match name.as_str() {
            Some("none") => Ok(Assignee::Nobody),
            Some(name) => Ok(Assignee::One(cx.directory.assignee(name, cx.caller)?)),
            None => Err(Refusal::argument(
                "assignee",
                "assignee holds what is no text.",
                "Send names, addresses, me or none.",
            )),
        })
        .collect()
}

pub(super) fn statuses(
    cx: &Context<'_>,
    words: &[String],
) -> Result<(BTreeSet<String>, bool), Refusal> {
    let mut all = BTreeSet::new();
    let mut archived = false;
    for word in words {
        let mut add = |group| all.extend(cx.schema.in_group(group).map(str::to_owned));
        match word.as_str() {
            // In a filter `active` is the group; the alias of in_progress is for writes.
            "active" => add(Group::Active),
            "open" => {
                add(Group::Active);
                add(Group::Backlog);
            }
            "closed" => add(Group::Closed),
            "any" | "all" => {
                add(Group::Active);
                add(Group::Backlog);
                add(Group::Closed);
            }
            "archived" => archived = true,
            other => match cx.schema.status(other) {
                Some(status) => {
                    all.insert(status.name.clone());
                }
                None => {
                    let mut accepted: Vec<_> = cx
                        .schema
                        .statuses
                        .iter()
                        .map(|status| status.name.as_str())
                        .collect();
                    accepted.extend(["active", "open", "closed", "any", "archived"]);
                    return Err(Refusal::argument(
                        "status",
                        "one status is not known.",
                        "Use those in accepted.",
                    )
                    .with("given", other)
                    .with("accepted", json!(accepted)));
                }
            },
        }
    }
    Ok((all, archived))
}

pub(super) fn sprint_filter<T: Tables>(
    view: &StoreView<'_, T>,
    cx: &Context<'_>,
    projects: &[ProjectEntry],
    text: &str,
) -> Result<SprintFilter, Refusal> {
    match text {
        "none" => Ok(SprintFilter::None),
        "active" => {
            let [project] = projects else {
                return Err(Refusal::argument(
                    "sprint",
                    "sprint active needs one projectId.",
                    "Send the project whose sprint you mean.",
                )
                .with(
                    "knownProjects",
                    stead_doc::context::known_projects(projects),
                ));
            };
            let Some(id) = present::active_sprint(view, cx, project.id)? else {
                return Ok(SprintFilter::NoActive);
            };
            let active = match view.object(id)? {
                Some(at) => present::sprint_status(view, cx, &at)? == "active",
                None => false,
            };
            Ok(if active {
                SprintFilter::One(id)
            } else {
                SprintFilter::NoActive
            })
        }
        other => Ok(SprintFilter::One(stead_doc::arguments::id(
            "sprint",
            &other.into(),
        )?)),
    }
}

pub(super) fn since(text: &str) -> Result<Since, Refusal> {
    if let Ok(arrival) = text.parse() {
        return Ok(Since::Arrival(arrival));
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(Since::Time(time.as_millisecond()));
    }
    if let Ok(day) = text.parse::<jiff::civil::Date>()
        && let Ok(start) = format!("{day}T00:00:00Z").parse::<jiff::Timestamp>()
    {
        return Ok(Since::Time(start.as_millisecond()));
    }
    Err(Refusal::argument(
        "updatedSince",
        "updatedSince is neither a time nor a cursor.",
        "Send 2026-12-31T17:00:00Z or an updateCursor of this node.",
    ))
}

pub(super) fn order(text: &str) -> Result<OrderBy, Refusal> {
    let (name, reverse) = text
        .strip_prefix('-')
        .map_or((text, false), |name| (name, true));
    let by = match name {
        "priority" => By::Priority,
        "created" => By::Created,
        "updated" => By::Updated,
        "due" => By::Due,
        "rank" => By::Rank,
        "relevance" => By::Relevance,
        _ => {
            return Err(Refusal::argument(
                "order",
                "order is not known.",
                "Use one of accepted, with - before it to reverse.",
            )
            .with("given", text)
            .with(
                "accepted",
                json!(["priority", "created", "updated", "due", "rank"]),
            ));
        }
    };
    Ok(OrderBy { by, reverse })
}

pub(super) fn no_cursor() -> Refusal {
    Refusal::argument(
        "cursor",
        "cursor is none that a search gave.",
        "Copy nextCursor, with the same filter.",
    )
}

pub(super) fn cursor(text: &str) -> Result<Cursor, Refusal> {
    let invalid = no_cursor;
    if let Some(rest) = text.strip_prefix('k') {
        let mut parts = rest.splitn(3, '.');
        let mut part = || parts.next().ok_or_else(invalid);
        let given = part()?.parse().map_err(|_| invalid())?;
        let key = unhex(part()?).ok_or_else(invalid)?;
        let id = part()?.parse().map_err(|_| invalid())?;
        return Ok(Cursor::Key((key, id), given));
    }
    if let Some(offset) = text.strip_prefix('o') {
        return offset.parse().map(Cursor::Offset).map_err(|_| invalid());
    }
    let (given, place) = text
        .strip_prefix('p')
        .and_then(|rest| rest.split_once('.'))
        .ok_or_else(invalid)?;
    let place = crate::store::unhex::<25>(place).ok_or_else(invalid)?;
    Ok(Cursor::Place(
        place.to_vec(),
        given.parse().map_err(|_| invalid())?,
    ))
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let bytes = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)
            .ok()
            .filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    bytes.collect()
}
