//! The local HTTP API: one method call a request, on loopback, behind a token.
//!
//! Every request is hostile until its `Host` is ours and its token is known: a page in a browser
//! can reach loopback too, and a name can be rebound to it.

use std::{
    future::IntoFuture as _,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::ListenerExt as _,
};
use serde_json::{Value, json};
use stead_doc::{
    context::Caller,
    refusal::{Code, Refusal},
};
use subtle::ConstantTimeEq;
use tokio::{net::TcpListener, sync::watch, time::Instant};

use crate::{
    api::METHODS,
    handle::Node,
    home::{Home, HomeError, NodeFile},
    network::{self, Bound, Network},
};

/// Bytes of one request: a hundred imported issues of the largest size that a change holds would
/// be more, but they come in calls of about 4 MiB.
pub const BODY_BYTES: usize = 16 << 20;

/// How long requests under way may take once the node is to stop.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// How a node listens, and what it serves beside the local API.
#[derive(Debug)]
pub struct Settings {
    /// The port on loopback; any free one where nothing is said.
    pub port: Option<u16>,
    /// Names beside loopback's that a `Host` may have, each with its port or for any port.
    pub allow_hosts: Vec<String>,
    /// Where else, beyond this machine, the agents' face is served.
    pub network: Option<Network>,
    /// Ends the node once nobody was connected and nothing was asked for so long.
    pub idle_exit: Option<Duration>,
    /// What else is served behind the same gate: the agents' face. Requests under `/mcp` reach it
    /// with a [`Caller`] among their extensions.
    pub faces: Router,
    /// Set to true, it ends the node.
    pub stop: watch::Sender<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            port: None,
            allow_hosts: Vec::new(),
            network: None,
            idle_exit: None,
            faces: Router::new(),
            stop: watch::channel(false).0,
        }
    }
}

/// What serves requests.
#[derive(Debug, Clone)]
struct Server {
    node: Node,
    token: Arc<str>,
    address: SocketAddr,
    allow_hosts: Arc<[String]>,
    /// Whether this side is reached from this machine alone.
    local: bool,
    /// What an origin of its own begins with.
    scheme: &'static str,
    stop: watch::Sender<bool>,
    /// When somebody last asked something.
    asked: watch::Sender<Instant>,
    /// Whether an agent's client came over HTTP, whose sessions and streams outlive its requests.
    agents_came: Arc<AtomicBool>,
}

/// A node that listens.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    server: Server,
    home: Home,
    faces: Router,
    network: Option<Bound>,
    idle_exit: Option<Duration>,
}

impl Listening {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Where it listens beyond this machine.
    pub fn network_address(&self) -> Option<SocketAddr> {
        self.network.as_ref().map(Bound::address)
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
            faces,
            network,
            idle_exit,
        } = self;
        let node = server.node.clone();
        let mut stopped = server.stop.subscribe();
        if let Some(idle) = idle_exit {
            tokio::spawn(server.clone().end_when_idle(idle));
        }
        let beyond =
            network.map(|network| tokio::spawn(serve_network(network, &server, faces.clone())));
        let router = Router::new()
            .route(CALL, post(call))
            .route("/api/v1/health", get(health))
            .fallback(nothing)
            .with_state(server.clone())
            .merge(faces)
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn_with_state(server, admit));
        let mut over = stopped.clone();
        // What is written is small and waited for.
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection waits to fill its packets");
            }
        });
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
        drop(tokio::time::timeout(STOP_GRACE, ended(&node, beyond)).await);
        let closed = tokio::task::spawn_blocking(move || node.stop()).await;
        if let Err(error) = closed {
            tracing::error!(%error, "closing the node failed");
        }
        served
    }
}

/// Until nothing that outlives a request is open any more.
async fn ended(node: &Node, beyond: Option<tokio::task::JoinHandle<()>>) {
    if let Some(beyond) = beyond
        && let Err(error) = beyond.await
    {
        tracing::error!(%error, "listening beyond this machine ended in a fault");
    }
    while !node.connections().is_empty() {
        tokio::time::sleep(CLOSE_STEP).await;
    }
}

