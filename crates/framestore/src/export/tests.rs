// SPDX-License-Identifier: Apache-2.0
use onlooker_series::series::Form;

use super::*;
use crate::framing::files::Lock;
use crate::inspect::fixture::{All, FROM_NS, Filled, STEP_NS, contents};
use crate::store::open_to_read;

fn begin<'a>(filled: &Filled, request: &Request<'a>) -> Result<Export, ExportError> {
    let lock = Lock::take(&filled.store_dir())?;
    Export::begin(open_to_read(&lock)?.0, request)
}

/// Exports all that is missing; returns how many files that were.
fn export(filled: &Filled, host: Option<&str>, out: &Path) -> usize {
    let store = filled.store_dir();
    let export = begin(filled, &Request { store: &store, host, from: None, to: None, out }).unwrap();
    let written = export.windows().iter().filter(|window| {
        let Exported { written, damaged } = export.write(**window).unwrap();
        assert!(damaged.is_empty(), "{damaged:?}");
        written.is_some()
    });
    written.count()
}

/// What is in the files, with times in order.
fn exported(out: &Path) -> All {
    let (cold, opened) = Cold::open(out).unwrap();
    assert_eq!(opened.removed, 0);
    let mut all = All::new();
    cold.scan(
        0,
        u64::MAX,
        |_| true,
        |described, samples| {
            let labels = onlooker_series::text::Labels::from(described.all_labels());
            let name = format!("{}{}", described.name, onlooker_series::exposition::labels_text(labels.iter()));
            let to = all.entry(name).or_default();
            for (at, time_ns) in samples.times_ns.iter().enumerate() {
                // A text has a word here.
                let words = samples.words.iter().filter(|_| described.form != Form::Text).map(|column| column[at]);
                to.push((*time_ns, words.collect()));
            }
        },
    )
    .unwrap();
    all.values_mut().for_each(|samples| samples.sort());
    all
}

#[test]
fn what_is_exported_is_what_was_stored_hour_by_hour_and_each_once() {
    // Five hours and a half, most of it in chunks.
    let mut filled = Filled::new(2_000);
    filled.gap("b", None, FROM_NS + 5, FROM_NS + 4_000_000_000_000);
    filled.gap("b", Some(1), FROM_NS + 9, FROM_NS + 10);
    filled.turn();
    let out = filled.dir.path().join("out");
    let right = filled.all(&["a", "b"]);
    filled.close();
    let before = contents(&filled.store_dir());
    assert_eq!(export(&filled, None, &out), 6);
    assert_eq!(contents(&filled.store_dir()), before, "it is only read");
    assert_eq!(exported(&out), right);
    let (cold, _) = Cold::open(&out).unwrap();
    let gaps = cold.gaps(0, u64::MAX).unwrap();
    let of = |region: &str| gaps.iter().filter(|gap| gap.region == region && gap.instance == "b:1").count();
    assert_eq!((gaps.len(), of(""), of("memory")), (3, 2, 1), "{gaps:?}");
    let hour = |window: Window| window.to_ns() - window.from_ns();
    let windows: Vec<u64> = cold.windows().map(hour).collect();
    assert!(windows[..5].iter().all(|ns| *ns == HOUR * SECOND_NS) && windows[5] < HOUR * SECOND_NS, "{windows:?}");

    // Again: nothing. Without one: that one, and what a kill has left goes.
    assert_eq!(export(&filled, None, &out), 0);
    let third = contents(&out).into_keys().filter(|path| path.extension().is_some_and(|end| end == "parquet")).nth(2);
    let third = third.unwrap();
    fs::rename(&third, third.with_extension("parquet.tmp")).unwrap();
    assert_eq!(export(&filled, None, &out), 1);
    assert_eq!(exported(&out), right);

    // When there is more: the rest of the hour, and what follows.
    filled.again();
    filled.fill(300);
    let right = filled.all(&["a", "b"]);
    filled.close();
    assert_eq!(export(&filled, None, &out), 2);
    assert_eq!(exported(&out), right);
}

