// SPDX-License-Identifier: Apache-2.0
//! Where a demo lives: a directory that it locks, and in it, in `state.json`, the names of all that it makes outside of it.
//!
//! Demos are numbered, so that several run beside each other: the directory's number makes the names of namespace and device, and the addresses. The lock
//! ends with the process that holds it, so a directory with a state and no lock is what a killed demo left. What has such a name and no state is
//! somebody else's and left alone.

use super::DemoError;
use super::process::Mark;
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Demos beside each other, at most: addresses are from 198.18.77.0/24, four for each.
const MAX_PLACES: u8 = 32;
/// Where named namespaces are (ip-netns(8)).
const NETNS: &str = "/run/netns";

/// What there is outside of the directory; written before it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) namespace: Option<String>,
    /// The end outside of the namespace.
    pub(super) device: Option<String>,
    pub(super) bpffs: Option<PathBuf>,
    pub(super) processes: Vec<Mark>,
}

/// A directory that is ours.
#[derive(Debug)]
pub(super) struct Place {
    number: u8,
    root: PathBuf,
    pub(super) dir: PathBuf,
    _lock: File,
    pub(super) state: State,
}

/// What was found on the way to a place.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Killed demos, whose leftovers are gone now.
    pub(super) removed: Vec<String>,
    /// Demos that run.
    pub(super) running: Vec<u8>,
    /// Names that somebody else has.
    pub(super) foreign: Vec<String>,
}

fn system(operation: &'static str, object: &Path) -> impl FnOnce(io::Error) -> DemoError {
    move |source| DemoError::System { operation, object: object.into(), source }
}

/// The directory of all demos of this user.
pub(super) fn root() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/onlooker-demo".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir()) {
        Some(dir) => dir.join("onlooker-demo"),
        None => std::env::temp_dir().join(format!("onlooker-demo-{}", user.as_raw())),
    }
}

impl Place {
    /// Removes what killed demos left and takes the first free place.
    pub(super) fn take(root: &Path) -> Result<(Self, Found), DemoError> {
        make_private(root)?;
        let mut found = Found::default();
        let mut taken = None;
        for number in 1..=MAX_PLACES {
            let dir = root.join(number.to_string());
            if taken.is_some() && !dir.exists() {
                continue;
            }
            let Some(lock) = lock(root, &dir)? else {
                found.running.push(number);
                continue;
            };
            let mut place = Self { number, root: root.into(), dir, _lock: lock, state: State::default() };
            if let Some(state) = place.left()? {
                place.state = state;
                found.removed.push(place.state.namespace.clone().unwrap_or_else(|| place.dir.display().to_string()));
                place.remove();
                if taken.is_none() {
                    let Some(lock) = self::lock(root, &place.dir)? else { continue };
                    place = Self { _lock: lock, state: State::default(), ..place };
                }
            }
            if taken.is_some() {
                place.remove();
            } else if let Some(foreign) = place.foreign() {
                found.foreign.push(foreign);
                place.remove();
            } else {
                taken = Some(place);
            }
        }
        match taken {
            Some(place) => Ok((place, found)),
            None => Err(DemoError::NoPlace { root: root.into(), most: MAX_PLACES }),
        }
    }

    fn left(&self) -> Result<Option<State>, DemoError> {
        let path = self.state_path();
        match fs::read(&path) {
            // A state that was being written: nothing was made after it.
            Ok(text) => Ok(Some(serde_json::from_slice(&text).unwrap_or_default())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Killed while it removed what it had made, it leaves the rest of its directory.
                let mut rest = fs::read_dir(&self.dir).map_err(system("list", &self.dir))?;
                Ok(rest.next().map(|_| State::default()))
            }
            Err(error) => Err(system("read", &path)(error)),
        }
    }

    fn foreign(&self) -> Option<String> {
        let (namespace, device) = (self.namespace(), self.device());
        if Path::new(NETNS).join(&namespace).exists() {
            return Some(format!("network namespace {namespace}"));
        }
        Path::new("/sys/class/net").join(&device).exists().then(|| format!("network device {device}"))
    }

