// SPDX-License-Identifier: Apache-2.0
//! A list of series: which of them, in which order, and which one is chosen.

use super::chosen::Chosen;
use super::model::Model;
use super::natural::natural;
use super::series::Series;
use onlooker_region::schema::Metric;
use ratatui::crossterm::event::KeyCode;

/// A column that can be sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Column {
    /// CPU use of processes, then what moves, then the rest by name; what was zero for a minute comes last.
    Active,
    #[default]
    Name,
    Value,
    Rate,
    Change,
}

impl Column {
    pub(super) const ALL: [Self; 5] = [Self::Active, Self::Name, Self::Value, Self::Rate, Self::Change];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Name => "name",
            Self::Value => "value",
            Self::Rate => "rate",
            Self::Change => "change",
        }
    }

    /// Names ascend, numbers descend, unless turned round.
    fn descends(self) -> bool {
        !matches!(self, Self::Active | Self::Name)
    }
}

/// Who uses the processors: the first question of who looks at a host.
const BUSY: [&str; 2] = ["onlooker_process_cpu_seconds_total", "container_cpu_usage_seconds_total"];

/// Number and generation of a table's row, and the identity word of its region.
pub(super) type Place = (u64, (u32, u32));

/// Which series are listed at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Only {
    #[default]
    All,
    /// Those of programs, together for each program.
    Programs,
    /// Those of one row of a table.
    Row(Place),
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) only: Only,
    pub(super) sort: Column,
    pub(super) is_turned: bool,
    pub(super) search: String,
    /// Only this region.
    pub(super) region: Option<String>,
    pub(super) chosen: Chosen<u64>,
    /// Each row stands for itself: nothing is left out that the row above has, too.
    pub(super) is_whole: bool,
}

impl Listing {
    pub(super) fn of(only: Only) -> Self {
        let sort = if only == Only::All { Column::Active } else { Column::Name };
        Self { only, sort, ..Self::default() }
    }

    /// Whether the series is one of these, whatever is searched for.
    pub(super) fn has(&self, series: &Series) -> bool {
        match self.only {
            Only::All => true,
            Only::Programs => !series.is_agents(),
            Only::Row((region, row)) => series.key.region == region && series.key.row == Some(row),
        }
    }

    /// Indices of the series to be shown, in order.
    pub(super) fn rows(&self, model: &Model) -> Vec<usize> {
        let search = self.search.to_lowercase();
        let words: Vec<&str> = search.split_whitespace().collect();
        let is_shown = |series: &Series| {
            self.has(series)
                && self.region.as_ref().is_none_or(|region| series.region == *region)
                && words.iter().all(|word| series.search.contains(word))
        };
        let series = &model.series;
        let rows: Vec<usize> = (0..series.len()).filter(|index| is_shown(&series[*index])).collect();
        let mut rows = self.sorted(rows, series);
        if self.only == Only::Programs {
            // Stable: within a program they stay as they are.
            rows.sort_by(|a, b| match (&series[*a].program, &series[*b].program) {
                (Some(a), Some(b)) => natural(a, b),
                (a, b) => a.cmp(b),
            });
        }
        rows
    }

    fn sorted(&self, mut rows: Vec<usize>, series: &[Series]) -> Vec<usize> {
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
        self.chosen.position(rows.iter().map(|index| &model.series[*index].id))
    }

    fn sort_by(&mut self, column: Column) {
        if self.sort == column {
            self.is_turned = !self.is_turned;
        } else {
            (self.sort, self.is_turned) = (column, false);
        }
        self.chosen.forget();
    }

    fn next_column(&mut self, back: bool) {
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        let step = if back { Column::ALL.len() - 1 } else { 1 };
        self.sort_by(Column::ALL[(at + step) % Column::ALL.len()]);
    }

    /// All regions, then each of them, round and round.
    fn next_region(&mut self, model: &Model, back: bool) {
        let is_listed = |is_agents: bool| self.only != Only::Programs || !is_agents;
        let of_host = model.regions.iter().filter(|(region, _)| is_listed(region.is_agents));
        let mut names: Vec<&str> = of_host.map(|(region, _)| region.name.as_str()).collect();
        names.extend(model.series.iter().filter(|series| self.has(series)).map(|series| series.region.as_str()));
        names.sort_unstable();
        names.dedup();
        let at =
            self.region.as_ref().and_then(|region| names.iter().position(|name| name == region)).map_or(0, |at| at + 1);
        let count = names.len() + 1;
        let next = if back { (at + count - 1) % count } else { (at + 1) % count };
        self.region = next.checked_sub(1).map(|index| names[index].to_owned());
        self.chosen.forget();
    }

    /// Whether the key means something here.
    pub(super) fn key(&mut self, key: KeyCode, model: &Model) -> bool {
        if Chosen::<u64>::is_move(key) {
            let rows: Vec<u64> = self.rows(model).iter().map(|index| model.series[*index].id).collect();
            self.chosen.go(key, &rows);
            return true;
        }
        match key {
            KeyCode::Char('0' | 'a') => self.sort_by(Column::Active),
            KeyCode::Char('n') => self.sort_by(Column::Name),
            KeyCode::Char('v') => self.sort_by(Column::Value),
            KeyCode::Char('e') => self.sort_by(Column::Rate),
            KeyCode::Char('c') => self.sort_by(Column::Change),
            KeyCode::Right | KeyCode::Char('s' | '>') => self.next_column(false),
            KeyCode::Left | KeyCode::Char('<') => self.next_column(true),
            KeyCode::Char('i') => self.is_turned = !self.is_turned,
            KeyCode::Char('r') => self.next_region(model, false),
            KeyCode::Char('R') => self.next_region(model, true),
            KeyCode::Esc => {
                (self.search, self.region) = (String::new(), None);
                self.chosen.forget();
            }
            _ => return false,
        }
        true
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
