// SPDX-License-Identifier: Apache-2.0
//! Words for readings that failed.

use crate::host::HostError;
use onlooker_reader::Error as BootstrapError;
use onlooker_reader::drive::DriveError;
use onlooker_transport::Error;

/// A word for a failed reading, the controller's where it has one.
pub(super) fn reason(error: &HostError) -> &'static str {
    match error {
        HostError::Drive { source, .. } => reason_of(source),
        HostError::Transport(Error::Silent { .. }) => "silent",
        HostError::Transport(Error::Host(BootstrapError::Denied { .. } | BootstrapError::Certificate { .. }))
        | HostError::Token(_) => "denied",
        HostError::Transport(Error::Host(BootstrapError::Busy { .. })) => "busy",
        HostError::Transport(_) | HostError::ByDevice => "unreachable",
    }
}

/// The same for a reading of a host that was connected.
pub(super) fn reason_of(error: &DriveError) -> &'static str {
    match error {
        DriveError::Broken(_) => "lost",
        DriveError::Read(error) => error.word(),
    }
}
