// SPDX-License-Identifier: Apache-2.0
//! Which series a search finds, and in which order. Pure.

use std::cmp::Reverse;

/// How well a word fits: the lower the better.
const EXACT: u32 = 0;
const FRONT: u32 = 1;
const PART: u32 = 3;
const INSIDE: u32 = 6;
const LABELS: u32 = 20;
const HELP: u32 = 60;

/// What was typed: words that must all occur, in either case.
#[derive(Debug)]
pub(super) struct Search {
    words: Vec<String>,
}

/// Where a find stands among others; the least is first. Of equals the machine's own (`node_`) come first, then those
/// that can be drawn, then the shortest name, since the others are mostly special cases of it.
pub(super) type Place<'a> = (u32, Reverse<bool>, bool, usize, &'a str);

impl Search {
    pub(super) fn new(text: &str) -> Self {
        Self { words: text.split_whitespace().map(str::to_lowercase).collect() }
    }

    /// `None`: a word does not occur. `text` is the series as it is written, `name` the front of it.
    pub(super) fn place<'a>(&self, name: &'a str, text: &str, help: &str, is_info: bool) -> Option<Place<'a>> {
        let (lower, text, help) = (name.to_lowercase(), text.to_lowercase(), help.to_lowercase());
        let fits = self.words.iter().map(|word| fit(word, &lower, &text, &help));
        let rank = fits.sum::<Option<u32>>()?;
        // Who has typed nothing looks through a list of names.
        let length = if self.words.is_empty() { 0 } else { name.len() };
        Some((rank, Reverse(name.starts_with("node_")), is_info, length, name))
    }
}

fn fit(word: &str, name: &str, text: &str, help: &str) -> Option<u32> {
    // `node_disk_...` begins with "disk" for who searches: the first part only says whose metric it is.
    let own = name.split_once('_').map_or(name, |(_, own)| own);
    if name == word || text == word {
        Some(EXACT)
    } else if name.starts_with(word) || own.starts_with(word) {
        Some(FRONT)
    } else if name.split('_').any(|part| part.starts_with(word)) {
        Some(PART)
    } else if name.contains(word) {
        Some(INSIDE)
    } else if text.contains(word) {
        Some(LABELS)
    } else {
        help.contains(word).then_some(HELP)
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
        let search = Search::new(words);
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
