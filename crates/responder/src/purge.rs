// SPDX-License-Identifier: Apache-2.0
//! Taking a responder away: off its devices first, then its pins.

use libbpf_rs::ProgramHandle;

use crate::attach::{Attachment, adopt_filters, attachments, detach_link, link_path, remove_filter};
use crate::error::Result;
use crate::home::Home;

impl Home {
    /// Detaches and removes everything pinned here; what is gone already is no error. Returns what it did, a line each. To be run in the network
    /// namespace of the devices where clsact filters are used (kernels before 6.6).
    ///
    /// # Errors
    /// [`crate::Error::System`] if a pin cannot be removed; the rest is removed all the same. [`crate::Error::NotOurs`]: nothing was touched.
    pub fn purge(&self) -> Result<Vec<String>> {
        self.check_owners()?;
        self.remove_pins(detach_all(self))
    }
}

/// As much as can be done, told in lines.
fn detach_all(home: &Home) -> Vec<String> {
    let mut done = Vec::new();
    // Best effort: without it only filters are missed whose loader was killed within one system call of making them.
    let _ = adopt_filters(home);
    for attachment in attachments(home) {
        let Attachment { hook, ifindex, filter } = attachment;
        let result = match filter {
            None => detach_link(&link_path(home, &attachment)).map_err(|error| error.to_string()),
            Some(filter) => ProgramHandle::from_pinned_path(home.program("tc"))
                .map_err(|error| error.to_string())
                .and_then(|program| remove_filter(home, &program, ifindex, filter).map_err(|error| error.to_string())),
        };
        done.push(match result {
            Ok(()) => format!("detached {hook} from device {ifindex}"),
            Err(error) => format!("{hook} of device {ifindex} was not detached: {error}"),
        });
    }
    done
}
