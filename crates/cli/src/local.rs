//! The glue to the node: everything that a command does with a store in this process. The only
//! file that opens one.

use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use stead_doc::{
    context::Caller,
    refusal::{Code, Refusal},
};
use stead_node::{
    api,
    edge::{Machine, World as _},
    handle::{Node, open_home},
    home::Home,
    http,
    network::Network,
};

use crate::client::{self, Backend, Identity};

/// What `init` and `up` need to make a workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct InitOptions {
    /// The workspace's name.
    pub(crate) name: Option<String>,
    /// The first member's name.
    pub(crate) member: Option<String>,
    /// The first member's address.
    pub(crate) email: Option<String>,
    /// The first project's slug.
    pub(crate) project: Option<String>,
}

/// What `init` made.
#[derive(Debug, Clone)]
pub(crate) struct InitReport {
    /// The workspace's name.
    pub(crate) workspace_name: String,
    /// The workspace's id.
    pub(crate) workspace_id: String,
    /// The first member's name.
    pub(crate) member: String,
    /// The first project's slug, where one was made.
    pub(crate) project: Option<String>,
    /// Shown once; nothing on this machine keeps it.
    pub(crate) recovery_key: String,
    /// Where it all is.
    pub(crate) home: PathBuf,
}

/// A node that has started to listen.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    /// Where the board is.
    pub(crate) url: String,
    /// Where agents beyond this machine reach it.
    pub(crate) network: Option<String>,
    /// A local agent by whose name a client can be connected.
    pub(crate) agent: Option<String>,
}

/// Where a home is when nobody says: `STEAD_HOME` is read by the caller; else the platform's place
/// for data. Nothing where the environment names no place.
pub(crate) fn default_home() -> Option<PathBuf> {
    Home::default_path(&|name| std::env::var_os(name).map(PathBuf::from))
}

/// The same for a program that another one starts: such a program is told where its user's home is
/// and little else.
pub(crate) fn default_home_when_started() -> Option<PathBuf> {
    Home::default_path(&|name| match name {
        "XDG_DATA_HOME" => None,
        name => std::env::var_os(name).map(PathBuf::from),
    })
}

/// A nonce that nobody can guess, and what the node of the home's token answers to it.
pub(crate) fn challenge(token: &str) -> (String, String) {
    let nonce: String = Machine
        .entropy()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let proof = http::proof(token, &nonce);
    (nonce, proof)
}

/// Whether a home holds a workspace.
pub(crate) fn is_made(home: &Path) -> bool {
    Home::at(home).is_made()
}

/// Opens the store of a home in this process.
///
/// # Errors
///
/// `UNAVAILABLE` where there is no store, or somebody else has it; see [`LockWait`].
pub(crate) fn open(home: &Path, identity: &Identity) -> Result<Box<dyn Backend>, Refusal> {
    let node = open_home(&Home::at(home), Arc::new(Machine))?;
    let caller = match &identity.token {
        Some(token) => {
            let shared = node.shared();
            let known = shared
                .roster
                .authenticate(token)
                .map(|credential| credential.id);
            known.and_then(|id| node.caller(id)).ok_or_else(|| {
                Refusal::new(
                    Code::Forbidden,
                    "the token of STEAD_TOKEN is not known in this workspace.",
                    "Ask your supervisor for a new one, or unset STEAD_TOKEN.",
                )
            })?
        }
        None => node.local_caller(identity.agent.as_deref())?,
    };
    Ok(Box::new(InProcess { node, caller }))
}

struct InProcess {
    node: Node,
    caller: Caller,
}

impl Backend for InProcess {
    fn call(&self, method: &str, arguments: Value) -> Result<Value, Refusal> {
        // As over HTTP: what a damaged file makes of a call is an answer, not a crash.
        catch_unwind(AssertUnwindSafe(|| {
            self.node.call(&self.caller, method, arguments)
        }))
        .unwrap_or_else(|_| {
            Err(Refusal::new(
                Code::Unavailable,
                "the call met a fault.",
                "Run `stead doctor` on this machine, or restore a backup with `stead restore`.",
            ))
        })
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.node.stop();
    }
}

/// Waits for a store that another process has for a moment.
pub(crate) struct LockWait(Instant);

impl LockWait {
    /// From now on.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Where the refusal says that the store is taken, waits a step; false once it was long enough.
    pub(crate) fn goes_on(&self, refusal: &Refusal) -> bool {
        let goes_on = is_locked(refusal) && self.0.elapsed() < LOCK_WAIT;
        if goes_on {
            std::thread::park_timeout(LOCK_STEP);
        }
        goes_on
    }
}

/// Whether another process has the store.
pub(crate) fn is_locked(refusal: &Refusal) -> bool {
    refusal.details.contains_key("locked")
}

/// How long a command waits for another one's store.
const LOCK_WAIT: Duration = Duration::from_secs(10);
const LOCK_STEP: Duration = Duration::from_millis(10);

/// The local agent that `up` makes, so that a client can be connected before anything else is set
/// up, and that `stead mcp` is where nobody is named. No agent acts as its person.
pub(crate) const FIRST_AGENT: &str = "agent";

