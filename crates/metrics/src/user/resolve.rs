// SPDX-License-Identifier: Apache-2.0
//! Paths followed through the running kernel's BTF: from a root to a number, over members, elements and pointers. Nothing of the kernel's memory is read here.

use libbpf_rs::btf::types::{
    Array, Composite, Enum, Enum64, Fwd, Int, IntEncoding, MemberAttr, Ptr, Struct, Typedef, Union,
};
use libbpf_rs::btf::{Btf, BtfType, HasSize as _, ReferencesType as _, TypeId};

use super::path::{Path, Step};
use crate::discover::Discovery;

/// Pointers on a way: USER_HOPS.
pub(super) const MAX_HOPS: usize = 4;
/// Members that a message lists.
const LISTED: usize = 8;

/// Where a way begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// At an address.
    Address(u64),
    /// At an offset in each CPU's area.
    PerCpu(u64),
}

/// What is known of a root.
#[derive(Debug, Clone, Copy)]
pub(super) struct Root {
    pub(super) base: Base,
    kind: TypeId,
    /// Its type is the file's word, not BTF's: it may be an array or a pointer of that.
    is_symbol: bool,
    /// It is the loader's network namespace, or within: it may go.
    pub(super) is_net: bool,
}

/// All elements of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Each {
    /// Which offset of the chain each element adds to.
    pub(super) at: usize,
    /// Bytes from one to the next.
    pub(super) stride: u64,
    /// How many, by BTF; `None` where it does not say.
    pub(super) count: Option<u32>,
}

/// A way to a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Way {
    /// The first is added to the base, each further one to the pointer that stands at the place before.
    pub(super) chain: Vec<u64>,
    /// Where a CPU's own distance is added.
    pub(super) cpu_at: Option<usize>,
    pub(super) each: Option<Each>,
    /// What stands at its end; or why that is no number.
    pub(super) end: Result<Number, String>,
}

/// A number of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) bytes: u32,
    pub(super) is_signed: bool,
}

/// Finds a root by its name. `symbol_type` is that of a symbol in kallsyms.
///
/// # Errors
/// Why there is none.
pub(super) fn root(discovery: &mut Discovery, path: &Path, symbol_type: Option<&str>) -> Result<Root, String> {
    let name = path.root.as_str();
    let of = |discovery: &Discovery, base, kind: &str, is_net| -> Result<Root, String> {
        let kind = type_named(discovery.btf()?, kind)?;
        Ok(Root { base: Base::Address(base), kind, is_symbol: false, is_net })
    };
    let found = match name {
        "net" => {
            let net = discovery.net()?;
            of(discovery, net, "struct net", true)?
        }
        "init_task" => {
            let task = discovery.init_task()?;
            of(discovery, task, "struct task_struct", false)?
        }
        "init_net" => {
            let task = discovery.init_task()?;
            let nsproxy = discovery.word(task + discovery.offset("task_struct", &["nsproxy"])?)?;
            let net = discovery.word(nsproxy + discovery.offset("nsproxy", &["net_ns"])?)?;
            of(discovery, net, "struct net", false)?
        }
        _ => {
            if let Some(protocol) = name.strip_prefix("proto:") {
                let protocols = discovery.protocols()?;
                let address = protocols.get(protocol).ok_or_else(|| {
                    let mut names: Vec<&str> = protocols.keys().map(String::as_str).collect();
                    names.sort_unstable();
                    format!("the kernel has no protocol {protocol:?}; it has: {}", names.join(", "))
                })?;
                if discovery.word(*address + discovery.offset("proto", &["owner"])?)? != 0 {
                    return Err(format!("protocol {protocol} belongs to a module: it may go, and its address with it"));
                }
                of(discovery, *address, "struct proto", false)?
            } else if let Some((offset, kind)) = discovery.percpu_variable(name)? {
                Root { base: Base::PerCpu(offset), kind, is_symbol: false, is_net: false }
            } else {
                return symbol(discovery, name, symbol_type);
            }
        }
    };
    if symbol_type.is_some() {
        return Err(format!("symbol_type: leave it out, BTF knows the type of {name}"));
    }
    Ok(found)
}

