//! The revision of an object: its version vector, shown so that any node can judge it.

use std::{cmp::Reverse, fmt, str::FromStr};

use crate::{
    id::{ActorId, ActorTag, base32, from_base32},
    row::Row,
};

/// A revision as a caller holds it: a check over all touching changes, and for the (at most four)
/// newest actors the last change that touched the object.
///
/// Shown as `<check>.<actor tag><seq>-<actor tag><seq>...`, with `+` at the end where more actors
/// touched the object than are shown. Equal on every node that holds the same changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Revision {
    /// 30 bits of the order-independent sum over the touching changes.
    pub check: u32,
    /// Actor tags with the seq of their last touching change, newest first.
    pub entries: Vec<(ActorTag, u64)>,
    /// Whether there are more actors than entries.
    pub more: bool,
}

impl Revision {
    /// Actors that a shown revision names.
    pub const SHOWN: usize = 4;
    const CHECK_LEN: usize = 6;

    /// The revision of an object.
    pub fn of(row: &Row) -> Self {
        let mut entries: Vec<_> = row
            .touched
            .iter()
            .map(|(actor, touch)| (Reverse(touch.max_op), actor, touch.seq))
            .collect();
        entries.sort_unstable();
        Self {
            check: check_of(row.sum),
            more: entries.len() > Self::SHOWN,
            entries: entries
                .into_iter()
                .take(Self::SHOWN)
                .map(|(_, actor, seq)| (actor.tag(), seq))
                .collect(),
        }
    }

    /// The seq up to which the revision covers an actor, where it names it.
    pub fn covers(&self, actor: ActorId) -> Option<u64> {
        let tag = actor.tag();
        self.entries
            .iter()
            .find(|(entry, _)| *entry == tag)
            .map(|(_, seq)| *seq)
    }
}

/// The 30 bits of a sum that a revision shows.
pub fn check_of(sum: u128) -> u32 {
    (sum & ((1 << 30) - 1)) as u32
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", base32(u64::from(self.check), Self::CHECK_LEN))?;
        for (index, (tag, seq)) in self.entries.iter().enumerate() {
            let dash = if index == 0 { "" } else { "-" };
            write!(f, "{dash}{tag}{seq}")?;
        }
        if self.more { f.write_str("+") } else { Ok(()) }
    }
}

impl FromStr for Revision {
    type Err = InvalidRevision;

    fn from_str(text: &str) -> Result<Self, InvalidRevision> {
        let (check, rest) = text.trim().split_once('.').ok_or(InvalidRevision)?;
        if check.len() != Self::CHECK_LEN {
            return Err(InvalidRevision);
        }
        let check = from_base32(check)
            .and_then(|bits| u32::try_from(bits).ok())
            .ok_or(InvalidRevision)?;
        let (rest, more) = match rest.strip_suffix('+') {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        let entries = rest.split('-').map(entry).collect::<Result<Vec<_>, _>>()?;
        if entries.len() > Self::SHOWN {
            return Err(InvalidRevision);
        }
        Ok(Self {
            check,
            entries,
            more,
        })
    }
}

fn entry(text: &str) -> Result<(ActorTag, u64), InvalidRevision> {
    let (tag, seq) = text
        .split_at_checked(ActorTag::LEN)
        .ok_or(InvalidRevision)?;
    if seq.is_empty() || !seq.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidRevision);
    }
    Ok((
        tag.parse().map_err(|_| InvalidRevision)?,
        seq.parse().map_err(|_| InvalidRevision)?,
    ))
}

/// A text that no node ever gave as a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a revision; copy it from the object as you last read it")]
pub struct InvalidRevision;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Touch;

    fn row(actors: u8) -> Row {
        let touched = (1..=actors)
            .map(|n| {
                (
                    ActorId([n * 16; 16]),
                    Touch {
                        max_op: u64::from(n),
                        seq: u64::from(n) + 10,
                    },
                )
            })
            .collect();
        Row {
            touched,
            sum: u128::MAX - 5,
            ..Row::default()
        }
    }

    #[test]
    fn revisions_survive_a_round_trip_and_show_the_newest_four() {
        for actors in 1..=6 {
            let revision = Revision::of(&row(actors));
            assert_eq!(revision.to_string().parse::<Revision>().unwrap(), revision);
            assert_eq!(revision.more, actors > 4);
            assert_eq!(revision.entries[0].1, u64::from(actors) + 10);
            assert_eq!(revision.entries.len(), usize::from(actors.min(4)));
        }
    }

    #[test]
    fn what_is_not_a_revision_is_refused() {
        let good = Revision::of(&row(2)).to_string();
        assert!(good.parse::<Revision>().is_ok());
        for bad in [
            "",
            "x",
            "abcdef",
            "abcdef.",
            "abcde.00000:1",
            "abcdef.000001-",
            "abcdef.00000",
            "abcdefg.000001",
        ] {
            assert_eq!(bad.parse::<Revision>(), Err(InvalidRevision), "{bad}");
        }
        assert!(
            format!("{good}-000001-000001-000001")
                .parse::<Revision>()
                .is_err()
        );
    }
}
