// SPDX-License-Identifier: Apache-2.0
//! Group `sockets`: TCP sockets by state (sock_diag) and the bytes that wait in UDP sockets (/proc/net/udp), of the agent's network namespace.
//!
//! Cost: about 0.3 us a socket, hence a shortest interval of its own.

use std::io;

use onlooker_responder::netlink::{self, Dump, u32_at};

use crate::procfs::{Source, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};
use crate::tables::connections::STATES as TCP_STATES;

static STATES: Definition =
    Definition::gauge("node_tcp_connection_states", "Number of connection states.").labels(&["state"]);
static QUEUES: Definition =
    Definition::gauge("node_udp_queues", "Number of allocated memory in the kernel for UDP datagrams in bytes.")
        .labels(&["ip", "queue"]);

/// States that node_exporter has: NEW_SYN_RECV counts as SYN_RECV. All are shown, also those in which no socket is now.
const NAMES: &[&str] = TCP_STATES.split_at(11).0;
const NEW_SYN_RECV: u8 = 12;
const SYN_RECV: u8 = 3;

const FAMILIES: [u8; 2] = [2, 10];
const PROTOCOL_TCP: u8 = 6;

struct Sockets {
    diag: Option<Dump>,
    udp: [Option<Source>; 2],
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let diag = match Dump::new(netlink::SOCKETS) {
        Ok(diag) => Some(diag),
        Err(error) => {
            context
                .notes
                .push(format!("no node_tcp_connection_states: sockets cannot be asked for over netlink: {error}"));
            None
        }
    };
    let udp = [Source::open("/proc/net/udp").ok(), Source::open("/proc/net/udp6").ok()];
    listed(Sockets { diag, udp }, ask, context)
}

/// `struct inet_diag_req_v2`: all states, no extensions.
fn request(family: u8) -> [u8; 56] {
    let mut request = [0; 56];
    (request[0], request[1]) = (family, PROTOCOL_TCP);
    request[4..8].copy_from_slice(&u32::MAX.to_ne_bytes());
    request
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    states: [u64; NAMES.len()],
    receive_bytes: u64,
    send_bytes: u64,
}

impl Count {
    /// Adds a socket: `struct inet_diag_msg`.
    fn add(&mut self, message: &[u8]) {
        let (Some(state), Some(receive), Some(send)) = (message.get(1), u32_at(message, 56), u32_at(message, 60))
        else {
            return;
        };
        let state = if *state == NEW_SYN_RECV { SYN_RECV } else { *state };
        if let Some(count) = usize::from(state).checked_sub(1).and_then(|at| self.states.get_mut(at)) {
            *count += 1;
        }
        self.receive_bytes += u64::from(receive);
        self.send_bytes += u64::from(send);
    }
}

/// Bytes in the queues of a line of /proc/net/udp: to be sent, received.
fn queues(line: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(words(line).nth(4)?).ok()?;
    let (send, receive) = text.split_once(':')?;
    let hexadecimal = |text| u64::from_str_radix(text, 16).ok();
    Some((hexadecimal(send)?, hexadecimal(receive)?))
}

impl Read for Sockets {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        if let Some(diag) = &mut self.diag {
            timed(context, &["tcpstat"], |_| {
                let mut count = Count::default();
                for family in FAMILIES {
                    diag.ask(netlink::SOCKET, &request(family), |message| count.add(message))?;
                }
                for (state, number) in NAMES.iter().zip(count.states) {
                    values.put(&STATES, &[state], number);
                }
                values.put(&STATES, &["rx_queued_bytes"], count.receive_bytes);
                values.put(&STATES, &["tx_queued_bytes"], count.send_bytes);
                Ok(())
            })?;
        }
        timed(context, &["udp_queues"], |context| {
            for (source, ip) in self.udp.iter().zip(["v4", "v6"]) {
                let Some(source) = source else { continue };
                let (mut send, mut receive) = (0, 0);
                source.each_line(context.buffer, |line| {
                    let (more_send, more_receive) = queues(line).unwrap_or_default();
                    (send, receive) = (send + more_send, receive + more_receive);
                })?;
                values.put(&QUEUES, &[ip, "tx"], send);
                values.put(&QUEUES, &[ip, "rx"], receive);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_counted_by_state() {
        let message = |state: u8, receive: u32, send: u32| {
            let mut message = [0; 72];
            message[1] = state;
            message[56..60].copy_from_slice(&receive.to_ne_bytes());
            message[60..64].copy_from_slice(&send.to_ne_bytes());
            message
        };
        let mut count = Count::default();
        for (state, receive, send) in [(1, 5, 0), (10, 1, 4096), (12, 0, 0), (3, 0, 0), (0, 0, 0), (255, 1, 1)] {
            count.add(&message(state, receive, send));
        }
        assert_eq!((count.states[0], count.states[2], count.states[9]), (1, 2, 1));
        assert_eq!((count.receive_bytes, count.send_bytes), (7, 4097));
        let before = Count { states: count.states, ..Count::default() };
        let mut short = Count { states: count.states, ..Count::default() };
        (0..64).for_each(|length| short.add(&message(1, 1, 1)[..length]));
        assert_eq!(short, before);
    }

    #[test]
    fn queues_of_udp_sockets() {
        let line =
            b"  29: 0100007F:1C0B 00000000:0000 07 0000001A:000000FF 00:00000000 00000000     0        0 9 2 0 0";
        assert_eq!(queues(line), Some((26, 255)));
        for line in [
            "",
            "  sl  local_address rem_address   st tx_queue rx_queue tr",
            "1: a b c d",
            "1: a b c 1:x",
            "1: a b c :",
        ] {
            assert_eq!(queues(line.as_bytes()), None, "{line}");
        }
    }
}
