//! `stead-bench store`: start, write, read, size and memory at the size of a large team's board.

use std::{
    path::{Path, PathBuf},
    process::{Command as Process, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use automerge::Automerge;
use clap::Args;
use redb::{Database, Durability, TableDefinition};
use serde_json::{Value as Json, json};
use stead_doc::context::Caller;
use stead_node::{handle::Node, home::Home};

use crate::{
    board::{self, Board, PROJECT, part},
    generate::Generator,
    measure::{Samples, cpu_seconds, memory_mb, rounded},
    words::Words,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tasks on the large board
    #[arg(long, default_value_t = 100_000)]
    tasks: u32,
    /// Changes on the large board, creates included
    #[arg(long, default_value_t = 600_000)]
    changes: u32,
    /// Rounds of each interleaved measurement
    #[arg(long, default_value_t = 1_000)]
    rounds: u32,
    /// Print one JSON object and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Where to put the boards; a temporary directory that is removed where nothing is said
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A board file whose words the generated text takes
    #[arg(long)]
    words: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct OpenOptions {
    #[arg(long)]
    home: PathBuf,
    /// Say how much memory the node takes at rest and under writes
    #[arg(long)]
    memory: bool,
    /// After the first write go on writing until killed
    #[arg(long)]
    write_on: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let dir = options
        .dir
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&dir)?;
    let generator = match &options.words {
        Some(path) => Generator::with_words(SEED, Words::from_board(path)?),
        None => Generator::new(SEED),
    };
    let small_tasks = options.tasks / 10;
    say(&format!("writing a board of {} tasks", small_tasks));
    let small = make(
        &dir.join("small"),
        &generator,
        small_tasks,
        options.changes / 10,
    )?;
    say(&format!(
        "writing a board of {} tasks and {} changes",
        options.tasks, options.changes
    ));
    let start = Instant::now();
    let large = make(
        &dir.join("large"),
        &generator,
        options.tasks,
        options.changes,
    )?;
    let populated = start.elapsed();
    let mut report = serde_json::Map::new();
    let mut put = |name: &str, value: f64| {
        say(&format!("{name} {}", rounded(value)));
        report.insert(name.to_owned(), json!(rounded(value)));
    };
    put(
        "populate_changes_per_second",
        f64::from(options.changes) / populated.as_secs_f64(),
    );

    let automerge = automerge_of(&large, &dir)?;
    put("automerge_load_ms", automerge.load_ms);
    put("automerge_save_mb", automerge.bytes as f64 / 1e6);
    put("disk_mb", large.bytes as f64 / 1e6);
    put("disk_ratio", large.bytes as f64 / automerge.bytes as f64);

    let opened = opened(&large.home)?;
    put("open_ms", opened);
    put("open_ratio", opened / automerge.load_ms);
    let killed = killed(&large.home)?;
    put("open_killed_ms", killed);
    put("open_killed_ratio", killed / automerge.load_ms);

    let fsync = fsync_us(&dir)?;
    put("fsync_us", fsync);
    let (at_large, at_small) = (
        writes(&large, &dir, options.rounds)?,
        writes(&small, &dir, options.rounds)?,
    );
    put("write_us", at_large.write_us);
    put("empty_commit_us", at_large.empty_us);
    put("write_ratio", at_large.ratio());
    put("write_growth", at_large.ratio() / at_small.ratio());
    put("write_cpu_us", at_large.cpu_us);
    put("write_cpu_growth", at_large.cpu_us / at_small.cpu_us);
    for writers in [1, 32] {
        let shared = shared_writes(&large, writers)?;
        put(&format!("writes_per_second_{writers}"), shared.per_second);
        if writers == 32 {
            put("fsyncs_per_write", shared.syncs);
        }
    }
    put("cli_write_ms", cli_write_ms(&large)?);

    let reads = reads(&large, options.rounds)?;
    put("read_us", reads.get);
    put("list_us", reads.list);
    put("ready_us", reads.ready);
    put("search_us", reads.search);

    let memory = Process::new(std::env::current_exe()?)
        .args(["open", "--memory", "--home"])
        .arg(&large.home)
        .output()
        .context("running this program again")?;
    let memory: Json =
        serde_json::from_slice(&memory.stdout).context("reading what it says of memory")?;
    put("rss_mb", memory["rest"].as_f64().unwrap_or(f64::NAN));
    put("rss_peak_mb", memory["peak"].as_f64().unwrap_or(f64::NAN));

    let report = Json::Object(report);
    let text = if options.json {
        report.to_string()
    } else {
        serde_json::to_string_pretty(&report)?
    };
    print(&text);
    Ok(())
}

pub(crate) const SEED: u64 = 20_261_130;

/// A finished board, packed and closed.
struct Made {
    home: PathBuf,
    ids: Vec<String>,
    bytes: u64,
}

fn make(path: &Path, generator: &Generator, tasks: u32, changes: u32) -> Result<Made> {
    let board = Board::make(path, generator, tasks, changes)?;
    let owner = board.node.local_caller(None)?;
    board.node.call(&owner, "compact", json!({}))?;
    let ids = board.ids.clone();
    board.node.stop();
    drop(board);
    let bytes = bytes_below(path)?;
    Ok(Made {
        home: path.to_owned(),
        ids,
        bytes,
    })
}

fn bytes_below(path: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        total += if metadata.is_dir() {
            bytes_below(&entry.path())?
        } else {
            metadata.len()
        };
    }
    Ok(total)
}

struct Saved {
    bytes: usize,
    load_ms: f64,
}

/// The same data as stock Automerge saves and loads it.
fn automerge_of(made: &Made, dir: &Path) -> Result<Saved> {
    let (node, _) = board::open(&Home::at(&made.home))?;
    let owner = node.local_caller(None)?;
    let path = dir.join("board.automerge");
    node.call(
        &owner,
        "export",
        json!({ "path": path, "format": "automerge", "projectId": PROJECT }),
    )?;
    node.stop();
    let saved = std::fs::read(&path)?;
    let mut samples = Samples::default();
    for _ in 0..3 {
        let loaded = samples.time(|| Automerge::load(&saved))?;
        ensure!(!loaded.get_heads().is_empty(), "Automerge loaded nothing");
    }
    Ok(Saved {
        bytes: saved.len(),
        load_ms: samples.median() / 1e3,
    })
}

/// Milliseconds until a process of its own has listed and written once: the median of five.
fn opened(home: &Path) -> Result<f64> {
    median_ms((0..5).map(|_| opened_once(home)))
}

/// The same after a kill in the middle of writes, with nothing in the page cache.
fn killed(home: &Path) -> Result<f64> {
    median_ms((0..3).map(|_| {
        let mut child = Process::new(std::env::current_exe()?)
            .args(["open", "--write-on", "--home"])
            .arg(home)
            .stdout(Stdio::piped())
            .spawn()?;
        // Two lines: the second comes once writes are under way. Killed before them, redb has nothing
        // to repair and the figure says nothing.
        let stdout = child.stdout.take().context("its output")?;
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
        for _ in 0..2 {
            lines.next().context("it ended before it was killed")??;
        }
        child.kill()?;
        child.wait()?;
        // What is still dirty would stay in the cache.
        Process::new("sync").status()?;
        if let Err(error) = std::fs::write("/proc/sys/vm/drop_caches", "3") {
            say(&format!("the page cache stays: {error}"));
        }
        opened_once(home)
    }))
}

fn opened_once(home: &Path) -> Result<f64> {
    let output = Process::new(std::env::current_exe()?)
        .args(["open", "--home"])
        .arg(home)
        .output()?;
    let said: Json =
        serde_json::from_slice(&output.stdout).context("reading how long it took to open")?;
    said["ms"].as_f64().context("it says no time")
}

fn median_ms(times: impl Iterator<Item = Result<f64>>) -> Result<f64> {
    let mut all = times.collect::<Result<Vec<_>>>()?;
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// Opens a home, answers a list and acknowledges a write, and says how long that took.
pub(crate) fn open(options: &OpenOptions) -> Result<()> {
    let start = Instant::now();
    let (node, _) = board::open(&Home::at(&options.home))?;
    let owner = node.local_caller(None)?;
    let list = node.call(&owner, "task_search", json!({ "projectId": PROJECT }))?;
    let id = list
        .pointer("/tasks/0/id")
        .and_then(Json::as_str)
        .context("a task")?
        .to_owned();
    let mut revision = list
        .pointer("/tasks/0/revision")
        .and_then(Json::as_str)
        .context("a revision")?
        .to_owned();
    revision = touch(&node, &owner, &id, &revision, 0)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    if options.memory {
        let rest = memory_mb("VmRSS");
        let mut rng = crate::words::Rng::new(SEED, 7, 7);
        let page = node.call(
            &owner,
            "task_search",
            json!({ "projectId": PROJECT, "limit": 200, "fields": ["id"] }),
        )?;
        let ids: Vec<String> = page["tasks"]
            .as_array()
            .context("tasks")?
            .iter()
            .filter_map(|task| Some(task["id"].as_str()?.to_owned()))
            .collect();
        for round in 0..2_000 {
            let id = &ids[rng.below(ids.len() as u32) as usize];
            let task = node.call(&owner, "task_get", json!({ "id": id }))?;
            touch(&node, &owner, id, &part(&task, "revision")?, round)?;
        }
        print(&json!({ "ms": ms, "rest": rest, "peak": memory_mb("VmHWM") }).to_string());
    } else {
        print(&json!({ "ms": ms }).to_string());
    }
    if options.write_on {
        // Until killed.
        for round in 1.. {
            revision = touch(&node, &owner, &id, &revision, round)?;
            if round == WRITES_BEFORE_A_KILL {
                print("writing");
            }
        }
    }
    node.stop();
    Ok(())
}

/// Writes after which a process that is to be killed says that it is writing.
const WRITES_BEFORE_A_KILL: u32 = 200;

/// One durable update of a single field; returns the new revision.
fn touch(node: &Node, caller: &Caller, id: &str, revision: &str, round: u32) -> Result<String> {
    let branch = format!("work/{round}");
    let call = json!({ "action": "update", "id": id, "revision": revision, "branch": branch });
    part(&node.call(caller, "task_mutate", call)?, "revision")
}

struct Writes {
    write_us: f64,
    empty_us: f64,
    cpu_us: f64,
}

impl Writes {
    fn ratio(&self) -> f64 {
        self.write_us / self.empty_us
    }
}

const EMPTY: TableDefinition<'static, u64, &[u8]> = TableDefinition::new("empty");

/// Single-field updates of random tasks and 200-byte commits to an empty redb, in turns.
fn writes(made: &Made, dir: &Path, rounds: u32) -> Result<Writes> {
    let (node, _) = board::open(&Home::at(&made.home))?;
    let owner = node.local_caller(None)?;
    let empty = dir.join("empty.redb");
    let database = Database::create(&empty)?;
    let mut rng = crate::words::Rng::new(SEED, 11, u64::from(rounds));
    let (mut write, mut commit) = (Samples::default(), Samples::default());
    let mut cpu = 0.0;
    for round in 0..rounds {
        commit.time(|| -> Result<()> {
            let mut txn = database.begin_write()?;
            txn.set_durability(Durability::Immediate)?;
            txn.open_table(EMPTY)?
                .insert(u64::from(round), [7u8; 200].as_slice())?;
            txn.commit()?;
            Ok(())
        })?;
        let id = &made.ids[rng.below(made.ids.len() as u32) as usize];
        let revision = part(
            &node.call(&owner, "task_get", json!({ "id": id, "view": "summary" }))?,
            "revision",
        )?;
        let before = cpu_seconds();
        write.time(|| touch(&node, &owner, id, &revision, round))?;
        cpu += cpu_seconds() - before;
    }
    node.stop();
    drop(database);
    std::fs::remove_file(&empty)?;
    Ok(Writes {
        write_us: write.median(),
        empty_us: commit.median(),
        cpu_us: cpu * 1e6 / f64::from(rounds),
    })
}

/// The median of syncing a file after one page was written to it.
fn fsync_us(dir: &Path) -> Result<f64> {
    use std::io::Write;
    let path = dir.join("fsync");
    let mut file = std::fs::File::create(&path)?;
    let mut samples = Samples::default();
    for _ in 0..200 {
        file.write_all(&[1; 4096])?;
        samples.time(|| file.sync_data())?;
    }
    std::fs::remove_file(path)?;
    Ok(samples.median())
}

struct SharedWrites {
    per_second: f64,
    syncs: f64,
}

fn shared_writes(made: &Made, writers: usize) -> Result<SharedWrites> {
    let (node, syncs) = board::open(&Home::at(&made.home))?;
    let owner = node.local_caller(None)?;
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let (node, owner, stop, done) =
                (node.clone(), owner.clone(), stop.clone(), done.clone());
            // Each writer has tasks of its own: what is measured is sharing commits, not conflicts.
            let ids: Vec<String> = made
                .ids
                .iter()
                .skip(writer)
                .step_by(writers)
                .take(500)
                .cloned()
                .collect();
            std::thread::spawn(move || -> Result<()> {
                let mut revisions = Vec::new();
                for id in &ids {
                    let task =
                        node.call(&owner, "task_get", json!({ "id": id, "view": "summary" }))?;
                    revisions.push(part(&task, "revision")?);
                }
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    let at = round as usize % ids.len();
                    revisions[at] = touch(&node, &owner, &ids[at], &revisions[at], round)?;
                    done.fetch_add(1, Ordering::Relaxed);
                    round += 1;
                }
                Ok(())
            })
        })
        .collect();
    while done.load(Ordering::Relaxed) < writers as u64 * 10 {
        std::thread::yield_now();
    }
    let (before, synced, start) = (done.load(Ordering::Relaxed), syncs.count(), Instant::now());
    while start.elapsed() < Duration::from_secs(4) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let written = (done.load(Ordering::Relaxed) - before) as f64;
    let (synced, elapsed) = ((syncs.count() - synced) as f64, start.elapsed());
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread
            .join()
            .map_err(|_| anyhow::anyhow!("a writer ended in a panic"))??;
    }
    node.stop();
    Ok(SharedWrites {
        per_second: written / elapsed.as_secs_f64(),
        syncs: synced / written,
    })
}

