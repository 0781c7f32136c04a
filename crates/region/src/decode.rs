// SPDX-License-Identifier: Apache-2.0
//! From checked blocks to values.
//!
//! [`Checked::decode`] walks the schema and calls back once per value of the accepted blocks. It checks nothing:
//! [`crate::checked`] has done that. Cost: a few ns per value; one allocation per group, and one for each text and
//! histogram.

use crate::block::{Block, Identity, guarded_place, plain_place};
use crate::checked::{Checked, CheckedGroup, Refused, ShortFrame, Verdicts};
use crate::columns::{Plan, RowRef, Sample, Value};
use crate::compiled::widened;
use crate::limits::BLOCK_BYTES;
use crate::schema::{Field, Kind, Type};
use crate::table::{self, text_of};

impl Plan {
    /// Checks the blocks of one region and decodes them, for callers that keep neither. Returns the blocks that were
    /// not accepted and are missed.
    ///
    /// # Errors
    /// [`ShortFrame`]; surplus blocks are ignored.
    pub fn decode<'a>(
        &'a self,
        first: Identity,
        blocks: &'a [Block],
        sink: impl FnMut(Sample<'a>),
    ) -> Result<Vec<Refused>, ShortFrame> {
        let verdicts = Verdicts::of(self, first, blocks)?;
        verdicts.on(self, blocks).decode(sink);
        Ok(verdicts.refused().to_vec())
    }
}

impl<'a> Checked<'a, '_> {
    /// Hands every value of the accepted blocks to `sink`. Of a computed group and its published twin only one is
    /// given: the computed one if all of it was accepted.
    pub fn decode(self, mut sink: impl FnMut(Sample<'a>)) {
        for checked in self.groups() {
            match checked.group.kind {
                Kind::Table => table_rows(checked, &mut sink),
                Kind::Foreign => foreign(checked, &mut sink),
                Kind::Plain => slots(checked, plain_place, &mut sink),
                Kind::Guarded | Kind::Computed => slots(checked, guarded_place, &mut sink),
            }
        }
    }
}

fn elements(field: &Field) -> impl Iterator<Item = (u32, usize)> + '_ {
    let stride = field.array.as_ref().map_or(0, |a| a.stride as usize);
    (0..field.elements()).map(move |element| (element, field.slot as usize + element as usize * stride))
}

/// A value from its words (as many as the field has slots).
fn value(field: &Field, words: &[u64]) -> Value {
    match (field.histogram, field.kind) {
        (Some(shape), _) => {
            let (buckets, sum) = words.split_at(shape.buckets());
            Value::Histogram { buckets: buckets.to_vec(), shape, sum: sum[0] }
        }
        (None, Type::Text) => Value::Text(text_of(words)),
        (None, kind) => number(kind, words[0]),
    }
}

/// A number from its word.
fn number(kind: Type, word: u64) -> Value {
    match kind {
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => Value::I64(word.cast_signed()),
        Type::F32 | Type::F64 => Value::F64(f64::from_bits(word)),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 | Type::Text => Value::U64(word),
    }
}

fn slots<'a>(checked: CheckedGroup<'a, '_>, place: fn(usize) -> (usize, usize), sink: &mut impl FnMut(Sample<'a>)) {
    let group = checked.group;
    let mut words = Vec::new();
    for field in &group.fields {
        for (element, start) in elements(field) {
            words.clear();
            let mut time = None;
            for slot in start..start + field.slots() {
                let (number, word) = place(slot);
                let Some((block, time_ns)) = checked.accepted(number) else { break };
                words.push(block.0[word]);
                // That of the last block.
                time = time_ns;
            }
            if words.len() == field.slots() {
                sink(Sample { field, group, element, row: None, time_ns: time, value: value(field, &words) });
            }
        }
    }
}

fn table_rows<'a>(checked: CheckedGroup<'a, '_>, sink: &mut impl FnMut(Sample<'a>)) {
    let group = checked.group;
    let Some(layout) = group.layout() else { return };
    for number in 0..checked.blocks().len() {
        let Some((block, time_ns)) = checked.accepted(number) else { continue };
        for row in table::rows(layout, block.payload()) {
            let row_ref = RowRef::new(group, number * layout.rows_per_block(), &row);
            for field in &group.fields {
                for (element, start) in elements(field) {
                    let value = value(field, &row.values[start..start + field.slots()]);
                    sink(Sample { field, group, element, row: Some(row_ref), time_ns, value });
                }
            }
        }
    }
}

