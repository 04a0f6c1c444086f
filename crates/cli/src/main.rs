//! The `stead` command: arguments in, one answer out. It starts and asks things; what they mean is
//! decided in the other crates.

mod args;
mod client;
mod commands;
mod failure;
mod import;
mod local;
mod output;
mod setup;
mod text;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;

use crate::{args::Cli, output::Out};

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let mut out = Out::standard(args::asks_for_json(&given));
    let ended = match Cli::try_parse_from(&given) {
        Ok(cli) => {
            logs(cli.command.serves());
            commands::run(cli, &mut out)
        }
        Err(error) => out.clap(&error),
    };
    ended.unwrap_or_else(|failure| out.failure(&failure)).into()
}

/// Logs go to stderr; a node that runs says more than a command that asks.
fn logs(serves: bool) {
    let default = if serves { "info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("STEAD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
}
