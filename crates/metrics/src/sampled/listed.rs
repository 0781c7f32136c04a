// SPDX-License-Identifier: Apache-2.0
//! Groups whose series are known when their region is made: each has a place in guarded blocks.
//!
//! One function of the group's file gives all values in an order that rarely changes ([`Read`]). Run once, it tells what there is, which makes the schema; run at each
//! sample, it fills the places. So a look at the next place is enough to find a value's, and nothing is allocated. What has come or gone since (a file system, an interrupt)
//! is told ([`Loss::changed`](super::Loss)): the region is then made anew with another schema. Cost: 10-20 ns a value beside what the kernel takes for its text.

use std::io;

use onlooker_region::Schema;
use onlooker_region::limits::{GUARDED_SLOTS, MAX_LABEL_VALUE_BYTES};
use onlooker_region::schema::{Array, Field, Group, Kind};

use super::metric::Definition;
use super::{Ask, Context, Made, Place, Sampler};

/// Gives all values of a group.
pub(crate) trait Read: Send {
    /// Reads, and puts every value. An error leaves blocks as they were.
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()>;
}

/// A series, and where its value is kept.
struct Known {
    definition: &'static Definition,
    labels: Box<[Box<str>]>,
    element: Option<u64>,
    /// `None`: computed elsewhere, or no room.
    slot: Option<usize>,
    /// Number of the sample that had it last.
    sample: u64,
}

/// Where values go.
#[derive(Default)]
pub(crate) struct Values {
    known: Vec<Known>,
    slots: Vec<u64>,
    next: usize,
    seen: usize,
    sample: u64,
    is_collecting: bool,
    changed: bool,
}

impl Values {
    /// A whole number.
    pub(crate) fn put(&mut self, definition: &'static Definition, labels: &[&str], value: u64) {
        self.place(definition, labels, None, value);
    }

    /// A number that is not whole.
    pub(crate) fn put_float(&mut self, definition: &'static Definition, labels: &[&str], value: f64) {
        self.place(definition, labels, None, value.to_bits());
    }

    /// A whole number that may be negative.
    pub(crate) fn put_signed(&mut self, definition: &'static Definition, labels: &[&str], value: i64) {
        self.place(definition, labels, None, value.cast_unsigned());
    }

    /// A whole number of an element of its array.
    pub(crate) fn put_at(&mut self, definition: &'static Definition, labels: &[&str], element: u64, value: u64) {
        self.place(definition, labels, Some(element), value);
    }

    fn place(&mut self, definition: &'static Definition, labels: &[&str], element: Option<u64>, bits: u64) {
        let is_it = |known: &Known| {
            std::ptr::eq(known.definition, definition)
                && known.element == element
                && known.labels.iter().map(|label| &**label).eq(labels.iter().map(|label| cut(label)))
        };
        let found = match self.known.get(self.next) {
            Some(known) if is_it(known) => Some(self.next),
            _ => self.known.iter().position(is_it),
        };
        let Some(at) = found else {
            if self.is_collecting {
                let labels = labels.iter().map(|label| cut(label).into()).collect();
                self.known.push(Known { definition, labels, element, slot: None, sample: 0 });
            }
            self.changed = true;
            return;
        };
        let known = &mut self.known[at];
        if known.sample != self.sample {
            (known.sample, self.seen) = (self.sample, self.seen + 1);
        }
        if let Some(slot) = known.slot {
            self.slots[slot] = bits;
        }
        self.next = at + 1;
    }

    fn begin(&mut self) {
        (self.next, self.seen, self.changed) = (0, 0, false);
        self.sample += 1;
    }

    fn has_changed(&self) -> bool {
        self.changed || self.seen != self.known.len()
    }
}

