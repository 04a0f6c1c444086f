//! The entry in a JSON file with comments and trailing commas.

use std::ops::Range;

use jsonc_parser::{
    CollectOptions, CommentCollectionStrategy, ParseOptions,
    ast::{Object, ObjectProp, Value},
    common::Ranged as _,
    parse_to_ast,
    tokens::{Token, TokenAndRange},
};

use super::{After, Entry, Found, Trouble, line_end, line_of, spliced};

/// What the file holds under the name of Stead.
pub(super) fn find(text: &str, servers: &str) -> Result<Found, Trouble> {
    let file = File::parse(text)?;
    let Some(at) = file.entry(servers)? else {
        return Ok(Found::Nothing);
    };
    let found = at.value().map(read).filter(Entry::is_ours);
    Ok(found.map_or(Found::Foreign, Found::Ours))
}

/// The file with the entry: put in where there is none, mended where ours differs.
pub(super) fn set(text: &str, servers: &str, entry: &Entry) -> Result<String, Trouble> {
    match find(text, servers)? {
        Found::Nothing => insert(text, servers, entry),
        Found::Foreign => Err(Trouble::Foreign),
        Found::Ours(there) => mend(text, servers, &entry.over(&there)),
    }
}

/// The file without the entry. Of the texts that it may have been before, the one that setup turns
/// into exactly this one.
pub(super) fn remove(text: &str, servers: &str) -> Result<After, Trouble> {
    let there = match find(text, servers)? {
        Found::Nothing => return Ok(After::Text(text.to_owned())),
        Found::Foreign => return Err(Trouble::Foreign),
        Found::Ours(there) => there,
    };
    let file = File::parse(text)?;
    let Some(at) = file.entry(servers)? else {
        return Ok(After::Text(text.to_owned()));
    };
    let back = |before: &str| insert(before, servers, &there).is_ok_and(|again| again == text);
    if back("") {
        return Ok(After::Gone);
    }
    let alone = at.servers.properties.len() == 1;
    let without_entry = file.cut(at.servers, at.index);
    let without_servers = file.cut(at.root, at.servers_index);
    if alone && back(&without_servers) {
        return Ok(After::Text(without_servers));
    }
    if !back(&without_entry) && alone && file.is_bare(at.servers) {
        return Ok(After::Text(spliced(
            text,
            at.servers.range.start..at.servers.range.end,
            "{}",
        )));
    }
    Ok(After::Text(without_entry))
}

fn insert(text: &str, servers: &str, entry: &Entry) -> Result<String, Trouble> {
    if text.trim().is_empty() {
        let (nl, step) = (line_end(text), STEP);
        let value = in_lines(entry, nl, &step.repeat(2), step);
        return Ok(format!(
            "{{{nl}{step}{}: {{{nl}{step}{step}\"stead\": {value}{nl}{step}}}{nl}}}{nl}",
            quoted(servers)
        ));
    }
    let file = File::parse(text)?;
    let root = file.root()?;
    let step = file.step(root);
    let nl = line_end(text);
    match property(root, servers)? {
        // A list that is made stands on lines of its own in any file: so it can be told from one
        // that was there and empty.
        None => {
            let own = file.indent(root, &step);
            let inner = format!("{own}{step}");
            let value = in_lines(entry, nl, &inner, &step);
            let made = format!(
                "{}: {{{nl}{inner}\"stead\": {value}{nl}{own}}}",
                quoted(servers)
            );
            Ok(file.put(root, &made, &step))
        }
        Some((_, list)) => {
            let list = object(list, servers)?;
            let value = if file.on_one_line(list) {
                on_one_line(entry)
            } else {
                in_lines(entry, nl, &file.indent(list, &step), &step)
            };
            Ok(file.put(list, &format!("\"stead\": {value}"), &step))
        }
    }
}

