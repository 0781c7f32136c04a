// SPDX-License-Identifier: Apache-2.0
//! The way to the controller: the addresses at both ends of a connection to it, and the network device that READs will come in by.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use onlooker_agent_lib::config;
use onlooker_responder::attach;
use onlooker_responder::{Device, Home, Hook, probe};

use crate::JoinError;
use crate::url::Url;

const IF_INET6: &str = "/proc/net/if_inet6";
/// `IFA_F_` flags of addresses that do not last, or are none yet: temporary, of a failed or running duplicate address detection, deprecated.
const PASSING: u32 = 0x01 | 0x08 | 0x20 | 0x40;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// This host's address.
    pub local: IpAddr,
    /// The controller's, the one that answered first.
    pub controller: Vec<IpAddr>,
}

impl Way {
    /// Connects to the controller and looks.
    ///
    /// # Errors
    /// [`JoinError::Unreachable`].
    pub fn find(url: &Url) -> Result<Self, JoinError> {
        let unreachable = |what: String| JoinError::Unreachable { url: url.to_string(), what };
        let resolved = (url.host.as_str(), url.port).to_socket_addrs();
        let addresses: Vec<SocketAddr> = resolved
            .map_err(|error| {
                unreachable(format!("cannot resolve {}: {error}; check the name, or give an address", url.host))
            })?
            .collect();
        let mut last = unreachable(format!("{} has no address", url.host));
        for address in &addresses {
            match TcpStream::connect_timeout(address, CONNECT_TIMEOUT).and_then(|stream| stream.local_addr()) {
                Ok(local) => {
                    let others = addresses.iter().filter(|other| *other != address);
                    let controller = std::iter::once(address).chain(others).map(|address| address.ip().to_canonical());
                    let local = lasting(local.ip().to_canonical(), &fs::read_to_string(IF_INET6).unwrap_or_default());
                    return Self::between(local, controller.collect()).map_err(unreachable);
                }
                Err(error) => last = unreachable(why_not(*address, &error)),
            }
        }
        Err(last)
    }

    fn between(local: IpAddr, controller: Vec<IpAddr>) -> Result<Self, String> {
        let reached = controller[0];
        if reached.is_loopback() || reached == local {
            // Packets to an own address stay on the loopback device, where they have a loopback source.
            let loopback = if reached.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            return Ok(Self { local: loopback, controller: vec![loopback] });
        }
        if matches!(local, IpAddr::V6(address) if address.is_unicast_link_local()) {
            return Err(format!(
                "the way to it begins at the link-local address {local}, which a controller cannot be told: give another URL"
            ));
        }
        let mut addresses: Vec<IpAddr> = Vec::new();
        for address in controller {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self { local, controller: addresses })
    }
}

/// The address of this host to be read at, where a connection begins at `local`: for a temporary IPv6 address (RFC 8981), which is gone tomorrow, the lasting one
/// of its device and prefix, if `addresses` (of [`IF_INET6`]) have one.
fn lasting(local: IpAddr, addresses: &str) -> IpAddr {
    let IpAddr::V6(own) = local else { return local };
    let known: Vec<(u128, &str, u32)> = addresses
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [address, _, _, _, flags, device] = words[..] else { return None };
            Some((u128::from_str_radix(address, 16).ok()?, device, u32::from_str_radix(flags, 16).ok()?))
        })
        .collect();
    let Some((_, device, _)) = known.iter().find(|(address, _, flags)| *address == own.to_bits() && flags & 0x01 != 0)
    else {
        return local;
    };
    let same_prefix = |address: u128| address >> 64 == own.to_bits() >> 64;
    let better =
        known.iter().find(|(address, on, flags)| on == device && flags & PASSING == 0 && same_prefix(*address));
    better.map_or(local, |(address, _, _)| Ipv6Addr::from_bits(*address).into())
}

fn why_not(address: SocketAddr, error: &io::Error) -> String {
    let next = match error.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: is the controller running, and is [http] listen in its controller.toml an address that others reach (127.0.0.1:7180 is the default)?"
        }
        io::ErrorKind::TimedOut => "no answer: check the address, and the firewalls on the way and at the controller",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            "this host has no route to it: check the address, and `ip route get`"
        }
        _ => "check the address",
    };
    format!("{address}: {error}; {next}")
}

