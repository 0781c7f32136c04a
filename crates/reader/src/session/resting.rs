// SPDX-License-Identifier: Apache-2.0
//! How long a region is left alone whose values move seldom: what an agent samples every ten seconds is looked at once for
//! each sample, however often its host is read.
//!
//! A schema says how often values can move, each group's first block when it was written last, by the host's clock. So the
//! next look is when the next sample is due. Where that has not come, since the host is busy, looks follow further and
//! further apart. Where blocks tell no such time, as computed ones, or the host's clock is not known, it is a part of the
//! time in which values can move.

use super::frame::Frame;
use crate::clock::Relation;
use onlooker_region::schema::{Acquisition, Group};

/// Longest rest before a sample that is due: more than what agents sample by default, so that whatever was said of the
/// clocks, and of how often values move, nothing is hidden for longer.
const MOST_NS: u64 = 15_000_000_000;
/// Longest rest where no sample is foreseen, and between looks for one that is late.
const MOST_UNFORESEEN_NS: u64 = 1_000_000_000;
/// Parts of the time in which values can move: where no sample is foreseen; and by which samples and clocks are off.
const UNFORESEEN_PART: u64 = 4;
const OFF_PART: u64 = 64;
/// Of the time for which a sample is late.
const LATE_PART: u64 = 4;

/// Until when a region is left alone that was read just now, the reader's clock; 0: it is not.
pub(super) fn until_ns(frame: &Frame<'_>, clock: Option<&Relation>) -> u64 {
    let (Some(schema), Some(checked)) = (frame.schema(), frame.checked()) else { return 0 };
    let (asked_ns, _) = frame.times_ns();
    let written_ns = |(number, group): (usize, &Group)| {
        let is_computed = frame.entry().acquisition(group) == Acquisition::Computed;
        let host_ns = checked.time_ns(number, 0).filter(|host_ns| *host_ns > 0 && !is_computed);
        clock.zip(host_ns).map(|(clock, host_ns)| clock.steady_ns(host_ns))
    };
    let groups = || schema.groups.iter().enumerate();
    if frame.entry().identity.is_agents() {
        // It samples a region as a whole, and leaves alone what has no rows.
        let every_ns = schema.groups.iter().map(every_ns).min().unwrap_or(0);
        return next_look_ns(every_ns, groups().filter_map(written_ns).max(), asked_ns);
    }
    let of_group = |group: (usize, &Group)| next_look_ns(every_ns(group.1), written_ns(group), asked_ns);
    groups().map(of_group).min().unwrap_or(0)
}

/// How often a group is written: what moves more seldom than it is sampled may move with any sample.
fn every_ns(group: &Group) -> u64 {
    if group.max_age_ns > 0 { group.max_age_ns } else { group.moves_every_ns() }
}

/// Of values that can move every so often and were written then, the reader's clock, which may say anything.
fn next_look_ns(every_ns: u64, written_ns: Option<i128>, asked_ns: u64) -> u64 {
    let unforeseen_ns = every_ns / UNFORESEEN_PART;
    let rest_ns = written_ns.map_or(unforeseen_ns.min(MOST_UNFORESEEN_NS), |written_ns| {
        let (off_ns, asked_ns) = (every_ns / OFF_PART, i128::from(asked_ns));
        let wait_ns = written_ns + i128::from(every_ns - off_ns) - asked_ns;
        let wanted_ns = |ns: i128| u64::try_from(ns).unwrap_or(u64::MAX);
        match wait_ns > 0 {
            true => wanted_ns(wait_ns).min(MOST_NS),
            false => (wanted_ns(-wait_ns) / LATE_PART).max(off_ns).min(unforeseen_ns).min(MOST_UNFORESEEN_NS),
        }
    });
    asked_ns.saturating_add(rest_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_look_for_each_sample() {
        let after = |every_ns, written_ns: Option<i128>| next_look_ns(every_ns, written_ns, 100 * S) - 100 * S;
        let ago = |ns: u64| Some(i128::from(100 * S) - i128::from(ns));
        // What moves at any time does not rest.
        assert_eq!([after(0, None), after(0, ago(0)), after(0, ago(S))], [0; 3]);
        // Nothing is foreseen.
        assert_eq!([after(10 * S, None), after(S, None)], [S, S / 4]);
        // Every ten seconds: the first look may be too early, and then it is late.
        let off = 10 * S / 64;
        assert_eq!([after(10 * S, ago(0)), after(10 * S, ago(9 * S))], [10 * S - off, S - off]);
        assert_eq!([after(10 * S, ago(10 * S - off)), after(10 * S, ago(10 * S))], [off, off]);
        assert_eq!([after(10 * S, ago(12 * S - off)), after(10 * S, ago(60 * S))], [S / 2, S]);
        // Every hour, and by a clock that says anything.
        assert_eq!(after(3600 * S, ago(S)), 15 * S);
        assert_eq!(after(10 * S, Some(i128::from(u64::MAX))), 15 * S);
        assert_eq!([after(u64::MAX, ago(0)), after(u64::MAX, None)], [15 * S, S]);
        assert_eq!(after(10 * S, Some(-i128::from(u64::MAX))), S);
    }
}
