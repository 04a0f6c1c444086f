//! A node without IO: what `crates/node` does with redb, done with maps in the plainest way.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use automerge::{
    Automerge, AutomergeError, ReadDoc,
    transaction::{CommitOptions, Transactable},
};
use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::Arguments,
    board::{self, Command, Dependencies, DocumentState, Edit, Effect, Outcome, Parents, Reply},
    change::{Action, Change, DecodeError},
    conflict,
    context::{Caller, CallerKind, Context, Credential, Directory, Member},
    document::{DocumentName, Genesis, bucket},
    export, graph,
    hlc::Hlc,
    id::{ActorId, ActorTag, ChangeHash, DocumentId, ObjectId, OpId},
    message::Message,
    present,
    refusal::Refusal,
    revision::Revision,
    row::Row,
    scalar::Scalar,
    schema::{Group, Schema},
    verdict::{self, History, Verdict},
    view::{KeyEffect, Located, ProjectEntry, View, ViewError, Waiting},
};

pub(crate) const WORKSPACE: [u8; 16] = [7; 16];

/// What happens first happens at this time, in milliseconds since 1970; any would do.
const EPOCH: i64 = 1_780_000_000_000;

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub(crate) device: u8,
    pub(crate) now: i64,
    hlc: Hlc,
    commands: u64,
    documents: BTreeMap<DocumentId, Document>,
    directory: Directory,
    schema: Schema,
    keys: BTreeMap<(String, String), KeyEffect>,
    automerge: bool,
}

/// One document of a node.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    pub(crate) name: DocumentName,
    pub(crate) id: DocumentId,
    pub(crate) rows: BTreeMap<ObjectId, Row>,
    pub(crate) heads: BTreeSet<ChangeHash>,
    pub(crate) max_op: u64,
    /// In order of arrival, with the time of it.
    pub(crate) changes: Vec<(Change, i64)>,
    by_hash: BTreeMap<ChangeHash, usize>,
    /// Positions by seq - 1.
    by_actor: BTreeMap<ActorId, Vec<usize>>,
    /// For each change, how far each actor's changes are its ancestors or itself.
    clocks: Vec<BTreeMap<ActorId, u64>>,
    texts: BTreeMap<(ObjectId, OpId), String>,
    genesis: Genesis,
    pub(crate) automerge: Option<Automerge>,
    /// Changes whose bytes Automerge wrote alike.
    pub(crate) bytes_compared: u64,
    /// Automerge's names of the bucket maps, as far as they were asked for.
    containers: RefCell<BTreeMap<u16, automerge::ObjId>>,
}

/// Why a node did not take a change.
#[derive(Debug)]
pub(crate) enum Refused {
    Decode(DecodeError),
    Verdict(Verdict),
}

/// Who calls.
pub(crate) fn person(member: &str) -> Caller {
    caller(&format!("c_{member}"), member, CallerKind::Person)
}

/// An agent of Ada's.
pub(crate) fn codex() -> Caller {
    caller("d_codex", "ada", CallerKind::Delegate)
}

/// An agent of Grace's.
pub(crate) fn scout() -> Caller {
    caller("d_scout", "grace", CallerKind::Delegate)
}

fn caller(credential: &str, member: &str, kind: CallerKind) -> Caller {
    Caller {
        credential: credential.into(),
        member: member.into(),
        kind,
        scopes: ["tasks:read", "tasks:write", "projects:write"]
            .map(String::from)
            .into(),
        grants: None,
        label: None,
    }
}

fn directory() -> Directory {
    let member = |name: &str, responsibility: &str| Member {
        name: name.into(),
        email: Some(format!("{}@example.com", name.to_lowercase())),
        responsibility: responsibility.into(),
    };
    let credential = |name: &str, member: &str, delegate, live| Credential {
        name: name.into(),
        member: member.into(),
        delegate,
        live,
    };
    Directory {
        members: BTreeMap::from([
            ("ada".into(), member("Ada", "lead")),
            ("grace".into(), member("Grace", "contributor")),
        ]),
        credentials: BTreeMap::from([
            ("c_ada".into(), credential("Ada", "ada", false, true)),
            ("c_grace".into(), credential("Grace", "grace", false, true)),
            ("d_codex".into(), credential("codex", "ada", true, true)),
            ("d_scout".into(), credential("scout", "grace", true, true)),
            ("d_gone".into(), credential("gone", "grace", true, false)),
        ]),
    }
}

