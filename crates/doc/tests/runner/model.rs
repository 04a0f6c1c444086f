//! A plain model that shares no code with the crate: for each field of each object the values that
//! were written, each with what its author had seen. What replaced what follows from that alone,
//! without op ids, counters, hashes or clocks.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::Config};
use serde_json::{Value as Json, json};
use stead_doc::{id::ObjectId, refusal::Code, row::Value, scalar::Scalar};

use super::replica::{Replica, stead};

const NODES: usize = 3;

/// One write of one field.
#[derive(Debug, Clone)]
struct Write {
    object: usize,
    field: String,
    /// Nothing where it took the field away.
    value: Option<String>,
    author: usize,
    /// The writes, by number, that its author had when it was made.
    seen: BTreeSet<usize>,
}

/// All writes there ever were, and which of them each node has.
#[derive(Debug, Default)]
struct Model {
    writes: Vec<Write>,
    known: [BTreeSet<usize>; NODES],
}

impl Model {
    /// One command writes several fields at once: none of them has seen the others.
    fn write(&mut self, author: usize, object: usize, fields: &[(String, Option<String>)]) {
        let seen = self.known[author].clone();
        for (field, value) in fields {
            self.known[author].insert(self.writes.len());
            self.writes.push(Write {
                object,
                field: field.clone(),
                value: value.clone(),
                author,
                seen: seen.clone(),
            });
        }
    }

    fn sync(&mut self, to: usize, from: usize) {
        let news = self.known[from].clone();
        self.known[to].extend(news);
    }

    /// The writes of a field that a node has and that no other one it has was made in sight of.
    fn standing(&self, node: usize, object: usize, field: &str) -> Vec<&Write> {
        let of_field = |number: &&usize| {
            let write = &self.writes[**number];
            write.object == object && write.field == field
        };
        let known: Vec<usize> = self.known[node].iter().filter(of_field).copied().collect();
        known
            .iter()
            .filter(|number| {
                !known
                    .iter()
                    .any(|other| self.writes[*other].seen.contains(number))
            })
            .map(|number| &self.writes[*number])
            .collect()
    }

    /// Who wrote which of the values that are visible, sorted.
    fn visible(&self, node: usize, object: usize, field: &str) -> Vec<(String, usize)> {
        let mut visible: Vec<_> = self
            .standing(node, object, field)
            .into_iter()
            .filter_map(|write| Some((write.value.clone()?, write.author)))
            .collect();
        visible.sort();
        visible
    }

    fn fields(&self) -> BTreeSet<(usize, String)> {
        self.writes
            .iter()
            .map(|write| (write.object, write.field.clone()))
            .collect()
    }
}

/// Holds a node to the model, field by field.
fn check(model: &Model, nodes: &[Replica], node: usize, objects: &[ObjectId]) {
    let authors: BTreeMap<_, _> = nodes
        .iter()
        .enumerate()
        .map(|(index, replica)| (replica.actor(replica.document(&stead()).id), index))
        .collect();
    let rows = &nodes[node].document(&stead()).rows;
    for (object, field) in model.fields() {
        let cell = rows
            .get(&objects[object])
            .and_then(|row| row.cells.get(&field));
        let mut found: Vec<(String, usize)> = cell
            .iter()
            .flat_map(|cell| &cell.0)
            .map(|(op, value)| (plain(value), authors[&op.actor]))
            .collect();
        found.sort();
        assert_eq!(
            found,
            model.visible(node, object, &field),
            "node {node}, field {field} of object {object}"
        );
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Inline(Scalar::Str(text)) => text.clone(),
        Value::Inline(other) => other.to_json().to_string(),
        Value::Apart(_) => panic!("the model writes short values alone"),
    }
}

