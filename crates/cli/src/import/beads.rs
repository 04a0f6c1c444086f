//! Beads: one JSON object a line, each an issue with its edges. Every field and every edge is
//! kept: as a field of the task where there is one, else in `custom`, else in `externalRefs`; what
//! was put elsewhere than expected is reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead},
};

use serde_json::{Map, Value, json};
use stead_doc::{limits, schema::Schema};

use crate::import::{
    Comment, Edge, Entry, Remarks,
    lines::{LINE_BYTES, Line, Lines},
};

/// What is in a file before anything of it is sent: which ids there are, and on which lines.
///
/// A file is read twice, because an edge may point forward and of two lines with one id the last
/// counts; so memory holds its ids and never its texts.
#[derive(Debug)]
pub(crate) struct Survey {
    lines: BTreeMap<String, u64>,
    schema: Schema,
    /// Lines that become no task.
    pub(crate) skipped: Remarks,
    /// What is kept elsewhere than one would look.
    pub(crate) problems: Remarks,
}

/// The names that a task can be assigned to, in lower case.
#[derive(Debug, Clone, Default)]
pub(crate) struct People(BTreeSet<String>);

impl People {
    /// One more.
    pub(crate) fn insert(&mut self, name: &str) {
        // `me` is whoever imports, and no issue means that one.
        if !["", "me", "none"].contains(&name) {
            self.0.insert(name.to_lowercase());
        }
    }

    fn know(&self, name: &str) -> bool {
        self.0.contains(&name.trim().to_lowercase())
    }
}

impl Survey {
    /// Reads a file through, once.
    ///
    /// # Errors
    ///
    /// When reading fails.
    pub(crate) fn read(source: impl BufRead) -> io::Result<Self> {
        let mut survey = Self {
            lines: BTreeMap::new(),
            schema: Schema::board(),
            skipped: Remarks::default(),
            problems: Remarks::default(),
        };
        let mut lines = Lines::new(source);
        while let Some(line) = lines.next()? {
            match parsed(&line) {
                Ok(Some((id, _))) => {
                    if let Some(before) = survey.lines.insert(id.clone(), line.number) {
                        let what = format!(
                            "the id comes again on line {}; the last one counts",
                            line.number
                        );
                        survey.skipped.push(before, Some(&id), what);
                    }
                }
                Ok(None) => {}
                Err(why) => survey.skipped.push(line.number, None, why),
            }
        }
        Ok(survey)
    }

    /// How many issues there are.
    pub(crate) fn count(&self) -> usize {
        self.lines.len()
    }

    /// The task of a line, on the second reading; nothing where the first one skipped it.
    pub(crate) fn entry(&mut self, line: &Line, people: &People) -> Option<Entry> {
        let (id, source) = parsed(line).ok()??;
        if self.lines.get(&id) != Some(&line.number) {
            return None;
        }
        let mut issue = Issue {
            survey: self,
            line: line.number,
            name: format!("beads:{id}"),
            id,
            source,
            fields: Map::new(),
            custom: Map::new(),
            custom_bytes: CUSTOM_BYTES,
            refs: BTreeMap::new(),
            edges: BTreeSet::new(),
            comments: Vec::new(),
        };
        issue.texts();
        issue.words(people);
        issue.origin();
        issue.links();
        issue.remarks_of_people();
        issue.rest();
        Some(issue.finish())
    }
}

type IdAndFields = (String, Map<String, Value>);

/// The id and the fields of a line; nothing where it is blank.
fn parsed(line: &Line) -> Result<Option<IdAndFields>, String> {
    let Some(bytes) = &line.bytes else {
        return Err(format!("the line is longer than {LINE_BYTES} bytes"));
    };
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let value: Value =
        serde_json::from_slice(bytes).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Object(mut map) = value else {
        return Err("no JSON object".to_owned());
    };
    let Some(Value::String(id)) = map.remove("id") else {
        return Err("no id".to_owned());
    };
    if id.trim() != id || id.chars().any(char::is_control) {
        return Err("the id has control characters, or blanks around it".to_owned());
    }
    if id.is_empty() || id.len() > ID_BYTES {
        return Err(format!("the id is empty or longer than {ID_BYTES} bytes"));
    }
    Ok(Some((id, map)))
}

/// One issue on its way to a task: what is understood leaves `source`, the rest goes to `custom`.
struct Issue<'a> {
    survey: &'a mut Survey,
    line: u64,
    id: String,
    name: String,
    source: Map<String, Value>,
    fields: Map<String, Value>,
    custom: Map<String, Value>,
    custom_bytes: usize,
    refs: BTreeMap<String, BTreeSet<String>>,
    edges: BTreeSet<Edge>,
    comments: Vec<Comment>,
}

