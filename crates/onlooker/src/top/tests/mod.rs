// SPDX-License-Identifier: Apache-2.0
//! The screen over hosts in memory, drawn on ratatui's TestBackend; keys as the terminal gives them.

mod host;
mod reading;
mod views;

use super::devices::Interface;
use super::kind::Kind;
use super::listing::Column;
use super::machine::Machine;
use super::model::Model;
use super::screen;
use super::theme::Theme;
use super::view::{Action, View};
use crate::read::fixture;
use onlooker_reader::clock::Relation;
use onlooker_series::derive::Derived;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use std::collections::HashSet;
use std::time::Duration;

const S: u64 = 1_000_000_000;

const MACHINE: &str = r#"{"name":"node","groups":[{"kind":"plain","blocks":1,"fields":[
    {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","scale":1e-9,"unit":"seconds","labels":{"mode":"user"},"array":{"label":"cpu","count":12,"stride":1}},
    {"name":"node_cpu_seconds_total","metric":"counter","type":"u64","scale":1e-9,"unit":"seconds","labels":{"mode":"idle"},"slot":12,"array":{"label":"cpu","count":12,"stride":1}},
    {"name":"node_load1","metric":"gauge","type":"u64","scale":0.01,"slot":24},
    {"name":"node_memory_MemTotal_bytes","metric":"gauge","type":"u64","unit":"bytes","slot":25},
    {"name":"node_memory_MemAvailable_bytes","metric":"gauge","type":"u64","unit":"bytes","slot":26},
    {"name":"node_network_receive_bytes_total","metric":"counter","type":"u64","unit":"bytes","slot":27,"labels":{"device":"eth0"}}]}]}"#;

/// A host whose machine counts, and the model over it.
struct World {
    host: fixture::Host,
    machine: Words,
    model: Model,
    derived: Derived,
    now_ns: u64,
}

/// All series in this order.
fn listed_by(column: Column) -> View {
    let mut view = View::of(Kind::Series);
    view.series.sort = column;
    view
}

/// Those that are found by these words.
fn found(words: &str) -> View {
    let mut view = listed_by(Column::Name);
    view.series.search = words.into();
    view
}

type Words = Box<dyn Fn(usize, u64)>;

fn relation() -> Relation {
    fixture::relation()
}

impl World {
    fn new() -> Self {
        let mut host = fixture::host();
        let region = host.region(2, "node_all", &[], MACHINE);
        let machine: Words = Box::new(move |slot, value| region.words.set(0, 1 + slot, value));
        let model = Model::new("web-3:7177".into(), Duration::from_millis(100), (0, 50_000 * S));
        let mut world = Self { host, machine, model, derived: Derived::default(), now_ns: 10 * S };
        (world.machine)(25, 8 << 30);
        (world.machine)(26, 6 << 30);
        (world.machine)(24, 152);
        world.read();
        world
    }

    fn read(&mut self) {
        self.model.follow(Kind::Series, &HashSet::new(), None);
        let session = fixture::read_at(&self.host, self.now_ns);
        self.model.take(&session, &relation(), &mut self.derived, self.now_ns);
    }

    /// Another second: processor n works n+1 twelfths of it, eth0 receives 2 MiB.
    fn second(&mut self) {
        self.now_ns += S;
        let seconds = self.now_ns / S - 10;
        for cpu in 0..12usize {
            let busy = S / 12 * (cpu as u64 + 1) * seconds;
            (self.machine)(cpu, busy);
            (self.machine)(12 + cpu, seconds * S - busy);
        }
        (self.machine)(27, seconds * (2 << 20));
        self.read();
    }

    fn lines(&self, view: &mut View, width: u16, height: u16) -> Vec<String> {
        let buffer = self.buffer(view, width, height, Theme::plain());
        (0..height)
            .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    fn buffer(&self, view: &mut View, width: u16, height: u16, theme: Theme) -> ratatui::buffer::Buffer {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            screen::draw(view, &self.model, self.now_ns, theme, area, frame.buffer_mut());
        });
        drawn.unwrap().buffer.clone()
    }

    fn names(&self, view: &View) -> Vec<String> {
        view.series.rows(&self.model).iter().map(|index| self.model.series[*index].text()).collect()
    }

    fn press(&self, view: &mut View, code: KeyCode) -> Action {
        view.key(KeyEvent::new(code, KeyModifiers::NONE), &self.model, self.now_ns)
    }

    fn write(&self, view: &mut View, text: &str) {
        text.chars().for_each(|c| assert_eq!(self.press(view, KeyCode::Char(c)), Action::Redraw));
    }
}

