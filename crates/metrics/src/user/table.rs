// SPDX-License-Identifier: Apache-2.0
//! Descriptor tables: which numbers of the kernel's memory stand in which slots, as `descriptor.bpf.c` reads them, and the region's class.
//!
//! A value is a number, or an array of them; of a per-CPU variable it is one for each CPU. Its numbers stand one after the other, CPU by CPU, so that those that stand
//! together in the kernel are read at once (44 ns for a hundred of them, where reading each takes 589).

use std::collections::BTreeMap;

use onlooker_region::Schema;
use onlooker_region::schema::{Array, Field, Type};

use super::file::{self, CPU_LABEL, Definition, Kind, MAX_BLOCKS, SLOTS, Value};
use super::path::Path;
use super::resolve::{self, MAX_HOPS, Number, Way};
use crate::collect::intf::Space;
use crate::collect::object::{Content, Image};
use crate::discover::Discovery;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptor.bpf.o"));
/// USER_READ_BYTES.
const READ_BYTES: u64 = 4096;
/// CPUs of a variable that each CPU has.
const MAX_CPUS: u32 = 512;

/// `struct onlooker_user_read`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Read {
    base: u64,
    offsets: Vec<u64>,
    stride: u64,
    slot: u32,
    count: u32,
    number: Number,
}

impl Read {
    fn bytes(&self) -> u64 {
        u64::from(self.count - 1) * self.stride + u64::from(self.number.bytes)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut words = [0; MAX_HOPS + 1];
        words[0] = self.base;
        for (word, offset) in words[1..].iter_mut().zip(&self.offsets) {
            *word = *offset;
        }
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        let halves = [self.bytes(), self.stride].map(|half| u32::try_from(half).unwrap_or(u32::MAX));
        bytes.extend(halves.into_iter().flat_map(u32::to_le_bytes));
        let quarters = [self.slot % SLOTS, self.count].map(|quarter| u16::try_from(quarter).unwrap_or(u16::MAX));
        bytes.extend(quarters.into_iter().flat_map(u16::to_le_bytes));
        let hops = u8::try_from(self.offsets.len()).unwrap_or(u8::MAX);
        let shift = u8::try_from(64 - 8 * self.number.bytes).unwrap_or(0);
        bytes.extend([hops, shift, u8::from(self.number.is_signed), 0]);
        bytes
    }
}
const READ_ENTRY_BYTES: usize = 56;
const _: () = assert!(READ_ENTRY_BYTES == 8 * (MAX_HOPS + 1) + 2 * 4 + 2 * 2 + 4);

/// `struct onlooker_user_block`.
fn block_bytes(space: Space, first: u32, reads: u32) -> Vec<u8> {
    let mut bytes = space.to_bytes();
    bytes.extend([first, reads].into_iter().flat_map(u32::to_le_bytes));
    bytes
}

/// A table made ready to be loaded.
pub(super) struct Table {
    pub(super) image: Image,
    pub(super) schema: Schema,
    /// What it reads, in words, for people.
    pub(super) lines: Vec<String>,
}

/// Finds everything that a table names, and reads it once.
///
/// # Errors
/// The value that cannot be had, and why.
pub(super) fn prepare(definition: &Definition, discovery: &mut Discovery) -> Result<Table, String> {
    let mut made = Made::default();
    for (number, value) in definition.values.iter().enumerate() {
        made.add(value, discovery).map_err(|reason| value.explain(number, &reason))?;
    }
    let blocks = made.slots.div_ceil(SLOTS);
    let schema = file::schema(definition, blocks, made.fields)?;
    let space = if made.is_of_net {
        let (net, cookie) = discovery.net_and_cookie()?;
        Space { net, cookie }
    } else {
        Space { net: 0, cookie: 0 }
    };
    let mut first = 0u32;
    let facts = (0..blocks).map(|block| {
        let reads = made.reads.iter().filter(|read| read.slot / SLOTS == block).count();
        let reads = u32::try_from(reads).unwrap_or(u32::MAX);
        let bytes = block_bytes(space, first, reads);
        first += reads;
        bytes
    });
    let contents = vec![
        Content::array("blocks", facts.collect::<Vec<_>>()),
        Content::array("reads", made.reads.iter().map(Read::to_bytes)),
    ];
    Ok(Table { image: Image { object: OBJECT, contents, maps: &[] }, schema, lines: made.lines })
}

/// A table while it is made. Reads are in the order of their slots.
#[derive(Default)]
struct Made {
    reads: Vec<Read>,
    fields: Vec<Field>,
    lines: Vec<String>,
    slots: u32,
    is_of_net: bool,
}

/// A value's numbers: those of a CPU, and what each CPU adds on the way.
struct Numbers {
    way: Way,
    number: Number,
    stride: u64,
    /// Elements; `None`: it is no array.
    count: Option<u32>,
    /// `None`: it is not of each CPU.
    cpus: Option<Vec<u64>>,
}

