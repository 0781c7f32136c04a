// SPDX-License-Identifier: Apache-2.0
//! How it goes with a host, as answers have it (docs/http.md, "Hosts").

use std::collections::BTreeMap;

use onlooker_reader::clock::{Moment, steady_ns};
use onlooker_region::control::{RESPONDER_KERNEL, RESPONDER_TCP, RESPONDER_VERBS};
use onlooker_region::schema::Acquisition;
use onlooker_targets::Priority;
use serde::Serialize;

use super::answer::ms;
use crate::fleet::{Figures, Host, Limit, RegionFigures, ShownGap, Whose};
use crate::sink::State;

/// Regions that are named for each quota.
const MAX_REGIONS_OVER: usize = 20;

type Counts<'a> = &'a BTreeMap<&'static str, u64>;

#[derive(Serialize)]
pub(super) struct Summary<'a> {
    name: &'a str,
    address: String,
    labels: &'a BTreeMap<String, String>,
    state: &'static str,
    via: Option<&'static str>,
    requester: Option<String>,
    since_ms: f64,
    error: Option<&'a str>,
    interval_ms: f64,
    priority: Priority,
    age_ms: Option<f64>,
    clock_error_ms: Option<f64>,
    regions: usize,
    series: usize,
    over_quota: Vec<OverQuota<'a>>,
    cycles: u64,
    late: u64,
    gaps: Counts<'a>,
    last_gap: Option<Gap>,
    invalid_samples: Counts<'a>,
    reads: Reads<'a>,
    lateness_us: Lateness,
}

#[derive(Serialize)]
pub(super) struct Gap {
    from_ms: f64,
    to_ms: f64,
    reason: &'static str,
}

impl From<&ShownGap> for Gap {
    fn from(gap: &ShownGap) -> Self {
        Self { from_ms: ms(gap.from_ns), to_ms: ms(gap.to_ns), reason: gap.reason }
    }
}

#[derive(Serialize)]
struct Reads<'a> {
    done: u64,
    blocks: u64,
    repeated: u64,
    timed_out: u64,
    refused: u64,
    failed: Counts<'a>,
    retries: Counts<'a>,
    latency_us: Latency,
}

#[derive(Serialize)]
struct Latency {
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
}

#[derive(Serialize)]
struct Lateness {
    p50: u64,
    p99: u64,
    max: u64,
}

/// What of the host is not kept, since it would cost too much.
#[derive(Serialize)]
struct OverQuota<'a> {
    quota: &'static str,
    of: &'static str,
    limit: u64,
    used: u64,
    rows: u64,
    since_ms: f64,
    last_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    regions: Option<Vec<RegionOver<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    more_regions: Option<usize>,
}

#[derive(Serialize)]
struct RegionOver<'a> {
    name: &'a str,
    pid: u32,
    uid: u32,
    tracks: u64,
    series: u64,
}

impl<'a> Summary<'a> {
    pub(super) fn new(host: &'a Host, figures: &'a Figures) -> Self {
        let target = &host.target;
        let error = match &figures.state {
            State::Silent(error) | State::Failed(error) => Some(error.as_str()),
            State::Connecting | State::Reading(_) => None,
        };
        let now_ns = Moment::now().utc_ns;
        let pair = figures.pair();
        let [p50, p90, p99, max] = figures.latency_ns.map(|ns| ns / 1_000);
        let [late_p50, late_p99, late_max] = figures.lateness_ns.map(|ns| ns / 1_000);
        let reads = &figures.reads;
        Self {
            name: &target.name,
            address: format!("{}:{}", target.host, target.port),
            labels: &target.labels,
            state: figures.state.name(),
            via: pair.map(|pair| pair.via.kind()),
            requester: pair.map(|pair| pair.by.to_string()),
            since_ms: ms(figures.since_ns),
            error,
            interval_ms: target.interval.as_secs_f64() * 1e3,
            priority: target.priority,
            age_ms: figures.newest_ns.map(|newest_ns| ms(now_ns.saturating_sub(newest_ns))),
            clock_error_ms: figures.clock_error_ns().map(ms),
            regions: figures.regions,
            series: figures.series,
            over_quota: over_quota(figures, now_ns),
            cycles: figures.cycles,
            late: figures.late,
            gaps: &figures.gaps,
            last_gap: figures.last_gap.as_ref().map(Gap::from),
            invalid_samples: &figures.invalid,
            reads: Reads {
                done: reads.reads,
                blocks: reads.blocks,
                repeated: figures.repeated,
                timed_out: reads.failed.get("timeout").copied().unwrap_or(0),
                refused: reads.refused.values().sum(),
                failed: &reads.failed,
                retries: &reads.retries,
                latency_us: Latency { p50, p90, p99, max },
            },
            lateness_us: Lateness { p50: late_p50, p99: late_p99, max: late_max },
        }
    }
}