/// Our entry with other fields; those that the person added stay.
fn mend(text: &str, servers: &str, entry: &Entry) -> Result<String, Trouble> {
    let mut text = text.to_owned();
    for (name, wanted) in fields(entry) {
        let file = File::parse(&text)?;
        let Some(fields) = file.entry(servers)?.and_then(|at| at.value()) else {
            return Err(Trouble::Foreign);
        };
        let changed = match property(fields, name)? {
            Some((_, there)) if wanted.is(&there.value) => continue,
            Some((_, there)) => {
                let range = there.value.range();
                spliced(&text, range.start..range.end, &wanted.text())
            }
            None => {
                let step = file.step(file.root()?);
                file.put(fields, &format!("\"{name}\": {}", wanted.text()), &step)
            }
        };
        text = changed;
    }
    Ok(text)
}

/// A file that makes sense.
struct File<'a> {
    text: &'a str,
    value: Option<Value<'a>>,
    tokens: Vec<TokenAndRange<'a>>,
}

/// Where the entry is.
struct At<'f, 'a> {
    root: &'f Object<'a>,
    servers_index: usize,
    servers: &'f Object<'a>,
    index: usize,
}

impl<'f, 'a> At<'f, 'a> {
    fn value(&self) -> Option<&'f Object<'a>> {
        match &self.servers.properties.get(self.index)?.value {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl<'a> File<'a> {
    fn parse(text: &'a str) -> Result<Self, Trouble> {
        let collect = CollectOptions {
            comments: CommentCollectionStrategy::AsTokens,
            tokens: true,
        };
        let parsed = parse_to_ast(text, &collect, &DIALECT).map_err(|error| Trouble::Broken {
            line: line_of(text, error.range().start),
            why: error.kind().to_string(),
        })?;
        Ok(Self {
            text,
            value: parsed.value,
            tokens: parsed.tokens.unwrap_or_default(),
        })
    }

    fn root(&self) -> Result<&Object<'a>, Trouble> {
        match &self.value {
            Some(Value::Object(object)) => Ok(object),
            _ => Err(Trouble::Shape("its content is not an object".into())),
        }
    }

    fn entry(&self, servers: &str) -> Result<Option<At<'_, 'a>>, Trouble> {
        if self.value.is_none() && self.text.trim().is_empty() {
            return Ok(None);
        }
        let root = self.root()?;
        let Some((servers_index, list)) = property(root, servers)? else {
            return Ok(None);
        };
        let list = object(list, servers)?;
        Ok(property(list, "stead")?.map(|(index, _)| At {
            root,
            servers_index,
            servers: list,
            index,
        }))
    }

    /// The text with a property at the end of an object.
    fn put(&self, object: &Object<'_>, property: &str, step: &str) -> String {
        let nl = line_end(self.text);
        let close = object.range.end.saturating_sub(1);
        let at = self.token_before(close);
        let lead = if !self.on_one_line(object) {
            format!("{nl}{}", self.indent(object, step))
        } else if at == object.range.start + 1 {
            String::new()
        } else {
            " ".to_owned()
        };
        let Some(last) = object.properties.last() else {
            return spliced(self.text, at..at, &format!("{lead}{property}"));
        };
        if self.comma(last.range.end..close).is_some() {
            return spliced(self.text, at..at, &format!("{lead}{property},"));
        }
        let text = spliced(self.text, at..at, &format!("{lead}{property}"));
        spliced(&text, last.range.end..last.range.end, ",")
    }

    /// The text without a property of an object: what [`File::put`] makes, undone.
    fn cut(&self, object: &Object<'_>, index: usize) -> String {
        let Some(gone) = object.properties.get(index) else {
            return self.text.to_owned();
        };
        let close = object.range.end.saturating_sub(1);
        let next = object.properties.get(index + 1);
        let until = next.map_or(close, |next| next.range.start);
        let comma = self.comma(gone.range.end..until);
        let end = comma.as_ref().map_or(gone.range.end, |comma| comma.end);
        let text = spliced(self.text, self.token_before(gone.range.start)..end, "");
        let before = index
            .checked_sub(1)
            .and_then(|index| object.properties.get(index));
        match before {
            // The last one without a comma leaves one that has nothing after it.
            Some(before) if comma.is_none() => {
                match self.comma(before.range.end..gone.range.start) {
                    Some(comma) => spliced(&text, comma, ""),
                    None => text,
                }
            }
            _ => text,
        }
    }

    /// The end of the last token or comment before a place.
    fn token_before(&self, place: usize) -> usize {
        let mut before = self.tokens.iter().rev();
        let last = before.find(|token| token.range.end <= place);
        last.map_or(0, |token| token.range.end)
    }

    fn comma(&self, within: Range<usize>) -> Option<Range<usize>> {
        let found = self.tokens.iter().find(|token| {
            token.token == Token::Comma
                && within.start <= token.range.start
                && token.range.end <= within.end
        });
        found.map(|token| token.range.start..token.range.end)
    }

    fn on_one_line(&self, object: &Object<'_>) -> bool {
        let inside = self.text.get(object.range.start..object.range.end);
        inside.is_some_and(|inside| !inside.contains('\n'))
    }

    /// Whether an object holds its one property and nothing else, no comment either.
    fn is_bare(&self, object: &Object<'_>) -> bool {
        let Some(only) = object.properties.first() else {
            return true;
        };
        let inside = |range: Range<usize>| {
            self.text
                .get(range)
                .is_some_and(|text| text.trim().is_empty())
        };
        inside(object.range.start + 1..only.range.start)
            && inside(only.range.end..object.range.end.saturating_sub(1))
    }

    /// The space before the properties of an object that stands on several lines.
    fn indent(&self, object: &Object<'_>, step: &str) -> String {
        let of_first = object
            .properties
            .first()
            .and_then(|first| self.space_before(first.range.start));
        of_first.map_or_else(
            || format!("{}{step}", self.space_of_line(object.range.start)),
            str::to_owned,
        )
    }

    /// One step of indentation, as the file has it.
    fn step(&self, root: &Object<'_>) -> String {
        let first = root.properties.first();
        first
            .and_then(|first| self.space_before(first.range.start))
            .filter(|space| !space.is_empty())
            .unwrap_or(STEP)
            .to_owned()
    }

    /// The space between the start of a line and a place, where there is nothing else.
    fn space_before(&self, place: usize) -> Option<&'a str> {
        let before = self.text.get(..place)?;
        let line = before.get(before.rfind('\n')? + 1..)?;
        line.trim().is_empty().then_some(line)
    }

    fn space_of_line(&self, place: usize) -> &'a str {
        let before = self.text.get(..place).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = before.get(start..).unwrap_or_default();
        let space = line.len() - line.trim_start().len();
        line.get(..space).unwrap_or_default()
    }
}

