// SPDX-License-Identifier: Apache-2.0
//! The kernel's BTF: enumerators, the offsets of per-CPU variables, and the types themselves for whoever follows paths through them. Fields of structures are relocated
//! by libbpf in the programs themselves.

use std::collections::HashMap;

use libbpf_rs::btf::types::{Composite, DataSec, Enum, MemberAttr, Struct, Var};
use libbpf_rs::btf::{Btf, BtfType, ReferencesType as _, TypeId};

/// The kernel's types.
pub(super) struct Types {
    btf: Btf<'static>,
}

impl Types {
    pub(super) fn of_kernel() -> Result<Self, String> {
        let needed = "a kernel with CONFIG_DEBUG_INFO_BTF is needed";
        Btf::from_vmlinux().map(|btf| Self { btf }).map_err(|error| format!("{error}; {needed}"))
    }

    /// All of them.
    pub(super) fn btf(&self) -> &Btf<'static> {
        &self.btf
    }

    /// Offset of a per-CPU variable within a CPU's area.
    pub(super) fn percpu(&self, name: &str) -> Option<u64> {
        self.percpu_variables(name).first().map(|(offset, _)| *offset)
    }

    /// The same of all that have the name, and their types: static ones of several source files may.
    pub(super) fn percpu_variables(&self, name: &str) -> Vec<(u64, TypeId)> {
        let Some(section): Option<DataSec<'_>> = self.btf.type_by_name(".data..percpu") else { return Vec::new() };
        let found = section.iter().filter_map(|variable| {
            let declared = self.btf.type_by_id::<Var<'_>>(variable.ty)?;
            let is_it = declared.name().is_some_and(|found| found == name);
            is_it.then(|| (u64::from(variable.offset), declared.referenced_type_id()))
        });
        found.collect()
    }

    pub(super) fn enumerator(&self, of: &str, name: &str) -> Option<u32> {
        let declared: Enum = self.btf.type_by_name(of)?;
        let found = declared.iter().find(|member| member.name.is_some_and(|found| found == name))?;
        u32::try_from(found.value).ok()
    }

    /// Numbers of enumerators of enumerations without a name, as far as they are there. Cost: a pass over all types, some ms.
    pub(super) fn unnamed_enumerators(&self, names: &[&'static str]) -> HashMap<&'static str, u32> {
        let mut found = HashMap::new();
        for declared in
            self.btf.type_by_kind::<Enum>().filter(|declared| declared.name().is_none_or(|name| name.is_empty()))
        {
            for member in declared.iter() {
                let known = member.name.and_then(|own| names.iter().find(|name| own == **name));
                if let (Some(name), Ok(number)) = (known, u32::try_from(member.value)) {
                    found.entry(*name).or_insert(number);
                }
            }
        }
        found
    }

    /// Where a member of a structure stands, in bytes; members of members by their path, those of unnamed ones as the structure's own.
    pub(super) fn offset(&self, of: &str, path: &[&str]) -> Option<u64> {
        let outer: Struct = self.btf.type_by_name(of)?;
        self.offset_in(&outer.into(), path)
    }

    fn offset_in(&self, outer: &Composite<'_>, path: &[&str]) -> Option<u64> {
        let (first, rest) = path.split_first()?;
        outer.iter().find_map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { return None };
            let here = u64::from(offset) / 8;
            let inner = || {
                let declared = self.btf.type_by_id::<BtfType<'_>>(member.ty)?;
                Composite::try_from(declared.skip_mods_and_typedefs()).ok()
            };
            match member.name {
                Some(name) if name == *first && rest.is_empty() => Some(here),
                Some(name) if name == *first => Some(here + self.offset_in(&inner()?, rest)?),
                Some(name) if !name.is_empty() => None,
                _ => Some(here + self.offset_in(&inner()?, path)?),
            }
        })
    }
}
