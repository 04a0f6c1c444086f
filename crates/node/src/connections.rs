//! Who is connected to this node right now: the bridges of agents' clients, with what each says of
//! its own process. Kept in memory alone; an overlay, never part of a document.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

/// Connections that one node keeps open; each holds a few buffers.
pub const CONNECTIONS: usize = 1_024;
/// Processes of a chain of parents that are kept.
pub const PARENTS: usize = 16;
/// Variables of a harness that are kept.
pub const VARIABLES: usize = 32;
/// Bytes of a name, a path or a value that a process reports.
pub const REPORT_BYTES: usize = 1_024;

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connection {
    /// The credential that it acts by.
    pub credential: String,
    /// The process at the other end, as it describes itself.
    pub process: Process,
    /// When it came, in milliseconds since 1970.
    pub since: i64,
}

/// A process, as it reports itself: shown and kept beside what it does, never believed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Its number on its machine.
    pub pid: u32,
    /// When it began, in seconds since 1970 by its machine's clock; 0 where that is not known.
    pub started_at: u64,
    /// Its parent, that one's parent, and so on.
    pub parents: Vec<Parent>,
    /// Where it was started.
    pub cwd: String,
    /// The name of the user that it runs as.
    pub user: String,
    /// The variables by which harnesses name themselves and their sessions.
    pub harness: BTreeMap<String, String>,
}

/// A parent of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Parent {
    /// Its number.
    pub pid: u32,
    /// Its program's name.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started_at: u64,
}

impl Process {
    /// Within its bounds, whatever the other end sent.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let cut = |text: &mut String| text.truncate(text.floor_char_boundary(REPORT_BYTES));
        self.parents.truncate(PARENTS);
        self.parents
            .iter_mut()
            .for_each(|parent| cut(&mut parent.name));
        cut(&mut self.cwd);
        cut(&mut self.user);
        self.harness = self
            .harness
            .into_iter()
            .take(VARIABLES)
            .map(|(mut name, mut value)| {
                cut(&mut name);
                cut(&mut value);
                (name, value)
            })
            .collect();
        self
    }
}

/// The open connections of a node.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    all: BTreeMap<u64, Connection>,
}

impl Connections {
    /// Adds one for as long as the guard lives; nothing where there are [`CONNECTIONS`] already.
    pub fn add(&self, connection: Connection) -> Option<Connected> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.all.len() >= CONNECTIONS {
            return None;
        }
        let number = open.next;
        open.next += 1;
        open.all.insert(number, connection);
        Some(Connected {
            number,
            all: self.clone(),
        })
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<Connection> {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all.values().cloned().collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all.is_empty()
    }
}

/// A connection that is open; dropped, it is gone.
#[derive(Debug)]
pub struct Connected {
    number: u64,
    all: Connections,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let mut open = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.all.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(pid: u32) -> Connection {
        Connection {
            credential: "c".into(),
            process: Process {
                pid,
                ..Process::default()
            },
            since: 0,
        }
    }

    #[test]
    fn a_connection_is_there_as_long_as_its_guard() {
        let all = Connections::default();
        let first = all.add(connection(1)).unwrap();
        let second = all.add(connection(2)).unwrap();
        drop(first);
        assert_eq!(all.list(), [connection(2)]);
        drop(second);
        assert!(all.is_empty());
    }

    #[test]
    fn one_beyond_the_bound_is_not_taken() {
        let all = Connections::default();
        let open: Vec<_> = (0..CONNECTIONS as u32)
            .map(|pid| all.add(connection(pid)).unwrap())
            .collect();
        assert!(all.add(connection(0)).is_none());
        drop(open);
        assert!(all.add(connection(0)).is_some());
    }

    #[test]
    fn a_report_is_cut_to_its_bounds() {
        let long = "ü".repeat(REPORT_BYTES);
        let process = Process {
            parents: vec![
                Parent {
                    name: long.clone(),
                    ..Parent::default()
                };
                PARENTS + 1
            ],
            cwd: long.clone(),
            user: long.clone(),
            harness: (0..=VARIABLES)
                .map(|n| (n.to_string(), long.clone()))
                .collect(),
            ..Process::default()
        }
        .bounded();
        assert_eq!(process.parents.len(), PARENTS);
        assert_eq!(process.harness.len(), VARIABLES);
        assert_eq!(process.cwd.len(), REPORT_BYTES);
        assert!(
            process
                .parents
                .iter()
                .all(|parent| parent.name.len() <= REPORT_BYTES)
        );
        assert!(
            process
                .harness
                .values()
                .all(|value| value.len() <= REPORT_BYTES)
        );
    }
}