impl Replica {
    /// A node that holds the empty workspace.
    pub(crate) fn new(device: u8) -> Self {
        Self {
            device,
            now: EPOCH,
            hlc: Hlc::default(),
            commands: 0,
            documents: BTreeMap::new(),
            directory: directory(),
            schema: Schema::board(),
            keys: BTreeMap::new(),
            automerge: false,
        }
    }

    /// `n` nodes that all hold the project `stead`, and nothing else.
    pub(crate) fn several(n: u8) -> Vec<Self> {
        let mut first = Self::new(1);
        first.project("stead");
        (1..=n)
            .map(|device| {
                let mut replica = Self::new(device);
                replica.exchange_from(&first);
                replica
            })
            .collect()
    }

    /// Two nodes that hold the project `stead`.
    pub(crate) fn pair() -> (Self, Self) {
        let mut both = Self::several(2).into_iter();
        (both.next().unwrap(), both.next().unwrap())
    }

    /// One node that holds the project `stead`.
    pub(crate) fn one() -> Self {
        Self::pair().0
    }

    /// Keeps an Automerge document beside each document from now on. To be called on an empty
    /// node.
    pub(crate) fn with_automerge(mut self) -> Self {
        assert!(self.documents.is_empty());
        self.automerge = true;
        self
    }

    // -- commands

    pub(crate) fn project(&mut self, slug: &str) -> String {
        let command = Command::Project {
            slug: slug.into(),
            name: slug.into(),
        };
        let reply = self.execute(&person("ada"), &command).unwrap();
        self.open(&DocumentName::project(board::project_id(WORKSPACE, slug)));
        reply["project"]["id"].as_str().unwrap().to_owned()
    }

    /// `task_mutate` as Ada in person.
    pub(crate) fn run(&mut self, arguments: Json) -> Result<Json, Refusal> {
        self.run_as(&person("ada"), arguments)
    }

    /// `task_mutate`, `updates[]` aside.
    pub(crate) fn run_as(&mut self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let command = Command::Task(Arguments::flatten(arguments)?);
        self.execute(caller, &command)
    }

    /// `task_mutate` with `updates[]`: one command for each entry.
    pub(crate) fn run_updates(
        &mut self,
        caller: &Caller,
        arguments: Json,
    ) -> Result<Vec<Result<Json, Refusal>>, Refusal> {
        let map = Arguments::flatten(arguments)?;
        let calls = board::split_updates(&map)?.expect("updates[] is there");
        Ok(calls
            .into_iter()
            .map(|call| self.execute(caller, &Command::Task(call)))
            .collect())
    }

    /// Evaluates, authors, checks as a stranger would, applies, renders.
    pub(crate) fn execute(&mut self, caller: &Caller, command: &Command) -> Result<Json, Refusal> {
        Ok(self.execute_traced(caller, command)?.0)
    }

    /// Likewise, with the change that was written.
    pub(crate) fn execute_traced(
        &mut self,
        caller: &Caller,
        command: &Command,
    ) -> Result<(Json, Option<Change>), Refusal> {
        self.commands += 1;
        self.now += 1_000;
        let hlc = self.hlc.tick(self.now);
        let entropy =
            *blake3::hash(&[&[self.device][..], &self.commands.to_le_bytes()].concat()).as_bytes();
        let outcome = {
            let cx = self.context(caller, hlc, entropy);
            board::evaluate(self, &cx, command)?
        };
        let (reply, change) = match outcome {
            Outcome::Write(effect) => {
                self.hlc = hlc;
                let reply = effect.reply.clone();
                (reply, Some(self.write(*effect)))
            }
            Outcome::Nothing(reply) | Outcome::Replay(_, reply) => (reply, None),
        };
        let cx = self.context(caller, hlc, entropy);
        Ok((board::render(self, &cx, &reply)?, change))
    }

    /// The advice on how a member's agents take part.
    pub(crate) fn set_responsibility(&mut self, member: &str, role: &str) {
        self.directory
            .members
            .get_mut(member)
            .unwrap()
            .responsibility = role.into();
    }

    /// What a command comes to, nothing written.
    pub(crate) fn outcome(&self, caller: &Caller, arguments: Json) -> Result<Outcome, Refusal> {
        let command = Command::Task(Arguments::flatten(arguments)?);
        board::evaluate(self, &self.context(caller, self.hlc, [9; 32]), &command)
    }

