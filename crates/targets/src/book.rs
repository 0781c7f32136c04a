// SPDX-License-Identifier: Apache-2.0
//! The book of targets: what each source wants, and what is watched because of it.
//!
//! The configuration, the files' thread and HTTP write it, each under the lock and none for longer than one comparison
//! (and one fsync where a host is added). The book reports the difference between what is wanted and what is watched as
//! [`Change`]s. A name that several sources have goes to the first: configuration, added hosts, files in their order.
//! Invariant: one name, one target; a target that stays as it is gives no change, hence no gap.
//! Cost of a change: linear in the number of targets, a few microseconds each.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::joined::{Joined, JoinedError};
use crate::joining::{Joining, Origin, Trial, Trials};
use crate::target::Target;

/// What is watched from now on, or no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This host; it replaces one of the same name.
    Watch(Arc<Target>),
    /// The host of this name is watched no more.
    Forget(String),
}

/// Where a target comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `[[targets]]` of controller.toml.
    Config,
    /// A file that `[[discovery]]` names.
    File(Arc<Path>),
    /// Added over HTTP.
    Joined,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("config"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Joined => f.write_str("joined"),
        }
    }
}

/// A target that a source has, or what it has instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name, as far as it has one.
    pub name: String,
    /// Its address, as it was written.
    pub address: String,
    /// What is watched.
    pub target: Option<Arc<Target>>,
    /// Why it is not watched, or not as it stands there.
    pub error: Option<String>,
}

impl Found {
    fn good(target: &Arc<Target>) -> Self {
        Self { name: target.name.clone(), address: target.address(), target: Some(target.clone()), error: None }
    }
}

/// A line of the book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What was found.
    pub found: Found,
    /// Where.
    pub source: Source,
}

/// A target file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub path: Arc<Path>,
    /// What its last good contents come to.
    pub found: Vec<Found>,
    /// Targets that rules have dropped.
    pub dropped: usize,
    /// Why its present contents are not used.
    pub error: Option<String>,
}

/// Why a host is not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// Its name is another one's.
    #[error("{}", taken(.name, .owner))]
    Taken {
        /// The name.
        name: String,
        /// Whose it is.
        owner: Source,
    },
    /// No such host.
    #[error("no host `{0}` was added; GET /api/onlooker/v1/targets lists all")]
    Unknown(String),
    /// The token is not the host's.
    #[error("that is not the join token of `{0}`; `onlooker-agent token` on the host prints it")]
    Token(String),
    /// Too many.
    #[error("{0} hosts have been added, which is the limit ([joined] max_hosts); list the others in a discovery file")]
    Full(usize),
    /// Too many of one address.
    #[error(
        "{0} hosts have been added from this address, which is the limit ([joined] max_hosts_per_source); show the token of [http] token_file for more"
    )]
    FullOfSource(usize),
    /// The same host under another name.
    #[error(
        "this host has been added as `{0}`; remove that first (`onlooker-agent join --undo`), or show the token of [http] token_file"
    )]
    Twice(String),
    /// Test reads without end.
    #[error("too many hosts are being added from this address; try again in a while")]
    TooOften,
    /// The file.
    #[error(transparent)]
    Kept(#[from] JoinedError),
}

fn taken(name: &str, source: &Source) -> String {
    match source {
        Source::Config => format!("`{name}` is in [[targets]] of controller.toml; change it there"),
        Source::File(path) => format!("`{name}` is in the discovery file {}; change it there", path.display()),
        Source::Joined => {
            format!(
                "`{name}` was added with another token; give another name, or `\"replace\":true` and the token of [http] token_file"
            )
        }
    }
}

/// The book.
pub struct Book {
    inner: Mutex<Inner>,
    joining: Joining,
    trials: Trials,
}

struct Inner {
    report: Box<dyn Fn(Change) + Send>,
    config: Vec<Arc<Target>>,
    joined: Joined,
    /// By section, then by path.
    files: Vec<Listed>,
    failures: BTreeMap<&'static str, u64>,
    watched: BTreeMap<String, Arc<Target>>,
    lines: Vec<Line>,
}

