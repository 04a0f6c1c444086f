//! Workspaces for tests: time that a test moves, entropy that repeats, several devices.

use std::sync::{
    Arc,
    atomic::{AtomicI64, AtomicU64, Ordering},
};

use serde_json::{Value as Json, json};
use stead_doc::{context::Caller, refusal::Refusal};
use stead_node::{
    core::{Job, SignedRun, runs_beyond},
    edge::World,
    handle::{Node, Opener},
    store::{Cache, Store},
};
use stead_sync::{
    Body, CredentialAdded, CredentialId, CredentialKind, DeviceAdded, DeviceKey, DeviceRole,
    Founding, Grants, MemberAdded, MemberId, Rank, RecoveryKey, Responsibility, Roster, RosterHead,
    Scopes,
};

use super::disk::SimDisk;

pub(crate) const START: i64 = 1_790_000_000_000;

/// A clock that stands still until it is moved, and entropy from a seed.
#[derive(Debug)]
pub(crate) struct Clock {
    wall: AtomicI64,
    drawn: AtomicU64,
    seed: u64,
}

impl Clock {
    pub(crate) fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            wall: START.into(),
            drawn: 0.into(),
            seed,
        })
    }

    pub(crate) fn advance(&self, ms: i64) {
        self.wall.fetch_add(ms, Ordering::SeqCst);
    }
}

impl World for Clock {
    fn wall_ms(&self) -> i64 {
        self.wall.load(Ordering::SeqCst)
    }

    fn entropy(&self) -> [u8; 32] {
        let drawn = self.drawn.fetch_add(1, Ordering::SeqCst);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(&drawn.to_le_bytes());
        *hasher.finalize().as_bytes()
    }
}

/// A small generator of numbers: splitmix64.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for index in (1..list.len()).rev() {
            let other = self.below(index + 1);
            list.swap(index, other);
        }
    }
}

/// A count that the environment may raise.
pub(crate) fn count(name: &str, normal: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(normal)
}

/// Who takes part: the roster with its entries, and everybody's keys.
#[derive(Debug, Clone)]
pub(crate) struct Founded {
    pub(crate) roster: Roster,
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) heads: Vec<RosterHead>,
    /// The owner's devices.
    pub(crate) seeds: Vec<[u8; 32]>,
    /// Bea's device.
    pub(crate) bea: [u8; 32],
    pub(crate) owner: CredentialId,
    pub(crate) bea_credential: CredentialId,
}

pub(crate) const AGENTS: [&str; 2] = ["scout", "smith"];

/// A workspace of Ada, with so many devices and two local agents, and Bea with one device.
pub(crate) fn found(devices: usize) -> Founded {
    found_apart(devices, 8)
}

/// The same people and keys in a workspace that differs by its nonce.
pub(crate) fn found_apart(devices: usize, nonce: u8) -> Founded {
    let seeds: Vec<[u8; 32]> = (0..devices).map(|n| [n as u8 + 1; 32]).collect();
    let keys: Vec<DeviceKey> = seeds.iter().map(DeviceKey::from_seed).collect();
    let bea = [99; 32];
    let ada_id = MemberId::from_bytes([1; 8]);
    let bea_id = MemberId::from_bytes([2; 8]);
    let owner = CredentialId::from_bytes([3; 8]);
    let bea_credential = CredentialId::from_bytes([4; 8]);
    let founding = Founding {
        workspace_name: "Ada's board".to_owned(),
        device_name: "first".to_owned(),
        recovery: RecoveryKey::from_entropy(&[7; 32]).id(),
        nonce: [nonce; 32],
        created_at: START as u64,
        member: ada_id,
        member_name: "Ada".to_owned(),
        email: Some("ada@example.org".to_owned()),
        credential: owner,
        credential_name: "Ada".to_owned(),
        token_hash: None,
    };
    let (mut roster, genesis) = Roster::found(&keys[0], founding).unwrap();
    let mut entries = vec![genesis.bytes().to_vec()];
    let mut heads = vec![genesis.head()];
    let mut bodies = Vec::new();
    for (n, key) in keys.iter().enumerate().skip(1) {
        bodies.push(Body::DeviceAdded(DeviceAdded {
            device: key.id(),
            member: ada_id,
            role: DeviceRole::Full,
            name: format!("device {n}"),
        }));
    }
    bodies.push(Body::MemberAdded(MemberAdded {
        member: bea_id,
        name: "Bea".to_owned(),
        email: Some("bea@example.org".to_owned()),
        rank: Rank::Member,
        responsibility: Responsibility::Contributor,
    }));
    bodies.push(Body::CredentialAdded(CredentialAdded {
        credential: bea_credential,
        member: bea_id,
        name: "Bea".to_owned(),
        kind: CredentialKind::Person,
        token_hash: None,
        scopes: Rank::Member.scopes(),
        grants: Grants::All,
    }));
    bodies.push(Body::DeviceAdded(DeviceAdded {
        device: DeviceKey::from_seed(&bea).id(),
        member: bea_id,
        role: DeviceRole::Full,
        name: "Bea's".to_owned(),
    }));
    for (n, name) in AGENTS.into_iter().enumerate() {
        bodies.push(Body::CredentialAdded(CredentialAdded {
            credential: CredentialId::from_bytes([10 + n as u8; 8]),
            member: ada_id,
            name: name.to_owned(),
            kind: CredentialKind::Delegate,
            token_hash: None,
            scopes: Scopes::parse(["tasks:read", "tasks:write"]).unwrap(),
            grants: Grants::All,
        }));
    }
    for body in bodies {
        let entry = roster.append(&keys[0], body).unwrap();
        entries.push(entry.bytes().to_vec());
        heads.push(entry.head());
    }
    Founded {
        roster,
        entries,
        heads,
        seeds,
        bea,
        owner,
        bea_credential,
    }
}

