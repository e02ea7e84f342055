//! Encryption of connections to PostgreSQL, as libpq's sslmode understands it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::{Error, SslMode};

pub(crate) fn config(mode: &SslMode) -> Result<ClientConfig, Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("TLS cannot be set up: {error}")))?;
    let config = match mode {
        SslMode::VerifyFull { root_certificate } => {
            let wrong = |error: &dyn std::fmt::Display| {
                Error::invalid(format!("sslrootcert {}: {error}", root_certificate.display()))
            };
            let mut roots = RootCertStore::empty();
            for certificate in
                CertificateDer::pem_file_iter(root_certificate).map_err(|error| wrong(&error))?
            {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"it holds no certificate"));
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        SslMode::Disable | SslMode::Prefer | SslMode::Require => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
    };
    Ok(config)
}

/// Encrypts without asking who is on the other side: what `prefer` and `require` mean in libpq. The server
/// must still prove that it holds the key of the certificate it shows.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
