// SPDX-License-Identifier: Apache-2.0
//! `make sim`: 64 to 10,000 hosts of 128 KiB are read at once over a simulated network ([`onlooker_sim`]), by what
//! bounds their READs. First the published curves must show their shapes (PAPERS B7), then ours keep its bounds.
//!
//! `QUICK=1`: up to 1,024 hosts. `SEED` (1). `SVG`: where the figure goes.

use std::time::Instant;

use anyhow::Result;
use onlooker_sim::cluster::{Cluster, FAST, SLOW};
use onlooker_sim::{Burst, Figures, Scheme};

use crate::curves::{Panel, draw_if_wanted};
use crate::machine::{is_quick, parameter};
use crate::report::Results;

const HOSTS: [usize; 7] = [64, 128, 256, 512, 1_024, 4_096, 10_000];
const QUICK_HOSTS: usize = 1_024;
/// One host in so many is of the class before the others.
const HIGH_PART: usize = 10;

/// What was measured of a cluster: by scheme, then by number of hosts.
struct Measured {
    cluster: Cluster,
    hosts: Vec<usize>,
    figures: Vec<(Scheme, Vec<Figures>)>,
}

impl Measured {
    fn of(&self, scheme: Scheme, hosts: usize) -> Figures {
        let of_scheme = self.figures.iter().find(|(other, _)| *other == scheme);
        let index = self.hosts.iter().position(|other| *other == hosts);
        of_scheme.zip(index).map_or_else(Figures::default, |((_, figures), index)| figures[index])
    }
}

pub(crate) fn run() -> Result<bool> {
    let (mut results, began, seed) = (Results::default(), Instant::now(), parameter("SEED", 1, 1)?);
    let measured = [SLOW, FAST].map(|cluster| measure(cluster, seed));
    for measured in &measured {
        published(&mut results, measured);
    }
    for measured in &measured {
        ours(&mut results, measured);
        disturbed(&mut results, measured.cluster, seed);
    }
    println!("simulated in {:.1} s", began.elapsed().as_secs_f64());
    let panels: Vec<Panel> = measured.iter().flat_map(panels).collect();
    draw_if_wanted(
        "flow-control.svg",
        "Hosts of 128 KiB read at once, by what bounds their READs (simulated)",
        &panels,
    )?;
    Ok(results.passed())
}

fn measure(cluster: Cluster, seed: u64) -> Measured {
    let hosts: Vec<usize> = HOSTS.into_iter().filter(|hosts| !is_quick() || *hosts <= QUICK_HOSTS).collect();
    println!("{}", cluster.name);
    println!("  hosts scheme     of link  mean ms   all ms  marked  paused  neighbour p99 us  credit KiB");
    let of = |scheme: Scheme| {
        let runs = hosts.iter().map(|hosts| {
            let figures = Burst { seed, ..Burst::new(cluster, scheme, *hosts) }.run();
            let Figures { of_link, marked, paused, neighbour_p99_ns, total_bytes, .. } = figures;
            println!(
                "{hosts:7} {:10} {of_link:7.3} {:8.3} {:8.3} {marked:7.4} {paused:7.3} {:17.1} {:11}",
                scheme.name(),
                figures.mean_ns / 1e6,
                figures.elapsed_ns as f64 / 1e6,
                neighbour_p99_ns as f64 / 1e3,
                total_bytes >> 10
            );
            figures
        });
        (scheme, runs.collect())
    };
    let figures = Scheme::ALL.map(of).into();
    Measured { cluster, hosts, figures }
}

/// How much later the last host is read than they are in the mean.
fn stretch(figures: &Figures) -> f64 {
    figures.elapsed_ns as f64 / figures.mean_ns
}

