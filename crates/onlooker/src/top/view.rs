// SPDX-License-Identifier: Apache-2.0
//! What the user looks at: one of the views, with the order, the filter and the choice that each has of its own; and
//! what keys do. No terminal here.

use super::grid::{self, Grid};
use super::kind::Kind;
use super::listing::{Column, Listing, Only};
use super::machine::Machine;
use super::model::Model;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::collections::HashSet;

/// What a key asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Redraw,
    Quit,
    /// As Ctrl-Z does elsewhere.
    Suspend,
}

/// All series of one entity, instead of the table that it is in.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) name: String,
    pub(super) listing: Listing,
}

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    pub(super) kind: Kind,
    pub(super) processes: Grid,
    pub(super) containers: Grid,
    pub(super) programs: Listing,
    pub(super) series: Listing,
    pub(super) opened: Option<Opened>,
    /// The filter is being written.
    pub(super) is_searching: bool,
    pub(super) shows_help: bool,
    /// Regions (identity words) with a row on the screen, as last drawn.
    pub(super) in_view: HashSet<u64>,
    /// What is looked at instead of what comes in, and since when.
    pub(super) paused: Option<(Box<Model>, u64)>,
}

impl Default for View {
    fn default() -> Self {
        Self::of(Kind::default())
    }
}

impl View {
    pub(super) fn of(kind: Kind) -> Self {
        Self {
            kind,
            processes: Grid::of(Kind::Processes),
            containers: Grid::of(Kind::Containers),
            programs: Listing::of(Only::Programs),
            series: Listing::of(Only::All),
            opened: None,
            is_searching: false,
            shows_help: false,
            in_view: HashSet::new(),
            paused: None,
        }
    }

    /// The table of entities that is shown.
    pub(super) fn grid(&mut self) -> Option<&mut Grid> {
        match self.kind {
            _ if self.opened.is_some() => None,
            Kind::Processes => Some(&mut self.processes),
            Kind::Containers => Some(&mut self.containers),
            Kind::Machine | Kind::Programs | Kind::Series => None,
        }
    }

    /// The list of series that is shown.
    pub(super) fn listing(&mut self) -> Option<&mut Listing> {
        match (&mut self.opened, self.kind) {
            (Some(opened), _) => Some(&mut opened.listing),
            (None, Kind::Programs) => Some(&mut self.programs),
            (None, Kind::Series) => Some(&mut self.series),
            (None, Kind::Machine | Kind::Processes | Kind::Containers) => None,
        }
    }

    /// What rows are to contain; the machine as a whole has none.
    pub(super) fn filter(&mut self) -> Option<&mut String> {
        if self.grid().is_some() {
            return self.grid().map(|grid| &mut grid.filter);
        }
        self.listing().map(|listing| &mut listing.search)
    }

    /// Sorts the view by this column, as the command line has it; else why not.
    pub(super) fn sort_by(&mut self, wanted: &str) -> Result<(), String> {
        let kind = self.kind;
        let (is_known, names): (bool, Vec<&str>) = if let Some(grid) = self.grid() {
            // The name without its unit will do.
            let full = Grid::sorts(kind).find(|id| *id == wanted || id.split('_').next() == Some(wanted));
            // It has an order already, which naming the same would turn round.
            let is_known = full.is_some_and(|id| Grid::sorts(kind).nth(grid.sort) == Some(id) || grid.sort_by(id));
            (is_known, Grid::sorts(kind).collect())
        } else if let Some(listing) = self.listing() {
            let found = Column::ALL.into_iter().find(|column| column.name() == wanted);
            listing.sort = found.unwrap_or(listing.sort);
            (found.is_some(), Column::ALL.map(Column::name).to_vec())
        } else {
            return Err(format!("the view {} has no order to choose", kind.name()));
        };
        if is_known {
            return Ok(());
        }
        Err(format!("the view {} has no column `{wanted}` to sort by; it has {}", kind.name(), names.join(", ")))
    }

    /// The only region that is shown.
    pub(super) fn region(&self) -> Option<&str> {
        self.series.region.as_deref().filter(|_| self.kind == Kind::Series)
    }

    /// Looks at something else; a pause was for what was looked at.
    fn go(&mut self, kind: Kind) {
        (self.kind, self.opened, self.paused) = (kind, None, None);
        self.in_view.clear();
    }

    /// `live` is what comes in now, at `now_ns`.
    pub(super) fn key(&mut self, key: KeyEvent, live: &Model, now_ns: u64) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::None;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Action::Quit,
            KeyCode::Char('z') if is_control => return Action::Suspend,
            _ => {}
        }
        if self.is_searching {
            return self.write(key, is_control);
        }
        if self.shows_help {
            self.shows_help = false;
            return Action::Redraw;
        }
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char(c @ '1'..='5') => self.go(Kind::ALL[c as usize - '1' as usize]),
            KeyCode::Tab => self.go(self.kind.next(false)),
            KeyCode::BackTab => self.go(self.kind.next(true)),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Char('/') if self.filter().is_some() => self.is_searching = true,
            KeyCode::Char(' ' | 'p') => {
                self.paused = if self.paused.is_some() { None } else { Some((Box::new(live.clone()), now_ns)) };
            }
            code => {
                let paused = self.paused.take();
                let model = paused.as_ref().map_or(live, |(model, _)| model);
                let is_known = self.list_key(code, model);
                self.paused = paused;
                return if is_known { Action::Redraw } else { Action::None };
            }
        }
        Action::Redraw
    }

    /// Keys that mean something in lists only.
    fn list_key(&mut self, code: KeyCode, model: &Model) -> bool {
        if self.opened.is_some() && matches!(code, KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace) {
            self.opened = None;
            return true;
        }
        if let Some(grid) = self.grid() {
            if code != KeyCode::Enter {
                return grid.key(code, model);
            }
            let rows = grid.rows(model, &Machine::of(model));
            let chosen = rows.get(grid.position(&rows)).map(|row| &row.entity);
            self.opened = chosen
                .map(|entity| Opened { name: grid::title(entity), listing: Listing::of(Only::Row(entity.place)) });
            return self.opened.is_some();
        }
        self.listing().is_some_and(|listing| listing.key(code, model))
    }

    fn write(&mut self, key: KeyEvent, is_control: bool) -> Action {
        let Some(filter) = self.filter() else {
            self.is_searching = false;
            return Action::Redraw;
        };
        let mut is_over = false;
        match key.code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => is_over = true,
            KeyCode::Esc => {
                is_over = true;
                filter.clear();
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char('u') if is_control => filter.clear(),
            KeyCode::Char(c) if !is_control && !c.is_control() => filter.push(c),
            _ => return Action::None,
        }
        self.is_searching = !is_over;
        if let Some(grid) = self.grid() {
            grid.chosen.forget();
        } else if let Some(listing) = self.listing() {
            listing.chosen.forget();
        }
        Action::Redraw
    }
}
