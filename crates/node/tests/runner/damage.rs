//! A store that is not what was written: found, named, healed or refused, and never taken for an
//! empty one.

use serde_json::{Value as Json, json};
use stead_node::store::{Store, StoreError};

use super::{
    disk::SimDisk,
    world::{CACHE, Clock, Replica, Rng, count, found, opener, replica},
};

fn board() -> (Replica, Vec<Json>) {
    let node = replica();
    let mut ids = Vec::new();
    for n in 0..30 {
        ids.push(node.create(json!({ "title": format!("task {n}"), "body": "text ".repeat(n * 20), "tags": ["a"] }))["id"].take());
        if n == 15 {
            node.pack();
        }
    }
    (node, ids)
}

fn open(disk: &SimDisk) -> Result<Store, StoreError> {
    Store::open(Box::new(disk.clone()), CACHE)
}

#[test]
fn a_flipped_byte_of_the_unpacked_log_is_refused_by_name_at_the_next_start() {
    let (mut node, _) = board();
    let last = node.arrivals() - 1;
    assert!(
        node.node()
            .with_store(|store| store.damage_for_test(last))
            .unwrap()
    );
    let found = node.ok("doctor", json!({}));
    assert_eq!(found["ok"], false);
    assert!(
        found["problems"][0]["what"]
            .as_str()
            .unwrap()
            .contains("log record"),
        "{found:#}"
    );
    assert!(
        found["problems"][0]["hint"]
            .as_str()
            .unwrap()
            .contains("restore")
    );
    // A rebuild has nothing to compute from; it refuses, and what was shown before is still shown.
    let before = node.ok("task_search", json!({ "projectId": "board", "limit": 5 }));
    assert!(node.call("doctor", json!({ "rebuild": true })).is_err());
    assert_eq!(
        node.ok("task_search", json!({ "projectId": "board", "limit": 5 })),
        before
    );
    node.stop();
    match open(&node.disk) {
        Err(StoreError::Damage(damage)) => assert_eq!(damage.what, "log record"),
        other => panic!("opened: {other:?}"),
    }
}

#[test]
fn a_failed_rebuild_leaves_counts_and_projects_as_they_were() {
    let (mut node, _) = board();
    let before = node.ok("project_list", json!({}));
    let first = node.arrivals() - 1;
    node.node()
        .with_store(|store| store.damage_for_test(first))
        .unwrap();
    assert!(node.node().rebuild().is_err());
    assert_eq!(node.ok("project_list", json!({})), before);
    // And nothing wrong of it becomes durable with the next write.
    node.create(json!({ "title": "one more" }));
    let page = node.ok("task_search", json!({ "projectId": "board", "limit": 1 }));
    assert_eq!(page["left"], 30);
    node.stop();
}

#[test]
fn a_row_altered_by_hand_is_found_named_and_healed_hot_or_packed() {
    for is_packed in [false, true] {
        altered(is_packed);
    }
}

fn altered(is_packed: bool) {
    let (node, ids) = board();
    let before = node.export();
    let id = ids[3].as_str().unwrap().parse().unwrap();
    assert!(
        node.node()
            .with_store(|store| store.alter_row_for_test(id, "title", "forged"))
            .unwrap()
    );
    if is_packed {
        node.pack();
    }
    assert_eq!(node.task(&ids[3])["title"], "forged");
    let found = node.ok("doctor", json!({}));
    assert_eq!(found["ok"], false);
    let problem = found["problems"].to_string();
    assert!(
        problem.contains(ids[3].as_str().unwrap()) && problem.contains("--rebuild"),
        "{found:#}"
    );
    let healed = node.ok("doctor", json!({ "rebuild": true }));
    assert_eq!(healed["ok"], true, "{healed:#}");
    assert!(node.export() == before);
}

/// Opens a file with redb alone.
pub(crate) fn raw(disk: &SimDisk, file: &str, change: impl FnOnce(&redb::WriteTransaction)) {
    use stead_node::store::Disk;
    #[derive(Debug)]
    struct Boxed(Box<dyn redb::StorageBackend>);
    impl redb::StorageBackend for Boxed {
        fn len(&self) -> std::io::Result<u64> {
            self.0.len()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
            self.0.read(offset, out)
        }
        fn set_len(&self, len: u64) -> std::io::Result<()> {
            self.0.set_len(len)
        }
        fn sync_data(&self) -> std::io::Result<()> {
            self.0.sync_data()
        }
        fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
            self.0.write(offset, data)
        }
    }
    let (backend, _) = disk.backend(file).unwrap();
    let database = redb::Database::builder()
        .create_with_backend(Boxed(backend))
        .unwrap();
    let txn = database.begin_write().unwrap();
    change(&txn);
    txn.commit().unwrap();
}

const INDEX: redb::TableDefinition<'static, &[u8], &[u8]> =
    redb::TableDefinition::new("index_keys");
const ROWS: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("rows");
const TEXTS: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("texts");

