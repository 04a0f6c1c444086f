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

use axum::serve::Listener;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use stead_doc::refusal::{Code, Refusal};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Handshakes under way at once; whoever comes beyond waits to be accepted.
pub const HANDSHAKES: usize = 128;

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

/// Binds where `network` says.
///
/// # Errors
///
/// Where the address cannot be had.
pub(crate) async fn bind(network: &Network) -> Result<NetworkListener, Refusal> {
    let failed = |error: io::Error| {
        Refusal::new(
            Code::Unavailable,
            format!("cannot listen on {}: {error}.", network.address),
            "Choose another address or port with --listen.",
        )
    };
    let listener = TcpListener::bind(network.address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (sender, accepted) = mpsc::channel(HANDSHAKES);
    tokio::spawn(accept(listener, network.tls.clone(), sender));
    Ok(NetworkListener {
        address,
        encrypted: network.tls.is_some(),
        accepted,
    })
}

/// Accepts connections, each handshake in a task of its own, until nobody wants them any more.
async fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    sender: mpsc::Sender<(Wire, SocketAddr)>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of descriptors, most likely: some are closed in a moment.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (tls, sender) = (tls.clone(), sender.clone());
        tokio::spawn(async move {
            let shaken = tokio::time::timeout(HANDSHAKE_WAIT, shake(stream, tls)).await;
            match shaken {
                Ok(Ok(wire)) => drop(sender.send((wire, peer)).await),
                Ok(Err(error)) => tracing::debug!(%error, %peer, "a handshake failed"),
                Err(_) => tracing::debug!(%peer, "a handshake took too long"),
            }
            drop(place);
        });
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

async fn shake(stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Wire> {
    stream.set_nodelay(true)?;
    Ok(match tls {
        Some(config) => Wire::Tls(Box::new(TlsAcceptor::from(config).accept(stream).await?)),
        None => Wire::Plain(stream),
    })
}

/// Gives connections whose handshake is over.
#[derive(Debug)]
pub(crate) struct NetworkListener {
    address: SocketAddr,
    encrypted: bool,
    accepted: mpsc::Receiver<(Wire, SocketAddr)>,
}

impl NetworkListener {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.encrypted { "https" } else { "http" }
    }
}

impl Listener for NetworkListener {
    type Io = Wire;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task that accepts is gone with the runtime, and so is whoever waits here.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
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
