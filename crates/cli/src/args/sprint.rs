//! Arguments of the commands about sprints.

use clap::{Args, Subcommand};

use super::{Mutation, Resolves, Revision};

/// Sprints.
#[derive(Debug, Subcommand)]
pub(crate) enum Sprint {
    /// Create a sprint
    Create(SprintCreate),
    /// List the active and planned sprints of a project
    List(SprintList),
    /// Show a sprint with its tasks
    Show(SprintShow),
    /// Change the name, goal or position of a sprint
    Update(SprintUpdate),
    /// Put a task in a sprint, or take it out with none
    Assign(SprintAssign),
    /// Make a sprint the active one of its project
    Activate(SprintActivate),
    /// Complete the active sprint
    Complete(SprintComplete),
}

/// Creates a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintCreate {
    /// Name it
    pub(crate) name: String,

    /// Put it in this project, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Say what it is for; - reads stdin, @FILE a file
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Lists sprints.
#[derive(Debug, Args)]
pub(crate) struct SprintList {
    /// List those of this project, by slug or id
    #[arg(short, long, value_name = "PROJECT")]
    pub(crate) project: String,
}

/// Shows a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintShow {
    /// Show this sprint, by id or a unique beginning of it
    pub(crate) id: String,
}

/// Changes a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintUpdate {
    /// Change this sprint
    pub(crate) id: String,

    /// Set the name
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,

    /// Set what it is for; none clears it
    #[arg(long, value_name = "TEXT")]
    pub(crate) goal: Option<String>,

    /// Set its place among the planned ones
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) position: Option<i64>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Puts a task in a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintAssign {
    /// Put this task
    pub(crate) id: String,

    /// Put it in this sprint, or none
    pub(crate) sprint: String,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) resolves: Resolves,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Activates a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintActivate {
    /// Activate this sprint
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}

/// Completes a sprint.
#[derive(Debug, Args)]
pub(crate) struct SprintComplete {
    /// Complete this sprint
    pub(crate) id: String,

    /// Move its open tasks to this sprint; left out they stay and are reported
    #[arg(long, value_name = "SPRINT")]
    pub(crate) move_open_to: Option<String>,

    #[command(flatten)]
    pub(crate) revision: Revision,

    #[command(flatten)]
    pub(crate) mutation: Mutation,
}
