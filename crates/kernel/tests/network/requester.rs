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
