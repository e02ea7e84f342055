//! A door to a store: the listener's connections, plain or in TLS, each served in its own task.

use std::sync::Arc;

use polyshard_wire::{Connection, Listener, Served, Shutdown};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::connection;
use crate::{Accounts, Limits, Scheme, Service, Surroundings};

/// All that a door is made of.
#[derive(Clone)]
pub struct Door {
    /// The store behind it.
    pub service: Arc<dyn Service>,
    /// The accounts it serves.
    pub accounts: Arc<Accounts>,
    /// Clock and randomness.
    pub surroundings: Arc<dyn Surroundings>,
    /// Plain, or TLS.
    pub transport: Transport,
    /// What one connection may use.
    pub limits: Limits,
}

/// What requests come through.
#[derive(Clone)]
pub enum Transport {
    /// Plain TCP.
    Plain,
    /// TLS.
    Tls(Arc<ServerConfig>),
}

/// A certificate or key that TLS cannot be served with; the operator must give others.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's file holds none.
    #[error("no certificate in PEM form was found; give the server's certificate, followed by its issuers")]
    Certificate,
    /// The key's file holds none.
    #[error(
        "no private key in PEM form was found; give the key of the server's certificate, without a passphrase"
    )]
    Key,
    /// They do not go together, or are of a kind that cannot be used.
    #[error("certificate and private key cannot be used: {0}; make sure that they belong together")]
    Pair(#[from] rustls::Error),
}

impl Transport {
    /// TLS with a certificate chain and its private key, both in PEM form.
    pub fn tls_from_pem(certificates: &[u8], key: &[u8]) -> Result<Transport, TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Transport::Tls(Arc::new(config)))
    }
}

/// Serves a store until `shutdown` starts: requests in hand are finished, then connections are closed.
pub async fn serve(listener: Listener, shutdown: Shutdown, door: Door) -> Served {
    let door = Arc::new(door);
    listener.serve(shutdown, move |connection| handle(connection, Arc::clone(&door))).await
}

async fn handle(connection: Connection, door: Arc<Door>) {
    let Connection { stream, peer, shutdown, guard } = connection;
    match &door.transport {
        Transport::Plain => {
            connection::run(stream, peer, &shutdown, &door, Scheme::Http, guard.requests()).await
        }
        Transport::Tls(config) => {
            let handshake = TlsAcceptor::from(Arc::clone(config)).accept(stream);
            match tokio::time::timeout(door.limits.head_time, handshake).await {
                Ok(Ok(stream)) => {
                    connection::run(stream, peer, &shutdown, &door, Scheme::Https, guard.requests()).await;
                }
                Ok(Err(error)) => debug!(%error, "the TLS handshake failed"),
                Err(_) => debug!("the TLS handshake took too long"),
            }
        }
    }
    drop(guard);
}
