// SPDX-License-Identifier: Apache-2.0
//! What is wrong in a rule file, and where.

use std::fmt;

/// A mistake in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line of the file, from 1; 0: it is about the file as a whole.
    pub line: usize,
    /// Character of that line, from 1; 0 without a line.
    pub column: usize,
    /// Which rule, as `group "node", rule 2, "DiskFull"`; empty: it is about no rule or group.
    pub of: String,
    /// What is wrong.
    pub text: String,
    /// The text that it is about; empty: there is none.
    pub offending: String,
}

/// `LINE:COLUMN: RULE: TEXT: OFFENDING`.
impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}: ", self.line, self.column)?;
        }
        if !self.of.is_empty() {
            write!(f, "{}: ", self.of)?;
        }
        f.write_str(&self.text)?;
        if !self.offending.is_empty() {
            write!(f, ": {}", self.offending)?;
        }
        Ok(())
    }
}
