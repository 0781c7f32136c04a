// SPDX-License-Identifier: Apache-2.0
//! Who else is at RoCEv2's own UDP port, where the responder answers RDMA devices (`[kernel] roce`). It does not own that port, so others are no error; but who has set this up
//! should know of them.

use std::fs;

/// RoCEv2's port, as tables of sockets have it.
const PORT: &str = "12B7";
const SOCKETS: [&str; 2] = ["/proc/net/udp", "/proc/net/udp6"];
const DEVICES: &str = "/sys/class/infiniband";

/// A line for each other owner there may be in this network namespace.
#[must_use]
pub fn warnings() -> Vec<String> {
    let is_taken = SOCKETS.iter().any(|path| fs::read_to_string(path).is_ok_and(|table| has_port(&table)));
    let mut devices: Vec<String> = fs::read_dir(DEVICES).map_or_else(
        |_| Vec::new(),
        |entries| entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
    );
    devices.sort();
    told(is_taken, &devices)
}

fn told(is_taken: bool, devices: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    if is_taken {
        lines.push(
            "warning: [kernel] roce: soft-RoCE or a program has UDP port 4791 here; READs of this host's regions are the kernel responder's, what else comes there goes on to it"
                .to_owned(),
        );
    }
    if !devices.is_empty() {
        lines.push(format!(
            "warning: [kernel] roce: this machine has RDMA devices ({}); a card takes UDP port 4791 before the kernel responder sees it: let such a card answer itself ([verbs])",
            devices.join(", ")
        ));
    }
    lines
}

/// Whether a socket of a /proc/net/udp table is bound to the port.
fn has_port(table: &str) -> bool {
    let is_there =
        |line: &str| line.split_whitespace().nth(1).is_some_and(|local| local.rsplit(':').next() == Some(PORT));
    table.lines().skip(1).any(is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_found_by_its_local_port() {
        assert_eq!(u16::from_str_radix(PORT, 16), Ok(onlooker_wire::ROCE_PORT));
        let line =
            |local: &str, remote: &str| format!("  sl  local_address rem_address   st\n  52: {local} {remote} 07 0\n");
        assert!(has_port(&line("00000000:12B7", "00000000:0000")));
        assert!(has_port(&line("00000000000000000000000000000000:12B7", "00000000000000000000000000000000:0000")));
        assert!(!has_port(&line("00000000:12B6", "0100007F:12B7")), "the other end's");
        assert!(!has_port("") && !has_port("  sl  local:12B7\n") && !has_port("\n52:\n"));
    }

    #[test]
    fn each_other_owner_has_a_line() {
        let cards = ["mlx5_0".to_owned(), "rxe0".to_owned()];
        assert!(told(false, &[]).is_empty());
        assert_eq!((told(true, &[]).len(), told(true, &cards).len()), (1, 2));
        assert!(told(false, &cards)[0].contains("(mlx5_0, rxe0)"));
    }
}
