//! A query: words that must all occur, in any order.

use super::terms::{Word, each_word, folded, normalised, stem, word_terms};
use std::ops::ControlFlow;

/// What is searched for. Every term must occur.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    /// Distinct, never empty, in the order of the text.
    pub(super) terms: Vec<QueryTerm>,
}

/// One condition of a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum QueryTerm {
    /// This term.
    Exact(String),
    /// A word that starts so.
    Prefix {
        /// Any term that starts with this...
        start: String,
        /// ... or is one of these: stems, shorter than the prefix, of words that start with it.
        stems: Vec<String>,
    },
}

/// Why a text is no query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueryError {
    /// More than [`QUERY_CHARS_MAX`] characters.
    #[error("the query is longer than {QUERY_CHARS_MAX} characters")]
    TooLong,
    /// More than [`QUERY_TERMS_MAX`] distinct terms.
    #[error("the query has more than {QUERY_TERMS_MAX} words (the parts of an identifier count)")]
    TooManyTerms,
    /// Punctuation and single letters only: it would find nothing or everything.
    #[error("the query has no word to search for (single letters and punctuation are not indexed)")]
    NoWords,
}

impl Query {
    /// Reads a query. With `prefix` the last word also matches words that merely start with it (for text that is still being
    /// typed), unless it is shorter than [`PREFIX_CHARS_MIN`] or written without spaces.
    pub(crate) fn parse(text: &str, prefix: bool) -> Result<Self, QueryError> {
        if text.chars().nth(QUERY_CHARS_MAX).is_some() {
            return Err(QueryError::TooLong);
        }
        let text = normalised(text);
        let mut words = Vec::new();
        let _: ControlFlow<()> = each_word(&text, &mut |word| {
            words.push(word);
            ControlFlow::Continue(())
        });
        let open = words
            .last()
            .copied()
            .filter(|_| prefix)
            .and_then(prefix_term);
        if open.is_some() {
            words.pop();
        }
        let mut terms = Vec::new();
        for word in words {
            word_terms(word, &mut |term| {
                push_distinct(&mut terms, QueryTerm::Exact(term.to_owned()))
            });
            if terms.len() > QUERY_TERMS_MAX {
                return Err(QueryError::TooManyTerms);
            }
        }
        open.into_iter()
            .for_each(|term| push_distinct(&mut terms, term));
        match terms.len() {
            0 => Err(QueryError::NoWords),
            1..=QUERY_TERMS_MAX => Ok(Self { terms }),
            _ => Err(QueryError::TooManyTerms),
        }
    }
}

fn push_distinct(terms: &mut Vec<QueryTerm>, term: QueryTerm) {
    // At most 1,000 characters get here, so looking through the list is cheap.
    if !terms.contains(&term) {
        terms.push(term);
    }
}

fn prefix_term(word: Word<'_>) -> Option<QueryTerm> {
    let Word::Run(run) = word else { return None };
    let start = folded(run);
    start.chars().nth(PREFIX_CHARS_MIN - 1)?;
    let mut stems = Vec::new();
    let mut add = |word: &str| {
        let stem = stem(word).into_owned();
        if !stem.starts_with(&start) && !stem.is_empty() && !stems.contains(&stem) {
            stems.push(stem);
        }
    };
    // The index holds stems: "runni" begins "running", which is there as "run". So the word is tried as it is, with every ending
    // that it may have stopped in the middle of, and with every whole one ("stopp" begins "stopped").
    add(&start);
    for ending in ENDINGS {
        for (at, _) in ending.char_indices() {
            let (typed, missing) = ending.split_at(at);
            if start.ends_with(typed) {
                add(&format!("{start}{missing}"));
            }
        }
    }
    Some(QueryTerm::Prefix { start, stems })
}

