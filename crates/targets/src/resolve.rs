// SPDX-License-Identifier: Apache-2.0
//! From a line of a target file to a target: labels, relabelling, token.
//!
//! Labels that begin with two underscores say how to read a host; its series do not get them. Tokens come from token
//! files only, never from a target file, and no message contains one. Cost: linear in the targets; each token file is
//! read once a pass.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onlooker_bootstrap::{DEFAULT_PORT, Token};
use onlooker_flow::Priority;
use onlooker_settings::units::Span;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as ValueError, StrDeserializer};

use crate::book::Found;
use crate::config::Discovery;
use crate::file::Group;
use crate::relabel::{Compiled, Labels, relabel};
use crate::target::{self, Choice, Target};

/// `HOST` or `HOST:PORT` of the bootstrap endpoint.
pub const ADDRESS: &str = "__address__";
/// The file that a target is in.
pub const FILE_PATH: &str = "__meta_filepath";
/// File with the join token; `{instance}` stands for the host's name.
pub const TOKEN_FILE: &str = "__token_file__";
/// Time between two readings, with its unit.
pub const INTERVAL: &str = "__interval__";
/// `high`, `normal` or `low`.
pub const PRIORITY: &str = "__priority__";
/// `auto`, `verbs`, `kernel` or `tcp`.
pub const VIA: &str = "__via__";
/// The host's name.
pub const INSTANCE: &str = "instance";
/// Length of a token file at most.
const MAX_TOKEN_BYTES: u64 = 4096;

/// A `[[discovery]]` that was checked.
#[derive(Clone, Debug)]
pub struct Section {
    /// As the configuration has it.
    pub config: Discovery,
    /// Time between two readings of hosts that set no other.
    pub interval: Span,
    rules: Vec<Compiled>,
}

impl Section {
    /// Of a configuration that was checked; `interval` is that of `[read]`.
    #[must_use]
    pub fn new(config: &Discovery, interval: Span) -> Self {
        let rules = config.relabel.iter().filter_map(|rule| rule.compile().ok()).collect();
        Self { config: config.clone(), interval: config.interval.unwrap_or(interval), rules }
    }
}

/// Tokens read in this pass.
#[derive(Default)]
pub struct Tokens(HashMap<PathBuf, Result<Token, String>>);

impl Tokens {
    fn read(&mut self, path: &Path) -> Result<Token, String> {
        self.0.entry(path.to_owned()).or_insert_with(|| read_token(path)).clone()
    }
}

fn read_token(path: &Path) -> Result<Token, String> {
    use std::io::Read as _;
    let failed = |error: std::io::Error| format!("cannot read its token file {}: {error}", path.display());
    // Reading a pipe or a device could take for ever.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("its token file {} is not a file", path.display()));
    }
    let mut text = String::new();
    fs::File::open(path).map_err(failed)?.take(MAX_TOKEN_BYTES).read_to_string(&mut text).map_err(failed)?;
    Token::parse(text.trim()).map_err(|error| format!("its token file {}: {error}", path.display()))
}

/// Makes targets of a file's groups; also returns how many of them rules have dropped. `before` is the previous result:
/// a host whose token cannot be read now stays as it was there.
pub fn resolve(
    section: &Section,
    path: &Path,
    groups: &[Group],
    before: &[Found],
    tokens: &mut Tokens,
) -> (Vec<Found>, usize) {
    let before: HashMap<&str, &Arc<Target>> =
        before.iter().filter_map(|found| Some((found.name.as_str(), found.target.as_ref()?))).collect();
    let (mut all, mut dropped) = (Vec::new(), 0);
    for group in groups {
        for address in &group.targets {
            let mut labels = Labels::new();
            let Discovery { token_file, priority, via, .. } = &section.config;
            labels.insert(TOKEN_FILE.into(), token_file.display().to_string());
            labels.insert(INTERVAL.into(), section.interval.to_string());
            labels.insert(PRIORITY.into(), priority.to_string());
            labels.insert(VIA.into(), via.to_string());
            labels.extend(group.labels.clone());
            labels.insert(ADDRESS.into(), address.clone());
            labels.insert(FILE_PATH.into(), path.display().to_string());
            if !relabel(&section.rules, &mut labels) {
                dropped += 1;
                continue;
            }
            let address = labels.get(ADDRESS).cloned().unwrap_or_default();
            let name = labels.remove(INSTANCE).unwrap_or_else(|| address.clone());
            let (target, error) = match target(&name, &address, labels, tokens) {
                Ok(target) => (Some(Arc::new(target)), None),
                Err(Wrong::Token(error)) => {
                    let known = before.get(name.as_str()).filter(|known| is_at(known, &address));
                    (known.map(|known| (*known).clone()), Some(error))
                }
                Err(Wrong::Rest(error)) => (None, Some(error)),
            };
            all.push(Found { name, address, target, error });
        }
    }
    (all, dropped)
}

