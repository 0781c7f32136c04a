// SPDX-License-Identifier: Apache-2.0
//! Each view at three sizes of terminal.

use super::super::kind::Kind;
use super::super::theme::Theme;
use super::super::view::{Action, View};
use super::host::{Host, Tabled};
use super::{S, line, row};
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// A host that was read for a view for a while.
fn looked_at(kind: Kind) -> (Host, View) {
    let mut host = Host::new(true);
    (0..15).for_each(|_| host.second(kind));
    (host, View::of(kind))
}

/// All of these stand in one line.
fn has(lines: &[String], first: &str, parts: &[&str]) {
    let found = line(lines, first);
    for part in parts {
        assert!(found.contains(part), "no `{part}` in `{found}` of\n{}", lines.join("\n"));
    }
}

#[test]
fn the_machine_tells_what_is_busy_and_what_is_full() {
    let (host, mut view) = looked_at(Kind::Machine);
    for size in SIZES {
        let lines = host.lines(&mut view, size);
        has(&lines, "CPU 40 %", &["of 2", "user 30 %", "system 10 %", "iowait 15 %"]);
        has(&lines, "cpu0 ", &["60 %"]);
        has(&lines, "load", &["1.52 2.00"]);
        has(&lines, "time waited for", &["io 33 % (all tasks 11 %)", "cpu 5 %"]);
        has(&lines, "memory [", &["25 %", "swap 25 % of"]);
        has(&lines, "/srv and 1 more", &["96 %!"]);
        has(&lines, "/snap/x", &["read-only"]);
        has(&lines, "sda ", &["95 %!", "2.00 KiB/s"]);
        has(&lines, "eth0", &["3.00 KiB/s", "1.00 KiB/s", "5.00/s"]);
        has(&lines, "TCP retransmits", &["2.50 %"]);
        // What is full comes first, and its own devices before those that others count, too.
        let at = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
        assert!(at("/srv") < at("42 %") && at("42 %") < at("/snap/x") && at("eth0") < at("docker0"));
        has(&lines, "1 machine", &["2 processes", "5 series", "? help", "q quit"]);
        has(&lines, "this view reads", &["KiB", "no gaps"]);
    }
    // Red, and where there is no colour marked.
    let buffer = host.buffer(&mut view, (80, 24), Theme::coloured());
    let lines = host.lines(&mut view, (80, 24));
    let y = u16::try_from(lines.iter().position(|line| line.contains("/srv")).unwrap()).unwrap();
    assert_eq!(buffer[(0, y)].fg, Color::Red);
    // Wide terminals have tables beside each other.
    let beside = |size| {
        host.lines(&mut View::of(Kind::Machine), size)
            .iter()
            .any(|line| line.contains("FILE SYSTEM") && line.contains("DISK"))
    };
    assert!(!beside((80, 24)) && beside((120, 40)) && beside((200, 60)));
}

#[test]
fn processes_tell_who_eats_the_cpu_and_who_leaks() {
    let (host, mut view) = looked_at(Kind::Processes);
    for size in SIZES {
        let lines = host.lines(&mut view, size);
        has(&lines, "3 processes", &["44 without a row", "CPU 40 % of 2", "memory 25 % of"]);
        has(&lines, "PROCESS", &["PID", "CPUv", "MEMORY", "1 MIN", "READ", "WRITTEN"]);
        has(&lines, "postgres", &["812", "1.25", "900 MiB", "3.00 MiB/s"]);
        has(&lines, "leaky", &["4711", "0.02", "+42.0 MiB"]);
        // Unknown is not nothing.
        assert!(row(&lines, "leaky").trim_end().contains(" - "), "{}", row(&lines, "leaky"));
        assert!(lines.iter().all(|line| !line.contains(|c: char| c.is_control() || c == '\u{202e}')));
        has(&lines, "\\u{1b}", &[]);
    }
    has(&host.lines(&mut view, (120, 40)), "PROCESS", &["USER", "SYSTEM", "THREADS"]);
    has(&host.lines(&mut view, (200, 60)), "leaky", &["disk"]);
    let mut new = Host::new(true);
    new.second(Kind::Processes);
    has(&new.lines(&mut View::of(Kind::Processes), (80, 24)), "3 processes", &["rates at the agent's next look"]);
    // By memory growth: the leak comes first.
    view.sort_by("growth").unwrap();
    assert!(host.lines(&mut view, (80, 24))[5].starts_with("leaky"));
    assert!(view.sort_by("nosuch").unwrap_err().contains("cpu_cores"));
}

