// SPDX-License-Identifier: Apache-2.0
//! Prometheus' API over a real host: the numbers of `/metrics`, Grafana's requests, and what is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use onlooker_testbed::{Agent, Controller, get, json, own_network, request, until};
use serde_json::{Value, json};

pub(super) const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

pub(super) fn encoded(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

pub(super) fn ask(address: SocketAddr, path: &str, pairs: &[(&str, &str)]) -> Value {
    let answer = json(address, &format!("/api/v1/{path}?{}", encoded(pairs)));
    assert_eq!(answer["status"], "success", "{answer}");
    answer
}

pub(super) fn result(address: SocketAddr, query: &str) -> Vec<Value> {
    ask(address, "query", &[("query", query)])["data"]["result"].as_array().unwrap().clone()
}

/// A host that is read, and some rows of it.
pub(super) fn read_host(interval: &str) -> (Agent, Controller) {
    let agent = Agent::start();
    let controller = Controller::start("", &format!("{}interval = \"{interval}\"\n", agent.target("a")));
    // Tests look at what there was a second before the newest row, and some at a second of that.
    let query = "count_over_time(node_load1[1m]) > 5 and on(instance) node_load1 offset 3s";
    until("rows", || (result(controller.address(), query).len() == 1).then_some(()));
    (agent, controller)
}

/// The host's lines of `/metrics`, without what the controller says of it.
fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let text = get(address, "/metrics?host=a");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.starts_with("onlooker_host_"));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// The host's series that are answered now, under their names in `/metrics`, without what the controller says of it.
fn answered(address: SocketAddr) -> BTreeMap<String, f64> {
    let named = |one: &Value| {
        let labels = one["metric"].as_object().unwrap().iter().filter(|(name, _)| *name != "__name__");
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}={value}")).collect();
        let text = format!("{}{{{}}}", one["metric"]["__name__"].as_str().unwrap(), labels.join(","));
        (text, one["value"][1].as_str().unwrap().parse().unwrap())
    };
    result(address, r#"{instance="a", __name__!~"up|onlooker_host_.*"}"#).iter().map(named).collect()
}

#[test]
fn the_same_series_and_numbers_as_metrics() {
    // Tests beside this one add, remove and add again interfaces of one name.
    own_network();
    let (_agent, controller) = read_host("100ms");
    let address = controller.address();
    // The host changes between two answers, and the store is a quarter of a second behind: in one of some tries each
    // series is between the least and the largest value that was shown so far. No counter is ahead of what is shown later.
    let mut shown: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut same: BTreeSet<String> = BTreeSet::new();
    until("the same numbers", || {
        let (before, answers, after) = (metrics(address), answered(address), metrics(address));
        assert!(before.len() > 100, "{}", before.len());
        for (series, value) in before.iter().chain(&after) {
            let (least, largest) = shown.entry(series.clone()).or_insert((*value, *value));
            (*least, *largest) = (least.min(*value), largest.max(*value));
        }
        let stayed: BTreeMap<_, _> = after.iter().filter(|(series, _)| before.contains_key(*series)).collect();
        let not_shown: Vec<_> =
            answers.keys().filter(|series| !before.contains_key(*series) && !after.contains_key(*series)).collect();
        let not_answered: Vec<_> = stayed.keys().filter(|series| !answers.contains_key(**series)).collect();
        for (&series, &later) in &stayed {
            let Some(value) = answers.get(series) else { continue };
            let is_counter = series.split('{').next().unwrap().ends_with("_total");
            assert!(!is_counter || value <= later, "{series}: {value} {later}");
            let (least, largest) = shown[series];
            if (least..=largest).contains(value) || value.is_nan() && later.is_nan() {
                same.insert(series.clone());
            }
        }
        let other: Vec<_> = stayed.keys().filter(|series| !same.contains(**series)).collect();
        println!("not shown: {not_shown:?}, not answered: {not_answered:?}, not yet the same: {other:?}");
        (not_shown.is_empty() && not_answered.is_empty() && other.is_empty()).then_some(())
    });
}

