// SPDX-License-Identifier: Apache-2.0
//! What a control group's path says of it: whose container or machine it is. Pure; paths are anybody's.

/// What a group is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Who runs it: `docker`, `containerd`, `crio`, `podman`, `kubernetes` (a container of an unknown runtime), `lxc`, `machine` (systemd-machined), or `none`.
    pub runtime: &'static str,
    /// First 12 digits of a container's id, a machine's name, else the last part of the path; `/` for the root.
    pub name: String,
    /// A container's id, whole; empty for others.
    pub id: String,
}

/// Digits of a short container id.
const SHORT: usize = 12;
/// Prefixes of scopes of containers, as runtimes with the systemd driver name them.
const SCOPES: [(&str, &str); 5] = [
    ("docker-", "docker"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-", "crio"),
    ("libpod-", "podman"),
];

fn is_id(text: &str) -> bool {
    text.len() >= SHORT && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn container(runtime: &'static str, id: &str) -> Name {
    Name { runtime, name: id[..SHORT].to_owned(), id: id.to_owned() }
}

/// Of a path that begins with `/`.
#[must_use]
pub fn of(path: &str) -> Name {
    let mut parts = path.rsplit('/').filter(|part| !part.is_empty());
    let last = parts.next().unwrap_or("/");
    let scope = last.strip_suffix(".scope");
    for (prefix, runtime) in SCOPES {
        if let Some(id) = scope.and_then(|scope| scope.strip_prefix(prefix)).filter(|id| is_id(id)) {
            return container(runtime, id);
        }
    }
    // Scopes of machines: machine-qemu\x2d1\x2dweb.scope.
    if let Some(machine) = scope.and_then(|scope| scope.strip_prefix("machine-")) {
        return Name { runtime: "machine", name: unescaped(machine), id: String::new() };
    }
    if let Some(name) = last.strip_prefix("lxc.payload.").filter(|name| !name.is_empty()) {
        return Name { runtime: "lxc", name: name.to_owned(), id: String::new() };
    }
    let parent = parts.next().unwrap_or_default();
    if parent == "lxc" {
        return Name { runtime: "lxc", name: last.to_owned(), id: String::new() };
    }
    if is_id(last) && last.len() == 64 {
        // With the cgroupfs driver the id stands alone.
        let is_pod = parent.starts_with("pod") || path.starts_with("/kubepods");
        return container(
            if parent == "docker" {
                "docker"
            } else if is_pod {
                "kubernetes"
            } else {
                "none"
            },
            last,
        );
    }
    Name { runtime: "none", name: last.to_owned(), id: String::new() }
}

/// systemd's `\xNN` (unit_name_unescape in src/basic/unit-name.c); what is not whole stays as it is.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\\x") {
        bytes.extend(&rest.as_bytes()[..at]);
        let digits = rest.get(at + 2..at + 4).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match digits.filter(|byte| *byte >= b' ') {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[at + 4..];
            }
            None => {
                bytes.extend(b"\\x");
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn containers_of_all_runtimes_are_known() {
        for (path, runtime) in [
            ("/system.slice/docker-ID.scope", "docker"),
            ("/docker/ID", "docker"),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-ID.scope",
                "containerd",
            ),
            ("/kubepods.slice/kubepods-pod1_2.slice/crio-ID.scope", "crio"),
            ("/kubepods/burstable/pod1-2/ID", "kubernetes"),
            ("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope", "podman"),
            ("/system.slice/nerdctl-ID.scope", "containerd"),
            ("/elsewhere/ID", "none"),
        ] {
            let name = of(&path.replace("ID", ID));
            assert_eq!((name.runtime, name.name.as_str(), name.id.as_str()), (runtime, "0123456789ab", ID), "{path}");
        }
    }

    #[test]
    fn machines_and_everything_else() {
        for (path, runtime, expected) in [
            ("/", "none", "/"),
            ("/system.slice/nginx.service", "none", "nginx.service"),
            (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "machine", "qemu-1-web"),
            (r"/machine.slice/machine-a\xzz\x0a.scope", "machine", r"a\xzz\x0a"),
            ("/lxc.payload.web", "lxc", "web"),
            ("/lxc/web", "lxc", "web"),
            ("/machine.slice/libpod-conmon-ID.scope", "none", "libpod-conmon-ID.scope"),
            ("/system.slice/docker-notanid.scope", "none", "docker-notanid.scope"),
            ("/docker/é", "none", "é"),
        ] {
            let name = of(path);
            assert_eq!((name.runtime, name.name.as_str(), name.id.as_str()), (runtime, expected, ""), "{path}");
        }
    }
}
