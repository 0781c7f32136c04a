// SPDX-License-Identifier: Apache-2.0
//! The agent's own counters: a region like any other, `onlooker_agent`, one plain block.
//!
//! Written by all threads (atomic adds), read by readers of the region; nothing else in the agent depends on them. Cost: one atomic add.

use std::sync::atomic::Ordering;
use std::time::Instant;

use onlooker_local::registration::Code;
use onlooker_metrics::sampled::Loss;
use onlooker_region::Schema;
use onlooker_region::block::{Identity, init_plain, plain_place};
use onlooker_region::limits::BLOCK_BYTES;
use onlooker_region::map::{Map, MapError, sealed_memfd};
use onlooker_region::schema::{Field, Group, Kind, Metric, Type};

/// Region and class name.
pub const REGION: &str = "onlooker_agent";

struct Definition {
    metric: Metric,
    name: &'static str,
    labels: &'static [(&'static str, &'static str)],
    help: &'static str,
}

macro_rules! counters {
    ($($variant:ident $metric:ident $name:literal $($label:literal = $value:literal)? , $help:literal;)*) => {
        /// Every counter; its number is its slot.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $help] $variant),* }

        const DEFINITIONS: &[Definition] = &[$(Definition {
            metric: Metric::$metric,
            name: concat!("onlooker_agent_", $name),
            labels: &[$(($label, $value))?],
            help: $help,
        }),*];
    };
}

