// SPDX-License-Identifier: Apache-2.0
//! The labels of a series: its own and its region's.

/// What Prometheus puts before a sample's label that clashes with one attached from outside.
const PREFIX: &str = "exported_";

/// Joins the region's labels with a sample's own, sorted by name. Where both have a name the region's keeps it, since the agent vouches for it, and the
/// sample's gets the prefix, as Prometheus does with scraped labels. A region's label with the `reserved` name, which the format needs itself,
/// gets the prefix, too.
pub(crate) fn joined(
    region: &[(String, String)],
    own: Vec<(String, String)>,
    reserved: Option<&str>,
) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::with_capacity(region.len() + own.len());
    let free = |labels: &[(String, String)], rest: &[(String, String)], mut name: String| {
        while labels.iter().chain(rest).any(|(other, _)| *other == name) || reserved == Some(name.as_str()) {
            name.insert_str(0, PREFIX);
        }
        name
    };
    for (index, (name, value)) in region.iter().enumerate() {
        let name = free(&labels, &region[index + 1..], name.clone());
        labels.push((name, value.clone()));
    }
    for (index, (name, value)) in own.iter().enumerate() {
        // A clash with the region renames; a renamed label gives way to the sample's other labels.
        let clashes = labels.iter().any(|(other, _)| other == name);
        let name = if clashes { free(&labels, &own[index + 1..], name.clone()) } else { name.clone() };
        labels.push((name, value.clone()));
    }
    labels.sort();
    labels
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
    }

    #[test]
    fn names_are_always_different() {
        const NAMES: [&str; 5] = ["a", "exported_a", "exported_exported_a", "le", "exported_le"];
        bolero::check!().with_type::<(u8, u8, bool)>().for_each(|(region, own, reserved)| {
            let set = |bits: u8| {
                let chosen = NAMES.iter().enumerate().filter(|(i, _)| bits >> i & 1 != 0);
                chosen.map(|(_, name)| ((*name).to_owned(), "v".to_owned())).collect::<Vec<_>>()
            };
            let own: Vec<_> = set(*own).into_iter().filter(|(name, _)| name != "le").collect();
            let (region, count) = (set(*region), own.len());
            let got = joined(&region, own, reserved.then_some("le"));
            let mut names: Vec<_> = got.iter().map(|(name, _)| name).collect();
            names.dedup();
            assert_eq!(names.len(), region.len() + count, "{got:?}");
            assert!(!*reserved || got.iter().all(|(name, _)| name != "le"));
        });
    }
}
