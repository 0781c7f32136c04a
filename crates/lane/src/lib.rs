// SPDX-License-Identifier: Apache-2.0
//! `onlooker-agent lane`: READs get a way through a flooded host.
//!
//! Under a flood of packets READs wait twice: in the receive queue behind the flood, and with it for ksoftirqd, which
//! shares its core with every busy process. A lane takes both away: a receive queue that only READs use ([`ethtool`]'s
//! rules), and a thread of real-time priority that empties it (threaded [`napi`], [`threads`]).
//!
//! [`plan`] decides, [`act`] does one thing and says how to undo it, [`record`] keeps that until the undo. Each act is a
//! command or a file that an operator could use by hand, and is printed as such.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

pub mod act;
pub mod arguments;
pub mod device;
pub mod ethtool;
pub mod napi;
pub mod plan;
pub mod record;
pub mod show;
pub mod threads;

use act::Act;
pub use arguments::Options;
use arguments::{Action, Set};
use device::Device;
use record::Record;

/// Why there is no lane, or why it could not be shown or undone.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// An argument that does not fit the device.
    #[error("{0}")]
    Usage(String),
    /// No such device.
    #[error("there is no network device {0}")]
    NoDevice(String),
    /// What a lane needs and the device or the kernel lacks.
    #[error("{0}")]
    Unable(String),
    /// A queue whose thread is to be changed has none.
    #[error("{0}")]
    NoThread(String),
    /// A program that does a part of it.
    #[error("{command}: {what}")]
    Command {
        /// As an operator would type it.
        command: String,
        /// What it said.
        what: String,
    },
    /// A file of the kernel's, or of ours.
    #[error("{}: {error}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What happened.
        error: io::Error,
    },
    /// The netlink family `netdev`.
    #[error("netlink, family netdev: {0}")]
    Netlink(io::Error),
    /// Standard output.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl LaneError {
    /// Whether the arguments are wrong.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::NoDevice(_))
    }
}

/// Does what the arguments say; READs come to UDP `port`. Lines for people go to `say`.
///
/// # Errors
/// As [`LaneError`] has it; what a failed `set` had done is undone.
pub fn run(options: &Options, port: u16, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<(), LaneError> {
    match &options.action {
        Action::Show { devices, json } => show::show(devices, &options.state, *json, say),
        Action::Set(set) => self::set(set, options, port, say),
        Action::Undo { device } => {
            let Some(record) = Record::read(&options.state, device)? else {
                return say(&format!("{device}: nothing to undo")).map_err(LaneError::Output);
            };
            undo(record, options, say)
        }
    }
}

fn set(set: &Set, options: &Options, port: u16, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<(), LaneError> {
    let device = Device::find(&set.device)?;
    if set.dry_run {
        let acts = plan::plan(set, &device, port)?;
        return acts.iter().try_for_each(|act| say(&act.to_line(&device))).map_err(LaneError::Output);
    }
    if let Some(before) = Record::read(&options.state, &device.name)? {
        undo(before, options, say)?;
    }
    let mut record = Record::new(&device);
    for act in plan::plan(set, &device, port)? {
        let done = act.perform(&device).and_then(|undo| {
            let line = act.done_line(&device, undo.as_ref());
            record.undo.extend(undo);
            record.write(&options.state)?;
            say(&line).map_err(LaneError::Output)
        });
        if let Err(error) = done {
            undo(record, options, say)?;
            return Err(error);
        }
    }
    say(&format!("{}: set up; a device that goes down loses it", device.name)).map_err(LaneError::Output)
}

/// The newest first; what fails stays in the record.
fn undo(mut record: Record, options: &Options, say: &mut dyn FnMut(&str) -> io::Result<()>) -> Result<(), LaneError> {
    let name = record.device.clone();
    match Device::find(&name) {
        Ok(device) if device.index == record.index => {
            let mut failed = None;
            let acts: Vec<Act> = record.undo.drain(..).rev().collect();
            for act in acts {
                match act.perform(&device) {
                    Ok(_) => say(&act.to_line(&device)).map_err(LaneError::Output)?,
                    // The device was down meanwhile, which ended it.
                    Err(LaneError::NoThread(_)) => {}
                    Err(error) => {
                        failed.get_or_insert(error);
                        record.undo.insert(0, act);
                    }
                }
            }
            if let Some(error) = failed {
                record.write(&options.state)?;
                return Err(error);
            }
        }
        _ => say(&format!("{name}: the device that had a lane is gone")).map_err(LaneError::Output)?,
    }
    Record::remove(&options.state, &name)
}
