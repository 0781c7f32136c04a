// SPDX-License-Identifier: Apache-2.0
//! How the SDK's work begins: a region is taken in, forks are watched, the thread is started.

use crate::region::Inner;
use crate::sdk::{Core, SDK};
use crate::{fork, thread};
use std::sync::Arc;

/// Takes a region in; false where its name is taken.
pub(crate) fn add(inner: &Arc<Inner>) -> bool {
    take_in(inner, |_| true)
}

/// Likewise, before `main`: they wait for [`start`].
pub(crate) fn add_globals(inner: &Arc<Inner>) -> bool {
    take_in(inner, |core| core.started)
}

fn take_in(inner: &Arc<Inner>, is_to_start: impl FnOnce(&Core) -> bool) -> bool {
    let mut core = SDK.core();
    if core.has(&inner.name, &inner.instance) {
        return false;
    }
    core.regions.push(inner.clone());
    fork::hook(&mut core);
    if is_to_start(&core) {
        thread::start(&mut core);
    }
    drop(core);
    SDK.say();
    true
}

/// See [`crate::start`].
pub(crate) fn start() {
    thread::start(&mut SDK.core());
    SDK.say();
}
