//! One object on a page of its own: tasks, sprints, histories, trees.

use serde_json::{Map, Value};

use crate::output::{
    Style, clean, refusal,
    show::{self, text},
    table::{self, items, words},
};

/// What was written, in one line: id, title, revision.
pub(crate) fn written(data: &Value, style: Style) -> String {
    let line = |id: String, what: String, revision: String| {
        [style.bold(&id), what, style.faint(&revision)]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("  ")
    };
    let with_status = |object: &Value, name: &str| match text(object, "status") {
        status if status.is_empty() => text(object, name),
        status => format!("{} ({status})", text(object, name)),
    };
    let object = |name: &str| data.get(name).filter(|value| value.is_object());
    if let Some(task) = object("task") {
        line(
            text(task, "id"),
            with_status(task, "title"),
            text(task, "revision"),
        )
    } else if let Some(sprint) = object("sprint") {
        let mut out = line(
            text(sprint, "id"),
            with_status(sprint, "name"),
            text(sprint, "revision"),
        );
        let open = words(data.get("openTasks"));
        if !open.is_empty() {
            let moved = text(data, "movedTo");
            let fate = if moved.is_empty() {
                "stay".into()
            } else {
                format!("moved to {moved}")
            };
            out.push_str(&format!("\nopen tasks, {fate}: {open}"));
        }
        out
    } else if let Some(comment) = object("comment") {
        line(
            text(comment, "id"),
            format!("on {}", text(comment, "taskId")),
            String::new(),
        )
    } else if let Some(project) = object("project") {
        line(
            text(project, "slug"),
            text(project, "name"),
            text(project, "id"),
        )
    } else if let Some(member) = object("member") {
        line(
            text(member, "name"),
            text(member, "email"),
            text(member, "id"),
        )
    } else {
        fields(data, style)
    }
}

/// What `task_get` answers, whatever was asked for.
pub(crate) fn got(data: &Value, style: Style) -> String {
    // A brief is text to hand on as it is.
    for name in ["brief", "text"] {
        if let Some(brief) = data.get(name).and_then(Value::as_str) {
            return clean::lines(brief);
        }
    }
    if let Some(sprint) = data.get("sprint").filter(|sprint| sprint.is_object()) {
        return sprint_page(sprint, data, style);
    }
    let mut pages = Vec::new();
    match data.get("task") {
        Some(task @ Value::Object(_)) => pages.push(task_page(task, data, style)),
        Some(Value::String(brief)) => pages.push(clean::lines(brief)),
        _ => {}
    }
    pages.extend(items(data, "tasks").map(|task| task_page(task, task, style)));
    for missing in items(data, "missing") {
        pages.push(format!(
            "{}  {}\n",
            text(missing, "id"),
            text(missing, "why")
        ));
    }
    if pages.is_empty() {
        return fields(data, style);
    }
    pages.join("\n")
}

