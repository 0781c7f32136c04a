// SPDX-License-Identifier: Apache-2.0
//! The HTTP interface of a real controller over a real agent.
#![allow(clippy::print_stdout)] // figures

mod many;
mod openapi;
mod search;
mod tls;
