// SPDX-License-Identifier: Apache-2.0
//! `onlooker read`: one host's metrics, now or every so often.
//!
//! Standard output has what was read and nothing else; what could not be read goes to standard error, with the reason.

pub(crate) mod directory;
mod json;
mod problems;
mod prometheus;
pub(crate) mod samples;
mod summary;
mod table;

#[cfg(test)]
pub(crate) mod fixture;

use crate::host::{ByChoice, Choice, Connection, Options, Reading, Target, addresses};
use crate::number::parse_duration;
use crate::suggest::matches;
use crate::{End, Failure, output, token};
use onlooker_reader::{Limits, Session};
use onlooker_region::Schema;
use onlooker_region::control::RegionEntry;
use onlooker_series::derive::Derived;
use std::io::Write;
use std::time::{Duration, Instant};

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The host, with the port of its agent's bootstrap endpoint [default port: 7177]
    #[arg(value_name = "HOST[:PORT]")]
    target: Target,
    /// Names of metrics; `*` and `?` as in a shell [default: all]
    #[arg(value_name = "METRIC")]
    metrics: Vec<String>,
    #[command(flatten)]
    token: token::Source,
    /// One JSON document for each reading
    #[arg(long)]
    json: bool,
    /// Prometheus' text format 0.0.4
    #[arg(long, conflicts_with_all = ["json", "interval"])]
    prometheus: bool,
    /// Names of the metrics, without reading them
    #[arg(long, conflicts_with_all = ["prometheus", "interval", "regions"])]
    list: bool,
    /// The host's directory, without reading the regions
    #[arg(long, conflicts_with_all = ["prometheus", "interval", "metrics"])]
    regions: bool,
    /// Only these regions; `*` and `?` as in a shell, may be given several times [default: all]
    #[arg(long, value_name = "NAME", conflicts_with = "regions")]
    region: Vec<String>,
    /// Read repeatedly, at this interval, and show rates of counters
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    interval: Option<Duration>,
    /// Print no values, but a line of JSON each second: what was read since the start, what was missed, and how late
    #[arg(long, requires = "interval", conflicts_with_all = ["json", "prometheus", "list", "regions"])]
    summary: bool,
    /// Stop after this many readings
    #[arg(long, value_name = "N", requires = "interval", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Which of the host's responders to read from
    #[arg(long, value_name = "RESPONDER", value_enum, default_value = "auto")]
    via: Choice,
    /// Who sends READs to devices and kernel responders
    #[arg(long, value_name = "REQUESTER", value_enum, default_value = "auto")]
    by: ByChoice,
    /// Time for connecting, and for each reading
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    timeout: Duration,
    /// Max MiB to read from the host in one reading
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    max_mib: u64,
}

impl Arguments {
    fn wants_values(&self) -> bool {
        !self.list && !self.regions
    }
}

/// Whether a metric was asked for.
fn is_wanted(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

fn has_wanted(patterns: &[String], entry: &RegionEntry, schema: &Schema) -> bool {
    directory::given(entry, schema).any(|given| is_wanted(patterns, given.name))
}

/// Reads and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let addresses = addresses(&arguments.target).map_err(crate::host::HostError::from)?;
    let is_local = addresses.iter().all(|address| address.ip().is_loopback());
    let token = arguments.token.token(is_local).map_err(crate::host::HostError::from)?;
    if token.fingerprint.is_none() && !is_local {
        output::note(
            "warning: this token is for a plain endpoint, so its secret crosses the network readable for everybody",
        );
    }
    let limits = Limits { bytes: arguments.max_mib << 20, ..Limits::default() };
    let options = Options { choice: arguments.via, by: arguments.by, timeout: arguments.timeout, limits };
    let mut connection = Connection::open(&arguments.target, addresses, token, options)?;
    let (patterns, values) = (arguments.metrics.clone(), arguments.wants_values());
    let regions = arguments.region.clone();
    say_way(&connection);
    let prepare = move |session: &mut Session| {
        let (patterns, regions) = (patterns.clone(), regions.clone());
        session.select(move |entry, schema| {
            values && is_wanted(&regions, &entry.name) && has_wanted(&patterns, entry, schema)
        });
    };
    let mut shown = Shown::default();
    let mut summary = arguments.interval.filter(|_| arguments.summary).map(summary::Summary::new);
    let mut end = End::Done;
    let begin = Instant::now();
    let mut due = Due::default();
    for number in 1u64.. {
        let late = arguments.interval.map_or(Duration::ZERO, |interval| due.late(interval, begin.elapsed()));
        let started = Instant::now();
        let result = connection.read(&prepare);
        let took = started.elapsed();
        if let Ok(Reading::Anew(why)) = &result {
            output::note(&format!(
                "gap of {} ms: {why}; bootstrapped again, reading over {}",
                took.as_millis(),
                connection.way.pair
            ));
            say_way(&connection);
        }
        if let Some(summary) = &mut summary {
            summary.take(&connection, &result, late, took)?;
        }
        match result {
            Ok(_) if summary.is_some() => {}
            Ok(_) => end = show(arguments, &connection, &mut shown, number)?,
            Err(error) if number == 1 => return Err(error.into()),
            Err(error) => {
                output::note(&error.to_string());
                end = End::Incomplete;
            }
        }
        let Some(interval) = arguments.interval else { break };
        if arguments.count.is_some_and(|count| number >= count) {
            break;
        }
        let skipped = due.next(interval, begin.elapsed());
        if let Some(summary) = &mut summary {
            summary.skipped(skipped, took > interval);
        }
        std::thread::sleep(due.wait(interval, begin.elapsed()));
    }
    if let Some(summary) = &summary {
        summary.write()?;
    }
    Ok(end)
}

