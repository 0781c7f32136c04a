// SPDX-License-Identifier: Apache-2.0
//! Paths to the kernel's variables, as collectors' files have them: C's own way of writing them, `net.ipv4.sysctl_tcp_rmem[1]`, `init_task.nsproxy->uts_ns`. No I/O.

/// Longest path, bytes.
pub(super) const MAX_PATH_BYTES: usize = 512;

/// A path: a root that discovery knows, and steps from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: String,
    pub(super) steps: Vec<Step>,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// `.name`: a member of a structure.
    Member(String),
    /// `->name`: a member of the structure that a pointer points at.
    Arrow(String),
    /// `[3]`: an element of an array.
    Number(u64),
    /// `[NAME]`: the element whose number an enumerator is.
    Enumerator(String),
    /// `[*]`: all of them.
    Each,
    /// `[cpu]`: what each CPU has, of a pointer that alloc_percpu gave.
    Cpu,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Member(name) => write!(f, ".{name}"),
            Self::Arrow(name) => write!(f, "->{name}"),
            Self::Number(number) => write!(f, "[{number}]"),
            Self::Enumerator(name) => write!(f, "[{name}]"),
            Self::Each => f.write_str("[*]"),
            Self::Cpu => f.write_str("[cpu]"),
        }
    }
}

impl Path {
    /// Of a text.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_PATH_BYTES {
            return Err(format!("a path of {} bytes: at most {MAX_PATH_BYTES}", text.len()));
        }
        let (root, mut rest) = split_root(text);
        if root.is_empty() {
            return Err(format!("{text:?} does not begin with the name of a root"));
        }
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let at = text.len() - rest.len() + 1;
            let (step, behind) = step(rest).ok_or_else(|| {
                format!("character {at} of {text:?}: expected .member, ->member, [number], [ENUMERATOR], [*] or [cpu]")
            })?;
            steps.push(step);
            rest = behind;
        }
        Ok(Self { root: root.to_owned(), steps })
    }

    /// The path up to and without step `count`, for messages.
    pub(super) fn first(&self, count: usize) -> String {
        self.steps.iter().take(count).fold(self.root.clone(), |text, step| text + &step.to_string())
    }
}

/// A root is a name, or `proto:` and the kernel's name of a protocol, which may have any character but those of steps.
fn split_root(text: &str) -> (&str, &str) {
    let named = text.strip_prefix("proto:").map_or(0, |_| "proto:".len());
    let is_step = |at: usize| {
        let rest = &text[at..];
        rest.starts_with(['.', '[']) || rest.starts_with("->") || (named == 0 && !rest.starts_with(is_name))
    };
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= named && is_step(*at)).unwrap_or(text.len());
    text.split_at(end)
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|character| !is_name(character)).unwrap_or(text.len());
    (end > 0 && !text.starts_with(|first: char| first.is_ascii_digit())).then(|| text.split_at(end))
}

fn step(text: &str) -> Option<(Step, &str)> {
    if let Some(rest) = text.strip_prefix("->") {
        return name(rest).map(|(name, rest)| (Step::Arrow(name.to_owned()), rest));
    }
    if let Some(rest) = text.strip_prefix('.') {
        return name(rest).map(|(name, rest)| (Step::Member(name.to_owned()), rest));
    }
    let (index, rest) = text.strip_prefix('[')?.split_once(']')?;
    let step = match index {
        "*" => Step::Each,
        "cpu" => Step::Cpu,
        _ if index.starts_with(|first: char| first.is_ascii_digit()) => Step::Number(index.parse().ok()?),
        _ => name(index).filter(|(_, rest)| rest.is_empty()).map(|(name, _)| Step::Enumerator(name.to_owned()))?,
    };
    Some((step, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_in_c() {
        let path = Path::parse("net.mib.tcp_statistics[cpu].mibs[TCP_MIB_ACTIVEOPENS]").unwrap();
        let member = |name: &str| Step::Member(name.into());
        assert_eq!(path.root, "net");
        let opens = Step::Enumerator("TCP_MIB_ACTIVEOPENS".into());
        assert_eq!(path.steps, [member("mib"), member("tcp_statistics"), Step::Cpu, member("mibs"), opens]);
        assert_eq!(path.first(3), "net.mib.tcp_statistics[cpu]");
        let path = Path::parse("init_task->a[12]->b[*]").unwrap();
        let arrow = |name: &str| Step::Arrow(name.into());
        assert_eq!(path.steps, [arrow("a"), Step::Number(12), arrow("b"), Step::Each]);
        let path = Path::parse("proto:UDP-Lite->sockets_allocated").unwrap();
        assert_eq!((path.root.as_str(), path.steps), ("proto:UDP-Lite", vec![arrow("sockets_allocated")]));
        assert_eq!(Path::parse("jiffies").unwrap(), Path { root: "jiffies".into(), steps: vec![] });
    }

    #[test]
    fn what_is_no_path_is_told_with_its_place() {
        for (text, part) in [
            ("", "does not begin"),
            (".a", "does not begin"),
            ("net ipv4", "character 4"),
            ("net.ipv4.", "character 9"),
            ("net->", "character 4"),
            ("net.a[1", "character 6"),
            ("net.a[]", "character 6"),
            ("net.a[1x]", "character 6"),
            ("net.a[x y]", "character 6"),
            ("net.9a", "character 4"),
            ("net.a[18446744073709551616]", "character 6"),
            ("é", "does not begin"),
        ] {
            let error = Path::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Path::parse(&"a".repeat(MAX_PATH_BYTES + 1)).unwrap_err().contains("at most 512"));
    }
}