enum Wrong {
    Token(String),
    Rest(String),
}

fn is_at(target: &Target, address: &str) -> bool {
    target::parse_address(address)
        .is_ok_and(|(host, port)| host == target.host && port.unwrap_or(DEFAULT_PORT) == target.port)
}

fn target(name: &str, address: &str, labels: Labels, tokens: &mut Tokens) -> Result<Target, Wrong> {
    let rest = |message: String| Wrong::Rest(message);
    let (host, port) =
        target::parse_address(address).map_err(|message| rest(format!("its address `{address}`: {message}")))?;
    target::check_name(name).map_err(rest)?;
    let own: Labels =
        labels.iter().filter(|(name, _)| !name.starts_with("__")).map(|(n, v)| (n.clone(), v.clone())).collect();
    target::check_labels(&own).map_err(rest)?;
    let interval: Span = of_text(&labels, INTERVAL).map_err(rest)?;
    if interval.as_duration() < target::MIN_INTERVAL {
        return Err(rest(format!("{INTERVAL} must be at least 1ms")));
    }
    let priority: Priority = of_text(&labels, PRIORITY).map_err(rest)?;
    let choice: Choice = of_text(&labels, VIA).map_err(rest)?;
    let file = labels.get(TOKEN_FILE).map(String::as_str).unwrap_or_default();
    let file = token_file(file, name).map_err(rest)?;
    let token = tokens.read(&file).map_err(Wrong::Token)?;
    let port = port.unwrap_or(DEFAULT_PORT);
    let interval = interval.as_duration();
    Ok(Target { name: name.to_owned(), host, port, token, labels: own, interval, priority, choice })
}

fn of_text<'a, T: Deserialize<'a>>(labels: &'a Labels, name: &str) -> Result<T, String> {
    let text = labels.get(name).map(String::as_str).unwrap_or_default();
    let text: StrDeserializer<'a, ValueError> = text.into_deserializer();
    T::deserialize(text).map_err(|error| format!("{name}: {error}"))
}