    /// Writes fields of one object as they are, past all rules.
    pub(crate) fn put(
        &mut self,
        document: &DocumentName,
        object: ObjectId,
        fields: &[(&str, Option<Scalar>)],
    ) -> Change {
        let message = Message {
            command: "raw".into(),
            credential: format!("d_{}", self.device),
            hlc: self.hlc.tick(self.now).0,
            ..Message::default()
        };
        self.write(Effect {
            document: document.clone(),
            message,
            edits: fields
                .iter()
                .map(|(field, value)| Edit {
                    object,
                    field: (*field).to_owned(),
                    value: value.clone(),
                })
                .collect(),
            reply: Reply::Json(Json::Null),
        })
    }

    /// Authors an effect and takes the change as if it came from elsewhere.
    pub(crate) fn write(&mut self, effect: Effect) -> Change {
        let name = effect.document.clone();
        let id = self.open(&name);
        let state = self.state(&name);
        let document = &self.documents[&id];
        let draft = effect
            .draft(&state, &mut |object| {
                Ok(document.rows.get(&object).cloned())
            })
            .unwrap();
        let change = Change::author(id, draft).unwrap();
        assert_eq!(
            Change::decode(id, &change.bytes).as_ref(),
            Ok(&change),
            "what is authored decodes to itself"
        );
        verdict::judge(id, document, &change).expect("what is authored is admitted");
        self.documents.get_mut(&id).unwrap().write_beside(&change);
        self.apply(id, change.clone());
        change
    }

    // -- exchange

    /// Decodes, judges and applies a change from elsewhere; one that is here already is nothing.
    pub(crate) fn receive(&mut self, name: &DocumentName, bytes: &[u8]) -> Result<(), Refused> {
        let id = self.open(name);
        let change = Change::decode(id, bytes).map_err(Refused::Decode)?;
        let document = &self.documents[&id];
        if document.by_hash.contains_key(&change.hash) {
            return Ok(());
        }
        verdict::judge(id, document, &change).map_err(Refused::Verdict)?;
        self.hlc = self.hlc.heard(change.message.stamp(), self.now);
        self.apply(id, change);
        Ok(())
    }

    /// Takes what `other` has and this node lacks, in the order in which it came there.
    pub(crate) fn exchange_from(&mut self, other: &Self) {
        self.exchange_some(other, usize::MAX);
    }

    /// Takes at most `limit` changes of each document: any front of a node's order is complete.
    pub(crate) fn exchange_some(&mut self, other: &Self, limit: usize) {
        for document in other.documents.values() {
            let id = self.open(&document.name);
            let missing: Vec<&Change> = document
                .changes
                .iter()
                .map(|(change, _)| change)
                .filter(|change| !self.documents[&id].by_hash.contains_key(&change.hash))
                .take(limit)
                .collect();
            for change in missing {
                self.now += 10;
                self.receive(&document.name, &change.bytes).unwrap();
            }
        }
    }

    /// Both ways.
    pub(crate) fn exchange(&mut self, other: &mut Self) {
        self.exchange_from(other);
        other.exchange_from(self);
    }

    /// Until everybody has everything.
    pub(crate) fn exchange_all(replicas: &mut [Self]) {
        for _ in 0..2 {
            for to in 0..replicas.len() {
                for from in 0..replicas.len() {
                    if let Ok([to, from]) = replicas.get_disjoint_mut([to, from]) {
                        to.exchange_from(from);
                    }
                }
            }
        }
    }

    fn open(&mut self, name: &DocumentName) -> DocumentId {
        let id = name.id(WORKSPACE);
        if self.documents.contains_key(&id) {
            return id;
        }
        let beside = self.automerge.then(|| self.actor(id));
        self.documents.insert(id, Document::new(name, beside));
        id
    }

    fn apply(&mut self, id: DocumentId, change: Change) {
        let now = self.now;
        if let (Some(key), Some(payload), Some(subject)) = (
            &change.message.key,
            &change.message.payload,
            change.subject(),
        ) {
            self.keys
                .entry((change.message.credential.clone(), key.clone()))
                .or_insert(KeyEffect {
                    payload: payload.clone(),
                    subject,
                    document: id,
                    change: (change.actor, change.seq),
                });
        }
        self.documents.get_mut(&id).unwrap().apply(change, now);
    }

