// SPDX-License-Identifier: Apache-2.0
use super::*;

use onlooker_region::limits::FIRST_PROGRAM_REGION;

const QUOTA: Quota = Quota {
    series: 100,
    tracks: 10,
    memory_bytes: 1 << 20,
    new_tracks_per_hour: 3600,
    values_per_s: 1000,
    log_bytes_per_s: 100,
    log_burst_bytes: 1000,
};

fn region(number: u32) -> u64 {
    Identity::first(number, 1).word()
}

fn admit(ledger: &mut Ledger, region: u64, series: usize) -> Option<Cost> {
    ledger.admit(region, &Cost::default(), Cost::of(series, series), || 10)
}

#[test]
fn who_was_there_first_stays_and_what_goes_makes_room() {
    let (agents, first, second) = (region(1), region(FIRST_PROGRAM_REGION), region(FIRST_PROGRAM_REGION + 1));
    let mut ledger = Ledger::new(QUOTA);
    ledger.begin(0);
    let cost = admit(&mut ledger, first, 80).unwrap();
    assert!(admit(&mut ledger, second, 30).is_none());
    assert!(ledger.excess(second).unwrap().is_of(Whose::Programs, Limit::Series));
    assert!(ledger.is_shut_out(second) && !ledger.is_shut_out(first));
    assert!(admit(&mut ledger, agents, 100).is_some(), "the agent's own have theirs");
    assert!(admit(&mut ledger, agents, 1).is_none(), "and no more");
    // It grows in its place.
    let more = ledger.admit(first, &cost, Cost::of(100, 100), || 10).unwrap();
    ledger.release(first, &cost);
    assert_eq!(ledger.used[1], more);
    ledger.release(first, &more);
    assert_eq!(ledger.used[1], Cost::default());
    assert!(!ledger.is_shut_out(second));
    assert!(admit(&mut ledger, second, 30).is_some());
}

#[test]
fn each_quota_bounds_something_of_its_own() {
    let program = region(FIRST_PROGRAM_REGION);
    for (cost, texts, count, limit) in [
        (Cost::of(50, 1), 1, 2, Limit::Series),
        (Cost::of(1, 1), 1, 10, Limit::Tracks),
        (Cost::of(1, 1), 200_000, 1, Limit::Memory),
    ] {
        let mut ledger = Ledger::new(QUOTA);
        let taken = (0..100).filter(|_| ledger.admit(program, &Cost::default(), cost, || texts).is_some()).count();
        assert_eq!((taken, ledger.over(true).map(|over| over.1).collect()), (count, vec![limit]));
    }
    // Short-lived ones: all at once, then one a second.
    let mut ledger = Ledger::new(Quota { new_tracks_per_hour: 1800, ..QUOTA });
    let mut brief = |now_s: u64| {
        ledger.begin(now_s * 1_000_000_000);
        admit(&mut ledger, program, 1).inspect(|cost| ledger.release(program, cost)).is_some()
    };
    assert_eq!((0..4000).filter(|_| brief(1)).count(), 1800);
    assert_eq!((0..100).filter(|_| brief(11)).count(), 5);
}

#[test]
fn what_wrote_too_much_writes_again_when_half_has_come_back() {
    let program = region(FIRST_PROGRAM_REGION);
    let mut ledger = Ledger::new(QUOTA);
    let mut may = |now_s: u64, bytes: u64| {
        ledger.begin(now_s * 1_000_000_000);
        let may = ledger.may_log(program);
        ledger.logged(program, bytes);
        may
    };
    assert!(may(1, 1100), "what is under way is written");
    assert_eq!([2, 5, 6, 7, 8].map(|now_s| may(now_s, 0)), [false, false, false, true, true]);
    ledger.begin(8_000_000_000);
    assert!(ledger.may_log(region(1)));
}

#[test]
fn a_quota_is_told_again_after_a_minute_without() {
    let mut ledger = Ledger::new(QUOTA);
    let mut told = |now_s: u64| {
        ledger.begin(now_s * 1_000_000_000);
        admit(&mut ledger, region(FIRST_PROGRAM_REGION), 101);
        ledger.take_news().len()
    };
    assert_eq!([1, 30, 90, 151, 152].map(&mut told), [1, 0, 0, 1, 0]);
    ledger.begin(300_000_000_000);
    assert_eq!((ledger.over(false).count(), ledger.over(true).count()), (0, 1));
}

#[test]
fn a_row_costs_what_differs() {
    assert_eq!(row_bytes(&[5, 5, 5], &[5, 6, 4]), ROW_BYTES + 2);
    assert_eq!(row_bytes(&[], &[u64::MAX / 3]), ROW_BYTES + 8);
}
