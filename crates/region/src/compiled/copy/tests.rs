// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::block::{Block, Identity, check_plain};
use crate::checked::Verdicts;
use crate::columns::{Plan, Value};
use crate::compiled::{CompiledGroup, widened};
use crate::guard;
use crate::histogram::Shape;
use crate::limits::BLOCK_WORDS;
use crate::schema::{Array, Field, Group, Kind, Metric, Schema, Type};
use crate::sync::{AtomicU64, Ordering};
use crate::table::{KeyPart, KeyType, LIVE, Layout};

const ME: Identity = Identity { region: 3, generation: 4, index: 0 };

/// Of one element: slots, or bytes of a foreign group.
fn size(kind: Kind, field: &Field) -> u32 {
    match (kind, field.kind) {
        (Kind::Foreign, Type::Text) => field.bytes,
        (Kind::Foreign, _) if field.histogram.is_none() => field.kind.width(),
        (Kind::Foreign, _) => u32::try_from(field.slots()).unwrap() * 8,
        _ => u32::try_from(field.slots()).unwrap(),
    }
}

/// What a test case is made of: the bytes, and noise that follows from them.
struct Dice<'b> {
    bytes: std::slice::Iter<'b, u8>,
    state: u64,
}

impl Dice<'_> {
    /// splitmix64, stirred by the bytes as long as there are any.
    fn word(&mut self) -> u64 {
        let byte = u64::from(self.bytes.next().copied().unwrap_or(0));
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ byte << 23;
        let mut word = self.state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, most: u32) -> u32 {
        u32::try_from(self.word() % u64::from(most)).unwrap()
    }

    fn field(&mut self, kind: Kind, name: &str, free: &mut u32) -> Field {
        const FOREIGN: [Type; 10] = [
            Type::U8,
            Type::U16,
            Type::U32,
            Type::U64,
            Type::I8,
            Type::I16,
            Type::I32,
            Type::I64,
            Type::F32,
            Type::F64,
        ];
        let mut field = match self.below(8) {
            0 => Field { bytes: 8 * (1 + self.below(32)), ..Field::new(name, Metric::Info, Type::Text, 0) },
            1 => {
                let shape = Shape { grouping_power: 1, max_power: 2 + u8::try_from(self.below(30)).unwrap() };
                Field { histogram: Some(shape), ..Field::new(name, Metric::Histogram, Type::U64, 0) }
            }
            _ if kind == Kind::Foreign => Field::new(name, Metric::Gauge, FOREIGN[self.below(10) as usize], 0),
            _ => Field::new(name, Metric::Gauge, [Type::U64, Type::I64, Type::F64][self.below(3) as usize], 0),
        };
        let size = size(kind, &field);
        // Text may stand at any byte, all else is aligned.
        let width = if kind == Kind::Foreign { field.kind.width().max(1) } else { 1 };
        field.slot = (*free + [0, 0, 1, 5, 70][self.below(5) as usize] * width).next_multiple_of(width);
        let mut last = field.slot;
        if self.below(2) == 0 {
            let (count, gap) = (1 + self.below(20), [0, 0, 1, 3, 130][self.below(5) as usize]);
            let stride = size + gap * width;
            field.array = Some(Array { label: "element".into(), count, stride, values: None });
            last += (count - 1) * stride;
        }
        // Some arrays interleave: the next field begins in the first gap.
        *free = if self.below(3) == 0 { field.slot + size } else { last + size };
        field
    }

    /// An array that interleaves with the one before, as those of CPUs do; or almost.
    fn beside(&mut self, kind: Kind, name: &str, last: &Field) -> Field {
        let mut field = Field { name: name.into(), slot: last.slot + size(kind, last), ..last.clone() };
        if self.below(3) == 0 {
            let number = Field::new(name, Metric::Gauge, Type::U64, field.slot);
            field = Field { array: field.array, ..number };
        }
        if let Some(array) = field.array.as_mut().filter(|_| self.below(4) == 0) {
            (array.count, array.stride) = (array.count + self.below(2), array.stride + self.below(2) * 8);
        }
        field
    }

    /// A schema that passes its check.
    fn schema(&mut self) -> Schema {
        let mut schema = Schema { name: "t".into(), groups: Vec::new() };
        for number in 0..=self.below(4) {
            let kind = [Kind::Plain, Kind::Guarded, Kind::Computed, Kind::Foreign, Kind::Table][self.below(5) as usize];
            let mut group = Group::new(kind, 1 + self.below(4), Vec::new());
            if kind == Kind::Table {
                group.key = vec![KeyPart { name: "k".into(), kind: KeyType::Text, bytes: 8 * (1 + self.below(3)) }];
            }
            schema.groups.push(group);
            let mut free = 0;
            for place in 0..self.below(7) {
                let name = format!("g{number}_{place}");
                let field = match schema.groups.last().unwrap().fields.last() {
                    Some(last) if last.array.is_some() && self.below(4) != 0 => self.beside(kind, &name, last),
                    _ => self.field(kind, &name, &mut free),
                };
                schema.groups.last_mut().unwrap().fields.push(field);
                if schema.check().is_err() {
                    schema.groups.last_mut().unwrap().fields.pop();
                }
            }
            let fields = &mut schema.groups.last_mut().unwrap().fields;
            if fields.len() > 1 && self.below(2) == 0 {
                // Slots need not be in the order of the fields.
                let most = u32::try_from(fields.len()).unwrap();
                fields.swap(self.below(most) as usize, self.below(most) as usize);
            }
            if kind == Kind::Computed && self.below(2) == 0 {
                let of = u32::try_from(schema.groups.len() - 1).unwrap();
                let computed = schema.groups[of as usize].clone();
                schema.groups.push(Group { kind: Kind::Guarded, twin_of: Some(of), ..computed });
            }
        }
        schema.check().unwrap();
        schema
    }

    /// Blocks of the schema, of which some may be damaged.
    fn blocks(&mut self, schema: &Schema) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (begin, group) in schema.placed_groups() {
            for index in begin..begin + group.blocks {
                let me = ME.at(u16::try_from(index).unwrap());
                let words: [AtomicU64; BLOCK_WORDS] = std::array::from_fn(|_| AtomicU64::new(self.word()));
                match group.kind {
                    Kind::Plain => words[0].store(me.word(), Ordering::Relaxed),
                    Kind::Foreign => {}
                    Kind::Guarded | Kind::Computed | Kind::Table => {
                        let (row_words, time_ns) = (group.layout().map(Layout::row_words), self.word() % 1_000);
                        let is_live: [bool; GUARDED_SLOTS] = std::array::from_fn(|_| self.below(2) == 0);
                        guard::commit(&words, me, time_ns, |payload| {
                            for at in row_words.into_iter().flat_map(|words| (0..GUARDED_SLOTS).step_by(words)) {
                                let generation = payload.get(at) >> 40;
                                payload.set(at, if is_live[at] { LIVE | generation } else { generation });
                            }
                        });
                    }
                }
                let mut block = Block::default();
                block.copy_from(&words);
                if self.below(16) == 15 {
                    block.0[usize::from(group.kind != Kind::Plain) * 50] ^= 1;
                }
                blocks.push(block);
            }
        }
        blocks
    }
}

