// SPDX-License-Identifier: Apache-2.0
//! The one place that writes to standard output and standard error.

use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};

/// Standard output, locked and buffered. Flush it, or its last lines are lost unseen.
pub(crate) fn stdout() -> BufWriter<StdoutLock<'static>> {
    BufWriter::with_capacity(64 * 1024, io::stdout().lock())
}

/// A line on standard error. Nothing can be done where that fails.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "onlooker: {text}");
}

/// A foreign text for people's eyes: control characters (a terminal obeys them) and what reorders text are escaped.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let hidden = c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if hidden {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Columns of text, aligned; the last one is not padded.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// With headings; those that begin with `>` are aligned to the right.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let first = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![first], right }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.right.len());
        self.rows.push(cells);
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&self.right) {
                let _ = match right {
                    true => write!(line, "{cell:>width$}  "),
                    false => write!(line, "{cell:<width$}  "),
                };
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let mut table = Table::new(&["METRIC", ">VALUE", "AGE"]);
        table.row(vec!["a".into(), "1".into(), "x".into()]);
        table.row(vec!["longer\u{e9}".into(), "123456".into(), String::new()]);
        let mut out = Vec::new();
        table.write(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "METRIC    VALUE  AGE\na             1  x\nlonger\u{e9}  123456\n");
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(shown("a\x1b[2J\n\u{9b}\u{202e}b\u{e4}"), "a\\u{1b}[2J\\n\\u{9b}\\u{202e}b\u{e4}");
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(!shown(text).chars().any(char::is_control));
        });
    }
}
