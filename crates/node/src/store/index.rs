//! The secondary indexes: keys computed from a row, nothing in them but the key.

use std::collections::BTreeSet;

use stead_doc::{
    id::ObjectId,
    present,
    row::{Row, Value},
    scalar::Scalar,
    schema::Schema,
};

/// All keys that a row stands under in `document`.
pub(crate) fn keys_of(
    schema: &Schema,
    document: u32,
    object: ObjectId,
    row: &Row,
    next: bool,
    open: bool,
) -> BTreeSet<Vec<u8>> {
    let mut keys = BTreeSet::new();
    if open {
        keys.insert(key(b'c', document).object(object).done());
    }
    for (field, cell) in &row.cells {
        if let Some(rest) = field.strip_prefix("edge/")
            && let Some((relation, target)) = rest.split_once('/')
            && let Ok(target) = target.parse()
        {
            keys.insert(edge(target, relation, object));
        } else if let Some(relation) = pointer(field)
            && let Some(target) = cell
                .winner()
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok())
        {
            keys.insert(edge(target, relation, object));
        }
    }
    match row.kind() {
        Some("project") => {
            keys.insert(projects_prefix_key().object(object).done());
        }
        Some("task") if !present::is_archived(row) => {
            let order = order_of(schema, row);
            let status = present::status_of(row);
            keys.insert(
                key(b's', document)
                    .text(&status)
                    .order(order)
                    .object(object)
                    .done(),
            );
            if let Some(assignee) = row.text("assignee") {
                keys.insert(
                    Key(vec![b'a'])
                        .text(assignee)
                        .number(document)
                        .text(&status)
                        .order(order)
                        .object(object)
                        .done(),
                );
            }
            for (tag, _) in row.entries("tag/") {
                keys.insert(
                    key(b't', document)
                        .text(tag)
                        .order(order)
                        .object(object)
                        .done(),
                );
            }
            if next {
                keys.insert(key(b'n', document).order(order).object(object).done());
            }
        }
        Some("task") => {
            keys.insert(key(b'z', document).object(object).done());
        }
        Some("sprint") => {
            keys.insert(key(b'r', document).object(object).done());
        }
        _ => {}
    }
    keys
}

/// The relation that a plain field points with.
pub(crate) fn pointer(field: &str) -> Option<&'static str> {
    match field {
        "parentId" => Some("parent"),
        "sprintId" => Some("sprint"),
        "subject" => Some("subject"),
        "ringParentId" => Some("ring_parent"),
        _ => None,
    }
}

/// Where a task stands among others of its status: priority, rank, age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order {
    pub(crate) priority: u8,
    pub(crate) rank: u64,
    pub(crate) created: u64,
}

pub(crate) fn order_of(schema: &Schema, row: &Row) -> Order {
    let priority = schema.priority_rank(present::priority_of(row)).min(254) as u8;
    let rank = match row.winner("rank") {
        Some(Value::Inline(Scalar::F64(rank))) => *rank,
        Some(Value::Inline(Scalar::Int(rank))) => *rank as f64,
        // Tasks that nobody ranked come after those that somebody did.
        _ => f64::INFINITY,
    };
    let bits = rank.to_bits();
    let rank = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    let created = row
        .cells
        .get("kind")
        .and_then(|cell| cell.0.first())
        .map_or(u64::MAX, |(op, _)| op.counter);
    Order {
        priority,
        rank,
        created,
    }
}

/// Tasks of a status, in order.
pub(crate) fn status_prefix(document: u32, status: &str) -> Vec<u8> {
    key(b's', document).text(status).done()
}

/// Tasks of a tag, in order.
pub(crate) fn tag_prefix(document: u32, tag: &str) -> Vec<u8> {
    key(b't', document).text(tag).done()
}

/// Tasks of an assignee in a document and a status, in order.
pub(crate) fn assigned_prefix(assignee: &str, document: u32, status: &str) -> Vec<u8> {
    Key(vec![b'a'])
        .text(assignee)
        .number(document)
        .text(status)
        .done()
}

/// Tasks to take up, in order.
pub(crate) fn next_prefix(document: u32) -> Vec<u8> {
    key(b'n', document).done()
}

/// Archived tasks.
pub(crate) fn archived_prefix(document: u32) -> Vec<u8> {
    key(b'z', document).done()
}

/// Objects with conflicts.
pub(crate) fn conflicts_prefix(document: u32) -> Vec<u8> {
    key(b'c', document).done()
}

