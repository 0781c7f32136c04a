// SPDX-License-Identifier: Apache-2.0
//! `/api/v1/features`: what of Prometheus there is here and what is not.

use axum::response::Response;
use onlooker_promql::features::{of_functions, of_language, of_operators};
use onlooker_rules::template;
use serde_json::{Map, Value, json};

use super::success;

fn all(features: impl IntoIterator<Item = (&'static str, bool)>) -> Value {
    features.into_iter().map(|(name, is_there)| (name.to_owned(), is_there.into())).collect::<Map<_, _>>().into()
}

pub(super) async fn features() -> Response {
    let api = json!({
        "admin": false, "exclude_alerts": true, "label_values_match": true, "lifecycle": false, "openapi_3.1": false,
        "openapi_3.2": false, "otlp_write_receiver": false, "query_cost": false, "query_stats": true,
        "query_warnings": true, "remote_write_receiver": false, "search": false, "time_range_labels": true,
        "time_range_series": true,
    });
    let prometheus = json!({ "agent_mode": false, "auto_reload_config": false, "onlooker": true, "server_mode": true });
    let rules = json!({ "concurrent_rule_eval": false, "keep_firing_for": true, "query_offset": true });
    success(
        &json!({
            "api": api, "prometheus": prometheus, "promql": all(of_language()),
            "promql_functions": all(of_functions()), "promql_operators": all(of_operators()), "rules": rules,
            "templating_functions": all(template::functions().map(|name| (name, true))),
            "tsdb": { "exemplar_storage": false, "native_histograms": false },
        }),
        &[],
    )
}
