// SPDX-License-Identifier: Apache-2.0
//! The state directory: certificate with key, token secret (docs/format/bootstrap.md, Join token), and for which secret the present keys were made.
//!
//! Files are 0600 and made by writing a temporary file and linking it into place, so that the agent and `onlooker-agent token` may both be first.
//! Written by whoever comes first and by `token --renew`; the secret is read again for each bootstrap, so that a renewal counts at once.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use onlooker_bootstrap::{Fingerprint, Id, Secret, Token};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::host;

/// Longest state file that is read.
const MAX_FILE_BYTES: u64 = 16 * 1024;

/// What went wrong with the state directory.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file or the directory.
    #[error("cannot {operation} {path}: {source}; run as the agent's user or as root, or set [agent] state_dir")]
    File {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent has it.
    #[error("another onlooker-agent uses the state directory {0}: stop it, or give this one another [agent] state_dir")]
    InUse(PathBuf),
    /// A file has been changed by others.
    #[error("{path} is damaged: {what}; remove it to have a new one made (tokens given out before become invalid)")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::File { operation, path, source }
}

/// Certificate and key.
#[derive(Debug)]
pub struct Identity {
    /// DER certificate, self-signed.
    pub certificate: CertificateDer<'static>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

/// The state directory.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// Uses `path`, made with mode 0700 if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn open(path: &Path) -> Result<Self, IdentityError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(file("create", path))?;
        Ok(Self { path: path.to_owned() })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other agents out until the result is dropped or the process ends. Commands that only use the files need no lock.
    ///
    /// # Errors
    /// [`IdentityError::InUse`]; the directory cannot be opened.
    pub fn lock(&self) -> Result<fs::File, IdentityError> {
        let directory = fs::File::open(&self.path).map_err(file("open", &self.path))?;
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(directory),
            Err(Errno::WOULDBLOCK) => Err(IdentityError::InUse(self.path.clone())),
            Err(errno) => Err(file("lock", &self.path)(errno.into())),
        }
    }

    /// The certificate and key, made at the first call.
    ///
    /// # Errors
    /// A file that cannot be read or made, or is damaged.
    pub fn identity(&self) -> Result<Identity, IdentityError> {
        let path = self.path.join("identity.pem");
        let pem = match read(&path)? {
            Some(pem) => pem,
            None => {
                let rcgen::CertifiedKey { cert, signing_key } =
                    rcgen::generate_simple_self_signed(["onlooker-agent".to_owned()])?;
                self.keep(&path, format!("{}{}", cert.pem(), signing_key.serialize_pem()).as_bytes())?
            }
        };
        let damaged =
            |what: rustls::pki_types::pem::Error| IdentityError::Damaged { path: path.clone(), what: what.to_string() };
        let certificate = CertificateDer::from_pem_slice(&pem).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(damaged)?;
        Ok(Identity { certificate, key })
    }

    /// The secret, made at the first call.
    ///
    /// # Errors
    /// As [`StateDir::identity`].
    pub fn secret(&self) -> Result<Secret, IdentityError> {
        let path = self.secret_path();
        let text = match read(&path)? {
            Some(text) => text,
            None => self.keep(&path, new_secret(&path)?.text().as_bytes())?,
        };
        let text = String::from_utf8_lossy(&text);
        Secret::parse(text.trim_end()).map_err(|error| IdentityError::Damaged { path, what: error.to_string() })
    }

    /// Makes a new secret; the old one is worthless from now on.
    ///
    /// # Errors
    /// As [`StateDir::identity`].
    pub fn renew_secret(&self) -> Result<Secret, IdentityError> {
        let path = self.secret_path();
        let secret = new_secret(&path)?;
        self.replace(&path, secret.text().as_bytes())?;
        Ok(secret)
    }

    /// Whether the keys that the agent has given out were made for another secret than the present one, or it is not known for which.
    ///
    /// # Errors
    /// As [`StateDir::identity`].
    pub fn is_renewed(&self) -> Result<bool, IdentityError> {
        let noted = read(&self.keys_path())?;
        Ok(noted.as_deref() != Some(keys_of(&self.secret()?).as_bytes()))
    }

    /// Notes that the keys that the agent gives out are made for `secret`.
    ///
    /// # Errors
    /// As [`StateDir::identity`].
    pub fn note_keys(&self, secret: &Secret) -> Result<(), IdentityError> {
        self.replace(&self.keys_path(), keys_of(secret).as_bytes())
    }

    /// The join token.
    ///
    /// # Errors
    /// As [`StateDir::identity`].
    pub fn token(&self, tls: bool) -> Result<String, IdentityError> {
        let fingerprint = if tls { Some(Fingerprint::of_certificate(&self.identity()?.certificate)) } else { None };
        Ok(Token { fingerprint, secret: self.secret()? }.text())
    }

    fn replace(&self, path: &Path, content: &[u8]) -> Result<(), IdentityError> {
        let temporary = self.temporary(path, content)?;
        fs::rename(&temporary, path).map_err(file("replace", path))
    }

    fn keys_path(&self) -> PathBuf {
        self.path.join("keys")
    }

    fn secret_path(&self) -> PathBuf {
        self.path.join("token-secret")
    }

    /// Puts a file into place unless there is one by now; returns the content of the one that won.
    fn keep(&self, path: &Path, content: &[u8]) -> Result<Vec<u8>, IdentityError> {
        let temporary = self.temporary(path, content)?;
        let linked = fs::hard_link(&temporary, path);
        fs::remove_file(&temporary).map_err(file("remove", &temporary))?;
        match linked {
            Ok(()) => Ok(content.to_vec()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                read(path)?.ok_or_else(|| file("read", path)(io::ErrorKind::NotFound.into()))
            }
            Err(error) => Err(file("create", path)(error)),
        }
    }

    /// A file of mode 0600 that belongs to the directory's owner: root may run `token` for an agent that is not root.
    fn temporary(&self, path: &Path, content: &[u8]) -> Result<PathBuf, IdentityError> {
        let suffix = host::random().map_err(file("create", path))?;
        let temporary = path.with_extension(format!("{}.tmp", Id(suffix)));
        let mut options = OpenOptions::new();
        let mut open =
            options.write(true).create_new(true).mode(0o600).open(&temporary).map_err(file("create", &temporary))?;
        let owner = fs::metadata(&self.path).map_err(file("look at", &self.path))?;
        let made = open.metadata().map_err(file("look at", &temporary))?;
        if made.uid() != owner.uid() {
            std::os::unix::fs::fchown(&open, Some(owner.uid()), Some(owner.gid()))
                .map_err(file("give away", &temporary))?;
        }
        open.set_permissions(Permissions::from_mode(0o600)).map_err(file("protect", &temporary))?;
        open.write_all(content).and_then(|()| open.sync_all()).map_err(file("write", &temporary))?;
        Ok(temporary)
    }
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, IdentityError> {
    let open = match fs::File::open(path) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file("read", path)(error)),
    };
    let mut content = Vec::new();
    open.take(MAX_FILE_BYTES).read_to_end(&mut content).map_err(file("read", path))?;
    Ok(Some(content))
}

