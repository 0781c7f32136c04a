// SPDX-License-Identifier: Apache-2.0
//! Which kernel metrics could be computed at a READ on this machine: where the kernel's variables were found, and each metric beside procfs.
//!
//! Loads the collectors for a moment, attached to nothing; needs root and takes a second or two.

use super::Check;
use super::served::Row;
use onlooker_metrics::collect::{self, Options, SurveyedGroup, Verdict, survey};

const SAMPLED: &str = "it is not computed here; the agent samples it from procfs, for readers over TCP";

/// All of them, and a row a metric.
pub(super) fn checks(rows: &mut Vec<Row>) -> Vec<Check> {
    if !rustix::process::geteuid().is_root() {
        return vec![Check::fail(
            "computed metrics",
            "not looked at",
            "run as root: BPF programs are loaded for a moment",
        )];
    }
    let survey = match survey(&Options::default()) {
        Ok(survey) => survey,
        Err(error) => return vec![Check::warn("computed metrics", error.to_string(), SAMPLED)],
    };
    let findings = survey.findings.iter().map(|finding| {
        let what = format!("kernel variable {}", finding.name);
        match &finding.result {
            Ok(how) => Check::ok(what, how.as_str()),
            Err(why) => Check::warn(what, why.as_str(), "metrics that need it are sampled from procfs instead"),
        }
    });
    for surveyed in &survey.groups {
        rows.extend(surveyed.result.iter().flatten().map(|metric| {
            let is_served = metric.verdict.is_served();
            let cost_ns = surveyed.cost_ns.filter(|_| is_served);
            Row::surveyed(&metric.metric, surveyed.group.region().to_owned(), is_served, said(metric), cost_ns)
        }));
    }
    findings.chain(survey.groups.iter().flat_map(group)).collect()
}

fn group(surveyed: &SurveyedGroup) -> Vec<Check> {
    let what = format!("computed {}", surveyed.group);
    let metrics = match &surveyed.result {
        Ok(metrics) => metrics,
        Err(why) => return vec![Check::warn(what, why.as_str(), SAMPLED)],
    };
    let count = |verdict| metrics.iter().filter(|metric| metric.verdict == verdict).count();
    let (equal, bounds) = (count(Verdict::Equal), count(Verdict::Bounds));
    let mut detail = format!("{equal} of {} metrics agree with procfs", metrics.len());
    if bounds > 0 {
        detail += &format!(", {bounds} that it has not are within their bounds");
    }
    let is_served = metrics.iter().any(|metric| metric.verdict.is_served());
    let mut checks = vec![if is_served { Check::ok(what, detail) } else { Check::warn(what, detail, SAMPLED) }];
    checks.extend(metrics.iter().map(|metric| {
        let what = format!("metric {}", metric.metric);
        if metric.verdict.is_served() {
            Check::ok(what, said(metric))
        } else {
            Check::warn(what, said(metric), SAMPLED)
        }
    }));
    checks
}

/// The verdict, and what was compared.
fn said(metric: &collect::Check) -> String {
    let (before, after) = metric.procfs;
    let procfs = if before.is_nan() { String::new() } else { format!(", procfs {before} to {after}") };
    format!("{}: kernel {}{procfs}; {}", metric.verdict.name(), metric.kernel, metric.reason)
}
