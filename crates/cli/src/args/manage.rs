//! Arguments of the commands about the workspace, its people, its store and its node.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

/// What a new workspace is made of.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Making {
    /// Name the workspace
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Name its first member; left out, the user of this machine
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,

    /// Set the member's email address
    #[arg(long, value_name = "EMAIL")]
    pub(crate) email: Option<String>,

    /// Make this project first; left out, `up` makes "main"
    #[arg(long, value_name = "SLUG")]
    pub(crate) project: Option<String>,
}

/// The one command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead up
  stead up --name Acme --member Ada --email ada@example.com --project web")]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) making: Making,

    #[command(flatten)]
    pub(crate) listening: Listening,
}

/// Where a node listens, and to whom.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Listening {
    /// Listen on this port of this machine; left out, any free one
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Answer also to this host name, with or without a port; may be repeated
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,

    /// Serve agents beyond this machine too, at this address; needs a certificate
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,

    /// Show this certificate chain there (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key"], conflicts_with = "plain_http")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Use this private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve there without TLS: everybody on the way reads tokens and tasks, and can write with them
    #[arg(long, requires = "listen")]
    pub(crate) plain_http: bool,
}

/// Makes a workspace.
#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    pub(crate) making: Making,
}

/// The node as a service.
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Run the node in the foreground
    Run(NodeRun),
    /// Say whether a node runs, where, and how it is
    Status,
    /// Stop the running node
    Stop,
    /// Print a systemd unit that runs it
    Unit,
}

/// Runs a node.
#[derive(Debug, Args)]
pub(crate) struct NodeRun {
    #[command(flatten)]
    pub(crate) listening: Listening,

    /// End once no client was connected and nothing was asked for so long, such as 10m
    #[arg(long, value_name = "TIME", value_parser = super::board::length)]
    pub(crate) idle_exit: Option<i64>,
}

/// Carries an agent's client to the node.
#[derive(Debug, Args)]
#[command(
    after_help = "Who asks is the local agent of --agent NAME (left out: agent, which stead up made), or the
credential whose token is in STEAD_TOKEN. A client starts this by itself:
  claude mcp add stead -- stead mcp
  codex mcp add stead -- stead mcp --agent codex"
)]
pub(crate) struct Mcp {
    /// Show these toolsets: board
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = toolset)]
    pub(crate) toolsets: Vec<String>,

    /// Show only tools that change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
}

fn toolset(text: &str) -> Result<String, stead_mcp::UnknownToolset> {
    text.parse::<stead_mcp::Toolset>()
        .map(|set| set.as_str().to_owned())
}

/// Projects.
#[derive(Debug, Subcommand)]
pub(crate) enum Project {
    /// Add a project
    Add(ProjectAdd),
    /// List the projects
    #[command(visible_alias = "ls")]
    List,
}

/// Adds a project.
#[derive(Debug, Args)]
pub(crate) struct ProjectAdd {
    /// Call it this in commands: a-z, 0-9 and -
    pub(crate) slug: String,

    /// Call it this on the board
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Members.
#[derive(Debug, Subcommand)]
pub(crate) enum Member {
    /// Add a member
    Add(MemberAdd),
    /// Change a member's name, address, rights or responsibility
    Set(MemberSet),
    /// List the members
    #[command(visible_alias = "ls")]
    List,
}

/// Adds a member.
#[derive(Debug, Args)]
pub(crate) struct MemberAdd {
    /// Name the person
    pub(crate) name: String,

    /// Set the email address
    #[arg(long, value_name = "EMAIL")]
    pub(crate) email: Option<String>,

    /// Set the rights: owner, admin or member
    #[arg(long, value_name = "RANK", default_value = "member", value_parser = ["owner", "admin", "member"])]
    pub(crate) rank: String,

    /// Set the responsibility, which is advice and no right: lead, contributor or observer
    #[arg(long, value_name = "ROLE", default_value = "contributor", value_parser = ["lead", "contributor", "observer"])]
    pub(crate) role: String,
}

/// Changes a member.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("change").required(true).multiple(true).args(["name", "email", "rank", "role"])))]
pub(crate) struct MemberSet {
    /// Name the member, by name, address or id
    pub(crate) member: String,

    /// Give another name
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Give another email address; an empty one removes it
    #[arg(long, value_name = "EMAIL")]
    pub(crate) email: Option<String>,

    /// Give other rights: owner, admin or member
    #[arg(long, value_name = "RANK", value_parser = ["owner", "admin", "member"])]
    pub(crate) rank: Option<String>,

    /// Give another responsibility, which is advice and no right: lead, contributor or observer
    #[arg(long, value_name = "ROLE", value_parser = ["lead", "contributor", "observer"])]
    pub(crate) role: Option<String>,
}

/// Agents.
#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    /// Add an agent; its token is shown once
    Add(AgentAdd),
    /// List the agents
    #[command(visible_alias = "ls")]
    List,
    /// Take an agent's rights away for good
    Revoke(AgentRevoke),
}

/// Adds an agent.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead agent add claude --local                     For agents on this machine: stead --agent claude …
  stead agent add ci --scopes tasks:read --projects web")]
pub(crate) struct AgentAdd {
    /// Name the agent
    pub(crate) name: String,

    /// Let it work for this member instead of yourself
    #[arg(long, value_name = "WHO")]
    pub(crate) member: Option<String>,

    /// Give it these rights alone: tasks:read, tasks:write, projects:write, members:write, workspace:admin
    #[arg(long, value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<String>,

    /// Let it reach these projects alone
    #[arg(long, value_name = "PROJECT", value_delimiter = ',')]
    pub(crate) projects: Vec<String>,

    /// Make no token: the name is enough on this machine
    #[arg(long)]
    pub(crate) local: bool,
}

/// Revokes an agent.
#[derive(Debug, Args)]
pub(crate) struct AgentRevoke {
    /// Revoke the agent of this name
    pub(crate) name: String,
}

/// Imports.
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    /// Bring in the issues of a Beads export, one JSON object a line
    Beads(ImportBeads),
}

/// Imports from Beads.
#[derive(Debug, Args)]
#[command(
    after_help = "Importing again is safe: it changes what changed there, and nothing that was changed here.

Example:
  bd export > issues.jsonl && stead import beads issues.jsonl --project web --dry-run"
)]
pub(crate) struct ImportBeads {
    /// Read this file; - reads stdin
    pub(crate) file: String,

    /// Put the tasks in this project, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: String,

    /// Say what would happen and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How an export is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Everything, as canonical JSON
    Json,
    /// Issues, as Beads reads them
    Beads,
    /// The documents, as Automerge reads them
    Automerge,
}

impl Format {
    /// As the node knows it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Beads => "beads",
            Self::Automerge => "automerge",
        }
    }
}

/// Exports.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead export > board.json
  stead export --format automerge -o board.automerge")]
pub(crate) struct Export {
    /// Write this format
    #[arg(long, value_enum, default_value = "json")]
    pub(crate) format: Format,

    /// Write this project alone, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Write to this file instead of stdout
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Backs up.
#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// Write to this file, which must not exist
    pub(crate) file: PathBuf,
}

/// Restores.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stead --home ~/restored restore backup.stead")]
pub(crate) struct Restore {
    /// Read this backup
    pub(crate) file: PathBuf,
}

/// Checks the store.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Rebuild what is derived from the log
    #[arg(long)]
    pub(crate) rebuild: bool,
}

/// Completions.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Complete for this shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}
