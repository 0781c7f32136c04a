// SPDX-License-Identifier: Apache-2.0
//! The loaded programs on packets, by bpf_prog_test_run: no device, no namespace, but the real verifier, maps and memory. Needs root.

#[path = "../support/mod.rs"]
mod support;

mod computed;
mod limits;
mod named;
mod oracle;
mod roce;
mod sequences;
mod tables;
mod verifier;