    // -- reading

    pub(crate) fn state(&self, name: &DocumentName) -> DocumentState {
        let id = name.id(WORKSPACE);
        let document = &self.documents[&id];
        let actor = self.actor(id);
        DocumentState {
            heads: document.heads.iter().copied().collect(),
            max_op: document.max_op,
            actor,
            last: document.last_of(actor).unwrap(),
        }
    }

    pub(crate) fn actor(&self, document: DocumentId) -> ActorId {
        let hash = blake3::hash(&[&document.0[..], &[self.device]].concat());
        ActorId(hash.as_bytes()[..16].try_into().unwrap())
    }

    pub(crate) fn document(&self, name: &DocumentName) -> &Document {
        &self.documents[&name.id(WORKSPACE)]
    }

    pub(crate) fn documents(&self) -> impl Iterator<Item = &Document> {
        self.documents.values()
    }

    /// The number of changes that a node holds and the heads of all documents.
    pub(crate) fn standing(&self) -> Vec<(usize, Vec<ChangeHash>)> {
        let standing = |document: &Document| {
            (
                document.changes.len(),
                document.heads.iter().copied().collect(),
            )
        };
        self.documents.values().map(standing).collect()
    }

    pub(crate) fn located(&self, id: &str) -> Located {
        View::object(self, id.parse().unwrap()).unwrap().unwrap()
    }

    pub(crate) fn row(&self, id: &str) -> Row {
        self.located(id).row
    }

    /// An object as Ada sees it.
    pub(crate) fn show(&self, id: &str) -> Json {
        let caller = person("ada");
        let cx = self.context(&caller, self.hlc, [0; 32]);
        present::object(self, &cx, &self.located(id)).unwrap()
    }

    pub(crate) fn revision(&self, id: &str) -> String {
        Revision::of(&self.row(id)).to_string()
    }

    /// Everything a node holds, in canonical form.
    pub(crate) fn export(&self) -> String {
        let mut out = String::new();
        for (id, document) in &self.documents {
            out.push_str(&format!("{id}\n"));
            for object in document.rows.keys() {
                let at = self.located(&object.to_string());
                out.push_str(&export::object(self, &at).unwrap().to_string());
                out.push('\n');
            }
        }
        out
    }

    pub(crate) fn context<'a>(
        &'a self,
        caller: &'a Caller,
        hlc: Hlc,
        entropy: [u8; 32],
    ) -> Context<'a> {
        Context {
            workspace: WORKSPACE,
            now: self.now,
            hlc,
            caller,
            directory: &self.directory,
            schema: &self.schema,
            entropy,
        }
    }

    /// Like [`Self::run`], for a write that has to succeed: the task or sprint of the answer.
    pub(crate) fn done(&mut self, arguments: Json) -> Json {
        let mut reply = self.run(arguments).unwrap();
        for name in ["task", "sprint", "comment"] {
            if reply.get(name).is_some() {
                return reply[name].take();
            }
        }
        reply
    }

    /// A new task of the project `stead`: its id.
    pub(crate) fn task(&mut self, title: &str) -> String {
        let task = self.done(json!({"action": "create", "projectId": "stead", "title": title}));
        task["id"].as_str().unwrap().to_owned()
    }

    /// A new sprint of the project `stead`: its id.
    pub(crate) fn sprint(&mut self, name: &str) -> String {
        let sprint =
            self.done(json!({"action": "sprint_create", "projectId": "stead", "name": name}));
        sprint["id"].as_str().unwrap().to_owned()
    }

    /// Adds the object's current revision to the arguments of a command.
    pub(crate) fn with_revision(&self, id: &str, mut arguments: Json) -> Json {
        let map: &mut Map<String, Json> = arguments.as_object_mut().unwrap();
        map.insert("revision".into(), self.revision(id).into());
        let argument = if self.row(id).kind() == Some("sprint") && !map.contains_key("field") {
            "sprintId"
        } else {
            "id"
        };
        map.insert(argument.into(), id.into());
        arguments
    }

    /// Runs a command on an object with its current revision, as Ada.
    pub(crate) fn on(&mut self, id: &str, arguments: Json) -> Result<Json, Refusal> {
        let arguments = self.with_revision(id, arguments);
        self.run(arguments)
    }

    /// Likewise, where it has to succeed.
    pub(crate) fn on_done(&mut self, id: &str, arguments: Json) -> Json {
        let arguments = self.with_revision(id, arguments);
        self.done(arguments)
    }
}

