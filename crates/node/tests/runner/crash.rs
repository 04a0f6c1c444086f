//! Crashes at every operation of a small workload, packing included, and again while the store
//! recovers: what was acknowledged is there, what was under way is there whole or not at all.

use serde_json::{Value as Json, json};
use stead_doc::board::Command;
use stead_node::{
    core::{Core, Job, Tick},
    store::{Store, StoreError},
};
use stead_sync::DeviceKey;

use super::{
    disk::{Cut, Fault, SimDisk},
    world::{CACHE, Clock, Founded, Replica, Rng, START, count, found},
};

/// A workload whose every run makes the same bytes: `done` is told after each step that is
/// acknowledged.
fn workload(founded: &Founded, disk: &SimDisk, done: &mut dyn FnMut()) -> Result<(), StoreError> {
    let store = Store::open(Box::new(disk.clone()), CACHE)?;
    let mut core = Core::open(&store, DeviceKey::from_seed(&founded.seeds[0])).map_err(
        |error| match error {
            stead_node::core::OpenError::Store(error) => error,
            other => panic!("{other}"),
        },
    )?;
    let owner = core.owner().unwrap();
    let mut tick = 100;
    let mut ids: Vec<Json> = Vec::new();
    let mut run =
        |store: &Store, ids: &mut Vec<Json>, calls: Vec<Json>| -> Result<(), StoreError> {
            tick += 1;
            let jobs = calls
                .into_iter()
                .map(|call| {
                    let Json::Object(map) = call else {
                        panic!("no object")
                    };
                    Job::Command {
                        caller: owner.clone(),
                        command: Command::Task(map),
                    }
                })
                .collect();
            let tick = Tick {
                wall_ms: START + i64::from(tick) * 1_000,
                entropy: [tick as u8; 32],
            };
            for answer in core.run(store, jobs, tick)?.answers {
                let answer = answer.unwrap_or_else(|refusal| panic!("{refusal}"));
                ids.push(answer["task"]["id"].clone());
            }
            Ok(())
        };
    let create = |title: &str, body: usize| json!({ "action": "create", "projectId": "board", "title": title, "body": "b".repeat(body), "idempotencyKey": title });
    run(&store, &mut ids, vec![create("one", 10)])?;
    done();
    run(
        &store,
        &mut ids,
        vec![
            create("two", 9_000),
            create("three", 0),
            json!({ "action": "claim", "projectId": "board" }),
        ],
    )?;
    done();
    while store.pack()? > 0 {}
    done();
    let comment = json!({ "action": "comment", "id": ids[0], "body": "a remark" });
    run(&store, &mut ids, vec![comment])?;
    done();
    run(
        &store,
        &mut ids,
        (0..20)
            .map(|n| create(&format!("many {n}"), 500 * (n % 3)))
            .collect(),
    )?;
    done();
    while store.pack()? > 0 {}
    done();
    // Over what is packed: rows that change, index keys that go.
    let claim = json!({ "action": "claim", "projectId": "board" });
    run(
        &store,
        &mut ids,
        vec![create("last", 3), claim.clone(), claim],
    )?;
    done();
    while store.pack()? > 0 {}
    done();
    store.close_lease()?;
    done();
    Ok(())
}

struct Base {
    founded: Founded,
    disk: SimDisk,
    /// The export after each acknowledged step, the start first.
    states: Vec<String>,
    /// Operations of a run without faults.
    ops: u64,
}

fn base() -> Base {
    let founded = found(1);
    let seed = founded.seeds[0];
    let mut node = founded.replica(seed, 0);
    node.ok("project_add", json!({ "slug": "board" }));
    node.create(json!({ "title": "from before", "body": "x".repeat(2_000) }));
    node.pack();
    node.create(json!({ "title": "unpacked before" }));
    node.stop();
    let disk = node.disk.copy();
    let run = disk.copy();
    let mut states = vec![export(&founded, &run.copy())];
    let before = run.ops();
    workload(&founded, &run.clone(), &mut || {
        states.push(export(&founded, &run.copy()))
    })
    .unwrap();
    Base {
        founded,
        disk,
        states,
        ops: run.ops() - before,
    }
}

fn look(founded: &Founded, disk: &SimDisk) -> Replica {
    Replica::start(founded, disk.clone(), founded.seeds[0], Clock::new(55))
}

fn export(founded: &Founded, disk: &SimDisk) -> String {
    look(founded, disk).export()
}

impl Base {
    /// A disk on which the workload met a fault, and how many steps were acknowledged.
    fn run(&self, at: u64, fault: Fault) -> (SimDisk, usize) {
        let disk = self.disk.copy();
        disk.fail_in(at, fault);
        let mut acknowledged = 0;
        // Whether it ends in an error or not: what counts is what was acknowledged.
        let ended = workload(&self.founded, &disk, &mut || acknowledged += 1);
        assert_eq!(ended.is_ok(), acknowledged + 1 == self.states.len());
        (disk, acknowledged)
    }

