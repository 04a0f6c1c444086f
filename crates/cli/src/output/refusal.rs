//! A refusal as people read it: what happened, what to do, and what they need for that.

use serde_json::Value;
use stead_doc::refusal::Refusal;

use crate::output::{
    Style, clean,
    show::{self, text},
};

/// The sentence with its code, and below it what changed, which values stand, what would do.
pub(crate) fn render(refusal: &Refusal, style: Style) -> String {
    let mut out = format!(
        "{}: {}",
        style.red(refusal.code.as_str()),
        clean::line(&refusal.message)
    );
    if !refusal.hint.is_empty() {
        out.push(' ');
        out.push_str(&clean::line(&refusal.hint));
    }
    out.push('\n');
    let list = |name: &str| refusal.details.get(name).and_then(Value::as_array);
    let overlap = list("overlap");
    for change in list("changed").into_iter().flatten() {
        let field = text(change, "field");
        let touches =
            overlap.is_some_and(|fields| fields.iter().any(|name| *name == field.as_str()));
        out.push_str(&format!(
            "  {field}: {} -> {}{}{}\n",
            show::value(change.get("before")),
            show::value(change.get("now")),
            by_and_at(change),
            if touches {
                "  (you were writing this)"
            } else {
                ""
            },
        ));
    }
    for conflict in list("conflicts").into_iter().flatten() {
        out.push_str(&conflict_lines(conflict));
    }
    if let Some(known) = list("knownProjects") {
        out.push_str(&format!("  projects: {}\n", joined(known)));
        if known.is_empty() {
            out.push_str("  Make one: stead project add SLUG\n");
        }
    }
    if let Some(given) = refusal.details.get("given") {
        out.push_str(&format!("  given: {}\n", show::value(Some(given))));
    }
    if let Some(accepted) = list("accepted") {
        out.push_str(&format!("  accepted: {}\n", joined(accepted)));
    }
    for name in ["cycle", "candidates"] {
        if let Some(ids) = list(name) {
            out.push_str(&format!("  {name}: {}\n", joined(ids)));
        }
    }
    out
}

/// One open conflict with its values.
pub(crate) fn conflict_lines(conflict: &Value) -> String {
    let field = text(conflict, "field");
    if conflict.get("suspended").and_then(Value::as_bool) == Some(true) {
        return format!("  {field}: suspended, {}\n", text(conflict, "why"));
    }
    let values = |name: &str| {
        conflict
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let mut out = String::new();
    if conflict.get("lost").is_some() {
        let author = show::actor(conflict.get("collapsedBy"));
        out.push_str(&format!("  {field}: values lost, collapsed by {author}\n"));
    } else {
        out.push_str(&format!("  {field}:\n"));
    }
    for value in values("values").chain(values("lost")) {
        let mark = if value.get("winner").and_then(Value::as_bool) == Some(true) {
            " (shown now)"
        } else {
            ""
        };
        out.push_str(&format!(
            "    {}  {}{}{mark}\n",
            text(value, "choose"),
            show::value(value.get("value")),
            by_and_at(value),
        ));
    }
    out
}

fn by_and_at(entry: &Value) -> String {
    let (by, at) = (show::actor(entry.get("by")), show::time(entry.get("at")));
    match (by.is_empty(), at.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("  by {by}"),
        (true, false) => format!("  {at}"),
        (false, false) => format!("  by {by}, {at}"),
    }
}

/// Names of a list; a project is known by its slug, a task by its id.
fn joined(items: &[Value]) -> String {
    let names: Vec<String> = items
        .iter()
        .map(|item| match item {
            Value::Object(_) => {
                let slug = text(item, "slug");
                if slug.is_empty() {
                    text(item, "id")
                } else {
                    slug
                }
            }
            other => show::value(Some(other)),
        })
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stead_doc::refusal::Code;

    use super::*;

    #[test]
    fn a_stale_write_says_what_changed() {
        let refusal = Refusal::new(Code::StaleWrite, "task T moved on.", "Decide again.")
            .with("changed", json!([
                {"field": "status", "before": "ready", "now": "in_progress", "by": {"name": "ada", "memberName": "Ada"}},
                {"field": "title", "before": "a", "now": "b\u{1b}[2J"},
            ]))
            .with("overlap", json!(["status"]))
            .with("conflicts", json!([{"field": "body", "values": [
                {"value": "x", "choose": "12@AB", "winner": true},
                {"value": "y", "choose": "12@CD", "by": {"name": "bob"}},
            ]}]))
            .with("current", json!({"title": "t"}));
        assert_eq!(
            render(&refusal, Style::default()),
            "STALE_WRITE: task T moved on. Decide again.\n\
             \x20 status: ready -> in_progress  by ada  (you were writing this)\n\
             \x20 title: a -> b\\u{1b}[2J\n\
             \x20 body:\n\
             \x20   12@AB  x (shown now)\n\
             \x20   12@CD  y  by bob\n"
        );
    }

    #[test]
    fn what_would_do_is_listed() {
        let refusal = Refusal::argument("projectId", "projectId is missing.", "Send it.").with(
            "knownProjects",
            json!([{"slug": "web", "name": "Web"}, {"slug": "ios"}]),
        );
        assert!(render(&refusal, Style::default()).ends_with("  projects: web, ios\n"));
        let refusal = Refusal::argument("status", "unknown.", "Use one of accepted.")
            .with("given", "nope")
            .with("accepted", json!(["ready", "done"]));
        assert!(
            render(&refusal, Style::default())
                .ends_with("  given: nope\n  accepted: ready, done\n")
        );
    }
}
