// SPDX-License-Identifier: Apache-2.0
//! Between programs and devices: attached by pinned links (tcx, XDP) or, where the kernel has no tcx, by a filter on a clsact qdisc. One hook a device,
//! since answers of two would overtake each other.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore as _, MapHandle, ProgramHandle, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};
use onlooker_wire::profile::answer_ip_bytes;

use crate::device::Device;
use crate::error::{Error, NEEDS_CAPABILITIES, Result, bpf, system};
use crate::home::{BPFFS_ADVICE, Home, pin};
use crate::hook::Hook;
use crate::pinned::Pinned;
use crate::responder::Programs;
use crate::{links, probe, sys};

/// A program on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// Where.
    pub hook: Hook,
    /// The device.
    pub ifindex: u32,
    /// The clsact filter that does it; `None`: a link.
    pub filter: Option<Filter>,
}

/// A filter on a clsact qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Its priority.
    pub priority: u32,
    /// Its handle.
    pub handle: u32,
    /// We made the qdisc.
    pub own_qdisc: bool,
}

/// Beginnings of our programs' names, as the kernel tells them.
const OUR_PROGRAMS: [&str; 2] = ["onlooker_tc", "onlooker_xdp"];

impl Pinned {
    /// Attaches to a device of the current network namespace and answers for its addresses from now on (and for those of the other devices that it is
    /// attached to), given sources and a lease.
    ///
    /// # Errors
    /// [`Error::NotEthernet`], [`Error::Mtu`]; [`Error::Taken`] if an Onlooker program is on the device, or any XDP program where ours is to go;
    /// [`Error::System`] and [`Error::Bpf`] from the kernel.
    pub fn attach(&self, device: &Device, hook: Hook) -> Result<Attachment> {
        check(device, hook, self.config().max_read_bytes)?;
        let attachment = match hook {
            Hook::Xdp => self.attach_link(device, hook, sys::XDP, sys::XDP_NATIVE)?,
            Hook::Tc if probe::has_tcx() => self.attach_link(device, hook, sys::TCX_INGRESS, 0)?,
            Hook::Tc => self.attach_filter(device)?,
        };
        self.refresh_own_addresses()?;
        Ok(attachment)
    }

    /// [`Pinned::attach`] to tc by a filter on a clsact qdisc, as on kernels without tcx; for tests on
    /// kernels that have both.
    ///
    /// # Errors
    /// As [`Pinned::attach`].
    #[cfg(feature = "hooks")]
    pub fn attach_by_filter(&self, device: &Device) -> Result<Attachment> {
        refuse_taken(device, Hook::Tc)?;
        let attachment = self.attach_filter(device)?;
        self.refresh_own_addresses()?;
        Ok(attachment)
    }

    fn attach_link(&self, device: &Device, hook: Hook, attach_type: u32, flags: u32) -> Result<Attachment> {
        let program = match hook {
            Hook::Tc => self.tc(),
            Hook::Xdp => self.xdp(),
        };
        let advice = match hook {
            Hook::Tc => NEEDS_CAPABILITIES,
            Hook::Xdp => "the driver must support XDP at this MTU; if it does not, use tc",
        };
        let link = sys::link_create(program.as_fd(), device.index(), attach_type, flags).map_err(system(
            "attaching",
            format!("{hook} program to {device}"),
            advice,
        ))?;
        // Without a pin the link ends here, and with it the attachment.
        pin(&link, &self.home().links().join(format!("{hook}_{}", device.index())))?;
        Ok(Attachment { hook, ifindex: device.index(), filter: None })
    }

