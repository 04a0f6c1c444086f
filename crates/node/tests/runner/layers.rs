//! The view lies in two files: what changed since the last packing over what is packed. Wherever it
//! lies, and whatever happens while it moves, the same is shown.

use redb::{ReadableTable, ReadableTableMetadata, TableDefinition};
use serde_json::{Value as Json, json};
use stead_doc::{id::ObjectId, schema::Schema};
use stead_node::store::{BackupHead, Store};

use super::{
    damage::raw,
    disk::{Cut, Fault, SimDisk},
    world::{CACHE, Clock, Replica, Rng, replica},
};

const HOT: [TableDefinition<'static, &[u8], &[u8]>; 3] = [
    TableDefinition::new("rows"),
    TableDefinition::new("texts"),
    TableDefinition::new("index_keys"),
];

/// So many entries are hot, in rows, texts and index.
fn hot(disk: &SimDisk) -> [u64; 3] {
    let mut counts = [0; 3];
    raw(&disk.copy(), "workspace.redb", |txn| {
        counts = HOT.map(|table| txn.open_table(table).unwrap().len().unwrap());
    });
    counts
}

/// Packed tasks, and over them changed bodies, statuses, edges and tags, new tasks and archived ones.
fn changed() -> (Replica, Vec<Json>) {
    let node = replica();
    let mut ids = Vec::new();
    let body = |n: usize| format!("word{n} and ").repeat(n * 13 % 97);
    for n in 0..40 {
        let mut task = json!({ "title": format!("task {n}"), "body": body(n), "tags": ["a", "b"], "idempotencyKey": format!("k{n}") });
        if n > 5 {
            task["dependsOn"] = json!([ids[n / 2]]);
        }
        ids.push(node.create(task)["id"].take());
    }
    node.pack();
    assert_eq!(hot(&node.disk), [0; 3]);
    for n in 0..12 {
        node.update(
            &ids[n],
            json!({ "body": body(n + 50), "removeTags": ["a"] }),
        );
        node.mutate("claim", json!({ "projectId": "board" }));
        ids.push(
            node.create(json!({ "title": format!("new {n}"), "parentId": ids[n] }))["id"].take(),
        );
    }
    for id in &ids[20..24] {
        let revision = node.task(id)["revision"].take();
        node.mutate("archive", json!({ "id": id, "revision": revision }));
    }
    (node, ids)
}

fn shown(node: &Replica, ids: &[Json]) -> Vec<Json> {
    let mut all = vec![json!(node.export())];
    for filter in [
        json!({}),
        json!({ "tag": "a" }),
        json!({ "next": true }),
        json!({ "status": ["in_progress"] }),
        json!({ "q": "word53", "order": "created" }),
    ] {
        all.push(json!(node.all_pages(&filter)));
    }
    for id in ids.iter().step_by(5) {
        all.push(node.ok("task_get", json!({ "id": id })));
        all.push(node.ok("task_get", json!({ "id": id, "view": "history" })));
    }
    all.push(node.ok("transitions", json!({ "projectId": "board", "limit": 900 })));
    all
}

#[test]
fn what_is_changed_over_a_packed_view_shows_alike_before_and_after_it_is_folded() {
    let (mut node, ids) = changed();
    let before = shown(&node, &ids);
    node.assert_clean();
    node.kill();
    assert_eq!(shown(&node, &ids), before, "killed");
    node.pack();
    assert_eq!(hot(&node.disk), [0; 3]);
    assert_eq!(shown(&node, &ids), before, "folded");
    node.assert_clean();
    node.ok("compact", json!({}));
    node.kill();
    assert_eq!(shown(&node, &ids), before, "compacted and killed");
    node.ok("doctor", json!({ "rebuild": true }));
    assert_eq!(hot(&node.disk), [0; 3], "a rebuilt view is folded");
    assert_eq!(shown(&node, &ids), before, "rebuilt");
    // What is taken back to what is packed says so too.
    let title = node.task(&ids[3])["title"].take();
    node.update(&ids[3], json!({ "title": "for a moment" }));
    node.update(&ids[3], json!({ "title": title }));
    node.pack();
    assert_eq!(node.task(&ids[3])["title"], title);
    node.assert_clean();
}

#[test]
fn a_backup_holds_both_layers() {
    let (node, ids) = changed();
    let before = shown(&node, &ids);
    let meta = node.node().with_store(|store| Ok(store.meta())).unwrap();
    let head = BackupHead {
        format: meta.format,
        workspace: meta.workspace,
        device_key: String::new(),
        made_at: 0,
        changes: node.arrivals(),
    };
    let mut file = Vec::new();
    node.node()
        .with_store(|store| store.backup(&head, &mut file))
        .unwrap();
    let disk = SimDisk::default();
    drop(Store::restore(Box::new(disk.clone()), file.as_slice(), [7; 16], CACHE).unwrap());
    let back = Replica::start(&node.founded, disk, node.seed, Clock::new(9));
    back.assert_clean();
    assert_eq!(shown(&back, &ids), before);
    back.pack();
    back.assert_clean();
    assert_eq!(shown(&back, &ids), before);
}