/// Whether an address is this host's.
#[must_use]
pub fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Where the kernel responder shall answer, or why there is none.
///
/// # Errors
/// [`JoinError::Kernel`] where `device` was asked for and cannot be had.
pub fn device(
    device: Option<&str>,
    local: IpAddr,
    settings: &config::Kernel,
) -> Result<Result<String, String>, JoinError> {
    let found = match device {
        Some(name) => Device::named(name).map_err(|error| error.to_string()),
        None => Device::with_address(local).map_err(|error| error.to_string()).and_then(|found| {
            found.ok_or_else(|| format!("no network device has the address {local}: name one with --device"))
        }),
    };
    let usable = found.and_then(|found| obstacle(&found, settings).map_or_else(|| Ok(found.name().to_owned()), Err));
    match (usable, device) {
        (Err(what), Some(name)) => Err(JoinError::Kernel { device: name.to_owned(), what }),
        (usable, _) => Ok(usable),
    }
}

/// What stands in the way of a kernel responder, found by the same probes that the agent explains itself with.
fn obstacle(device: &Device, settings: &config::Kernel) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("checking whether BPF works here needs root".to_owned());
    }
    let missing: Vec<String> = probe::all()
        .iter()
        .filter(|probe| probe.required)
        .filter_map(|probe| Some(format!("{} (Linux {}): {}", probe.name, probe.since, probe.found.as_ref().err()?)))
        .collect();
    if !missing.is_empty() {
        return Some(format!("this kernel, or this container, does not let us have {}", missing.join(", ")));
    }
    let home = Home::new(&settings.bpffs, &settings.name);
    let pinned = match &home {
        Err(error) => return Some(error.to_string()),
        // What is attached already is our own.
        Ok(home) => home.exists(),
    };
    let hook = match settings.hook {
        config::kernel::Hook::Tc => Hook::Tc,
        config::kernel::Hook::Xdp => Hook::Xdp,
    };
    let max_read_bytes = u32::try_from(settings.max_read_bytes.as_bytes()).unwrap_or(u32::MAX);
    if pinned { None } else { attach::check(device, hook, max_read_bytes).err().map(|error| error.to_string()) }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_way_to_ourselves_is_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let way = Way::find(&Url::parse(&format!("http://127.0.0.1:{port}")).unwrap()).unwrap();
        assert_eq!(way, Way { local: Ipv4Addr::LOCALHOST.into(), controller: vec![Ipv4Addr::LOCALHOST.into()] });
        let own: IpAddr = "10.0.0.3".parse().unwrap();
        assert_eq!(Way::between(own, vec![own]).unwrap(), way);
        drop(listener);
        let error = Way::find(&Url::parse(&format!("http://127.0.0.1:{port}")).unwrap()).unwrap_err().to_string();
        assert!(error.contains("nothing listens there"), "{error}");
    }

    #[test]
    fn all_addresses_of_the_controller_count_once() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let way = Way::between(ip("10.0.0.3"), vec![ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.1")]).unwrap();
        assert_eq!(way.controller, [ip("10.0.0.1"), ip("10.0.0.2")]);
        assert!(Way::between(ip("fe80::3"), vec![ip("fe80::1")]).unwrap_err().contains("link-local"));
        assert!(is_own(ip("127.0.0.1")) && !is_own(ip("192.0.2.1")));
    }

    #[test]
    fn a_temporary_address_is_not_told() {
        let addresses = "\
            20010db8000000000000000000000003 02 40 00 80     eth0\n\
            20010db800000000aaaaaaaaaaaaaaaa 02 40 00 01     eth0\n\
            20010db800000001bbbbbbbbbbbbbbbb 02 40 00 01     eth0\n\
            20010db8000000000000000000000004 03 40 00 80     eth1\n\
            fe800000000000000000000000000001 02 40 20 80     eth0\n";
        let told = |text: &str| lasting(text.parse().unwrap(), addresses).to_string();
        assert_eq!(told("2001:db8::aaaa:aaaa:aaaa:aaaa"), "2001:db8::3");
        assert_eq!(told("2001:db8::4"), "2001:db8::4");
        assert_eq!(told("2001:db8:0:1:bbbb:bbbb:bbbb:bbbb"), "2001:db8:0:1:bbbb:bbbb:bbbb:bbbb", "it has no other");
        assert_eq!(told("192.0.2.1"), "192.0.2.1");
    }

    #[test]
    fn a_device_that_was_asked_for_must_be_there() {
        let error = device(Some("no-such-dev"), Ipv4Addr::LOCALHOST.into(), &config::Kernel::default()).unwrap_err();
        assert!(matches!(&error, JoinError::Kernel { device, .. } if device == "no-such-dev"), "{error}");
        let none = device(None, "192.0.2.1".parse().unwrap(), &config::Kernel::default()).unwrap();
        assert!(none.unwrap_err().contains("--device"));
    }
}
