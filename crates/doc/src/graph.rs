//! Parents and dependencies: paths, and which edges are suspended because they close a cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::{
    id::{ObjectId, OpId},
    view::ViewError,
};

/// The edges of one relation, suspended ones included.
pub trait Graph {
    /// Where the edges of an object lead, each with the operation that made it.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError>;

    /// From where edges lead to an object.
    ///
    /// # Errors
    ///
    /// When the store fails.
    fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError>;
}

/// Objects that can all reach each other, and their edges that have no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// The objects.
    pub objects: BTreeSet<ObjectId>,
    /// The suspended edges, from and to.
    pub suspended: BTreeSet<(ObjectId, ObjectId)>,
}

/// A shortest path from one object to another, both ends included. Visits no object twice.
///
/// # Errors
///
/// When the store fails.
pub fn path(
    graph: &dyn Graph,
    from: ObjectId,
    to: ObjectId,
) -> Result<Option<Vec<ObjectId>>, ViewError> {
    let mut came_from = BTreeMap::from([(from, from)]);
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        if at == to {
            let mut path = vec![to];
            while let Some(last) = path.last().copied().filter(|last| *last != from) {
                path.push(came_from.get(&last).copied().unwrap_or(from));
            }
            path.reverse();
            return Ok(Some(path));
        }
        for (next, _) in graph.outgoing(at)? {
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(at);
                queue.push_back(next);
            }
        }
    }
    Ok(None)
}

/// The edges that are suspended among the objects from which `seed` can be reached and which can
/// be reached from it: its strongly connected component.
///
/// The component's edges are replayed in op-id order; one that closes a cycle with those before
/// it is suspended. A function of the edges alone, so every replica says the same.
///
/// # Errors
///
/// When the store fails.
pub fn suspended(graph: &dyn Graph, seed: ObjectId) -> Result<Component, ViewError> {
    let mut edges = Vec::new();
    let component = component(graph, seed)?;
    for from in &component {
        for (to, op) in graph.outgoing(*from)? {
            if component.contains(&to) {
                edges.push((op, *from, to));
            }
        }
    }
    edges.sort_unstable();
    let mut kept = Kept(BTreeMap::new());
    let mut suspended = BTreeSet::new();
    for (_, from, to) in edges {
        if path(&kept, to, from)?.is_some() {
            suspended.insert((from, to));
        } else {
            kept.0.entry(from).or_default().insert(to);
        }
    }
    Ok(Component {
        objects: component,
        suspended,
    })
}

fn component(graph: &dyn Graph, seed: ObjectId) -> Result<BTreeSet<ObjectId>, ViewError> {
    let forward = reach(seed, |at| {
        Ok(graph.outgoing(at)?.into_iter().map(|(to, _)| to).collect())
    })?;
    let backward = reach(seed, |at| graph.incoming(at))?;
    Ok(forward.intersection(&backward).copied().collect())
}

fn reach(
    seed: ObjectId,
    next: impl Fn(ObjectId) -> Result<Vec<ObjectId>, ViewError>,
) -> Result<BTreeSet<ObjectId>, ViewError> {
    let mut seen = BTreeSet::from([seed]);
    let mut queue = vec![seed];
    while let Some(at) = queue.pop() {
        queue.extend(next(at)?.into_iter().filter(|object| seen.insert(*object)));
    }
    Ok(seen)
}

struct Kept(BTreeMap<ObjectId, BTreeSet<ObjectId>>);

impl Graph for Kept {
    fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
        let none = OpId {
            counter: 0,
            actor: crate::id::ActorId([0; 16]),
        };
        Ok(self
            .0
            .get(&from)
            .into_iter()
            .flatten()
            .map(|to| (*to, none))
            .collect())
    }

    fn incoming(&self, _to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ActorId;

    struct Edges(Vec<(u64, u64, u64)>);

    fn id(n: u64) -> ObjectId {
        ObjectId::random(n)
    }

    impl Graph for Edges {
        fn outgoing(&self, from: ObjectId) -> Result<Vec<(ObjectId, OpId)>, ViewError> {
            let op = |counter| OpId {
                counter,
                actor: ActorId([0; 16]),
            };
            Ok(self
                .0
                .iter()
                .filter(|(_, a, _)| id(*a) == from)
                .map(|(c, _, b)| (id(*b), op(*c)))
                .collect())
        }
        fn incoming(&self, to: ObjectId) -> Result<Vec<ObjectId>, ViewError> {
            Ok(self
                .0
                .iter()
                .filter(|(_, _, b)| id(*b) == to)
                .map(|(_, a, _)| id(*a))
                .collect())
        }
    }

    #[test]
    fn the_later_of_two_edges_in_a_circle_is_suspended() {
        let graph = Edges(vec![(1, 1, 2), (2, 2, 3), (3, 3, 1), (4, 3, 4)]);
        let component = suspended(&graph, id(1)).unwrap();
        assert_eq!(component.objects, BTreeSet::from([id(1), id(2), id(3)]));
        assert_eq!(component.suspended, BTreeSet::from([(id(3), id(1))]));
        assert_eq!(suspended(&graph, id(3)).unwrap(), component);
    }

    #[test]
    fn an_object_that_depends_on_itself_is_a_circle() {
        let graph = Edges(vec![(1, 1, 1)]);
        assert_eq!(
            suspended(&graph, id(1)).unwrap().suspended,
            BTreeSet::from([(id(1), id(1))])
        );
    }

    #[test]
    fn paths_are_found_through_circles() {
        let graph = Edges(vec![(1, 1, 2), (2, 2, 1), (3, 2, 3)]);
        assert_eq!(
            path(&graph, id(1), id(3)).unwrap(),
            Some(vec![id(1), id(2), id(3)])
        );
        assert_eq!(path(&graph, id(3), id(1)).unwrap(), None);
        assert_eq!(path(&graph, id(1), id(1)).unwrap(), Some(vec![id(1)]));
    }
}