#[test]
fn whatever_is_taken_out_of_the_view_is_found_and_healed() {
    let (mut node, _) = board();
    let before = node.export();
    node.stop();
    let clean = node.disk.copy();
    type Change = fn(&redb::WriteTransaction);
    let changes: [(&str, Change); 6] = [
        ("an index entry is gone", |txn| {
            drop(txn.open_table(INDEX).unwrap().pop_first().unwrap())
        }),
        ("an index entry too many", |txn| {
            drop(
                txn.open_table(INDEX)
                    .unwrap()
                    .insert(b"s-nothing-real-here-at-all".as_slice(), [1].as_slice())
                    .unwrap(),
            )
        }),
        ("a suspended edge that is none", |txn| {
            // Of document 1: object, then field.
            let key = [b"u\0\0\0\x01".as_slice(), &[1; 8], b"parentId"].concat();
            drop(
                txn.open_table(INDEX)
                    .unwrap()
                    .insert(key.as_slice(), [1].as_slice())
                    .unwrap(),
            );
        }),
        ("a row is gone", |txn| {
            drop(txn.open_table(ROWS).unwrap().pop_last().unwrap())
        }),
        ("a text is gone", |txn| {
            drop(txn.open_table(TEXTS).unwrap().pop_first().unwrap())
        }),
        ("a row with a flipped byte", |txn| {
            let mut rows = txn.open_table(ROWS).unwrap();
            let (key, mut value) = {
                let (key, value) = rows.pop_last().unwrap().unwrap();
                (key.value().to_vec(), value.value().to_vec())
            };
            let middle = value.len() / 2;
            value[middle] ^= 4;
            rows.insert(key.as_slice(), value.as_slice()).unwrap();
        }),
    ];
    for (what, change) in changes {
        let disk = clean.copy();
        raw(&disk, "workspace.redb", change);
        let node = Replica::start(&node.founded, disk, node.seed, Clock::new(3));
        let found = node.ok("doctor", json!({}));
        assert_eq!(found["ok"], false, "{what}: {found:#}");
        let healed = node.ok("doctor", json!({ "rebuild": true }));
        assert_eq!(healed["ok"], true, "{what}: {healed:#}");
        assert!(node.export() == before, "{what}");
    }
}

/// A table of blocks, its last record with a flipped byte.
fn flip_last(disk: &SimDisk, table: &str) {
    raw(disk, "packed.redb", |txn| {
        let table: redb::TableDefinition<'_, &[u8], &[u8]> = redb::TableDefinition::new(table);
        let mut blocks = txn.open_table(table).unwrap();
        let (key, mut value) = {
            let (key, value) = blocks.pop_last().unwrap().unwrap();
            (key.value().to_vec(), value.value().to_vec())
        };
        let middle = value.len() / 2;
        value[middle] ^= 1;
        blocks.insert(key.as_slice(), value.as_slice()).unwrap();
    });
}

#[test]
fn whatever_is_damaged_of_the_packed_view_is_found_and_healed() {
    let (mut node, _) = board();
    let before = node.export();
    node.pack();
    node.stop();
    let clean = node.disk.copy();
    for (table, what) in [
        ("blocks_of_rows", "block of rows"),
        ("blocks_of_texts", "text"),
        ("blocks_of_index", "index"),
    ] {
        for is_gone in [false, true] {
            let disk = clean.copy();
            if is_gone {
                raw(&disk, "packed.redb", |txn| {
                    let table: redb::TableDefinition<'_, &[u8], &[u8]> =
                        redb::TableDefinition::new(table);
                    drop(txn.open_table(table).unwrap().pop_last().unwrap());
                });
            } else {
                flip_last(&disk, table);
            }
            // What a start itself meets, such as a project's row, is computed again before the
            // node serves anybody; doctor finds the rest.
            let back = Replica::start(&node.founded, disk, node.seed, Clock::new(3));
            let found = back.ok("doctor", json!({}));
            if found["ok"] == false {
                let what = if is_gone { "view" } else { what };
                let said = found["problems"].to_string();
                assert!(
                    said.contains(what) || is_gone && said.contains("missing"),
                    "{table}: {found:#}"
                );
                assert!(said.contains("--rebuild"), "{table}: {found:#}");
            }
            let healed = back.ok("doctor", json!({ "rebuild": true }));
            assert_eq!(healed["ok"], true, "{table}: {healed:#}");
            assert!(back.export() == before, "{table}");
        }
    }
}

#[test]
fn a_flipped_byte_of_the_packed_log_is_found() {
    let (mut node, ids) = board();
    node.pack();
    node.stop();
    flip_last(&node.disk, "blocks");
    node.start_again();
    // The view answers; whoever needs the block is told.
    assert_eq!(node.task(&ids[20])["title"], "task 20");
    let found = node.ok("doctor", json!({}));
    assert_eq!(found["ok"], false);
    assert!(found["problems"].to_string().contains("block"), "{found:#}");
    node.refused(
        "UNAVAILABLE",
        "task_get",
        json!({ "id": ids[20], "view": "history" }),
    );
}