    /// After a start on this disk: everything acknowledged, the step under way whole or absent.
    fn check(&self, disk: &SimDisk, acknowledged: usize, thorough: bool, what: &str) {
        let mut node = look(&self.founded, disk);
        let export = node.export();
        let possible = &self.states[acknowledged..(acknowledged + 2).min(self.states.len())];
        assert!(
            possible.contains(&export),
            "{what}: {acknowledged} steps were acknowledged, and neither they nor they and the next are what is there"
        );
        node.assert_clean();
        if !thorough {
            return;
        }
        // It writes on, and what it writes stays.
        let id = node.create(json!({ "title": "after" }))["id"].take();
        node.pack();
        node.kill();
        assert_eq!(node.task(&id)["title"], "after", "{what}");
        assert!(node.disk.bytes("workspace.redb").len() > 1_000);
        node.assert_clean();
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_acknowledged() {
    let base = base();
    assert!(
        base.ops > 30,
        "a workload of {} operations shows little",
        base.ops
    );
    let mut rng = Rng::new(1);
    // All points one after the other, the cuts in turn; more rounds draw other survivors.
    for round in 0..count("STEAD_CRASHES", 1) {
        for at in 1..=base.ops {
            let cut = Cut::ALL[(at as usize + round) % Cut::ALL.len()];
            let (disk, acknowledged) = base.run(at, Fault::Crash);
            assert!(disk.fault_came());
            let what = format!("crash at {at} of {}, {cut:?}", base.ops);
            let thorough = (at as usize + round).is_multiple_of(7);
            base.check(&disk.after(cut, &mut rng), acknowledged, thorough, &what);
        }
    }
}

#[test]
fn a_second_crash_during_recovery_loses_nothing_either() {
    let base = base();
    let mut rng = Rng::new(2);
    for turn in 0..(25 * count("STEAD_CRASHES", 1)) {
        let at = 1 + rng.below(base.ops as usize) as u64;
        let (first, second) = (*rng.pick(&Cut::ALL), *rng.pick(&Cut::ALL));
        let (disk, acknowledged) = base.run(at, Fault::Crash);
        let disk = disk.after(first, &mut rng);
        // How many operations a start takes, and then a start that ends at one of them.
        let whole = disk.copy();
        let opened = |disk: &SimDisk| -> Result<(), StoreError> {
            let store = Store::open(Box::new(disk.clone()), CACHE)?;
            store.take_lease()?;
            store.set_incarnation([turn as u8; 16])?;
            Ok(())
        };
        opened(&whole).unwrap();
        let stop = 1 + rng.below(whole.ops() as usize) as u64;
        let again = disk.copy();
        again.fail_in(stop, Fault::Crash);
        drop(opened(&again));
        let what = format!("crash at {at}, {first:?}, and at {stop} of the recovery, {second:?}");
        base.check(
            &again.after(second, &mut rng),
            acknowledged,
            turn % 5 == 0,
            &what,
        );
    }
}

#[test]
fn an_operation_that_fails_is_never_acknowledged_and_loses_nothing() {
    let base = base();
    let mut rng = Rng::new(3);
    for fault in [Fault::Error, Fault::SyncKept, Fault::Full] {
        for at in (1 + rng.below(3) as u64..=base.ops).step_by(7) {
            let disk = base.disk.copy();
            disk.fail_in(at, fault);
            let mut acknowledged = 0;
            drop(workload(&base.founded, &disk, &mut || acknowledged += 1));
            disk.heal();
            let what = format!("{fault:?} at {at} of {}", base.ops);
            for cut in [Cut::Process, *rng.pick(&Cut::ALL)] {
                let thorough = cut == Cut::Process && at % 3 == 0;
                base.check(&disk.after(cut, &mut rng), acknowledged, thorough, &what);
            }
        }
    }
}

#[test]
fn a_crash_while_a_store_is_made_leaves_a_store_or_a_clear_error() {
    let founded = found(1);
    let entries: Vec<&[u8]> = founded.entries.iter().map(Vec::as_slice).collect();
    let create = |disk: &SimDisk| {
        let workspace = *founded.roster.workspace().as_bytes();
        Store::create(Box::new(disk.clone()), workspace, [9; 16], &entries, CACHE).map(drop)
    };
    let whole = SimDisk::default();
    create(&whole).unwrap();
    let mut rng = Rng::new(4);
    for at in 1..=whole.ops() {
        let disk = SimDisk::default();
        disk.fail_in(at, Fault::Crash);
        let made = create(&disk).is_ok();
        let after = disk.after(*rng.pick(&Cut::ALL), &mut rng);
        match Store::open(Box::new(after), CACHE) {
            Ok(store) => assert_eq!(store.roster().unwrap(), founded.entries),
            Err(error) => assert!(!made, "crash at {at}: the store was made, and {error}"),
        }
    }
}
