//! Text search: which objects have all the words of a query, best first.
//!
//! The words of settled texts are in posting blocks on disk ([`merge`], off the write path); those of texts that changed since are in
//! memory ([`HotIndex`]) and hide the settled version of the same object. [`search`] answers from both as if they were one. It knows
//! nothing about what an object is, who may see it, or when a merge is due: the caller does.
//!
//! Order is BM25 and then the object's key. It depends on what this node has superseded since the last rebuild, so it is the
//! same for the same index but not on every node; which objects match does not depend on it.

mod bm25;
mod cold;
mod hot;
mod postings;
mod query;
mod terms;

pub(crate) use cold::{Cold, Merger, merge};
pub(crate) use hot::HotIndex;
pub(crate) use query::{QUERY_CHARS_MAX, Query, QueryError};
pub(crate) use terms::{Field, IndexedText};

use bm25::{Bm25, Corpus};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// What is found: opaque to the index, and the last word in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey(pub(crate) [u8; 12]);

/// One result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hit {
    /// The object.
    pub(crate) key: ObjectKey,
    /// Greater is better; comparable within one answer only.
    pub(crate) score: f32,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// The best objects that passed the filter, best first.
    pub(crate) hits: Vec<Hit>,
    /// How many objects match, before the filter; exact up to [`MATCHES_COUNTED_MAX`], which stands for "that many or more".
    pub(crate) matches: usize,
    /// A prefix begins more words than are looked at, so there may be more.
    pub(crate) prefix_cut: bool,
}

/// All objects that match a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matches {
    /// Ascending.
    pub(crate) keys: Vec<ObjectKey>,
    /// There may be more: [`MATCHES_MAX`] or the bound on a prefix was reached.
    pub(crate) cut: bool,
}

/// The index could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TextError {
    /// Stored bytes make no sense; the index can be rebuilt from the texts.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The index was written in another format; rebuild it.
    #[error("the text index has format {found}")]
    OtherFormat {
        /// The format it has.
        found: u16,
    },
    /// No more document numbers; rebuild, which drops the superseded ones.
    #[error("the text index has no document numbers left")]
    Full,
    /// The store failed.
    #[error("text index: {0}")]
    Storage(#[from] redb::StorageError),
    /// A table of the index could not be opened.
    #[error("text index: {0}")]
    Table(#[source] Box<redb::TableError>),
}

impl From<redb::TableError> for TextError {
    fn from(error: redb::TableError) -> Self {
        match error {
            redb::TableError::Storage(error) => Self::Storage(error),
            error => Self::Table(Box::new(error)),
        }
    }
}

/// Where bytes of the index on disk make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the text index is damaged ({0})")]
pub(crate) struct Damaged(&'static str);

/// The best `limit` objects that match and pass the filter.
///
/// `filter` must be a pure condition. It is asked about matches from the best down until `limit` passed, and about no others: the
/// result is exactly the top of what passes, and the cost is that of the matches it refuses above the last hit. `limit` is held to
/// [`RESULTS_MAX`].
pub(crate) fn search(
    cold: &Cold,
    hot: &HotIndex,
    query: &Query,
    limit: usize,
    filter: &mut dyn FnMut(&ObjectKey) -> bool,
) -> Result<Found, TextError> {
    let mut matching = Vec::new();
    let mut matches = 0;
    let prefix_cut = each_match(cold, hot, query, &mut |key, score, is_cold| {
        // Looking every match up in the hot index would cost more than finding it, so beyond the count only those that come
        // to the top are.
        if is_cold && matches < MATCHES_COUNTED_MAX && hot.contains(&key) {
            return ControlFlow::Continue(());
        }
        matches = (matches + 1).min(MATCHES_COUNTED_MAX);
        matching.push(Candidate {
            score,
            key,
            is_cold,
        });
        ControlFlow::Continue(())
    })?;
    let mut best = BinaryHeap::from(matching);
    let limit = limit.min(RESULTS_MAX);
    let mut hits = Vec::new();
    while hits.len() < limit
        && let Some(Candidate {
            score,
            key,
            is_cold,
        }) = best.pop()
    {
        if !(is_cold && hot.contains(&key)) && filter(&key) {
            hits.push(Hit { key, score });
        }
    }
    Ok(Found {
        hits,
        matches,
        prefix_cut,
    })
}

/// All objects that match, for a caller that orders them by something else.
pub(crate) fn matches(cold: &Cold, hot: &HotIndex, query: &Query) -> Result<Matches, TextError> {
    let mut keys = Vec::new();
    let mut cut = false;
    cut |= each_match(cold, hot, query, &mut |key, _, is_cold| {
        if is_cold && hot.contains(&key) {
            return ControlFlow::Continue(());
        }
        if keys.len() == MATCHES_MAX {
            cut = true;
            return ControlFlow::Break(());
        }
        keys.push(key);
        ControlFlow::Continue(())
    })?;
    keys.sort_unstable();
    Ok(Matches { keys, cut })
}

/// Calls `found` with each match and its score, in no order the caller may rely on; those on disk (`true`) may be hidden by the index in
/// memory. Tells whether a prefix was cut.
fn each_match(
    cold: &Cold,
    hot: &HotIndex,
    query: &Query,
    found: &mut dyn FnMut(ObjectKey, f32, bool) -> ControlFlow<()>,
) -> Result<bool, TextError> {
    let plan = cold.plan(query)?;
    let prefix_cut = plan.prefix_cut;
    let frequencies: Vec<u64> = query
        .terms
        .iter()
        .enumerate()
        .map(|(at, term)| plan.frequency(at) + hot.frequency(term))
        .collect();
    let corpus = Corpus {
        counted: u64::from(cold.counted()) + u64::from(hot.texts()),
        live: u64::from(cold.live()) + u64::from(hot.texts()),
        length: cold.length() + hot.length(),
    };
    let bm25 = Bm25::new(corpus, &frequencies);
    let mut flow = ControlFlow::Continue(());
    hot.run(query, &mut |key, code, frequencies| {
        if flow.is_continue() {
            flow = found(key, bm25.score(frequencies, code), false);
        }
    });
    if flow.is_continue() {
        plan.run(&mut |key, code, frequencies| found(key, bm25.score(frequencies, code), true))?;
    }
    Ok(prefix_cut)
}

/// A match on its way to the top; the greatest is the best.
#[derive(Debug, PartialEq)]
struct Candidate {
    score: f32,
    key: ObjectKey,
    is_cold: bool,
}

impl Eq for Candidate {}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then_with(|| other.key.cmp(&self.key))
            .then_with(|| self.is_cold.cmp(&other.is_cold))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// More than anyone reads, and than a page of the widest surface (200 rows) needs with a good number of pages before it.
pub(crate) const RESULTS_MAX: usize = 10_000;
/// "1,000 or more" is enough to say to somebody who should add a word.
pub(crate) const MATCHES_COUNTED_MAX: usize = 1_000;
/// Every object of the largest board that this is built for; 1.2 MB.
pub(crate) const MATCHES_MAX: usize = 100_000;

#[cfg(test)]
mod tests;
