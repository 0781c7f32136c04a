// SPDX-License-Identifier: Apache-2.0
//! Values of CPUs in blocks: which CPUs there are, and the arrays of a schema that their values are.

use onlooker_region::schema::{Array, Field};

use super::intf::{CPU_SLOTS, PAIR_SLOTS};
use crate::discover::{CpuPlace, Discovery};

/// CPUs that are covered. Beyond, the label values of a schema's arrays would not fit into MAX_SCHEMA_BYTES.
pub(crate) const MAX_CPUS: u32 = 512;

/// The CPUs that are covered, by number.
///
/// # Errors
/// Why they are not known.
pub(crate) fn cpus(discovery: &mut Discovery) -> Result<Vec<CpuPlace>, String> {
    let present = discovery.cpu_count()?;
    discovery.note_limit("CPUs", present, MAX_CPUS);
    discovery.cpus(present.min(MAX_CPUS))
}

/// Two arrays, even CPUs and odd ones: `bpf/intf.h` says why.
pub(crate) fn push_for_all(fields: &mut Vec<Field>, field: Field, cpus: u32) {
    for odd in 0..2.min(cpus) {
        let values: Vec<String> = (odd..cpus).step_by(2).map(|cpu| cpu.to_string()).collect();
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let array = Array { label: "cpu".into(), count, stride: PAIR_SLOTS, values: Some(values) };
        fields.push(Field { slot: field.slot + odd * CPU_SLOTS, array: Some(array), ..field.clone() });
    }
}

/// A value of each CPU, four CPUs a block.
pub(crate) fn four_a_block(field: Field, cpus: u32) -> Field {
    let array = Array { label: "cpu".into(), count: cpus, stride: PAIR_SLOTS, values: None };
    Field { array: Some(array), ..field }
}

#[cfg(test)]
pub(crate) mod tests {
    use onlooker_region::Schema;

    use super::*;

    /// Every CPU of every field stands in its block of `per_block` CPUs, `slot_of(place)` slots behind that of the block's first.
    pub(crate) fn stands_where_the_program_puts_it(
        schema: &Schema,
        group: usize,
        per_block: u32,
        slot_of: fn(u32) -> u32,
    ) {
        for field in schema.groups[group].fields.iter() {
            let Some(array) = field.array.as_ref() else { continue };
            for element in 0..array.count {
                let cpu: u32 = array.value(element).parse().unwrap();
                let slot = field.slot + element * array.stride;
                assert_eq!(slot / 124, cpu / per_block, "{} CPU {cpu}", field.name);
                let own = slot % 124 - slot_of(cpu % per_block);
                let first = field.slot - slot_of(array.value(0).parse().unwrap());
                assert_eq!(own, first, "{} CPU {cpu}", field.name);
            }
        }
    }

    /// Of a place among eight.
    pub(crate) fn of_eight(place: u32) -> u32 {
        place / 2 * PAIR_SLOTS + place % 2 * CPU_SLOTS
    }

    /// Of a place among four.
    pub(crate) fn of_four(place: u32) -> u32 {
        place * PAIR_SLOTS
    }
}