/// Opens the store of a disk and runs something that may meet a fault.
fn with_store(disk: &SimDisk, run: impl FnOnce(&mut Store)) {
    let mut store = Store::open(Box::new(disk.clone()), CACHE).unwrap();
    run(&mut store);
}

#[test]
fn a_crash_anywhere_in_a_folding_or_a_rebuild_changes_nothing_that_is_shown() {
    let (mut node, ids) = changed();
    let before = shown(&node, &ids);
    node.stop();
    type Run = fn(&mut Store);
    let runs: [(&str, Run, usize); 2] = [
        ("folding", |store| drop(store.pack()), 1),
        (
            "rebuild",
            |store| drop(store.rebuild_view(&Schema::board(), &mut |_, _| {})),
            3,
        ),
    ];
    let mut rng = Rng::new(12);
    for (what, run, step) in runs {
        let whole = node.disk.copy();
        let mut start = 0;
        with_store(&whole, |store| {
            start = whole.ops();
            run(store);
            start = whole.ops() - start;
        });
        let ops = start;
        assert!(ops > 10, "a {what} of {ops} operations shows little");
        let mut partly = 0;
        for at in (1..=ops).step_by(step) {
            let disk = node.disk.copy();
            with_store(&disk, |store| {
                disk.fail_in(at, Fault::Crash);
                run(store);
            });
            let cut = Cut::ALL[at as usize / step % Cut::ALL.len()];
            let disk = disk.after(cut, &mut rng);
            let counts = hot(&disk);
            partly += usize::from(counts[0] == 0 && counts[2] > 0);
            let mut back = Replica::start(&node.founded, disk, node.seed, node.clock.clone());
            let place = format!("{what}: crash at {at} of {ops}, {cut:?}");
            back.assert_clean();
            assert!(back.export() == before[0].as_str().unwrap(), "{place}");
            if at % 5 == 0 {
                assert_eq!(shown(&back, &ids), before, "{place}");
                // And it goes on from there.
                back.pack();
                back.kill();
                assert_eq!(shown(&back, &ids), before, "{place}");
                back.assert_clean();
            }
        }
        assert!(
            what == "rebuild" || partly > 0,
            "no crash came between two removals"
        );
    }
}

#[test]
fn a_folding_that_fails_anywhere_leaves_a_node_that_goes_on() {
    let (mut node, ids) = changed();
    node.stop();
    for fault in [Fault::Error, Fault::SyncKept, Fault::Full] {
        let mut failed = 0;
        for at in (1..200).step_by(2) {
            let disk = node.disk.copy();
            let back = Replica::start(&node.founded, disk, node.seed, Clock::new(at));
            let before = back.export();
            back.disk.fail_in(at, fault);
            let packed = back.node().with_store(Store::pack);
            let came = back.disk.fault_came();
            back.disk.heal();
            if packed.is_ok() && !came {
                break;
            }
            failed += usize::from(packed.is_err());
            // The first command may be told that the store is opened again.
            let write = json!({ "action": "comment", "id": ids[0], "body": "after it", "idempotencyKey": "c" });
            if back.call("task_mutate", write.clone()).is_err() {
                back.ok("task_mutate", write);
            }
            assert_ne!(back.export(), before);
            back.assert_clean();
            back.pack();
            assert_eq!(hot(&back.disk), [0; 3]);
            back.assert_clean();
        }
        assert!(failed > 0 || fault == Fault::Full, "{fault:?} never came");
    }
}

/// A description with the length and checksum that records have.
fn sealed(content: &[u8]) -> Vec<u8> {
    let mut record = vec![1];
    record.extend((content.len() as u32).to_le_bytes());
    record.extend(&blake3::hash(content).as_bytes()[..4]);
    record.extend(content);
    record
}

