//! What whoever runs a node does with it: look at it, check it, copy it out.

use std::{
    collections::BTreeMap,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use automerge::{Automerge, ReadDoc};
use serde_json::{Map, Value as Json, json};
use stead_doc::{
    arguments::{self, Arguments},
    board, conflict,
    context::{Caller, CallerKind, Context},
    export,
    id::ObjectId,
    present,
    refusal::{Code, Refusal},
    row::{Row, Value},
    schema::Schema,
    view::{Located, View},
};

use super::need_person;
use crate::{
    edge::World,
    handle::{Node, ReadView},
    home::{Home, HomeError},
    store::{BackupHead, Cache, Directory, Problem, Store, StoreError, Tables, hex},
};

impl Node {
    pub(super) fn status(&self, caller: &Caller) -> Result<Json, Refusal> {
        caller.need("tasks:read", &self.shared().directory)?;
        let shared = self.shared();
        let projects = self.read(caller, crate::query::projects)?;
        let connected: Vec<_> = self
            .connections()
            .list()
            .into_iter()
            // Where somebody else's process runs is a person's to know.
            .filter(|open| {
                caller.kind == CallerKind::Person || open.credential == caller.credential
            })
            .map(|open| {
                json!({
                    "by": shared.directory.actor_json(&open.credential, None),
                    "pid": open.process.pid,
                    "cwd": open.process.cwd,
                    "since": present::time(open.since),
                })
            })
            .collect();
        self.with_store(|store| {
            let (hot, packed) = store.sizes()?;
            Ok(json!({
                "workspace": {
                    "id": shared.roster.workspace().to_string(),
                    "name": shared.roster.genesis().workspace_name,
                },
                "changes": store.arrivals(),
                "unpacked": store.unpacked(),
                "bytes": { "workspace": hot, "packed": packed },
                "projects": projects.get("projects"),
                "members": shared.roster.members().count(),
                "devices": shared.roster.devices().count(),
                "connected": connected,
            }))
        })
    }

    pub(super) fn doctor(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(Arguments::flatten(arguments)?, &["rebuild"])?;
        need_person(caller, "check or rebuild the store")?;
        let schema = self.shared().schema.clone();
        if args.flag("rebuild")?.unwrap_or(false) {
            self.rebuild()?;
        }
        let pages = self.exclusive(Store::check_pages)?;
        let mut found = self.with_store(|store| doctor_store(store, &schema))?;
        if !pages && let Some(found) = found.as_object_mut() {
            found.insert("ok".into(), false.into());
            let mended = json!({
                "what": "pages of a file did not match their checksums and were repaired",
                "where": "workspace.redb or packed.redb",
                "hint": "Run `stead doctor` again. If it finds more, restore a backup with `stead restore`.",
            });
            if let Some(Json::Array(problems)) = found.get_mut("problems") {
                problems.push(mended);
            }
        }
        Ok(found)
    }

    pub(super) fn compact(&self, caller: &Caller) -> Result<Json, Refusal> {
        need_person(caller, "compact the store")?;
        let before = self.with_store(Store::sizes)?;
        self.exclusive(|store| {
            while store.pack()? > 0 {}
            store.compact()
        })?;
        let after = self.with_store(Store::sizes)?;
        Ok(json!({ "bytesBefore": before.0 + before.1, "bytesAfter": after.0 + after.1 }))
    }

    pub(super) fn backup(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(Arguments::flatten(arguments)?, &["path"])?;
        need_person(caller, "make a backup: it holds the device's key")?;
        let path = target(&args)?;
        // It holds the device's key: never in the place of something else.
        if path.symlink_metadata().is_ok() {
            return Err(Refusal::argument(
                "path",
                "there is a file of that name already.",
                "Name a new one; a backup overwrites nothing.",
            ));
        }
        let key = self.device_key();
        let head = BackupHead {
            format: crate::store::FORMAT,
            workspace: self.with_store(|store| Ok(store.meta().workspace))?,
            device_key: hex(&key),
            made_at: self.world().wall_ms(),
            changes: self.with_store(|store| Ok(store.arrivals()))?,
        };
        let rows = write_beside(&path, &self.world().entropy(), |file| {
            self.with_store(|store| store.backup(&head, file))
        })?;
        Ok(json!({ "path": path.display().to_string(), "rows": rows, "changes": head.changes }))
    }

    pub(super) fn export(&self, caller: &Caller, arguments: Json) -> Result<Json, Refusal> {
        let args = Arguments::accept(
            Arguments::flatten(arguments)?,
            &["path", "format", "projectId"],
        )?;
        caller.need("tasks:read", &self.shared().directory)?;
        if caller.kind != CallerKind::Person {
            return Err(Refusal::new(
                Code::HumanRequired,
                "only a person may write files with an export.",
                "Read tasks with task_search and task_get.",
            ));
        }
        let path = target(&args)?;
        let format = args
            .line("format", 32)?
            .unwrap_or_else(|| "json".to_owned());
        let project = args.line("projectId", 200)?;
        let count = write_beside(&path, &self.world().entropy(), |file| {
            let mut out = BufWriter::new(file);
            let count = self.read(caller, |view, cx| match format.as_str() {
                "json" => export_json(view, cx, project.as_deref(), &mut out),
                "beads" => export_beads(view, cx, project.as_deref(), &mut out),
                "automerge" => export_automerge(view, cx, project.as_deref(), &mut out),
                other => {
                    Err(
                        Refusal::argument("format", "format is not known.", "Use one of accepted.")
                            .with("given", other)
                            .with("accepted", json!(["json", "beads", "automerge"])),
                    )
                }
            })?;
            out.flush().map_err(StoreError::Io)?;
            Ok(count)
        })?;
        Ok(json!({ "path": path.display().to_string(), "format": format, "objects": count }))
    }
}

/// Checks a store against its own log and against Automerge.
///
/// # Errors
///
/// Where the store cannot be read at all.
pub fn doctor_store(store: &Store, schema: &Schema) -> Result<Json, StoreError> {
    let mut documents = 0u64;
    let mut objects = 0u64;
    let problems = store.compare_with_log(schema, &mut |name, chunks, rows| {
        documents += 1;
        objects += rows.len() as u64;
        compare_with_automerge(name, chunks, rows)
    })?;
    let shown: Vec<Json> = problems
        .iter()
        .take(100)
        .map(
            |problem| json!({ "what": problem.what, "where": problem.place, "hint": problem.hint }),
        )
        .collect();
    Ok(json!({
        "ok": problems.is_empty(),
        "problems": shown,
        "counts": { "problems": problems.len(), "documents": documents, "objects": objects, "changes": store.arrivals() },
    }))
}

/// What Automerge itself makes of a document's changes, against the rows.
fn compare_with_automerge(
    name: &str,
    chunks: &[Vec<u8>],
    rows: &BTreeMap<ObjectId, Row>,
) -> Vec<Problem> {
    const HINT: &str = "This is a fault of Stead: keep a backup and report it.";
    let problem = |what: String| Problem {
        what,
        place: format!("document {name}"),
        hint: HINT,
    };
    let mut document = Automerge::new();
    for chunk in chunks {
        // Each was admitted by the strict verdict, so nothing hostile reaches Automerge here.
        let loaded =
            automerge::Change::from_bytes(chunk.clone()).map_err(|error| error.to_string());
        if let Err(error) = loaded.and_then(|change| {
            document
                .apply_changes([change])
                .map_err(|error| error.to_string())
        }) {
            return vec![problem(format!("Automerge refuses a change: {error}"))];
        }
    }
    let mut problems = Vec::new();
    for (object, row) in rows {
        let bucket = format!("{:03x}", stead_doc::document::bucket(*object));
        let Ok(Some((_, container))) = document.get(automerge::ROOT, bucket) else {
            problems.push(problem("a bucket is missing".to_owned()));
            continue;
        };
        for (field, cell) in &row.cells {
            let found = document
                .get_all(&container, format!("{object}/{field}"))
                .unwrap_or_default();
            let theirs: Vec<_> = found
                .iter()
                .filter_map(|(value, _)| {
                    let scalar = value.as_scalar()?;
                    stead_doc::scalar::Scalar::from_automerge(scalar)
                })
                .collect();
            let same = theirs.len() == cell.0.len()
                && theirs.iter().zip(&cell.0).all(
                    |(theirs, (_, ours))| matches!(ours, Value::Inline(ours) if ours == theirs),
                );
            if !same {
                problems.push(problem(format!(
                    "object {object}, field {field}: Automerge has other values"
                )));
            }
        }
    }
    problems
}

/// Makes a home of a backup.
///
/// # Errors
///
/// Where the home holds a workspace already, or the file is no whole backup.
pub fn restore(home: &Home, file: &Path, world: &dyn World) -> Result<Json, Refusal> {
    if home.is_made() {
        return Err(HomeError::Exists(home.path().to_owned()).into());
    }
    let unreadable = |error| HomeError::File {
        path: file.to_owned(),
        error,
    };
    let input = std::fs::File::open(file).map_err(unreadable)?;
    let [generation, _] = crate::home::halves(world.entropy());
    let workspaces = home.path().join("workspaces");
    let beside = workspaces.join(format!(".new-{}", hex(&generation)));
    let alone = home.alone()?;
    let disk = Directory::new(&beside).map_err(|error| HomeError::File {
        path: beside.clone(),
        error,
    })?;
    let restored = Store::restore(Box::new(disk), input, generation, Cache::default());
    let (store, head) = match restored {
        Ok(restored) => restored,
        Err(error) => {
            // Only what this call made itself, and nothing of it opens.
            if let Err(error) = std::fs::remove_dir_all(&beside) {
                tracing::warn!(%error, path = %beside.display(), "half a restore is left");
            }
            return Err(HomeError::Store(error).into());
        }
    };
    let workspace = crate::core::workspace_of(&store)
        .ok_or(StoreError::Broken("the backup names no workspace"))?;
    drop(store);
    home.adopt_key(&head.device_key)?;
    home.make_token(world)?;
    let place = workspaces.join(workspace.to_string());
    let moved = std::fs::rename(&beside, &place).and_then(|()| crate::store::sync_dir(&workspaces));
    moved.map_err(|error| HomeError::File {
        path: place.clone(),
        error,
    })?;
    drop(alone);
    Ok(
        json!({ "workspaceId": workspace.to_string(), "changes": head.changes, "madeAt": present::time(head.made_at) }),
    )
}

fn target(args: &Arguments) -> Result<PathBuf, Refusal> {
    let path = args
        .line("path", 4_096)?
        .ok_or_else(|| arguments::missing("path"))?;
    let path = PathBuf::from(path);
    if !path.is_absolute() {
        return Err(Refusal::argument(
            "path",
            "path is not absolute.",
            "Send the whole path: the node runs in another directory.",
        ));
    }
    Ok(path)
}

/// Writes a file that is there whole or not at all, beside its place under a name that nobody
/// else can have put there.
fn write_beside<R>(
    path: &Path,
    entropy: &[u8; 32],
    write: impl FnOnce(std::fs::File) -> Result<R, Refusal>,
) -> Result<R, Refusal> {
    let failed = |error| HomeError::File {
        path: path.to_owned(),
        error,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}.part",
        hex(entropy.first_chunk::<8>().unwrap_or(&[0; 8]))
    ));
    let beside = path.with_file_name(name);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&beside).map_err(failed)?;
    let keep = file.try_clone().map_err(failed)?;
    let written = write(file).and_then(|written| {
        keep.sync_all()
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(failed)?;
        Ok(written)
    });
    if written.is_err()
        && let Err(error) = std::fs::remove_file(&beside)
    {
        tracing::warn!(%error, "a part of a file is left");
    }
    written
}

