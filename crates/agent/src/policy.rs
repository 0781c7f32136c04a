// SPDX-License-Identifier: Apache-2.0
//! Who may register (`[policy]` in agent.toml). Names are resolved once, at start; decisions are by number.

use std::collections::BTreeSet;

use onlooker_local::registration::{Code, Refusal};

use crate::config;

/// The policy in numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    adopt: bool,
}

impl Policy {
    /// Resolves names by the texts of /etc/passwd and /etc/group.
    ///
    /// # Errors
    /// The name that is in neither, with what to do.
    pub fn resolve(config: &config::Policy, passwd: &str, group: &str) -> Result<Self, String> {
        let numbers = |names: &[String], text: &str, key: &str, file: &str| {
            let number = |name: &String| {
                let hint = format!("[policy] {key}: \"{name}\" is not in {file}: correct it, or give its number");
                name.parse().ok().or_else(|| lookup(text, name)).ok_or(hint)
            };
            names.iter().map(number).collect::<Result<BTreeSet<u32>, String>>()
        };
        Ok(Self {
            users: numbers(&config.allow_users, passwd, "allow_users", "/etc/passwd")?,
            groups: numbers(&config.allow_groups, group, "allow_groups", "/etc/group")?,
            adopt: config.adopt,
        })
    }

    /// Whether this user may register at all.
    ///
    /// # Errors
    /// `denied`.
    pub fn check(&self, uid: u32, groups: &[u32]) -> Result<(), Refusal> {
        let everybody = self.users.is_empty() && self.groups.is_empty();
        if everybody || self.users.contains(&uid) || groups.iter().any(|gid| self.groups.contains(gid)) {
            return Ok(());
        }
        let hint = "the operator must add it to [policy] allow_users or one of its groups to allow_groups";
        Err(Refusal::new(Code::Denied, format!("user {uid} may not register regions: {hint}")))
    }

    /// Whether programs may bring their own memory.
    ///
    /// # Errors
    /// `denied`.
    pub fn check_adopt(&self) -> Result<(), Refusal> {
        if self.adopt {
            return Ok(());
        }
        Err(Refusal::new(
            Code::Denied,
            "adopting memory is switched off ([policy] adopt): use create, or ask the operator",
        ))
    }
}

/// The number (third column) of a name (first column).
pub(crate) fn lookup(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut columns = line.split(':');
        (columns.next()? == name).then_some(())?;
        columns.nth(1)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nshop:x:1000:1000::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nmetrics:x:77:shop\n";

    fn policy(users: &[&str], groups: &[&str]) -> Result<Policy, String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let config = config::Policy { allow_users: owned(users), allow_groups: owned(groups), adopt: false };
        Policy::resolve(&config, PASSWD, GROUP)
    }

    #[test]
    fn everybody_or_the_named_ones() {
        assert!(policy(&[], &[]).unwrap().check(4242, &[]).is_ok());
        let named = policy(&["shop", "42"], &["metrics"]).unwrap();
        assert!(named.check(1000, &[]).is_ok() && named.check(42, &[]).is_ok() && named.check(5, &[1, 77]).is_ok());
        let refusal = named.check(0, &[0]).unwrap_err();
        assert!(refusal.code == Code::Denied && refusal.message.contains("allow_users"));
        assert_eq!(named.check_adopt().unwrap_err().code, Code::Denied);
    }

    #[test]
    fn unknown_names_are_named() {
        assert!(policy(&["nobody-here"], &[]).unwrap_err().contains("\"nobody-here\" is not in /etc/passwd"));
        assert!(policy(&[], &["shop"]).unwrap_err().contains("/etc/group"));
    }
}
