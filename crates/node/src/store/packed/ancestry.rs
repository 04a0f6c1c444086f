//! Which changes an author had seen, from the heads it named.

use std::collections::BTreeMap;

use stead_doc::id::ChangeHash;

use crate::store::{StoreError, layers::Tables, view::DocumentHistory};

/// For the heads asked about last: the first seq of each actor that they do not cover.
#[derive(Debug, Default)]
pub(crate) struct Cache(BTreeMap<Vec<ChangeHash>, BTreeMap<u32, u64>>);

/// Sets of heads that are remembered: those of the peers that stream at the same time.
const REMEMBERED: usize = 16;

/// Whether `(actor, seq)` is one of `heads` or an ancestor of one.
///
/// Walks back from our heads and from the given ones at once, greatest op counter first. An
/// ancestor always has the smaller counter, so when nothing is left that only ours reach, all that
/// the given heads do not cover has been met. The walk is as long as the work done apart.
pub(crate) fn covers<T: Tables>(
    history: &DocumentHistory<'_, '_, T>,
    heads: &[ChangeHash],
    actor: u32,
    seq: u64,
) -> Result<bool, StoreError> {
    let store = history.view.store;
    let ours: Vec<ChangeHash> = {
        let state = store.state_read();
        state
            .document(history.document)
            .map(|document| document.heads.iter().copied().collect())
            .unwrap_or_default()
    };
    let mut key = ours.clone();
    key.push(ChangeHash([0; 32]));
    key.extend(heads);
    let remembered = {
        let cache = store
            .packed
            .ancestry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        cache
            .0
            .get(&key)
            .map(|missing| missing.get(&actor).is_none_or(|first| seq < *first))
    };
    if let Some(covered) = remembered {
        return Ok(covered);
    }
    let missing = walk(history, &ours, heads)?;
    let covered = missing.get(&actor).is_none_or(|first| seq < *first);
    let mut cache = store
        .packed
        .ancestry
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if cache.0.len() >= REMEMBERED {
        cache.0.clear();
    }
    cache.0.insert(key, missing);
    Ok(covered)
}

const OURS: u8 = 1;
const GIVEN: u8 = 2;

fn walk<T: Tables>(
    history: &DocumentHistory<'_, '_, T>,
    ours: &[ChangeHash],
    given: &[ChangeHash],
) -> Result<BTreeMap<u32, u64>, StoreError> {
    let mut queue: BTreeMap<(u64, ChangeHash), (Node, u8)> = BTreeMap::new();
    let mut only_ours = 0usize;
    let add = |queue: &mut BTreeMap<(u64, ChangeHash), (Node, u8)>,
               only_ours: &mut usize,
               hash: ChangeHash,
               colour: u8| {
        let Some(node) = node(history, hash)? else {
            return Ok(());
        };
        let slot = queue.entry((node.max_op, hash)).or_insert((node, 0));
        let before = slot.1;
        slot.1 |= colour;
        *only_ours = *only_ours + usize::from(slot.1 == OURS) - usize::from(before == OURS);
        Ok::<_, StoreError>(())
    };
    for hash in ours {
        add(&mut queue, &mut only_ours, *hash, OURS)?;
    }
    for hash in given {
        add(&mut queue, &mut only_ours, *hash, GIVEN)?;
    }
    let mut missing: BTreeMap<u32, u64> = BTreeMap::new();
    while only_ours > 0
        && let Some((_, (node, colour))) = queue.pop_last()
    {
        if colour == OURS {
            only_ours -= 1;
            let first = missing.entry(node.actor).or_insert(node.seq);
            *first = node.seq.min(*first);
        }
        for dep in node.deps {
            add(&mut queue, &mut only_ours, dep, colour)?;
        }
    }
    Ok(missing)
}

struct Node {
    actor: u32,
    seq: u64,
    max_op: u64,
    deps: Vec<ChangeHash>,
}

/// A change by its hash; nothing for the genesis, behind which there is nothing.
fn node<T: Tables>(
    history: &DocumentHistory<'_, '_, T>,
    hash: ChangeHash,
) -> Result<Option<Node>, StoreError> {
    {
        let state = history.view.store.state_read();
        if let Some(entry) = state
            .hot
            .by_hash
            .get(&hash)
            .and_then(|arrival| state.hot.entries.get(arrival))
        {
            return Ok(Some(Node {
                actor: entry.actor,
                seq: entry.seq,
                max_op: entry.max_op,
                deps: entry.deps.clone(),
            }));
        }
    }
    let Some(change) = history.packed_change(hash)? else {
        return Ok(None);
    };
    let actor = history.view.store.state_read().known_actor(change.actor);
    Ok(actor.map(|actor| Node {
        actor,
        seq: change.seq,
        max_op: change.max_op(),
        deps: change.deps.clone(),
    }))
}
