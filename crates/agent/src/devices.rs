// SPDX-License-Identifier: Apache-2.0
//! Which network devices have a computed row: asked at each sample, so that a reader gets no series twice.

use onlooker_metrics::groups::network::DeviceRows;
use onlooker_metrics::sampled::DeviceKey;
use rustix::thread::CapabilitySet;

use crate::counters::{Counter, Counters};
use crate::kernel::Kernel;
use crate::system;

/// Network devices with a computed row.
pub(crate) enum Devices {
    /// Nobody wants to know, since all are sampled.
    Unasked,
    /// To be asked for; what was heard last, and whether it is worth anything.
    Asked { rows: Box<DeviceRows>, names: Vec<DeviceKey>, are_known: bool },
    /// They cannot be asked for: only what no device has computed is sampled.
    Unknown,
}

impl Devices {
    /// To be asked for from now on.
    pub(crate) fn of(kernel: &Kernel, counters: &Counters) -> Self {
        match kernel.device_rows() {
            Ok(rows) => Self::Asked { rows: Box::new(rows), names: Vec::new(), are_known: false },
            Err(error) => {
                counters.add(Counter::KernelErrors, 1);
                system::log(&format!("warning: devices without a computed row are not sampled: {error}"));
                Self::Unknown
            }
        }
    }

    /// Asks.
    pub(crate) fn hear(&mut self, counters: &Counters) {
        if let Self::Asked { rows, names, are_known } = self {
            let heard = system::with_capabilities(CapabilitySet::BPF, || rows.names(names));
            counters.add(Counter::KernelErrors, u64::from(heard.is_err()));
            *are_known = heard.unwrap_or(false);
        }
    }

    /// What was heard last, if it is known.
    pub(crate) fn with_row(&self) -> Option<&[DeviceKey]> {
        match self {
            Self::Asked { names, are_known: true, .. } => Some(names),
            Self::Unasked | Self::Unknown | Self::Asked { .. } => None,
        }
    }
}
