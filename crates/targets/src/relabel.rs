// SPDX-License-Identifier: Apache-2.0
//! Relabelling as Prometheus's `relabel_config` does it (Prometheus 2.x and 3.x, `model/relabel`): rules in order, each
//! on the labels that the previous one left.
//!
//! Functions of labels; no I/O. An empty value means that the label is not there. Regular expressions are anchored at
//! both ends, and their `.` matches line ends, as in Prometheus. Cost: a match or two for each rule and target when
//! something changes, nothing for a reading.

use std::collections::BTreeMap;

use md5::{Digest as _, Md5};
use regex::Regex;
use serde::{Deserialize, Serialize};

/// Labels of a target, meta labels among them.
pub type Labels = BTreeMap<String, String>;

/// What a rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Sets `target_label` to `replacement` where `regex` matches the source.
    #[default]
    Replace,
    /// Drops targets whose source `regex` does not match.
    Keep,
    /// Drops targets whose source `regex` matches.
    Drop,
    /// Sets `target_label` to the source's hash modulo `modulus`.
    HashMod,
    /// Copies labels whose name `regex` matches to the name `replacement`.
    LabelMap,
    /// Removes labels whose name `regex` matches.
    LabelDrop,
    /// Removes labels whose name `regex` does not match.
    LabelKeep,
    /// Sets `target_label` to the source in lower case.
    Lowercase,
    /// Sets `target_label` to the source in upper case.
    Uppercase,
    /// Drops targets whose source is not the value of `target_label`.
    KeepEqual,
    /// Drops targets whose source is the value of `target_label`.
    DropEqual,
}

/// A rule, as `[[discovery.relabel]]` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rule {
    /// Labels whose values, joined by `separator`, are the source.
    pub source_labels: Vec<String>,
    /// What joins them.
    pub separator: String,
    /// What the source, or a label's name, is matched with, as a whole.
    pub regex: String,
    /// Of `hashmod`.
    pub modulus: u64,
    /// The label that is set or compared.
    pub target_label: String,
    /// Its value, or a label's name; `$1` and `${name}` are what a group has matched.
    pub replacement: String,
    /// What is done.
    pub action: Action,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            source_labels: Vec::new(),
            separator: ";".into(),
            regex: "(.*)".into(),
            modulus: 0,
            target_label: String::new(),
            replacement: "$1".into(),
            action: Action::default(),
        }
    }
}

/// A rule that was checked.
#[derive(Clone, Debug)]
pub struct Compiled {
    rule: Rule,
    regex: Regex,
}

/// Bytes of a compiled expression at most.
const MAX_REGEX_BYTES: usize = 1 << 20;

fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    text.starts_with(letter) && text.chars().all(|c| letter(c) || c.is_ascii_digit())
}

impl Rule {
    /// Checks it.
    ///
    /// # Errors
    /// The key that is wrong, and why.
    pub fn compile(&self) -> Result<Compiled, (&'static str, String)> {
        use Action::{DropEqual, HashMod, KeepEqual, LabelDrop, LabelKeep, LabelMap, Lowercase, Replace, Uppercase};
        let default = Self::default();
        let has_target = matches!(self.action, Replace | HashMod | Lowercase | Uppercase | KeepEqual | DropEqual);
        if has_target && self.target_label.is_empty() {
            return Err(("target_label", "is needed for this action".into()));
        }
        // `replace` may put groups into the name: it is checked when they are known.
        let is_template = self.action == Replace && self.target_label.contains('$');
        if has_target && !is_template && !is_name(&self.target_label) {
            return Err(("target_label", format!("`{}` cannot be a label", self.target_label)));
        }
        if self.action == HashMod && self.modulus == 0 {
            return Err(("modulus", "must be at least 1 for hashmod".into()));
        }
        if self.action == LabelMap && !self.replacement.contains('$') && !is_name(&self.replacement) {
            return Err(("replacement", format!("`{}` cannot be a label", self.replacement)));
        }
        let by_name = matches!(self.action, LabelMap | LabelDrop | LabelKeep);
        if by_name && !self.source_labels.is_empty() {
            return Err(("source_labels", "this action looks at labels' names; leave it out".into()));
        }
        if matches!(self.action, KeepEqual | DropEqual) && self.regex != default.regex {
            return Err(("regex", "this action compares values; leave it out".into()));
        }
        let regex = regex::RegexBuilder::new(&format!("^(?s:{})$", self.regex)).size_limit(MAX_REGEX_BYTES).build();
        // Compiled alone first: `)(` is wrong, but would become valid inside our parentheses.
        let alone = regex::RegexBuilder::new(&self.regex).size_limit(MAX_REGEX_BYTES).build();
        match alone.and(regex) {
            Ok(regex) => Ok(Compiled { rule: self.clone(), regex }),
            Err(error) => Err(("regex", error.to_string())),
        }
    }
}

