// SPDX-License-Identifier: Apache-2.0
//! The controller's own metrics: of each host how it goes with it, and of the controller itself.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use onlooker_framestore::warm::Level;
use onlooker_reader::By;
use onlooker_reader::clock::Moment;
use onlooker_region::schema::Metric::{self, Counter, Gauge};
use onlooker_series::exposition::{push_label, push_number};
use onlooker_transport::soft::Totals;

use super::super::Shared;
use super::super::prometheus::counts;
use crate::engine::Pressure;
use crate::fleet::{Figures, Host, RESOURCES, Vital};
use crate::forward::Progress;
use crate::rules::{self, View};
use crate::usage::Look;

const UP: &str = "onlooker_host_up";
const AGE: &str = "onlooker_host_age_seconds";
const DATA_AGE: &str = "onlooker_host_data_age_seconds";
const READINGS: &str = "onlooker_host_readings_total";
const GAPS: &str = "onlooker_host_gaps_total";
const INVALID: &str = "onlooker_host_invalid_samples_total";
const OVER_QUOTA: &str = "onlooker_host_over_quota_total";
const READING: &str = "onlooker_host_reading_seconds";
const CPU: &str = "onlooker_host_cpu_ratio";
const MEMORY: &str = "onlooker_host_memory_ratio";
const SWAP: &str = "onlooker_host_swap_ratio";
const FILESYSTEM: &str = "onlooker_host_filesystem_ratio";
const RECEIVE: &str = "onlooker_host_receive_bytes_per_second";
const TRANSMIT: &str = "onlooker_host_transmit_bytes_per_second";
const RETRANSMIT: &str = "onlooker_host_retransmit_ratio";
const PRESSURE: &str = "onlooker_host_pressure_ratio";
/// What programs have called as somebody else's metric.
pub(super) const LEFT_OUT: &str = "onlooker_host_left_out_series";
const ROWS: &str = "onlooker_controller_rows_total";
const VALUES: &str = "onlooker_controller_values_total";
const REFUSED_ROWS: &str = "onlooker_controller_refused_rows_total";
const DROPPED_SEGMENTS: &str = "onlooker_controller_dropped_segments_total";
const STORE_FAILURES: &str = "onlooker_controller_store_failures_total";
const STORE_BYTES: &str = "onlooker_controller_store_bytes";
const LEVEL_BYTES: &str = "onlooker_controller_store_level_bytes";
const HEAD_BYTES: &str = "onlooker_controller_store_head_bytes";
const ROLLUP_LAG: &str = "onlooker_controller_store_rollup_lag_seconds";
const COLD_BYTES: &str = "onlooker_controller_store_cold_bytes";
const COLD_LAG: &str = "onlooker_controller_store_cold_lag_seconds";
const COLD_FILES: &str = "onlooker_controller_store_cold_files_total";
const COLD_FAILURES: &str = "onlooker_controller_store_cold_failures_total";
const FORWARD_LAG: &str = "onlooker_controller_forward_lag_seconds";
const FORWARD_SERIES: &str = "onlooker_controller_forward_series";
const FORWARD_SAMPLES: &str = "onlooker_controller_forward_samples_total";
const FORWARD_BYTES: &str = "onlooker_controller_forward_bytes_total";
const FORWARD_DROPPED: &str = "onlooker_controller_forward_dropped_samples_total";
const FORWARD_RETRIES: &str = "onlooker_controller_forward_retries_total";
const FORWARD_GAPS: &str = "onlooker_controller_forward_gaps_total";
const FORWARD_GAP_SECONDS: &str = "onlooker_controller_forward_gap_seconds_total";
const FORWARD_DAMAGED: &str = "onlooker_controller_forward_damaged_chunks_total";
const DETOURS: &str = "onlooker_controller_device_detours_total";
const UNUSABLE: &str = "onlooker_controller_unusable_ways_total";
const SOFT_REQUESTS: &str = "onlooker_controller_soft_requests_total";
const SOFT_BYPASSED: &str = "onlooker_controller_soft_bypassed_total";
const SOFT_FAILURES: &str = "onlooker_controller_soft_failures_total";
const SOFT_RECOVERED: &str = "onlooker_controller_soft_recovered_total";
const SOFT_MARKED: &str = "onlooker_controller_soft_marked_total";
const CREDIT: &str = "onlooker_controller_credit_bytes";
const CREDIT_USED: &str = "onlooker_controller_credit_used_bytes";
const CREDIT_DECREASES: &str = "onlooker_controller_credit_decreases_total";
const READS: &str = "onlooker_controller_reads_total";
const READ_BYTES: &str = "onlooker_controller_read_bytes_total";
const LINK: &str = "onlooker_controller_link_bytes_per_second";
const THREAD_CPU: &str = "onlooker_controller_thread_cpu_seconds_total";
const CPUS: &str = "onlooker_controller_cpus";
const RESIDENT: &str = "onlooker_controller_memory_bytes";
const MEMORY_LIMIT: &str = "onlooker_controller_memory_limit_bytes";
const TARGET_FAILURES: &str = "onlooker_controller_target_file_failures_total";
const REFUSALS: &str = "onlooker_controller_http_refusals_total";
const CONNECTIONS: &str = "onlooker_controller_http_connections";
const STREAMS: &str = "onlooker_controller_http_streams";
const RULE_EVALUATIONS: &str = "onlooker_controller_rule_evaluations_total";
const RULE_FAILURES: &str = "onlooker_controller_rule_evaluation_failures_total";
const RULE_ITERATIONS: &str = "onlooker_controller_rule_group_iterations_total";
const RULE_MISSED: &str = "onlooker_controller_rule_group_iterations_missed_total";
const RULE_DURATION: &str = "onlooker_controller_rule_group_last_duration_seconds";
const RULE_TIME: &str = "onlooker_controller_rule_group_last_evaluation_timestamp_seconds";
const RULE_SAMPLES: &str = "onlooker_controller_rule_group_last_evaluation_samples";
const RULE_SERIES: &str = "onlooker_controller_rule_series";
const RULE_REFUSED: &str = "onlooker_controller_rule_refused_samples_total";
const RULE_STATE_FAILURES: &str = "onlooker_controller_rule_state_failures_total";
const ALERTS: &str = "onlooker_controller_alerts";
const NOTIFIED: &str = "onlooker_controller_notifications_sent_total";
const NOTIFICATION_ERRORS: &str = "onlooker_controller_notifications_errors_total";
const NOTIFICATIONS_DROPPED: &str = "onlooker_controller_notifications_dropped_total";
const NOTIFICATIONS_WAITING: &str = "onlooker_controller_notifications_queue_length";

