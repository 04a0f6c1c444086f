//! A board of generated data in a real store, written through the handle as agents do.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result, anyhow};
use redb::StorageBackend;
use serde_json::{Map, Value as Json, json};
use stead_doc::{board::Command, context::Caller};
use stead_node::{
    core::Job,
    edge::Machine,
    handle::Node,
    home::{Home, InitOptions},
    store::{Cache, Directory, Disk, Store},
};

use crate::generate::{ASSIGNEES, Change, Generator, Task, Update};

pub(crate) const PROJECT: &str = "board";

/// Syncs that a store asked of its files.
#[derive(Debug, Default)]
pub(crate) struct Syncs(AtomicU64);

impl Syncs {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The workspace of a home with its syncs counted.
pub(crate) fn open(home: &Home) -> Result<(Node, Arc<Syncs>)> {
    let place = home.workspace_dir()?;
    let syncs = Arc::new(Syncs::default());
    let counted = syncs.clone();
    let opener = Box::new(move || {
        let disk = Directory::new(&place).map_err(stead_node::store::StoreError::Io)?;
        Store::open(
            Box::new(Counting {
                disk,
                syncs: counted.clone(),
            }),
            Cache::default(),
        )
    });
    let node = Node::start(opener, home.device_seed()?, Arc::new(Machine))?;
    Ok((node, syncs))
}

/// A board being written.
pub(crate) struct Board {
    pub(crate) node: Node,
    callers: Vec<(String, Caller)>,
    /// Ids by task number.
    pub(crate) ids: Vec<String>,
    revisions: Vec<String>,
}

impl Board {
    /// Makes the board in a new home: `tasks` creates, then updates up to `changes` changes.
    pub(crate) fn make(
        path: &Path,
        generator: &Generator,
        tasks: u32,
        changes: u32,
    ) -> Result<Self> {
        let home = Home::at(path);
        home.init(
            &Machine,
            &InitOptions {
                name: Some("bench".into()),
                member: Some("Owner".into()),
                email: None,
            },
        )?;
        let (node, _) = open(&home)?;
        let owner = node.local_caller(None)?;
        node.call(&owner, "project_add", json!({ "slug": PROJECT }))?;
        for name in ASSIGNEES {
            node.call(&owner, "agent_add", json!({ "name": name, "local": true }))?;
        }
        let callers = ASSIGNEES
            .iter()
            .map(|name| Ok(((*name).to_owned(), node.local_caller(Some(name))?)))
            .collect::<Result<Vec<_>>>()?;
        let mut board = Self {
            node,
            callers,
            ids: Vec::new(),
            revisions: Vec::new(),
        };
        let mut waiting = Vec::new();
        for task in generator.tasks(tasks) {
            // What a task points at has its id only once it is there.
            let needs = task
                .parent
                .iter()
                .chain(&task.depends_on)
                .max()
                .copied()
                .unwrap_or(0);
            if waiting.len() == CHUNK || needs as usize >= board.ids.len() && !waiting.is_empty() {
                board.create(std::mem::take(&mut waiting))?;
            }
            waiting.push(task);
        }
        board.create(waiting)?;
        let mut chunk: Vec<Update> = Vec::new();
        let mut busy = BTreeSet::new();
        for update in generator.updates(0, tasks, changes.saturating_sub(tasks)) {
            if chunk.len() == CHUNK || busy.contains(&update.task) {
                board.update(std::mem::take(&mut chunk))?;
                busy.clear();
            }
            busy.insert(update.task);
            chunk.push(update);
        }
        board.update(chunk)?;
        Ok(board)
    }

    fn caller(&self, name: &str) -> Caller {
        let found = self
            .callers
            .iter()
            .find(|(known, _)| known == name)
            .or_else(|| self.callers.first());
        found
            .map(|(_, caller)| caller.clone())
            .unwrap_or_else(|| unreachable!("there are agents"))
    }

    fn create(&mut self, tasks: Vec<Task>) -> Result<()> {
        let jobs = tasks
            .iter()
            .map(|task| self.job(ASSIGNEES[0], self.creation(task)))
            .collect::<Result<Vec<_>>>()?;
        for (task, answer) in tasks.iter().zip(self.node.run_all(jobs)) {
            let answer = answer.map_err(|refusal| anyhow!("task {}: {refusal}", task.number))?;
            self.ids.push(part(&answer, "id")?);
            self.revisions.push(part(&answer, "revision")?);
        }
        Ok(())
    }