fn chosen(
    view: &ReadView<'_>,
    cx: &Context<'_>,
    project: Option<&str>,
) -> Result<Vec<Option<ObjectId>>, Refusal> {
    match project {
        Some(text) => Ok(vec![Some(cx.project(view, text)?.id)]),
        None => {
            let projects = cx
                .reachable(view)?
                .into_iter()
                .map(|project| Some(project.id));
            Ok(projects
                .chain(cx.caller.grants.is_none().then_some(None))
                .collect())
        }
    }
}

fn each_object(
    view: &ReadView<'_>,
    projects: &[Option<ObjectId>],
    each: &mut dyn FnMut(&Located) -> Result<(), Refusal>,
) -> Result<u64, Refusal> {
    let mut ids = Vec::new();
    view.tables.all_rows(&mut |key, _| {
        ids.extend(crate::store::index::read_row_key(key));
        Ok(())
    })?;
    let mut count = 0;
    for (id, document) in ids {
        let Some(stored) = view.stored_in(document, id)? else {
            continue;
        };
        let at = view.located(id, document, stored)?;
        if projects.contains(&at.project) {
            each(&at)?;
            count += 1;
        }
    }
    Ok(count)
}

fn put_line(out: &mut dyn Write, value: &Json) -> Result<(), Refusal> {
    let mut line = value.to_string();
    line.push('\n');
    out.write_all(line.as_bytes())
        .map_err(|error| StoreError::Io(error).into())
}