    fn attach_filter(&self, device: &Device) -> Result<Attachment> {
        let had_qdisc = links::has_ingress_qdisc(device.index())?;
        let object = || format!("clsact filter to {device}");
        let mut hook = ingress(self.tc().handle(), device.index(), 0, 0);
        if !had_qdisc {
            hook.create().map_err(bpf("adding", format!("clsact qdisc to {device}"), NEEDS_CAPABILITIES))?;
        }
        let attached = hook.attach().map_err(bpf("adding", object(), NEEDS_CAPABILITIES))?;
        let filter = Filter { priority: attached.get_priority(), handle: attached.get_handle(), own_qdisc: !had_qdisc };
        let path = self.home().filters().join(filter_name(device.index(), filter));
        if let Err(error) = fs::create_dir(&path) {
            // Unremembered it would outlive a purge.
            let _ = remove_filter(self.home(), self.tc().handle(), device.index(), filter);
            return Err(system("remembering", object(), "needs write access to the BPF file system (root)")(error));
        }
        Ok(Attachment { hook: Hook::Tc, ifindex: device.index(), filter: Some(filter) })
    }

    /// What is attached, by this or an earlier process. A device that is gone is still listed until it is detached.
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        attachments(self.home())
    }

    /// Takes the program off a device; own addresses follow.
    ///
    /// # Errors
    /// [`Error::System`] and [`Error::Bpf`] if that fails; what is gone already is no error.
    pub fn detach(&self, attachment: &Attachment) -> Result<()> {
        match attachment.filter {
            None => {
                let path = link_path(self.home(), attachment);
                detach_link(&path).map_err(system("detaching", path.display().to_string(), NEEDS_CAPABILITIES))?;
            }
            Some(filter) => {
                remove_filter(self.home(), self.tc().handle(), attachment.ifindex, filter)?;
                let _ = fs::remove_dir(self.home().filters().join(filter_name(attachment.ifindex, filter)));
            }
        }
        self.refresh_own_addresses()
    }

    /// Answers for the addresses that the attached devices have now, and for those of the bridge, bond or VRF that they are ports of. To be called when
    /// addresses change.
    ///
    /// # Errors
    /// [`Error::System`], [`Error::Bpf`].
    pub fn refresh_own_addresses(&self) -> Result<()> {
        let attached: Vec<u32> = self.attachments().iter().map(|attachment| attachment.ifindex).collect();
        let ports = links::links()?.into_iter().filter(|link| attached.contains(&link.index));
        let devices: Vec<u32> = ports.flat_map(|link| [Some(link.index), link.master]).flatten().collect();
        let own: Vec<_> =
            links::addresses()?.into_iter().filter(|(index, _)| devices.contains(index)).map(|(_, own)| own).collect();
        self.set_own_addresses(&own)
    }
}

/// Whether a responder with READs of up to `max_read_bytes` could be attached to a device; looks, and changes nothing.
///
/// # Errors
/// Why it would be refused: as [`Pinned::attach`].
pub fn check(device: &Device, hook: Hook, max_read_bytes: u32) -> Result<()> {
    device.check(answer_ip_bytes(max_read_bytes, true))?;
    refuse_taken(device, hook)
}

/// Never two of ours on a device, whoever loaded them, and never another XDP program replaced.
fn refuse_taken(device: &Device, hook: Hook) -> Result<()> {
    let taken = |owner: String, advice| Err(Error::Taken { hook, device: device.name().to_owned(), owner, advice });
    let xdp = sys::xdp_programs(device.index()).map_err(system(
        "querying",
        format!("XDP of {device}"),
        NEEDS_CAPABILITIES,
    ))?;
    for (id, mode) in xdp.into_iter().zip(["native", "generic", "offloaded"]).filter(|(id, _)| *id != 0) {
        let name = name_of(id);
        if is_ours(&name) {
            return taken(
                format!("an Onlooker responder ({mode} XDP program {name}, id {id})"),
                "detach or purge it first",
            );
        }
        if hook == Hook::Xdp {
            return taken(
                format!("{mode} XDP program {name} (id {id})"),
                "a device has one XDP program: use tc, or stop the other program's owner",
            );
        }
    }
    let filters = links::ingress_filters(device.index())?;
    let mut tc: Vec<u32> = filters.iter().map(|filter| filter.program).collect();
    if probe::has_tcx() {
        let tcx = sys::tcx_programs(device.index());
        tc.extend(tcx.map_err(system("querying", format!("tcx of {device}"), NEEDS_CAPABILITIES))?);
    }
    for id in tc {
        let name = name_of(id);
        if is_ours(&name) {
            return taken(format!("an Onlooker responder (tc program {name}, id {id})"), "detach or purge it first");
        }
    }
    Ok(())
}

