// SPDX-License-Identifier: Apache-2.0
//! Alerts and recorded series as Prometheus 3.16 has them (docs/alerts.md).
//!
//! ```text
//! groups    whose turn it is, and what outlives a restart  ─► saved   the text of it
//!   group     its rules in order, at a time of its schedule
//!     alert     the alerts of a rule: pending, firing, resolved  ─► notice   what waits for an Alertmanager
//! ```
//!
//! Times, answers of queries and clocks are given ([`World`]); files, sockets and threads are others'. What is written
//! before anybody is told says [`Change`]: so a process that is killed at any time comes back with the alerts that
//! somebody has heard of, and with the time at which they fired.
#![forbid(unsafe_code)]

mod alert;
mod group;
mod groups;
mod notice;
mod saved;
mod schedule;
mod state;

pub use alert::{ALERT_NAME, ALERTS, ALERTS_FOR_STATE, Alert, Alerts, AlertsError, Change};
pub use alert::{Instance, OUTAGE_NS, RESEND_NS, RESOLVED_KEPT_NS, RESTORED_KEPT_NS, Terms};
pub use group::{Context, Counts, Group, Health, Outcome, Rule, Sample, World};
pub use groups::{Groups, Restored};
pub use notice::{BATCH, Notice, QUEUE, Queue, Sender, rfc3339};
pub use saved::{Saved, SavedError};
pub use state::State;
