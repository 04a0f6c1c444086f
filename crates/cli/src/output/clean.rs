//! Text that somebody wrote, made harmless: a title must not move the cursor, colour the screen,
//! reorder a line or hide a part of itself.

use std::fmt::Write as _;

/// One line: everything that does not show as itself becomes a visible escape, line ends too.
pub(crate) fn line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Several lines: line ends and tabs stay.
pub(crate) fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    escaped(&text, |character| matches!(character, '\n' | '\t'))
}

/// JSON text with the same characters as `\u` escapes: the same value, harmless on a terminal.
pub(crate) fn json(text: &str) -> String {
    if !text.chars().any(hides) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if hides(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// At most so many characters, the last one a mark where something is missing.
pub(crate) fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some(_) => {
            let kept: String = text.chars().take(chars.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if hides(character) && !stays(character) {
            match character {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                _ => {
                    // Writing to a string does not fail.
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(character));
                }
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// Whether a character does something else than show itself.
fn hides(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' // soft hyphen
            | '\u{34f}' // joins graphemes, invisible
            | '\u{61c}' | '\u{200e}' | '\u{200f}' // direction marks
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // fillers that show nothing
            | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200d}' // zero width
            | '\u{2028}'..='\u{202e}' // separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // joiners, isolates, deprecated controls
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' // tags: invisible text
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_is_shown() {
        let cases = [
            ("plain – ümläut 漢字 🎉", "plain – ümläut 漢字 🎉"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
            ("abc\u{202e}cba", "abc\\u{202e}cba"),
            ("\u{2066}x\u{2069}", "\\u{2066}x\\u{2069}"),
            (
                "a\u{200b}b\u{200d}c\u{feff}",
                "a\\u{200b}b\\u{200d}c\\u{feff}",
            ),
            ("\u{e0041}", "\\u{e0041}"),
            ("\u{7f}\0", "\\u{7f}\\u{0}"),
            ("\u{2028}", "\\u{2028}"),
        ];
        for (given, shown) in cases {
            assert_eq!(line(given), shown);
        }
        assert_eq!(lines("a\r\nb\n\tc\u{7}"), "a\nb\n\tc\\u{7}");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"t": "a\u{202e}\u{e0041}\u{9b}\n\u{1b}"});
        let text = json(&value.to_string());
        assert!(!text.chars().any(hides));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }

    #[test]
    fn a_cut_is_marked() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
