// SPDX-License-Identifier: Apache-2.0
use super::*;

/// A controller whose engine fills its core at 200,000 values/s, while the rest has room; 100 values/s a host.
fn points(loads: &[f64]) -> Vec<Point> {
    let point = |load: &f64| {
        let shares = [("engine", load / 2e5), ("cpu", load / 8e5), ("memory", 0.25), ("surprise", 0.9)];
        let shares = shares.map(|(name, share)| (name.to_owned(), share)).into();
        Point { t_s: 0.0, values_per_s: *load, hosts: load / 100.0, shares }
    };
    loads.iter().map(point).collect()
}

fn text(points: &[Point], limit: f64) -> String {
    let mut out = Vec::new();
    Capacity::of(points, limit).unwrap().write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_smallest_end_is_the_bottleneck() {
    let seen = points(&[1e4, 2e4, 4e4, 8e4, 5e4]);
    let text = text(&seen, 1.0);
    let end = "engine (thread, of a core) ends first: at 200,000 values/s, 2,000 hosts like those of now, 4.0 times the load of now.";
    assert!(text.ends_with(&format!("\n{end}\n")), "{text}");
    assert!(text.starts_with("now 50,000 values/s of 500 hosts; seen: 10,000 to 80,000 values/s, 5 loads\n"), "{text}");
    let row =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row("engine")[..8], ["engine", "25.0", "%", "200,000", "2,000", "4.0", "line", "1.000"]);
    assert_eq!(row("cpu")[3], "800,000");
    assert!(row("memory").join(" ").contains("does not grow") && text.contains("--link"), "{text}");
    let document = Capacity::of(&seen, 0.5).unwrap().document(&seen);
    assert_eq!(document["first"], "engine");
    let engine = &document["resources"][0];
    assert!((engine["ends_at"]["hosts"].as_f64().unwrap() - 1000.0).abs() < 1e-6, "{engine}");
    assert_eq!((&document["resources"][2]["grows"], document["points"].as_array().unwrap().len()), (&json!(false), 5));
}

#[test]
fn without_spread_shares_are_told_and_no_end() {
    let text = text(&points(&[1e4, 1.4e4]), 1.0);
    assert!(text.contains("7.0 %") && text.contains("cannot be told") && !text.contains("ends first"), "{text}");
    assert!(Capacity::of(&[], 1.0).is_none() && Capacity::of(&points(&[0.0]), 1.0).is_none());
}

#[test]
fn what_is_full_or_far_is_called_so() {
    let sentence = |loads: &[f64], limit| Capacity::of(&points(loads), limit).unwrap().sentence();
    assert!(sentence(&[1e4, 2e4, 4e4, 8e4], 0.2).starts_with("20 % of engine (thread, of a core) has ended already"));
    assert!(sentence(&[1e3, 2e3, 4e3, 8e3], 1.0).ends_with("That is far beyond what was seen."));
}

#[test]
fn arguments_are_checked() {
    assert_eq!(days("7d"), Ok(Duration::from_secs(7 * 86_400)));
    assert_eq!(days("2h"), Ok(Duration::from_secs(7_200)));
    for wrong in ["0d", "d", "-1d", "4000d", "7"] {
        assert!(days(wrong).is_err(), "{wrong}");
    }
    assert_eq!((share("0.8"), share("1")), (Ok(0.8), Ok(1.0)));
    assert!(["0", "1.1", "-1", "NaN", "x"].iter().all(|text| share(text).is_err()));
    assert_eq!(thousands(1_234_567.4), "1,234,567");
    assert_eq!((thousands(999.0), thousands(0.0), thousands(-3.0)), ("999".into(), "0".into(), "0".into()));
}
