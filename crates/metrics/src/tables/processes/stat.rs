// SPDX-License-Identifier: Apache-2.0
//! What /proc/PID has of a process (proc_pid_stat(5), proc_pid_io(5), proc_pid_cgroup(5)). Pure; what does not parse is none.

/// States as `ps` has them, each with its letters in /proc/PID/stat.
pub(super) const STATES: [(&str, &[u8]); 6] =
    [("running", b"R"), ("sleeping", b"S"), ("disk", b"D"), ("stopped", b"Tt"), ("zombie", b"ZXx"), ("idle", b"I")];

/// One process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stat<'a> {
    pub(super) name: &'a [u8],
    /// Place in [`STATES`].
    pub(super) state: Option<usize>,
    /// Page faults without I/O, and with.
    pub(super) faults: [u64; 2],
    /// Clock ticks in user mode, and in the kernel.
    pub(super) ticks: [u64; 2],
    pub(super) threads: u64,
    /// Clock ticks since boot: with the pid one process for ever.
    pub(super) start: u64,
    pub(super) virtual_bytes: u64,
    pub(super) resident_pages: u64,
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Of /proc/PID/stat. A name may hold anything, parentheses too.
pub(super) fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')').filter(|close| *close > open)?;
    let mut fields = [&b""[..]; 22];
    // Field 3, the state, and those after it.
    let rest = text.get(close + 2..)?.trim_ascii_end().split(|byte| *byte == b' ');
    let count = fields.iter_mut().zip(rest).map(|(field, word)| *field = word).count();
    if count < fields.len() {
        return None;
    }
    let at = |field: usize| number(fields[field - 3]);
    Some(Stat {
        name: &text[open + 1..close],
        state: STATES.iter().position(|(_, letters)| fields[0].first().is_some_and(|letter| letters.contains(letter))),
        faults: [at(10)?, at(12)?],
        ticks: [at(14)?, at(15)?],
        threads: at(20)?,
        start: at(22)?,
        virtual_bytes: at(23)?,
        resident_pages: at(24)?,
    })
}

/// Bytes read from and written to block devices, of /proc/PID/io.
pub(super) fn io(text: &[u8]) -> Option<[u64; 2]> {
    let mut values = [None; 2];
    for line in text.split(|byte| *byte == b'\n') {
        for (value, name) in values.iter_mut().zip([&b"read_bytes: "[..], b"write_bytes: "]) {
            *value = line.strip_prefix(name).and_then(number).or(*value);
        }
    }
    Some([values[0]?, values[1]?])
}

/// The control group, of /proc/PID/cgroup: of version 2, or of the first hierarchy that systemd or a runtime makes groups in.
pub(super) fn cgroup(text: &[u8]) -> Option<&[u8]> {
    let mut best = None;
    for line in text.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(3, |byte| *byte == b':');
        let (Some(number), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let rank = match (number, controllers) {
            (_, b"memory") => 3,
            (b"0", b"") if path != b"/" => 4,
            (_, b"pids") => 2,
            _ => 1,
        };
        if best.is_none_or(|(other, _)| rank > other) {
            best = Some((rank, path));
        }
    }
    best.map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: &str = "S 1 2 3 4 5 6 70 8 90 10 110 120 13 14 15 16 170 18 19000 20480 21 22 23";

    #[test]
    fn names_are_anything() {
        for name in ["bash", "a b", ")", "(x) S 1 (", "\u{fc}\n"] {
            let text = format!("42 ({name}) {REST}\n");
            let found = stat(text.as_bytes()).unwrap();
            assert_eq!(found.name, name.as_bytes());
            assert_eq!((found.state, found.faults, found.ticks), (Some(1), [70, 90], [110, 120]));
            assert_eq!(
                (found.threads, found.start, found.virtual_bytes, found.resident_pages),
                (170, 19_000, 20_480, 21)
            );
        }
        for bad in ["", "42 (x", "42 x) S 1", ")(", "42 (x) S 1 2 3", "42 (x)"] {
            assert_eq!(stat(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn io_and_groups() {
        assert_eq!(io(b"rchar: 1\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 3\n"), Some([4096, 512]));
        assert_eq!(io(b"rchar: 1\n"), None);
        for (text, expected) in [
            ("0::/system.slice/a.service\n", "/system.slice/a.service"),
            ("5:memory:/web\n4:pids:/web2\n0::/\n", "/web"),
            ("5:devices:/x\n4:pids:/web2\n", "/web2"),
            ("0::/a:b\n", "/a:b"),
        ] {
            assert_eq!(cgroup(text.as_bytes()), Some(expected.as_bytes()), "{text}");
        }
        assert_eq!(cgroup(b"nonsense\n"), None);
    }
}
