// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3 for the HTTP interface: certificate and key from PEM files, looked at again every few seconds, so that a
//! renewed one is used without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("cannot read {what} {path}: {message}; PEM is expected, as `-----BEGIN ...`", path = path.display())]
    File {
        /// What it is.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The two do not make a server.
    #[error("[http] tls_certificate {certificate} and tls_key {key} cannot be used together: {source}", certificate = certificate.display(), key = key.display())]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What TLS said.
        source: rustls::Error,
    },
}

/// Certificate and key, as they are now.
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

/// What changes when a file is written or replaced.
type Stamp = [Option<(SystemTime, u64)>; 2];

impl Tls {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(certificate: &Path, key: &Path) -> Result<Arc<Self>, TlsError> {
        let config = RwLock::new(read(certificate, key)?);
        Ok(Arc::new(Self { certificate: certificate.into(), key: key.into(), config }))
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stamp(&self) -> Stamp {
        [&self.certificate, &self.key].map(|path| {
            let about = std::fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        })
    }

    /// Uses the files whenever they have changed; those that cannot be used are told, and the last good ones kept.
    /// Never ends.
    pub async fn follow(&self, say: impl Fn(&str)) {
        let mut seen = self.stamp();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.stamp();
            if now == seen {
                continue;
            }
            seen = now;
            match read(&self.certificate, &self.key) {
                Ok(config) => {
                    *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
                    say("[http] tls_certificate and tls_key have changed and are used now");
                }
                // Perhaps only one of the two is there yet: the other one's change is seen, too.
                Err(error) => say(&format!("{error}; the ones of before are used further")),
            }
        }
    }
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let file = |what, path: &Path, message: String| TlsError::File { what, path: path.into(), message };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| file("[http] tls_certificate", certificate, error.to_string()))?;
    let secret = PrivateKeyDer::from_pem_file(key);
    let secret = secret.map_err(|error| file("[http] tls_key", key, error.to_string()))?;
    if chain.is_empty() {
        return Err(file("[http] tls_certificate", certificate, "no certificate is in it".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
    let mut config =
        config.map_err(|source| TlsError::Pair { certificate: certificate.into(), key: key.into(), source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
