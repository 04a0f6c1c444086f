//! What shares a commit: each command sees the ones before it, and nothing is answered before it
//! is durable.

use serde_json::{Value as Json, json};
use stead_doc::{board::Command, context::Caller};
use stead_node::{
    core::{Core, Job, Tick},
    store::Store,
};
use stead_sync::DeviceKey;

use super::{
    disk::SimDisk,
    world::{AGENTS, Clock, Founded, Replica, START, found, replica},
};

/// A core without the running node around it, so that a test says what is one batch.
struct Bare {
    store: Store,
    core: Core,
    disk: SimDisk,
    founded: Founded,
    ticks: u8,
}

impl Bare {
    fn new() -> Self {
        let founded = found(1);
        let disk = SimDisk::default();
        let store = founded.create(&disk, 1);
        let core = Core::open(&store, DeviceKey::from_seed(&founded.seeds[0])).unwrap();
        let mut bare = Self {
            store,
            core,
            disk,
            founded,
            ticks: 0,
        };
        let owner = bare.core.owner().unwrap();
        let command = Command::Project {
            slug: "board".to_owned(),
            name: String::new(),
        };
        bare.run(vec![Job::Command {
            caller: owner,
            command,
        }]);
        bare
    }

    fn run(&mut self, jobs: Vec<Job>) -> Vec<Result<Json, Json>> {
        self.ticks += 1;
        let tick = Tick {
            wall_ms: START + i64::from(self.ticks),
            entropy: [self.ticks; 32],
        };
        let done = self.core.run(&self.store, jobs, tick).unwrap();
        done.answers
            .into_iter()
            .map(|answer| answer.map_err(|refusal| refusal.to_json()))
            .collect()
    }

    fn job(&self, call: Json) -> Job {
        Self::job_of(self.core.owner().unwrap(), call)
    }

    fn job_of(caller: Caller, call: Json) -> Job {
        let Json::Object(map) = call else {
            panic!("no object")
        };
        Job::Command {
            caller,
            command: Command::Task(map),
        }
    }

    fn create(&mut self, title: &str) -> Json {
        let job = self.job(json!({ "action": "create", "projectId": "board", "title": title }));
        self.run(vec![job]).remove(0).unwrap()["task"].take()
    }

    /// Goes on as a running node, to look at what is there.
    fn into_replica(self) -> Replica {
        drop(self.store);
        let seed = self.founded.seeds[0];
        Replica::start(&self.founded, self.disk.copy(), seed, Clock::new(9))
    }
}

#[test]
fn two_commands_with_one_revision_in_one_batch_have_one_winner() {
    let mut bare = Bare::new();
    let task = bare.create("first");
    let write = |title: &str| json!({ "action": "update", "id": task["id"], "revision": task["revision"], "title": title });
    let jobs = vec![bare.job(write("winner")), bare.job(write("late"))];
    let answers = bare.run(jobs);
    let winner = answers[0].as_ref().unwrap();
    let refused = answers[1].as_ref().unwrap_err();
    assert_eq!(refused["code"], "STALE_WRITE");
    assert_eq!(refused["current"]["title"], "winner");
    assert_eq!(refused["current"]["revision"], winner["task"]["revision"]);
    let node = bare.into_replica();
    assert_eq!(node.task(&task["id"])["title"], "winner");
    node.assert_clean();
}

#[test]
fn claim_next_is_never_the_same_task_twice_in_one_batch() {
    let mut bare = Bare::new();
    for n in 0..6 {
        bare.create(&format!("t{n}"));
    }
    let agents: Vec<Caller> = AGENTS
        .iter()
        .map(|name| bare.core.caller_by_name(name).unwrap())
        .collect();
    let claims: Vec<Job> = (0..8)
        .map(|n| {
            Bare::job_of(
                agents[n % 2].clone(),
                json!({ "action": "claim", "projectId": "board" }),
            )
        })
        .collect();
    let answers = bare.run(claims);
    let mut taken: Vec<String> = answers
        .iter()
        .filter_map(|answer| {
            answer.as_ref().unwrap()["task"]["id"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    assert_eq!(taken.len(), 6, "{answers:?}");
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 6, "a task was given twice");
    for empty in &answers[6..] {
        assert_eq!(empty.as_ref().unwrap()["task"], Json::Null);
    }
}

#[test]
fn a_refused_command_between_two_good_ones_leaves_both() {
    let mut bare = Bare::new();
    let task = bare.create("there");
    let jobs = vec![
        bare.job(json!({ "action": "create", "projectId": "board", "title": "before" })),
        bare.job(json!({ "action": "update", "id": task["id"], "revision": task["revision"], "title": "x", "nonsense": 1 })),
        bare.job(json!({ "action": "create", "projectId": "nowhere", "title": "lost" })),
        bare.job(json!({ "action": "create", "projectId": "board", "title": "after" })),
    ];
    let answers = bare.run(jobs);
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, false, true]
    );
    let node = bare.into_replica();
    for answer in [&answers[0], &answers[3]] {
        let task = &answer.as_ref().unwrap()["task"];
        let now = node.task(&task["id"]);
        for (field, value) in task.as_object().unwrap() {
            assert_eq!(now[field], *value);
        }
    }
    assert_eq!(node.all_pages(&json!({})).len(), 3);
    node.assert_clean();
}

#[test]
fn a_batch_in_which_nothing_is_written_leaves_the_store_as_it_was() {
    let mut bare = Bare::new();
    bare.create("one");
    let before = bare.disk.bytes("workspace.redb");
    let jobs = vec![bare.job(json!({ "action": "create", "projectId": "board" }))];
    assert!(bare.run(jobs)[0].is_err());
    assert!(
        bare.disk.bytes("workspace.redb") == before,
        "a refusal wrote something"
    );
    let node = bare.into_replica();
    node.assert_clean();
}

#[test]
fn every_answer_under_group_commit_is_durable() {
    const THREADS: usize = 16;
    const EACH: usize = 20;
    let mut node = replica();
    let shared = node.create(json!({ "title": "counter" }))["id"].take();
    let answers: Vec<Vec<Json>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (node, shared) = (&node, &shared);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for n in 0..EACH {
                        mine.push(node.create(json!({ "title": format!("{thread}/{n}") })));
                        if n % 5 == 0 {
                            // Everybody writes one object; each round somebody loses and reads again.
                            loop {
                                let revision = node.task(shared)["revision"].take();
                                let call = json!({ "action": "update", "id": shared, "revision": revision, "statePatch": { format!("{thread}-{n}"): true } });
                                match node.call("task_mutate", call) {
                                    Ok(_) => break,
                                    Err(refusal) => assert_eq!(refusal.code.as_str(), "STALE_WRITE"),
                                }
                            }
                        }
                    }
                    mine
                })
            })
            .collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    let syncs = node.disk.ops();
    node.kill();
    let state = node.task(&shared)["state"].take();
    assert_eq!(state.as_object().unwrap().len(), THREADS * EACH.div_ceil(5));
    for task in answers.iter().flatten() {
        assert_eq!(node.task(&task["id"])["revision"], task["revision"]);
    }
    assert_eq!(
        node.arrivals() as usize,
        2 + THREADS * EACH + THREADS * EACH.div_ceil(5)
    );
    assert!(syncs > 0);
    node.assert_clean();
}
