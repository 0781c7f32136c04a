// SPDX-License-Identifier: Apache-2.0
//! agent.toml for a host that joins: a new text, or what would have to change in the one that is there. Without I/O.
//!
//! Nothing is opened wider than needed: the endpoints listen on the address towards the controller, and serve the controller's addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use onlooker_agent_lib::config::{Config, ConfigError, Tcp};
use onlooker_agent_lib::prefix::Prefix;
use toml_edit::{TomlError, Value};

use crate::edit::{Change, edit};

/// What the host must offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where the controller is to find the endpoints.
    pub listen: IpAddr,
    /// Port of the bootstrap endpoint, where one was asked for.
    pub bootstrap_port: Option<u16>,
    /// Who may bootstrap and READ.
    pub allow: Vec<Prefix>,
    /// Device of the kernel responder.
    pub device: Option<String>,
    /// Whether it was asked for, and not just found.
    pub device_asked: bool,
}

/// A configuration for a host that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What the file shall hold.
    pub text: String,
    /// What that means.
    pub config: Config,
    /// What is not as might be expected.
    pub notes: Vec<String>,
}

/// The text for a host without a configuration.
///
/// # Errors
/// None that is expected: the text is checked as any other.
pub fn fresh(path: &Path, wanted: &Wanted) -> Result<Planned, ConfigError> {
    let default = Config::default();
    let allow = list(&wanted.allow);
    let bootstrap = SocketAddr::new(wanted.listen, wanted.bootstrap_port.unwrap_or(default.bootstrap.listen.port()));
    let tcp = SocketAddr::new(wanted.listen, default.tcp.listen.port());
    let mut text = format!(
        "# Written by `onlooker-agent join`; `onlooker-agent join --undo` removes it. What does not stand here is as in docs/agent.md.\n\n\
         [bootstrap]\nlisten = \"{bootstrap}\"\nallow = {allow}\n\n[tcp]\nlisten = \"{tcp}\"\nallow = {allow}\n"
    );
    if let Some(device) = &wanted.device {
        text.push_str(&format!("\n[kernel]\ndevices = {}\nallow = {allow}\n", list(&[device])));
    }
    Ok(Planned { config: Config::parse(path, &text)?, text, notes: Vec::new() })
}

/// The text that is there, with the changes that are needed; the same text where it suits.
///
/// # Errors
/// It does not parse.
pub fn adapted(path: &Path, text: &str, wanted: &Wanted) -> Result<Planned, ConfigError> {
    let before = Config::parse(path, text)?;
    let (changes, notes) = changes(&before, wanted);
    if changes.is_empty() {
        return Ok(Planned { text: text.to_owned(), config: before, notes });
    }
    let unchanged = |error: TomlError| {
        let message = format!("this file cannot be changed here: {}", error.message());
        ConfigError::Parse { path: path.into(), line: 1, message }
    };
    let text = edit(text, &changes).map_err(unchanged)?;
    let config = Config::parse(path, &text)?;
    Ok(Planned { text, config, notes })
}

/// What an existing configuration lacks, and what is worth knowing.
fn changes(config: &Config, wanted: &Wanted) -> (Vec<Change>, Vec<String>) {
    let (mut changes, mut notes) = (Vec::new(), Vec::new());
    let mut change = |section, key, value: Value| changes.push(Change { section, key, value });
    let (bootstrap, tcp, kernel) = (&config.bootstrap, &config.tcp, &config.kernel);
    let port = wanted.bootstrap_port.or(Some(bootstrap.listen.port())).filter(|port| *port != 0);
    let listen = SocketAddr::new(wanted.listen, port.unwrap_or(7177));
    if !serves(bootstrap.listen, listen) {
        change("bootstrap", "listen", listen.to_string().into());
    }
    if let Some(allow) = with(&bootstrap.allow, &wanted.allow) {
        change("bootstrap", "allow", allow);
    }
    let port = Some(tcp.listen.port()).filter(|port| *port != 0).unwrap_or(Tcp::default().listen.port());
    let listen = SocketAddr::new(wanted.listen, port);
    if !serves(tcp.listen, listen) {
        change("tcp", "listen", listen.to_string().into());
    }
    if let Some(allow) = with(&tcp.allow, &wanted.allow) {
        change("tcp", "allow", allow);
    }
    match &wanted.device {
        Some(device) if !kernel.is_on() && !wanted.device_asked => notes
            .push(format!("the kernel responder is off in this file, and could be had: --device {device} turns it on")),
        Some(device) => {
            if !kernel.devices.contains(device) {
                let devices: Vec<&String> = kernel.devices.iter().chain([device]).collect();
                change("kernel", "devices", list(&devices));
            }
            if let Some(allow) = with(&kernel.allow, &wanted.allow) {
                change("kernel", "allow", allow);
            }
        }
        None => {}
    }
    (changes, notes)
}

/// Whether a listener at `have` is reached at `wanted`.
fn serves(have: SocketAddr, wanted: SocketAddr) -> bool {
    let everywhere = have.ip().is_unspecified() && (have.is_ipv6() || wanted.is_ipv4());
    have.port() == wanted.port() && (have.ip() == wanted.ip() || everywhere)
}