impl Book {
    /// Opens the book with the hosts that were added before, from the file of `joining`. It calls `report` with each
    /// change, under its lock, so that changes arrive in order.
    ///
    /// # Errors
    /// [`JoinedError`]: the file is damaged or cannot be read.
    pub fn open(joining: Joining, report: impl Fn(Change) + Send + 'static) -> Result<Self, JoinedError> {
        let inner = Inner {
            report: Box::new(report),
            config: Vec::new(),
            joined: Joined::open(&joining.file)?,
            files: Vec::new(),
            failures: BTreeMap::new(),
            watched: BTreeMap::new(),
            lines: Vec::new(),
        };
        Ok(Self { inner: Mutex::new(inner), joining, trials: Trials::default() })
    }

    /// What may be added.
    #[must_use]
    pub fn joining(&self) -> &Joining {
        &self.joining
    }

    /// Admits a test read for a caller from this source who has the token for hosts.
    ///
    /// # Errors
    /// [`ChangeError::TooOften`].
    pub fn begin_trial(&self, source: IpAddr) -> Result<Trial, ChangeError> {
        self.trials.begin(source, Instant::now()).ok_or(ChangeError::TooOften)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the configuration's targets. Returns the number of hosts watched.
    pub fn set_config(&self, targets: Vec<Arc<Target>>) -> usize {
        let mut inner = self.lock();
        inner.config = targets;
        inner.apply()
    }

    /// Replaces the files' targets, the first file first, and how often files could not be used, by reason. Returns the
    /// number of hosts watched.
    pub fn set_files(&self, files: Vec<Listed>, failures: BTreeMap<&'static str, u64>) -> usize {
        let mut inner = self.lock();
        (inner.files, inner.failures) = (files, failures);
        inner.apply()
    }

    /// The target files, and how often one could not be used, by reason.
    #[must_use]
    pub fn files(&self) -> (Vec<Listed>, BTreeMap<&'static str, u64>) {
        let inner = self.lock();
        (inner.files.clone(), inner.failures.clone())
    }

    /// The number of hosts watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.lock().watched.len()
    }

    /// What is watched, and what is not although a source has it.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        self.lock().lines.clone()
    }

    /// Whether `target` could be added now, as far as is known of where it comes from.
    ///
    /// # Errors
    /// [`ChangeError::Taken`], [`ChangeError::Full`], [`ChangeError::FullOfSource`], [`ChangeError::Twice`].
    pub fn may_join(&self, target: &Target, replace: bool, origin: &Origin) -> Result<(), ChangeError> {
        self.lock().may_join(target, replace, origin, &self.joining)
    }

    /// Adds a host, or another one in its place; it is kept when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub fn join(&self, target: Arc<Target>, replace: bool, origin: Origin) -> Result<(), ChangeError> {
        let mut inner = self.lock();
        inner.may_join(&target, replace, &origin, &self.joining)?;
        let name = target.name.clone();
        inner.joined.set(&name, Some((target, origin)))?;
        inner.apply();
        Ok(())
    }

    /// Removes a host that was added, if `is_owner` says that the caller may.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing has changed then.
    pub fn leave(&self, name: &str, is_owner: impl FnOnce(&Target) -> bool) -> Result<(), ChangeError> {
        let mut inner = self.lock();
        let Some(target) = inner.joined.get(name) else {
            let line = inner.lines.iter().find(|line| line.found.target.as_ref().is_some_and(|t| t.name == name));
            return Err(match line {
                Some(line) => ChangeError::Taken { name: name.to_owned(), owner: line.source.clone() },
                None => ChangeError::Unknown(name.to_owned()),
            });
        };
        if !is_owner(target) {
            return Err(ChangeError::Token(name.to_owned()));
        }
        inner.joined.set(name, None)?;
        inner.apply();
        Ok(())
    }
}

impl Inner {
    fn may_join(&self, target: &Target, replace: bool, origin: &Origin, joining: &Joining) -> Result<(), ChangeError> {
        let name = &target.name;
        if origin.source.is_some() {
            let is_same = |other: &Origin| other.host_id.is_some() && other.host_id == origin.host_id;
            if let Some((other, _)) = self.joined.others(name).find(|(_, other)| is_same(other)) {
                return Err(ChangeError::Twice(other.to_owned()));
            }
            let of_source = self.joined.others(name).filter(|(_, other)| other.source == origin.source).count();
            if of_source >= joining.max_hosts_per_source {
                return Err(ChangeError::FullOfSource(of_source));
            }
        }
        let taken = |owner| Err(ChangeError::Taken { name: name.clone(), owner });
        match self.joined.get(name) {
            Some(known) => {
                // The token is the host: its address may be another one now.
                if known.token == target.token || replace { Ok(()) } else { taken(Source::Joined) }
            }
            None => {
                let has = |line: &&Line| line.found.target.as_ref().is_some_and(|other| other.name == *name);
                match self.lines.iter().find(has) {
                    Some(line) => taken(line.source.clone()),
                    None if self.joined.len() >= joining.max_hosts => Err(ChangeError::Full(self.joined.len())),
                    None => Ok(()),
                }
            }
        }
    }

