// SPDX-License-Identifier: Apache-2.0
//! A device with a lane (`onlooker-agent lane`) in the watched namespace: a veth pair of two queues, of which READs have
//! the second. In the place of a card's rule a program on the asking end steers them; all else comes by the first queue
//! and goes on to the watched core, as it comes by the usual device.

use crate::machine::{ASKING_CORE, WATCHED_CORE};
use crate::responder::PORT;
use crate::world::{World, bring_up, run};
use anyhow::{Context, Result};
use libbpf_rs::{Object, ObjectBuilder, TC_EGRESS, TcHook, TcHookBuilder};
use std::os::fd::AsFd as _;
use std::path::Path;

pub(super) const NAME: &str = "kernel_lane";
pub(super) const ASKING: &str = "10.78.3.2";
pub(super) const WATCHED: &str = "10.78.3.1";
pub(super) const WATCHED_DEVICE: &str = "wel";
const ASKING_DEVICE: &str = "asl";
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer.bpf.o"));

/// The program that steers; the devices are the world's.
pub(super) struct Lane {
    _object: Object,
    _hook: TcHook,
}

impl Lane {
    /// Makes the devices and has the agent at `agent` set up a lane.
    pub(super) fn set(world: &World, agent: &Path) -> Result<Self> {
        world.network().add_veth_with_queues(ASKING_DEVICE, WATCHED_DEVICE, 2);
        bring_up(ASKING_DEVICE, Some(ASKING), None)?;
        // What is offloaded passes a veth device's NAPI instances by.
        run("ethtool", &["-K", ASKING_DEVICE, "tso", "off"])?;
        world.receive_on(ASKING_DEVICE, ASKING_CORE)?;
        let state = tempfile::tempdir()?;
        world.on_watched(|| {
            bring_up(WATCHED_DEVICE, Some(WATCHED), None)?;
            world.receive_on(WATCHED_DEVICE, WATCHED_CORE)?;
            // It looks at the sysfs of its own network namespace.
            let mount = "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"";
            let (agent, state) = (agent.to_string_lossy(), state.path().to_string_lossy());
            let cpus = WATCHED_CORE.to_string();
            let set = ["lane", "--state", &state, "set", WATCHED_DEVICE, "--queue", "1", "--steered", "--cpus", &cpus];
            run("unshare", &[&["--mount", "sh", "-c", mount, &agent][..], &set].concat())
        })?;
        let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
        let mut port = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata"));
        port.as_mut().context("no port in the program that steers")?.set_initial_value(&PORT.to_ne_bytes())?;
        let object = open.load().context("loading the program that steers")?;
        let program = object.progs().next().context("no program that steers")?;
        let index = onlooker_responder::Device::named(ASKING_DEVICE)?.index();
        let mut hook =
            TcHookBuilder::new(program.as_fd()).ifindex(index.try_into()?).handle(1).priority(1).hook(TC_EGRESS);
        hook.create().context("clsact")?;
        hook.attach().context("attaching the program that steers")?;
        Ok(Self { _object: object, _hook: hook })
    }
}
