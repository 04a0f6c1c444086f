//! Where agents' clients reach their server: Streamable HTTP at `/mcp`, and the stream that a
//! stdio bridge opens at `/mcp/bridge`. The node's gate has admitted each request and says who asks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Extension, Query, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService,
    session::{
        SessionManager as _,
        local::{LocalSessionManager, SessionConfig},
    },
};
use serde_json::json;
use stead_doc::context::Caller;
use stead_node::handle::Node;
use stead_sync::CredentialId;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Selection, Toolset},
    server::AgentServer,
    stream,
};

/// How long a session of the older protocol lives without a request: a working day and a night, so
/// that a client which waits for its person finds it again.
pub const SESSION_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// Sessions of the older protocol that one credential has at once: beyond, its oldest is ended, so
/// that a script which opens one for each run shuts nobody out.
pub const SESSIONS: usize = 64;

/// How long what is under way when the node is stopped may take before it is cut.
const DRAIN: Duration = Duration::from_secs(1);

/// Bytes of one request: the longest body of a task, escaped, with its other fields.
pub const REQUEST_BYTES: usize = 4 << 20;

const SESSION_HEADER: &str = "mcp-session-id";

tokio::task_local! {
    /// Who asks in the request that is being handled: the transport makes servers without saying
    /// for whom.
    static ASKING: (CredentialId, Selection);
}

#[derive(Clone)]
struct Face {
    node: Node,
    service: Arc<StreamableHttpService<AgentServer, LocalSessionManager>>,
    sessions: Arc<LocalSessionManager>,
    owners: Arc<Mutex<Owners>>,
    over: CancellationToken,
}

/// How this transport is served wherever it is: the bounds of requests and of the older protocol's
/// sessions, all of which end with `over`.
pub fn transport(
    over: &CancellationToken,
) -> (StreamableHttpServerConfig, Arc<LocalSessionManager>) {
    let mut session = SessionConfig::default();
    session.keep_alive = Some(SESSION_IDLE);
    let mut sessions = LocalSessionManager::default();
    sessions.session_config = session;
    let config = StreamableHttpServerConfig::default()
        // One answer needs no stream of events; what notifies on the way gets one.
        .with_json_response(true)
        .with_max_request_body_bytes(REQUEST_BYTES)
        .with_cancellation_token(over.child_token());
    (config, Arc::new(sessions))
}

/// The routes of the agents' face; `stop` ends what is open.
pub fn router(node: Node, mut stop: watch::Receiver<bool>) -> Router {
    let over = CancellationToken::new();
    let cut = CancellationToken::new();
    let (ended, cut_later) = (over.clone(), cut.clone());
    tokio::spawn(async move {
        let waited = stop.wait_for(|stop| *stop).await;
        drop(waited);
        ended.cancel();
        tokio::time::sleep(DRAIN).await;
        cut_later.cancel();
    });
    let (config, sessions) = transport(&cut);
    let factory = {
        let (node, over) = (node.clone(), over.clone());
        move || {
            let (credential, selection) = ASKING
                .try_with(Clone::clone)
                .map_err(|_| std::io::Error::other("a server is made for a request alone"))?;
            Ok(AgentServer::new(node.clone(), credential, selection, &over))
        }
    };
    let service = StreamableHttpService::new(
        factory,
        sessions.clone(),
        // The node's gate has looked at Host and Origin already.
        config.disable_allowed_hosts(),
    );
    let face = Face {
        node,
        service: Arc::new(service),
        sessions,
        owners: Arc::default(),
        over,
    };
    Router::new()
        .route("/mcp", any(streamable))
        .route("/mcp/bridge", get(bridge))
        .with_state(face)
}

async fn streamable(
    State(face): State<Face>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<BTreeMap<String, String>>,
    request: Request,
) -> Response {
    let selection = match selection(&query) {
        Ok(selection) => selection,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let Ok(credential) = caller.credential.parse::<CredentialId>() else {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "this credential is not known here",
        );
    };
    let named = session_of(request.headers());
    if let Some(session) = &named
        && !face.owns(credential, session)
    {
        return refuse(StatusCode::NOT_FOUND, "there is no such session");
    }
    let opens = named.is_none() && request.method() == Method::POST;
    let ends = request.method() == Method::DELETE;
    let response = ASKING
        .scope((credential, selection), face.service.handle(request))
        .await;
    if let Some(session) = session_of(response.headers()).filter(|_| opens) {
        face.opened(credential, session).await;
    }
    if let Some(session) = named.filter(|_| ends) {
        face.owners().remove(&session);
    }
    response.into_response()
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers
        .get(SESSION_HEADER)
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned)
}

impl Face {
    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owns(&self, credential: CredentialId, session: &str) -> bool {
        self.owners().owns(credential, session)
    }

