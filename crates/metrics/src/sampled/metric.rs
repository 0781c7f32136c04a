// SPDX-License-Identifier: Apache-2.0
//! What a metric is, as a constant: a group's file lists its own, and gives values by reference to them.

use onlooker_region::schema::{Field, Metric, Type};

/// A metric's constant part.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) metric: Metric,
    pub(crate) kind: Type,
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    /// Exported value = stored value * scale.
    pub(crate) scale: f64,
    /// Names of constant labels, in the order in which values give theirs.
    pub(crate) labels: &'static [&'static str],
    /// Label of an array: one field for all its elements.
    pub(crate) array: Option<&'static str>,
}

impl Definition {
    const fn new(name: &'static str, metric: Metric, help: &'static str) -> Self {
        Self { name, metric, kind: Type::U64, unit: "", help, scale: 1.0, labels: &[], array: None }
    }

    /// A whole number that only grows.
    pub(crate) const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Metric::Counter, help)
    }

    /// A whole number that moves.
    pub(crate) const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(name, Metric::Gauge, help)
    }

    /// In this unit, of which one stored is `scale`.
    pub(crate) const fn unit(self, unit: &'static str, scale: f64) -> Self {
        Self { unit, scale, ..self }
    }

    /// With these constant labels.
    pub(crate) const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }

    /// One for each of `array`.
    pub(crate) const fn by(self, array: &'static str) -> Self {
        Self { array: Some(array), ..self }
    }

    /// Not a whole number.
    pub(crate) const fn float(self) -> Self {
        Self { kind: Type::F64, ..self }
    }

    /// A whole number that may be negative.
    pub(crate) const fn signed(self) -> Self {
        Self { kind: Type::I64, ..self }
    }

    /// Its field, without labels, at slot 0.
    pub(crate) fn field(&self) -> Field {
        let mut field = Field::new(self.name, self.metric, self.kind, 0);
        (field.unit, field.help, field.scale) = (self.unit.into(), self.help.into(), self.scale);
        field
    }
}
