// SPDX-License-Identifier: Apache-2.0
//! What stands for it where AF_XDP is not built in: there is none.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::soft::exchange::{Answered, Staged};

/// No value of it.
#[derive(Debug)]
pub enum Bypass {}

#[allow(clippy::missing_const_for_fn)]
impl Bypass {
    pub(in crate::soft) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        match *self {}
        #[allow(unreachable_code)]
        std::iter::empty()
    }

    pub(in crate::soft) fn receive(&mut self, _: u64, _: impl FnMut(SocketAddr, &[u8], bool) -> Option<Answered>) {
        match *self {}
    }

    pub(in crate::soft) fn carries(&mut self, _: &Staged, _: u64) -> bool {
        match *self {}
    }

    pub(in crate::soft) fn push(&mut self, _: &Staged) -> bool {
        match *self {}
    }

    pub(in crate::soft) fn flush(&mut self) -> bool {
        match *self {}
    }
}
