// SPDX-License-Identifier: Apache-2.0
//! What could not be read, on standard error, and what that means for the exit code.

use super::directory::{given, responders};
use super::has_wanted;
use super::samples::Collected;
use crate::End;
use crate::output::{note, shown};
use crate::suggest::{matches, nearest};
use onlooker_reader::{Frame, Session};
use std::collections::{BTreeMap, BTreeSet};

/// Most lines about single regions.
const MAX_LINES: usize = 20;

/// Says what is wrong with the directory itself.
pub(super) fn of_directory(session: &Session) -> End {
    for (block, reject) in session.control_refused() {
        note(&format!("directory block {block} could not be read: {reject}; regions may be missing"));
    }
    let refused: Vec<_> = session.directory().refused().collect();
    for (slot, why) in refused.iter().take(MAX_LINES) {
        note(&format!("directory entry {slot} is refused: {why}"));
    }
    if refused.len() > MAX_LINES {
        note(&format!("... and {} more directory entries", refused.len() - MAX_LINES));
    }
    if session.directory().regions().next().is_none() {
        note("the host publishes no regions: no program has registered, and its agent samples nothing");
    }
    if session.control_refused().is_empty() { End::Done } else { End::Incomplete }
}

/// Says which regions gave less than they have.
pub(super) fn of_regions(session: &Session, collected: &Collected) {
    let lines: Vec<String> = session.frames().filter_map(|frame| trouble(&frame)).collect();
    lines.iter().take(MAX_LINES).for_each(|line| note(line));
    if lines.len() > MAX_LINES {
        note(&format!("... and {} more regions", lines.len() - MAX_LINES));
    }
    if collected.left_out > 0 {
        note(&format!("{} samples are left out: the limit is reached; ask for fewer metrics", collected.left_out));
    }
}

