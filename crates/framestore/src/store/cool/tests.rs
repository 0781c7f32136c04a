// SPDX-License-Identifier: Apache-2.0
//! A store with cold files answers as one without, byte for byte, whatever its rows are; a conversion that fails or is
//! killed costs nothing, and damage what it hits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use onlooker_series::series::Form;

use super::*;
use crate::damage::Damage;
use crate::inspect::fixture::{FROM_NS, Filled, STEP_NS, contents};
use crate::inspect::{survey, verify};
use crate::store::{Columns, DAMAGED};
use crate::types::Gap;
use world::{FAULT, Fault, KILLED, STEPS};

mod any;
pub(super) mod world;

fn filled() -> Filled {
    let mut filled = Filled::new(3_000);
    filled.gap("a", None, FROM_NS + 5 * STEP_NS, FROM_NS + 6 * STEP_NS);
    filled.gap("b", Some(1), FROM_NS + 5 * STEP_NS, FROM_NS + 2_000 * STEP_NS);
    filled.turn();
    filled
}

#[test]
fn what_was_warm_is_cold_and_reads_as_before() {
    let mut filled = filled();
    let hosts = ["a", "b"];
    let (chunks, all) = (filled.chunks(), filled.all(&hosts));
    assert!(filled.cool() > 0);
    filled.check_files();
    assert!(filled.names("warm").iter().all(|name| !name.starts_with("raw-") || name.ends_with(".outline")));
    let check = |filled: &Filled| {
        assert!(filled.chunks() == chunks);
        assert_eq!(filled.all(&hosts), all);
        let of_disk = contents(&filled.store_dir().join("cold")).values().map(|bytes| bytes.len() as u64).sum::<u64>();
        assert!(filled.store().cold_bytes() > of_disk && of_disk > 0);
    };
    check(&filled);
    filled.again();
    filled.check_files();
    check(&filled);
    // What comes later is behind it.
    filled.fill(2_000);
    filled.again();
    assert_eq!(filled.all(&hosts).values().map(Vec::len).max(), Some(5_000));
    filled.cool();
    assert_eq!(filled.all(&hosts).values().map(Vec::len).max(), Some(5_000));
    filled.turn();
    assert_eq!(filled.store().bytes(), filled.bytes(), "all files are counted");
    filled.close();
    let verified = verify(&filled.store_dir(), |_, _| {}).unwrap();
    assert!(verified.is_whole() && verified.unread.is_empty(), "{verified:?}");
    let survey = survey(&filled.store_dir()).unwrap();
    assert_eq!(survey.bytes(), filled.bytes());
    assert_eq!(survey.hosts.iter().map(|host| host.amount.rows).sum::<u64>(), 3 * 5_000);
}

#[test]
fn sql_has_each_sample_once_and_gaps() {
    let mut filled = filled();
    // Files of a few chunks each: what the one before had is not new in the next.
    filled.cool();
    filled.fill(700);
    filled.pack();
    filled.cool();
    let (cold, _) = cold::Cold::open(&filled.store_dir()).unwrap();
    let mut found: BTreeMap<String, Vec<(u64, Vec<u64>)>> = BTreeMap::new();
    cold.scan(
        0,
        i64::MAX.unsigned_abs(),
        |_| true,
        |described, samples| {
            let labels = described.all_labels();
            let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            let name = format!("{}{{{}}}", described.name, labels.join(","));
            let rows = (0..samples.times_ns.len()).map(|at| {
                let is_text = described.form == Form::Text;
                let words = samples.words.iter().filter(|_| !is_text).map(|words| words[at]).collect();
                (samples.times_ns[at], words)
            });
            found.entry(name).or_default().extend(rows);
        },
    )
    .unwrap();
    found.values_mut().for_each(|samples| samples.sort());
    let all = filled.all(&["a", "b"]);
    for (name, samples) in &all {
        let found = found.get(name).unwrap_or_else(|| panic!("{name} of {:?}", found.keys()));
        assert!(found == samples, "{name}: {} {}", found.len(), samples.len());
    }
    assert_eq!(found.len(), all.len());
    let gaps = cold.gaps(0, u64::MAX).unwrap();
    assert!(gaps.iter().any(|gap| gap.instance == "a:1" && gap.reason == "late"), "{gaps:?}");
}

