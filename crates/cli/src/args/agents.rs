//! Arguments of the commands that agents start with.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// A program that agents run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    /// Claude Code: .mcp.json and CLAUDE.md
    Claude,
    /// Codex: ~/.codex/config.toml and AGENTS.md
    Codex,
    /// Cursor: .cursor/mcp.json and AGENTS.md
    Cursor,
    /// Visual Studio Code: .vscode/mcp.json and AGENTS.md
    Vscode,
    /// Gemini CLI: .gemini/settings.json and GEMINI.md
    Gemini,
}

impl Client {
    /// As it is typed; an agent is called so too, unless another name is given.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Gemini => "gemini",
        }
    }
}

/// Connects a client.
#[derive(Debug, Args)]
#[command(
    after_help = "The client starts `stead mcp --agent NAME`; NAME is the client's own, or what --agent says.
A local agent of that name is made where there is none. What others wrote in the files stays.

Examples:
  stead setup claude
  stead setup codex --agent codex-2 --dir ~/web
  stead setup claude --check && echo connected"
)]
pub(crate) struct Setup {
    /// Connect this client
    #[arg(value_enum)]
    pub(crate) client: Client,

    /// Write the files of this directory; left out, the current one
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Write nothing; say what differs, and exit with 1 where something does
    #[arg(long, conflicts_with = "remove")]
    pub(crate) check: bool,

    /// Take out what setup wrote, and nothing else
    #[arg(long)]
    pub(crate) remove: bool,
}

/// Starts a session.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead prime --agent claude
  stead prime -p web")]
pub(crate) struct Prime {
    /// Tell of this project alone, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
}
