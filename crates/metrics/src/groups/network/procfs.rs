// SPDX-License-Identifier: Apache-2.0
//! Group `network`: the devices of the agent's network namespace (rtnetlink, as node_exporter's netdev and netclass have them) and their neighbours (/proc/net/arp).
//!
//! A table each for counters, for those of devices without a computed row, for state, for what only devices that are up have (carrier, speed), and for neighbours: a row
//! has all of its columns or is not there. Where netlink is forbidden, counters are those of /proc/net/dev, and there is no state.

use std::collections::HashSet;
use std::io;

use onlooker_region::Schema;
use onlooker_region::schema::{Field, Group};
use onlooker_region::table::put_text;
use onlooker_responder::netlink::{self, Dump, attributes, u32_at};

use crate::machine::link_mbit_per_s;
use crate::procfs::{LINE_BYTES, Source, number, words};
use crate::sampled::metric::Definition;
use crate::sampled::rows::{self, Rows};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, DeviceKey, Made, Place, Sampler};

/// Devices of the network namespace of the thread that opens it.
pub(super) const DEVICES: &str = "/proc/thread-self/net/dev";
/// IFNAMSIZ, two words.
const KEY_WORDS: usize = 2;
/// Fewest rows of a whole device table, and most.
const ROWS: std::ops::RangeInclusive<usize> = 24..=3072;
/// Fewest rows of what is left. Rows are powers of two, so that a restart rarely finds another schema.
const MIN_LEFT_ROWS: usize = 32;
/// Blocks that the tables of what is left may have: the agent's slab is small (the agent's).
const MOST_LEFT_BLOCKS: usize = 96;

static NO_HANDLER: Definition =
    Definition::counter("node_network_receive_nohandler_total", "Network device statistic receive_nohandler.");
static UP: Definition = Definition::gauge("node_network_up", "Value is 1 if operstate is 'up', 0 otherwise.");
static MTU: Definition =
    Definition::gauge("node_network_mtu_bytes", "Network device property: mtu_bytes").unit("bytes", 1.0);
static CARRIER: Definition = Definition::gauge("node_network_carrier", "Network device property: carrier");
static SPEED: Definition =
    Definition::gauge("node_network_speed_bytes", "Network device property: speed_bytes").unit("bytes", 1.0).signed();
static NEIGHBOURS: Definition = Definition::gauge("node_arp_entries", "ARP entries by device");

/// Counters of a device: those of /proc/net/dev, and that of packets that nobody took.
const COUNTERS: usize = NETWORK_COLUMNS.len() + 1;
/// All columns of a device: counters, then these.
const UP_COLUMN: usize = COUNTERS;
const MTU_COLUMN: usize = COUNTERS + 1;
const CARRIER_COLUMN: usize = COUNTERS + 2;
const SPEED_COLUMN: usize = COUNTERS + 3;
/// Columns that a device has together, or has not: the first, and the one behind the last.
const TOGETHER: [(usize, usize); 4] =
    [(0, UP_COLUMN), (UP_COLUMN, CARRIER_COLUMN), (CARRIER_COLUMN, SPEED_COLUMN), (SPEED_COLUMN, SPEED_COLUMN + 1)];

/// `IFF_UP`.
const FLAG_UP: u32 = 1;
/// `IF_OPER_UP`.
const OPERATIONAL: u8 = 6;
/// Bits a byte, and bits a megabit: what `speed` of sysfs counts in.
const BYTES_PER_MBIT: i64 = 1_000_000 / 8;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link<'a> {
    name: &'a str,
    /// 0 out of procfs, which has none.
    index: u32,
    counters: [u64; COUNTERS],
    /// Up, MTU, and where it is up its carrier.
    state: Option<(bool, u64, Option<bool>)>,
}

/// Where devices come from.
enum Links {
    Netlink(Dump),
    Procfs(Source),
}

/// A table of devices.
struct Devices {
    columns: Vec<usize>,
    /// Only devices that have no computed row.
    is_of_uncovered: bool,
    rows: Rows,
}

