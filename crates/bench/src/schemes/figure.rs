// SPDX-License-Identifier: Apache-2.0
//! Curves over the interval, by scheme, as SVG: intervals in logarithmic steps from left to right, values from 0 to the largest from bottom to top.

use std::fmt::Write as _;

/// Curves of points (interval in ms, value), intervals rising.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) curves: Vec<(&'static str, Vec<(f64, f64)>)>,
}

/// Colours that colour-blind people can tell apart (Okabe and Ito), in the order of the curves.
const COLOURS: [&str; 5] = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00"];
const WIDTH: f64 = 960.0;
const PANEL: (f64, f64) = (390.0, 190.0);
const LEFT: f64 = 60.0;
const TOP: f64 = 90.0;
const GAP: (f64, f64) = (80.0, 70.0);
/// Lines across a panel above the lowest.
const STEPS: u32 = 4;

/// The whole figure, two panels a row.
pub(super) fn draw(title: &str, panels: &[Panel]) -> String {
    let height = TOP + panels.len().div_ceil(2) as f64 * (PANEL.1 + GAP.1);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>"
    );
    for (index, ((name, _), colour)) in panels.iter().take(1).flat_map(|panel| &panel.curves).zip(COLOURS).enumerate() {
        let at = LEFT + index as f64 * 175.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{at}\" y1=\"48\" x2=\"{}\" y2=\"48\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"52\">{name}</text>",
            at + 22.0,
            at + 28.0
        );
    }
    for (index, one) in panels.iter().enumerate() {
        let x = LEFT + (index % 2) as f64 * (PANEL.0 + GAP.0);
        let y = TOP + (index / 2) as f64 * (PANEL.1 + GAP.1);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel(&mut svg, one);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// The next of 1, 2, 5, 10, ... times a power of ten.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * power).find(|step| *step >= value).unwrap_or(value)
}

fn panel(svg: &mut String, panel: &Panel) {
    let points = || panel.curves.iter().flat_map(|(_, points)| points);
    let top = round_up(points().map(|point| point.1).fold(0.0, f64::max));
    let low = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.0).fold(low, f64::max);
    let span = (high / low).ln().max(f64::MIN_POSITIVE);
    let x = |interval: f64| (interval / low).ln() / span * PANEL.0;
    let y = |value: f64| PANEL.1 * (1.0 - value.max(0.0) / top);
    let _ = writeln!(svg, "<text x=\"0\" y=\"-10\" font-weight=\"bold\">{}</text>", panel.title);
    for step in 0..=STEPS {
        let value = top * f64::from(step) / f64::from(STEPS);
        let at = y(value);
        let _ = writeln!(
            svg,
            "<line x1=\"0\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"-7\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555555\">{value}</text>",
            PANEL.0,
            at + 4.0
        );
    }
    for (interval, _) in panel.curves.iter().take(1).flat_map(|(_, points)| points) {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555555\">{interval} ms</text>",
            x(*interval),
            PANEL.1 + 17.0
        );
    }
    for ((_, points), colour) in panel.curves.iter().zip(COLOURS) {
        let text: Vec<String> = points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        let line = text.join(" ");
        let _ = writeln!(svg, "<polyline points=\"{line}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        for point in text {
            let (x, y) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_round_numbers() {
        assert_eq!([0.0, 0.3, 1.0, 1.1, 4.9, 7.0, 99.0].map(round_up), [1.0, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0]);
    }

    #[test]
    fn the_largest_value_stands_at_the_top_or_below() {
        let curves = vec![("one", vec![(1.0, 0.0), (10.0, 2.0)])];
        let svg = draw("title", &[Panel { title: "panel".into(), curves }]);
        assert!(svg.contains("points=\"0.0,190.0 390.0,0.0\""), "{svg}");
    }
}
