//! Lists as tables without lines.

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::output::{
    Style, clean,
    show::{self, first_text, text},
};

/// A table; columns that are empty in every row are left out.
pub(crate) fn table(headers: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let filled: Vec<usize> = (0..headers.len())
        .filter(|column| {
            rows.iter()
                .any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()))
        })
        .collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(filled.iter().filter_map(|column| headers.get(*column)));
    for row in rows {
        table.add_row(filled.iter().filter_map(|column| row.get(*column)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut out = String::new();
    for (index, line) in table.trim_fmt().lines().enumerate() {
        let line = line.trim_end();
        out.push_str(&if index == 0 {
            style.bold(line)
        } else {
            line.to_owned()
        });
        out.push('\n');
    }
    out
}

/// Tasks as a search answers them.
pub(crate) fn tasks(data: &Value, style: Style) -> String {
    let rows: Vec<_> = items(data, "tasks")
        .map(|task| task_row(task, style))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(
        &["ID", "STATUS", "PRIORITY", "TYPE", "ASSIGNEE", "TITLE"],
        &rows,
        style,
    )
}

fn task_row(task: &Value, style: Style) -> Vec<String> {
    let mut title = text(task, "title");
    if style.terminal {
        title = clean::cut(&title, TITLE_CHARS);
    }
    if task.get("conflicted").and_then(Value::as_bool) == Some(true) {
        title.push_str("  [conflict]");
    }
    let kind = text(task, "type");
    vec![
        text(task, "id"),
        text(task, "status"),
        text(task, "priority"),
        if kind == "task" { String::new() } else { kind },
        show::actor(task.get("assignee")),
        title,
    ]
}

/// Sprints of a project.
pub(crate) fn sprints(data: &Value, style: Style) -> String {
    let rows: Vec<_> = items(data, "sprints")
        .map(|sprint| {
            vec![
                text(sprint, "id"),
                text(sprint, "status"),
                counts(sprint.get("counts")),
                text(sprint, "name"),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["ID", "STATUS", "TASKS", "NAME"], &rows, style)
}

/// Projects of the workspace.
pub(crate) fn projects(data: &Value, style: Style) -> String {
    let rows: Vec<_> = items(data, "projects")
        .map(|project| {
            let archived = project.get("archived").and_then(Value::as_bool) == Some(true);
            vec![
                text(project, "slug"),
                text(project, "name"),
                counts(project.get("counts")),
                if archived {
                    "archived".into()
                } else {
                    String::new()
                },
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["SLUG", "NAME", "TASKS", ""], &rows, style)
}

/// Members of the workspace.
pub(crate) fn members(data: &Value, style: Style) -> String {
    let rows: Vec<_> = items(data, "members")
        .map(|member| {
            vec![
                first_text(member, &["name", "displayName"]),
                text(member, "email"),
                text(member, "rank"),
                first_text(member, &["responsibility", "responsibilityRole"]),
                first_text(member, &["id", "userId", "memberId"]),
                standing(member),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["NAME", "EMAIL", "RANK", "ROLE", "ID", ""], &rows, style)
}

/// Agents of the workspace.
pub(crate) fn agents(data: &Value, style: Style) -> String {
    let rows: Vec<_> = items(data, "agents")
        .map(|agent| {
            vec![
                text(agent, "name"),
                first_text(agent, &["memberName", "member", "memberId"]),
                words(agent.get("scopes")),
                words(agent.get("projects")),
                standing(agent),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["NAME", "MEMBER", "SCOPES", "PROJECTS", ""], &rows, style)
}

/// The entries of a list in an answer.
pub(crate) fn items<'a>(data: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    data.get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn standing(entry: &Value) -> String {
    let is = |name: &str| match entry.get(name) {
        Some(Value::Bool(yes)) => *yes,
        Some(Value::String(when)) => !when.is_empty(),
        _ => false,
    };
    let gone = ["revoked", "revokedAt", "removed", "removedAt"]
        .into_iter()
        .any(is);
    if gone || entry.get("live").and_then(Value::as_bool) == Some(false) {
        "revoked".to_owned()
    } else if is("local") {
        "local".to_owned()
    } else {
        String::new()
    }
}

/// `3 ready, 1 done`, or a number alone.
fn counts(counts: Option<&Value>) -> String {
    match counts {
        Some(Value::Object(map)) => {
            let parts: Vec<_> = map
                .iter()
                .filter(|(_, count)| count.as_u64() != Some(0))
                .map(|(name, count)| format!("{} {}", show::value(Some(count)), clean::line(name)))
                .collect();
            parts.join(", ")
        }
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// The words of a list.
pub(crate) fn words(list: Option<&Value>) -> String {
    let words: Vec<_> = list
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|word| match word {
            Value::Object(_) => first_text(word, &["slug", "name", "id"]),
            other => show::value(Some(other)),
        })
        .collect();
    words.join(", ")
}

/// Characters of a title in a table on a terminal.
const TITLE_CHARS: usize = 72;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_are_a_table_of_what_is_there() {
        let data = json!({"tasks": [
            {"id": "A", "status": "ready", "priority": "high", "type": "task", "assignee": null, "title": "One"},
            {"id": "BBB", "status": "in_progress", "priority": "low", "type": "bug", "assignee": null,
             "title": "Two\u{1b}[2J", "conflicted": true},
        ]});
        assert_eq!(
            tasks(&data, Style::default()),
            "ID   STATUS       PRIORITY  TYPE  TITLE\n\
             A    ready        high            One\n\
             BBB  in_progress  low       bug   Two\\u{1b}[2J  [conflict]\n"
        );
        assert_eq!(tasks(&json!({"tasks": []}), Style::default()), "");
    }

    #[test]
    fn a_terminal_gets_short_titles_and_a_bold_head() {
        let style = Style {
            colour: true,
            terminal: true,
        };
        let data = json!({"tasks": [{"id": "A", "title": "x".repeat(100)}]});
        let text = tasks(&data, style);
        assert!(text.starts_with("\u{1b}[1mID"));
        assert!(text.contains(&format!("{}…", "x".repeat(71))));
    }

    #[test]
    fn people_and_places_have_tables() {
        let data = json!({
            "projects": [{"slug": "web", "name": "Web", "archived": false, "counts": {"done": 0, "ready": 2}}],
            "members": [{"id": "M", "name": "Ada", "email": "a@x", "rank": "owner", "responsibility": "lead"}],
            "agents": [{"name": "bot", "member": "Ada", "scopes": ["tasks:read"], "projects": null, "revoked": true}],
            "sprints": [{"id": "S", "status": "active", "name": "One", "counts": {"ready": 1, "done": 2}}],
        });
        let style = Style::default();
        assert_eq!(
            projects(&data, style),
            "SLUG  NAME  TASKS\nweb   Web   2 ready\n"
        );
        assert_eq!(
            members(&data, style),
            "NAME  EMAIL  RANK   ROLE  ID\nAda   a@x    owner  lead  M\n"
        );
        assert_eq!(
            agents(&data, style),
            "NAME  MEMBER  SCOPES\nbot   Ada     tasks:read  revoked\n"
        );
        assert_eq!(
            sprints(&data, style),
            "ID  STATUS  TASKS            NAME\nS   active  2 done, 1 ready  One\n"
        );
    }
}
