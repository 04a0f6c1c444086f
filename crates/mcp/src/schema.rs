//! The input schemas of the tools: flat objects that clients of every kind accept. No `$ref`, no
//! combinators, no type arrays; what an action takes is in the tool's description, and the node
//! refuses the rest by name.

use serde_json::{Map, Value as Json, json};

fn text(description: &str) -> Json {
    described("string", description)
}

fn flag(description: &str) -> Json {
    described("boolean", description)
}

fn number(description: &str) -> Json {
    described("integer", description)
}

fn texts(description: &str) -> Json {
    list("string", description)
}

fn objects(description: &str) -> Json {
    list("object", description)
}

fn list(of: &str, description: &str) -> Json {
    let mut schema = described("array", description);
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("items".into(), json!({ "type": of }));
    }
    schema
}

fn described(kind: &str, description: &str) -> Json {
    if description.is_empty() {
        json!({ "type": kind })
    } else {
        json!({ "type": kind, "description": description })
    }
}

fn object<const N: usize>(required: &[&str], properties: [(&str, Json); N]) -> Json {
    let properties: Map<String, Json> = properties
        .into_iter()
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if let Some(schema) = schema.as_object_mut()
        && !required.is_empty()
    {
        schema.insert("required".into(), json!(required));
    }
    schema
}

pub(crate) fn task_search() -> Json {
    object(
        &[],
        [
            ("projectId", text("Slug or id; all you reach if left out")),
            ("q", text("Words, any order")),
            (
                "status",
                texts("Or groups active (default), open, closed, any, archived"),
            ),
            ("next", flag("Only what can be taken up now")),
            ("assignee", text("me, none, a name or email")),
            ("sprint", text("Id, active or none")),
            ("tag", texts("")),
            ("type", texts("")),
            ("priority", texts("")),
            ("parentId", text("")),
            ("planId", text("")),
            ("number", list("integer", "")),
            ("conflicted", flag("")),
            (
                "updatedSince",
                text("Time, or updateCursor of an earlier answer"),
            ),
            ("fields", texts("More fields for each row")),
            (
                "order",
                text("priority, created, updated, due or rank; - reverses"),
            ),
            ("limit", number("10; at most 200")),
            ("cursor", text("nextCursor, same filter")),
        ],
    )
}

pub(crate) fn task_get() -> Json {
    object(
        &[],
        [
            ("id", text("Of a task or sprint")),
            ("ids", texts("At most 50")),
            ("number", number("")),
            ("planId", text("")),
            ("address", text("In the plan")),
            ("view", text("full (default), summary, brief or history")),
            ("field", text("history: this field's whole values")),
            ("bodyOffset", number("bodyNext of the last answer")),
            ("cursor", text("history: nextCursor")),
            ("limit", number("")),
        ],
    )
}

pub(crate) fn task_mutate() -> Json {
    object(
        &["action"],
        [
            ("action", text("")),
            ("id", text("The task")),
            ("revision", text("As you last read it")),
            ("projectId", text("Slug or id")),
            ("title", text("")),
            ("body", text("Markdown")),
            ("notes", text("")),
            (
                "status",
                text("backlog, ready, in_progress, blocked, review, done, abandoned"),
            ),
            ("priority", text("urgent, high, medium, low, lowest")),
            ("type", text("task, bug, feature, epic, chore")),
            (
                "assignee",
                text("me, email or agent's name; null for nobody"),
            ),
            ("tags", texts("All of them; or addTags, removeTags")),
            ("addTags", texts("")),
            ("removeTags", texts("")),
            ("criteria", objects("{id?, text, done}")),
            ("dependsOn", texts("Task ids")),
            ("parentId", text("")),
            ("ringParentId", text("")),
            ("sprintId", text("")),
            ("rank", number("")),
            ("dueDate", text("YYYY-MM-DD")),
            ("branch", text("")),
            ("worktree", described("object", "{device, path}")),
            ("anchor", text("")),
            ("externalRefs", texts("")),
            ("custom", described("object", "")),
            ("state", described("object", "create")),
            ("statePatch", described("object", "update; null deletes")),
            ("result", text("")),
            ("reason", text("")),
            ("abandonReason", text("")),
            ("childrenSeen", text("")),
            ("force", flag("Recorded")),
            ("leaseSecs", number("claim")),
            ("taskId", text("block: the task in the way")),
            ("replyTo", text("comment: a comment's id")),
            (
                "targetId",
                text("link: the other task; type: depends_on, blocks, relates_to, ..."),
            ),
            ("field", text("resolve")),
            ("choose", text("resolve: `choose` of the value to keep")),
            ("value", text("resolve: your own value")),
            (
                "resolves",
                texts("Conflicted fields that this write settles"),
            ),
            ("name", text("sprint")),
            ("goal", text("sprint")),
            ("position", number("sprint")),
            ("moveOpenTo", text("sprint_complete: sprint for open tasks")),
            (
                "updates",
                objects("Many move/update at once: {id, revision, ...}; not a transaction"),
            ),
            ("idempotencyKey", text("Makes a retry safe")),
            ("waitFor", text("peer or relay")),
            ("timeoutMs", number("")),
            ("by", text("A label; never believed")),
        ],
    )
}
