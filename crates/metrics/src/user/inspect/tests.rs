// SPDX-License-Identifier: Apache-2.0
//! Programs by hand, each with one fault. Compiled ones are in `tests/user`.

use super::*;

const SCRATCH_MAP: i32 = 7;
const COLLECTORS: i32 = 8;
const MAPS: Maps = Maps { scratch: SCRATCH_MAP, collectors: COLLECTORS };

fn insn(code: u8, dst: u8, src: u8, offset: i16, imm: i32) -> Insn {
    Insn { code, dst, src, offset, imm }
}

fn mov(dst: u8, imm: i32) -> Insn {
    insn(0xb7, dst, 0, 0, imm)
}

fn copy(dst: u8, src: u8) -> Insn {
    insn(0xbf, dst, src, 0, 0)
}

fn add(dst: u8, imm: i32) -> Insn {
    insn(0x07, dst, 0, 0, imm)
}

fn call(helper: i32) -> Insn {
    insn(0x85, 0, 0, 0, helper)
}

fn map(dst: u8, descriptor: i32) -> [Insn; 2] {
    [insn(LD_IMM64, dst, PSEUDO_MAP_FD, 0, descriptor), insn(0, 0, 0, 0, 0)]
}

/// `*(u64 *)(dst + offset) = src`.
fn store(dst: u8, offset: i16, src: u8) -> Insn {
    insn(0x7b, dst, src, offset, 0)
}

fn load(dst: u8, src: u8, offset: i16) -> Insn {
    insn(0x79, dst, src, offset, 0)
}

const EXIT_INSN: Insn = Insn { code: 0x95, dst: 0, src: 0, offset: 0, imm: 0 };

/// Looks the scratch up (r0), with the context in r6, then does `what`, and drops.
fn with_scratch(what: &[Insn]) -> Vec<Insn> {
    let mut all = vec![copy(6, 1), mov(2, 0), insn(0x63, 10, 2, -4, 0), copy(2, 10), add(2, -4)];
    all.extend(map(1, SCRATCH_MAP));
    all.extend([call(1), insn(0x15, 0, 0, i16::try_from(what.len()).unwrap(), 0)]);
    all.extend(what);
    all.extend([mov(0, 2), EXIT_INSN]);
    all
}

fn finish(collectors: i32, slot: i32) -> Vec<Insn> {
    let mut all = vec![copy(1, 6)];
    all.extend(map(2, collectors));
    all.extend([mov(3, slot), call(12)]);
    all
}

#[test]
fn code_may_stand_in_any_order_as_long_as_nothing_is_repeated() {
    // Compilers put the end before the middle.
    let program =
        [insn(0x05, 0, 0, 2, 0), mov(0, 2), EXIT_INSN, mov(2, 0), insn(0x15, 2, 0, -4, 0), insn(0x05, 0, 0, -5, 0)];
    assert_eq!(inspect(&program, Side::Tc, Some(MAPS)), Ok(()));
    // The middle is looked at before the end.
    let program = [insn(0x05, 0, 0, 2, 0), load(2, 7, 0), EXIT_INSN, copy(7, 1), insn(0x05, 0, 0, -4, 0)];
    assert!(refusal(&program).contains("instruction 1 reads its context"));
}

fn refusal(insns: &[Insn]) -> String {
    inspect(insns, Side::Tc, Some(MAPS)).unwrap_err()
}

#[test]
fn what_a_collector_does_is_allowed() {
    let word = |word: i32| i32::try_from(BLOCK_AT).unwrap() + 8 * word;
    let mut what = vec![copy(7, 0), call(125)];
    what.push(store(7, i16::try_from(word(1)).unwrap(), 0));
    what.push(store(7, i16::try_from(word(126)).unwrap(), 0));
    // Spilled and taken back, as compilers do.
    what.extend([store(10, -16, 7), load(8, 10, -16), add(8, word(3)), store(8, 0, 0)]);
    what.extend([store(10, -24, 6), load(6, 10, -24)]);
    // A bulk read of two words.
    what.extend([copy(1, 8), mov(2, 16), mov(3, 0), call(PROBE_READ_KERNEL)]);
    what.extend(finish(COLLECTORS, 0));
    let good = with_scratch(&what);
    assert_eq!(inspect(&good, Side::Tc, Some(MAPS)), Ok(()));
    // In the file maps have no numbers yet.
    let in_file = |insn: &Insn| if insn.code == LD_IMM64 { Insn { src: 0, imm: 0, ..*insn } } else { *insn };
    assert_eq!(inspect(&good.iter().map(in_file).collect::<Vec<_>>(), Side::Tc, None), Ok(()));
    assert!(inspect(&good, Side::Tc, None).unwrap_err().contains("names a map or a function by a number"));
    assert!(inspect(&good, Side::Xdp, Some(MAPS)).unwrap_err().contains("something else than 1"));
}