fn set(labels: &mut Labels, name: &str, value: String) {
    if value.is_empty() {
        labels.remove(name);
    } else {
        labels.insert(name.to_owned(), value);
    }
}

impl Compiled {
    /// False where the target is to be dropped.
    fn apply(&self, labels: &mut Labels) -> bool {
        let Rule { source_labels, separator, target_label, replacement, modulus, action, .. } = &self.rule;
        let value = |name: &String| labels.get(name).map_or("", String::as_str);
        let source = source_labels.iter().map(value).collect::<Vec<_>>().join(separator);
        let is_match = |text: &str| self.regex.is_match(text);
        match action {
            Action::Keep => return is_match(&source),
            Action::Drop => return !is_match(&source),
            Action::KeepEqual => return source == value(target_label),
            Action::DropEqual => return source != value(target_label),
            Action::Replace => {
                let Some(groups) = self.regex.captures(&source) else { return true };
                let (mut name, mut value) = (String::new(), String::new());
                groups.expand(target_label, &mut name);
                groups.expand(replacement, &mut value);
                if is_name(&name) {
                    set(labels, &name, value);
                }
            }
            Action::HashMod => {
                // The last eight bytes, big-endian, as Prometheus does it: shards are the same on both.
                let hash = Md5::digest(source.as_bytes());
                let word = hash.iter().skip(8).fold(0, |word, byte| word << 8 | u64::from(*byte));
                set(labels, target_label, (word % modulus).to_string());
            }
            Action::Lowercase => set(labels, target_label, source.to_lowercase()),
            Action::Uppercase => set(labels, target_label, source.to_uppercase()),
            Action::LabelMap => {
                let mapped: Vec<(String, String)> = labels
                    .iter()
                    .filter_map(|(name, value)| {
                        let mut to = String::new();
                        self.regex.captures(name)?.expand(replacement, &mut to);
                        Some((to, value.clone()))
                    })
                    .collect();
                mapped.into_iter().for_each(|(name, value)| set(labels, &name, value));
            }
            Action::LabelDrop => labels.retain(|name, _| !is_match(name)),
            Action::LabelKeep => labels.retain(|name, _| is_match(name)),
        }
        true
    }
}

