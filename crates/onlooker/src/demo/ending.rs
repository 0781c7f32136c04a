// SPDX-License-Identifier: Apache-2.0
//! What ends a demo: Ctrl-C, SIGTERM, a closed terminal, or its time.

use super::DemoError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Why it is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    Interrupt,
    Terminate,
    HangUp,
    TimeIsUp,
}

impl Why {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupted",
            Self::Terminate => "told to end",
            Self::HangUp => "the terminal was closed",
            Self::TimeIsUp => "its time is up",
        }
    }
}

/// From when it is made, none of these signals ends the process any more: whoever waits here is told, also while something else is cleaned up.
#[derive(Debug)]
pub(super) struct Ending {
    streams: [(UnixStream, Why); 3],
    until: Option<Instant>,
}

impl Ending {
    pub(super) fn watch() -> Result<Self, DemoError> {
        let stream = |signal| -> io::Result<UnixStream> {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            theirs.set_nonblocking(true)?;
            pipe::register(signal, theirs)?;
            Ok(ours)
        };
        let make = || -> io::Result<_> {
            Ok([(stream(SIGINT)?, Why::Interrupt), (stream(SIGTERM)?, Why::Terminate), (stream(SIGHUP)?, Why::HangUp)])
        };
        let failed = |source| DemoError::System { operation: "receive", object: "signals".into(), source };
        let streams = make().map_err(failed)?;
        Ok(Self { streams, until: None })
    }

    /// Its time is up after this one.
    pub(super) fn end_after(&mut self, time: Duration) {
        self.until = Some(Instant::now() + time);
    }

    /// Sleeps for so long.
    ///
    /// # Errors
    /// [`DemoError::Ended`] as soon as the demo is to end.
    pub(super) fn sleep(&self, time: Duration) -> Result<(), DemoError> {
        let end = Instant::now() + time;
        loop {
            let now = Instant::now();
            if self.until.is_some_and(|until| until <= now) {
                return Err(DemoError::Ended(Why::TimeIsUp));
            }
            for (stream, why) in &self.streams {
                if matches!((&*stream).read(&mut [0; 16]), Ok(bytes) if bytes > 0) {
                    return Err(DemoError::Ended(*why));
                }
            }
            if now >= end {
                return Ok(());
            }
            let wait = self.until.map_or(end, |until| until.min(end)) - now;
            let mut fds = self.streams.each_ref().map(|(stream, _)| PollFd::new(stream, PollFlags::IN));
            let timeout = Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            // An error is a signal in between; the loop looks again.
            let _ = poll(&mut fds, Some(&timeout));
        }
    }
}
