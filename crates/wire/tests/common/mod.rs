// SPDX-License-Identifier: Apache-2.0
//! Random packets, and a second, plain parser to hold the crate's against.

pub(crate) mod reference;
pub(crate) mod shape;
