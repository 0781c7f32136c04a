// SPDX-License-Identifier: Apache-2.0
//! Tracks to write rows to, for tests and examples.

use onlooker_region::histogram::Shape;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{Form, Series};
use onlooker_series::text::Labels;
use onlooker_store::Description;

/// A track of `host` whose rows are of these series.
pub(crate) fn described(host: &str, forms: &[Form]) -> Description {
    let mut at = 0;
    let series = forms.iter().map(|form| {
        let series = Series {
            name: "x".into(),
            labels: Labels::from(Vec::new()),
            metric: Metric::Gauge,
            unit: "".into(),
            help: "".into(),
            scale: 1.0,
            resolution_ns: 0,
            acquisition: Acquisition::Direct,
            form: *form,
            at,
        };
        at += form.words();
        series
    });
    Description { host: host.to_owned(), series: series.collect(), ..Description::default() }
}

/// The same with so many columns of whole numbers: a histogram from four columns on, as a description is to be short.
pub(crate) fn of_columns(host: &str, columns: usize) -> Description {
    match columns.checked_sub(2).map(u8::try_from) {
        Some(Ok(max_power @ 2..=64)) => {
            let shape = Shape { grouping_power: 0, max_power };
            assert_eq!(shape.slots(), columns);
            described(host, &[Form::Histogram(shape)])
        }
        _ => described(host, &vec![Form::Unsigned; columns]),
    }
}