/// The property of a name. One that is there twice means something else to each reader.
fn property<'f, 'a>(
    object: &'f Object<'a>,
    name: &str,
) -> Result<Option<(usize, &'f ObjectProp<'a>)>, Trouble> {
    let mut found = object
        .properties
        .iter()
        .enumerate()
        .filter(|(_, property)| property.name.as_str() == name);
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(Trouble::Shape(format!("`{name}` is there twice"))),
        (first, None) => Ok(first),
    }
}

fn object<'f, 'a>(property: &'f ObjectProp<'a>, name: &str) -> Result<&'f Object<'a>, Trouble> {
    match &property.value {
        Value::Object(object) => Ok(object),
        _ => Err(Trouble::Shape(format!("`{name}` is not an object"))),
    }
}

/// The entry of an object, as far as it is one.
fn read(object: &Object<'_>) -> Entry {
    let value = |name: &str| match property(object, name) {
        Ok(Some((_, property))) => Some(&property.value),
        _ => None,
    };
    Entry {
        command: value("command")
            .and_then(string)
            .unwrap_or_default()
            .to_owned(),
        args: value("args").and_then(strings).unwrap_or_default(),
        typed: value("type").is_some(),
    }
}

fn string<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::StringLit(literal) => Some(&literal.value),
        _ => None,
    }
}

fn strings(value: &Value<'_>) -> Option<Vec<String>> {
    let Value::Array(array) = value else {
        return None;
    };
    let words = array
        .elements
        .iter()
        .map(|element| string(element).map(str::to_owned));
    words.collect()
}

