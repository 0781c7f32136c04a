// SPDX-License-Identifier: Apache-2.0
//! Group `softnet`: /proc/net/softnet_stat, a line a CPU that is online.

use std::io;

use crate::procfs::{Source, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

const fn column(name: &'static str, help: &'static str) -> Definition {
    Definition::counter(name, help).by("cpu")
}

/// Columns by their place (softnet_seq_show in net/core/net-procfs.c).
pub(super) static COLUMNS: [(usize, Definition); 6] = [
    (0, column("node_softnet_processed_total", "Number of processed packets")),
    (1, column("node_softnet_dropped_total", "Number of dropped packets")),
    (2, column("node_softnet_times_squeezed_total", "Number of times processing packets ran out of quota")),
    (
        COLLISIONS_COLUMN,
        column(
            "node_softnet_cpu_collision_total",
            "Number of collision occur while obtaining device lock while transmitting",
        ),
    ),
    (9, column("node_softnet_received_rps_total", "Number of times cpu woken up received_rps")),
    (10, column("node_softnet_flow_limit_count_total", "Number of times flow limit has been reached")),
];
pub(super) static BACKLOG: Definition =
    Definition::gauge("node_softnet_backlog_len", "Softnet backlog status").by("cpu");
/// The program does not read it.
pub(super) const COLLISIONS_COLUMN: usize = 8;
/// Length of the backlog, and the CPU's number, since Linux 5.10.
const BACKLOG_COLUMN: usize = 11;
const CPU_COLUMN: usize = 12;
const MOST_COLUMNS: usize = 16;

struct Softnet(Source);

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Softnet(Source::open("/proc/net/softnet_stat")?), ask, context)
}

/// Columns of a line that it has.
fn parse(line: &[u8]) -> Option<([u64; MOST_COLUMNS], usize)> {
    let mut columns = [0; MOST_COLUMNS];
    let mut count = 0;
    for (column, word) in columns.iter_mut().zip(words(line)) {
        *column = u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        count += 1;
    }
    (count > 0).then_some((columns, count))
}

impl Read for Softnet {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["softnet"], |context| {
            let mut number = 0;
            self.0.each_line(context.buffer, |line| {
                let Some((columns, count)) = parse(line) else { return };
                let cpu = if count > CPU_COLUMN { columns[CPU_COLUMN] } else { number };
                number += 1;
                for (column, definition) in COLUMNS.iter().filter(|(column, _)| *column < count) {
                    values.put_at(definition, &[], cpu, columns[*column]);
                }
                if count > BACKLOG_COLUMN {
                    values.put_at(&BACKLOG, &[], cpu, columns[BACKLOG_COLUMN]);
                }
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let (columns, count) =
            parse(b"0d068b44 00000000 0000002c 0 0 0 0 0 0 003f21c5 00000000 00000007 00000001 0 0").unwrap();
        assert_eq!(
            (columns[0], columns[2], columns[9], columns[11], columns[12], count),
            (0x0d06_8b44, 0x2c, 0x003f_21c5, 7, 1, 15)
        );
        // Linux before 2.6: nine columns and no number of the CPU.
        assert_eq!(parse(b"1 2 3 4 5 6 7 8 9").map(|(_, count)| count), Some(9));
        for line in ["", "  ", "xyz", "1 2 -3", "fffffffffffffffff"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(parse(&b"1 ".repeat(100)).map(|(_, count)| count), Some(MOST_COLUMNS));
    }
}