/// Says why the kernel responder is not what answers, if it should have been.
fn say_way(connection: &Connection) {
    connection.way.notes().iter().for_each(|note| output::note(note));
}

/// Times at which readings are due: multiples of the interval, not pauses, so that they do not drift. Those that went by meanwhile are skipped but for
/// the last one, so that a slow reading is not followed by a burst.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Due(u64);

impl Due {
    /// Goes on to the next one to be done; returns how many were skipped.
    pub(crate) fn next(&mut self, interval: Duration, elapsed: Duration) -> u64 {
        let passed = u64::try_from(elapsed.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u64::MAX);
        let (before, next) = (self.0, (self.0 + 1).max(passed));
        self.0 = next;
        next - before - 1
    }

    fn at(self, interval: Duration) -> Duration {
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(interval_ns.saturating_mul(self.0))
    }

    pub(crate) fn wait(self, interval: Duration, elapsed: Duration) -> Duration {
        self.at(interval).saturating_sub(elapsed)
    }

    fn late(self, interval: Duration, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.at(interval))
    }
}

/// What goes from reading to reading.
#[derive(Default)]
struct Shown {
    derived: Derived,
    rates: table::Rates,
}

fn show(arguments: &Arguments, connection: &Connection, shown: &mut Shown, number: u64) -> Result<End, Failure> {
    let session = &connection.session;
    let patterns = &arguments.metrics;
    let mut out = output::stdout();
    if arguments.regions {
        if arguments.json {
            json::regions(&mut out, connection)?;
        } else {
            directory::regions(&mut out, session)?;
        }
        out.flush()?;
        return Ok(problems::of_directory(session));
    }
    if arguments.list {
        let names = directory::names(session, patterns);
        if arguments.json {
            json::names(&mut out, &names)?;
        } else {
            directory::list(&mut out, &names)?;
        }
        out.flush()?;
        return Ok(problems::verdict(session, patterns, |name| names.contains_key(name)));
    }
    let collected = samples::collect(session, patterns, &mut shown.derived);
    if arguments.json {
        json::reading(&mut out, connection, &collected, arguments.interval.is_none())?;
    } else if arguments.prometheus {
        prometheus::write(&mut out, &collected)?.iter().for_each(|note| output::note(note));
    } else {
        if number > 1 {
            writeln!(out)?;
        }
        table::write(&mut out, &collected, &connection.told().relation, arguments.interval.map(|_| &mut shown.rates))?;
    }
    out.flush()?;
    problems::of_regions(session, &collected);
    if !problems::has_regions(session, &arguments.region) {
        return Ok(End::NothingMatched);
    }
    Ok(problems::verdict(session, patterns, |name| collected.has(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_do_not_drift_and_are_not_made_up_for() {
        let (mut due, interval) = (Due::default(), Duration::from_millis(10));
        let ms = Duration::from_millis;
        assert_eq!((due.next(interval, ms(3)), due.wait(interval, ms(3))), (0, ms(7)));
        assert_eq!((due.next(interval, ms(12)), due.wait(interval, ms(12))), (0, ms(8)));
        // The reading due at 20 ms took until 27 ms: the next is in time.
        assert_eq!((due.next(interval, ms(27)), due.wait(interval, ms(27))), (0, ms(3)));
        // Until 58 ms: that of 40 ms is skipped, that of 50 ms begins late.
        assert_eq!(
            (due.next(interval, ms(58)), due.wait(interval, ms(58)), due.late(interval, ms(58))),
            (1, ms(0), ms(8))
        );
        assert_eq!((due.next(interval, ms(59)), due.wait(interval, ms(59))), (0, ms(1)));
    }
}
