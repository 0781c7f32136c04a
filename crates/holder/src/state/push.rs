// SPDX-License-Identifier: Apache-2.0
//! Writing changes of the control region to readers' copies of it.
//!
//! A reader relies on none of this: it knows by the blocks themselves whether they are what the header says, and reads
//! the others. So a push that finds no room is left out, and nothing is kept of it.

use onlooker_region::limits::BLOCK_BYTES;

use super::{Connected, Core, Held, Opened, Owner, Write, bad_request, no_device};
use crate::protocol::{Code, ControlCopy, Counters, MAX_RANGES, Pushed, Refusal, check_name};

/// Longest range of a push. A message of a reliable connection has at most 2^31 bytes (IBA 9.3).
const MAX_RANGE_BYTES: u64 = 1 << 30;

/// Where a reader has its copy.
pub(super) struct Copied {
    pub(super) at: ControlCopy,
    /// WRITEs that may be put under way now.
    pub(super) room: usize,
}

impl<D: Owner> Opened<D> {
    /// Copies that are written to.
    pub(super) fn copies(&self) -> u64 {
        self.pairs.iter().filter(|connected| connected.copy.is_some()).count() as u64
    }
}

impl<P> Connected<P> {
    /// It is in error, and stays so.
    pub(super) fn fail(&mut self) {
        self.is_failed = true;
        self.copy = None;
    }

    fn push<D: Owner<Pair = P>>(
        &mut self,
        device: &D,
        held: &Held<D::Memory>,
        (base, ranges): (u64, &[(u64, u64)]),
        counters: &mut Counters,
    ) {
        let Some(Copied { at, room }) = &mut self.copy else { return };
        let fitting: Vec<(u64, u32)> = ranges.iter().filter_map(|range| clipped(*range, at.bytes)).collect();
        counters.ranges_clipped += ranges.iter().filter(|(offset, bytes)| offset + bytes > at.bytes).count() as u64;
        if fitting.len() > *room {
            counters.pushes_missed += 1;
            return;
        }
        for (offset, bytes) in fitting {
            let (va, rkey) = (at.va + offset, at.rkey);
            let write = Write { id: self.serial, offset: base + offset, bytes, va, rkey };
            if device.write(&mut self.pair, &held.memory, &write).is_err() {
                counters.pushes_failed += 1;
                self.fail();
                return;
            }
            *room -= 1;
        }
        counters.pushes += 1;
    }
}

impl<D: Owner> Core<D> {
    pub(super) fn push(&mut self, name: &str, base: u64, ranges: &[(u64, u64)]) -> Result<Pushed, Refusal> {
        check_name(name)?;
        self.take_written()?;
        let opened = self.opened.as_mut().ok_or_else(no_device)?;
        let Opened { pairs, registered, device, .. } = opened;
        let Some(held) = registered.get(name) else {
            let message = format!("pushing of {name}: nothing is registered by that name; hello tells what is");
            return Err(Refusal::new(Code::Unknown, message));
        };
        check_ranges(base, ranges, held.bytes)?;
        for connected in pairs {
            connected.push(device, held, (base, ranges), &mut self.counters);
        }
        Ok(Pushed { copies: opened.copies() })
    }

    /// Takes what has become of WRITEs.
    pub(super) fn take_written(&mut self) -> Result<(), Refusal> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let mut ended = Vec::new();
        opened.device.written(&mut ended)?;
        for (serial, is_done) in ended {
            let connected = opened.pairs.iter_mut().find(|connected| connected.serial == serial);
            match connected {
                Some(Connected { copy: Some(copied), .. }) if is_done => copied.room += 1,
                Some(connected) if connected.copy.is_some() => {
                    self.counters.pushes_failed += 1;
                    connected.fail();
                }
                // Of one that has ended, or failed before.
                _ => {}
            }
        }
        Ok(())
    }
}

/// What of a range a copy of so many bytes has; whole words.
fn clipped((offset, bytes): (u64, u64), copy_bytes: u64) -> Option<(u64, u32)> {
    let left = copy_bytes.checked_sub(offset).filter(|left| *left > 0)?;
    u32::try_from(bytes.min(left)).ok().map(|bytes| (offset, bytes))
}

/// Whether it can be one. Whether the reader has it there its device says.
pub(super) fn check_copy(copy: &ControlCopy) -> Result<(), Refusal> {
    let ControlCopy { va, bytes, .. } = *copy;
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) || va.checked_add(bytes).is_none() {
        let message = format!("a copy of {bytes} bytes at {va:#x}: whole blocks, at least one, below 2^64 are wanted");
        return Err(bad_request(message));
    }
    Ok(())
}

fn check_ranges(base: u64, ranges: &[(u64, u64)], held_bytes: u64) -> Result<(), Refusal> {
    if ranges.is_empty() || ranges.len() > MAX_RANGES {
        let got = ranges.len();
        return Err(bad_request(format!("a push of {got} ranges: 1 to {MAX_RANGES} are taken, send several")));
    }
    for (offset, bytes) in ranges {
        let end = base.checked_add(*offset).and_then(|begin| begin.checked_add(*bytes));
        let is_whole = *bytes > 0 && bytes.is_multiple_of(8) && offset.is_multiple_of(8) && base.is_multiple_of(8);
        if !is_whole || *bytes > MAX_RANGE_BYTES || end.is_none_or(|end| end > held_bytes) {
            let message = format!(
                "pushing {bytes} bytes at {base} + {offset}: whole words, at most {MAX_RANGE_BYTES} bytes, \
                 within the {held_bytes} that are registered are wanted"
            );
            return Err(bad_request(message));
        }
    }
    Ok(())
}