/// One canonical object a line, in id order: byte-identical on nodes that hold the same changes.
fn export_json(
    view: &ReadView<'_>,
    cx: &Context<'_>,
    project: Option<&str>,
    out: &mut dyn Write,
) -> Result<u64, Refusal> {
    let projects = chosen(view, cx, project)?;
    each_object(view, &projects, &mut |at| {
        put_line(out, &export::object(view, at)?)
    })
}

/// The issue lines of the Beads project.
fn export_beads(
    view: &ReadView<'_>,
    cx: &Context<'_>,
    project: Option<&str>,
    out: &mut dyn Write,
) -> Result<u64, Refusal> {
    let projects = chosen(view, cx, project)?;
    let mut count = 0;
    each_object(view, &projects, &mut |at| {
        if at.row.kind() == Some("task") {
            count += 1;
            put_line(out, &beads_issue(view, cx, at)?)?;
        }
        Ok(())
    })?;
    Ok(count)
}

fn beads_issue(view: &ReadView<'_>, cx: &Context<'_>, at: &Located) -> Result<Json, Refusal> {
    let task = present::task(view, cx, at)?;
    let source = conflict::load_winner(view, at, board::IMPORT_MARK)?;
    let source = source
        .and_then(|mark| mark.as_str().map(present::parsed))
        .and_then(|mark| mark.get("source").cloned());
    let known = |id: ObjectId| -> Result<String, Refusal> {
        let Some(other) = view.object(id)? else {
            return Ok(id.to_string());
        };
        let mark = conflict::load_winner(view, &other, board::IMPORT_MARK)?;
        let name = mark
            .and_then(|mark| mark.as_str().map(present::parsed))
            .and_then(|mark| mark.pointer("/source/id")?.as_str().map(str::to_owned));
        Ok(name.unwrap_or_else(|| id.to_string()))
    };
    let status = match present::status_of(&at.row).as_str() {
        "done" | "abandoned" => "closed",
        "in_progress" | "review" => "in_progress",
        "blocked" => "blocked",
        "backlog" => "deferred",
        _ => "open",
    };
    let own = known(at.id)?;
    let mut dependencies = Vec::new();
    let mut edge = |target: ObjectId, kind: &str| -> Result<(), Refusal> {
        dependencies
            .push(json!({ "issue_id": own, "depends_on_id": known(target)?, "type": kind }));
        Ok(())
    };
    for (target, _) in present::edges(&at.row, "depends_on") {
        edge(target, "blocks")?;
    }
    if let Some((parent, _)) = board::parent_edge(&at.row) {
        edge(parent, "parent-child")?;
    }
    for relation in [
        "relates_to",
        "duplicates",
        "discovered_from",
        "supersedes",
        "tracks",
    ] {
        for (target, _) in present::edges(&at.row, relation) {
            edge(target, &relation.replace('_', "-"))?;
        }
    }
    let at_of = |name: &str, field: &str| {
        source
            .as_ref()
            .and_then(|source| source.get(name))
            .filter(|value| !value.is_null())
            .or_else(|| task.get(field))
            .cloned()
    };
    let mut issue = Map::new();
    issue.insert("id".into(), own.as_str().into());
    issue.insert(
        "title".into(),
        task.get("title").cloned().unwrap_or_default(),
    );
    issue.insert(
        "description".into(),
        task.get("body").cloned().unwrap_or_default(),
    );
    issue.insert(
        "notes".into(),
        task.get("notes").cloned().unwrap_or_default(),
    );
    issue.insert("status".into(), status.into());
    issue.insert(
        "priority".into(),
        cx.schema
            .priority_rank(present::priority_of(&at.row))
            .into(),
    );
    issue.insert(
        "issue_type".into(),
        at.row.text("type").unwrap_or("task").into(),
    );
    issue.insert(
        "assignee".into(),
        task.pointer("/assignee/name").cloned().unwrap_or_default(),
    );
    issue.insert(
        "labels".into(),
        task.get("tags").cloned().unwrap_or_default(),
    );
    issue.insert(
        "created_at".into(),
        at_of("createdAt", "createdAt").unwrap_or_default(),
    );
    issue.insert(
        "updated_at".into(),
        task.get("updatedAt").cloned().unwrap_or_default(),
    );
    if status == "closed" {
        let reason = task
            .get("result")
            .filter(|result| !result.is_null())
            .or_else(|| task.get("abandonReason"));
        issue.insert("close_reason".into(), reason.cloned().unwrap_or_default());
        issue.insert(
            "closed_at".into(),
            at_of("closedAt", "updatedAt").unwrap_or_default(),
        );
    }
    if !dependencies.is_empty() {
        issue.insert("dependencies".into(), dependencies.into());
    }
    issue.retain(|_, value| !value.is_null());
    Ok(Json::Object(issue))
}

