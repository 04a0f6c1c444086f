//! Commands that write tasks.

use serde_json::{Map, Value, json};

use crate::{
    args::{
        Archive, Block, Claim, Close, Comment, Create, Dep, DepTree, Fields, Link, Move, Mutation,
        Release, Resolve, Unblock, Update,
    },
    commands::{Action, Based, Cx, full_id, nullable, put, put_flag, put_list},
    failure::Failure,
    output::{page, table::items},
};

pub(super) fn create(cx: &mut Cx<'_>, args: &Create) -> Result<u8, Failure> {
    let mut map = fields(cx, &args.fields)?;
    map.insert("title".into(), args.title.as_str().into());
    put(&mut map, "projectId", args.project.clone());
    put(&mut map, "status", args.status.clone());
    put(&mut map, "reason", args.reason.clone());
    put_list(&mut map, "criteria", &args.fields.criteria);
    put(&mut map, "abandonReason", args.abandon_reason.clone());
    put_flag(&mut map, "force", args.force);
    put(&mut map, "state", pairs("state", &args.fields.state)?);
    // Nothing is there yet that null could take away.
    map.retain(|_, value| !value.is_null());
    cx.mutate(Action {
        name: "create",
        map,
        revision: Based::Nothing,
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn update(cx: &mut Cx<'_>, args: &Update) -> Result<u8, Failure> {
    let mut map = fields(cx, &args.fields)?;
    put(&mut map, "title", args.title.clone());
    put(
        &mut map,
        "result",
        cx.texts.optional("result", args.result.as_ref())?,
    );
    put_list(&mut map, "addTags", &args.add_tag);
    put_list(&mut map, "removeTags", &args.remove_tag);
    put(&mut map, "statePatch", pairs("state", &args.fields.state)?);
    let mut current = None;
    if touches_criteria(args) {
        full_id("id", &args.id)?;
        let data = cx.backend.call("task_get", json!({ "id": args.id }))?;
        let task = data.get("task").unwrap_or(&Value::Null);
        map.insert("criteria".into(), criteria(args, task)?);
        // What was just read is what the list was made from.
        current = task
            .get("revision")
            .and_then(Value::as_str)
            .map(str::to_owned);
    }
    if map.is_empty() {
        return Err(Failure::usage(
            "fields",
            "there is nothing to change.",
            "Give a field: stead update --help.",
        ));
    }
    let used = args
        .revision
        .revision
        .is_none()
        .then_some(current)
        .flatten();
    map.insert("id".into(), args.id.as_str().into());
    put_list(&mut map, "resolves", &args.resolves.resolves);
    let given = args.revision.revision.as_ref().or(used.as_ref());
    let mut data = cx.send(Action {
        name: "update",
        map,
        revision: Based::Current {
            id: &args.id,
            given,
        },
        mutation: &args.mutation,
    })?;
    if let Some(revision) = used {
        cx.out.note(&format!("used revision {revision}"));
        if let Some(data) = data.as_object_mut() {
            data.insert("usedRevision".into(), revision.into());
        }
    }
    cx.out.answer(&data, page::written)?;
    Ok(0)
}

fn touches_criteria(args: &Update) -> bool {
    let lists = [
        &args.fields.criteria,
        &args.check,
        &args.uncheck,
        &args.drop_criterion,
    ];
    lists.into_iter().any(|list| !list.is_empty())
}

/// The criteria of a task as they should be: the node takes the whole list.
fn criteria(args: &Update, task: &Value) -> Result<Value, Failure> {
    let mut list = Vec::new();
    let mut known = Vec::new();
    for criterion in items(task, "criteria") {
        let id = criterion
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        known.push(id);
        if args.drop_criterion.iter().any(|dropped| dropped == id) {
            continue;
        }
        let mut entry = json!({ "id": id });
        let checked = args.check.iter().any(|checked| checked == id);
        let unchecked = args.uncheck.iter().any(|unchecked| unchecked == id);
        if checked || unchecked {
            entry["done"] = checked.into();
        }
        list.push(entry);
    }
    let named = args
        .check
        .iter()
        .chain(&args.uncheck)
        .chain(&args.drop_criterion);
    for id in named {
        if !known.contains(&id.as_str()) {
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Failure::usage(
                "criteria",
                format!("the task has no criterion {id} (it has {known})."),
                "See its criteria: stead show ID.",
            ));
        }
    }
    list.extend(
        args.fields
            .criteria
            .iter()
            .map(|text| json!({ "text": text })),
    );
    Ok(list.into())
}

/// The fields that `create` and `update` share.
fn fields(cx: &mut Cx<'_>, fields: &Fields) -> Result<Map<String, Value>, Failure> {
    let mut map = Map::new();
    put(
        &mut map,
        "body",
        cx.texts.optional("body", fields.body.as_ref())?,
    );
    put(
        &mut map,
        "notes",
        cx.texts.optional("notes", fields.notes.as_ref())?,
    );
    put(&mut map, "priority", fields.priority.clone());
    put(&mut map, "type", fields.kind.clone());
    put_set(&mut map, "tags", &fields.tags);
    put_set(&mut map, "dependsOn", &fields.depends_on);
    for (name, value) in [
        ("parentId", &fields.parent),
        ("assignee", &fields.assignee),
        ("sprintId", &fields.sprint),
        ("dueDate", &fields.due),
    ] {
        put(&mut map, name, value.as_deref().map(nullable));
    }
    put_set(&mut map, "externalRefs", &fields.refs);
    put(&mut map, "rank", fields.rank);
    put(&mut map, "branch", fields.branch.clone());
    put(&mut map, "anchor", fields.anchor.clone());
    put(&mut map, "custom", pairs("custom", &fields.custom)?);
    Ok(map)
}

/// A set that replaces what is there; `none` alone is the empty one.
fn put_set(map: &mut Map<String, Value>, name: &str, values: &[String]) {
    match values {
        [] => {}
        [one] if nullable(one).is_null() => {
            map.insert(name.to_owned(), json!([]));
        }
        values => put_list(map, name, values),
    }
}

/// `KEY=VALUE` entries as an object, nothing where there are none.
fn pairs(field: &str, entries: &[String]) -> Result<Option<Value>, Failure> {
    if entries.is_empty() {
        return Ok(None);
    }
    let mut map = Map::new();
    for entry in entries {
        let Some((key, value)) = entry.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(Failure::usage(
                field,
                format!("--{field} takes KEY=VALUE."),
                "Write one so.",
            ));
        };
        let value = if value.is_empty() {
            Value::Null
        } else {
            value.into()
        };
        map.insert(key.to_owned(), value);
    }
    Ok(Some(Value::Object(map)))
}

pub(super) fn move_to(cx: &mut Cx<'_>, args: &Move) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    map.insert("status".into(), args.status.as_str().into());
    put(&mut map, "reason", args.reason.clone());
    put(&mut map, "abandonReason", args.abandon_reason.clone());
    put(
        &mut map,
        "result",
        cx.texts.optional("result", args.result.as_ref())?,
    );
    put(&mut map, "childrenSeen", args.children_seen.clone());
    put_flag(&mut map, "force", args.force);
    put_list(&mut map, "resolves", &args.resolves.resolves);
    cx.mutate(Action {
        name: "move",
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn close(cx: &mut Cx<'_>, args: &Close) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    let reason = cx.texts.optional("reason", args.reason.as_ref())?;
    if args.abandon {
        map.insert("status".into(), "abandoned".into());
        put(&mut map, "abandonReason", reason);
    } else {
        map.insert("status".into(), "done".into());
        put(&mut map, "result", reason);
    }
    put(&mut map, "childrenSeen", args.children_seen.clone());
    put_list(&mut map, "resolves", &args.resolves.resolves);
    cx.mutate(Action {
        name: "move",
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn claim(cx: &mut Cx<'_>, args: &Claim) -> Result<u8, Failure> {
    let mut map = Map::new();
    if let Some(id) = &args.id {
        full_id("id", id)?;
        map.insert("id".into(), id.as_str().into());
    }
    put(&mut map, "projectId", args.project.clone());
    put(&mut map, "leaseSecs", args.lease);
    put_flag(&mut map, "force", args.force);
    put_list(&mut map, "resolves", &args.resolves.resolves);
    let data = cx.send(Action {
        name: "claim",
        map,
        revision: Based::Given(args.revision.revision.as_ref()),
        mutation: &args.mutation,
    })?;
    if data.get("task").is_some_and(Value::is_object) {
        cx.out.answer(&data, page::written)?;
        return Ok(0);
    }
    cx.out.answer(&data, |_, _| String::new())?;
    let count = |name: &str| {
        data.get("why")
            .and_then(|why| why.get(name)?.as_u64())
            .unwrap_or(0)
    };
    cx.out.note(&format!(
        "Nothing is ready to be taken: {} blocked or waiting, {} held by others. Look: stead list --status blocked,in_progress",
        count("blocked"),
        count("leased"),
    ));
    Ok(0)
}

pub(super) fn release(cx: &mut Cx<'_>, args: &Release) -> Result<u8, Failure> {
    full_id("id", &args.id)?;
    let mut map = about(&args.id);
    put_flag(&mut map, "force", args.force);
    put_list(&mut map, "resolves", &args.resolves.resolves);
    cx.mutate(Action {
        name: "release",
        map,
        revision: Based::Given(args.revision.revision.as_ref()),
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn comment(cx: &mut Cx<'_>, args: &Comment) -> Result<u8, Failure> {
    full_id("id", &args.id)?;
    let mut map = about(&args.id);
    map.insert("body".into(), cx.texts.read("text", &args.text)?.into());
    put(&mut map, "replyTo", args.reply_to.clone());
    cx.mutate(Action {
        name: "comment",
        map,
        revision: Based::Nothing,
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn block(cx: &mut Cx<'_>, args: &Block) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    map.insert("reason".into(), args.reason.as_str().into());
    if let Some(task) = &args.by {
        if full_id("by", task).is_err() {
            return Err(Failure::usage(
                "by",
                "--by of block names the task that is in the way, and this is no task's id.",
                "Copy its id from a result. A label goes before the command: stead --by LABEL block ID.",
            ));
        }
        map.insert("taskId".into(), task.as_str().into());
    }
    put_list(&mut map, "resolves", &args.resolves.resolves);
    let mutation = Mutation {
        idempotency_key: args.idempotency_key.clone(),
        by: None,
    };
    cx.mutate(Action {
        name: "block",
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &mutation,
    })?;
    Ok(0)
}

pub(super) fn unblock(cx: &mut Cx<'_>, args: &Unblock) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    put_list(&mut map, "resolves", &args.resolves.resolves);
    cx.mutate(Action {
        name: "unblock",
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn dep(cx: &mut Cx<'_>, args: &Dep) -> Result<u8, Failure> {
    match args {
        Dep::Add(link) => linked(cx, "link", link),
        Dep::Rm(link) => linked(cx, "unlink", link),
        Dep::Tree(tree) => dep_tree(cx, tree),
    }
}

fn linked(cx: &mut Cx<'_>, action: &str, args: &Link) -> Result<u8, Failure> {
    full_id("targetId", &args.target)?;
    let mut map = about(&args.id);
    map.insert("targetId".into(), args.target.as_str().into());
    map.insert("type".into(), args.kind.as_str().into());
    cx.mutate(Action {
        name: action,
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

fn dep_tree(cx: &mut Cx<'_>, args: &DepTree) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    put(&mut map, "depth", args.depth);
    cx.show("dep_tree", map, page::tree)?;
    Ok(0)
}

pub(super) fn resolve(cx: &mut Cx<'_>, args: &Resolve) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    map.insert("field".into(), args.field.as_str().into());
    put(&mut map, "choose", args.choose.clone());
    put(
        &mut map,
        "value",
        cx.texts.optional("value", args.value.as_ref())?,
    );
    if let Some(text) = &args.value_json {
        let value: Value = serde_json::from_str(text).map_err(|error| {
            Failure::usage(
                "value",
                format!("--value-json is no JSON: {error}."),
                "A text is given with --value.",
            )
        })?;
        map.insert("value".into(), value);
    }
    cx.mutate(Action {
        name: "resolve",
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

pub(super) fn archive(cx: &mut Cx<'_>, args: &Archive) -> Result<u8, Failure> {
    let mut map = about(&args.id);
    put_list(&mut map, "resolves", &args.resolves.resolves);
    cx.mutate(Action {
        name: if args.undo { "restore" } else { "archive" },
        map,
        revision: Based::Current {
            id: &args.id,
            given: args.revision.revision.as_ref(),
        },
        mutation: &args.mutation,
    })?;
    Ok(0)
}

fn about(id: &str) -> Map<String, Value> {
    Map::from_iter([("id".to_owned(), id.into())])
}

#[cfg(test)]
mod tests {
    use stead_doc::refusal::{Code, Refusal};

    use super::*;
    use crate::commands::testing::{Ran, id, ran};

    /// A core that holds one task.
    fn with_task(line: &[&str]) -> Ran {
        ran(line, |method, _| {
            let task = json!({"id": "T", "title": "Fix", "status": "ready", "revision": "R1",
                "criteria": [{"id": "1", "text": "a", "done": false}, {"id": "2", "text": "b", "done": true}]});
            Ok(match method {
                "task_mutate" => {
                    json!({"task": {"id": "T", "title": "Fix", "status": "done", "revision": "R2"}})
                }
                _ => json!({ "task": task }),
            })
        })
    }

    #[test]
    fn create_passes_every_field() {
        let ran = with_task(&[
            "--by",
            "claude",
            "create",
            "Fix",
            "-p",
            "web",
            "--body",
            "@@x",
            "--priority",
            "P1",
            "--type",
            "bug",
            "--tag",
            "a,b",
            "--criterion",
            "one, two",
            "--criterion",
            "three",
            "--depends-on",
            "X",
            "--assignee",
            "none",
            "--sprint",
            "S",
            "--due",
            "2026-12-31",
            "--state",
            "k=v",
            "--custom",
            "c=1",
            "--ref",
            "gh-1",
            "--status",
            "backlog",
            "--rank",
            "-1.5",
            "--idempotency-key",
            "k1",
        ]);
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "create", "title": "Fix", "projectId": "web", "body": "@x", "priority": "P1", "type": "bug",
                "tags": ["a", "b"], "criteria": ["one, two", "three"], "dependsOn": ["X"], "sprintId": "S",
                "dueDate": "2026-12-31", "state": {"k": "v"}, "custom": {"c": "1"}, "externalRefs": ["gh-1"],
                "status": "backlog", "rank": -1.5, "idempotencyKey": "k1", "by": "claude"})
        );
        assert_eq!(ran.stdout, "T  Fix (done)  R2\n");
        assert_eq!(ran.stderr, "");
    }

    #[test]
    fn without_a_revision_the_current_one_is_used_and_named() {
        let task = id("t");
        let people = with_task(&["move", &task, "done", "--result", "ok"]);
        assert_eq!(
            *people.call("task_get"),
            json!({"id": task, "view": "summary"})
        );
        assert_eq!(
            *people.call("task_mutate"),
            json!({"action": "move", "id": task, "status": "done", "result": "ok", "revision": "R1"})
        );
        assert_eq!(people.stderr, "used revision R1\n");
        let program = with_task(&["move", &task, "done", "--json"]);
        let answer: Value = serde_json::from_str(&program.stdout).unwrap();
        assert_eq!(answer["data"]["usedRevision"], "R1");
        assert_eq!(program.stderr, "");
        let given = with_task(&["move", &task, "done", "--revision", "R0"]);
        assert_eq!(given.calls.len(), 1);
        assert_eq!(given.call("task_mutate")["revision"], "R0");
    }

    #[test]
    fn writes_take_whole_ids() {
        let ran = with_task(&["close", "7QK", "--reason", "x"]);
        assert_eq!(ran.code, 1);
        assert!(ran.calls.is_empty());
        assert!(ran.stderr.starts_with("INVALID_ID: "), "{}", ran.stderr);
    }

    #[test]
    fn close_finishes_or_abandons() {
        let task = id("t");
        let done = with_task(&["close", &task, "--reason", "fixed", "--revision", "R"]);
        assert_eq!(
            *done.call("task_mutate"),
            json!({"action": "move", "id": task, "status": "done", "result": "fixed", "revision": "R"})
        );
        let abandoned = with_task(&[
            "close",
            &task,
            "--abandon",
            "--reason",
            "no",
            "--revision",
            "R",
        ]);
        assert_eq!(
            *abandoned.call("task_mutate"),
            json!({"action": "move", "id": task, "status": "abandoned", "abandonReason": "no", "revision": "R"})
        );
    }

    #[test]
    fn criteria_are_changed_one_by_one() {
        let task = id("t");
        let ran = with_task(&[
            "update",
            &task,
            "--check",
            "1",
            "--drop-criterion",
            "2",
            "--criterion",
            "c",
            "--json",
        ]);
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "update", "id": task, "revision": "R1",
                "criteria": [{"id": "1", "done": true}, {"text": "c"}]})
        );
        assert!(ran.stdout.contains("\"usedRevision\":\"R1\""));
        let unknown = with_task(&["update", &task, "--check", "9"]);
        assert_eq!(unknown.code, 2);
        assert_eq!(with_task(&["update", &task]).code, 2);
    }

    #[test]
    fn none_clears_and_sets_can_be_emptied() {
        let ran = with_task(&[
            "update",
            "T",
            "--assignee",
            "none",
            "--due",
            "",
            "--tag",
            "none",
            "--state",
            "k=",
            "--revision",
            "R",
        ]);
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "update", "id": "T", "revision": "R", "assignee": null, "dueDate": null, "tags": [],
                "statePatch": {"k": null}})
        );
    }

    #[test]
    fn nothing_to_claim_is_no_failure() {
        let ran = ran(&["claim", "--project", "web", "--lease", "2h"], |_, _| {
            Ok(json!({"task": null, "why": {"blocked": 3, "leased": 2}}))
        });
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "claim", "projectId": "web", "leaseSecs": 7200})
        );
        assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
        assert!(ran.stderr.contains("3 blocked or waiting, 2 held"));
    }

    #[test]
    fn a_refusal_is_told_and_exits_with_one() {
        let ran = ran(&["move", &id("t"), "done", "--revision", "R"], |_, _| {
            Err(
                Refusal::new(Code::StaleWrite, "task T moved on.", "Decide again.").with(
                    "changed",
                    json!([{"field": "status", "before": "ready", "now": "done"}]),
                ),
            )
        });
        assert_eq!(ran.code, 1);
        assert_eq!(ran.stdout, "");
        assert_eq!(
            ran.stderr,
            "STALE_WRITE: task T moved on. Decide again.\n  status: ready -> done\n"
        );
    }

    #[test]
    fn a_label_in_the_place_of_a_blocking_task_is_explained() {
        let ran = with_task(&["block", &id("t"), "--reason", "r", "--by", "claude"]);
        assert_eq!(ran.code, 2);
        assert!(ran.stderr.contains("stead --by LABEL block"));
        let (task, other) = (id("t"), id("o"));
        let ran = with_task(&[
            "--by",
            "me",
            "block",
            &task,
            "--reason",
            "r",
            "--by",
            &other,
            "--revision",
            "R",
        ]);
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "block", "id": task, "reason": "r", "taskId": other, "revision": "R", "by": "me"})
        );
    }

    #[test]
    fn conflicts_are_resolved_by_choice_text_or_json() {
        let task = id("t");
        let value = |extra: &[&str]| {
            let line = [
                &["resolve", task.as_str(), "title", "--revision", "R"],
                extra,
            ]
            .concat();
            let mut call = with_task(&line).call("task_mutate").clone();
            call.as_object_mut()
                .unwrap()
                .retain(|name, _| ["choose", "value"].contains(&name.as_str()));
            call
        };
        assert_eq!(value(&["--choose", "1@A"]), json!({"choose": "1@A"}));
        assert_eq!(value(&["--value", "-5"]), json!({"value": "-5"}));
        assert_eq!(value(&["--value-json", "null"]), json!({"value": null}));
        assert_eq!(value(&[]), json!({}));
    }

    #[test]
    fn links_and_trees() {
        let (task, other) = (id("t"), id("o"));
        let ran = with_task(&["dep", "rm", &task, &other, "--revision", "R"]);
        assert_eq!(
            *ran.call("task_mutate"),
            json!({"action": "unlink", "id": task, "targetId": other, "type": "depends_on", "revision": "R"})
        );
        let tree = with_task(&["dep", "tree", "7QK", "--depth", "3"]);
        assert_eq!(*tree.call("dep_tree"), json!({"id": "7QK", "depth": 3}));
    }
}
