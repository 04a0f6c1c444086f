//! Where logs go: to stderr what a person may want to see, and of a node everything, its audit trail
//! among it, to files in its home.

use std::io::IsTerminal as _;

use stead_node::http::AUDIT;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::{args::Cli, commands, local};

/// The library of the agents' protocol, which logs what clients write.
const PROTOCOL: &str = "rmcp";

/// Days of a node's log that are kept, one file each.
const DAYS: usize = 14;

/// The folder of them in a home.
const FOLDER: &str = "log";

/// Starts logging for a command.
pub(crate) fn start(cli: &Cli) {
    let serves = cli.command.serves();
    let filter = EnvFilter::try_from_env("STEAD_LOG").unwrap_or_else(|_| {
        EnvFilter::new(if serves {
            format!("info,{AUDIT}=warn,{PROTOCOL}=off")
        } else {
            "warn".to_owned()
        })
    });
    let stderr = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_filter(filter);
    let file = if serves { file(cli) } else { None };
    let file = file.map(|file| {
        fmt::layer()
            .with_writer(file)
            .with_ansi(false)
            .with_filter(EnvFilter::new(format!("info,{PROTOCOL}=off")))
    });
    tracing_subscriber::registry()
        .with(stderr)
        .with(file)
        .init();
}

/// The node's log, where it can be written; a node without one runs all the same.
fn file(cli: &Cli) -> Option<RollingFileAppender> {
    let home = commands::home(&cli.global).ok()?;
    if !local::is_made(&home) && !cli.command.makes_home() {
        return None;
    }
    let folder = home.join(FOLDER);
    stead_node::store::make_private_dir(&folder).ok()?;
    RollingFileAppender::builder()
        .rotation(Rotation::DAILY)
        .filename_prefix("node")
        .filename_suffix("log")
        .max_log_files(DAYS)
        .build(folder)
        .ok()
}