/// The shapes of the published curves, each where its experiment shows it.
fn published(results: &mut Results, measured: &Measured) {
    let name = |what: &str| format!("sim_{}_{what}", measured.cluster.name);
    let [tcp, unbounded, credits] =
        [Scheme::Tcp, Scheme::Unbounded, Scheme::Published].map(|scheme| measured.of(scheme, 256));
    results.at_least(&name("tcp_elapsed"), stretch(&tcp), "of_the_mean", 1.8);
    results.at_most(&name("read_elapsed"), stretch(&credits), "of_the_mean", 1.2);
    results.at_least(&name("read_of_tcp"), credits.of_link / tcp.of_link, "times", 3.0);
    results.at_most(&name("unbounded_64_paused"), measured.of(Scheme::Unbounded, 64).paused, "of_the_time", 0.0);
    results.at_least(&name("unbounded_1024_paused"), measured.of(Scheme::Unbounded, 1_024).paused, "of_the_time", 0.9);
    results.at_most(&name("published_256_paused"), credits.paused, "of_the_time", 0.0);
    results.at_most(&name("published_256_marked"), credits.marked, "of_answers", 0.001);
    if measured.cluster.mark_bytes.is_some() {
        results.at_least(&name("product_1024_marked"), measured.of(Scheme::Product, 1_024).marked, "of_answers", 0.1);
        let many = measured.of(Scheme::Published, 1_024);
        results.at_least(&name("published_1024_marked"), many.marked, "of_answers", 0.1);
    } else {
        results.at_least(&name("unbounded_256_paused"), unbounded.paused, "of_the_time", 0.9);
    }
}

fn ours(results: &mut Results, measured: &Measured) {
    for hosts in measured.hosts.iter().copied().filter(|hosts| *hosts >= 1_024) {
        let name = |what: &str| format!("sim_{}_ours_{hosts}_{what}", measured.cluster.name);
        let Figures { of_link, marked, paused, neighbour_p99_ns, .. } = measured.of(Scheme::Ours, hosts);
        results.at_least(&name("of_link"), of_link, "of_the_link", 0.9);
        results.at_most(&name("marked"), marked, "of_answers", 0.001);
        results.at_most(&name("paused"), paused, "of_the_time", 0.0);
        results.at_most(&name("neighbour_p99"), neighbour_p99_ns as f64 / 1e3, "us", 150.0);
    }
}

/// Classes, losses, slow hosts, a long way.
fn disturbed(results: &mut Results, cluster: Cluster, seed: u64) {
    let name = |what: &str| format!("sim_{}_ours_{what}", cluster.name);
    let calm = Burst { seed, ..Burst::new(cluster, Scheme::Ours, 1_024) };
    let equal = calm.run();
    let classes = Burst { high_part: Some(HIGH_PART), ..calm }.run();
    let ahead_us = (classes.mean_ns - classes.high_mean_ns) / 1e3;
    results.at_least(&name("1024_high_ahead"), ahead_us, "us", 400.0);
    let lossy = Burst { loss: 0.001, ..calm }.run();
    results.at_least(&name("1024_lossy_rate"), lossy.of_link / equal.of_link, "of_without", 0.8);
    let slow = Burst { stragglers: 0.01, ..calm }.run();
    let p99 = slow.good_p99_ns as f64 / equal.good_p99_ns as f64;
    results.at_most(&name("1024_beside_stragglers_p99"), p99, "of_without", 1.1);
    let far = Burst::new(Cluster { round_trip_ns: 400_000, ..cluster }, Scheme::Ours, 10_000);
    results.at_least(&name("far_credit"), f64::from(far.run().total_bytes) / 1024.0, "KiB", 1024.0);
}

fn panels(measured: &Measured) -> Vec<Panel> {
    let panel = |what: &str, of: fn(&Figures) -> f64| {
        let curve = |(scheme, figures): &(Scheme, Vec<Figures>)| {
            let points = measured.hosts.iter().zip(figures).map(|(hosts, figures)| (*hosts as f64, of(figures)));
            (scheme.name(), points.collect())
        };
        let curves = measured.figures.iter().map(curve).collect();
        Panel { title: format!("{}: {what}", measured.cluster.name), unit: "", curves }
    };
    vec![
        panel("payload, parts of the link", |figures| figures.of_link),
        panel("time until all are read, ms", |figures| figures.elapsed_ns as f64 / 1e6),
        panel("answers marked, parts of all", |figures| figures.marked),
        panel("time that hosts are paused, parts of all", |figures| figures.paused),
        panel("mean time until a host is read, ms", |figures| figures.mean_ns / 1e6),
        panel("what a neighbour's packet waits, p99, us", |figures| figures.neighbour_p99_ns as f64 / 1e3),
    ]
}
