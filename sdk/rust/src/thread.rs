// SPDX-License-Identifier: Apache-2.0
//! The SDK's thread that works, named "onlooker" (the other only wakes it: `bell`): finds the agent, registers regions, moves their memory; sleeps otherwise.
//!
//! Connected it waits in poll without a time limit. Without an agent it waits for the socket to appear (inotify on the socket's directory, or on the
//! nearest one above it that exists) and tries again by itself at most every 10 s.

use crate::bell::{Bell, Ear};
use crate::client::{Client, Given, is_ready, wait_for};
use crate::placement::{own_descriptors, without_signals};
use crate::region::{Attached, Inner, Standing};
use crate::sdk::{Core, SDK, State};
use onlooker_local::Lost;
use onlooker_local::registration::Refused;
use onlooker_region::Identity;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::inotify;
use std::collections::HashMap;
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Its stack.
const STACK_BYTES: usize = 256 * 1024;
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(10);
/// A connection that lasted for less is not tried again at once: an agent may come and go in a circle.
const SETTLED: Duration = Duration::from_secs(1);
/// How often the thread looks around where nobody can wake it.
const DEAF: Duration = Duration::from_secs(1);
/// A region that was refused for a reason that can pass is asked for again after so long.
const REFUSED_RETRY: Duration = Duration::from_secs(10);
/// An old connection of this process may be on its way out.
const DUPLICATE_RETRY: Duration = Duration::from_millis(200);
/// So long after losing the agent, regions go back to private memory. Shorter than any grace after which an agent that lives on gives their ranges to
/// others (registration.md, "End of a region": 5 s and the reuse delay by default).
const RETREAT: Duration = Duration::from_secs(2);

/// Starts the thread, or wakes it.
pub(crate) fn start(core: &mut Core) {
    if !core.needs_thread() {
        return;
    }
    let bell = Bell::default();
    let its_own = bell.clone();
    let builder = std::thread::Builder::new().name("onlooker".into()).stack_size(STACK_BYTES);
    match without_signals(|| builder.spawn(move || guarded(&its_own))) {
        Ok(_) => {
            core.thread = Some(bell);
            core.state = State::Waiting;
        }
        Err(error) => core.fail(format!("cannot start the thread that registers metrics: {error}")),
    }
}

/// The thread; a fault of ours must not be silent, and must not take the program down.
fn guarded(bell: &Bell) {
    if catch_unwind(AssertUnwindSafe(|| run(bell))).is_err() {
        let mut core = SDK.core();
        core.thread = None;
        core.state = State::Waiting;
        core.fail("the SDK's thread has ended by a fault of the SDK: please report it".into());
        drop(core);
        SDK.say();
    }
}

/// The thread's life: as long as the process.
fn run(bell: &Bell) {
    let (socket, debug) = SDK.core().settings();
    if let Err(error) = own_descriptors(debug) {
        SDK.error(format!("the SDK's thread shares the program's descriptors: {error}"));
    }
    let ear = match bell.hang() {
        Ok(ear) => ear,
        Err(error) => return SDK.error(format!("no pipe for the SDK's thread, nothing is published: {error}")),
    };
    let mut retry = FIRST_RETRY;
    let mut lost_at: Option<Instant> = None;
    loop {
        // The watch comes first: a socket that appears after the attempt is seen.
        let mut watch = Watch::new(&socket);
        match Client::connect(&socket) {
            Ok(client) => {
                drop(watch);
                SDK.connected();
                let began = Instant::now();
                let Err(lost) = Session { client, ear: &ear, later: HashMap::new() }.serve();
                SDK.error(lost.to_string());
                leave();
                lost_at = Some(Instant::now());
                if began.elapsed() >= SETTLED {
                    retry = FIRST_RETRY;
                    continue;
                }
                watch = Watch::new(&socket);
            }
            Err(error) => SDK.error(error.to_string()),
        }
        SDK.core().retired.clear();
        if lost_at.is_some_and(|at| at.elapsed() >= RETREAT) {
            lost_at = None;
            retreat();
        }
        let until_retreat = lost_at.map(|at| RETREAT.saturating_sub(at.elapsed()));
        let timeout = until_retreat.map_or(retry, |left| retry.min(left));
        let mut fds = vec![PollFd::new(&ear.reading, PollFlags::IN)];
        fds.extend(watch.iter().map(|watch| PollFd::new(&watch.fd, PollFlags::IN)));
        wait_for(&mut fds, Some(timeout));
        let watched = fds.get(1).is_some_and(is_ready);
        drop(fds);
        ear.listen();
        retry = if watched && watch.is_some_and(|watch| watch.concerns_the_socket()) {
            FIRST_RETRY
        } else {
            (retry * 2).min(LAST_RETRY)
        };
    }
}

/// After the connection is lost: nothing is published any more, the memory stays where it is for the moment.
fn leave() {
    for region in regions() {
        if region.standing.get() != Standing::Private {
            region.standing.set(Standing::Waiting);
        }
    }
    SDK.set_state(State::Waiting);
}

fn regions() -> Vec<Arc<Inner>> {
    SDK.core().regions.clone()
}

/// Moves every region that stands in a range of the lost agent's back to private memory.
fn retreat() {
    for region in regions() {
        let mut live = region.live.take();
        let moved = if live.attached.is_some() { region.retreat(&mut live) } else { continue };
        drop(live);
        if let Err(error) = moved {
            SDK.error(format!("region `{}` stays in the lost agent's memory: {error}", region.name));
        }
    }
}

