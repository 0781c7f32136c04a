// SPDX-License-Identifier: Apache-2.0
//! Users' collectors: checked, installed, read by READs through the loaded programs (bpf_prog_test_run), and refused. Needs root and the kernel's BTF.

#[path = "../../../responder/tests/support/mod.rs"]
mod support;

mod examples;
mod faults;
mod objects;
mod reading;
mod tables;