fn over_quota<'a>(figures: &Figures, now_ns: u64) -> Vec<OverQuota<'a>> {
    let steady_ns = steady_ns();
    let utc_ms = |at_ns: u64| ms(now_ns.saturating_sub(steady_ns.saturating_sub(at_ns)));
    let one = |(whose, limit, over): &(Whose, Limit, crate::fleet::Over)| OverQuota {
        quota: limit.key(),
        of: whose.name(),
        limit: over.limit,
        used: over.used,
        rows: over.rows,
        since_ms: utc_ms(over.since_ns),
        last_ms: utc_ms(over.last_ns),
        regions: None,
        more_regions: None,
    };
    figures.over.iter().map(one).collect()
}

/// One host with its regions.
#[derive(Serialize)]
pub(super) struct Detail<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    regions_list: Vec<Region<'a>>,
}

#[derive(Serialize)]
struct Region<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
    acquisition: &'a [Acquisition],
    via: Vec<&'static str>,
    bytes: u64,
    pid: u32,
    uid: u32,
    orphan: bool,
    age_ms: Option<f64>,
    problem: Option<String>,
    series: usize,
}

impl<'a> Detail<'a> {
    pub(super) fn new(host: &'a Host, figures: &'a Figures, regions: &'a [RegionFigures]) -> Self {
        let mut summary = Summary::new(host, figures);
        for (over, (whose, limit, _)) in summary.over_quota.iter_mut().zip(&figures.over) {
            let mut all: Vec<RegionOver<'a>> = regions_over(regions, *whose, *limit).collect();
            over.more_regions = Some(all.len().saturating_sub(MAX_REGIONS_OVER));
            all.truncate(MAX_REGIONS_OVER);
            over.regions = Some(all);
        }
        let now_ns = Moment::now().utc_ns;
        Self { summary, regions_list: regions.iter().map(|region| Region::new(region, now_ns)).collect() }
    }
}

fn regions_over(regions: &[RegionFigures], whose: Whose, limit: Limit) -> impl Iterator<Item = RegionOver<'_>> {
    regions.iter().filter_map(move |figures| {
        let excess = figures.excess.filter(|excess| excess.is_of(whose, limit))?;
        let entry = &figures.region.entry;
        let (tracks, series) = (excess.entities, excess.series);
        Some(RegionOver { name: &entry.name, pid: entry.pid, uid: entry.uid, tracks, series })
    })
}

impl<'a> Region<'a> {
    fn new(figures: &'a RegionFigures, now_ns: u64) -> Self {
        let RegionFigures { region, newest_ns, series, excess } = figures;
        let entry = &region.entry;
        let over = excess.map(|excess| {
            let (key, tracks, series) = (excess.limit.key(), excess.entities, excess.series);
            format!("over_quota: {tracks} tracks with {series} series are not kept, since [quota] {key} has no room")
        });
        let bits = [(RESPONDER_KERNEL, "kernel"), (RESPONDER_TCP, "tcp"), (RESPONDER_VERBS, "verbs")];
        let via = bits.iter().filter(|(bit, _)| entry.responders & bit != 0).map(|(_, name)| *name);
        Self {
            name: &entry.name,
            labels: entry.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            acquisition: &region.acquisition,
            via: via.collect(),
            bytes: entry.bytes,
            pid: entry.pid,
            uid: entry.uid,
            orphan: entry.orphan,
            age_ms: newest_ns.map(|newest_ns| ms(now_ns.saturating_sub(newest_ns))),
            problem: region.problem.clone().or(over),
            series: *series,
        }
    }
}
