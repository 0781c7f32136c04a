// SPDX-License-Identifier: Apache-2.0
//! Tables of things that come and go by name: network devices, disks.

use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::map::Map;
use onlooker_region::schema::{Field, Group, Kind};
use onlooker_region::table::{KeyPart, KeyType, Table, TableError, put_text};

use super::{Loss, Place};

/// Longest key: DISK_NAME_LEN of the kernel's linux/blkdev.h; IFNAMSIZ is half of it.
const MOST_KEY_WORDS: usize = 4;

/// A table whose key is a name.
pub(crate) struct Rows {
    key_words: usize,
    table: Option<Table<Map>>,
    seen: Vec<[u64; MOST_KEY_WORDS]>,
}

/// Schema of a table of `fields` with room for so many rows.
pub(crate) fn group(key: &str, key_words: usize, fields: Vec<Field>, rows: usize) -> Group {
    let fields: Vec<Field> = (0..).zip(fields).map(|(slot, field)| Field { slot, ..field }).collect();
    let blocks = u32::try_from(rows.div_ceil(rows_per_block(key_words, fields.len()))).unwrap_or(1).max(1);
    let mut group = Group::new(Kind::Table, blocks, fields);
    let bytes = u32::try_from(key_words * 8).unwrap_or(u32::MAX);
    group.key = vec![KeyPart { name: key.into(), kind: KeyType::Text, bytes }];
    group
}

/// Rows of so many values that a block holds.
pub(crate) fn rows_per_block(key_words: usize, values: usize) -> usize {
    GUARDED_SLOTS / (1 + key_words + values)
}

impl Rows {
    pub(crate) fn new(key_words: usize) -> Self {
        Self { key_words, table: None, seen: Vec::new() }
    }

    /// Takes the memory of group `number` of its region.
    pub(crate) fn begin(&mut self, place: &Place, number: usize, group: &Group, now_ns: u64) {
        let (memory, identity) = place.group(number);
        self.table = group.layout().map(|layout| Table::new(layout, memory, identity, now_ns));
        self.seen.clear();
    }

    /// The row of `name`: `values` in the order of its fields.
    pub(crate) fn put(&mut self, name: &str, now_ns: u64, loss: &mut Loss, values: impl IntoIterator<Item = u64>) {
        let mut key = [0; MOST_KEY_WORDS];
        put_text(&mut key[..self.key_words], name);
        self.put_key(key, now_ns, loss, values);
    }

    /// The same, of a key that is not one name.
    pub(crate) fn put_key(
        &mut self,
        key: [u64; MOST_KEY_WORDS],
        now_ns: u64,
        loss: &mut Loss,
        values: impl IntoIterator<Item = u64>,
    ) {
        self.seen.push(key);
        let Some(table) = &mut self.table else { return };
        let upserted = table.upsert(&key[..self.key_words], now_ns, |row| {
            (0..).zip(values).for_each(|(slot, value)| row.set(slot, value));
        });
        if let Err(TableError::Full(_) | TableError::Key(_)) = upserted {
            loss.rows_dropped += 1;
        }
    }

    /// Ends a sample: rows that were not put go.
    pub(crate) fn end(&mut self, now_ns: u64) {
        let (seen, words) = (&self.seen, self.key_words);
        if let Some(table) = &mut self.table {
            table.retain(now_ns, |key| seen.iter().any(|other| other[..words] == *key));
        }
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use onlooker_region::Schema;
    use onlooker_region::block::Identity;
    use onlooker_region::map::sealed_memfd;
    use onlooker_region::schema::{Metric, Type};

    use super::*;

    #[test]
    fn rows_that_are_not_put_go_and_come_again_as_others() {
        let fields = vec![Field::new("a_total", Metric::Counter, Type::U64, 0)];
        let schema = Schema { name: "table".into(), groups: vec![group("device", 2, fields, 40)] };
        schema.check().unwrap();
        let bytes = u64::from(schema.blocks()) * 1024;
        let memory = Map::of(sealed_memfd("test", bytes).unwrap(), 0, bytes, true).unwrap();
        let place = Place::new(memory, Identity { region: 2, generation: 9, index: 0 }, &schema);
        let (mut rows, mut loss) = (Rows::new(2), Loss::default());
        rows.begin(&place, 0, &schema.groups[0], 1);
        let mut key = [0; 2];
        put_text(&mut key, "lo");
        let generation = |rows: &Rows| rows.table.as_ref().unwrap().generation(&key);
        rows.put("lo", 2, &mut loss, [1]);
        rows.put("eth0", 2, &mut loss, [1]);
        rows.end(2);
        assert_eq!(generation(&rows), Some(1));
        rows.put("eth0", 3, &mut loss, [2]);
        rows.end(3);
        assert_eq!(generation(&rows), None);
        rows.put("lo", 4, &mut loss, [3]);
        rows.end(4);
        assert_eq!((generation(&rows), loss), (Some(2), Loss::default()));
        (0..100).for_each(|number: u32| rows.put(&number.to_string(), 5, &mut loss, [0]));
        assert!(loss.rows_dropped > 30, "{loss:?}");
    }
}
