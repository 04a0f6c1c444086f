//! Walking the log: arrivals in order, and runs of changes as peers get them.

use redb::ReadableDatabase;

use crate::store::{Actor, LOG, Store, StoreError, state::LogRecord};

/// Consecutive changes of an actor, the last one signed.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) document: stead_doc::document::DocumentName,
    pub(crate) changes: Vec<Vec<u8>>,
    pub(crate) device: [u8; 32],
    pub(crate) incarnation: [u8; 16],
    pub(crate) signature: [u8; 64],
    pub(crate) roster: u32,
}

impl Store {
    /// A log record that is not packed, for whoever walks arrivals.
    pub(crate) fn places_from(
        &self,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        self.settled(|| self.places_once(from, limit))
    }

    fn places_once(&self, from: u64, limit: usize) -> Result<Vec<(u64, u32, u64)>, StoreError> {
        let mut found = if from < self.packed.end() {
            self.packed.arrivals(from, limit)?
        } else {
            Vec::new()
        };
        let next = found.last().map_or(from, |(arrival, ..)| arrival + 1);
        let upto = self.arrivals();
        let state = self.state_read();
        for (arrival, entry) in state.hot.entries.range(next..upto) {
            if found.len() == limit {
                break;
            }
            found.push((*arrival, entry.actor, entry.seq));
        }
        Ok(found)
    }

    /// The signature that vouches for an actor's change, for whoever checks the log.
    pub(crate) fn unpacked_record(&self, arrival: u64) -> Result<Option<LogRecord>, StoreError> {
        let table = self.hot.begin_read()?.open_table(LOG)?;
        match table.get(arrival)? {
            Some(record) => Ok(Some(LogRecord::decode(record.value())?)),
            None => Ok(None),
        }
    }

    /// The runs of all actors beyond a frontier.
    pub(crate) fn signed_runs(
        &self,
        frontier: &dyn Fn(stead_doc::id::ActorId) -> u64,
    ) -> Result<Vec<StoredRun>, StoreError> {
        self.settled(|| self.runs_once(frontier))
    }

    fn runs_once(
        &self,
        frontier: &dyn Fn(stead_doc::id::ActorId) -> u64,
    ) -> Result<Vec<StoredRun>, StoreError> {
        let actors: Vec<_> = {
            let state = self.state_read();
            let named = |actor: &Actor| {
                state
                    .document(actor.document)
                    .map(|document| document.name.clone())
            };
            state
                .actors
                .iter()
                .enumerate()
                .filter(|(_, actor)| actor.seq > frontier(actor.id))
                .filter_map(|(number, actor)| Some((number as u32, actor.clone(), named(actor)?)))
                .collect()
        };
        let mut runs = Vec::new();
        for (number, actor, document) in actors {
            let mut from = frontier(actor.id) + 1;
            let run = |changes, roster, signature| StoredRun {
                document: document.clone(),
                changes,
                device: actor.device,
                incarnation: actor.incarnation,
                signature,
                roster,
            };
            for (changes, end) in self.packed.runs(number, from)? {
                // What is packed already may be unpacked still: it is sent once.
                from = from.max(end.first) + changes.len() as u64;
                runs.push(run(changes, end.roster, end.signature));
            }
            let arrivals: Vec<u64> = {
                let state = self.state_read();
                state
                    .hot
                    .by_actor
                    .range((number, from)..(number, from.max(actor.seq + 1)))
                    .map(|(_, arrival)| *arrival)
                    .collect()
            };
            let mut changes = Vec::new();
            let (mut roster, mut signature) = (actor.roster, actor.signature);
            for arrival in arrivals {
                if let Some(record) = self.unpacked_record(arrival)? {
                    (roster, signature) = (record.roster, record.signature);
                    changes.push(record.bytes);
                }
            }
            if !changes.is_empty() {
                runs.push(run(changes, roster, signature));
            }
        }
        Ok(runs)
    }
}