counters! {
    Reads Counter "tcp_reads_total", "READs answered over TCP.";
    ReadBytes Counter "tcp_read_bytes_total", "Bytes of answered READs.";
    RefusedAccess Counter "tcp_reads_refused_total" "reason" = "access", "READs refused.";
    RefusedInvalid Counter "tcp_reads_refused_total" "reason" = "invalid_request", "READs refused.";
    RefusedOverloaded Counter "tcp_reads_refused_total" "reason" = "overloaded", "READs refused.";
    TcpConnections Gauge "tcp_connections", "Readers connected over TCP.";
    TcpAccepted Counter "tcp_connections_accepted_total", "TCP connections accepted.";
    TcpRefusedSource Counter "tcp_connections_refused_total" "reason" = "source", "TCP connections closed before a byte was read.";
    TcpRefusedBusy Counter "tcp_connections_refused_total" "reason" = "busy", "TCP connections closed before a byte was read.";
    TcpRefusedSourceBusy Counter "tcp_connections_refused_total" "reason" = "source_busy", "TCP connections closed before a byte was read.";
    TcpRefusedInternal Counter "tcp_connections_refused_total" "reason" = "internal", "TCP connections closed before a byte was read.";
    TcpClosedEnd Counter "tcp_connections_closed_total" "reason" = "end", "TCP connections that ended.";
    TcpClosedIdle Counter "tcp_connections_closed_total" "reason" = "idle", "TCP connections that ended.";
    TcpClosedSlow Counter "tcp_connections_closed_total" "reason" = "slow", "TCP connections that ended.";
    TcpClosedProtocol Counter "tcp_connections_closed_total" "reason" = "protocol", "TCP connections that ended.";
    TcpClosedError Counter "tcp_connections_closed_total" "reason" = "error", "TCP connections that ended.";
    BootstrapOk Counter "bootstraps_total" "result" = "ok", "Bootstrap requests.";
    BootstrapDenied Counter "bootstraps_total" "result" = "denied", "Bootstrap requests.";
    BootstrapBad Counter "bootstraps_total" "result" = "bad_request", "Bootstrap requests.";
    BootstrapVersion Counter "bootstraps_total" "result" = "version", "Bootstrap requests.";
    BootstrapBusy Counter "bootstraps_total" "result" = "busy", "Bootstrap requests.";
    BootstrapSource Counter "bootstraps_total" "result" = "source", "Bootstrap requests.";
    BootstrapTls Counter "bootstraps_total" "result" = "tls", "Bootstrap requests.";
    BootstrapSlow Counter "bootstraps_total" "result" = "slow", "Bootstrap requests.";
    BootstrapInternal Counter "bootstraps_total" "result" = "internal", "Bootstrap requests.";
    RequestOk Counter "registration_requests_total" "result" = "ok", "Requests on the registration socket.";
    RequestBadRequest Counter "registration_requests_total" "result" = "bad_request", "Requests on the registration socket.";
    RequestVersion Counter "registration_requests_total" "result" = "version", "Requests on the registration socket.";
    RequestSchema Counter "registration_requests_total" "result" = "schema", "Requests on the registration socket.";
    RequestDuplicate Counter "registration_requests_total" "result" = "duplicate", "Requests on the registration socket.";
    RequestQuota Counter "registration_requests_total" "result" = "quota", "Requests on the registration socket.";
    RequestDenied Counter "registration_requests_total" "result" = "denied", "Requests on the registration socket.";
    RequestNotFound Counter "registration_requests_total" "result" = "not_found", "Requests on the registration socket.";
    RequestBadDescriptor Counter "registration_requests_total" "result" = "bad_descriptor", "Requests on the registration socket.";
    RequestInternal Counter "registration_requests_total" "result" = "internal", "Requests on the registration socket.";
    Connections Gauge "registration_connections", "Programs connected to the registration socket.";
    Accepted Counter "registration_connections_accepted_total", "Connections to the registration socket that were accepted.";
    ConnectRefusedQuota Counter "registration_connections_refused_total" "reason" = "quota", "Connections to the registration socket that were refused.";
    ConnectRefusedDenied Counter "registration_connections_refused_total" "reason" = "denied", "Connections to the registration socket that were refused.";
    ConnectRefusedInternal Counter "registration_connections_refused_total" "reason" = "internal", "Connections to the registration socket that were refused.";
    ClosedEnd Counter "registration_connections_closed_total" "reason" = "end", "Connections to the registration socket that ended.";
    ClosedProcess Counter "registration_connections_closed_total" "reason" = "process", "Connections to the registration socket that ended.";
    ClosedBadPackets Counter "registration_connections_closed_total" "reason" = "bad_packets", "Connections to the registration socket that ended.";
    ClosedUnread Counter "registration_connections_closed_total" "reason" = "unread", "Connections to the registration socket that ended.";
    Regions Gauge "regions", "Regions of programs, orphans included.";
    RegionBytes Gauge "region_bytes", "Memory of programs' regions, bytes.";
    RegionsCreated Counter "regions_created_total", "Regions created, adopted ones included.";
    RegionsResumed Counter "regions_resumed_total", "Regions that their process came back to.";
    RegionsOrphaned Counter "regions_orphaned_total", "Regions whose owner went away.";
    RegionsEnded Counter "regions_ended_total", "Regions that ended.";
    Samples Counter "samples_total", "Samples of kernel metrics.";
    SampleErrors Counter "sample_errors_total", "procfs files that could not be read.";
    SampleNs Counter "sample_seconds_total", "Time spent in taking samples.";
    KernelErrors Counter "kernel_errors_total", "Operations on the kernel responder that failed; what they concern is served over TCP only.";
    KernelLoads Counter "kernel_loads_total", "Times that the kernel responder was loaded or put right.";
    SampleRowsDropped Counter "sample_rows_dropped_total", "Devices that had no row in their table.";
    CollectorsChecked Gauge "collectors_checked_boottime_seconds", "When what the kernel responder computes was last compared with procfs, by CLOCK_BOOTTIME; 0: it computes nothing.";
}

const _: () = assert!(DEFINITIONS.len() <= onlooker_region::limits::PLAIN_SLOTS, "one block");

/// Handle to the counters.
#[derive(Debug, Clone)]
pub struct Counters {
    memory: Map,
}

impl Counters {
    /// Counters at zero, in memory of their own.
    ///
    /// # Errors
    /// No memory.
    pub fn new(identity: Identity) -> Result<Self, MapError> {
        let bytes = BLOCK_BYTES as u64;
        let memory = Map::of(sealed_memfd("onlooker-agent-counters", bytes)?, 0, bytes, true)?;
        init_plain(memory.words(), identity);
        Ok(Self { memory })
    }

    /// Counters in memory that is there already: `resumed` ones go on, but for gauges, which are of this process.
    #[must_use]
    pub fn over(memory: Map, identity: Identity, resumed: bool) -> Self {
        if resumed {
            let gauges = (0..).zip(DEFINITIONS).filter(|(_, definition)| definition.metric == Metric::Gauge);
            gauges.for_each(|(slot, _)| memory.words()[plain_place(slot).1].store(0, Ordering::Relaxed));
        } else {
            init_plain(memory.words(), identity);
        }
        Self { memory }
    }

    /// The region's memory.
    #[must_use]
    pub fn memory(&self) -> Map {
        self.memory.clone()
    }