    fn state_path(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Writes down what is about to be made.
    pub(super) fn note(&mut self, change: impl FnOnce(&mut State)) -> Result<(), DemoError> {
        change(&mut self.state);
        let (path, new) = (self.state_path(), self.dir.join("state.new"));
        let text = serde_json::to_vec(&self.state).unwrap_or_default();
        fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(system("write", &path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn numbered(&self, name: &str) -> String {
        if self.number == 1 { name.into() } else { format!("{name}-{}", self.number) }
    }

    pub(super) fn namespace(&self) -> String {
        self.numbered("onlooker-demo")
    }

    pub(super) fn namespace_path(&self) -> PathBuf {
        Path::new(NETNS).join(self.namespace())
    }

    pub(super) fn device(&self) -> String {
        self.numbered("olk-demo")
    }

    /// Of the end outside, and of the one inside of the namespace. 198.18.0.0/15 is for benchmarks (RFC 2544) and nobody's in the Internet.
    pub(super) fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let first = (self.number - 1) * 4;
        (Ipv4Addr::new(198, 18, 77, first + 1), Ipv4Addr::new(198, 18, 77, first + 2))
    }

    /// Removes all that the state names, and the directory. What is not there any more is no mistake.
    pub(super) fn remove(&mut self) {
        for process in &self.state.processes {
            process.kill();
        }
        self.remove_network();
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir(&self.root);
    }

    /// The part of it that is not in the directory.
    pub(super) fn remove_network(&mut self) {
        if let Some(bpffs) = self.state.bpffs.take() {
            // With the last user of the mount its pins go, and with them programs and maps.
            let _ = unmount(&bpffs, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        if let Some(device) =
            self.state.device.take().filter(|device| Path::new("/sys/class/net").join(device).exists())
        {
            // The namespace goes later, when the kernel finds time, and with it would the device.
            let _ = ip(&["link", "del", &device]);
        }
        if let Some(namespace) = self.state.namespace.take().filter(|name| Path::new(NETNS).join(name).exists()) {
            let _ = ip(&["netns", "del", &namespace]);
        }
    }

    /// What of all this is still there.
    pub(super) fn remains(&self) -> Vec<String> {
        let paths = [self.dir.clone(), self.namespace_path(), Path::new("/sys/class/net").join(self.device())];
        paths.into_iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect()
    }
}

/// ip(8); what it says where it fails.
pub(super) fn ip(arguments: &[&str]) -> Result<(), String> {
    let command = format!("ip {}", arguments.join(" "));
    match Command::new("ip").args(arguments).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("`{command}`: there is no `ip` (package iproute2)"))
        }
        Err(error) => Err(format!("`{command}`: {error}")),
    }
}

/// A directory that nobody else can put anything into: what lies there is believed and removed.
fn make_private(dir: &Path) -> Result<(), DemoError> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(dir).map_err(system("look at", dir))?;
            let is_ours =
                found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
            if is_ours { Ok(()) } else { Err(DemoError::NotOurs(dir.into())) }
        }
        Err(error) => Err(system("make", dir)(error)),
    }
}

/// The lock of a directory that is made where needed; None where another demo has it.
fn lock(root: &Path, dir: &Path) -> Result<Option<File>, DemoError> {
    loop {
        make_private(root)?;
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(system("make", dir)(error)),
            _ => {}
        }
        let file = match File::open(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file.map_err(system("open", dir))?,
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            locked => locked.map_err(io::Error::from).map_err(system("lock", dir))?,
        }
        // A demo that ended in between has removed what we have locked.
        let same = |path: io::Result<fs::Metadata>| path.map(|found| (found.dev(), found.ino())).ok();
        if same(fs::metadata(dir)).is_some_and(|now| same(file.metadata()) == Some(now)) {
            return Ok(Some(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_free(found: &Found) -> bool {
        found.removed.is_empty() && found.running.is_empty()
    }

    #[test]
    fn a_running_demo_is_told_from_a_killed_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("demos");
        let (mut first, found) = Place::take(&root).unwrap();
        assert!(is_free(&found), "{found:?}");
        first.note(|_| {}).unwrap();
        let (second, found) = Place::take(&root).unwrap();
        assert_eq!((found.running.as_slice(), found.removed.len()), ([first.number].as_slice(), 0));
        assert_ne!(second.number, first.number);
        assert_ne!(second.addresses(), first.addresses());
        // Killed: the lock is gone, the state is not. Killed while it removed that: the state is gone, too.
        let dir = first.dir.clone();
        let mut killed = first;
        for has_state in [true, false] {
            fs::write(killed.path("file"), "x").unwrap();
            assert_eq!(killed.state_path().exists(), has_state);
            drop(killed);
            let found;
            (killed, found) = Place::take(&root).unwrap();
            assert_eq!((found.removed.len(), &killed.dir), (1, &dir));
            assert!(!killed.path("file").exists());
        }
    }

    #[test]
    fn nothing_is_left_of_an_ended_one() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("demos");
        let (mut place, _) = Place::take(&root).unwrap();
        place.note(|state| state.processes.clear()).unwrap();
        place.remove();
        assert!(place.remains().iter().all(|path| !path.starts_with(root.to_str().unwrap())) && !root.exists());
    }

    #[test]
    fn a_directory_that_others_write_to_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().join("demos");
        DirBuilder::new().mode(0o777).create(&root).unwrap();
        fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(matches!(Place::take(&root), Err(DemoError::NotOurs(_))));
    }
}
