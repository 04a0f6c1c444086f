//! The agents' face side by side with the handle beneath it: what a call costs over the stdio
//! bridge and over HTTP, how many of them 32 clients get through, and what a bridge weighs.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::{Value as Json, json};
use stead_doc::context::Caller;
use stead_node::{handle::Node, home::Home, http};

use crate::{
    board::{self, Board, PROJECT},
    generate::{ASSIGNEES, Generator},
    measure::{Samples, memory_of, rounded},
    store::{SEED, print, say},
};

/// Clients at once in the measurement of throughput.
const CLIENTS: usize = 32;

/// How long it takes.
const THROUGHPUT: Duration = Duration::from_secs(4);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Tasks on the board
    #[arg(long, default_value_t = 10_000)]
    tasks: u32,
    /// Changes on the board, creates included
    #[arg(long, default_value_t = 40_000)]
    changes: u32,
    /// Rounds of the interleaved measurement
    #[arg(long, default_value_t = 2_000)]
    rounds: u32,
    /// Print one JSON object and nothing else on standard output
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let home = dir.path().join("home");
    say("making the board");
    let board = Board::make(&home, &Generator::new(SEED), options.tasks, options.changes)?;
    let ids = board.ids.clone();
    board.node.stop();
    drop(board);
    let served = Served::start(&home)?;
    let caller = served.node.local_caller(Some(ASSIGNEES[0]))?;

    say("calls, interleaved");
    let calls = calls(&served, &home, &caller, &ids, options.rounds)?;
    say("32 clients over HTTP");
    let reads = throughput(&served, &ids, |client, id, _| {
        client.tool("task_get", json!({ "id": id })).map(drop)
    })?;
    let writes = throughput(&served, &ids, |client, id, _| {
        let arguments = json!({ "action": "comment", "id": id, "body": "A word on how it goes" });
        client.tool("task_mutate", arguments).map(drop)
    })?;
    served.stop()?;

    let report = json!({
        "tasks": options.tasks,
        "changes": options.changes,
        "call_us": rounded(calls.handle.median()),
        "stdio_us": rounded(calls.stdio.median()),
        "http_us": rounded(calls.http.median()),
        "call_ratio": rounded(calls.stdio.median() / calls.handle.median()),
        "http_ratio": rounded(calls.http.median() / calls.handle.median()),
        "stdio_p99_us": rounded(calls.stdio.quantile(0.99)),
        "http_p99_us": rounded(calls.http.quantile(0.99)),
        "throughput": rounded(reads),
        "throughput_writes": rounded(writes),
        "bridge_rss_mb": rounded(calls.bridge_mb),
        "tools_list_bytes": calls.tools_bytes,
        "task_search_bytes": calls.search_bytes,
    });
    if options.json {
        print(&report.to_string());
    } else {
        print(&serde_json::to_string_pretty(&report)?);
    }
    Ok(())
}

/// A node that serves from a thread of this process, so that the handle and its faces answer from
/// the same store in the same run.
struct Served {
    node: Node,
    address: SocketAddr,
    token: String,
    stop: tokio::sync::watch::Sender<bool>,
    thread: std::thread::JoinHandle<std::io::Result<()>>,
}

impl Served {
    fn start(path: &Path) -> Result<Self> {
        let home = Home::at(path);
        let (node, _) = board::open(&home)?;
        let token = home.token()?;
        let settings = http::Settings::default();
        let stop = settings.stop.clone();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let listening = {
            let entered = runtime.enter();
            let faces = stead_mcp::router(node.clone(), stop.subscribe());
            drop(entered);
            let settings = http::Settings { faces, ..settings };
            runtime
                .block_on(http::listen(node.clone(), home, settings))
                .map_err(|refusal| anyhow::anyhow!("{refusal}"))?
        };
        let address = listening.address();
        let thread = std::thread::spawn(move || runtime.block_on(listening.serve()));
        Ok(Self {
            node,
            address,
            token,
            stop,
            thread,
        })
    }

    fn client(&self, agent: &str) -> Result<HttpClient> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(HttpClient {
            reader: BufReader::new(stream.try_clone()?),
            stream,
            head: format!(
                "Host: {}\r\nAuthorization: Bearer {}\r\nStead-Agent: {agent}\r\n\
                 Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
                 MCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\n",
                self.address, self.token
            ),
        })
    }

    fn stop(self) -> Result<()> {
        self.stop.send_replace(true);
        let served = self.thread.join();
        served
            .map_err(|_| anyhow::anyhow!("the node ended in a panic"))?
            .context("the node ended")
    }
}

const VERSION: &str = "2026-07-28";

fn request(id: u64, name: &str, arguments: Json) -> String {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": name, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        } },
    })
    .to_string()
}

