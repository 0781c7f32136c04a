// SPDX-License-Identifier: Apache-2.0
//! Curves over what is varied, by scheme, as SVG: that in logarithmic steps from left to right, values from 0 to the
//! largest from bottom to top.

use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::machine::is_quick;
use crate::svg::{self, COLOURS, Grid, LEFT, key};

/// Curves of points (what is varied, value), rising; and the unit of the former, with a space before it.
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) unit: &'static str,
    pub(crate) curves: Vec<(&'static str, Vec<(f64, f64)>)>,
}

const GRID: Grid = Grid { width: 390.0, height: 190.0, gap: (80.0, 70.0), top: 90.0 };
/// Lines across a panel above the lowest.
const STEPS: u32 = 4;

/// Into docs/images, or where SVG says; with QUICK only there.
pub(crate) fn draw_if_wanted(name: &str, title: &str, panels: &[Panel]) -> Result<()> {
    let usual = (!is_quick()).then(|| format!("docs/images/{name}"));
    let Some(path) = std::env::var("SVG").ok().filter(|path| !path.is_empty()).or(usual) else { return Ok(()) };
    std::fs::write(&path, draw(title, panels)).with_context(|| path.clone())?;
    println!("drawn: {path}");
    Ok(())
}

/// The whole figure, two panels a row.
fn draw(title: &str, panels: &[Panel]) -> String {
    let legend = |svg: &mut String| {
        let names = panels.iter().take(1).flat_map(|panel| &panel.curves).map(|(name, _)| name);
        for (index, (name, colour)) in names.zip(COLOURS).enumerate() {
            key(svg, LEFT + index as f64 * 175.0, colour, name);
        }
    };
    GRID.draw(title, panels.len(), legend, |svg, index| panel(svg, &panels[index]))
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
    let x = |at: f64| (at / low).ln() / span * GRID.width;
    let y = |value: f64| GRID.height * (1.0 - value.max(0.0) / top);
    svg::title(svg, &panel.title);
    for step in 0..=STEPS {
        let value = top * f64::from(step) / f64::from(STEPS);
        GRID.line_across(svg, y(value), &value.to_string());
    }
    for (at, _) in panel.curves.iter().take(1).flat_map(|(_, points)| points) {
        GRID.name_below(svg, x(*at), &format!("{at}{}", panel.unit));
    }
    for ((_, points), colour) in panel.curves.iter().zip(COLOURS) {
        let text: Vec<String> = points.iter().map(|(at, value)| format!("{:.1},{:.1}", x(*at), y(*value))).collect();
        svg::curve(svg, &text.join(" "), colour);
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
        let svg = draw("title", &[Panel { title: "panel".into(), unit: " ms", curves }]);
        assert!(svg.contains("points=\"0.0,190.0 390.0,0.0\""), "{svg}");
    }
}
