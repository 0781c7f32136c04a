// SPDX-License-Identifier: Apache-2.0
//! From a bootstrap answer to a connected queue pair: a number for it and the sockets, a second bootstrap with this end of the connection, the host's end
//! (docs/format/bootstrap.md, Queue pairs). To the host it is a reader like any other.

use super::exchange::{Exchange, MAX_READ_BLOCKS, MTU_BYTES};
use super::sockets::Sockets;
use super::{Error, PacketRequester};
use onlooker_bootstrap::{Id, QueuePairEnd, VerbsRequest};
use onlooker_reader::bootstrap::Bootstrapped;
use onlooker_reader::{Error as HostError, Via};
use onlooker_wire::{Psn, Qpn, ROCE_PORT};
use rustix::rand::{GetRandomFlags, getrandom};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Without the last number, which is multicast (IBA 10.5.1).
const QUEUE_PAIRS: u32 = (1 << 24) - 1 - Qpn::FIRST.get();

/// A random id for [`VerbsRequest::reader_id`]: to be made once for each way by which a program reads a host, and kept. With another one's the host takes that one's queue pair
/// away; with a new one each time it keeps all of them.
///
/// # Errors
/// [`Error::Random`].
pub fn reader_id() -> Result<Id, Error> {
    random().map(Id)
}

/// A requester to the RDMA device of the host that gave `told`, from the address that led there. `ask` is one more bootstrap at [`Bootstrapped::peer`] with the request given;
/// its answer, returned, is the one that holds.
///
/// # Errors
/// [`crate::Error::Host`]: the host has no such responder, what `ask` says, or the host has no queue pair for it;
/// [`crate::Error::Packet`]: nothing was asked, but for [`Error::Family`].
pub fn connect(
    told: &Bootstrapped,
    reader_id: Id,
    ask: impl FnOnce(VerbsRequest) -> Result<Bootstrapped, HostError>,
) -> Result<(Bootstrapped, PacketRequester), crate::Error> {
    told.responder(Via::Verbs)?;
    let local = place(told.local, 0, told.peer);
    let own = own_end(local.ip())?;
    let sockets = Sockets::open(local, Qpn::wrapping(own.queue_pair))?;
    let told = ask(VerbsRequest { reader_id, end: own, copy: None })?;
    let (responder, _) = told.responder(Via::Verbs)?;
    let answer = responder.verbs.ok_or_else(|| HostError::NoQueuePair { peer: told.peer.to_string() })?;
    let max_read_blocks = told.answer.max_read_blocks(responder).clamp(1, MAX_READ_BLOCKS);
    let peer = place(Ipv6Addr::from(answer.end.gid.0).into(), ROCE_PORT, told.peer);
    let from = sockets.local().map_err(|source| Error::System { operation: "getsockname", address: local, source })?;
    let exchange = Exchange::new(from, peer, &own, &answer.end)?;
    Ok((told, PacketRequester { sockets, exchange, peer, max_read_blocks, full: false, now_ns: 0 }))
}

/// An address of the link that leads to `peer`: addresses that count on one link only mean nothing without it.
fn place(address: IpAddr, port: u16, peer: SocketAddr) -> SocketAddr {
    match (address.to_canonical(), peer) {
        (IpAddr::V6(v6), SocketAddr::V6(peer)) => SocketAddrV6::new(v6, port, 0, peer.scope_id()).into(),
        (address, _) => SocketAddr::new(address, port),
    }
}

/// This end, at an address of this machine: a number that nothing else has, and a first packet that no earlier connection's can be taken for. It answers no READs.
fn own_end(local: IpAddr) -> Result<QueuePairEnd, Error> {
    let [a, b, c, d, e, f, g, h, ..] = random()?;
    let gid = match local {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    Ok(QueuePairEnd {
        queue_pair: Qpn::FIRST.get() + u32::from_ne_bytes([a, b, c, d]) % QUEUE_PAIRS,
        packet: Psn::wrapping(u32::from_ne_bytes([e, f, g, h])).get(),
        gid: Id(gid.octets()),
        mtu_bytes: MTU_BYTES,
        reads_answered: 0,
    })
}

fn random() -> Result<[u8; 16], Error> {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(_) => Ok(bytes),
        Err(errno) => Err(Error::Random(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Host;
    use onlooker_bootstrap::{Responder, VERBS};

    fn told(responder: Responder) -> Bootstrapped {
        crate::told(Host::new(16).answer(1), vec![responder])
    }

    #[test]
    fn nobody_is_asked_for_a_queue_pair_that_cannot_be() {
        let connect =
            |told: &Bootstrapped| connect(told, Id([7; 16]), |_| panic!("the host was asked")).map(drop).unwrap_err();
        let whole = Responder { kind: VERBS.into(), ..Responder::default() };
        let other = Responder { kind: "tcp".into(), ..whole.clone() };
        assert!(matches!(connect(&told(other)), crate::Error::Host(HostError::NoResponder { wanted: VERBS, .. })));
        let away = Responder { problem: Some("the holder is away".into()), ..whole.clone() };
        assert!(matches!(connect(&told(away)), crate::Error::Host(HostError::Problem { kind: VERBS, .. })));
        // No address of this machine.
        let elsewhere = Bootstrapped { local: "192.0.2.1".parse().unwrap(), ..told(whole) };
        let error = connect(&elsewhere);
        assert!(matches!(error, crate::Error::Packet(Error::System { operation: "bind", .. })), "{error}");
    }

    #[test]
    fn ends_are_fresh_and_can_be() {
        let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
        let ends: Vec<_> = (0..200).map(|_| own_end(v4).unwrap()).collect();
        for end in &ends {
            assert!((2..0xff_ffff).contains(&end.queue_pair) && end.packet < 1 << 24, "{end:?}");
            assert_eq!((end.mtu_bytes, end.reads_answered), (1024, 0));
            assert_eq!(end.gid.to_string(), "00000000000000000000ffff0a000001");
        }
        assert!(ends.iter().any(|end| end.queue_pair != ends[0].queue_pair && end.packet != ends[0].packet));
        assert_eq!(own_end(v6).unwrap().gid.to_string(), "fd000000000000000000000000000001");
        assert_ne!(reader_id().unwrap(), reader_id().unwrap());
    }

    #[test]
    fn addresses_of_one_link_keep_it() {
        let peer: SocketAddr = "[fe80::7%3]:7177".parse().unwrap();
        assert_eq!(place("fe80::1".parse().unwrap(), 0, peer), "[fe80::1%3]:0".parse().unwrap());
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(place(mapped, 4791, peer), "10.0.0.1:4791".parse().unwrap());
    }
}