/// A field of an entry.
enum Field<'e> {
    Text(&'e str),
    Words(&'e [String]),
}

impl Field<'_> {
    fn is(&self, value: &Value<'_>) -> bool {
        match self {
            Self::Text(text) => string(value) == Some(*text),
            Self::Words(words) => strings(value).as_deref() == Some(*words),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => quoted(text),
            Self::Words(words) => {
                let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
                format!("[{}]", words.join(", "))
            }
        }
    }
}

fn fields(entry: &Entry) -> Vec<(&'static str, Field<'_>)> {
    let mut fields = Vec::new();
    if entry.typed {
        fields.push(("type", Field::Text("stdio")));
    }
    fields.push(("command", Field::Text(&entry.command)));
    fields.push(("args", Field::Words(&entry.args)));
    fields
}

fn in_lines(entry: &Entry, nl: &str, indent: &str, step: &str) -> String {
    let fields: Vec<_> = fields(entry)
        .into_iter()
        .map(|(name, field)| format!("{nl}{indent}{step}\"{name}\": {}", field.text()))
        .collect();
    format!("{{{}{nl}{indent}}}", fields.join(","))
}

fn on_one_line(entry: &Entry) -> String {
    let fields: Vec<_> = fields(entry)
        .into_iter()
        .map(|(name, field)| format!("\"{name}\": {}", field.text()))
        .collect();
    format!("{{{}}}", fields.join(", "))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Comments and trailing commas, which clients' editors write; nothing looser than that.
const DIALECT: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Indentation where a file shows none.
const STEP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: &str = "mcpServers";

    fn entry() -> Entry {
        Entry {
            command: "/bin/stead".into(),
            args: ["mcp", "--agent", "claude"].map(String::from).to_vec(),
            typed: true,
        }
    }

    /// Sets the entry up, twice, and removes it again: the bytes from before are back.
    fn check(before: &str, with: &str) {
        let set_up = set(before, SERVERS, &entry()).unwrap();
        assert_eq!(set_up, with);
        assert_eq!(
            set(&set_up, SERVERS, &entry()).unwrap(),
            set_up,
            "a second run"
        );
        let after = remove(&set_up, SERVERS).unwrap();
        if before.is_empty() {
            assert_eq!(after, After::Gone);
        } else {
            assert_eq!(after, After::Text(before.to_owned()));
        }
    }

    const LINE: &str = r#""stead": {"type": "stdio", "command": "/bin/stead", "args": ["mcp", "--agent", "claude"]}"#;

    #[test]
    fn a_file_is_made_and_goes_again() {
        check(
            "",
            r#"{
  "mcpServers": {
    "stead": {
      "type": "stdio",
      "command": "/bin/stead",
      "args": ["mcp", "--agent", "claude"]
    }
  }
}
"#,
        );
    }

    #[test]
    fn comments_order_and_format_stay() {
        check(
            r#"// mine
{
    "z": [1,2,  3], // odd
    "mcpServers": {
        // the other one
        "other": { "command": "x" } // why
    },
    "a": null
}"#,
            r#"// mine
{
    "z": [1,2,  3], // odd
    "mcpServers": {
        // the other one
        "other": { "command": "x" }, // why
        "stead": {
            "type": "stdio",
            "command": "/bin/stead",
            "args": ["mcp", "--agent", "claude"]
        }
    },
    "a": null
}"#,
        );
    }

    #[test]
    fn a_list_of_servers_is_made_and_goes_again() {
        check(
            "{\n\t\"theme\": \"dark\",\n}\n",
            "{\n\t\"theme\": \"dark\",\n\t\"mcpServers\": {\n\t\t\"stead\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \"/bin/stead\",\n\t\t\t\"args\": [\"mcp\", \"--agent\", \"claude\"]\n\t\t}\n\t},\n}\n",
        );
    }

    #[test]
    fn what_is_on_one_line_stays_there() {
        check(
            r#"{"mcpServers": {}}"#,
            &format!(r#"{{"mcpServers": {{{LINE}}}}}"#),
        );
        check(
            r#"{"mcpServers": {"a": {}, }, "b": 1}"#,
            &format!(r#"{{"mcpServers": {{"a": {{}}, {LINE}, }}, "b": 1}}"#),
        );
    }

    #[test]
    fn many_layouts_come_back_as_they_were() {
        for before in [
            "{}",
            "{}\n",
            "{ }",
            "{\r\n  \"a\": 1\r\n}\r\n",
            "{\r\n  \"a\": 1, // x\r\n  \"mcpServers\": {\"b\": {}}\r\n}",
            "{\"a\":1}",
            "{\n  \"a\": 1 }",
            "{\n  // nothing yet\n}",
            "{\n  \"mcpServers\": {\n    // nothing yet\n  }\n}",
            "{\n  \"mcpServers\": {\n    \"a\": {}, /* c */\n    // d\n  },\n}",
            "/* head */ {\"mcpServers\": {\"a\": {\"command\": \"y\"}}} // tail",
            "{\n\"a\": 1\n}",
            "{\n  \"mcpServers\": {}\n}\n",
            "{\n  \"a\": {},\n  \"mcpServers\": {},\n  \"b\": {}\n}\n",
        ] {
            let with = set(before, SERVERS, &entry()).unwrap();
            assert_eq!(
                find(&with, SERVERS),
                Ok(Found::Ours(entry())),
                "{before:?}: {with}"
            );
            assert_eq!(set(&with, SERVERS, &entry()).unwrap(), with, "{before:?}");
            let lines = with.matches('\n').count();
            let crlf = with.matches("\r\n").count();
            assert!(crlf == 0 || crlf == lines, "mixed line ends: {with:?}");
            assert_eq!(
                remove(&with, SERVERS),
                Ok(After::Text(before.to_owned())),
                "{with:?}"
            );
        }
    }

    #[test]
    fn an_empty_list_on_two_lines_goes_as_one_that_setup_made() {
        for (before, after) in [
            ("{\n}\n", After::Gone),
            (
                "{\n  \"a\": 1,\n  \"mcpServers\": {\n  }\n}",
                After::Text("{\n  \"a\": 1\n}".into()),
            ),
        ] {
            let with = set(before, SERVERS, &entry()).unwrap();
            assert_eq!(remove(&with, SERVERS), Ok(after));
        }
    }

    /// Random numbers from a seed.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % bound
        }

        fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
            words[self.below(words.len() as u64) as usize]
        }

        fn space(&mut self, nl: &str) -> String {
            let kinds = ["", "", " ", "\t", "N", "N  ", " /* , } */ ", " // , {N"];
            self.of(&kinds).replace('N', nl)
        }

        /// An object with these names in it, laid out by chance.
        fn object(
            &mut self,
            names: &[&str],
            nl: &str,
            inner: &mut dyn FnMut(&mut Self, &str) -> String,
        ) -> String {
            let mut text = "{".to_owned();
            for (index, name) in names.iter().enumerate() {
                let comma = index + 1 < names.len() || self.below(4) == 0;
                let value = inner(self, name);
                let spaces = [(); 4].map(|()| self.space(nl));
                text.push_str(&format!(
                    "{}\"{name}\"{}:{}{value}{}{}",
                    spaces[0],
                    spaces[1],
                    spaces[2],
                    spaces[3],
                    if comma { "," } else { "" }
                ));
            }
            format!("{text}{}}}", self.space(nl))
        }
    }

    #[test]
    fn any_layout_keeps_all_that_is_not_ours() {
        for seed in 1..=5_000_u64 {
            let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let nl = random.of(&["\n", "\r\n"]);
            let names = [&["mcpServers"][..], &["a", "mcpServers", "b"], &["a"], &[]];
            let names = names[random.below(4) as usize];
            let lists = [&[][..], &["x"], &["x", "y"]];
            let list = lists[random.below(3) as usize];
            let before = random.object(names, nl, &mut |random, name| {
                if name == "mcpServers" {
                    random.object(list, nl, &mut |_, _| "{}".into())
                } else {
                    "[1, 2]".into()
                }
            });
            let with = set(&before, SERVERS, &entry())
                .unwrap_or_else(|error| panic!("seed {seed}: {error:?}: {before:?}"));
            assert_eq!(
                find(&with, SERVERS),
                Ok(Found::Ours(entry())),
                "seed {seed}: {with}"
            );
            assert_eq!(set(&with, SERVERS, &entry()).unwrap(), with, "seed {seed}");
            let after = match remove(&with, SERVERS) {
                Ok(After::Text(after)) => after,
                other => panic!("seed {seed}: {other:?}: {before:?}"),
            };
            if after == before {
                continue;
            }
            // The one thing that cannot be known: who made an empty list of servers.
            assert!(
                list.is_empty() && names.contains(&"mcpServers"),
                "seed {seed}: {before:?}, {with:?}, {after:?}"
            );
            assert_eq!(find(&after, SERVERS), Ok(Found::Nothing), "seed {seed}");
        }
    }

    #[test]
    fn ours_is_mended_and_what_was_added_to_it_stays() {
        let there = r#"{"mcpServers": {"stead": {
            // by hand
            "env": {"A": "b"},
            "command": "/old/stead", "args": ["mcp", "--agent", "x", "--read-only"]
        }, "b": {}}}"#;
        let mended = set(there, SERVERS, &entry()).unwrap();
        assert_eq!(
            mended,
            r#"{"mcpServers": {"stead": {
            // by hand
            "env": {"A": "b"},
            "command": "/bin/stead", "args": ["mcp", "--agent", "claude", "--read-only"],
            "type": "stdio"
        }, "b": {}}}"#
        );
        assert_eq!(set(&mended, SERVERS, &entry()).unwrap(), mended);
        assert_eq!(
            remove(&mended, SERVERS),
            Ok(After::Text(r#"{"mcpServers": { "b": {}}}"#.into()))
        );
    }

    #[test]
    fn what_somebody_reformatted_is_still_removed() {
        let text =
            "{\"mcpServers\":\n  {\n  \"stead\":{\"command\":\"stead\",\"args\":[\"mcp\"]}\n }}";
        assert_eq!(
            remove(text, SERVERS),
            Ok(After::Text("{\"mcpServers\":\n  {}}".into()))
        );
        let without = "{\"a\": 1}";
        assert_eq!(
            remove(without, SERVERS),
            Ok(After::Text(without.to_owned()))
        );
    }

    #[test]
    fn somebody_elses_entry_is_refused() {
        for text in [
            r#"{"mcpServers": {"stead": {"command": "npx", "args": ["stead-mcp"]}}}"#,
            r#"{"mcpServers": {"stead": {"url": "http://x"}}}"#,
            r#"{"mcpServers": {"stead": null}}"#,
            r#"{"mcpServers": {"stead": {"command": "stead", "args": ["mcp", 1]}}}"#,
        ] {
            assert_eq!(find(text, SERVERS), Ok(Found::Foreign));
            assert_eq!(set(text, SERVERS, &entry()), Err(Trouble::Foreign));
            assert_eq!(remove(text, SERVERS), Err(Trouble::Foreign));
        }
    }

    #[test]
    fn a_broken_file_is_refused_with_the_line() {
        for (text, line) in [
            ("{\n  \"a\": 1,\n  \"b\" 2\n}", 3),
            ("{\n\"a\": 1\n\"b\": 2}", 2),
            ("{\n'a': 1}", 2),
            ("{} {}", 1),
        ] {
            match set(text, SERVERS, &entry()) {
                Err(Trouble::Broken { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let deep = "[".repeat(100_000);
        assert!(matches!(
            set(&deep, SERVERS, &entry()),
            Err(Trouble::Broken { .. })
        ));
    }

    #[test]
    fn a_file_without_a_place_for_it_is_refused() {
        for text in [
            "[]",
            "null",
            "// only a remark",
            r#"{"mcpServers": []}"#,
            r#"{"mcpServers": {}, "mcpServers": {}}"#,
            r#"{"mcpServers": {"stead": {}, "stead": {}}}"#,
        ] {
            let refused = set(text, SERVERS, &entry());
            assert!(
                matches!(refused, Err(Trouble::Shape(_))),
                "{text}: {refused:?}"
            );
        }
    }
}
