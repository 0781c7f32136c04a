// SPDX-License-Identifier: Apache-2.0
//! Which functions there are, what they take and what they give.

use super::clock::OF_TIME;
use super::math::OF_VALUE;
use super::named::Named;
use crate::expr::Type::{self, Range, Scalar, String, Vector};

/// What a function takes and gives.
#[derive(Clone, Copy)]
pub(crate) struct Signature {
    pub(crate) args: &'static [Type],
    pub(crate) last: Last,
    pub(crate) returns: Type,
}

/// How often the last argument may come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Once,
    Optional,
    Any,
}

const fn of(args: &'static [Type], last: Last, returns: Type) -> Signature {
    Signature { args, last, returns }
}

/// Functions that have one argument, a range.
pub(super) const OF_RANGE: [&str; 19] = [
    "absent_over_time",
    "avg_over_time",
    "changes",
    "count_over_time",
    "delta",
    "deriv",
    "first_over_time",
    "idelta",
    "increase",
    "irate",
    "last_over_time",
    "max_over_time",
    "min_over_time",
    "present_over_time",
    "rate",
    "resets",
    "stddev_over_time",
    "stdvar_over_time",
    "sum_over_time",
];

/// Those that are of no kind.
const OTHERS: [Named<Signature>; 23] = [
    ("absent", of(&[Vector], Last::Once, Vector)),
    ("clamp", of(&[Vector, Scalar, Scalar], Last::Once, Vector)),
    ("clamp_max", of(&[Vector, Scalar], Last::Once, Vector)),
    ("clamp_min", of(&[Vector, Scalar], Last::Once, Vector)),
    ("histogram_avg", of(&[Vector], Last::Once, Vector)),
    ("histogram_count", of(&[Vector], Last::Once, Vector)),
    ("histogram_fraction", of(&[Scalar, Scalar, Vector], Last::Once, Vector)),
    ("histogram_quantile", of(&[Scalar, Vector], Last::Once, Vector)),
    ("histogram_stddev", of(&[Vector], Last::Once, Vector)),
    ("histogram_stdvar", of(&[Vector], Last::Once, Vector)),
    ("histogram_sum", of(&[Vector], Last::Once, Vector)),
    ("label_join", of(&[Vector, String, String, String], Last::Any, Vector)),
    ("label_replace", of(&[Vector, String, String, String, String], Last::Once, Vector)),
    ("pi", of(&[], Last::Once, Scalar)),
    ("predict_linear", of(&[Range, Scalar], Last::Once, Vector)),
    ("quantile_over_time", of(&[Scalar, Range], Last::Once, Vector)),
    ("round", of(&[Vector, Scalar], Last::Optional, Vector)),
    ("scalar", of(&[Vector], Last::Once, Scalar)),
    ("sort", of(&[Vector], Last::Once, Vector)),
    ("sort_desc", of(&[Vector], Last::Once, Vector)),
    ("time", of(&[], Last::Once, Scalar)),
    ("timestamp", of(&[Vector], Last::Once, Vector)),
    ("vector", of(&[Scalar], Last::Once, Vector)),
];

/// All functions.
pub(crate) fn functions() -> impl Iterator<Item = Named<Signature>> {
    let of_value = OF_VALUE.into_iter().map(|(name, _)| (name, of(&[Vector], Last::Once, Vector)));
    let of_time = OF_TIME.into_iter().map(|(name, _)| (name, of(&[Vector], Last::Optional, Vector)));
    let of_range = OF_RANGE.into_iter().map(|name| (name, of(&[Range], Last::Once, Vector)));
    of_value.chain(of_time).chain(of_range).chain(OTHERS)
}

/// `None`: no such function is known.
pub(crate) fn signature(name: &str) -> Option<Signature> {
    functions().find(|(own, _)| *own == name).map(|(_, signature)| signature)
}
