// SPDX-License-Identifier: Apache-2.0
//! TCP connections to hosts, one for each that is read over TCP.
//!
//! Those with READs under way are polled each turn, the others only when something has come: the host's end, or what
//! was given up. Cost: a system call a turn for each host in a reading.

use std::os::fd::AsFd as _;

use onlooker_reader::{Broken, Completion, Memory, Read, Requester as _};
use onlooker_transport::tcp::TcpRequester;

use super::waiter::Waiter;

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

#[derive(Default)]
pub(super) struct Streams {
    streams: Vec<Option<Box<TcpRequester>>>,
    free: Vec<usize>,
    /// Those to be polled.
    active: Vec<usize>,
}

impl Streams {
    pub(super) fn add(&mut self, requester: Box<TcpRequester>, waiter: &Waiter) -> Result<Place, String> {
        let index = self.free.last().copied().unwrap_or(self.streams.len());
        waiter.watch_stream(requester.as_fd(), index).map_err(|error| format!("epoll: {error}"))?;
        // Only now: who is not watched takes no place.
        match self.free.pop() {
            Some(index) => self.streams[index] = Some(requester),
            None => self.streams.push(Some(requester)),
        }
        Ok(Place(index))
    }

    /// Closes it; its READs are over.
    pub(super) fn remove(&mut self, Place(index): Place) {
        self.streams[index] = None;
        self.active.retain(|other| *other != index);
        self.free.push(index);
    }

    /// As [`onlooker_reader::Requester::submit`].
    pub(super) fn submit(&mut self, Place(index): Place, reads: &[Read]) -> Result<usize, Broken> {
        let stream = self.streams[index].as_mut().ok_or(Broken::Closed)?;
        let taken = stream.submit(reads)?;
        self.rung(index);
        Ok(taken)
    }

    /// Something has come over this one.
    pub(super) fn rung(&mut self, index: usize) {
        if !self.active.contains(&index) {
            self.active.push(index);
        }
    }

    /// As [`TcpRequester::poll_into`], for all that are active.
    pub(super) fn poll(
        &mut self,
        memory: &mut impl Memory,
        now_ns: u64,
        completions: &mut Vec<Completion>,
        waiter: &Waiter,
    ) {
        let streams = &mut self.streams;
        self.active.retain(|index| {
            let Some(stream) = streams.get_mut(*index).and_then(Option::as_mut) else { return false };
            if stream.broken().is_none() && stream.poll_into(memory, now_ns, completions).is_err() {
                // Its end stays readable for as long as it is kept.
                waiter.forget(stream.as_fd());
            }
            stream.in_flight() > 0
        });
    }

    /// Why a connection takes no READs any more, if that is so.
    pub(super) fn broken(&self, Place(index): Place) -> Option<Broken> {
        self.streams[index].as_ref().map_or(Some(Broken::Closed), |stream| stream.broken())
    }
}

#[cfg(test)]
mod tests;
