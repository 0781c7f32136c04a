// SPDX-License-Identifier: Apache-2.0
//! Network devices of the current network namespace, as far as a responder needs to know them.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::links;

/// `ARPHRD_ETHER` and `ARPHRD_LOOPBACK` of linux/if_arp.h: frames begin with an Ethernet header.
const ETHERNET_TYPES: [u16; 2] = [ETHERNET, 772];
const ETHERNET: u16 = 1;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    link: links::Link,
}

impl Device {
    /// Finds a device by its name.
    ///
    /// # Errors
    /// [`Error::NoDevice`], [`Error::System`] from the dump.
    pub fn named(name: &str) -> Result<Self> {
        let link = links::links()?.into_iter().find(|link| link.name == name);
        link.map(|link| Self { link }).ok_or_else(|| Error::NoDevice { name: name.to_owned() })
    }

    /// Finds a device by its index.
    ///
    /// # Errors
    /// As [`Device::named`].
    pub fn indexed(index: u32) -> Result<Self> {
        let link = links::links()?.into_iter().find(|link| link.index == index);
        link.map(|link| Self { link }).ok_or_else(|| Error::NoDevice { name: format!("with index {index}") })
    }

    /// Finds the device that has an address; the first, where several have it.
    ///
    /// # Errors
    /// [`Error::System`] from the dump.
    pub fn with_address(address: IpAddr) -> Result<Option<Self>> {
        let Some((index, _)) = links::addresses()?.into_iter().find(|(_, own)| *own == address) else {
            return Ok(None);
        };
        Self::indexed(index).map(Some)
    }

    /// All Ethernet devices, loopback left out.
    ///
    /// # Errors
    /// [`Error::System`] from the dump.
    pub fn all_ethernet() -> Result<Vec<Self>> {
        let ethernet = links::links()?.into_iter().filter(|link| link.hardware_type == ETHERNET);
        Ok(ethernet.map(|link| Self { link }).collect())
    }

    /// Its index, unique within the network namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.link.index
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Longest IP packet that it sends.
    #[must_use]
    pub fn mtu_bytes(&self) -> u32 {
        self.link.mtu_bytes
    }

    /// Receive queues that it was made for: at least one, and as many as are in use or more.
    #[must_use]
    pub fn receive_queues(&self) -> u32 {
        self.link.receive_queues.max(1)
    }

    /// Its addresses now, both families.
    ///
    /// # Errors
    /// [`Error::System`] from the dump.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        let all = links::addresses()?;
        Ok(all.into_iter().filter(|(index, _)| *index == self.link.index).map(|(_, address)| address).collect())
    }

    /// Whether a responder can parse its frames and its answers fit.
    pub(crate) fn check(&self, answer_ip_bytes: usize) -> Result<()> {
        let Self { link } = self;
        if !ETHERNET_TYPES.contains(&link.hardware_type) {
            return Err(Error::NotEthernet { name: link.name.clone(), hardware_type: link.hardware_type });
        }
        if u64::from(link.mtu_bytes) < u64::try_from(answer_ip_bytes).unwrap_or(u64::MAX) {
            let (name, mtu_bytes) = (link.name.clone(), link.mtu_bytes);
            return Err(Error::Mtu { name, mtu_bytes, needed_bytes: answer_ip_bytes });
        }
        Ok(())
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.link.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address_and_strangers_are_refused() {
        let lo = Device::named("lo").unwrap();
        assert_eq!(Device::indexed(lo.index()).unwrap(), lo);
        assert_eq!(Device::with_address("127.0.0.1".parse().unwrap()).unwrap().as_ref(), Some(&lo));
        assert_eq!(Device::with_address("192.0.2.1".parse().unwrap()).unwrap(), None);
        lo.check(1500).unwrap();
        assert!(matches!(lo.check(1 << 20), Err(Error::Mtu { needed_bytes: 0x0010_0000, .. })));
        assert!(matches!(Device::named("no such device"), Err(Error::NoDevice { .. })));
        let tunnel = Device { link: links::Link { hardware_type: 65534, ..lo.link } };
        assert!(matches!(tunnel.check(1500), Err(Error::NotEthernet { hardware_type: 65534, .. })));
    }
}
