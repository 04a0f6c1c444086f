//! Arguments of the board's commands.

use clap::{ArgGroup, Args, Subcommand, builder::NonEmptyStringValueParser};

/// What goes with every command that writes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct Mutation {
    /// Make a retry safe: the same key with the same content is done once
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) idempotency_key: Option<String>,

    /// Note who is behind this, beside the credential; shown, never believed
    #[arg(long, value_name = "LABEL")]
    pub(crate) by: Option<String>,
}

/// The revision that a write is based on.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct Revision {
    /// Write only if this is still the revision; left out, the current one is read and used
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
}

/// The conflicts that a write settles.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct Resolves {
    /// Settle the open conflict of this field with the value given
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) resolves: Vec<String>,
}

/// The fields of a task that can be given at its creation and later.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Fields")]
pub(crate) struct Fields {
    /// Set the long text; - reads stdin, @FILE a file, @@x is a literal @x
    #[arg(long, value_name = "TEXT")]
    pub(crate) body: Option<String>,

    /// Set the notes; - and @FILE as for the body
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,

    /// Set the priority: urgent, high, medium, low, lowest, or 0 to 4
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Option<String>,

    /// Set the type: task, bug, feature, epic, chore
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,

    /// Set the tags; none takes all away
    #[arg(long = "tag", value_name = "TAG", value_delimiter = ',')]
    pub(crate) tags: Vec<String>,

    /// Add a criterion; repeat for more
    #[arg(long = "criterion", value_name = "TEXT")]
    pub(crate) criteria: Vec<String>,

    /// Set what must be done first; none takes all of it away
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) depends_on: Vec<String>,

    /// Put it under another task; none takes it out
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,

    /// Give it to somebody: an email, an agent's name or me; none takes it away
    #[arg(long, value_name = "WHO")]
    pub(crate) assignee: Option<String>,

    /// Put it in a sprint; none takes it out
    #[arg(long, value_name = "ID")]
    pub(crate) sprint: Option<String>,

    /// Set when it is due, as 2026-12-31 or with a time; none clears it
    #[arg(long, value_name = "DAY")]
    pub(crate) due: Option<String>,

    /// Set the number that orders it by hand
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) rank: Option<f64>,

    /// Set the branch that it is done on
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,

    /// Set the place that it is about, as path:line
    #[arg(long, value_name = "PLACE")]
    pub(crate) anchor: Option<String>,

    /// Set what belongs to it elsewhere, as links or keys; none takes them away
    #[arg(long = "ref", value_name = "REF")]
    pub(crate) refs: Vec<String>,

    /// Set an entry of the state; an empty value deletes it
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) state: Vec<String>,

    /// Set a field of your own; an empty value deletes it
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) custom: Vec<String>,
}

/// Creates a task.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead create 'Fix the login' -p web --priority high --tag auth,ios
  stead create 'Write the guide' -p web --body @guide.md --depends-on ID
  git log -1 --format=%B | stead create 'Review the last commit' -p web --body -")]
pub(crate) struct Create {
    /// Say in one line what is to be done
    pub(crate) title: String,

    /// Put it in this project, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Start with this status instead of ready
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Option<String>,

    /// Say why it starts as blocked
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Say why it is created as abandoned
    #[arg(long, value_name = "TEXT")]
    pub(crate) abandon_reason: Option<String>,

    /// Start it although what it depends on is not done; this is recorded
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) fields: Fields,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// What to list.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Filters {
    /// Look in this project alone, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Filter by status, or by a group: active, open, closed, any
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    pub(crate) status: Vec<String>,

    /// Filter by who has it: an email, an agent's name, me or none
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    pub(crate) assignee: Vec<String>,

    /// Filter by sprint: an id, active or none
    #[arg(long, value_name = "SPRINT")]
    pub(crate) sprint: Option<String>,

    /// Filter by tag
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    pub(crate) tag: Vec<String>,

    /// Filter by type
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) kind: Vec<String>,

    /// List the children of this task
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,

    /// List what changed since then: a time, or a cursor of this node
    #[arg(long, value_name = "TIME")]
    pub(crate) updated_since: Option<String>,

    /// Order by priority, created, updated, due or rank; -created reverses
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub(crate) order: Option<String>,

    /// List at most this many, up to 200
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: Option<u32>,

    /// Go on where the last page ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Lists tasks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead list -p web --status ready,blocked --assignee me
  stead list --status closed --order -updated --limit 50
  stead list --conflicted")]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) filters: Filters,

    /// Find words in title, body and notes
    #[arg(long, value_name = "WORDS")]
    pub(crate) query: Option<String>,

    /// List those with open conflicts
    #[arg(long)]
    pub(crate) conflicted: bool,

    /// List what can be taken up now
    #[arg(long)]
    pub(crate) next: bool,
}