struct Network {
    links: Links,
    neighbours: Option<Source>,
    tables: Vec<Devices>,
    /// The last table.
    neighbours_rows: Option<Rows>,
    /// Devices of the list before this sample's. Who has a computed row is asked after that and before this one, so of those that came since it is not known.
    listed: HashSet<Listed>,
}

/// Index and name: a device that takes another one's name is another device.
type Listed = (u32, DeviceKey);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut links = match Dump::new(netlink::ROUTE) {
        Ok(dump) => Links::Netlink(dump),
        Err(error) => {
            context
                .notes
                .push(format!("devices have no state (node_network_up, mtu, carrier, speed): netlink: {error}"));
            Links::Procfs(Source::open(DEVICES)?)
        }
    };
    let columns = if matches!(links, Links::Netlink(_)) { SPEED_COLUMN + 1 } else { COUNTERS - 1 };
    let mut listed = HashSet::new();
    timed(context, &["netdev"], |context| {
        links.each(context, |_, link| {
            listed.insert(link.listed());
        })
    })?;
    let devices = listed.len();
    let mut tables = Vec::new();
    for (first, behind) in TOGETHER {
        let (of_all, of_uncovered): (Vec<usize>, Vec<usize>) =
            (first..behind.min(columns)).partition(|column| ask.is_left(&field(*column)));
        for (columns, is_of_uncovered) in [(of_all, false), (of_uncovered, true)] {
            if !columns.is_empty() {
                tables.push(Devices { columns, is_of_uncovered, rows: Rows::new(KEY_WORDS) });
            }
        }
    }
    let neighbours = Source::open("/proc/thread-self/net/arp").ok().filter(|_| ask.is_left(&NEIGHBOURS.field()));
    let widths: Vec<usize> =
        tables.iter().map(|table| table.columns.len()).chain(neighbours.as_ref().map(|_| 1)).collect();
    let rows = match ask.computed {
        None => (devices * 2).clamp(*ROWS.start(), *ROWS.end()),
        Some(_) => left_rows(devices, &widths),
    };
    let fields = |columns: &[usize]| columns.iter().map(|column| field(*column)).collect();
    let mut groups: Vec<Group> =
        tables.iter().map(|table| rows::group("device", KEY_WORDS, fields(&table.columns), rows)).collect();
    if neighbours.is_some() {
        groups.push(rows::group("device", KEY_WORDS, vec![NEIGHBOURS.field()], rows));
    }
    let neighbours_rows = neighbours.is_some().then(|| Rows::new(KEY_WORDS));
    Ok(Made { groups, sampler: Box::new(Network { links, neighbours, tables, neighbours_rows, listed }) })
}

/// Rows for twice the devices, as far as the agent's slab goes.
fn left_rows(devices: usize, widths: &[usize]) -> usize {
    let wanted = (devices * 2).next_power_of_two().max(MIN_LEFT_ROWS);
    let blocks = |rows: usize| {
        widths.iter().map(|values| rows.div_ceil(rows::rows_per_block(KEY_WORDS, *values))).sum::<usize>()
    };
    (1..=wanted).rev().find(|rows| blocks(*rows) <= MOST_LEFT_BLOCKS).unwrap_or(1)
}

fn field(column: usize) -> Field {
    match NETWORK_COLUMNS.get(column) {
        Some((name, unit, help)) => {
            let mut field = Definition::counter(name, help).field();
            field.unit = (*unit).into();
            field
        }
        None => [&NO_HANDLER, &UP, &MTU, &CARRIER, &SPEED][column - NETWORK_COLUMNS.len()].field(),
    }
}