    /// Counts `n` more.
    pub fn add(&self, counter: Counter, n: u64) {
        self.memory.words()[plain_place(counter as usize).1].fetch_add(n, Ordering::Relaxed);
    }

    /// What a sample of kernel metrics could not do.
    pub fn lost(&self, loss: Loss) {
        self.add(Counter::SampleErrors, loss.failed);
        self.add(Counter::SampleRowsDropped, loss.rows_dropped);
    }

    /// A sample of all groups that were due, which began at `begin` and ends now.
    pub fn sampled(&self, begin: Instant, loss: Loss) {
        self.lost(loss);
        self.add(Counter::Samples, 1);
        self.add(Counter::SampleNs, u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }

    /// One less; for gauges.
    pub fn sub_one(&self, counter: Counter) {
        self.memory.words()[plain_place(counter as usize).1].fetch_sub(1, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, counter: Counter, value: u64) {
        self.memory.words()[plain_place(counter as usize).1].store(value, Ordering::Relaxed);
    }

    /// Present value.
    #[must_use]
    pub fn get(&self, counter: Counter) -> u64 {
        self.memory.words()[plain_place(counter as usize).1].load(Ordering::Relaxed)
    }
}

/// The counter of a refused request.
#[must_use]
pub const fn refused(code: Code) -> Counter {
    match code {
        Code::BadRequest => Counter::RequestBadRequest,
        Code::Version => Counter::RequestVersion,
        Code::Schema => Counter::RequestSchema,
        Code::Duplicate => Counter::RequestDuplicate,
        Code::Quota => Counter::RequestQuota,
        Code::Denied => Counter::RequestDenied,
        Code::NotFound => Counter::RequestNotFound,
        Code::BadDescriptor => Counter::RequestBadDescriptor,
        Code::Internal => Counter::RequestInternal,
    }
}

/// The class of the counters' region.
#[must_use]
pub fn schema() -> Schema {
    let fields = (0..).zip(DEFINITIONS).map(|(slot, definition)| {
        let mut field = Field::new(definition.name, definition.metric, Type::U64, slot);
        field.help = definition.help.into();
        field.labels.extend(definition.labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        if definition.name.ends_with("_bytes_total") || definition.name.ends_with("_bytes") {
            field.unit = "bytes".into();
        }
        if definition.name.ends_with("_seconds_total") || definition.name.ends_with("_seconds") {
            (field.unit, field.scale) = ("seconds".into(), 1e-9);
        }
        field
    });
    Schema { name: REGION.into(), groups: vec![Group::new(Kind::Plain, 1, fields.collect())] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::Block;
    use onlooker_region::columns::Plan;

    #[test]
    fn the_schema_is_one_and_says_what_is_counted() {
        let schema = schema();
        schema.check().unwrap();
        let counters = Counters::new(Identity::first(1, 5)).unwrap();
        counters.add(Counter::Reads, 3);
        counters.add(refused(Code::Quota), 2);
        counters.set(Counter::Regions, 9);
        counters.sub_one(Counter::Regions);
        let counters = Counters::over(counters.memory(), Identity::first(1, 5), true);
        assert_eq!((counters.get(Counter::Reads), counters.get(Counter::Regions)), (3, 0), "gauges begin anew");
        counters.set(Counter::Regions, 8);
        let mut block = Block::default();
        block.copy_from(counters.memory().words());
        let plan = Plan::new(schema);
        let mut seen = Vec::new();
        let refused = plan.decode(Identity::first(1, 5), &[block], |sample| {
            if sample.scaled() != 0.0 {
                seen.push(format!("{} {:?} {}", sample.field.name, sample.labels(), sample.scaled()));
            }
        });
        assert!(refused.unwrap().is_empty());
        assert_eq!(
            seen,
            [
                "onlooker_agent_tcp_reads_total [] 3",
                r#"onlooker_agent_registration_requests_total [("result", "quota")] 2"#,
                "onlooker_agent_regions [] 8",
            ]
        );
    }

    /// In OpenMetrics a counter's family is its name without `_total`, and a family has one type.
    #[test]
    fn no_counter_is_of_a_gauges_family() {
        let of = |metric| DEFINITIONS.iter().filter(move |one| one.metric == metric).map(|one| one.name);
        for counter in of(Metric::Counter) {
            let family = counter.strip_suffix("_total").unwrap_or(counter);
            assert!(of(Metric::Gauge).all(|gauge| gauge != family), "{counter}");
        }
    }
}