/// The list with what it lacks; `None` where that is nothing.
fn with(have: &[Prefix], wanted: &[Prefix]) -> Option<Value> {
    let lacks: Vec<&Prefix> = wanted.iter().filter(|wanted| !have.iter().any(|have| have.covers(wanted))).collect();
    (!lacks.is_empty()).then(|| list(&have.iter().chain(lacks).collect::<Vec<_>>()))
}

fn list<T: ToString>(items: &[T]) -> Value {
    items.iter().map(T::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/onlooker/agent.toml";

    fn wanted() -> Wanted {
        Wanted {
            listen: "10.0.0.3".parse().unwrap(),
            bootstrap_port: None,
            allow: vec!["10.0.0.1/32".parse().unwrap()],
            device: Some("eth0".to_owned()),
            device_asked: false,
        }
    }

    #[test]
    fn a_new_file_opens_what_is_needed_for_the_controller_only() {
        let planned = fresh(Path::new(PATH), &wanted()).unwrap();
        let expected = "[bootstrap]\nlisten = \"10.0.0.3:7177\"\nallow = [\"10.0.0.1/32\"]\n\n[tcp]\nlisten = \"10.0.0.3:7178\"\nallow = [\"10.0.0.1/32\"]\n\n[kernel]\ndevices = [\"eth0\"]\nallow = [\"10.0.0.1/32\"]\n";
        assert_eq!(planned.text.split_once("\n\n").unwrap().1, expected);
        assert!(planned.config.warnings().is_empty(), "{:?}", planned.config.warnings());
        let again = adapted(Path::new(PATH), &planned.text, &wanted()).unwrap();
        assert_eq!(again, planned, "what was written suits");
        let tcp_only =
            Wanted { device: None, bootstrap_port: Some(7000), listen: "fd00::3".parse().unwrap(), ..wanted() };
        let planned = fresh(Path::new(PATH), &tcp_only).unwrap();
        assert!(!planned.config.kernel.is_on());
        assert_eq!(planned.config.bootstrap.listen.to_string(), "[fd00::3]:7000");
    }

    #[test]
    fn a_file_that_suits_is_left_as_it_is() {
        let text =
            "# ours\n[bootstrap]\nlisten = \"[::]:7277\"\n[tcp]\nlisten = \"0.0.0.0:7178\"\nallow = [\"10.0.0.0/8\"]\n";
        let planned = adapted(Path::new(PATH), text, &wanted()).unwrap();
        assert_eq!(planned.text, text);
        assert!(planned.notes[0].contains("--device eth0"), "{:?}", planned.notes);
    }

    #[test]
    fn what_does_not_suit_is_changed_and_the_rest_stays() {
        let text = "# ours\n[agent]\nhost = \"web\"\n[bootstrap]\nlisten = \"127.0.0.1:7277\" # here\n[tcp]\nallow = [\n  \"192.0.2.0/24\",\n]\n[kernel]\ndevices = [\"eth1\"]\n";
        let planned = adapted(Path::new(PATH), text, &Wanted { device_asked: true, ..wanted() }).unwrap();
        assert_eq!(
            planned.text,
            "# ours\n[agent]\nhost = \"web\"\n[bootstrap]\nlisten = \"10.0.0.3:7277\"\n[tcp]\nallow = [\"192.0.2.0/24\", \"10.0.0.1/32\"]\nlisten = \"10.0.0.3:7178\"\n[kernel]\ndevices = [\"eth1\", \"eth0\"]\nallow = [\"127.0.0.0/8\", \"::1/128\", \"10.0.0.1/32\"]\n"
        );
        assert_eq!(planned.config.agent.host, "web");
    }

    #[test]
    fn a_file_is_changed_however_it_is_written() {
        for text in [
            "tcp.listen = \"127.0.0.1:7178\"\n",
            "tcp = { listen = \"127.0.0.1:7178\" }\n",
            "[tcp]\nallow = [\"192.0.2.0/24\",\n  \"198.51.100.0/24\"]\n[kernel]\nallow = [\"192.0.2.0/24\",\n  \"198.51.100.0/24\"]\nport = 4800\n",
        ] {
            let planned = adapted(Path::new(PATH), text, &wanted()).unwrap();
            assert_eq!(planned.config.tcp.listen.to_string(), "10.0.0.3:7178", "{}", planned.text);
            let again = adapted(Path::new(PATH), &planned.text, &wanted()).unwrap();
            assert_eq!(again, planned, "what was changed suits");
        }
        let error = adapted(Path::new(PATH), "[tpc]\n", &wanted()).unwrap_err().to_string();
        assert!(error.contains("did you mean `tcp`"), "{error}");
    }

    #[test]
    fn port_zero_is_no_place_to_be_found_at() {
        let planned = adapted(Path::new(PATH), "[bootstrap]\nlisten = \"10.0.0.3:0\"\n", &wanted()).unwrap();
        assert_eq!(planned.config.bootstrap.listen.to_string(), "10.0.0.3:7177");
    }
}