#[test]
fn a_kill_at_any_step_costs_nothing_and_doubles_nothing() {
    for step in 1..=STEPS {
        let mut filled = filled();
        let (chunks, all) = (filled.chunks(), filled.all(&["a", "b"]));
        filled.end_files();
        FAULT.set(Some((step, Fault::Kill)));
        filled.store().cooler().turn(|| true).unwrap_err();
        assert_eq!(FAULT.get(), None, "step {step} was taken");
        filled.again();
        KILLED.set(false);
        filled.check_files();
        assert!(filled.chunks() == chunks, "step {step}");
        assert_eq!(filled.all(&["a", "b"]), all, "step {step}");
        assert_eq!(filled.names("warm").iter().any(|name| name.ends_with(".outline")), step >= STEPS - 1);
        filled.cool();
        filled.check_files();
        assert!(filled.chunks() == chunks, "step {step}");
    }
}

#[test]
fn a_full_disk_leaves_what_was_there_and_is_tried_again() {
    for step in 1..STEPS {
        let mut filled = filled();
        let chunks = filled.chunks();
        let before = contents(&filled.store_dir().join("warm"));
        filled.end_files();
        let ended = contents(&filled.store_dir().join("warm"));
        assert!(before.len() <= ended.len());
        FAULT.set(Some((step, Fault::Full)));
        let error = filled.store().cooler().turn(|| true).unwrap_err();
        assert!(crate::framing::files::is_disk_full(&error), "{error}");
        assert!(contents(&filled.store_dir().join("warm")) == ended, "step {step}");
        assert_eq!(filled.names("cold"), Vec::<String>::new(), "step {step}");
        assert!(filled.chunks() == chunks);
        assert!(filled.store().cold_lag_ns() > 0, "it is still due");
        assert!(filled.cool() > 0);
        filled.check_files();
        assert!(filled.chunks() == chunks);
    }
}

#[test]
fn what_a_failed_attempt_could_not_remove_goes_before_the_next_one() {
    for step in 1..STEPS {
        let mut filled = filled();
        let chunks = filled.chunks();
        filled.end_files();
        let mut cooler = filled.store().cooler();
        // It removes nothing.
        FAULT.set(Some((step, Fault::Kill)));
        cooler.turn(|| true).unwrap_err();
        KILLED.set(false);
        while cooler.turn(|| true).unwrap() != Cooled::Nothing {}
        for _ in 0..2 {
            filled.check_files();
            assert!(filled.chunks() == chunks, "step {step}");
            filled.again();
        }
    }
}

#[test]
fn who_is_told_to_stop_leaves_what_was_there() {
    let mut filled = filled();
    filled.end_files();
    let ended = contents(&filled.store_dir().join("warm"));
    // In the middle of either pass.
    for chunks in [1, 3, 9] {
        let mut left = chunks;
        let goes_on = || {
            left -= 1;
            left > 0
        };
        assert_eq!(filled.store().cooler().turn(goes_on).unwrap(), Cooled::Stopped);
        assert!(contents(&filled.store_dir().join("warm")) == ended);
        assert_eq!(filled.names("cold"), Vec::<String>::new());
    }
}

#[test]
fn a_file_may_go_while_it_is_converted() {
    let mut filled = filled();
    filled.end_files();
    let mut cooler = filled.store().cooler();
    let mut is_dropped = false;
    let writer = filled.writer();
    let goes_on = || {
        if !std::mem::replace(&mut is_dropped, true) {
            writer.warm.drop_oldest(Level::Raw).unwrap();
        }
        true
    };
    assert_eq!(cooler.turn(goes_on).unwrap(), Cooled::File(0));
    let chunks = filled.chunks();
    filled.check_files();
    filled.again();
    assert!(filled.chunks() == chunks);
}