fn line<'a>(lines: &'a [String], part: &str) -> &'a str {
    lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("no `{part}` in\n{}", lines.join("\n")))
}

/// The table's row of a series.
fn row<'a>(lines: &'a [String], name: &str) -> &'a str {
    lines
        .iter()
        .find(|line| line.starts_with(name))
        .unwrap_or_else(|| panic!("no row `{name}` in\n{}", lines.join("\n")))
}

#[test]
fn the_machine_is_told_out_of_its_series() {
    let mut world = World::new();
    assert_eq!(Machine::of(&world.model).cpus[0], (0, None), "one reading gives no rate");
    (0..3).for_each(|_| world.second());
    let machine = Machine::of(&world.model);
    assert_eq!(machine.cpus.len(), 12);
    for (cpu, busy) in &machine.cpus {
        let expected = f64::from(cpu + 1) / 12.0;
        assert!(busy.is_some_and(|busy| (busy - expected).abs() < 1e-6), "{cpu} {busy:?}");
    }
    assert_eq!((machine.load[0], machine.memory), (Some(1.52), Some((2_147_483_648.0, 8_589_934_592.0))));
    let Interface { device, received, sent, .. } = &machine.network[0];
    assert!(device == "eth0" && received.is_some_and(|rate| (rate - 2_097_152.0).abs() < 1.0) && sent.is_none());
    let lines = world.lines(&mut listed_by(Column::Name), 110, 40);
    assert!(line(&lines, "cpu11").contains("100 %") && line(&lines, "cpu5 ").contains("50 %"));
    assert!(line(&lines, "load").contains("load 1.52") && line(&lines, "load").contains("CPU 54 %"));
    assert!(line(&lines, "memory [").contains("25 %") && line(&lines, "memory [").contains("2 GiB of 8 GiB"));
    assert!(line(&lines, "network eth0").contains("in 2 MiB/s out 0 B/s"));
}

#[test]
fn numbers_in_names_are_sorted_as_numbers() {
    let world = World::new();
    let names = world.names(&found("mode=idle"));
    let cpus: Vec<String> = (0..12).map(|cpu| format!("node_cpu_seconds_total{{cpu={cpu},mode=idle}}")).collect();
    assert_eq!(names, cpus);
}

#[test]
fn each_column_sorts_and_turns_round() {
    let mut world = World::new();
    (0..3).for_each(|_| world.second());
    let mut view = listed_by(Column::Name);
    world.press(&mut view, KeyCode::Char('e'));
    assert_eq!(view.series.sort, Column::Rate);
    assert_eq!(world.names(&view)[0], "node_network_receive_bytes_total{device=eth0}");
    world.press(&mut view, KeyCode::Char('v'));
    assert_eq!(world.names(&view)[0], "shop_requests_total{cpu=0,pid=4321,program=\"my shop\"}");
    world.press(&mut view, KeyCode::Char('v'));
    assert_ne!(world.names(&view)[0], "shop_requests_total{cpu=0,pid=4321,program=\"my shop\"}", "turned round");
    // What changes most by its own measure: the load average doubles.
    (world.machine)(24, 304);
    world.second();
    world.press(&mut view, KeyCode::Char('c'));
    assert_eq!(world.names(&view)[0], "node_load1");
    assert!(row(&world.lines(&mut view, 140, 40), "node_load1").contains("+100 %"));
    let first = world.names(&listed_by(Column::Name));
    world.press(&mut view, KeyCode::Char('n'));
    assert_eq!(world.names(&view), first);
    world.press(&mut view, KeyCode::Char('i'));
    assert_eq!(world.names(&view).first(), first.last());
    world.press(&mut view, KeyCode::Right);
    assert_eq!((view.series.sort, view.series.is_turned), (Column::Value, false));
    world.press(&mut view, KeyCode::Left);
    assert_eq!(view.series.sort, Column::Name);
}

