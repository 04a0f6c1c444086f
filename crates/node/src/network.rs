//! Listening beyond this machine: over TLS, or in the clear where somebody said so knowingly. Only
//! the agents' face is served there; the local API and the home's own token stay on loopback.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::Router;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use stead_doc::refusal::{Code, Refusal};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Connections at once; whoever comes beyond waits to be accepted. Descriptors are left for the
/// store and for this machine's own clients.
pub const NETWORK_CONNECTIONS: usize = 512;

/// How long a connection may be silent before a request, or within the head of one.
pub const HEAD_WAIT: Duration = Duration::from_secs(75);

/// How long a handshake may take: a peer that begins one and says no more holds its place so long.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// How to listen beyond this machine.
#[derive(Debug, Clone)]
pub struct Network {
    /// Where.
    pub address: SocketAddr,
    /// The certificate to show; nothing where all that is said may be read on the way.
    pub tls: Option<Arc<ServerConfig>>,
}

/// Reads a certificate chain and its key, both PEM.
///
/// # Errors
///
/// Where a file cannot be read, holds none, or they do not belong together.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, Refusal> {
    let wrong = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
        Refusal::argument(
            what,
            format!("{} cannot be used: {error}.", path.display()),
            "Give a PEM certificate chain and its PEM private key.",
        )
    };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong("tls-cert", certificate, &error))?;
    if chain.is_empty() {
        return Err(wrong("tls-cert", certificate, &"it holds no certificate"));
    }
    let secret =
        PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("tls-key", key, &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong("tls-cert", certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|error| wrong("tls-key", key, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Bound, and not yet accepting.
#[derive(Debug)]
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
}

/// Binds where `network` says.
///
/// # Errors
///
/// Where the address cannot be had.
pub(crate) async fn bind(network: &Network) -> Result<Bound, Refusal> {
    let failed = |error: io::Error| {
        Refusal::new(
            Code::Unavailable,
            format!("cannot listen on {}: {error}.", network.address),
            "Choose another address or port with --listen.",
        )
    };
    let listener = TcpListener::bind(network.address).await.map_err(failed)?;
    Ok(Bound {
        address: listener.local_addr().map_err(failed)?,
        listener,
        tls: network.tls.clone(),
    })
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What an origin of its own begins with.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Serves until it is told to stop, each connection in a task of its own; then until those that
    /// are under way have been answered.
    pub(crate) async fn serve(self, router: Router, stop: watch::Receiver<bool>) {
        let places = Arc::new(Semaphore::new(NETWORK_CONNECTIONS));
        let mut over = stop.clone();
        let mut open = JoinSet::new();
        loop {
            let Ok(place) = places.clone().acquire_owned().await else {
                break;
            };
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = told(&mut over) => break,
            };
            // Those that have ended are forgotten.
            while open.try_join_next().is_some() {}
            match accepted {
                Ok((stream, peer)) => {
                    let connection = Connection {
                        tls: self.tls.clone(),
                        router: router.clone(),
                        stop: stop.clone(),
                        peer,
                        _place: place,
                    };
                    open.spawn(connection.serve(stream));
                }
                // Out of descriptors, most likely: some are closed in a moment.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        while open.join_next().await.is_some() {}
    }
}

/// Until the node is to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // The sender is gone only with the node.
    drop(stop.wait_for(|stop| *stop).await);
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// One connection, whose place is free again when it ends.
struct Connection {
    tls: Option<Arc<ServerConfig>>,
    router: Router,
    stop: watch::Receiver<bool>,
    peer: SocketAddr,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream) {
        let peer = self.peer;
        let wire = match tokio::time::timeout(HANDSHAKE_WAIT, self.shake(stream)).await {
            Ok(Ok(wire)) => wire,
            Ok(Err(error)) => return tracing::debug!(%error, %peer, "a handshake failed"),
            Err(_) => return tracing::debug!(%peer, "a handshake took too long"),
        };
        let service = TowerToHyperService::new(self.router.clone());
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WAIT)
            .serve_connection(TokioIo::new(wire), service)
            .with_upgrades();
        tokio::pin!(served);
        let ended = tokio::select! {
            ended = &mut served => ended,
            () = told(&mut self.stop) => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, %peer, "a connection ended early");
        }
    }

    async fn shake(&self, stream: TcpStream) -> io::Result<Wire> {
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            Some(config) => {
                let acceptor = TlsAcceptor::from(config.clone());
                Wire::Tls(Box::new(acceptor.accept(stream).await?))
            }
            None => Wire::Plain(stream),
        })
    }
}

/// A connection from beyond this machine.
#[derive(Debug)]
pub(crate) enum Wire {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
