// SPDX-License-Identifier: Apache-2.0
//! Group `load`: /proc/loadavg.

use std::io;

use onlooker_region::schema::{Field, Group, Kind, Metric, Type};

use super::{AVERAGES, RESOLUTION_NS};
use crate::procfs::{Source, words};
use crate::sampled::scrape::timed;
use crate::sampled::{Ask, Context, Made, Place, Sampler};

struct Load(Source);

pub(super) fn make(ask: &Ask, _: &mut Context) -> io::Result<Made> {
    let fields = (0..).zip(AVERAGES).map(|(slot, (name, help))| {
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
            self.0.each_line(context.buffer, |line| loads = loads.or(loadavg(line)))?;
            if let Some(loads) = loads {
                place.put(0, context.now_ns, &loads.map(f64::to_bits));
            }
            Ok(())
        })
    }
}

/// The three load averages.
pub(crate) fn loadavg(line: &[u8]) -> Option<[f64; 3]> {
    let mut loads = [0.0; 3];
    let mut words = words(line);
    for load in &mut loads {
        *load = std::str::from_utf8(words.next()?).ok()?.parse().ok().filter(|load: &f64| load.is_finite())?;
    }
    Some(loads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads() {
        assert_eq!(loadavg(b"0.38 0.57 1.25 1/99 4242"), Some([0.38, 0.57, 1.25]));
        assert_eq!(loadavg(b"0.38 0.57"), None);
        assert_eq!(loadavg(b"inf 0 0"), None);
    }

    #[test]
    fn no_line_breaks_a_parser() {
        bolero::check!().for_each(|line: &[u8]| {
            let _ = loadavg(line);
        });
    }
}
