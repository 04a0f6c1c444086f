//! Listening beyond this machine: what is served there, to whom, and how.

use std::{net::SocketAddr, sync::Arc};

use axum::{Extension, Router, routing::get};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::json;
use stead_doc::context::Caller;
use stead_node::{
    edge::Machine,
    handle::{Node, open_home},
    home::{Home, InitOptions},
    http::{self, Settings},
    network::{self, Network},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

/// A node that listens on loopback, and on another port as if beyond this machine.
struct Served {
    dir: TempDir,
    address: SocketAddr,
    network: SocketAddr,
    token: String,
    stop: tokio::sync::watch::Sender<bool>,
    ended: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn start(dir: TempDir, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let home = Home::at(dir.path().join("home"));
        let init = InitOptions::default();
        home.init(&Machine, &init).unwrap();
        let node: Node = open_home(&home, Arc::new(Machine)).unwrap();
        let owner = node.local_caller(None).unwrap();
        let added = node.call(&owner, "agent_add", json!({ "name": "remote" }));
        let token = added.unwrap()["token"].as_str().unwrap().to_owned();
        let settings = Settings {
            network: Some(Network {
                address: ([127, 0, 0, 1], 0).into(),
                tls,
            }),
            // Stands for the agents' face: says who came in.
            faces: Router::new().route(
                "/mcp",
                get(|Extension(caller): Extension<Caller>| async move { caller.member }),
            ),
            ..Settings::default()
        };
        let listening = http::listen(node, home, settings).await.unwrap();
        Self {
            address: listening.address(),
            network: listening.network_address().unwrap(),
            stop: listening.stopper(),
            ended: tokio::spawn(listening.serve()),
            dir,
            token,
        }
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        self.ended.await.unwrap().unwrap();
    }
}

/// The status of one request.
async fn status(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    line: &str,
    headers: &[String],
) -> u16 {
    let mut request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn bearer(token: &str) -> Vec<String> {
    vec![format!("Authorization: Bearer {token}")]
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_this_machine_agents_are_served_and_nothing_else() {
    let served = Served::start(tempfile::tempdir().unwrap(), None).await;
    let (network, host) = (served.network, served.network.to_string());
    let own = std::fs::read_to_string(served.dir.path().join("home/token")).unwrap();
    let ask = |line: &'static str, headers: Vec<String>, host: String| async move {
        let stream = TcpStream::connect(network).await.unwrap();
        status(stream, &host, line, &headers).await
    };
    assert_eq!(
        ask("GET /mcp", bearer(&served.token), host.clone()).await,
        200
    );
    assert_eq!(ask("GET /mcp", vec![], host.clone()).await, 401);
    // The home's own token is this machine's, and so is the command line's side.
    let mut named = bearer(&own);
    named.push("Stead-Agent: remote".into());
    assert_eq!(ask("GET /mcp", named, host.clone()).await, 401);
    assert_eq!(
        ask("POST /api/v1/call", bearer(&served.token), host.clone()).await,
        404
    );
    assert_eq!(
        ask("GET /api/v1/health", bearer(&served.token), host.clone()).await,
        404
    );
    assert_eq!(
        ask("GET /mcp", bearer(&served.token), "localhost".into()).await,
        403
    );
    let mut foreign = bearer(&served.token);
    foreign.push("Origin: http://evil.example".into());
    assert_eq!(ask("GET /mcp", foreign, host).await, 403);
    let local = TcpStream::connect(served.address).await.unwrap();
    let host = served.address.to_string();
    assert_eq!(status(local, &host, "GET /api/v1/health", &[]).await, 200);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_certificate_it_is_served_over_tls_and_a_silent_peer_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let trusted: CertificateDer<'static> = made.cert.der().clone();
    let tls = network::tls(&certificate, &key).unwrap();
    let served = Served::start(dir, Some(tls)).await;

    // Begins a handshake and says no more.
    let silent = TcpStream::connect(served.network).await.unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(client));
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(served.network).await.unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let host = served.network.to_string();
    let mut headers = bearer(&served.token);
    headers.push(format!("Origin: https://{host}"));
    assert_eq!(status(stream, &host, "GET /mcp", &headers).await, 200);

    // In the clear there is nothing to be had.
    let mut plain = TcpStream::connect(served.network).await.unwrap();
    plain.write_all(b"GET /mcp HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    // It may be reset before it is read to its end.
    drop(plain.read_to_end(&mut answer).await);
    assert!(!answer.starts_with(b"HTTP"));
    drop(silent);
    served.stop().await;
}

#[test]
fn files_that_are_no_certificate_or_no_key_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(place("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(place("other.pem"), other.signing_key.serialize_pem()).unwrap();
    std::fs::write(place("empty.pem"), "").unwrap();
    for (certificate, key, field) in [
        ("missing.pem", "other.pem", "tls-cert"),
        ("empty.pem", "other.pem", "tls-cert"),
        ("cert.pem", "empty.pem", "tls-key"),
        ("cert.pem", "missing.pem", "tls-key"),
        ("cert.pem", "other.pem", "tls-key"),
    ] {
        let refusal = network::tls(&place(certificate), &place(key)).unwrap_err();
        assert_eq!(
            refusal.details["field"], field,
            "{certificate} {key}: {refusal}"
        );
    }
}
