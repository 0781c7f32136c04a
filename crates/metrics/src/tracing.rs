// SPDX-License-Identifier: Apache-2.0
//! Programs on tracepoints and iterators whose links are pinned: they go on without their loader, until the pins are removed.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use libbpf_rs::Object;
use onlooker_responder::error::{CHECK_KERNEL_LOG, NEEDS_CAPABILITIES, Result, absent, bpf, system};
use onlooker_responder::home::{BPFFS_ADVICE, pin};
use onlooker_responder::sys;

/// Attaches a program and pins the link under the program's name.
pub(crate) fn attach(object: &Object, name: &'static str, attach_type: u32, directory: &Path) -> Result<()> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| absent(name)).map_err(bpf("opening", name, CHECK_KERNEL_LOG))?;
    let link = sys::link_create(program.as_fd(), 0, attach_type, 0);
    let link = link.map_err(system("BPF_LINK_CREATE", name, NEEDS_CAPABILITIES))?;
    pin(&link, &directory.join(name))
}

/// Removes pins and their directory, if any are there.
pub(crate) fn remove_pins(directory: &Path, names: &[&str]) -> Result<()> {
    let failed = |error: io::Error| system("removing", directory.display().to_string(), BPFFS_ADVICE)(error);
    for name in names {
        match fs::remove_file(directory.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    match fs::remove_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
        _ => Ok(()),
    }
}
