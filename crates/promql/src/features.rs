// SPDX-License-Identifier: Apache-2.0
//! What of PromQL there is and what is refused, by the names that Prometheus has for it (`/api/v1/features`).

use crate::eval::functions;
use crate::expr::{Aggregation, Operator};
use crate::parse::EXPERIMENTAL;

/// Whether there is something, by its name.
pub type Features = Vec<(&'static str, bool)>;

/// Functions.
#[must_use]
pub fn of_functions() -> Features {
    let own = functions().map(|(name, _)| (name, true));
    own.chain(EXPERIMENTAL.map(|name| (name, false))).collect()
}

/// Operators and aggregations.
#[must_use]
pub fn of_operators() -> Features {
    // Of selectors.
    let others = ["=~", "!~", "@"].map(|text| (text, true));
    let own = Operator::ALL.map(|(_, text)| (text, true)).into_iter();
    own.chain(others).chain(Aggregation::NAMES.map(|(name, how)| (name, how.is_some()))).collect()
}

/// The rest of the language.
#[must_use]
pub fn of_language() -> Features {
    let own = [
        "anchored",
        "at_modifier",
        "bool",
        "by",
        "duration_expr",
        "group_left",
        "group_right",
        "ignoring",
        "negative_offset",
        "offset",
        "on",
        "per_query_lookback_delta",
        "smoothed",
        "subqueries",
        "without",
    ];
    let refused = [
        "delayed_name_removal",
        "fill",
        "fill_left",
        "fill_right",
        "per_step_stats",
        "type_and_unit_labels",
        "unquoted_utf8_names",
    ];
    own.map(|name| (name, true)).into_iter().chain(refused.map(|name| (name, false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Type;
    use crate::{Query, Times};

    const TIMES: Times = Times { start_ns: 0, end_ns: 0, step_ns: 1 };

    fn is_there(text: &str) -> bool {
        match Query::parse(text, TIMES) {
            Ok(_) => true,
            Err(error) if error.to_string().contains("experimental") => false,
            Err(error) => panic!("{text}: {error}"),
        }
    }

    #[test]
    fn functions_are_there_or_refused_as_it_says() {
        let all = of_functions();
        assert_eq!(all.iter().filter(|(_, is_there)| *is_there).count(), 73);
        let args = |name: &str| {
            let arg = |kind: &Type| match kind {
                Type::Scalar => "1",
                Type::String => "\"x\"",
                Type::Vector => "x",
                Type::Range => "x[5m]",
            };
            let signature = functions().find(|(own, _)| *own == name).map(|(_, signature)| signature);
            signature.map_or_else(String::new, |of| of.args.iter().map(arg).collect::<Vec<_>>().join(", "))
        };
        for (name, says) in all {
            assert_eq!(is_there(&format!("{name}({})", args(name))), says, "{name}");
        }
    }

    #[test]
    fn operators_are_there_or_refused_as_it_says() {
        for (name, says) in of_operators() {
            let text = match name {
                "=~" | "!~" => format!("x{{a{name}\"b\"}}"),
                "@" => "x @ 1".to_owned(),
                "quantile" | "topk" | "bottomk" | "limitk" | "limit_ratio" => format!("{name}(1, x)"),
                "count_values" => "count_values(\"x\", x)".to_owned(),
                _ if Operator::of(name).is_some() => format!("x {name} x"),
                _ => format!("{name}(x)"),
            };
            assert_eq!(is_there(&text), says, "{text}");
        }
    }

    #[test]
    fn the_language_is_as_it_says() {
        for (name, says) in of_language() {
            let text = match name {
                "anchored" | "smoothed" => format!("rate(x[1m] {name})"),
                "at_modifier" => "x @ 1".to_owned(),
                "bool" => "x > bool 1".to_owned(),
                "by" | "without" => format!("sum {name} (a) (x)"),
                "duration_expr" => "rate(x[1m + 1m])".to_owned(),
                "group_left" | "group_right" => format!("x / on (a) {name} (b) x"),
                "ignoring" | "on" => format!("x / {name} (a) x"),
                "negative_offset" => "x offset -1m".to_owned(),
                "offset" => "x offset 1m".to_owned(),
                "subqueries" => "rate(x[1m:1s])".to_owned(),
                "fill" | "fill_left" | "fill_right" => format!("x / {name} (1) x"),
                // Those are of the server.
                "per_query_lookback_delta" | "delayed_name_removal" | "per_step_stats" | "type_and_unit_labels" => {
                    continue;
                }
                "unquoted_utf8_names" => {
                    assert!(!says && Query::parse("caf\u{e9}.x", TIMES).is_err());
                    continue;
                }
                _ => panic!("{name}"),
            };
            assert_eq!(is_there(&text), says, "{text}");
        }
    }
}