/// Applies rules in order; false where one of them drops the target.
pub fn relabel(rules: &[Compiled], labels: &mut Labels) -> bool {
    labels.retain(|_, value| !value.is_empty());
    rules.iter().all(|rule| rule.apply(labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        text.split_whitespace().filter_map(pair).collect()
    }

    #[derive(Deserialize)]
    struct File {
        relabel: Vec<Rule>,
    }

    fn rules(text: &str) -> Result<Vec<Compiled>, String> {
        let text: String = text.split('|').map(|rule| format!("[[relabel]]\n{}\n", rule.replace("; ", "\n"))).collect();
        let file: File = onlooker_settings::parse(&text).map_err(|mistake| mistake.message)?;
        file.relabel.iter().map(|rule| rule.compile().map_err(|(key, message)| format!("{key}: {message}"))).collect()
    }

    /// Labels, rules, and the labels that stay (`-`: dropped), as Prometheus documents them for relabel_config.
    const TABLE: &[(&str, &str, &str)] = &[
        // replace: the default action, whole matches, groups, empty results.
        (
            "a=foo b=bar",
            "source_labels = ['a']; regex = 'f(.*)'; target_label = 'd'; replacement = 'ch${1}-ch${1}'",
            "a=foo b=bar d=choo-choo",
        ),
        ("a=foo", "source_labels = ['a']; regex = 'o'; target_label = 'd'; replacement = 'x'", "a=foo"),
        ("a=foo", "source_labels = ['a']; target_label = 'd'", "a=foo d=foo"),
        ("a=foo b=x", "source_labels = ['a']; target_label = 'b'; replacement = ''", "a=foo"),
        ("a=foo", "source_labels = ['missing']; target_label = 'a'", ""),
        ("a=foo b=bar", "source_labels = ['a', 'b']; target_label = 'd'", "a=foo b=bar d=foo;bar"),
        (
            "a=foo b=bar",
            "source_labels = ['a', 'b']; separator = '/'; regex = '(.+)/(.+)'; replacement = '$2/$1'; target_label = 'd'",
            "a=foo b=bar d=bar/foo",
        ),
        ("a=foo", "target_label = 'env'; replacement = 'prod'", "a=foo env=prod"),
        (
            "a=some-name-value",
            "source_labels = ['a']; regex = 'some-([^-]+)-([^,]+)'; replacement = '${2}'; target_label = '${1}'",
            "a=some-name-value name=value",
        ),
        (
            "a=some-name-value",
            "source_labels = ['a']; regex = 'some-([^-]+)-([^,]+)'; replacement = '${2}'; target_label = '${3}'",
            "a=some-name-value",
        ),
        (
            "a=some-0name-value",
            "source_labels = ['a']; regex = 'some-([^-]+)-([^,]+)'; replacement = '${2}'; target_label = '${1}'",
            "a=some-0name-value",
        ),
        (
            "__address__=10.0.0.1:9100",
            "source_labels = ['__address__']; regex = '([^:]+):.*'; target_label = 'instance'; replacement = '$1'",
            "__address__=10.0.0.1:9100 instance=10.0.0.1",
        ),
        (
            "a=foo",
            "source_labels = ['a']; regex = '(?P<whole>.*)'; target_label = 'd'; replacement = '$whole-$$'",
            "a=foo d=foo-$",
        ),
        // In order, each on what the one before left.
        (
            "a=foo b=bar c=baz",
            "source_labels = ['a', 'b']; regex = 'f(.*);(.*)r'; target_label = 'a'; replacement = 'b${1}${2}m'|source_labels = ['c', 'a']; regex = '(b).*b(.*)ba(.*)'; target_label = 'd'; replacement = '$1$2$2$3'",
            "a=boobam b=bar c=baz d=boooom",
        ),
        // keep, drop.
        ("a=foo", "source_labels = ['a']; regex = '(foo)?'; action = 'keep'", "a=foo"),
        ("a=food", "source_labels = ['a']; regex = 'foo'; action = 'keep'", "-"),
        ("a=foo", "source_labels = ['a']; regex = '.*o.*'; action = 'drop'", "-"),
        ("a=foo", "source_labels = ['a']; regex = 'f'; action = 'drop'", "a=foo"),
        (
            "a=abc",
            "source_labels = ['a']; regex = '.*(b).*'; target_label = 'd'; replacement = 'x'|source_labels = ['a']; regex = 'no-match'; action = 'drop'|source_labels = ['d']; regex = 'x'; action = 'keep'",
            "a=abc d=x",
        ),
        ("a=foo", "source_labels = ['missing']; regex = ''; action = 'drop'", "-"),
        // hashmod: the MD5 sums' last eight bytes.
        ("c=baz", "source_labels = ['c']; target_label = 'd'; action = 'hashmod'; modulus = 1000", "c=baz d=976"),
        ("a=foo", "source_labels = ['a']; target_label = 'd'; action = 'hashmod'; modulus = 1", "a=foo d=0"),
        // labelmap, labeldrop, labelkeep look at names.
        (
            "__meta_my_bar=aaa __meta_my_baz=bbb __meta_other=ccc",
            "regex = '__meta_(my.*)'; action = 'labelmap'",
            "__meta_my_bar=aaa __meta_my_baz=bbb __meta_other=ccc my_bar=aaa my_baz=bbb",
        ),
        (
            "a=foo b1=bar b2=baz",
            "regex = '(b.*)'; replacement = 'bar_${1}'; action = 'labelmap'",
            "a=foo b1=bar b2=baz bar_b1=bar bar_b2=baz",
        ),
        ("a=foo b1=bar b2=baz", "regex = 'b.*'; action = 'labeldrop'", "a=foo"),
        ("a=foo b1=bar b2=baz", "regex = 'b.*'; action = 'labelkeep'", "b1=bar b2=baz"),
        // lowercase, uppercase.
        (
            "foo=bAr123Foo",
            "source_labels = ['foo']; target_label = 'd'; action = 'lowercase'|source_labels = ['foo']; target_label = 'e'; action = 'uppercase'",
            "foo=bAr123Foo d=bar123foo e=BAR123FOO",
        ),
        // keepequal, dropequal.
        (
            "__tmp_port=1234 port=1234",
            "source_labels = ['__tmp_port']; target_label = 'port'; action = 'keepequal'",
            "__tmp_port=1234 port=1234",
        ),
        (
            "__tmp_port=1234 port=5678",
            "source_labels = ['__tmp_port']; target_label = 'port'; action = 'keepequal'",
            "-",
        ),
        (
            "__tmp_port=1234 port=1234",
            "source_labels = ['__tmp_port']; target_label = 'port'; action = 'dropequal'",
            "-",
        ),
        (
            "__tmp_port=1234 port=5678",
            "source_labels = ['__tmp_port']; target_label = 'port'; action = 'dropequal'",
            "__tmp_port=1234 port=5678",
        ),
    ];

    #[test]
    fn rules_do_what_prometheus_documents() {
        for (before, text, after) in TABLE {
            let mut labels = labels(before);
            let kept = relabel(&rules(text).unwrap(), &mut labels);
            match *after {
                "-" => assert!(!kept, "{text}"),
                after => assert_eq!((kept, labels), (true, self::labels(after)), "{text}"),
            }
        }
    }

    #[test]
    fn a_value_may_have_line_ends() {
        let mut labels = Labels::from([("a".to_owned(), "x\ny".to_owned())]);
        assert!(relabel(&rules("source_labels = ['a']; regex = 'x.y'; action = 'keep'").unwrap(), &mut labels));
        assert!(!relabel(&rules("source_labels = ['a']; regex = 'x'; action = 'keep'").unwrap(), &mut labels));
    }

    #[test]
    fn mistakes_name_their_key() {
        for (text, part) in [
            ("source_labels = ['a']", "target_label: is needed"),
            ("target_label = 'a-b'", "target_label: `a-b`"),
            ("target_label = 'a'; action = 'hashmod'", "modulus"),
            ("regex = '('; action = 'labeldrop'", "regex"),
            ("regex = 'a)(b'; action = 'labeldrop'", "regex"),
            ("regex = '(?=a)'; action = 'labeldrop'", "regex"),
            ("source_labels = ['a']; action = 'labelkeep'", "source_labels"),
            ("target_label = 'a'; regex = 'x'; action = 'keepequal'", "regex"),
            ("action = 'labelmap'; replacement = 'a b'", "replacement"),
            ("action = 'replaces'", "replace"),
            ("regexp = 'x'", "regex"),
        ] {
            let error = rules(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