#[test]
fn steps_of_ten_milliseconds() {
    let (_agent, controller) = read_host("10ms");
    let address = controller.address();
    let newest = result(address, "timestamp(node_load1)")[0]["value"][1].as_str().unwrap().to_owned();
    // Steps end where there are samples.
    let end: f64 = newest.parse().unwrap();
    let (start, end) = (format!("{:.3}", end - 1.0), format!("{end:.3}"));
    let pairs = [("query", "node_load1"), ("start", &start), ("end", &end), ("step", "0.01")];
    let answer = ask(address, "query_range", &pairs);
    assert_eq!(answer["data"]["resultType"], "matrix");
    let values = answer["data"]["result"][0]["values"].as_array().unwrap();
    assert!((90..=101).contains(&values.len()), "{}", values.len());
    let times: Vec<f64> = values.iter().map(|value| value[0].as_f64().unwrap()).collect();
    assert!(times.windows(2).all(|two| (two[1] - two[0] - 0.01).abs() < 1e-6), "{times:?}");
    // As a form, and as an address.
    let posted = request(address, "POST", "/api/v1/query_range", FORM, &encoded(&pairs)).json();
    assert_eq!(posted["data"], answer["data"]);
}

#[test]
fn a_host_that_stops_ends_its_series() {
    let (mut agent, controller) = read_host("100ms");
    let address = controller.address();
    let newest: f64 = result(address, "timestamp(node_load1)")[0]["value"][1].as_str().unwrap().parse().unwrap();
    agent.kill();
    until("an end", || result(address, "node_load1").is_empty().then_some(()));
    let then = ask(address, "query", &[("query", "node_load1"), ("time", &newest.to_string())]);
    assert_eq!(then["data"]["result"].as_array().unwrap().len(), 1, "what was there is there");
}

