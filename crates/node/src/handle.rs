//! The handle over the core that command line, agents and browser share: run a command, ask a
//! question, watch what changes.
//!
//! One thread owns the core and writes; readers read the store beside it. Commands that come while
//! a commit is under way share the next one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value as Json;
use stead_doc::{
    context::{Caller, Context, Directory},
    hlc::Hlc,
    refusal::{Code, Refusal},
    schema::Schema,
};
use stead_sync::{Body, DeviceKey, Roster};
use tokio::sync::broadcast;

use crate::{
    connections::Connections,
    core::{Core, Event, Job, Tick, retry},
    edge::World,
    store::{Store, StoreError, StoreView},
};

/// Jobs that one commit takes.
pub const BATCH_JOBS: usize = 256;
/// Jobs that may wait; beyond, the caller is told to come again.
pub const QUEUE_JOBS: usize = 1_024;
/// How long a commit waits for others to join, and only where several were under way before.
pub const JOIN_WAIT: Duration = Duration::from_micros(300);
/// Events that a slow watcher may be behind before it is told that it missed some.
pub const EVENTS_KEPT: usize = 4_096;

/// A running node core. Cheap to clone; the last clone's end closes the store.
#[derive(Debug, Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    store: Arc<RwLock<Option<Store>>>,
    shared: Arc<RwLock<Arc<Shared>>>,
    queue: Mutex<Option<SyncSender<Submission>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    packer: Mutex<Option<JoinHandle<()>>>,
    packing: Arc<AtomicBool>,
    events: broadcast::Sender<Event>,
    world: Arc<dyn World>,
    secret: [u8; 32],
    connections: Connections,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

/// What readers need of the core.
#[derive(Debug)]
pub struct Shared {
    /// Members, devices, credentials.
    pub roster: Roster,
    /// Names.
    pub directory: Directory,
    /// Kinds and statuses.
    pub schema: Schema,
    /// The person whose home this is.
    pub owner: Option<Caller>,
}

impl Shared {
    fn of(core: &Core) -> Arc<Self> {
        Arc::new(Self {
            roster: core.roster().clone(),
            directory: core.directory().clone(),
            schema: core.schema().clone(),
            owner: core.owner(),
        })
    }
}

/// Opens the workspace of a home in this process.
///
/// # Errors
///
/// Where there is none, another process has it, or it is damaged.
pub fn open_home(home: &crate::home::Home, world: Arc<dyn World>) -> Result<Node, Refusal> {
    let place = home.workspace_dir()?;
    let seed = home.device_seed()?;
    let opener: Opener = Box::new(move || {
        let disk = crate::store::Directory::new(&place).map_err(StoreError::Io)?;
        unharmed(|| Store::open(Box::new(disk), crate::store::Cache::default()))
            .unwrap_or(Err(StoreError::Broken(UNREADABLE)))
    });
    let started = unharmed(|| Node::start(opener, seed, world))
        .unwrap_or(Err(StoreError::Broken(UNREADABLE).into()));
    started.map_err(|error| match error {
        crate::core::OpenError::Store(error) => crate::home::HomeError::Store(error).into(),
        other => Refusal::new(
            Code::Unavailable,
            format!("{other}."),
            "Restore a backup with `stead restore`, or name another home.",
        ),
    })
}

const UNREADABLE: &str = "a file of the store is damaged and cannot be read: restore a backup";

