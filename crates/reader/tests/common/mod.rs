// SPDX-License-Identifier: Apache-2.0
//! Hosts for tests: their memory, their responder and their endpoint, honest and lying.
#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses a part of it")]

pub mod endpoint;
pub mod memory;
pub mod stream;

pub use endpoint::{Identity, endpoint, plain_token, read_message, secret};
pub use stream::{answer_stream, responder, responder_at, serve, serve_at};