/// A task, whole; what belongs to it may stand in it or beside it.
fn task_page(task: &Value, data: &Value, style: Style) -> String {
    let mut page = Page::new(style);
    page.title(&format!("{}  {}", text(task, "id"), text(task, "title")));
    let mut status = text(task, "status");
    let why = text(task, "statusReason");
    if !why.is_empty() {
        status = format!("{status}: {why}");
    }
    page.entry("status", &status);
    if let Some(blocker) = task.get("blocker").filter(|blocker| blocker.is_object()) {
        page.entry(
            "blocked",
            &[
                text(blocker, "reason"),
                text(blocker, "taskId"),
                show::actor(blocker.get("by")),
                show::time(blocker.get("at")),
            ]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
        );
    }
    page.entry("priority", &text(task, "priority"));
    page.entry("type", &text(task, "type"));
    page.entry("assignee", &show::actor(task.get("assignee")));
    if let Some(lease) = task.get("lease").filter(|lease| lease.is_object()) {
        let until = show::time(lease.get("expiresAt"));
        let live = lease.get("live").and_then(Value::as_bool) != Some(false);
        page.entry(
            "held by",
            &format!(
                "{}, {} {until} ({})",
                show::actor(lease.get("by")),
                if live { "until" } else { "lapsed" },
                text(lease, "standing"),
            ),
        );
    }
    for (label, name) in [
        ("project", "projectId"),
        ("sprint", "sprintId"),
        ("parent", "parentId"),
        ("plan", "planId"),
        ("address", "address"),
        ("rank", "rank"),
        ("branch", "branch"),
        ("anchor", "anchor"),
        ("abandoned", "abandonReason"),
    ] {
        page.entry(label, &text(task, name));
    }
    page.entry("due", &show::time(task.get("dueDate")));
    page.entry("tags", &words(task.get("tags")));
    page.entry("created", &when_and_who(task, "createdAt", "createdBy"));
    page.entry("updated", &when_and_who(task, "updatedAt", "updatedBy"));
    page.entry("archived", &show::time(task.get("archivedAt")));
    page.entry("invalid", &words(task.get("invalid")));
    page.entry("revision", &text(task, "revision"));

    let beside = |name: &str| -> Vec<&Value> {
        items(task, name)
            .chain(items(data, name).filter(|_| !std::ptr::eq(task, data)))
            .collect()
    };
    let conflicts = beside("conflicts");
    if !conflicts.is_empty() {
        let lines: String = conflicts.into_iter().map(refusal::conflict_lines).collect();
        page.section("Conflicts", &lines);
        page.plain(&format!(
            "  Decide: stead resolve {} FIELD --choose NAME\n",
            text(task, "id")
        ));
    }
    page.long("Body", task.get("body"));
    if let Some(next) = task
        .get("bodyNext")
        .or_else(|| data.get("bodyNext"))
        .and_then(Value::as_u64)
    {
        page.plain(&format!(
            "  … goes on: stead show {} --body-offset {next}\n",
            text(task, "id")
        ));
    }
    page.long("Notes", task.get("notes"));
    page.long("Result", task.get("result"));
    let criteria: String = items(task, "criteria")
        .map(|criterion| {
            let done = criterion.get("done").and_then(Value::as_bool) == Some(true);
            let mark = if done { "x" } else { " " };
            format!(
                "  [{mark}] {}  {}\n",
                text(criterion, "id"),
                text(criterion, "text")
            )
        })
        .collect();
    page.section("Criteria", &criteria);
    page.section(
        "Depends on",
        &linked(task, &beside("dependencies"), "dependsOn"),
    );
    let waiting = beside("dependentTasks");
    page.section("Waiting for it", &linked(task, &waiting, "dependents"));
    page.section("Children", &linked(task, &[], "children"));
    let links: String = items(task, "links")
        .map(|link| format!("  {} {}\n", text(link, "type"), text(link, "targetId")))
        .collect();
    page.section("Links", &links);
    page.section("State", &map_lines(task.get("state")));
    page.section("Custom", &map_lines(task.get("custom")));
    let refs: String = items(task, "externalRefs")
        .map(|entry| match text(entry, "type") {
            kind if kind.is_empty() => format!("  {}\n", text(entry, "ref")),
            kind => format!("  {} ({kind})\n", text(entry, "ref")),
        })
        .collect();
    page.section("References", &refs);
    let earlier = text(task, "commentsLeft");
    if !["", "0"].contains(&earlier.as_str()) {
        page.plain(&format!("\n{earlier} earlier comments are left out\n"));
    }
    for comment in beside("comments") {
        let head = format!(
            "Comment {} by {}, {}",
            text(comment, "id"),
            show::actor(comment.get("by")),
            show::time(comment.get("at")),
        );
        page.long(&head, comment.get("body"));
    }
    page.finish()
}

fn sprint_page(sprint: &Value, data: &Value, style: Style) -> String {
    let mut page = Page::new(style);
    page.title(&format!("{}  {}", text(sprint, "id"), text(sprint, "name")));
    page.entry("status", &text(sprint, "status"));
    page.entry("project", &text(sprint, "projectId"));
    page.entry("position", &text(sprint, "position"));
    page.entry("started", &show::time(sprint.get("startedAt")));
    page.entry("completed", &show::time(sprint.get("completedAt")));
    page.entry("revision", &text(sprint, "revision"));
    let conflicts: String = items(sprint, "conflicts")
        .map(refusal::conflict_lines)
        .collect();
    page.section("Conflicts", &conflicts);
    page.long("Goal", sprint.get("goal"));
    let tasks = if data.get("tasks").is_some() {
        data
    } else {
        sprint
    };
    page.section("Tasks", &table::tasks(tasks, style));
    page.finish()
}

