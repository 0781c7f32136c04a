// SPDX-License-Identifier: Apache-2.0
//! Frames with reports, as many as a core can send, over a veth pair whose other end has a NAPI thread (`bpf/generator.bpf.c`).

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context as _, Result, bail};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use onlooker_testbed::until;
use onlooker_wire::dta::{Body, Importance, MAX_REPORT_BYTES, PORT, Report};
use onlooker_wire::{Envelope, Ethernet, Mac, Tags};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::Ipv4Addr;

use crate::machine::WATCHED_CORE;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generator.bpf.o"));
/// bpf.h.
const LIVE_FRAMES: u32 = 1 << 1;
pub(crate) const ACCESS: u32 = 0xfeed_beef;
/// Different keys: more than caches have room for, and a tenth of what a table has.
const KEYS: u32 = 1 << 17;
/// Ethernet, IPv4, UDP, report header: what follows is the key, or the entry.
const KEY_AT: u32 = 14 + 20 + 8 + 20;

pub(super) struct Generator(Object);

impl Generator {
    pub(super) fn new() -> Result<Self> {
        Ok(Self(ObjectBuilder::default().open_memory(OBJECT)?.load()?))
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>> {
        self.0.progs_mut().find(|program| program.name() == name).context("no such program")
    }

    /// Attaches one of its programs to a device that receives.
    pub(super) fn attach(&self, name: &str, device: u32) -> Result<Link> {
        Ok(self.program(name)?.attach_xdp(i32::try_from(device)?)?)
    }

    /// Frames that were counted and dropped.
    pub(super) fn dropped(&self) -> Result<u64> {
        let dropped = self.0.maps().find(|map| map.name() == "dropped").context("no map")?;
        let values = dropped.lookup_percpu(&[0; 4], MapFlags::ANY)?.unwrap_or_default();
        Ok(values.into_iter().filter_map(|value| value.try_into().ok().map(u64::from_le_bytes)).sum())
    }

    /// Frames go out by this device from now on, and begin with the first key; at a rate, or as fast as can be.
    pub(super) fn aim(&self, device: u32, per_s: Option<u32>) -> Result<()> {
        let settings = self.0.maps().find(|map| map.name() == "settings").context("no map")?;
        let interval_ns = per_s.map_or(0, |per_s| 1_000_000_000 / u64::from(per_s));
        let words = [device, KEY_AT, KEYS, 0].map(u32::to_le_bytes).concat();
        let values = [words, interval_ns.to_le_bytes().to_vec(), vec![0; 8]].concat();
        Ok(settings.update(&[0; 4], &values, MapFlags::ANY)?)
    }

    /// Frames that were sent since it was aimed, modulo 2^32.
    pub(super) fn sent(&self) -> Result<u32> {
        let settings = self.0.maps().find(|map| map.name() == "settings").context("no map")?;
        let values = settings.lookup(&[0; 4], MapFlags::ANY)?.unwrap_or_default();
        Ok(values.get(12..16).and_then(|next| next.try_into().ok()).map_or(0, u32::from_le_bytes))
    }

    /// Looks so many times whether a frame is due, and sends it.
    pub(super) fn send(&self, frame: &[u8], count: u32) -> Result<()> {
        let input = ProgramInput { data_in: Some(frame), flags: LIVE_FRAMES, repeat: count, ..ProgramInput::default() };
        self.program("generate")?.test_run(input)?;
        Ok(())
    }
}

/// A report to a table, in a frame between two addresses.
pub(super) fn frame_between(
    (source, own): (Ipv4Addr, Ipv4Addr),
    destination: Mac,
    table: u16,
    body: Body<'_>,
) -> Result<Vec<u8>> {
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
    let envelope = Envelope::socket((source, 40_001).into(), (own, PORT).into())?;
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

/// An address as ip(8) and sysfs have it.
pub(super) fn mac_of(text: &str) -> Result<Mac> {
    let octets: Vec<u8> = text.trim().split(':').filter_map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    Ok(Mac(octets.try_into().ok().context("no Ethernet address")?))
}

/// The NAPI thread of a device, which has been made threaded; on the watched core from now on.
pub(super) fn napi_thread(device: &str) -> Result<Pid> {
    let name = format!("napi/{device}-");
    let found = || {
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let is_it =
            |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with(&name));
        pids.find(is_it).and_then(Pid::from_raw)
    };
    let napi = until("the NAPI thread", found);
    let mut watched = CpuSet::new();
    watched.set(WATCHED_CORE);
    sched_setaffinity(Some(napi), &watched)?;
    Ok(napi)
}

/// What a thread has run.
pub(super) fn run_ns(thread: Pid) -> Result<u64> {
    let text = match fs::read_to_string(format!("/proc/{}/schedstat", thread.as_raw_nonzero())) {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!("the NAPI thread has gone"),
        other => other?,
    };
    Ok(text.split_ascii_whitespace().next().context("schedstat is empty")?.parse()?)
}
