//! Runs the binary: homes that are gone afterwards, commands in a clean environment, nodes that end
//! with their test.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// The longest that one command may take; none takes a tenth of it.
const COMMAND: Duration = Duration::from_secs(180);
/// The longest that a node may take to listen: rebuilding what a kill left, on a busy machine.
const START: Duration = Duration::from_secs(60);
/// The longest that a node may take to end.
const STOP: Duration = Duration::from_secs(60);
/// The longest that a node may take to answer.
const ANSWER: Duration = Duration::from_secs(60);

/// A home of its own, with nothing of this machine's user in its environment.
#[derive(Debug)]
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    /// One that holds nothing yet.
    pub(crate) fn fresh() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// One with a workspace of Ada's and this project.
    pub(crate) fn with_project(slug: &str) -> Self {
        let home = Self::fresh();
        home.data(&[
            "init",
            "--name",
            "Acme",
            "--member",
            "Ada",
            "--email",
            "ada@example.com",
            "--project",
            slug,
        ]);
        home
    }

    /// Where the workspace is.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("stead")
    }

    /// A file beside the workspace.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A file beside the workspace with this content, as an argument.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.beside(name);
        std::fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// The directory of the store.
    pub(crate) fn store(&self) -> PathBuf {
        let mut found: Vec<_> = std::fs::read_dir(self.path().join("workspaces"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with('.'))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    /// The token of this machine's own user.
    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.path().join("token")).unwrap()
    }

    /// What its nodes wrote into their log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_dir(self.path().join("log"))
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect()
    }

    /// The binary, in an environment that holds what a command needs and nothing more.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("HOME", self.dir.path())
            .env("STEAD_HOME", self.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Windows opens no socket without it.
        if let Some(root) = std::env::var_os("SystemRoot") {
            command.env("SystemRoot", root);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        finished(self.command(args), b"")
    }

    /// Runs a command that reads stdin.
    pub(crate) fn run_with(&self, args: &[&str], stdin: &[u8]) -> Ran {
        finished(self.command(args), stdin)
    }

    /// Runs a command with `--json`; one JSON object is all that stdout holds.
    pub(crate) fn json(&self, args: &[&str]) -> Answer {
        self.run(&with_json(args)).answer()
    }

    /// The same as an agent with a token.
    pub(crate) fn json_with_token(&self, token: &str, args: &[&str]) -> Answer {
        let mut command = self.command(&with_json(args));
        command.env("STEAD_TOKEN", token);
        finished(command, b"").answer()
    }

    /// What a command that succeeds answers.
    pub(crate) fn data(&self, args: &[&str]) -> Value {
        self.json(args).data(args)
    }

    /// Why a command is refused.
    pub(crate) fn refused(&self, args: &[&str]) -> Value {
        self.json(args).refused(args)
    }

    /// What a human sees of a command that succeeds.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {ran:?}");
        ran.stdout
    }

    /// The canonical export.
    pub(crate) fn export(&self) -> String {
        self.text(&["export", "--format", "json"])
    }

    /// Creates a task; the whole of it.
    pub(crate) fn create(&self, project: &str, title: &str, more: &[&str]) -> Value {
        let args = [&["create", title, "--project", project], more].concat();
        self.data(&args)["task"].take()
    }

    /// A task as it is now.
    pub(crate) fn task(&self, id: &str) -> Value {
        self.data(&["show", id])["task"].take()
    }

    /// All rows of a list, page after page.
    pub(crate) fn all(&self, args: &[&str]) -> Vec<Value> {
        let mut rows = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut page = args.to_vec();
            page.extend(["--limit", "200"]);
            if let Some(cursor) = &cursor {
                page.extend(["--cursor", cursor]);
            }
            let data = self.data(&page);
            let tasks = data["tasks"].as_array().unwrap();
            assert!(tasks.len() <= 200);
            rows.extend(tasks.iter().cloned());
            match data["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return rows,
            }
            assert!(!tasks.is_empty(), "an empty page goes on");
            assert!(rows.len() < 100_000, "pages without end");
        }
    }

    /// Starts its node and waits until it listens.
    pub(crate) fn node(&self) -> RunningNode {
        RunningNode::start(self, &["node", "run", "--json"])
    }
}

fn with_json<'a>(args: &[&'a str]) -> Vec<&'a str> {
    // Before the first word that is no option, so that `--` in the arguments does not hide it.
    std::iter::once("--json")
        .chain(args.iter().copied())
        .collect()
}

/// A text of an answer.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name]
        .as_str()
        .unwrap_or_else(|| panic!("no text {name} in {value}"))
}

