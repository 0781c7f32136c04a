// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn spans_leave_identities_out() {
    let mut field = Field::new("h", schema::Metric::Histogram, Type::U64, 126);
    field.histogram = Some(Shape { grouping_power: 0, max_power: 2 });
    assert_eq!(spans(&field).collect::<Vec<_>>(), [127..128, 129..132]);
    let mut field = Field::new("c", schema::Metric::Counter, Type::U64, 120);
    field.array = Some(schema::Array { label: "i".into(), count: 2, stride: 8, values: None });
    assert_eq!(spans(&field).collect::<Vec<_>>(), [121..122, 130..131]);
}

#[test]
fn every_word_of_a_field_moves_once_and_no_identity_does() {
    bolero::check!().with_type::<Vec<(u8, u8, u8, bool)>>().for_each(|fields| {
        let mut builder = Builder::new("property");
        let mut slots = 0;
        for (number, (kind, a, b, spread)) in fields.iter().enumerate() {
            let metric = Metric::new(&format!("m{number}"));
            let elements = Elements::new("i", u32::from(*a) + 1);
            let elements = if *spread { elements.spread() } else { elements };
            slots += match kind % 3 {
                0 => {
                    builder.counter(metric);
                    1
                }
                1 => {
                    builder.gauges::<f64>(metric, elements);
                    usize::from(*a) + 1
                }
                _ => {
                    let (g, n) = (a % 5, a % 5 + 1 + b % 60);
                    builder.histogram(metric, g, n);
                    Shape { grouping_power: g, max_power: n }.slots()
                }
            };
        }
        builder.guarded(|g| g.counter::<u64>("g"));
        builder.table::<(u64,), _>(["n"], 3, |t| t.counter::<u64>("t"));
        let plain_words = builder.slots.div_ceil(PLAIN_SLOTS) * 128;
        let description = builder.describe().unwrap();
        let words: Vec<usize> = description.plan.spans.iter().flat_map(|(span, _)| span.clone()).collect();
        let distinct: std::collections::HashSet<_> = words.iter().collect();
        assert_eq!((words.len(), distinct.len()), (slots, slots));
        assert!(words.iter().all(|word| word % 128 != 0 && *word < plain_words));
        assert_eq!(description.plan.guarded, plain_words / 128..plain_words / 128 + 1);
        assert_eq!(description.tables[0].blocks, plain_words / 128 + 1..plain_words / 128 + 2);
    });
}

#[test]
fn mistakes_are_named() {
    fn open<R>(build: impl FnOnce(&mut Builder) -> R) -> OpenError {
        let mut builder = Region::builder("builder_test");
        build(&mut builder);
        builder.open().unwrap_err()
    }
    assert!(matches!(open(|_| ()), OpenError::Schema { .. }), "no fields");
    assert!(matches!(open(|b| b.counter("no good")), OpenError::Schema { .. }));
    let twice = open(|b| [b.counter("same"), b.counter("same")]);
    assert!(twice.to_string().contains("group 0, field `same`"), "{twice}");
    for (g, n) in [(40, 3), (0, 65), (200, 255), (20, 40)] {
        assert!(matches!(open(|b| b.histogram("h", g, n)), OpenError::Schema { .. }), "{g} {n}");
    }
    assert!(matches!(open(|b| b.label("__x", "1").counter("c")), OpenError::Region { .. }));
    assert!(matches!(open(|b| b.label("x", "").counter("c")), OpenError::Region { .. }));
    let wide = Elements::new("i", 9_000_000);
    assert!(matches!(open(|b| b.counters("c", wide)), OpenError::TooLarge { .. }));
    assert!(matches!(Region::builder("a-b").open().unwrap_err(), OpenError::Region { .. }));
}

#[test]
fn a_name_is_taken_once() {
    let open = || {
        let mut builder = Region::builder("builder_twice");
        builder.counter("c");
        builder.open()
    };
    let first = open().unwrap();
    assert!(matches!(open().unwrap_err(), OpenError::Duplicate { .. }));
    drop(first);
    assert!(open().is_ok(), "the name is free once the region is gone");
}
