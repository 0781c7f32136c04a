// SPDX-License-Identifier: Apache-2.0
//! The BPF program before the sockets: loaded, given its address and port, attached to a device.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use onlooker_responder::log::with_log;
use onlooker_responder::{Device, sys};

use crate::memory::MAX_FRAME_BYTES;
use crate::skeleton::SteerSkelBuilder;
use crate::{Error, Mode};

/// A program on a device, as long as this lives.
#[derive(Debug)]
pub(crate) struct Steering {
    sockets: MapHandle,
    _link: OwnedFd,
    pub(crate) mode: Mode,
}

impl Steering {
    pub(crate) fn attach(device: &Device, own: SocketAddr, queues: u32) -> Result<Self, Error> {
        let bpf = |operation| move |source| Error::Bpf { operation, device: device.name().to_owned(), source };
        let system = |operation| move |source| Error::System { operation, device: device.name().to_owned(), source };
        let mut object = MaybeUninit::uninit();
        let mut open = SteerSkelBuilder::default().open(&mut object).map_err(bpf("opening the BPF program"))?;
        let data = open.maps.rodata_data.as_mut().expect("the program has read-only data");
        match own.ip() {
            IpAddr::V4(address) => data.own.address[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => data.own.address = address.octets(),
        }
        data.own.port = own.port().to_be();
        data.own.ipv6 = own.is_ipv6().into();
        assert_eq!(data.own.max_frame_bytes, MAX_FRAME_BYTES, "steer.bpf.c has the same");
        open.maps.sockets.set_max_entries(queues).map_err(bpf("sizing the BPF program's map"))?;
        let (loaded, log) = with_log(|| open.load());
        let loaded = loaded.map_err(|source| Error::Load { source, log })?;
        let taken = sys::xdp_programs(device.index()).map_err(system("querying the XDP programs"))?;
        if taken.iter().any(|id| *id != 0) {
            return Err(Error::Taken { device: device.name().to_owned() });
        }
        let program = loaded.progs.onlooker_steer.as_fd();
        let link = |flags| sys::link_create(program, device.index(), sys::XDP, flags);
        let (link, mode) = match link(sys::XDP_NATIVE) {
            Ok(link) => (link, Mode::Native),
            // A driver without XDP, or without it at this MTU or this number of queues: the stack runs the program.
            Err(_) => (link(sys::XDP_GENERIC).map_err(system("attaching the XDP program"))?, Mode::Generic),
        };
        let sockets = MapHandle::try_from(&loaded.maps.sockets).map_err(bpf("keeping the BPF program's map"))?;
        Ok(Self { sockets, _link: link, mode })
    }

    /// From now on a queue's datagrams go to this socket.
    pub(crate) fn steer(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        self.sockets.update(&queue.to_ne_bytes(), &socket.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
    }
}