/// Numbers of texts; the same for equal ones.
#[derive(Default)]
struct Texts(Vec<String>);

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        let at = self.0.iter().position(|known| known == text).unwrap_or_else(|| {
            self.0.push(text.to_owned());
            self.0.len() - 1
        });
        at as u64 + 1_000_000
    }

    fn words(&mut self, value: &Value) -> Vec<u64> {
        match value {
            Value::U64(n) => vec![*n],
            Value::I64(n) => vec![n.cast_unsigned()],
            Value::F64(n) => vec![n.to_bits()],
            Value::Text(text) => vec![self.number(text)],
            Value::Histogram { buckets, sum, .. } => buckets.iter().chain([sum]).copied().collect(),
        }
    }
}

/// Row (number, generation, key), where there is one, and group, field, element.
type At = (Option<(usize, u32, Vec<u64>)>, usize, usize, u32);

/// (where, time, words) of all values: of groups whose blocks were all accepted, and of tables.
fn decoded(plan: &Plan, verdicts: &Verdicts, blocks: &[Block], texts: &mut Texts) -> Vec<(At, Option<u64>, Vec<u64>)> {
    let (mut values, groups) = (Vec::new(), &plan.schema().groups);
    verdicts.on(plan, blocks).decode(|sample| {
        let group = groups.iter().position(|group| std::ptr::eq(group, sample.group)).unwrap();
        let field = groups[group].fields.iter().position(|field| std::ptr::eq(field, sample.field)).unwrap();
        let row = sample.row.map(|row| (row.number, row.generation, row.key().to_vec()));
        values.push(((row, group, field, sample.element), sample.time_ns, texts.words(&sample.value)));
    });
    values.retain(|((row, group, ..), ..)| row.is_some() || is_whole(plan, *group, blocks));
    values
}

