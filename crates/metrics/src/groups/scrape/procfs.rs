// SPDX-License-Identifier: Apache-2.0
//! Group `scrape`: how the other groups' samples went ([`crate::sampled::scrape`]).

use std::io;

use crate::sampled::listed::{Read, Values, listed};
use crate::sampled::metric::Definition;
use crate::sampled::{Ask, Context, Made};

static DURATION: Definition =
    Definition::gauge("node_scrape_collector_duration_seconds", "Duration of a collector scrape.")
        .unit("seconds", 1e-9)
        .labels(&["collector"]);
static SUCCESS: Definition =
    Definition::gauge("node_scrape_collector_success", "Whether a collector succeeded.").labels(&["collector"]);

struct Scrape;

pub(super) fn make(ask: &Ask, context: &mut Context) -> io::Result<Made> {
    listed(Scrape, ask, context)
}

impl Read for Scrape {
    fn read(&mut self, values: &mut Values, context: &mut Context) -> io::Result<()> {
        for (collector, ns, succeeded) in &context.scrapes.0 {
            values.put(&DURATION, &[collector], *ns);
            values.put(&SUCCESS, &[collector], u64::from(*succeeded));
        }
        Ok(())
    }
}
