//! Telling a client that what it watches changed: a hint to read it again, never the change itself.
//!
//! Each watcher has a task of its own, which alone waits for its client: whoever never reads slows
//! nobody, and what changes meanwhile is told once.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use stead_node::{core::Event, handle::Node};
use stead_sync::CredentialId;
use tokio::sync::broadcast::{Receiver, error::RecvError, error::TryRecvError};

use crate::resources::Address;

/// Resources that one connection may watch.
pub(crate) const WATCHED: usize = 256;

/// What a connection watches; shared between its requests and its watcher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watched(Arc<Mutex<BTreeSet<Address>>>);

impl Watched {
    pub(crate) fn of(addresses: impl IntoIterator<Item = Address>) -> Self {
        Self(Arc::new(Mutex::new(addresses.into_iter().collect())))
    }

    /// Watches one more; false where there are [`WATCHED`] already.
    pub(crate) fn add(&self, address: Address) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= WATCHED && !all.contains(&address) {
            return false;
        }
        all.insert(address);
        true
    }

    pub(crate) fn remove(&self, address: &Address) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(address);
    }

    fn all(&self) -> BTreeSet<Address> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Tells through `send` what of `watched` changed, until `send` says that nobody listens or the
/// credential is revoked.
pub(crate) async fn run<F, S>(
    node: Node,
    credential: CredentialId,
    watched: Watched,
    mut events: Receiver<Event>,
    send: S,
) where
    S: Fn(String) -> F,
    F: Future<Output = bool>,
{
    loop {
        let mut touched = BTreeSet::new();
        match events.recv().await {
            Ok(event) => touched.extend(touched_by(&watched, &event, &node, credential)),
            // Behind by more than is kept: any of them may have changed.
            Err(RecvError::Lagged(_)) => touched = watched.all(),
            Err(RecvError::Closed) => return,
        }
        loop {
            match events.try_recv() {
                Ok(event) => touched.extend(touched_by(&watched, &event, &node, credential)),
                Err(TryRecvError::Lagged(_)) => touched = watched.all(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if !node
            .caller(credential)
            .is_some_and(|caller| caller.scopes.contains("tasks:read"))
        {
            return;
        }
        for address in touched {
            if !send(address.to_string()).await {
                return;
            }
        }
    }
}

/// What of the watched an event touches; nothing of a project that the credential does not reach,
/// nor of the workspace's own objects where it is limited to projects.
fn touched_by(
    watched: &Watched,
    event: &Event,
    node: &Node,
    credential: CredentialId,
) -> Vec<Address> {
    let slug = event.slug.as_deref();
    let mut touched = watched.all();
    touched.retain(|address| address.is_touched_by(event, slug));
    let reached = |grants: &Option<BTreeSet<String>>| {
        grants.as_ref().is_none_or(|grants| {
            let id = event.project.map(|project| project.to_string());
            slug.is_some_and(|slug| grants.contains(slug))
                || id.is_some_and(|id| grants.contains(&id))
        })
    };
    if touched.is_empty()
        || !node
            .caller(credential)
            .is_some_and(|caller| reached(&caller.grants))
    {
        return Vec::new();
    }
    touched.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use stead_doc::id::ObjectId;

    use super::*;

    #[test]
    fn one_more_than_the_bound_is_not_watched() {
        let watched = Watched::default();
        for n in 0..WATCHED as u64 {
            assert!(watched.add(Address::Task(ObjectId::random(n))));
        }
        assert!(watched.add(Address::Task(ObjectId::random(0))));
        assert!(!watched.add(Address::Conflicts));
        watched.remove(&Address::Task(ObjectId::random(0)));
        assert!(watched.add(Address::Conflicts));
    }
}
