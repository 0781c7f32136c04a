// SPDX-License-Identifier: Apache-2.0
//! Whether values that read well can be used: the key and what to write instead, for the first that cannot.

use onlooker_region::schema::{check_label, check_name};
use onlooker_settings::units::Span;
use onlooker_targets::config::{TOO_SHORT, check_entries, is_pattern, is_too_short};

use super::{Config, MAX_PROCESSING_THREADS, Quota, Rules, SHORTEST_RULES};

/// Rows are kept at least so long: a window of the coarsest rollup is made of the finer ones when it is over.
const SHORTEST_KEEP: Span = Span::from_s(12 * 3_600);
/// Rows stay at least so long where they are read fastest.
const SHORTEST_COLD: Span = Span::from_s(3_600);
/// Connections or streams that may be configured.
const MAX_CLIENTS: usize = 65_536;

impl Config {
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        let refuse = |key: &str, message: &str| Err((key.to_owned(), message.to_owned()));
        check_entries(&self.targets)?;
        for (number, discovery) in self.discovery.iter().enumerate() {
            let named = |(key, message)| (format!("[[discovery]] number {}, {key}", number + 1), message);
            discovery.check().map_err(named)?;
        }
        onlooker_forward::config::check(&self.forward)?;
        onlooker_checks::Rules::new(&self.checks)?;
        for (interval, key) in
            [(self.read.interval, "[read] interval"), (self.joined.min_interval, "[joined] min_interval")]
        {
            if is_too_short(interval) {
                return refuse(key, TOO_SHORT);
            }
        }
        if self.http.tls_certificate.as_os_str().is_empty() != self.http.tls_key.as_os_str().is_empty() {
            return refuse("[http] tls_key", "tls_certificate and tls_key go together: give both, or none");
        }
        let http = &self.http;
        if !http.boards.as_os_str().is_empty() && !http.boards.is_absolute() {
            return refuse("[http] boards", "must be an absolute path, or empty for no boards");
        }
        for (all, of_source, key) in [
            (http.max_connections, http.max_connections_per_source, "[http] max_connections_per_source"),
            (http.max_streams, http.max_streams_per_source, "[http] max_streams_per_source"),
        ] {
            if of_source == 0 || of_source > all || all > MAX_CLIENTS {
                return refuse(
                    key,
                    "must be at least 1, and at most as many as of all sources, of which 65536 are possible",
                );
            }
        }
        for name in &self.read.skip {
            if check_name(name).is_err() {
                return refuse(
                    "[read] skip",
                    &format!("`{name}` is no name of a region; `onlooker read HOST --regions` lists them"),
                );
            }
        }
        if let Some((key, _)) = self.quota.parts().into_iter().find(|(_, value)| !(1..1 << 50).contains(value)) {
            return refuse(&format!("[quota] {key}"), "must be at least 1, and less than 2^50");
        }
        if self.read.processing_threads > MAX_PROCESSING_THREADS {
            return refuse("[read] processing_threads", &format!("must be at most {MAX_PROCESSING_THREADS}"));
        }
        if !(1..=100).contains(&self.read.poll_percent) {
            return refuse("[read] poll_percent", "must be 1 to 100");
        }
        if self.read.window == 0 {
            return refuse("[read] window", "must be at least 1");
        }
        let (credit, host_credit) = (self.read.credit.as_bytes(), self.read.host_credit.as_bytes());
        if credit > 256 << 20 || host_credit < 8 << 10 || host_credit > credit {
            return refuse("[read] host_credit", "must be 8KiB to [read] credit, and that at most 256MiB");
        }
        if self.store.max_bytes.as_bytes() < 64 << 20 || self.store.hot_bytes.as_bytes() < 1 << 20 {
            return refuse("[store] max_bytes", "must be at least 64MiB, and hot_bytes at least 1MiB");
        }
        let mut finer = ("the others", SHORTEST_KEEP);
        for (key, keep) in self.store.keep() {
            if keep < finer.1 {
                let message = format!("must be at least 12h, and as long as {}", finer.0);
                return refuse(&format!("[store] {key}"), &message);
            }
            finer = (key, keep);
        }
        let cold_after = self.store.cold_after;
        if cold_after.as_ns() > 0 && !(SHORTEST_COLD..self.store.keep_raw).contains(&cold_after) {
            return refuse("[store] cold_after", "must be at least 1h and less than keep_raw, or 0s for no cold files");
        }
        self.rules.check()
    }
}

impl Rules {
    fn check(&self) -> Result<(), (String, String)> {
        let refuse = |key: &str, message: String| Err((format!("[rules] {key}"), message));
        if let Some(path) = self.files.iter().find(|path| !is_pattern(path, &[".yml", ".yaml"])) {
            let message =
                "must be an absolute path that ends in .yml or .yaml, with one `*` at most, in its last segment";
            return refuse("files", format!("`{}` {message}", path.display()));
        }
        if self.interval < SHORTEST_RULES {
            return refuse("interval", format!("must be at least {SHORTEST_RULES}"));
        }
        let is_url = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if let Some(url) = self.alertmanagers.iter().find(|url| !is_url(url)) {
            return refuse("alertmanagers", format!("`{url}` must begin with http:// or https://"));
        }
        if !self.external_url.is_empty() && !is_url(&self.external_url) {
            return refuse("external_url", "must begin with http:// or https://".to_owned());
        }
        if let Some(name) = self.external_labels.keys().find(|name| check_label(name).is_err()) {
            return refuse("external_labels", format!("`{name}` cannot be a label's name"));
        }
        Ok(())
    }
}

impl Quota {
    fn parts(&self) -> [(&'static str, u64); 9] {
        [
            ("series", self.series),
            ("tracks", self.tracks),
            ("memory", self.memory.as_bytes()),
            ("new_tracks_per_hour", self.new_tracks_per_hour),
            ("values_per_s", self.values_per_s),
            ("reading", self.reading.as_bytes()),
            ("schemas", self.schemas.as_bytes()),
            ("log_bytes_per_s", self.log_bytes_per_s.as_bytes()),
            ("log_burst", self.log_burst.as_bytes()),
        ]
    }
}
