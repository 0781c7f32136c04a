// SPDX-License-Identifier: Apache-2.0

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(Path::new("controller.toml"), text).map_err(|error| error.to_string())
}

#[test]
fn the_shipped_example_says_the_defaults() {
    let text = include_str!("../../../../packaging/controller.toml");
    assert_eq!(parse(text).unwrap(), Config::default());
    // The commented host is a good one, too.
    let host = text
        .lines()
        .skip_while(|line| !line.starts_with("# [[targets]]"))
        .map(|line| line.strip_prefix("# ").unwrap_or_default());
    let host = host.collect::<Vec<_>>().join("\n");
    let examples = parse(&host).unwrap();
    assert_eq!((examples.targets.len(), examples.discovery.len()), (1, 1));
    let [forward] = examples.forward.as_slice() else { panic!("{:?}", examples.forward) };
    let defaults = "[[forward]]\nname = \"a\"\nurl = \"http://b\"\nkind = \"prometheus\"";
    let [defaults] = parse(defaults).unwrap().forward.try_into().unwrap();
    assert_eq!((forward.step, forward.max_bytes), (defaults.step, defaults.max_bytes));
    assert_eq!((forward.max_age, forward.timeout), (defaults.max_age, defaults.timeout));
    assert_eq!((examples.discovery[0].refresh, examples.discovery[0].relabel.len()), (Span::from_s(30), 1));
}

#[test]
fn mistakes_say_what_to_write() {
    for (text, part) in [
        ("[http]\nlisten = \"x\"", "controller.toml:2"),
        ("[http]\ntls_key = \"/k\"", "[http] tls_key: tls_certificate and tls_key go together"),
        ("[http]\nboards = \"boards\"", "[http] boards: must be an absolute path"),
        ("[http]\nmax_streams_per_source = 0", "[http] max_streams_per_source: must be at least 1"),
        ("[http]\nmax_connections = 100", "[http] max_connections_per_source: must be at least 1, and at most"),
        ("[read]\nintervall = \"1s\"", "did you mean `interval`"),
        ("[read]\ninterval = \"10us\"", "at least 1ms"),
        ("[read]\nskip = [\"tcp connections\"]", "[read] skip: `tcp connections` is no name"),
        ("[store]\nmax_bytes = \"1MiB\"", "at least 64MiB"),
        ("[store]\nkeep_raw = \"1h\"", "[store] keep_raw: must be at least 12h"),
        ("[store]\nkeep_10s = \"1d\"", "[store] keep_10s: must be at least 12h, and as long as keep_1s"),
        ("[store]\ncold_after = \"1min\"", "[store] cold_after: must be at least 1h and less than keep_raw"),
        ("[store]\ncold_after = \"7d\"", "[store] cold_after: must be at least 1h and less than keep_raw"),
        ("[store]\nkeep_row = \"2d\"", "did you mean `keep_raw`"),
        ("[quota]\nseries = 0", "[quota] series: must be at least 1"),
        ("[quota]\nmemory = 5", "unit"),
        ("[rules]\nfiles = [\"rules.yml\"]", "[rules] files: `rules.yml` must be an absolute path that ends in .yml"),
        ("[rules]\ninterval = \"50ms\"", "[rules] interval: must be at least 100ms"),
        (
            "[rules]\nalertmanagers = [\"localhost:9093\"]",
            "[rules] alertmanagers: `localhost:9093` must begin with http",
        ),
        ("[rules]\nexternal_url = \"x\"", "[rules] external_url: must begin with http"),
        ("[rules]\nexternal_labels = { \"a b\" = \"c\" }", "[rules] external_labels: `a b` cannot be a label's name"),
        ("[joined]\nmin_interval = \"1us\"", "[joined] min_interval: must be at least 1ms"),
        ("[[targets]]\ntoken_file = \"/t\"\naddress = \"a:0\"", "[[targets]] number 1, address"),
        (
            "[[forward]]\nname = \"a/b\"\nurl = \"http://a\"\nkind = \"prometheus\"",
            "[[forward]] number 1, name: must be 1 to 64",
        ),
        (
            "[[forward]]\nname = \"a\"\nurl = \"a:9090\"\nkind = \"prometheus\"",
            "[[forward]] number 1, url: `a:9090` must begin",
        ),
        ("[[forward]]\nname = \"a\"\nurl = \"http://a\"\nkind = \"otlp\"", "unknown value `otlp`"),
        (
            "[[forward]]\nname = \"a\"\nurl = \"http://a\"\nkind = \"influxdb\"\nmatch = [\"a{\"]",
            "number 1, match: `a{`",
        ),
        (
            "[[forward]]\nname = \"a\"\nurl = \"http://a\"\nkind = \"influxdb\"\nstep = \"1h\"",
            "step: must be at most 5min",
        ),
        ("[[discovery]]\nfiles = []", "[[discovery]] number 1, files"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn tokens_are_read_from_their_files() {
    let config = parse("[[targets]]\naddress = \"a\"\ntoken_file = \"/nowhere/token\"").unwrap();
    let error = config.read_targets(Path::new("c")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/token"), "{error}");
}
