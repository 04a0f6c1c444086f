//! Black-box tests of the `stead` binary on real files, sockets and processes.

#[path = "black_box/stead.rs"]
mod stead;
