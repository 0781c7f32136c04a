// SPDX-License-Identifier: Apache-2.0
//! How a query fails, in whichever part of it.

use std::error::Error;

/// Why a query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// It was stopped from outside.
    #[error("the query was cancelled")]
    Cancelled,
    /// It took too long.
    #[error("the query took longer than it may; ask for fewer series, a shorter time or a wider step")]
    Time,
    /// It matches too much.
    #[error("the query has more than {most} series; match fewer")]
    Series {
        /// What is allowed.
        most: usize,
    },
    /// It reads too much.
    #[error("the query reads more than {most} samples; ask for fewer series or a shorter time")]
    Samples {
        /// What is allowed.
        most: u64,
    },
    /// It, or a subquery of it, has too many steps.
    #[error("the query has more than {most} steps; ask for a shorter time or a wider step")]
    Steps {
        /// What is allowed.
        most: usize,
    },
    /// It holds too much at once.
    #[error("the query needs more than {most} bytes of memory; ask for fewer series or a wider step")]
    Bytes {
        /// What is allowed.
        most: usize,
    },
    /// What it asks for has no answer, with these data.
    #[error("{0}")]
    Invalid(String),
    /// The source failed.
    #[error("reading samples: {0}")]
    Source(Box<dyn Error + Send + Sync>),
}

pub(crate) fn twins() -> QueryError {
    QueryError::Invalid("vector cannot contain metrics with the same labelset".to_owned())
}
