//! Completions of arguments: slugs of projects, ids of tasks, names of members.

use rmcp::model::CompletionInfo;
use serde_json::{Value as Json, json};
use stead_doc::{context::Caller, refusal::Refusal};
use stead_node::handle::Node;

/// Values for an argument of this name that begin with `given`, ignoring case.
pub(crate) fn complete(
    node: &Node,
    caller: &Caller,
    argument: &str,
    given: &str,
) -> Result<Vec<String>, Refusal> {
    let all = match argument {
        "slug" | "projectId" | "project" => {
            let workspace = node.call(caller, "workspace", json!({}))?;
            texts(&workspace, "/workspaces/0/projects", "slug")
        }
        "id" | "taskId" => {
            let mut ids = ids(&node.call(caller, "task_search", json!({ "limit": 200 }))?);
            // The front of one that no list of active tasks shows.
            let fronts = given.len() >= 3 && !ids.iter().any(|id| begins(id, given));
            if fronts
                && let Ok(found) = node.call(
                    caller,
                    "task_get",
                    json!({ "id": given, "view": "summary" }),
                )
            {
                ids.extend(
                    found
                        .pointer("/task/id")
                        .and_then(Json::as_str)
                        .map(str::to_owned),
                );
            }
            ids
        }
        "member" | "assignee" => {
            let workspace = node.call(caller, "workspace", json!({}))?;
            texts(&workspace, "/workspaces/0/members", "displayName")
        }
        _ => Vec::new(),
    };
    let mut matching: Vec<_> = all
        .into_iter()
        .filter(|value| begins(value, given))
        .collect();
    matching.truncate(CompletionInfo::MAX_VALUES);
    Ok(matching)
}

fn begins(value: &str, given: &str) -> bool {
    value.to_lowercase().starts_with(&given.to_lowercase())
}

fn ids(found: &Json) -> Vec<String> {
    texts(found, "/tasks", "id")
}

fn texts(answer: &Json, list: &str, name: &str) -> Vec<String> {
    answer
        .pointer(list)
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.get(name)?.as_str().map(str::to_owned))
        .collect()
}
