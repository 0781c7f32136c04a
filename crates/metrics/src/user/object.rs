// SPDX-License-Identifier: Apache-2.0
//! BPF objects that fill blocks: a program for tc and one for XDP around one idea (the responder's `bpf/user/collector.h`), let in by [`super::inspect`], the verifier and a measured run.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore as _, MapFlags, MapType, Object, ObjectBuilder, OpenMap, OpenObject, ProgramType};
use onlooker_responder::error::{CHECK_KERNEL_LOG, Error, bpf};
use onlooker_responder::intf::{EXITS, MAX_COLLECTORS};
use onlooker_responder::log::with_log;
use onlooker_responder::{MAPS, Responder};

use super::elf;
use super::file::Definition;
use super::inspect::{self, Insn, Side};
use super::path::Path;
use super::resolve::{self, Base};
use crate::collect::object::map_of;
use crate::discover::Discovery;

/// Bytes of an object's own maps together, those of each CPU counted for each.
pub const MAX_MAP_BYTES: u64 = 1 << 20;
/// Addresses that are found for an object, those of each CPU counted for each.
pub const MAX_ADDRESSES: usize = 4096;
/// Of the responder's maps, those that a collector needs (`bpf/collector.h`): where it writes, where it goes on to.
const SHARED: [Declared; 3] = [
    Declared { name: "scratch", kind: MapType::PercpuArray, value_bytes: inspect::SCRATCH_BYTES, entries: 1 },
    Declared { name: COLLECTORS[0], kind: MapType::ProgArray, value_bytes: 4, entries: MAX_COLLECTORS },
    Declared { name: COLLECTORS[1], kind: MapType::ProgArray, value_bytes: 4, entries: MAX_COLLECTORS },
];
/// Where the headers count a refusal. Each object has its own: a lookup gives a pointer that nobody follows, also to another CPU's, and behind the responder's are all exits.
const COUNTERS: Declared = Declared { name: "counters", kind: MapType::PercpuArray, value_bytes: 8, entries: EXITS };
const COLLECTORS: [&str; 2] = ["collectors_tc", "collectors_xdp"];
const ADDRESSES: &str = "addresses";
/// BPF_F_RDONLY_PROG, and BPF_F_MMAPABLE, which libbpf gives to variables.
const MAP_FLAGS: u32 = 1 << 7 | 1 << 10;
/// Lines of a log in a message.
const LOG_LINES: usize = 12;
static PASSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/passed.bpf.o"));
/// Where a map that wants to be pinned would be: nothing can be there.
const NOWHERE: &str = "/proc/onlooker";

/// `bpf/maps.h` declares more; nobody else's programs have to do with them.
fn is_withheld(map: &str) -> bool {
    MAPS.contains(&map) && !SHARED.iter().chain([&COUNTERS]).any(|declared| declared.name == map)
}

/// A map as `bpf/maps.h` declares it.
struct Declared {
    name: &'static str,
    kind: MapType,
    value_bytes: i64,
    entries: u32,
}

impl Declared {
    fn is_as_declared(&self, map: &OpenMap<'_>) -> bool {
        map.map_type() == self.kind
            && map.key_size() == 4
            && i64::from(map.value_size()) == self.value_bytes
            && map.max_entries() == self.entries
    }
}

/// An object that was looked at: enough to load it.
pub(super) struct Inspected {
    bytes: Vec<u8>,
    /// For its map `addresses`.
    addresses: Vec<u64>,
    /// Names of the programs.
    pub(super) tc: String,
    pub(super) xdp: String,
}

impl std::fmt::Debug for Inspected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Addresses of the kernel are not for logs.
        f.debug_struct("Inspected").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Looks at an object as it stands in its file, and finds the addresses that it asks for.
///
/// # Errors
/// What it must not have.
pub(super) fn inspect(
    definition: &Definition,
    bytes: Vec<u8>,
    discovery: &mut Result<Discovery, String>,
) -> Result<Inspected, String> {
    elf::check(&bytes).map_err(|reason| format!("object: is no BPF object: {reason}"))?;
    let (object, log) = with_log(|| open(&bytes));
    let object = object.map_err(|error| format!("object: is no BPF object ({error}){}", tail(&log)))?;
    let [tc, xdp] = [("tc", Side::Tc, ProgramType::SchedCls), ("xdp", Side::Xdp, ProgramType::Xdp)]
        .map(|(section, side, kind)| check_program(&object, section, side, kind));
    let (tc, xdp) = (tc?, xdp?);
    let strange = object.progs().find(|program| program.section() != "tc" && program.section() != "xdp");
    if let Some(program) = strange {
        return Err(format!(
            "object: program {} is in section {:?}: only SEC(\"tc\") and SEC(\"xdp\"), and functions static __always_inline",
            program.name().to_string_lossy(),
            program.section().to_string_lossy()
        ));
    }
    check_maps(&object)?;
    let addresses = addresses(definition, discovery)?;
    let room = object.maps().find(|map| map.name() == ADDRESSES).map(|map| map.max_entries() as usize);
    match room {
        None if !addresses.is_empty() => {
            return Err("addresses: the object has no map `addresses`: ONLOOKER_ADDRESSES(n)".into());
        }
        Some(room) if room < addresses.len() => {
            return Err(format!("addresses: are {} here, and the object's map has {room} places", addresses.len()));
        }
        _ => {}
    }
    Ok(Inspected { bytes, addresses, tc, xdp })
}

