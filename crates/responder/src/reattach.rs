// SPDX-License-Identifier: Apache-2.0
//! Devices come and go; the programs should be where they are wanted. Run it at start and whenever devices or addresses change.
//!
//! An attachment belongs to a device, not to a name: a renamed device keeps it, a removed one takes it along, and one that was added again under the same name
//! has to be given a new one.

use crate::attach::{Attachment, adopt_filters, is_alive};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::hook::Hook;
use crate::pinned::Pinned;

/// How things stand with one device.
#[derive(Debug)]
pub struct Reattached {
    /// The device's name now; of one that is not there, as wanted, or its index.
    pub device: String,
    /// Where.
    pub hook: Hook,
    /// How.
    pub standing: Standing,
}

/// How an attachment stands, after [`Pinned::reattach`].
#[derive(Debug)]
pub enum Standing {
    /// Wanted and attached already.
    Kept,
    /// Wanted and attached now.
    Attached,
    /// Attached under a name that is not in the list: renamed, or no more wanted, which only [`Pinned::detach`] ends.
    Unlisted(Attachment),
    /// Was attached and is no more: its device is gone or left the network namespace, or somebody removed the filter.
    Gone,
    /// Wanted, and no such device is here.
    Missing,
    /// Wanted, and could not be attached.
    Failed(Error),
}

impl Pinned {
    /// Attaches to the devices of this list, by their names, that are there and have no program of this responder; forgets attachments that ended; changes the
    /// hook where another one is wanted; refreshes own addresses. What cannot be attached is told and does not stop the rest.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Bpf`] from asking the kernel, from forgetting and from own addresses.
    pub fn reattach(&self, wanted: &[(&str, Hook)]) -> Result<Vec<Reattached>> {
        let mut told = Vec::new();
        adopt_filters(self.home())?;
        let mut alive = Vec::new();
        for attachment in self.attachments() {
            if is_alive(self.home(), &attachment)? {
                alive.push(attachment);
            } else {
                self.detach(&attachment)?;
                let device = format!("with index {}", attachment.ifindex);
                told.push(Reattached { device, hook: attachment.hook, standing: Standing::Gone });
            }
        }
        for &(name, hook) in wanted {
            let standing = match Device::named(name) {
                Ok(device) => self.reattach_one(&device, hook, &mut alive),
                Err(Error::NoDevice { .. }) => Standing::Missing,
                Err(error) => return Err(error),
            };
            told.push(Reattached { device: name.to_owned(), hook, standing });
        }
        for attachment in alive {
            let index = attachment.ifindex;
            let device =
                Device::indexed(index).map_or_else(|_| format!("with index {index}"), |it| it.name().to_owned());
            told.push(Reattached { device, hook: attachment.hook, standing: Standing::Unlisted(attachment) });
        }
        self.refresh_own_addresses()?;
        Ok(told)
    }

    /// Takes the device's attachment out of `alive`.
    fn reattach_one(&self, device: &Device, hook: Hook, alive: &mut Vec<Attachment>) -> Standing {
        if let Some(at) = alive.iter().position(|attachment| attachment.ifindex == device.index()) {
            let attachment = alive.swap_remove(at);
            if attachment.hook == hook {
                return Standing::Kept;
            }
            if let Err(error) = self.detach(&attachment) {
                return Standing::Failed(error);
            }
        }
        self.attach(device, hook).map_or_else(Standing::Failed, |_| Standing::Attached)
    }
}
