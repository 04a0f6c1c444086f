//! Black-box tests of the `stead` binary on real files, sockets and processes.
//!
//! A test's name is the sentence that it shows. Nothing sleeps for a fixed time, listens on a fixed
//! port, or ends a process that it did not start; everything that waits has a bound.

#[path = "black_box/agents.rs"]
mod agents;
#[path = "black_box/bridge.rs"]
mod bridge;
#[path = "black_box/client.rs"]
mod client;
#[path = "black_box/damaged.rs"]
mod damaged;
#[path = "black_box/edge.rs"]
mod edge;
#[path = "black_box/grammar.rs"]
mod grammar;
#[path = "black_box/home.rs"]
mod home;
#[path = "black_box/import.rs"]
mod import;
#[path = "black_box/issues.rs"]
mod issues;
#[path = "black_box/killed.rs"]
mod killed;
#[path = "black_box/mcp.rs"]
mod mcp;
#[path = "black_box/prime.rs"]
mod prime;
#[path = "black_box/retry.rs"]
mod retry;
#[path = "black_box/seed.rs"]
mod seed;
#[path = "black_box/setup.rs"]
mod setup;
#[path = "black_box/stale.rs"]
mod stale;
#[path = "black_box/stead.rs"]
mod stead;
#[path = "black_box/together.rs"]
mod together;

#[test]
fn no_file_beside_this_one_is_forgotten() {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let named = std::fs::read_to_string(place.join("black_box.rs")).unwrap();
    for entry in std::fs::read_dir(place.join("black_box")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            named.contains(&format!("#[path = \"black_box/{name}\"]")),
            "tests/black_box/{name} is part of no test"
        );
    }
}
