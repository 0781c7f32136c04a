// SPDX-License-Identifier: Apache-2.0
//! What a program says of a metric: its name, unit, help and labels.

use onlooker_region::schema::{self, Field, Type};
use std::collections::BTreeMap;

/// A metric's name and what is said of it.
#[derive(Clone, Debug)]
pub struct Metric {
    name: String,
    unit: String,
    help: String,
    scale: f64,
    resolution_ns: u64,
    labels: BTreeMap<String, String>,
}

impl Metric {
    /// `[a-zA-Z_:][a-zA-Z0-9_:]*`, by custom with the unit and `_total` for counters: `shop_requests_total`.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            unit: String::new(),
            help: String::new(),
            scale: 1.0,
            resolution_ns: 0,
            labels: BTreeMap::new(),
        }
    }

    /// Unit of the exported value: Prometheus' base units, `seconds`, `bytes`, `ratio`.
    #[must_use]
    pub fn unit(mut self, unit: &str) -> Self {
        self.unit = unit.into();
        self
    }

    /// One sentence.
    #[must_use]
    pub fn help(mut self, help: &str) -> Self {
        self.help = help.into();
        self
    }

    /// Exported value = stored value * scale: 1e-9 for nanoseconds shown as seconds.
    #[must_use]
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }

    /// How finely the value really moves, ns.
    #[must_use]
    pub fn resolution_ns(mut self, resolution_ns: u64) -> Self {
        self.resolution_ns = resolution_ns;
        self
    }

    /// A constant label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    pub(crate) fn field(self, metric: schema::Metric, kind: Type, slot: usize) -> Field {
        let mut field = Field::new(&self.name, metric, kind, u32::try_from(slot).unwrap_or(u32::MAX));
        field.unit = self.unit;
        field.help = self.help;
        field.scale = self.scale;
        field.resolution_ns = self.resolution_ns;
        field.labels = self.labels;
        field
    }
}

impl From<&str> for Metric {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