fn name_of(id: u32) -> String {
    let name = ProgramHandle::from_prog_id(id).map(|program| program.name().to_string_lossy().into_owned());
    name.unwrap_or_else(|_| "of unknown name".to_owned())
}

fn is_ours(name: &str) -> bool {
    OUR_PROGRAMS.iter().any(|ours| name.starts_with(ours))
}

fn ingress(program: &ProgramHandle, ifindex: u32, priority: u32, handle: u32) -> TcHook {
    TcHookBuilder::new(program.as_fd())
        .ifindex(i32::try_from(ifindex).unwrap_or(0))
        .priority(priority)
        .handle(handle)
        .hook(TC_INGRESS)
}

fn filter_name(ifindex: u32, filter: Filter) -> String {
    let qdisc = if filter.own_qdisc { "_qdisc" } else { "" };
    format!("{ifindex}_{}_{}{qdisc}", filter.priority, filter.handle)
}

fn parse_filter_name(name: &str) -> Option<Attachment> {
    let mut parts = name.split('_');
    let mut number = || parts.next()?.parse::<u32>().ok();
    let (ifindex, priority, handle) = (number()?, number()?, number()?);
    let filter = Filter { priority, handle, own_qdisc: parts.next() == Some("qdisc") };
    Some(Attachment { hook: Hook::Tc, ifindex, filter: Some(filter) })
}

fn parse_link_name(name: &str) -> Option<Attachment> {
    let (hook, ifindex) = name.split_once('_')?;
    let hook = [Hook::Tc, Hook::Xdp].into_iter().find(|known| known.name() == hook)?;
    Some(Attachment { hook, ifindex: ifindex.parse().ok()?, filter: None })
}

pub(crate) fn attachments(home: &Home) -> Vec<Attachment> {
    let names = |path: &Path| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let links = names(&home.links());
    let filters = names(&home.filters());
    let links = links.iter().filter_map(|name| parse_link_name(name));
    links.chain(filters.iter().filter_map(|name| parse_filter_name(name))).collect()
}

/// Detaches even if another process holds the link open.
pub(crate) fn detach_link(path: &Path) -> std::io::Result<()> {
    if let Ok(link) = Link::open(path) {
        // ENOLINK where the device is gone.
        let _ = link.detach();
    }
    fs::remove_file(path)
}

/// Removes the filter if it is still ours, and the qdisc if we made it and nobody else has filters there.
pub(crate) fn remove_filter(home: &Home, program: &ProgramHandle, ifindex: u32, filter: Filter) -> Result<()> {
    // Asking libbpf without one makes it print.
    if !links::has_ingress_qdisc(ifindex)? {
        return Ok(());
    }
    let mut hook = ingress(program, ifindex, filter.priority, filter.handle);
    match hook.query() {
        Ok(id) if id == program.id() || uses_maps_of(home, id) => {
            hook.detach().map_err(bpf("removing", format!("clsact filter of device {ifindex}"), NEEDS_CAPABILITIES))?;
        }
        // Somebody else's by now, or gone with its device.
        Ok(_) | Err(_) => {}
    }
    if filter.own_qdisc && !links::has_filters(ifindex)? {
        hook.attach_point(TC_INGRESS | TC_EGRESS);
        hook.destroy().map_err(bpf("removing", format!("clsact qdisc of device {ifindex}"), NEEDS_CAPABILITIES))?;
    }
    Ok(())
}

/// Whether a program, by its id, works on a home's maps: then it is of this home, whichever process loaded it and whether it is pinned or not.
fn uses_maps_of(home: &Home, program: u32) -> bool {
    let ours = MapHandle::from_pinned_path(home.map("counters")).ok().and_then(|map| Some(map.info().ok()?.info.id));
    let program = ProgramHandle::from_prog_id(program).ok();
    let uses = program.and_then(|program| sys::program_maps(program.as_fd()).ok()).unwrap_or_default();
    ours.is_some_and(|ours| uses.contains(&ours))
}

