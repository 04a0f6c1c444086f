//! Answers cut to what a reader's context can pay for: valid JSON, whatever had to go, and said.

use serde_json::{Map, Value as Json};

/// What a cut text ends with, where no offset says how to go on.
const MARK: &str = "… [cut]";

/// Texts that are read on by offset: what is left of them is named by `<field>Next`.
const PAGED: [&str; 3] = ["body", "notes", "result"];

/// Bytes to which texts are cut, each tried before the next.
const TEXT_STEPS: [usize; 6] = [4_000, 2_000, 1_000, 400, 150, 60];

/// Entries to which lists and maps are cut once texts alone do not do.
const ENTRY_STEPS: [usize; 6] = [50, 20, 10, 5, 2, 1];

/// Cuts an answer to at most `max` bytes of compact JSON: long texts first, then long lists and
/// maps, of which `<name>Left` says how many entries are missing.
///
/// Scalars and the names of an answer are never touched, so an answer of many short fields can
/// stay above a very small `max`.
pub fn fit(answer: &mut Json, max: usize) {
    let fits = |answer: &Json| answer.to_string().len() <= max;
    for cap in TEXT_STEPS {
        if fits(answer) {
            return;
        }
        cut_texts(answer, cap);
    }
    for cap in ENTRY_STEPS {
        if fits(answer) {
            return;
        }
        cut_entries(answer, cap);
    }
}