impl Made {
    fn add(&mut self, value: &Value, discovery: &mut Discovery) -> Result<(), String> {
        let text = value.from.as_deref().unwrap_or_default();
        let path = Path::parse(text).map_err(|reason| format!("from: {reason}"))?;
        let root = resolve::root(discovery, &path, value.symbol_type.as_deref())
            .map_err(|reason| format!("from: {reason}"))?;
        let way = resolve::walk(discovery.btf()?, &root, &path).map_err(|reason| format!("from: {reason}"))?;
        let numbers = numbers(value, way, root.base, discovery)?;
        let (count, cpus) = (numbers.count.unwrap_or(1), numbers.cpus.as_ref().map_or(1, Vec::len));
        let all = u64::from(count) * cpus as u64;
        let room = MAX_BLOCKS * SLOTS - self.slots;
        let all = u32::try_from(all).ok().filter(|all| *all <= room).ok_or_else(|| {
            format!("has {all} numbers ({count} of {cpus} CPUs), and {room} are left of the {} of {MAX_BLOCKS} blocks: take fewer elements, or another file", MAX_BLOCKS * SLOTS)
        })?;
        let before = self.reads.len();
        self.add_reads(&numbers);
        for read in &self.reads[before..] {
            try_read(read, discovery).map_err(|reason| format!("from: {text} {reason}"))?;
        }
        self.add_fields(value, &numbers)?;
        let sign = if numbers.number.is_signed { "signed" } else { "unsigned" };
        let pointers = numbers.way.chain.len() - 1;
        self.lines.push(format!(
            "{}: {all} of {} bytes, {sign}, behind {pointers} pointers, {} reads",
            value.metric,
            numbers.number.bytes,
            self.reads.len() - before
        ));
        self.slots += all;
        self.is_of_net |= root.is_net;
        Ok(())
    }

    fn add_reads(&mut self, numbers: &Numbers) {
        let Numbers { way, number, stride, .. } = numbers;
        let mut slot = self.slots;
        for cpu in numbers.cpus.as_deref().unwrap_or(&[0]) {
            let mut chain = way.chain.clone();
            if let Some(offset) = way.cpu_at.and_then(|at| chain.get_mut(at)) {
                *offset = offset.wrapping_add(*cpu);
            }
            let end = slot + numbers.count.unwrap_or(1);
            let begin = slot;
            while slot < end {
                let mut chain = chain.clone();
                let at = way.each.map_or(chain.len() - 1, |each| each.at);
                chain[at] = chain[at].wrapping_add(u64::from(slot - begin) * stride);
                // In one go: what stands side by side, in one block, and fits the program's room.
                let together =
                    if at + 1 == chain.len() { (READ_BYTES - u64::from(number.bytes)) / stride + 1 } else { 1 };
                let left = (end - slot).min(SLOTS - slot % SLOTS);
                let count = u32::try_from(together).unwrap_or(u32::MAX).min(left);
                let (base, offsets) = (chain[0], chain[1..].to_vec());
                self.reads.push(Read { base, offsets, stride: *stride, slot, count, number: *number });
                slot += count;
            }
        }
    }

    fn add_fields(&mut self, value: &Value, numbers: &Numbers) -> Result<(), String> {
        let kind = if numbers.number.is_signed { Type::I64 } else { Type::U64 };
        let field = value.field(kind, self.slots);
        let count = numbers.count.unwrap_or(1);
        let of_cpus = |stride| {
            let cpus = numbers.cpus.as_ref()?;
            let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX);
            Some(Array { label: CPU_LABEL.into(), count, stride, values: None })
        };
        let elements = numbers.count.map(|count| value.array(count, 1));
        match (elements, of_cpus(count)) {
            (elements, None) => self.fields.push(Field { array: elements, ..field }),
            (None, cpus) => self.fields.push(Field { array: cpus, ..field }),
            (Some(elements), cpus) => {
                if elements.values.as_ref().is_some_and(|values| values.len() != count as usize) {
                    return Err(format!("label_values: give {count}, one for each element"));
                }
                for element in 0..count {
                    let mut labels: BTreeMap<String, String> = field.labels.clone();
                    if labels.insert(elements.label.clone(), elements.value(element)).is_some() {
                        return Err(format!("label = {:?}: is in labels, too", elements.label));
                    }
                    self.fields.push(Field {
                        slot: field.slot + element,
                        labels,
                        array: cpus.clone(),
                        ..field.clone()
                    });
                }
            }
        }
        Ok(())
    }
}