/// Who changed what, newest first.
pub(crate) fn history(data: &Value, style: Style) -> String {
    let list = ["history", "changes", "entries"]
        .into_iter()
        .find_map(|name| {
            data.get(name)
                .or_else(|| data.get("task")?.get(name))
                .and_then(Value::as_array)
        });
    let Some(list) = list else {
        return fields(data, style);
    };
    let mut out = String::new();
    for change in list {
        let head = [
            show::time(change.get("at")),
            show::actor(change.get("by")),
            show::first_text(change, &["command", "action"]),
        ];
        let head: Vec<_> = head.into_iter().filter(|part| !part.is_empty()).collect();
        out.push_str(&style.bold(&head.join("  ")));
        out.push('\n');
        let line = |field: &str, entry: &Value| {
            let now = ["now", "value"]
                .into_iter()
                .find_map(|name| entry.get(name));
            match (entry.is_object(), entry.get("before")) {
                (true, Some(before)) => {
                    format!(
                        "  {field}: {} -> {}\n",
                        show::value(Some(before)),
                        show::value(now)
                    )
                }
                (true, None) => format!("  {field}: {}\n", show::value(now)),
                (false, _) => format!("  {field}: {}\n", show::value(Some(entry))),
            }
        };
        for name in ["fields", "changed", "changes"] {
            match change.get(name) {
                Some(Value::Array(entries)) => {
                    for entry in entries {
                        let field = entry
                            .as_str()
                            .map_or_else(|| text(entry, "field"), clean::line);
                        if entry.is_string() {
                            out.push_str(&format!("  {field}\n"));
                        } else {
                            out.push_str(&line(&field, entry));
                        }
                    }
                }
                Some(Value::Object(map)) => {
                    for (field, entry) in map {
                        out.push_str(&line(&clean::line(field), entry));
                    }
                }
                _ => {}
            }
        }
    }
    out
}

/// A tree, indented.
pub(crate) fn tree(data: &Value, style: Style) -> String {
    fn walk(node: &Value, depth: usize, style: Style, out: &mut String) {
        let seen = node.get("seen").and_then(Value::as_bool) == Some(true);
        out.push_str(&format!(
            "{}{}  {} ({}){}\n",
            "  ".repeat(depth),
            style.bold(&text(node, "id")),
            text(node, "title"),
            text(node, "status"),
            if seen { "  shown above" } else { "" },
        ));
        let deeper = text(node, "deeper");
        if !deeper.is_empty() {
            out.push_str(&format!(
                "{}{deeper} more below; see --depth\n",
                "  ".repeat(depth + 1)
            ));
        }
        if depth < TREE_DEPTH {
            items(node, "children").for_each(|child| walk(child, depth + 1, style, out));
        } else if items(node, "children").next().is_some() {
            out.push_str(&format!("{}…\n", "  ".repeat(depth + 1)));
        }
    }
    let mut out = String::new();
    if let Some(root) = data.get("tree") {
        walk(root, 0, style, &mut out);
    }
    if data.get("cut").and_then(Value::as_bool) == Some(true) {
        out.push_str("The tree goes on; start further down.\n");
    }
    out
}

/// Tasks with open conflicts and the values of each.
pub(crate) fn conflicts(data: &Value, style: Style) -> String {
    let mut out = String::new();
    for task in items(data, "conflicts") {
        out.push_str(&format!(
            "{}  {}\n",
            style.bold(&text(task, "id")),
            text(task, "title")
        ));
        for conflict in items(task, "conflicts") {
            out.push_str(&refusal::conflict_lines(conflict));
        }
    }
    out
}

/// Any object, a line for each field.
pub(crate) fn fields(data: &Value, style: Style) -> String {
    let mut page = Page::new(style);
    for (name, value) in data.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Object(map) => page.entry(&clean::line(name), &inline(map)),
            Value::Array(_) => page.entry(&clean::line(name), &words(Some(value))),
            other => page.entry(&clean::line(name), &show::value(Some(other))),
        }
    }
    page.finish()
}

fn inline(map: &Map<String, Value>) -> String {
    let parts: Vec<_> = map
        .iter()
        .map(|(name, value)| format!("{} {}", clean::line(name), show::value(Some(value))))
        .collect();
    parts.join(", ")
}

fn when_and_who(object: &Value, at: &str, by: &str) -> String {
    let (at, by) = (show::time(object.get(at)), show::actor(object.get(by)));
    if by.is_empty() {
        at
    } else {
        format!("{at} by {by}")
    }
}

/// Tasks at the other end of a link, with what is known of them.
fn linked(task: &Value, known: &[&Value], name: &str) -> String {
    items(task, name)
        .map(|entry| {
            let id = entry
                .as_str()
                .map_or_else(|| text(entry, "id"), clean::line);
            let about = known
                .iter()
                .find(|known| text(known, "id") == id)
                .copied()
                .unwrap_or(entry);
            let about = [text(about, "title"), text(about, "status")];
            let about: Vec<_> = about.into_iter().filter(|part| !part.is_empty()).collect();
            format!("  {id}  {}", about.join(", "))
                .trim_end()
                .to_owned()
                + "\n"
        })
        .collect()
}

fn map_lines(map: Option<&Value>) -> String {
    map.and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("  {}: {}\n", clean::line(key), show::value(Some(value))))
        .collect()
}

/// A page in the making: entries in a column, then sections.
struct Page {
    style: Style,
    out: String,
}

impl Page {
    fn new(style: Style) -> Self {
        Self {
            style,
            out: String::new(),
        }
    }