/// Cuts the texts that are read on by offset to at most `cap` bytes wherever they are.
pub fn cut_paged(answer: &mut Json, cap: usize) {
    match answer {
        Json::Object(map) => {
            for name in PAGED {
                cut_paged_field(map, name, cap);
            }
            for (name, value) in map.iter_mut() {
                if !MAPS.contains(&name.as_str()) {
                    cut_paged(value, cap);
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| cut_paged(item, cap)),
        _ => {}
    }
}

/// Cuts one of them; `<field>Next` is the offset at which the text goes on.
fn cut_paged_field(map: &mut Map<String, Json>, name: &str, cap: usize) {
    let Some(text) = map.get(name).and_then(Json::as_str) else {
        return;
    };
    if text.len() <= cap {
        return;
    }
    let number = |suffix: &str| {
        let value = map.get(&format!("{name}{suffix}"))?.as_u64()?;
        usize::try_from(value).ok()
    };
    let end = number("Next")
        .or_else(|| number("Bytes"))
        .unwrap_or(text.len());
    let kept = text.floor_char_boundary(cap);
    let next = end.saturating_sub(text.len() - kept);
    let front = text.get(..kept).unwrap_or_default().to_owned();
    map.entry(format!("{name}Bytes")).or_insert(end.into());
    map.insert(format!("{name}Next"), next.into());
    map.insert(name.to_owned(), front.into());
}

fn cut_texts(answer: &mut Json, cap: usize) {
    match answer {
        Json::Object(map) => {
            for name in PAGED {
                cut_paged_field(map, name, cap);
            }
            for (name, value) in map.iter_mut() {
                match value {
                    Json::Object(entries) if MAPS.contains(&name.as_str()) => {
                        entries.values_mut().for_each(|value| cut_value(value, cap));
                    }
                    Json::String(_) if PAGED.contains(&name.as_str()) => {}
                    _ => cut_texts(value, cap),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| cut_texts(item, cap)),
        Json::String(text) if text.len() > cap => *text = cut(text, cap),
        _ => {}
    }
}

/// Cuts a value of somebody's own map, whose names mean nothing here.
fn cut_value(value: &mut Json, cap: usize) {
    match value {
        Json::String(text) if text.len() > cap => *text = cut(text, cap),
        Json::Object(map) => map.values_mut().for_each(|value| cut_value(value, cap)),
        Json::Array(items) => items.iter_mut().for_each(|item| cut_value(item, cap)),
        _ => {}
    }
}

fn cut_entries(answer: &mut Json, cap: usize) {
    let Json::Object(map) = answer else {
        if let Json::Array(items) = answer {
            items.iter_mut().for_each(|item| cut_entries(item, cap));
        }
        return;
    };
    let mut left = Vec::new();
    for (name, value) in map.iter_mut() {
        cut_entries(value, cap);
        let gone = match value {
            Json::Array(items) if items.len() > cap => {
                let gone = items.len() - cap;
                items.truncate(cap);
                gone
            }
            Json::Object(entries) if entries.len() > cap && MAPS.contains(&name.as_str()) => {
                let gone = entries.len().saturating_sub(cap);
                let names: Vec<String> = entries.keys().skip(cap).cloned().collect();
                for name in names {
                    entries.remove(&name);
                }
                gone
            }
            _ => 0,
        };
        if gone > 0 {
            left.push((format!("{name}Left"), gone));
        }
    }
    for (name, gone) in left {
        let before = map.get(&name).and_then(Json::as_u64).unwrap_or(0);
        map.insert(name, (before + gone as u64).into());
    }
}

/// Maps whose names are their author's: any number of them, any of them as long as it may be.
const MAPS: [&str; 2] = ["custom", "state"];

/// The text, or its front and a mark where it is longer than `bytes`.
pub fn cut(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes.saturating_sub(MARK.len()));
    format!("{}{MARK}", text.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_fits_stays() {
        let mut answer = json!({ "body": "b".repeat(50), "list": [1, 2, 3] });
        let before = answer.clone();
        let size = before.to_string().len();
        fit(&mut answer, size);
        assert_eq!(answer, before);
        fit(&mut answer, 40);
        assert_ne!(answer, before);
    }

    #[test]
    fn a_cut_body_says_where_it_goes_on() {
        let body = "ä".repeat(5_000);
        let mut answer = json!({ "task": { "body": body, "bodyNext": null } });
        fit(&mut answer, 3_000);
        let task = answer.get("task").unwrap();
        let kept = task.get("body").and_then(Json::as_str).unwrap().len();
        assert_eq!(task.get("bodyNext"), Some(&json!(kept)));
        assert_eq!(task.get("bodyBytes"), Some(&json!(10_000)));
        assert!(answer.to_string().len() <= 3_000);
        // Cut again from a page that began at 6,000: the end was at 10,000.
        let mut page = json!({ "body": "x".repeat(4_000), "bodyNext": null, "bodyBytes": 10_000 });
        cut_paged(&mut page, 1_000);
        assert_eq!(page.get("bodyNext"), Some(&json!(7_000)));
    }

    #[test]
    fn lists_and_maps_go_after_texts_and_are_counted() {
        let state: Map<String, Json> = (0..200)
            .map(|n| (format!("key{n:03}"), json!("v".repeat(100))))
            .collect();
        let few: Map<String, Json> = (0..60)
            .map(|n| {
                (
                    format!("{n}{}", "k".repeat(390)),
                    json!({ "body": "b".repeat(90) }),
                )
            })
            .collect();
        let mut longs = json!({ "state": few, "id": "ID" });
        fit(&mut longs, 2_000);
        assert!(longs.to_string().len() <= 2_000, "{longs}");
        assert!(!longs.to_string().contains("bodyNext"), "{longs}");
        let mut answer = json!({ "tags": vec!["t".repeat(20); 900], "state": state, "id": "ID" });
        fit(&mut answer, 2_000);
        assert!(answer.to_string().len() <= 2_000, "{answer}");
        assert_eq!(answer.get("id"), Some(&json!("ID")));
        let left = |name: &str| answer.get(name).and_then(Json::as_u64).unwrap();
        let kept = |name: &str| match answer.get(name) {
            Some(Json::Array(items)) => items.len() as u64,
            Some(Json::Object(entries)) => entries.len() as u64,
            _ => 0,
        };
        assert_eq!(left("tagsLeft") + kept("tags"), 900);
        assert_eq!(left("stateLeft") + kept("state"), 200);
    }

    #[test]
    fn a_mark_ends_what_was_cut() {
        assert_eq!(cut("short", 5), "short");
        let cut = cut(&"ü".repeat(40), 30);
        assert!(cut.len() <= 30 && cut.ends_with(MARK));
    }
}
