//! The node: the store, the core that owns it, and what runs them.
//!
//! The store and the core use no clock, entropy, socket or thread of their own; the edge
//! (`handle`, `http`, `home`) gives them time, entropy and files. The simulator drives the same
//! store and core.

pub mod api;
pub mod connections;
pub mod core;
pub mod edge;
pub mod handle;
pub mod home;
pub mod http;
pub mod network;
mod query;
mod search;
pub mod store;
