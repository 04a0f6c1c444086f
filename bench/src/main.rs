//! Side-by-side benchmarks, all on the data of one seeded generator.

mod board;
mod generate;
mod mcp;
mod measure;
mod store;
mod words;

use clap::{Parser, Subcommand};

/// Answers are many small texts and maps, made by one thread and freed by another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks of Stead, each figure a ratio against a peer in the same run where there is one
#[derive(Debug, Parser)]
#[command(name = "stead-bench", version)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Measure the agents' face: a call over stdio and HTTP against the handle, throughput, memory
    Mcp(mcp::Options),
    /// Measure the store: start, write, read, size, memory
    Store(store::Options),
    /// Open a home, list, write once, and say how long it took; run by `store` in a process of its own
    #[command(hide = true)]
    Open(store::OpenOptions),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().bench {
        Bench::Mcp(options) => mcp::run(&options),
        Bench::Store(options) => store::run(&options),
        Bench::Open(options) => store::open(&options),
    }
}