/// The most of a text that fits a label's value, which must not be empty (schema.md).
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(MAX_LABEL_VALUE_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

/// A group by its `read`.
///
/// # Errors
/// As `read` has it.
pub(crate) fn listed(read: impl Read + 'static, ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut read = Box::new(read);
    let mut values = Values { is_collecting: true, ..Values::default() };
    read.read(&mut values, context)?;
    values.is_collecting = false;
    let mut fields: Vec<Member> = Vec::new();
    for (number, known) in values.known.iter().enumerate() {
        let is_mate = |member: &&mut Member| {
            let other = &values.known[member.series[0]];
            known.element.is_some() && std::ptr::eq(other.definition, known.definition) && other.labels == known.labels
        };
        match fields.iter_mut().rev().find(is_mate) {
            Some(mate) => mate.series.push(number),
            None => fields.push(Member { field: field_of(known), series: vec![number] }),
        }
    }
    fields.retain(|member| ask.is_left(&member.field));
    place(&mut fields, &values.known);
    let mut keep = fields.len();
    let group = |keep: usize| {
        let slots: usize = fields[..keep].iter().map(|member| member.series.len()).sum();
        let blocks = u32::try_from(slots.div_ceil(GUARDED_SLOTS).max(1)).unwrap_or(u32::MAX);
        Group::new(Kind::Guarded, blocks, fields[..keep].iter().map(|member| member.field.clone()).collect())
    };
    // What a schema has no room for is left out, and counted as rows without a place are.
    while keep > 0 && !fits(group(keep)) {
        keep -= keep.div_ceil(16);
    }
    let group = group(keep);
    for member in &fields[..keep] {
        for (slot, series) in (member.field.slot as usize..).zip(&member.series) {
            values.known[*series].slot = Some(slot);
        }
    }
    let dropped = fields[keep..].iter().map(|member| member.series.len() as u64).sum();
    values.slots = vec![0; group.blocks as usize * GUARDED_SLOTS];
    let groups = if keep == 0 { Vec::new() } else { vec![group] };
    Ok(Made { groups, sampler: Box::new(Listed { read, values, dropped }) })
}

/// Whether there is a schema of a group, also with what is yet to come into it.
fn fits(mut group: Group) -> bool {
    group.fields.iter_mut().for_each(|field| field.resolution_ns = u64::MAX);
    group.max_age_ns = u64::MAX;
    let schema = Schema { name: "node_as_long_a_name_as_there_is".into(), groups: vec![group] };
    schema.check().is_ok()
}

/// A field, and the series that are its elements.
struct Member {
    field: Field,
    series: Vec<usize>,
}

fn field_of(known: &Known) -> Field {
    let mut field = known.definition.field();
    // A label without a value is none (Prometheus), and the format has no empty ones.
    let labels = known.definition.labels.iter().zip(&known.labels).filter(|(_, value)| !value.is_empty());
    field.labels = labels.map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    field
}

/// Gives each field its slots, one behind the other.
fn place(fields: &mut [Member], known: &[Known]) {
    let mut slot = 0;
    for Member { field, series } in fields {
        field.slot = slot;
        let count = u32::try_from(series.len()).unwrap_or(u32::MAX);
        slot += count;
        let first = &known[series[0]];
        if let (Some(label), Some(_)) = (first.definition.array, first.element) {
            let values: Vec<u64> = series.iter().filter_map(|series| known[*series].element).collect();
            let is_plain = values.iter().copied().eq(0..values.len() as u64);
            let values = (!is_plain).then(|| values.iter().map(u64::to_string).collect());
            field.array = Some(Array { label: label.into(), count, stride: 1, values });
        }
    }
}

struct Listed<R> {
    read: Box<R>,
    values: Values,
    /// Series without a place.
    dropped: u64,
}

impl<R: Read> Sampler for Listed<R> {
    fn sample(&mut self, place: &Place, context: &mut Context) -> io::Result<()> {
        self.values.begin();
        self.read.read(&mut self.values, context)?;
        context.loss.changed |= self.values.has_changed();
        context.loss.rows_dropped += self.dropped;
        for (block, values) in self.values.slots.chunks_exact(GUARDED_SLOTS).enumerate() {
            place.put(block, context.now_ns, values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::tests::{values_of, with_context};
    use super::*;

    static PLAIN: Definition = Definition::counter("plain_total", "help").unit("seconds", 1e-3);
    static LABELLED: Definition = Definition::gauge("labelled", "help").labels(&["a", "b"]).float();
    static ARRAY: Definition = Definition::counter("array_total", "help").labels(&["a"]).by("cpu");

    type Rows = Vec<(&'static Definition, Vec<&'static str>, Option<u64>, u64)>;

    /// Gives what it is told to give.
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Rows>>);

    impl Read for Told {
        fn read(&mut self, values: &mut Values, _: &mut Context) -> io::Result<()> {
            for (definition, labels, element, value) in self.0.lock().unwrap().iter() {
                match element {
                    Some(element) => values.put_at(definition, labels, *element, *value),
                    None => values.place(definition, labels, None, *value),
                }
            }
            Ok(())
        }
    }

    fn rows() -> Rows {
        vec![
            (&ARRAY, vec!["x"], Some(0), 1),
            (&ARRAY, vec!["y"], Some(0), 2),
            (&PLAIN, vec![], None, 3),
            (&ARRAY, vec!["x"], Some(5), 4),
            (&LABELLED, vec!["", "q"], None, 1.5f64.to_bits()),
            (&ARRAY, vec!["y"], Some(5), 6),
        ]
    }

    #[test]
    fn values_find_their_places_in_any_order() {
        let told = Told::default();
        *told.0.lock().unwrap() = rows();
        let made = with_context(|ask, context| listed(told.clone(), ask, context)).unwrap();
        assert_eq!(made.groups[0].fields.len(), 4, "one for an array");
        told.0.lock().unwrap().reverse();
        let seen = values_of(made);
        let seen: Vec<(&str, f64)> = seen.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            seen,
            [
                ("array_total{a=x,cpu=0}", 1.0),
                ("array_total{a=x,cpu=5}", 4.0),
                ("array_total{a=y,cpu=0}", 2.0),
                ("array_total{a=y,cpu=5}", 6.0),
                ("labelled{b=q}", 1.5),
                ("plain_total{}", 0.003)
            ]
        );
    }

    #[test]
    fn what_comes_and_goes_is_told() {
        let change = |change: &dyn Fn(&mut Rows)| {
            let mut values = Values { is_collecting: true, ..Values::default() };
            let mut told = Told::default();
            *told.0.lock().unwrap() = rows();
            with_context(|_, context| told.read(&mut values, context)).unwrap();
            values.is_collecting = false;
            change(&mut told.0.lock().unwrap());
            values.begin();
            with_context(|_, context| told.read(&mut values, context)).unwrap();
            values.has_changed()
        };
        assert!(!change(&|_| ()) && !change(&|rows| rows.swap(0, 3)));
        // The same again is nothing new.
        assert!(!change(&|rows| rows.push(rows[0].clone())));
        assert!(change(&|rows| drop(rows.pop())));
        assert!(change(&|rows| rows.push((&ARRAY, vec!["x"], Some(6), 0))));
        assert!(change(&|rows| rows[2].1 = vec!["z"]));
    }

    #[test]
    fn more_than_a_schema_holds_is_left_out_and_counted() {
        let told = Told::default();
        let long: &'static str = Box::leak("v".repeat(300).into_boxed_str());
        let names = (0..400).map(|n: u32| &*Box::leak(n.to_string().into_boxed_str()));
        *told.0.lock().unwrap() = names.map(|name| (&LABELLED, vec![name, long], None, 0)).collect();
        let mut made = with_context(|ask, context| listed(told.clone(), ask, context)).unwrap();
        let kept = made.groups[0].fields.len();
        assert!((100..400).contains(&kept), "{kept}");
        let schema = Schema { name: "group".into(), groups: made.groups };
        let bytes = u64::from(schema.blocks()) * 1024;
        let memory = onlooker_region::map::sealed_memfd("test", bytes).unwrap();
        let memory = onlooker_region::map::Map::of(memory, 0, bytes, true).unwrap();
        let identity = onlooker_region::block::Identity { region: 2, generation: 9, index: 0 };
        let place = Place::new(memory, identity, &schema);
        with_context(|_, context| {
            made.sampler.sample(&place, context).unwrap();
            assert_eq!((context.loss.rows_dropped, context.loss.changed), (400 - kept as u64, false));
        });
    }
}