impl Link<'_> {
    fn listed(&self) -> Listed {
        let mut key = [0; KEY_WORDS];
        put_text(&mut key, self.name);
        (self.index, key)
    }

    /// A column, if the device has it.
    fn value(&self, column: usize) -> Option<u64> {
        match (column, self.state) {
            (UP_COLUMN, Some((is_up, ..))) => Some(u64::from(is_up)),
            (MTU_COLUMN, Some((_, mtu_bytes, _))) => Some(mtu_bytes),
            (CARRIER_COLUMN, Some((_, _, Some(carrier)))) => Some(u64::from(carrier)),
            // Of a device that is up, as in sysfs. Unknown speed is -1, also here.
            (SPEED_COLUMN, Some((_, _, Some(_)))) => {
                let speed = i64::from(link_mbit_per_s(self.name)?);
                Some(speed.saturating_mul(BYTES_PER_MBIT).cast_unsigned())
            }
            (column, _) => self.counters.get(column).copied(),
        }
    }
}

impl Devices {
    /// Puts what the table has of a device into its row. `is_new`: it was not there yet when it was asked who has a computed row.
    fn put(&mut self, link: &Link, is_new: bool, context: &mut Context) {
        let Context { now_ns, loss, computed, .. } = context;
        if self.is_of_uncovered && (is_new || computed.is_none_or(|keys| keys.contains(&link.listed().1))) {
            return;
        }
        let mut values = [0; COUNTERS];
        for (value, column) in values.iter_mut().zip(&self.columns) {
            let Some(found) = link.value(*column) else { return };
            *value = found;
        }
        self.rows.put(link.name, *now_ns, loss, values.into_iter().take(self.columns.len()));
    }
}

impl Links {
    /// Calls `each` for every device.
    fn each(&mut self, context: &mut Context, mut each: impl FnMut(&mut Context, &Link)) -> io::Result<()> {
        match self {
            Self::Netlink(dump) => dump.ask(netlink::LINK, &[0; 16], |body| {
                if let Some(link) = parse(body) {
                    each(context, &link);
                }
            }),
            Self::Procfs(source) => {
                let mut buffer = [0; LINE_BYTES];
                source.each_line(&mut buffer, |line| {
                    let Some((name, columns)) = netdev(line) else { return };
                    let mut counters = [0; COUNTERS];
                    counters[..columns.len()].copy_from_slice(&columns);
                    each(context, &Link { name, index: 0, counters, state: None });
                })
            }
        }
    }
}

