// SPDX-License-Identifier: Apache-2.0
//! Group `sockstat`: /proc/net/sockstat and sockstat6 of the network namespace of the thread that makes it.

use std::io;

use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

macro_rules! counts {
    ($($protocol:literal $($name:literal)+;)*) => {
        static COUNTS: &[(&[u8], &[u8], Definition)] = &[$($((
            $protocol.as_bytes(),
            $name.as_bytes(),
            Definition::gauge(
                concat!("node_sockstat_", $protocol, "_", $name),
                concat!("Number of ", $protocol, " sockets in state ", $name, "."),
            ),
        )),+),*];
    };
}

counts! {
    "sockets" "used";
    "TCP" "inuse" "orphan" "tw" "alloc" "mem";
    "UDP" "inuse" "mem";
    "UDPLITE" "inuse";
    "RAW" "inuse";
    "FRAG" "inuse" "memory";
    "TCP6" "inuse";
    "UDP6" "inuse";
    "UDPLITE6" "inuse";
    "RAW6" "inuse";
    "FRAG6" "inuse" "memory";
}

static TCP_BYTES: Definition =
    Definition::gauge("node_sockstat_TCP_mem_bytes", "Number of TCP sockets in state mem_bytes.").unit("bytes", 1.0);
static UDP_BYTES: Definition =
    Definition::gauge("node_sockstat_UDP_mem_bytes", "Number of UDP sockets in state mem_bytes.").unit("bytes", 1.0);

struct Sockstat {
    files: Vec<Source>,
    page_bytes: u64,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut files = vec![Source::open("/proc/thread-self/net/sockstat")?];
    files.extend(Source::open("/proc/thread-self/net/sockstat6"));
    listed(Sockstat { files, page_bytes: rustix::param::page_size() as u64 }, ask, context)
}

/// A line: protocol, then names and numbers.
fn parse(line: &[u8], mut put: impl FnMut(&'static Definition, u64)) {
    let mut words = words(line);
    let Some(protocol) = words.next().and_then(|word| word.strip_suffix(b":")) else { return };
    while let (Some(name), Some(value)) = (words.next(), words.next()) {
        let found = COUNTS.iter().find(|(of, called, _)| *of == protocol && *called == name);
        if let (Some((_, _, definition)), Some(value)) = (found, number(value)) {
            put(definition, value);
        }
    }
}

impl Read for Sockstat {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        timed(context, &["sockstat"], |context| {
            self.files.iter().try_for_each(|source| {
                source.each_line(context.buffer, |line| {
                    parse(line, |definition, value| {
                        values.put(definition, &[], value);
                        let bytes = match definition.name {
                            "node_sockstat_TCP_mem" => &TCP_BYTES,
                            "node_sockstat_UDP_mem" => &UDP_BYTES,
                            _ => return,
                        };
                        values.put(bytes, &[], value.saturating_mul(self.page_bytes));
                    });
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let parsed = |line: &[u8]| {
            let mut got = Vec::new();
            parse(line, |definition, value| got.push((definition.name, value)));
            got
        };
        assert_eq!(parsed(b"sockets: used 18"), [("node_sockstat_sockets_used", 18)]);
        assert_eq!(
            parsed(b"TCP: inuse 1 orphan 0 tw x alloc 9 mem -4"),
            [("node_sockstat_TCP_inuse", 1), ("node_sockstat_TCP_orphan", 0), ("node_sockstat_TCP_alloc", 9)]
        );
        for line in ["", "TCP", "TCP inuse 1", "TCP: inuse", "MPTCP: inuse 3", ": : :"] {
            assert_eq!(parsed(line.as_bytes()), [], "{line}");
        }
    }
}
