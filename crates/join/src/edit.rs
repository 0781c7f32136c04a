// SPDX-License-Identifier: Apache-2.0
//! Changes of single keys in a TOML text; all else stays as its author wrote it.

use toml_edit::{DocumentMut, Item, TomlError, Value};

/// A key that is to have another value.
#[derive(Debug, Clone)]
pub struct Change {
    /// Without brackets.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: Value,
}

/// The text with the changes made. A comment behind an old value goes with it.
///
/// # Errors
/// The text is not TOML, or a section is something else.
pub fn edit(text: &str, changes: &[Change]) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    for Change { section, key, value } in changes {
        let section = document.entry(section).or_insert_with(toml_edit::table);
        if let Some(table) = section.as_table_like_mut() {
            match table.get_mut(key) {
                Some(item) => *item = Item::Value(value.clone()),
                None => drop(table.insert(key, Item::Value(value.clone()))),
            }
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(section: &'static str, key: &'static str, value: &str) -> Change {
        Change { section, key, value: value.parse().unwrap() }
    }

    #[test]
    fn keys_are_changed_where_they_stand() {
        let text = "# mine\n[tcp] # reads\n# where\nlisten = \"127.0.0.1:7178\" # loopback\nallow = [\n  \"127.0.0.0/8\",\n  \"::1/128\"]\nmax_connections = 3\n\n[limits]\ngrace = \"1s\"\n";
        let changes = [
            change("tcp", "allow", "[\"10.0.0.1/32\"]"),
            change("tcp", "listen", "\"10.0.0.3:7178\""),
            change("limits", "reuse_delay", "\"2s\""),
            change("bootstrap", "listen", "\"10.0.0.3:7177\""),
            change("bootstrap", "tls", "true"),
        ];
        assert_eq!(
            edit(text, &changes).unwrap(),
            "# mine\n[tcp] # reads\n# where\nlisten = \"10.0.0.3:7178\"\nallow = [\"10.0.0.1/32\"]\nmax_connections = 3\n\n[limits]\ngrace = \"1s\"\nreuse_delay = \"2s\"\n\n[bootstrap]\nlisten = \"10.0.0.3:7177\"\ntls = true\n"
        );
        assert_eq!(edit(text, &[]).unwrap(), text);
        assert_eq!(edit("", &[change("tcp", "listen", "\"a\"")]).unwrap(), "[tcp]\nlisten = \"a\"\n");
        assert!(edit("[tcp", &[]).is_err());
    }

    #[test]
    fn dotted_keys_and_inline_tables_are_sections_too() {
        for (text, expected) in [
            ("tcp.listen = \"a\"\n", "tcp.listen = \"b\"\n"),
            ("tcp = { listen = \"a\", allow = [] }\n", "tcp = { listen = \"b\", allow = [] }\n"),
        ] {
            assert_eq!(edit(text, &[change("tcp", "listen", "\"b\"")]).unwrap(), expected);
        }
    }
}
