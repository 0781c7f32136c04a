// SPDX-License-Identifier: Apache-2.0
//! In which order instructions can come, and that none comes twice.

use super::{CALL, EXIT, Insn, JA, JCOND, JMP, JMP32, LD_IMM64, OPERATION, SOURCE_REGISTER, UNRESOLVED, explain};

/// The instructions that paths from the first one lead to, each behind all that lead to it.
///
/// # Errors
/// A jump that makes a loop.
pub(super) fn order(insns: &[Insn]) -> Result<Vec<usize>, String> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        /// On the path to where the search is.
        Open,
        Done,
    }
    let mut seen = vec![Seen::Not; insns.len()];
    let mut done = Vec::with_capacity(insns.len());
    let mut path = vec![(0, 0)];
    while let Some((index, edge)) = path.last_mut() {
        let index = *index;
        seen[index] = Seen::Open;
        let Some(to) = edges(insns, index)?.get(*edge).copied() else {
            seen[index] = Seen::Done;
            done.push(index);
            path.pop();
            continue;
        };
        *edge += 1;
        match to.map(|to| (to, seen[to])) {
            Some((to, Seen::Not)) => path.push((to, 0)),
            Some((to, Seen::Open)) => {
                let reason = format!("jumps back to {to}, a loop: nothing may be repeated, unroll it (#pragma unroll)");
                return Err(explain(index, &reason));
            }
            Some((_, Seen::Done)) | None => {}
        }
    }
    done.reverse();
    Ok(done)
}

/// The instructions that may follow one.
///
/// # Errors
/// A loop by itself, or none that is there.
pub(super) fn edges(insns: &[Insn], index: usize) -> Result<[Option<usize>; 2], String> {
    let refuse = |reason: &str| Err(explain(index, reason));
    let insn = insns.get(index).ok_or("there are no instructions")?;
    let there = |distance: i64| {
        let to = i64::try_from(index).ok().and_then(|index| usize::try_from(index + 1 + distance).ok());
        to.filter(|to| *to < insns.len()).ok_or_else(|| explain(index, "leads out of the program"))
    };
    let is_jump = [JMP, JMP32].contains(&(insn.code & 7));
    let is_32 = insn.code & 7 == JMP32;
    Ok(match insn.code & OPERATION {
        _ if !is_jump => [Some(there(i64::from(insn.code == LD_IMM64))?), None],
        CALL | EXIT if is_32 => return refuse("is unknown"),
        CALL if insn.src == 0 && insn.imm == UNRESOLVED => [None, None],
        CALL => [Some(there(0)?), None],
        EXIT => [None, None],
        JA if insn.code & SOURCE_REGISTER != 0 => {
            return refuse("jumps to a computed address: compile without jump tables (-mcpu=v3)");
        }
        JA => [Some(there(if is_32 { insn.imm.into() } else { insn.offset.into() })?), None],
        JCOND => return refuse("is a loop (may_goto): nothing may be repeated"),
        _ => [Some(there(0)?), Some(there(insn.offset.into())?)],
    })
}