/// How often is looked whether the last bridge has ended.
const CLOSE_STEP: Duration = Duration::from_millis(5);

/// Serves the agents' face, and nothing else, beyond this machine.
fn serve_network(
    listener: Bound,
    server: &Server,
    faces: Router,
) -> impl Future<Output = ()> + Send + 'static {
    let server = Server {
        address: listener.address(),
        local: false,
        scheme: listener.scheme(),
        ..server.clone()
    };
    let stop = server.stop.subscribe();
    let router = Router::new()
        .fallback(nothing)
        .merge(faces)
        .layer(middleware::from_fn_with_state(server, admit));
    listener.serve(router, stop)
}

/// Listens on loopback and says so in the home.
///
/// # Errors
///
/// Where the address is taken or not loopback, or the home cannot be written.
pub async fn listen(node: Node, home: Home, settings: Settings) -> Result<Listening, Refusal> {
    let address = SocketAddr::from(([127, 0, 0, 1], settings.port.unwrap_or(0)));
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
    let network = match &settings.network {
        Some(network) => Some(network::bind(network).await?),
        None => None,
    };
    // Last, so that nothing that fails leaves it behind.
    home.write_node_file(&NodeFile {
        address: address.to_string(),
        pid: std::process::id(),
    })?;
    let server = Server {
        node,
        token: token.into(),
        address,
        local: true,
        scheme: "http",
        allow_hosts: settings.allow_hosts.into(),
        stop: settings.stop,
        asked: watch::channel(Instant::now()).0,
        agents_came: Arc::default(),
    };
    Ok(Listening {
        listener,
        server,
        home,
        faces: settings.faces,
        network,
        idle_exit: settings.idle_exit,
    })
}

/// Lets a request pass whose `Host` names this listener and whose token is known.
async fn admit(State(server): State<Server>, mut request: Request, next: Next) -> Response {
    server.asked.send_replace(Instant::now());
    let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
    let [host] = hosts.as_slice() else {
        return refuse(StatusCode::FORBIDDEN, "one Host header is needed");
    };
    if !host.to_str().is_ok_and(|host| server.is_called(host, None)) {
        return refuse(
            StatusCode::FORBIDDEN,
            "this Host is not served here; start the node with --allow-host to serve it",
        );
    }
    // Nothing of ours is on another origin; a page that is may not even ask.
    for origin in request.headers().get_all(header::ORIGIN) {
        let same = origin
            .to_str()
            .ok()
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(scheme, host)| server.is_called(host, Some(scheme)));
        if !same {
            return refuse(StatusCode::FORBIDDEN, "this Origin is not served here");
        }
    }
    // Before a body is read: a stranger's is not worth the memory.
    let path = request.uri().path();
    let for_agents = path == AGENTS || path.starts_with("/mcp/");
    if path == CALL || for_agents {
        let Some(token) = bearer(request.headers()).filter(|token| server.knows(token)) else {
            let mut response = refuse(
                StatusCode::UNAUTHORIZED,
                "a bearer token that is known here is needed",
            );
            let challenge = HeaderValue::from_static("Bearer realm=\"stead\"");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, challenge);
            return response;
        };
        if for_agents {
            if path == AGENTS {
                server.agents_came.store(true, Ordering::Relaxed);
            }
            match server.agent(token, request.headers()) {
                Ok(caller) => {
                    request.extensions_mut().insert(caller);
                }
                Err(response) => return *response,
            }
        }
    }
    next.run(request).await
}

/// The target of the audit trail: who called what and how it ended.
pub const AUDIT: &str = "stead::audit";

/// Where agents' clients ask.
const AGENTS: &str = "/mcp";

/// Names, percent-encoded, the local agent as whom a holder of the home's own token acts.
pub const AGENT_HEADER: &str = "stead-agent";

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
    let started = Instant::now();
    // What a caller calls a method is text of theirs, unless there is such a method.
    let name = METHODS.iter().find(|known| **known == method).copied();
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
        target: AUDIT,
        credential,
        method = name.unwrap_or("unknown"),
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

