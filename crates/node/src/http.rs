//! The local HTTP API: one method call a request, on loopback, behind a token.
//!
//! Every request is hostile until its `Host` is ours and its token is known: a page in a browser
//! can reach loopback too, and a name can be rebound to it.

use std::{future::IntoFuture as _, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawQuery, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use stead_doc::{
    context::Caller,
    refusal::{Code, Refusal},
};
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, sync::watch};

use crate::{
    handle::Node,
    home::{Home, HomeError, NodeFile},
};

/// Bytes of one request: a hundred imported issues of the largest size that a change holds would
/// be more, but they come in calls of about 4 MiB.
pub const BODY_BYTES: usize = 16 << 20;

/// How long requests under way may take once the node is to stop.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// What serves requests.
#[derive(Debug, Clone)]
struct Server {
    node: Node,
    token: Arc<str>,
    address: SocketAddr,
    stop: watch::Sender<bool>,
}

/// A node that listens.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    server: Server,
    home: Home,
    stopped: watch::Receiver<bool>,
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Ends [`Self::serve`] after the requests under way.
    pub fn stopper(&self) -> watch::Sender<bool> {
        self.server.stop.clone()
    }

    /// Serves until it is told to stop, then closes the node.
    ///
    /// # Errors
    ///
    /// Where the listener fails.
    pub async fn serve(self) -> std::io::Result<()> {
        let Self {
            listener,
            server,
            home,
            mut stopped,
        } = self;
        let node = server.node.clone();
        let router = Router::new()
            .route(CALL, post(call))
            .route("/api/v1/health", get(health))
            .fallback(nothing)
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn_with_state(server.clone(), admit))
            .with_state(server);
        let mut over = stopped.clone();
        let serving = axum::serve(listener, router)
            .with_graceful_shutdown(async move {
                // The sender lives in the router's state, so waiting fails only after the end.
                let waited = stopped.wait_for(|stop| *stop).await;
                drop(waited);
            })
            .into_future();
        let served = tokio::select! {
            served = serving => served,
            // Somebody who never ends a request keeps nobody from stopping the node.
            () = async {
                let waited = over.wait_for(|stop| *stop).await;
                drop(waited);
                tokio::time::sleep(STOP_GRACE).await;
            } => Ok(()),
        };
        home.remove_node_file();
        let closed = tokio::task::spawn_blocking(move || node.stop()).await;
        if let Err(error) = closed {
            tracing::error!(%error, "closing the node failed");
        }
        served
    }
}

/// Listens on loopback and says so in the home.
///
/// # Errors
///
/// Where the address is taken or not loopback, or the home cannot be written.
pub async fn listen(node: Node, home: Home, port: Option<u16>) -> Result<Listening, Refusal> {
    let address = SocketAddr::from(([127, 0, 0, 1], port.unwrap_or(0)));
    let listener = TcpListener::bind(address).await.map_err(|error| {
        Refusal::new(
            Code::Unavailable,
            format!("cannot listen on {address}: {error}."),
            "Choose another port, or leave it out.",
        )
    })?;
    let failed = |error| HomeError::File {
        path: home.path().to_owned(),
        error,
    };
    let address = listener.local_addr().map_err(failed)?;
    let token = home.token()?;
    home.write_node_file(&NodeFile {
        address: address.to_string(),
        pid: std::process::id(),
    })?;
    let (stop, stopped) = watch::channel(false);
    let server = Server {
        node,
        token: token.into(),
        address,
        stop,
    };
    Ok(Listening {
        listener,
        server,
        home,
        stopped,
    })
}

/// Lets a request pass whose `Host` names this listener.
async fn admit(State(server): State<Server>, request: Request, next: Next) -> Response {
    let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    let port = server.address.port();
    let ours = |host: &str| {
        [
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("[::1]:{port}"),
        ]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(host))
    };
    let [host] = hosts.as_slice() else {
        return refuse(StatusCode::FORBIDDEN, "one Host header is needed");
    };
    if !host.to_str().is_ok_and(ours) {
        return refuse(StatusCode::FORBIDDEN, "this Host is not served here");
    }
    // Nothing of ours is on another origin; a page that is may not even ask.
    for origin in request.headers().get_all(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(ours);
        if !same {
            return refuse(StatusCode::FORBIDDEN, "this Origin is not served here");
        }
    }
    // Before a body is read: a stranger's is not worth the memory.
    if request.uri().path() == CALL
        && !bearer(request.headers()).is_some_and(|token| server.knows(token))
    {
        return refuse(
            StatusCode::UNAUTHORIZED,
            "a bearer token that is known here is needed",
        );
    }
    next.run(request).await
}

