//! The edge to the real world: its clock and its entropy. The core has neither.

use std::fmt::Debug;

/// Where time and entropy come from.
pub trait World: Debug + Send + Sync {
    /// Wall time in milliseconds since 1970.
    fn wall_ms(&self) -> i64;
    /// 32 fresh bytes.
    fn entropy(&self) -> [u8; 32];
}

/// The machine's own clock and entropy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl World for Machine {
    #[expect(clippy::disallowed_methods, reason = "the running node's edge")]
    fn wall_ms(&self) -> i64 {
        jiff::Timestamp::now().as_millisecond()
    }

    #[expect(
        clippy::disallowed_methods,
        clippy::expect_used,
        reason = "the running node's edge; without entropy no key and no id is safe"
    )]
    fn entropy(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).expect("the machine gives entropy");
        bytes
    }
}