/// A document of one project as stock Automerge saves it.
fn export_automerge(
    view: &ReadView<'_>,
    cx: &Context<'_>,
    project: Option<&str>,
    out: &mut dyn Write,
) -> Result<u64, Refusal> {
    let Some(project) = project else {
        let known = cx.reachable(view)?;
        return Err(Refusal::argument(
            "projectId",
            "an Automerge file is one document.",
            "Name the project.",
        )
        .with("knownProjects", stead_doc::context::known_projects(&known)));
    };
    let project = cx.project(view, project)?.id;
    let id = cx.document(&stead_doc::document::DocumentName::project(project));
    let mut chunks = vec![stead_doc::document::Genesis::of(id).bytes];
    if let Some(number) = view.document_number(id) {
        view.store.walk_log(&mut |logged| {
            if logged.document == number {
                chunks.push(logged.change.bytes);
            }
            Ok(())
        })?;
    }
    let mut document = Automerge::new();
    let broken = |error: String| {
        Refusal::new(
            Code::Unavailable,
            format!("Automerge refuses the log: {error}."),
            "Run `stead doctor`.",
        )
    };
    let changes = chunks
        .into_iter()
        .map(|chunk| {
            automerge::Change::from_bytes(chunk).map_err(|error| broken(error.to_string()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let count = changes.len() as u64;
    document
        .apply_changes(changes)
        .map_err(|error| broken(error.to_string()))?;
    out.write_all(&document.save()).map_err(StoreError::Io)?;
    Ok(count)
}