/// The whole of `stead update` as a process, no node running.
fn cli_write_ms(made: &Made) -> Result<f64> {
    let program =
        std::env::current_exe()?.with_file_name(if cfg!(windows) { "stead.exe" } else { "stead" });
    if !program.exists() {
        say("cli_write_ms needs the stead program beside this one: cargo build --release");
        return Ok(f64::NAN);
    }
    let mut samples = Samples::default();
    for round in 0..20 {
        let id = &made.ids[round * 37 % made.ids.len()];
        let output = samples.time(|| {
            Process::new(&program)
                .args([
                    "--json",
                    "update",
                    id,
                    "--branch",
                    &format!("cli/{round}"),
                    "--home",
                ])
                .arg(&made.home)
                .output()
        })?;
        ensure!(
            output.status.success(),
            "stead update failed: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(samples.median() / 1e3)
}

struct Reads {
    get: f64,
    list: f64,
    ready: f64,
    search: f64,
}

fn reads(made: &Made, rounds: u32) -> Result<Reads> {
    let (node, _) = board::open(&Home::at(&made.home))?;
    let owner = node.local_caller(None)?;
    let mut rng = crate::words::Rng::new(SEED, 13, 1);
    let words: Vec<String> = {
        let generator = Generator::new(SEED);
        let mut words = Vec::new();
        for _ in 0..200 {
            let task = generator.task(rng.below(made.ids.len() as u32));
            let long: Vec<String> = task
                .body
                .split_whitespace()
                .filter(|word| word.len() > 3 && word.chars().all(char::is_alphanumeric))
                .map(str::to_owned)
                .collect();
            if let [first, .., last] = long.as_slice() {
                words.push(format!("{first} {last}"));
            }
        }
        words
    };
    ensure!(!words.is_empty(), "there are words to search for");
    let (mut get, mut list, mut ready, mut search) = (
        Samples::default(),
        Samples::default(),
        Samples::default(),
        Samples::default(),
    );
    // The first search reads what later ones find in memory, as the first of a day does.
    node.call(
        &owner,
        "task_search",
        json!({ "projectId": PROJECT, "q": "warm up" }),
    )?;
    for round in 0..rounds {
        let id = &made.ids[rng.below(made.ids.len() as u32) as usize];
        get.time(|| node.call(&owner, "task_get", json!({ "id": id })))?;
        let status = ["ready", "in_progress", "review", "done"][round as usize % 4];
        list.time(|| {
            node.call(
                &owner,
                "task_search",
                json!({ "projectId": PROJECT, "status": [status], "limit": 10 }),
            )
        })?;
        ready.time(|| {
            node.call(
                &owner,
                "task_search",
                json!({ "projectId": PROJECT, "next": true, "limit": 10 }),
            )
        })?;
        let q = &words[round as usize % words.len()];
        search.time(|| {
            node.call(
                &owner,
                "task_search",
                json!({ "projectId": PROJECT, "q": q, "limit": 10 }),
            )
        })?;
    }
    node.stop();
    Ok(Reads {
        get: get.median(),
        list: list.median(),
        ready: ready.median(),
        search: search.median(),
    })
}

#[expect(clippy::print_stderr, reason = "progress goes beside the report")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

#[expect(
    clippy::print_stdout,
    reason = "the report is what this program is for"
)]
pub(crate) fn print(text: &str) {
    println!("{text}");
}
