// SPDX-License-Identifier: Apache-2.0
//! Global variables as operands of code: a function that uses a variable names its address. Every four bytes that could be one are tried; the caller says
//! which candidate it is by what stands there. x86-64 only; on other machines only kallsyms tells.

use super::symbols::Symbols;

/// Most bytes of a function that are looked at.
const FUNCTION_BYTES: usize = 4096;
/// Where the kernel's image begins on x86-64, whatever KASLR does.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Reads kernel memory.
pub(crate) type Read<'a> = dyn Fn(u64, usize) -> Option<Vec<u8>> + 'a;

/// The variable's address and how it was found, or why not. `is_it` turns a candidate into the variable's address, if it is (a part of) that variable.
pub(super) fn find(
    symbols: &Symbols,
    read: &Read<'_>,
    name: &str,
    functions: &[&str],
    is_it: impl Fn(u64, &Read<'_>) -> Option<u64>,
) -> Result<(u64, String), String> {
    if let Some(address) = symbols.address(name) {
        // By its name it may be only itself: the value is checked with the metrics.
        return Ok((address, "kallsyms".to_owned()));
    }
    if !cfg!(target_arch = "x86_64") {
        return Err("kallsyms does not list it, and operands are decoded on x86-64 only".to_owned());
    }
    let mut tried = Vec::new();
    for function in functions {
        let Some((begin, bytes)) = symbols.function(function) else {
            tried.push(format!("no function {function}"));
            continue;
        };
        let Some(code) = read(begin, bytes.min(FUNCTION_BYTES)) else {
            tried.push(format!("{function} cannot be read"));
            continue;
        };
        let candidates = candidates(begin, &code);
        let mut hits: Vec<u64> = candidates.iter().filter_map(|candidate| is_it(*candidate, read)).collect();
        hits.sort_unstable();
        hits.dedup();
        match hits[..] {
            [hit] => {
                let of = candidates.len();
                return Ok((hit, format!("operand of {function} (one of {of}), whose value is procfs's")));
            }
            [] => tried.push(format!("none of {} operands of {function} has procfs's value", candidates.len())),
            _ => tried.push(format!("{} operands of {function} have procfs's value", hits.len())),
        }
    }
    Err(format!("kallsyms does not list it; {}", tried.join("; ")))
}

/// All addresses within the kernel's image that bytes of the code could mean: relative to the next instruction, with up to four bytes of immediate operand
/// in between; or absolute, sign-extended (an array indexed by a register).
fn candidates(begin: u64, code: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, bytes) in code.windows(4).enumerate().skip(1) {
        let value = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        // ModRM with mod 00 and r/m 101 (Intel SDM vol. 2A, table 2-2): RIP-relative.
        if code[at - 1] & 0xc7 == 0x05 {
            let next = begin + at as u64 + 4;
            found.extend([0, 1, 2, 4].map(|immediate| (next + immediate).wrapping_add_signed(value.into())));
        }
        if value < 0 {
            found.push(i64::from(value).cast_unsigned());
        }
    }
    found.retain(|address| *address >= IMAGE);
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_and_absolute_operands_are_candidates() {
        let begin = 0xffff_ffff_8100_0000;
        // mov rax, [rip + 0x1000]; mov rax, [rdx*8 - 0x7e000000]
        let code = [0x48, 0x8b, 0x05, 0x00, 0x10, 0, 0, 0x48, 0x8b, 0x04, 0xd5, 0, 0, 0, 0x82, 0xc3];
        let found = candidates(begin, &code);
        assert!(found.contains(&(begin + 7 + 0x1000)));
        assert!(found.contains(&0xffff_ffff_8200_0000));
    }
}