#[test]
fn a_search_takes_words_and_gives_them_back() {
    let world = World::new();
    let mut view = listed_by(Column::Name);
    let all = world.names(&view).len();
    world.press(&mut view, KeyCode::Char('/'));
    world.write(&mut view, "CPU=1 idlex");
    assert_eq!(world.names(&view).len(), 0);
    assert!(line(&world.lines(&mut view, 100, 30), "search:").contains("CPU=1 idlex_"));
    assert!(line(&world.lines(&mut view, 100, 30), "nothing matches").contains(&all.to_string()));
    world.press(&mut view, KeyCode::Backspace);
    assert_eq!(world.names(&view).len(), 3, "1, 10, 11");
    // Letters that are keys elsewhere are letters here.
    world.write(&mut view, " q");
    assert!(view.is_searching && view.series.search.ends_with(" q"));
    world.press(&mut view, KeyCode::Backspace);
    world.press(&mut view, KeyCode::Enter);
    assert!(!view.is_searching && line(&world.lines(&mut view, 100, 30), "SERIES").contains("CPU=1 idle"));
    world.press(&mut view, KeyCode::Esc);
    assert_eq!(world.names(&view).len(), all);
}

#[test]
fn regions_go_round() {
    let world = World::new();
    let mut view = listed_by(Column::Name);
    let all = world.names(&view).len();
    world.press(&mut view, KeyCode::Char('r'));
    assert_eq!(view.series.region.as_deref(), Some("node_all"));
    world.press(&mut view, KeyCode::Char('r'));
    assert_eq!(view.series.region.as_deref(), Some("shop"));
    assert!(world.names(&view).iter().all(|name| name.starts_with("shop_") || name.starts_with("queue_")));
    world.press(&mut view, KeyCode::Char('r'));
    assert_eq!((view.series.region.as_deref(), world.names(&view).len()), (None, all));
    world.press(&mut view, KeyCode::Char('R'));
    assert_eq!(view.series.region.as_deref(), Some("shop"));
}

#[test]
fn the_chosen_series_stays_chosen_and_in_sight() {
    let mut world = World::new();
    (0..2).for_each(|_| world.second());
    let mut view = listed_by(Column::Name);
    world.lines(&mut view, 100, 20);
    for _ in 0..15 {
        world.press(&mut view, KeyCode::Down);
    }
    let lines = world.lines(&mut view, 100, 20);
    let chosen = world.names(&view)[15].clone();
    assert_eq!(lines[17], chosen, "told in full");
    assert!(lines[18].contains("counter") && lines[18].contains("region node_all"));
    assert!(view.series.chosen.top > 0 && view.series.chosen.top <= 15);
    world.press(&mut view, KeyCode::End);
    let lines = world.lines(&mut view, 100, 20);
    assert_eq!(&lines[17], world.names(&view).last().unwrap());
    world.press(&mut view, KeyCode::PageUp);
    world.press(&mut view, KeyCode::Home);
    assert_eq!(
        (world.lines(&mut view, 100, 20)[17].clone(), view.series.chosen.top),
        (world.names(&view)[0].clone(), 0)
    );
}

#[test]
fn a_counter_that_goes_down_is_a_reset_and_rates_go_on() {
    let mut world = World::new();
    (0..3).for_each(|_| world.second());
    (world.machine)(27, 1 << 20);
    world.now_ns += S;
    world.read();
    let row = world.lines(&mut found("eth0"), 140, 40);
    assert!(line(&row, "receive_bytes").contains("reset"));
    for more in 2..8u64 {
        (world.machine)(27, more << 20);
        world.now_ns += S;
        world.read();
    }
    let row = world.lines(&mut found("eth0"), 140, 40);
    assert!(line(&row, "receive_bytes").contains("1 MiB/s"), "{row:?}");
}