/// Finds tasks.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Find these words, in any order
    #[arg(required = true, value_name = "WORDS")]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) filters: Filters,
}

/// Shows tasks.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead show ID
  stead show 7QK           A unique beginning of an id is enough to read
  stead show ID --view brief")]
pub(crate) struct Show {
    /// Show these, by id or a unique beginning of it
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,

    /// Show another view: full, summary, brief, history
    #[arg(long, value_name = "VIEW")]
    pub(crate) view: Option<String>,

    /// Go on with a long body from here
    #[arg(long, value_name = "BYTES")]
    pub(crate) body_offset: Option<u64>,
}

/// Changes fields.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead update ID --priority urgent --assignee me
  stead update ID --body @plan.md --revision REVISION
  stead update ID --add-tag auth --remove-tag triage
  stead update ID --title 'My title' --resolves title")]
pub(crate) struct Update {
    /// Change this task
    pub(crate) id: String,

    /// Set the title
    #[arg(long, value_name = "TEXT", help_heading = "Fields")]
    pub(crate) title: Option<String>,

    #[command(flatten)]
    pub(crate) fields: Fields,

    /// Set what came of it; - and @FILE as for the body
    #[arg(long, value_name = "TEXT", help_heading = "Fields")]
    pub(crate) result: Option<String>,

    /// Add a tag, keeping the others
    #[arg(
        long,
        value_name = "TAG",
        value_delimiter = ',',
        help_heading = "Fields"
    )]
    pub(crate) add_tag: Vec<String>,

    /// Remove a tag
    #[arg(
        long,
        value_name = "TAG",
        value_delimiter = ',',
        help_heading = "Fields"
    )]
    pub(crate) remove_tag: Vec<String>,

    /// Mark a criterion as met, by its id
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        help_heading = "Fields"
    )]
    pub(crate) check: Vec<String>,

    /// Mark a criterion as not met
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        help_heading = "Fields"
    )]
    pub(crate) uncheck: Vec<String>,

    /// Take a criterion away
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        help_heading = "Fields"
    )]
    pub(crate) drop_criterion: Vec<String>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Changes a status.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead move ID in_progress
  stead move ID review --result 'In branch fix-login'
  stead move ID abandoned --abandon-reason 'Superseded by the new login'")]
pub(crate) struct Move {
    /// Move this task
    pub(crate) id: String,

    /// Give it this status: backlog, ready, in_progress, blocked, review, done, abandoned
    pub(crate) status: String,

    /// Say why; needed for blocked
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,

    /// Say why it is given up; needed for abandoned
    #[arg(long, value_name = "TEXT")]
    pub(crate) abandon_reason: Option<String>,

    /// Say what came of it; - reads stdin, @FILE a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) result: Option<String>,

    /// Name the digest of the children that you have read
    #[arg(long, value_name = "DIGEST")]
    pub(crate) children_seen: Option<String>,

    /// Start it although what it depends on is not done; this is recorded
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Takes a task.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["id", "project"])),
    after_help = "Examples:
  stead claim ID
  stead claim --project web --lease 2h    Take the next one; no two callers get the same"
)]
pub(crate) struct Claim {
    /// Take this task
    pub(crate) id: Option<String>,

    /// Take the next task of this project
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Hold it this long without a sign of life, as 30m, 4h or 2d
    #[arg(long, value_name = "LENGTH", value_parser = length)]
    pub(crate) lease: Option<i64>,

    /// Take it although somebody holds it or it waits for others; this is recorded
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Gives a task back.
#[derive(Debug, Args)]
pub(crate) struct Release {
    /// Give this task back
    pub(crate) id: String,

    /// Release it although somebody else holds it; this is recorded
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Ends a task.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stead close ID --reason 'Fixed in 1a2b3c'
  stead close ID --abandon --reason 'Nobody needs it any more'")]
pub(crate) struct Close {
    /// Close this task
    pub(crate) id: String,

    /// Say what came of it, or why it is abandoned; - reads stdin, @FILE a file
    #[arg(long, value_name = "TEXT", required_if_eq("abandon", "true"))]
    pub(crate) reason: Option<String>,

    /// Abandon it instead of finishing it
    #[arg(long)]
    pub(crate) abandon: bool,

    /// Name the digest of the children that you have read
    #[arg(long, value_name = "DIGEST")]
    pub(crate) children_seen: Option<String>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Comments.
#[derive(Debug, Args)]
pub(crate) struct Comment {
    /// Comment on this task
    pub(crate) id: String,