#[test]
fn a_host_and_a_time_can_be_chosen_and_a_directory_is_of_one_export() {
    let mut filled = Filled::new(1_000);
    let right = filled.all(&["a"]);
    filled.close();
    let (store, out) = (filled.store_dir(), filled.dir.path().join("out"));
    let (from, to) = (FROM_NS / SECOND_NS + 100, FROM_NS / SECOND_NS + 200);
    let request = Request { store: &store, host: Some("a"), from: Some(from), to: Some(to), out: &out };
    let some = begin(&filled, &request).unwrap();
    assert_eq!(some.windows(), [Window::new(from, to).unwrap()]);
    some.write(some.windows()[0]).unwrap();
    let found = exported(&out);
    let inside = |time_ns: u64| (from * SECOND_NS..to * SECOND_NS).contains(&time_ns);
    for (name, samples) in &right {
        let wanted: Vec<_> = samples.iter().filter(|(time_ns, _)| inside(*time_ns)).cloned().collect();
        assert_eq!(found.get(name).cloned().unwrap_or_default(), wanted, "{name}");
        assert!(wanted.len() as u64 <= 100 * SECOND_NS / STEP_NS);
    }
    // The rest of it around that.
    assert_eq!(export(&filled, Some("a"), &out), 5);
    assert_eq!(exported(&out), right);
    for (host, dir, part) in [
        (None, &out, "an export of host `a` of "),
        (Some("b"), &out, "an export of host `a` of "),
        (Some("a"), &store, "the store itself"),
    ] {
        let request = Request { store: &store, host, from: None, to: None, out: dir };
        let Err(error) = begin(&filled, &request) else { panic!("{host:?}") };
        assert!(error.to_string().contains(part), "{error}");
    }
    fs::remove_file(out.join(NOTE)).unwrap();
    let Err(error) = begin(&filled, &request) else { panic!() };
    assert!(error.to_string().contains("no export has written"), "{error}");
    assert!(!store.join(NOTE).exists());
}

#[test]
fn what_is_damaged_is_a_gap_and_is_told() {
    let mut filled = Filled::new(2_000);
    // The file gets its index: one that has none is looked through, and what is damaged of it is not there at all.
    filled.again();
    filled.close();
    let path = filled.store_dir().join("warm/raw-0000000001.chunks");
    let mut bytes = fs::read(&path).unwrap();
    // Within the first chunk, of a column or of the front.
    bytes[900] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (store, out) = (filled.store_dir(), filled.dir.path().join("out"));
    let export = begin(&filled, &Request { store: &store, host: None, from: None, to: None, out: &out }).unwrap();
    let damaged: usize = export.windows().iter().map(|window| export.write(*window).unwrap().damaged.len()).sum();
    let (cold, _) = Cold::open(&out).unwrap();
    let gaps = cold.gaps(0, u64::MAX).unwrap();
    assert!(damaged > 0 && gaps.iter().any(|gap| gap.reason == "damaged"), "{damaged}: {gaps:?}");
}

#[test]
fn what_shows_when_the_store_is_opened_is_told_then() {
    let mut filled = Filled::new(2_000);
    filled.close();
    let opened = |filled: &Filled| open_to_read(&Lock::take(&filled.store_dir()).unwrap()).unwrap().1;
    assert_eq!(opened(&filled), 0);
    let path = filled.store_dir().join("warm/raw-0000000001.chunks");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_within(..50);
    fs::write(&path, &bytes).unwrap();
    // A file that was not ended, as a kill leaves it, is no damage.
    assert_eq!(opened(&filled), 0);
    bytes[900] ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(opened(&filled), 1);
}

#[test]
fn hours_that_files_cover_are_not_missing() {
    let window = |from: u64, to: u64| Window::new(from, to).unwrap();
    let left = |from, to, covered: &[Window]| missing(from, to, covered.iter().copied());
    assert_eq!(left(0, 7_200, &[]), [(0, 3_600), (3_600, 7_200)]);
    assert_eq!(left(100, 4_000, &[]), [(100, 3_600), (3_600, 4_000)]);
    assert_eq!(left(0, 7_200, &[window(0, 3_600)]), [(3_600, 7_200)]);
    assert_eq!(left(0, 7_200, &[window(3_700, 9_000), window(0, 1_000)]), [(1_000, 3_600), (3_600, 3_700)]);
    assert_eq!(left(0, 3_600, &[window(0, 9_000)]), []);
    assert_eq!(left(5_000, 5_000, &[]), []);
    assert_eq!(left(7_000, 5_000, &[window(1, 2)]), []);
    bolero::check!().with_type::<(u16, u16, Vec<(u16, u16)>)>().for_each(|(from, to, covered)| {
        let covered: Vec<Window> =
            covered.iter().filter_map(|(from, to)| Window::new((*from).into(), (*to).into()).ok()).collect();
        let left = missing((*from).into(), (*to).into(), covered.iter().copied());
        let is_in = |(from, to): (u64, u64), at: u64| (from..to).contains(&at);
        for at in (u64::from(*from)..u64::from(*to)).step_by(97) {
            let is_covered = covered.iter().any(|of| of.touches(at * SECOND_NS, at * SECOND_NS));
            assert_eq!(left.iter().filter(|piece| is_in(**piece, at)).count(), usize::from(!is_covered), "{at}");
        }
        assert!(left.iter().all(|(from, to)| from < to && from / HOUR == (to - 1) / HOUR));
    });
}
