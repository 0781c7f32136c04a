// SPDX-License-Identifier: Apache-2.0
//! Changes of single keys in a TOML text, everything else left as its author wrote it.
//!
//! It knows sections in brackets and keys on lines of their own, as agent.toml is written. Whoever uses it parses the result and looks whether that says what was
//! wanted: a text written otherwise (dotted keys, inline tables) is then refused, never misread.

/// A key that is to have another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Without brackets.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// As TOML.
    pub value: String,
}

/// The text with the changes made.
#[must_use]
pub fn edit(text: &str, changes: &[Change]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    changes.iter().for_each(|change| set(&mut lines, change));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn set(lines: &mut Vec<String>, Change { section, key, value }: &Change) {
    let new = format!("{key} = {value}");
    let Some(header) = lines.iter().position(|line| header_of(line) == Some(section)) else {
        if lines.last().is_some_and(|line| !line.trim().is_empty()) {
            lines.push(String::new());
        }
        lines.extend([format!("[{section}]"), new]);
        return;
    };
    let begin = header + 1;
    let end = lines[begin..].iter().position(|line| header_of(line).is_some()).map_or(lines.len(), |at| begin + at);
    let is_key =
        |line: &String| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='));
    let Some(at) = lines[begin..end].iter().position(is_key).map(|at| begin + at) else {
        lines.insert(begin, new);
        return;
    };
    // A list may go on over lines until its bracket.
    let opens =
        lines[at].split_once('=').is_some_and(|(_, value)| value.trim_start().starts_with('[') && !value.contains(']'));
    let last = if opens {
        lines[at + 1..end].iter().position(|line| line.trim_start().starts_with(']')).map_or(at, |more| at + 1 + more)
    } else {
        at
    };
    lines.splice(at..=last, [new]);
}

/// The section that begins on a line.
fn header_of(line: &str) -> Option<&str> {
    let (name, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
    let rest = rest.trim_start();
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte));
    (is_name && (rest.is_empty() || rest.starts_with('#'))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(section: &'static str, key: &'static str, value: &str) -> Change {
        Change { section, key, value: value.to_owned() }
    }

    #[test]
    fn keys_are_changed_where_they_stand() {
        let text = "# mine\n[tcp] # reads\n# where\nlisten = \"127.0.0.1:7178\" # loopback\nallow = [\n  \"127.0.0.0/8\",\n  \"::1/128\",\n]\nmax_connections = 3\n\n[limits]\ngrace = \"1s\"\n";
        let changes = [
            change("tcp", "allow", "[\"10.0.0.1/32\"]"),
            change("tcp", "listen", "\"10.0.0.3:7178\""),
            change("limits", "reuse_delay", "\"2s\""),
            change("bootstrap", "listen", "\"10.0.0.3:7177\""),
            change("bootstrap", "tls", "true"),
        ];
        assert_eq!(
            edit(text, &changes),
            "# mine\n[tcp] # reads\n# where\nlisten = \"10.0.0.3:7178\"\nallow = [\"10.0.0.1/32\"]\nmax_connections = 3\n\n[limits]\nreuse_delay = \"2s\"\ngrace = \"1s\"\n\n[bootstrap]\ntls = true\nlisten = \"10.0.0.3:7177\"\n"
        );
        assert_eq!(edit(text, &[]), text);
        assert_eq!(edit("", &[change("tcp", "listen", "\"a\"")]), "[tcp]\nlisten = \"a\"\n");
    }

    #[test]
    fn a_key_is_not_its_beginning_and_a_list_is_not_a_section() {
        let text = "[kernel]\nport_x = 1\nallow = [\"a\"]\n";
        assert_eq!(edit(text, &[change("kernel", "port", "2")]), "[kernel]\nport = 2\nport_x = 1\nallow = [\"a\"]\n");
        assert_eq!(header_of("[\"a\"]"), None);
        assert_eq!(header_of("  [tcp]  # x"), Some("tcp"));
    }
}
