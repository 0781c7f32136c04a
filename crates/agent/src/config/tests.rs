// SPDX-License-Identifier: Apache-2.0
use super::*;

const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/agent.toml");

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("agent.toml"), text)
}

#[test]
fn a_device_needs_an_address_and_the_kernel_responders_memory() {
    let text = "[verbs]\naddress = \"10.0.0.7\"\n";
    let kernel = "[kernel]\ndevices = [\"eth0\"]\n";
    let config = parse(&format!("{kernel}{text}[kernel.acquisition]\nload = \"computed\"\n")).unwrap();
    let is_published = |region| config.kernel.is_published(region);
    assert!(
        is_published("node_cpu") && is_published("node_netstat") && !is_published("node_load"),
        "a device runs no BPF"
    );
    assert!(!parse(kernel).unwrap().kernel.is_published("node_cpu"));
    for (text, part) in [
        (text.to_owned(), "kernel.devices"),
        (format!("{kernel}[verbs]\naddress = \"rxe0\"\n"), "an address of this machine"),
        (format!("{kernel}{text}holder = \"holder.sock\"\n"), "absolute path"),
        (format!("{kernel}{text}publish = \"100us\"\n"), "1ms to 1h"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.replace("[kernel] devices", "kernel.devices").contains(part), "{error}");
    }
}

#[test]
fn short_graces_and_plain_tokens_are_warned_of() {
    assert!(Config::default().warnings().is_empty());
    let config =
        parse("[limits]\ngrace = \"500ms\"\nreuse_delay = \"1s\"\n[bootstrap]\ntls = false\n").expect("allowed");
    assert_eq!(config.warnings().len(), 2);
}

#[test]
fn a_bootstrap_for_all_with_reads_for_nobody_is_warned_of() {
    for (text, part) in [
        ("[bootstrap]\nlisten = \"[::]:7177\"", Some("[tcp] listen = \"127.0.0.1:7178\" is loopback")),
        (
            "[bootstrap]\nlisten = \"10.0.0.1:7177\"\n[tcp]\nlisten = \"0.0.0.0:7178\"",
            Some("[tcp] allow has no address"),
        ),
        (
            "[bootstrap]\nlisten = \"0.0.0.0:7177\"\n[tcp]\nlisten = \"0.0.0.0:7178\"\nallow = []",
            Some("[tcp] allow has no address"),
        ),
        (
            "[bootstrap]\nlisten = \"0.0.0.0:7177\"\n[tcp]\nlisten = \"0.0.0.0:7178\"\nallow = [\"127.0.0.0/8\", \"10.0.0.0/8\"]",
            None,
        ),
        ("[bootstrap]\nlisten = \"127.0.0.2:7177\"", None),
    ] {
        let warnings = parse(text).expect("allowed").warnings();
        assert_eq!(warnings.len(), usize::from(part.is_some()), "{warnings:?}");
        assert!(warnings.iter().zip(part).all(|(warning, part)| warning.contains(part)), "{warnings:?}");
    }
}

#[test]
fn the_shipped_example_is_the_defaults() {
    assert_eq!(Config::load(Some(Path::new(SHIPPED))).expect("parses"), Config::default());
}

#[test]
fn the_shipped_example_has_every_key() {
    let shipped: toml::Table = fs::read_to_string(SHIPPED).expect("reads").parse().expect("parses");
    let defaults = toml::Table::try_from(Config::default()).expect("serialises");
    let keys = |table: &toml::Table| {
        let of = |(section, value): (&String, &toml::Value)| {
            let keys = value.as_table().expect("only sections at the top").keys();
            keys.map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
        };
        table.iter().flat_map(of).collect::<Vec<_>>()
    };
    assert_eq!(keys(&shipped), keys(&defaults));
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(parse("").expect("parses"), Config::default());
}

#[test]
fn a_misspelt_key_names_file_line_key_and_nearest() {
    let error = parse("[agent]\nhost = \"a\"\n\n[tcp]\nlisten = \"127.0.0.1:1\"\nmax_conections = 3\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "agent.toml:6: unknown key `max_conections`: did you mean `max_connections`? \
         (known: listen, allow, max_connections, max_connections_per_source, max_reads_per_s, idle_timeout)"
    );
}

#[test]
fn a_misspelt_section_names_the_nearest() {
    let error = parse("\n[sampeld]\n").unwrap_err().to_string();
    assert!(error.starts_with("agent.toml:2: unknown key `sampeld`: did you mean `sampled`?"), "{error}");
}

#[test]
fn a_misspelt_group_names_the_nearest() {
    let error = parse("[sampled]\ngroups = [\"cpus\"]\n").unwrap_err().to_string();
    assert!(error.starts_with("agent.toml:2: unknown value `cpus`: did you mean `cpu`?"), "{error}");
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    for (text, part) in [
        ("[quota]\nbytes_per_user = \"5000B\"", "multiple of 4KiB"),
        ("[quota]\nbytes_per_user = 4096", "64KiB"),
        ("[quota]\nregions = 0", "1 to 7168"),
        ("[tcp]\nmax_connections = 0", "1 to 1024"),
        ("[tcp]\nmax_connections_per_source = 0", "1 or more"),
        ("[agent]\nsocket = \"run/agent.sock\"", "agent.socket = run/agent.sock: must be an absolute path"),
        ("[agent]\nstate_dir = \"state\"", "agent.state_dir = state: must be an absolute path"),
        ("[agent]\nsocket = \"\"", "absolute"),
        ("[bootstrap]\nallow = [\"10.0.0.1\"]", "not an address prefix"),
        ("[sampled]\ninterval = \"1ms\"", "10ms to 1h"),
        ("[tcp]\nallow = [\"10.0.0.1/8\"]", "bits set behind its prefix"),
        ("[bootstrap]\nlisten = \"localhost\"", "socket address"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
