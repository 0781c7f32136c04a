// SPDX-License-Identifier: Apache-2.0
//! What the user looks at: order, search, filter, selection; and what keys do. No terminal here.

use super::model::Model;
use super::series::Series;
use onlooker_region::schema::Metric;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Ordering;
use std::collections::HashSet;

/// A column that can be sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Column {
    /// CPU use of processes, then what moves, then the rest by name; what was zero for a minute comes last
    Active,
    Name,
    Value,
    Rate,
    Change,
}

impl Column {
    pub(super) const ALL: [Self; 5] = [Self::Active, Self::Name, Self::Value, Self::Rate, Self::Change];

    /// Names ascend, numbers descend, unless turned round.
    fn descends(self) -> bool {
        !matches!(self, Self::Active | Self::Name)
    }
}

/// Who uses the processors: the first question of who looks at a host.
const BUSY: [&str; 2] = ["onlooker_process_cpu_seconds_total", "container_cpu_usage_seconds_total"];

/// What a key asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    Redraw,
    Quit,
    /// As Ctrl-Z does elsewhere.
    Suspend,
}

/// See the module.
#[derive(Debug)]
pub(super) struct View {
    pub(super) sort: Column,
    pub(super) is_turned: bool,
    pub(super) search: String,
    /// The search is being written.
    pub(super) is_searching: bool,
    /// Only this region.
    pub(super) region: Option<String>,
    /// Id of the chosen series; `None`: whichever is first.
    pub(super) selected: Option<u64>,
    /// First row on the screen.
    pub(super) top: usize,
    /// Rows that the table has, as last drawn.
    pub(super) height: usize,
    pub(super) shows_help: bool,
    /// Each row stands for itself: nothing is left out that the row above has, too.
    pub(super) is_whole: bool,
    /// Regions (identity words) with a row on the screen, as last drawn.
    pub(super) in_view: HashSet<u64>,
    /// What is looked at instead of what comes in, and since when.
    pub(super) paused: Option<(Box<Model>, u64)>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            sort: Column::Name,
            is_turned: false,
            search: String::new(),
            is_searching: false,
            region: None,
            selected: None,
            top: 0,
            height: 10,
            shows_help: false,
            is_whole: false,
            in_view: HashSet::new(),
            paused: None,
        }
    }
}

impl View {
    /// Indices of the series to be shown, in order.
    pub(super) fn rows(&self, model: &Model) -> Vec<usize> {
        let search = self.search.to_lowercase();
        let words: Vec<&str> = search.split_whitespace().collect();
        let is_shown = |series: &Series| {
            self.region.as_ref().is_none_or(|region| series.region == *region)
                && words.iter().all(|word| series.search.contains(word))
        };
        let series = &model.series;
        let mut rows: Vec<usize> = (0..series.len()).filter(|index| is_shown(&series[*index])).collect();
        let by_name = |a: &usize, b: &usize| {
            let (a, b) = (&series[*a], &series[*b]);
            natural(&a.name, &b.name).then_with(|| natural(&a.labels, &b.labels)).then(a.id.cmp(&b.id))
        };
        if self.sort == Column::Name {
            rows.sort_unstable_by(by_name);
            if self.is_turned {
                rows.reverse();
            }
            return rows;
        }
        if self.sort == Column::Active {
            let mut placed: Vec<(u8, f64, usize)> =
                rows.into_iter().map(|index| activity(&series[index], index)).collect();
            placed.sort_unstable_by(|a, b| {
                a.0.cmp(&b.0).then_with(|| b.1.total_cmp(&a.1)).then_with(|| by_name(&a.2, &b.2))
            });
            let mut rows: Vec<usize> = placed.into_iter().map(|(_, _, index)| index).collect();
            if self.is_turned {
                rows.reverse();
            }
            return rows;
        }
        let number = |index: &usize| {
            let series = &series[*index];
            match self.sort {
                Column::Value => series.number(),
                Column::Rate => series.motion.rate().unwrap_or(f64::NEG_INFINITY),
                Column::Active | Column::Name | Column::Change => {
                    series.motion.change().map_or(f64::NEG_INFINITY, f64::abs)
                }
            }
        };
        let mut keyed: Vec<(f64, usize)> = rows.iter().map(|index| (number(index), *index)).collect();
        keyed.sort_unstable_by(|a, b| {
            let order = a.0.total_cmp(&b.0);
            let order = if self.sort.descends() == self.is_turned { order } else { order.reverse() };
            order.then_with(|| by_name(&a.1, &b.1))
        });
        keyed.into_iter().map(|(_, index)| index).collect()
    }

    /// Place of the chosen row among `rows`.
    pub(super) fn position(&self, model: &Model, rows: &[usize]) -> usize {
        self.selected.and_then(|id| rows.iter().position(|index| model.series[*index].id == id)).unwrap_or(0)
    }

    /// Moves the window so that the chosen row is in it.
    pub(super) fn scroll(&mut self, position: usize, rows: usize, height: usize) {
        self.height = height;
        let height = height.max(1);
        if position < self.top {
            self.top = position;
        } else if position >= self.top + height {
            self.top = position + 1 - height;
        }
        self.top = self.top.min(rows.saturating_sub(height));
    }

