// SPDX-License-Identifier: Apache-2.0
//! What the directory says without reading regions: regions, and names of metrics.

use crate::output::{Table, shown};
use onlooker_reader::Session;
use onlooker_region::control::RegionEntry;
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::schema::{Acquisition, Field, Group, Metric, Schema, Sum};
use onlooker_series::derive::sum_of;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Name of a metric's type.
pub(crate) fn type_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Counter => "counter",
        Metric::Gauge => "gauge",
        Metric::Histogram => "histogram",
        Metric::Info => "info",
    }
}

/// Names of the responders that an entry has bits for.
pub(super) fn responders(bits: u32) -> Vec<&'static str> {
    let known = [(RESPONDER_TCP, "tcp"), (RESPONDER_KERNEL, "kernel"), (RESPONDER_VERBS, "verbs")];
    known.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect()
}

/// Labels for people.
pub(crate) fn label_text(labels: &[(String, String)]) -> String {
    let quoted = |value: &str| {
        let shown = shown(value);
        let plain = !shown.is_empty() && !shown.contains([' ', '=', '"', ',']);
        if plain { shown } else { format!("\"{}\"", shown.replace('"', "\\\"")) }
    };
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{}={}", shown(name), quoted(value))).collect();
    pairs.join(",")
}

/// Name of how a group's values get there.
pub(crate) fn acquisition_name(acquisition: Acquisition) -> &'static str {
    match acquisition {
        Acquisition::Direct => "direct",
        Acquisition::Computed => "computed",
        Acquisition::Published => "published",
        Acquisition::Sampled => "sampled",
    }
}

/// How the values of a region get there, as far as anybody vouches for it: all ways that its groups have.
pub(super) fn acquisitions(entry: &RegionEntry, schema: Option<&Schema>) -> Vec<&'static str> {
    let groups = schema.into_iter().flat_map(|schema| &schema.groups);
    let names: BTreeSet<_> = groups.map(|group| acquisition_name(entry.acquisition(group))).collect();
    names.into_iter().collect()
}

/// A metric that a region gives: values of a field, or their sum over CPUs.
pub(super) struct Given<'a> {
    pub(super) name: &'a str,
    help: &'a str,
    field: &'a Field,
    group: &'a Group,
}

/// The metrics that a region gives, as they are shown: parts that a sum replaces are not among them.
pub(super) fn given<'a>(entry: &'a RegionEntry, schema: &'a Schema) -> impl Iterator<Item = Given<'a>> {
    let fields = schema.groups.iter().flat_map(|group| group.fields.iter().map(move |field| (group, field)));
    fields.flat_map(move |(group, field)| {
        let sum = sum_of(entry, field);
        let own = (!sum.is_some_and(Sum::replaces)).then_some((field.name.as_str(), field.help.as_str()));
        let sum = sum.map(|sum| (field.sum_name(sum), field.sum_help(sum)));
        [own, sum].into_iter().flatten().map(move |(name, help)| Given { name, help, field, group })
    })
}

/// A metric of the directory, as the first of its name says.
#[derive(Debug)]
pub(super) struct Named<'a> {
    pub(super) field: &'a Field,
    pub(super) help: &'a str,
    /// How it is acquired, and by which responders it is served (RESPONDER_* bits).
    pub(super) ways: BTreeSet<(&'static str, u32)>,
}

/// The metrics of all schemas that match, by name.
pub(super) fn names<'a>(session: &'a Session, patterns: &[String]) -> BTreeMap<&'a str, Named<'a>> {
    let mut names = BTreeMap::new();
    let regions = session.directory().regions().filter_map(|entry| Some((entry, session.schema(entry)?)));
    for (entry, schema) in regions {
        for Given { name, help, field, group } in given(entry, schema) {
            if super::is_wanted(patterns, name) {
                let named = names.entry(name).or_insert_with(|| Named { field, help, ways: BTreeSet::default() });
                named.ways.insert((acquisition_name(entry.acquisition(group)), entry.responders));
            }
        }
    }
    names
}

pub(super) fn list(out: &mut impl Write, names: &BTreeMap<&str, Named>) -> io::Result<()> {
    let mut table = Table::new(&["METRIC", "TYPE", "UNIT", "ACQUISITION", "RESPONDERS", "HELP"]);
    for (name, Named { field, help, ways }) in names {
        for (acquisition, bits) in ways {
            table.row(vec![
                shown(name),
                type_name(field.metric).to_owned(),
                shown(&field.unit),
                (*acquisition).to_owned(),
                responders(*bits).join(","),
                shown(help),
            ]);
        }
    }
    table.write(out)
}

pub(super) fn regions(out: &mut impl Write, session: &Session) -> io::Result<()> {
    let mut table = Table::new(&[
        ">ID",
        "REGION",
        "LABELS",
        ">PID",
        ">UID",
        ">BLOCKS",
        "CLASS",
        "SCHEMA",
        "ACQUISITION",
        "RESPONDERS",
        "STATE",
    ]);
    for entry in session.directory().regions() {
        let class = session.schema(entry).map_or_else(|| "?".to_owned(), |schema| shown(&schema.name));
        table.row(vec![
            entry.identity.region.to_string(),
            shown(&entry.name),
            label_text(&entry.labels),
            entry.pid.to_string(),
            entry.uid.to_string(),
            (entry.bytes / BLOCK_BYTES as u64).to_string(),
            class,
            entry.schema.to_string(),
            acquisitions(entry, session.schema(entry)).join(","),
            responders(entry.responders).join(","),
            if entry.orphan { "orphan".into() } else { "live".into() },
        ]);
    }
    table.write(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::fixture;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_directory_is_shown_with_owners_and_schemas() {
        let session = fixture::session();
        let text = text(|out| regions(out, &session));
        let words = |line: &str| line.split_whitespace().map(String::from).collect::<Vec<_>>();
        let lines: Vec<_> = text.lines().map(words).collect();
        assert_eq!(lines[0][..4], ["ID", "REGION", "LABELS", "PID"]);
        assert_eq!(lines[1][..7], ["1", "shop", "pid=4321,program=\"my", "shop\"", "4321", "1000", "4"]);
        assert_eq!(lines[1][9..], ["direct", "tcp", "live"]);
    }

    #[test]
    fn names_are_listed_once_with_type_unit_and_help() {
        let session = fixture::session();
        let text = text(|out| list(out, &names(&session, &["shop_*".into()])));
        assert_eq!(text.matches("shop_requests_total").count(), 1);
        assert!(
            text.contains("counter") && text.contains("Requests served.") && !text.contains("queue_depth"),
            "{text}"
        );
    }
}
