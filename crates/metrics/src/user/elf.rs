// SPDX-License-Identifier: Apache-2.0
//! Whether the file of a BPF object is whole, before libbpf sees it: one that was cut short or damaged on its way is to cost its own collector, not, by a crash or an endless
//! loop in C, the loader that has all the others in hand.
//!
//! What libbpf 1.7 takes for granted is checked here: that programs fill their sections and no instruction lacks its second half (it writes there), that relocations are inside
//! of what they are for (it makes room up to there), that sections have contents, and that types which hold others, or are names of them, end (it follows them without counting). Programs,
//! maps and the rest of BTF it checks itself. ELF: System V ABI, Object Files; BTF: Documentation/bpf/btf.rst. No I/O; cost: each symbol, relocation and type once.

/// e_type, e_machine.
const RELOCATABLE: u64 = 1;
const BPF: u64 = 247;
/// Bytes of a section's header, of a symbol, of a relocation.
const SECTION_BYTES: u64 = 64;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 16;
// sh_type.
const NULL: u64 = 0;
const PROGBITS: u64 = 1;
const SYMTAB: u64 = 2;
const STRTAB: u64 = 3;
const NOBITS: u64 = 8;
const REL: u64 = 9;
/// SHF_EXECINSTR.
const EXECUTABLE: u64 = 4;
/// SHN_LORESERVE: from here on numbers are no sections.
const RESERVED: u64 = 0xff00;
/// STT_FUNC.
const FUNCTION: u64 = 2;
/// The instruction of 16 bytes.
const LD_IMM64: u8 = 0x18;
/// SHF_COMPRESSED.
const COMPRESSED: u64 = 0x800;
/// Types that are each a name of the next (typedef, const, ...), or hold it by value. The kernel's have some twenty.
const MAX_LEVELS: usize = 64;

/// A section. Without contents (`.bss`) it has no bytes.
#[derive(Debug)]
struct Section<'a> {
    name: &'a [u8],
    kind: u64,
    flags: u64,
    bytes: &'a [u8],
    link: u64,
    info: u64,
    entry_bytes: u64,
}

/// Looks at an object's file.
///
/// # Errors
/// What is not as it should be.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let sections = sections(bytes)?;
    for section in &sections {
        let checked = match section.kind {
            SYMTAB => symbols(section, &sections),
            REL => relocations(section, &sections),
            NOBITS if !section.name.starts_with(b".bss") => Err("has no contents".to_owned()),
            PROGBITS if section.name == b".BTF" => types(section.bytes),
            PROGBITS if section.flags & EXECUTABLE != 0 => instructions(section.bytes),
            _ => Ok(()),
        };
        checked.map_err(|reason| format!("section {:?}: {reason}", String::from_utf8_lossy(section.name)))?;
    }
    Ok(())
}

fn sections(bytes: &[u8]) -> Result<Vec<Section<'_>>, String> {
    // Magic, class, order of bytes.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return Err("it is no ELF file of 64 bits with the least byte first".into());
    }
    let field = |at, width| number(bytes, at, width).ok_or("its header was cut short");
    let (kind, machine) = (field(16, 2)?, field(18, 2)?);
    if (kind, machine) != (RELOCATABLE, BPF) {
        return Err(format!("it has ELF type {kind} for machine {machine}, not {RELOCATABLE} for {BPF} (BPF)"));
    }
    let (begin, each, count, names) = (field(40, 8)?, field(58, 2)?, field(60, 2)?, field(62, 2)?);
    if each != SECTION_BYTES {
        return Err(format!("its section headers have {each} bytes, not {SECTION_BYTES}"));
    }
    let table = part(bytes, begin, count * each).ok_or("its section headers are not in the file: was it cut short?")?;
    let header = |index| part(table, index * SECTION_BYTES, SECTION_BYTES);
    let names = header(names).filter(|names| number(names, 4, 4) == Some(STRTAB));
    let names = names.and_then(|names| contents(bytes, names)).ok_or("the names of its sections are not there")?;
    let section = |index| {
        let header = header(index)?;
        let field = |at, width| number(header, at, width);
        Some(Section {
            name: text(names, field(0, 4)?)?,
            kind: field(4, 4)?,
            flags: field(8, 8)?,
            bytes: contents(bytes, header)?,
            link: field(40, 4)?,
            info: field(44, 4)?,
            entry_bytes: field(56, 8)?,
        })
    };
    (0..count).map(|index| section(index).ok_or_else(|| format!("section {index} is not all in the file"))).collect()
}