pub(crate) const CACHE: Cache = Cache {
    hot: 8 << 20,
    packed: 4 << 20,
};

impl Founded {
    /// A new store of this workspace.
    pub(crate) fn create(&self, disk: &SimDisk, generation: u8) -> Store {
        let entries: Vec<&[u8]> = self.entries.iter().map(Vec::as_slice).collect();
        Store::create(
            Box::new(disk.clone()),
            *self.roster.workspace().as_bytes(),
            [generation; 16],
            &entries,
            CACHE,
        )
        .unwrap()
    }

    /// A node with a new store.
    pub(crate) fn replica(&self, seed: [u8; 32], number: u8) -> Replica {
        let disk = SimDisk::default();
        drop(self.create(&disk, number + 1));
        Replica::start(self, disk, seed, Clock::new(u64::from(number)))
    }
}

/// One device's node.
#[derive(Debug)]
pub(crate) struct Replica {
    node: Option<Node>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) disk: SimDisk,
    pub(crate) seed: [u8; 32],
    pub(crate) founded: Founded,
    out: tempfile::TempDir,
}

pub(crate) fn opener(disk: &SimDisk) -> Opener {
    let disk = disk.clone();
    Box::new(move || Store::open(Box::new(disk.clone()), CACHE))
}

/// So many devices of one workspace, with the project `board`.
pub(crate) fn replicas(devices: usize) -> Vec<Replica> {
    let founded = found(devices);
    let all: Vec<Replica> = founded
        .seeds
        .iter()
        .enumerate()
        .map(|(number, seed)| founded.replica(*seed, number as u8))
        .collect();
    all[0].ok(
        "project_add",
        json!({ "slug": "board", "name": "The board" }),
    );
    for other in all.iter().skip(1) {
        exchange(&all[0], other);
    }
    all
}

/// One node with the project `board`.
pub(crate) fn replica() -> Replica {
    replicas(1).remove(0)
}

impl Replica {
    pub(crate) fn start(
        founded: &Founded,
        disk: SimDisk,
        seed: [u8; 32],
        clock: Arc<Clock>,
    ) -> Self {
        let node = Node::start(opener(&disk), seed, clock.clone()).unwrap();
        Self {
            node: Some(node),
            clock,
            disk,
            seed,
            founded: founded.clone(),
            out: tempfile::tempdir().unwrap(),
        }
    }

