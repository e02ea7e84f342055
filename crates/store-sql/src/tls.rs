//! Encryption of clients' connections.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// A certificate or key that cannot be used; the operator must give others.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate's file holds none.
    #[error("no certificate in PEM form was found; give the server's certificate, followed by its issuers")]
    Certificate,
    /// The key's file holds none.
    #[error("no private key in PEM form was found; give the key of the certificate, without a passphrase")]
    Key,
    /// They do not go together, or are of a kind that cannot be used.
    #[error("certificate and private key cannot be used: {0}; make sure that they belong together")]
    Pair(#[from] rustls::Error),
}

/// Encrypts with a certificate chain and its private key, both in PEM form.
pub fn tls_from_pem(certificates: &[u8], key: &[u8]) -> Result<TlsAcceptor, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?.with_no_client_auth();
    Ok(TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key)?)))
}
