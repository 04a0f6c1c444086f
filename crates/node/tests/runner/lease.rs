//! When a device writes under a new incarnation: whenever it cannot be sure that its store holds
//! everything it ever wrote.

use std::collections::BTreeMap;

use serde_json::json;
use stead_node::store::{BackupHead, Directory, Store};

use super::world::{CACHE, Clock, Replica, exchange, replica, replicas};

/// Every change of a node by (document, actor, seq).
fn changes(node: &Replica) -> BTreeMap<(String, [u8; 16], u64), [u8; 32]> {
    let mut all = BTreeMap::new();
    for run in node.runs_beyond(&|_| 0) {
        let document = run.document.id(*node.founded.roster.workspace().as_bytes());
        for bytes in &run.changes {
            let change = stead_doc::change::Change::decode(document, bytes).unwrap();
            let key = (format!("{:?}", run.document), change.actor.0, change.seq);
            assert!(all.insert(key, change.hash.0).is_none());
        }
    }
    all
}

/// No correct node ever makes two different changes with one actor and seq.
fn assert_no_equivocation(nodes: &[&Replica]) {
    let mut all = BTreeMap::new();
    for node in nodes {
        for (key, hash) in changes(node) {
            assert_eq!(
                *all.entry(key).or_insert(hash),
                hash,
                "one actor and seq, two changes"
            );
        }
    }
}

#[test]
fn a_clean_stop_keeps_the_incarnation_and_a_kill_does_not() {
    let mut node = replica();
    node.create(json!({ "title": "one" }));
    let first = node.incarnation();
    assert!(!first.is_empty());
    node.restart();
    node.create(json!({ "title": "two" }));
    assert_eq!(node.incarnation(), first);
    node.kill();
    node.create(json!({ "title": "three" }));
    assert_ne!(node.incarnation(), first);
    let second = node.incarnation();
    // A start that only read is closed clean again.
    node.restart();
    node.export();
    node.restart();
    node.create(json!({ "title": "four" }));
    assert_eq!(node.incarnation(), second);
    node.assert_clean();
}

#[test]
fn a_drop_of_the_last_handle_is_a_clean_stop() {
    let mut node = replica();
    node.create(json!({ "title": "one" }));
    let first = node.incarnation();
    let disk = node.disk.clone();
    let (founded, seed, clock) = (node.founded.clone(), node.seed, node.clock.clone());
    drop(node);
    node = Replica::start(&founded, disk, seed, clock);
    node.create(json!({ "title": "two" }));
    assert_eq!(node.incarnation(), first);
}

#[test]
fn an_older_copy_of_the_files_never_repeats_a_place_of_the_log() {
    let mut nodes = replicas(2);
    let peer = nodes.pop().unwrap();
    let mut node = nodes.pop().unwrap();
    node.create(json!({ "title": "before" }));
    // Copied while it runs: the lease in the copy is open.
    let running = node.disk.copy();
    // Copied after a clean stop, without the lease that goes with it.
    node.stop();
    let stopped = node.disk.copy();
    node.start_again();
    node.create(json!({ "title": "after, with the peer" }));
    exchange(&node, &peer);
    node.stop();
    let lease = node.disk.bytes("lease.json");
    for (what, disk) in [("running", running), ("stopped", stopped.copy())] {
        if what == "stopped" {
            // The files of the store are put back, the lease beside them is the newer one.
            disk.set_bytes("lease.json", lease.clone());
        }
        let before = disk.bytes("lease.json");
        let back = Replica::start(
            &node.founded,
            disk,
            node.seed,
            Clock::new(70 + what.len() as u64 + u64::from(what == "stopped")),
        );
        let old = back.incarnation();
        back.create(json!({ "title": format!("written by the copy of the {what} one") }));
        assert_ne!(
            back.incarnation(),
            old,
            "{what}: {}",
            String::from_utf8_lossy(&before)
        );
        assert_no_equivocation(&[&back, &peer]);
        exchange(&back, &peer);
        back.assert_clean();
        peer.assert_clean();
        assert!(back.export() == peer.export());
    }
    // Without any lease, and with one that is no lease.
    for content in [None, Some(b"{".to_vec())] {
        let disk = stopped.copy();
        disk.set_bytes("lease.json", content.unwrap_or_default());
        let back = Replica::start(&node.founded, disk, node.seed, Clock::new(90));
        let old = back.incarnation();
        back.create(json!({ "title": "x" }));
        assert_ne!(back.incarnation(), old);
    }
}

#[test]
fn a_restored_backup_is_another_generation_and_writes_as_another_incarnation() {
    let node = replica();
    let id = node.create(json!({ "title": "kept", "body": "b".repeat(4_000) }))["id"].take();
    node.pack();
    node.create(json!({ "title": "unpacked", "idempotencyKey": "k" }));
    let meta = node.node().with_store(|store| Ok(store.meta())).unwrap();
    let head = BackupHead {
        format: meta.format,
        workspace: meta.workspace.clone(),
        device_key: String::new(),
        made_at: 0,
        changes: node.arrivals(),
    };
    let mut file = Vec::new();
    node.node()
        .with_store(|store| store.backup(&head, &mut file))
        .unwrap();
    // What was written after the backup is with a peer alone.
    node.create(json!({ "title": "after the backup" }));

    let disk = super::disk::SimDisk::default();
    let (store, _) =
        Store::restore(Box::new(disk.clone()), file.as_slice(), [200; 16], CACHE).unwrap();
    assert_ne!(store.meta().generation, meta.generation);
    drop(store);
    let back = Replica::start(&node.founded, disk, node.seed, Clock::new(5));
    back.assert_clean();
    assert_eq!(back.task(&id)["body"].as_str().unwrap().len(), 4_000);
    back.create(json!({ "title": "of the restored one" }));
    assert_ne!(back.incarnation(), meta.incarnation);
    assert_no_equivocation(&[&back, &node]);
    exchange(&back, &node);
    assert!(back.export() == node.export());
    assert_eq!(back.all_pages(&json!({})).len(), 4);

    // A backup that is cut or altered anywhere gives no store.
    for at in [0, 10, file.len() / 2, file.len() - 1] {
        let cut = &file[..at];
        let disk = super::disk::SimDisk::default();
        assert!(
            Store::restore(Box::new(disk.clone()), cut, [1; 16], CACHE).is_err(),
            "cut at {at}"
        );
        assert!(Store::open(Box::new(disk), CACHE).is_err(), "cut at {at}");
        let mut flipped = file.clone();
        flipped[at.min(file.len() - 1)] ^= 0x10;
        let disk = super::disk::SimDisk::default();
        assert!(
            Store::restore(Box::new(disk), flipped.as_slice(), [1; 16], CACHE).is_err(),
            "flipped at {at}"
        );
    }
}

/// What is kept for this machine alone is neither in a document nor lost.
#[test]
fn a_local_value_survives_a_restart() {
    let place = tempfile::tempdir().unwrap();
    let disk = || Box::new(Directory::new(place.path()).unwrap());
    let store = Store::create(disk(), [1; 16], [2; 16], &[b"entry"], CACHE).unwrap();
    assert_eq!(store.local(b"visit/ada").unwrap(), None);
    store.set_local(b"visit/ada", b"41").unwrap();
    store.set_local(b"visit/ada", b"42").unwrap();
    drop(store);
    let store = Store::open(disk(), CACHE).unwrap();
    assert_eq!(store.local(b"visit/ada").unwrap().unwrap(), b"42");
    assert_eq!(store.local(b"visit/bea").unwrap(), None);
    assert_eq!(store.arrivals(), 0);
}