    fn title(&mut self, title: &str) {
        self.out.push_str(&self.style.bold(title));
        self.out.push('\n');
    }

    fn entry(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            self.out.push_str(&format!(
                "{}  {value}\n",
                self.style.faint(&format!("{label:>9}"))
            ));
        }
    }

    fn section(&mut self, title: &str, lines: &str) {
        if !lines.is_empty() {
            self.out.push('\n');
            self.out.push_str(&self.style.bold(title));
            self.out.push('\n');
            self.out.push_str(lines);
        }
    }

    /// A long text, every line of it indented: none can pass for one of the page's own.
    fn long(&mut self, title: &str, value: Option<&Value>) {
        let Some(value) = value
            .and_then(Value::as_str)
            .filter(|value| !value.is_empty())
        else {
            return;
        };
        let lines: String = clean::lines(value)
            .lines()
            .map(|line| {
                if line.is_empty() {
                    "\n".to_owned()
                } else {
                    format!("  {line}\n")
                }
            })
            .collect();
        self.section(title, &lines);
    }

    fn plain(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn finish(self) -> String {
        self.out
    }
}

/// How deep a tree is drawn; deeper ones leave the screen.
const TREE_DEPTH: usize = 60;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_is_one_line() {
        let style = Style::default();
        let task = json!({"task": {"id": "T", "title": "Fix", "status": "ready", "revision": "R"}});
        assert_eq!(written(&task, style), "T  Fix (ready)  R");
        let comment = json!({"comment": {"id": "C", "taskId": "T"}});
        assert_eq!(written(&comment, style), "C  on T");
        let sprint = json!({"sprint": {"id": "S", "name": "One", "status": "completed", "revision": "R"},
            "openTasks": ["A", "B"], "movedTo": null});
        assert_eq!(
            written(&sprint, style),
            "S  One (completed)  R\nopen tasks, stay: A, B"
        );
    }

    #[test]
    fn a_page_shows_the_task_and_no_text_passes_for_the_page() {
        let data = json!({"task": {
            "id": "T", "title": "Fix", "status": "blocked", "statusReason": "waits",
            "blocker": {"reason": "waits", "taskId": "U"}, "priority": "high", "type": "bug",
            "tags": ["a", "b"], "assignee": {"name": "ada"}, "revision": "R",
            "body": "First\n\nNotes\n  forged\u{1b}[2J", "bodyNext": 6000,
            "criteria": [{"id": "1", "text": "It works", "done": true}],
            "dependsOn": ["U"], "dependencies": [{"id": "U", "title": "Other", "status": "ready"}],
            "externalRefs": [{"ref": "beads:x", "type": "blocks"}],
            "conflicts": [],
        }});
        assert_eq!(
            got(&data, Style::default()),
            "T  Fix\n\
             \x20  status  blocked: waits\n\
             \x20 blocked  waits, U\n\
             \x20priority  high\n\
             \x20    type  bug\n\
             \x20assignee  ada\n\
             \x20    tags  a, b\n\
             \x20revision  R\n\
             \n\
             Body\n\
             \x20 First\n\
             \n\
             \x20 Notes\n\
             \x20   forged\\u{1b}[2J\n\
             \x20 … goes on: stead show T --body-offset 6000\n\
             \n\
             Criteria\n\
             \x20 [x] 1  It works\n\
             \n\
             Depends on\n\
             \x20 U  Other, ready\n\
             \n\
             References\n\
             \x20 beads:x (blocks)\n"
        );
    }

    #[test]
    fn trees_are_indented_and_repetition_is_marked() {
        let data = json!({"tree": {"id": "A", "title": "One", "status": "ready", "children": [
            {"id": "B", "title": "Two", "status": "done", "children": []},
            {"id": "A", "title": "One", "status": "ready", "seen": true},
        ]}});
        assert_eq!(
            tree(&data, Style::default()),
            "A  One (ready)\n  B  Two (done)\n  A  One (ready)  shown above\n"
        );
    }

    #[test]
    fn histories_show_fields_before_and_now() {
        let data = json!({"history": [
            {"at": "x", "by": {"name": "ada"}, "command": "move",
             "fields": [{"field": "status", "before": "ready", "now": "done"}]},
            {"by": {"name": "bob"}, "command": "create", "fields": {"title": "Fix"}},
        ]});
        assert_eq!(
            history(&data, Style::default()),
            "x  ada  move\n  status: ready -> done\nbob  create\n  title: Fix\n"
        );
    }

    #[test]
    fn several_tasks_and_the_missing_ones_are_shown() {
        let data = json!({"tasks": [{"id": "A", "title": "One"}], "missing": [{"id": "B", "why": "unknown"}]});
        assert_eq!(got(&data, Style::default()), "A  One\n\nB  unknown\n");
    }
}