/// Sprints.
pub(crate) fn sprints_prefix(document: u32) -> Vec<u8> {
    key(b'r', document).done()
}

/// Projects.
pub(crate) fn projects_prefix() -> Vec<u8> {
    projects_prefix_key().done()
}

/// Objects that point at `target` with `relation`.
pub(crate) fn edges_prefix(target: ObjectId, relation: &str) -> Vec<u8> {
    Key(vec![b'e']).object(target).text(relation).done()
}

/// The fields of an object whose edge is suspended.
pub(crate) fn suspended_prefix(document: u32, object: ObjectId) -> Vec<u8> {
    key(b'u', document).object(object).done()
}

/// One suspended edge.
pub(crate) fn suspended(document: u32, object: ObjectId, field: &str) -> Vec<u8> {
    let mut key = suspended_prefix(document, object);
    key.extend(field.as_bytes());
    key
}

/// All suspended edges of a document.
pub(crate) fn all_suspended_prefix(document: u32) -> Vec<u8> {
    key(b'u', document).done()
}

/// The object that stands at the end of a key.
pub(crate) fn object_at_end(key: &[u8]) -> Option<ObjectId> {
    let bytes = key.get(key.len().checked_sub(8)?..)?;
    ObjectId::from_bits(u64::from_be_bytes(bytes.try_into().ok()?))
}

/// The key of a row.
pub(crate) fn row_key(document: u32, object: ObjectId) -> [u8; 12] {
    let mut key = [0; 12];
    let (front, back) = key.split_at_mut(8);
    front.copy_from_slice(&object.to_bits().to_be_bytes());
    back.copy_from_slice(&document.to_be_bytes());
    key
}

/// The object and document of a row's key.
pub(crate) fn read_row_key(key: &[u8]) -> Option<(ObjectId, u32)> {
    let (object, document) = key.split_at_checked(8)?;
    let object = ObjectId::from_bits(u64::from_be_bytes(object.try_into().ok()?))?;
    Some((object, u32::from_be_bytes(document.try_into().ok()?)))
}

fn edge(target: ObjectId, relation: &str, source: ObjectId) -> Vec<u8> {
    Key(vec![b'e'])
        .object(target)
        .text(relation)
        .object(source)
        .done()
}

fn projects_prefix_key() -> Key {
    Key(vec![b'p'])
}

fn key(kind: u8, document: u32) -> Key {
    Key(vec![kind]).number(document)
}

struct Key(Vec<u8>);

impl Key {
    fn number(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// A text and a zero behind it; a zero in it would let two texts run together.
    fn text(mut self, text: &str) -> Self {
        self.0.extend(text.bytes().map(|byte| byte.max(1)));
        self.0.push(0);
        self
    }

    fn order(mut self, order: Order) -> Self {
        self.0.push(order.priority);
        self.0.extend(order.rank.to_be_bytes());
        self.0.extend(order.created.to_be_bytes());
        self
    }

    fn object(mut self, object: ObjectId) -> Self {
        self.0.extend(object.to_bits().to_be_bytes());
        self
    }

    fn done(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_sort_as_numbers_and_unranked_last() {
        let schema = Schema::board();
        let bytes = |rank: Option<f64>| {
            let mut row = Row::default();
            if let Some(rank) = rank {
                let op = stead_doc::id::OpId {
                    counter: 1,
                    actor: stead_doc::id::ActorId([0; 16]),
                };
                let value = Value::Inline(Scalar::F64(rank));
                row.cells
                    .insert("rank".into(), stead_doc::row::Cell(vec![(op, value)]));
            }
            order_of(&schema, &row).rank.to_be_bytes()
        };
        let sorted = [
            Some(-5.0),
            Some(-1.0),
            Some(-0.5),
            Some(0.0),
            Some(0.25),
            Some(7.0),
            Some(1e9),
            None,
        ];
        assert!(sorted.map(bytes).is_sorted());
    }

    #[test]
    fn keys_give_their_object_back() {
        let object = ObjectId::random(123_456);
        assert_eq!(
            object_at_end(&edge(ObjectId::random(9), "parent", object)),
            Some(object)
        );
        assert_eq!(read_row_key(&row_key(7, object)), Some((object, 7)));
        let prefix = next_prefix(3);
        let order = Order {
            priority: 1,
            rank: 2,
            created: 3,
        };
        let full = key(b'n', 3).order(order).object(object).done();
        assert_eq!(full.len() - prefix.len(), 25);
    }
}
