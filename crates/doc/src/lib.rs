//! What a Stead board means: documents, objects, revisions, conflicts, and the commands on them.
//!
//! No IO, clock, randomness, threads or async: `now` and entropy are arguments, and the state is
//! read through [`view::View`]. Nothing here opens an Automerge document; changes are authored
//! and applied from op ids alone, which a differential test holds equal to Automerge.
//!
//! A write goes through, in this order: [`board::evaluate`] turns arguments, view, time and
//! entropy into an [`board::Outcome`]; [`board::Effect::draft`] and [`change::Change::author`]
//! make one change of it; [`row::Row::apply`] applies it. A change from elsewhere goes through
//! [`change::Change::decode`], [`verdict::judge`] and [`row::Row::apply`].

#![cfg_attr(
    not(test),
    warn(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic
    )
)]

pub mod arguments;
pub mod board;
pub mod change;
pub mod conflict;
pub mod context;
pub mod document;
pub mod export;
mod fields;
pub mod fit;
pub mod graph;
pub mod hlc;
pub mod id;
pub mod limits;
pub mod message;
pub mod present;
pub mod refusal;
pub mod revision;
pub mod row;
pub mod scalar;
pub mod schema;
pub mod stale;
pub mod verdict;
pub mod view;
