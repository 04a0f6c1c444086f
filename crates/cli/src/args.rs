//! The command line: what can be typed.

mod agents;
mod board;
mod manage;
mod sprint;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

pub(crate) use self::{agents::*, board::*, manage::*, sprint::*};

/// What was typed.
#[derive(Debug, Parser)]
#[command(
    name = "stead",
    version,
    about = "A shared board for coding agents and the people they answer to",
    after_help = "Examples:
  stead up                                    Run a node; make what is missing
  stead create 'Fix the login' -p web         Create a task
  stead ready -p web                          List what can be taken up now
  stead claim --project web                   Take the next task
  stead close ID --reason 'Fixed in 1a2b3c'   Finish it

Exit codes: 0 ok, 1 refused, 2 usage, 3 node or store trouble",
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    /// Note who is behind this, beside the credential; shown, never believed
    #[arg(long = "by", value_name = "LABEL", id = "label")]
    pub(crate) by: Option<String>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What goes with every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Use the workspace in this directory
    #[arg(long, global = true, env = "STEAD_HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    /// Print one JSON object on stdout: {"ok":true,"data":…} or {"ok":false,"error":…}
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Act as this agent of the workspace; with STEAD_TOKEN set, as that token's credential
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

/// The commands, those of the board first.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make whatever is missing, run the node, and print where it listens
    Up(Up),
    /// Make a workspace here without running it
    Init(Init),
    /// Create a task
    #[command(visible_alias = "new")]
    Create(Create),
    /// List tasks, active ones unless a filter says otherwise
    #[command(visible_alias = "ls")]
    List(List),
    /// List what can be taken up now
    Ready(Filters),
    /// Find tasks by words in title, body and notes
    Search(Search),
    /// Show tasks, or a sprint with its tasks
    Show(Show),
    /// Change the fields of a task
    Update(Update),
    /// Give a task another status
    Move(Move),
    /// Take a task, or the next one of a project
    Claim(Claim),
    /// Give a task back
    Release(Release),
    /// Finish a task, or abandon it
    Close(Close),
    /// Comment on a task
    Comment(Comment),
    /// Say why a task cannot go on
    Block(Block),
    /// Let a blocked task go on
    Unblock(Unblock),
    /// Link tasks and follow their links
    #[command(subcommand)]
    Dep(Dep),
    /// Plan and run sprints
    #[command(subcommand)]
    Sprint(Sprint),
    /// Show who changed what, newest first
    History(History),
    /// List fields that were written apart and wait for a decision
    Conflicts(Conflicts),
    /// Decide a conflict
    Resolve(Resolve),
    /// Hide a task or sprint from lists, keeping all of it
    Archive(Archive),
    /// Move or update many tasks from a JSON file
    Batch(Batch),
    /// Manage projects
    #[command(subcommand)]
    Project(Project),
    /// Manage the people of the workspace
    #[command(subcommand)]
    Member(Member),
    /// Manage the agents that work for them
    #[command(subcommand)]
    Agent(Agent),
    /// Connect an agent's client to the board: its configuration and its instructions
    Setup(Setup),
    /// Print what an agent needs to know when a session starts
    Prime(Prime),
    /// Bring in tasks from elsewhere
    #[command(subcommand)]
    Import(Import),
    /// Write the workspace out
    Export(Export),
    /// Save a copy of the whole store, while it is in use
    Backup(Backup),
    /// Make a home out of a backup
    Restore(Restore),
    /// Check the store, and rebuild what is derived
    Doctor(Doctor),
    /// Give unused space of the store back
    Compact,
    /// Carry an agent's client to the node, over stdin and stdout
    Mcp(Mcp),
    /// Run a node as a service
    #[command(subcommand)]
    Node(Node),
    /// Print the completions of a shell
    Completions(Completions),
}

impl Command {
    /// Whether it makes a home where there is none.
    pub(crate) fn makes_home(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    /// Whether it keeps running as a node.
    pub(crate) fn serves(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Node(Node::Run(_)))
    }
}

/// Whether JSON is asked for, found out before the arguments are known to make sense.
pub(crate) fn asks_for_json(given: &[OsString]) -> bool {
    given
        .iter()
        .skip(1)
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_is_imperative_and_ends_without_a_full_stop() {
        fn check(command: &clap::Command) {
            let about = command.get_about().map(ToString::to_string);
            let args = command.get_arguments().filter_map(|arg| arg.get_help());
            for text in about.into_iter().chain(args.map(ToString::to_string)) {
                assert!(!text.ends_with('.'), "{}: {text}", command.get_name());
                assert!(
                    text.starts_with(|first: char| first.is_uppercase()),
                    "{text}"
                );
            }
            if command.get_name() != "help" {
                assert!(
                    command.get_about().is_some(),
                    "{} says nothing",
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(line.split_whitespace()).unwrap()
    }

    #[test]
    fn json_is_found_before_parsing() {
        let asks = |line: &str| {
            let given: Vec<OsString> = line.split_whitespace().map(Into::into).collect();
            asks_for_json(&given)
        };
        assert!(asks("stead nonsense --json"));
        assert!(!asks("stead search -- --json"));
        assert!(!asks("--json list"));
        assert!(parse("stead list --json").global.json);
        assert!(parse("stead --json list").global.json);
    }

    #[test]
    fn several_values_come_with_commas_or_repeated() {
        let Command::List(list) =
            parse("stead list --status ready,review --status blocked --tag a,b").command
        else {
            panic!("not a list")
        };
        assert_eq!(list.filters.status, ["ready", "review", "blocked"]);
        assert_eq!(list.filters.tag, ["a", "b"]);
    }

    #[test]
    fn block_names_a_task_and_the_label_goes_before_it() {
        let cli = parse("stead --by claude block X --reason r --by Y");
        assert_eq!(cli.by.as_deref(), Some("claude"));
        let Command::Block(block) = cli.command else {
            panic!("not a block")
        };
        assert_eq!(block.by.as_deref(), Some("Y"));
    }

    #[test]
    fn leases_are_lengths_with_units() {
        let Command::Claim(claim) = parse("stead claim X --lease 90m").command else {
            panic!("not a claim")
        };
        assert_eq!(claim.lease, Some(5400));
        for wrong in [
            "stead claim X --lease 90",
            "stead claim X --lease h",
            "stead claim",
            "stead claim X -p y",
        ] {
            assert!(
                Cli::try_parse_from(wrong.split_whitespace()).is_err(),
                "{wrong}"
            );
        }
    }
}
