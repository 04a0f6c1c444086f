//! `stead mcp`: carries the protocol between a client's stdio and the home's node, and nothing
//! else. A client keeps its bridge while nodes come and go.
//!
//! One thread reads stdin, one reads the node, one connects; the main one owns the
//! [`Session`] and alone writes.

mod link;
mod process;
mod session;

use std::{
    io::{self, BufRead, Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    time::{Duration, Instant},
};

use stead_doc::refusal::{Code, Refusal};
use stead_mcp::Hello;

use self::{
    link::Link,
    session::{Line, Session},
};
use crate::{client::Identity, failure::Failure, local};

/// Bytes of one message: what the node takes as well.
const LINE_BYTES: usize = stead_mcp::REQUEST_BYTES;

/// Lines that are read ahead of the main thread; each side then waits for the other.
const LINES_AHEAD: usize = 64;

/// How often time is looked at.
const TICK: Duration = Duration::from_millis(100);

/// How long after a failure to reach a node the next try waits, twice as long each time.
const RETRY_WAIT: Duration = Duration::from_millis(250);
const RETRY_WAIT_MOST: Duration = Duration::from_secs(5);

/// A link that lived so long was a good one.
const LINK_LIVES: Duration = Duration::from_secs(2);

/// How long answers may still come once the client has ended its side, and when it is left even if
/// nobody reads what is being written.
const END_WAIT: Duration = Duration::from_millis(750);
const END_AT_LAST: Duration = Duration::from_millis(900);

/// What the main thread hears.
enum Heard {
    Client(String),
    ClientTooLong,
    ClientEnd,
    Node(u64, String),
    NodeEnd(u64),
    Linked(Result<Link, Refusal>),
}

/// How a bridge is to work.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The home whose node to reach.
    pub(crate) home: PathBuf,
    /// As whom.
    pub(crate) identity: Identity,
    /// The toolsets to show.
    pub(crate) toolsets: Vec<String>,
    /// Whether to show reading tools alone.
    pub(crate) read_only: bool,
}

/// Carries messages until the client ends.
///
/// # Errors
///
/// Where there is no workspace, or the node never lets this client in.
pub(crate) fn run(options: Options) -> Result<u8, Failure> {
    if !local::is_made(&options.home) {
        return Err(Failure::Refused(Refusal::new(
            Code::Unavailable,
            format!("{} holds no workspace.", options.home.display()),
            "Run `stead up` once, or name another home with --home.",
        )));
    }
    let hello = Hello {
        process: process::report().bounded(),
        toolsets: options.toolsets.clone(),
        read_only: options.read_only,
    };
    let (sender, heard) = sync_channel(LINES_AHEAD);
    let lines = sender.clone();
    spawn("stead-stdin", move || read_client(&lines))?;
    let mut bridge = Bridge {
        session: Session::default(),
        options,
        hello,
        sender,
        began: Instant::now(),
        link: None,
        linked_at: None,
        generation: 0,
        connecting: false,
        retry_at: Some(Instant::now()),
        retry_wait: RETRY_WAIT,
        why: None,
        ended_at: None,
    };
    bridge.reconnect();
    match bridge.run(&heard) {
        Some(refusal) => Err(Failure::Refused(refusal)),
        None => Ok(0),
    }
}

struct Bridge {
    session: Session,
    options: Options,
    hello: Hello,
    sender: SyncSender<Heard>,
    began: Instant,
    link: Option<TcpStream>,
    /// Since when there is one, or was when there was one last.
    linked_at: Option<Instant>,
    /// Tells lines of one link from those of the one before.
    generation: u64,
    connecting: bool,
    retry_at: Option<Instant>,
    /// How long the next try waits after a failure.
    retry_wait: Duration,
    /// Why the last try failed.
    why: Option<Refusal>,
    /// When the client ended its side.
    ended_at: Option<Instant>,
}

