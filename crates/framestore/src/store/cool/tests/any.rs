// SPDX-License-Identifier: Apache-2.0
//! Rows of any kind come back.

use std::sync::Arc;

use onlooker_region::histogram::Shape;
use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::client::Description;
use crate::fixture::pair;
use crate::inspect::fixture::{FROM_NS, Filled};
use crate::layout::{Layout, Part};
use crate::types::Line;

/// Rows of a test of any rows: of two parts, or of a table.
fn any_description(is_table: bool) -> Description {
    let shape = Shape { grouping_power: 1, max_power: 3 };
    let part = |name: &str| {
        let forms = [
            ("total", Metric::Counter, Form::Unsigned),
            ("info", Metric::Info, Form::Text),
            ("load", Metric::Gauge, Form::Float),
            ("signed", Metric::Gauge, Form::Signed),
            ("times", Metric::Histogram, Form::Histogram(shape)),
        ];
        let own = forms.map(|(of, metric, form)| Series::new(&format!("{name}_{of}"), metric, form));
        Part::new(name, 0, own.to_vec()).shared()
    };
    let parts = if is_table { vec![part("disk")] } else { vec![part("cpu"), part("memory")] };
    Description {
        host: "a".into(),
        common: vec![pair("instance", "a")],
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(parts, is_table)),
        texts: Vec::new(),
    }
}

#[test]
fn any_rows_come_back_as_they_were() {
    bolero::check!().with_type::<(bool, Vec<(u8, u8, u8, u64)>)>().with_iterations(60).for_each(|(is_table, rows)| {
        let mut filled = Filled::new(0);
        let description = any_description(*is_table);
        let width = description.layout.kinds().len();
        let track = filled.appender().track(&description, FROM_NS).unwrap();
        let lines = ["x", "y", "z"].map(|disk| {
            let is_table = *is_table;
            let line =
                |filled: &mut Filled| filled.appender().line(track, &[pair("disk", disk)], &[], FROM_NS).unwrap();
            if is_table { line(&mut filled) } else { Line::ONLY }
        });
        let mut words = vec![0; width];
        let mut time_ns = FROM_NS;
        // As many rows as are worth a chunk, of few kinds.
        for (step, what, of, value) in rows.iter().cycle().take(rows.len() * 40) {
            time_ns = match step {
                0 => value >> 1,
                1 => time_ns,
                2..20 => time_ns.saturating_sub(u64::from(*of) * 1_000_000_000),
                _ => time_ns.saturating_add(u64::from(*step) * 10_000_000),
            };
            let column = usize::from(*what) % width;
            words[column] = match what % 5 {
                0 => *value,
                1 => value >> 40,
                2 => (f64::from(*of) / 4.0).to_bits(),
                3 => time_ns.wrapping_sub(u64::from(*of)),
                _ => words[column].wrapping_add(1),
            };
            filled.appender().append(track, lines[usize::from(*of) % 3], time_ns, &words).unwrap();
        }
        filled.pack();
        let (chunks, all) = (filled.chunks(), filled.all(&["a"]));
        assert_eq!(filled.cool() > 0, !rows.is_empty());
        assert!(filled.chunks() == chunks);
        assert_eq!(filled.all(&["a"]), all);
        filled.again();
        assert!(filled.chunks() == chunks);
        assert_eq!(filled.all(&["a"]), all);
        filled.check_files();
    });
}