impl Issue<'_> {
    fn remark(&mut self, what: impl Into<String>) {
        self.survey.problems.push(self.line, Some(&self.id), what);
    }

    /// A text of the issue, taken out; nothing where it is absent or empty.
    fn take(&mut self, name: &str) -> Option<String> {
        let text = match self.source.remove(name)? {
            Value::Null => return None,
            Value::String(text) => text,
            other => other.to_string(),
        };
        (!text.is_empty()).then_some(text)
    }

    fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn texts(&mut self) {
        let given = self.take("title").unwrap_or_default();
        let mut title: String = given
            .chars()
            .map(|character| {
                if character.is_control() {
                    ' '
                } else {
                    character
                }
            })
            .collect();
        title = title.trim().to_owned();
        let mut body = String::new();
        let mut section = |heading: &str, text: String| {
            if !body.is_empty() {
                body.push_str("\n\n");
            }
            if !heading.is_empty() {
                body.push_str("## ");
                body.push_str(heading);
                body.push_str("\n\n");
            }
            body.push_str(&text);
        };
        let mut remark = None;
        if title.is_empty() {
            title = format!("Untitled {}", self.name);
            remark = Some("it has no title");
        }
        if title.chars().count() > limits::TITLE_CHARS {
            title = title
                .chars()
                .take(limits::TITLE_CHARS - 1)
                .collect::<String>()
                + "…";
            remark = Some("the title is too long; it is cut, and whole in the body");
            section("Title", given);
        } else if given.chars().any(char::is_control) {
            remark = Some("the title has control characters; it is as it was in the body");
            section("Title", given);
        }
        if let Some(text) = self.take("description") {
            let heading = if remark.is_some_and(|what| what.contains("body")) {
                "Description"
            } else {
                ""
            };
            section(heading, text);
        }
        for (name, heading) in [
            ("design", "Design"),
            ("acceptance_criteria", "Acceptance criteria"),
        ] {
            if let Some(text) = self.take(name) {
                section(heading, text);
            }
        }
        if let Some(what) = remark {
            self.remark(what);
        }
        self.field("title", title);
        self.long("body", body);
        let notes = self.take("notes").unwrap_or_default();
        self.long("notes", notes);
        let result = self.take("close_reason").unwrap_or_default();
        self.long("result", result);
    }

    /// A long text; what is beyond its limit goes on in comments.
    fn long(&mut self, name: &str, text: String) {
        let mut pieces = pieces(&text);
        let Some(first) = pieces.next() else { return };
        self.fields.insert(name.to_owned(), first.into());
        let rest: Vec<_> = pieces.map(str::to_owned).collect();
        if !rest.is_empty() {
            self.remark(format!(
                "{name} is too long for one text; it goes on in comments"
            ));
        }
        for (index, body) in rest.into_iter().enumerate() {
            self.own_comment(&format!("{name}-{}", index + 2), body);
        }
    }

    fn own_comment(&mut self, suffix: &str, body: String) {
        let name = format!("{}#{suffix}", self.name);
        self.comments.push(Comment {
            name,
            body,
            by: None,
            at: None,
        });
    }

    fn words(&mut self, people: &People) {
        self.status();
        self.priority();
        self.kind();
        self.labels();
        if let Some(assignee) = self.take("assignee") {
            if people.know(&assignee) {
                self.field("assignee", assignee.trim());
            } else {
                // Most assignees of an export name no one here; that is expected and not remarked.
                self.keep("assignee", assignee.into());
            }
        }
    }

    fn status(&mut self) {
        let given = self.take("status").unwrap_or_else(|| "open".to_owned());
        let status = match given.as_str() {
            "open" => "ready",
            "in_progress" => "in_progress",
            "closed" => "done",
            "blocked" => "blocked",
            "deferred" => "backlog",
            "tombstone" => "abandoned",
            _ => "ready",
        };
        self.field("status", status);
        if status == "abandoned" {
            self.field("abandonReason", "deleted in Beads");
        }
        if !["open", "in_progress", "closed", "blocked", "deferred"].contains(&given.as_str()) {
            self.remark(format!(
                "status {} became {status}; kept in custom.beadsStatus",
                shown(&given)
            ));
            self.keep("status", given.into());
        }
    }

    fn priority(&mut self) {
        let Some(given) = self.take("priority") else {
            return;
        };
        match self.survey.schema.priority(&given).map(str::to_owned) {
            Some(priority) => self.field("priority", priority),
            None => {
                self.remark(format!(
                    "priority {} is unknown; kept in custom.beadsPriority",
                    shown(&given)
                ));
                self.keep("priority", given.into());
            }
        }
    }

    fn kind(&mut self) {
        let Some(given) = self.take("issue_type") else {
            return;
        };
        match self.survey.schema.task_type(&given).map(str::to_owned) {
            Some(kind) => self.field("type", kind),
            None => {
                self.remark(format!(
                    "type {} became task; kept in custom.beadsType",
                    shown(&given)
                ));
                self.field("type", "task");
                self.keep("type", given.into());
            }
        }
    }

    fn labels(&mut self) {
        let Some(given) = self
            .source
            .remove("labels")
            .filter(|given| !given.is_null())
        else {
            return;
        };
        let Value::Array(labels) = &given else {
            self.remark("labels are no list; kept in custom.beadsLabels");
            self.keep("labels", given);
            return;
        };
        let mut tags = BTreeSet::new();
        let mut whole = true;
        for label in labels {
            let label = label.as_str().unwrap_or_default().trim();
            let fits = !label.is_empty()
                && label.chars().count() <= limits::TAG_CHARS
                // A comma would make two tags of it.
                && !label.chars().any(|character| character == ',' || character.is_control())
                && tags.len() < limits::SET_ENTRIES;
            if fits {
                tags.insert(label.to_owned());
            } else {
                whole = false;
            }
        }
        if !tags.is_empty() {
            self.field("tags", json!(tags));
        }
        if !whole {
            self.remark("some labels are no tags (too long, too many, or with a comma); kept in custom.beadsLabels");
            self.keep("labels", given);
        }
    }

    /// When and by whom it was made there: told apart from when it came here.
    fn origin(&mut self) {
        let mut imported = Map::new();
        imported.insert("system".into(), "beads".into());
        imported.insert("id".into(), self.id.as_str().into());
        for (name, field) in [
            ("created_at", "createdAt"),
            ("created_by", "createdBy"),
            ("updated_at", "updatedAt"),
            ("closed_at", "closedAt"),
        ] {
            let fits = self
                .source
                .get(name)
                .and_then(Value::as_str)
                .is_some_and(|text| !text.is_empty() && text.len() <= ID_BYTES);
            // Anything else is no time and no name; it stays for `custom`.
            if fits && let Some(value) = self.source.remove(name) {
                imported.insert(field.into(), value);
            }
        }
        self.field("imported", Value::Object(imported));
    }

    fn links(&mut self) {
        let named_parent = self.take("parent");
        let mut parents: Vec<(String, &'static str)> = named_parent
            .map(|id| (id, "parent-child"))
            .into_iter()
            .collect();
        match self.source.remove("dependencies") {
            None | Some(Value::Null) => {}
            Some(Value::Array(edges)) if edges.is_empty() => {}
            Some(Value::Array(edges)) => {
                for edge in &edges {
                    self.dependency(edge, &mut parents);
                }
                // With who made each edge and when, which an edge here does not hold.
                self.keep("dependencies", Value::Array(edges));
            }
            Some(other) => {
                self.remark("dependencies are no list; kept in custom.beadsDependencies");
                self.keep("dependencies", other);
            }
        }
        self.parent(parents);
        if let Some(reference) = self.take("external_ref")
            && !self.refer(&reference, None)
        {
            self.remark("external_ref is no short line; kept in custom.beadsExternalRef");
            self.keep("external_ref", reference.into());
        }
    }

    fn dependency(&mut self, edge: &Value, parents: &mut Vec<(String, &'static str)>) {
        let text = |name: &str| edge.get(name).and_then(Value::as_str);
        let Some(target) = text("depends_on_id") else {
            self.remark("an edge names no other issue; kept in custom.beadsDependencies");
            return;
        };
        if text("issue_id").is_some_and(|from| from != self.id) {
            self.remark("an edge belongs to another issue; kept in custom.beadsDependencies");
            return;
        }
        match text("type").unwrap_or("blocks") {
            "parent-child" => parents.push((target.to_owned(), "parent-child")),
            kind => self.link(kind, target),
        }
    }

    /// One parent: the one that the issue names, else that of its first edge, else what its
    /// dotted id says.
    fn parent(&mut self, candidates: Vec<(String, &str)>) {
        let mut parent: Option<String> = None;
        let mut told = BTreeSet::new();
        for (candidate, kind) in candidates {
            if parent.as_ref() == Some(&candidate) || !told.insert(candidate.clone()) {
                continue;
            }
            if candidate == self.id || !self.survey.lines.contains_key(&candidate) {
                self.lost(kind, &candidate);
            } else if parent.is_none() {
                parent = Some(candidate);
            } else {
                let kept = self.refer(&format!("beads:{candidate}"), Some(kind));
                self.remark(format!(
                    "a second parent {}; kept in {}",
                    shown(&candidate),
                    if kept {
                        "externalRefs"
                    } else {
                        "custom.beadsDependencies"
                    }
                ));
            }
        }
        if parent.is_none()
            && let Some((stem, number)) = self.id.rsplit_once('.')
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && self.survey.lines.contains_key(stem)
        {
            parent = Some(stem.to_owned());
        }
        if let Some(parent) = parent {
            self.edge("parent", &parent);
        }
    }

    fn link(&mut self, kind: &str, target: &str) {
        let relation = match kind {
            "blocks" => Some("depends_on".to_owned()),
            "related" => Some("relates_to".to_owned()),
            other => match self.survey.schema.relation(other) {
                // `depends_on` and the inverse names mean something else in Beads, or nothing.
                Some((relation, false)) if relation.name != "depends_on" => {
                    Some(relation.name.clone())
                }
                _ => None,
            },
        };
        if target == self.id || !self.survey.lines.contains_key(target) {
            self.lost(kind, target);
        } else if let Some(relation) = relation.filter(|_| self.edges.len() < EDGES) {
            self.edge(&relation, target);
        } else {
            let kept = self.refer(&format!("beads:{target}"), Some(kind));
            self.remark(format!(
                "the edge {} to {} has no place here; kept in {}",
                shown(kind),
                shown(target),
                if kept {
                    "externalRefs"
                } else {
                    "custom.beadsDependencies"
                }
            ));
        }
    }

    fn edge(&mut self, kind: &str, target: &str) {
        self.edges.insert(Edge {
            kind: kind.to_owned(),
            target: format!("beads:{target}"),
        });
    }

    /// An edge to what is not in the file, or to itself.
    fn lost(&mut self, kind: &str, target: &str) {
        let kept = self.refer(&format!("beads:{target}"), Some(kind));
        let what = if target == self.id {
            "the issue itself"
        } else {
            "an issue that is not in the file"
        };
        self.remark(format!(
            "the edge {} points at {what}, {}; kept in {}",
            shown(kind),
            shown(target),
            if kept { "externalRefs" } else { "custom" }
        ));
        if !kept {
            self.keep(&format!("edge_{kind}"), target.into());
        }
    }

    /// A reference to something elsewhere; false where it does not fit one.
    fn refer(&mut self, reference: &str, kind: Option<&str>) -> bool {
        let fits = |text: &str| {
            text.trim() == text
                && text.chars().count() <= REF_CHARS
                && !text.chars().any(char::is_control)
        };
        if reference.is_empty()
            || !fits(reference)
            || !kind.is_none_or(fits)
            || (self.refs.len() >= REFS && !self.refs.contains_key(reference))
        {
            return false;
        }
        let kinds = self.refs.entry(reference.to_owned()).or_default();
        kinds.extend(kind.map(str::to_owned));
        true
    }

    fn remarks_of_people(&mut self) {
        let Some(given) = self
            .source
            .remove("comments")
            .filter(|given| !given.is_null())
        else {
            return;
        };
        let Value::Array(comments) = given else {
            self.remark("comments are no list; kept in custom.beadsComments");
            self.keep("comments", given);
            return;
        };
        for (index, comment) in comments.into_iter().enumerate() {
            let text = |names: &[&str]| {
                names
                    .iter()
                    .find_map(|name| comment.get(name)?.as_str())
                    .map(str::to_owned)
            };
            let body = match &comment {
                Value::String(body) => Some(body.clone()),
                _ => text(&["text", "body"]),
            };
            let known = [
                "id",
                "issue_id",
                "text",
                "body",
                "author",
                "by",
                "created_at",
                "at",
            ];
            let more = comment
                .as_object()
                .is_some_and(|map| map.keys().any(|key| !known.contains(&key.as_str())));
            let body = match body.filter(|body| !body.trim().is_empty() && !more) {
                Some(body) => body,
                None => {
                    self.remark(format!(
                        "comment {} has another form; it is kept as JSON",
                        index + 1
                    ));
                    comment.to_string()
                }
            };
            let (by, at) = (text(&["author", "by"]), text(&["created_at", "at"]));
            for (piece, body) in pieces(&body).enumerate() {
                let mut name = format!("{}#comment-{}", self.name, index + 1);
                if piece > 0 {
                    name = format!("{name}-{}", piece + 1);
                }
                self.comments.push(Comment {
                    name,
                    body: body.to_owned(),
                    by: by.clone(),
                    at: at.clone(),
                });
            }
        }
    }

    /// Whatever the file holds beyond what is understood.
    fn rest(&mut self) {
        for (name, value) in std::mem::take(&mut self.source) {
            if !value.is_null() && value.as_str() != Some("") {
                self.keep(&name, value);
            }
        }
    }

    /// Keeps a field under `custom`, or where it is too large in a comment.
    fn keep(&mut self, name: &str, value: Value) {
        let value = match value {
            nested @ (Value::Array(_) | Value::Object(_)) => nested.to_string().into(),
            scalar => scalar,
        };
        let key = custom_key(name);
        let size = key.len() + value.as_str().map_or(8, str::len);
        let fits = key.len() <= KEY_BYTES
            && !key.chars().any(char::is_control)
            && !self.custom.contains_key(&key)
            && self.custom.len() < CUSTOM_ENTRIES
            && size <= self.custom_bytes;
        if fits {
            self.custom_bytes -= size;
            self.custom.insert(key, value);
            return;
        }
        self.remark(format!(
            "the field {} is too large for custom; it is in a comment",
            shown(name)
        ));
        let number = self.comments.len() + 1;
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        for (piece, body) in pieces(&format!("{name}:\n{text}")).enumerate() {
            self.own_comment(&format!("field-{number}-{}", piece + 1), body.to_owned());
        }
    }

    /// A task takes so many comments at once; the rest is told in few.
    fn gather_comments(&mut self) {
        if self.comments.len() <= limits::SET_ENTRIES {
            return;
        }
        self.remark("there are too many comments; the later ones are gathered in few");
        let rest = self.comments.split_off(COMMENTS);
        let mut text = String::new();
        for comment in rest {
            let by = comment.by.unwrap_or_default();
            let at = comment.at.unwrap_or_default();
            text.push_str(&format!("{by} {at}\n{}\n\n", comment.body));
        }
        for (index, body) in pieces(&text).enumerate() {
            self.own_comment(&format!("comments-{}", index + 1), body.to_owned());
        }
    }

    fn finish(mut self) -> Entry {
        self.gather_comments();
        if !self.custom.is_empty() {
            let custom = Value::Object(std::mem::take(&mut self.custom));
            self.field("custom", custom);
        }
        if !self.refs.is_empty() {
            let refs: Vec<_> = std::mem::take(&mut self.refs)
                .into_iter()
                .map(|(reference, kinds)| {
                    let kinds: Vec<_> = kinds.into_iter().collect();
                    if kinds.is_empty() {
                        json!({ "ref": reference })
                    } else {
                        json!({ "ref": reference, "type": kinds.join(",") })
                    }
                })
                .collect();
            self.field("externalRefs", refs);
        }
        Entry {
            name: self.name,
            fields: self.fields,
            edges: self.edges.into_iter().collect(),
            comments: self.comments,
        }
    }
}

/// The pieces of a text that each fit a long text; together they are the whole.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(rest.floor_char_boundary(TEXT_BYTES));
        rest = after;
        Some(piece)
    })
}

