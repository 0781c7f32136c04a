// SPDX-License-Identifier: Apache-2.0
//! Our own scripts, or those of a Prometheus that lies in a folder: `ONLOOKER_PROMQLTEST`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Write as _, stdout};
use std::path::{Path, PathBuf};

use crate::runner::{Why, run};

/// Of Prometheus 3.16.0, whose test engine drops names late: files, and how many of their evals give what they should.
/// Not fewer; more is to be noted here.
const PROMETHEUS: [(&str, usize); 22] = [
    ("aggregators.test", 164),
    ("at_modifier.test", 77),
    ("collision.test", 2),
    ("duration_expression.test", 59),
    ("extended_vectors.test", 174),
    ("fill-modifier.test", 1),
    ("functions.test", 383),
    ("histograms.test", 176),
    ("info.test", 0),
    ("limit.test", 0),
    ("literals.test", 25),
    ("name_label_dropping.test", 30),
    ("native_histograms.test", 541),
    ("operators.test", 214),
    ("range_queries.test", 16),
    ("selectors.test", 31),
    ("staleness.test", 17),
    ("start_timestamps.test", 8),
    ("subquery.test", 41),
    ("trig_functions.test", 21),
    ("type_and_unit.test", 65),
    ("unquoted_utf8_names.test", 8),
];

fn scripts(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).expect("the folder can be read").filter_map(Result::ok).map(|file| file.path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|own| own == "test")).collect();
    files.sort();
    files
}

#[test]
fn scripts_give_what_they_should() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let files = scripts(&own);
    assert!(files.len() >= 5, "scripts are missing");
    for path in files {
        let script = fs::read_to_string(&path).expect("a script");
        let is_delayed = path.ends_with("delayed_names.test");
        // However samples are cut into chunks.
        for chunk in [1, 7, 1_000] {
            let report = run(&script, chunk, is_delayed).expect("a script");
            let failures: Vec<String> =
                report.failures.iter().map(|failure| format!("line {}: {}", failure.line, failure.text)).collect();
            assert!(failures.is_empty(), "{} in chunks of {chunk}:\n{}", path.display(), failures.join("\n"));
            assert!(report.evals > 0, "{} has no evals", path.display());
        }
    }
}

#[test]
fn prometheus_scripts_give_what_they_should_where_they_are() {
    let Some(folder) = std::env::var_os("ONLOOKER_PROMQLTEST") else { return };
    let mut out = stdout().lock();
    let mut fewer = Vec::new();
    let (mut evals, mut passed) = (0, 0);
    for path in scripts(Path::new(&folder)) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let script = fs::read_to_string(&path).expect("a script");
        let report = run(&script, 3, true).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut reasons: BTreeMap<Why, usize> = BTreeMap::new();
        for failure in &report.failures {
            *reasons.entry(failure.why).or_default() += 1;
            if std::env::var_os("ONLOOKER_PROMQLTEST_FAILURES").is_some() {
                writeln!(out, "{name}:{} {:?} {:.400}", failure.line, failure.why, failure.text).expect("output");
            }
        }
        let own = report.evals - report.failures.len();
        writeln!(out, "{name}: {own} of {} {reasons:?}", report.evals).expect("output");
        (evals, passed) = (evals + report.evals, passed + own);
        let known = PROMETHEUS.iter().find(|(known, _)| *known == name).map_or(0, |(_, passed)| *passed);
        if own < known {
            fewer.push(format!("{name}: {own} evals give what they should, not {known}"));
        }
    }
    writeln!(out, "{passed} of {evals}").expect("output");
    assert!(evals > 0, "there are no scripts in {}", folder.display());
    assert!(fewer.is_empty(), "{}", fewer.join("\n"));
}
