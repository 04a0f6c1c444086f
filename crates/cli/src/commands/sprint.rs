//! Sprints.

use serde_json::{Map, Value, json};

use crate::{
    args::{Sprint, SprintCreate, SprintList, SprintUpdate},
    commands::{Action, Based, Cx, full_id, nullable, put, put_list},
    failure::Failure,
    output::{page, table},
};

pub(super) fn sprint(cx: &mut Cx<'_>, args: &Sprint) -> Result<u8, Failure> {
    match args {
        Sprint::Create(args) => create(cx, args),
        Sprint::List(args) => list(cx, args),
        Sprint::Show(args) => {
            let map = Map::from_iter([("id".to_owned(), args.id.as_str().into())]);
            cx.show("task_get", map, page::got).map(|_| 0)
        }
        Sprint::Update(args) => update(cx, args),
        Sprint::Assign(args) => {
            let sprint = nullable(&args.sprint);
            if let Some(id) = sprint.as_str() {
                full_id("sprintId", id)?;
            }
            let mut map = Map::new();
            map.insert("id".into(), args.id.as_str().into());
            map.insert("sprintId".into(), sprint);
            put_list(&mut map, "resolves", &args.resolves.resolves);
            let revision = Based::Current {
                id: &args.id,
                given: args.revision.revision.as_ref(),
            };
            cx.mutate(Action {
                name: "sprint_assign",
                map,
                revision,
                mutation: &args.mutation,
            })
            .map(|_| 0)
        }
        Sprint::Activate(args) => {
            let map = about(&args.id)?;
            let revision = Based::Given(args.revision.revision.as_ref());
            cx.mutate(Action {
                name: "sprint_activate",
                map,
                revision,
                mutation: &args.mutation,
            })
            .map(|_| 0)
        }
        Sprint::Complete(args) => {
            let mut map = about(&args.id)?;
            put(&mut map, "moveOpenTo", args.move_open_to.clone());
            let revision = Based::Given(args.revision.revision.as_ref());
            cx.mutate(Action {
                name: "sprint_complete",
                map,
                revision,
                mutation: &args.mutation,
            })
            .map(|_| 0)
        }
    }
}

fn create(cx: &mut Cx<'_>, args: &SprintCreate) -> Result<u8, Failure> {
    let mut map = Map::new();
    map.insert("name".into(), args.name.as_str().into());
    put(&mut map, "projectId", args.project.clone());
    put(
        &mut map,
        "goal",
        cx.texts.optional("goal", args.goal.as_ref())?,
    );
    let revision = Based::Nothing;
    cx.mutate(Action {
        name: "sprint_create",
        map,
        revision,
        mutation: &args.mutation,
    })?;
    Ok(0)
}

/// A search of a project answers its sprints beside the tasks.
fn list(cx: &mut Cx<'_>, args: &SprintList) -> Result<u8, Failure> {
    let data = cx.backend.call(
        "task_search",
        json!({ "projectId": args.project, "limit": 1 }),
    )?;
    let sprints = data.get("sprints").cloned().unwrap_or_else(|| json!([]));
    let data = json!({ "sprints": sprints });
    cx.out.answer(&data, table::sprints)?;
    if table::items(&data, "sprints").next().is_none() {
        cx.out.note(
            "No active or planned sprints. Create one: stead sprint create NAME --project SLUG",
        );
    }
    Ok(0)
}

fn update(cx: &mut Cx<'_>, args: &SprintUpdate) -> Result<u8, Failure> {
    let mut map = about(&args.id)?;
    let named = map.len();
    put(&mut map, "name", args.name.clone());
    let goal = cx.texts.optional("goal", args.goal.as_ref())?;
    put(
        &mut map,
        "goal",
        goal.map(|goal| {
            if nullable(&goal).is_null() {
                Value::Null
            } else {
                goal.into()
            }
        }),
    );
    put(&mut map, "position", args.position);
    if map.len() == named {
        return Err(Failure::usage(
            "fields",
            "there is nothing to change.",
            "Give --name, --goal or --position.",
        ));
    }
    put_list(&mut map, "resolves", &args.resolves.resolves);
    let revision = Based::Current {
        id: &args.id,
        given: args.revision.revision.as_ref(),
    };
    cx.mutate(Action {
        name: "sprint_update",
        map,
        revision,
        mutation: &args.mutation,
    })?;
    Ok(0)
}

fn about(id: &str) -> Result<Map<String, Value>, Failure> {
    full_id("sprintId", id)?;
    Ok(Map::from_iter([("sprintId".to_owned(), id.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{id, ran};

    fn answer(method: &str, _: &Value) -> Result<Value, stead_doc::refusal::Refusal> {
        let sprint = json!({"id": "S", "name": "One", "status": "planned", "revision": "R1"});
        Ok(match method {
            "task_search" => json!({"tasks": [], "sprints": [sprint]}),
            _ => json!({ "sprint": sprint }),
        })
    }

    #[test]
    fn sprints_are_listed_from_a_search() {
        let ran = ran(&["sprint", "list", "-p", "web"], answer);
        assert_eq!(
            *ran.call("task_search"),
            json!({"projectId": "web", "limit": 1})
        );
        assert_eq!(ran.stdout, "ID  STATUS   NAME\nS   planned  One\n");
    }

    #[test]
    fn sprints_are_updated_on_their_current_revision() {
        let sprint = id("s");
        let updated = ran(
            &[
                "sprint",
                "update",
                &sprint,
                "--goal",
                "none",
                "--position",
                "2",
            ],
            answer,
        );
        assert_eq!(
            *updated.call("task_mutate"),
            json!({"action": "sprint_update", "sprintId": sprint, "goal": null, "position": 2, "revision": "R1"})
        );
        assert_eq!(ran(&["sprint", "update", &sprint], answer).code, 2);
    }

    #[test]
    fn tasks_are_put_in_and_taken_out() {
        let task = id("t");
        let out = ran(
            &["sprint", "assign", &task, "none", "--revision", "R"],
            answer,
        );
        assert_eq!(
            *out.call("task_mutate"),
            json!({"action": "sprint_assign", "id": task, "sprintId": null, "revision": "R"})
        );
        let sprint = id("s");
        let done = ran(
            &["sprint", "complete", &sprint, "--move-open-to", "X"],
            answer,
        );
        assert_eq!(
            *done.call("task_mutate"),
            json!({"action": "sprint_complete", "sprintId": sprint, "moveOpenTo": "X"})
        );
    }
}