/// What a section's header leads to.
fn contents<'a>(bytes: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    match number(header, 4, 4)? {
        NULL | NOBITS => Some(&[]),
        _ => part(bytes, number(header, 24, 8)?, number(header, 32, 8)?),
    }
}

impl<'a> Section<'a> {
    fn entries(&self, each: usize) -> Result<impl Iterator<Item = &'a [u8]>, String> {
        if usize::try_from(self.entry_bytes) != Ok(each) || !self.bytes.len().is_multiple_of(each) {
            return Err(format!("its entries are not of {each} bytes"));
        }
        Ok(self.bytes.chunks_exact(each))
    }

    /// What the section that this one is linked to holds, if it is of that kind.
    fn linked(&self, sections: &[Section<'a>], kind: u64) -> Result<&'a [u8], String> {
        let linked = nth(sections, self.link).filter(|linked| linked.kind == kind);
        linked.map(|linked| linked.bytes).ok_or_else(|| format!("section {} is not what it needs", self.link))
    }
}

fn symbols(section: &Section<'_>, sections: &[Section<'_>]) -> Result<(), String> {
    let strings = section.linked(sections, STRTAB)?;
    for symbol in section.entries(SYMBOL_BYTES)? {
        let field = |at, width| number(symbol, at, width).unwrap_or_default();
        let name = String::from_utf8_lossy(text(strings, field(0, 4)).ok_or("a symbol's name is not there")?);
        let (kind, index) = (field(4, 1) & 0xf, field(6, 2));
        if index == 0 || index >= RESERVED {
            continue;
        }
        let of = nth(sections, index).ok_or_else(|| format!("symbol {name:?} is in no section"))?;
        let is_program = kind == FUNCTION && of.flags & EXECUTABLE != 0 && of.name != b".text";
        if is_program && (field(8, 8), field(16, 8)) != (0, of.bytes.len() as u64) {
            return Err(format!("program {name:?} is not all of its section: a section has one program"));
        }
        let (at, length) = (field(8, 8), field(16, 8));
        let is_whole =
            at % 8 == 0 && length % 8 == 0 && part(of.bytes, at, length).is_some_and(ends_with_an_instruction);
        if kind == FUNCTION && of.name == b".text" && !is_whole {
            return Err(format!("function {name:?} is not whole instructions of its section"));
        }
    }
    Ok(())
}

fn relocations(section: &Section<'_>, sections: &[Section<'_>]) -> Result<(), String> {
    let symbols = section.linked(sections, SYMTAB)?.len() / SYMBOL_BYTES;
    let changed = nth(sections, section.info).ok_or("what it changes is not there")?;
    // Places in what is compressed, which nobody but a debugger reads, are places in what it was.
    if changed.flags & COMPRESSED != 0 {
        return Ok(());
    }
    let changed = changed.bytes;
    for relocation in section.entries(RELOCATION_BYTES)? {
        let field = |at, width| number(relocation, at, width).unwrap_or(u64::MAX);
        let (place, symbol) = (field(0, 8), field(12, 4));
        if part(changed, place, 4).is_none() || symbol >= symbols as u64 {
            return Err(format!("a relocation at {place:#x} by symbol {symbol} leads out of what it changes"));
        }
    }
    Ok(())
}

/// Whether the last eight bytes are no first half of an instruction of sixteen.
fn ends_with_an_instruction(bytes: &[u8]) -> bool {
    bytes.len().checked_sub(8).is_none_or(|last| bytes[last] != LD_IMM64)
}

fn instructions(bytes: &[u8]) -> Result<(), String> {
    if !bytes.len().is_multiple_of(8) {
        return Err(format!("has {} bytes, and instructions have 8", bytes.len()));
    }
    let mut codes = bytes.iter().step_by(8);
    while let Some(code) = codes.next() {
        if *code == LD_IMM64 && codes.next() != Some(&0) {
            return Err("an instruction lacks its second half".into());
        }
    }
    Ok(())
}

