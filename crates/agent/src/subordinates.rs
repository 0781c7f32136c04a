// SPDX-License-Identifier: Apache-2.0
//! Which uids are one user: a user may run programs under all of its subordinate uids (subuid(5)) as it likes, so that whoever has a range of 65,536
//! of them must not have as many shares.
//!
//! Read from /etc/subuid when it has changed, by the main thread. A range of root's is cut into pieces of 65,536, a user each: that is how container managers hand
//! it out, and who is in one container shall not take another's share, nor root's. Ranges that come from elsewhere (NSS, systemd-nspawn) are not known.
//! Cost: a stat for each program that connects.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::policy::lookup;

/// Longest file that is read: 40,000 users' lines.
const MAX_BYTES: u64 = 1 << 20;
/// Uids of a container.
const CONTAINER_UIDS: u32 = 1 << 16;
const ROOT: u32 = 0;

/// The ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subordinates {
    /// Last uid and owner, by first uid. They do not overlap.
    ranges: BTreeMap<u32, (u32, u32)>,
}

impl Subordinates {
    /// By the texts of /etc/subuid and /etc/passwd. Lines that are none, and ranges that overlap an earlier one, say nothing. A range whose owner has no number is a
    /// user of its own.
    #[must_use]
    pub fn parse(subuid: &str, passwd: &str) -> Self {
        let mut all = Self::default();
        for line in subuid.lines() {
            let mut columns = line.trim().splitn(3, ':');
            let (Some(owner), Some(first), Some(count)) = (columns.next(), columns.next(), columns.next()) else {
                continue;
            };
            let (Ok(first), Ok(count)) = (first.parse::<u32>(), count.parse::<u32>()) else { continue };
            let Some(last) = count.checked_sub(1).and_then(|more| first.checked_add(more)) else { continue };
            if all.range_of(first).is_none() && all.ranges.range(first..=last).next().is_none() {
                let owner = owner.parse().ok().or_else(|| lookup(passwd, owner)).unwrap_or(first);
                all.ranges.insert(first, (last, owner));
            }
        }
        all
    }

    /// The user that a uid counts as.
    #[must_use]
    pub fn user_of(&self, uid: u32) -> u32 {
        match self.range_of(uid) {
            Some((first, ROOT)) => uid - (uid - first) % CONTAINER_UIDS,
            Some((_, owner)) => owner,
            None => uid,
        }
    }

    /// First uid and owner of the range that a uid is in.
    fn range_of(&self, uid: u32) -> Option<(u32, u32)> {
        let (first, (last, owner)) = self.ranges.range(..=uid).next_back()?;
        (uid <= *last).then_some((*first, *owner))
    }
}

/// Where they are written down.
#[derive(Debug)]
pub struct Source {
    subuid: PathBuf,
    passwd: PathBuf,
    /// What the file was when it was read last: when it was changed (s, ns), and its inode.
    read: Option<(i64, i64, u64)>,
}

impl Default for Source {
    fn default() -> Self {
        Self::of("/etc/subuid".into(), "/etc/passwd".into())
    }
}

impl Source {
    fn of(subuid: PathBuf, passwd: PathBuf) -> Self {
        Self { subuid, passwd, read: None }
    }

    /// What it says, if that may be something else than at the last look.
    pub fn look(&mut self) -> Option<Subordinates> {
        let now = fs::metadata(&self.subuid).ok().map(|file| (file.ctime(), file.ctime_nsec(), file.ino()));
        if std::mem::replace(&mut self.read, now) == now {
            return None;
        }
        Some(Subordinates::parse(&text(&self.subuid), &text(&self.passwd)))
    }
}

/// As far as it can be read.
fn text(path: &PathBuf) -> String {
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_uids_count_as_their_user() {
        let passwd = "root:x:0:0::/:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        let subuid = "ann:100000:65536\n# none\n1001:165536:65536\nbob:300000:10\nroot:1000000:1000000000\nann:100010:5\nann:7:0\nann:4294967295:2\nann:5000\n";
        let subordinates = Subordinates::parse(subuid, passwd);
        for (uid, user) in [
            (0, 0),
            (1000, 1000),
            (7, 7),
            (99_999, 99_999),
            (100_000, 1000),
            (100_012, 1000),
            (165_535, 1000),
            (165_536, 1001),
            (231_072, 231_072),
            // Nobody knows his number.
            (300_000, 300_000),
            (300_009, 300_000),
            (300_010, 300_010),
            // A container each.
            (1_000_000, 1_000_000),
            (1_065_535, 1_000_000),
            (1_065_536, 1_065_536),
            (u32::MAX, u32::MAX),
        ] {
            assert_eq!(subordinates.user_of(uid), user, "{uid}");
        }
    }

    #[test]
    fn any_text_is_read_and_each_user_counts_as_one() {
        bolero::check!().with_type::<(Vec<(u8, u32, u32)>, u32)>().for_each(|(lines, uid)| {
            let subuid: String =
                lines.iter().map(|(owner, first, count)| format!("{owner}:{first}:{count}\n")).collect();
            let subordinates = Subordinates::parse(&subuid, "");
            let user = subordinates.user_of(*uid);
            let is_in = |(_, first, count): &&(u8, u32, u32)| {
                (u64::from(*first)..u64::from(*first) + u64::from(*count)).contains(&u64::from(*uid))
            };
            match lines.iter().find(is_in) {
                None => assert_eq!(user, *uid),
                Some(_) => {
                    assert!(user == *uid || lines.iter().any(|(owner, ..)| u32::from(*owner) == user) || user < *uid)
                }
            }
        });
        bolero::check!().with_type::<(String, String)>().for_each(|(subuid, passwd)| {
            let _ = Subordinates::parse(subuid, passwd).user_of(7);
        });
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (subuid, passwd) = (dir.path().join("subuid"), dir.path().join("passwd"));
        let mut source = Source::of(subuid.clone(), passwd.clone());
        assert_eq!(source.look(), None, "there is none");
        fs::write(&passwd, "ann:x:1000:1000::/:/bin/sh\n").unwrap();
        fs::write(&subuid, "ann:100000:65536\n").unwrap();
        assert_eq!(source.look().unwrap().user_of(100_001), 1000);
        assert_eq!(source.look(), None);
        // As useradd does it.
        fs::write(dir.path().join("new"), "ann:200000:65536\n").unwrap();
        fs::rename(dir.path().join("new"), &subuid).unwrap();
        let again = source.look().unwrap();
        assert_eq!((again.user_of(100_001), again.user_of(200_001)), (100_001, 1000));
        fs::remove_file(&subuid).unwrap();
        assert_eq!(source.look(), Some(Subordinates::default()));
    }
}
