//! The node core: commands and peers' changes in, durable effects out.
//!
//! Owns roster, device key and clock state, and writes the store synchronously; time and entropy
//! are arguments of each batch. One batch is one transaction: each job is evaluated inside it and
//! sees the earlier ones; nothing is answered or shown before the commit.

use serde_json::Value as Json;
use stead_doc::{
    board::{self, Command, Outcome},
    change::{Change, DecodeError},
    context::{Caller, CallerKind, Context, Directory},
    document::DocumentName,
    hlc::Hlc,
    id::{ActorId, ChangeHash, ObjectId},
    refusal::{Code, Refusal},
    revision::Revision,
    schema::Schema,
    verdict::{self, Verdict},
    view::ViewError,
};
use stead_sync::{
    Body, ChangeClaim, CredentialId, CredentialKind, DeviceId, DeviceKey, Grants, Incarnation,
    Roster, RosterHead, Signature, WorkspaceId,
};

use crate::store::{Batch, Signed, Store, StoreError, view_history};

/// Time and entropy of one batch.
#[derive(Debug, Clone, Copy)]
pub struct Tick {
    /// Wall time in milliseconds since 1970; may be wrong and may jump.
    pub wall_ms: i64,
    /// Fresh entropy.
    pub entropy: [u8; 32],
}

/// The node core of one workspace.
#[derive(Debug)]
pub struct Core {
    key: DeviceKey,
    roster: Roster,
    directory: Directory,
    schema: Schema,
    hlc: Hlc,
    /// Nothing until the next write has to make a new one.
    incarnation: Option<[u8; 16]>,
}

/// One thing to do inside a batch.
#[derive(Debug)]
pub enum Job {
    /// A command of a credential.
    Command {
        /// Who asks.
        caller: Caller,
        /// What.
        command: Command,
    },
    /// Runs of changes from other devices.
    Admit(Vec<SignedRun>),
}

/// Consecutive changes of one actor as they travel: the signature of the last vouches for the
/// others, because each change names its actor's previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRun {
    /// The document's name.
    pub document: DocumentName,
    /// The change chunks, in order.
    pub changes: Vec<Vec<u8>>,
    /// The device that made them.
    pub device: DeviceId,
    /// In which of its incarnations.
    pub incarnation: Incarnation,
    /// The device's signature over the claim of the last change.
    pub signature: Signature,
    /// The roster head that the signature names.
    pub roster_head: RosterHead,
}

/// What a batch did.
#[derive(Debug, Default)]
pub struct Done {
    /// For each job in order: the answer, or why nothing was written.
    pub answers: Vec<Result<Json, Refusal>>,
    /// The objects that changed, with their new revisions.
    pub events: Vec<Event>,
    /// Whether anything was committed.
    pub wrote: bool,
}

/// An object changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The object.
    pub object: ObjectId,
    /// The project that it is in, where it is in one.
    pub project: Option<ObjectId>,
    /// That project's slug.
    pub slug: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Its revision now.
    pub revision: String,
    /// The arrival cursor behind the change.
    pub cursor: u64,
    /// What it is about: of a comment its task, else itself.
    pub subject: ObjectId,
    /// A task's status before, where it was there, and now.
    pub status: (Option<String>, Option<String>),
    /// Whether somebody has, or until now had, to decide something about it.
    pub open: bool,
}

impl Event {
    /// Whether a task came to have this status.
    pub fn entered(&self, status: &str) -> bool {
        self.status.1.as_deref() == Some(status) && self.status.0.as_deref() != Some(status)
    }
}

