// SPDX-License-Identifier: Apache-2.0
//! What a BPF object may do: a whitelist over its instructions. The verifier makes sure that programs are safe for the kernel; not that they end soon (it takes
//! `bpf_loop` of 2^23 rounds), leave packets alone, or answer with their own block only. This does, and is strict where that is simple:
//!
//! - no instruction runs twice, none calls functions of the object or of the kernel (kfuncs), or helpers but those that look at something;
//! - the context is for the tail call only: no loads, no stores, no copies of it, hence no packet;
//! - the responder's scratch is written at constant places, in the block's time and payload and behind the block;
//! - the only tail call is that to the slot that finishes an answer, and every other end drops the packet.
//!
//! What other maps hold is not followed: they are all the object's own ([`super::object`]).
//!
//! Programs are looked at twice: as they stand in the file (before the kernel sees them; maps have no numbers then), and as they were loaded, before they run. No I/O;
//! each instruction is looked at once, behind all that lead to it, since there are no loops.

mod helpers;
mod order;

use onlooker_responder::intf;

use helpers::{
    ALLOWED, Helper, MAP_LOOKUP, MAP_LOOKUP_PERCPU, OTHERS, PROBE_READ_KERNEL, PROBE_READ_KERNEL_STR, TAIL_CALL,
};
use order::{edges, order};

/// Instructions of a program.
pub const MAX_INSNS: usize = 4096;
/// Bytes that a program reads of the kernel's memory, all its reads together: with the instructions a bound for its time, whatever it finds there.
pub const MAX_READ_BYTES: i64 = 64 << 10;

/// An instruction (Documentation/bpf/standardization/instruction-set.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Insn {
    pub(super) code: u8,
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) offset: i16,
    pub(super) imm: i32,
}

/// The programs differ in what drops a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Tc,
    Xdp,
}

impl Side {
    /// TC_ACT_SHOT, XDP_DROP.
    fn drop(self) -> i64 {
        match self {
            Self::Tc => 2,
            Self::Xdp => 1,
        }
    }
}

/// Descriptors of the responder's maps, as instructions of loaded programs have them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Maps {
    pub(super) scratch: i32,
    /// `collectors_tc` or `collectors_xdp`.
    pub(super) collectors: i32,
}

// Classes, and parts of codes.
const LD: u8 = 0;
const LDX: u8 = 1;
const ST: u8 = 2;
const STX: u8 = 3;
const JMP: u8 = 5;
const JMP32: u8 = 6;
const ALU64: u8 = 7;
const LD_IMM64: u8 = 0x18;
const MODE: u8 = 0xe0;
const MODE_MEM: u8 = 0x60;
const MODE_MEMSX: u8 = 0x80;
const MODE_ATOMIC: u8 = 0xc0;
const SOURCE_REGISTER: u8 = 0x08;
const OPERATION: u8 = 0xf0;
const ADD: u8 = 0x00;
const MOV: u8 = 0xb0;
const JA: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const JCOND: u8 = 0xe0;
/// The stack pointer.
const FRAME: u8 = 10;
/// BPF_PSEUDO_MAP_FD, BPF_PSEUDO_MAP_VALUE, BPF_PSEUDO_BTF_ID.
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
const PSEUDO_BTF_ID: u8 = 3;

/// What libbpf makes of an instruction whose member this kernel has not: a call that nobody may come to, as the verifier makes sure (bpf_core_field_exists() before it).
const UNRESOLVED: i32 = 0x0bad_2310;

/// `struct onlooker_scratch`: where the block begins, and where it ends. As [`intf`] has them from the compiled programs, in the type of offsets here.
const BLOCK_AT: i64 = signed(intf::BLOCK_AT);
pub(super) const SCRATCH_BYTES: i64 = signed(intf::SCRATCH_BYTES);
const fn signed(bytes: usize) -> i64 {
    assert!(bytes < 1 << 31);
    bytes as i64
}
/// Word 1, words 3 to 126, and from two blocks behind the block's begin on.
const WRITABLE: [(i64, i64); 3] =
    [(BLOCK_AT + 8, BLOCK_AT + 16), (BLOCK_AT + 24, BLOCK_AT + 127 * 8), (BLOCK_AT + 2 * 1024, SCRATCH_BYTES)];