/// The document of the project `stead`.
pub(crate) fn stead() -> DocumentName {
    DocumentName::project(board::project_id(WORKSPACE, "stead"))
}

impl Document {
    fn new(name: &DocumentName, beside: Option<ActorId>) -> Self {
        let id = name.id(WORKSPACE);
        let genesis = Genesis::of(id);
        let automerge = beside.map(|actor| {
            let mut automerge =
                Automerge::new().with_actor(automerge::ActorId::from(actor.0.as_slice()));
            let change = automerge::Change::from_bytes(genesis.bytes.clone()).unwrap();
            automerge.apply_changes([change]).unwrap();
            automerge
        });
        Self {
            name: name.clone(),
            id,
            rows: BTreeMap::new(),
            heads: BTreeSet::from([genesis.hash]),
            max_op: Genesis::MAX_OP,
            changes: Vec::new(),
            by_hash: BTreeMap::new(),
            by_actor: BTreeMap::new(),
            clocks: Vec::new(),
            texts: BTreeMap::new(),
            genesis,
            automerge,
            bytes_compared: 0,
            containers: RefCell::default(),
        }
    }

    fn apply(&mut self, change: Change, now: i64) {
        for object in change.touched() {
            let row = self.rows.entry(object).or_default();
            let applied = row.apply(object, &change);
            for op in applied.dropped {
                self.texts.remove(&(object, op));
            }
            for (op, text) in applied.texts {
                self.texts.insert((object, op), text);
            }
        }
        let mut clock = BTreeMap::from([(change.actor, change.seq)]);
        for dep in &change.deps {
            if let Some(at) = self.by_hash.get(dep) {
                for (actor, seq) in &self.clocks[*at] {
                    let known = clock.entry(*actor).or_insert(*seq);
                    *known = (*known).max(*seq);
                }
            }
            self.heads.remove(dep);
        }
        self.heads.insert(change.hash);
        self.max_op = self.max_op.max(change.max_op());
        // What this node wrote itself is in already, see `write_beside`.
        if let Some(automerge) = &mut self.automerge
            && automerge
                .get_change_meta_by_hash(&automerge::ChangeHash(change.hash.0))
                .is_none()
        {
            let foreign = automerge::Change::from_bytes(change.bytes.clone()).unwrap();
            automerge.apply_changes([foreign]).unwrap();
        }
        let at = self.changes.len();
        self.by_hash.insert(change.hash, at);
        self.by_actor.entry(change.actor).or_default().push(at);
        self.clocks.push(clock);
        self.changes.push((change, now));
    }

    fn at(&self, op: OpId) -> Option<&(Change, i64)> {
        let positions = self.by_actor.get(&op.actor)?;
        positions
            .iter()
            .map(|at| &self.changes[*at])
            .find(|(change, _)| (change.start_op..=change.max_op()).contains(&op.counter))
    }

    /// Holds the view equal to Automerge for some keys: every visible value with its op id, and
    /// the winner; and the heads.
    pub(crate) fn compare(&self, keys: impl IntoIterator<Item = (ObjectId, String)>) -> usize {
        let automerge = self.automerge.as_ref().expect("Automerge is kept beside");
        let mut heads: Vec<_> = automerge.get_heads().iter().map(|head| head.0).collect();
        heads.sort_unstable();
        assert!(
            heads.iter().eq(self.heads.iter().map(|head| &head.0)),
            "the heads differ"
        );
        let empty = Row::default();
        let mut compared = 0;
        for (object, field) in keys {
            let container = self.container(automerge, object);
            let key = format!("{object}/{field}");
            let mut theirs: Vec<(OpId, Scalar)> = automerge
                .get_all(&container, key.as_str())
                .unwrap()
                .into_iter()
                .map(|(value, id)| {
                    let value = Scalar::from_automerge(value.as_scalar().unwrap()).unwrap();
                    (op_id(&id), value)
                })
                .collect();
            theirs.sort_by_key(|(op, _)| *op);
            let row = self.rows.get(&object).unwrap_or(&empty);
            let ours: Vec<(OpId, Scalar)> = row
                .cells
                .get(&field)
                .map(|cell| {
                    let values = cell.0.iter();
                    values
                        .map(|(op, value)| (*op, self.load(object, *op, value)))
                        .collect()
                })
                .unwrap_or_default();
            assert_eq!(ours, theirs, "{key}");
            let winner = automerge.get(&container, key.as_str()).unwrap();
            let winner = winner.map(|(_, id)| op_id(&id));
            assert_eq!(
                row.cells
                    .get(&field)
                    .and_then(stead_doc::row::Cell::winner_op),
                winner,
                "winner of {key}"
            );
            compared += 1;
        }
        compared
    }

