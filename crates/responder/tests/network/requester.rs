// SPDX-License-Identifier: Apache-2.0
//! The simplest requesters: one on a UDP socket, as real ones are, and one on a packet socket, which sees and makes whole frames.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use onlooker_wire::{Envelope, Packet, Part, Psn, Qpn, ReadAnswer, ReadRequest};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};

use crate::support::{RKEY, VA};
use crate::world::{PORT, REQUESTER_DEVICE, World, addresses};

/// A requester on a UDP socket: unconnected and with "don't fragment", so that the IP identification is 0, which the ICRC covers.
pub(crate) struct UdpRequester {
    socket: UdpSocket,
    to_responder: Envelope,
    from_responder: Envelope,
    responder: SocketAddr,
    psn: u32,
}

impl UdpRequester {
    /// In the world's requester namespace.
    pub(crate) fn new(world: &World, ipv6: bool) -> Self {
        let (own, responder) = addresses(ipv6);
        world.at_requester(|| Self::between(own, SocketAddr::new(responder, PORT)))
    }

    pub(crate) fn between(own: IpAddr, responder: SocketAddr) -> Self {
        let socket = UdpSocket::bind((own, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        if own.is_ipv4() {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO).unwrap();
        } else {
            let one: libc::c_int = 1;
            let bytes = libc::socklen_t::try_from(size_of_val(&one)).unwrap();
            // Answers have no UDP checksum.
            // SAFETY: the option's value is an int, and `one` is one.
            let result = unsafe {
                let option = (&raw const one).cast();
                libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_RX, option, bytes)
            };
            assert_eq!(result, 0);
        }
        let own = socket.local_addr().unwrap();
        Self {
            to_responder: Envelope::socket(own, responder).unwrap(),
            from_responder: Envelope::socket(responder, own).unwrap(),
            socket,
            responder,
            psn: 0,
        }
    }

    /// Sends without UDP checksum from now on, so that no device has one to finish.
    pub(crate) fn without_checksum(self) -> Self {
        let one: libc::c_int = 1;
        let bytes = libc::socklen_t::try_from(size_of_val(&one)).unwrap();
        let (level, option) = if self.responder.is_ipv4() {
            (libc::SOL_SOCKET, libc::SO_NO_CHECK)
        } else {
            (libc::IPPROTO_UDP, libc::UDP_NO_CHECK6_TX)
        };
        // SAFETY: the option's value is an int, and `one` is one.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const one).cast(), bytes) };
        assert_eq!(result, 0);
        self
    }

    /// How long to wait for an answer: half a second unless told.
    pub(crate) fn patience(&mut self, time: Duration) {
        self.socket.set_read_timeout(Some(time)).unwrap();
    }

    fn datagram(&mut self, va: u64, rkey: u32, length_bytes: u32) -> Vec<u8> {
        self.psn += 1;
        let request =
            ReadRequest { destination: Qpn::wrapping(0x1234), psn: Psn::wrapping(self.psn), va, rkey, length_bytes };
        let mut datagram = [0; 64];
        let length = Packet::from(request).write_datagram(&self.to_responder, &mut datagram).unwrap();
        datagram[..length].to_vec()
    }

