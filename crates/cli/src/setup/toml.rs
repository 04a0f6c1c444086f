//! The entry in Codex' TOML file.

use std::ops::Range;

use toml_edit::{Document, Item, Table, Value};

use super::{After, Entry, Found, Trouble, appended, cut_out, line_end, line_of, spliced};

/// What the file holds under the name of Stead.
pub(super) fn find(text: &str) -> Result<Found, Trouble> {
    let document = parse(text)?;
    Ok(match entry(&document)? {
        None => Found::Nothing,
        Some(item) => read(item)
            .filter(Entry::is_ours)
            .map_or(Found::Foreign, Found::Ours),
    })
}

/// The file with the entry: a table at its end where there is none, mended where ours differs.
pub(super) fn set(text: &str, entry: &Entry) -> Result<String, Trouble> {
    match find(text)? {
        Found::Foreign => Err(Trouble::Foreign),
        Found::Ours(there) => mend(text, &entry.over(&there)),
        Found::Nothing => {
            let with = appended(text, &table(entry, line_end(text)));
            match find(&with) {
                Ok(Found::Ours(read)) if same(&read, entry) => Ok(with),
                _ => Err(Trouble::Shape(format!(
                    "`{SERVERS}` is not a table that another one can be added to"
                ))),
            }
        }
    }
}

/// The file without the entry and what belongs to it.
pub(super) fn remove(text: &str) -> Result<After, Trouble> {
    let there = match find(text)? {
        Found::Nothing => return Ok(After::Text(text.to_owned())),
        Found::Foreign => return Err(Trouble::Foreign),
        Found::Ours(there) => there,
    };
    if text == table(&there, line_end(text)) {
        return Ok(After::Gone);
    }
    let document = parse(text)?;
    let mut parts = Vec::new();
    if let Some(Item::Table(table)) = entry(&document)?
        && !table.is_dotted()
    {
        tables(table, text, &mut parts);
    } else if let Some(part) = in_a_table(&document, text) {
        parts.push(part);
    }
    parts.sort_unstable_by_key(|part| part.start);
    let mut without = text.to_owned();
    for part in parts.into_iter().rev() {
        without = cut_out(&without, part);
    }
    match find(&without) {
        Ok(Found::Nothing) => Ok(After::Text(without)),
        _ => Err(Trouble::Shape(format!(
            "`{SERVERS}.stead` is written in a way that only a person can take out"
        ))),
    }
}

fn mend(text: &str, wanted: &Entry) -> Result<String, Trouble> {
    let mut text = text.to_owned();
    for (name, value) in fields(wanted) {
        let document = parse(&text)?;
        let item = entry(&document)?.and_then(|item| item.as_table_like()?.get(name));
        let same = match item.and_then(Item::as_value) {
            Some(Value::String(there)) => name == "command" && *there.value() == wanted.command,
            there => {
                name == "args" && there.and_then(words).as_deref() == Some(wanted.args.as_slice())
            }
        };
        if same {
            continue;
        }
        let Some(span) = item.and_then(Item::span) else {
            return Err(Trouble::Foreign);
        };
        text = spliced(&text, span, &value);
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Document<&str>, Trouble> {
    Document::parse(text).map_err(|error| Trouble::Broken {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        why: error.message().lines().collect::<Vec<_>>().join(", "),
    })
}

fn entry<'d>(document: &'d Document<&str>) -> Result<Option<&'d Item>, Trouble> {
    let Some(servers) = document.as_table().get(SERVERS) else {
        return Ok(None);
    };
    match servers.as_table_like() {
        Some(servers) => Ok(servers.get("stead")),
        None => Err(Trouble::Shape(format!("`{SERVERS}` is not a table"))),
    }
}

fn read(item: &Item) -> Option<Entry> {
    let table = item.as_table_like()?;
    let command = table.get("command")?.as_str()?.to_owned();
    let args = words(table.get("args")?.as_value()?)?;
    Some(Entry {
        command,
        args,
        typed: false,
    })
}

fn words(value: &Value) -> Option<Vec<String>> {
    let words = value.as_array()?.iter();
    words.map(|word| word.as_str().map(str::to_owned)).collect()
}

fn same(one: &Entry, other: &Entry) -> bool {
    one.command == other.command && one.args == other.args
}

/// The lines of a table and of the tables in it, each from its header on.
fn tables(table: &Table, text: &str, parts: &mut Vec<Range<usize>>) {
    if let Some(span) = table.span()
        && !table.is_implicit()
        && !table.is_dotted()
    {
        let end = own_end(table, span.end);
        parts.push(whole_lines(text, span.start..end));
    }
    for (_, item) in table.iter() {
        match item {
            Item::Table(inner) => tables(inner, text, parts),
            Item::ArrayOfTables(inner) => inner.iter().for_each(|inner| tables(inner, text, parts)),
            _ => {}
        }
    }
}

/// The end of the last value that stands under a table's own header.
fn own_end(table: &Table, least: usize) -> usize {
    table.iter().fold(least, |end, (_, item)| match item {
        Item::Value(value) => end.max(value.span().map_or(0, |span| span.end)),
        Item::Table(inner) if inner.is_dotted() => own_end(inner, end),
        _ => end,
    })
}

/// `stead = { … }` on a line of its own under `[mcp_servers]`.
fn in_a_table(document: &Document<&str>, text: &str) -> Option<Range<usize>> {
    let servers = document.as_table().get(SERVERS)?.as_table()?;
    let (key, item) = servers.get_key_value("stead")?;
    let (key, value) = (key.span()?, item.as_value()?.span()?);
    Some(whole_lines(text, key.start..value.end))
}

