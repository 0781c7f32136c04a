// SPDX-License-Identifier: Apache-2.0
//! What is probably in the way when the controller's test read of this host fails. Without I/O.

use onlooker_agent_lib::config::Config;

/// Advice by the code of the controller's refusal (docs/http.md, Targets). `local`: nothing crosses a network.
#[must_use]
pub fn unread(code: &str, address: &str, config: &Config, local: bool) -> String {
    let (bootstrap, tcp) = (config.bootstrap.listen.port(), config.tcp.listen.port());
    let kernel = config.kernel.is_on();
    match code {
        "another_agent" => {
            return format!(
                "Another agent than this one is at {address}: is the address right (--address), and did this agent read its configuration after it was written?"
            );
        }
        "no_route" => {
            return format!(
                "The controller's host has no route to {address}: check the routes there, or give an address that it reaches with --address."
            );
        }
        "resolve" => {
            return format!(
                "The controller's host knows no address of this name: give one that it reaches, instead of {address}, with --address."
            );
        }
        "closed" => {
            return "The agent closes connections of sources that it does not allow: the controller probably reads from another address than that of its URL. Find it in the controller's words or with tcpdump, and allow it with --allow ADDRESS.".to_owned();
        }
        "refused" => {
            return format!(
                "Nothing takes connections at {address}, or a packet filter rejects them: does the agent run with this configuration, and is TCP {bootstrap} and {tcp} let through?"
            );
        }
        _ => {}
    }
    if local {
        return "Nothing stands between them but this host itself: does the agent's log say more?".to_owned();
    }
    let udp = if kernel { format!(", and UDP {} on the way", config.kernel.port) } else { String::new() };
    format!(
        "Packets from the controller probably do not arrive, or the answers do not come back: apply the firewall rules above (TCP {bootstrap} and {tcp}{udp}), and check the route between both."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_probable_cause() {
        let mut config = Config::default();
        for (code, part) in [
            ("another_agent", "Another agent"),
            ("no_route", "no route to 10.0.0.3:7177"),
            ("resolve", "no address of this name"),
            ("closed", "--allow"),
            ("refused", "Nothing takes connections"),
            ("timeout", "firewall rules above (TCP 7177 and 7178)"),
            ("", "firewall rules above"),
        ] {
            let advice = unread(code, "10.0.0.3:7177", &config, false);
            assert!(advice.contains(part), "{advice}");
        }
        config.kernel.devices = vec!["eth0".into()];
        assert!(unread("silent", "a:1", &config, false).contains("UDP 7179"));
        assert!(unread("silent", "a:1", &config, true).contains("log"));
    }
}
