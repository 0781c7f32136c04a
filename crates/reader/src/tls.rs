// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3 towards exactly one certificate: the one that the token names.

use onlooker_bootstrap::Fingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, PeerIncompatible, SignatureScheme};
use std::sync::{Arc, OnceLock};

/// Accepts the certificate with one fingerprint, whatever its names, issuer and dates say; keeps any other one's fingerprint for the error message.
#[derive(Debug)]
pub(crate) struct Pinned {
    expected: Fingerprint,
    other: OnceLock<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    pub(crate) fn new(expected: Fingerprint) -> Arc<Self> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        Arc::new(Self { expected, other: OnceLock::new(), provider })
    }

    pub(crate) fn expected(&self) -> Fingerprint {
        self.expected
    }

    /// The certificate that was not the expected one, if the server showed such.
    pub(crate) fn other(&self) -> Option<Fingerprint> {
        self.other.get().copied()
    }

    /// A client that accepts nobody else. No name is sent, no session kept.
    pub(crate) fn config(self: &Arc<Self>) -> Result<Arc<ClientConfig>, rustls::Error> {
        let mut config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(self.clone())
            .with_no_client_auth();
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Arc::new(config))
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer,
        _intermediates: &[CertificateDer],
        _server_name: &ServerName,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let got = Fingerprint::of_certificate(end_entity);
        if got == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let _ = self.other.set(got);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    /// What makes the pin worth anything: the server proves that it has the certificate's key.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