/// The lines that a part stands on.
fn whole_lines(text: &str, part: Range<usize>) -> Range<usize> {
    let before = text.get(..part.start).unwrap_or_default();
    let after = text.get(part.end..).unwrap_or_default();
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let end = after.find('\n').map_or(text.len(), |at| part.end + at + 1);
    start..end
}

fn table(entry: &Entry, nl: &str) -> String {
    let fields: String = fields(entry)
        .into_iter()
        .map(|(name, value)| format!("{name} = {value}{nl}"))
        .collect();
    format!("[{SERVERS}.stead]{nl}{fields}")
}

fn fields(entry: &Entry) -> [(&'static str, String); 2] {
    let args: Vec<_> = entry.args.iter().map(|word| quoted(word)).collect();
    [
        ("command", quoted(&entry.command)),
        ("args", format!("[{}]", args.join(", "))),
    ]
}

/// A basic string. JSON's escapes are TOML's, but for the one control character that JSON leaves.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

const SERVERS: &str = "mcp_servers";

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            command: "/bin/stead".into(),
            args: ["mcp", "--agent", "codex"].map(String::from).to_vec(),
            typed: false,
        }
    }

    const TABLE: &str =
        "[mcp_servers.stead]\ncommand = \"/bin/stead\"\nargs = [\"mcp\", \"--agent\", \"codex\"]\n";

    /// Sets the entry up, twice, and removes it again: the bytes from before are back.
    fn check(before: &str) {
        let with = set(before, &entry()).unwrap();
        assert_eq!(find(&with), Ok(Found::Ours(entry())), "{with}");
        assert_eq!(set(&with, &entry()).unwrap(), with, "{before:?}");
        assert!(with.starts_with(before));
        let crlf = with.matches("\r\n").count();
        assert!(crlf == 0 || crlf == with.matches('\n').count(), "{with:?}");
        let after = if before.is_empty() {
            After::Gone
        } else {
            After::Text(before.to_owned())
        };
        assert_eq!(remove(&with).unwrap(), after, "{before:?}");
    }

    #[test]
    fn what_is_there_stays_and_comes_back() {
        for before in [
            "",
            "model = \"o\" # mine",
            "model = \"o\"\n",
            "# head\n[mcp_servers.other]\ncommand = \"x\"   # spaced\n\n\n",
            "[mcp_servers]\n",
            "[mcp_servers]\nother = { command = \"x\" }\n",
            "model = \"o\"\r\n[tui]\r\nx = 1\r\n",
            "[mcp_servers.other]\r\ncommand = 'x'",
        ] {
            check(before);
        }
        assert_eq!(
            set("a = 1\n", &entry()).unwrap(),
            format!("a = 1\n\n{TABLE}")
        );
    }

    #[test]
    fn ours_is_mended_in_place_and_removed_whole() {
        let text = "# a\n[mcp_servers.stead] # ours\ncommand = '/old/stead' # c\nargs = [\n  \"mcp\", # m\n  \"--read-only\",\n]\nstartup_timeout_sec = 20\n\n[mcp_servers.stead.env]\nA = \"b\"\n\n# about z\n[z]\ny = 1\n";
        let mended = set(text, &entry()).unwrap();
        assert_eq!(
            mended,
            "# a\n[mcp_servers.stead] # ours\ncommand = \"/bin/stead\" # c\nargs = [\"mcp\", \"--agent\", \"codex\", \"--read-only\"]\nstartup_timeout_sec = 20\n\n[mcp_servers.stead.env]\nA = \"b\"\n\n# about z\n[z]\ny = 1\n"
        );
        assert_eq!(set(&mended, &entry()).unwrap(), mended);
        assert_eq!(
            remove(&mended),
            Ok(After::Text("# a\n\n# about z\n[z]\ny = 1\n".into()))
        );
        let inline =
            "[mcp_servers]\na = {}\nstead = { command = \"stead\", args = [\"mcp\"] }\nb = {}\n";
        assert_eq!(
            remove(inline),
            Ok(After::Text("[mcp_servers]\na = {}\nb = {}\n".into()))
        );
    }

    #[test]
    fn what_has_no_place_for_it_is_refused() {
        for text in [
            "mcp_servers = 1\n",
            "mcp_servers = { other = { command = \"x\" } }\n",
            "[[mcp_servers]]\na = 1\n",
        ] {
            let refused = set(text, &entry());
            assert!(matches!(refused, Err(Trouble::Shape(_))), "{refused:?}");
        }
        let dotted = "mcp_servers.stead.command = \"stead\"\nmcp_servers.stead.args = [\"mcp\"]\n";
        assert!(matches!(remove(dotted), Err(Trouble::Shape(_))));
    }

    #[test]
    fn somebody_elses_and_broken_files_are_refused() {
        let foreign = "[mcp_servers.stead]\nurl = \"http://x\"\n";
        assert_eq!(set(foreign, &entry()), Err(Trouble::Foreign));
        assert_eq!(remove(foreign), Err(Trouble::Foreign));
        match set("a = 1\nb = = 2\n", &entry()) {
            Err(Trouble::Broken { line, .. }) => assert_eq!(line, 2),
            other => panic!("{other:?}"),
        }
        let deep = format!("a = {}", "[".repeat(100_000));
        assert!(matches!(set(&deep, &entry()), Err(Trouble::Broken { .. })));
    }

    #[test]
    fn paths_are_quoted() {
        let mut odd = entry();
        odd.command = "C:\\a \"b\"\u{7f}\n\\stead".into();
        let with = set("", &odd).unwrap();
        assert_eq!(find(&with), Ok(Found::Ours(odd)));
    }
}