fn open(bytes: &[u8]) -> libbpf_rs::Result<OpenObject> {
    ObjectBuilder::default().pin_root_path(NOWHERE)?.open_memory(bytes)
}

/// The end of libbpf's and the verifier's words, for a message.
fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
    if last.is_empty() { String::new() } else { format!(":\n{}", last.join("\n")) }
}

/// The one program of a section; gives its name.
fn check_program(object: &OpenObject, section: &str, side: Side, kind: ProgramType) -> Result<String, String> {
    let mut programs = object.progs().filter(|program| program.section() == section);
    let (Some(program), None) = (programs.next(), programs.next()) else {
        return Err(format!(
            "object: has to have exactly one SEC({section:?}) program: ONLOOKER_COLLECTOR(fill) makes both"
        ));
    };
    let name = program.name().to_string_lossy().into_owned();
    if program.prog_type() != kind {
        return Err(format!("object: program {name} is of type {:?}, not {kind:?}", program.prog_type()));
    }
    let insns: Vec<Insn> = program.insns().iter().map(insn).collect();
    inspect::inspect(&insns, side, None).map_err(|reason| refused(&name, &reason))?;
    Ok(name)
}

fn refused(program: &str, reason: &str) -> String {
    format!("object: program {program}: {reason}")
}

fn insn(raw: &libbpf_rs::libbpf_sys::bpf_insn) -> Insn {
    Insn { code: raw.code, dst: raw.dst_reg(), src: raw.src_reg(), offset: raw.off, imm: raw.imm }
}

fn check_maps(object: &OpenObject) -> Result<(), String> {
    let cpus = libbpf_rs::num_possible_cpus().map_err(|error| format!("object: {error}"))? as u64;
    let mut names: Vec<String> = object.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        // Both would be the responder's, and one of them looked at.
        return Err(format!("object: has two maps {}", pair[0]));
    }
    let mut bytes = 0u64;
    for map in object.maps() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(declared) = SHARED.iter().chain([&COUNTERS]).find(|declared| declared.name == name) {
            if !declared.is_as_declared(&map) {
                return Err(format!(
                    "object: map {name} is not the responder's: compile it with this version's headers"
                ));
            }
            continue;
        }
        if is_withheld(&name) {
            continue;
        }
        let copies = match map.map_type() {
            MapType::Array => 1,
            MapType::PercpuArray => cpus,
            other => return Err(format!("object: map {name} is of type {other:?}: only arrays and per-CPU arrays")),
        };
        if map.map_flags() & !MAP_FLAGS != 0 {
            return Err(format!("object: map {name} has flags {:#x}: none but BPF_F_RDONLY_PROG", map.map_flags()));
        }
        let value_bytes = (u64::from(map.value_size())).next_multiple_of(8);
        bytes = bytes.saturating_add(u64::from(map.max_entries()).saturating_mul(value_bytes).saturating_mul(copies));
    }
    if bytes > MAX_MAP_BYTES {
        return Err(format!("object: its maps take {} KiB: at most {} KiB", bytes >> 10, MAX_MAP_BYTES >> 10));
    }
    Ok(())
}

/// The responder's tables of programs are not an object's to fill.
fn check_collectors(object: &Object) -> Result<(), String> {
    for name in COLLECTORS {
        let Some(map) = object.maps().find(|map| map.name() == name) else { continue };
        let is_filled = |slot: u32| map.lookup(&slot.to_le_bytes(), MapFlags::ANY).map(|program| program.is_some());
        for slot in 0..MAX_COLLECTORS {
            if is_filled(slot).map_err(|error| format!("object: map {name}: {error}"))? {
                return Err(format!("object: fills {name}: that is the loader's"));
            }
        }
    }
    Ok(())
}

