//! Several index ranges read as one, in order, no further than asked.

use std::{collections::VecDeque, ops::ControlFlow};

use stead_doc::id::ObjectId;

use crate::store::{StoreError, StoreView, Tables, index};

/// Several index ranges as one, ordered by what follows their prefixes.
pub(super) struct Streams {
    streams: Vec<Stream>,
}

pub(super) struct Stream {
    prefix: Vec<u8>,
    last: Option<Vec<u8>>,
    waiting: VecDeque<Vec<u8>>,
    ended: bool,
}

/// Keys read ahead of one range.
pub(super) const READ_AHEAD: usize = 16;

impl Streams {
    pub(super) fn new(prefixes: Vec<Vec<u8>>, after: Option<&[u8]>) -> Self {
        let streams = prefixes
            .into_iter()
            .map(|prefix| Stream {
                last: after.map(|after| [prefix.as_slice(), after].concat()),
                prefix,
                waiting: VecDeque::new(),
                ended: false,
            })
            .collect();
        Self { streams }
    }

    pub(super) fn next<T: Tables>(
        &mut self,
        view: &StoreView<'_, T>,
    ) -> Result<Option<(Vec<u8>, ObjectId)>, StoreError> {
        for stream in &mut self.streams {
            stream.fill(view)?;
        }
        let first = self
            .streams
            .iter_mut()
            .filter(|stream| !stream.waiting.is_empty())
            .min_by(|a, b| a.front().cmp(b.front()));
        let Some(stream) = first else { return Ok(None) };
        let Some(key) = stream.waiting.pop_front() else {
            return Ok(None);
        };
        let place = key.get(stream.prefix.len()..).unwrap_or_default().to_vec();
        let id = index::object_at_end(&key);
        stream.last = Some(key);
        Ok(id.map(|id| (place, id)))
    }
}

impl Stream {
    pub(super) fn front(&self) -> &[u8] {
        self.waiting
            .front()
            .and_then(|key| key.get(self.prefix.len()..))
            .unwrap_or_default()
    }

    pub(super) fn fill<T: Tables>(&mut self, view: &StoreView<'_, T>) -> Result<(), StoreError> {
        if self.ended || !self.waiting.is_empty() {
            return Ok(());
        }
        let mut read = 0;
        let waiting = &mut self.waiting;
        view.tables
            .scan(&self.prefix, self.last.as_deref(), false, &mut |key| {
                waiting.push_back(key.to_vec());
                read += 1;
                if read < READ_AHEAD {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
        self.ended = read < READ_AHEAD;
        Ok(())
    }
}
