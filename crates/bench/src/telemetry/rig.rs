// SPDX-License-Identifier: Apache-2.0
//! A core that sends, and a core that receives by the NAPI thread of a veth device. In namespaces of this thread.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, ProgramInput};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg};
use onlooker_dta::translator::Shape;
use onlooker_responder::{Config as ResponderConfig, Device, Home, Hook, Pinned, Prefix, Rate};
use onlooker_testbed::{World, run, until};
use onlooker_translator::{Config, Exit, Place, Table, Translator};
use onlooker_wire::dta::{Body, Importance, MAX_REPORT_BYTES, PORT, Report};
use onlooker_wire::{Envelope, Ethernet, Mac, Tags};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::machine::{ASKING_CORE, WATCHED_CORE, is_quick, pin, set_realtime, thread_cpu_ns};

const GENERATOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));
/// bpf.h.
const LIVE_FRAMES: u32 = 1 << 1;
const FRAMES_AT_ONCE: u32 = 1 << 14;
pub(crate) const ACCESS: u32 = 0xfeed_beef;
/// Different keys: more than caches have room for, and a tenth of what the table has.
const KEYS: u32 = 1 << 17;
/// Ethernet, IPv4, UDP, report header: what follows is the key, or the entry.
const KEY_AT: u32 = 14 + 20 + 8 + 20;
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
    generator: Object,
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
        let generator = ObjectBuilder::default().open_memory(GENERATOR)?.load()?;
        let device = Device::named("olb0")?;
        let text = fs::read_to_string("/sys/class/net/olb0/address")?;
        let octets: Vec<u8> = text.trim().split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
        let mac = Mac(octets.try_into().ok().context("no Ethernet address")?);
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
        let dropped = self.generator.maps().find(|map| map.name() == "dropped").context("no map")?;
        let count = || -> Result<u64> {
            let values = dropped.lookup_percpu(&[0; 4], MapFlags::ANY)?.unwrap_or_default();
            Ok(values.into_iter().filter_map(|value| value.try_into().ok().map(u64::from_le_bytes)).sum())
        };
        self.measure(frame, count)
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
        let program = self.generator.progs_mut().find(|program| program.name() == name).context("no program")?;
        Ok(program.attach_xdp(i32::try_from(self.device.index())?)?)
    }

    /// Sends for a while; what `count` rose by, and what the receiving end's NAPI thread has run.
    fn measure(&self, frame: &[u8], count: impl Fn() -> Result<u64>) -> Result<Counted> {
        fs::write("/sys/class/net/olb0/threaded", "1")?;
        let napi = until("the NAPI thread", napi_thread);
        let mut watched = CpuSet::new();
        watched.set(WATCHED_CORE);
        sched_setaffinity(Some(napi), &watched)?;
        let settings = self.generator.maps().find(|map| map.name() == "settings").context("no map")?;
        let sender = Device::named("ola0")?.index();
        let values = [sender, KEY_AT, KEYS, 0].map(u32::to_le_bytes).concat();
        settings.update(&[0; 4], &values, MapFlags::ANY)?;
        let generate = self.generator.progs_mut().find(|program| program.name() == "generate").context("no program")?;
        pin(ASKING_CORE)?;
        let send_for = |time: Duration| -> Result<()> {
            let begun = Instant::now();
            while begun.elapsed() < time {
                generate.test_run(ProgramInput {
                    data_in: Some(frame),
                    flags: LIVE_FRAMES,
                    repeat: FRAMES_AT_ONCE,
                    ..ProgramInput::default()
                })?;
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

/// A report to a table, in a frame to a device.
pub(crate) fn frame_to(destination: Mac, table: u16, body: Body<'_>) -> Result<Vec<u8>> {
    let report = Report {
        importance: Importance::Low,
        immediate: false,
        sequence: None,
        reporter: 1,
        table,
        access: ACCESS,
        generation: 0,
        body,
    };
    let envelope = Envelope::socket("10.1.2.3:40001".parse()?, ([10, 1, 2, 4], PORT).into())?;
    let ethernet = Ethernet { destination, source: Mac([2, 0, 0, 0, 0, 1]), tags: Tags::None };
    let mut datagram = [0; MAX_REPORT_BYTES];
    let length = report.write(&mut datagram)?;
    let mut frame = vec![0; ethernet.len_bytes() + envelope.len_bytes() + length];
    let mut at = ethernet.write(envelope.ip.ether_type(), &mut frame)?;
    at += envelope.write(length, &mut frame[at..])?;
    // The sender changes keys, and a wrong checksum would be dropped by sockets: none.
    frame[at - 2..at].fill(0);
    frame[at..].copy_from_slice(&datagram[..length]);
    Ok(frame)
}

fn napi_thread() -> Option<Pid> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_it =
        |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("napi/olb0-"));
    pids.find(is_it).and_then(Pid::from_raw)
}

/// What a thread has run.
fn run_ns(thread: Pid) -> Result<u64> {
    let text = match fs::read_to_string(format!("/proc/{}/schedstat", thread.as_raw_nonzero())) {
        Err(error) if error.kind() == ErrorKind::NotFound => anyhow::bail!("the NAPI thread has gone"),
        other => other?,
    };
    Ok(text.split_ascii_whitespace().next().context("schedstat is empty")?.parse()?)
}