/// What `keys` holds: SHA-256 of the secret in hex, which opens nothing.
fn keys_of(secret: &Secret) -> String {
    secret.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn new_secret(path: &Path) -> Result<Secret, IdentityError> {
    host::random().map(Secret::new).map_err(file("make a secret for", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_secret_are_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(&dir.path().join("a/b")).unwrap();
        let (identity, secret) = (state.identity().unwrap(), state.secret().unwrap());
        assert_eq!(state.identity().unwrap().certificate, identity.certificate);
        assert_eq!(state.secret().unwrap(), secret);
        let token = Token::parse(&state.token(true).unwrap()).unwrap();
        assert_eq!(token.fingerprint, Some(Fingerprint::of_certificate(&identity.certificate)));
        assert_eq!(token.secret, secret);
        assert_eq!(Token::parse(&state.token(false).unwrap()).unwrap().fingerprint, None);
        assert_eq!(fs::metadata(state.path()).unwrap().permissions().mode() & 0o777, 0o700);
        for entry in fs::read_dir(state.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
            assert!(!entry.path().to_string_lossy().ends_with(".tmp"));
        }
    }

    #[test]
    fn a_renewed_secret_makes_the_old_one_worthless() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let old = state.secret().unwrap();
        let new = state.renew_secret().unwrap();
        assert!(new != old && state.secret().unwrap() == new);
    }

    #[test]
    fn a_renewal_is_known_until_new_keys_are_noted() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert!(state.is_renewed().unwrap(), "of keys that an older agent has left nothing is known");
        state.note_keys(&state.secret().unwrap()).unwrap();
        assert!(!state.is_renewed().unwrap());
        let old = state.secret().unwrap();
        state.renew_secret().unwrap();
        assert!(state.is_renewed().unwrap());
        state.note_keys(&old).unwrap();
        assert!(state.is_renewed().unwrap(), "keys for a secret that is not the last one");
        let text = fs::read_to_string(dir.path().join("keys")).unwrap();
        assert!(!text.contains(&old.text()), "no secret");
    }

    #[test]
    fn two_who_are_first_agree() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let tokens: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| state.token(true).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
    }

    #[test]
    fn damaged_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        fs::write(dir.path().join("token-secret"), "short").unwrap();
        fs::write(dir.path().join("identity.pem"), "no pem").unwrap();
        for error in [state.secret().unwrap_err(), state.identity().unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("is damaged") && text.contains("remove it"), "{text}");
        }
    }
}
