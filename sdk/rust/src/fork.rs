// SPDX-License-Identifier: Apache-2.0
//! Forks: the child gets copies of its own at the same addresses and never stores into the parent's regions.
//!
//! ```text
//! prepare  takes the SDK's lock and every region's, so that nothing is half done; copies each region into a new private memfd
//! parent   drops the copies, releases
//! child    maps the copies in place of the shared memory; forgets connection and thread; starts its own where it is to publish
//! ```
//! Raw `clone` and `vfork` (posix_spawn, most of `std::process::Command`) run no handlers: such a child shares the parent's words until it executes
//! another program. After an exec everything is gone: descriptors are close-on-exec, mappings do not survive.

use crate::placement::{Held, Mapping, at_fork};
use crate::region::{Inner, Live};
use crate::sdk::{Core, Fork, SDK, State};
use crate::thread;
use std::cell::RefCell;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// What is held from `prepare` on.
struct AllHeld {
    // Fields are dropped in this order: first the regions' locks.
    regions: Vec<Region>,
    core: MutexGuard<'static, Core>,
}

struct Region {
    inner: Arc<Inner>,
    /// `None`: the forking thread has the lock already, it forks within a commit.
    held: Option<Held<Live>>,
    copy: Option<(Mapping, Mapping)>,
}

thread_local!(static HELD: RefCell<Option<AllHeld>> = const { RefCell::new(None) });

/// Has forks watched: from the first region on, published or not.
pub(crate) fn hook(core: &mut Core) {
    if !core.hooked {
        core.hooked = true;
        if let Err(error) = at_fork(prepare, parent, child) {
            core.fail(format!("a forked child will share this process's metrics: {error}"));
        }
    }
}

/// See [`crate::follow_fork`].
pub(crate) fn follow(fork: Fork) {
    let mut core = SDK.core();
    core.fork = fork;
    attach(&mut core);
    drop(core);
    SDK.say();
}

/// Has a child publish that is to.
fn attach(core: &mut Core) {
    if core.state == State::Detached && core.fork != Fork::Detach {
        core.state = State::Idle;
        thread::start(core);
    }
}

extern "C" fn prepare() {
    let mut held = hold();
    for region in &mut held.regions {
        region.copy = region.inner.snapshot();
    }
    HELD.with(|here| *here.borrow_mut() = Some(held));
}

/// Takes all locks or none: a thread may have one region's and wait for another's, or for the SDK's.
fn hold() -> AllHeld {
    loop {
        let core = SDK.core();
        let all: Vec<_> = core.regions.iter().chain(&core.retired).cloned().collect();
        let regions: Vec<_> = all
            .iter()
            .map_while(|inner| {
                let held = if inner.live.is_mine() { None } else { Some(Held::try_take(inner.clone())?) };
                Some(Region { inner: inner.clone(), held, copy: None })
            })
            .collect();
        if regions.len() == all.len() {
            return AllHeld { regions, core };
        }
        drop((regions, core));
        std::thread::sleep(Duration::from_micros(50));
    }
}

extern "C" fn parent() {
    drop(HELD.with(|held| held.borrow_mut().take()));
}

extern "C" fn child() {
    let Some(AllHeld { mut regions, mut core }) = HELD.with(|held| held.borrow_mut().take()) else { return };
    let fresh = core.fork == Fork::Fresh;
    for region in &mut regions {
        let copy = region.copy.take();
        match &mut region.held {
            Some(held) => region.inner.become_child(held.get(), copy, fresh),
            // The commit under way ends in the child, too; only the memory is exchanged under it.
            None => region.inner.become_child_within_commit(copy),
        }
    }
    drop(regions);
    core.become_child();
    attach(&mut core);
}