    fn creation(&self, task: &Task) -> Json {
        let id = |number: &u32| self.ids.get(*number as usize).cloned();
        json!({
            "action": "create",
            "projectId": PROJECT,
            "title": task.title,
            "body": task.body,
            "type": task.kind.as_str(),
            "status": task.status.as_str(),
            "reason": task.block_reason,
            "abandonReason": task.abandon_reason,
            "priority": task.priority.as_str(),
            "assignee": task.assignee,
            "tags": task.tags,
            "parentId": task.parent.as_ref().and_then(id),
            "dependsOn": task.depends_on.iter().filter_map(id).collect::<Vec<_>>(),
            "idempotencyKey": task.key,
        })
    }

    fn update(&mut self, updates: Vec<Update>) -> Result<()> {
        let jobs = updates
            .iter()
            .map(|update| self.job(update.by, self.change(update)?))
            .collect::<Result<Vec<_>>>()?;
        for (update, answer) in updates.iter().zip(self.node.run_all(jobs)) {
            let answer =
                answer.map_err(|refusal| anyhow!("update {}: {refusal}", update.number))?;
            // A comment does not move its task on.
            if let Ok(revision) = part(&answer, "revision") {
                self.revisions[update.task as usize] = revision;
            }
        }
        Ok(())
    }

    fn change(&self, update: &Update) -> Result<Json> {
        let task = update.task as usize;
        let mut call = match &update.change {
            Change::Status { to, reason } => json!({
                "action": "move",
                "status": to.as_str(),
                "force": to.as_str() == "in_progress",
                "reason": reason.as_ref().filter(|_| to.as_str() == "blocked"),
                "abandonReason": reason.as_ref().filter(|_| to.as_str() == "abandoned"),
            }),
            Change::Assignee(to) => json!({ "action": "update", "assignee": to }),
            Change::Tag { on, tag } => {
                let name = if *on { "addTags" } else { "removeTags" };
                json!({ "action": "update", name: [tag] })
            }
            Change::Priority(to) => json!({ "action": "update", "priority": to.as_str() }),
            Change::Comment(text) => {
                // Words learnt from a board can come out as nothing but blanks.
                let body = if text.trim().is_empty() {
                    "Noted."
                } else {
                    text
                };
                json!({ "action": "comment", "body": body })
            }
            Change::Body(to) => json!({ "action": "update", "body": to }),
            Change::Title(to) => json!({ "action": "update", "title": to }),
        };
        let map = call.as_object_mut().context("a call is an object")?;
        map.insert("id".into(), self.ids[task].as_str().into());
        if map.get("action").and_then(Json::as_str) != Some("comment") {
            map.insert("revision".into(), self.revisions[task].as_str().into());
        }
        map.insert("idempotencyKey".into(), update.key.as_str().into());
        Ok(call)
    }

    fn job(&self, by: &str, call: Json) -> Result<Job> {
        let map: Map<String, Json> = call.as_object().cloned().context("a call is an object")?;
        Ok(Job::Command {
            caller: self.caller(by),
            command: Command::Task(map),
        })
    }
}

/// Commands handed over at once: what one commit takes.
const CHUNK: usize = 256;

/// A part of the task of an answer.
pub(crate) fn part(answer: &Json, name: &str) -> Result<String> {
    let found = answer
        .pointer(&format!("/task/{name}"))
        .and_then(Json::as_str);
    Ok(found
        .with_context(|| format!("the answer has no task with {name}"))?
        .to_owned())
}

#[derive(Debug)]
struct Counting {
    disk: Directory,
    syncs: Arc<Syncs>,
}

impl Disk for Counting {
    fn backend(&self, name: &str) -> io::Result<(Box<dyn StorageBackend>, bool)> {
        let (backend, existed) = self.disk.backend(name)?;
        Ok((
            Box::new(CountingFile {
                backend,
                syncs: self.syncs.clone(),
            }),
            existed,
        ))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.disk.read(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.disk.write(name, content)
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        self.disk.size(name)
    }

    fn read_ahead(&self, name: &str, bytes: u64) {
        self.disk.read_ahead(name, bytes);
    }
}

/// Counts syncs. Locks are left out: a benchmark's home has one process.
#[derive(Debug)]
struct CountingFile {
    backend: Box<dyn StorageBackend>,
    syncs: Arc<Syncs>,
}

impl StorageBackend for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.backend.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.backend.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.backend.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.0.fetch_add(1, Ordering::Relaxed);
        self.backend.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.backend.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.backend.close()
    }
}