fn symbol(discovery: &Discovery, name: &str, symbol_type: Option<&str>) -> Result<Root, String> {
    let address = discovery.symbol(name).ok_or_else(|| {
        format!(
            "there is no root {name}: it is no per-CPU variable of BTF, and /proc/kallsyms does not list it (data is listed with CONFIG_KALLSYMS_ALL only, and \
             addresses to CAP_SYSLOG only); roots without symbols are net, init_net, init_task, proto:NAME and per-CPU variables"
        )
    })?;
    let kind = symbol_type.ok_or_else(|| {
        format!("symbol_type: is missing: BTF does not know {name}'s type, e.g. \"unsigned long\" or \"struct net\"")
    })?;
    let kind = type_named(discovery.btf()?, kind).map_err(|reason| format!("symbol_type: {reason}"))?;
    Ok(Root { base: Base::Address(address), kind, is_symbol: true, is_net: false })
}

/// A type by its name in C, without pointers and arrays.
fn type_named(btf: &Btf<'static>, text: &str) -> Result<TypeId, String> {
    let by = |name: &str, found: Option<TypeId>| found.ok_or_else(|| format!("BTF has no {name}"));
    if let Some(name) = text.strip_prefix("struct ") {
        let is_it = |found: &Struct<'_>| found.name().is_some_and(|own| own == name.trim());
        return by(text, btf.type_by_kind::<Struct>().find(is_it).map(|found| found.type_id()));
    }
    if let Some(name) = text.strip_prefix("union ") {
        let is_it = |found: &Union<'_>| found.name().is_some_and(|own| own == name.trim());
        return by(text, btf.type_by_kind::<Union>().find(is_it).map(|found| found.type_id()));
    }
    // As compilers name them in debug information.
    let name = match text {
        "short" => "short int",
        "unsigned short" => "short unsigned int",
        "unsigned" => "unsigned int",
        "long" => "long int",
        "unsigned long" => "long unsigned int",
        "long long" => "long long int",
        "unsigned long long" => "long long unsigned int",
        other => other,
    };
    let is_int = |found: &Int<'_>| found.name().is_some_and(|own| own == name);
    let int = || btf.type_by_kind::<Int>().find(is_int).map(|found| found.type_id());
    let is_typedef = |found: &Typedef<'_>| found.name().is_some_and(|own| own == name);
    let typedef = || btf.type_by_kind::<Typedef>().find(is_typedef).map(|found| found.type_id());
    by(text, int().or_else(typedef))
}

/// Where the walk stands.
struct Walk<'a> {
    btf: &'a Btf<'static>,
    /// Type of what stands here.
    kind: TypeId,
    /// Nothing but the file says what stands here.
    is_symbol: bool,
    way: Way,
}

/// Follows a path from its root.
///
/// # Errors
/// The step that cannot be gone, and what could.
pub(super) fn walk(btf: &Btf<'static>, root: &Root, path: &Path) -> Result<Way, String> {
    let (first, cpu_at) = match root.base {
        Base::Address(address) => (address, None),
        Base::PerCpu(offset) => (offset, Some(0)),
    };
    let way = Way { chain: vec![first], cpu_at, each: None, end: Err(String::new()) };
    let mut walk = Walk { btf, kind: root.kind, is_symbol: root.is_symbol, way };
    for (index, step) in path.steps.iter().enumerate() {
        walk.step(step).map_err(|reason| format!("{} {reason}", path.first(index)))?;
        if walk.way.chain.len() > MAX_HOPS + 1 {
            return Err(format!("{} follows more than {MAX_HOPS} pointers", path.first(index + 1)));
        }
        walk.is_symbol = false;
    }
    let here = path.first(path.steps.len());
    walk.way.end = match number(walk.resolved()?) {
        Some(number) => Ok(number),
        None => Err(format!("{here} {}", walk.no_number()?)),
    };
    Ok(walk.way)
}

