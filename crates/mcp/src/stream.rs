//! A client behind a stdio bridge: one line about the process at the other end, then the
//! protocol's messages, one a line, both ways.

use std::time::Duration;

use rmcp::{ServiceExt as _, service::ServerInitializeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use stead_doc::refusal::{Code, Refusal};
use stead_node::{
    connections::{Connection, Process},
    handle::Node,
};
use stead_sync::CredentialId;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite,
    AsyncWriteExt as _, BufReader,
};
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Selection, Toolset, UnknownToolset},
    server::AgentServer,
};

/// The protocol to which a bridge's connection is upgraded.
pub const PROTOCOL: &str = "stead-mcp/1";

/// Bytes of the first line: a process within its bounds, every letter of it escaped.
pub const HELLO_BYTES: u64 = 1 << 20;

/// How long a bridge may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// How long a client that is told to end may take before it is left.
const END_WAIT: Duration = Duration::from_millis(300);

/// What a bridge says first. Fields that this version does not know are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Hello {
    /// The bridge's own process.
    pub process: Process,
    /// The toolsets that its client is to see; the default ones where it names none.
    pub toolsets: Vec<String>,
    /// Whether the tools that write are left out.
    pub read_only: bool,
}

impl Hello {
    fn selection(&self) -> Result<Selection, UnknownToolset> {
        let mut selection = Selection {
            read_only: self.read_only,
            ..Selection::default()
        };
        if !self.toolsets.is_empty() {
            selection.toolsets = self
                .toolsets
                .iter()
                .map(|name| name.parse::<Toolset>())
                .collect::<Result<_, _>>()?;
        }
        Ok(selection)
    }
}

/// Serves the client at the other end until it or the node ends.
pub(crate) async fn serve(
    node: Node,
    credential: CredentialId,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    over: CancellationToken,
) {
    let (read, mut write) = tokio::io::split(io);
    let mut read = BufReader::new(read);
    let Ok(said) = tokio::time::timeout(HELLO_WAIT, hello(&mut read)).await else {
        return;
    };
    let Some(hello) = said else {
        let refusal = Refusal::argument(
            "hello",
            "the first line is not what a bridge of this version says.",
            "Use `stead mcp` of the node's own version.",
        );
        return refuse(&mut write, &refusal).await;
    };
    let selection = match hello.selection() {
        Ok(selection) => selection,
        Err(unknown) => {
            let refusal = Refusal::argument(
                "toolsets",
                format!("{unknown}."),
                "Use those, or a node of the same version.",
            );
            return refuse(&mut write, &refusal).await;
        }
    };
    let connection = Connection {
        credential: credential.to_string(),
        process: hello.process.bounded(),
        since: node.world().wall_ms(),
    };
    let Some(connected) = node.connections().add(connection) else {
        let refusal = Refusal::new(
            Code::Unavailable,
            "too many clients are connected to this node already.",
            "Close some of them.",
        );
        return refuse(&mut write, &refusal).await;
    };
    if tell(&mut write, &json!({ "ok": true })).await.is_err() {
        return;
    }
    let over = over.child_token();
    let server = AgentServer::new(node, credential, selection, &over);
    let read = EndWatch {
        inner: read,
        over: over.clone(),
    };
    let running = tokio::select! {
        running = server.serve((read, write)) => running,
        () = over.cancelled() => return,
    };
    match running {
        Ok(running) => {
            let ending = running.cancellation_token();
            let ended = running.waiting();
            tokio::pin!(ended);
            tokio::select! {
                _ = &mut ended => {}
                () = over.cancelled() => {
                    // What is under way may be answered still; whoever listens has been told.
                    if tokio::time::timeout(END_WAIT, &mut ended).await.is_err() {
                        ending.cancel();
                        drop(ended.await);
                    }
                }
            }
        }
        // The client went before its first request.
        Err(ServerInitializeError::ConnectionClosed(_)) => {}
        Err(error) => tracing::info!(%error, "a client did not begin as the protocol wants"),
    }
    drop(connected);
}

/// Tells a bridge why it is not served.
async fn refuse(write: &mut (impl AsyncWrite + Unpin), refusal: &Refusal) {
    if let Err(error) = tell(write, &json!({ "ok": false, "error": refusal.to_json() })).await {
        tracing::debug!(%error, "a bridge was gone before it was refused");
    }
}

async fn tell(write: &mut (impl AsyncWrite + Unpin), said: &Json) -> std::io::Result<()> {
    write.write_all(format!("{said}\n").as_bytes()).await?;
    write.flush().await
}

/// The first line, or nothing where it is too long or no JSON.
async fn hello(read: &mut (impl AsyncBufRead + Unpin)) -> Option<Hello> {
    let mut line = Vec::new();
    let count = read
        .take(HELLO_BYTES)
        .read_until(b'\n', &mut line)
        .await
        .ok()?;
    if count == 0 || line.last() != Some(&b'\n') {
        return None;
    }
    serde_json::from_slice(&line).ok()
}

/// Says when the other end is gone: rmcp waits for open subscriptions, which nobody reads then.
struct EndWatch<R> {
    inner: R,
    over: CancellationToken,
}

impl<R: AsyncRead + Unpin> AsyncRead for EndWatch<R> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = std::pin::Pin::new(&mut self.inner).poll_read(cx, buf);
        if matches!(polled, std::task::Poll::Ready(Ok(())))
            && buf.filled().len() == before
            && buf.remaining() > 0
        {
            self.over.cancel();
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use stead_node::connections::{PARENTS, Parent, REPORT_BYTES, VARIABLES};

    use super::*;

    #[test]
    fn a_hello_of_another_version_is_read_as_far_as_it_is_known() {
        let hello: Hello =
            serde_json::from_str(r#"{"process":{"pid":7,"new":1},"readOnly":true,"more":{}}"#)
                .unwrap();
        assert_eq!(hello.process.pid, 7);
        let selection = hello.selection().unwrap();
        assert!(selection.read_only);
        assert_eq!(selection.toolsets, Selection::default().toolsets);
        let narrow = Hello {
            toolsets: vec!["later".into()],
            ..Hello::default()
        };
        assert_eq!(narrow.selection(), Err(UnknownToolset("later".into())));
    }

    #[tokio::test]
    async fn a_first_line_fits_whatever_a_process_reports() {
        let long = "\u{1}".repeat(REPORT_BYTES);
        let parent = Parent {
            name: long.clone(),
            ..Parent::default()
        };
        let process = Process {
            parents: vec![parent; PARENTS],
            cwd: long.clone(),
            user: long.clone(),
            harness: (0..VARIABLES)
                .map(|n| (format!("{n}{long}"), long.clone()))
                .collect(),
            ..Process::default()
        };
        let said = Hello {
            process: process.bounded(),
            ..Hello::default()
        };
        let line = serde_json::to_string(&said).unwrap();
        assert!((line.len() as u64) < HELLO_BYTES, "{}", line.len());
        let heard = |line: String| async move { hello(&mut line.as_bytes()).await };
        assert_eq!(heard(format!("{line}\n")).await, Some(said));
        assert_eq!(heard(line).await, None);
        let fill = |bytes: u64| format!("{{}}{}\n", " ".repeat(bytes as usize - 3));
        assert!(heard(fill(HELLO_BYTES - 1)).await.is_some());
        assert!(heard(fill(HELLO_BYTES)).await.is_some());
        assert!(heard(fill(HELLO_BYTES + 1)).await.is_none());
    }
}
