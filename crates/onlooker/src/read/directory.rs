// SPDX-License-Identifier: Apache-2.0
//! What the directory says without reading regions: regions, and names of metrics.

use crate::output::{Table, shown};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS};
use onlooker_region::schema::{Field, Metric};
use onlooker_transport::reader::Session;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Name of a metric's type.
pub(super) fn type_name(metric: Metric) -> &'static str {
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
pub(super) fn label_text(labels: &[(String, String)]) -> String {
    let quoted = |value: &str| {
        let shown = shown(value);
        let plain = !shown.is_empty() && !shown.contains([' ', '=', '"', ',']);
        if plain { shown } else { format!("\"{}\"", shown.replace('"', "\\\"")) }
    };
    let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{}={}", shown(name), quoted(value))).collect();
    pairs.join(",")
}

/// The metrics of all schemas that match, with the first field of each name.
pub(super) fn names<'a>(session: &'a Session, patterns: &[String]) -> BTreeMap<&'a str, &'a Field> {
    let schemas = session.directory().regions().filter_map(|entry| session.schema(entry));
    let fields = schemas.flat_map(|schema| &schema.groups).flat_map(|group| &group.fields);
    let mut names = BTreeMap::new();
    for field in fields.filter(|field| super::is_wanted(patterns, &field.name)) {
        names.entry(field.name.as_str()).or_insert(field);
    }
    names
}

pub(super) fn list(out: &mut impl Write, names: &BTreeMap<&str, &Field>) -> io::Result<()> {
    let mut table = Table::new(&["METRIC", "TYPE", "UNIT", "HELP"]);
    for (name, field) in names {
        let type_name = type_name(field.metric).to_owned();
        table.row(vec![shown(name), type_name, shown(&field.unit), shown(&field.help)]);
    }
    table.write(out)
}

pub(super) fn regions(out: &mut impl Write, session: &Session) -> io::Result<()> {
    let mut table =
        Table::new(&[">ID", "REGION", "LABELS", ">PID", ">UID", ">BLOCKS", "CLASS", "SCHEMA", "RESPONDERS", "STATE"]);
    for entry in session.directory().regions() {
        let class = session.schema(entry).map_or_else(|| "?".to_owned(), |schema| shown(&schema.name));
        table.row(vec![
            entry.identity.region.to_string(),
            shown(&entry.name),
            label_text(&entry.labels),
            entry.pid.to_string(),
            entry.uid.to_string(),
            (entry.bytes / 1024).to_string(),
            class,
            entry.schema.to_string(),
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
        assert_eq!(lines[1][9..], ["tcp", "live"]);
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
