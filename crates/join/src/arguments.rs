// SPDX-License-Identifier: Apache-2.0
//! What `onlooker-agent join` is told, and where its token comes from.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use onlooker_agent_lib::prefix::Prefix;
use onlooker_flow::Priority;
use onlooker_settings::units::Span;

use crate::JoinError;

/// Where the token is taken from if it is not an argument: other users cannot see this in the process list.
pub const TOKEN_VARIABLE: &str = "ONLOOKER_JOIN_TOKEN";
/// A token file with more bytes than this holds something else.
const MAX_TOKEN_BYTES: usize = 4096;

/// Arguments of `onlooker-agent join`.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The controller: `http://HOST[:PORT]` or `https://HOST[:PORT]`
    #[arg(required_unless_present = "undo")]
    pub url: Option<String>,
    /// The controller's token, or @FILE with it. All users can see arguments in the process list: give @FILE, or set ONLOOKER_JOIN_TOKEN and leave this out
    pub token: Option<String>,
    /// Change nothing: check that the controller answers and takes the token, and say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Undo what a join did here and at the controller, and nothing else
    #[arg(long, conflicts_with_all = ["url", "name", "label", "interval", "priority", "device", "no_kernel", "address", "allow", "force", "replace"])]
    pub undo: bool,
    /// The host's name at the controller [default: the system's node name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A label of all its series; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = label)]
    pub label: Vec<(String, String)>,
    /// Time between two readings, e.g. 1s; with the token for hosts 100ms at least, unless min_interval of the controller says otherwise [default: as the controller is configured]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub interval: Option<Span>,
    /// Its class where the controller cannot read all hosts in time: high, normal or low; high needs the controller's own token, that of its token_file [default: normal]
    #[arg(long, value_name = "CLASS", value_parser = priority)]
    pub priority: Option<Priority>,
    /// Network device for the kernel responder [default: the one that has the address towards the controller, if BPF works here]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// No kernel responder: READs are answered by the agent, over TCP
    #[arg(long, conflicts_with = "device")]
    pub no_kernel: bool,
    /// Where the controller reaches this host's bootstrap endpoint [default: the local address towards the controller, port 7177]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub address: Option<String>,
    /// Also allow this source, if the controller reads from another address than that of its URL (a proxy, several addresses); may be repeated
    #[arg(long, value_name = "ADDRESS[/BITS]", value_parser = source)]
    pub allow: Vec<Prefix>,
    /// Certificate authority of the controller's certificate, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Change an existing configuration or unit file that does not suit; the old one is kept beside it as *.before-join
    #[arg(long)]
    pub force: bool,
    /// Take over the name if the controller has it with another token (a reinstalled host): needs the controller's own token, that of its token_file
    #[arg(long)]
    pub replace: bool,
    /// Print one JSON object, at the end
    #[arg(long)]
    pub json: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    let mut bytes = key.bytes();
    let begins = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !begins || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') || key.starts_with("__") {
        return Err("the key must be letters, digits and _, not begin with a digit or __".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn span(text: &str) -> Result<Span, String> {
    // The deserialiser of configuration files knows the units and explains what is wrong.
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}

fn priority(text: &str) -> Result<Priority, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}

fn source(text: &str) -> Result<Prefix, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Prefix::host(address)),
        Err(_) => text.parse(),
    }
}

/// The token: an argument, a file, or the environment.
///
/// # Errors
/// [`JoinError::Usage`]: there is none, or no usable one. The token itself is in no message.
pub fn token(argument: Option<&str>, variable: Option<String>) -> Result<String, JoinError> {
    let (text, place) = match (argument, variable) {
        (Some(argument), _) => match argument.strip_prefix('@') {
            Some(path) => (read(Path::new(path))?, path.to_owned()),
            None => (argument.to_owned(), "the argument TOKEN".to_owned()),
        },
        (None, Some(text)) => (text, TOKEN_VARIABLE.to_owned()),
        (None, None) => {
            return Err(JoinError::Usage(format!(
                "no token: give the controller's token as the second argument (@FILE for a file with it), or in {TOKEN_VARIABLE}"
            )));
        }
    };
    let text = text.trim().to_owned();
    // What may stand in a header (RFC 9110, section 5.5), without white space.
    if text.is_empty() || text.len() > MAX_TOKEN_BYTES || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(JoinError::Usage(format!(
            "{place}: this is no token: one line of printable ASCII is wanted, as in the controller's [http] join_token_file"
        )));
    }
    Ok(text)
}

fn read(path: &Path) -> Result<String, JoinError> {
    std::fs::read_to_string(path)
        .map_err(|error| JoinError::Usage(format!("cannot read the token file {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_from_the_argument_a_file_or_the_environment() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "from-a-file\n").unwrap();
        let file = format!("@{}", path.display());
        let get = |argument: Option<&str>, variable: Option<&str>| token(argument, variable.map(str::to_owned));
        assert_eq!(get(Some("given"), Some("variable")).unwrap(), "given");
        assert_eq!(get(Some(&file), None).unwrap(), "from-a-file");
        assert_eq!(get(None, Some("variable")).unwrap(), "variable");
        for (argument, variable, part) in [
            (None, None, TOKEN_VARIABLE),
            (Some("@/no/such/file"), None, "/no/such/file"),
            (Some("two words"), None, "this is no token"),
            (None, Some(""), "this is no token"),
        ] {
            let error = get(argument, variable).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("two words"), "{error}");
        }
    }

    #[test]
    fn labels_times_classes_and_sources_are_checked() {
        assert_eq!(label("dc=a=b"), Ok(("dc".to_owned(), "a=b".to_owned())));
        assert!(["dc", "=a", "1a=b", "__name__=x", "a-b=c"].iter().all(|text| label(text).is_err()));
        assert_eq!(span("10ms"), Ok(Span::from_ms(10)));
        assert!(span("10").unwrap_err().contains("ms"));
        assert_eq!(priority("high"), Ok(Priority::High));
        assert!(priority("first").unwrap_err().contains("`high`, `normal`, `low`"));
        assert_eq!(source("10.0.0.1").unwrap().to_string(), "10.0.0.1/32");
        assert_eq!(source("fd00::/8").unwrap().to_string(), "fd00::/8");
        assert!(source("10.0.0.1/8").is_err());
    }

    #[test]
    fn the_help_names_the_controllers_floor() {
        let shipped = include_str!("../../../packaging/controller.toml");
        let floor = shipped.lines().find_map(|line| line.strip_prefix("min_interval = ")).unwrap().trim_matches('"');
        let mut command = <Options as clap::Args>::augment_args(clap::Command::new("join"));
        let help = command.render_help().to_string();
        let line = help.lines().find(|line| line.contains("--interval") || line.contains("min_interval")).unwrap();
        assert!(line.contains(floor) && line.contains("min_interval"), "{help}");
    }
}