/// What is known of a value. Flags say what it may be; `exact` what it is for certain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Value {
    context: bool,
    frame: bool,
    scratch: bool,
    exact: Option<Exact>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exact {
    Constant(i64),
    /// Bytes from the scratch's begin.
    Scratch(i64),
    /// A map, by its descriptor.
    Map(i32),
}

impl Value {
    fn merge(self, other: Self) -> Self {
        Self {
            context: self.context || other.context,
            frame: self.frame || other.frame,
            scratch: self.scratch || other.scratch,
            exact: self.exact.filter(|exact| other.exact == Some(*exact)),
        }
    }

    fn is_followed(self) -> bool {
        self.context || self.frame || self.scratch
    }
}

/// Registers, and the stack in words from its end downwards.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    registers: [Value; 11],
    stack: [Value; STACK_WORDS],
}

const STACK_WORDS: usize = 64;

impl State {
    fn merge(&mut self, other: &Self) {
        for (value, other) in self.registers.iter_mut().zip(&other.registers) {
            *value = value.merge(*other);
        }
        for (value, other) in self.stack.iter_mut().zip(&other.stack) {
            *value = value.merge(*other);
        }
    }

    fn get(&self, register: u8) -> Value {
        self.registers.get(usize::from(register)).copied().unwrap_or_default()
    }

    fn set(&mut self, register: u8, value: Value) {
        if let Some(place) = self.registers.get_mut(usize::from(register)) {
            *place = value;
        }
    }
}

/// The word of the stack that an offset from its end names.
fn stack_word(offset: i16) -> Option<usize> {
    let below = usize::try_from(-i32::from(offset)).ok()?;
    (below > 0 && below.is_multiple_of(8)).then(|| below / 8 - 1).filter(|word| *word < STACK_WORDS)
}

/// Looks at a program. Without `maps` it is one that was not loaded yet. What no path leads to is left to the kernel, which refuses it.
///
/// # Errors
/// The instruction and what it does that it must not.
pub(super) fn inspect(insns: &[Insn], side: Side, maps: Option<Maps>) -> Result<(), String> {
    if insns.len() > MAX_INSNS {
        return Err(format!("has {} instructions: at most {MAX_INSNS}", insns.len()));
    }
    let mut begin = State { registers: [Value::default(); 11], stack: [Value::default(); STACK_WORDS] };
    begin.registers[1].context = true;
    begin.registers[usize::from(FRAME)].frame = true;
    let mut states: Vec<Option<State>> = vec![None; insns.len()];
    if let Some(first) = states.first_mut() {
        *first = Some(begin);
    }
    let mut read_bytes = 0;
    for index in order(insns)? {
        let (Some(mut state), Some(insn)) = (states[index].take(), insns.get(index)) else { continue };
        let looker = Looker { insn: *insn, side, maps };
        read_bytes += looker.step(&mut state).map_err(|reason| explain(index, &reason))?;
        if read_bytes > MAX_READ_BYTES {
            let reason = format!("makes it {read_bytes} bytes that are read: at most {MAX_READ_BYTES} together");
            return Err(explain(index, &reason));
        }
        for to in edges(insns, index)?.into_iter().flatten() {
            match &mut states[to] {
                Some(there) => there.merge(&state),
                there => *there = Some(state.clone()),
            }
        }
    }
    Ok(())
}

fn explain(index: usize, reason: &str) -> String {
    format!("instruction {index} {reason}")
}

/// One instruction.
struct Looker {
    insn: Insn,
    side: Side,
    maps: Option<Maps>,
}

impl Looker {
    /// Takes the step; gives the bytes of the kernel's memory that it reads.
    fn step(&self, state: &mut State) -> Result<i64, String> {
        let Insn { code, .. } = self.insn;
        match (code & 7, code & OPERATION) {
            (LD, _) => self.load_wide(state)?,
            (LDX, _) => self.load(state)?,
            (ST | STX, _) => self.store(state)?,
            (JMP, CALL) => return self.call(state),
            (JMP, EXIT) => self.exit(state)?,
            (JMP | JMP32, _) => {}
            _ => self.compute(state),
        }
        Ok(0)
    }