/// Why a change from elsewhere is not admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAdmitted {
    /// The bytes are no change of the dialect.
    #[error("the change is refused: {0}")]
    Decode(#[from] DecodeError),
    /// The device is not on the roster or may not write.
    #[error("device {0} may not write here")]
    Device(Box<DeviceId>),
    /// The actor is not that of the device and incarnation.
    #[error("its actor does not belong to its device")]
    Actor,
    /// The credential is not one of the device's member.
    #[error("its credential is not of its device's member")]
    Credential,
    /// The signature does not fit.
    #[error("its signature does not fit")]
    Signature,
    /// The changes of a run do not follow each other.
    #[error("its changes do not follow each other")]
    Chain,
    /// The actor was frozen here before.
    #[error("its actor is frozen here: {0}")]
    Frozen(String),
    /// It is here already.
    #[error("it is here already")]
    Known,
    /// It does not follow from what is here.
    #[error(transparent)]
    Verdict(#[from] Verdict),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Core {
    /// A core over an open store: replays the roster, takes the lease.
    ///
    /// # Errors
    ///
    /// Where the roster does not verify, is of another workspace than the store, or the device is
    /// not on it.
    pub fn open(store: &Store, key: DeviceKey) -> Result<Self, OpenError> {
        let roster = Roster::replay(store.roster()?)
            .map_err(|error| OpenError::Roster(error.to_string()))?;
        let meta = store.meta();
        if crate::store::hex(roster.workspace().as_bytes()) != meta.workspace {
            return Err(OpenError::Roster(
                "it is of another workspace than the store".to_owned(),
            ));
        }
        if roster.device(&key.id()).is_none() {
            return Err(OpenError::Device);
        }
        let trusted = store.take_lease()?;
        let incarnation = crate::store::unhex(&meta.incarnation).filter(|_| trusted);
        let hlc = Hlc(store.newest_stamp());
        let directory = directory_of(&roster);
        Ok(Self {
            key,
            roster,
            directory,
            schema: Schema::board(),
            hlc,
            incarnation,
        })
    }

    /// The roster.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Members and credentials, for names.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// This device.
    pub fn device(&self) -> DeviceId {
        self.key.id()
    }

    /// The caller that a credential makes; nothing where it is not live.
    pub fn caller(&self, id: CredentialId) -> Option<Caller> {
        caller_of(&self.roster, id)
    }

    /// The live credential of a name that needs no token: one for local use.
    pub fn caller_by_name(&self, name: &str) -> Option<Caller> {
        let credential = self.roster.credential_by_name(name)?;
        self.caller(credential.id)
    }

    /// The person whose home this is: the first live person credential of the device's member.
    pub fn owner(&self) -> Option<Caller> {
        let member = self.roster.device(&self.key.id())?.member;
        let credential = self.roster.credentials().find(|credential| {
            credential.member == member
                && credential.kind == CredentialKind::Person
                && credential.is_live()
        })?;
        self.caller(credential.id)
    }

    /// Extends the roster, durably before it returns.
    ///
    /// # Errors
    ///
    /// Where the roster's rules refuse it, or the commit fails.
    pub fn extend_roster(&mut self, store: &Store, body: Body) -> Result<(), Refusal> {
        let mut roster = self.roster.clone();
        let entry = roster.append(&self.key, body).map_err(|error| {
            Refusal::new(
                Code::Forbidden,
                format!("the roster refuses it: {error}."),
                "Nothing was written.",
            )
        })?;
        let seq = u32::try_from(self.roster.len()).unwrap_or(u32::MAX);
        store
            .append_roster(seq, entry.bytes())
            .map_err(|error| retry(&error))?;
        self.roster = roster;
        self.directory = directory_of(&self.roster);
        Ok(())
    }

    /// Runs jobs as one batch: one transaction, one commit.
    ///
    /// # Errors
    ///
    /// When the store fails; the outcome of every job is then unknown, the store must be dropped
    /// and opened again and [`Self::reset`] called before anything else.
    pub fn run(&mut self, store: &Store, jobs: Vec<Job>, tick: Tick) -> Result<Done, StoreError> {
        if self.incarnation.is_none() {
            let incarnation = derive(&tick.entropy, b"incarnation");
            let [front, _] = split(&incarnation);
            store.set_incarnation(front)?;
            self.incarnation = Some(front);
        }
        let mut done = Done::default();
        let txn = store.begin()?;
        let schema = self.schema.clone();
        let mut batch = Batch::open(store, &txn, &schema, tick.wall_ms)?;
        for (index, job) in jobs.into_iter().enumerate() {
            let entropy = derive(&tick.entropy, &(index as u64).to_le_bytes());
            let answer = match job {
                Job::Command { caller, command } => self.command(
                    &mut batch,
                    &caller,
                    &command,
                    tick.wall_ms,
                    entropy,
                    &mut done.wrote,
                )?,
                Job::Admit(runs) => {
                    Ok(self.admit(&mut batch, &runs, tick.wall_ms, &mut done.wrote)?)
                }
            };
            done.answers.push(answer);
        }
        let touched = std::mem::take(&mut batch.touched);
        let texts = std::mem::take(&mut batch.texts);
        if !done.wrote {
            drop(batch);
            txn.abort()?;
            return Ok(done);
        }
        let cursor = store.state_read().next_arrival;
        let projects = store.projects();
        for (object, before) in touched {
            if let Some(stored) = batch.view.stored_in(before.document, object)? {
                let open = before.open || stored.open;
                let at = batch.view.located(object, before.document, stored)?;
                let subject = at.row.text("subject").and_then(|id| id.parse().ok());
                let task = at.row.kind() == Some("task");
                done.events.push(Event {
                    object,
                    project: at.project,
                    slug: projects
                        .iter()
                        .find(|project| Some(project.id) == at.project)
                        .map(|project| project.slug.clone()),
                    kind: at.row.kind().unwrap_or_default().to_owned(),
                    revision: Revision::of(&at.row).to_string(),
                    cursor,
                    subject: subject.unwrap_or(object),
                    status: (
                        before.status,
                        task.then(|| stead_doc::present::status_of(&at.row)),
                    ),
                    open,
                });
            }
        }
        let indexed = store.index_hot_texts(&batch.view, &texts)?;
        batch.finish(&txn)?;
        txn.commit()?;
        store.published();
        store.keep_hot_texts(indexed);
        Ok(done)
    }

    /// After the store was dropped and opened again: the next write makes a new incarnation,
    /// because what the old one last wrote is not known.
    ///
    /// # Errors
    ///
    /// Where the store fails or its roster does not verify.
    pub fn reset(&mut self, store: &Store) -> Result<(), OpenError> {
        self.incarnation = None;
        self.hlc = self.hlc.max(Hlc(store.newest_stamp()));
        // An entry whose commit was in doubt is there or it is not.
        self.roster = Roster::replay(store.roster()?)
            .map_err(|error| OpenError::Roster(error.to_string()))?;
        self.directory = directory_of(&self.roster);
        store.take_lease()?;
        Ok(())
    }

    fn command(
        &mut self,
        batch: &mut Batch<'_, '_>,
        caller: &Caller,
        command: &Command,
        now: i64,
        entropy: [u8; 32],
        wrote: &mut bool,
    ) -> Result<Result<Json, Refusal>, StoreError> {
        let hlc = self.hlc.tick(now);
        let cx = Context {
            workspace: *self.roster.workspace().as_bytes(),
            now,
            hlc,
            caller,
            directory: &self.directory,
            schema: &self.schema,
            entropy,
        };
        let outcome = match board::evaluate(&batch.view, &cx, command) {
            Ok(outcome) => outcome,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let reply = match outcome {
            Outcome::Nothing(reply) => reply,
            Outcome::Replay(effect, reply) => {
                return Ok(crate::query::replayed(&batch.view, &cx, &effect, &reply));
            }
            Outcome::Write(effect) => {
                let reply = effect.reply.clone();
                if let Err(refusal) =
                    author(&self.key, &self.roster, self.incarnation, batch, *effect)?
                {
                    return Ok(Err(refusal));
                }
                self.hlc = hlc;
                *wrote = true;
                reply
            }
        };
        let cx = Context {
            directory: &self.directory,
            schema: &self.schema,
            ..cx
        };
        Ok(board::render(&batch.view, &cx, &reply))
    }

    /// Admits what follows from what is here, in causal order; the answer counts it and names what
    /// was refused and why. What waits for changes that are not here is given back, not kept.
    fn admit(
        &mut self,
        batch: &mut Batch<'_, '_>,
        runs: &[SignedRun],
        now: i64,
        wrote: &mut bool,
    ) -> Result<Json, StoreError> {
        let mut waiting = Vec::new();
        let mut refused = Vec::new();
        for run in runs {
            match self.vouched(batch.view.store, run) {
                Ok(changes) => waiting.extend(changes),
                Err(error) => refused.push(error),
            }
        }
        let mut admitted = 0;
        loop {
            let before = waiting.len();
            let mut still = Vec::new();
            for (change, name, beside) in waiting {
                match self.admit_one(batch, &change, &name, beside, now) {
                    Ok(()) => {
                        admitted += 1;
                        *wrote = true;
                    }
                    Err(NotAdmitted::Known) => {}
                    Err(NotAdmitted::Store(error)) => return Err(error),
                    Err(NotAdmitted::Verdict(Verdict::View(error))) => {
                        return Err(view_failed(error));
                    }
                    Err(NotAdmitted::Verdict(verdict)) if verdict.may_wait() => {
                        still.push((change, name, beside))
                    }
                    Err(error) => {
                        // Why an actor is frozen is to be known after a restart too.
                        *wrote |= matches!(error, NotAdmitted::Verdict(_));
                        refused.push(error);
                    }
                }
            }
            waiting = still;
            if waiting.len() == before || waiting.is_empty() {
                break;
            }
        }
        let refused: Vec<_> = refused.iter().map(ToString::to_string).collect();
        Ok(
            serde_json::json!({ "admitted": admitted, "waiting": waiting.len(), "refused": refused }),
        )
    }

    /// The changes of a run whose device and signature vouch for all of them.
    fn vouched(&self, store: &Store, run: &SignedRun) -> Result<Vec<Vouched>, NotAdmitted> {
        let document = run.document.id(*self.roster.workspace().as_bytes());
        let actor = stead_sync::ActorId::derive(&document.0, &run.device, &run.incarnation);
        let mut changes = Vec::with_capacity(run.changes.len());
        let mut previous: Option<(u64, ChangeHash)> = None;
        for bytes in &run.changes {
            let change = Change::decode(document, bytes)?;
            if actor.as_bytes() != &change.actor.0 {
                return Err(NotAdmitted::Actor);
            }
            if let Some((seq, hash)) = previous
                && (change.seq != seq + 1 || change.deps.binary_search(&hash).is_err())
            {
                return Err(NotAdmitted::Chain);
            }
            previous = Some((change.seq, change.hash));
            changes.push(change);
        }
        let Some((seq, hash)) = previous else {
            return Ok(Vec::new());
        };
        if !self.roster.may_write(&run.device) {
            return Err(NotAdmitted::Device(Box::new(run.device)));
        }
        for change in &changes {
            let credential = change.message.credential.parse().ok();
            let own = credential
                .and_then(|credential| self.roster.credential_of_device(credential, &run.device));
            if own.is_none() {
                return Err(NotAdmitted::Credential);
            }
        }
        let claim = ChangeClaim {
            workspace: self.roster.workspace(),
            document: document.0,
            actor,
            seq,
            hash: hash.0,
            roster_head: run.roster_head,
        };
        let roster = self
            .roster
            .seq_of(run.roster_head)
            .ok_or(NotAdmitted::Signature)?;
        claim
            .verify(&run.device, &run.signature)
            .map_err(|_| NotAdmitted::Signature)?;
        if let Some(why) = store
            .actor(ActorId(*actor.as_bytes()))
            .and_then(|known| known.frozen)
        {
            return Err(NotAdmitted::Frozen(why));
        }
        let beside = Signed {
            device: *run.device.as_bytes(),
            incarnation: *run.incarnation.as_bytes(),
            signature: *run.signature.as_bytes(),
            roster: u32::try_from(roster).unwrap_or(u32::MAX),
        };
        Ok(changes
            .into_iter()
            .map(|change| (change, run.document.clone(), beside))
            .collect())
    }

    fn admit_one(
        &mut self,
        batch: &mut Batch<'_, '_>,
        change: &Change,
        name: &DocumentName,
        beside: Signed,
        now: i64,
    ) -> Result<(), NotAdmitted> {
        let store = batch.view.store;
        let workspace = *self.roster.workspace().as_bytes();
        if let Some(known) = store.actor(change.actor) {
            if let Some(why) = known.frozen {
                return Err(NotAdmitted::Frozen(why));
            }
            if change.seq <= known.seq {
                return Err(NotAdmitted::Known);
            }
        }
        let document = store.state_write().open_document(workspace, name);
        if let Err(error) = verdict::judge(
            name.id(workspace),
            &view_history(&batch.view, document),
            change,
        ) {
            if !error.may_wait() {
                let why = error.to_string();
                store.state_write().freeze(document, change.actor, why);
            }
            return Err(error.into());
        }
        self.hlc = self.hlc.heard(change.message.stamp(), now);
        batch.apply(document, change, beside)?;
        Ok(())
    }
}

type Vouched = (Change, DocumentName, Signed);

/// Why a core could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The roster does not verify.
    #[error("the roster does not verify: {0}")]
    Roster(String),
    /// The device key is not that of a device on the roster.
    #[error("the device key of this home is not on the roster of its workspace")]
    Device,
}

/// Authors, signs and applies the change of an effect.
fn author(
    key: &DeviceKey,
    roster: &Roster,
    incarnation: Option<[u8; 16]>,
    batch: &mut Batch<'_, '_>,
    effect: board::Effect,
) -> Result<Result<(), Refusal>, StoreError> {
    let store = batch.view.store;
    let workspace = *roster.workspace().as_bytes();
    let incarnation = incarnation.unwrap_or_default();
    let document_id = effect.document.id(workspace);
    let actor = stead_sync::ActorId::derive(
        &document_id.0,
        &key.id(),
        &Incarnation::from_bytes(incarnation),
    );
    let stamp = effect.message.hlc;
    let (document, state) = {
        let mut state = store.state_write();
        let document = state.open_document(workspace, &effect.document);
        let known = state.document(document).cloned();
        let Some(known) = known else {
            return Err(StoreError::Broken("a document is not there"));
        };
        (
            document,
            state.authoring(&known, ActorId(*actor.as_bytes())),
        )
    };
    let mut row = |object| {
        let stored = batch
            .view
            .stored_in(document, object)
            .map_err(ViewError::from)?;
        Ok(stored.map(|stored| stored.row))
    };
    let draft = effect.draft(&state, &mut row).map_err(view_failed)?;
    if draft.ops.is_empty() {
        return Ok(Ok(()));
    }
    let change = match Change::author(document_id, draft) {
        Ok(change) => change,
        Err(error) => {
            return Ok(Err(Refusal::new(
                Code::TooLarge,
                format!("{error}."),
                "Nothing was written. Split it into several commands.",
            )));
        }
    };
    let claim = ChangeClaim {
        workspace: roster.workspace(),
        document: document_id.0,
        actor,
        seq: change.seq,
        hash: change.hash.0,
        roster_head: roster.head(),
    };
    let beside = Signed {
        device: *key.id().as_bytes(),
        incarnation,
        signature: *claim.sign(key).as_bytes(),
        roster: u32::try_from(roster.len().saturating_sub(1)).unwrap_or(u32::MAX),
    };
    batch.apply(document, &change, beside)?;
    store.state_write().stamp(document, stamp);
    Ok(Ok(()))
}

/// The caller that a live credential makes.
pub(crate) fn caller_of(roster: &Roster, id: CredentialId) -> Option<Caller> {
    let credential = roster
        .credential(id)
        .filter(|credential| credential.is_live())?;
    Some(Caller {
        credential: credential.id.to_string(),
        member: credential.member.to_string(),
        kind: match credential.kind {
            CredentialKind::Person => CallerKind::Person,
            CredentialKind::Delegate => CallerKind::Delegate,
            CredentialKind::ProjectKey => CallerKind::ProjectKey,
            CredentialKind::System => CallerKind::System,
        },
        scopes: credential
            .scopes
            .iter()
            .map(|scope| scope.as_str().to_owned())
            .collect(),
        grants: match &credential.grants {
            Grants::All => None,
            Grants::Projects(projects) => Some(projects.clone()),
        },
        label: None,
    })
}

fn directory_of(roster: &Roster) -> Directory {
    Directory {
        members: roster
            .members()
            .map(|member| {
                let entry = stead_doc::context::Member {
                    name: member.name.clone(),
                    email: member.email.clone(),
                    responsibility: member.responsibility.as_str().to_owned(),
                };
                (member.id.to_string(), entry)
            })
            .collect(),
        credentials: roster
            .credentials()
            .map(|credential| {
                let entry = stead_doc::context::Credential {
                    name: credential.name.clone(),
                    member: credential.member.to_string(),
                    delegate: credential.kind == CredentialKind::Delegate,
                    live: credential.is_live(),
                };
                (credential.id.to_string(), entry)
            })
            .collect(),
    }
}

/// What every caller of a batch is told whose commit failed.
pub fn retry(error: &StoreError) -> Refusal {
    Refusal::new(
        Code::Retry,
        format!("the outcome is unknown: {error}."),
        "Send the same call with the same idempotencyKey. Without a key: read the task first; do not repeat a create.",
    )
}

fn view_failed(error: ViewError) -> StoreError {
    match error.0.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(error) => StoreError::Io(std::io::Error::other(error)),
    }
}

