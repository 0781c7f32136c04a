// SPDX-License-Identifier: Apache-2.0
//! What to do where a host does not publish what a view shows.

/// How to have a table that agents publish only if they are told to (docs/tables.md).
pub(super) fn off(table: &str) -> Vec<String> {
    [
        &format!("This host's agent does not publish {table}. To switch it on, add to"),
        "/etc/onlooker/agent.toml on the host",
        "",
        &format!("    [{table}]"),
        "    enabled = true",
        "",
        "and restart the agent: systemctl restart onlooker-agent. It looks only while",
        "somebody reads (docs/tables.md).",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// How to have metrics of programs.
pub(super) fn no_programs() -> Vec<String> {
    [
        "No program on this host has registered with its agent.",
        "",
        "A program publishes its metrics with one C header or a Rust crate",
        "(docs/sdk-c.md, docs/sdk-rust.md). It finds the agent by its socket,",
        "/run/onlooker/agent.sock.",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Where the agent publishes nothing of the machine.
pub(super) fn no_machine() -> Vec<String> {
    [
        "This host's agent publishes nothing of the machine. To switch it on, see",
        "[sampled] groups and [kernel] devices in /etc/onlooker/agent.toml on the",
        "host, and restart the agent.",
    ]
    .map(str::to_owned)
    .to_vec()
}
