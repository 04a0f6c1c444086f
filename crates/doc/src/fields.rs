//! The fields of a task: how each is given, checked and stored.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    arguments::{self, Arguments, line, long, too_large, wrong},
    board::Edits,
    context::Context,
    id::{ObjectId, base32},
    limits,
    refusal::Refusal,
    row::Row,
    scalar::Scalar,
};

/// How a field is given and stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One line; empty or null clears it.
    Line,
    /// A long text.
    Long,
    /// A number that orders by hand.
    Rank,
    /// A priority of the schema.
    Priority,
    /// A type of the schema.
    Type,
    /// A member or an agent.
    Assignee,
    /// A day or a time.
    Date,
    /// Another object.
    Id,
    /// A small object, stored as canonical JSON.
    Json,
}

/// The plain fields of a task that `create` and `update` take, beside the title.
pub(crate) const PLAIN: [(&str, Form); 13] = [
    ("anchor", Form::Line),
    ("assignee", Form::Assignee),
    ("body", Form::Long),
    ("branch", Form::Line),
    ("dueDate", Form::Date),
    ("notes", Form::Long),
    ("parentId", Form::Id),
    ("priority", Form::Priority),
    ("rank", Form::Rank),
    ("result", Form::Long),
    ("ringParentId", Form::Id),
    ("type", Form::Type),
    ("worktree", Form::Json),
];

/// The names of all fields that `create` and `update` take.
pub(crate) const TASK_FIELDS: [&str; 22] = [
    "addTags",
    "anchor",
    "assignee",
    "body",
    "branch",
    "criteria",
    "custom",
    "dependsOn",
    "dueDate",
    "externalRefs",
    "notes",
    "parentId",
    "priority",
    "rank",
    "removeTags",
    "result",
    "ringParentId",
    "sprintId",
    "tags",
    "title",
    "type",
    "worktree",
];

/// Turns the given fields of a task into edits of it; ids are checked for form only.
pub(crate) fn edit_fields(
    cx: &Context<'_>,
    args: &Arguments,
    row: &Row,
    edits: &mut Edits<'_>,
) -> Result<(), Refusal> {
    if let Some(title) = args.given("title") {
        edits.put("title", title_of(title)?);
    }
    for (name, form) in PLAIN {
        if let Some(value) = args.given(name) {
            match plain(cx, name, form, value)? {
                Some(scalar) => edits.put(name, scalar),
                None => edits.clear(name),
            }
        }
    }
    tags(args, row, edits)?;
    criteria(cx, args, row, edits)?;
    depends_on(args, row, edits)?;
    entries(args, "state", "statePatch", "state/", row, edits)?;
    entries(args, "custom", "custom", "x/", row, edits)?;
    external_refs(args, row, edits)
}

/// The stored value of one plain field; nothing where it is cleared.
pub(crate) fn plain(
    cx: &Context<'_>,
    name: &str,
    form: Form,
    value: &Value,
) -> Result<Option<Scalar>, Refusal> {
    if value.is_null() || value.as_str() == Some("") {
        return Ok(None);
    }
    Ok(Some(match form {
        Form::Line => line(name, value, limits::SHORT_CHARS)?.into(),
        Form::Long => long(name, value)?.into(),
        Form::Rank => Scalar::F64(number(name, value)?),
        Form::Priority => {
            let text = line(name, value, limits::SHORT_CHARS)?;
            let known = cx.schema.priority(&text);
            known
                .ok_or_else(|| unknown(name, &text, json!(cx.schema.priorities)))?
                .into()
        }
        Form::Type => {
            let text = line(name, value, limits::SHORT_CHARS)?;
            let known = cx.schema.task_type(&text);
            known
                .ok_or_else(|| unknown(name, &text, json!(cx.schema.types)))?
                .into()
        }
        Form::Assignee => cx
            .directory
            .assignee(&line(name, value, limits::SHORT_CHARS)?, cx.caller)?
            .into(),
        Form::Date => date(name, value)?.into(),
        Form::Id => arguments::id(name, value)?.to_string().into(),
        Form::Json => small_json(name, value)?.into(),
    }))
}

/// A title: one line, not empty.
pub(crate) fn title_of(value: &Value) -> Result<Scalar, Refusal> {
    let title = line("title", value, limits::TITLE_CHARS)?;
    if title.is_empty() {
        return Err(Refusal::argument(
            "title",
            "title is empty.",
            "Say in one line what is to be done.",
        ));
    }
    Ok(title.into())
}

/// A name that is not among the known ones.
pub(crate) fn unknown(field: &str, given: &str, accepted: Value) -> Refusal {
    Refusal::argument(
        field,
        format!("{field} is none of the known ones."),
        "Use one of accepted.",
    )
    .with("given", given)
    .with("accepted", accepted)
}