#[test]
fn containers_tell_who_is_held_back_and_near_its_limit() {
    let (host, mut view) = looked_at(Kind::Containers);
    for size in SIZES {
        let lines = host.lines(&mut view, size);
        has(&lines, "2 control groups", &["CPU 40 % of 2"]);
        has(&lines, "CONTROL GROUP", &["CPUv", "HELD", "MEMORY", "LIMIT", "%MEM", "WRITTEN"]);
        has(&lines, "0123456789ab ", &["1.50", "25 %", "950 MiB", "1000 MiB", "95 %", "2.00 MiB/s"]);
        has(&lines, "sshd.service", &["1.00 MiB", "-"]);
    }
    has(&host.lines(&mut view, (120, 40)), "0123456789ab ", &["docker", "3"]);
}

#[test]
fn programs_stand_below_their_names() {
    let (host, mut view) = looked_at(Kind::Programs);
    for size in SIZES {
        let lines = host.lines(&mut view, size);
        let head = lines.iter().position(|line| line == "till  pid 815").unwrap();
        assert!(lines[head + 1].starts_with("till_sales_total desk=0"), "{}", lines.join("\n"));
        assert!(!lines[head + 1].contains("815"), "said already: {}", lines[head + 1]);
        assert!(lines.iter().all(|line| !line.contains("node_cpu")));
    }
}

#[test]
fn what_a_view_does_not_show_is_not_read() {
    let mut host = Host::new(true);
    // The directory and the schemas have to be read once.
    host.read(Kind::Machine);
    host.read(Kind::Machine);
    let mut cost = |kind: Kind| {
        host.now_ns += S;
        host.read(kind);
        let before = (host.blocks, host.model.costs[kind as usize].bytes);
        host.now_ns += S / 10;
        host.read(kind);
        assert_eq!((host.blocks - before.0) * 1024, host.model.costs[kind as usize].bytes - before.1);
        host.blocks - before.0
    };
    // A header, and the blocks of its regions: of the machine eight, of tables nine or eight and the summary's three.
    let costs: Vec<u64> = Kind::ALL.into_iter().map(&mut cost).collect();
    assert_eq!(costs[..4], [9, 13, 12, 2], "{costs:?}");
    let before: Vec<u64> = host.model.costs.iter().map(|cost| cost.bytes).collect();
    host.read(Kind::Programs);
    let after: Vec<u64> = host.model.costs.iter().map(|cost| cost.bytes).collect();
    assert!(before.iter().zip(&after).filter(|(before, after)| before != after).count() == 1, "counted for its view");
    // And never once: of the view's first second on.
    let mut fresh = Host::new(true);
    (0..3).for_each(|_| fresh.second(Kind::Processes));
    assert!(
        fresh
            .model
            .series
            .iter()
            .all(|series| series.is_agents() && series.region != "cgroups" && series.region != "node_interrupts")
    );
}

#[test]
fn a_table_that_is_off_says_how_to_switch_it_on() {
    let mut host = Host::new(false);
    for (kind, section) in [(Kind::Processes, "[processes]"), (Kind::Containers, "[cgroups]")] {
        host.second(kind);
        for size in SIZES {
            let lines = host.lines(&mut View::of(kind), size);
            has(&lines, section, &[]);
            has(&lines, "enabled = true", &[]);
            has(&lines, "/etc/onlooker/agent.toml", &[]);
        }
    }
}

