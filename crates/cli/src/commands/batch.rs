//! Many moves or updates from a file.

use serde_json::{Map, Value, json};
use stead_doc::limits;

use crate::{
    args::Batch,
    commands::{Action, Based, Cx},
    failure::Failure,
    output::{
        Style, clean,
        show::{first_text, text},
        table::items,
    },
};

pub(super) fn batch(cx: &mut Cx<'_>, args: &Batch) -> Result<u8, Failure> {
    let given = if args.file == "-" {
        "-".to_owned()
    } else {
        format!("@{}", args.file)
    };
    let mut updates = entries(&cx.texts.read("file", &given)?)?;
    let used = fill_revisions(cx, &mut updates)?;
    let map = Map::from_iter([("updates".to_owned(), Value::Array(updates))]);
    let mut data = cx.send(Action {
        name: &args.action,
        map,
        revision: Based::Nothing,
        mutation: &args.mutation,
    })?;
    for (id, revision) in &used {
        cx.out.note(&format!(
            "used revision {revision} of {id}",
            revision = text(&json!({ "r": revision }), "r")
        ));
    }
    if !used.is_empty()
        && let Some(data) = data.as_object_mut()
    {
        data.insert("usedRevisions".into(), Value::Object(used));
    }
    cx.out.answer(&data, rendered)?;
    Ok(u8::from(items(&data, "refused").next().is_some()))
}

/// The entries of the file: an array, or an object with `updates`.
fn entries(text: &str) -> Result<Vec<Value>, Failure> {
    let wrong = |message: String| Failure::usage("file", message, "See stead batch --help.");
    let value: Value = serde_json::from_str(text)
        .map_err(|error| wrong(format!("the file is no JSON: {error}.")))?;
    let entries = match value {
        Value::Array(entries) => Some(entries),
        Value::Object(mut map) => match map.remove("updates") {
            Some(Value::Array(entries)) if map.is_empty() => Some(entries),
            _ => None,
        },
        _ => None,
    };
    entries.ok_or_else(|| wrong("the file holds no array of updates.".into()))
}

/// Gives every entry without a revision the current one; what was used, by id.
fn fill_revisions(cx: &Cx<'_>, updates: &mut [Value]) -> Result<Map<String, Value>, Failure> {
    let bare = |entry: &Value| entry.get("revision").is_none_or(Value::is_null);
    let ids: Vec<String> = updates
        .iter()
        .filter(|entry| bare(entry))
        .filter_map(|entry| entry.get("id")?.as_str().map(str::to_owned))
        .collect();
    let mut used = Map::new();
    let mut asked: Vec<&[String]> = ids.chunks(limits::GET_IDS).collect();
    while let Some(ids) = asked.pop() {
        let data = cx
            .backend
            .call("task_get", json!({ "ids": ids, "view": "summary" }))?;
        let before = used.len();
        for task in items(&data, "tasks") {
            if let (Some(id), Some(revision)) =
                (task.get("id").and_then(Value::as_str), task.get("revision"))
            {
                used.insert(id.to_owned(), revision.clone());
            }
        }
        // An answer is cut at its size; what is missing in a half may be there in a quarter.
        if ids.len() > 1 && used.len() - before < ids.len() {
            let (left, right) = ids.split_at(ids.len() / 2);
            asked.extend([left, right]);
        }
    }
    for entry in updates.iter_mut().filter(|entry| bare(entry)) {
        // One that was not found is sent as it is: the node says why it is refused.
        let revision = entry
            .get("id")
            .and_then(Value::as_str)
            .and_then(|id| used.get(id))
            .cloned();
        if let (Some(revision), Some(entry)) = (revision, entry.as_object_mut()) {
            entry.insert("revision".into(), revision);
        }
    }
    Ok(used)
}

fn rendered(data: &Value, style: Style) -> String {
    let mut out = String::new();
    for name in ["moved", "updated", "results"] {
        for entry in items(data, name) {
            let id = entry
                .as_str()
                .map_or_else(|| text(entry, "id"), clean::line);
            let about = [
                first_text(entry, &["status", "outcome"]),
                text(entry, "revision"),
            ];
            let about: Vec<_> = about.into_iter().filter(|part| !part.is_empty()).collect();
            out.push_str(format!("{}  {}", style.bold(&id), about.join("  ")).trim_end());
            out.push('\n');
        }
    }
    for entry in items(data, "refused") {
        let error = entry.get("error").unwrap_or(entry);
        let why = first_text(error, &["message", "why"]);
        out.push_str(&format!(
            "{}  {}\n",
            style.bold(&text(entry, "id")),
            format!("{} {why}", style.red(&text(error, "code"))).trim()
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::ran;

    #[test]
    fn entries_come_as_an_array_or_under_updates() {
        assert_eq!(entries(r#"[{"id":"A"}]"#).unwrap().len(), 1);
        assert_eq!(
            entries(r#"{"updates":[{"id":"A"},{"id":"B"}]}"#)
                .unwrap()
                .len(),
            2
        );
        for wrong in [
            "",
            "3",
            "{}",
            r#"{"updates":3}"#,
            r#"{"updates":[],"by":"x"}"#,
        ] {
            assert_eq!(entries(wrong).unwrap_err().exit_code(), 2, "{wrong}");
        }
    }

    #[test]
    fn revisions_are_filled_in_although_answers_are_cut() {
        let file = std::env::temp_dir().join(format!("stead-cli-batch-{}", std::process::id()));
        let mut list: Vec<_> = (0..7)
            .map(|n| json!({"id": format!("T{n}"), "status": "done"}))
            .collect();
        list.push(json!({"id": "given", "revision": "R0"}));
        list.push(json!({"id": "unknown"}));
        std::fs::write(&file, Value::Array(list).to_string()).unwrap();
        let ran = ran(
            &["batch", file.to_str().unwrap(), "--idempotency-key", "k"],
            |method, arguments| {
                if method == "task_mutate" {
                    return Ok(
                        json!({"moved": [], "refused": [{"id": "unknown", "error": {"code": "UNKNOWN_ID"}}]}),
                    );
                }
                let ids = arguments["ids"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|id| *id != "unknown");
                let tasks: Vec<_> = ids
                    .take(3)
                    .map(|id| json!({"id": id, "revision": "R1"}))
                    .collect();
                Ok(json!({ "tasks": tasks }))
            },
        );
        drop(std::fs::remove_file(&file));
        let updates = ran.call("task_mutate")["updates"].as_array().unwrap();
        let revisions: Vec<_> = updates
            .iter()
            .map(|entry| entry["revision"].as_str())
            .collect();
        let mut expected = vec![Some("R1"); 7];
        expected.extend([Some("R0"), None]);
        assert_eq!(revisions, expected);
        assert_eq!(ran.call("task_mutate")["idempotencyKey"], "k");
        assert_eq!(ran.code, 1);
    }

    #[test]
    fn refusals_are_told_apart() {
        let data = json!({"moved": [{"id": "A", "status": "done", "revision": "R"}],
            "refused": [{"id": "B", "error": {"code": "STALE_WRITE", "message": "moved on."}}]});
        assert_eq!(
            rendered(&data, Style::default()),
            "A  done  R\nB  STALE_WRITE moved on.\n"
        );
    }
}