#[test]
fn the_rest_is_refused_with_its_instruction() {
    let ends = [mov(0, 2), EXIT_INSN];
    for (what, part) in [
        (vec![insn(0x05, 0, 0, -1, 0)], "instruction 0 jumps back to 0, a loop"),
        (vec![mov(2, 0), insn(0x55, 2, 0, -2, 0)], "instruction 1 jumps back to 0, a loop"),
        (vec![insn(0x06, 0, 0, 0, -1)], "jumps back"),
        (vec![insn(0x05, 0, 0, -2, 0)], "leads out of the program"),
        (vec![insn(0x05, 0, 0, 2, 0)], "leads out of the program"),
        (vec![insn(0xe5, 0, 0, 0, 0)], "may_goto"),
        (vec![call(23)], "calls helper 23 (bpf_redirect)"),
        (vec![call(181)], "calls helper 181 (bpf_loop)"),
        (vec![call(9999)], "calls helper 9999, which"),
        (vec![insn(0x85, 0, 1, 0, 5)], "kfunc"),
        (vec![insn(0x85, 0, 2, 0, 5)], "kfunc"),
        (vec![insn(0x8d, 0, 0, 0, 5)], "by its address"),
        (vec![insn(0x30, 0, 0, 0, 5)], "reads the packet"),
        (vec![insn(LD_IMM64, 1, 4, 0, 5), insn(0, 0, 0, 0, 0)], "address of a function"),
        (vec![load(2, 1, 76)], "reads its context"),
        (vec![copy(7, 1), add(7, 8), load(2, 7, 0)], "reads its context"),
        (vec![store(10, -8, 1), load(3, 10, -8), load(2, 3, 0)], "reads its context"),
        (vec![store(10, -8, 1), copy(4, 10), add(4, -8), load(3, 4, 0), load(2, 3, 0)], "reads its context"),
        (vec![copy(4, 10), add(4, -8), store(4, 0, 1)], "cannot be followed"),
        // A pointer to the stack in the stack, through which the context would come back unseen.
        (vec![store(10, -8, 1), copy(4, 10), add(4, -16), copy(5, 10), store(4, 0, 5)], "cannot be followed"),
        (vec![store(10, -8, 1), mov(2, 0), insn(0xdb, 10, 2, -8, 0x41)], "atomic operation on the stack"),
        (vec![store(10, -8, 1), mov(0, 0), mov(2, 0), insn(0xdb, 10, 2, -8, 0xf1)], "atomic operation on the stack"),
        (vec![mov(2, 0), insn(0x0d, 2, 0, 0, 0)], "jumps to a computed address"),
        (vec![store(1, 8, 2)], "writes through its context"),
        (vec![insn(0x72, 1, 0, 8, 5)], "writes through its context"),
        (vec![copy(3, 1), copy(1, 10), mov(2, 8), call(113)], "gives its context to bpf_probe_read_kernel"),
        (vec![insn(0xdb, 3, 2, -8, 0x100)], "unknown atomic"),
        (vec![mov(1, 5), call(1)], "a map that cannot be told"),
    ] {
        let program = [&what[..], &ends].concat();
        let error = refusal(&program);
        assert!(error.starts_with("instruction ") && error.contains(part), "{error}, not {part}");
    }
    // A member that this kernel has not, behind a question for it.
    let guarded = [mov(2, 0), insn(0x15, 2, 0, 1, 0), call(UNRESOLVED), mov(0, 2), EXIT_INSN];
    assert_eq!(inspect(&guarded, Side::Tc, Some(MAPS)), Ok(()));
    assert!(refusal(&[mov(0, 0), EXIT_INSN]).contains("ends the program with something else"));
    assert!(refusal(&[EXIT_INSN]).contains("ends the program with something else"));
    assert!(refusal(&vec![mov(0, 2); MAX_INSNS + 1]).contains("4097 instructions: at most 4096"));
}

