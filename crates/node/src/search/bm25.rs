//! BM25 with k1 1.2 and b 0.75: how well a document that has all the words answers a query.

/// The scoring of one query over one state of the index.
#[derive(Debug)]
pub(super) struct Bm25 {
    /// For each query term, inverse document frequency times (k1 + 1).
    weights: Vec<f32>,
    /// For each length code, k1 * (1 - b + b * length / mean length).
    norms: [f32; 256],
}

/// What BM25 needs to know about all the texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Corpus {
    /// Texts behind the document frequencies, superseded ones included.
    pub(super) counted: u64,
    /// Texts that can be found.
    pub(super) live: u64,
    /// Sum of the live texts' lengths, as quantised.
    pub(super) length: u64,
}

impl Bm25 {
    /// `frequencies`: for each query term, how many of the counted texts have it.
    pub(super) fn new(corpus: Corpus, frequencies: &[u64]) -> Self {
        let weights = frequencies.iter().map(|&df| {
            // A frequency beyond the count can only come from a damaged store; the logarithm must stay a number.
            let df = df.min(corpus.counted) as f64;
            ((1.0 + (corpus.counted as f64 - df + 0.5) / (df + 0.5)).ln() as f32) * (K1 + 1.0)
        });
        let mean = (corpus.length as f32 / corpus.live.max(1) as f32).max(1.0);
        let norms =
            std::array::from_fn(|code| K1 * (1.0 - B + B * length_of(code as u8) as f32 / mean));
        Self {
            weights: weights.collect(),
            norms,
        }
    }

    /// The score of a document with these term frequencies, in the query's order (so that a sum never depends on which term was
    /// the rarest, and a document scores the same in either index).
    pub(super) fn score(&self, frequencies: &[u8], length_code: u8) -> f32 {
        let norm = self.norms[usize::from(length_code)];
        let parts = self
            .weights
            .iter()
            .zip(frequencies)
            .map(|(weight, &tf)| weight * f32::from(tf) / (f32::from(tf) + norm));
        parts.sum()
    }
}

/// One byte for a length: exact below 16, then three significant bits after the leading one (at most 12.5% off). Monotonic.
pub(super) fn length_code(length: u32) -> u8 {
    let Some(shift) = length.checked_ilog2().unwrap_or(0).checked_sub(3) else {
        return length as u8;
    };
    (shift * 8 + (length >> shift)) as u8
}

/// The length a code stands for: the smallest that has it. Codes that [`length_code`] never makes are read as its longest.
pub(super) fn length_of(code: u8) -> u32 {
    let code = u32::from(code.min(LENGTH_CODE_MAX));
    if code < 16 {
        code
    } else {
        (8 + code % 8) << (code / 8 - 1)
    }
}

/// The code of `u32::MAX`.
pub(super) const LENGTH_CODE_MAX: u8 = 239;

/// How soon more occurrences stop to matter; the usual value, as in Lucene.
const K1: f32 = 1.2;
/// How much a long text is held against its occurrences; the usual value, as in Lucene.
const B: f32 = 0.75;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_survive_their_byte() {
        let mut previous = 0;
        for length in (0..100_000).chain([1 << 20, u32::MAX - 1, u32::MAX]) {
            let code = length_code(length);
            assert!(code >= previous);
            previous = code;
            let back = length_of(code);
            assert!(
                back <= length && u64::from(length - back) * 8 <= u64::from(length),
                "{length} {code} {back}"
            );
            assert_eq!(length_code(back), code);
            assert!(length >= 16 || back == length);
        }
        assert_eq!(length_code(u32::MAX), LENGTH_CODE_MAX);
        assert_eq!(length_of(255), length_of(LENGTH_CODE_MAX));
    }

    #[test]
    fn rare_words_frequent_mentions_and_short_texts_win() {
        let corpus = Corpus {
            counted: 1000,
            live: 1000,
            length: 50_000,
        };
        let score = |df, tf, length| Bm25::new(corpus, &[df]).score(&[tf], length_code(length));
        assert!(score(3, 1, 50) > score(300, 1, 50));
        assert!(score(3, 2, 50) > score(3, 1, 50));
        assert!(score(3, 1, 20) > score(3, 1, 200));
        assert!(
            score(1000, 1, 50) > 0.0,
            "a word that everything has still adds"
        );
        // By hand: ln(1 + 997.5 / 3.5) * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 48 / 50)).
        assert!(
            (score(3, 1, 50) - 5.7523).abs() < 0.02,
            "{}",
            score(3, 1, 50)
        );
    }

    #[test]
    fn nothing_makes_it_not_a_number() {
        for corpus in [
            Corpus {
                counted: 0,
                live: 0,
                length: 0,
            },
            Corpus {
                counted: 1,
                live: 0,
                length: u64::MAX,
            },
        ] {
            for df in [0, 1, u64::MAX] {
                for (tf, code) in [(0, 0), (255, 255), (1, 0)] {
                    let score = Bm25::new(corpus, &[df]).score(&[tf], code);
                    assert!(score.is_finite() && score >= 0.0);
                }
            }
        }
    }
}