impl<'a> Walk<'a> {
    /// The type without names for it and modifiers.
    fn resolved(&self) -> Result<BtfType<'a>, String> {
        let kind: Option<BtfType<'a>> = self.btf.type_by_id(self.kind);
        kind.map(|kind| kind.skip_mods_and_typedefs()).ok_or_else(|| "has no type in BTF".to_owned())
    }

    fn add(&mut self, bytes: u64) {
        if let Some(last) = self.way.chain.last_mut() {
            *last = last.wrapping_add(bytes);
        }
    }

    /// From a pointer to what it points at.
    fn follow(&mut self) -> Result<(), String> {
        if !self.is_symbol {
            let pointer = Ptr::try_from(self.resolved()?).map_err(|_| "is no pointer")?;
            self.kind = pointer.referenced_type_id();
        }
        self.way.chain.push(0);
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Member(name) => {
                if Ptr::try_from(self.resolved()?).is_ok() {
                    return Err(format!("is a pointer: write ->{name} in place of .{name}"));
                }
                self.member(name)
            }
            Step::Arrow(name) => {
                if !self.is_symbol && Ptr::try_from(self.resolved()?).is_err() {
                    return Err(format!("is {}, no pointer: write .{name} in place of ->{name}", self.named()?));
                }
                self.follow()?;
                self.member(name)
            }
            Step::Number(index) => self.element(*index),
            Step::Enumerator(name) => {
                let index = self.enumerator(name)?;
                self.element(index)
            }
            Step::Each => self.each(),
            Step::Cpu => {
                if self.way.cpu_at.is_some() {
                    return Err("is of each CPU already: leave [cpu] out".into());
                }
                self.follow().map_err(|reason| format!("{reason}: [cpu] is for those that alloc_percpu gives"))?;
                self.way.cpu_at = Some(self.way.chain.len() - 1);
                Ok(())
            }
        }
    }

    fn member(&mut self, name: &str) -> Result<(), String> {
        let outer = self.composite()?;
        let Some((bits, is_bit_field, kind)) = find_member(self.btf, &outer, name) else {
            return Err(format!(
                "is {}, which has no member {name}; {}",
                self.named()?,
                nearest(self.btf, &outer, name)
            ));
        };
        if is_bit_field || bits % 8 != 0 {
            return Err(format!("has {name} as a bit field, which is not supported"));
        }
        self.add(bits / 8);
        self.kind = kind;
        Ok(())
    }

    fn composite(&self) -> Result<Composite<'a>, String> {
        let here = self.resolved()?;
        if Fwd::try_from(here).is_ok() {
            return Err(format!("is {}, of which BTF has no members", self.named()?));
        }
        Composite::try_from(here)
            .map_err(|_| self.named().map_or_else(|e| e, |name| format!("is {name}, no structure")))
    }

    /// Type and number of the elements of what stands here, after a step to the first of them.
    fn elements(&mut self) -> Result<(u64, Option<u32>), String> {
        let mut count = None;
        if !self.is_symbol {
            let here = self.resolved()?;
            if let Ok(array) = Array::try_from(here) {
                self.kind = array.ty();
                // 0: a flexible array.
                count = u32::try_from(array.capacity()).ok().filter(|count| *count > 0);
            } else if Ptr::try_from(here).is_ok() {
                self.follow()?;
            } else {
                return Err(format!("is {}, no array", self.named()?));
            }
        }
        Ok((size_of(self.btf, self.kind).ok_or("is an array of elements whose size BTF does not tell")?, count))
    }

    fn element(&mut self, index: u64) -> Result<(), String> {
        let (bytes, count) = self.elements()?;
        if let Some(count) = count.filter(|count| index >= u64::from(*count)) {
            return Err(format!("is an array of {count} elements, and [{index}] is behind them"));
        }
        self.add(bytes.wrapping_mul(index));
        Ok(())
    }

    fn each(&mut self) -> Result<(), String> {
        if self.way.each.is_some() {
            return Err("is within [*] already: only one [*] a path".into());
        }
        let (stride, count) = self.elements()?;
        self.way.each = Some(Each { at: self.way.chain.len() - 1, stride, count });
        Ok(())
    }

    fn enumerator(&self, name: &str) -> Result<u64, String> {
        let mut found: Vec<u64> = Vec::new();
        for declared in self.btf.type_by_kind::<Enum>() {
            for member in declared.iter().filter(|member| member.name.is_some_and(|own| own == name)) {
                found.extend(u64::try_from(member.value).ok());
            }
        }
        found.sort_unstable();
        found.dedup();
        match found[..] {
            [index] => Ok(index),
            [] => Err(format!("has the index {name}, and BTF has no enumerator of that name")),
            _ => Err(format!("has the index {name}, and enumerators of that name differ: {found:?}; give the number")),
        }
    }

    /// The type, for people.
    fn named(&self) -> Result<String, String> {
        let here = self.resolved()?;
        let name = here.name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let with = |kind: &str| if name.is_empty() { format!("an unnamed {kind}") } else { format!("{kind} {name}") };
        Ok(if let Ok(composite) = Composite::try_from(here) {
            with(if composite.is_struct { "struct" } else { "union" })
        } else if Ptr::try_from(here).is_ok() {
            "a pointer".to_owned()
        } else if let Ok(array) = Array::try_from(here) {
            format!("an array of {}", array.capacity())
        } else if Fwd::try_from(here).is_ok() {
            with("struct")
        } else if Enum::try_from(here).is_ok() || Enum64::try_from(here).is_ok() {
            with("enum")
        } else if name.is_empty() {
            "of no type".to_owned()
        } else {
            name
        })
    }

    /// Why what stands here is no number.
    fn no_number(&self) -> Result<String, String> {
        let named = self.named()?;
        let here = self.resolved()?;
        if let Ok(composite) = Composite::try_from(here) {
            return Ok(format!("is {named}, no number; {}", nearest(self.btf, &composite, "counter")));
        }
        if Array::try_from(here).is_ok() {
            return Ok(format!("is {named}, no number: write [*] for all of its elements, or [number] for one"));
        }
        if Ptr::try_from(here).is_ok() {
            return Ok("is a pointer: addresses of the kernel are told to nobody".into());
        }
        Ok(format!("is {named}, no number of 1, 2, 4 or 8 bytes"))
    }
}

