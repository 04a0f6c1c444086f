//! The way from a bridge to the node: found, or started where none runs, and opened as a stream of
//! messages.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use percent_encoding::NON_ALPHANUMERIC;
use serde_json::Value;
use stead_doc::refusal::{Code, Refusal};
use stead_mcp::{Hello, PROTOCOL};

use crate::client::{self, Http, Identity};

/// How long a node that was started may take until it listens: one that was killed checks its
/// store first.
const START_WAIT: Duration = Duration::from_secs(12);
const START_STEP: Duration = Duration::from_millis(20);

/// How long the node may take to open the stream.
const OPEN_WAIT: Duration = Duration::from_secs(10);

/// Lines and bytes of an answer's head.
const HEAD_BYTES: usize = 16 << 10;

/// Seconds that a node which was started for a client outlives the last one.
const IDLE_EXIT_SECS: u64 = 600;

/// What a node that nobody watches says goes here, in the home.
const NODE_LOG: &str = "node.out";

/// An open stream to a node.
#[derive(Debug)]
pub(crate) struct Link {
    /// To write to.
    pub(crate) stream: TcpStream,
    /// To read from; what came with the answer's head is in it.
    pub(crate) reader: BufReader<TcpStream>,
}

/// Opens a stream to the home's node, which is started where none runs.
///
/// # Errors
///
/// `FORBIDDEN` and `INVALID_ARGUMENT` where no node will ever let this client in, `UNAVAILABLE`
/// where it can be tried again.
pub(crate) fn open(home: &Path, identity: &Identity, hello: &Hello) -> Result<Link, Refusal> {
    let node = match client::running(home, identity)? {
        Some(node) => node,
        None => {
            let started = start(home)?;
            wait_for(home, identity, started)?
        }
    };
    upgrade(&node, hello)
}

/// Starts a node of its own, which belongs to no client and ends when nobody needs it any more.
fn start(home: &Path) -> Result<Child, Refusal> {
    let failed = |error: io::Error| {
        Refusal::new(
            Code::Unavailable,
            format!("no node runs and none could be started: {error}."),
            "Ask your supervisor to run `stead up`.",
        )
    };
    let program = std::env::current_exe().map_err(failed)?;
    let log = fs::File::create(home.join(NODE_LOG)).map_err(failed)?;
    let mut command = Command::new(program);
    command
        .arg("--home")
        .arg(home)
        .args(["node", "run", "--idle-exit"])
        .arg(format!("{IDLE_EXIT_SECS}s"))
        // A client's own variables are not the node's: it serves others too.
        .env_remove("STEAD_TOKEN")
        // Nor is the folder in which it happened to be started.
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Harnesses end a client's whole group; the node outlives it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    #[cfg(windows)]
    std::os::windows::process::CommandExt::creation_flags(&mut command, DETACHED);
    command.spawn().map_err(failed)
}

/// `CREATE_NEW_PROCESS_GROUP | DETACHED_PROCESS`.
#[cfg(windows)]
const DETACHED: u32 = 0x0000_0200 | 0x0000_0008;

/// Waits until the node that was started, or another one that was quicker, says where it listens.
/// It says so in a file of the home, which only looking at it again and again finds out.
fn wait_for(home: &Path, identity: &Identity, mut started: Child) -> Result<Http, Refusal> {
    let steps = START_WAIT.as_millis() / START_STEP.as_millis();
    for _ in 0..steps {
        if let Some(node) = client::running(home, identity)? {
            // Waited for in case it ends before this process does, so that nothing is left of it.
            let waiting = std::thread::Builder::new()
                .name("stead-child".to_owned())
                .spawn(move || drop(started.wait()));
            drop(waiting);
            return Ok(node);
        }
        // One that ended while none listens has failed; it has said why, so nobody waits longer.
        if let Ok(Some(_)) = started.try_wait()
            && client::running(home, identity)?.is_none()
        {
            break;
        }
        std::thread::sleep(START_STEP);
    }
    Err(Refusal::new(
        Code::Unavailable,
        format!(
            "the node that was started does not answer; {} says why.",
            home.join(NODE_LOG).display()
        ),
        "Ask your supervisor to run `stead up` and to read what it says.",
    ))
}

