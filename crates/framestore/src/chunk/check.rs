// SPDX-License-Identifier: Apache-2.0
//! Whether a chunk is right in all that it has: for those who look for damage before somebody wants what is damaged.
//!
//! Cost: that of decoding every column, in one pass.

use super::{CONSTANT, Chunk, VARIES, check_front, list, statistics};
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
        let (mut in_body, mut constant, mut start) = (Vec::new(), Vec::new(), 0);
        for column in 0..self.head.columns {
            let kind = self.what(column)?.kind();
            if self.bit(VARIES, column) {
                let (end, sum) = self.entry(in_body.len());
                let bytes = self.body.get(start..end).ok_or(Damage::Wrong("where a column is"))?;
                if crc32c::crc32c(bytes) != sum {
                    return Err(Damage::Checksum);
                }
                words.clear();
                let rest = column::decode(bytes, self.head.rows, &self.runs, words)?;
                is(rest.is_empty(), "the end of a column")?;
                in_body.push(kind);
                start = end;
            } else if self.bit(CONSTANT, column) {
                constant.push(kind);
            }
        }
        let rest = list::each(self.constants, constant.len(), |number, input| {
            statistics::take_word(constant[number], input).map(|_| ())
        });
        is(rest?.is_empty(), "the end of constants")?;
        let rest = list::each(self.statistics, in_body.len(), |number, input| {
            statistics::take(in_body[number], input).map(|_| ())
        });
        let rest = rest?;
        is(rest.len() < 8 && rest.iter().all(|byte| *byte == 0), "the end of statistics")
    }
}

fn is(holds: bool, otherwise: &'static str) -> Result<(), Damage> {
    if holds { Ok(()) } else { Err(Damage::Wrong(otherwise)) }
}
