// SPDX-License-Identifier: Apache-2.0
//! Publishes known values in every way that the Rust SDK has, says so, and sleeps: the twin of known.c.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a program for a script")]

use onlooker_sdk::{Counter, Gauge, Metric, OpenError, Region, Text, globals};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

globals! {
    /// Known when the program is linked.
    pub static KNOWN: Known = "known" {
        /// Requests served.
        requests: Counter = "known_requests_total", unit "requests", labels { "shard": "3" };
        /// A share.
        ratio: Gauge<f64> = "known_ratio", unit "ratio";
        /// Jobs done.
        jobs: [Counter; 3] = "known_jobs_total", unit "jobs", per "worker";
    }
}

fn main() -> Result<(), OpenError> {
    KNOWN.requests.add(41);
    KNOWN.requests.inc();
    KNOWN.ratio.set(0.25);
    (0u64..).zip(&KNOWN.jobs).for_each(|(worker, jobs)| jobs.add(10 * worker));

    let mut region = Region::builder("known");
    region.instance("one").label("site", "north");
    let errors =
        region.counter(Metric::new("known_errors_total").unit("errors").help("Errors.").label("kind", "timeout"));
    let in_flight = region.updown(Metric::new("known_in_flight").unit("requests").help("Requests in flight."));
    let seconds = Metric::new("known_latency_seconds").unit("seconds").help("Latency.").scale(1e-9);
    let latency = region.histogram(seconds, 2, 40);
    let (cache, (hits, size, version)) = region.guarded(|cache| {
        (
            cache.counter::<u64>(Metric::new("known_cache_hits_total").unit("hits").help("Hits.")),
            cache.gauge::<i64>(Metric::new("known_cache_bytes").unit("bytes").help("Size.")),
            cache.text(Metric::new("known_version_info").help("Version."), 16),
        )
    });
    let (tenants, (bytes, state)) = region.table::<(Text<16>, IpAddr), _>(["tenant", "peer"], 8, |row| {
        (
            row.counter::<u64>(Metric::new("known_tenant_bytes_total").unit("bytes").help("Bytes.")),
            row.text(Metric::new("known_tenant_state_info").help("State."), 16),
        )
    });
    let region = region.open()?;

    region.get(errors).add(7);
    let in_flight = region.get(in_flight);
    in_flight.add(5);
    in_flight.add(-8);
    let latency = region.get(latency);
    (0..10).for_each(|power| latency.record(10u64.pow(power)));
    region.get(cache).commit(|cache| {
        cache.set(hits, u64::MAX);
        cache.set(size, -4096);
        cache.set_text(version, "v1.2.3");
    });
    let tenants = region.get(tenants);
    let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    let _ = tenants.upsert(("grüß", peer), |row| {
        row.set(bytes, 4096);
        row.set_text(state, "established");
    });
    let _ = tenants.upsert(("gone", peer), |_| ());
    tenants.remove(("gone", peer));

    onlooker_sdk::start();
    println!("ready");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