/// Follows types to their ends: names of types, and what arrays and structures hold by value.
fn types(bytes: &[u8]) -> Result<(), String> {
    let field = |at| number(bytes, at, 4).ok_or("its header was cut short");
    let (header, begin, length) = (field(4)?, field(8)?, field(12)?);
    let types = part(bytes, header + begin, length).ok_or("its types are not there")?;
    // What each type needs whole; type 0 (void) needs nothing.
    let mut needs: Vec<Vec<u64>> = vec![Vec::new()];
    let mut at = 0;
    while let (Some(info), Some(of)) = (number(types, at + 4, 4), number(types, at + 8, 4)) {
        let (kind, count) = ((info >> 24) & 0x1f, info & 0xffff);
        let word = |place: u64| number(types, at + place, 4);
        needs.push(match kind {
            // Typedef, volatile, const, restrict; type tag.
            8..=11 | 18 => vec![of],
            3 => word(12).into_iter().collect(),
            4 | 5 => (0..count).filter_map(|member| word(12 + 12 * member + 4)).collect(),
            _ => Vec::new(),
        });
        // Behind the 12 bytes of each: of integers, variables and tags; arrays; structures, unions, sections and enums of 64 bits; enums and prototypes.
        let rest = match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * count,
            6 | 13 => 8 * count,
            _ => 0,
        };
        at += 12 + rest;
    }
    let mut heights = vec![None; needs.len()];
    if (0..needs.len()).any(|id| height(id, &needs, &mut heights, MAX_LEVELS).is_none()) {
        return Err(format!("a type holds or names itself, or types over more than {MAX_LEVELS} levels"));
    }
    Ok(())
}

/// Levels below a type; `None` if they are more than `most`, as where it is below itself. `known` are those that were found.
fn height(id: usize, needs: &[Vec<u64>], known: &mut [Option<usize>], most: usize) -> Option<usize> {
    if let Some(height) = known.get(id).copied().flatten() {
        return Some(height).filter(|height| *height <= most);
    }
    let mut height = 0;
    for need in needs.get(id).map_or(&[][..], Vec::as_slice) {
        let need = usize::try_from(*need).unwrap_or(usize::MAX);
        height = height.max(1 + self::height(need, needs, known, most.checked_sub(1)?)?);
    }
    if let Some(known) = known.get_mut(id) {
        *known = Some(height);
    }
    Some(height)
}

fn nth<'s, 'a>(sections: &'s [Section<'a>], index: u64) -> Option<&'s Section<'a>> {
    sections.get(usize::try_from(index).ok()?)
}

fn part(bytes: &[u8], at: u64, length: u64) -> Option<&[u8]> {
    let (at, length) = (usize::try_from(at).ok()?, usize::try_from(length).ok()?);
    bytes.get(at..)?.get(..length)
}

fn number(bytes: &[u8], at: u64, width: u64) -> Option<u64> {
    Some(part(bytes, at, width)?.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte)))
}