impl Bridge {
    /// Until the client ends; why it was never let in, where that is so.
    fn run(&mut self, heard: &Receiver<Heard>) -> Option<Refusal> {
        loop {
            self.write();
            if self.is_over() {
                break;
            }
            match heard.recv_timeout(TICK) {
                Ok(Heard::Client(line)) => {
                    let now = self.now();
                    self.session.client_said(&line, now);
                }
                Ok(Heard::ClientTooLong) => self.session.too_long(LINE_BYTES),
                Ok(Heard::ClientEnd) => self.ended_at = Some(Instant::now()),
                Ok(Heard::Node(generation, line)) if generation == self.generation => {
                    let now = self.now();
                    self.session.node_said(&line, now);
                }
                Ok(Heard::NodeEnd(generation)) if generation == self.generation => self.lost(),
                Ok(Heard::Linked(linked)) => {
                    // Who may never come in is told where its person looks.
                    if let Err(refusal) = &linked
                        && self.linked_at.is_none()
                        && is_final(refusal)
                    {
                        return Some(refusal.clone());
                    }
                    self.met(linked);
                }
                Ok(Heard::Node(..) | Heard::NodeEnd(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.now();
            self.session.tick(now, self.why.as_ref());
            self.reconnect();
        }
        if let Some(link) = self.link.take() {
            // The node sees the end and lets go of what this client watched.
            let closed = link.shutdown(Shutdown::Both);
            drop(closed);
        }
        None
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_over(&self) -> bool {
        self.ended_at
            .is_some_and(|at| !self.is_busy() || at.elapsed() >= END_WAIT)
    }

    /// Whether an answer is owed, or whether it may come in at all is not known yet.
    fn is_busy(&self) -> bool {
        self.session.owes() || (self.connecting && self.linked_at.is_none())
    }

    /// Writes what the session has to say. A client that is gone ends the bridge; a node that is
    /// gone is found again.
    fn write(&mut self) {
        let mut stdout = io::stdout().lock();
        while let Some(line) = self.session.out.pop_front() {
            match line {
                Line::Client(line) => {
                    let written = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
                    if written.is_err() {
                        self.ended_at = Some(self.began);
                        return;
                    }
                }
                Line::Node(line) => {
                    let Some(link) = &mut self.link else { continue };
                    if link.write_all(format!("{line}\n").as_bytes()).is_err() {
                        // The reader sees the same end, and what waits is sent again.
                        let closed = link.shutdown(Shutdown::Both);
                        drop(closed);
                        self.link = None;
                    }
                }
            }
        }
    }

    /// A try to reach a node is over.
    fn met(&mut self, linked: Result<Link, Refusal>) {
        self.connecting = false;
        self.generation += 1;
        let refusal = match linked {
            Ok(link) => match self.take(link) {
                Ok(()) => return,
                Err(refusal) => refusal,
            },
            Err(refusal) => refusal,
        };
        if is_final(&refusal) {
            self.session.refused(refusal.clone());
        }
        self.why = Some(refusal);
        self.retry_later();
    }

    fn retry_later(&mut self) {
        self.retry_at = Some(Instant::now() + self.retry_wait);
        self.retry_wait = (self.retry_wait * 2).min(RETRY_WAIT_MOST);
    }

    fn take(&mut self, link: Link) -> Result<(), Refusal> {
        let Link { stream, reader } = link;
        let (lines, generation) = (self.sender.clone(), self.generation);
        spawn("stead-node", move || read_node(reader, generation, &lines))?;
        self.link = Some(stream);
        self.linked_at = Some(Instant::now());
        self.why = None;
        self.session.linked();
        Ok(())
    }

    fn lost(&mut self) {
        self.link = None;
        let now = self.now();
        self.session.lost(now);
        // One that goes as soon as it came is not asked again and again.
        if self.linked_at.is_some_and(|at| at.elapsed() >= LINK_LIVES) {
            self.retry_wait = RETRY_WAIT;
            self.retry_at = Some(Instant::now());
        } else {
            self.retry_later();
        }
    }

    /// Looks for a node from a thread of its own, so that the client is heard meanwhile.
    fn reconnect(&mut self) {
        let due = self.retry_at.is_some_and(|at| at <= Instant::now());
        if self.link.is_some() || self.connecting || !due || self.ended_at.is_some() {
            return;
        }
        self.retry_at = None;
        let (options, hello, sender) = (
            self.options.clone(),
            self.hello.clone(),
            self.sender.clone(),
        );
        let started = spawn("stead-connect", move || {
            let linked = link::open(&options.home, &options.identity, &hello);
            // Nobody waits for it where the client has ended meanwhile.
            let told = sender.send(Heard::Linked(linked));
            drop(told);
        });
        match started {
            Ok(()) => self.connecting = true,
            Err(refusal) => self.met(Err(refusal)),
        }
    }
}

/// Whether trying again changes nothing.
fn is_final(refusal: &Refusal) -> bool {
    matches!(refusal.code, Code::Forbidden | Code::InvalidArgument)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Refusal> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(run)
        .map(drop)
        .map_err(|error| {
            Refusal::new(
                Code::Unavailable,
                format!("no thread could be started: {error}."),
                "End other programs and try again.",
            )
        })
}

/// They read lines; the default would be eight times as much.
const STACK_BYTES: usize = 256 << 10;

fn read_client(lines: &SyncSender<Heard>) {
    let mut stdin = io::stdin().lock();
    while let Some(line) = line_of(&mut stdin) {
        let heard = match line {
            Read::Line(line) if line.trim().is_empty() => continue,
            Read::Line(line) => Heard::Client(line),
            Read::TooLong => Heard::ClientTooLong,
        };
        if lines.send(heard).is_err() {
            return;
        }
    }
    // The main thread may be writing to a pipe that nobody reads, and nothing wakes it from that: a
    // deadline of its own is what ends the process then. Where all is well it has ended by itself.
    let watching = spawn("stead-end", || {
        std::thread::sleep(END_AT_LAST);
        std::process::exit(0);
    });
    if let Err(refusal) = watching {
        tracing::warn!(%refusal, "the end is not watched");
    }
    let told = lines.send(Heard::ClientEnd);
    drop(told);
}

fn read_node(mut reader: impl BufRead, generation: u64, lines: &SyncSender<Heard>) {
    while let Some(line) = line_of(&mut reader) {
        // Nothing that a node says is nearly as long.
        let Read::Line(line) = line else { break };
        if lines.send(Heard::Node(generation, line)).is_err() {
            return;
        }
    }
    let told = lines.send(Heard::NodeEnd(generation));
    drop(told);
}

/// What a reader gave.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    Line(String),
    /// One that is longer than [`LINE_BYTES`] was skipped.
    TooLong,
}

/// The next line; nothing at the end.
fn line_of(reader: &mut impl BufRead) -> Option<Read> {
    let mut line = Vec::new();
    let limit = LINE_BYTES as u64 + 1;
    let count = reader
        .by_ref()
        .take(limit)
        .read_until(b'\n', &mut line)
        .ok()?;
    if count == 0 {
        return None;
    }
    if count <= LINE_BYTES || line.last() == Some(&b'\n') {
        return Some(Read::Line(String::from_utf8_lossy(&line).into_owned()));
    }
    skip_line(reader);
    Some(Read::TooLong)
}

fn skip_line(reader: &mut impl BufRead) {
    while let Ok(buffered) = reader.fill_buf() {
        if buffered.is_empty() {
            return;
        }
        let end = buffered.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffered.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return;
        }
    }
}

/// The home as it stands on the command line of a client's configuration.
pub(crate) fn absolute_home(home: &Path) -> PathBuf {
    std::path::absolute(home).unwrap_or_else(|_| home.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_the_next_one_is_read() {
        let line = |bytes: usize| "x".repeat(bytes);
        let text = format!(
            "{}\n{}\n{}\nlast",
            line(LINE_BYTES - 1),
            line(LINE_BYTES),
            line(LINE_BYTES + 1)
        );
        let mut reader = text.as_bytes();
        let read = |reader: &mut &[u8]| line_of(reader).unwrap();
        assert!(matches!(read(&mut reader), Read::Line(read) if read.len() == LINE_BYTES));
        assert!(matches!(read(&mut reader), Read::Line(read) if read.len() == LINE_BYTES + 1));
        assert_eq!(read(&mut reader), Read::TooLong);
        assert_eq!(read(&mut reader), Read::Line("last".into()));
        assert_eq!(line_of(&mut reader), None);
    }
}
