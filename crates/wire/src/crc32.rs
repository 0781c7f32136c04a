// SPDX-License-Identifier: Apache-2.0
//! CRC-32 with the polynomial that the ICRC, the Ethernet FCS and our block checksums share (IBA 7.8.1, IEEE 802.3 3.2.9).
//!
//! Slicing by 16: one table look-up a byte, sixteen of them independent of each other. A [`Shift`] joins the CRC of bytes
//! already summed, so that a responder can take over a block's own checksum instead of reading the block again.
//! Cost: 16 KiB of tables for [`Crc32::update`], 4 KiB for each [`Shift`]. With the feature `simd`, `crc32fast` takes the
//! place of the former: worth it in a requester, which checks every block that it reads.

/// The polynomial 0x04c11db7, least significant bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// `TABLES[k][b]`: byte `b` followed by `k` zero bytes, through the register.
#[cfg(any(test, not(feature = "simd")))]
static TABLES: [[u32; 256]; 16] = tables();

/// Joins the CRC of 1024 bytes: a whole block.
pub static SHIFT_BLOCK: Shift = Shift::new(1024);

/// Joins the CRC of 1016 bytes: a guarded block up to its last word, which holds that CRC.
pub static SHIFT_GUARDED: Shift = Shift::new(1016);

/// A CRC-32 in progress. `Crc32::new().update(bytes)` then [`Crc32::finish`] equals zlib's `crc32(0, bytes)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc32 {
    register: u32,
}

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

impl Crc32 {
    /// The CRC of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { register: u32::MAX }
    }

    /// Continues from a CRC that [`Crc32::finish`] gave.
    #[must_use]
    pub const fn resume(crc: u32) -> Self {
        Self { register: !crc }
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        #[cfg(feature = "simd")]
        {
            let mut hasher = crc32fast::Hasher::new_with_initial(self.finish());
            hasher.update(bytes);
            *self = Self::resume(hasher.finalize());
        }
        #[cfg(not(feature = "simd"))]
        {
            self.register = slicing(self.register, bytes);
        }
    }

    /// Appends bytes of which only the CRC is known: `crc` over exactly the length that `shift` was made for.
    pub fn append(&mut self, shift: &Shift, crc: u32) {
        // crc(A || B) = shift(crc(A)) ^ crc(B): the complements before and after cancel out.
        *self = Self::resume(shift.apply(!self.register) ^ crc);
    }

    /// The CRC of everything appended.
    #[must_use]
    pub const fn finish(self) -> u32 {
        !self.register
    }
}

/// Runs `bytes` through the register, 16 at a time.
#[cfg(any(test, not(feature = "simd")))]
fn slicing(mut register: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<16>();
    for chunk in chunks {
        let mut mixed = *chunk;
        for (byte, add) in mixed.iter_mut().zip(register.to_le_bytes()) {
            *byte ^= add;
        }
        register = 0;
        for (byte, table) in mixed.iter().zip(TABLES.iter().rev()) {
            register ^= table[usize::from(*byte)];
        }
    }
    for byte in rest {
        register = (register >> 8) ^ TABLES[0][usize::from(register.to_le_bytes()[0] ^ byte)];
    }
    register
}

/// What a fixed number of zero bytes does to a CRC register, as four look-ups: see [`Crc32::append`].
#[derive(Debug)]
pub struct Shift([[u32; 256]; 4]);

impl Shift {
    /// For pieces of `length_bytes`. Meant for statics: 1024 multiplications of polynomials.
    #[must_use]
    pub const fn new(length_bytes: u64) -> Self {
        let power = zero_bytes(length_bytes);
        let mut tables = [[0; 256]; 4];
        let mut place = 0;
        while place < 4 {
            let mut byte: u32 = 0;
            while byte < 256 {
                tables[place][byte as usize] = multiply(power, byte << (8 * place));
                byte += 1;
            }
            place += 1;
        }
        Self(tables)
    }

    const fn apply(&self, register: u32) -> u32 {
        let [a, b, c, d] = register.to_le_bytes();
        self.0[0][a as usize] ^ self.0[1][b as usize] ^ self.0[2][c as usize] ^ self.0[3][d as usize]
    }
}

/// Product of two polynomials modulo the CRC's; bit 31 is the coefficient of 1.
const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a >> 31 == 1 {
            product ^= b;
        }
        a <<= 1;
        b = (b >> 1) ^ if b & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

/// x^(8 * count) modulo the CRC's polynomial: the factor that `count` zero bytes multiply a register by.
const fn zero_bytes(mut count: u64) -> u32 {
    let mut result = 1 << 31;
    let mut square = 1 << 23;
    while count != 0 {
        if count & 1 == 1 {
            result = multiply(result, square);
        }
        square = multiply(square, square);
        count >>= 1;
    }
    result
}

#[cfg(any(test, not(feature = "simd")))]
const fn tables() -> [[u32; 256]; 16] {
    let mut tables = [[0; 256]; 16];
    let mut zeros = 0;
    while zeros < 16 {
        let power = zero_bytes(zeros as u64 + 1);
        let mut byte: u32 = 0;
        while byte < 256 {
            tables[zeros][byte as usize] = multiply(power, byte);
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc32::new();
        crc.update(bytes);
        crc.finish()
    }

    #[test]
    fn check_value() {
        // The value that every catalogue of CRCs gives for CRC-32/ISO-HDLC.
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc(b""), 0);
    }

    #[test]
    fn slicing_agrees_with_crc32fast() {
        let bytes: [u8; 256] = core::array::from_fn(|index| (index * 37 + 11).to_le_bytes()[0]);
        for start in 0..16 {
            for end in start..bytes.len() {
                let piece = &bytes[start..end];
                assert_eq!(!slicing(u32::MAX, piece), crc32fast::hash(piece), "bytes {start} to {end}");
            }
        }
    }

    #[test]
    fn known_crc_joins_as_if_its_bytes_were_read() {
        let bytes: [u8; 1100] = core::array::from_fn(|index| (index * 7 + index / 256).to_le_bytes()[0]);
        let (head, block) = bytes.split_at(76);
        let mut joined = Crc32::new();
        joined.update(head);
        joined.append(&SHIFT_BLOCK, crc(block));
        assert_eq!(joined.finish(), crc(&bytes));

        let mut guarded = Crc32::resume(crc(head));
        guarded.append(&SHIFT_GUARDED, crc(&block[..1016]));
        guarded.update(&block[1016..]);
        assert_eq!(guarded, joined);
    }
}