fn tags(args: &Arguments, row: &Row, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let parse = |name: &str| -> Result<Option<BTreeSet<String>>, Refusal> {
        let Some(words) = args.words(name, limits::SET_ENTRIES)? else {
            return Ok(None);
        };
        words
            .into_iter()
            .map(|word| match word.chars().count() {
                0..=limits::TAG_CHARS => Ok(word),
                more => Err(too_large(
                    name,
                    more,
                    limits::TAG_CHARS,
                    "characters in one tag",
                )),
            })
            .collect::<Result<_, _>>()
            .map(Some)
    };
    let have: BTreeSet<String> = row.entries("tag/").map(|(tag, _)| tag.to_owned()).collect();
    let mut want = have.clone();
    if let Some(tags) = parse("tags")? {
        want = tags;
    }
    let added = parse("addTags")?.unwrap_or_default();
    want.extend(added.iter().cloned());
    for tag in parse("removeTags")?.unwrap_or_default() {
        want.remove(&tag);
    }
    if want.len() > limits::SET_ENTRIES {
        return Err(too_large(
            "tags",
            want.len(),
            limits::SET_ENTRIES,
            "entries",
        ));
    }
    for tag in want.difference(&have) {
        edits.put(&format!("tag/{tag}"), true);
    }
    // An explicit add writes even what is there, so that it wins over a removal made apart.
    for tag in want.intersection(&have).filter(|tag| added.contains(*tag)) {
        edits.put_again(&format!("tag/{tag}"), true);
    }
    for tag in have.difference(&want) {
        edits.clear(&format!("tag/{tag}"));
    }
    Ok(())
}

/// The criteria as they should be: known ids and known texts keep their entry, the others are new,
/// what is not listed goes.
///
/// An id is a number, for order; one that is added later also has something random behind it, so
/// that criteria added apart are two and not one with two texts.
fn criteria(
    cx: &Context<'_>,
    args: &Arguments,
    row: &Row,
    edits: &mut Edits<'_>,
) -> Result<(), Refusal> {
    let Some(items) = args.list("criteria", limits::SET_ENTRIES)? else {
        return Ok(());
    };
    let have: BTreeSet<String> = row
        .entries("criterion/")
        .filter_map(|(rest, _)| Some(rest.strip_suffix("/text")?.to_owned()))
        .collect();
    let mut kept = BTreeSet::new();
    let mut next = have
        .iter()
        .filter_map(|id| criterion_place(id))
        .max()
        .map_or(1, |last| last.saturating_add(1));
    // Equal creates made apart give equal ids; an update has seen what it adds to.
    let suffix = if row.touched.is_empty() {
        String::new()
    } else {
        format!("-{}", base32(cx.fresh_id(CRITERIA).to_bits(), 4))
    };
    for item in items {
        let (given, text, done) = match &item {
            Value::Object(entry) => {
                if let Some(name) = entry
                    .keys()
                    .find(|name| !["id", "text", "done"].contains(&name.as_str()))
                {
                    return Err(Refusal::argument(
                        "criteria",
                        "a criterion has an unknown field.",
                        "Send id, text, done.",
                    )
                    .with("given", name.as_str()));
                }
                (entry.get("id"), entry.get("text"), entry.get("done"))
            }
            text => (None, Some(text), None),
        };
        let given = given
            .filter(|id| !id.is_null())
            .map(|id| line("criteria", id, 16))
            .transpose()?;
        let id = match given {
            Some(id) if have.contains(&id) => id,
            Some(id) => return Err(unknown("criteria", &id, json!(have))),
            None => {
                let of_text = |id: &&String| {
                    let there = row.text(&format!("criterion/{id}/text"));
                    !kept.contains(*id)
                        && there.is_some()
                        && there == text.and_then(Value::as_str).map(str::trim)
                };
                match have.iter().find(of_text) {
                    Some(id) => id.clone(),
                    None => {
                        let id = format!("{next}{suffix}");
                        next = next.saturating_add(1);
                        id
                    }
                }
            }
        };
        match text.filter(|text| !text.is_null()) {
            Some(text) => {
                let text = line("criteria", text, limits::SHORT_CHARS)?;
                edits.put(&format!("criterion/{id}/text"), text);
            }
            None if have.contains(&id) => {}
            None => {
                return Err(Refusal::argument(
                    "criteria",
                    "a new criterion has no text.",
                    "Send {text}.",
                ));
            }
        }
        if let Some(done) = done.filter(|done| !done.is_null()) {
            edits.put(
                &format!("criterion/{id}/done"),
                arguments::flag("criteria", done)?,
            );
        }
        kept.insert(id);
    }
    for id in have.difference(&kept) {
        edits.clear(&format!("criterion/{id}/text"));
        edits.clear(&format!("criterion/{id}/done"));
    }
    Ok(())
}

/// The place of a criterion among the others, from its id.
pub(crate) fn criterion_place(id: &str) -> Option<u32> {
    id.split('-').next()?.parse().ok()
}

/// Tells the entropy of criteria from that of the object's id.
const CRITERIA: u32 = 1 << 16;

