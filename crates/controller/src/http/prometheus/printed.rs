// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/format_query` and `/api/v1/parse_query`: a query's text and its tree. Nothing of it is evaluated.

use axum::response::Response;
use onlooker_promql::{formatted, tree};

use super::parameters::Parameters;
use super::{Fault, success};

pub(super) async fn text(asked: Parameters) -> Result<Response, Fault> {
    let text = formatted(asked.get("query")).map_err(|error| Fault::parameter("query", error))?;
    Ok(success(&text.into(), &[]))
}

pub(super) async fn tree_of(asked: Parameters) -> Result<Response, Fault> {
    let tree = tree(asked.get("query")).map_err(|error| Fault::parameter("query", error))?;
    Ok(success(&tree, &[]))
}
