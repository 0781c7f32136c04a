// SPDX-License-Identifier: Apache-2.0
//! What of a machine is told by system calls that have no safe wrapper: the state of its clock (adjtimex(2)) and the speed of a link (ethtool's ioctl). Both only look, and
//! need no privilege.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// How the kernel keeps time: `struct timex`, with its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // adjtimex(2) says
pub struct Timex {
    /// What adjtimex returned: `TIME_OK` (0) to `TIME_ERROR` (5: not synchronised).
    pub state: i32,
    pub status: i32,
    pub offset: i64,
    pub frequency: i64,
    pub max_error: i64,
    pub estimated_error: i64,
    pub constant: i64,
    pub tick: i64,
    pub pps_frequency: i64,
    pub pps_jitter: i64,
    pub pps_shift: i32,
    pub pps_stability: i64,
    pub pps_jitters: i64,
    pub pps_calibrations: i64,
    pub pps_errors: i64,
    pub pps_stabilities: i64,
    pub tai_offset: i32,
}

/// The kernel's clock.
///
/// # Errors
/// A unit whose `SystemCallFilter` has no adjtimex (EPERM).
pub fn timex() -> io::Result<Timex> {
    // SAFETY: all zeros are a valid value: modes 0, which only asks.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the library's own, valid and writable.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Timex {
        state,
        status: timex.status,
        offset: timex.offset,
        frequency: timex.freq,
        max_error: timex.maxerror,
        estimated_error: timex.esterror,
        constant: timex.constant,
        tick: timex.tick,
        pps_frequency: timex.ppsfreq,
        pps_jitter: timex.jitter,
        pps_shift: timex.shift,
        pps_stability: timex.stabil,
        pps_jitters: timex.jitcnt,
        pps_calibrations: timex.calcnt,
        pps_errors: timex.errcnt,
        pps_stabilities: timex.stbcnt,
        tai_offset: timex.tai,
    })
}

/// `ETHTOOL_GSET` and `struct ethtool_cmd` of linux/ethtool.h. Kept by the kernel for all drivers, and one call where its successor needs two.
const GET_SETTINGS: u32 = 1;

#[repr(C)]
#[derive(Default)]
struct Settings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    duplex_to_mdio: [u8; 6],
    max_packets: [u32; 2],
    speed_high: u16,
    tail: [u8; 2],
    link_partner: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<Settings>() == 44 && std::mem::offset_of!(Settings, speed_high) == 28);

/// Speed of a network device in Mbit/s, -1 where it does not know (`SPEED_UNKNOWN`); `None` for a device without such settings.
#[must_use]
pub fn link_mbit_per_s(device: &str) -> Option<i32> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    let mut settings = Settings { command: GET_SETTINGS, ..Settings::default() };
    // SAFETY: all zeros are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays a NUL.
    if device.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut settings).cast();
    // SAFETY: the request is whole, and what it points at is as long as GET_SETTINGS fills; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
    (result == 0).then_some(speed.cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_ticks() {
        let timex = timex().expect("asking is allowed");
        assert!((0..=5).contains(&timex.state) && timex.tick > 0, "{timex:?}");
    }

    #[test]
    fn links_that_have_no_speed() {
        for device in ["lo", "no-such-device", "a-name-that-is-longer-than-any", ""] {
            assert_eq!(link_mbit_per_s(device), None, "{device}");
        }
    }
}
