// SPDX-License-Identifier: Apache-2.0
//! A call's arguments by their places.

use super::invalid;
use crate::error::QueryError;
use crate::expr::{Call, Expr};

pub(super) fn arg(call: &Call, at: usize) -> Result<&Expr, QueryError> {
    let arg = call.args.get(at).map(Expr::bare);
    arg.ok_or_else(|| QueryError::Invalid(format!("{}() has too few arguments", call.name)))
}

pub(super) fn text(call: &Call, at: usize) -> Result<&str, QueryError> {
    match arg(call, at)? {
        Expr::String(text) => Ok(text),
        _ => invalid(format!("{}() expects a string", call.name)),
    }
}
