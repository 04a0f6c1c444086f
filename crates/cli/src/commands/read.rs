//! Commands that only read.

use serde_json::{Map, Value, json};
use stead_doc::refusal::Code;

use crate::{
    args::{Conflicts, Filters, History, List, Search, Show},
    commands::{Cx, put, put_flag, put_list},
    failure::Failure,
    output::{page, show::text, table},
};

pub(super) fn list(cx: &mut Cx<'_>, args: &List) -> Result<u8, Failure> {
    let mut map = filters(&args.filters);
    put(&mut map, "q", args.query.clone());
    put_flag(&mut map, "conflicted", args.conflicted);
    put_flag(&mut map, "next", args.next);
    let advice = if args.next {
        NOTHING_READY
    } else {
        NOTHING_FOUND
    };
    search_with(cx, map, advice)
}

pub(super) fn ready(cx: &mut Cx<'_>, args: &Filters) -> Result<u8, Failure> {
    let mut map = filters(args);
    map.insert("next".into(), true.into());
    search_with(cx, map, NOTHING_READY)
}

pub(super) fn search(cx: &mut Cx<'_>, args: &Search) -> Result<u8, Failure> {
    let mut map = filters(&args.filters);
    map.insert("q".into(), args.words.join(" ").into());
    search_with(cx, map, NOTHING_FOUND)
}

const NOTHING_FOUND: &str = "No tasks match. Look wider with --status any, or create one: stead create TITLE --project SLUG";
const NOTHING_READY: &str = "Nothing is ready to be taken up. See what is in the way: stead list --status blocked,in_progress";

fn search_with(cx: &mut Cx<'_>, map: Map<String, Value>, advice: &str) -> Result<u8, Failure> {
    let data = cx.show("task_search", map, table::tasks)?;
    if table::items(&data, "tasks").next().is_none() {
        cx.out.note(advice);
    }
    let hidden = data
        .get("hidden")
        .and_then(|hidden| hidden.get("count")?.as_u64())
        .unwrap_or(0);
    if hidden > 0 {
        cx.out
            .note(&format!("{hidden} more match with --status any"));
    }
    more(cx, &data);
    Ok(0)
}

/// Says how to go on where an answer is only a page.
fn more(cx: &mut Cx<'_>, data: &Value) {
    let cursor = text(data, "nextCursor");
    if !cursor.is_empty() {
        let left = text(data, "left");
        let left = if left.is_empty() { "more" } else { &left };
        cx.out
            .note(&format!("{left} left; go on with --cursor {cursor}"));
    }
}

fn filters(filters: &Filters) -> Map<String, Value> {
    let mut map = Map::new();
    put(&mut map, "projectId", filters.project.clone());
    put_list(&mut map, "status", &filters.status);
    match filters.assignee.as_slice() {
        [one] => put(&mut map, "assignee", Some(one.as_str())),
        more => put_list(&mut map, "assignee", more),
    }
    put(&mut map, "sprint", filters.sprint.clone());
    put_list(&mut map, "tag", &filters.tag);
    put_list(&mut map, "type", &filters.kind);
    put(&mut map, "parentId", filters.parent.clone());
    put(&mut map, "updatedSince", filters.updated_since.clone());
    put(&mut map, "order", filters.order.clone());
    put(&mut map, "limit", filters.limit);
    put(&mut map, "cursor", filters.cursor.clone());
    map
}

pub(super) fn show(cx: &mut Cx<'_>, args: &Show) -> Result<u8, Failure> {
    let mut map = Map::new();
    put(&mut map, "view", args.view.clone());
    put(&mut map, "bodyOffset", args.body_offset);
    if let [id] = args.ids.as_slice() {
        put(&mut map, "id", Some(id.as_str()));
        cx.show("task_get", map, page::got)?;
        return Ok(0);
    }
    // One by one: a beginning of an id is read so too, and an answer about many is cut at its size.
    let (mut tasks, mut missing) = (Vec::new(), Vec::new());
    for id in &args.ids {
        let mut map = map.clone();
        map.insert("id".into(), id.as_str().into());
        match cx.backend.call("task_get", Value::Object(map)) {
            Ok(mut data) => {
                let found = ["task", "sprint"].into_iter().find_map(|name| {
                    data.get_mut(name)
                        .filter(|object| object.is_object())
                        .map(Value::take)
                });
                tasks.push(found.unwrap_or(data));
            }
            Err(refusal) if matches!(refusal.code, Code::UnknownId | Code::InvalidId) => {
                missing.push(json!({ "id": id, "why": refusal.code.as_str() }));
            }
            Err(refusal) => return Err(refusal.into()),
        }
    }
    let none_found = tasks.is_empty();
    let data = json!({ "tasks": tasks, "missing": missing });
    cx.out.answer(&data, page::got)?;
    Ok(u8::from(none_found))
}

