// SPDX-License-Identifier: Apache-2.0
//! A core that sends, and a core that receives by the NAPI thread of a veth device. In namespaces of this thread.

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libbpf_rs::Link;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg};
use onlooker_dta::translator::Shape;
use onlooker_responder::{Config as ResponderConfig, Device, Home, Hook, Pinned, Prefix, Rate};
use onlooker_testbed::{World, run};
use onlooker_translator::{Config, Exit, Place, Table, Translator};
use onlooker_wire::Mac;
use onlooker_wire::dta::{Body, PORT};

use super::generator::{ACCESS, Generator, frame_between, mac_of, napi_thread, run_ns};
use crate::machine::{ASKING_CORE, WATCHED_CORE, is_quick, pin, set_realtime, thread_cpu_ns};

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 4);
const FRAMES_AT_ONCE: u32 = 1 << 14;
const SLAB_BLOCKS: u32 = 1 << 15;

/// Reports, and the time that the receiving core had for them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    reports: u64,
    cpu_ns: u64,
}

impl Counted {
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn per_core_second(self) -> f64 {
        self.reports as f64 * 1e9 / self.cpu_ns.max(1) as f64
    }
}

pub(super) struct Rig {
    _world: World,
    responder: Pinned,
    generator: Generator,
    device: Device,
    mac: Mac,
    time: Duration,
}

impl Rig {
    pub(super) fn new() -> Result<Self> {
        let world = World::new();
        // That of this network namespace.
        run("mount", &["-t", "sysfs", "sysfs", "/sys"]);
        run("ip", &["link", "add", "ola0", "type", "veth", "peer", "name", "olb0"]);
        run("ip", &["address", "add", "10.1.2.4/24", "dev", "olb0"]);
        run("ip", &["link", "set", "ola0", "up"]);
        run("ip", &["link", "set", "olb0", "up"]);
        let home = Home::new(world.bpffs(), "bench")?;
        let responder = Pinned::load(&ResponderConfig::new(4792), &home)?;
        responder.set_lease(Duration::from_secs(3600))?;
        for slab in 0..4 {
            responder.create_slab(slab, SLAB_BLOCKS)?;
        }
        let generator = Generator::new()?;
        let device = Device::named("olb0")?;
        let mac = mac_of(&fs::read_to_string("/sys/class/net/olb0/address")?)?;
        let time = Duration::from_millis(if is_quick() { 300 } else { 1000 });
        Ok(Self { _world: world, responder, generator, device, mac, time })
    }

    /// A report to a table.
    pub(super) fn frame(&self, table: u16, body: Body<'_>) -> Result<Vec<u8>> {
        frame_to(self.mac, table, body)
    }

    /// What a program does that only counts.
    pub(super) fn dropped(&self, frame: &[u8]) -> Result<Counted> {
        let _link = self.attach("count_and_drop")?;
        self.measure(frame, || self.generator.dropped())
    }

    /// What the translator does, behind the responder on a hook.
    pub(super) fn translated(&self, hook: Hook, number: usize, shape: Shape, frame: &[u8]) -> Result<Counted> {
        let most = Some(Rate { per_second: 1_000_000_000, burst: 1_000_000_000 });
        let config = Config { port: PORT, source_rate: most, wait: Duration::from_millis(10) };
        let (translator, _) = Translator::ensure(&config, &self.responder)?;
        translator.set_sources(&[Prefix::host("10.1.2.3".parse()?)])?;
        let place = Place { slab: u32::try_from(number)?, first_block: 0 };
        translator.put_table(u16::try_from(number)?, &Table { access: ACCESS, shape, place })?;
        // Frames of a veth pair that no XDP program receives would not come by NAPI.
        let _link = if hook == Hook::Tc { Some(self.attach("pass")?) } else { None };
        let attachment = self.responder.attach(&self.device, hook)?;
        let before = translator.counters()?;
        let counted = self.measure(frame, || Ok(translator.counters()?.get(Exit::Stored)))?;
        self.responder.detach(&attachment)?;
        let after = translator.counters()?;
        for (exit, count) in after.iter().filter(|(exit, _)| *exit != Exit::Stored) {
            ensure!(count == before.get(exit), "{} reports ended as {}", count - before.get(exit), exit.name());
        }
        Ok(counted)
    }

    /// What a process does that receives datagrams by a socket, and has `take` for each.
    pub(super) fn received(&self, frame: &[u8], mut take: impl FnMut(&[u8]) + Send) -> Result<Counted> {
        const AT_ONCE: usize = 64;
        let _link = self.attach("pass")?;
        let is_over = AtomicBool::new(false);
        let socket = UdpSocket::bind(("10.1.2.4", PORT))?;
        socket.set_read_timeout(Some(Duration::from_millis(20)))?;
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| -> Result<Counted> {
                pin(WATCHED_CORE)?;
                // What has come is taken before more is let in: so nothing is received for nothing.
                set_realtime(1)?;
                let mut headers = MultiHeaders::<SockaddrIn>::preallocate(AT_ONCE, None);
                let mut buffers = vec![[0u8; 256]; AT_ONCE];
                let mut reports = 0;
                let begun_ns = thread_cpu_ns();
                while !is_over.load(Ordering::Relaxed) {
                    let mut slices: Vec<_> = buffers.iter_mut().map(|it| [std::io::IoSliceMut::new(it)]).collect();
                    use std::os::fd::AsRawFd as _;
                    let flags = MsgFlags::MSG_WAITFORONE;
                    let lengths: Vec<usize> =
                        match recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), flags, None) {
                            Ok(received) => received.map(|message| message.bytes).collect(),
                            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => continue,
                            Err(errno) => return Err(std::io::Error::from(errno).into()),
                        };
                    reports += lengths.len() as u64;
                    for (buffer, length) in buffers.iter().zip(lengths) {
                        take(&buffer[..length]);
                    }
                }
                Ok(Counted { reports, cpu_ns: thread_cpu_ns() - begun_ns })
            });
            let napi = self.measure(frame, || Ok(0));
            is_over.store(true, Ordering::Relaxed);
            let process = receiving.join().map_err(|_| anyhow::anyhow!("the receiver has panicked"))??;
            ensure!(process.reports > 0, "nothing was received");
            Ok(Counted { cpu_ns: process.cpu_ns + napi?.cpu_ns, ..process })
        })
    }

    fn attach(&self, name: &str) -> Result<Link> {
        self.generator.attach(name, self.device.index())
    }

    /// Sends for a while; what `count` rose by, and what the receiving end's NAPI thread has run.
    fn measure(&self, frame: &[u8], count: impl Fn() -> Result<u64>) -> Result<Counted> {
        fs::write("/sys/class/net/olb0/threaded", "1")?;
        let napi = napi_thread("olb0")?;
        self.generator.aim(Device::named("ola0")?.index(), None)?;
        pin(ASKING_CORE)?;
        let send_for = |time: Duration| -> Result<()> {
            let begun = Instant::now();
            while begun.elapsed() < time {
                self.generator.send(frame, FRAMES_AT_ONCE)?;
            }
            Ok(())
        };
        send_for(self.time / 10)?;
        let (begun_ns, before) = (run_ns(napi)?, count()?);
        send_for(self.time)?;
        let (ended_ns, after) = (run_ns(napi)?, count()?);
        Ok(Counted { reports: after - before, cpu_ns: ended_ns - begun_ns })
    }
}

/// A report to a table, in a frame to a device of this bench.
pub(crate) fn frame_to(destination: Mac, table: u16, body: Body<'_>) -> Result<Vec<u8>> {
    frame_between((SOURCE, OWN), destination, table, body)
}
