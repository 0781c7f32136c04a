// SPDX-License-Identifier: Apache-2.0
//! What is read of all series, and what they are called.

use super::super::kind::Region;
use super::super::model::Model;
use super::super::screen;
use super::super::theme::Theme;
use super::{MACHINE, S, found, relation};
use crate::read::fixture;
use onlooker_region::guard::commit;
use onlooker_series::derive::Derived;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

/// Blocks that readings of two seconds cost with a table of a thousand blocks and one of all connections, neither in
/// view.
#[test]
fn what_is_out_of_view_is_hardly_read() {
    let table = |name: &str| {
        format!(
            r#"{{"name":"{name}","groups":[{{"kind":"table","blocks":200,"key":[{{"name":"k","type":"u64"}}],"fields":[{{"name":"{name}_x","metric":"gauge","type":"i64"}}]}}]}}"#
        )
    };
    let mut host = fixture::host();
    host.region(2, "node_all", &[], MACHINE);
    host.region(3, "processes", &[], &table("processes"));
    host.region(4, "tcp_connections", &[], &table("tcp_connections"));
    let mut session = fixture::session_of(&host);
    let mut model = Model::new("h".into(), Duration::from_millis(100), (0, 0));
    let mut view = found("node_load1");
    model.follow(view.kind, &view.in_view, view.region());
    let (mut blocks, mut derived) = (Vec::new(), Derived::default());
    for tenth in 0..20 {
        let now_ns = 10 * S + tenth * S / 10;
        let pace = model.pace.clone();
        session.select(move |entry, _| pace.wants(&Region::of(entry), now_ns));
        let before = session.counters().blocks;
        fixture::read_into(&host, &mut session, now_ns);
        blocks.push(session.counters().blocks - before);
        model.take(&session, &relation(), &mut derived, now_ns);
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal
            .draw(|frame| {
                let area = frame.area();
                screen::draw(&mut view, &model, now_ns, Theme::plain(), area, frame.buffer_mut());
            })
            .unwrap();
        model.follow(view.kind, &view.in_view, view.region());
        if tenth == 19 {
            let text: String = terminal.backend().buffer().content.iter().map(ratatui::buffer::Cell::symbol).collect();
            assert!(text.contains("1 of 4 regions every 100 ms, others 5.0 s, not tcp_connections"), "{text}");
        }
    }
    assert!(blocks[0] > 200 && blocks[0] < 400, "once all but the connections: {blocks:?}");
    assert!(blocks[1..].iter().all(|blocks| *blocks <= 4), "{blocks:?}");
    // Chosen by name, they are read.
    view.series.region = Some("tcp_connections".into());
    model.follow(view.kind, &view.in_view, view.region());
    let pace = model.pace.clone();
    session.select(move |entry, _| pace.wants(&Region::of(entry), 13 * S));
    let before = session.counters().blocks;
    fixture::read_into(&host, &mut session, 13 * S);
    assert!(session.counters().blocks - before >= 200);
}

/// As in `onlooker read` and in the controller: what one CPU has of a number means nothing.
#[test]
fn parts_of_a_cpu_are_not_shown_as_the_metric() {
    let mut host = fixture::host();
    let stat = r#"{"name":"node_stat","groups":[{"kind":"computed","acquisition":"computed","blocks":1,"fields":[
        {"name":"node_filefd_allocated","metric":"gauge","type":"i64","slot":0,"array":{"label":"cpu","count":2,"stride":1},"sum":{}},
        {"name":"onlooker_context_switches_total","metric":"counter","type":"u64","slot":2,"array":{"label":"cpu","count":2,"stride":1},"sum":{"name":"node_context_switches_total"}}]}]}"#;
    let region = host.region(20, "node_stat", &[], stat);
    let mut model = Model::new("h".into(), Duration::from_secs(1), (0, 0));
    let mut derived = Derived::default();
    for second in 0..3 {
        let words = [1_500, (-12i64).cast_unsigned(), 70 * second, 7 * second];
        commit(region.words.block(0), region.entry.identity, 9 + second, |payload| payload.set_all(0, &words));
        let now_ns = (10 + second) * S;
        model.take(&fixture::read_at(&host, now_ns), &relation(), &mut derived, now_ns);
    }
    let machines = model.series.iter().filter(|series| series.region == "node_stat");
    let mut shown: Vec<_> = machines.map(|series| format!("{} {}", series.text(), series.number())).collect();
    shown.sort();
    let expected = [
        "node_context_switches_total 154",
        "node_filefd_allocated 1488",
        "onlooker_context_switches_total{cpu=0} 140",
        "onlooker_context_switches_total{cpu=1} 14",
    ];
    assert_eq!(shown, expected);
}