#[test]
fn keys_go_through_the_views_and_into_rows() {
    let (mut host, mut view) = looked_at(Kind::Processes);
    host.press(&mut view, KeyCode::Char('3'));
    assert_eq!(view.kind, Kind::Containers);
    host.press(&mut view, KeyCode::Tab);
    assert_eq!(view.kind, Kind::Programs);
    host.press(&mut view, KeyCode::BackTab);
    host.press(&mut view, KeyCode::BackTab);
    assert_eq!(view.kind, Kind::Processes);
    assert_eq!(host.press(&mut View::of(Kind::Machine), KeyCode::Char('/')), Action::None, "nothing to be filtered");
    host.press(&mut view, KeyCode::Char('/'));
    "LEAK".chars().for_each(|c| assert_eq!(host.press(&mut view, KeyCode::Char(c)), Action::Redraw));
    has(&host.lines(&mut view, (80, 24)), "search: LEAK_", &[]);
    host.press(&mut view, KeyCode::Enter);
    let lines = host.lines(&mut view, (80, 24));
    has(&lines, "1 processes with `LEAK`", &[]);
    assert!(lines[5].starts_with("leaky") && lines.iter().all(|line| !line.contains("postgres")));
    // All of it.
    host.press(&mut view, KeyCode::Enter);
    let lines = host.lines(&mut view, (120, 40));
    has(&lines, "SERIES", &["of leaky 4711", "1 of 10"]);
    has(&lines, "onlooker_process_resident_bytes", &["name=leaky,pid=4711"]);
    assert!(lines.iter().all(|line| !line.contains("postgres")));
    host.press(&mut view, KeyCode::Esc);
    assert!(view.opened.is_none());
    host.press(&mut view, KeyCode::Esc);
    has(&host.lines(&mut view, (80, 24)), "3 processes", &[]);
    // The chosen one stays chosen, whoever overtakes it.
    host.press(&mut view, KeyCode::Down);
    has(&host.lines(&mut view, (80, 24)), "leaky  4711", &[]);
    host.press(&mut view, KeyCode::Char('m'));
    host.press(&mut view, KeyCode::End);
    host.second(Kind::Processes);
    assert!(host.lines(&mut view, (80, 24))[22].contains("\\u{1b}"));
    // A process that has ended leaves.
    let Tabled { table, rows } = &mut host.tabled[0];
    let (gone, _) = rows.remove(0);
    assert!(table.remove(&gone, host.now_ns + 999 * S));
    (0..3).for_each(|_| host.second(Kind::Processes));
    assert!(host.lines(&mut view, (80, 24)).iter().all(|line| !line.contains("postgres")));
}

#[test]
fn views_are_drawn_at_any_size_and_help_says_what_they_cost() {
    for kind in Kind::ALL {
        let (mut host, mut view) = looked_at(kind);
        for width in (0..60).step_by(9).chain([59, 79, 119, 300]) {
            for height in (0..16).step_by(3).chain([24, 100]) {
                for silent in [false, true] {
                    view.shows_help = silent && height % 3 == 0;
                    host.now_ns += if silent { 5 * S } else { 0 };
                    for line in host.lines(&mut view, (width, height)) {
                        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
                    }
                    host.now_ns -= if silent { 5 * S } else { 0 };
                }
            }
        }
        view.shows_help = true;
        for size in SIZES {
            let lines = host.lines(&mut view, size);
            has(&lines, &format!("{} {}", kind as usize + 1, kind.name()), &["KiB"]);
            has(&lines, "any key goes back", &[]);
        }
        let silent = {
            host.now_ns += 9 * S;
            view.shows_help = false;
            host.lines(&mut view, (80, 24))
        };
        has(&silent, "NO DATA since", &[]);
    }
}