    fn container(&self, automerge: &Automerge, object: ObjectId) -> automerge::ObjId {
        let bucket = bucket(object);
        let mut containers = self.containers.borrow_mut();
        let find = || {
            let name = format!("{bucket:03x}");
            let (_, id) = automerge.get(automerge::ROOT, name).unwrap().unwrap();
            id
        };
        containers.entry(bucket).or_insert_with(find).clone()
    }

    /// Every key that ever was written.
    pub(crate) fn keys(&self) -> BTreeSet<(ObjectId, String)> {
        self.changes
            .iter()
            .flat_map(|(change, _)| &change.ops)
            .map(|op| (op.object, op.field.clone()))
            .collect()
    }

    fn load(&self, object: ObjectId, op: OpId, value: &stead_doc::row::Value) -> Scalar {
        match value {
            stead_doc::row::Value::Inline(scalar) => scalar.clone(),
            stead_doc::row::Value::Apart(_) => Scalar::Str(self.texts[&(object, op)].clone()),
        }
    }

    /// Texts that are kept apart for no visible value: what a store would never give back.
    pub(crate) fn stray_texts(&self) -> usize {
        let visible: BTreeSet<(ObjectId, OpId)> = self
            .rows
            .iter()
            .flat_map(|(object, row)| row.cells.values().map(move |cell| (object, cell)))
            .flat_map(|(object, cell)| cell.0.iter().map(move |value| (object, value)))
            .filter(|(_, (_, value))| matches!(value, stead_doc::row::Value::Apart(_)))
            .map(|(object, (op, _))| (*object, *op))
            .collect();
        assert!(visible.iter().all(|text| self.texts.contains_key(text)));
        self.texts.len() - visible.len()
    }
}

fn op_id(id: &automerge::ObjId) -> OpId {
    match id {
        automerge::ObjId::Id(counter, actor, _) => OpId {
            counter: *counter,
            actor: ActorId(actor.to_bytes().try_into().unwrap()),
        },
        automerge::ObjId::Root => panic!("the root is no operation"),
    }
}

impl Document {
    /// Has the Automerge document do for itself what the change does, at the same state, and
    /// compares the bytes.
    ///
    /// A put of the value that wins already is the one thing that Automerge's own transactions
    /// never write as a put: it writes nothing, or, in a conflict, deletes the other values. An
    /// explicit add of a tag and a resolution do put it, so that they win over what was done
    /// apart. Such a change goes without this comparison and is applied as a foreign one.
    fn write_beside(&mut self, change: &Change) {
        let skips = |op: &stead_doc::change::Op| match &op.action {
            Action::Put(value) => self
                .rows
                .get(&op.object)
                .and_then(|row| row.cells.get(&op.field))
                .and_then(stead_doc::row::Cell::winner)
                .is_some_and(|winner| winner.is(value)),
            Action::Delete => false,
        };
        let skipped = change.ops.iter().any(skips);
        if let Some(automerge) = &self.automerge {
            for op in &change.ops {
                self.container(automerge, op.object);
            }
        }
        let containers = self.containers.borrow();
        let Some(automerge) = self.automerge.as_mut().filter(|_| !skipped) else {
            return;
        };
        automerge
            .transact_with::<_, _, AutomergeError, _>(
                |_| {
                    CommitOptions::default()
                        .with_time(change.time)
                        .with_message(change.message.to_text())
                },
                |tx| {
                    for op in &change.ops {
                        let container = &containers[&bucket(op.object)];
                        match &op.action {
                            Action::Put(value) => {
                                tx.put(container, op.key(), value.to_automerge())?;
                            }
                            Action::Delete => tx.delete(container, op.key())?,
                        }
                    }
                    Ok(())
                },
            )
            .unwrap();
        assert_eq!(
            automerge.get_last_local_change().unwrap().raw_bytes(),
            change.bytes,
            "Automerge writes other bytes for the same puts and deletes"
        );
        self.bytes_compared += 1;
    }
}

