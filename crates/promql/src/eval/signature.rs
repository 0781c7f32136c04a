// SPDX-License-Identifier: Apache-2.0
//! Which functions there are, what they take and what they give.

use super::clock;
use super::functions::of_value;
use super::range::OF_RANGE;
use crate::expr::Type::{self, Range, Scalar, String, Vector};

/// What a function takes and gives.
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

/// `None`: no such function is known.
pub(crate) fn signature(name: &str) -> Option<Signature> {
    let (args, last, returns): (&[Type], Last, Type) = match name {
        _ if of_value(name).is_some() => (&[Vector], Last::Once, Vector),
        _ if clock::of_time(name).is_some() => (&[Vector], Last::Optional, Vector),
        _ if OF_RANGE.contains(&name) => (&[Range], Last::Once, Vector),
        "histogram_avg" | "histogram_count" | "histogram_stddev" | "histogram_stdvar" | "histogram_sum" => {
            (&[Vector], Last::Once, Vector)
        }
        "absent" | "sort" | "sort_desc" | "timestamp" => (&[Vector], Last::Once, Vector),
        "clamp" => (&[Vector, Scalar, Scalar], Last::Once, Vector),
        "clamp_max" | "clamp_min" => (&[Vector, Scalar], Last::Once, Vector),
        "histogram_fraction" => (&[Scalar, Scalar, Vector], Last::Once, Vector),
        "histogram_quantile" => (&[Scalar, Vector], Last::Once, Vector),
        "label_join" => (&[Vector, String, String, String], Last::Any, Vector),
        "label_replace" => (&[Vector, String, String, String, String], Last::Once, Vector),
        "pi" | "time" => (&[], Last::Once, Scalar),
        "predict_linear" => (&[Range, Scalar], Last::Once, Vector),
        "quantile_over_time" => (&[Scalar, Range], Last::Once, Vector),
        "round" => (&[Vector, Scalar], Last::Optional, Vector),
        "scalar" => (&[Vector], Last::Once, Scalar),
        "vector" => (&[Scalar], Last::Once, Vector),
        _ => return None,
    };
    Some(Signature { args, last, returns })
}
