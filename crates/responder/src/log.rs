// SPDX-License-Identifier: Apache-2.0
//! What libbpf and the verifier print while something is loaded: kept for the error that it explains.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// Most of libbpf's output that an error keeps, from the end.
const LOG_BYTES: usize = 4096;

static LOG: Mutex<String> = Mutex::new(String::new());

fn keep_line(level: PrintLevel, line: String) {
    if level != PrintLevel::Debug {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&line);
    }
}

/// Runs `load` with libbpf's output, the verifier's log included, kept instead of printed. One at a time, since
/// libbpf's printer is the process's.
pub fn with_log<T>(load: impl FnOnce() -> T) -> (T, String) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = set_print(Some((PrintLevel::Warn, keep_line)));
    let result = load();
    set_print(before);
    let mut log = std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
    let mut from = log.len().saturating_sub(LOG_BYTES);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    (result, log.split_off(from))
}
