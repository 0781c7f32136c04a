// SPDX-License-Identifier: Apache-2.0
use super::*;

struct Silent;

impl Ask for Silent {
    fn ask(&mut self, _: &str) -> Result<Vec<Sample>, String> {
        Ok(vec![Sample { labels: BTreeMap::new(), value: 1.0 }])
    }
}

fn expanded(text: &str) -> Result<String, ExpandError> {
    let none = BTreeMap::new();
    let data = Data { labels: &none, external_labels: &none, external_url: "", value: 0.5, time_ns: 0 };
    Template::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).expand(&data, &mut Silent)
}

#[test]
fn what_never_ends_ends() {
    for (text, why) in [
        ("{{ range 1000000000 }}{{ end }}", "too many steps"),
        ("{{ define `x` }}{{ template `x` . }}{{ end }}{{ template `x` 1 }}", "levels"),
        ("{{ $x := `0123456789` }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}", "a text of more than"),
        ("{{ $x := `a` }}{{ range 100 }}{{ $x = args $x $x }}{{ end }}", "args() within each other"),
        ("{{ $x := `a` }}{{ range 16 }}{{ $x = args $x $x $x }}{{ end }}{{ $x }}", "a text of more than"),
        ("{{ range 10000 }}0123456789{{ end }}", "a text of more than"),
        ("{{ printf `%1000000d` 1 }}", "a text of more than"),
        ("{{ printf `%*d` 99999999 1 }}", "a text of more than"),
        ("{{ printf `%.999f` 1.0 }}", "digits"),
        ("{{ range 100 }}{{ query `up` }}{{ end }}", "queries"),
        ("{{ range 1000 }}{{ match `a` `b` }}{{ end }}", "too many steps"),
        ("{{ match `(((a{100}){100}){100})` `b` }}", "regular expression"),
        ("{{ reReplaceAll `` `0123456789` (printf `%9999s` ``) }}", "a text of more than"),
    ] {
        let error = expanded(text).expect_err(text);
        assert!(error.text.contains(why), "{text}: {error}");
    }
    for (open, close) in [("{{ if true }}", "{{ end }}"), ("{{ (", ") }}"), ("{{ if 1 }}{{ else if 1 }}", "")] {
        let text = match open.strip_suffix('(') {
            Some(open) => format!("{open}{}1{}{}", "(".repeat(5_000), ")".repeat(5_000), &close[1..]),
            None => open.repeat(5_000) + &close.repeat(5_000),
        };
        assert!(Template::parse(&text).unwrap_err().text.contains("within each other"), "{open}");
    }
}

#[test]
fn a_failure_says_where() {
    assert_eq!(Template::parse("ab {{ nope 1 }}").unwrap_err().at, 6);
    assert_eq!(expanded("ab {{ humanize `x` }}").unwrap_err().at, 6);
    assert_eq!(expanded("ab {{ 1 | print (toUpper 1) }}").unwrap_err().at, 25);
}

#[test]
fn no_template_panics_or_grows() {
    const WORDS: [&str; 48] = [
        "{{ ",
        " }}",
        "{{- ",
        " -}}",
        "if ",
        "else ",
        "end",
        "range ",
        "with ",
        "define \"x\" ",
        "template \"x\" ",
        "$x",
        " := ",
        " = ",
        ", ",
        "$labels",
        ".",
        ".Labels",
        " | ",
        "(",
        ")",
        "1 ",
        "1.5 ",
        "\"%5.2v%*d\" ",
        "`a`",
        "printf ",
        "humanize ",
        "title ",
        "query ",
        "first ",
        "args ",
        "index ",
        "slice ",
        "eq ",
        "lt ",
        "and ",
        "toTime ",
        "toDuration ",
        ".Format \"Jan _2 .000\" ",
        ".Round ",
        "reReplaceAll ",
        "text",
        "\u{e9}",
        "break",
        "nil ",
        "-9223372036854775808 ",
        "/* c */",
        "len ",
    ];
    bolero::check!().with_type::<Vec<u8>>().for_each(|choices| {
        let text: String = choices.iter().map(|at| WORDS[usize::from(*at) % WORDS.len()]).collect();
        let Ok(template) = Template::parse(&text) else { return };
        let none = BTreeMap::new();
        let data = Data { labels: &none, external_labels: &none, external_url: "", value: f64::NAN, time_ns: i64::MAX };
        if let Ok(out) = template.expand(&data, &mut Silent) {
            assert!(out.len() <= Limits::default().bytes);
        }
    });
}