impl History for Document {
    fn last_of(&self, actor: ActorId) -> Result<Option<(u64, ChangeHash)>, ViewError> {
        Ok(self.by_actor.get(&actor).and_then(|positions| {
            let (change, _) = &self.changes[*positions.last()?];
            Some((change.seq, change.hash))
        }))
    }

    fn max_op_of(&self, change: ChangeHash) -> Result<Option<u64>, ViewError> {
        if change == self.genesis.hash {
            return Ok(Some(Genesis::MAX_OP));
        }
        Ok(self
            .by_hash
            .get(&change)
            .map(|at| self.changes[*at].0.max_op()))
    }

    fn field_of(&self, op: OpId) -> Result<Option<(ObjectId, String, u64)>, ViewError> {
        Ok(self.at(op).and_then(|(change, _)| {
            let (_, found) = change
                .ops_with_ids()
                .find(|(id, found)| *id == op && matches!(found.action, Action::Put(_)))?;
            Some((found.object, found.field.clone(), change.seq))
        }))
    }

    fn is_ancestor(
        &self,
        heads: &[ChangeHash],
        actor: ActorId,
        seq: u64,
    ) -> Result<bool, ViewError> {
        Ok(heads
            .iter()
            .filter_map(|head| self.by_hash.get(head))
            .any(|at| {
                self.clocks[*at]
                    .get(&actor)
                    .is_some_and(|known| *known >= seq)
            }))
    }
}

impl View for Replica {
    fn object(&self, id: ObjectId) -> Result<Option<Located>, ViewError> {
        Ok(self.documents.values().find_map(|document| {
            let row = document.rows.get(&id)?;
            let seen = |stamp: &Option<stead_doc::row::Stamp>| {
                let stamp = stamp.as_ref().expect("a row has been touched");
                let op = OpId {
                    counter: stamp.counter,
                    actor: stamp.actor,
                };
                document.at(op).expect("its change is here").1
            };
            Some(Located {
                id,
                document: document.id,
                project: document.name.project_id(),
                row: row.clone(),
                created_seen: seen(&row.created),
                updated_seen: seen(&row.updated),
            })
        }))
    }

    fn text(&self, at: &Located, op: OpId) -> Result<Option<String>, ViewError> {
        Ok(self.documents[&at.document]
            .texts
            .get(&(at.id, op))
            .cloned())
    }

    fn projects(&self) -> Result<Vec<ProjectEntry>, ViewError> {
        let workspace = DocumentName::workspace().id(WORKSPACE);
        let mut projects = Vec::new();
        for (id, row) in self
            .documents
            .get(&workspace)
            .iter()
            .flat_map(|document| &document.rows)
        {
            if row.kind() == Some("project") {
                projects.push(ProjectEntry {
                    id: *id,
                    slug: row.text("slug").unwrap_or_default().into(),
                    name: row.text("name").unwrap_or_default().into(),
                    archived: present::is_archived(row),
                });
            }
        }
        projects.sort_by(|a, b| a.slug.cmp(&b.slug));
        Ok(projects)
    }

    fn referrers(&self, target: ObjectId, relation: &str) -> Result<Vec<ObjectId>, ViewError> {
        let wanted = target.to_string();
        let field = match relation {
            "parent" => "parentId".to_owned(),
            "subject" => "subject".to_owned(),
            "sprint" => "sprintId".to_owned(),
            edge => format!("edge/{edge}/{wanted}"),
        };
        let points = |row: &Row| {
            if field.starts_with("edge/") {
                row.cells.contains_key(&field)
            } else {
                row.text(&field) == Some(wanted.as_str())
            }
        };
        let mut found: Vec<_> = self
            .documents
            .values()
            .flat_map(|document| &document.rows)
            .filter(|(_, row)| points(row))
            .map(|(id, _)| *id)
            .collect();
        found.sort_unstable();
        Ok(found)
    }

    fn suspended(&self, at: &Located) -> Result<Vec<String>, ViewError> {
        let mut fields = Vec::new();
        if board::parent_edge(&at.row).is_some() {
            let component = graph::suspended(&Parents(self), at.id)?;
            if component.suspended.iter().any(|(from, _)| *from == at.id) {
                fields.push("parentId".to_owned());
            }
        }
        if present::edges(&at.row, "depends_on").next().is_some() {
            let component = graph::suspended(&Dependencies(self), at.id)?;
            for (from, to) in component.suspended {
                if from == at.id {
                    fields.push(format!("edge/depends_on/{to}"));
                }
            }
        }
        Ok(fields)
    }

