// SPDX-License-Identifier: Apache-2.0
//! What tests store: rows of two parts, as an agent's are, and a table.

use std::sync::Arc;

use onlooker_region::schema::Metric;
use onlooker_series::series::{Form, Series};

use crate::client::Description;
use crate::layout::{Layout, Part};

pub(crate) fn pair(name: &str, value: &str) -> (String, String) {
    (name.into(), value.into())
}

fn part(name: &str) -> Part {
    let own = vec![
        Series::new(&format!("{name}_total"), Metric::Counter, Form::Unsigned),
        Series::new(&format!("{name}_info"), Metric::Info, Form::Text),
        Series::new(&format!("{name}_load"), Metric::Gauge, Form::Float),
    ];
    Part::new(name, 0, own)
}

/// Rows of `cpu` and `memory`, or a table of disks. `instance` is the host's label.
pub(crate) fn description(host: &str, instance: &str, is_table: bool) -> Description {
    let parts = if is_table { &["disk"][..] } else { &["cpu", "memory"] };
    let parts = parts.iter().map(|name| part(name).shared()).collect();
    Description {
        host: host.into(),
        common: vec![pair("instance", instance)],
        source: 0,
        region: Vec::new(),
        layout: Arc::new(Layout::new(parts, is_table)),
        texts: if is_table { Vec::new() } else { vec![(0, 1, "zen".into())] },
    }
}