/// Makes the store on a disk, whose view is hot, one of format 1, which kept it so.
fn to_format_1(disk: &SimDisk, moves: &[(Vec<u8>, String)]) {
    const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");
    raw(disk, "workspace.redb", |txn| {
        let old: TableDefinition<'static, &[u8], ()> = TableDefinition::new("index");
        {
            let (new, mut old) = (
                txn.open_table(HOT[2]).unwrap(),
                txn.open_table(old).unwrap(),
            );
            for row in new.iter().unwrap() {
                let (key, value) = row.unwrap();
                if !value.value().is_empty() {
                    old.insert(key.value(), ()).unwrap();
                }
            }
        }
        txn.delete_table(HOT[2]).unwrap();
        for table in [HOT[0], HOT[1]] {
            let mut table = txn.open_table(table).unwrap();
            table.retain(|_, value| !value.is_empty()).unwrap();
        }
        let mut meta = txn.open_table(META).unwrap();
        meta.remove("layers").unwrap();
        let said = meta.get("store").unwrap().unwrap().value()[9..].to_vec();
        let mut said: Json = serde_json::from_slice(&said).unwrap();
        said["format"] = 1.into();
        meta.insert("store", sealed(said.to_string().as_bytes()).as_slice())
            .unwrap();
    });
    raw(disk, "packed.redb", |txn| {
        for (new, old) in [("hash_places", "hashes"), ("key_places", "keys")] {
            let new: TableDefinition<'_, &[u8; 6], &[u8]> = TableDefinition::new(new);
            let old: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(old);
            {
                let (new, mut old) = (txn.open_table(new).unwrap(), txn.open_table(old).unwrap());
                for row in new.iter().unwrap() {
                    let (key, value) = row.unwrap();
                    let key = [key.value().as_slice(), &[3, 4]].concat();
                    old.insert(key.as_slice(), value.value()).unwrap();
                }
            }
            txn.delete_table(new).unwrap();
        }
        for name in ["rows", "texts", "index", "transitions"] {
            let name = format!("blocks_of_{name}");
            let table: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(&name);
            assert!(txn.delete_table(table).unwrap());
        }
        let old: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("transitions");
        let mut old = txn.open_table(old).unwrap();
        for (key, value) in moves {
            old.insert(key.as_slice(), value.as_bytes()).unwrap();
        }
        let meta: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("packed_meta");
        txn.open_table(meta).unwrap().remove("folded").unwrap();
    });
}

#[test]
fn a_store_of_format_1_is_carried_over() {
    let (mut node, ids) = changed();
    node.pack();
    let before = shown(&node, &ids);
    // When each status moved, as format 1 kept it: the cursor of a page of one tells the arrival.
    let mut moves = Vec::new();
    let mut cursor = json!(0);
    while !cursor.is_null() {
        let page = node.ok(
            "transitions",
            json!({ "projectId": "board", "cursor": cursor, "limit": 1 }),
        );
        cursor = page["nextCursor"].clone();
        let Some(next) = cursor.as_u64() else { break };
        for row in page["transitions"].as_array().unwrap() {
            let object: ObjectId = row["taskId"].as_str().unwrap().parse().unwrap();
            let key = [
                1u32.to_be_bytes().as_slice(),
                &(next - 1).to_be_bytes(),
                &object.to_bits().to_be_bytes(),
                row["field"].as_str().unwrap().as_bytes(),
            ]
            .concat();
            moves.push((key, row["value"].as_str().unwrap().to_owned()));
        }
    }
    assert!(moves.len() > 40);
    node.stop();
    // A rebuild that ends before it folds leaves the log packed and the whole view hot.
    let mut at = 0;
    let disk = loop {
        at += 1;
        let disk = node.disk.copy();
        with_store(&disk, |store| {
            disk.fail_in(at, Fault::Crash);
            drop(store.rebuild_view(&Schema::board(), &mut |_, _| {}));
        });
        let disk = disk.copy();
        if hot(&disk)[0] as usize > ids.len() {
            break disk;
        }
    };
    to_format_1(&disk, &moves);
    let format_1 = disk.copy();
    let mut back = Replica::start(&node.founded, disk, node.seed, node.clock.clone());
    let meta = back.node().with_store(|store| Ok(store.meta())).unwrap();
    assert_eq!(meta.format, stead_node::store::FORMAT);
    assert_eq!(shown(&back, &ids), before);
    back.assert_clean();
    back.restart();
    back.pack();
    assert_eq!(hot(&back.disk), [0; 3]);
    assert_eq!(shown(&back, &ids), before, "and folded");
    back.assert_clean();
    // The indexes over the log are whole: a key has its one effect, a peer gets everything.
    let arrivals = back.arrivals();
    let again = json!({ "title": "task 7", "body": "word7 and ".repeat(91), "tags": ["a", "b"], "idempotencyKey": "k7", "dependsOn": [ids[3]] });
    assert_eq!(back.create(again)["id"], ids[7]);
    assert_eq!(back.arrivals(), arrivals);
    // A crash on the way is carried over by the next start.
    let whole = format_1.copy();
    with_store(&whole, |_| {});
    let mut rng = Rng::new(3);
    for at in (1..=whole.ops()).step_by(4) {
        let disk = format_1.copy();
        disk.fail_in(at, Fault::Crash);
        drop(Store::open(Box::new(disk.clone()), CACHE));
        let disk = disk.after(Cut::ALL[at as usize % Cut::ALL.len()], &mut rng);
        let back = Replica::start(&node.founded, disk, node.seed, node.clock.clone());
        assert_eq!(shown(&back, &ids), before, "crash at {at}");
        back.assert_clean();
    }
}