fn checked(answer: Json) -> Result<Json> {
    let refused = answer.pointer("/result/isError").and_then(Json::as_bool) != Some(false);
    ensure!(!refused, "a call was refused: {answer}");
    Ok(answer)
}

/// One connection that is kept, a request at a time.
struct HttpClient {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    head: String,
}

impl HttpClient {
    fn tool(&mut self, name: &str, arguments: Json) -> Result<Json> {
        let body = request(1, name, arguments);
        let request = format!(
            "POST /mcp HTTP/1.1\r\n{}Mcp-Name: {name}\r\nContent-Length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        self.stream.write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            ensure!(self.reader.read_line(&mut line)? > 0, "the node hung up");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        checked(serde_json::from_slice(&body)?)
    }
}

/// A bridge, spoken to as a client does.
struct Bridge {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Bridge {
    fn start(home: &Path) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name(if cfg!(windows) {
            "stead.exe"
        } else {
            "stead"
        });
        ensure!(
            program.exists(),
            "the bridge is the stead program beside this one: cargo build --release"
        );
        let mut child = Command::new(program)
            .arg("--home")
            .arg(home)
            .args(["mcp", "--agent", ASSIGNEES[0]])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the bridge has no pipes");
        };
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    fn ask(&mut self, line: &str) -> Result<Json> {
        writeln!(self.stdin, "{line}")?;
        let mut answer = String::new();
        ensure!(
            self.stdout.read_line(&mut answer)? > 0,
            "the bridge hung up"
        );
        Ok(serde_json::from_str(&answer)?)
    }

    fn end(self) -> Result<()> {
        let Self {
            mut child,
            stdin,
            stdout,
        } = self;
        drop((stdin, stdout));
        child.wait()?;
        Ok(())
    }
}

struct Calls {
    handle: Samples,
    stdio: Samples,
    http: Samples,
    bridge_mb: f64,
    tools_bytes: usize,
    search_bytes: usize,
}

fn calls(
    served: &Served,
    home: &Path,
    caller: &Caller,
    ids: &[String],
    rounds: u32,
) -> Result<Calls> {
    let mut bridge = Bridge::start(home)?;
    let mut client = served.client(ASSIGNEES[0])?;
    let (mut handle, mut stdio, mut http) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut rng = crate::words::Rng::new(SEED, 17, 1);
    for round in 0..rounds {
        let id = &ids[rng.below(ids.len() as u32) as usize];
        let arguments = json!({ "id": id });
        handle.time(|| served.node.call(caller, "task_get", arguments.clone()))?;
        let line = request(u64::from(round), "task_get", arguments.clone());
        checked(stdio.time(|| bridge.ask(&line))?)?;
        http.time(|| client.tool("task_get", arguments))?;
    }
    let listed = json!({
        "jsonrpc": "2.0", "id": 0, "method": "tools/list",
        "params": { "_meta": {
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientCapabilities": {},
        } },
    });
    let tools = bridge.ask(&listed.to_string())?;
    let found =
        checked(bridge.ask(&request(1, "task_search", json!({ "projectId": PROJECT })))?)?;
    let bytes = |answer: &Json, place: &str| {
        answer
            .pointer(place)
            .map_or(0, |part| part.to_string().len())
    };
    let calls = Calls {
        handle,
        stdio,
        http,
        bridge_mb: memory_of(bridge.child.id(), "VmRSS"),
        tools_bytes: bytes(&tools, "/result/tools"),
        search_bytes: bytes(&found, "/result/structuredContent"),
    };
    bridge.end()?;
    Ok(calls)
}

/// Calls a second that [`CLIENTS`] get through, each on a connection and tasks of its own.
fn throughput(
    served: &Served,
    ids: &[String],
    call: impl Fn(&mut HttpClient, &str, u64) -> Result<()> + Send + Sync + Copy + 'static,
) -> Result<f64> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let clients = (0..CLIENTS)
        .map(|n| {
            let mut client = served.client(ASSIGNEES[n % ASSIGNEES.len()])?;
            let ids: Vec<String> = ids
                .iter()
                .skip(n)
                .step_by(CLIENTS)
                .take(200)
                .cloned()
                .collect();
            let (stop, done) = (stop.clone(), done.clone());
            Ok(std::thread::spawn(move || -> Result<()> {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    call(&mut client, &ids[round as usize % ids.len()], round)?;
                    done.fetch_add(1, Ordering::Relaxed);
                    round += 1;
                }
                Ok(())
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    while begun.elapsed() < THROUGHPUT {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let (calls, elapsed) = (done.load(Ordering::Relaxed) as f64, begun.elapsed());
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client
            .join()
            .map_err(|_| anyhow::anyhow!("a client ended in a panic"))??;
    }
    Ok(calls / elapsed.as_secs_f64())
}
