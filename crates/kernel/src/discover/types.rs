// SPDX-License-Identifier: Apache-2.0
//! The kernel's BTF: enumerators and the offsets of per-CPU variables. Fields of structures are relocated by libbpf in the programs themselves.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{DataSec, Enum, Var};

/// The kernel's types.
pub(super) struct Types {
    btf: Btf<'static>,
}

impl Types {
    pub(super) fn of_kernel() -> Result<Self, String> {
        let needed = "a kernel with CONFIG_DEBUG_INFO_BTF is needed";
        Btf::from_vmlinux().map(|btf| Self { btf }).map_err(|error| format!("{error}; {needed}"))
    }

    /// Offset of a per-CPU variable within a CPU's area.
    pub(super) fn percpu(&self, name: &str) -> Option<u64> {
        let section: DataSec = self.btf.type_by_name(".data..percpu")?;
        section
            .iter()
            .find(|variable| {
                let declared = self.btf.type_by_id::<Var>(variable.ty);
                declared.is_some_and(|declared| declared.name().is_some_and(|found| found == name))
            })
            .map(|variable| u64::from(variable.offset))
    }

    pub(super) fn enumerator(&self, of: &str, name: &str) -> Option<u32> {
        let declared: Enum = self.btf.type_by_name(of)?;
        let found = declared.iter().find(|member| member.name.is_some_and(|found| found == name))?;
        u32::try_from(found.value).ok()
    }
}
