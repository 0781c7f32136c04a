// SPDX-License-Identifier: Apache-2.0
//! `onlooker capacity`: by what a controller has recorded of itself, how much more it carries, and what ends first.
//!
//! The published capacity model: shares of resources at growing load, a parabola through each ([`fit`]), solved for the
//! whole of it. The load is what is stored, values a second; in hosts like those of now. It does not look at the store's
//! size: a full store goes on, with a shorter past.

mod fit;
pub(crate) mod history;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::number::parse_duration;
use crate::output::{self, Table, note};
use crate::{End, Failure};
use fit::{MIN_SPREAD, Outlook, Spread, outlook};
use history::{Client, Point, Range, settled};

/// Points of a history, unless a step is given; and at most, as the controller has it.
const POINTS: u32 = 1000;
const MAX_POINTS: u32 = 11_000;
const MIN_STEP: Duration = Duration::from_secs(60);
/// Bytes of a gigabit.
const GIGABIT_BYTES: f64 = 125e6;
/// Resources in the order of the table, with what their share is of.
const RESOURCES: [(&str, &str); 8] = [
    ("engine", "thread, of a core"),
    ("processor", "busiest thread, of a core"),
    ("store", "thread, of a core"),
    ("own", "thread, of a core"),
    ("rules", "thread, of a core"),
    ("cpu", "all threads, of all cores"),
    ("memory", "but for files, of what it may have"),
    ("network", "READs' answers, of the links"),
];

/// Fits a parabola, or a line, to what a controller has recorded of itself at different loads, and solves it for the
/// whole of each resource
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The controller: http://HOST:PORT or https://HOST:PORT
    #[arg(value_name = "CONTROLLER_URL", default_value = "http://127.0.0.1:7180")]
    url: String,
    /// How far to look back, e.g. 12h, 7d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = days)]
    since: Duration,
    /// Time between two points, e.g. 5min [default: a thousandth of --since, at least 1min]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    step: Option<Duration>,
    /// Share of a resource at which it counts as ended
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, value_parser = share)]
    share: f64,
    /// What the links to the hosts carry, in Gbit/s, instead of what the system says (virtual machines' do not)
    #[arg(long, value_name = "GBIT", value_parser = positive)]
    link: Option<f64>,
    /// File with the token of the controller's HTTP interface
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Certificate authority of the controller's certificate, PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Fit the points of this file instead, as --json has them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "since", "step", "link", "token_file", "ca"])]
    points: Option<PathBuf>,
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

fn days(text: &str) -> Result<Duration, String> {
    match text.strip_suffix('d').map(str::parse::<u32>) {
        Some(Ok(days @ 1..=3650)) => Ok(Duration::from_secs(u64::from(days) * 86_400)),
        _ => parse_duration(text),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "a number is expected".to_owned())?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err("a number above 0 is expected".into()) }
}

fn share(text: &str) -> Result<f64, String> {
    positive(text).and_then(|share| if share <= 1.0 { Ok(share) } else { Err("1 is all of it".into()) })
}

pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let points = match &arguments.points {
        Some(path) => history::read(path)?,
        None => {
            let client = Client::new(&arguments.url, arguments.ca.as_deref(), arguments.token_file.as_deref())?;
            settled(&client.history(&range(arguments))?)
        }
    };
    let Some(capacity) = Capacity::of(&points, arguments.share) else {
        note(
            "nothing is recorded of this time: a controller records itself every 10 s, since the version that has this",
        );
        return Ok(End::NothingMatched);
    };
    let mut out = output::stdout();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &capacity.document(&points)).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        capacity.write(&mut out)?;
    }
    out.flush()?;
    if capacity.spread.is_enough() {
        return Ok(End::Done);
    }
    let Spread { least, greatest, .. } = capacity.spread;
    note(&format!(
        "the load was between {} and {} values/s, which is too little spread to predict anything: the greatest must be {MIN_SPREAD} times the least. Look further back with --since, or add hosts and ask again",
        thousands(least),
        thousands(greatest)
    ));
    Ok(End::Incomplete)
}

fn range(arguments: &Arguments) -> Range {
    let since = arguments.since;
    let step = arguments.step.unwrap_or_else(|| (since / POINTS).max(MIN_STEP)).max(since / MAX_POINTS);
    Range { since, step, link_bytes_per_s: arguments.link.map(|gigabits| gigabits * GIGABIT_BYTES) }
}

/// What is known of a resource.
struct Resource {
    name: &'static str,
    of: &'static str,
    share_now: f64,
    points: usize,
    outlook: Option<Outlook>,
}

impl Resource {
    fn of(name: &'static str, of: &'static str, points: &[Point], limit: f64) -> Option<Self> {
        let shares: Vec<_> =
            points.iter().filter_map(|point| Some((point.values_per_s, *point.shares.get(name)?))).collect();
        let (_, share_now) = *shares.last()?;
        Some(Self { name, of, share_now, points: shares.len(), outlook: outlook(&shares, limit) })
    }

