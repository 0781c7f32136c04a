// SPDX-License-Identifier: Apache-2.0
//! The distributions as SVG: latency in logarithmic steps from left to right, shares of requests with their tail drawn out from bottom to top.

use std::fmt::Write as _;

/// One load: curves of sorted latencies in ns, `u64::MAX` for what was lost.
pub(crate) struct Panel<'a> {
    pub(crate) title: String,
    pub(crate) curves: Vec<(&'a str, &'a [u64])>,
}

/// Colours that colour-blind people can tell apart (Okabe and Ito), in the order of the curves.
const COLOURS: [&str; 4] = ["#0072b2", "#56b4e9", "#e69f00", "#d55e00"];
const GREY: &str = "#777777";
/// p50, p90, p99 of others' publications, ns: one-sided RDMA READs, and the same values asked of a process, on a loaded host.
const PUBLISHED: [(&str, [u64; 3], &str); 2] = [
    ("published: one-sided RDMA READ (p50, p90, p99)", [28_000, 31_000, 34_000], "circle"),
    ("published: process asked over sockets (p50, p90, p99)", [43_000, 424_000, 8_200_000], "square"),
];

const WIDTH: f64 = 960.0;
const PANEL_WIDTH: f64 = 400.0;
const PANEL_HEIGHT: f64 = 210.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 118.0;
const GAP: (f64, f64) = (70.0, 74.0);
/// 1 us to 10 s.
const DECADES: (i32, i32) = (3, 10);
/// Up to 99.95 %.
const NINES: f64 = 3.3;

fn x(ns: u64) -> f64 {
    let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
    ((ns as f64).log10().clamp(low, high) - low) / (high - low) * PANEL_WIDTH
}

/// Equal steps for 0, 90, 99, 99.9 %: where p99 is to be seen, a plain scale would have nothing.
fn y(share: f64) -> f64 {
    PANEL_HEIGHT * (1.0 - (-(1.0 - share).log10()).clamp(0.0, NINES) / NINES)
}

/// The whole figure.
pub(crate) fn draw(panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(2);
    let height = TOP + rows as f64 * (PANEL_HEIGHT + GAP.1);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">Time from when a value is due to when it is here, \
         by what else the watched core has to do</text>"
    );
    legend(&mut svg, panels);
    for (index, panel) in panels.iter().enumerate() {
        let column = (index % 2) as f64 * (PANEL_WIDTH + GAP.0);
        let row = (index / 2) as f64 * (PANEL_HEIGHT + GAP.1);
        let _ = writeln!(svg, "<g transform=\"translate({} {})\">", LEFT + column, TOP + row);
        axes(&mut svg, &panel.title);
        for ((_, sorted), colour) in panel.curves.iter().zip(COLOURS) {
            curve(&mut svg, sorted, colour);
        }
        if index > 0 {
            published(&mut svg);
        }
        let _ = writeln!(svg, "</g>");
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, panels: &[Panel]) {
    let Some(first) = panels.first() else { return };
    for (index, ((name, _), colour)) in first.curves.iter().zip(COLOURS).enumerate() {
        let at = LEFT + [0.0, 200.0, 440.0, 660.0][index];
        let _ = writeln!(
            svg,
            "<line x1=\"{at}\" y1=\"48\" x2=\"{}\" y2=\"48\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"52\">{name}</text>",
            at + 22.0,
            at + 28.0
        );
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
    let _ = writeln!(svg, "<text x=\"0\" y=\"-10\" font-weight=\"bold\">{title}</text>");
    for decade in DECADES.0..=DECADES.1 {
        let at = x(10u64.pow(decade.unsigned_abs()));
        let name = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s", "10 s"]
            [usize::try_from(decade - DECADES.0).unwrap_or(0)];
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"0\" x2=\"{at:.1}\" y2=\"{PANEL_HEIGHT}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{name}</text>",
            PANEL_HEIGHT + 17.0
        );
    }
    for (name, share) in [("0", 0.0), ("50 %", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("99.9 %", 0.999)] {
        let at = y(share);
        let _ = writeln!(
            svg,
            "<line x1=\"0\" y1=\"{at:.1}\" x2=\"{PANEL_WIDTH}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"-7\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555555\">{name}</text>",
            at + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<rect x=\"0\" y=\"0\" width=\"{PANEL_WIDTH}\" height=\"{PANEL_HEIGHT}\" fill=\"none\" stroke=\"#999999\"/>"
    );
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
    let points = points.trim_end();
    let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
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
        assert_eq!((x(1_000), x(10_000_000_000)), (0.0, PANEL_WIDTH));
        assert_eq!((x(1), x(u64::MAX)), (0.0, PANEL_WIDTH), "what is outside stands at the edge");
        assert_eq!(y(0.0), PANEL_HEIGHT);
        assert!((y(0.9) - y(0.99) - PANEL_HEIGHT / NINES).abs() < 1e-9 && y(0.9999) == 0.0);
    }

    #[test]
    fn lost_requests_end_a_curve() {
        let mut svg = String::new();
        curve(&mut svg, &[10_000, 20_000, u64::MAX, u64::MAX], "red");
        assert_eq!(svg.matches(',').count(), 2, "{svg}");
    }
}