/// The addresses that the file asks for.
fn addresses(definition: &Definition, discovery: &mut Result<Discovery, String>) -> Result<Vec<u64>, String> {
    let mut found = Vec::new();
    for text in &definition.addresses {
        let explain = |reason: String| format!("addresses: {reason}");
        let discovery = discovery.as_mut().map_err(|reason| explain(reason.clone()))?;
        let path = Path::parse(text).map_err(explain)?;
        let root = resolve::root(discovery, &path, None).map_err(explain)?;
        if root.is_net {
            return Err(explain(format!("{text}: the namespace may go, and an address outlives it: use init_net")));
        }
        let way = resolve::walk(discovery.btf().map_err(explain)?, &root, &path).map_err(explain)?;
        let [first] = way.chain[..] else {
            return Err(explain(format!("{text} follows a pointer: follow it in the program, when it runs")));
        };
        if way.each.is_some() {
            return Err(explain(format!("{text}: [*] is for values; an address is that of the array")));
        }
        match root.base {
            Base::Address(_) => found.push(first),
            Base::PerCpu(_) => {
                let cpus = discovery.cpu_count().map_err(explain)?;
                found.extend(discovery.cpus(cpus).map_err(explain)?.iter().map(|place| place.base.wrapping_add(first)));
            }
        }
        if found.len() > MAX_ADDRESSES {
            return Err(explain(format!("more than {MAX_ADDRESSES}")));
        }
    }
    Ok(found)
}

/// What stands in the finishing slot while an object is measured (`passed.bpf.c`).
pub(super) struct Passed(#[allow(dead_code, reason = "its programs live as long")] Object);

impl Passed {
    /// Verdicts of its programs, by side.
    pub(super) const VERDICTS: [u32; 2] = [0, 2]; // TC_ACT_OK, XDP_PASS

    /// Puts it behind an object that was loaded on maps of its own.
    ///
    /// # Errors
    /// libbpf's words.
    pub(super) fn behind(object: &Object) -> Result<Self, String> {
        let (passed, log) = with_log(|| open(PASSED).and_then(OpenObject::load));
        let passed = passed.map_err(|error| format!("object: cannot be measured: {error}{}", tail(&log)))?;
        for (table, program) in COLLECTORS.into_iter().zip(["passed_tc", "passed_xdp"]) {
            // One that never tries to finish has no table, perhaps.
            let Some(table) = object.maps().find(|map| map.name() == table) else { continue };
            let program = passed.progs().find(|found| found.name() == program).ok_or("passed.bpf.c lacks a program")?;
            let put = table.update(&0u32.to_le_bytes(), &program.as_fd().as_raw_fd().to_le_bytes(), MapFlags::ANY);
            put.map_err(|error| format!("object: cannot be measured: {error}"))?;
        }
        Ok(Self(passed))
    }
}

impl Inspected {
    /// Loads it, on maps of its own (first) or on those of `responder`, and looks at it again as it was loaded. It has not run then.
    ///
    /// # Errors
    /// The verifier's, libbpf's or the inspection's words.
    pub(super) fn load(&self, responder: Option<&Responder>) -> Result<Object, String> {
        let (object, log) = with_log(|| self.try_load(responder));
        let object = object.map_err(|error| format!("object: is not loaded: {error}{}", tail(&log)))?;
        let map_fd =
            |name: &str| object.maps().find(|map| map.name() == name).map_or(-1, |map| map.as_fd().as_raw_fd());
        let scratch = map_fd("scratch");
        for (name, side, collectors) in
            [(&self.tc, Side::Tc, "collectors_tc"), (&self.xdp, Side::Xdp, "collectors_xdp")]
        {
            let program = object.progs().find(|program| program.name() == name.as_str());
            let program = program.ok_or_else(|| refused(name, "is not there any more"))?;
            let insns: Vec<Insn> = program.insns().iter().map(insn).collect();
            let maps = inspect::Maps { scratch, collectors: map_fd(collectors) };
            inspect::inspect(&insns, side, Some(maps)).map_err(|reason| refused(name, &reason))?;
        }
        if responder.is_none() {
            // libbpf fills them as the object says, the responder's own as well, before anybody has looked at the programs: so this comes first.
            check_collectors(&object)?;
        }
        self.write_addresses(&object).map_err(|error| error.to_string())?;
        Ok(object)
    }

    fn try_load(&self, responder: Option<&Responder>) -> Result<Object, Box<dyn std::error::Error>> {
        let mut object = open(&self.bytes)?;
        for mut map in object.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if is_withheld(&name) {
                map.set_autocreate(false)?;
            } else if SHARED.iter().any(|shared| shared.name == name)
                && let Some(responder) = responder
                && let Some(ours) = responder.map(&name)
            {
                map.reuse_fd(ours.as_fd())?;
            }
        }
        Ok(object.load()?)
    }

    fn write_addresses(&self, object: &Object) -> Result<(), Error> {
        if self.addresses.is_empty() {
            return Ok(());
        }
        let map = map_of(object, ADDRESSES)?;
        for (index, address) in (0u32..).zip(&self.addresses) {
            let written = map.update(&index.to_le_bytes(), &address.to_le_bytes(), MapFlags::ANY);
            written.map_err(bpf("writing", ADDRESSES, CHECK_KERNEL_LOG))?;
        }
        Ok(())
    }
}