    fn load_wide(&self, state: &mut State) -> Result<(), String> {
        let Insn { code, dst, src, imm, .. } = self.insn;
        if code != LD_IMM64 {
            return Err("reads the packet (BPF_LD): that is not a collector's".into());
        }
        if self.maps.is_none() && src != 0 {
            // What libbpf relocates is 0 in a file; anything else would reach whatever the loader has open under that number.
            return Err("names a map or a function by a number: only the loader may".into());
        }
        let exact = match src {
            // In a file, what is to be relocated is 0 like this, too.
            0 => None,
            PSEUDO_MAP_FD => Some(Exact::Map(imm)),
            PSEUDO_MAP_VALUE | PSEUDO_BTF_ID => None,
            other => return Err(format!("takes the address of a function or of something unknown (kind {other})")),
        };
        state.set(dst, Value { exact, ..Value::default() });
        Ok(())
    }

    fn load(&self, state: &mut State) -> Result<(), String> {
        let Insn { code, dst, src, offset, .. } = self.insn;
        if ![MODE_MEM, MODE_MEMSX].contains(&(code & MODE)) {
            return Err(format!("is unknown (code {code:#x})"));
        }
        let from = state.get(src);
        if from.context {
            return Err("reads its context: the packet and its device are not a collector's".into());
        }
        let value = if src == FRAME {
            stack_word(offset).map_or_else(Value::default, |word| state.stack[word])
        } else if from.frame {
            // Some word of the stack.
            let any = state.stack.iter().copied().reduce(Value::merge).unwrap_or_default();
            Value { exact: None, ..any }
        } else {
            Value::default()
        };
        state.set(dst, value);
        Ok(())
    }