fn token_file(file: &str, name: &str) -> Result<PathBuf, String> {
    if file.is_empty() {
        return Err(format!("no token file: set token_file of its [[discovery]], or its label {TOKEN_FILE}"));
    }
    if !file.contains("{instance}") {
        return Ok(file.into());
    }
    // A name must not lead to another directory.
    if name.contains('/') || name == "." || name == ".." {
        return Err(format!("`{name}` cannot stand for {{instance}} in the path of a token file"));
    }
    Ok(file.replace("{instance}", name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_bootstrap::Secret;
    use std::time::Duration;

    struct World {
        dir: tempfile::TempDir,
        section: Section,
    }

    impl World {
        fn new(more: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let text =
                format!("files = [\"/t/*.json\"]\ntoken_file = \"{}/{{instance}}\"\n{more}", dir.path().display());
            let discovery: Discovery = onlooker_settings::parse(&text).unwrap();
            discovery.check().unwrap();
            let section = Section::new(&discovery, Span::from_ms(100));
            Self { dir, section }
        }

        fn token(&self, name: &str, byte: u8) -> Token {
            let token = Token { fingerprint: None, secret: Secret::new([byte; 32]) };
            fs::write(self.dir.path().join(name), token.text() + "\n").unwrap();
            token
        }

        fn resolve(&self, json: &str, before: &[Found]) -> (Vec<Found>, usize) {
            let groups: Vec<Group> = serde_json::from_str(json).unwrap();
            resolve(&self.section, Path::new("/t/x.json"), &groups, before, &mut Tokens::default())
        }
    }

    #[test]
    fn a_line_becomes_a_target() {
        let world = World::new(
            "interval = \"50ms\"\n[[relabel]]\nsource_labels = ['__meta_filepath']\ntarget_label = 'file'\n",
        );
        let token = world.token("web-3", 1);
        let (found, _) = world.resolve(
            r#"[{"targets":["10.0.0.3:1"],"labels":{"instance":"web-3","dc":"a","__via__":"tcp","__meta_x":"y"}}]"#,
            &[],
        );
        let wanted = Target {
            name: "web-3".into(),
            host: "10.0.0.3".into(),
            port: 1,
            token,
            labels: Labels::from([("dc".into(), "a".into()), ("file".into(), "/t/x.json".into())]),
            interval: Duration::from_millis(50),
            priority: Priority::Normal,
            choice: Choice::Tcp,
        };
        assert_eq!(found[0].target.as_deref(), Some(&wanted), "{:?}", found[0].error);
        let token = world.token("b", 2);
        let (found, _) = world.resolve(r#"[{"targets":["b"],"labels":{"__interval__":"2s"}}]"#, &[]);
        let target = found[0].target.as_ref().unwrap();
        assert_eq!((target.name.as_str(), target.port, target.interval.as_secs()), ("b", DEFAULT_PORT, 2));
        assert_eq!((&target.token, target.choice), (&token, Choice::Auto));
        let (found, _) = world.resolve(r#"[{"targets":["b"],"labels":{"__via__":"verbs"}}]"#, &[]);
        assert_eq!(found[0].target.as_ref().unwrap().choice, Choice::Verbs);
    }

    #[test]
    fn a_class_is_the_sections_unless_its_group_or_a_rule_says_another() {
        let world = World::new(
            "priority = \"low\"\n[[relabel]]\nsource_labels = ['role']\nregex = 'db'\ntarget_label = '__priority__'\nreplacement = 'high'\n",
        );
        world.token("a", 1);
        for (labels, priority) in [
            ("{}", Priority::Low),
            (r#"{"__priority__":"normal"}"#, Priority::Normal),
            (r#"{"__priority__":"normal","role":"db"}"#, Priority::High),
        ] {
            let (found, _) = world.resolve(&format!(r#"[{{"targets":["a"],"labels":{labels}}}]"#), &[]);
            assert_eq!(found[0].target.as_ref().map(|target| target.priority), Some(priority), "{labels}: {found:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_for_each() {
        let world = World::new("[[relabel]]\nsource_labels = ['skip']\nregex = 'yes'\naction = 'drop'\n");
        world.token("good", 1);
        fs::write(world.dir.path().join("bad"), "onlk1.-.geheim").unwrap();
        for (target, labels, part) in [
            ("good:0", "{}", "port"),
            ("good", r#"{"__interval__":"1us"}"#, "1ms"),
            ("good", r#"{"__interval__":"soon"}"#, "__interval__"),
            ("good", r#"{"__priority__":"first"}"#, "expected one of `high`, `normal`, `low`"),
            ("good", r#"{"__via__":"udp"}"#, "__via__"),
            ("good", r#"{"a-b":"c"}"#, "a-b"),
            ("good", r#"{"__token_file__":""}"#, "no token file"),
            ("good", r#"{"__token_file__":"/nowhere/x"}"#, "/nowhere/x"),
            ("good", r#"{"__token_file__":"/dev/zero"}"#, "not a file"),
            ("good", r#"{"instance":"../good"}"#, "{instance}"),
            ("good", r#"{"instance":".."}"#, "{instance}"),
            ("bad", "{}", "secret"),
        ] {
            let (found, _) = world.resolve(&format!(r#"[{{"targets":["{target}"],"labels":{labels}}}]"#), &[]);
            let error = found[0].error.clone().unwrap();
            assert!(found[0].target.is_none() && error.contains(part) && !error.contains("geheim"), "{error}");
        }
        let (found, dropped) =
            world.resolve(r#"[{"targets":["x","y"],"labels":{"skip":"yes"}},{"targets":["good"]}]"#, &[]);
        assert_eq!((found.len(), dropped), (1, 2));
    }

    #[test]
    fn a_host_whose_token_is_being_written_stays() {
        let world = World::new("");
        world.token("good", 1);
        let json = r#"[{"targets":["good"]}]"#;
        let (before, _) = world.resolve(json, &[]);
        fs::write(world.dir.path().join("good"), "").unwrap();
        let (now, _) = world.resolve(json, &before);
        assert!(now[0].target.is_some() && now[0].target == before[0].target && now[0].error.is_some());
        // Not at another address.
        let (now, _) = world.resolve(r#"[{"targets":["evil"],"labels":{"instance":"good"}}]"#, &before);
        assert!(now[0].target.is_none());
        let token = world.token("good", 2);
        let (now, _) = world.resolve(json, &before);
        assert_eq!(now[0].target.as_ref().unwrap().token, token);
    }
}