fn depends_on(args: &Arguments, row: &Row, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let Some(words) = args.words("dependsOn", limits::SET_ENTRIES)? else {
        return Ok(());
    };
    let want: BTreeSet<ObjectId> = words
        .into_iter()
        .map(|word| arguments::id("dependsOn", &word.into()))
        .collect::<Result<_, _>>()?;
    let have: BTreeSet<ObjectId> = row
        .entries("edge/depends_on/")
        .filter_map(|(target, _)| target.parse().ok())
        .collect();
    for target in want.difference(&have) {
        edits.put(&format!("edge/depends_on/{target}"), true);
    }
    for target in have.difference(&want) {
        edits.clear(&format!("edge/depends_on/{target}"));
    }
    Ok(())
}

/// A map given as an object; null takes an entry away.
fn entries(
    args: &Arguments,
    whole: &str,
    patch: &str,
    prefix: &str,
    row: &Row,
    edits: &mut Edits<'_>,
) -> Result<(), Refusal> {
    for name in BTreeSet::from([whole, patch]) {
        let Some(given) = args.some(name) else {
            continue;
        };
        let map = arguments::object(name, given.clone())?;
        let mut after: BTreeSet<&str> = row.entries(prefix).map(|(key, _)| key).collect();
        for (key, value) in &map {
            if value.is_null() {
                after.remove(key.as_str());
            } else {
                after.insert(key);
            }
        }
        if after.len() > limits::SET_ENTRIES {
            return Err(too_large(name, after.len(), limits::SET_ENTRIES, "entries"));
        }
        for (key, value) in map {
            let key_ok = !key.is_empty()
                && key.len() <= limits::FIELD_BYTES - prefix.len()
                && !key.chars().any(char::is_control);
            if !key_ok {
                return Err(Refusal::argument(
                    name,
                    "one key is empty, too long or holds control characters.",
                    "Use short plain keys.",
                ));
            }
            let field = format!("{prefix}{key}");
            match value {
                Value::Null => edits.clear(&field),
                Value::Bool(yes) => edits.put(&field, yes),
                Value::String(text) => edits.put(&field, long(name, &text.into())?),
                Value::Number(number) => match number.as_i64() {
                    Some(number) => edits.put(&field, number),
                    None => edits.put(&field, Scalar::F64(number.as_f64().unwrap_or_default())),
                },
                nested => edits.put(&field, small_json(name, &nested)?),
            }
        }
    }
    Ok(())
}

/// References to other systems: `ref/<name>`, each a small object or true.
fn external_refs(args: &Arguments, row: &Row, edits: &mut Edits<'_>) -> Result<(), Refusal> {
    let Some(items) = args.list("externalRefs", limits::SET_ENTRIES)? else {
        return Ok(());
    };
    let mut want = Map::new();
    for item in items {
        match item {
            Value::Object(mut entry) => {
                let name = entry
                    .remove("ref")
                    .ok_or_else(|| wrong("externalRefs", &Value::Null, "objects with ref"))?;
                want.insert(
                    line("externalRefs", &name, FIELD_CHARS)?,
                    Value::Object(entry),
                );
            }
            text => {
                want.insert(line("externalRefs", &text, FIELD_CHARS)?, Value::Bool(true));
            }
        }
    }
    for (name, value) in &want {
        let field = format!("ref/{name}");
        match value {
            Value::Object(entry) if !entry.is_empty() => {
                edits.put(&field, small_json("externalRefs", value)?)
            }
            _ => edits.put(&field, true),
        }
    }
    for (name, _) in row
        .entries("ref/")
        .filter(|(name, _)| !want.contains_key(*name))
    {
        edits.clear(&format!("ref/{name}"));
    }
    Ok(())
}

/// Characters of the name of a reference: four bytes each still fit a field.
const FIELD_CHARS: usize = 96;

fn number(name: &str, value: &Value) -> Result<f64, Refusal> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number
        .filter(|number| number.is_finite())
        .ok_or_else(|| wrong(name, value, "a number"))
}

fn date(name: &str, value: &Value) -> Result<String, Refusal> {
    let text = line(name, value, 40)?;
    let day = text.parse::<jiff::civil::Date>().map(|day| day.to_string());
    let time = || text.parse::<jiff::Timestamp>().map(|time| time.to_string());
    // A time also parses as the day it is on, so it is tried first where it has one.
    let parsed = if text.contains('T') { time() } else { day };
    parsed.map_err(|_| {
        Refusal::argument(
            name,
            format!("{name} is no day or time."),
            "Send 2026-12-31 or 2026-12-31T17:00:00Z.",
        )
        .with("given", text.as_str())
    })
}

/// Canonical JSON of a small value: keys sorted, nothing between.
fn small_json(name: &str, value: &Value) -> Result<String, Refusal> {
    let text = value.to_string();
    if text.len() > limits::SHORT_CHARS {
        return Err(too_large(name, text.len(), limits::SHORT_CHARS, "bytes"));
    }
    Ok(text)
}
