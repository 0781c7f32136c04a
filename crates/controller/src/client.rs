// SPDX-License-Identifier: Apache-2.0
//! HTTP requests to whom the configuration names, databases and Alertmanagers. There is no proxy and there are no
//! redirects: data and tokens go to nobody else.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// So much of an answer is read, and shown.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
const SHOWN_CHARS: usize = 300;

/// Why nobody can be asked by TLS.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The file of certificate authorities.
    #[error("cannot use the certificate authorities of {path}: {what}", path = path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There are none.
    #[error("this system has no certificate authorities: install ca-certificates, or name a file of them")]
    NoAuthorities,
}

/// Whoever asks this URL: a request takes no longer than `timeout`, and a server is whom one of these authorities vouches
/// for, or one of the system's if the path is empty.
pub(crate) fn agent(url: &str, ca_file: &Path, timeout: Duration) -> Result<ureq::Agent, ClientError> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_global(Some(timeout))
        .user_agent(concat!("onlooker/", env!("CARGO_PKG_VERSION")));
    if url.starts_with("https://") {
        let roots = authorities(ca_file)?;
        let roots: Vec<_> = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots)));
        config = config.tls_config(tls.build());
    }
    Ok(config.build().new_agent())
}

/// The beginning of what an answer says, for people. It is read, so that the connection can be used again.
pub(crate) fn text(answer: &mut ureq::http::Response<ureq::Body>) -> String {
    let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).lossy_utf8(true).read_to_string();
    text.unwrap_or_default().chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect()
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    if path.as_os_str().is_empty() {
        let found = rustls_native_certs::load_native_certs().certs;
        return if found.is_empty() { Err(ClientError::NoAuthorities) } else { Ok(found) };
    }
    let wrong = |what: String| ClientError::Authorities { path: path.to_owned(), what };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("no certificate in it; PEM is wanted".to_owned())) } else { Ok(found) }
}
