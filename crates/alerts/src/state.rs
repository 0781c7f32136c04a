// SPDX-License-Identifier: Apache-2.0
//! How an alert is: pending, firing or inactive.

/// How an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has fired, and does no more.
    Inactive,
    /// Its expression gives it, for less time than is wanted.
    Pending,
    /// It fires.
    Firing,
}

impl State {
    /// As Prometheus calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}
