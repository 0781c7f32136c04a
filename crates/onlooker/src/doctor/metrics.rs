// SPDX-License-Identifier: Apache-2.0
//! Which kernel metrics could be computed at a READ on this machine: where the kernel's variables were found, and each metric beside procfs.
//!
//! Loads the collectors for a moment, attached to nothing; needs root and takes a second or two.

use super::Check;
use super::served::Row;
use onlooker_kernel::collect::{Options, SurveyedGroup, Verdict, survey};

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
            let (before, after) = metric.procfs;
            let said = format!("kernel {}, procfs {before} to {after}; {}", metric.kernel, metric.reason);
            let is_equal = metric.verdict == Verdict::Equal;
            let cost_ns = surveyed.cost_ns.filter(|_| is_equal);
            Row::surveyed(&metric.metric, surveyed.group.region().to_owned(), is_equal, said, cost_ns)
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
    let equal = metrics.iter().filter(|metric| metric.verdict == Verdict::Equal).count();
    let detail = format!("{equal} of {} metrics agree with procfs", metrics.len());
    let mut checks = vec![if equal == 0 { Check::warn(what, detail, SAMPLED) } else { Check::ok(what, detail) }];
    checks.extend(metrics.iter().map(|metric| {
        let what = format!("metric {}", metric.metric);
        let (before, after) = metric.procfs;
        let detail = format!("kernel {}, procfs {before} to {after}; {}", metric.kernel, metric.reason);
        match metric.verdict {
            Verdict::Equal => Check::ok(what, detail),
            Verdict::Unlike => Check::warn(what, detail, SAMPLED),
        }
    }));
    checks
}
