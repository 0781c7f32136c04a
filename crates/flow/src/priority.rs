// SPDX-License-Identifier: Apache-2.0
//! Who is first where not all can be read in time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of a flow: those before it are served first, whatever that leaves. `priority` in files and over HTTP:
/// `high`, `normal`, `low`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    /// Before all others.
    High,
    /// In between.
    #[default]
    Normal,
    /// With what the others leave, which may be nothing.
    Low,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 3;
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_word_and_a_mistake_names_them_all() {
        for (priority, word) in [(Priority::High, "high"), (Priority::Normal, "normal"), (Priority::Low, "low")] {
            assert_eq!(priority.to_string(), word);
            assert_eq!(serde_json::from_value::<Priority>(word.into()).unwrap(), priority);
        }
        let error = serde_json::from_value::<Priority>("urgent".into()).unwrap_err().to_string();
        assert!(["`urgent`", "`high`", "`normal`", "`low`"].iter().all(|word| error.contains(word)), "{error}");
    }
}
