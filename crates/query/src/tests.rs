// SPDX-License-Identifier: Apache-2.0
//! The source over a real store.

mod ends;
pub(crate) mod fixture;
mod lanes;
mod names;
mod native;
mod newest;
mod recorded;
mod shared;
mod window;
