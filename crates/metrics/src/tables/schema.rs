// SPDX-License-Identifier: Apache-2.0
//! What the classes of all tables have in common.

use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Acquisition, Array, Field, Group, Kind, Metric, Type};
use onlooker_region::table::{KeyPart, KeyType};

/// A number of the next slot, with its unit.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) metric: Metric,
    pub(super) unit: &'static str,
    pub(super) scale: f64,
    pub(super) help: &'static str,
}

pub(super) const fn counter(name: &'static str, help: &'static str) -> Column {
    Column { name, metric: Metric::Counter, unit: "", scale: 1.0, help }
}

pub(super) const fn gauge(name: &'static str, help: &'static str) -> Column {
    Column { name, metric: Metric::Gauge, unit: "", scale: 1.0, help }
}

impl Column {
    pub(super) const fn bytes(self) -> Self {
        Self { unit: "bytes", ..self }
    }

    pub(super) const fn seconds(self, scale: f64) -> Self {
        Self { unit: "seconds", scale, ..self }
    }

    pub(super) fn field(&self, slot: usize) -> Field {
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let mut field = Field::new(self.name, self.metric, Type::U64, slot);
        (field.unit, field.scale, field.help) = (self.unit.into(), self.scale, self.help.into());
        field
    }
}

/// Columns in consecutive slots.
pub(super) fn fields(first_slot: usize, columns: &[Column]) -> Vec<Field> {
    (first_slot..).zip(columns).map(|(slot, column)| column.field(slot)).collect()
}

/// An array of one element for each of `values`.
pub(super) fn array(column: &Column, slot: usize, label: &str, values: &[&str]) -> Field {
    let mut field = column.field(slot);
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    let values = Some(values.iter().map(|value| (*value).to_owned()).collect());
    field.array = Some(Array { label: label.into(), count, stride: 1, values });
    field
}

pub(super) fn text(name: &str, bytes: u32) -> KeyPart {
    KeyPart { name: name.into(), kind: KeyType::Text, bytes }
}

pub(super) fn number(name: &str) -> KeyPart {
    KeyPart { name: name.into(), kind: KeyType::U64, bytes: 0 }
}

pub(super) fn address(name: &str) -> KeyPart {
    KeyPart { name: name.into(), kind: KeyType::Address, bytes: 0 }
}

/// A table of at least `rows` rows.
pub(super) fn table(key: Vec<KeyPart>, fields: Vec<Field>, rows: usize, interval_ns: u64) -> Group {
    let mut group = sampled(Group::new(Kind::Table, 1, fields), interval_ns);
    group.key = key;
    let per_block = group.layout().map_or(1, onlooker_region::table::Layout::rows_per_block);
    group.blocks = u32::try_from(rows.div_ceil(per_block.max(1))).unwrap_or(u32::MAX);
    group
}

/// One block: what a source tells of itself, and then `more`, whose slots begin at [`super::TOLD_SLOTS`].
pub(super) fn summary(table: &str, more: Vec<Field>, interval_ns: u64) -> Group {
    let own = [
        counter("onlooker_table_runs_total", "Times that the table was written anew."),
        counter("onlooker_table_failed_runs_total", "Of these, times that nothing could be read."),
        counter("onlooker_table_run_seconds_total", "CPU time that this took.").seconds(1e-9),
        gauge("onlooker_table_rows", "Rows that are live."),
        gauge("onlooker_table_rows_missing", "What has no row since all were taken."),
    ];
    let mut own = fields(0, &own);
    own.iter_mut().for_each(|field| drop(field.labels.insert("table".into(), table.into())));
    own.extend(more);
    debug_assert!(own.iter().all(|field| (field.slot as usize) < GUARDED_SLOTS));
    sampled(Group::new(Kind::Guarded, 1, own), interval_ns)
}

/// Nothing of it moves more often than it is sampled, however finely the kernel counts.
fn sampled(mut group: Group, interval_ns: u64) -> Group {
    (group.acquisition, group.max_age_ns) = (Acquisition::Sampled, interval_ns);
    group.fields.iter_mut().for_each(|field| field.resolution_ns = field.resolution_ns.max(interval_ns));
    group
}

#[cfg(test)]
mod tests {
    use onlooker_settings::units::Span;

    use super::super::{cgroups, connections, processes};

    #[test]
    fn no_field_of_a_table_pretends_to_move_more_often_than_it_is_sampled() {
        let interval = Span::from_s(5);
        let by = processes::By::Name;
        for regions in [
            connections::regions(&connections::Options { interval, rows: 100, ports: 10 }),
            cgroups::regions(&cgroups::Options { interval, rows: 100, root: "/".into() }),
            processes::regions(&processes::Options { interval, rows: 100, by }),
        ] {
            for (group, field) in regions
                .iter()
                .flat_map(|region| &region.schema.groups)
                .flat_map(|group| group.fields.iter().map(move |field| (group, field)))
            {
                assert!(group.max_age_ns == interval.as_ns());
                assert!(field.resolution_ns >= interval.as_ns(), "{}", field.name);
            }
        }
    }
}