#[test]
fn cold_files_go_when_they_are_the_oldest() {
    let mut filled = Filled::new(0);
    let mut files = 0;
    for _ in 0..3 {
        filled.fill(1_000);
        files += filled.cool();
    }
    assert!(files > 2);
    for left in (0..files).rev() {
        let bytes = filled.store().cold_bytes();
        assert!(filled.writer().warm.drop_oldest(Level::Raw).unwrap().is_some());
        assert!(filled.store().cold_bytes() < bytes);
        filled.check_files();
        assert_eq!(filled.names("cold").iter().filter(|name| name.ends_with(".index")).count(), left);
    }
    assert_eq!((filled.names("cold"), filled.store().cold_bytes()), (Vec::new(), 0));
    // Their rows were of before this time.
    filled.fill(2_000);
    filled.cool();
    filled.writer().warm.drop_before(Level::Raw, u64::MAX, u64::MAX).unwrap();
    assert_eq!(filled.names("cold"), Vec::<String>::new());
}

#[test]
fn a_kill_while_a_cold_file_goes_leaves_nothing_of_it() {
    let mut filled = filled();
    filled.cool();
    let dir = filled.store_dir();
    let outline = filled.names("warm").into_iter().find(|name| name.ends_with(".outline")).unwrap();
    fs::rename(dir.join("warm").join(&outline), dir.join("warm").join(format!("{outline}.tmp"))).unwrap();
    filled.again();
    filled.check_files();
}

