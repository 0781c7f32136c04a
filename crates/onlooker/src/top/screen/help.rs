// SPDX-License-Identifier: Apache-2.0
//! What keys do and what the columns mean.

use super::super::theme::Theme;
use super::{Pen, wrapped};
use ratatui::style::Style;

const TEXT: &[(&str, &str)] = &[
    ("q, Ctrl-C", "quit; Ctrl-Z suspends"),
    ("arrows, j k, PgUp PgDn, Home End", "choose a series: the bottom shows all of it"),
    ("/", "search: all words in name, labels or region; Enter keeps, Esc clears"),
    ("r, R", "next, previous region; Esc shows all again"),
    (
        "0 1 2 3 4 (a n v e c)",
        "sort by activity (CPU of processes, then what moves), name, value, rate, change; again: reverse",
    ),
    ("s, Left, Right, i", "next column to sort by; reverse the order"),
    ("space", "pause or resume the screen; reading continues"),
    ("", ""),
    ("VALUE", "as it is in the host's memory; of histograms p50 and p99 of the last 10 s (bounds of their buckets)"),
    ("RATE", "a counter's increase a second, over about the last second; `reset`: it went down"),
    ("CHANGE", "how far value (or rate) is from its mean of the last minute; `=`: the same"),
    ("LAST 60 s", "value or rate, the largest of each step; a dot: nothing was read"),
    ("regions", "those in view are read every time, others every 5 s; tcp_connections only when chosen (r, --region)"),
    ("AGE", "how long ago the value was acquired; `live`: by the READ itself. Dim: no longer read"),
    ("", ""),
    (
        "gaps",
        "due readings without a result. timeout: no answer in time. lost: the connection broke. gone: the agent was restarted. unreachable, denied, busy: \
         connecting failed. silent: the kernel responder did not answer. overloaded: over its budget. late: this program got no CPU in time. crc, busy, \
         version: a block was being written at every try. docs/troubleshooting.md has all of them",
    ),
    ("clock", "bound of the error of all ages: half of the bootstrap's round trip, and 1 ms for each second since"),
];

pub(super) fn draw(pen: &mut Pen, theme: Theme) {
    let width = usize::from(pen.area.width);
    let mut y = 0;
    for (keys, text) in TEXT {
        let x = if width >= 90 { 34 } else { u16::try_from(keys.len() + 2).unwrap_or(0) };
        pen.put(0, y, keys, theme.strong());
        for line in wrapped(text, width.saturating_sub(usize::from(x)).max(20)) {
            pen.put(x, y, &line, Style::new());
            y += 1;
        }
    }
    pen.put(0, (y + 1).min(pen.area.height.saturating_sub(1)), "any key goes back", theme.dim());
}
