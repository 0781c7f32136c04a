// SPDX-License-Identifier: Apache-2.0
//! A pair of programs that is given the frames that are not for the responder, on each device that it is attached to.
//!
//! A device has one XDP program, and its addresses are looked after once: so what else answers or takes datagrams in
//! softirq stands behind the responder, in the place of an attachment of its own.

use std::os::fd::{AsFd, AsRawFd as _};

use libbpf_rs::{ErrorKind, MapCore as _, MapFlags};

use crate::error::{CHECK_KERNEL_LOG, Result, bpf};
use crate::responder::Responder;

const SLOT: [u8; 4] = 0u32.to_le_bytes();

impl Responder {
    /// Gives frames to these programs from now on, and no more to those before them.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`] for programs of another type (tc and XDP, in this order).
    pub fn set_next(&self, tc: impl AsFd, xdp: impl AsFd) -> Result<()> {
        for (map, program) in [(&self.maps.next_tc, tc.as_fd()), (&self.maps.next_xdp, xdp.as_fd())] {
            let advice = "give a SEC(\"tc\") and a SEC(\"xdp\") program, in this order";
            map.update(&SLOT, &program.as_raw_fd().to_le_bytes(), MapFlags::ANY).map_err(bpf(
                "installing",
                "the next programs",
                advice,
            ))?;
        }
        Ok(())
    }

    /// Lets frames pass that are not for the responder. No program that was there is run for a frame that comes after this.
    ///
    /// # Errors
    /// [`crate::Error::Bpf`].
    pub fn clear_next(&self) -> Result<()> {
        for map in [&self.maps.next_tc, &self.maps.next_xdp] {
            match map.delete(&SLOT) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(bpf("removing", "the next programs", CHECK_KERNEL_LOG)(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}
