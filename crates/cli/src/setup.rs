//! How agents' clients are configured: which files each one reads, and edits of these files that
//! change what Stead wrote and nothing else.
//!
//! Files are edited as text. A parser says where things are and whether they make sense; it never
//! writes the file out again, so comments, order, spacing and line ends stay as they are. Nothing
//! here talks to a node.

pub(crate) mod block;
pub(crate) mod file;
pub(crate) mod json;
pub(crate) mod toml;

use std::path::{Path, PathBuf};

use stead_doc::refusal::Refusal;

use crate::args::Client;

/// What a client is told to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The program.
    pub(crate) command: String,
    /// Its arguments.
    pub(crate) args: Vec<String>,
    /// Whether the client wants to hear that this is a server on stdio.
    pub(crate) typed: bool,
}

impl Entry {
    /// Whether Stead wrote it: it runs a program called `stead` with `mcp` as an argument.
    /// Anything else is somebody else's.
    pub(crate) fn is_ours(&self) -> bool {
        let name = self.command.rsplit(['/', '\\']).next().unwrap_or_default();
        let name = name.strip_suffix(".exe").unwrap_or(name);
        name == "stead" && self.args.iter().any(|argument| argument == "mcp")
    }

    /// The agent that it names.
    pub(crate) fn agent(&self) -> Option<&str> {
        let mut args = self.args.iter();
        while let Some(argument) = args.next() {
            if argument == "--agent" {
                return args.next().map(String::as_str);
            }
            if let Some(name) = argument.strip_prefix("--agent=") {
                return Some(name);
            }
        }
        None
    }

    /// This entry with what a person added to the arguments of the one that is there: a toolset
    /// or `--read-only` is theirs to choose.
    pub(crate) fn over(&self, there: &Self) -> Self {
        let mut args = self.args.clone();
        let mut given = there.args.iter();
        while let Some(argument) = given.next() {
            match argument.as_str() {
                "mcp" => {}
                "--agent" | "--home" => drop(given.next()),
                other if other.starts_with("--agent=") || other.starts_with("--home=") => {}
                _ => args.push(argument.clone()),
            }
        }
        Self {
            args,
            ..self.clone()
        }
    }
}

/// What a file holds under the name of Stead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// An entry that Stead wrote.
    Ours(Entry),
    /// An entry of somebody else.
    Foreign,
}

/// What becomes of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum After {
    /// It holds this.
    Text(String),
    /// It goes: it held what setup made of no file at all.
    Gone,
}

/// Why a file is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It does not parse.
    Broken {
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        why: String,
    },
    /// It parses, and there is no place in it for an entry.
    Shape(String),
    /// There is an entry of that name that Stead did not write.
    Foreign,
    /// The marks of the block do not pair up.
    Marks(String),
}

impl Trouble {
    /// The refusal that names the file.
    pub(crate) fn of(&self, path: &str) -> Refusal {
        let (message, hint) = match self {
            Self::Broken { line, why } => (
                format!("{path} does not parse, line {line}: {why}. Nothing was changed."),
                "Mend the file, then run this again.",
            ),
            Self::Shape(what) => (
                format!("{path} cannot be edited: {what}. Nothing was changed."),
                "Change that by hand, then run this again.",
            ),
            Self::Foreign => (
                format!(
                    "{path} has an entry `stead` that Stead did not write: it does not run `stead mcp`. Nothing was changed."
                ),
                "Rename or remove that entry, then run this again.",
            ),
            Self::Marks(what) => (
                format!("{path}: {what}. Nothing was changed."),
                "Leave one pair of marks, or none, then run this again.",
            ),
        };
        Refusal::argument("file", message, hint).with("path", path)
    }
}

/// How a client's configuration is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON, with comments where the person put some; servers are under this name.
    Json(&'static str),
    /// TOML; servers are under `mcp_servers`.
    Toml,
}

impl Format {
    /// What the file holds under the name of Stead.
    pub(crate) fn find(self, text: &str) -> Result<Found, Trouble> {
        match self {
            Self::Json(servers) => json::find(text, servers),
            Self::Toml => toml::find(text),
        }
    }

    /// The file with the entry.
    pub(crate) fn set(self, text: &str, entry: &Entry) -> Result<String, Trouble> {
        match self {
            Self::Json(servers) => json::set(text, servers, entry),
            Self::Toml => toml::set(text, entry),
        }
    }

    /// The file without it.
    pub(crate) fn remove(self, text: &str) -> Result<After, Trouble> {
        match self {
            Self::Json(servers) => json::remove(text, servers),
            Self::Toml => toml::remove(text),
        }
    }
}

/// What belongs to a client.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    /// Its configuration.
    pub(crate) config: PathBuf,
    /// How that is written.
    pub(crate) format: Format,
    /// Whether entries say that the server is on stdio.
    pub(crate) typed: bool,
    /// What it reads before it starts.
    pub(crate) instructions: PathBuf,
    /// The directory that goes with an empty configuration: it is the client's alone.
    pub(crate) own_dir: Option<PathBuf>,
}

