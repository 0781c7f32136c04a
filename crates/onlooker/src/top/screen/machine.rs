// SPDX-License-Identifier: Apache-2.0
//! What stands above all series: processors as bars, load, memory, network.

use super::super::devices::Interface;
use super::super::machine::Machine;
use super::super::model::Model;
use super::super::theme::Theme;
use super::{CPU_ROWS, Pen};
use crate::number::with_unit;
use ratatui::style::Style;

/// Least width of a processor's bar with its name and number.
const CPU_WIDTH: u16 = 26;
const LEVELS: [&str; 8] =
    ["\u{2581}", "\u{2582}", "\u{2583}", "\u{2584}", "\u{2585}", "\u{2586}", "\u{2587}", "\u{2588}"];

/// Rows that it takes of those that there are.
pub(super) fn rows(machine: &Machine, width: u16, spare: u16) -> u16 {
    if machine.is_empty() || spare < 2 || width < 20 {
        return 0;
    }
    let lines = cpu_rows(machine, width).min(spare - 1) + 3;
    // A blank one between it and the table, if there is room.
    (lines + 1).min(spare)
}

fn columns(width: u16) -> u16 {
    (width / CPU_WIDTH).max(1)
}

pub(super) fn cpu_rows(machine: &Machine, width: u16) -> u16 {
    let cpus = u16::try_from(machine.cpus.len()).unwrap_or(u16::MAX);
    let bars = cpus.div_ceil(columns(width));
    if bars <= CPU_ROWS { bars } else { cpus.div_ceil(width).min(CPU_ROWS) }
}

pub(super) fn draw(pen: &mut Pen, machine: &Machine, model: &Model, now_ns: u64, theme: Theme) {
    if pen.area.height == 0 {
        return;
    }
    let style = |style: Style| if model.silent_ns(now_ns).is_some() { theme.dim() } else { style };
    let mut y = 0;
    if cpu_rows(machine, pen.area.width) > 0 {
        y = cpus(pen, machine, theme, &style);
    }
    let mut load: Vec<String> = machine.load.iter().flatten().map(|load| format!("{load:.2}")).collect();
    if !load.is_empty() {
        load.insert(0, "load".into());
    }
    let mut text = load.join(" ");
    if let Some(busy) = machine.busy() {
        text = format!("CPU {:.0} %   {text}", busy * 100.0);
    }
    if let Some(tasks) = machine.run_queue {
        text.push_str(&format!("   {tasks} running or waiting now"));
    }
    pen.put(0, y, &text, style(Style::new()));
    if let Some((used, total)) = machine.memory.filter(|(_, total)| *total > 0.0) {
        let text = format!("memory {} of {}", with_unit(used, "bytes"), with_unit(total, "bytes"));
        bar(
            pen,
            y + 1,
            (0, pen.area.width.min(2 * CPU_WIDTH)),
            "memory",
            used / total,
            &format!("{:.0} %", used / total * 100.0),
            &style(theme.bar(used / total)),
        );
        pen.put(2 * CPU_WIDTH + 2, y + 1, text.trim_start_matches("memory "), style(Style::new()));
    }
    let network = |of: &Interface| {
        let rate = |rate: Option<f64>| with_unit(rate.unwrap_or(0.0).round(), "bytes_per_second");
        format!("{} in {} out {}", of.device, rate(of.received), rate(of.sent))
    };
    let devices: Vec<String> = machine.network.iter().map(network).collect();
    if !devices.is_empty() {
        pen.put(0, y + 2, &format!("network {}", devices.join("   ")), style(Style::new()));
    }
}

/// Returns the row after.
pub(super) fn cpus(pen: &mut Pen, machine: &Machine, theme: Theme, style: &dyn Fn(Style) -> Style) -> u16 {
    let (width, rows) = (pen.area.width, cpu_rows(machine, pen.area.width).min(pen.area.height));
    let columns = columns(width);
    let bars = u16::try_from(machine.cpus.len()).unwrap_or(u16::MAX).div_ceil(columns) <= CPU_ROWS;
    for (index, (cpu, busy)) in machine.cpus.iter().enumerate() {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        if bars {
            let (column, y) = (index % columns, index / columns);
            let each = width / columns;
            let text = busy.map_or("-".into(), |busy| format!("{:.0} %", busy * 100.0));
            let part = busy.unwrap_or(0.0);
            if y < rows {
                bar(pen, y, (column * each, each), &format!("cpu{cpu}"), part, &text, &style(theme.bar(part)));
            }
        } else if index / width < rows {
            pen.put(index % width, index / width, level(busy.unwrap_or(0.0)), style(theme.bar(busy.unwrap_or(0.0))));
        }
    }
    rows
}

/// `name [||||    ]  43 %` in the columns `at` to `at + width`.
pub(super) fn bar(pen: &mut Pen, y: u16, (at, width): (u16, u16), name: &str, part: f64, text: &str, style: &Style) {
    let x = pen.put(at, y, &format!("{name:<6} ["), Style::new());
    // `] 100 %` and a blank behind.
    let Some(inner) = (at + width).checked_sub(x + 8) else { return };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to the width
    let full = (f64::from(inner) * part.clamp(0.0, 1.0)).round() as usize;
    pen.put(x, y, &"|".repeat(full), *style);
    pen.put(x + inner, y, &format!("]{text:>6}"), Style::new());
}

/// A glyph for a part of 0 to 1.
pub(super) fn level(part: f64) -> &'static str {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 7
    let index = (part.clamp(0.0, 1.0) * 7.0).round() as usize;
    LEVELS[index]
}