/// What a value says of its numbers, held against what BTF says.
fn numbers(value: &Value, way: Way, base: resolve::Base, discovery: &mut Discovery) -> Result<Numbers, String> {
    let found = way.end.clone().map_err(|reason| format!("from: {reason}"))?;
    if let Some(width) = value.width.filter(|width| *width != found.bytes) {
        return Err(format!("width = {width}: BTF says {} bytes; leave width out", found.bytes));
    }
    let number = Number { is_signed: value.signed.unwrap_or(found.is_signed), ..found };
    if value.kind == Kind::Counter && number.is_signed {
        return Err(
            "kind = \"counter\": the number has a sign: set signed = false if it only goes up, or kind = \"gauge\""
                .into(),
        );
    }
    let (mut stride, mut count) = (u64::from(number.bytes), None);
    if let Some(each) = way.each {
        stride = value.stride.map_or(each.stride, u64::from);
        count = Some(match (value.count, each.count) {
            (None, Some(count)) => count,
            (None, None) => return Err("count: is missing: BTF does not say how many elements [*] has".into()),
            (Some(count), Some(most)) if count > most && value.stride.is_none() => {
                return Err(format!("count = {count}: BTF says {most} elements"));
            }
            (Some(count), _) => count,
        });
        if stride < u64::from(number.bytes) || stride > READ_BYTES {
            return Err(format!("stride: {stride} bytes; must be {} (the number's own) to {READ_BYTES}", number.bytes));
        }
    } else if value.count.is_some() || value.stride.is_some() || value.label.is_some() || value.label_values.is_some() {
        return Err("count, stride, label and label_values are for arrays: write [*] where the elements differ".into());
    }
    let cpus = match (way.cpu_at, base) {
        (None, _) => None,
        (Some(0), resolve::Base::PerCpu(_)) => {
            let cpus = cpu_count(discovery)?;
            Some(discovery.cpus(cpus)?.into_iter().map(|place| place.base).collect())
        }
        (Some(_), _) => {
            let cpus = cpu_count(discovery)?;
            Some(discovery.percpu_offsets(cpus)?)
        }
    };
    Ok(Numbers { way, number, stride, count, cpus })
}

fn cpu_count(discovery: &mut Discovery) -> Result<u32, String> {
    let present = discovery.cpu_count()?;
    if present > MAX_CPUS {
        return Err(format!("from: is of each CPU, and there are {present}: at most {MAX_CPUS}"));
    }
    Ok(present)
}

/// What the program will do, done now: so that it is known which value cannot be read.
fn try_read(read: &Read, discovery: &Discovery) -> Result<(), String> {
    let mut address = read.base;
    for (hop, offset) in read.offsets.iter().enumerate() {
        let pointer = discovery.read(address, 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let pointer = pointer
            .ok_or_else(|| format!("cannot be read now: pointer {} of the path stands at a bad address", hop + 1))?;
        if pointer == 0 {
            return Err(format!("cannot be read now: pointer {} of the path is null", hop + 1));
        }
        address = pointer.wrapping_add(*offset);
    }
    let bytes = usize::try_from(read.bytes()).unwrap_or(usize::MAX);
    match discovery.read(address, bytes) {
        Some(_) => Ok(()),
        None => Err("cannot be read now: it stands at a bad address".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_as_in_the_header() {
        let header = include_str!("intf.h");
        let space = Space { net: 0x0101_0101_0101_0101, cookie: 0x0202_0202_0202_0202 };
        let bytes = block_bytes(space, 0x0303_0303, 0x0404_0404);
        for (field, at, value) in [("space", 0, space.to_bytes()), ("first", 16, vec![3; 4]), ("reads", 20, vec![4; 4])]
        {
            assert_eq!(bytes[at..at + value.len()], value, "{field}");
            assert!(header.contains(&format!("COLLECT_OFFSET(onlooker_user_block, {field}, {at});")), "{field}");
        }
        assert!(header.contains(&format!("COLLECT_SIZE(onlooker_user_block, {});", bytes.len())));
    }

    #[test]
    fn a_read_is_as_in_the_header() {
        let header = include_str!("intf.h");
        let number = Number { bytes: 4, is_signed: true };
        let offsets = vec![0x0202_0202_0202_0202; MAX_HOPS];
        let read =
            Read { base: 0x0101_0101_0101_0101, offsets, stride: 0x0303_0303, slot: 0x55, count: 0x0606, number };
        let (bytes, run) = (read.to_bytes(), u32::try_from(read.bytes()).unwrap_or(u32::MAX).to_le_bytes());
        let mut at = 0;
        for (field, value) in [
            ("base", &[1; 8][..]),
            ("offsets", &[2; 8 * MAX_HOPS]),
            ("bytes", &run),
            ("stride", &[3; 4]),
            ("slot", &[0x55, 0]),
            ("count", &[6; 2]),
            ("hops", &[u8::try_from(MAX_HOPS).unwrap()]),
            ("shift", &[32]),
            ("is_signed", &[1]),
        ] {
            assert_eq!(&bytes[at..at + value.len()], value, "{field}");
            assert!(header.contains(&format!("COLLECT_OFFSET(onlooker_user_read, {field}, {at});")), "{field}");
            at += value.len();
        }
        assert!(header.contains(&format!("COLLECT_SIZE(onlooker_user_read, {});", bytes.len())));
    }
}