    /// `count` READs in one call with UDP segmentation offload.
    pub(crate) fn send_segmented(&mut self, va: u64, rkey: u32, length_bytes: u32, count: usize) {
        let each: Vec<Vec<u8>> = (0..count).map(|_| self.datagram(va, rkey, length_bytes)).collect();
        let size = libc::c_int::try_from(each[0].len()).unwrap();
        let set = |size: libc::c_int| {
            let bytes = libc::socklen_t::try_from(size_of_val(&size)).unwrap();
            let (fd, value) = (self.socket.as_raw_fd(), (&raw const size).cast());
            // SAFETY: the option's value is an int, and `size` is one.
            assert_eq!(unsafe { libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, value, bytes) }, 0);
        };
        set(size);
        self.socket.send_to(&each.concat(), self.responder).unwrap();
        set(0);
    }

    /// Counts answers until none comes any more.
    pub(crate) fn answers(&mut self) -> usize {
        let mut buffer = [0; 10_000];
        let mut count = 0;
        loop {
            let length = match self.socket.recv_from(&mut buffer) {
                Ok((length, _)) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return count,
            };
            let answer = Packet::parse_datagram(&self.from_responder, &buffer[..length]).unwrap();
            assert!(matches!(answer, Packet::ReadAnswer(_)));
            count += 1;
        }
    }

    /// One READ; `None` where no answer came in time.
    pub(crate) fn read(&mut self, va: u64, rkey: u32, length_bytes: u32) -> Option<Vec<u8>> {
        self.psn += 1;
        let (destination, psn) = (Qpn::wrapping(0x1234), Psn::wrapping(self.psn));
        let request = Packet::from(ReadRequest { destination, psn, va, rkey, length_bytes });
        let mut datagram = [0; 64];
        let length = request.write_datagram(&self.to_responder, &mut datagram).unwrap();
        self.socket.send_to(&datagram[..length], self.responder).unwrap();
        let mut buffer = [0; 10_000];
        loop {
            let length = match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    assert_eq!(from, self.responder);
                    length
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{error}"),
            };
            match Packet::parse_datagram(&self.from_responder, &buffer[..length]).unwrap() {
                Packet::ReadAnswer(ReadAnswer { part: Part::Only(_), psn: answered, destination: to, payload }) => {
                    assert_eq!(to, destination);
                    // An answer to a READ that was given up.
                    if answered == psn {
                        return Some(payload.to_vec());
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// A READ of the test region.
    pub(crate) fn read_at(&mut self, offset_bytes: u64, length_bytes: u32) -> Option<Vec<u8>> {
        self.read(VA + offset_bytes, RKEY, length_bytes)
    }
}

/// A packet socket on the requester's device.
pub(crate) struct FrameSocket {
    socket: OwnedFd,
}

impl FrameSocket {
    pub(crate) fn new(world: &World) -> Self {
        world.at_requester(|| {
            let every = u16::try_from(libc::ETH_P_ALL).unwrap().to_be();
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            // SAFETY: plain system calls; the name is NUL-terminated, the address is a zeroed sockaddr_ll with its own size.
            unsafe {
                let fd = libc::socket(libc::AF_PACKET, kind, i32::from(every));
                assert!(fd >= 0, "{}", io::Error::last_os_error());
                let socket = OwnedFd::from_raw_fd(fd);
                let name = std::ffi::CString::new(REQUESTER_DEVICE).unwrap();
                let mut address: libc::sockaddr_ll = std::mem::zeroed();
                address.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
                address.sll_protocol = every;
                address.sll_ifindex = i32::try_from(libc::if_nametoindex(name.as_ptr())).unwrap();
                let bytes = libc::socklen_t::try_from(size_of_val(&address)).unwrap();
                assert_eq!(libc::bind(fd, (&raw const address).cast(), bytes), 0, "{}", io::Error::last_os_error());
                let one: libc::c_int = 1;
                let bytes = libc::socklen_t::try_from(size_of_val(&one)).unwrap();
                let set = libc::setsockopt(fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, (&raw const one).cast(), bytes);
                assert_eq!(set, 0, "{}", io::Error::last_os_error());
                let wait = libc::timeval { tv_sec: 0, tv_usec: 500_000 };
                let bytes = libc::socklen_t::try_from(size_of_val(&wait)).unwrap();
                let set = libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const wait).cast(), bytes);
                assert_eq!(set, 0, "{}", io::Error::last_os_error());
                Self { socket }
            }
        })
    }

    /// One that receives nothing and hands frames straight to the device.
    pub(crate) fn for_sending(world: &World) -> Self {
        let this = Self::new(world);
        let set = |level: libc::c_int, option: libc::c_int, value: *const libc::c_void, bytes: usize| {
            let bytes = libc::socklen_t::try_from(bytes).unwrap();
            // SAFETY: `value` points at `bytes` live bytes of the type that the option wants.
            let result = unsafe { libc::setsockopt(this.socket.as_raw_fd(), level, option, value, bytes) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
        };
        let one: libc::c_int = 1;
        set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, (&raw const one).cast(), size_of_val(&one));
        // ret #0
        let mut nothing = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
        set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, (&raw const program).cast(), size_of_val(&program));
        this
    }

    /// Sends frames in one system call; returns how many the device took.
    pub(crate) fn send_batch(&self, frames: &[Vec<u8>]) -> u64 {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .map(|part| {
                // SAFETY: zeros are a valid message without address and control data.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (part, 1);
                message
            })
            .collect();
        let count = u32::try_from(messages.len()).unwrap();
        // SAFETY: there are `count` messages, each with one part that points into a live frame, which is only read.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        // ENOBUFS: the first of them was dropped by the device's queue.
        u64::try_from(sent).unwrap_or(0)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        let sent = rustix::net::send(&self.socket, frame, rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
    }

    /// The next frame that comes in and satisfies `wanted`, with the VLAN tag that the kernel took out of it put back; `None` after half a second.
    pub(crate) fn receive(&self, wanted: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            if let Some(frame) = self.receive_one()
                && wanted(&frame)
            {
                return Some(frame);
            }
        }
        None
    }

    fn receive_one(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0u8; 10_000];
        let mut control = [0u64; 16];
        // SAFETY: all pointers in the message point at live buffers of the lengths stated, `control` is aligned for cmsghdr, and the walk over control
        // messages is the one of cmsg(3); the auxiliary data is copied out unaligned.
        unsafe {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = libc::socklen_t::try_from(size_of_val(&address)).unwrap();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let length = libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0);
            let length = usize::try_from(length).ok()?;
            if address.sll_pkttype == libc::PACKET_OUTGOING {
                return None;
            }
            buffer.truncate(length);
            let mut next = libc::CMSG_FIRSTHDR(&raw const message);
            while let Some(header) = next.as_ref() {
                if header.cmsg_level == libc::SOL_PACKET && header.cmsg_type == libc::PACKET_AUXDATA {
                    let aux: libc::tpacket_auxdata = std::ptr::read_unaligned(libc::CMSG_DATA(next).cast());
                    if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                        let [a, b] = aux.tp_vlan_tpid.to_be_bytes();
                        let [c, d] = aux.tp_vlan_tci.to_be_bytes();
                        buffer.splice(12..12, [a, b, c, d]);
                    }
                }
                next = libc::CMSG_NXTHDR(&raw const message, next);
            }
        }
        Some(buffer)
    }
}