#[test]
fn a_region_that_begins_anew_goes_on_as_the_same_rows() {
    let mut world = World::new();
    world.second();
    let (before, ids) =
        (world.names(&listed_by(Column::Name)), world.model.series.iter().map(|series| series.id).collect::<Vec<_>>());
    // Another incarnation under the same name: other identity, other memory, counters at 0.
    let mut host = fixture::host();
    let _ = host.region(3, "node_all", &[], MACHINE);
    world.host = host;
    world.now_ns += S;
    world.read();
    assert_eq!(world.names(&listed_by(Column::Name)), before);
    assert_eq!(world.model.series.iter().map(|series| series.id).collect::<Vec<_>>(), ids);
    assert!(!line(&world.lines(&mut found("eth0"), 140, 40), "receive_bytes").contains("reset"));
}

#[test]
fn what_is_gone_is_dimmed_then_forgotten() {
    let mut world = World::new();
    world.second();
    let all = world.model.series.len();
    world.host = fixture::host();
    world.now_ns += S;
    world.read();
    assert_eq!(world.model.series.len(), all);
    let mut view = found("node_load1");
    let buffer = world.buffer(&mut view, 100, 30, Theme::coloured());
    let y = (0..30).find(|y| (0..10).map(|x| buffer[(x, *y)].symbol()).collect::<String>() == "node_load1").unwrap();
    assert!(buffer[(0, y)].modifier.contains(Modifier::DIM));
    world.now_ns += 40 * S;
    world.read();
    assert!(world.model.series.iter().all(|series| series.region == "shop"));
    assert_eq!(world.names(&view).len(), 0);
}

#[test]
fn histograms_show_percentiles() {
    let world = World::new();
    let lines = world.lines(&mut found("latency"), 160, 20);
    let row = row(&lines, "shop_latency_seconds pid");
    assert!(row.contains("p50>=8 ns p99>=8 ns"), "{row}");
}

#[test]
fn silence_is_told_with_its_reason_and_the_last_values_stay() {
    let mut world = World::new();
    world.second();
    world.now_ns += 500_000_000;
    assert!(!world.lines(&mut listed_by(Column::Name), 120, 30)[2].contains("NO DATA"));
    // Nobody has said why yet.
    world.now_ns += 12 * S;
    let lines = world.lines(&mut listed_by(Column::Name), 120, 30);
    assert!(
        lines[2].contains("NO DATA since 13:53:31 UTC (12 s)") && lines[2].contains("no answer yet"),
        "{}",
        lines[2]
    );
    world.model.gap("unreachable", 3);
    world.model.failed("10.0.0.3:7177 refuses the connection".into(), world.now_ns + 2 * S);
    let lines = world.lines(&mut listed_by(Column::Name), 120, 30);
    assert!(lines[2].contains("try 2 in 2.0 s: 10.0.0.3:7177 refuses the connection"), "{}", lines[2]);
    let lines = world.lines(&mut found("node_load1"), 120, 30);
    assert!(row(&lines, "node_load1").contains("1.52"));
    let buffer = world.buffer(&mut found("node_load1"), 120, 30, Theme::coloured());
    assert_eq!(buffer[(1, 2)].bg, Color::Red);
    let shown_rows = (4..30).flat_map(|y| (0..120).map(move |x| (x, y)));
    let (dim, loud): (Vec<_>, Vec<_>) = shown_rows
        .map(|at| &buffer[at])
        .filter(|cell| cell.symbol() == "\u{2581}")
        .partition(|cell| cell.modifier.contains(Modifier::DIM));
    assert!(!dim.is_empty() && loud.is_empty());
    // Back: the gap is counted and seen.
    world.second();
    let lines = world.lines(&mut found("node_load1"), 120, 30);
    assert!(lines[2].contains("gaps 3 in 3 readings: unreachable 3"), "{}", lines[2]);
    assert!(row(&lines, "node_load1").contains('\u{b7}'), "a hole in the line");
}

#[test]
fn a_pause_holds_the_screen_while_reading_goes_on() {
    let mut world = World::new();
    world.second();
    let mut view = found("node_load1");
    world.press(&mut view, KeyCode::Char(' '));
    (world.machine)(24, 999);
    world.second();
    let lines = world.lines(&mut view, 120, 30);
    assert!(lines[0].contains("PAUSED at 13:53:31 UTC") && row(&lines, "node_load1").contains("1.52"), "{}", lines[0]);
    assert_eq!(world.press(&mut view, KeyCode::Char('x')), Action::None);
    assert!(view.paused.is_some(), "other keys do not end it");
    world.press(&mut view, KeyCode::Char(' '));
    assert!(row(&world.lines(&mut view, 120, 30), "node_load1").contains("9.99"));
}

