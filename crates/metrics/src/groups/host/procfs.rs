// SPDX-License-Identifier: Apache-2.0
//! Group `host`: what the host has once: file handles, entropy, connection tracking, hung tasks, clock discipline, names, time.

use std::io;

use onlooker_responder::clock::wall_time_ns;

use crate::machine::{Timex, timex};
use crate::procfs::{Source, number, words};
use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made};

static UNAME: Definition =
    Definition::gauge("node_uname_info", "Labeled system information as provided by the uname system call.").labels(&[
        "domainname",
        "machine",
        "nodename",
        "release",
        "sysname",
        "version",
    ]);
static TIME: Definition =
    Definition::gauge("node_time_seconds", "System time in seconds since epoch (1970).").unit("seconds", 1e-9);

/// A file of single numbers: its collector, its path, the place of each number among the file's words.
struct Numbers {
    collector: &'static str,
    path: &'static str,
    /// Why a host may not have it.
    needs: &'static str,
    metrics: &'static [(usize, Definition)],
}

static FILES: [Numbers; 6] = [
    Numbers {
        collector: "entropy",
        path: "/proc/sys/kernel/random/entropy_avail",
        needs: "",
        metrics: &[(0, Definition::gauge("node_entropy_available_bits", "Bits of available entropy."))],
    },
    Numbers {
        collector: "entropy",
        path: "/proc/sys/kernel/random/poolsize",
        needs: "",
        metrics: &[(0, Definition::gauge("node_entropy_pool_size_bits", "Bits of entropy pool."))],
    },
    Numbers {
        collector: "filefd",
        path: "/proc/sys/fs/file-nr",
        needs: "",
        metrics: &[
            (0, Definition::gauge("node_filefd_allocated", "File descriptor statistics: allocated.")),
            (2, Definition::gauge("node_filefd_maximum", "File descriptor statistics: maximum.")),
        ],
    },
    Numbers {
        collector: "conntrack",
        path: "/proc/sys/net/netfilter/nf_conntrack_count",
        needs: "connection tracking is not in use",
        metrics: &[(
            0,
            Definition::gauge(
                "node_nf_conntrack_entries",
                "Number of currently allocated flow entries for connection tracking.",
            ),
        )],
    },
    Numbers {
        collector: "conntrack",
        path: "/proc/sys/net/netfilter/nf_conntrack_max",
        needs: "connection tracking is not in use",
        metrics: &[(
            0,
            Definition::gauge("node_nf_conntrack_entries_limit", "Maximum size of connection tracking table."),
        )],
    },
    Numbers {
        collector: "kernel_hung",
        path: "/proc/sys/kernel/hung_task_detect_count",
        needs: "Linux 6.14 with CONFIG_DETECT_HUNG_TASK",
        metrics: &[(
            0,
            Definition::gauge("node_kernel_hung_tasks", "Tasks that have been detected as hung since the system boot."),
        )],
    },
];

const fn seconds(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).unit("seconds", 1.0).float()
}
const fn ratio(name: &'static str, help: &'static str) -> Definition {
    Definition::gauge(name, help).float()
}

static OFFSET: Definition =
    seconds("node_timex_offset_seconds", "Time offset in between local system and reference clock.");
static FREQUENCY: Definition = ratio("node_timex_frequency_adjustment_ratio", "Local clock frequency adjustment.");
static MAX_ERROR: Definition = seconds("node_timex_maxerror_seconds", "Maximum error in seconds.");
static ESTIMATED_ERROR: Definition = seconds("node_timex_estimated_error_seconds", "Estimated error in seconds.");
static STATUS: Definition = Definition::gauge("node_timex_status", "Value of the status array bits.").signed();
static CONSTANT: Definition =
    Definition::gauge("node_timex_loop_time_constant", "Phase-locked loop time constant.").signed();
static TICK: Definition = seconds("node_timex_tick_seconds", "Seconds between clock ticks.");
static PPS_FREQUENCY: Definition = ratio("node_timex_pps_frequency_hertz", "Pulse per second frequency.");
static PPS_JITTER: Definition = seconds("node_timex_pps_jitter_seconds", "Pulse per second jitter.");
static PPS_SHIFT: Definition = seconds("node_timex_pps_shift_seconds", "Pulse per second interval duration.");
static PPS_STABILITY: Definition =
    ratio("node_timex_pps_stability_hertz", "Pulse per second stability, average of recent frequency changes.");
static PPS_JITTERS: Definition =
    Definition::counter("node_timex_pps_jitter_total", "Pulse per second count of jitter limit exceeded events.");