/// The ids of rows, sorted.
pub(crate) fn ids(rows: &[Value]) -> Vec<String> {
    let mut ids: Vec<_> = rows.iter().map(|row| text(row, "id").to_owned()).collect();
    ids.sort();
    ids
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its answer, which is all that stdout holds.
    pub(crate) fn answer(self) -> Answer {
        let mut documents = serde_json::Deserializer::from_str(&self.stdout).into_iter::<Value>();
        let first = documents
            .next()
            .unwrap_or_else(|| panic!("stdout is empty: {self:?}"));
        let body = first.unwrap_or_else(|error| panic!("stdout is no JSON ({error}): {self:?}"));
        assert!(
            documents.next().is_none(),
            "stdout holds more than one document: {self:?}"
        );
        assert!(self.stdout.ends_with("}\n"), "{self:?}");
        assert_eq!(body["ok"], self.code == 0 || body["data"].is_object());
        Answer {
            code: self.code,
            body,
            raw: self.stdout,
        }
    }
}

/// A command's answer to a program.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) body: Value,
    /// The bytes of it.
    pub(crate) raw: String,
}

impl Answer {
    pub(crate) fn data(mut self, asked: &[&str]) -> Value {
        assert!(
            self.code == 0 && self.body["ok"] == true,
            "{asked:?} exits with {}: {}",
            self.code,
            self.body
        );
        self.body["data"].take()
    }

    pub(crate) fn refused(self, asked: &[&str]) -> Value {
        self.failed(1, asked)
    }

    /// The error of a command that exits with this code.
    pub(crate) fn failed(mut self, code: i32, asked: &[&str]) -> Value {
        assert!(
            self.code == code && self.body["ok"] == false,
            "{asked:?} exits with {}, not {code}: {}",
            self.code,
            self.body
        );
        let error = self.body["error"].take();
        for name in ["code", "message", "hint"] {
            assert!(error[name].is_string(), "no {name}: {error}");
        }
        error
    }
}

/// Runs a command to its end, within the bound.
pub(crate) fn finished(command: Command, stdin: &[u8]) -> Ran {
    Running::spawn(command, stdin).finish()
}

/// A command under way.
#[derive(Debug)]
pub(crate) struct Running {
    pid: u32,
    ended: Receiver<Output>,
}