#[test]
fn keys_quit_and_help() {
    let world = World::new();
    let mut view = listed_by(Column::Name);
    assert_eq!(world.press(&mut view, KeyCode::Char('?')), Action::Redraw);
    let lines = world.lines(&mut view, 120, 40);
    assert!(line(&lines, "Ctrl-C").contains("quit") && line(&lines, "any key").contains("goes back"));
    assert_eq!(world.press(&mut view, KeyCode::Char('z')), Action::Redraw);
    assert!(!view.shows_help);
    assert_eq!(world.press(&mut view, KeyCode::Char('q')), Action::Quit);
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    view.is_searching = true;
    assert_eq!(view.key(control('c'), &world.model, 0), Action::Quit);
    assert_eq!(view.key(control('z'), &world.model, 0), Action::Suspend);
}

#[test]
fn any_size_is_drawn_and_nothing_of_a_host_steers_the_terminal() {
    let mut world = World::new();
    let bad = "{\"name\":\"bad\",\"groups\":[{\"kind\":\"plain\",\"blocks\":1,\"fields\":[{\"name\":\"bad\",\"metric\":\"gauge\",\"type\":\"u64\"}]}]}";
    world.host.region(9, "bad", &[("a", "\u{1b}[2J\u{202e}\u{4e2d}\u{6587}\r\n")], bad);
    // What is wide, endless, or stands on nothing.
    let wide = "\u{4e2d}".repeat(20) + &"e\u{301}\u{300}".repeat(20) + &"\u{ad}\u{2063}\u{9b}31m".repeat(8);
    world.host.region(10, "wide\u{9b}", &[("b", &wide)], bad);
    world.host.region(11, &"w".repeat(100), &[("long", &"\u{4e2d}".repeat(80))], bad);
    (0..70).for_each(|_| world.second());
    let mut view = listed_by(Column::Name);
    for width in (0..60).chain([79, 80, 100, 132, 200, 300]) {
        for height in (0..16).chain([24, 50, 100]) {
            for silent in [false, true] {
                view.shows_help = silent && height % 3 == 0;
                world.now_ns += if silent { 5 * S } else { 0 };
                for line in world.lines(&mut view, width, height) {
                    assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}' || c == '\u{2063}'), "{line:?}");
                    assert!(line.chars().count() <= 8 * usize::from(width), "{line:?}");
                }
                world.now_ns -= if silent { 5 * S } else { 0 };
            }
        }
    }
    view.shows_help = false;
    // The table is what stays when there is little room, and the alarm when there is next to none.
    assert!(world.lines(&mut view, 40, 4)[1].starts_with("SERIES"));
    world.now_ns += 5 * S;
    assert!(world.lines(&mut view, 40, 1)[0].contains("NO DATA"));
}

#[test]
fn without_colour_there_is_none() {
    let mut world = World::new();
    world.second();
    for silent in [false, true] {
        world.now_ns += if silent { 9 * S } else { 0 };
        let buffer = world.buffer(&mut listed_by(Column::Name), 120, 40, Theme::plain());
        assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        let buffer = world.buffer(&mut listed_by(Column::Name), 120, 40, Theme::coloured());
        assert!(buffer.content.iter().any(|cell| cell.fg != Color::Reset));
    }
}

#[test]
fn what_moves_comes_first_and_zeros_last() {
    let mut world = World::new();
    (0..3).for_each(|_| world.second());
    let names = world.names(&listed_by(Column::Active));
    let place = |name: &str| names.iter().position(|other| other.starts_with(name)).unwrap();
    assert!(place("node_network_receive_bytes_total") < place("shop_version"));
    assert!(place("node_load1") < place("shop_version"));
    assert!(place("node_network_receive_bytes_total") < place("node_load1"), "which does not change");
    // Counters that stand still.
    assert!(place("node_cpu_seconds_total") < place("shop_requests_total"));
}