    fn store(&self, state: &mut State) -> Result<(), String> {
        let Insn { code, dst, src, offset, imm } = self.insn;
        let (is_atomic, is_register) = (code & MODE == MODE_ATOMIC, code & 7 == STX);
        if !is_atomic && code & MODE != MODE_MEM {
            return Err(format!("is unknown (code {code:#x})"));
        }
        let (to, value) = (state.get(dst), if is_register { state.get(src) } else { Value::default() });
        if to.context {
            return Err("writes through its context: the packet and its device are not a collector's".into());
        }
        let bytes = match code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        };
        self.check_written(to, i64::from(offset), bytes)?;
        if dst == FRAME
            && bytes == 8
            && !is_atomic
            && let Some(word) = stack_word(offset)
        {
            state.stack[word] = Value { exact: value.exact.filter(|_| value.scratch), ..value };
            return Ok(());
        }
        if value.is_followed() {
            return Err(
                "keeps its context, or the address of its stack or of the scratch, where it cannot be followed".into(),
            );
        }
        if is_atomic {
            // A fetch would bring back what was put there, which nobody followed.
            if to.frame {
                return Err("is an atomic operation on the stack: nobody else sees that, use a plain one".into());
            }
            // ADD, OR, AND, XOR and with FETCH; XCHG; CMPXCHG.
            match imm {
                0x00 | 0x40 | 0x50 | 0xa0 => {}
                0x01 | 0x41 | 0x51 | 0xa1 | 0xe1 => state.set(src, Value::default()),
                0xf1 => state.set(0, Value::default()),
                other => return Err(format!("is an unknown atomic operation ({other:#x})")),
            }
        }
        Ok(())
    }

    /// `bytes` bytes are written `offset` behind a pointer: of the scratch only its block.
    fn check_written(&self, to: Value, offset: i64, bytes: i64) -> Result<(), String> {
        if !to.scratch || self.maps.is_none() {
            return Ok(());
        }
        let Some(Exact::Scratch(at)) = to.exact else {
            return Err("writes to the scratch at a place that is no constant: give slots constant numbers".into());
        };
        let (begin, end) = (at + offset, at + offset + bytes);
        if WRITABLE.iter().any(|(from, until)| begin >= *from && end <= *until) {
            return Ok(());
        }
        let word = (begin - BLOCK_AT).div_euclid(8);
        Err(format!(
            "writes {bytes} bytes to the scratch outside of the block's time and payload (word {word} of the block)"
        ))
    }

    fn compute(&self, state: &mut State) {
        let Insn { code, dst, src, offset, imm } = self.insn;
        let is_register = code & SOURCE_REGISTER != 0;
        let operand = if is_register { state.get(src) } else { Value::default() };
        let before = state.get(dst);
        let is_64 = code & 7 == ALU64;
        let value = match code & OPERATION {
            // Sign extensions and other moves have an offset.
            MOV if is_register => Value { exact: operand.exact.filter(|_| is_64 && offset == 0), ..operand },
            MOV => {
                let constant = if is_64 { i64::from(imm) } else { i64::from(imm.cast_unsigned()) };
                Value { exact: Some(Exact::Constant(constant)), ..Value::default() }
            }
            ADD if is_64 && !is_register => match before.exact {
                Some(Exact::Scratch(at)) => Value { exact: Some(Exact::Scratch(at + i64::from(imm))), ..before },
                _ => Value { exact: None, ..before },
            },
            _ => Value { exact: None, ..before.merge(operand) },
        };
        state.set(dst, value);
    }

    fn exit(&self, state: &State) -> Result<(), String> {
        let drop = self.side.drop();
        if state.get(0).exact == Some(Exact::Constant(drop)) {
            return Ok(());
        }
        Err(format!(
            "ends the program with something else than {drop}, which drops the packet: end with collector_refuse_tc() or collector_refuse_xdp()"
        ))
    }

    fn call(&self, state: &mut State) -> Result<i64, String> {
        let Insn { code, src, imm, .. } = self.insn;
        if code & SOURCE_REGISTER != 0 {
            return Err("calls a function by its address".into());
        }
        match src {
            0 => {}
            1 => return Err("calls a function of its own, or of the kernel (kfunc): mark functions static __always_inline; kfuncs are not for collectors".into()),
            _ => return Err("calls a function of the kernel (kfunc): not for collectors".into()),
        }
        if imm == UNRESOLVED {
            return Ok(0);
        }
        let Some(helper) = ALLOWED.iter().find(|helper| helper.number == imm) else {
            let name = OTHERS
                .iter()
                .find(|(number, _)| *number == imm)
                .map_or(String::new(), |(_, name)| format!(" (bpf_{name})"));
            let allowed: Vec<&str> = ALLOWED.iter().map(|helper| helper.name).collect();
            return Err(format!(
                "calls helper {imm}{name}, which is not on the list of those that only look: {}",
                allowed.join(", ")
            ));
        };
        let arguments = (1..=helper.arguments).map(|register| state.get(register));
        let spared = usize::from(helper.number == TAIL_CALL);
        if arguments.clone().skip(spared).any(|argument| argument.context) {
            return Err(format!("gives its context to bpf_{}: it is for the tail call only", helper.name));
        }
        let (mut result, mut read_bytes) = (Value::default(), 0);
        if let Some(maps) = self.maps {
            result = self.check_maps(helper, state, maps)?;
            if [PROBE_READ_KERNEL, PROBE_READ_KERNEL_STR].contains(&helper.number) {
                read_bytes = self.check_read(state)?;
            }
        }
        for register in 1..=5 {
            state.set(register, Value::default());
        }
        state.set(0, result);
        Ok(read_bytes)
    }

    /// Maps that helpers are given in a loaded program; gives what they return.
    fn check_maps(&self, helper: &Helper, state: &State, maps: Maps) -> Result<Value, String> {
        let map = |register| match state.get(register).exact {
            Some(Exact::Map(map)) => Ok(map),
            _ => Err(format!("gives bpf_{} a map that cannot be told: name it in the call", helper.name)),
        };
        let first_slot = state.get(3).exact == Some(Exact::Constant(0));
        if helper.number == TAIL_CALL && (map(2)? != maps.collectors || !first_slot) {
            return Err("makes a tail call to something else than the slot that finishes an answer: use COLLECTOR_FINISH with the side's own table".into());
        }
        match helper.number {
            MAP_LOOKUP if map(1)? == maps.scratch => {
                Ok(Value { scratch: true, exact: Some(Exact::Scratch(0)), ..Value::default() })
            }
            MAP_LOOKUP_PERCPU if map(1)? == maps.scratch => Err("looks up another CPU's scratch".into()),
            _ => Ok(Value::default()),
        }
    }

    /// A read of the kernel's memory; gives its bytes.
    fn check_read(&self, state: &State) -> Result<i64, String> {
        match state.get(2).exact {
            Some(Exact::Constant(bytes)) if bytes >= 0 => {
                self.check_written(state.get(1), 0, bytes)?;
                Ok(bytes)
            }
            _ => Err("reads a number of bytes that is no constant".into()),
        }
    }
}

#[cfg(test)]
mod tests;