/// A string of a table, without the 0 behind it.
fn text(table: &[u8], at: u64) -> Option<&[u8]> {
    let rest = table.get(usize::try_from(at).ok()?..)?;
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    static GOOD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refused_good.bpf.o"));
    static WITH_FUNCTIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refused_function.bpf.o"));
    static EXAMPLE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/example_run_queue.bpf.o"));

    #[test]
    fn what_the_compiler_makes_is_whole_and_nothing_shorter() {
        for object in [GOOD, WITH_FUNCTIONS, EXAMPLE] {
            assert_eq!(check(object), Ok(()));
        }
        for length in 0..GOOD.len() {
            assert!(check(&GOOD[..length]).is_err(), "{length} of {} bytes", GOOD.len());
        }
    }

    #[test]
    fn any_bit_may_be_wrong() {
        let mut copy = GOOD.to_vec();
        let (mut whole, mut refused) = (0, 0);
        for at in (0..copy.len()).step_by(3) {
            copy[at] ^= 1 << (at % 8);
            match check(&copy) {
                Ok(()) => whole += 1,
                Err(_) => refused += 1,
            }
            copy[at] ^= 1 << (at % 8);
        }
        assert!(whole > 0 && refused > 0, "{whole} whole, {refused} refused");
    }

    /// Where a part of `GOOD` stands in it.
    fn place(part: &[u8]) -> usize {
        part.as_ptr().addr() - GOOD.as_ptr().addr()
    }

    fn find<'s, 'a>(sections: &'s [Section<'a>], name: &str) -> (usize, &'s Section<'a>) {
        let is_it = |section: &Section<'_>| section.name == name.as_bytes();
        let index = sections.iter().position(is_it).unwrap_or_else(|| panic!("no section {name}"));
        (index, &sections[index])
    }

    #[test]
    fn what_is_damaged_is_told() {
        let sections = sections(GOOD).unwrap();
        let table = usize::try_from(number(GOOD, 40, 8).unwrap()).unwrap();
        let (license, _) = find(&sections, "license");
        let (_, tc) = find(&sections, "tc");
        let (_, relocations) = find(&sections, ".reltc");
        let (_, symbols) = find(&sections, ".symtab");
        let is_program = |symbol: &&[u8]| symbol[4] & 0xf == 2;
        let program = place(symbols.bytes.chunks_exact(SYMBOL_BYTES).find(is_program).unwrap());
        for (at, value, part) in [
            (4, 1, "no ELF file of 64 bits"),
            (5, 2, "the least byte first"),
            (16, 2, "ELF type 2 for machine 247"),
            (18, 62, "ELF type 1 for machine 62"),
            (45, 1, "its section headers are not in the file"),
            (58, 40, "its section headers have 40 bytes"),
            (62, 0, "the names of its sections are not there"),
            (table + 64 * license + 4, 8, "\"license\": has no contents"),
            (table + 64 * license + 30, 1, "is not all in the file"),
            (place(tc.bytes) + tc.bytes.len() - 8, LD_IMM64, "\"tc\": an instruction lacks its second half"),
            (place(relocations.bytes) + 6, 1, "\".reltc\": a relocation at 0x1"),
            (place(relocations.bytes) + 15, 1, "\".reltc\": a relocation at "),
            (program + 3, 1, "\".symtab\": a symbol's name is not there"),
            (program + 6, 200, "is in no section"),
            (program + 8, 8, "is not all of its section"),
            (program + 17, 0x55, "is not all of its section"),
        ] {
            let mut copy = GOOD.to_vec();
            copy[at] = value;
            let error = check(&copy).expect_err(part);
            assert!(error.contains(part), "{error}, not {part}");
        }
    }

    fn btf(types: &[[u32; 3]]) -> Vec<u8> {
        let bytes = u32::try_from(12 * types.len()).unwrap();
        let header = [0x0001_eb9f, 24, 0, bytes, bytes, 1];
        header.iter().chain(types.iter().flatten()).flat_map(|word| word.to_le_bytes()).chain([0]).collect()
    }

    #[test]
    fn names_of_types_come_to_an_end() {
        let (typedef, constant) = (8 << 24, 10 << 24);
        assert_eq!(super::types(&btf(&[[0, typedef, 2], [0, constant, 0]])), Ok(()));
        assert!(super::types(&btf(&[[0, typedef, 1]])).unwrap_err().contains("holds or names itself"));
        assert!(
            super::types(&btf(&[[0, typedef, 2], [0, constant, 1]])).unwrap_err().contains("holds or names itself")
        );
        // A structure of one member, and an array, each of which takes 12 bytes more: of itself, of the next, of a pointer to itself.
        let (structure, array, pointer) = ((4 << 24) | 1, 3 << 24, 2 << 24);
        let of = |first: u32, second: u32| {
            btf(&[[0, structure, 8], [0, first, 0], [0, array, 0], [second, 1, 1], [0, pointer, 1]])
        };
        assert_eq!(super::types(&of(3, 1)), Ok(()));
        assert_eq!(super::types(&of(2, 3)), Ok(()));
        for (first, second) in [(1, 3), (2, 1), (3, 2)] {
            assert!(
                super::types(&of(first, second)).unwrap_err().contains("holds or names itself"),
                "{first} {second}"
            );
        }
        // A pointer may lead back.
        assert_eq!(super::types(&btf(&[[0, typedef, 2], [0, 2 << 24, 1]])), Ok(()));
    }
}
