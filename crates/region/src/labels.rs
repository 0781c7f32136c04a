// SPDX-License-Identifier: Apache-2.0
//! The labels of a series: its own, and those that are attached to it from outside. One rule for everybody who shows or keeps series; it is Prometheus'.

/// What Prometheus puts before a sample's label that clashes with one attached from outside.
const PREFIX: &str = "exported_";

/// Joins labels attached from `outside` with a series' `own`, sorted by name, each name once. Where both have a name the one from outside keeps it, and the
/// series' own gets the prefix, as often as it takes: nothing is lost. So does a label with the `reserved` name. Labels without a value are left out first: to
/// Prometheus an empty label and none are the same, so they must not make two series of one.
#[must_use]
pub fn joined(
    outside: &[(String, String)],
    own: Vec<(String, String)>,
    reserved: Option<&str>,
) -> Vec<(String, String)> {
    let said = |(_, value): &&(String, String)| !value.is_empty();
    let outside: Vec<&(String, String)> = outside.iter().filter(said).collect();
    let own: Vec<&(String, String)> = own.iter().filter(said).collect();
    let mut labels: Vec<(String, String)> = Vec::with_capacity(outside.len() + own.len());
    let all = outside.iter().chain(&own).enumerate();
    for (at, (name, value)) in all {
        // What is renamed gives way to those that keep their names, before and behind it.
        let rest = outside.iter().chain(&own).skip(at + 1);
        let name = match is_free(&labels, reserved, name) {
            true => name.clone(),
            false => free(&labels, rest.map(|(other, _)| other.as_str()).collect(), reserved, name),
        };
        labels.push((name, value.clone()));
    }
    labels.sort();
    labels
}

fn is_free(labels: &[(String, String)], reserved: Option<&str>, name: &str) -> bool {
    reserved != Some(name) && labels.iter().all(|(other, _)| other != name)
}

fn free(labels: &[(String, String)], rest: Vec<&str>, reserved: Option<&str>, name: &str) -> String {
    let mut name = format!("{PREFIX}{name}");
    while !is_free(labels, reserved, &name) || rest.contains(&name.as_str()) {
        name.insert_str(0, PREFIX);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn a_clash_gets_the_prefix_and_never_loses_a_label() {
        let got = joined(&pairs(&[("pid", "7"), ("program", "x")]), pairs(&[("cpu", "0")]), None);
        assert_eq!(got, pairs(&[("cpu", "0"), ("pid", "7"), ("program", "x")]));
        let got = joined(&pairs(&[("pid", "7")]), pairs(&[("pid", "1")]), None);
        assert_eq!(got, pairs(&[("exported_pid", "1"), ("pid", "7")]));
        let got = joined(&pairs(&[("pid", "7")]), pairs(&[("pid", "1"), ("exported_pid", "2")]), None);
        assert_eq!(got, pairs(&[("exported_exported_pid", "1"), ("exported_pid", "2"), ("pid", "7")]));
        let got = joined(&pairs(&[("le", "7")]), pairs(&[("a", "1")]), Some("le"));
        assert_eq!(got, pairs(&[("a", "1"), ("exported_le", "7")]));
        let got = joined(&pairs(&[("a", "1")]), pairs(&[("value", "2")]), Some("value"));
        assert_eq!(got, pairs(&[("a", "1"), ("exported_value", "2")]));
    }

    #[test]
    fn a_label_without_a_value_is_none() {
        let got = joined(&pairs(&[("pid", "7"), ("dc", "")]), pairs(&[("pid", ""), ("dc", "a"), ("b", "")]), None);
        assert_eq!(got, pairs(&[("dc", "a"), ("pid", "7")]));
    }

    #[test]
    fn names_are_always_different() {
        const NAMES: [&str; 5] = ["a", "exported_a", "exported_exported_a", "le", "exported_le"];
        bolero::check!().with_type::<(u8, u8, bool)>().for_each(|(outside, own, is_reserved)| {
            let set = |bits: u8, value: &str| {
                let chosen = NAMES.iter().enumerate().filter(|(i, _)| bits >> i & 1 != 0);
                chosen.map(|(_, name)| ((*name).to_owned(), value.to_owned())).collect::<Vec<_>>()
            };
            let (outside, own) = (set(*outside, "outside"), set(*own, "own"));
            let count = outside.len() + own.len();
            let got = joined(&outside, own, is_reserved.then_some("le"));
            let mut names: Vec<_> = got.iter().map(|(name, _)| name).collect();
            names.dedup();
            assert_eq!(names.len(), count, "{got:?}");
            assert!(!*is_reserved || got.iter().all(|(name, _)| name != "le"));
            // Whoever is outside keeps its name, but for the reserved one.
            for label in outside.iter().filter(|(name, _)| !*is_reserved || name != "le") {
                assert!(got.contains(label), "{label:?} {got:?}");
            }
        });
    }
}