fn foreign<'a>(checked: CheckedGroup<'a, '_>, sink: &mut impl FnMut(Sample<'a>)) {
    let (group, blocks) = (checked.group, checked.blocks());
    let byte = |at: usize| blocks[at / BLOCK_BYTES].bytes()[at % BLOCK_BYTES];
    let word = |at: usize| blocks[at / BLOCK_BYTES].0[at % BLOCK_BYTES / 8];
    for field in &group.fields {
        for (element, start) in elements(field) {
            let value = match (field.kind, field.histogram) {
                (Type::Text, _) => {
                    let bytes: Vec<u8> =
                        (start..start + field.bytes as usize).map(byte).take_while(|b| *b != 0).collect();
                    Value::Text(String::from_utf8_lossy(&bytes).into_owned())
                }
                (_, Some(shape)) => {
                    let words: Vec<u64> = (0..shape.slots()).map(|i| word(start + i * 8)).collect();
                    value(field, &words)
                }
                // It is aligned to its width, so it stands in one word.
                (kind, None) => number(kind, widened(kind, word(start) >> (start % 8 * 8))),
            };
            sink(Sample { field, group, element, row: None, time_ns: None, value });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::block::PLAIN_IDENTITY;
    use crate::guard::{self, Reject};
    use crate::histogram::Shape;
    use crate::limits::BLOCK_WORDS;
    use crate::schema::Schema;
    use crate::sync::AtomicU64;
    use crate::table::{KeyValue, Table, pack_key};

    const ME: Identity = Identity { region: 3, generation: 4, index: 0 };

    fn shared(blocks: usize) -> Vec<AtomicU64> {
        (0..blocks * BLOCK_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn copied(words: &[AtomicU64]) -> Vec<Block> {
        let mut blocks = vec![Block::default(); words.len() / BLOCK_WORDS];
        blocks.iter_mut().zip(words.chunks_exact(BLOCK_WORDS)).for_each(|(block, words)| block.copy_from(words));
        blocks
    }

    /// "name{labels} value" of every sample.
    fn lines(plan: &Plan, blocks: &[Block]) -> (Vec<String>, Vec<Refused>) {
        let mut lines = Vec::new();
        let refused = plan
            .decode(ME, blocks, |s| {
                let labels: Vec<_> = s.labels().iter().map(|(k, v)| format!("{k}={v}")).collect();
                lines.push(format!("{}{{{}}} {}", s.field.name, labels.join(","), s.scaled()));
            })
            .unwrap();
        (lines, refused)
    }

    #[test]
    fn every_kind_of_group_decodes() {
        let json = r#"{"name":"t","groups":[
            {"kind":"plain","blocks":2,"fields":[
                {"name":"a_seconds_total","metric":"counter","type":"u64","slot":1,"scale":1e-9},
                {"name":"b","metric":"gauge","type":"i64","slot":126,"array":{"label":"cpu","count":2,"stride":1}}]},
            {"kind":"guarded","blocks":1,"fields":[
                {"name":"c","metric":"gauge","type":"f64"},
                {"name":"d_info","metric":"info","type":"text","bytes":16,"slot":2}]},
            {"kind":"foreign","blocks":1,"fields":[
                {"name":"e","metric":"gauge","type":"i16","slot":6,"labels":{"x":"y"}},
                {"name":"f","metric":"gauge","type":"f32","slot":1020}]},
            {"kind":"table","blocks":1,"key":[{"name":"device","type":"text","bytes":8}],"fields":[
                {"name":"g_total","metric":"counter","type":"u64"}]}]}"#;
        let plan = Plan::new(Schema::parse(json).unwrap());
        let words = shared(5);
        let part = |block: usize| &words[block * BLOCK_WORDS..][..BLOCK_WORDS];
        let put =
            |block: usize, word: usize, value: u64| part(block)[word].store(value, crate::sync::Ordering::Relaxed);
        put(0, PLAIN_IDENTITY, ME.word());
        put(1, PLAIN_IDENTITY, ME.at(1).word());
        put(0, 2, 3_000_000_000);
        put(0, 127, 5u64.wrapping_neg());
        put(1, 1, 6);
        guard::commit(part(2), ME.at(2), 77, |p| {
            p.set(0, 2.5f64.to_bits());
            p.set(2, u64::from_le_bytes(*b"v1.2\0\0\0\0"));
        });
        put(3, 0, 0xfffe << 48);
        put(3, 127, u64::from(1.5f32.to_bits()) << 32);
        let mut table = Table::new(plan.schema().groups[3].layout().unwrap(), part(4), ME.at(4), 88);
        let key = pack_key(&plan.schema().groups[3].key, &[KeyValue::Text("eth0")]).unwrap();
        table.upsert(&key, 99, |values| values.set(0, 9)).unwrap();

        let (got, refused) = lines(&plan, &copied(&words));
        let expected = [
            "a_seconds_total{} 3",
            "b{cpu=0} -5",
            "b{cpu=1} 6",
            "c{} 2.5",
            "d_info{} 1",
            "e{x=y} -2",
            "f{} 1.5",
            "g_total{device=eth0} 9",
        ];
        assert_eq!((got.as_slice(), refused.as_slice()), (expected.map(String::from).as_slice(), [].as_slice()));

        put(1, PLAIN_IDENTITY, 0);
        put(2, 0, 3);
        let (got, refused) = lines(&plan, &copied(&words));
        assert_eq!(got.len(), 5, "what stands in refused blocks is left out, the rest is there: {got:?}");
        let reasons = [Refused { block: 1, reject: Reject::Identity }, Refused { block: 2, reject: Reject::Busy }];
        assert_eq!(refused, reasons);
        assert_eq!(plan.decode(ME, &copied(&words)[..4], |_| ()), Err(ShortFrame { needed: 5, got: 4 }));
    }

    #[test]
    fn a_histogram_may_span_plain_blocks() {
        let json = r#"{"name":"t","groups":[{"kind":"plain","blocks":3,"fields":[
            {"name":"h","metric":"histogram","type":"u64","slot":3,"histogram":{"grouping_power":3,"max_power":40}}]}]}"#;
        let plan = Plan::new(Schema::parse(json).unwrap());
        let words = shared(3);
        let shape = Shape { grouping_power: 3, max_power: 40 };
        for block in 0u16..3 {
            words[usize::from(block) * BLOCK_WORDS].store(ME.at(block).word(), crate::sync::Ordering::Relaxed);
        }
        let mut sum = 0;
        for value in [0, 5, 100, 1_000_000, 1_000_000_000_000] {
            let (block, word) = plain_place(3 + shape.index(value));
            words[block * BLOCK_WORDS + word].fetch_add(1, crate::sync::Ordering::Relaxed);
            sum += value;
        }
        let (block, word) = plain_place(3 + shape.buckets());
        words[block * BLOCK_WORDS + word].store(sum, crate::sync::Ordering::Relaxed);
        let mut seen = 0;
        plan.decode(ME, &copied(&words), |s| {
            seen += 1;
            let Value::Histogram { buckets, sum: got, .. } = &s.value else { panic!("{s:?}") };
            assert_eq!((*got, s.scaled()), (sum, 5.0));
            assert_eq!(shape.cumulative(buckets, 1e-9).last().unwrap().count, 4);
        })
        .unwrap();
        assert_eq!(seen, 1);
    }

    #[test]
    fn any_checked_schema_decodes_any_blocks_without_panic() {
        bolero::check!().with_type::<(u8, u16, u16, u16, u8, bool, [u64; 16])>().for_each(|(kind, slot, count, stride, fill, text, noise)| {
            let kind = ["plain", "guarded", "foreign", "table"][usize::from(*kind % 4)];
            let key = if kind == "table" { r#""key":[{"name":"k","type":"text","bytes":16}],"# } else { "" };
            let what = if *text { r#""metric":"info","type":"text","bytes":24"# } else { r#""metric":"gauge","type":"f64""# };
            let array = format!(r#""array":{{"label":"i","count":{count},"stride":{stride}}}"#);
            let json = format!(r#"{{"name":"t","groups":[{{"kind":"{kind}","blocks":2,{key}"fields":[{{"name":"a",{what},"slot":{slot},{array}}}]}}]}}"#);
            let Ok(schema) = Schema::parse(&json) else { return };
            let words = shared(2);
            for (i, word) in words.iter().enumerate() {
                word.store(noise[i % 16].wrapping_mul(u64::from(*fill)), crate::sync::Ordering::Relaxed);
            }
            for block in 0u16..2 {
                let part = &words[usize::from(block) * BLOCK_WORDS..][..BLOCK_WORDS];
                if kind == "plain" { part[0].store(ME.at(block).word(), crate::sync::Ordering::Relaxed) } else { guard::commit(part, ME.at(block), 1, |_| ()) }
            }
            let mut samples = 0;
            let refused = Plan::new(schema).decode(ME, &copied(&words), |s| samples += s.labels().len()).unwrap();
            assert!(refused.is_empty());
        });
    }
}