/// By the blocks themselves, whatever the verdicts are.
fn is_whole(plan: &Plan, group: usize, blocks: &[Block]) -> bool {
    let group = &plan.compiled().groups()[group];
    group.blocks().all(|index| {
        let me = ME.at(u16::try_from(index).unwrap());
        match group.kind() {
            Kind::Plain => check_plain(&blocks[index], me).is_ok(),
            Kind::Foreign => true,
            Kind::Guarded | Kind::Computed | Kind::Table => guard::check(&blocks[index], me).is_ok(),
        }
    })
}

/// The values in the columns of a row.
fn named(plan: &Plan, group: usize, row: &[u64]) -> Vec<(usize, u32, Vec<u64>)> {
    let (compiled, fields) = (&plan.compiled().groups()[group], &plan.schema().groups[group].fields);
    let of_field = |(number, field): (usize, &Field)| {
        let columns = &row[compiled.columns(number)];
        let each = columns.len() / field.elements() as usize;
        (0..).zip(columns.chunks(each)).map(move |(element, words)| (number, element, words.to_vec())).collect()
    };
    fields.iter().enumerate().flat_map::<Vec<_>, _>(of_field).collect()
}

#[test]
fn columns_are_what_decoding_gives_for_any_schema_and_blocks() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let mut dice = Dice { bytes: bytes.iter(), state: bytes.len() as u64 };
        let plan = Plan::new(dice.schema());
        let blocks = dice.blocks(plan.schema());
        let verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
        let (checked, mut texts) = (verdicts.on(&plan, &blocks), Texts::default());
        let expected = decoded(&plan, &verdicts, &blocks, &mut texts);
        let mut text = |bytes: &[u8]| texts.number(&String::from_utf8_lossy(bytes));
        let mut got: Vec<(At, Option<u64>, Vec<u64>)> = Vec::new();
        for (number, group) in plan.compiled().groups().iter().enumerate() {
            let mut row = vec![7; group.width() + 3];
            let acquired = checked.copy_group(number, &mut row, &mut text);
            assert_eq!(row[group.width()..], [7; 3], "what is behind the columns is somebody else's");
            let gives = match plan.schema().groups[number].twin_of {
                Some(computed) => !is_whole(&plan, computed as usize, &blocks),
                None => true,
            };
            let is_given = group.kind() != Kind::Table && gives && is_whole(&plan, number, &blocks);
            assert_eq!(acquired.is_some(), is_given);
            let (has_twin, has_time) = (group.has_twin, has_guard(group.kind()));
            for (block, index) in group.blocks().enumerate() {
                let is_good = has_time && guard::check(&blocks[index], ME.at(u16::try_from(index).unwrap())).is_ok();
                let is_told = is_good && gives && (!has_twin || is_whole(&plan, number, &blocks));
                let time_ns = checked.time_ns(number, block);
                assert_eq!(time_ns, is_told.then(|| blocks[index].0[GUARDED_TIME]));
            }
            let times_ns = blocks[group.blocks()].iter().map(|block| block.0[GUARDED_TIME]);
            match acquired {
                None => assert!(row.iter().all(|word| *word == 7)),
                Some(acquired) => {
                    let (oldest_ns, newest_ns) = (times_ns.clone().min().unwrap(), times_ns.max().unwrap());
                    let has_time = matches!(group.kind(), Kind::Guarded | Kind::Computed);
                    let at = Acquired::At { oldest_ns, newest_ns };
                    assert_eq!(acquired, if has_time { at } else { Acquired::WhenRead });
                    // Each sample has the time of its own block, a row those of all.
                    let of_group: Vec<_> = expected.iter().filter(|((_, of, ..), ..)| *of == number).collect();
                    let values = named(&plan, number, &row);
                    assert_eq!(values.len(), of_group.len());
                    for ((field, element, words), (_, time_ns, _)) in values.into_iter().zip(of_group) {
                        assert_eq!(time_ns.is_some(), has_time);
                        assert!(time_ns.is_none_or(|time_ns| (oldest_ns..=newest_ns).contains(&time_ns)));
                        got.push(((None, number, field, element), *time_ns, words));
                    }
                }
            }
            let mut is_visited = false;
            let is_all = checked.rows(number, &mut text, |row, columns, time_ns| {
                is_visited = true;
                let key = Some((row.number, row.generation, row.key().to_vec()));
                got.extend(
                    named(&plan, number, columns)
                        .into_iter()
                        .map(|(field, element, words)| ((key.clone(), number, field, element), Some(time_ns), words)),
                );
            });
            assert_eq!(is_all, group.kind() == Kind::Table && is_whole(&plan, number, &blocks));
            assert!(!is_visited || group.kind() == Kind::Table);
        }
        assert_eq!(got, expected);
    });
}