pub(super) fn history(cx: &mut Cx<'_>, args: &History) -> Result<u8, Failure> {
    let mut map = Map::new();
    put(&mut map, "id", Some(args.id.as_str()));
    put(&mut map, "view", Some("history"));
    put(&mut map, "field", args.field.clone());
    put(&mut map, "limit", args.limit);
    put(&mut map, "cursor", args.cursor.clone());
    let data = cx.show("task_get", map, page::history)?;
    more(cx, &data);
    Ok(0)
}

pub(super) fn conflicts(cx: &mut Cx<'_>, args: &Conflicts) -> Result<u8, Failure> {
    let mut map = Map::new();
    put(&mut map, "projectId", args.project.clone());
    let data = cx.show("conflicts", map, page::conflicts)?;
    if table::items(&data, "conflicts").next().is_none() {
        cx.out.note("No open conflicts.");
    } else {
        cx.out
            .note("Decide one: stead resolve ID FIELD --choose NAME");
        let left = text(&data, "left");
        if !["", "0"].contains(&left.as_str()) {
            cx.out.note(&format!(
                "{left} more have open conflicts; decide these first"
            ));
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use stead_doc::refusal::Refusal;

    use super::*;
    use crate::commands::testing::{id, ran};

    #[test]
    fn filters_are_passed_on_and_never_override_one_another() {
        let line = [
            "list",
            "-p",
            "web",
            "--status",
            "ready,review",
            "--status",
            "blocked",
            "--assignee",
            "me",
            "--order",
            "-created",
            "--limit",
            "5",
            "--conflicted",
        ];
        let ran = ran(&line, |_, _| {
            Ok(
                json!({"tasks": [{"id": "A", "title": "One", "status": "ready"}], "nextCursor": "c1", "left": 7, "hidden": {"count": 2}}),
            )
        });
        assert_eq!(
            *ran.call("task_search"),
            json!({"projectId": "web", "status": ["ready", "review", "blocked"], "assignee": "me",
                "order": "-created", "limit": 5, "conflicted": true})
        );
        assert_eq!(ran.stdout, "ID  STATUS  TITLE\nA   ready   One\n");
        assert_eq!(
            ran.stderr,
            "2 more match with --status any\n7 left; go on with --cursor c1\n"
        );
        assert_eq!(ran.code, 0);
    }

    #[test]
    fn an_empty_list_says_what_to_do_and_is_no_failure() {
        let empty = |_: &str, _: &Value| Ok(json!({"tasks": []}));
        let people = ran(&["ready"], empty);
        assert_eq!((people.code, people.stdout.as_str()), (0, ""));
        assert!(people.stderr.starts_with("Nothing is ready"));
        assert_eq!(people.call("task_search")["next"], true);
        let program = ran(&["search", "a", "b", "--json"], empty);
        assert_eq!(program.stdout, "{\"ok\":true,\"data\":{\"tasks\":[]}}\n");
        assert_eq!(program.stderr, "");
        assert_eq!(program.call("task_search")["q"], "a b");
    }

    #[test]
    fn one_is_shown_by_a_beginning_and_several_by_whole_ids() {
        let one = ran(&["show", "7QK"], |_, _| {
            Ok(json!({"task": {"id": "T", "title": "Fix"}}))
        });
        assert_eq!(*one.call("task_get"), json!({"id": "7QK"}));
        let (whole, other) = (id("a"), id("b"));
        let two = ran(
            &["show", &whole, "7QK", &other, "--json"],
            |_, arguments| {
                if arguments["id"] == other {
                    return Err(Refusal::new(Code::UnknownId, "m", "h"));
                }
                Ok(json!({"task": {"id": arguments["id"]}}))
            },
        );
        let answer: Value = serde_json::from_str(&two.stdout).unwrap();
        assert_eq!(
            answer["data"],
            json!({"tasks": [{"id": whole}, {"id": "7QK"}], "missing": [{"id": other, "why": "UNKNOWN_ID"}]})
        );
        assert_eq!(two.code, 0);
    }
}
