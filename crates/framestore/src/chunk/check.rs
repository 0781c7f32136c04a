// SPDX-License-Identifier: Apache-2.0
//! Whether a chunk is right in all that it has: for those who look for damage before somebody wants what is damaged.
//!
//! Cost: that of decoding every column, in one pass.

use super::{Chunk, VARIES, check_front};
use crate::column;
use crate::damage::Damage;

impl Chunk<'_> {
    /// Decodes all of a whole chunk, against its own checksums. Returns how many words its rows have.
    ///
    /// # Errors
    /// [`Damage`].
    pub(crate) fn check(bytes: &[u8]) -> Result<u64, Damage> {
        let chunk = Chunk::parse(bytes)?;
        check_front(&bytes[..chunk.head.front_bytes])?;
        let mut words = Vec::new();
        chunk.times(&mut words)?;
        let span = chunk.head.from_ns..=chunk.head.to_ns;
        if !words.iter().all(|time_ns| span.contains(time_ns)) {
            return Err(Damage::Wrong("the time of a row"));
        }
        chunk.check_columns(&mut words)?;
        Ok((chunk.head.rows * chunk.head.columns) as u64)
    }

    fn check_columns(&self, words: &mut Vec<u64>) -> Result<(), Damage> {
        let (mut number, mut start) = (0, 0);
        for column in 0..self.head.columns {
            if self.bit(VARIES, column) {
                let (end, sum) = self.entry(number);
                let bytes = self.body.get(start..end).ok_or(Damage::Wrong("where a column is"))?;
                if crc32c::crc32c(bytes) != sum {
                    return Err(Damage::Checksum);
                }
                words.clear();
                column::decode(bytes, self.head.rows, &self.runs, words)?;
                self.statistics(column)?;
                (number, start) = (number + 1, end);
            } else {
                self.constant(column)?;
            }
        }
        Ok(())
    }
}
