//! A client behind a stdio bridge: one line about the process at the other end, then the
//! protocol's messages, one a line, both ways.

use std::time::Duration;

use rmcp::{ServiceExt as _, service::ServerInitializeError};
use serde::{Deserialize, Serialize};
use stead_node::{
    connections::{Connection, Process},
    handle::Node,
};
use stead_sync::CredentialId;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader,
};
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Selection, Toolset},
    server::AgentServer,
};

/// The protocol to which a bridge's connection is upgraded.
pub const PROTOCOL: &str = "stead-mcp/1";

/// Bytes of the first line.
pub const HELLO_BYTES: u64 = 64 << 10;

/// How long a bridge may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(10);

/// How long a client that is told to end may take before it is left.
const END_WAIT: Duration = Duration::from_millis(500);

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
    fn selection(&self) -> Selection {
        let known: Vec<Toolset> = self
            .toolsets
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        Selection {
            toolsets: if self.toolsets.is_empty() {
                Selection::default().toolsets
            } else {
                known
            },
            read_only: self.read_only,
        }
    }
}

/// Serves the client at the other end until it or the node ends.
pub(crate) async fn serve(
    node: Node,
    credential: CredentialId,
    io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    over: CancellationToken,
) {
    let (read, write) = tokio::io::split(io);
    let mut read = BufReader::new(read);
    let Ok(Some(hello)) = tokio::time::timeout(HELLO_WAIT, hello(&mut read)).await else {
        return;
    };
    let selection = hello.selection();
    let connection = Connection {
        credential: credential.to_string(),
        process: hello.process.bounded(),
        since: node.world().wall_ms(),
    };
    let Some(connected) = node.connections().add(connection) else {
        tracing::warn!("too many bridges are connected");
        return;
    };
    let over = over.child_token();
    let server = AgentServer::new(node, credential, selection, over.clone());
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
    use super::*;

    #[test]
    fn a_hello_of_another_version_is_read_as_far_as_it_is_known() {
        let hello: Hello =
            serde_json::from_str(r#"{"process":{"pid":7,"new":1},"readOnly":true,"more":{}}"#)
                .unwrap();
        assert_eq!(hello.process.pid, 7);
        assert!(hello.selection().read_only);
        assert_eq!(hello.selection().toolsets, Selection::default().toolsets);
        let narrow = Hello {
            toolsets: vec!["later".into()],
            ..Hello::default()
        };
        assert!(narrow.selection().toolsets.is_empty());
    }
}