/// Width and sign of a number.
fn number(kind: BtfType<'_>) -> Option<Number> {
    let (bytes, is_signed) = if let Ok(int) = Int::try_from(kind) {
        let bytes = int.size();
        if usize::from(int.bits) != 8 * bytes && !matches!(int.encoding, IntEncoding::Bool) {
            return None;
        }
        // Whether a plain char has a sign is the machine's affair; the kernel builds with -funsigned-char.
        (bytes, matches!(int.encoding, IntEncoding::Signed) && int.name().is_none_or(|name| name != "char"))
    } else if let Ok(enumeration) = Enum::try_from(kind) {
        (enumeration.size(), enumeration.is_signed())
    } else {
        let enumeration = Enum64::try_from(kind).ok()?;
        (enumeration.size(), enumeration.is_signed())
    };
    let bytes = u32::try_from(bytes).ok().filter(|bytes| [1, 2, 4, 8].contains(bytes))?;
    Some(Number { bytes, is_signed })
}

/// Bytes of a type; `None` where BTF does not tell.
fn size_of(btf: &Btf<'static>, kind: TypeId) -> Option<u64> {
    let kind: BtfType<'_> = btf.type_by_id(kind)?;
    let kind = kind.skip_mods_and_typedefs();
    let bytes = if let Ok(array) = Array::try_from(kind) {
        return size_of(btf, array.ty())?.checked_mul(array.capacity() as u64);
    } else if let Ok(composite) = Composite::try_from(kind) {
        composite.size()
    } else if Ptr::try_from(kind).is_ok() {
        8
    } else if let Ok(int) = Int::try_from(kind) {
        int.size()
    } else if let Ok(enumeration) = Enum::try_from(kind) {
        enumeration.size()
    } else {
        Enum64::try_from(kind).ok()?.size()
    };
    u64::try_from(bytes).ok()
}

/// A member's place in bits, whether it is a bit field, its type. Those of unnamed members are the structure's own.
fn find_member(btf: &Btf<'static>, outer: &Composite<'_>, name: &str) -> Option<(u64, bool, TypeId)> {
    outer.iter().find_map(|member| {
        let (bits, is_bit_field) = match member.attr {
            MemberAttr::Normal { offset } => (u64::from(offset), false),
            MemberAttr::BitField { offset, .. } => (u64::from(offset), true),
        };
        match member.name {
            Some(own) if own == name => Some((bits, is_bit_field, member.ty)),
            Some(own) if !own.is_empty() => None,
            _ => {
                let inner: BtfType<'_> = btf.type_by_id(member.ty)?;
                let inner = Composite::try_from(inner.skip_mods_and_typedefs()).ok()?;
                let (within, is_bit_field, kind) = find_member(btf, &inner, name)?;
                Some((bits + within, is_bit_field, kind))
            }
        }
    })
}

fn names_of(btf: &Btf<'static>, outer: &Composite<'_>, names: &mut Vec<String>) {
    for member in outer.iter() {
        match member.name {
            Some(own) if !own.is_empty() => names.push(own.to_string_lossy().into_owned()),
            _ => {
                let inner: Option<BtfType<'_>> = btf.type_by_id(member.ty);
                if let Some(Ok(inner)) = inner.map(|inner| Composite::try_from(inner.skip_mods_and_typedefs())) {
                    names_of(btf, &inner, names);
                }
            }
        }
    }
}

/// The members whose names are nearest to one that is not there.
fn nearest(btf: &Btf<'static>, outer: &Composite<'_>, name: &str) -> String {
    let mut names = Vec::new();
    names_of(btf, outer, &mut names);
    let all = names.len();
    names.sort_by_key(|own| (strsim::damerau_levenshtein(own, name), own.clone()));
    names.truncate(LISTED);
    let rest = if all > names.len() { format!(", ... ({all} in all)") } else { String::new() };
    format!("it has: {}{rest}", names.join(", "))
}