const CALL: &str = "/api/v1/call";

async fn call(State(server): State<Server>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(token) = bearer(&headers) else {
        return refuse(StatusCode::UNAUTHORIZED, "a bearer token is needed");
    };
    let Ok(request) = serde_json::from_slice::<Value>(&body) else {
        return answer(Err(Refusal::argument(
            "body",
            "the body is no JSON.",
            "Send {method, arguments}.",
        )));
    };
    let text = |name: &str| request.get(name).and_then(Value::as_str).map(str::to_owned);
    let agent = text("agent");
    let caller = match server.caller(token, agent.as_deref()) {
        Ok(caller) => caller,
        Err(response) => return *response,
    };
    let Some(method) = text("method") else {
        return answer(Err(Refusal::argument(
            "method",
            "method is missing.",
            "Send {method, arguments}.",
        )));
    };
    let arguments = request.get("arguments").cloned().unwrap_or_default();
    if method == "shutdown" {
        return answer(server.shutdown(&caller));
    }
    let node = server.node.clone();
    let started = tokio::time::Instant::now();
    let name = method.clone();
    let credential = caller.credential.clone();
    let answered =
        tokio::task::spawn_blocking(move || node.call(&caller, &method, arguments)).await;
    let result = answered.unwrap_or_else(|_| {
        Err(Refusal::new(
            Code::Unavailable,
            "the call met a fault.",
            "Run `stead doctor` on this machine.",
        ))
    });
    // Names and outcomes, never arguments: neither tokens nor anybody's text go into a log.
    tracing::info!(
        credential,
        method = name,
        outcome = result
            .as_ref()
            .map_or_else(|refusal| refusal.code.as_str(), |_| "ok"),
        micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        "call"
    );
    answer(result)
}

/// Says that a node is here, and to whoever asks with a nonce proves that it is the home's: a port
/// that a killed node left may belong to anybody by now, who would be handed the token.
async fn health(State(server): State<Server>, RawQuery(query): RawQuery) -> Response {
    let nonce = query
        .as_deref()
        .and_then(|query| query.strip_prefix("nonce="));
    let proof = nonce
        .filter(|nonce| nonce.len() <= NONCE_CHARS)
        .map(|nonce| proof(&server.token, nonce));
    Json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION"), "proof": proof }))
        .into_response()
}

/// What only a holder of the home's token can answer to a nonce.
pub fn proof(token: &str, nonce: &str) -> String {
    let key = blake3::derive_key("stead node proof 1", token.as_bytes());
    blake3::keyed_hash(&key, nonce.as_bytes())
        .to_hex()
        .to_string()
}

/// Characters of a nonce: 32 bytes in hexadecimal.
const NONCE_CHARS: usize = 64;

async fn nothing() -> Response {
    refuse(StatusCode::NOT_FOUND, "there is nothing here")
}

impl Server {
    /// As whom a token speaks: this machine's own token for the owner or a local agent that it
    /// names, any other for its credential.
    fn caller(&self, token: &str, agent: Option<&str>) -> Result<Caller, Box<Response>> {
        let shared = self.node.shared();
        if bool::from(token.as_bytes().ct_eq(self.token.as_bytes())) {
            return self
                .node
                .local_caller(agent)
                .map_err(|refusal| Box::new(answer(Err(refusal))));
        }
        shared
            .roster
            .authenticate(token)
            .and_then(|credential| self.node.caller(credential.id))
            .ok_or_else(|| {
                Box::new(refuse(
                    StatusCode::UNAUTHORIZED,
                    "this token is not known here",
                ))
            })
    }

    /// Whether a token is this machine's or that of a live credential.
    fn knows(&self, token: &str) -> bool {
        bool::from(token.as_bytes().ct_eq(self.token.as_bytes()))
            || self.node.shared().roster.authenticate(token).is_some()
    }

    fn shutdown(&self, caller: &Caller) -> Result<Value, Refusal> {
        if caller.kind != stead_doc::context::CallerKind::Person {
            return Err(Refusal::new(
                Code::HumanRequired,
                "only a person may stop the node.",
                "Ask your supervisor.",
            ));
        }
        self.stop.send_replace(true);
        Ok(json!({ "stopping": true }))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    value
        .strip_prefix("Bearer ")
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

fn answer(result: Result<Value, Refusal>) -> Response {
    let body = match result {
        Ok(data) => json!({ "ok": true, "data": data }),
        Err(refusal) => json!({ "ok": false, "error": refusal.to_json() }),
    };
    Json(body).into_response()
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (
        status,
        Json(json!({ "ok": false, "error": { "code": "FORBIDDEN", "message": why, "hint": "" } })),
    )
        .into_response()
}