/// All of them: nobody else's metric has such a name, whether there is something to say or not.
const FAMILIES: [(&str, Metric, &str); 75] = [
    (
        UP,
        Gauge,
        "Whether the host has been read in the last 5 s, or three intervals if they are longer, and its metrics are here.",
    ),
    (AGE, Gauge, "Time since the last reading of the host ended."),
    (DATA_AGE, Gauge, "Time since the host's newest values were acquired."),
    (READINGS, Counter, "Readings of the host that succeeded."),
    (GAPS, Counter, "Due times at which the host was not read."),
    (INVALID, Counter, "Samples that failed a check, by the first one that they failed."),
    (OVER_QUOTA, Counter, "Rows of the host that were not kept, since they exceed what it may cost."),
    (READING, Gauge, "Time from when a reading was due to its end."),
    (CPU, Gauge, "Share of the time of all of the host's CPUs in which they did something."),
    (MEMORY, Gauge, "Share of the host's memory that is not available."),
    (SWAP, Gauge, "Share of the host's swap space that is used."),
    (FILESYSTEM, Gauge, "Share of the host's fullest file system that is used, as df has it, read-only ones left out."),
    (RECEIVE, Gauge, "What the host's network devices receive: those whose traffic no other one counts."),
    (TRANSMIT, Gauge, "What the host's network devices send: those whose traffic no other one counts."),
    (
        RETRANSMIT,
        Gauge,
        "Share of the TCP segments that the host sends that it had sent before, where it sends 4 a second.",
    ),
    (PRESSURE, Gauge, "Share of the time in which some of the host's tasks waited for a resource."),
    (
        LEFT_OUT,
        Gauge,
        "Series of the host that are not here, since their name is another type's or another metric's samples', or the controller's own.",
    ),
    (ROWS, Counter, "Rows written to the log."),
    (VALUES, Counter, "Values taken, in rows."),
    (REFUSED_ROWS, Counter, "Rows that found their ring full of rows that wait for the disk."),
    (DROPPED_SEGMENTS, Counter, "Segments of the log deleted to keep within its limit or the disk."),
    (STORE_FAILURES, Counter, "Failures of the disk."),
    (STORE_BYTES, Gauge, "Size of the store's files."),
    (LEVEL_BYTES, Gauge, "Size of those of raw rows, and of each rollup."),
    (HEAD_BYTES, Gauge, "Memory of the rows that are in no chunk yet, up to ten minutes' worth."),
    (
        ROLLUP_LAG,
        Gauge,
        "Time since the oldest window of a level ended that could be rolled up and is not; 0 if none is.",
    ),
    (COLD_BYTES, Gauge, "Size of cold files and what belongs to them."),
    (COLD_LAG, Gauge, "Time since the oldest rows were old enough for a cold file that are in none; 0 if none are."),
    (COLD_FILES, Counter, "Files of rows that became cold files."),
    (COLD_FAILURES, Counter, "Times that a file of rows could not become a cold file."),
    (FORWARD_LAG, Gauge, "Age of the newest rows that a target has."),
    (FORWARD_SERIES, Gauge, "Series that go on and are sent to a target."),
    (FORWARD_SAMPLES, Counter, "Samples that a target has taken."),
    (FORWARD_BYTES, Counter, "Bytes of them, packed."),
    (FORWARD_DROPPED, Counter, "Samples that a target has refused, or that its protocol cannot say."),
    (FORWARD_RETRIES, Counter, "Requests that are sent again: a target was not reached, or said so."),
    (FORWARD_GAPS, Counter, "Times whose rows were deleted before they were sent."),
    (FORWARD_GAP_SECONDS, Counter, "How long these were."),
    (FORWARD_DAMAGED, Counter, "Chunks of rows that could not be sent because they are damaged."),
    (DETOURS, Counter, "Times that a host was to be read by an RDMA device, and there was no queue pair."),
    (UNUSABLE, Counter, "Times that a way to a host was found and could not be used."),
    (SOFT_REQUESTS, Counter, "Requests that soft requesters sent, repeats included."),
    (SOFT_BYPASSED, Counter, "Requests of them that went by AF_XDP."),
    (
        SOFT_FAILURES,
        Counter,
        "Soft requesters' requests that were not answered in time, that the system refused or had no room for, and dropped answers.",
    ),
    (SOFT_RECOVERED, Counter, "READs that soft requesters completed only when they had asked again."),
    (SOFT_MARKED, Counter, "Answers to soft requesters with a congestion mark (ECN)."),
    (CREDIT, Gauge, "Bytes that may be requested and not answered, of all hosts together; they follow the network."),
    (CREDIT_USED, Gauge, "Bytes requested and not answered."),
    (CREDIT_DECREASES, Counter, "Times that the credit gave way to congestion."),
    (READS, Counter, "READs that were answered."),
    (READ_BYTES, Counter, "Bytes in their answers, without headers."),
    (LINK, Gauge, "What a network device carries that hosts are read over, as far as it says."),
    (THREAD_CPU, Counter, "CPU time by thread; all together are the process."),
    (CPUS, Gauge, "Processors that the controller may use."),
    (RESIDENT, Gauge, "Resident memory; what is of files, the kernel takes back."),
    (MEMORY_LIMIT, Gauge, "Memory of the machine, or of a control group that allows less."),
    (TARGET_FAILURES, Counter, "Times that a target file could not be used."),
    (REFUSALS, Counter, "Clients that were refused, or whose connections were ended."),
    (CONNECTIONS, Gauge, "Connections of HTTP clients."),
    (STREAMS, Gauge, "Live streams."),
    (RULE_EVALUATIONS, Counter, "Evaluations of rules."),
    (RULE_FAILURES, Counter, "Those of them that failed."),
    (RULE_ITERATIONS, Counter, "Times at which a group of rules was to be evaluated."),
    (RULE_MISSED, Counter, "Those of them at which it was not, since evaluations took too long."),
    (RULE_DURATION, Gauge, "How long the group's last evaluation took."),
    (RULE_TIME, Gauge, "The time that the group was evaluated for last."),
    (RULE_SAMPLES, Gauge, "Samples that its last evaluation gave."),
    (RULE_SERIES, Gauge, "Series that rules record."),
    (RULE_REFUSED, Counter, "Samples of rules that were not recorded."),
    (RULE_STATE_FAILURES, Counter, "Times that the file with all alerts could not be written."),
    (ALERTS, Gauge, "Alerts that are pending, and that fire."),
    (NOTIFIED, Counter, "Alerts that an Alertmanager took."),
    (NOTIFICATION_ERRORS, Counter, "Alerts of requests to an Alertmanager that failed."),
    (
        NOTIFICATIONS_DROPPED,
        Counter,
        "Alerts that an Alertmanager refused, and older ones for which there was no room.",
    ),
    (NOTIFICATIONS_WAITING, Gauge, "Alerts that wait to be told."),
];