/// A sentence or two; a longer text is pasted by mistake.
pub(crate) const QUERY_CHARS_MAX: usize = 1_000;
/// Each term is a list to walk; more than 16 words that must all occur find nothing anyway.
pub(crate) const QUERY_TERMS_MAX: usize = 16;
/// One letter starts a large part of all terms.
pub(crate) const PREFIX_CHARS_MIN: usize = 2;
/// English endings that the stemmer takes away.
const ENDINGS: [&str; 30] = [
    "able", "al", "ally", "ance", "ate", "ated", "ating", "ation", "ations", "ator", "ed", "ence",
    "ers", "es", "ful", "ible", "ied", "ies", "ing", "ings", "ions", "ities", "ity", "ive",
    "ization", "ized", "izing", "ments", "ness", "ously",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Vec<String> {
        let query = Query::parse(text, false).unwrap();
        query
            .terms
            .into_iter()
            .map(|term| match term {
                QueryTerm::Exact(term) => term,
                QueryTerm::Prefix { .. } => panic!("{text:?}"),
            })
            .collect()
    }

    #[test]
    fn a_query_is_cut_as_a_document_is() {
        assert_eq!(
            exact("Crashing  parse_changes crash"),
            ["crash", "parse_changes", "pars", "chang"]
        );
        assert_eq!(exact("数据 7"), ["数", "据", "7"]);
    }

    #[test]
    fn length_and_terms_are_bounded() {
        for unit in ["é", "a"] {
            assert!(Query::parse(&unit.repeat(QUERY_CHARS_MAX - 1), false).is_ok());
            assert!(Query::parse(&unit.repeat(QUERY_CHARS_MAX), true).is_ok());
            assert_eq!(
                Query::parse(&unit.repeat(QUERY_CHARS_MAX + 1), true),
                Err(QueryError::TooLong)
            );
            assert_eq!(
                Query::parse(&unit.repeat(100_000), false),
                Err(QueryError::TooLong)
            );
        }
        let words = |n: usize| (0..n).map(|i| format!("w{i} w{i} ")).collect::<String>();
        for prefix in [false, true] {
            assert_eq!(
                Query::parse(&words(QUERY_TERMS_MAX - 1), prefix)
                    .unwrap()
                    .terms
                    .len(),
                QUERY_TERMS_MAX - 1 + usize::from(prefix)
            );
            assert_eq!(
                Query::parse(&words(QUERY_TERMS_MAX), false)
                    .unwrap()
                    .terms
                    .len(),
                QUERY_TERMS_MAX
            );
            assert_eq!(
                Query::parse(&words(QUERY_TERMS_MAX + 1), prefix),
                Err(QueryError::TooManyTerms)
            );
        }
        assert_eq!(
            Query::parse(&words(QUERY_TERMS_MAX), true),
            Err(QueryError::TooManyTerms),
            "w15 and w15..."
        );
        assert_eq!(
            Query::parse(&"字".repeat(1000), false).unwrap().terms.len(),
            1
        );
        let worst = "\u{fdfa}".repeat(QUERY_CHARS_MAX);
        assert!(Query::parse(&worst, true).is_ok());
        let parts = "abCd".repeat(QUERY_CHARS_MAX / 4);
        assert!(Query::parse(&parts, false).is_ok());
    }

    #[test]
    fn nothing_to_search_for_is_said() {
        for text in ["", " ", "?!", "a", "C++", "👍", "\0"] {
            for prefix in [false, true] {
                assert_eq!(
                    Query::parse(text, prefix),
                    Err(QueryError::NoWords),
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn only_the_last_word_is_open_and_only_if_long_enough() {
        let last = |text| Query::parse(text, true).unwrap().terms.pop().unwrap();
        assert!(matches!(last("crash pa"), QueryTerm::Prefix { start, .. } if start == "pa"));
        assert!(matches!(last("Crash getUs"), QueryTerm::Prefix { start, .. } if start == "getus"));
        assert_eq!(last("crash p"), QueryTerm::Exact("crash".into()));
        assert_eq!(last("crash 7"), QueryTerm::Exact("7".into()));
        assert_eq!(last("crash 数"), QueryTerm::Exact("数".into()));
        assert_eq!(
            Query::parse("crash pa", true).unwrap().terms[0],
            QueryTerm::Exact("crash".into())
        );
    }

    #[test]
    fn every_beginning_of_a_word_finds_it() {
        let words = "running configuration connections happiness cities relational authentication deployments validating stopped \
                     migrations dependencies cancellation asynchronously searchable documents releases queries merged rewriting \
                     invoices failures permissions generalization hopefully caching updated referring initialized";
        for word in words.split(' ') {
            let term = stem(word).into_owned();
            for end in PREFIX_CHARS_MIN..=word.len() {
                let Ok(Query { terms }) = Query::parse(&word[..end], true) else {
                    panic!()
                };
                let QueryTerm::Prefix { start, stems } = &terms[0] else {
                    panic!()
                };
                assert!(
                    term.starts_with(start.as_str()) || stems.contains(&term),
                    "{} of {word} ({term}): {stems:?}",
                    &word[..end]
                );
            }
        }
    }
}
