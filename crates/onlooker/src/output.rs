// SPDX-License-Identifier: Apache-2.0
//! The one place that writes to standard output and standard error.

use std::fmt::Write as _;
use std::io::{self, BufWriter, StdoutLock, Write};
use std::time::{Duration, Instant};

use rustix::termios::isatty;

/// Standard output, locked and buffered. Flush it, or its last lines are lost unseen. On a terminal nothing in it steers that; in a file or pipe
/// every byte is as it is written.
pub(crate) fn stdout() -> Harmless<BufWriter<StdoutLock<'static>>> {
    let is_terminal = isatty(io::stdout());
    Harmless { to: BufWriter::with_capacity(64 * 1024, io::stdout().lock()), is_terminal }
}

/// A line on standard error. Nothing can be done where that fails. Agents' words may be in it.
pub(crate) fn note(text: &str) {
    let text = text.lines().map(shown).collect::<Vec<_>>().join("\n");
    let _ = writeln!(io::stderr().lock(), "onlooker: {text}");
}

/// Replaces what a terminal would obey by U+FFFD, if it is one: formats for machines carry programs' texts as they are. Each write must be
/// whole characters.
#[derive(Debug)]
pub(crate) struct Harmless<W> {
    to: W,
    is_terminal: bool,
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_terminal {
            return self.to.write(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let harmless = |c| if c != '\n' && steers(c) { char::REPLACEMENT_CHARACTER } else { c };
        self.to.write_all(text.chars().map(harmless).collect::<String>().as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Control characters, which a terminal obeys, and what reorders or hides text.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// A foreign text for people's eyes: what steers a terminal, reorders or hides text is escaped.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if steers(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// A line on standard error that says how far something is, and is written over; nothing where that is no terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    is_shown: bool,
    last: Option<Instant>,
}

impl Progress {
    /// Between two lines.
    const PAUSE: Duration = Duration::from_millis(200);

    pub(crate) fn new() -> Self {
        Self { is_shown: isatty(io::stderr()), last: None }
    }

    /// Shows a line, unless the one before was just now.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        if self.is_shown && self.last.is_none_or(|last| last.elapsed() >= Self::PAUSE) {
            self.last = Some(Instant::now());
            let _ = write!(io::stderr().lock(), "\r{}\x1b[K", shown(&line()));
        }
    }

    /// Takes it away, so that other lines can be written.
    pub(crate) fn clear(&mut self) {
        if self.last.take().is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
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
    fn a_terminal_is_not_steered_and_a_file_gets_every_byte() {
        let written = |is_terminal| {
            let mut out = Harmless { to: Vec::new(), is_terminal };
            writeln!(out, "a{{b=\"\x1b]0;x\x07\u{9b}2J\u{202e}\u{4e2d}\"}} 1").unwrap();
            String::from_utf8(out.to).unwrap()
        };
        assert_eq!(written(true), "a{b=\"\u{fffd}]0;x\u{fffd}\u{fffd}2J\u{fffd}\u{4e2d}\"} 1\n");
        assert_eq!(written(false), "a{b=\"\x1b]0;x\x07\u{9b}2J\u{202e}\u{4e2d}\"} 1\n");
    }

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        assert_eq!(shown("a\x1b[2J\n\u{9b}\u{202e}b\u{e4}"), "a\\u{1b}[2J\\n\\u{9b}\\u{202e}b\u{e4}");
        bolero::check!().with_type::<String>().for_each(|text| {
            assert!(!shown(text).chars().any(char::is_control));
        });
    }
}