/// `agent_state` is `beadsAgentState`.
fn custom_key(name: &str) -> String {
    let mut key = "beads".to_owned();
    for word in name.split(['_', '-', ' ']) {
        let mut characters = word.chars();
        key.extend(characters.next().into_iter().flat_map(char::to_uppercase));
        key.push_str(characters.as_str());
    }
    key
}

/// A word of the file in a remark about it: short, in quotes, its control characters visible.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    format!("{short:?}")
}

/// Bytes of an id, and of a name or a time.
const ID_BYTES: usize = 200;

/// Bytes of each of body, notes and result: at this each has at most as many characters as a long
/// text may have, and all of them with `custom` fit one change.
const TEXT_BYTES: usize = limits::TEXT_CHARS;

/// Bytes of all custom fields of a task together.
const CUSTOM_BYTES: usize = 100_000;

/// Custom fields of a task.
const CUSTOM_ENTRIES: usize = 200;

/// Bytes of a custom field's name: well below what a field's name may have.
const KEY_BYTES: usize = 200;

/// Characters of a reference: as many as the name of one may have.
const REF_CHARS: usize = 96;

/// Links of a task beside the one to its parent, which counts among them.
const EDGES: usize = limits::SET_ENTRIES - 1;

/// Comments that stay on their own where there are too many: with the rest of a line of 4 MiB
/// gathered, there are still fewer than a task takes.
const COMMENTS: usize = 400;

/// References of a task.
const REFS: usize = 400;

#[cfg(test)]
mod tests;
