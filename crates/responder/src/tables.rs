// SPDX-License-Identifier: Apache-2.0
//! The CRC tables of the BPF programs, computed from the wire crate's CRC, so that there is one CRC in the project.

use onlooker_wire::Crc32;
use onlooker_wire::crc32::SHIFT_GUARDED;

/// As `bpf/crc.h` wants them.
#[derive(Debug, Clone)]
pub struct CrcTables {
    /// `slices[k][b]`: byte `b` followed by `k` zero bytes, through the register.
    pub slices: [[u32; 256]; 16],
    /// A register moved past the 1016 bytes of a guarded block that its CRC covers, byte by byte of the register.
    pub shift_guarded: [[u32; 256]; 4],
}

/// Computes the tables: 20 KiB, 100 us.
#[must_use]
pub fn crc_tables() -> CrcTables {
    let mut tables = CrcTables { slices: [[0; 256]; 16], shift_guarded: [[0; 256]; 4] };
    for byte in 0..=u8::MAX {
        for (zeros, table) in tables.slices.iter_mut().enumerate() {
            // A CRC of all ones is a register of zero.
            let mut crc = Crc32::resume(u32::MAX);
            crc.update(&[byte]);
            crc.update(&[0; 15][..zeros]);
            table[usize::from(byte)] = !crc.finish();
        }
        for (place, table) in tables.shift_guarded.iter_mut().enumerate() {
            let mut register = Crc32::resume(u32::from(byte) << (8 * place));
            register.append(&SHIFT_GUARDED, 0);
            table[usize::from(byte)] = register.finish();
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The register after `bytes`, by the first table alone.
    fn bytewise(tables: &CrcTables, mut register: u32, bytes: &[u8]) -> u32 {
        for byte in bytes {
            register = (register >> 8) ^ tables.slices[0][usize::from(register.to_le_bytes()[0] ^ byte)];
        }
        register
    }

    #[test]
    fn tables_are_those_of_the_polynomial() {
        let tables = crc_tables();
        assert_eq!(!bytewise(&tables, u32::MAX, b"123456789"), 0xcbf4_3926);
        let mut bytes = [0; 16];
        for (index, byte) in (0u8..16).enumerate() {
            bytes[index] = byte.wrapping_mul(37).wrapping_add(5);
        }
        let sliced = (0..16).fold(0, |sum, index| sum ^ tables.slices[15 - index][usize::from(bytes[index])]);
        assert_eq!(sliced, bytewise(&tables, 0, &bytes));
        let register: u32 = 0xdead_beef;
        let shifted = register
            .to_le_bytes()
            .iter()
            .zip(&tables.shift_guarded)
            .fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
        assert_eq!(shifted, bytewise(&tables, register, &[0; 1016]));
    }
}
