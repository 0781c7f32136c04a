// SPDX-License-Identifier: Apache-2.0
//! The thread that looks at target files. It looks when inotify reports a change in their directories, and every
//! `refresh` in any case: inotify misses changes on network file systems and behind links into other directories.
//!
//! Every look reads whole files and compares contents. Two writes may leave the same modification time, so times are
//! not trusted. Looks are at least `SETTLE` apart; contents must stay that long to count ([`crate::state`]). Cost:
//! nothing while nothing changes, then one reading of all files and their tokens.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::book::{Book, Listed};
use crate::file::{FileError, MAX_FILE_BYTES};
use crate::resolve::{Section, Tokens, resolve};
use crate::state::{Key, Seen, States};

/// Least time between two looks: so long must contents stay to count.
const SETTLE: Duration = Duration::from_millis(100);
/// Files of one pattern at most.
const MAX_FILES: usize = 1_000;

/// Logs a line for the operator.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The thread. It ends when this is dropped.
pub struct Files {
    orders: Option<Sender<Vec<Section>>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Files {
    /// Looks at all files once, then starts the thread.
    ///
    /// # Errors
    /// No thread, or no inotify.
    pub fn start(book: Arc<Book>, sections: Vec<Section>, say: Say) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let (orders, todo) = channel();
        let mut watcher = Watcher {
            book,
            say,
            inotify,
            bell: bell.clone(),
            todo,
            due: Vec::new(),
            sections,
            states: States::default(),
        };
        watcher.begin();
        let thread = thread::Builder::new().name("files".into()).spawn(move || watcher.run())?;
        Ok(Self { orders: Some(orders), bell, thread: Some(thread) })
    }

    /// Other sections from now on.
    pub fn set(&self, sections: Vec<Section>) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(sections);
            ring(&self.bell);
        }
    }
}

fn ring(bell: &OwnedFd) {
    // A full counter means that the bell has rung already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

impl Drop for Files {
    fn drop(&mut self) {
        self.orders = None;
        ring(&self.bell);
        if let Some(thread) = self.thread.take() {
            // A panic of that thread has been printed already.
            let _ = thread.join();
        }
    }
}

struct Watcher {
    book: Arc<Book>,
    say: Say,
    inotify: OwnedFd,
    bell: Arc<OwnedFd>,
    todo: Receiver<Vec<Section>>,
    sections: Vec<Section>,
    /// When the sections' next refresh is due.
    due: Vec<Instant>,
    states: States,
}

impl Watcher {
    fn begin(&mut self) {
        self.due = self.sections.iter().map(|section| Instant::now() + section.config.refresh.as_duration()).collect();
        self.look(true);
    }

    fn run(mut self) {
        let mut unsettled = false;
        loop {
            let now = Instant::now();
            let refresh = self.due.iter().min().map(|due| due.saturating_duration_since(now));
            let wait = if unsettled { Some(SETTLE) } else { refresh };
            let woken = self.sleep(wait);
            match self.todo.try_recv() {
                Ok(sections) => {
                    self.states.keep_sections(sections.len());
                    self.sections = sections;
                    self.begin();
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            if woken {
                // Changes often come in bursts.
                thread::sleep(SETTLE);
                self.drain();
            }
            unsettled = self.look(false);
        }
    }

    /// Sleeps until something changes, new sections come or the time is over; true if inotify has an event.
    fn sleep(&self, wait: Option<Duration>) -> bool {
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let mut descriptors = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
        let polled = poll(&mut descriptors, wait.as_ref());
        let woken = polled.is_ok() && descriptors[0].revents().contains(PollFlags::IN);
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        woken
    }

    fn drain(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut buffer);
        while events.next().is_ok() {}
    }

    /// Looks at all files; for sections whose refresh is due (with `refresh_all`: for all) this is the refresh. True
    /// where contents have to settle.
    fn look(&mut self, refresh_all: bool) -> bool {
        let now = Instant::now();
        let mut total = Seen::default();
        let mut refreshed = refresh_all;
        for number in 0..self.sections.len() {
            let refresh = refresh_all || self.due[number] <= now;
            if refresh {
                self.due[number] = now + self.sections[number].config.refresh.as_duration();
                refreshed = true;
            }
            for path in self.paths(number) {
                let read = read(&path);
                let key: Key = (number, path);
                let seen = self.states.look(&key, read, refresh && !refresh_all);
                total.changed |= seen.changed;
                total.unsettled |= seen.unsettled;
                total.news |= seen.news;
                if seen.news {
                    self.tell(&key);
                }
            }
        }
        // Tokens may have changed even where files have not.
        if total.changed || total.news || refreshed {
            self.apply();
        }
        total.unsettled
    }

    fn tell(&self, key: &Key) {
        let path = key.1.display();
        let text = match self.states.files.get(key) {
            None => format!("targets: {path} has been missing for some time; its hosts are watched no more"),
            Some(state) => match state.error() {
                Some(error) => {
                    let hosts: usize = state.groups.iter().map(|group| group.targets.len()).sum();
                    format!("targets: {path}: {error}; its last good contents stay ({hosts} hosts)")
                }
                None => format!("targets: {path} can be used again"),
            },
        };
        (self.say)(&text);
    }

    /// The files of a section: those that are there, and those that were. Watches their directories.
    fn paths(&self, number: usize) -> BTreeSet<Arc<Path>> {
        let known = self.states.files.keys().filter(|(section, _)| *section == number).map(|(_, path)| path.clone());
        let mut paths: BTreeSet<Arc<Path>> = known.collect();
        for pattern in &self.sections[number].config.files {
            if let Some(dir) = pattern.parent() {
                let flags = WatchFlags::CREATE
                    | WatchFlags::CLOSE_WRITE
                    | WatchFlags::MODIFY
                    | WatchFlags::MOVED_FROM
                    | WatchFlags::MOVED_TO
                    | WatchFlags::DELETE;
                // The refresh finds a directory that is not there yet.
                let _ = inotify::add_watch(&self.inotify, dir, flags);
            }
            paths.extend(matching(pattern).into_iter().map(Arc::from));
        }
        paths
    }

    fn apply(&mut self) {
        let mut tokens = Tokens::default();
        let mut listed = Vec::with_capacity(self.states.files.len());
        for ((number, path), state) in &mut self.states.files {
            let Some(section) = self.sections.get(*number) else { continue };
            (state.found, state.dropped) = resolve(section, path, &state.groups, &state.found, &mut tokens);
            listed.push(Listed {
                path: path.clone(),
                found: state.found.clone(),
                dropped: state.dropped,
                error: state.error().map(ToString::to_string),
            });
        }
        self.book.set_files(listed, self.states.failures.clone());
    }
}

/// The files that a path matches, in order; its last segment may have one `*`.
#[must_use]
pub fn matching(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Some((front, back)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(entries) = pattern.parent().and_then(|dir| fs::read_dir(dir).ok()) else { return Vec::new() };
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back)
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(fits).collect();
    paths.sort();
    paths.truncate(MAX_FILES);
    paths
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing,
        _ => FileError::Unreadable(error.to_string()),
    };
    // Reading a pipe could take for ever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(FileError::Unreadable("it is not a file".into()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(bytes)
}