#[test]
fn fields_side_by_side_are_one_run_and_so_are_arrays_that_interleave() {
    let json = r#"{"name":"t","groups":[{"kind":"plain","blocks":2,"fields":[
        {"name":"a","metric":"gauge","type":"u64"},
        {"name":"b","metric":"gauge","type":"f64","slot":1,"array":{"label":"cpu","count":3,"stride":1}},
        {"name":"c","metric":"histogram","type":"u64","slot":4,"histogram":{"grouping_power":1,"max_power":9}},
        {"name":"d","metric":"gauge","type":"u64","slot":100,"array":{"label":"cpu","count":5,"stride":10}},
        {"name":"e","metric":"gauge","type":"u64","slot":101,"array":{"label":"cpu","count":5,"stride":10}}]}]}"#;
    let plan = Plan::new(Schema::parse(json).unwrap());
    let group = &plan.compiled().groups()[0];
    assert_eq!((group.runs.len(), group.width()), (2, 1 + 3 + 19 + 5 + 5));
    assert_eq!((group.columns(0), group.columns(2), group.columns(4)), (0..1, 4..23, 28..33));
    let mut blocks = [Block::default(); 2];
    for (index, block) in (0u16..).zip(&mut blocks) {
        block.0 = std::array::from_fn(|word| u64::from(index) * 1_000 + word as u64);
        block.0[0] = ME.at(index).word();
    }
    let verdicts = Verdicts::of(&plan, ME, &blocks).unwrap();
    let mut row = [0; 33];
    let acquired = verdicts.on(&plan, &blocks).copy_group(0, &mut row, |_| 0);
    assert_eq!(acquired, Some(Acquired::WhenRead));
    let front: Vec<u64> = (1..24).collect();
    assert_eq!(row[..23], front);
    assert_eq!(row[23..], [101, 111, 121, 1_004, 1_014, 102, 112, 122, 1_005, 1_015]);
}

#[test]
fn no_text_is_worth_more_memory_than_its_length() {
    // 65,536 elements, in no way side by side, of two fields; and as many fields as a text has room for.
    let array = r#""array":{"label":"i","count":32768,"stride":254}"#;
    let one = |kind: &str, blocks: u32, fields: &str| {
        format!(r#"{{"name":"t","groups":[{{"kind":"{kind}","blocks":{blocks},"fields":[{fields}]}}]}}"#)
    };
    let a = format!(r#"{{"name":"a","metric":"gauge","type":"u64",{array}}}"#);
    let b = format!(r#"{{"name":"b","metric":"gauge","type":"f64","slot":7,{array}}}"#);
    let wide = one("plain", 65_536, &format!("{a},{b}"));
    let fields: Vec<String> = (0..1_000)
        .map(|slot| format!(r#"{{"name":"f{slot}","metric":"gauge","type":"i8","slot":{}}}"#, slot * 2))
        .collect();
    let fields = fields.join(",");
    for json in [wide, one("foreign", 2, &fields), one("plain", 16, &fields.replace("i8", "u64"))] {
        let schema = Schema::parse(&json).unwrap();
        let (text_bytes, plan) = (schema.canonical().len(), Plan::new(schema));
        let group = &plan.compiled().groups()[0];
        let bytes = size_of::<CompiledGroup>()
            + size_of_val(&*group.firsts)
            + size_of_val(&*group.runs)
            + size_of_val(&*group.narrow);
        assert!(bytes <= text_bytes.max(300), "{bytes} bytes for {text_bytes}");
    }
}

#[test]
fn narrow_numbers_are_as_large_as_they_were() {
    let word = 0xf1f2_f3f4_8586_8788;
    for (kind, expected) in [
        (Type::U8, 0x88),
        (Type::U16, 0x8788),
        (Type::U32, 0x8586_8788),
        (Type::U64, word),
        (Type::I8, (-0x78_i64).cast_unsigned()),
        (Type::I16, (-0x7878_i64).cast_unsigned()),
        (Type::I32, (0x8586_8788_i64 - (1 << 32)).cast_unsigned()),
        (Type::I64, word),
        (Type::F64, word),
    ] {
        assert_eq!(widened(kind, word), expected, "{kind:?}");
    }
    let float = u64::from((-1.5f32).to_bits()) | 0xffff_ffff << 32;
    assert_eq!(f64::from_bits(widened(Type::F32, float)), -1.5);
}
