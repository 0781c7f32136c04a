// SPDX-License-Identifier: Apache-2.0
//! The distributions as SVG: latency in logarithmic steps from left to right, shares of requests with their tail drawn
//! out from bottom to top.

use std::fmt::Write as _;

use crate::svg::{self, Grid, LEFT, key};

/// One load: curves of sorted latencies in ns, `u64::MAX` for what was lost.
pub(crate) struct Panel<'a> {
    pub(crate) title: String,
    pub(crate) curves: Vec<(&'a str, &'a [u64])>,
}

/// Those of the figure's kinds of requester, in the order of the curves.
const COLOURS: [&str; 4] = [svg::COLOURS[0], svg::COLOURS[1], svg::COLOURS[3], svg::COLOURS[4]];
const GREY: &str = "#777777";
/// p50, p90, p99 of others' publications, ns: one-sided RDMA READs, and the same values asked of a process, on a loaded
/// host.
const PUBLISHED: [(&str, [u64; 3], &str); 2] = [
    ("published: one-sided RDMA READ (p50, p90, p99)", [28_000, 31_000, 34_000], "circle"),
    ("published: process asked over sockets (p50, p90, p99)", [43_000, 424_000, 8_200_000], "square"),
];

const GRID: Grid = Grid { width: 400.0, height: 210.0, gap: (70.0, 74.0), top: 118.0 };
const TITLE: &str = "Time from when a value is due to when it is here, by what else the watched core has to do";
/// 1 us to 10 s.
const DECADES: (i32, i32) = (3, 10);
/// Up to 99.95 %.
const NINES: f64 = 3.3;

fn x(ns: u64) -> f64 {
    let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
    ((ns as f64).log10().clamp(low, high) - low) / (high - low) * GRID.width
}

/// Equal steps for 0, 90, 99, 99.9 %: where p99 is to be seen, a plain scale would have nothing.
fn y(share: f64) -> f64 {
    GRID.height * (1.0 - (-(1.0 - share).log10()).clamp(0.0, NINES) / NINES)
}

/// The whole figure.
pub(crate) fn draw(panels: &[Panel]) -> String {
    GRID.draw(
        TITLE,
        panels.len(),
        |svg| legend(svg, panels),
        |svg, index| {
            axes(svg, &panels[index].title);
            for ((_, sorted), colour) in panels[index].curves.iter().zip(COLOURS) {
                curve(svg, sorted, colour);
            }
            if index > 0 {
                published(svg);
            }
        },
    )
}

fn legend(svg: &mut String, panels: &[Panel]) {
    let Some(first) = panels.first() else { return };
    for (index, ((name, _), colour)) in first.curves.iter().zip(COLOURS).enumerate() {
        key(svg, LEFT + [0.0, 200.0, 440.0, 660.0][index], colour, name);
    }
    for (index, (name, _, shape)) in PUBLISHED.iter().enumerate() {
        let at = LEFT + index as f64 * 424.0;
        mark(svg, at + 11.0, 72.0, shape);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"76\" fill=\"{GREY}\">{name}</text>", at + 28.0);
    }
}

fn mark(svg: &mut String, x: f64, y: f64, shape: &str) {
    let style = format!("fill=\"#ffffff\" stroke=\"{GREY}\" stroke-width=\"1.5\"");
    let _ = match shape {
        "circle" => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" {style}/>"),
        _ => writeln!(svg, "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\" {style}/>", x - 3.5, y - 3.5),
    };
}

fn axes(svg: &mut String, title: &str) {
    let Grid { width, height, .. } = GRID;
    svg::title(svg, title);
    for decade in DECADES.0..=DECADES.1 {
        let at = x(10u64.pow(decade.unsigned_abs()));
        let name = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]
            [usize::try_from(decade - DECADES.0).unwrap_or(0)];
        let _ = writeln!(svg, "<line x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{height}\" stroke=\"#e4e4e4\"/>");
        GRID.name_below(svg, at, name);
    }
    for (name, share) in [("0", 0.0), ("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999)] {
        GRID.line_across(svg, y(share), name);
    }
    let _ =
        writeln!(svg, "<rect x=\"0\" y=\"0\" width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"#999999\"/>");
}

/// A step for each of the samples would be a megabyte; these are as many as can be seen.
const STEPS: u32 = 400;

fn curve(svg: &mut String, sorted: &[u64], colour: &str) {
    let mut points = String::new();
    let mut last = None;
    for step in 0..=STEPS {
        let share = 1.0 - 10f64.powf(-NINES * f64::from(step) / f64::from(STEPS));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length is an index")]
        let index = (share * sorted.len() as f64) as usize;
        // Beyond 1 - 1/n there are no samples, and what was lost has no place.
        let Some(&ns) = sorted.get(index).filter(|ns| **ns != u64::MAX && share <= 1.0 - 1.0 / sorted.len() as f64)
        else {
            break;
        };
        if last != Some(index) {
            let _ = write!(points, "{:.1},{:.1} ", x(ns), y(share));
            last = Some(index);
        }
    }
    svg::curve(svg, points.trim_end(), colour);
}

fn published(svg: &mut String) {
    for (_, figures, shape) in PUBLISHED {
        for (ns, share) in figures.into_iter().zip([0.5, 0.9, 0.99]) {
            mark(svg, x(ns), y(share), shape);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_on_the_scales() {
        assert_eq!((x(1_000), x(10_000_000_000)), (0.0, GRID.width));
        assert_eq!((x(1), x(u64::MAX)), (0.0, GRID.width), "what is outside stands at the edge");
        assert_eq!(y(0.0), GRID.height);
        assert!((y(0.9) - y(0.99) - GRID.height / NINES).abs() < 1e-9 && y(0.9999) == 0.0);
    }

    #[test]
    fn lost_requests_end_a_curve() {
        let mut svg = String::new();
        curve(&mut svg, &[10_000, 20_000, u64::MAX, u64::MAX], "red");
        assert_eq!(svg.matches(',').count(), 2, "{svg}");
    }
}
