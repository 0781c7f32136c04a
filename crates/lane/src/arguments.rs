// SPDX-License-Identifier: Apache-2.0
//! Arguments of `onlooker-agent lane`.

use std::path::PathBuf;

/// All of them.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// Where it is kept what is to be undone: it lives as long as what it describes, until the next boot
    #[arg(long, global = true, hide = true, value_name = "DIR", default_value = "/run/onlooker-lane")]
    pub state: PathBuf,
}

/// What to do.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum Action {
    /// Show queues, rules and threads of devices
    Show {
        /// Which [default: all that have a driver]
        #[arg(value_name = "DEVICE")]
        devices: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Give READs a receive queue of their own, and that queue a thread of real-time priority
    Set(Set),
    /// Undo what `set` did
    Undo {
        /// Which
        device: String,
    },
}

/// How a lane shall be.
#[derive(Debug, Clone, clap::Args)]
pub struct Set {
    /// The network device that READs come by
    pub device: String,
    /// The receive queue for READs [default: the last]
    #[arg(long, value_name = "N", conflicts_with = "shared")]
    pub queue: Option<u32>,
    /// READs come by that queue already, and only they: the hypervisor or the other end of a veth pair sees to it
    #[arg(long, requires = "queue")]
    pub steered: bool,
    /// The device has no rules: give all that it receives real-time priority. A flood then takes up to 95 % of a core from the services on it
    #[arg(long)]
    pub shared: bool,
    /// CPUs of the thread, as taskset takes them [default: any]
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Its priority in SCHED_FIFO, 1 to 98
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=98))]
    pub priority: u8,
    /// Change nothing: print the commands
    #[arg(long)]
    pub dry_run: bool,
}