/// What comes of it, or nothing where it panics: redb asserts what it reads of a file.
fn unharmed<R>(run: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

/// Opens the store, now and again after it failed.
pub type Opener = Box<dyn Fn() -> Result<Store, StoreError> + Send>;

type Answer = Box<dyn FnOnce(Result<Json, Refusal>) + Send>;

enum Submission {
    Job(Job, Answer),
    Roster(Box<Body>, Answer),
    /// Something failed that was no commit: look whether the store still works.
    Check,
    Stop,
}

impl Node {
    /// Opens the store and starts the writer.
    ///
    /// # Errors
    ///
    /// Where store or roster cannot be opened.
    pub fn start(
        opener: Opener,
        secret: [u8; 32],
        world: Arc<dyn World>,
    ) -> Result<Self, crate::core::OpenError> {
        let mut store = opener()?;
        if !store.view_is_current() {
            store.rebuild_view(&Schema::board(), &mut |done, total| {
                tracing::info!(
                    done,
                    total,
                    "computing the view from the log by this version's rules"
                );
            })?;
        }
        let core = Core::open(&store, DeviceKey::from_seed(&secret))?;
        let shared = Arc::new(RwLock::new(Shared::of(&core)));
        let store = Arc::new(RwLock::new(Some(store)));
        let (sender, receiver) = sync_channel(QUEUE_JOBS);
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let packing: Arc<AtomicBool> = Arc::default();
        let mut writer = Writer {
            core,
            opener,
            store: store.clone(),
            shared: shared.clone(),
            events: events.clone(),
            world: world.clone(),
            last_batch: 1,
            packing: packing.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("stead-writer".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(StoreError::Io)?;
        Ok(Self(Arc::new(Inner {
            store,
            shared,
            queue: Mutex::new(Some(sender)),
            writer: Mutex::new(Some(thread)),
            packer: Mutex::new(None),
            packing,
            events,
            world,
            secret,
            connections: Connections::default(),
        })))
    }

    /// What readers need of the core.
    pub fn shared(&self) -> Arc<Shared> {
        self.0
            .shared
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Who is connected.
    pub fn connections(&self) -> &Connections {
        &self.0.connections
    }

    /// The caller that a live credential makes.
    pub fn caller(&self, id: stead_sync::CredentialId) -> Option<Caller> {
        crate::core::caller_of(&self.shared().roster, id)
    }

    /// As whom this machine's own user speaks: the owner, or a local agent by its name.
    ///
    /// # Errors
    ///
    /// Where there is no such live credential, or it wants its token.
    pub fn local_caller(&self, agent: Option<&str>) -> Result<Caller, Refusal> {
        let shared = self.shared();
        let Some(name) = agent else {
            return shared.owner.clone().ok_or_else(|| {
                Refusal::new(
                    Code::Forbidden,
                    "this machine's owner has no live credential.",
                    "Use an agent's token.",
                )
            });
        };
        let found = shared
            .roster
            .credential_by_name(name)
            .filter(|known| is_local(known));
        match found.and_then(|known| self.caller(known.id)) {
            Some(caller) => Ok(caller),
            None => {
                let mut known: Vec<_> = shared
                    .roster
                    .credentials()
                    .filter(|known| known.is_live() && is_local(known))
                    .map(|known| known.name.clone())
                    .collect();
                known.sort_unstable();
                Err(Refusal::argument(
                    "agent",
                    "no live local agent of that name.",
                    "Use one of accepted, or add it with `stead agent add NAME --local`. One with a token sends it in STEAD_TOKEN.",
                )
                .with("given", name)
                .with("accepted", known))
            }
        }
    }

    /// Time and entropy.
    pub fn world(&self) -> &dyn World {
        &*self.0.world
    }

    /// Runs one job and waits until it is durable.
    ///
    /// # Errors
    ///
    /// The job's own refusal; `RETRY` where the outcome is unknown; `UNAVAILABLE` where nothing
    /// was done.
    pub fn run(&self, job: Job) -> Result<Json, Refusal> {
        let (sender, receiver) = sync_channel(1);
        self.submit(Submission::Job(job, answer_to(sender)))?;
        self.after(receiver.recv())
    }

    /// Runs several jobs, in order and without waiting for one before the next is handed over.
    ///
    /// # Errors
    ///
    /// For each job its own.
    pub fn run_all(&self, jobs: Vec<Job>) -> Vec<Result<Json, Refusal>> {
        let waiting: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let (sender, receiver) = sync_channel(1);
                self.submit_waiting(Submission::Job(job, answer_to(sender)))
                    .map(|()| receiver)
            })
            .collect();
        waiting
            .into_iter()
            .map(|receiver| self.after(receiver?.recv()))
            .collect()
    }

    /// Extends the roster and waits until it is durable.
    ///
    /// # Errors
    ///
    /// Where the roster's rules refuse it or the commit fails.
    pub fn extend_roster(&self, body: Body) -> Result<(), Refusal> {
        let (sender, receiver) = sync_channel(1);
        self.submit(Submission::Roster(Box::new(body), answer_to(sender)))?;
        self.after(receiver.recv()).map(|_| ())
    }

    fn after(
        &self,
        answer: Result<Result<Json, Refusal>, std::sync::mpsc::RecvError>,
    ) -> Result<Json, Refusal> {
        self.pack_if_due();
        answer.unwrap_or_else(|_| Err(stopped()))
    }

    fn submit(&self, submission: Submission) -> Result<(), Refusal> {
        let queue = self.sender()?;
        queue.try_send(submission).map_err(|error| match error {
            TrySendError::Full(_) => Refusal::new(
                Code::Unavailable,
                "too many commands wait already.",
                "Nothing was written. Send it again in a moment.",
            ),
            TrySendError::Disconnected(_) => stopped(),
        })
    }

    fn submit_waiting(&self, submission: Submission) -> Result<(), Refusal> {
        self.sender()?.send(submission).map_err(|_| stopped())
    }

    fn sender(&self) -> Result<SyncSender<Submission>, Refusal> {
        self.0
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or_else(stopped)
    }

    /// Asks a question of what is durable now.
    ///
    /// # Errors
    ///
    /// The question's own refusal, or `UNAVAILABLE`.
    pub(crate) fn read<R>(
        &self,
        caller: &Caller,
        ask: impl FnOnce(&StoreView<'_, crate::store::Snapshot>, &Context<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let guard = self.store();
        let store = open_store(&guard)?;
        let now = self.0.world.wall_ms();
        let shared = self.shared();
        let view = store.view(now)?;
        let cx = Context {
            workspace: *shared.roster.workspace().as_bytes(),
            now,
            hlc: Hlc::default(),
            caller,
            directory: &shared.directory,
            schema: &shared.schema,
            entropy: [0; 32],
        };
        // A panic over damaged rows costs this question alone.
        let answer = catch_unwind(AssertUnwindSafe(|| ask(&view, &cx))).unwrap_or_else(|_| {
            Err(Refusal::new(
                Code::Unavailable,
                "the question could not be answered.",
                "Run `stead doctor` on this machine.",
            ))
        });
        self.check_after(&answer);
        answer
    }

    /// Where the store itself could not answer, the writer looks whether it has to be opened
    /// again. A full queue looks anyway.
    fn check_after<R>(&self, answer: &Result<R, Refusal>) {
        if answer
            .as_ref()
            .is_err_and(|refusal| refusal.code == Code::Unavailable)
        {
            let asked = self.submit(Submission::Check);
            drop(asked);
        }
    }

    /// The store, for maintenance.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` while it is closed.
    pub fn with_store<R>(
        &self,
        run: impl FnOnce(&Store) -> Result<R, StoreError>,
    ) -> Result<R, Refusal> {
        let guard = self.store();
        let done = run(open_store(&guard)?).map_err(Refusal::from);
        drop(guard);
        self.check_after(&done);
        done
    }

    /// The store for this call alone: nothing reads or writes beside it.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` while it is closed.
    pub fn exclusive<R>(
        &self,
        run: impl FnOnce(&mut Store) -> Result<R, StoreError>,
    ) -> Result<R, Refusal> {
        let mut slot = self.0.store.write().unwrap_or_else(PoisonError::into_inner);
        let store = slot.as_mut().ok_or_else(stopped)?;
        let done = run(store).map_err(Refusal::from);
        drop(slot);
        self.check_after(&done);
        done
    }

    /// Computes the view again from the log.
    ///
    /// # Errors
    ///
    /// Where the log is damaged or a file fails.
    pub fn rebuild(&self) -> Result<(), Refusal> {
        let schema = self.shared().schema.clone();
        self.exclusive(|store| {
            store.rebuild_view(&schema, &mut |done, total| {
                tracing::info!(done, total, "computing the view from the log")
            })
        })
    }

    /// The device's secret key, for a backup.
    pub(crate) fn device_key(&self) -> [u8; 32] {
        self.0.secret
    }

    fn store(&self) -> RwLockReadGuard<'_, Option<Store>> {
        self.0.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches what changes, from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.events.subscribe()
    }

    fn pack_if_due(&self) {
        let due = self.store().as_ref().is_some_and(Store::wants_packing);
        if !due || self.0.packing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (store, packing) = (self.0.store.clone(), self.0.packing.clone());
        let queue = self.sender().ok();
        let spawned = std::thread::Builder::new()
            .name("stead-packer".to_owned())
            .spawn(move || {
                let guard = store.read().unwrap_or_else(PoisonError::into_inner);
                let mut failed = false;
                if let Some(store) = guard.as_ref() {
                    while store.wants_packing() {
                        if let Err(error) = store.pack() {
                            tracing::error!(%error, "packing failed; the log stays where it is");
                            failed = true;
                            break;
                        }
                    }
                }
                drop(guard);
                if failed && let Some(queue) = queue {
                    // Where the writer is gone the next start opens the store again.
                    let told = queue.send(Submission::Check);
                    drop(told);
                }
                packing.store(false, Ordering::Release);
            });
        match spawned {
            Ok(thread) => {
                let before = self
                    .0
                    .packer
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .replace(thread);
                drop(before);
            }
            Err(error) => {
                tracing::error!(%error, "no thread for packing");
                self.0.packing.store(false, Ordering::Release);
            }
        }
    }

    /// Ends the writer, waits for what is under way, and closes the lease.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Inner {
    fn stop(&self) {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(queue) = queue {
            // Where the writer is gone already there is nobody to tell.
            let told = queue.send(Submission::Stop);
            drop(told);
        }
        for thread in [&self.writer, &self.packer] {
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(thread) = thread
                && thread.join().is_err()
            {
                tracing::error!("a thread of the node ended in a panic");
            }
        }
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let Some(store) = store.take() else { return };
        match unharmed(move || store.close_lease()) {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(%error, "the lease was not closed; the next start makes a new incarnation");
            }
            None => tracing::error!("closing the store met a damaged file; run `stead doctor`"),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether a name is enough for it. One that has a token proves itself with that.
fn is_local(credential: &stead_sync::Credential) -> bool {
    credential.kind == stead_sync::CredentialKind::Delegate && credential.token_hash.is_none()
}

fn open_store<'g>(guard: &'g RwLockReadGuard<'_, Option<Store>>) -> Result<&'g Store, Refusal> {
    guard.as_ref().ok_or_else(|| {
        Refusal::new(
            Code::Unavailable,
            "the store is closed after a failure and is being opened again.",
            "Try again in a moment.",
        )
    })
}

fn stopped() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the node is stopping.",
        "Start it again and send the call again.",
    )
}

fn answer_to(sender: SyncSender<Result<Json, Refusal>>) -> Answer {
    Box::new(move |answer| {
        // Whoever asked may be gone; the write stands.
        let told = sender.send(answer);
        drop(told);
    })
}

fn answer_nobody() -> Answer {
    Box::new(drop)
}

struct Writer {
    core: Core,
    opener: Opener,
    store: Arc<RwLock<Option<Store>>>,
    shared: Arc<RwLock<Arc<Shared>>>,
    events: broadcast::Sender<Event>,
    world: Arc<dyn World>,
    last_batch: usize,
    packing: Arc<AtomicBool>,
}

/// How long a commit waits for a packing that is far behind: writes then come about as fast as they
/// are packed, and what a start after a kill reads stays small.
const PACKING_WAIT: Duration = Duration::from_millis(250);

impl Writer {
    fn run(&mut self, receiver: &Receiver<Submission>) {
        while let Ok(first) = receiver.recv() {
            let (batch, stop) = self.gather(first, receiver);
            self.last_batch = batch.len().max(1);
            self.commit(batch);
            if stop {
                break;
            }
        }
    }

    /// The jobs that share the next commit.
    fn gather(
        &self,
        first: Submission,
        receiver: &Receiver<Submission>,
    ) -> (Vec<(Work, Answer)>, bool) {
        let mut batch = Vec::new();
        let mut next = Some(first);
        let mut waited = Duration::ZERO;
        loop {
            match next.take() {
                Some(Submission::Job(job, answer)) => batch.push((Work::Job(job), answer)),
                Some(Submission::Roster(body, answer)) => batch.push((Work::Roster(body), answer)),
                Some(Submission::Check) => batch.push((Work::Check, answer_nobody())),
                Some(Submission::Stop) => return (batch, true),
                None => {}
            }
            if batch.len() == BATCH_JOBS {
                return (batch, false);
            }
            next = receiver.try_recv().ok();
            if next.is_some() {
                continue;
            }
            // Alone there is nobody to wait for; with several, most come back at once.
            if self.last_batch < 2 || batch.len() >= self.last_batch || waited >= JOIN_WAIT {
                return (batch, false);
            }
            const STEP: Duration = Duration::from_micros(50);
            match receiver.recv_timeout(STEP) {
                Ok(submission) => next = Some(submission),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return (batch, true),
            }
            waited += STEP;
        }
    }

    fn wait_for_packing(&self) {
        const STEP: Duration = Duration::from_millis(5);
        let mut waited = Duration::ZERO;
        while waited < PACKING_WAIT
            && self.packing.load(Ordering::Acquire)
            && self
                .store
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .is_some_and(Store::is_behind)
        {
            std::thread::park_timeout(STEP);
            waited += STEP;
        }
    }

    fn commit(&mut self, batch: Vec<(Work, Answer)>) {
        self.wait_for_packing();
        if self
            .store
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_none()
        {
            self.reopen();
        }
        let mut jobs = Vec::new();
        let mut answers = Vec::new();
        for (work, answer) in batch {
            match work {
                Work::Job(job) => {
                    jobs.push(job);
                    answers.push(answer);
                }
                Work::Roster(body) => {
                    // In its order: the jobs before it do not see it.
                    self.commit_jobs(std::mem::take(&mut jobs), std::mem::take(&mut answers));
                    answer(self.extend(*body));
                }
                Work::Check => {
                    self.commit_jobs(std::mem::take(&mut jobs), std::mem::take(&mut answers));
                    self.reopen_unless_it_works();
                }
            }
        }
        self.commit_jobs(jobs, answers);
    }

    fn extend(&mut self, body: Body) -> Result<Json, Refusal> {
        let guard = self.store.read().unwrap_or_else(PoisonError::into_inner);
        let done = self.core.extend_roster(open_store(&guard)?, body);
        drop(guard);
        match done {
            Ok(()) => {
                *self.shared.write().unwrap_or_else(PoisonError::into_inner) =
                    Shared::of(&self.core);
                Ok(Json::Null)
            }
            Err(refusal) => {
                if refusal.code == Code::Retry {
                    self.reopen();
                }
                Err(refusal)
            }
        }
    }

    fn commit_jobs(&mut self, jobs: Vec<Job>, answers: Vec<Answer>) {
        if jobs.is_empty() {
            return;
        }
        let tick = Tick {
            wall_ms: self.world.wall_ms(),
            entropy: self.world.entropy(),
        };
        let guard = self.store.read().unwrap_or_else(PoisonError::into_inner);
        let store = match open_store(&guard) {
            Ok(store) => store,
            Err(refusal) => {
                drop(guard);
                for answer in answers {
                    answer(Err(refusal.clone()));
                }
                return;
            }
        };
        let core = &mut self.core;
        let done = catch_unwind(AssertUnwindSafe(|| core.run(store, jobs, tick)))
            .unwrap_or_else(|_| Err(StoreError::Broken("the writer met a fault of its own")));
        drop(guard);
        match done {
            Ok(done) => {
                let suspect = done.answers.iter().any(
                    |answer| matches!(answer, Err(refusal) if refusal.code == Code::Unavailable),
                );
                if suspect {
                    self.reopen_unless_it_works();
                }
                // Before the answers: whoever begins to watch once its own write is answered is
                // told of what comes after that.
                for event in done.events {
                    // Nobody may be watching.
                    let told = self.events.send(event);
                    drop(told);
                }
                for (answer, result) in answers.into_iter().zip(done.answers) {
                    answer(result);
                }
            }
            Err(error) => {
                tracing::error!(%error, "a commit failed; opening the store again");
                let refusal = retry(&error);
                self.reopen();
                for answer in answers {
                    answer(Err(refusal.clone()));
                }
            }
        }
    }

    /// An error of a file outside a commit, too, leaves redb waiting to be opened again.
    fn reopen_unless_it_works(&mut self) {
        let works = {
            let guard = self.store.read().unwrap_or_else(PoisonError::into_inner);
            guard.as_ref().is_some_and(Store::works)
        };
        if !works {
            tracing::error!("the store does not work; opening it again");
            self.reopen();
        }
    }

    /// Drops the store and opens it again; what was not durable is gone with it, and the
    /// incarnation is not used again.
    fn reopen(&mut self) {
        let mut slot = self.store.write().unwrap_or_else(PoisonError::into_inner);
        drop(slot.take());
        match (self.opener)() {
            Ok(store) => match self.core.reset(&store) {
                Ok(()) => {
                    *slot = Some(store);
                    *self.shared.write().unwrap_or_else(PoisonError::into_inner) =
                        Shared::of(&self.core);
                }
                Err(error) => {
                    tracing::error!(%error, "the store opens but its lease cannot be taken")
                }
            },
            Err(error) => {
                tracing::error!(%error, "the store cannot be opened again; trying at the next command")
            }
        }
    }
}

enum Work {
    Job(Job),
    Roster(Box<Body>),
    Check,
}

/// So that readers outside this file can name the view they get.
pub(crate) type ReadView<'s> = StoreView<'s, crate::store::Snapshot>;
