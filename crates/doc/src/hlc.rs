//! The hybrid logical clock: for display and order, never for a rule.

/// 48 bits of milliseconds since 1970 and 16 bits that count events within one of them.
///
/// Stored as it was made. A clock that is ahead makes stamps that are ahead; they are clamped when
/// they are shown ([`Hlc::shown`]) and in no other place, so that no change is ever refused or
/// lost for its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Hlc(pub u64);

impl Hlc {
    /// The next stamp of a node whose newest stamp is `self`, at wall time `now` in milliseconds
    /// since 1970 (negative before it).
    pub fn tick(self, now: i64) -> Self {
        let wall = Self::from_millis(now);
        if wall > self {
            wall
        } else {
            Self(self.0.saturating_add(1))
        }
    }

    /// The newest stamp after hearing `remote`: a remote stamp moves this clock only when it is
    /// not further ahead than [`Self::TOLERATED_MS`], so that one wild clock does not drag all
    /// others with it.
    pub fn heard(self, remote: Self, now: i64) -> Self {
        if remote.millis() <= now.saturating_add(Self::TOLERATED_MS) {
            self.max(remote)
        } else {
            self
        }
    }

    /// Milliseconds since 1970 to show, for a change first seen here at `first_seen`.
    pub fn shown(self, first_seen: i64) -> i64 {
        self.millis()
            .min(first_seen.saturating_add(Self::TOLERATED_MS))
    }

    /// Milliseconds since 1970, as the maker had them.
    pub const fn millis(self) -> i64 {
        (self.0 >> 16) as i64
    }

    /// How far ahead of this node a stamp may be before it is shown as less: five minutes, as in
    /// Syncthing, Radicle and iroh-docs the bounds are between one and sixty.
    pub const TOLERATED_MS: i64 = 5 * 60 * 1000;

    fn from_millis(now: i64) -> Self {
        Self((now.clamp(0, (1 << 47) - 1) as u64) << 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_never_go_back() {
        let a = Hlc::default().tick(1_000);
        let b = a.tick(400);
        assert!(b > a);
        assert_eq!(b.millis(), 1_000);
        assert!(b.tick(-5) > b);
        assert_eq!(b.tick(2_000).millis(), 2_000);
    }

    #[test]
    fn a_stamp_from_a_wild_clock_is_not_followed_and_shown_clamped() {
        let now = 1_000_000;
        let wild = Hlc::default().tick(now + Hlc::TOLERATED_MS + 1);
        let mild = Hlc::default().tick(now + Hlc::TOLERATED_MS);
        let own = Hlc::default().tick(now);
        assert_eq!(own.heard(wild, now), own);
        assert_eq!(own.heard(mild, now), mild);
        assert_eq!(wild.shown(now), now + Hlc::TOLERATED_MS);
        assert_eq!(own.shown(now), now);
    }
}