/// One of them, with its lines.
pub(super) struct Family {
    pub(super) metric: Metric,
    pub(super) help: &'static str,
    pub(super) lines: String,
}

/// What has been said.
pub(super) struct Own(pub(super) BTreeMap<&'static str, Family>);

impl Default for Own {
    fn default() -> Self {
        let family = |(name, metric, help)| (name, Family { metric, help, lines: String::new() });
        Self(FAMILIES.map(family).into())
    }
}

impl Lines for Own {
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let Some(Family { lines, .. }) = self.0.get_mut(name) else {
            debug_assert!(false, "{name} is not among those that there are");
            return;
        };
        lines.push_str(name);
        for (at, (name, value)) in labels.iter().enumerate() {
            lines.push(if at == 0 { '{' } else { ',' });
            push_label(lines, name, value);
        }
        lines.push_str(if labels.is_empty() { " " } else { "} " });
        push_number(lines, value);
        lines.push('\n');
    }
}

/// Who takes what the controller says.
pub(super) trait Lines {
    /// Takes a value; labels in the order of their names.
    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64);

    /// How it goes with a host.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn host(&mut self, host: &Host, figures: &Figures) {
        let instance = ("instance", host.target.name.as_str());
        let (age_ns, up) = host.freshness(figures);
        self.line(UP, &[instance], f64::from(u8::from(up)));
        if let Some(age_ns) = age_ns {
            self.line(AGE, &[instance], age_ns as f64 / 1e9);
        }
        if let Some(newest_ns) = figures.newest_ns {
            self.line(DATA_AGE, &[instance], Moment::now().utc_ns.saturating_sub(newest_ns) as f64 / 1e9);
        }
        self.line(READINGS, &[instance], figures.cycles as f64);
        for (reason, count) in &figures.gaps {
            self.line(GAPS, &[instance, ("reason", reason)], *count as f64);
        }
        for (reason, count) in &figures.invalid {
            self.line(INVALID, &[instance, ("reason", reason)], *count as f64);
        }
        for (whose, limit, over) in &figures.over {
            self.line(OVER_QUOTA, &[instance, ("of", whose.name()), ("quota", limit.key())], over.rows as f64);
        }
        let [p50_ns, _, p99_ns, _] = figures.latency_ns;
        for (quantile, ns) in [("0.5", p50_ns), ("0.99", p99_ns)] {
            self.line(READING, &[instance, ("quantile", quantile)], ns as f64 / 1e9);
        }
    }

    /// How busy and how full a host is.
    fn vital(&mut self, name: &str, vital: &Vital) {
        let instance = ("instance", name);
        for (name, value) in [
            (CPU, vital.cpu),
            (MEMORY, vital.memory),
            (SWAP, vital.swap),
            (FILESYSTEM, vital.filesystem.as_ref().map(|(share, _)| *share)),
            (RECEIVE, vital.receive),
            (TRANSMIT, vital.transmit),
            (RETRANSMIT, vital.retransmit),
        ] {
            value.into_iter().for_each(|value| self.line(name, &[instance], value));
        }
        for (resource, share) in RESOURCES.into_iter().zip(vital.pressure) {
            share.into_iter().for_each(|share| self.line(PRESSURE, &[instance, ("resource", resource)], share));
        }
    }

    /// What is not here of a host.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn left_out(&mut self, host: &Host, series: u64) {
        self.line(LEFT_OUT, &[("instance", &host.target.name)], series as f64);
    }

    /// What carries READs.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn engine(&mut self, pressure: &Pressure) {
        self.line(DETOURS, &[], pressure.detours.load(Ordering::Relaxed) as f64);
        for by in [By::Verbs, By::Soft, By::Tcp] {
            let count = pressure.unusable[by as usize].load(Ordering::Relaxed);
            self.line(UNUSABLE, &[("by", &by.to_string())], count as f64);
        }
        for (name, value) in [
            (CREDIT, &pressure.total_bytes),
            (CREDIT_USED, &pressure.in_flight_bytes),
            (CREDIT_DECREASES, &pressure.decreases),
            (READS, &pressure.reads),
            (READ_BYTES, &pressure.read_bytes),
        ] {
            self.line(name, &[], value.load(Ordering::Relaxed) as f64);
        }
        let Totals { sent, bypassed, repeated, recovered, send_failed, no_room, congestion_marked, dropped } =
            *pressure.soft.lock().unwrap_or_else(PoisonError::into_inner);
        self.line(SOFT_REQUESTS, &[], sent as f64);
        self.line(SOFT_BYPASSED, &[], bypassed as f64);
        self.line(SOFT_RECOVERED, &[], recovered as f64);
        self.line(SOFT_MARKED, &[], congestion_marked as f64);
        for (reason, count) in
            [("unanswered", repeated), ("refused", send_failed), ("no_room", no_room), ("dropped", dropped)]
        {
            self.line(SOFT_FAILURES, &[("reason", reason)], count as f64);
        }
    }

    /// What the process takes of its machine.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn usage(&mut self, look: &Look) {
        for (thread, time_s) in &look.threads_s {
            self.line(THREAD_CPU, &[("thread", thread)], *time_s);
        }
        self.line(CPUS, &[], look.cpus as f64);
        for (kind, bytes) in &look.memory_bytes {
            self.line(RESIDENT, &[("kind", kind)], *bytes as f64);
        }
        if let Some(bytes) = look.memory_limit_bytes {
            self.line(MEMORY_LIMIT, &[], bytes as f64);
        }
        for (device, bytes_per_s) in &look.links {
            self.line(LINK, &[("device", device)], *bytes_per_s);
        }
    }

    /// Rules, and who is told of alerts.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn rules(&mut self, rules: &View) {
        let groups = rules.groups();
        for group in &groups {
            let key = group.key();
            let (labels, counts) = ([("rule_group", key.as_str())], group.counts);
            for (name, value) in [
                (RULE_EVALUATIONS, counts.evaluations as f64),
                (RULE_FAILURES, counts.failures as f64),
                (RULE_ITERATIONS, counts.iterations as f64),
                (RULE_MISSED, counts.missed as f64),
                (RULE_DURATION, group.duration_ns as f64 / 1e9),
                (RULE_TIME, group.evaluated_ns.map_or(0.0, |ns| ns as f64 / 1e9)),
                (RULE_SAMPLES, group.samples as f64),
            ] {
                self.line(name, &labels, value);
            }
        }
        for (state, count) in counts(&groups) {
            self.line(ALERTS, &[("state", state)], count as f64);
        }
        self.line(RULE_SERIES, &[], rules.series.load(Ordering::Relaxed) as f64);
        for (reason, count) in rules::REFUSALS.into_iter().zip(&rules.refused) {
            self.line(RULE_REFUSED, &[("reason", reason)], count.load(Ordering::Relaxed) as f64);
        }
        self.line(RULE_STATE_FAILURES, &[], rules.state_failures.load(Ordering::Relaxed) as f64);
        for manager in rules.managers.iter() {
            let labels = [("alertmanager", manager.url.as_str())];
            for (name, count) in [
                (NOTIFIED, &manager.sent),
                (NOTIFICATION_ERRORS, &manager.errors),
                (NOTIFICATIONS_DROPPED, &manager.dropped),
            ] {
                self.line(name, &labels, count.load(Ordering::Relaxed) as f64);
            }
            self.line(NOTIFICATIONS_WAITING, &labels, manager.waiting() as f64);
        }
    }

    /// The controller itself.
    #[allow(clippy::cast_precision_loss)] // Prometheus' values are doubles
    fn controller(&mut self, shared: &Shared) {
        let counters = &shared.counters;
        for (name, count) in [
            (ROWS, &counters.rows),
            (VALUES, &counters.values),
            (REFUSED_ROWS, &counters.refused_rows),
            (DROPPED_SEGMENTS, &counters.dropped_segments),
            (STORE_FAILURES, &counters.failures),
            (COLD_FILES, &counters.cold_files),
        ] {
            self.line(name, &[], count.load(Ordering::Relaxed) as f64);
        }
        self.engine(&shared.pressure);
        let locals = || shared.pressure.locals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.usage(&shared.usage.look(locals));
        for (reason, count) in shared.book.files().1 {
            self.line(TARGET_FAILURES, &[("reason", reason)], count as f64);
        }
        for (reason, count) in shared.limits.refused() {
            self.line(REFUSALS, &[("reason", reason)], count as f64);
        }
        let [connections, streams] = shared.limits.open();
        self.line(CONNECTIONS, &[], connections as f64);
        self.line(STREAMS, &[], streams as f64);
        self.rules(&shared.rules);
        self.line(STORE_BYTES, &[], shared.store.bytes() as f64);
        self.line(HEAD_BYTES, &[], shared.store.head_bytes() as f64);
        for level in Level::ALL {
            self.line(LEVEL_BYTES, &[("level", level.name())], shared.store.level_bytes(level) as f64);
        }
        for level in Level::ALL.into_iter().skip(1) {
            self.line(ROLLUP_LAG, &[("level", level.name())], shared.store.rollup_lag_ns(level) as f64 / 1e9);
        }
        for target in shared.forwarding.iter() {
            self.forward(target);
        }
        self.line(COLD_BYTES, &[], shared.store.cold_bytes() as f64);
        self.line(COLD_LAG, &[], shared.store.cold_lag_ns() as f64 / 1e9);
        for (reason, count) in counters.cold_failures() {
            self.line(COLD_FAILURES, &[("reason", reason)], count as f64);
        }
    }

    fn forward(&mut self, target: &Progress) {
        let name = ("target", &*target.name);
        let (gaps, gap_ns) = target.gaps();
        for (family, value) in [
            (FORWARD_LAG, target.lag_ns() as f64 / 1e9),
            (FORWARD_SERIES, target.series() as f64),
            (FORWARD_SAMPLES, target.samples() as f64),
            (FORWARD_BYTES, target.bytes() as f64),
            (FORWARD_GAPS, gaps as f64),
            (FORWARD_GAP_SECONDS, gap_ns as f64 / 1e9),
            (FORWARD_DAMAGED, target.damaged() as f64),
        ] {
            self.line(family, &[name], value);
        }
        for (reason, count) in target.dropped() {
            self.line(FORWARD_DROPPED, &[name, ("reason", reason)], count as f64);
        }
        for (reason, count) in target.retries() {
            self.line(FORWARD_RETRIES, &[name, ("reason", reason)], count as f64);
        }
    }
}
