// SPDX-License-Identifier: Apache-2.0
//! What was typed, and how well a name, its labels and its help fit it. Pure.
//!
//! Words are parted by spaces, commas and braces, so that a series or a selector finds what it names. Case and double
//! quotes do not count: `dc=a` finds `dc="a"`.

use std::cmp::Reverse;

use super::super::answer::Failure;

/// How well a word fits: the lower the better.
const EXACT: u32 = 0;
const FRONT: u32 = 1;
const PART: u32 = 3;
const INSIDE: u32 = 6;
const LABELS: u32 = 20;
const HELP: u32 = 60;

/// Words have a bit each.
const MAX_WORDS: usize = 64;

/// What was typed: words that must all occur.
#[derive(Debug)]
pub(in super::super) struct Words {
    whole: String,
    words: Vec<String>,
}

/// Where a find stands among others; the least is first. Of equals the machine's own (`node_`) come first, then those
/// that can be drawn, then the shortest name, since the others are mostly special cases of it.
pub(in super::super) type Place<'a> = (u32, Reverse<bool>, bool, usize, &'a str);

/// Words that occur somewhere, a bit each.
pub(super) type Bits = u64;

/// How the words fit what all series of a metric have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    in_name: Bits,
    /// How well those fit.
    rank: u32,
    in_help: Bits,
    all: Bits,
}

impl Fit {
    /// Whether labels can make a difference.
    pub(super) fn needs_labels(self) -> bool {
        self.in_name != self.all
    }

    /// How well a series fits in whose labels these words occur; `None`: a word does not occur.
    pub(super) fn with(self, in_labels: Bits) -> Option<u32> {
        let rest = self.all & !self.in_name;
        if rest & !(in_labels | self.in_help) != 0 {
            return None;
        }
        let of_labels = (rest & in_labels).count_ones();
        Some(self.rank + LABELS * of_labels + HELP * (rest.count_ones() - of_labels))
    }
}

impl Words {
    pub(in super::super) fn new(text: &str) -> Self {
        let mut whole = String::new();
        fold(text.trim(), &mut whole);
        let parts = whole.split(|sign: char| sign.is_whitespace() || matches!(sign, ',' | '{' | '}'));
        let words = parts.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        Self { whole, words }
    }

    /// The same where each word needs a bit.
    pub(super) fn few(text: &str) -> Result<Self, Failure> {
        let words = Self::new(text);
        match words.words.len() {
            count if count > MAX_WORDS => {
                Err(Failure::bad(format!("`search` has {count} words; at most {MAX_WORDS} are possible")))
            }
            _ => Ok(words),
        }
    }

    /// `None`: a word does not occur. `text` is the series as it is written, `name` the front of it.
    pub(in super::super) fn place<'a>(
        &self,
        name: &'a str,
        text: &str,
        help: &str,
        is_info: bool,
    ) -> Option<Place<'a>> {
        let [mut lower, mut folded, mut of_help] = [const { String::new() }; 3];
        fold(name, &mut lower);
        fold(text, &mut folded);
        fold(help, &mut of_help);
        let fits = self.words.iter().map(|word| {
            let of_labels = || folded.contains(word.as_str()).then_some(LABELS);
            let of_help = || of_help.contains(word.as_str()).then_some(HELP);
            in_name(word, &lower).or_else(of_labels).or_else(of_help)
        });
        let rank = if folded == self.whole { Some(EXACT) } else { fits.sum::<Option<u32>>() };
        Some(self.at(rank?, name, is_info))
    }

    /// Where a name stands that fits so well.
    pub(super) fn at<'a>(&self, rank: u32, name: &'a str, is_info: bool) -> Place<'a> {
        // Who has typed nothing looks through a list of names.
        let length = if self.words.is_empty() { 0 } else { name.len() };
        (rank, Reverse(name.starts_with("node_")), is_info, length, name)
    }

    pub(super) fn fit(&self, name: &str, help: &str) -> Fit {
        let mut lower = String::new();
        fold(name, &mut lower);
        let mut fit = Fit { in_name: 0, rank: 0, in_help: self.within(help, &mut String::new()), all: 0 };
        for (at, word) in self.words.iter().enumerate() {
            fit.all |= 1 << at;
            if let Some(rank) = in_name(word, &lower) {
                fit.in_name |= 1 << at;
                fit.rank += rank;
            }
        }
        fit
    }

    /// Which of the words occur in a text; `room` is memory that is used again.
    pub(super) fn within(&self, text: &str, room: &mut String) -> Bits {
        if text.is_empty() || self.words.is_empty() {
            return 0;
        }
        fold(text, room);
        let bits = self.words.iter().enumerate().filter(|(_, word)| room.contains(word.as_str()));
        bits.fold(0, |bits, (at, _)| bits | 1 << at)
    }
}

