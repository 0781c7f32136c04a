// SPDX-License-Identifier: Apache-2.0
//! Who is read when ([`Schedule`]), how many bytes may be in flight ([`Credits`]), how many are ([`InFlight`]), and who
//! is asked next for more ([`Line`]).
//!
//! Functions of what they are told and of the time given to them: no clock, no socket, no thread, so that thousands of
//! hosts can be simulated with the code that runs. One owner, the I/O thread. Cost: logarithmic in the number of flows
//! for a cycle begun or ended, a few additions for a READ.
#![forbid(unsafe_code)]

mod credits;
mod growth;
mod in_flight;
mod line;
mod priority;
mod schedule;

pub use credits::{Credits, FRAGMENT_BYTES, Limits, Sharing};
pub use in_flight::{Credit, InFlight, Room, Took};
pub use line::{Line, Served};
pub use priority::Priority;
pub use schedule::{Due, Ending, FlowId, Phases, Schedule};