pub(crate) fn link_path(home: &Home, attachment: &Attachment) -> PathBuf {
    home.links().join(format!("{}_{}", attachment.hook, attachment.ifindex))
}

/// Remembers filters of this home that nothing remembers, since their loader died before it could. Whether it made the qdisc is forgotten: that stays.
pub(crate) fn adopt_filters(home: &Home) -> Result<()> {
    let known = attachments(home);
    for ifindex in links::ingress_qdiscs()? {
        for filter in links::ingress_filters(ifindex)? {
            let (priority, handle) = (filter.priority, filter.handle);
            let is_known = known.iter().any(|attachment| {
                attachment.ifindex == ifindex
                    && attachment.filter.is_some_and(|known| (known.priority, known.handle) == (priority, handle))
            });
            if !is_known && uses_maps_of(home, filter.program) {
                let path = home.filters().join(filter_name(ifindex, Filter { priority, handle, own_qdisc: false }));
                fs::create_dir(&path).map_err(system("remembering", path.display().to_string(), BPFFS_ADVICE))?;
            }
        }
    }
    Ok(())
}

/// Whether an attachment still is one: its device is there and has our program. A device that went to another network namespace is not.
pub(crate) fn is_alive(home: &Home, attachment: &Attachment) -> Result<bool> {
    let ifindex = attachment.ifindex;
    let there = match attachment.filter {
        None => {
            let Ok(link) = Link::open(link_path(home, attachment)) else { return Ok(false) };
            // 0 once the device is gone, even if another one has its index by now.
            let of = link.info().ok().map(|info| match info.info {
                LinkTypeInfo::Xdp(info) => info.ifindex,
                LinkTypeInfo::Tcx(info) => info.ifindex,
                _ => 0,
            });
            of == Some(ifindex)
        }
        Some(filter) => links::ingress_filters(ifindex)?.iter().any(|found| {
            (found.priority, found.handle) == (filter.priority, filter.handle) && uses_maps_of(home, found.program)
        }),
    };
    Ok(there && links::links()?.iter().any(|link| link.index == ifindex))
}

/// Puts a new program where an earlier one of this home is; every packet meets one of them. False if there is nothing to replace: the device is gone, or
/// somebody removed the filter.
pub(crate) fn replace_program(home: &Home, attachment: &Attachment, programs: &Programs) -> Result<bool> {
    let program = match attachment.hook {
        Hook::Tc => &programs.tc,
        Hook::Xdp => &programs.xdp,
    };
    let object = || format!("{} program of device {}", attachment.hook, attachment.ifindex);
    let Some(filter) = attachment.filter else {
        let link = Link::open(link_path(home, attachment)).map_err(bpf("opening", object(), BPFFS_ADVICE))?;
        return match sys::link_update(link.as_fd(), program.as_fd()) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(ENOLINK) => Ok(false),
            Err(error) => Err(system("replacing", object(), NEEDS_CAPABILITIES)(error)),
        };
    };
    let mut hook = ingress(program.handle(), attachment.ifindex, filter.priority, filter.handle);
    let is_there = links::has_ingress_qdisc(attachment.ifindex)? && hook.query().is_ok_and(|id| uses_maps_of(home, id));
    if !is_there {
        return Ok(false);
    }
    hook.replace(true).attach().map_err(bpf("replacing", object(), NEEDS_CAPABILITIES))?;
    Ok(true)
}

/// `ENOLINK` of asm-generic/errno.h: the link's device is gone.
const ENOLINK: i32 = 67;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachments_survive_their_names() {
        for own_qdisc in [false, true] {
            let filter = Filter { priority: 49152, handle: 1, own_qdisc };
            let attachment = Attachment { hook: Hook::Tc, ifindex: 7, filter: Some(filter) };
            assert_eq!(parse_filter_name(&filter_name(7, filter)), Some(attachment));
        }
        assert_eq!(parse_link_name("xdp_12"), Some(Attachment { hook: Hook::Xdp, ifindex: 12, filter: None }));
        for bad in ["", "tc", "tc_", "drv_1", "tc_x"] {
            assert_eq!(parse_link_name(bad), None);
        }
        assert_eq!(parse_filter_name("1_2"), None);
    }
}