/// A message of a device: `struct ifinfomsg` and attributes (linux/if_link.h).
fn parse(body: &[u8]) -> Option<Link<'_>> {
    let (head, rest) = body.split_at_checked(16)?;
    let (index, is_up) = (u32_at(head, 4)?, u32_at(head, 8)? & FLAG_UP != 0);
    let (mut name, mut mtu_bytes, mut operational, mut carrier, mut statistics) = (None, 0, 0, 0, None);
    for (kind, value) in attributes(rest) {
        match kind {
            3 => name = std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok(),
            4 => mtu_bytes = u32_at(value, 0)?,
            16 => operational = *value.first()?,
            23 => statistics = Some(value),
            33 => carrier = *value.first()?,
            _ => {}
        }
    }
    // struct rtnl_link_stats64, put together as /proc/net/dev and node_exporter have it (dev_seq_printf_stats in net/core/net-procfs.c).
    let statistics = statistics?;
    let of = |at: usize| {
        let bytes = statistics.get(at * 8..at * 8 + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    let sum = |at: &[usize]| at.iter().fold(0u64, |sum, at| sum.wrapping_add(of(*at)));
    let counters = [
        of(2),
        of(0),
        of(4),
        sum(&[6, 15]),
        of(14),
        sum(&[10, 11, 12, 13]),
        of(21),
        of(8),
        of(3),
        of(1),
        of(5),
        of(7),
        of(18),
        of(9),
        sum(&[16, 17, 19, 20]),
        of(22),
        of(23),
    ];
    let name = name.filter(|name| !name.is_empty())?;
    let state = (operational == OPERATIONAL, u64::from(mtu_bytes), is_up.then_some(carrier != 0));
    Some(Link { name, index, counters, state: Some(state) })
}

/// The device of a line of /proc/net/arp.
fn neighbour(line: &[u8]) -> Option<&str> {
    let mut words = words(line);
    // Not the header, whose first word is "IP".
    words.next().filter(|address| address.contains(&b'.'))?;
    std::str::from_utf8(words.nth(4)?).ok()
}

impl Sampler for Network {
    fn begin(&mut self, place: &Place, schema: &Schema, now_ns: u64) {
        let tables = self.tables.iter_mut().map(|table| &mut table.rows).chain(&mut self.neighbours_rows);
        for (number, (rows, group)) in tables.zip(&schema.groups).enumerate() {
            rows.begin(place, number, group, now_ns);
        }
    }

    fn sample(&mut self, _: &Place, context: &mut Context) -> io::Result<()> {
        let Self { links, neighbours, tables, neighbours_rows, listed } = self;
        let mut now_listed = HashSet::with_capacity(listed.len());
        timed(context, &["netdev", "netclass"], |context| {
            links.each(context, |context, link| {
                let is_new = !listed.contains(&link.listed());
                tables.iter_mut().for_each(|table| table.put(link, is_new, context));
                now_listed.insert(link.listed());
            })
        })?;
        *listed = now_listed;
        for table in tables {
            // Who has a computed row is not known: these stay as they are.
            if !table.is_of_uncovered || context.computed.is_some() {
                table.rows.end(context.now_ns);
            }
        }
        let Some((source, rows)) = neighbours.as_ref().zip(neighbours_rows.as_mut()) else { return Ok(()) };
        timed(context, &["arp"], |context| {
            let Context { now_ns, buffer, loss, .. } = context;
            let mut counts: Vec<(String, u64)> = Vec::new();
            source.each_line(buffer, |line| {
                let Some(device) = neighbour(line) else { return };
                match counts.iter_mut().find(|(other, _)| other == device) {
                    Some((_, count)) => *count += 1,
                    None => counts.push((device.to_owned(), 1)),
                }
            })?;
            counts.iter().for_each(|(device, count)| rows.put(device, *now_ns, loss, [*count]));
            rows.end(*now_ns);
            Ok(())
        })
    }

    fn wants_devices(&self) -> bool {
        self.tables.iter().any(|table| table.is_of_uncovered)
    }
}

/// node_exporter's metrics of /proc/net/dev, in the order of its columns: name, unit, help.
pub(crate) const NETWORK_COLUMNS: [(&str, &str, &str); 16] = [
    ("node_network_receive_bytes_total", "bytes", "Received bytes."),
    ("node_network_receive_packets_total", "", "Received packets."),
    ("node_network_receive_errs_total", "", "Receive errors."),
    ("node_network_receive_drop_total", "", "Received packets that were dropped."),
    ("node_network_receive_fifo_total", "", "Receive FIFO errors."),
    ("node_network_receive_frame_total", "", "Receive framing errors."),
    ("node_network_receive_compressed_total", "", "Received compressed packets."),
    ("node_network_receive_multicast_total", "", "Received multicast packets."),
    ("node_network_transmit_bytes_total", "bytes", "Transmitted bytes."),
    ("node_network_transmit_packets_total", "", "Transmitted packets."),
    ("node_network_transmit_errs_total", "", "Transmit errors."),
    ("node_network_transmit_drop_total", "", "Packets dropped on transmission."),
    ("node_network_transmit_fifo_total", "", "Transmit FIFO errors."),
    ("node_network_transmit_colls_total", "", "Collisions."),
    ("node_network_transmit_carrier_total", "", "Carrier losses."),
    ("node_network_transmit_compressed_total", "", "Transmitted compressed packets."),
];

/// A line of /proc/net/dev: device and its 16 counters; `None` for the two header lines.
pub(crate) fn netdev(line: &[u8]) -> Option<(&str, [u64; NETWORK_COLUMNS.len()])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let device = std::str::from_utf8(line[..colon].trim_ascii()).ok().filter(|device| !device.is_empty())?;
    let mut counters = [0; NETWORK_COLUMNS.len()];
    let mut words = words(&line[colon + 1..]);
    for counter in &mut counters {
        *counter = number(words.next()?)?;
    }
    Some((device, counters))
}

#[cfg(test)]
#[path = "procfs_tests.rs"]
mod tests;