    /// Compares what is wanted with what is watched.
    fn apply(&mut self) -> usize {
        let good = |source: &Source, target: &Arc<Target>| Line { found: Found::good(target), source: source.clone() };
        let config = self.config.iter().map(|target| good(&Source::Config, target));
        let joined = self.joined.hosts().map(|target| good(&Source::Joined, target));
        let files = self.files.iter().flat_map(|Listed { path, found, .. }| {
            found.iter().map(|found| Line { found: found.clone(), source: Source::File(path.clone()) })
        });
        let mut wanted: BTreeMap<String, (Arc<Target>, Source)> = BTreeMap::new();
        let mut lines: Vec<Line> = Vec::new();
        for mut line in config.chain(joined).chain(files) {
            if let Some(target) = &mut line.found.target {
                match wanted.get(&target.name) {
                    // The same twice is once.
                    Some((first, _)) if first == target => continue,
                    Some((_, source)) => {
                        let error = format!("the name is taken: it is in {source}, too, as another target");
                        (line.found.error, line.found.target) = (Some(error), None);
                    }
                    None => {
                        // An unchanged target keeps its place in memory.
                        if let Some(watched) = self.watched.get(&target.name).filter(|watched| *watched == target) {
                            *target = watched.clone();
                        }
                        wanted.insert(target.name.clone(), (target.clone(), line.source.clone()));
                    }
                }
            }
            lines.push(line);
        }
        for name in self.watched.keys().filter(|name| !wanted.contains_key(*name)) {
            (self.report)(Change::Forget(name.clone()));
        }
        for (name, (target, _)) in &wanted {
            if self.watched.get(name) != Some(target) {
                (self.report)(Change::Watch(target.clone()));
            }
        }
        self.watched = wanted.into_iter().map(|(name, (target, _))| (name, target)).collect();
        self.lines = lines;
        self.watched.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::{Secret, Token};
    use onlooker_flow::Priority;
    use std::path::PathBuf;
    use std::time::Duration;

    /// The changes since the last look, as text.
    #[derive(Default)]
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Told {
        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }

        fn open(&self, joining: &Joining) -> Book {
            let told = self.0.clone();
            let report = move |change| {
                told.lock().unwrap().push(match change {
                    Change::Watch(target) => format!("watch {} {}", target.name, target.address()),
                    Change::Forget(name) => format!("forget {name}"),
                });
            };
            Book::open(joining.clone(), report).unwrap()
        }
    }

    fn joining(dir: &Path) -> Joining {
        Joining { file: dir.join("joined.json"), ..Joining::default() }
    }

    /// Another host for each port.
    fn host(name: &str, port: u16) -> Arc<Target> {
        Arc::new(Target {
            name: name.into(),
            host: "h".into(),
            port,
            token: Token { fingerprint: None, secret: Secret::new([u8::try_from(port).unwrap(); 32]) },
            labels: BTreeMap::new(),
            interval: Duration::from_secs(1),
            priority: Priority::Normal,
            choice: crate::target::Choice::Auto,
        })
    }

    fn file(path: &str, hosts: &[Arc<Target>]) -> Listed {
        let found = hosts.iter().map(Found::good).collect();
        Listed { path: PathBuf::from(path).into(), found, dropped: 0, error: None }
    }

    fn set_files(book: &Book, files: &[Listed]) -> usize {
        book.set_files(files.to_vec(), BTreeMap::new())
    }