#[test]
fn the_scratch_is_written_in_its_block_only() {
    let at = i32::try_from(BLOCK_AT).unwrap();
    for (what, part) in [
        (vec![store(0, 8, 6)], "outside of the block's time and payload"),
        (vec![mov(2, 1), store(0, 8, 2)], "outside of the block's time and payload"),
        (vec![mov(2, 1), add(0, at), store(0, 0, 2)], "(word 0 of the block)"),
        (vec![mov(2, 1), add(0, at), store(0, 127 * 8, 2)], "(word 127 of the block)"),
        (vec![mov(2, 1), add(0, at), store(0, 126 * 8 + 4, 2)], "outside of"),
        (vec![call(8), mov(2, 1)], ""),
        (vec![copy(7, 0), call(8), insn(0x0f, 7, 0, 0, 0), mov(2, 1), store(7, 0, 2)], "no constant"),
        (vec![copy(1, 0), add(1, at + 24), mov(2, 125 * 8), mov(3, 0), call(113)], "outside of"),
        (vec![copy(7, 0), call(5), copy(2, 0), copy(1, 7), mov(3, 0), call(113)], "no constant"),
        (vec![copy(1, 10), copy(2, 0), mov(3, 0), call(113)], "reads a number of bytes that is no constant"),
        (finish(COLLECTORS, 7), "makes a tail call to something else"),
        (finish(COLLECTORS + 1, 0), "makes a tail call to something else"),
        ([&map(1, SCRATCH_MAP)[..], &[copy(2, 10), mov(3, 0), call(195)]].concat(), "another CPU's scratch"),
    ] {
        let program = with_scratch(&what);
        match inspect(&program, Side::Tc, Some(MAPS)) {
            Ok(()) => assert_eq!(part, ""),
            Err(error) => assert!(!part.is_empty() && error.contains(part), "{error}, not {part}"),
        }
    }
}

#[test]
fn paths_that_meet_know_what_both_knew() {
    // On one of two paths r7 is the context.
    let program = [mov(7, 0), insn(0x15, 2, 0, 1, 0), copy(7, 1), load(3, 7, 0), mov(0, 2), EXIT_INSN];
    assert!(refusal(&program).contains("instruction 3 reads its context"));
    // On both it is the same place of the scratch.
    let at = i32::try_from(BLOCK_AT).unwrap() + 24;
    let what =
        [copy(7, 0), insn(0x15, 6, 0, 2, 0), add(7, at), insn(0x05, 0, 0, 1, 0), add(7, at), mov(2, 1), store(7, 0, 2)];
    assert_eq!(inspect(&with_scratch(&what), Side::Tc, Some(MAPS)), Ok(()));
    let what = [copy(7, 0), add(7, at), insn(0x15, 6, 0, 1, 0), add(7, 8), mov(2, 1), store(7, 0, 2)];
    assert!(refusal(&with_scratch(&what)).contains("no constant"));
}

#[test]
fn what_is_read_together_has_a_bound() {
    let read = [copy(1, 7), mov(2, 4096), mov(3, 0), call(113)];
    let reads = |count: usize| with_scratch(&[&[mov(7, 0)][..], &read.repeat(count)].concat());
    assert_eq!(inspect(&reads(16), Side::Tc, Some(MAPS)), Ok(()));
    assert!(refusal(&reads(17)).contains("makes it 69632 bytes that are read: at most 65536"));
    // One way or the other, not both: each instruction counts once all the same.
    let either = [&[mov(7, 0), insn(0x15, 6, 0, 4, 0)][..], &read, &read].concat();
    assert_eq!(inspect(&with_scratch(&either), Side::Tc, Some(MAPS)), Ok(()));
}
