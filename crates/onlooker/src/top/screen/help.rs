// SPDX-License-Identifier: Apache-2.0
//! The views, what keys do, and what the columns of the view mean.

use super::super::kind::Kind;
use super::super::model::Model;
use super::super::text;
use super::super::theme::Theme;
use super::super::view::View;
use super::{Pen, wrapped};
use ratatui::style::Style;

type Lines = &'static [(&'static str, &'static str)];

const KEYS: Lines = &[
    ("1 to 5, Tab", "views; q or Ctrl-C quits, Ctrl-Z suspends, space pauses the screen (reading goes on)"),
    ("arrows, j k, PgUp PgDn, Home End", "choose a row: the bottom shows all of it"),
];

const MACHINE: Lines = &[
    ("CPU", "parts of all processors' time by mode; bars: each processor, without waiting for I/O"),
    ("time waited for", "pressure: part of the time in which some task, or all tasks, waited for it"),
    ("USED", "of what users may have, as df shows it; `!` and red from 90 %. Fullest first"),
    ("BUSY", "part of the time with I/O under way; LATENCY: mean time of a request with its time in the queue"),
    ("TCP", "retransmits: part of the segments sent that were sent again; above 1 % connections get slow"),
];
const GRID: Lines = &[
    ("/", "filter by name, pid, runtime or path; Enter keeps, Esc clears"),
    ("Enter", "all series of the chosen row; Esc goes back"),
    ("s, Left, Right, i; c m n", "next column to sort by, reverse; by CPU, memory, name"),
];
const PROCESSES: Lines = &[
    ("CPU", "processors in use over the last second or more; USER and SYSTEM are its parts"),
    ("MEMORY", "resident, shared pages counted for each; %MEM: of the machine's"),
    ("1 MIN", "how much MEMORY has grown within the last minute, or since you look: who leaks?"),
    ("READ, WRITTEN", "from and to block devices; `-`: the agent may not know"),
];
const CONTAINERS: Lines = &[
    ("", "a group counts those below it, too"),
    ("HELD", "time each second in which its CPU limit held it back, of all its tasks together"),
    ("MEMORY", "working set, without inactive file pages; %MEM: of LIMIT, or of the machine's; red from 90 %"),
    ("KILLS", "processes that the kernel killed for want of memory since the group was made"),
    ("CPU? MEM? I/O?", "part of the time in which some task of it waited for that"),
];
const LISTING: Lines = &[
    ("/", "search: all words in name, labels or region; Enter keeps, Esc clears"),
    ("r, R", "next, previous region; Esc shows all again"),
    ("a n v e c", "sort by activity (CPU of processes, then what moves), name, value, rate, change; again: reverse"),
    ("s, Left, Right, i", "next column to sort by; reverse the order"),
    ("VALUE", "as it is in the host's memory; of histograms p50 and p99 of the last 10 s (bounds of their buckets)"),
    ("RATE", "a counter's increase a second, over about the last second; `reset`: it went down"),
    ("CHANGE", "how far value (or rate) is from its mean of the last minute; `=`: the same"),
    ("LAST 60 s", "value or rate, the largest of each step; a dot: nothing was read"),
    ("AGE", "how long ago the value was acquired; `live`: by the READ itself. Dim: no longer read"),
];
const SERIES: Lines = &[(
    "regions",
    "those in view are read every time, others every 5 s; tcp_connections only when chosen (r, --region)",
)];
const REST: Lines = &[
    (
        "gaps",
        "due readings without a result. timeout: no answer in time. lost: the connection broke. gone: the agent was restarted. unreachable, denied, busy: \
         connecting failed. silent: the kernel responder did not answer. overloaded: over its budget. late: this program got no CPU in time. crc, busy, \
         version: a block was being written at every try. docs/troubleshooting.md has all of them",
    ),
    ("clock", "bound of the error of all ages: half of the bootstrap's round trip, and 1 ms for each second since"),
];

fn of(kind: Kind) -> [Lines; 2] {
    match kind {
        Kind::Machine => [MACHINE, &[]],
        Kind::Processes => [GRID, PROCESSES],
        Kind::Containers => [GRID, CONTAINERS],
        Kind::Programs => [LISTING, &[]],
        Kind::Series => [LISTING, SERIES],
    }
}

pub(super) fn draw(pen: &mut Pen, view: &View, model: &Model, theme: Theme) {
    let width = usize::from(pen.area.width);
    pen.put(0, 0, "VIEWS: what each is for, and what it has read from the host so far", theme.heading());
    let mut y = 1;
    for (number, kind) in (1..).zip(Kind::ALL) {
        #[allow(clippy::cast_precision_loss)] // for people
        let read = text::bytes(Some(model.costs[kind as usize].bytes as f64));
        let style = if kind == view.kind { theme.selected() } else { theme.strong() };
        pen.put(0, y, &format!("{number} {}", kind.name()), style);
        pen.put_right(13, 23, y, &read, Style::new());
        pen.put(25, y, kind.question(), Style::new());
        y += 1;
    }
    y += 1;
    for (keys, text) in [KEYS].into_iter().chain(of(view.kind)).chain([REST]).flatten() {
        let x = if width >= 90 { 34 } else { u16::try_from(keys.len() + 2).unwrap_or(0) };
        pen.put(0, y, keys, theme.strong());
        for line in wrapped(text, width.saturating_sub(usize::from(x)).max(20)) {
            pen.put(x, y, &line, Style::new());
            y += 1;
        }
    }
    // What there is no room for is in docs/reading.md.
    let last = pen.area.height.saturating_sub(1);
    let y = (y + 1).min(last);
    pen.put(0, y, &" ".repeat(width), Style::new());
    pen.put(0, y, "any key goes back; docs/reading.md has all of this", theme.dim());
}