    /// Say this; - reads stdin, @FILE a file
    #[arg(allow_hyphen_values = true)]
    pub(crate) text: String,

    /// Answer this comment
    #[arg(long, value_name = "ID")]
    pub(crate) reply_to: Option<String>,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Blocks.
#[derive(Debug, Args)]
#[command(
    after_help = "A label of your own goes before the command here: stead --by LABEL block ID …"
)]
pub(crate) struct Block {
    /// Block this task
    pub(crate) id: String,

    /// Say why it cannot go on
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: String,

    /// Name the task that is in the way
    #[arg(long, value_name = "TASK")]
    pub(crate) by: Option<String>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    /// Make a retry safe: the same key with the same content is done once
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new(), help_heading = "Writing")]
    pub(crate) idempotency_key: Option<String>,
}

/// Unblocks.
#[derive(Debug, Args)]
pub(crate) struct Unblock {
    /// Unblock this task
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Links.
#[derive(Debug, Subcommand)]
pub(crate) enum Dep {
    /// Link a task to another: ID depends on TARGET
    Add(Link),
    /// Take a link away
    #[command(visible_alias = "remove")]
    Rm(Link),
    /// Show what a task waits for, and what those wait for
    Tree(DepTree),
}

/// One link.
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// Link from this task
    pub(crate) id: String,

    /// Link to this task
    pub(crate) target: String,

    /// Say how: depends_on, blocks, relates_to, duplicates, discovered_from, supersedes, tracks
    #[arg(long = "type", value_name = "TYPE", default_value = "depends_on")]
    pub(crate) kind: String,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// A tree of links.
#[derive(Debug, Args)]
pub(crate) struct DepTree {
    /// Start at this task, by id or a unique beginning of it
    pub(crate) id: String,

    /// Go at most this deep
    #[arg(long, value_name = "NUMBER")]
    pub(crate) depth: Option<u32>,
}

/// Shows history.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// Show the history of this, by id or a unique beginning of it
    pub(crate) id: String,

    /// Show this field alone, with its whole value at each change
    #[arg(long, value_name = "FIELD")]
    pub(crate) field: Option<String>,

    /// List at most this many, up to 200
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: Option<u32>,

    /// Go on where the last page ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// Lists conflicts.
#[derive(Debug, Args)]
pub(crate) struct Conflicts {
    /// Look in this project alone, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,
}

/// Decides a conflict.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("how").args(["choose", "value", "value_json"])),
    after_help = "Examples:
  stead conflicts                               List them with their values
  stead resolve ID title --choose 12@7QK2ZJ     Keep that one
  stead resolve ID title --value 'Both of it'   Write your own
  stead resolve ID title                        Acknowledge values that were lost"
)]
pub(crate) struct Resolve {
    /// Decide a conflict of this task or sprint
    pub(crate) id: String,

    /// Decide this field
    pub(crate) field: String,

    /// Keep the value of this name
    #[arg(long, value_name = "CHOICE")]
    pub(crate) choose: Option<String>,

    /// Write a text of your own; - reads stdin, @FILE a file
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,

    /// Write a JSON value of your own; null clears the field
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) value_json: Option<String>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Archives.
#[derive(Debug, Args)]
pub(crate) struct Archive {
    /// Archive this task or sprint
    pub(crate) id: String,

    /// Bring it back instead
    #[arg(long)]
    pub(crate) undo: bool,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Many at once.
#[derive(Debug, Args)]
#[command(
    after_help = "The file holds [{\"id\": …, \"status\": …, \"revision\": …, …}, …], at most 100 of them. It is not a
transaction: the answer names every one that moved and every one refused; with one refused the
exit code is 1.

Example:
  echo '[{\"id\":\"…\",\"status\":\"done\"}]' | stead batch -"
)]
pub(crate) struct Batch {
    /// Read this file; - reads stdin
    #[arg(default_value = "-")]
    pub(crate) file: String,

    /// Apply the entries as move or update
    #[arg(long, value_name = "ACTION", default_value = "update", value_parser = ["move", "update"])]
    pub(crate) action: String,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// A length of time in seconds: a number and s, m, h or d.
pub(super) fn length(text: &str) -> Result<i64, String> {
    let say = || "give a number and s, m, h or d, such as 30m or 4h".to_owned();
    let unit = text.chars().last().ok_or_else(say)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(say()),
    };
    let count: i64 = text
        .strip_suffix(unit)
        .and_then(|count| count.parse().ok())
        .ok_or_else(say)?;
    count.checked_mul(seconds).ok_or_else(say)
}
