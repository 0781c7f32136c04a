// SPDX-License-Identifier: Apache-2.0
//! The packet filter rules that a joined host needs, as text: nothing here applies them. Without I/O.

use std::net::IpAddr;

use onlooker_agent_lib::config::Config;
use onlooker_agent_lib::prefix::Prefix;

/// Rules in the words of two packet filters.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Rules {
    /// For `nft`, into the chain `input` of the table `inet filter`.
    pub nftables: Vec<String>,
    /// For `iptables` and `ip6tables`.
    pub iptables: Vec<String>,
    /// UDP port of the kernel responder: only packet filters on the way see it, this host's own does not.
    pub kernel_udp_port: Option<u16>,
}

/// What must get through: the two TCP ports, and the kernel responder's UDP port, from those sources and no others. `None` where nothing crosses a network.
#[must_use]
pub fn rules(config: &Config, sources: &[Prefix]) -> Option<Rules> {
    if sources.iter().all(Prefix::is_loopback) {
        return None;
    }
    let (bootstrap, tcp) = (config.bootstrap.listen.port(), config.tcp.listen.port());
    let udp = config.kernel.is_on().then_some(config.kernel.port);
    let mut rules = Rules { nftables: Vec::new(), iptables: Vec::new(), kernel_udp_port: udp };
    for source in sources {
        let (family, tables) = match source.address() {
            IpAddr::V4(_) => ("ip", "iptables"),
            IpAddr::V6(_) => ("ip6", "ip6tables"),
        };
        let nft = format!("nft insert rule inet filter input {family} saddr {source}");
        rules.nftables.push(format!("{nft} tcp dport {{ {bootstrap}, {tcp} }} accept"));
        let iptables = format!("{tables} -I INPUT -s {source}");
        rules.iptables.push(format!("{iptables} -p tcp -m multiport --dports {bootstrap},{tcp} -j ACCEPT"));
        if let Some(udp) = udp {
            rules.nftables.push(format!("{nft} udp dport {udp} accept"));
            rules.iptables.push(format!("{iptables} -p udp --dport {udp} -j ACCEPT"));
        }
    }
    Some(rules)
}

impl Rules {
    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec!["with nftables (table and chain as yours are called):".to_owned()];
        lines.extend(self.nftables.iter().map(|rule| format!("  {rule}")));
        lines.push("or with iptables:".to_owned());
        lines.extend(self.iptables.iter().map(|rule| format!("  {rule}")));
        if let Some(port) = self.kernel_udp_port {
            lines.push(format!(
                "UDP {port} is the kernel responder's: it answers before this host's packet filter, so the rule for it matters in filters on the way only (routers, security groups)"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_the_ports_and_the_controller_only() {
        let mut config = Config::default();
        config.kernel.devices = vec!["eth0".to_owned()];
        config.bootstrap.listen.set_port(7000);
        let sources = ["10.0.0.1/32".parse().unwrap(), "fd00::1/128".parse().unwrap()];
        let found = rules(&config, &sources).unwrap();
        assert_eq!(
            found.nftables,
            [
                "nft insert rule inet filter input ip saddr 10.0.0.1/32 tcp dport { 7000, 7178 } accept",
                "nft insert rule inet filter input ip saddr 10.0.0.1/32 udp dport 7179 accept",
                "nft insert rule inet filter input ip6 saddr fd00::1/128 tcp dport { 7000, 7178 } accept",
                "nft insert rule inet filter input ip6 saddr fd00::1/128 udp dport 7179 accept",
            ]
        );
        assert_eq!(
            found.iptables[..2],
            [
                "iptables -I INPUT -s 10.0.0.1/32 -p tcp -m multiport --dports 7000,7178 -j ACCEPT",
                "iptables -I INPUT -s 10.0.0.1/32 -p udp --dport 7179 -j ACCEPT",
            ]
        );
        assert!(found.iptables[2].starts_with("ip6tables "));
        assert!(found.lines().last().unwrap().contains("UDP 7179"));
        config.kernel.devices.clear();
        let found = rules(&config, &sources[..1]).unwrap();
        assert_eq!((found.nftables.len(), found.iptables.len(), found.kernel_udp_port), (1, 1, None));
        assert!(!found.lines().iter().any(|line| line.contains("UDP")));
    }

    #[test]
    fn loopback_needs_none() {
        assert_eq!(rules(&Config::default(), &["127.0.0.1/32".parse().unwrap()]), None);
    }
}