/// Everybody has everything: one state, down to the last byte.
fn check_convergence(model: &mut Model, nodes: &mut [Replica], objects: &[ObjectId]) {
    Replica::exchange_all(nodes);
    for to in 0..NODES {
        for from in 0..NODES {
            model.sync(to, from);
        }
    }
    let export = nodes[0].export();
    for node in 0..NODES {
        check(model, nodes, node, objects);
        assert_eq!(nodes[node].export(), export);
        for object in objects {
            let id = object.to_string();
            if nodes[0].document(&stead()).rows.contains_key(object) {
                assert_eq!(nodes[node].revision(&id), nodes[0].revision(&id));
                assert_eq!(nodes[node].row(&id), nodes[0].row(&id));
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------
// puts and deletes as they are

#[derive(Debug, Clone)]
enum Step {
    /// Node, object, and for some of the fields a value or nothing.
    Write(usize, usize, Vec<(usize, Option<u8>)>),
    /// To, from, and of how many changes at most.
    Sync(usize, usize, usize),
}

const FIELDS: [&str; 3] = ["title", "tag/x", "y"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![3 => (0..3u8).prop_map(Some), 1 => Just(None)];
    let fields = prop::collection::btree_map(0..FIELDS.len(), value, 1..=2);
    let write = (0..NODES, 0..2usize, fields)
        .prop_map(|(node, object, fields)| Step::Write(node, object, fields.into_iter().collect()));
    let sync = (0..NODES, 1..NODES, 1..4usize)
        .prop_map(|(to, by, limit)| Step::Sync(to, (to + by) % NODES, limit));
    prop::collection::vec(prop_oneof![3 => write, 2 => sync], 0..14)
}

fn run(steps: &[Step]) {
    let mut nodes = Replica::several(NODES as u8);
    let objects = [ObjectId::random(3), ObjectId::random(515)];
    let mut model = Model::default();
    for step in steps {
        match step {
            Step::Write(node, object, fields) => {
                let fields: Vec<(String, Option<String>)> = fields
                    .iter()
                    .map(|(field, value)| {
                        (FIELDS[*field].to_owned(), value.map(|value| format!("v{value}")))
                    })
                    // What is not there cannot be taken away: no such write is made.
                    .filter(|(field, value)| {
                        value.is_some() || !model.visible(*node, *object, field).is_empty()
                    })
                    .collect();
                if fields.is_empty() {
                    continue;
                }
                let edits: Vec<(&str, Option<Scalar>)> = fields
                    .iter()
                    .map(|(field, value)| (field.as_str(), value.as_deref().map(Scalar::from)))
                    .collect();
                nodes[*node].put(&stead(), objects[*object], &edits);
                model.write(*node, *object, &fields);
                check(&model, &nodes, *node, &objects);
            }
            Step::Sync(to, from, limit) => {
                // A part of the news is a part of the model's only where it is all of it.
                let all = *limit == 3;
                let [to_node, from_node] = nodes.get_disjoint_mut([*to, *from]).unwrap();
                if all {
                    to_node.exchange_from(from_node);
                    model.sync(*to, *from);
                } else {
                    let before = to_node.document(&stead()).changes.len();
                    to_node.exchange_some(from_node, *limit);
                    let numbers = numbers_of(&model, to_node, before);
                    model.known[*to].extend(numbers);
                }
                check(&model, &nodes, *to, &objects);
            }
        }
    }
    check_convergence(&mut model, &mut nodes, &objects);
}

/// The model's numbers of the changes that a node has from position `from` on: the nth write of an
/// author is its nth, whoever counts.
fn numbers_of(model: &Model, node: &Replica, from: usize) -> Vec<usize> {
    let document = node.document(&stead());
    let mut numbers = Vec::new();
    for (change, _) in &document.changes[from..] {
        let author = (0..NODES)
            .find(|index| Replica::new(*index as u8 + 1).actor(document.id) == change.actor)
            .unwrap();
        // Writes of one command have the same past: count commands, not fields.
        let mut commands: Vec<&BTreeSet<usize>> = Vec::new();
        for write in model.writes.iter().filter(|write| write.author == author) {
            if commands.last() != Some(&&write.seen) {
                commands.push(&write.seen);
            }
        }
        let seen = commands[change.seq as usize - 1];
        let own = model.writes.iter().enumerate();
        numbers.extend(
            own.filter(|(_, write)| write.author == author && write.seen == *seen)
                .map(|(number, _)| number),
        );
    }
    numbers
}

// ---------------------------------------------------------------------------------------------
// the same through commands

#[derive(Debug, Clone)]
enum Act {
    Title(u8),
    Branch(Option<u8>),
    Both(u8, u8),
    AddTag(u8),
    RemoveTag(u8),
    State(u8, Option<u8>),
}

impl Act {
    fn call(&self) -> Json {
        match self {
            Self::Title(n) => json!({"title": format!("t{n}")}),
            Self::Branch(n) => json!({"branch": n.map(|n| format!("b{n}"))}),
            Self::Both(a, b) => json!({"title": format!("t{a}"), "branch": format!("b{b}")}),
            Self::AddTag(n) => json!({"addTags": [format!("g{n}")]}),
            Self::RemoveTag(n) => json!({"removeTags": [format!("g{n}")]}),
            Self::State(key, n) => json!({"statePatch": {format!("k{key}"): n}}),
        }
    }

    /// What the caller asks for: field, value, and whether it is written where it is so already.
    fn wishes(&self) -> Vec<(String, Option<String>, bool)> {
        let text = |name: &str, prefix: &str, n: Option<u8>| {
            (name.to_owned(), n.map(|n| format!("{prefix}{n}")), false)
        };
        match self {
            Self::Title(n) => vec![text("title", "t", Some(*n))],
            Self::Branch(n) => vec![text("branch", "b", *n)],
            Self::Both(a, b) => vec![text("title", "t", Some(*a)), text("branch", "b", Some(*b))],
            Self::AddTag(n) => vec![(format!("tag/g{n}"), Some("true".into()), true)],
            Self::RemoveTag(n) => vec![(format!("tag/g{n}"), None, false)],
            Self::State(key, n) => vec![(format!("state/k{key}"), n.map(|n| n.to_string()), false)],
        }
    }
}

#[derive(Debug, Clone)]
enum Move {
    Update(usize, usize, Act, bool),
    Sync(usize, usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let small = || 0..2u8;
    let maybe = || prop::option::of(0..2u8);
    let act = prop_oneof![
        small().prop_map(Act::Title),
        maybe().prop_map(Act::Branch),
        (small(), small()).prop_map(|(a, b)| Act::Both(a, b)),
        small().prop_map(Act::AddTag),
        small().prop_map(Act::RemoveTag),
        (small(), maybe()).prop_map(|(key, n)| Act::State(key, n)),
    ];
    let update = (0..NODES, 0..2usize, act, any::<bool>())
        .prop_map(|(node, object, act, named)| Move::Update(node, object, act, named));
    let sync = (0..NODES, 1..NODES).prop_map(|(to, by)| Move::Sync(to, (to + by) % NODES));
    prop::collection::vec(prop_oneof![3 => update, 2 => sync], 0..14)
}

fn play(moves: &[Move]) {
    let mut nodes = Replica::several(NODES as u8);
    let objects = ["one", "two"].map(|title| nodes[0].task(title).parse::<ObjectId>().unwrap());
    let mut model = Model::default();
    for object in 0..2 {
        let title = ["one", "two"][object].to_owned();
        model.write(0, object, &[("title".into(), Some(title))]);
    }
    Replica::exchange_all(&mut nodes);
    for to in 1..NODES {
        model.sync(to, 0);
    }
    for step in moves {
        match step {
            Move::Update(node, object, act, named) => {
                let (node, object) = (*node, *object);
                let visible: BTreeMap<String, BTreeSet<String>> = act
                    .wishes()
                    .into_iter()
                    .map(|(field, _, _)| {
                        let values = model.visible(node, object, &field);
                        (field, values.into_iter().map(|(value, _)| value).collect())
                    })
                    .collect();
                let writes: Vec<(String, Option<String>)> = act
                    .wishes()
                    .into_iter()
                    .filter(|(field, value, always)| {
                        let there = &visible[field];
                        match value {
                            Some(value) => *always || *there != BTreeSet::from([value.clone()]),
                            None => !there.is_empty(),
                        }
                    })
                    .map(|(field, value, _)| (field, value))
                    .collect();
                let open: Vec<&String> = writes
                    .iter()
                    .map(|(field, _)| field)
                    .filter(|field| visible[*field].len() > 1)
                    .collect();
                let mut call = act.call();
                call["action"] = "update".into();
                if *named {
                    call["resolves"] = json!(open);
                }
                let before = nodes[node].standing();
                let result = nodes[node].on(&objects[object].to_string(), call);
                if !open.is_empty() && !named {
                    assert_eq!(result.unwrap_err().code, Code::ConflictOpen);
                    assert_eq!(nodes[node].standing(), before);
                } else {
                    result.unwrap();
                    assert_eq!(nodes[node].standing() == before, writes.is_empty());
                    model.write(node, object, &writes);
                }
                check(&model, &nodes, node, &objects);
            }
            Move::Sync(to, from) => {
                let [to_node, from_node] = nodes.get_disjoint_mut([*to, *from]).unwrap();
                to_node.exchange_from(from_node);
                model.sync(*to, *from);
                check(&model, &nodes, *to, &objects);
            }
        }
    }
    check_convergence(&mut model, &mut nodes, &objects);
    // What is shown as a conflict is what the model has two or more distinct values of.
    for (index, object) in objects.iter().enumerate() {
        let conflicts = nodes[0].show(&object.to_string())["conflicts"].clone();
        let shown: BTreeSet<&str> = conflicts
            .as_array()
            .unwrap()
            .iter()
            .map(|conflict| conflict["field"].as_str().unwrap())
            .collect();
        let fields = model.fields();
        let expected: BTreeSet<&str> = fields
            .iter()
            .filter(|(of, field)| {
                let visible = model.visible(0, *of, field);
                *of == index && visible.iter().any(|(value, _)| *value != visible[0].0)
            })
            .map(|(_, field)| field.as_str())
            .collect();
        assert_eq!(shown, expected);
    }
}

fn config() -> Config {
    Config {
        cases: 400,
        // Where a failure was is in the output; no file is kept beside the tests.
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn replicas_converge_and_no_value_vanishes_unseen(steps in steps()) {
        run(&steps);
    }

    #[test]
    fn commands_converge_and_no_value_vanishes_unseen(moves in moves()) {
        play(&moves);
    }
}

/// The model itself, on the case that everything here is about.
#[test]
fn the_model_keeps_what_was_written_apart() {
    let mut model = Model::default();
    let put = |value: &str| [("f".to_owned(), Some(value.to_owned()))];
    model.write(0, 0, &put("base"));
    model.sync(1, 0);
    model.write(0, 0, &put("a"));
    model.write(1, 0, &put("b"));
    model.sync(0, 1);
    assert_eq!(
        model.visible(0, 0, "f"),
        [("a".to_owned(), 0), ("b".to_owned(), 1)]
    );
    model.write(0, 0, &[("f".to_owned(), None)]);
    assert_eq!(model.visible(0, 0, "f"), []);
    assert_eq!(model.visible(1, 0, "f"), [("b".to_owned(), 1)]);
}
