//! The `stead` command: arguments in, one answer out. It starts and asks things; what they mean is
//! decided in the other crates.

mod args;
mod bridge;
mod client;
mod commands;
mod failure;
mod import;
mod local;
mod logs;
mod output;
mod setup;
mod text;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;

use crate::{args::Cli, output::Out};

/// Answers are many small texts and maps, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let given: Vec<OsString> = std::env::args_os().collect();
    let mut out = Out::standard(args::asks_for_json(&given));
    let ended = match Cli::try_parse_from(&given) {
        Ok(cli) => {
            logs::start(&cli);
            commands::run(cli, &mut out)
        }
        Err(error) => out.clap(&error),
    };
    ended.unwrap_or_else(|failure| out.failure(&failure)).into()
}