#[test]
fn a_newer_format_is_refused_and_the_file_left_as_it_is() {
    let (mut node, _) = board();
    node.node()
        .with_store(|store| store.set_format_for_test(3))
        .unwrap();
    node.stop();
    let before = ["packed.redb", "lease.json"].map(|name| node.disk.bytes(name));
    match open(&node.disk) {
        Err(error @ StoreError::Newer(3)) => {
            assert!(error.to_string().contains("format 3"), "{error}")
        }
        other => panic!("opened: {other:?}"),
    }
    // To read what the store says about itself redb opens and closes the first file, and keeps its
    // books in it; of ours nothing changes, and the version that wrote it goes on.
    assert!(before == ["packed.redb", "lease.json"].map(|name| node.disk.bytes(name)));
    raw(&node.disk, "workspace.redb", |txn| {
        use redb::ReadableTable;
        let meta: redb::TableDefinition<'static, &str, &[u8]> = redb::TableDefinition::new("meta");
        let mut meta = txn.open_table(meta).unwrap();
        let old = {
            let row = meta.get("store").unwrap().unwrap();
            let text = String::from_utf8_lossy(row.value()).into_owned();
            assert!(text.contains("\"format\":3"), "{text}");
            row.value().to_vec()
        };
        meta.insert("store", old.as_slice()).unwrap();
    });
}

#[test]
fn a_view_by_older_rules_is_computed_again_at_the_start() {
    let (mut node, ids) = board();
    let before = node.export();
    let id = ids[3].as_str().unwrap().parse().unwrap();
    node.node()
        .with_store(|store| store.alter_row_for_test(id, "title", "by the old rules"))
        .unwrap();
    let mut meta =
        serde_json::to_value(node.node().with_store(|store| Ok(store.meta())).unwrap()).unwrap();
    meta["view_rules"] = 0.into();
    node.node()
        .with_store(|store| store.set_meta_for_test(&serde_json::from_value(meta).unwrap()))
        .unwrap();
    node.restart();
    assert!(node.export() == before);
    node.assert_clean();
    let meta = node.node().with_store(|store| Ok(store.meta())).unwrap();
    assert_eq!(meta.view_rules, stead_node::store::VIEW_RULES);
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let (mut node, _) = board();
    let older = node.disk.copy();
    node.pack();
    node.create(json!({ "title": "later" }));
    node.pack();
    node.create(json!({ "title": "last" }));
    node.stop();
    drop(open(&older).unwrap());
    let other = SimDisk::default();
    drop(found(1).create(&other, 77));
    let cases = [
        (
            "the packed file of another store",
            node.disk.bytes("workspace.redb"),
            other.bytes("packed.redb"),
        ),
        (
            "an older packed file",
            node.disk.bytes("workspace.redb"),
            older.bytes("packed.redb"),
        ),
        (
            "an older hot file",
            older.bytes("workspace.redb"),
            node.disk.bytes("packed.redb"),
        ),
        (
            "no packed file",
            node.disk.bytes("workspace.redb"),
            Vec::new(),
        ),
        ("no hot file", Vec::new(), node.disk.bytes("packed.redb")),
    ];
    for (what, hot, packed) in cases {
        let disk = SimDisk::default();
        disk.set_bytes("workspace.redb", hot);
        disk.set_bytes("packed.redb", packed);
        match open(&disk) {
            Err(StoreError::Broken(why)) => assert!(why.contains("restore"), "{what}: {why}"),
            other => panic!("{what}: {other:?}"),
        }
    }
    assert!(matches!(
        open(&SimDisk::default()),
        Err(StoreError::Missing)
    ));
}

#[test]
fn a_truncated_or_overwritten_file_is_an_error_or_all_there_and_never_empty() {
    let (mut node, _) = board();
    node.pack();
    node.create(json!({ "title": "later" }));
    let whole = node.export();
    node.stop();
    let mut rng = Rng::new(11);
    for round in 0..(24 * count("STEAD_CRASHES", 1)) {
        for file in ["workspace.redb", "packed.redb"] {
            let disk = node.disk.copy();
            let mut bytes = disk.bytes(file);
            if round % 2 == 0 {
                let keep = match round {
                    0 => 1,
                    2 => 64,
                    4 => 320,
                    6 => 4_096,
                    _ => rng.below(bytes.len()),
                };
                bytes.truncate(keep);
            } else {
                let at = rng.below(bytes.len() - 4_096);
                for byte in &mut bytes[at..at + 4_096] {
                    *byte = rng.next() as u8;
                }
            }
            disk.set_bytes(file, bytes);
            // redb may only find it when it reads the page: an error then, or doctor's word.
            let started = std::panic::catch_unwind(|| {
                stead_node::handle::Node::start(opener(&disk), node.seed, Clock::new(4))
            });
            let Ok(Ok(started)) = started else { continue };
            let owner = started.local_caller(None).unwrap();
            let pages = started.exclusive(Store::check_pages);
            let doctor = started.call(&owner, "doctor", json!({}));
            let sound =
                matches!(pages, Ok(true)) && matches!(&doctor, Ok(found) if found["ok"] == true);
            if sound {
                let back = Replica::start_with(started, &node);
                assert!(
                    back.export() == whole,
                    "round {round}, {file}: something else is there and nobody says so"
                );
            }
        }
    }
}
