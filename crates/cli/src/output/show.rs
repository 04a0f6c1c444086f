//! Small values as people read them, every one harmless on a terminal.

use serde_json::Value;

use crate::output::clean;

/// A field that holds a text; empty where there is none.
pub(crate) fn text(object: &Value, name: &str) -> String {
    match object.get(name) {
        Some(Value::String(text)) => clean::line(text),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Bool(yes)) => yes.to_string(),
        _ => String::new(),
    }
}

/// The first of several fields that holds a text.
pub(crate) fn first_text(object: &Value, names: &[&str]) -> String {
    names
        .iter()
        .map(|name| text(object, name))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// Any value, short.
pub(crate) fn value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => clean::cut(&clean::line(text), VALUE_CHARS),
        Some(other) => clean::cut(&clean::line(&other.to_string()), VALUE_CHARS),
    }
}

/// Who did something: the credential's name with its label, else the member's.
pub(crate) fn actor(actor: Option<&Value>) -> String {
    let Some(actor) = actor else {
        return String::new();
    };
    if let Some(name) = actor.as_str() {
        return clean::line(name);
    }
    let name = first_text(
        actor,
        &["name", "memberName", "displayName", "credential", "id"],
    );
    match text(actor, "label") {
        label if label.is_empty() => name,
        label => format!("{name} ({label})"),
    }
}

/// A moment in this machine's time zone, to the minute.
pub(crate) fn time(at: Option<&Value>) -> String {
    time_in(at, &jiff::tz::TimeZone::system())
}

fn time_in(at: Option<&Value>, zone: &jiff::tz::TimeZone) -> String {
    let Some(text) = at.and_then(Value::as_str) else {
        return String::new();
    };
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => at
            .to_zoned_datetime(zone.clone())
            .strftime("%Y-%m-%d %H:%M")
            .to_string(),
        // A day, or something newer than this version.
        Err(_) => clean::line(text),
    }
}

/// Characters of a value in a line about something else.
const VALUE_CHARS: usize = 100;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn actors_have_one_name() {
        let of = |value: Value| actor(Some(&value));
        assert_eq!(
            of(json!({"name": "ada-bot", "memberName": "Ada"})),
            "ada-bot"
        );
        assert_eq!(
            of(json!({"name": null, "memberName": "Ada", "label": "x"})),
            "Ada (x)"
        );
        assert_eq!(of(json!("me\u{1b}")), "me\\u{1b}");
        assert_eq!(actor(None), "");
    }

    #[test]
    fn times_are_local_and_days_stay() {
        let utc = jiff::tz::TimeZone::UTC;
        let of = |text: &str| time_in(Some(&json!(text)), &utc);
        assert_eq!(of("2026-03-01T12:34:56.789Z"), "2026-03-01 12:34");
        assert_eq!(of("2026-03-01"), "2026-03-01");
        assert_eq!(time_in(None, &utc), "");
    }
}