/// How often an idle node looks whether somebody is still connected.
const IDLE_STEP: Duration = Duration::from_millis(250);

async fn nothing() -> Response {
    refuse(StatusCode::NOT_FOUND, "there is nothing here")
}

impl Server {
    /// Whether a `Host`, or the host of an origin with its scheme, is one under which this node may
    /// be asked. A name that was allowed may stand for a proxy that speaks either scheme.
    fn is_called(&self, host: &str, scheme: Option<&str>) -> bool {
        let port = self.address.port();
        let own = if self.local {
            ["127.0.0.1", "localhost", "[::1]"]
                .iter()
                .any(|name| format!("{name}:{port}").eq_ignore_ascii_case(host))
        } else {
            self.address.to_string() == host
        };
        let named = || {
            let without_port = host.rsplit_once(':').map_or(host, |(name, port)| {
                let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                if is_port { name } else { host }
            });
            self.allow_hosts.iter().any(|known| {
                known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(without_port)
            })
        };
        let web = scheme.is_none_or(|scheme| ["http", "https"].contains(&scheme));
        (own && scheme.is_none_or(|scheme| scheme == self.scheme)) || (web && named())
    }

    /// As which agent a request under `/mcp` acts. The home's own token is its owner's: with it
    /// comes the name of a local agent, because no agent acts as a person.
    fn agent(&self, token: &str, headers: &HeaderMap) -> Result<Caller, Box<Response>> {
        let name = headers.get(AGENT_HEADER).map(|name| {
            let name = percent_encoding::percent_decode(name.as_bytes());
            name.decode_utf8_lossy().into_owned()
        });
        let caller = self.caller(token, name.as_deref())?;
        if caller.kind == stead_doc::context::CallerKind::Person {
            return Err(Box::new(refuse(
                StatusCode::FORBIDDEN,
                "this token is a person's; agents connect with a credential of their own (stead agent add NAME)",
            )));
        }
        Ok(caller)
    }

    /// Ends the node once nobody was connected and nothing was asked for `idle`. One that served a
    /// client over HTTP stays: that client comes back where it was.
    async fn end_when_idle(self, idle: Duration) {
        let mut asked = self.asked.subscribe();
        loop {
            if self.agents_came.load(Ordering::Relaxed) {
                return;
            }
            let last = *asked.borrow_and_update();
            if self.node.connections().is_empty() && last.elapsed() >= idle {
                tracing::info!("nobody is here any more: the node ends");
                self.stop.send_replace(true);
                return;
            }
            let wait = idle.saturating_sub(last.elapsed()).max(IDLE_STEP);
            tokio::time::sleep(wait).await;
        }
    }

    /// As whom a token speaks: this machine's own token for the owner or a local agent that it
    /// names, any other for its credential.
    fn caller(&self, token: &str, agent: Option<&str>) -> Result<Caller, Box<Response>> {
        let shared = self.node.shared();
        if self.is_home(token) {
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
        self.is_home(token) || self.node.shared().roster.authenticate(token).is_some()
    }

    /// Whether a token is this home's own, which counts on this machine alone.
    fn is_home(&self, token: &str) -> bool {
        self.local && bool::from(token.as_bytes().ct_eq(self.token.as_bytes()))
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
    let (scheme, token) = value.split_once(' ')?;
    // The scheme's name has no case (RFC 9110, 11.1), and clients write it in both.
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then_some(token.trim())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        bearer(&headers).map(str::to_owned)
    }

    #[test]
    fn a_bearer_token_is_found_whatever_the_case_of_its_scheme() {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(token(&format!("{scheme}  x ")), Some("x".to_owned()));
        }
        for wrong in ["", "Bearer", "Bearer ", "Bearerx", "Basic x", "x"] {
            assert_eq!(token(wrong), None, "{wrong:?}");
        }
    }
}