    /// Around a node that was started otherwise.
    pub(crate) fn start_with(node: Node, like: &Self) -> Self {
        Self {
            node: Some(node),
            clock: like.clock.clone(),
            disk: like.disk.clone(),
            seed: like.seed,
            founded: like.founded.clone(),
            out: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().unwrap()
    }

    /// The person of this device.
    pub(crate) fn owner(&self) -> Caller {
        self.node().local_caller(None).unwrap()
    }

    pub(crate) fn agent(&self, name: &str) -> Caller {
        self.node().local_caller(Some(name)).unwrap()
    }

    pub(crate) fn call(&self, method: &str, arguments: Json) -> Result<Json, Refusal> {
        self.node().call(&self.owner(), method, arguments)
    }

    #[track_caller]
    pub(crate) fn ok(&self, method: &str, arguments: Json) -> Json {
        match self.call(method, arguments.clone()) {
            Ok(answer) => answer,
            Err(refusal) => panic!("{method} {arguments}: {}", refusal.to_json()),
        }
    }

    /// The structure of the refusal of a call that must be refused with `code`.
    #[track_caller]
    pub(crate) fn refused(&self, code: &str, method: &str, arguments: Json) -> Json {
        match self.call(method, arguments.clone()) {
            Ok(answer) => panic!("{method} {arguments} is answered: {answer}"),
            Err(refusal) => {
                let error = refusal.to_json();
                assert_eq!(error["code"], code, "{method} {arguments}: {error}");
                error
            }
        }
    }

    /// A mutation's answer.
    #[track_caller]
    pub(crate) fn mutate(&self, action: &str, mut arguments: Json) -> Json {
        arguments["action"] = action.into();
        self.ok("task_mutate", arguments)
    }

    /// A new task of project `board`.
    #[track_caller]
    pub(crate) fn create(&self, mut fields: Json) -> Json {
        if fields.get("projectId").is_none() {
            fields["projectId"] = "board".into();
        }
        self.mutate("create", fields)["task"].take()
    }

    #[track_caller]
    pub(crate) fn task(&self, id: &Json) -> Json {
        self.ok("task_get", json!({ "id": id }))["task"].take()
    }

    /// Writes fields over whatever is there.
    #[track_caller]
    pub(crate) fn update(&self, id: &Json, mut fields: Json) -> Json {
        fields["id"] = id.clone();
        fields["revision"] = self.task(id)["revision"].clone();
        self.mutate("update", fields)["task"].take()
    }

    pub(crate) fn stop(&mut self) {
        if let Some(node) = self.node.take() {
            node.stop();
        }
    }

    pub(crate) fn start_again(&mut self) {
        assert!(self.node.is_none());
        let node = Node::start(opener(&self.disk), self.seed, self.clock.clone());
        self.node = Some(node.unwrap());
    }

    /// Stops and starts.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// Goes on as if the process had been killed now.
    pub(crate) fn kill(&mut self) {
        let disk = self.disk.copy();
        self.stop();
        self.disk = disk;
        self.start_again();
    }

    /// Packs everything.
    pub(crate) fn pack(&self) -> usize {
        let mut packed = 0;
        loop {
            match self.node().with_store(Store::pack).unwrap() {
                0 => return packed,
                more => packed += more,
            }
        }
    }

    /// The canonical export.
    pub(crate) fn export(&self) -> String {
        let path = self.out.path().join("export.jsonl");
        self.ok("export", json!({ "path": path, "format": "json" }));
        std::fs::read_to_string(path).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        let found = self.ok("doctor", json!({}));
        assert_eq!(found["ok"], true, "{found:#}");
    }

    pub(crate) fn arrivals(&self) -> u64 {
        self.node()
            .with_store(|store| Ok(store.arrivals()))
            .unwrap()
    }

    pub(crate) fn incarnation(&self) -> String {
        let meta = self.node().with_store(|store| Ok(store.meta())).unwrap();
        meta.incarnation
    }

    /// What another node lacks.
    pub(crate) fn runs_for(&self, other: &Self) -> Vec<SignedRun> {
        let frontier = |actor| {
            let seq = other
                .node()
                .with_store(|store| Ok(store.frontier_of(actor)));
            seq.unwrap()
        };
        self.runs_beyond(&frontier)
    }

    pub(crate) fn runs_beyond(
        &self,
        frontier: &dyn Fn(stead_doc::id::ActorId) -> u64,
    ) -> Vec<SignedRun> {
        let shared = self.node().shared();
        let runs = self
            .node()
            .with_store(|store| runs_beyond(store, &shared.roster, &self.founded.heads, frontier));
        runs.unwrap()
    }

    pub(crate) fn admit(&self, runs: Vec<SignedRun>) -> Json {
        self.node().run(Job::Admit(runs)).unwrap()
    }

    /// Ids of a search that is paged through to its end.
    pub(crate) fn all_pages(&self, filter: &Json) -> Vec<String> {
        let mut ids = Vec::new();
        let mut filter = filter.clone();
        loop {
            let page = self.ok("task_search", filter.clone());
            assert!(page.to_string().len() <= 10 << 10, "a page beyond 10 KB");
            ids.extend(ids_of(&page));
            if page["nextCursor"].is_null() {
                return ids;
            }
            filter["cursor"] = page["nextCursor"].clone();
        }
    }
}

pub(crate) fn ids_of(page: &Json) -> Vec<String> {
    page["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Each gets what it lacks of the other; everything must be admitted.
#[track_caller]
pub(crate) fn exchange(a: &Replica, b: &Replica) {
    for (from, to) in [(a, b), (b, a)] {
        let answer = to.admit(from.runs_for(to));
        assert_eq!(answer["refused"], json!([]), "{answer}");
        assert_eq!(answer["waiting"], 0, "{answer}");
    }
}

/// Everybody has everything, and shows the same.
#[track_caller]
pub(crate) fn converge(all: &[Replica]) -> String {
    for _ in 0..2 {
        for pair in all.windows(2) {
            exchange(&pair[0], &pair[1]);
        }
    }
    for one in all.iter().rev().skip(1) {
        exchange(&all[all.len() - 1], one);
    }
    let export = all[0].export();
    for one in all {
        assert!(one.export() == export, "two nodes export different bytes");
        one.assert_clean();
    }
    export
}
