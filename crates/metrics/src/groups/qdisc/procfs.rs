// SPDX-License-Identifier: Apache-2.0
//! Group `qdisc`: what waits in the queues of network devices and what they have dropped (rtnetlink, RTM_GETQDISC), of the agent's network namespace, as node_exporter's
//! collector of this name has it: of a device's root queueing discipline, whose counts hold those of the disciplines below it.

use std::io;
use std::os::fd::OwnedFd;

use onlooker_region::Schema;
use onlooker_region::schema::Field;
use onlooker_region::table::{KeyPart, KeyType, put_text};
use onlooker_responder::netlink::{self, Dump, attributes, u32_at};
use rustix::net::netdevice::{InlinedName, index_to_name_inlined};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::sampled::metric::Definition;
use crate::sampled::rows::{self, Rows};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

/// Device and kind, of IFNAMSIZ each (linux/if.h, include/net/pkt_sched.h).
const KEY_WORDS: usize = 4;
const NAME_WORDS: usize = 2;
/// Fewest rows and most: as many as devices in [`crate::groups::network`], of which each has one, but such as are down.
const ROWS: std::ops::RangeInclusive<usize> = 24..=1024;

/// Bytes of `struct tcmsg` (linux/rtnetlink.h).
const MESSAGE_BYTES: usize = 20;
/// `TC_H_ROOT`: what a root has for a parent.
const ROOT: u32 = u32::MAX;

static COLUMNS: [Definition; 7] = [
    Definition::counter("node_qdisc_bytes_total", "Number of bytes sent.").unit("bytes", 1.0),
    Definition::counter("node_qdisc_packets_total", "Number of packets sent."),
    Definition::counter("node_qdisc_drops_total", "Number of packets dropped."),
    Definition::counter("node_qdisc_requeues_total", "Number of packets dequeued, not transmitted, and requeued."),
    Definition::counter("node_qdisc_overlimits_total", "Number of overlimit packets."),
    Definition::gauge("node_qdisc_current_queue_length", "Number of packets currently in queue to be sent."),
    Definition::gauge("node_qdisc_backlog", "Number of bytes currently in queue to be sent.").unit("bytes", 1.0),
];

/// A device's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Root<'a> {
    device_index: u32,
    kind: &'a str,
    values: [u64; COLUMNS.len()],
}

struct Qdisc {
    dump: Dump,
    /// To ask for names: any socket does (netdevice(7)).
    socket: OwnedFd,
    columns: Vec<usize>,
    rows: Rows,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut dump = Dump::new(netlink::ROUTE)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut roots = 0usize;
    timed(context, &["qdisc"], |_| each_root(&mut dump, |_| roots += 1))?;
    let columns: Vec<usize> = (0..COLUMNS.len()).filter(|column| ask.is_left(&COLUMNS[*column].field())).collect();
    let fields: Vec<Field> = columns.iter().map(|column| COLUMNS[*column].field()).collect();
    // Powers of two, so that a restart rarely finds another schema.
    let wanted = (roots * 2).next_power_of_two().clamp(*ROWS.start(), *ROWS.end());
    let mut group = rows::group("device", KEY_WORDS, fields, wanted);
    let bytes = u32::try_from(NAME_WORDS * 8).unwrap_or(u32::MAX);
    group.key = ["device", "kind"].map(|name| KeyPart { name: name.into(), kind: KeyType::Text, bytes }).into();
    Ok(Made { groups: vec![group], sampler: Box::new(Qdisc { dump, socket, columns, rows: Rows::new(KEY_WORDS) }) })
}

/// Calls `each` for the root of every device that has one. Disciplines that the kernel does not tell of (those of devices that are down) are none.
fn each_root(dump: &mut Dump, mut each: impl FnMut(&Root)) -> io::Result<()> {
    dump.ask(netlink::QDISC, &[0; MESSAGE_BYTES], |body| {
        if let Some(root) = parse(body) {
            each(&root);
        }
    })
}

/// A message of a discipline: `struct tcmsg` and attributes (linux/rtnetlink.h, gen_stats.h). `None` unless it is a root's.
fn parse(body: &[u8]) -> Option<Root<'_>> {
    let (head, rest) = body.split_at_checked(MESSAGE_BYTES)?;
    if u32_at(head, 12)? != ROOT {
        return None;
    }
    let (mut kind, mut statistics) = (None, None);
    for (attribute, value) in attributes(rest) {
        match attribute {
            1 => kind = std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok(),
            7 => statistics = Some(value),
            _ => {}
        }
    }
    let mut values = [0; COLUMNS.len()];
    for (attribute, value) in attributes(statistics?) {
        let double = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        match attribute {
            // struct gnet_stats_basic; packets beyond 32 bits come in an attribute of their own, behind it.
            1 => (values[0], values[1]) = (double(0)?, u32_at(value, 8)?.into()),
            // struct gnet_stats_queue: length, backlog, drops, requeues, overlimits.
            3 => {
                for (column, at) in [(5, 0), (6, 4), (2, 8), (3, 12), (4, 16)] {
                    values[column] = u32_at(value, at)?.into();
                }
            }
            8 => values[1] = double(0)?,
            _ => {}
        }
    }
    let kind = kind.filter(|kind| !kind.is_empty())?;
    Some(Root { device_index: u32_at(head, 4)?, kind, values })
}

/// A row's key.
fn key(device: &InlinedName, kind: &str) -> [u64; KEY_WORDS] {
    let mut key = [0; KEY_WORDS];
    put_text(&mut key[..NAME_WORDS], device.as_str());
    put_text(&mut key[NAME_WORDS..], kind);
    key
}

impl Sampler for Qdisc {
    fn begin(&mut self, place: &Place, schema: &Schema, now_ns: u64) {
        self.rows.begin(place, 0, &schema.groups[0], now_ns);
    }

    fn sample(&mut self, _: &Place, context: &mut Context) -> io::Result<()> {
        let Self { dump, socket, columns, rows } = self;
        timed(context, &["qdisc"], |context| {
            let Context { now_ns, loss, .. } = context;
            each_root(dump, |root| {
                // One that has gone meanwhile has no name.
                let Ok(device) = index_to_name_inlined(&*socket, root.device_index) else { return };
                let values = columns.iter().map(|column| root.values[*column]);
                rows.put_key(key(&device, root.kind), *now_ns, loss, values);
            })?;
            rows.end(*now_ns);
            Ok(())
        })
    }
}

#[cfg(test)]
#[path = "procfs_tests.rs"]
mod tests;
