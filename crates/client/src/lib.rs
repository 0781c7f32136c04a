// SPDX-License-Identifier: Apache-2.0
//! Requests over HTTP to whom somebody has named: the controller, databases, Alertmanagers. There is no proxy and there
//! are no redirections: data and tokens go to nobody else.
#![forbid(unsafe_code)]

pub mod url;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

/// Why nobody can be asked by TLS.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    /// The file of certificate authorities.
    #[error("cannot use the certificate authorities of {path}: {what}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// There are none.
    #[error("this system has no certificate authorities: install ca-certificates, or name a file of them")]
    Nowhere,
}

/// Whoever asks under the name of `product`: a request takes no longer than `timeout`. For TLS, a server is whom one of the
/// authorities in `ca_file` vouches for, or one of the system's if there is no such file.
///
/// # Errors
/// For TLS: there are no authorities, or not in that file.
pub fn agent(
    product: &str,
    is_tls: bool,
    ca_file: Option<&Path>,
    timeout: Duration,
) -> Result<ureq::Agent, AuthoritiesError> {
    let mut config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_global(Some(timeout))
        .user_agent(format!("{product}/{}", env!("CARGO_PKG_VERSION")));
    if is_tls {
        let roots = authorities(ca_file)?;
        let roots: Vec<_> = roots.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots)));
        config = config.tls_config(tls.build());
    }
    Ok(config.build().new_agent())
}

fn authorities(path: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, AuthoritiesError> {
    let Some(path) = path else {
        let found = rustls_native_certs::load_native_certs().certs;
        return if found.is_empty() { Err(AuthoritiesError::Nowhere) } else { Ok(found) };
    };
    let wrong = |what: String| AuthoritiesError::File { path: path.to_owned(), what };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
    if found.is_empty() { Err(wrong("no certificate in it; PEM is wanted".to_owned())) } else { Ok(found) }
}

/// What went wrong with a request to a controller, and what to do; whoever asks has a `--ca FILE`.
#[must_use]
pub fn explain(error: &ureq::Error, is_tls: bool) -> String {
    use rustls::CertificateError::{BadSignature, Expired, NotValidForName, NotValidForNameContext, UnknownIssuer};
    let tls = match error {
        ureq::Error::Rustls(error) => Some(error.clone()),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()).cloned(),
        _ => None,
    };
    let next = match tls {
        Some(rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature)) => {
            "no certificate authority that is known here signed its certificate: give the one that did with --ca FILE"
        }
        Some(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
            "its certificate is for another name: use the name that the certificate has in the URL"
        }
        Some(rustls::Error::InvalidCertificate(Expired)) => "its certificate has expired; is this host's clock right?",
        Some(rustls::Error::InvalidMessage(_)) => "that is no TLS: is it http:// instead of https://?",
        Some(_) => "TLS is not possible with it",
        None if !is_tls && matches!(error, ureq::Error::Protocol(_)) => {
            "that is no HTTP: is it https:// instead of http://?"
        }
        None => "is this the controller's address, and is it well?",
    };
    format!("{error}; {next}")
}