    fn go(&mut self, model: &Model, to: impl Fn(usize, usize) -> usize) {
        let rows = self.rows(model);
        let Some(last) = rows.len().checked_sub(1) else { return };
        let position = to(self.position(model, &rows), last).min(last);
        // At the top stays at the top, whatever comes there.
        self.selected = (position > 0).then(|| model.series[rows[position]].id);
        if position == 0 {
            self.top = 0;
        }
    }

    fn sort_by(&mut self, column: Column) {
        if self.sort == column {
            self.is_turned = !self.is_turned;
        } else {
            (self.sort, self.is_turned) = (column, false);
        }
        (self.selected, self.top) = (None, 0);
    }

    fn next_column(&mut self, back: bool) {
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        let step = if back { Column::ALL.len() - 1 } else { 1 };
        self.sort_by(Column::ALL[(at + step) % Column::ALL.len()]);
    }

    /// All regions, then each of them, round and round.
    fn next_region(&mut self, model: &Model, back: bool) {
        let mut names: Vec<&str> = model.regions.iter().map(|(name, _)| name.as_str()).collect();
        names.extend(model.series.iter().map(|series| series.region.as_str()));
        names.sort_unstable();
        names.dedup();
        let at =
            self.region.as_ref().and_then(|region| names.iter().position(|name| name == region)).map_or(0, |at| at + 1);
        let count = names.len() + 1;
        let next = if back { (at + count - 1) % count } else { (at + 1) % count };
        self.region = next.checked_sub(1).map(|index| names[index].to_owned());
        (self.selected, self.top) = (None, 0);
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
        let paused = self.paused.take();
        let model = paused.as_ref().map_or(live, |(model, _)| model);
        let page = self.height.saturating_sub(1).max(1);
        match key.code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.go(model, |at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.go(model, |at, _| at + 1),
            KeyCode::PageUp => self.go(model, |at, _| at.saturating_sub(page)),
            KeyCode::PageDown => self.go(model, |at, _| at + page),
            KeyCode::Home | KeyCode::Char('g') => self.go(model, |_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.go(model, |_, last| last),
            KeyCode::Char('0' | 'a') => self.sort_by(Column::Active),
            KeyCode::Char('1' | 'n') => self.sort_by(Column::Name),
            KeyCode::Char('2' | 'v') => self.sort_by(Column::Value),
            KeyCode::Char('3' | 'e') => self.sort_by(Column::Rate),
            KeyCode::Char('4' | 'c') => self.sort_by(Column::Change),
            KeyCode::Right | KeyCode::Char('s' | '>') => self.next_column(false),
            KeyCode::Left | KeyCode::Char('<') => self.next_column(true),
            KeyCode::Char('i') => self.is_turned = !self.is_turned,
            KeyCode::Char('r') | KeyCode::Tab => self.next_region(model, false),
            KeyCode::Char('R') | KeyCode::BackTab => self.next_region(model, true),
            KeyCode::Char('/') => self.is_searching = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Esc => (self.search, self.region, self.selected) = (String::new(), None, None),
            KeyCode::Char(' ' | 'p') => {
                if paused.is_none() {
                    self.paused = Some((Box::new(live.clone()), now_ns));
                }
                return Action::Redraw;
            }
            _ => {
                self.paused = paused;
                return Action::None;
            }
        }
        self.paused = paused;
        Action::Redraw
    }

    fn write(&mut self, key: KeyEvent, is_control: bool) -> Action {
        match key.code {
            KeyCode::Enter | KeyCode::Down | KeyCode::Up => self.is_searching = false,
            KeyCode::Esc => {
                self.is_searching = false;
                self.search.clear();
            }
            KeyCode::Backspace => drop(self.search.pop()),
            KeyCode::Char('u') if is_control => self.search.clear(),
            KeyCode::Char(c) if !is_control && !c.is_control() => self.search.push(c),
            _ => return Action::None,
        }
        (self.selected, self.top) = (None, 0);
        Action::Redraw
    }
}

/// Place among others by activity, order within the place, index. The least comes first.
fn activity(series: &Series, index: usize) -> (u8, f64, usize) {
    let rate = series.motion.rate().unwrap_or(0.0);
    let is_busy = BUSY.contains(&series.name.as_str()) && rate > 0.0;
    let moves = match series.metric {
        Metric::Counter | Metric::Histogram => series.motion.has_moved(),
        Metric::Gauge => series.motion.has_changed(),
        Metric::Info => false,
    };
    match (is_busy, moves, series.motion.has_moved()) {
        (true, ..) => (0, rate, index),
        (false, true, _) => (1, 0.0, index),
        // Says something, if always the same.
        (false, false, true) => (2, 0.0, index),
        (false, false, false) => (3, 0.0, index),
    }
}

/// Order of texts in which numbers count as numbers: `cpu=2` before `cpu=10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a, b) {
            ([], []) => return Ordering::Equal,
            ([], _) => return Ordering::Less,
            (_, []) => return Ordering::Greater,
            ([x, ..], [y, ..]) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (number, rest) = digits(a);
                let (other, other_rest) = digits(b);
                // Without leading zeros the longer one is the greater one.
                let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
                if order != Ordering::Equal {
                    return order;
                }
                (a, b) = (rest, other_rest);
            }
            ([x, a_rest @ ..], [y, b_rest @ ..]) => {
                if x != y {
                    return x.cmp(y);
                }
                (a, b) = (a_rest, b_rest);
            }
        }
    }
}

/// The number at the beginning, without leading zeros, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    (&number[zeros..], rest)
}