/// Makes home, device key, workspace, member, and what else is asked for.
///
/// # Errors
///
/// Where there is one already, or the home cannot be written.
pub(crate) fn init(home: &Path, options: &InitOptions) -> Result<InitReport, Refusal> {
    let place = Home::at(home);
    let member = options.member.clone().or_else(|| {
        ["USER", "USERNAME", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
            .filter(|name| !name.is_empty())
    });
    let made = place.init(
        &Machine,
        &stead_node::home::InitOptions {
            name: options.name.clone(),
            member,
            email: options.email.clone(),
        },
    )?;
    let backend = client::connect(home, &Identity::default())?;
    if let Some(project) = &options.project {
        let arguments = serde_json::json!({ "slug": project, "name": project });
        backend.call("project_add", arguments)?;
    }
    drop(backend);
    Ok(InitReport {
        workspace_name: made.workspace_name,
        workspace_id: made.workspace_id,
        member: made.member,
        project: options.project.clone(),
        recovery_key: made.recovery_key,
        home: home.to_owned(),
    })
}

/// How a node serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Serving {
    /// The port on loopback.
    pub(crate) port: Option<u16>,
    /// Host names that it answers to beside loopback's.
    pub(crate) allow_hosts: Vec<String>,
    /// Where else agents are served.
    pub(crate) network: Option<Network>,
    /// Whether to make [`FIRST_AGENT`] where no local agent is.
    pub(crate) first_agent: bool,
    /// Ends it once nobody needed it for so long.
    pub(crate) idle_exit: Option<Duration>,
}

/// Where agents are served beyond loopback, with a certificate and its key or in the clear.
///
/// # Errors
///
/// Where the files cannot be used.
pub(crate) fn network(
    address: SocketAddr,
    tls: Option<(&PathBuf, &PathBuf)>,
) -> Result<Network, Refusal> {
    let tls = tls
        .map(|(certificate, key)| stead_node::network::tls(certificate, key))
        .transpose()?;
    Ok(Network { address, tls })
}

/// Runs a node until it is told to stop; calls back once it listens.
///
/// # Errors
///
/// Where it cannot start, or its store fails.
pub(crate) fn serve(
    home: &Path,
    serving: Serving,
    ready: &mut dyn FnMut(&Ready),
) -> Result<(), Refusal> {
    let place = Home::at(home);
    let wait = LockWait::begin();
    let node = loop {
        match open_home(&place, Arc::new(Machine)) {
            // A node that listens already keeps the store for good.
            Err(refusal)
                if client::running(home, &Identity::default())?.is_none()
                    && wait.goes_on(&refusal) => {}
            opened => break opened?,
        }
    };
    let failed = |error: std::io::Error| {
        Refusal::new(
            Code::Unavailable,
            format!("the node ended: {error}."),
            "Start it again.",
        )
    };
    let agent = if serving.first_agent {
        first_agent(&node)
    } else {
        None
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let encrypted = serving
        .network
        .as_ref()
        .is_some_and(|network| network.tls.is_some());
    runtime.block_on(async {
        let settings = http::Settings {
            port: serving.port,
            allow_hosts: serving.allow_hosts,
            network: serving.network,
            idle_exit: serving.idle_exit,
            ..http::Settings::default()
        };
        let faces = stead_mcp::router(node.clone(), settings.stop.subscribe());
        let settings = http::Settings { faces, ..settings };
        let listening = http::listen(node, place, settings).await?;
        ready(&Ready {
            url: format!("http://{}", listening.address()),
            agent,
            network: listening.network_address().map(|address| {
                let scheme = if encrypted { "https" } else { "http" };
                format!("{scheme}://{address}/mcp")
            }),
        });
        let stop = listening.stopper();
        tokio::spawn(async move {
            interrupted().await;
            stop.send_replace(true);
        });
        listening.serve().await.map_err(failed)
    })
}

/// A local agent's name; one is made where there is none, unless its name was given to another.
fn first_agent(node: &Node) -> Option<String> {
    let owner = node.local_caller(None).ok()?;
    let listed = node.call(&owner, "agent_list", Value::Null).ok()?;
    let is = |agent: &Value, name: &str| agent.get(name).and_then(Value::as_bool) == Some(true);
    let mut local: Vec<&str> = listed
        .get("agents")
        .and_then(Value::as_array)?
        .iter()
        .filter(|agent| is(agent, "live") && is(agent, "local"))
        .filter_map(|agent| agent.get("name")?.as_str())
        .collect();
    local.sort_by_key(|name| (*name != FIRST_AGENT, *name));
    if let Some(name) = local.first() {
        return Some((*name).to_owned());
    }
    let arguments = serde_json::json!({ "name": FIRST_AGENT, "local": true });
    node.call(&owner, "agent_add", arguments).ok()?;
    Some(FIRST_AGENT.to_owned())
}

/// Waits for the signal that ends a process kindly.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            }
            Err(error) => {
                tracing::warn!(%error, "SIGTERM is not watched");
                drop(tokio::signal::ctrl_c().await);
            }
        }
    }
    #[cfg(not(unix))]
    drop(tokio::signal::ctrl_c().await);
}

/// Makes a home out of a backup, under a new generation.
///
/// # Errors
///
/// Where the file is no backup, or the home already holds a workspace.
pub(crate) fn restore(home: &Path, backup: &Path) -> Result<Value, Refusal> {
    api::restore(&Home::at(home), backup, &Machine)
}