impl Running {
    pub(crate) fn spawn(mut command: Command, stdin: &[u8]) -> Self {
        if !stdin.is_empty() {
            command.stdin(Stdio::piped());
        }
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        let (sender, ended) = mpsc::channel();
        let stdin = stdin.to_vec();
        thread::spawn(move || {
            if let Some(mut pipe) = child.stdin.take() {
                // A command that refuses early reads none of it.
                drop(pipe.write_all(&stdin));
            }
            drop(sender.send(child.wait_with_output().unwrap()));
        });
        Self { pid, ended }
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Ran {
        let Ok(output) = self.ended.recv_timeout(COMMAND) else {
            signal(self.pid, Signal::Kill);
            panic!("a command did not end within {COMMAND:?}");
        };
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// How a process is asked, or made, to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Term,
    Kill,
    #[cfg(unix)]
    Stop,
    #[cfg(unix)]
    Continue,
}

/// Signals one process, by its id alone. Only ids of children that were not waited for come here.
fn signal(pid: u32, signal: Signal) {
    #[cfg(unix)]
    {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let signal = match signal {
            Signal::Term => rustix::process::Signal::TERM,
            Signal::Kill => rustix::process::Signal::KILL,
            Signal::Stop => rustix::process::Signal::STOP,
            Signal::Continue => rustix::process::Signal::CONT,
        };
        // One that has ended by itself cannot be signalled, and need not be.
        let _ = rustix::process::kill_process(pid, signal);
    }
    #[cfg(not(unix))]
    {
        let _ = signal;
        let _ = Command::new("taskkill")
            .args(["/F", "/PID", &pid.to_string()])
            .output();
    }
}

/// A node in a process of its own; it ends with this value.
#[derive(Debug)]
pub(crate) struct RunningNode {
    pid: u32,
    address: SocketAddr,
    token: String,
    /// What it said when it began to listen.
    pub(crate) ready: Value,
    /// Until it has ended. Behind a lock only so that threads can share the node.
    ended: Option<Mutex<Receiver<ExitStatus>>>,
    log: Arc<Mutex<String>>,
}

impl RunningNode {
    /// Starts a command that serves, with `--json`.
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let (mut child, log) = Self::spawn(home, args);
        let pid = child.id();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let (line_to, lines) = mpsc::channel();
        let (end_to, ended) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            if stdout.read_line(&mut line).is_ok() {
                drop(line_to.send(line));
            }
            // Read on, or a node that says more would stand still.
            drop(std::io::copy(&mut stdout, &mut std::io::sink()));
            let _ = end_to.send(child.wait().unwrap());
        });
        let line = lines.recv_timeout(START).unwrap_or_default();
        let said = || log.lock().unwrap().clone();
        let mut ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            signal(pid, Signal::Kill);
            panic!("the node said {line:?} and logged:\n{}", said())
        });
        assert_eq!(ready["ok"], true, "{ready}\n{}", said());
        let ready = ready["data"].take();
        let address = text(&ready, "url")
            .strip_prefix("http://")
            .unwrap()
            .parse()
            .unwrap();
        Self {
            pid,
            address,
            token: home.token(),
            ready,
            ended: Some(Mutex::new(ended)),
            log,
        }
    }

    fn spawn(home: &Home, args: &[&str]) -> (Child, Arc<Mutex<String>>) {
        let mut child = home.command(args).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (kept, stderr) = (log.clone(), child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap();
                // The end of a log says why a node ended.
                if kept.len() > 256 << 10 {
                    kept.clear();
                }
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        (child, log)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Calls a method as this machine's user.
    pub(crate) fn call(&self, method: &str, arguments: Value) -> Called {
        call(self.address, &self.token, method, &arguments)
    }

    /// What a call that succeeds answers.
    pub(crate) fn data(&self, method: &str, arguments: Value) -> Value {
        match self.call(method, arguments) {
            Called::Ok(data) => data,
            other => panic!("{method}: {other:?}\n{}", self.log()),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.end(Signal::Kill);
    }

    /// Makes it stand still.
    #[cfg(unix)]
    pub(crate) fn pause(&self) {
        signal(self.pid, Signal::Stop);
    }

    /// Lets it go on.
    #[cfg(unix)]
    pub(crate) fn go_on(&self) {
        signal(self.pid, Signal::Continue);
    }

    /// Ends it as a service manager does; how it ended.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.end(Signal::Term)
    }

    /// Waits until it ends by itself; how it ended.
    pub(crate) fn wait(mut self) -> ExitStatus {
        let ended = self.ended.take().unwrap().into_inner().unwrap();
        let status = ended.recv_timeout(STOP);
        if status.is_err() {
            signal(self.pid, Signal::Kill);
        }
        status.unwrap_or_else(|_| panic!("the node did not end:\n{}", self.log()))
    }

    /// Kills it from another thread while this value is in use.
    pub(crate) fn killer(&self) -> impl FnOnce() + Send + 'static {
        let pid = self.pid;
        move || signal(pid, Signal::Kill)
    }

    fn end(&mut self, how: Signal) -> ExitStatus {
        let ended = self.ended.take().unwrap().into_inner().unwrap();
        signal(self.pid, how);
        let status = ended.recv_timeout(STOP).or_else(|_| {
            signal(self.pid, Signal::Kill);
            ended.recv_timeout(STOP)
        });
        status.unwrap_or_else(|_| panic!("the node cannot be ended"))
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        if self.ended.is_some() {
            self.end(Signal::Term);
        }
    }
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Called {
    Ok(Value),
    Refused(Value),
    /// No whole answer came; the outcome is unknown.
    Lost,
}

/// Calls a method over HTTP.
pub(crate) fn call(address: SocketAddr, token: &str, method: &str, arguments: &Value) -> Called {
    let body = json!({ "method": method, "arguments": arguments }).to_string();
    let request = format!(
        "POST /api/v1/call HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let Some(mut response) = exchange(address, request.as_bytes()) else {
        return Called::Lost;
    };
    match response.body["ok"].as_bool() {
        Some(true) => Called::Ok(response.body["data"].take()),
        Some(false) => Called::Refused(response.body["error"].take()),
        None => Called::Lost,
    }
}

/// An answer over HTTP.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    /// Its body as JSON; null where it is none.
    pub(crate) body: Value,
}

/// Sends bytes as they are and reads one answer until the connection closes; nothing where none
/// came whole.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> Option<Response> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER).ok()?;
    stream.set_read_timeout(Some(ANSWER)).unwrap();
    stream.set_write_timeout(Some(ANSWER)).unwrap();
    stream.write_all(request).ok()?;
    let mut bytes = Vec::new();
    // What came before a connection broke may still be a whole answer.
    drop(stream.read_to_end(&mut bytes));
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = bytes.split_at(end + 4);
    let head = String::from_utf8_lossy(head).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers
        .get("content-length")
        .and_then(|length| length.parse().ok())
        .unwrap_or(0);
    if body.len() < length {
        return None;
    }
    Some(Response {
        status,
        headers,
        body: serde_json::from_slice(body).unwrap_or_default(),
    })
}

/// A stream of numbers that a seed decides (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One below a bound.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The permission bits of a file.
#[cfg(unix)]
pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Every file of a directory with its bytes.
pub(crate) fn bytes_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}
