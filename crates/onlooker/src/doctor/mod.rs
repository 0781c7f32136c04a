// SPDX-License-Identifier: Apache-2.0
//! `onlooker doctor`: what this machine has, and whether a host can be read from here. Each line says what to do where something is amiss.
//!
//! Only looks: it changes nothing, leaves nothing in the kernel, and opens no port.

mod kernel;
mod local;
mod metrics;
mod remote;
mod served;

use crate::host::Target;
use crate::number::parse_duration;
use crate::{End, Failure, output, token};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Check the way to this host, too [default port: 7177]
    #[arg(value_name = "HOST[:PORT]")]
    target: Option<Target>,
    #[command(flatten)]
    token: token::Source,
    /// The BPF file system where this machine's agent pins its kernel responder
    #[arg(long, value_name = "PATH", default_value = "/sys/fs/bpf")]
    bpffs: PathBuf,
    /// List each metric of that host: how it is acquired, its self-check, its cost and its age; without a host, compare the kernel metrics that this machine could compute with procfs
    #[arg(long)]
    metrics: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Time for each step towards the host
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    /// As it should be.
    Ok,
    /// Something will not work, or not as well.
    Warn,
    /// What was asked for does not work.
    Fail,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    status: Status,
    what: String,
    detail: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    advice: String,
}

impl Check {
    fn ok(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { status: Status::Ok, what: what.into(), detail: detail.into(), advice: String::new() }
    }

    fn warn(what: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Warn, what: what.into(), detail: detail.into(), advice: advice.into() }
    }

    fn fail(what: impl Into<String>, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { status: Status::Fail, what: what.into(), detail: detail.into(), advice: advice.into() }
    }
}

/// Checks and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let mut checks = local::checks(&arguments.bpffs);
    checks.extend(kernel::checks(&arguments.bpffs));
    let mut rows = Vec::new();
    if arguments.metrics && arguments.target.is_none() {
        checks.extend(metrics::checks(&mut rows));
    }
    if let Some(target) = &arguments.target {
        rows = remote::checks(target, &arguments.token, arguments.timeout, &mut checks);
        if !arguments.metrics {
            rows.clear();
        }
    }
    let is_fine = checks.iter().all(|check| check.status != Status::Fail);
    let mut out = output::stdout();
    if arguments.json {
        let mut document = serde_json::json!({"ok": is_fine, "checks": checks});
        if arguments.metrics {
            document["metrics"] = serde_json::to_value(&rows).map_err(io::Error::from)?;
        }
        serde_json::to_writer_pretty(&mut out, &document).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        write(&mut out, &checks)?;
        if !rows.is_empty() {
            writeln!(out)?;
            served::write(&mut out, &rows)?;
        }
    }
    out.flush()?;
    Ok(if is_fine { End::Done } else { End::Incomplete })
}

fn write(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    for Check { status, what, detail, advice } in checks {
        let status = match status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "fail",
        };
        let advice = if advice.is_empty() { String::new() } else { format!(" - {advice}") };
        writeln!(out, "{status:<5}{}: {}{advice}", output::shown(what), output::shown(detail))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_status_detail_and_advice() {
        let checks =
            [Check::ok("kernel", "6.1"), Check::warn("BTF", "missing\n", "do this"), Check::fail("x", "y", "z")];
        let mut out = Vec::new();
        write(&mut out, &checks).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ok   kernel: 6.1\nwarn BTF: missing\\n - do this\nfail x: y - z\n"
        );
    }
}