    fn ends_at(&self) -> Option<f64> {
        match self.outlook {
            Some(Outlook::Ends { at, .. }) => Some(at),
            _ => None,
        }
    }
}

/// All that is to be told.
struct Capacity {
    limit: f64,
    spread: Spread,
    load_now: f64,
    hosts_now: f64,
    resources: Vec<Resource>,
}

impl Capacity {
    /// `None`: there are no points.
    fn of(points: &[Point], limit: f64) -> Option<Self> {
        let spread = Spread::of(points.iter().map(|point| point.values_per_s))?;
        let last = points.iter().rfind(|point| point.values_per_s > 0.0)?;
        let resources = RESOURCES.into_iter().filter_map(|(name, of)| Resource::of(name, of, points, limit)).collect();
        Some(Self { limit, spread, load_now: last.values_per_s, hosts_now: last.hosts, resources })
    }

    /// A load in hosts like those of now.
    fn hosts(&self, load: f64) -> f64 {
        load / self.load_now * self.hosts_now
    }

    /// What ends first, and at which load.
    fn first(&self) -> Option<(&Resource, f64)> {
        let ends = self.resources.iter().filter_map(|resource| Some((resource, resource.ends_at()?)));
        ends.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn sentence(&self) -> String {
        let share = if self.limit < 1.0 { format!("{:.0} % of ", self.limit * 100.0) } else { String::new() };
        let Some((first, at)) = self.first() else {
            return match self.spread.is_enough() {
                true => "No resource grows with the load in a way that could be told from noise.".to_owned(),
                false => String::new(),
            };
        };
        let what = format!("{share}{} ({})", first.name, first.of);
        if at <= self.load_now {
            return format!("{what} has ended already: at {} values/s.", thousands(at));
        }
        let far = if at > 10.0 * self.spread.greatest { " That is far beyond what was seen." } else { "" };
        format!(
            "{what} ends first: at {} values/s, {} hosts like those of now, {:.1} times the load of now.{far}",
            thousands(at),
            thousands(self.hosts(at)),
            at / self.load_now
        )
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Spread { least, greatest, loads } = self.spread;
        writeln!(
            out,
            "now {} values/s of {} hosts; seen: {} to {} values/s, {loads} loads\n",
            thousands(self.load_now),
            thousands(self.hosts_now),
            thousands(least),
            thousands(greatest)
        )?;
        let mut table = Table::new(&[
            "RESOURCE",
            ">NOW",
            ">ENDS AT VALUES/S",
            ">HOSTS",
            ">TIMES NOW",
            "BY",
            ">R2",
            ">POINTS",
            "SHARE OF",
        ]);
        for resource in &self.resources {
            let [at, hosts, times, by, r2] = match resource.outlook {
                Some(Outlook::Ends { at, curve }) => [
                    thousands(at),
                    thousands(self.hosts(at)),
                    format!("{:.1}", at / self.load_now),
                    curve.name().to_owned(),
                    format!("{:.3}", curve.r2),
                ],
                Some(Outlook::Flat) => ["-", "-", "-", "does not grow", "-"].map(str::to_owned),
                None => ["-", "-", "-", "cannot be told", "-"].map(str::to_owned),
            };
            let now = format!("{:.1} %", resource.share_now * 100.0);
            let (name, of) = (resource.name.to_owned(), resource.of.to_owned());
            table.row(vec![name, now, at, hosts, times, by, r2, resource.points.to_string(), of]);
        }
        table.write(out)?;
        if !self.resources.iter().any(|resource| resource.name == "network") {
            writeln!(out, "\nWhat the links carry is not known here: --link says it, in Gbit/s.")?;
        }
        match self.sentence() {
            sentence if sentence.is_empty() => Ok(()),
            sentence => writeln!(out, "\n{sentence}"),
        }
    }

    fn document(&self, points: &[Point]) -> Value {
        let resource = |resource: &Resource| {
            let (ends_at, fit) = match resource.outlook {
                Some(Outlook::Ends { at, curve }) => (
                    json!({"values_per_s": at, "hosts": self.hosts(at), "times_now": at / self.load_now}),
                    json!({"by": curve.name(), "coefficients": curve.coefficients, "r2": curve.r2}),
                ),
                _ => (Value::Null, Value::Null),
            };
            json!({
                "resource": resource.name, "share_of": resource.of, "share_now": resource.share_now,
                "points": resource.points, "ends_at": ends_at, "fit": fit,
                "grows": resource.outlook.map(|outlook| outlook != Outlook::Flat),
            })
        };
        json!({
            "share": self.limit,
            "now": {"values_per_s": self.load_now, "hosts": self.hosts_now},
            "seen": {
                "least_values_per_s": self.spread.least, "greatest_values_per_s": self.spread.greatest,
                "loads": self.spread.loads, "is_enough": self.spread.is_enough(),
            },
            "resources": self.resources.iter().map(resource).collect::<Vec<_>>(),
            "first": self.first().map(|(resource, _)| resource.name),
            "summary": self.sentence(),
            "points": points,
        })
    }
}

/// A whole number with its thousands apart.
fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
