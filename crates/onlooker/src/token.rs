// SPDX-License-Identifier: Apache-2.0
//! Where the join token comes from.

use onlooker_bootstrap::{Fingerprint, Secret, Token, TokenError};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// State directory of an agent on this machine, unless configured otherwise.
const STATE_DIR: &str = "/var/lib/onlooker";
/// Environment variable.
const VARIABLE: &str = "ONLOOKER_TOKEN";
/// Longest file that is read.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// How the user gave a token, if at all.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Source {
    /// Join token of the host; others can see it in the process list, so prefer --token-file or ONLOOKER_TOKEN
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    token: Option<String>,
    /// File that holds the join token
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("the token from {origin}: {source}")]
    Token { origin: String, source: TokenError },
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "no token: give --token-file PATH, --token TOKEN or ONLOOKER_TOKEN; `onlooker-agent token` on the watched host prints it{0}"
    )]
    Missing(String),
}

impl Source {
    /// The token: as given, else from the environment, else for a host that is this machine from its agent's state directory.
    pub(crate) fn token(&self, is_local: bool) -> Result<Token, SourceError> {
        if let Some(text) = &self.token {
            return parse("--token", text);
        }
        if let Some(path) = &self.token_file {
            return parse(&path.display().to_string(), &read(path)?);
        }
        if let Ok(text) = std::env::var(VARIABLE) {
            return parse(VARIABLE, &text);
        }
        if !is_local {
            return Err(SourceError::Missing(String::new()));
        }
        of_state_dir(Path::new(STATE_DIR))
    }
}

fn parse(origin: &str, text: &str) -> Result<Token, SourceError> {
    Token::parse(text.trim()).map_err(|source| SourceError::Token { origin: origin.to_owned(), source })
}

fn read(path: &Path) -> Result<String, SourceError> {
    let failed = |source| SourceError::File { path: path.to_owned(), source };
    let mut text = String::new();
    std::fs::File::open(path).map_err(failed)?.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

/// The token that an agent with this state directory accepts: its secret and its certificate's fingerprint; without a certificate it is in plain mode.
fn of_state_dir(dir: &Path) -> Result<Token, SourceError> {
    let local = |error: SourceError| {
        SourceError::Missing(format!(" (the local agent's was looked for, too: {error}; try as root)"))
    };
    let path = dir.join("token-secret");
    let secret = read(&path).map_err(local)?;
    let secret = Secret::parse(secret.trim())
        .map_err(|source| SourceError::Token { origin: path.display().to_string(), source })?;
    let fingerprint = match read(&dir.join("identity.pem")) {
        Ok(pem) => {
            let damaged = |_| {
                local(SourceError::File { path: dir.join("identity.pem"), source: io::ErrorKind::InvalidData.into() })
            };
            let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(damaged)?;
            Some(Fingerprint::of_certificate(&certificate))
        }
        Err(SourceError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(local(error)),
    };
    Ok(Token { fingerprint, secret })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token { fingerprint: None, secret: Secret::new([7; 32]) }
    }

    #[test]
    fn a_file_may_end_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, format!("{}\n", token().text())).unwrap();
        let source = Source { token: None, token_file: Some(path.clone()) };
        assert_eq!(source.token(false).unwrap(), token());
        std::fs::write(&path, "onlk1.cut").unwrap();
        let error = source.token(false).unwrap_err().to_string();
        assert!(error.contains(&*path.to_string_lossy()) && error.contains("cut off"), "{error}");
    }

    #[test]
    fn the_local_agents_token_is_made_of_its_state() {
        let dir = tempfile::tempdir().unwrap();
        let missing = of_state_dir(dir.path()).unwrap_err().to_string();
        assert!(missing.contains("--token-file") && missing.contains("token-secret"), "{missing}");
        std::fs::write(dir.path().join("token-secret"), token().secret.text()).unwrap();
        assert_eq!(of_state_dir(dir.path()).unwrap(), token());
        let made = rcgen::generate_simple_self_signed(["onlooker-agent".to_owned()]).unwrap();
        let pem = format!("{}{}", made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(dir.path().join("identity.pem"), pem).unwrap();
        let fingerprint = Fingerprint::of_certificate(made.cert.der());
        assert_eq!(of_state_dir(dir.path()).unwrap().fingerprint, Some(fingerprint));
        std::fs::write(dir.path().join("identity.pem"), "no pem").unwrap();
        assert!(of_state_dir(dir.path()).is_err());
    }
}
