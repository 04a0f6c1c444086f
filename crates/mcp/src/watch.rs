//! Telling a client that what it watches changed: a hint to read it again, never the change itself.
//!
//! Each watcher has a task of its own, which alone waits for its client: whoever never reads slows
//! nobody, and what changes meanwhile is told once.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
};

use stead_doc::id::ObjectId;
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
            Ok(event) => note(&node, credential, &watched, &event, &mut touched),
            // Behind by more than is kept: any of them may have changed.
            Err(RecvError::Lagged(_)) => touched = watched.all(),
            Err(RecvError::Closed) => return,
        }
        loop {
            match events.try_recv() {
                Ok(event) => note(&node, credential, &watched, &event, &mut touched),
                Err(TryRecvError::Lagged(_)) => touched = watched.all(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if node.caller(credential).is_none() {
            return;
        }
        for address in touched {
            if !send(address.to_string()).await {
                return;
            }
        }
    }
}

fn note(
    node: &Node,
    credential: CredentialId,
    watched: &Watched,
    event: &Event,
    touched: &mut BTreeSet<Address>,
) {
    let slug = slug(node, credential, event.project);
    // Of a project that the credential does not reach it hears nothing, nor of the workspace's own
    // objects where it is limited to projects.
    let Some(slug) = slug else { return };
    touched.extend(
        watched
            .all()
            .into_iter()
            .filter(|address| address.is_touched_by(event, slug.as_deref())),
    );
}

/// The slug of an event's project; nothing where the credential does not reach it.
fn slug(
    node: &Node,
    credential: CredentialId,
    project: Option<ObjectId>,
) -> Option<Option<String>> {
    let caller = node.caller(credential)?;
    let Some(project) = project else {
        return caller.grants.is_none().then_some(None);
    };
    let projects = node.with_store(|store| Ok(store.projects())).ok()?;
    projects
        .into_iter()
        .find(|entry| entry.id == project && caller.reaches(entry))
        .map(|entry| Some(entry.slug))
}

#[cfg(test)]
mod tests {
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