    fn actors(
        &self,
        document: DocumentId,
        tag: ActorTag,
    ) -> Result<Vec<(ActorId, u64)>, ViewError> {
        let Some(document) = self.documents.get(&document) else {
            return Ok(Vec::new());
        };
        Ok(document
            .by_actor
            .iter()
            .filter(|(actor, _)| actor.tag() == tag)
            .map(|(actor, positions)| (*actor, positions.len() as u64))
            .collect())
    }

    fn touching(
        &self,
        at: &Located,
        wanted: &dyn Fn(ActorId, u64) -> bool,
    ) -> Result<Vec<(Change, i64)>, ViewError> {
        Ok(self.documents[&at.document]
            .changes
            .iter()
            .filter(|(change, _)| {
                change.ops.iter().any(|op| op.object == at.id) && wanted(change.actor, change.seq)
            })
            .cloned()
            .collect())
    }

    fn change_of(
        &self,
        document: DocumentId,
        op: OpId,
    ) -> Result<Option<(Change, i64)>, ViewError> {
        Ok(self.documents[&document].at(op).cloned())
    }

    fn key_effect(&self, credential: &str, key: &str) -> Result<Option<KeyEffect>, ViewError> {
        Ok(self
            .keys
            .get(&(credential.to_owned(), key.to_owned()))
            .cloned())
    }

    fn ready(&self, project: ObjectId, limit: usize) -> Result<Vec<ObjectId>, ViewError> {
        let caller = person("ada");
        let cx = self.context(&caller, self.hlc, [0; 32]);
        let mut ready = Vec::new();
        for at in self.tasks_of(project)? {
            let takeable = present::status_of(&at.row) == "ready"
                && !at.row.cells.contains_key("blocker")
                && present::unmet_dependencies(self, &cx, &at)?.is_empty();
            if takeable {
                let priority = self.schema.priority_rank(present::priority_of(&at.row));
                let rank = match conflict::load_winner(self, &at, "rank")? {
                    Some(Scalar::F64(rank)) => rank,
                    _ => f64::INFINITY,
                };
                ready.push((priority, rank, at.id));
            }
        }
        ready.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        Ok(ready.into_iter().take(limit).map(|(_, _, id)| id).collect())
    }

    fn waiting(&self, project: ObjectId) -> Result<Waiting, ViewError> {
        let caller = person("ada");
        let cx = self.context(&caller, self.hlc, [0; 32]);
        let mut waiting = Waiting::default();
        for at in self.tasks_of(project)? {
            let status = present::status_of(&at.row);
            let open = self.schema.group_of(&status) != Group::Closed;
            let blocked = status == "blocked" || at.row.cells.contains_key("blocker");
            if open && (blocked || !present::unmet_dependencies(self, &cx, &at)?.is_empty()) {
                waiting.blocked += 1;
            }
            let live = self
                .lease_expires(&at)?
                .is_some_and(|expires| expires > cx.now);
            if status == "in_progress" && live {
                waiting.leased += 1;
            }
        }
        Ok(waiting)
    }

    fn lease_expires(&self, at: &Located) -> Result<Option<i64>, ViewError> {
        let Some(lease) = at.row.text("lease").map(present::parsed) else {
            return Ok(None);
        };
        let op = at.row.cells["lease"].winner_op().unwrap();
        let (_, seen) = self.documents[&at.document].at(op).unwrap();
        Ok(lease["secs"].as_i64().map(|secs| seen + secs * 1_000))
    }
}

impl Replica {
    fn tasks_of(&self, project: ObjectId) -> Result<Vec<Located>, ViewError> {
        let id = DocumentName::project(project).id(WORKSPACE);
        let rows = self
            .documents
            .get(&id)
            .iter()
            .flat_map(|document| &document.rows)
            .filter(|(_, row)| row.kind() == Some("task") && !present::is_archived(row))
            .map(|(id, _)| *id)
            .collect::<Vec<_>>();
        rows.into_iter()
            .map(|id| Ok(View::object(self, id)?.expect("its row is there")))
            .collect()
    }
}