    /// Notes whose a session is; ends the oldest ones of whoever has too many.
    async fn opened(&self, credential: CredentialId, session: String) {
        let surplus = {
            let open = self.sessions.sessions.read().await;
            let mut owners = self.owners();
            owners.retain(|id| open.contains_key(id));
            owners.insert(credential, session)
        };
        for session in surplus {
            if let Err(error) = self.sessions.close_session(&session.into()).await {
                tracing::debug!(%error, "a session was over already");
            }
        }
    }
}

/// Whose each session is: its id alone opens it to nobody else.
#[derive(Debug, Default)]
struct Owners {
    next: u64,
    sessions: BTreeMap<String, (CredentialId, u64)>,
}

impl Owners {
    fn owns(&self, credential: CredentialId, session: &str) -> bool {
        self.sessions
            .get(session)
            .is_some_and(|(owner, _)| *owner == credential)
    }

    fn remove(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// Forgets those that have ended by themselves.
    fn retain(&mut self, is_open: impl Fn(&str) -> bool) {
        self.sessions.retain(|id, _| is_open(id));
    }

    /// Adds one; those of the same credential that are too many then, the oldest first.
    fn insert(&mut self, credential: CredentialId, session: String) -> Vec<String> {
        self.sessions.insert(session, (credential, self.next));
        self.next += 1;
        let mut own: Vec<(u64, String)> = self
            .sessions
            .iter()
            .filter(|(_, (owner, _))| *owner == credential)
            .map(|(id, (_, order))| (*order, id.clone()))
            .collect();
        own.sort_unstable();
        own.truncate(own.len().saturating_sub(SESSIONS));
        let surplus: Vec<String> = own.into_iter().map(|(_, id)| id).collect();
        for id in &surplus {
            self.sessions.remove(id);
        }
        surplus
    }
}

/// Which tools a client asks for in its address: `?toolsets=board&readOnly=true`.
fn selection(query: &BTreeMap<String, String>) -> Result<Selection, String> {
    let mut selection = Selection::default();
    for (name, value) in query {
        match name.as_str() {
            "toolsets" => {
                selection.toolsets = value
                    .split(',')
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(str::parse::<Toolset>)
                    .collect::<Result<_, _>>()
                    .map_err(|error| error.to_string())?;
            }
            "readOnly" => selection.read_only = matches!(value.as_str(), "" | "1" | "true"),
            _ => {
                return Err("the address takes toolsets and readOnly alone".to_owned());
            }
        }
    }
    Ok(selection)
}

/// Turns the connection into the plain stream of messages that a bridge carries from stdio.
async fn bridge(
    State(face): State<Face>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
) -> Response {
    let asked = request
        .headers()
        .get(header::UPGRADE)
        .is_some_and(|protocol| protocol.as_bytes() == stream::PROTOCOL.as_bytes());
    let Ok(credential) = caller.credential.parse::<CredentialId>() else {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "this credential is not known here",
        );
    };
    if !asked {
        return refuse(
            StatusCode::UPGRADE_REQUIRED,
            "a bridge of this version is needed: run stead mcp of the same version",
        );
    }
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let io = hyper_util::rt::TokioIo::new(upgraded);
                stream::serve(face.node, credential, io, face.over).await;
            }
            Err(error) => tracing::debug!(%error, "a bridge was gone before it began"),
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(stream::PROTOCOL));
    response
}

fn refuse(status: StatusCode, why: &str) -> Response {
    let error = json!({ "code": "FORBIDDEN", "message": why, "hint": "" });
    (status, Json(json!({ "ok": false, "error": error }))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_session_is_its_credentials_alone_and_the_oldest_goes_first() {
        let (ada, bob) = (
            CredentialId::from_bytes([1; 8]),
            CredentialId::from_bytes([2; 8]),
        );
        let mut owners = Owners::default();
        assert!(owners.insert(bob, "b".into()).is_empty());
        for n in 0..SESSIONS {
            assert!(owners.insert(ada, format!("a{n}")).is_empty());
        }
        assert_eq!(owners.insert(ada, "new".into()), ["a0"]);
        assert!(owners.owns(ada, "new") && !owners.owns(ada, "a0"));
        assert!(owners.owns(bob, "b") && !owners.owns(ada, "b"));
        owners.retain(|id| id != "a1");
        assert!(owners.insert(ada, "newer".into()).is_empty());
    }

    #[test]
    fn the_address_selects_tools() {
        assert_eq!(selection(&query(&[])), Ok(Selection::default()));
        let narrowed = selection(&query(&[("toolsets", "board"), ("readOnly", "true")])).unwrap();
        assert!(narrowed.read_only);
        assert_eq!(narrowed.toolsets, [Toolset::Board]);
        assert!(selection(&query(&[("toolsets", "nothing")])).is_err());
        assert!(selection(&query(&[("read_only", "1")])).is_err());
    }
}