fn upgrade(node: &Http, hello: &Hello) -> Result<Link, Refusal> {
    let lost = |error: io::Error| {
        Refusal::new(
            Code::Unavailable,
            format!("the node at {} went away: {error}.", node.address()),
            "Send it again in a moment.",
        )
    };
    let mut stream = TcpStream::connect_timeout(&node.address(), OPEN_WAIT).map_err(lost)?;
    stream.set_nodelay(true).map_err(lost)?;
    stream.set_read_timeout(Some(OPEN_WAIT)).map_err(lost)?;
    let name = node
        .name()
        .map(|name| {
            let name = percent_encoding::utf8_percent_encode(name, NON_ALPHANUMERIC);
            format!("Stead-Agent: {name}\r\n")
        })
        .unwrap_or_default();
    let request = format!(
        "GET /mcp/bridge HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {PROTOCOL}\r\nAuthorization: {}\r\n{name}\r\n",
        node.address(),
        node.authorization(),
    );
    stream.write_all(request.as_bytes()).map_err(lost)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(lost)?);
    let (status, length) = head(&mut reader).map_err(lost)?;
    if status != SWITCHING {
        let mut body = vec![0; length.min(HEAD_BYTES)];
        io::Read::read_exact(&mut reader, &mut body).map_err(lost)?;
        return Err(refusal(status, &body, node));
    }
    let mut line = serde_json::to_string(hello).unwrap_or_else(|_| "{}".to_owned());
    line.push('\n');
    stream.write_all(line.as_bytes()).map_err(lost)?;
    let mut welcome = String::new();
    io::Read::take(&mut reader, HEAD_BYTES as u64)
        .read_line(&mut welcome)
        .map_err(lost)?;
    let welcome: Value = serde_json::from_str(&welcome).map_err(|error| lost(error.into()))?;
    if let Some(refusal) = welcome.get("error").and_then(Refusal::from_json) {
        return Err(refusal);
    }
    stream.set_read_timeout(None).map_err(lost)?;
    Ok(Link { stream, reader })
}

const SWITCHING: u16 = 101;

/// The status and the length of the body of an answer.
fn head(reader: &mut impl BufRead) -> io::Result<(u16, usize)> {
    let mut status = 0;
    let mut length = 0;
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        let left = (HEAD_BYTES + 1).saturating_sub(bytes) as u64;
        if io::Read::take(&mut *reader, left).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes += line.len();
        if bytes > HEAD_BYTES {
            return Err(io::Error::other("its answer's head is too long"));
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok((status, length));
        }
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest
                .get(..3)
                .and_then(|code| code.parse().ok())
                .unwrap_or(0);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
}

/// What the node's gate says, as a refusal.
fn refusal(status: u16, body: &[u8], node: &Http) -> Refusal {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(refusal) = answer.get("error").and_then(Refusal::from_json)
        && !refusal.hint.is_empty()
    {
        return refusal;
    }
    let said = answer
        .pointer("/error/message")
        .and_then(Value::as_str)
        .unwrap_or("it does not serve agents")
        .to_owned();
    let (code, hint) = match status {
        401 | 403 => (
            Code::Forbidden,
            "Name a local agent with --agent, or put the token of `stead agent add NAME` in STEAD_TOKEN.",
        ),
        426 | 404 => (
            Code::Forbidden,
            "The node is of another version: stop it with `stead node stop` and try again.",
        ),
        _ => (Code::Unavailable, "Send it again in a moment."),
    };
    Refusal::new(
        code,
        format!("the node at {}: {said}.", node.address()),
        hint,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> io::Result<(u16, usize)> {
        head(&mut text.as_bytes())
    }

    #[test]
    fn a_head_says_status_and_length() {
        let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\nX: y\r\n\r\nbody";
        assert_eq!(read(answer).unwrap(), (401, 12));
        assert_eq!(
            read("HTTP/1.1 101 Switching Protocols\r\n\r\n").unwrap(),
            (101, 0)
        );
    }

    #[test]
    fn a_head_that_ends_early_or_never_is_an_error() {
        assert!(read("HTTP/1.1 200 OK\r\nX: y").is_err());
        let endless = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(HEAD_BYTES));
        assert!(read(&endless).is_err());
    }
}
