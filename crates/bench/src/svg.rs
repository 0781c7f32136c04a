// SPDX-License-Identifier: Apache-2.0
//! What figures have in common, as SVG: a title, names of curves, panels in two columns with scales and curves in them.
//! Writing to a string cannot fail.

use std::fmt::Write as _;

/// Colours that colour-blind people can tell apart (Okabe and Ito), in the order of the curves.
pub(crate) const COLOURS: [&str; 5] = ["#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00"];
const WIDTH: f64 = 960.0;
pub(crate) const LEFT: f64 = 60.0;

/// Sizes of panels: each, between them, and where the first begins.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) gap: (f64, f64),
    pub(crate) top: f64,
}

impl Grid {
    /// A whole figure; `legend` writes above the panels, `panel` each of so many from its corner.
    pub(crate) fn draw(
        self,
        title: &str,
        count: usize,
        legend: impl FnOnce(&mut String),
        mut panel: impl FnMut(&mut String, usize),
    ) -> String {
        let height = self.top + count.div_ceil(2) as f64 * (self.height + self.gap.1);
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"{LEFT}\" y=\"26\" font-size=\"16\" font-weight=\"bold\">{title}</text>"
        );
        legend(&mut svg);
        for index in 0..count {
            let x = LEFT + (index % 2) as f64 * (self.width + self.gap.0);
            let y = self.top + (index / 2) as f64 * (self.height + self.gap.1);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            panel(&mut svg, index);
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// A name under a panel.
    pub(crate) fn name_below(self, svg: &mut String, x: f64, name: &str) {
        let y = self.height + 17.0;
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#555555\">{name}</text>");
    }

    /// A line across a panel, with its name.
    pub(crate) fn line_across(self, svg: &mut String, y: f64, name: &str) {
        let _ = writeln!(
            svg,
            "<line x1=\"0\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"-7\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555555\">{name}</text>",
            self.width,
            y + 4.0
        );
    }
}

/// A panel's title.
pub(crate) fn title(svg: &mut String, title: &str) {
    let _ = writeln!(svg, "<text x=\"0\" y=\"-10\" font-weight=\"bold\">{title}</text>");
}

/// A curve's name, with a piece of it.
pub(crate) fn key(svg: &mut String, x: f64, colour: &str, name: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x}\" y1=\"48\" x2=\"{}\" y2=\"48\" stroke=\"{colour}\" stroke-width=\"3\"/><text x=\"{}\" y=\"52\">{name}</text>",
        x + 22.0,
        x + 28.0
    );
}

/// A curve through `X,Y` words.
pub(crate) fn curve(svg: &mut String, points: &str, colour: &str) {
    let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
}
