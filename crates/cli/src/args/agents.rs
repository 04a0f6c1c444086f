//! Arguments of the commands that agents start with.

use clap::Args;

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