/// The files of a client in a directory; nothing where the environment names no home for Codex.
pub(crate) fn files(
    client: Client,
    dir: &Path,
    env: &dyn Fn(&str) -> Option<PathBuf>,
) -> Option<Files> {
    let in_dir = |own: &str, file: &str, servers, typed, instructions: &str| Files {
        config: dir.join(own).join(file),
        format: Format::Json(servers),
        typed,
        instructions: dir.join(instructions),
        own_dir: (!own.is_empty()).then(|| dir.join(own)),
    };
    Some(match client {
        Client::Claude => in_dir("", ".mcp.json", "mcpServers", true, "CLAUDE.md"),
        Client::Cursor => in_dir(".cursor", "mcp.json", "mcpServers", false, "AGENTS.md"),
        Client::Vscode => in_dir(".vscode", "mcp.json", "servers", true, "AGENTS.md"),
        Client::Gemini => in_dir(".gemini", "settings.json", "mcpServers", false, "GEMINI.md"),
        Client::Codex => {
            let named = env("CODEX_HOME").filter(|home| !home.as_os_str().is_empty());
            let own = env("HOME").or_else(|| env("USERPROFILE"));
            let own = own.filter(|home| home.is_absolute());
            let own = own.map(|home| home.join(".codex"));
            Files {
                config: named.clone().or(own.clone())?.join("config.toml"),
                format: Format::Toml,
                typed: false,
                instructions: dir.join("AGENTS.md"),
                own_dir: if named.is_some() { None } else { own },
            }
        }
    })
}

/// The end of lines in a text: that of its first line.
pub(crate) fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text.get(..at).is_some_and(|line| line.ends_with('\r')) => "\r\n",
        _ => "\n",
    }
}

/// The line, from 1, that a place is on.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// The text with a part of it replaced.
pub(crate) fn spliced(text: &str, range: std::ops::Range<usize>, with: &str) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    format!("{before}{with}{after}")
}

/// A text with a piece after it: on a line of its own, with an empty line between where the text
/// ends its last one. So what was there before can be told again.
pub(crate) fn appended(text: &str, piece: &str) -> String {
    let between = if text.is_empty() { "" } else { line_end(text) };
    format!("{text}{between}{piece}")
}

/// The text without a piece of whole lines in it, and without the line end that [`appended`] put
/// before it, where nothing else stands on that one.
pub(crate) fn cut_out(text: &str, range: std::ops::Range<usize>) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    let shorter = before
        .strip_suffix("\r\n")
        .or_else(|| before.strip_suffix('\n'))
        .unwrap_or(before);
    let on_its_own = shorter.is_empty() || shorter.ends_with('\n') || after.is_empty();
    format!("{}{after}", if on_its_own { shorter } else { before })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(command: &str, args: &[&str]) -> Entry {
        Entry {
            command: command.into(),
            args: args.iter().map(ToString::to_string).collect(),
            typed: false,
        }
    }

    #[test]
    fn an_entry_is_ours_when_it_runs_stead_mcp() {
        for (command, args, ours) in [
            ("/usr/bin/stead", &["mcp"][..], true),
            ("C:\\bin\\stead.exe", &["--home", "x", "mcp"], true),
            ("stead", &["mcp"], true),
            ("stead", &["up"], false),
            ("/usr/bin/instead", &["mcp"], false),
            ("npx", &["stead", "mcp"], false),
            ("", &[], false),
        ] {
            assert_eq!(entry(command, args).is_ours(), ours, "{command} {args:?}");
        }
    }

    #[test]
    fn what_a_person_added_to_the_arguments_stays() {
        let new = entry("/new/stead", &["mcp", "--agent", "claude"]);
        let old = entry(
            "/old/stead",
            &["mcp", "--home=/h", "--agent", "x", "--toolsets", "board"],
        );
        assert_eq!(old.agent(), Some("x"));
        let over = new.over(&old);
        assert_eq!(over.command, "/new/stead");
        assert_eq!(
            over.args,
            ["mcp", "--agent", "claude", "--toolsets", "board"]
        );
    }

    #[test]
    fn a_piece_that_is_appended_can_be_cut_out_again() {
        for text in ["", "a", "a\n", "a\n\n", "a\r\n", "a\r\nb"] {
            let with = appended(text, "piece\n");
            let start = with.len() - "piece\n".len();
            assert_eq!(cut_out(&with, start..with.len()), text, "{text:?}");
        }
        // What a person wrote below does not run into what is above.
        assert_eq!(cut_out("a\npiece\nb", 2..8), "a\nb");
        assert_eq!(cut_out("a\n\npiece\nb", 3..9), "a\nb");
    }

    #[test]
    fn codex_has_one_configuration_for_all_directories() {
        let of = |codex: Option<&str>, home: Option<&str>| {
            let env = |name: &str| match name {
                "CODEX_HOME" => codex.map(PathBuf::from),
                "HOME" => home.map(PathBuf::from),
                _ => None,
            };
            files(Client::Codex, Path::new("/d"), &env)
        };
        let found = of(None, Some("/home/ada")).unwrap();
        assert_eq!(found.config, Path::new("/home/ada/.codex/config.toml"));
        assert_eq!(found.instructions, Path::new("/d/AGENTS.md"));
        let found = of(Some("/c"), Some("/home/ada")).unwrap();
        assert_eq!(found.config, Path::new("/c/config.toml"));
        assert_eq!(found.own_dir, None);
        assert!(of(Some(""), None).is_none());
    }
}
