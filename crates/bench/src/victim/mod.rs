// SPDX-License-Identifier: Apache-2.0
//! later
pub(crate) fn run() -> anyhow::Result<bool> {
    Ok(true)
}