static PPS_CALIBRATIONS: Definition =
    Definition::counter("node_timex_pps_calibration_total", "Pulse per second count of calibration intervals.");
static PPS_ERRORS: Definition =
    Definition::counter("node_timex_pps_error_total", "Pulse per second count of calibration errors.");
static PPS_STABILITIES: Definition = Definition::counter(
    "node_timex_pps_stability_exceeded_total",
    "Pulse per second count of stability limit exceeded events.",
);
static TAI_OFFSET: Definition = seconds("node_timex_tai_offset_seconds", "International Atomic Time (TAI) offset.");
static SYNC: Definition =
    Definition::gauge("node_timex_sync_status", "Is clock synchronized to a reliable server (1 = yes, 0 = no).");

struct Host {
    files: Vec<(&'static Numbers, Source)>,
    has_timex: bool,
}

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    let mut files = Vec::new();
    for numbers in &FILES {
        match Source::open(numbers.path) {
            Ok(source) => files.push((numbers, source)),
            Err(error) => {
                let (_, first) = &numbers.metrics[0];
                let needs = if numbers.needs.is_empty() { String::new() } else { format!(" ({})", numbers.needs) };
                context.notes.push(format!("no {}{needs}: {error}", first.name));
            }
        }
    }
    let has_timex = timex().map_err(|error| context.notes.push(format!("no node_timex_*: adjtimex: {error}"))).is_ok();
    listed(Host { files, has_timex }, ask, context)
}

impl Read for Host {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        for (numbers, source) in &self.files {
            timed(context, &[numbers.collector], |context| {
                source.each_line(context.buffer, |line| {
                    for (at, definition) in numbers.metrics {
                        if let Some(value) = words(line).nth(*at).and_then(number) {
                            values.put(definition, &[], value);
                        }
                    }
                })
            })?;
        }
        if self.has_timex {
            timed(context, &["timex"], |_| {
                put_timex(values, &timex()?);
                Ok(())
            })?;
        }
        timed(context, &["uname"], |_| {
            let uname = rustix::system::uname();
            let texts = [
                uname.domainname(),
                uname.machine(),
                uname.nodename(),
                uname.release(),
                uname.sysname(),
                uname.version(),
            ];
            let texts = texts.map(|text| text.to_str().unwrap_or_default());
            values.put(&UNAME, &texts, 1);
            Ok(())
        })?;
        timed(context, &["time"], |_| {
            values.put(&TIME, &[], wall_time_ns());
            Ok(())
        })
    }
}

/// As the timex collector of node_exporter, and adjtimex(2), have it.
#[allow(clippy::cast_precision_loss)] // node_exporter's are doubles, too
fn put_timex(values: &mut Values, timex: &Timex) {
    const MICRO: f64 = 1e6;
    /// Parts per million with 16 bits behind the point.
    const PPM: f64 = 65_536.0 * 1e6;
    /// `STA_NANO`; `TIME_ERROR`.
    const STATUS_NANO: i32 = 0x2000;
    const TIME_ERROR: i32 = 5;
    let fine = if timex.status & STATUS_NANO != 0 { 1e9 } else { MICRO };
    values.put_float(&OFFSET, &[], timex.offset as f64 / fine);
    values.put_float(&FREQUENCY, &[], 1.0 + timex.frequency as f64 / PPM);
    values.put_float(&MAX_ERROR, &[], timex.max_error as f64 / MICRO);
    values.put_float(&ESTIMATED_ERROR, &[], timex.estimated_error as f64 / MICRO);
    values.put_signed(&STATUS, &[], timex.status.into());
    values.put_signed(&CONSTANT, &[], timex.constant);
    values.put_float(&TICK, &[], timex.tick as f64 / MICRO);
    values.put_float(&PPS_FREQUENCY, &[], timex.pps_frequency as f64 / PPM);
    values.put_float(&PPS_JITTER, &[], timex.pps_jitter as f64 / fine);
    values.put_float(&PPS_SHIFT, &[], f64::from(timex.pps_shift));
    values.put_float(&PPS_STABILITY, &[], timex.pps_stability as f64 / PPM);
    for (definition, count) in [
        (&PPS_JITTERS, timex.pps_jitters),
        (&PPS_CALIBRATIONS, timex.pps_calibrations),
        (&PPS_ERRORS, timex.pps_errors),
        (&PPS_STABILITIES, timex.pps_stabilities),
    ] {
        values.put(definition, &[], count.cast_unsigned());
    }
    values.put_float(&TAI_OFFSET, &[], f64::from(timex.tai_offset));
    values.put(&SYNC, &[], u64::from(timex.state != TIME_ERROR));
}
