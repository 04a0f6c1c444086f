//! The agents' face: toolsets, resources and prompts over MCP, in both eras of the protocol.
//!
//! It translates: every rule is the node's. A server is made for one connection (a bridge, a
//! session of the older protocol) or one request, and asks the roster anew who its caller is each
//! time, so that a revoked credential and a changed role count from the next call on.

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

mod completions;
mod http;
mod instructions;
mod prompts;
mod registry;
mod reply;
mod resources;
mod schema;
mod server;
mod stream;
mod watch;

pub use http::{REQUEST_BYTES, SESSION_IDLE, SESSIONS, router, transport};
pub use registry::{Selection, Toolset, UnknownToolset};
pub use stream::{HELLO_BYTES, Hello, PROTOCOL};