/// Entropy for one purpose out of a batch's.
fn derive(entropy: &[u8; 32], purpose: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(entropy, purpose).as_bytes()
}

fn split(bytes: &[u8; 32]) -> [[u8; 16]; 2] {
    let mut halves = [[0; 16]; 2];
    for (half, chunk) in halves.iter_mut().zip(bytes.chunks_exact(16)) {
        half.copy_from_slice(chunk);
    }
    halves
}

/// The runs of changes that a frontier lacks, as another node admits them.
///
/// # Errors
///
/// When the store fails.
pub fn runs_beyond(
    store: &Store,
    roster: &Roster,
    entries: &[RosterHead],
    frontier: &dyn Fn(ActorId) -> u64,
) -> Result<Vec<SignedRun>, StoreError> {
    debug_assert_eq!(roster.len(), entries.len() as u64);
    store
        .signed_runs(frontier)?
        .into_iter()
        .map(|run| {
            let roster_head = entries.get(run.roster as usize).copied();
            let roster_head = roster_head.ok_or(StoreError::Broken(
                "a signature names an unknown roster entry",
            ))?;
            Ok(SignedRun {
                document: run.document,
                changes: run.changes,
                device: DeviceId::from_bytes(run.device),
                incarnation: Incarnation::from_bytes(run.incarnation),
                signature: Signature::from_bytes(run.signature),
                roster_head,
            })
        })
        .collect()
}

/// The workspace that a store is of.
pub fn workspace_of(store: &Store) -> Option<WorkspaceId> {
    crate::store::unhex(&store.meta().workspace).map(WorkspaceId::from_bytes)
}