#[test]
fn grafana_finds_its_way() {
    let (_agent, controller) = read_host("100ms");
    let address = controller.address();
    let health = request(address, "POST", "/api/v1/query", FORM, "query=1%2B1&time=4").json();
    assert_eq!(health, json!({"status": "success", "data": {"resultType": "scalar", "result": [4, "2"]}}));
    assert_eq!(ask(address, "status/buildinfo", &[])["data"]["version"], "3.16.0");
    let texts = |answer: Value| -> BTreeSet<String> {
        answer["data"].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let values = texts(ask(address, "label/__name__/values", &[("start", "0"), ("end", "9000000000")]));
    assert!(values.contains("node_load1"));
    let chosen = [("match[]", "node_cpu_seconds_total{instance=\"a\"}"), ("unknown", "1")];
    assert!(texts(ask(address, "label/mode/values", &chosen)).contains("idle"));
    assert_eq!(
        texts(ask(address, "labels", &chosen)),
        ["__name__", "cpu", "instance", "mode"].map(str::to_owned).into()
    );
    assert!(texts(ask(address, "labels", &[])).contains("mode"));
    let series = request(address, "POST", "/api/v1/series", FORM, "match%5B%5D=node_load1&match[]=node_load5").json();
    assert_eq!(series["data"].as_array().unwrap().len(), 2, "{series}");
    let few = ask(address, "series", &[("match[]", "{instance=\"a\"}"), ("limit", "1")]);
    assert_eq!(
        (few["data"].as_array().unwrap().len(), &few["warnings"][0]),
        (1, &"results truncated due to limit".into())
    );
    let metadata = ask(address, "metadata", &[("metric", "node_load1")]);
    assert_eq!(metadata["data"]["node_load1"][0]["type"], "gauge", "{metadata}");
    let many = |pairs: &[(&str, &str)]| ask(address, "metadata", pairs)["data"].as_object().unwrap().len();
    assert_eq!((many(&[("limit", "0")]), many(&[("limit", "2")])), (0, 2));
    assert!(many(&[("limit", "-1"), ("limit_per_metric", "0")]) > 100);
    let targets = ask(address, "targets", &[("state", "active")]);
    let [target] = &targets["data"]["activeTargets"].as_array().unwrap()[..] else { panic!("{targets}") };
    assert_eq!((&target["health"], &target["labels"]["instance"]), (&json!("up"), &json!("a")), "{target}");
    assert!(target["lastScrape"].as_str().unwrap().starts_with("20"), "{target}");
    let stats = ask(address, "query", &[("query", "node_load1"), ("stats", "all")]);
    assert!(stats["data"]["stats"]["timings"]["execTotalTime"].is_number(), "{stats}");
}

/// Panels from a second to a week: Grafana posts decimal seconds, and asks for rates of four steps at least.
#[test]
fn grafanas_panels_show_at_every_step_what_there_is_at_that_time() {
    let (_agent, controller) = read_host("10ms");
    let address = controller.address();
    until("older rows", || (result(address, "rate(node_intr_total[1s] offset 2s)").len() == 1).then_some(()));
    let newest = result(address, "timestamp(node_intr_total)")[0]["value"][1].as_str().unwrap().to_owned();
    let newest: f64 = newest.parse().unwrap();
    for (range_s, step_s) in
        [(1.0, 0.01), (10.0, 0.1), (60.0, 0.25), (300.0, 1.0), (3_600.0, 15.0), (86_400.0, 300.0), (604_800.0, 3_600.0)]
    {
        // What was there a second ago does not change any more.
        let end = newest - 1.0;
        let (start, end, step) = (format!("{:.3}", end - range_s), format!("{end:.3}"), step_s.to_string());
        let rate_interval = format!("{:.0}ms", f64::max(4.0 * step_s, 1.0) * 1e3);
        for query in ["node_intr_total".to_owned(), format!("rate(node_intr_total[{rate_interval}])")] {
            let pairs = [("query", query.as_str()), ("start", &start), ("end", &end), ("step", &step)];
            let answer = request(address, "POST", "/api/v1/query_range", FORM, &encoded(&pairs)).json();
            let values =
                answer["data"]["result"][0]["values"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
            let first: f64 = start.parse().unwrap();
            for value in values {
                let steps = (value[0].as_f64().unwrap() - first) / step_s;
                assert!((steps - steps.round()).abs() < 0.01 && steps > -0.01, "{query} every {step_s} s: {value}");
            }
            for value in values.iter().rev().take(3) {
                let then = [("query", query.as_str()), ("time", &value[0].to_string())];
                let then = ask(address, "query", &then);
                assert_eq!(then["data"]["result"][0]["value"], *value, "{query} every {step_s} s");
            }
        }
    }
}

/// The dashboard that we ship: each of its expressions is a query, and asks for what a host has.
#[test]
fn features_are_what_is_answered() {
    let controller = Controller::start("", "");
    let features = ask(controller.address(), "features", &[]);
    let all = |category: &str| features["data"][category].as_object().unwrap().clone();
    let (there, refused): (Vec<_>, Vec<_>) =
        all("promql_functions").into_iter().partition(|(_, is_there)| is_there == true);
    assert_eq!((there.len(), refused.len()), (73, 18));
    for (name, _) in refused {
        let answer =
            request(controller.address(), "POST", "/api/v1/query", FORM, &encoded(&[("query", &format!("{name}()"))]));
        let text = answer.json().to_string();
        assert!(text.contains("bad_data") && text.contains("experimental"), "{name}: {text}");
    }
    assert_eq!((&all("promql_operators")["topk"], &all("rules")["keep_firing_for"]), (&true.into(), &true.into()));
}

#[test]
fn the_grafana_dashboard_asks_for_what_there_is() {
    let board: Value =
        serde_json::from_str(include_str!("../../../../packaging/grafana/dashboards/hosts.json")).unwrap();
    let (_agent, controller) = read_host("100ms");
    let address = controller.address();
    let names = ask(address, "label/__name__/values", &[])["data"].to_string();
    let targets = board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in expressions {
        let query = expression.replace("$__rate_interval", "1s").replace("$instance", "a");
        assert!(!query.contains('$'), "{query}");
        ask(address, "query", &[("query", &query)]);
        let metrics =
            query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("node_"));
        for metric in metrics {
            assert!(names.contains(&format!("\"{metric}\"")), "{metric} is nowhere");
        }
    }
}

#[test]
fn what_is_wrong_is_refused_as_prometheus_refuses_it() {
    let controller = Controller::start("", "");
    let address = controller.address();
    for (path, status, kind) in [
        ("query?query=1%2B", 400, "bad_data"),
        ("query?query=up&time=yesterday", 400, "bad_data"),
        ("query?query=up&timeout=-1", 400, "bad_data"),
        ("query?query=up&limit=-1", 400, "bad_data"),
        ("metadata?limit=x", 400, "bad_data"),
        ("query_range?query=up&start=0&end=1", 400, "bad_data"),
        ("query_range?query=up&start=1&end=0&step=1", 400, "bad_data"),
        ("query_range?query=up&start=0&end=1&step=0", 400, "bad_data"),
        ("query_range?query=up&start=0&end=11001&step=1", 400, "bad_data"),
        ("query_range?query=up[5m]&start=0&end=1&step=1", 400, "bad_data"),
        ("query?query=vector(1)[1000000s:1ms]", 422, "execution"),
        ("query?query=sum_over_time(vector(1)[900000s:1s])&timeout=0.000000001", 503, "timeout"),
        ("format_query?query=1%2B", 400, "bad_data"),
        ("format_query", 400, "bad_data"),
        ("parse_query?query=rate(up)", 400, "bad_data"),
        ("parse_query?query=limitk(1,up)", 400, "bad_data"),
        ("series", 400, "bad_data"),
        ("series?match[]=up[5m]", 400, "bad_data"),
        ("labels?start=2&end=1", 400, "bad_data"),
    ] {
        let answer = request(address, "GET", &format!("/api/v1/{path}"), "", "");
        let said = answer.json();
        assert_eq!((answer.status, said["errorType"].as_str()), (status, Some(kind)), "{path}: {said}");
        assert!(said["status"] == "error" && !said["error"].as_str().unwrap().is_empty(), "{said}");
    }
    let most = ask(address, "query_range", &[("query", "1"), ("start", "0"), ("end", "11000"), ("step", "1")]);
    assert_eq!(most["data"]["result"][0]["values"].as_array().unwrap().len(), 11_001);
    assert_eq!(request(address, "GET", "/api/v1/query_exemplars?query=1", "", "").status, 404);
    assert_eq!(request(address, "PUT", "/api/v1/query?query=1", "", "").status, 405);
}

#[test]
fn queries_are_printed_and_not_evaluated() {
    let controller = Controller::start("", "");
    let address = controller.address();
    let query = "SUM(rate(x{b!='c'}[step( )]))BY(d)# why";
    let form = encoded(&[("query", query)]);
    let printed = request(address, "POST", "/api/v1/format_query", FORM, &form).json();
    assert_eq!(printed, json!({"status": "success", "data": "sum by (d) (rate(x{b!=\"c\"}[step()]))"}));
    assert_eq!(ask(address, "format_query", &[("query", query)]), printed);
    let tree = ask(address, "parse_query", &[("query", query)]);
    assert_eq!(request(address, "POST", "/api/v1/parse_query", FORM, &form).json(), tree);
    assert_eq!((&tree["data"]["op"], &tree["data"]["grouping"]), (&json!("sum"), &json!(["d"])));
    let selector = &tree["data"]["expr"]["args"][0];
    assert_eq!((&selector["type"], &selector["rangeExpr"]["op"]), (&json!("matrixSelector"), &json!("step")));
    // As for a query that is evaluated.
    let deep = encoded(&[("query", &format!("{}1{}", "(".repeat(101), ")".repeat(101)))]);
    for path in ["query", "format_query", "parse_query"] {
        let refused = request(address, "POST", &format!("/api/v1/{path}"), FORM, &deep);
        let said = "invalid parameter \"query\": the query's text has more than 200 operators and brackets";
        assert_eq!((refused.status, &refused.json()["error"]), (400, &json!(said)));
    }
}

#[test]
fn a_token_is_needed_where_one_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let (file, token) = (dir.path().join("token"), "operator-token-0123456789");
    std::fs::write(&file, token).unwrap();
    let controller = Controller::start_in(dir, &format!("token_file = {file:?}"), "");
    let path = "/api/v1/query?query=1";
    assert_eq!(request(controller.address(), "GET", path, "", "").status, 401);
    assert_eq!(
        request(controller.address(), "GET", path, &format!("Authorization: Bearer {token}\r\n"), "").status,
        200
    );
}
