// SPDX-License-Identifier: Apache-2.0
//! What the SDK asks of the agent. Nothing that an agent answers is trusted.

use crate::region::Inner;
use onlooker_local::registration::{Answer, Create, Refused, RegionAnswer, Request};
use onlooker_local::{Client as Connection, Lost};
use onlooker_region::limits::{MAX_GENERATION, MAX_REGION_ID};
use rustix::event::{PollFd, Timespec, poll};
use serde_json::value::to_raw_value;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Who asks, for people.
const SDK: &str = concat!("rust ", env!("CARGO_PKG_VERSION"));
/// An agent answers within microseconds; one that does not for so long is stuck, and another may take its place.
const PATIENCE: Duration = Duration::from_secs(5);

/// A region as the agent gave it, checked as far as the answer goes.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) id: u32,
    pub(crate) generation: u32,
    pub(crate) offset: u64,
    pub(crate) resumed: bool,
    pub(crate) slab: OwnedFd,
}

/// A connection after `hello`. To be polled: readable when the agent is gone.
pub(crate) struct Client(Connection);

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Client {
    /// Connects and says hello.
    pub(crate) fn connect(path: &Path) -> Result<Self, Lost> {
        Connection::connect(path, SDK, PATIENCE).map(Self)
    }

    /// Asks for a range.
    pub(crate) fn create(&self, inner: &Inner) -> Result<Result<Given, Refused>, Lost> {
        let wrong = |message: &str| Lost::Answer { op: "create", message: message.into() };
        let schema = to_raw_value(&inner.schema).map_err(|error| wrong(&error.to_string()))?;
        let create = Create::new(inner.name.clone(), inner.instance.clone(), inner.labels.clone(), &schema);
        let (answer, mut fds) = match self.0.ask(&Request::Create(create), None)? {
            Ok(answered) => answered,
            Err(refused) => return Ok(Err(refused)),
        };
        let Answer::Region(region) = answer else { return Err(wrong("no `region`")) };
        let slab = if fds.len() == 1 { fds.pop() } else { None };
        let slab = slab.ok_or_else(|| wrong("not one descriptor"))?;
        let RegionAnswer { id, generation, bytes, .. } = region;
        let (Some(offset), Some(mapped_bytes), Some(resumed)) = (region.offset, region.mapped_bytes, region.resumed)
        else {
            return Err(wrong("no `offset`, `mapped_bytes` or `resumed`"));
        };
        if !(1..=MAX_REGION_ID).contains(&id) || !(1..=MAX_GENERATION).contains(&generation) {
            return Err(wrong("`id` or `generation` out of range"));
        }
        if bytes != inner.bytes() || mapped_bytes < inner.place.bytes() as u64 {
            return Err(wrong("a range of another size"));
        }
        Ok(Ok(Given { id, generation, offset, resumed, slab }))
    }

    /// Makes a region visible.
    pub(crate) fn publish(&self, region: u32) -> Result<Result<(), Refused>, Lost> {
        self.done(&Request::Publish { region })
    }

    /// Ends a region.
    pub(crate) fn remove(&self, region: u32) -> Result<Result<(), Refused>, Lost> {
        self.done(&Request::Remove { region })
    }

    fn done(&self, request: &Request) -> Result<Result<(), Refused>, Lost> {
        self.0.ask(request, None).map(|answer| answer.map(|_| ()))
    }
}

/// Polls; `None` waits without limit. A signal counts as nothing: callers look again.
pub(crate) fn wait_for(fds: &mut [PollFd], timeout: Option<Duration>) {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    if poll(fds, timeout.as_ref()).is_err() {
        // EINTR or no memory: nothing is ready.
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
}

/// Whether something happened there.
pub(crate) fn is_ready(fd: &PollFd) -> bool {
    !fd.revents().is_empty()
}