fn trouble(frame: &Frame) -> Option<String> {
    let entry = frame.entry();
    let who = format!("region {} of pid {}", shown(&entry.name), entry.pid);
    if let Some(problem) = frame.problem() {
        return Some(format!("{who} could not be read: {}", shown(&problem.to_string())));
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for refused in frame.refused() {
        *reasons.entry(refused.reject.name()).or_default() += 1;
    }
    if reasons.is_empty() {
        return None;
    }
    let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    Some(format!("{who}: {} blocks were not accepted ({})", frame.refused().len(), reasons.join(", ")))
}

fn is_troubled(frame: &Frame) -> bool {
    frame.problem().is_some() || !frame.refused().is_empty()
}

/// Names of all metrics of the host.
fn names(session: &Session) -> BTreeSet<&str> {
    let regions = session.directory().regions().filter_map(|entry| Some((entry, session.schema(entry)?)));
    regions.flat_map(|(entry, schema)| given(entry, schema)).map(|given| given.name).collect()
}

/// Whether each of these patterns names a region; says which does not.
pub(super) fn has_regions(session: &Session, patterns: &[String]) -> bool {
    let names: BTreeSet<&str> = session.directory().regions().map(|entry| entry.name.as_str()).collect();
    let unknown = patterns.iter().filter(|pattern| !names.iter().any(|name| matches(pattern, name)));
    let unknown =
        unknown.inspect(|pattern| note(&format!("no region matches `{}`: --regions shows all", shown(pattern))));
    unknown.count() == 0
}

/// Whether everything asked for was there; says what was not. `got` tells whether there is output for a metric.
pub(super) fn verdict(session: &Session, patterns: &[String], got: impl Fn(&str) -> bool) -> End {
    let directory = of_directory(session);
    let names = names(session);
    if patterns.is_empty() {
        let nothing = !names.iter().any(|name| got(name));
        return if nothing && session.frames().any(|frame| is_troubled(&frame)) { End::Incomplete } else { directory };
    }
    let unknown_schemas = session.directory().regions().any(|entry| session.schema(entry).is_none());
    let (mut unread, mut unknown) = (false, false);
    for pattern in patterns {
        let mut known = names.iter().filter(|name| matches(pattern, name)).peekable();
        if known.peek().is_none() {
            let hint = match nearest(pattern, names.iter().map(|name| &**name)).as_slice() {
                [] => "--list shows all".to_owned(),
                near => format!("did you mean {}?", near.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ")),
            };
            note(&format!("no metric matches `{}`: {hint}", shown(pattern)));
            if unknown_schemas || directory != End::Done {
                note("some regions could not be looked into; it may be there");
                unread = true;
            }
            unknown = true;
        } else if !known.any(|name| got(name)) {
            let one = [pattern.clone()];
            let concerned =
                |frame: &Frame| frame.schema().is_some_and(|schema| has_wanted(&one, frame.entry(), schema));
            let regions = session.directory().regions();
            let having =
                regions.filter(|entry| session.schema(entry).is_some_and(|schema| has_wanted(&one, entry, schema)));
            let elsewhere: Vec<u32> =
                having.map(|entry| if session.serves(entry) { 0 } else { entry.responders }).collect();
            if elsewhere.iter().all(|bits| *bits != 0) {
                let others = responders(elsewhere.iter().fold(0, |all, bits| all | bits)).join(" or ");
                note(&format!("`{}` is served by {others} only: --via {others}", shown(pattern)));
                unread = true;
            } else if session.frames().any(|frame| concerned(&frame) && is_troubled(&frame)) {
                note(&format!("`{}` could not be read at all", shown(pattern)));
                unread = true;
            } else {
                note(&format!("`{}` has no values now: its tables are empty", shown(pattern)));
            }
        }
    }
    match (unread, unknown) {
        (true, _) => End::Incomplete,
        (false, true) => End::NothingMatched,
        (false, false) => End::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{fixture, samples};
    use onlooker_series::derive::Derived;

    fn verdict_of(session: &Session, patterns: &[&str]) -> End {
        let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let collected = samples::collect(session, &patterns, &mut Derived::default());
        of_regions(session, &collected);
        verdict(session, &patterns, |name| collected.has(name))
    }

    #[test]
    fn the_exit_code_says_whether_what_was_asked_for_is_there() {
        let host = fixture::host();
        let session = fixture::read(&host);
        assert_eq!(verdict_of(&session, &[]), End::Done);
        assert_eq!(verdict_of(&session, &["shop_*", "queue_depth"]), End::Done);
        assert_eq!(verdict_of(&session, &["queue_dept"]), End::NothingMatched);
        assert_eq!(verdict_of(&session, &["queue_depth", "nothing_like_it"]), End::NothingMatched);
    }

    #[test]
    fn regions_that_are_not_there_are_told() {
        let host = fixture::host();
        let session = fixture::read(&host);
        let has = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            has_regions(&session, &patterns)
        };
        assert!(has(&[]) && has(&["shop"]) && has(&["sh*"]));
        assert!(!has(&["shop", "shops"]));
    }

    #[test]
    fn unread_metrics_are_incomplete_only_if_all_of_them_are() {
        let mut host = fixture::host();
        let other = r#"{"name":"t","groups":[{"kind":"guarded","blocks":1,"fields":[{"name":"x","metric":"gauge","type":"u64"}]}]}"#;
        let torn = host.region(2, "t", &[], other);
        torn.words.set(0, 5, 1);
        let session = fixture::read(&host);
        assert_eq!(verdict_of(&session, &[]), End::Done, "the rest was read");
        assert_eq!(verdict_of(&session, &["x"]), End::Incomplete);
        assert_eq!(verdict_of(&session, &["x", "queue_depth"]), End::Incomplete);
        let whole = host.region(3, "t", &[("a", "b")], other);
        assert_eq!(whole.entry.name, "t");
        assert_eq!(verdict_of(&fixture::read(&host), &["x"]), End::Done, "one of two was read");
        host.memory.remove(torn.entry.rkey);
        assert_eq!(verdict_of(&fixture::read(&host), &["x"]), End::Done);
    }
}
