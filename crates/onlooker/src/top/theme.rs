// SPDX-License-Identifier: Apache-2.0
//! Colours, or none (<https://no-color.org>): then bold, dim and reverse have to do.

use super::devices::FULL;
use ratatui::style::{Color, Modifier, Style};

#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    has_colour: bool,
}

impl Theme {
    /// As the environment variable `NO_COLOR` says.
    pub(super) fn of_environment() -> Self {
        Self { has_colour: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    pub(super) fn plain() -> Self {
        Self { has_colour: false }
    }

    #[cfg(test)]
    pub(super) fn coloured() -> Self {
        Self { has_colour: true }
    }

    fn colour(self, colour: Color) -> Style {
        if self.has_colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub(super) fn warn(self) -> Style {
        self.colour(Color::Yellow)
    }

    /// Nothing is to be overlooked here.
    pub(super) fn alarm(self) -> Style {
        if self.has_colour {
            Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD)
        }
    }

    pub(super) fn heading(self) -> Style {
        self.colour(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn line(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// As good as full, or something is wrong.
    pub(super) fn full(self) -> Style {
        let style = self.colour(Color::Red).add_modifier(Modifier::BOLD);
        if self.has_colour { style } else { style.add_modifier(Modifier::REVERSED) }
    }

    /// A part of what there is room for.
    pub(super) fn fullness(self, part: f64) -> Style {
        if part >= FULL { self.full() } else { Style::new() }
    }

    /// A bar that is full to this part.
    pub(super) fn bar(self, part: f64) -> Style {
        match part {
            part if part >= 0.9 => self.colour(Color::Red),
            part if part >= 0.6 => self.warn(),
            _ => self.good(),
        }
    }
}