    #[test]
    fn only_differences_become_orders() {
        let dir = tempfile::tempdir().unwrap();
        let told = Told::default();
        let book = told.open(&joining(dir.path()));
        assert_eq!(book.set_config(vec![host("a", 1)]), 1);
        assert_eq!(set_files(&book, &[file("/x", &[host("b", 1), host("c", 1)])]), 3);
        assert_eq!(told.take(), ["watch a h:1", "watch b h:1", "watch c h:1"]);
        // The same from another file, and twice; another address; one gone.
        set_files(&book, &[file("/w", &[host("b", 1)]), file("/x", &[host("b", 1), host("c", 2)])]);
        assert_eq!(told.take(), ["watch c h:2"]);
        set_files(&book, &[file("/w", &[host("b", 1)])]);
        assert_eq!(told.take(), ["forget c"]);
        // Another class, and the same again.
        let first = [Arc::new(Target { priority: Priority::High, ..(*host("b", 1)).clone() })];
        for _ in 0..2 {
            set_files(&book, &[file("/w", &first)]);
        }
        assert_eq!(told.take(), ["watch b h:1"]);
        book.set_config(Vec::new());
        assert_eq!(told.take(), ["forget a"]);
        assert_eq!(book.lines().len(), 1);
    }

    #[test]
    fn a_name_belongs_to_the_first_who_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let (joining, told) = (joining(dir.path()), Told::default());
        let book = told.open(&joining);
        book.set_config(vec![host("a", 1)]);
        set_files(&book, &[file("/x", &[host("a", 2), host("b", 2)])]);
        assert_eq!(told.take(), ["watch a h:1", "watch b h:2"]);
        let error = book.lines()[1].found.error.clone().unwrap();
        assert!(error.contains("in config"), "{error}");
        for (name, part) in [("a", "controller.toml"), ("b", "/x")] {
            for replace in [false, true] {
                let error = book.join(host(name, 3), replace, Origin::default()).unwrap_err().to_string();
                assert!(error.contains(part), "{error}");
            }
            assert!(matches!(book.leave(name, |_| true), Err(ChangeError::Taken { .. })));
        }
        book.join(host("c", 3), false, Origin::default()).unwrap();
        book.join(host("c", 3), false, Origin::default()).unwrap();
        assert_eq!(told.take(), ["watch c h:3"]);
        assert!(matches!(
            book.join(host("c", 4), false, Origin::default()),
            Err(ChangeError::Taken { owner: Source::Joined, .. })
        ));
        book.join(host("c", 4), true, Origin::default()).unwrap();
        // The same host, found elsewhere now.
        let moved = Arc::new(Target { host: "moved".into(), ..(*host("c", 4)).clone() });
        book.join(moved, false, Origin::default()).unwrap();
        assert!(matches!(book.leave("c", |_| false), Err(ChangeError::Token(_))));
        assert!(matches!(book.leave("d", |_| true), Err(ChangeError::Unknown(_))));
        assert_eq!(told.take(), ["watch c h:4", "watch c moved:4"]);
        // The configuration's gone: the file's turn.
        book.set_config(Vec::new());
        assert_eq!(told.take(), ["watch a h:2"]);
        // After a restart.
        let book = told.open(&joining);
        book.set_config(Vec::new());
        assert_eq!(told.take(), ["watch c moved:4"]);
        book.leave("c", |target| target.port == 4).unwrap();
        assert_eq!(told.take(), ["forget c"]);
    }

    #[test]
    fn the_token_for_hosts_adds_each_host_once_and_so_many_of_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let joining = Joining { max_hosts: 5, max_hosts_per_source: 2, ..joining(dir.path()) };
        let book = Told::default().open(&joining);
        let from = |source: u8, id: u8| Origin {
            host_id: Some(onlooker_bootstrap::Id([id; 16])),
            source: Some([10, 0, 0, source].into()),
        };
        book.join(host("a", 1), false, from(1, 1)).unwrap();
        book.join(host("a", 1), false, from(1, 1)).unwrap();
        assert!(matches!(book.join(host("b", 1), false, from(1, 1)), Err(ChangeError::Twice(name)) if name == "a"));
        book.join(host("b", 2), false, from(1, 2)).unwrap();
        assert!(matches!(book.join(host("c", 3), false, from(1, 3)), Err(ChangeError::FullOfSource(2))));
        // Kept over a restart.
        let book = Told::default().open(&joining);
        assert!(matches!(book.join(host("c", 3), false, from(1, 3)), Err(ChangeError::FullOfSource(2))));
        book.join(host("c", 3), false, from(2, 3)).unwrap();
        // The operator is not asked where from, and may have a host twice.
        let operator = Origin { source: None, ..from(1, 1) };
        book.join(host("d", 4), false, operator).unwrap();
        book.join(host("e", 5), false, operator).unwrap();
        assert!(matches!(book.join(host("f", 6), false, operator), Err(ChangeError::Full(5))));
    }
}