/// A connection's time.
struct Session<'a> {
    client: Client,
    ear: &'a Ear,
    /// When refused regions are asked for again.
    later: HashMap<(String, String), Instant>,
}

enum Never {}

impl Session<'_> {
    /// Registers what there is to register until the connection is lost.
    fn serve(&mut self) -> Result<Never, Lost> {
        loop {
            self.remove_retired()?;
            let now = Instant::now();
            for region in regions() {
                let key = (region.name.clone(), region.instance.clone());
                let due = match region.standing.get() {
                    Standing::Waiting => true,
                    Standing::Refused => self.later.get(&key).is_some_and(|at| *at <= now),
                    Standing::Published | Standing::Private => false,
                };
                if due {
                    self.later.remove(&key);
                    if let Some(after) = self.register(&region)? {
                        self.later.insert(key, Instant::now() + after);
                    }
                }
            }
            SDK.notify();
            let next = self.later.values().min().map(|at| at.saturating_duration_since(Instant::now()));
            let next = if self.ear.deaf { Some(next.unwrap_or(DEAF).min(DEAF)) } else { next };
            let mut fds = [PollFd::new(&self.client, PollFlags::IN), PollFd::new(&self.ear.reading, PollFlags::IN)];
            wait_for(&mut fds, next);
            if is_ready(&fds[0]) {
                // The agent only answers; what comes unasked is the end.
                return Err(Lost::Closed);
            }
            self.ear.listen();
        }
    }

    fn remove_retired(&mut self) -> Result<(), Lost> {
        let retired = std::mem::take(&mut SDK.core().retired);
        for region in retired {
            self.later.remove(&(region.name.clone(), region.instance.clone()));
            let attached = region.live.take().attached;
            if let Some(attached) = attached {
                // Nobody has a handle any more, so nothing is stored into the range; a refusal changes nothing about that.
                let _removed = self.client.remove(attached.identity.region)?;
            }
        }
        Ok(())
    }

    /// Has one region created, moved and published. Returns when to try again where it was refused for a reason that can pass.
    fn register(&self, region: &Inner) -> Result<Option<Duration>, Lost> {
        let given = match self.client.create(region)? {
            Ok(given) => given,
            Err(refusal) => return Ok(refused(region, &refusal)),
        };
        if let Err(error) = Self::occupy(region, &given) {
            SDK.error(format!("region `{}`: {error}", region.name));
            if region.standing.get() != Standing::Private {
                withdraw(region);
            }
            let _removed = self.client.remove(given.id)?;
            return Ok(Some(REFUSED_RETRY));
        }
        // A resumed region is published already.
        if !given.resumed
            && let Err(refusal) = self.client.publish(given.id)?
        {
            return Ok(refused(region, &refusal));
        }
        region.standing.set(Standing::Published);
        Ok(None)
    }

    /// Moves the region onto its range, unless it is there already.
    fn occupy(region: &Inner, given: &Given) -> Result<(), crate::placement::PlaceError> {
        let identity = Identity::first(given.id, given.generation);
        let memory = crate::placement::check_slab(&given.slab, given.offset, region.place.bytes())?;
        let to = Attached { identity, memory, offset: given.offset };
        let mut live = region.live.take();
        match live.attached {
            Some(attached) if attached == to && given.resumed => return Ok(()),
            // What it stands in was taken from it and given to it anew, as a whole or in part: copying it onto itself would lose additions.
            Some(attached) if attached.overlaps(memory, given.offset, region.place.bytes()) => {
                region.retreat(&mut live)?
            }
            _ => {}
        }
        let window = region.switch(&mut live, &given.slab, to)?;
        drop(live);
        SDK.switched(window);
        Ok(())
    }
}

/// Refused: what it may stand in still, the range of an earlier connection or an unpublished one, will be given to others.
fn withdraw(region: &Inner) {
    let mut live = region.live.take();
    let moved = if live.attached.is_some() { region.retreat(&mut live) } else { Ok(()) };
    drop(live);
    if let Err(error) = moved {
        SDK.error(format!("region `{}` stays in memory that the agent may give away: {error}", region.name));
    }
    if region.standing.get() != Standing::Private {
        region.standing.set(Standing::Refused);
    }
}

fn refused(region: &Inner, refusal: &Refused) -> Option<Duration> {
    SDK.error(format!("the agent refused region `{}`: {refusal}", region.name));
    withdraw(region);
    match refusal.code.as_str() {
        "duplicate" => Some(DUPLICATE_RETRY),
        "quota" | "internal" => Some(REFUSED_RETRY),
        _ => None,
    }
}

/// Watches for the socket to appear.
struct Watch {
    fd: OwnedFd,
    /// The directory entry that matters.
    name: OsString,
}

impl Watch {
    /// On the nearest directory above the socket that exists; `None` where there is no inotify.
    fn new(socket: &Path) -> Option<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags).ok()?;
        let events = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::ATTRIB
            | inotify::WatchFlags::ONLYDIR;
        let mut path: PathBuf = socket.to_path_buf();
        loop {
            let name = path.file_name()?.to_os_string();
            let parent = path.parent()?;
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            if inotify::add_watch(&fd, parent, events).is_ok() {
                return Some(Self { fd, name });
            }
            path = path.parent()?.to_path_buf();
        }
    }

    fn concerns_the_socket(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(&self.fd, &mut buffer);
        let mut concerns = false;
        // Ends when the queue is empty: the descriptor does not block.
        while let Ok(event) = reader.next() {
            concerns |= event.file_name().is_none_or(|name| name.to_bytes() == self.name.as_bytes());
        }
        concerns
    }
}