/// Samples of a series and what is told to be damaged.
fn read(filled: &Filled, wanted: &Columns) -> (Vec<(u64, Vec<u64>)>, Vec<Gap>) {
    let mut samples = Vec::new();
    let gaps = filled.store().read(wanted, 0, u64::MAX, |time_ns, words| {
        samples.push((time_ns, words.to_vec()));
        std::ops::ControlFlow::Continue(())
    });
    (samples, gaps.unwrap())
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 4;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_told_and_costs_what_it_hits() {
    let mut filled = filled();
    let named = filled.store().series_of("a").into_iter().find(|named| named.columns.part == 0).unwrap();
    let wanted = Columns { words: vec![1], ..named.columns };
    let (all, gaps) = read(&filled, &wanted);
    assert_eq!(gaps, []);
    filled.cool();
    let dir = filled.store_dir();
    let path = |filled: &Filled, of: &str, ending: &str| -> PathBuf {
        let name = filled.names(of).into_iter().find(|name| name.ends_with(ending) && !name.contains('/')).unwrap();
        dir.join(of).join(name)
    };
    let outline = path(&filled, "warm", ".outline");
    let samples = path(&filled, "cold", ".parquet");
    let (outline_bytes, samples_bytes) = (fs::read(&outline).unwrap(), fs::read(&samples).unwrap());
    let check = |filled: &mut Filled, what: &str| {
        filled.again();
        let (some, mut gaps) = read(filled, &wanted);
        gaps.extend(filled.store().gaps(&wanted, 0, u64::MAX));
        let lost: Vec<&(u64, Vec<u64>)> = all.iter().filter(|sample| !some.contains(sample)).collect();
        assert!(some.len() < all.len() && !some.is_empty() && some.iter().all(|sample| all.contains(sample)), "{what}");
        for (time_ns, _) in lost {
            let is_told = |gap: &Gap| gap.reason == DAMAGED && (gap.from_ns..=gap.to_ns).contains(time_ns);
            assert!(gaps.iter().any(is_told), "{what}: {time_ns} {gaps:?}");
        }
        let verified = verify(&filled.store_dir(), |_, _| {}).unwrap();
        assert!(!verified.is_whole() && verified.unread.is_empty(), "{what}: {verified:?}");
    };
    // The second half of a file of samples; its footer; all of it.
    let mut half = samples_bytes.clone();
    let footer = samples_bytes.len() - 20;
    half[..footer].iter_mut().step_by(97).for_each(|byte| *byte ^= 1);
    fs::write(&samples, &half).unwrap();
    check(&mut filled, "samples");
    fs::write(&samples, &samples_bytes).unwrap();
    flip(&samples, footer);
    check(&mut filled, "the footer");
    fs::remove_file(&samples).unwrap();
    check(&mut filled, "no samples");
    fs::write(&samples, &samples_bytes).unwrap();
    filled.again();
    assert_eq!(read(&filled, &wanted), (all.clone(), Vec::new()), "it is all there again");
    // What is left of the first chunk.
    let places = filled.store().0.chunks.between(Level::Raw, wanted.track, 0, u64::MAX).unwrap();
    flip(&outline, places[0].chunk().arrival().1 as usize * 8 + 30);
    check(&mut filled, "an outline");
    // The rows of chunks that a cut has lost are in the log, as long as that has them.
    let cut = places.last().unwrap().chunk().arrival().1 as usize * 8 + 30;
    fs::write(&outline, &outline_bytes[..cut]).unwrap();
    filled.again();
    assert_eq!(read(&filled, &wanted).0, all);
    assert!(!verify(&dir, |_, _| {}).unwrap().is_whole());
}

#[test]
fn a_flipped_bit_of_an_outline_costs_a_chunk_at_most() {
    let mut filled = filled();
    filled.cool();
    let chunks = filled.store().0.chunks.tracks(Level::Raw).len();
    assert!(chunks > 0);
    let name = filled.names("warm").into_iter().find(|name| name.ends_with(".outline")).unwrap();
    let path = filled.store_dir().join("warm").join(name);
    let whole = fs::read(&path).unwrap();
    let of = |filled: &Filled| {
        let (mut good, mut bad) = (0, 0);
        for track in filled.store().0.chunks.tracks(Level::Raw) {
            for place in filled.store().0.chunks.between(Level::Raw, track, 0, u64::MAX).unwrap() {
                match place.read(&mut Vec::new()) {
                    Ok(_) => good += 1,
                    Err(StoreError::Damaged { damage: Damage::Checksum | Damage::Wrong(_), .. }) => bad += 1,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        (good, bad)
    };
    let (all, none) = of(&filled);
    assert_eq!(none, 0);
    for at in (0..whole.len()).step_by(whole.len() / 23) {
        flip(&path, at);
        filled.again();
        let (good, _) = of(&filled);
        // Of the record that binds it to its samples all hangs.
        let most = if at < 120 { all } else { 1 };
        assert!(good + most >= all, "{at}: {good} of {all}");
        filled.close();
        fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn a_damaged_file_of_chunks_stays_as_it_is() {
    let mut filled = filled();
    filled.end_files();
    let name = filled.names("warm").into_iter().find(|name| name.starts_with("raw-")).unwrap();
    let path = filled.store_dir().join("warm").join(&name);
    flip(&path, 3_000);
    let mut cooler = filled.store().cooler();
    let error = cooler.turn(|| true).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(path.exists());
    // The others are converted, and it is not tried again.
    while cooler.turn(|| true).unwrap() != Cooled::Nothing {}
    filled.end_files();
    assert_eq!(filled.store().cooler().turn(|| true).unwrap(), Cooled::Nothing);
    assert_eq!(
        filled.names("warm").iter().filter(|name| name.ends_with(".chunks") && name.starts_with("raw-")).count(),
        1
    );
}

#[test]
fn what_is_older_than_the_configured_age_is_due() {
    let mut filled = Filled::new(800);
    filled.pack();
    filled.end_files();
    let is_due = |filled: &mut Filled| {
        // Nothing goes before it is rolled up.
        while {
            filled.turn();
            !filled.writer().rolling.is_done()
        } {}
        filled.turn();
        lock(&filled.store().0.due).files.len()
    };
    // Of the table rows stay in memory until there are enough, and windows that they are of may not be over.
    filled.fill(4_000);
    assert_eq!(is_due(&mut filled), 0, "by default none is");
    filled.writer().config.cold_after_ns = 3_600 * SECOND_NS;
    let due = is_due(&mut filled);
    assert!(due > 0);
    let newest_ns = FROM_NS + 4_799 * STEP_NS;
    let files = lock(&filled.store().0.due).files.clone();
    // A year ago; an hour after their last row.
    assert!(files.values().all(|due_ns| *due_ns < newest_ns));
    assert!(filled.store().cold_lag_ns() > 3_600 * SECOND_NS);
    let mut cooler = filled.store().cooler();
    while cooler.turn(|| true).unwrap() != Cooled::Nothing {}
    assert_eq!((is_due(&mut filled), filled.store().cold_lag_ns()), (0, 0));
    filled.check_files();
    assert!(filled.names("warm").iter().any(|name| name.ends_with(".chunks")), "newer ones are not");
}
