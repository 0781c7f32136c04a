// SPDX-License-Identifier: Apache-2.0
//! Group `load`: /proc/loadavg.

use std::io;

use onlooker_region::schema::{Field, Group, Kind, Metric, Type};

use crate::procfs::{self, Source};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

/// The kernel recomputes the load average every 5 s (LOAD_FREQ in kernel/sched/loadavg).
const RESOLUTION_NS: u64 = 5_000_000_000;

struct Load(Source);

pub(super) fn make(ask: &Ask, _: &mut Context) -> io::Result<Made> {
    let loads =
        [("node_load1", "1m load average."), ("node_load5", "5m load average."), ("node_load15", "15m load average.")];
    let fields = (0..).zip(loads).map(|(slot, (name, help))| {
        let mut field = Field::new(name, Metric::Gauge, Type::F64, slot);
        field.help = help.into();
        field.resolution_ns = RESOLUTION_NS;
        field
    });
    let group = Group::new(Kind::Guarded, 1, fields.filter(|field| ask.is_left(field)).collect());
    Ok(Made { groups: vec![group], sampler: Box::new(Load(Source::open("/proc/loadavg")?)) })
}

impl Sampler for Load {
    fn sample(&mut self, place: &Place, context: &mut Context) -> io::Result<()> {
        timed(context, &["loadavg"], |context| {
            let mut loads = None;
            self.0.each_line(context.buffer, |line| loads = loads.or(procfs::loadavg(line)))?;
            if let Some(loads) = loads {
                place.put(0, context.now_ns, &loads.map(f64::to_bits));
            }
            Ok(())
        })
    }
}