/// What is compared of a text, into `room`.
fn fold(text: &str, room: &mut String) {
    room.clear();
    if text.is_ascii() {
        room.push_str(text);
        room.make_ascii_lowercase();
    } else {
        room.push_str(&text.to_lowercase());
    }
    if room.contains('"') {
        room.retain(|sign| sign != '"');
    }
}

fn in_name(word: &str, name: &str) -> Option<u32> {
    // `node_disk_...` begins with "disk" for who searches: the first part only says whose metric it is.
    let own = name.split_once('_').map_or(name, |(_, own)| own);
    if name == word {
        Some(EXACT)
    } else if name.starts_with(word) || own.starts_with(word) {
        Some(FRONT)
    } else if name.split('_').any(|part| part.starts_with(word)) {
        Some(PART)
    } else {
        name.contains(word).then_some(INSIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [(&str, &str, &str); 12] = [
        ("node_netstat_Icmp6_InErrors", "", "ICMP"),
        ("node_pressure_cpu_waiting_seconds_total", "", "Stalled."),
        ("node_softnet_processed_total", "{cpu=\"0\"}", "Packets."),
        ("onlooker_process_state", "{state=\"disk\"}", "State."),
        ("onlooker_process_cpu_seconds_total", "{pid=\"1\"}", "Time of a process."),
        ("container_cpu_usage_seconds_total", "", "Time of a container."),
        ("node_cpu_guest_seconds_total", "{cpu=\"0\"}", "Guests."),
        ("node_cpu_seconds_total", "{cpu=\"0\"}", "Seconds the CPUs spent in each mode."),
        ("node_cpu_info", "{cpu=\"0\"}", "Model."),
        ("node_disk_read_bytes_total", "{device=\"vda\"}", "Bytes."),
        ("node_disk_written_bytes_total", "{device=\"vda\"}", "Bytes."),
        ("node_filesystem_size_bytes", "{device=\"vda\"}", "Size, on disk."),
    ];

    fn found(words: &str) -> Vec<&'static str> {
        let search = Words::new(words);
        let places = ALL.iter().filter_map(|(name, labels, help)| {
            search.place(name, &format!("{name}{labels}"), help, name.ends_with("_info"))
        });
        let mut places: Vec<_> = places.collect();
        places.sort_unstable();
        places.into_iter().map(|place| place.4).collect()
    }

    #[test]
    fn a_name_s_front_stands_before_names_labels_and_help() {
        let cpu = found("cpu");
        assert_eq!(cpu[..3], ["node_cpu_seconds_total", "node_cpu_guest_seconds_total", "node_cpu_info"]);
        assert_eq!(cpu[3], "container_cpu_usage_seconds_total");
        assert_eq!(cpu[4], "node_pressure_cpu_waiting_seconds_total");
        assert_eq!(cpu.last(), Some(&"node_softnet_processed_total"));
        let disk = found("DISK");
        assert_eq!(disk[..2], ["node_disk_read_bytes_total", "node_disk_written_bytes_total"]);
        assert_eq!(disk[2..], ["onlooker_process_state", "node_filesystem_size_bytes"]);
        assert_eq!(found("node_cpu_info")[0], "node_cpu_info");
    }

    #[test]
    fn all_words_must_occur_and_no_word_finds_all() {
        assert_eq!(found("disk vda written"), ["node_disk_written_bytes_total"]);
        assert_eq!(found("disk nosuch"), [""; 0]);
        assert_eq!(found("").len(), ALL.len());
        assert_eq!(found("")[0], "node_cpu_guest_seconds_total");
        assert_eq!(found("time process"), ["onlooker_process_cpu_seconds_total"]);
        assert_eq!(found("cpu=\"0\"").len(), 4);
    }
}
