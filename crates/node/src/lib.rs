//! x
mod search;
