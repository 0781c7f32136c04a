// SPDX-License-Identifier: Apache-2.0
//! Files as a whole: what was given comes back, whatever it is; kills, cuts and flips cost what they must and never
//! make a wrong sample.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::Series;

use onlooker_region::histogram::Shape;
use onlooker_series::series::Form;

use super::coding::{parts_of, scale_of};
use super::*;

const FROM: u64 = 1_764_000_000;
const FROM_NS: u64 = FROM * 1_000_000_000;
const SHAPE: Shape = Shape { grouping_power: 2, max_power: 12 };

/// A series and its samples as a test gives them.
#[derive(Clone, Debug)]
struct Given {
    series: Series,
    labels: Vec<(String, String)>,
    times: Vec<u64>,
    words: Vec<Vec<u64>>,
}

fn given(name: &str, form: Form, scale: f64, labels: &[(&str, &str)], times: &[u64]) -> Given {
    let metric = if form == Form::Text { Metric::Info } else { Metric::Gauge };
    let acquisition = Acquisition::Direct;
    let series = Series { unit: "s".into(), scale, acquisition, ..Series::new(name, metric, form) };
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Given { series, labels, times: times.to_vec(), words: vec![Vec::new(); super::words(form)] }
}

impl Given {
    /// With words that a function makes of column and row.
    fn with(mut self, word: impl Fn(usize, usize) -> u64) -> Self {
        for (column, words) in self.words.iter_mut().enumerate() {
            *words = (0..self.times.len()).map(|row| word(column, row)).collect();
        }
        self
    }

    fn push(&self, writer: &mut Writer) -> Result<(), StoreError> {
        let words: Vec<&[u64]> = self.words.iter().map(Vec::as_slice).collect();
        let (series, labels, times_ns) = (&self.series, &self.labels[..], &self.times[..]);
        writer.push(&SeriesData { series, labels, times_ns, words: &words })
    }

    fn sorted_labels(&self) -> Vec<(String, String)> {
        let mut labels = self.labels.clone();
        labels.sort();
        labels
    }
}

/// Times of a reading each second, not quite.
fn times(rows: u64) -> Vec<u64> {
    (0..rows).map(|row| FROM_NS + row * 1_000_000_000 + row * row * 7_919 % 300_000).collect()
}

/// Some of everything.
fn everything(rows: u64) -> Vec<Given> {
    let times = times(rows);
    let of = |name: &str, form: Form, scale: f64, cpu: &str| {
        given(name, form, scale, &[("cpu", cpu), ("instance", "a"), ("tex\"t", "ü\n")], &times)
    };
    let row = |row: usize| row as u64;
    vec![
        of("seconds_total", Form::Unsigned, 1e-9, "1").with(|_, at| 77_000_000_000 + row(at) * 999_999_999),
        of("seconds_total", Form::Unsigned, 1e-9, "0").with(|_, at| 5 + row(at) / 7),
        of("limit_bytes", Form::Unsigned, 1.0, "0").with(|_, at| if at % 5 < 2 { u64::MAX - row(at) } else { 4_096 }),
        of("celsius", Form::Signed, 0.1, "0").with(|_, at| (3 - row(at).cast_signed() * 7).cast_unsigned()),
        of("load", Form::Float, 1.0, "0").with(|_, at| (row(at) as f64 / 100.0).to_bits()),
        of("root", Form::Float, 1.0, "0").with(|_, at| (row(at) as f64).sqrt().to_bits()),
        of("odd", Form::Float, 3.5, "0").with(|_, at| [f64::NAN, -0.0, f64::INFINITY, 1e-300][at % 4].to_bits()),
        of("minus_zero", Form::Float, 1.0, "0").with(|_, at| (-0.0 * row(at) as f64).to_bits()),
        of("release", Form::Text, 1.0, "0").with(|_, at| 12 + u64::from(at > 3)),
        of("latency", Form::Histogram(SHAPE), 1e-6, "0").with(|column, at| match column {
            3 | 9 => row(at),
            7 => u64::from(at > 5),
            column if column == SHAPE.buckets() => row(at) * 40,
            _ => 0,
        }),
        of("silent", Form::Histogram(SHAPE), 1e-6, "0").with(|_, _| 0),
    ]
}

fn write(dir: &Path, to: u64, all: &[Given]) -> Written {
    let mut writer = Writer::create(dir, Window::new(FROM, to).unwrap()).unwrap();
    all.iter().for_each(|given| given.push(&mut writer).unwrap());
    writer.finish().unwrap()
}

type Found = BTreeMap<(String, Vec<(String, String)>), (Described, Samples)>;

/// Everything that is there, pieces of a series put together.
fn all_of(cold: &Cold, from_ns: u64, to_ns: u64) -> Result<Found, StoreError> {
    let mut found: Found = BTreeMap::new();
    cold.scan(
        from_ns,
        to_ns,
        |_| true,
        |described, piece| {
            let key = (described.name.as_ref().to_owned(), described.all_labels());
            let words = vec![Vec::new(); piece.words.len()];
            let (_, samples) = found.entry(key).or_insert((described.clone(), Samples { times_ns: Vec::new(), words }));
            samples.times_ns.extend(piece.times_ns);
            samples.words.iter_mut().zip(piece.words).for_each(|(words, more)| words.extend(more));
        },
    )?;
    Ok(found)
}

/// Whether all that was found is what was given, nothing is missing, and nothing is left.
fn check(found: &Found, all: &[Given]) {
    assert_eq!(found.len(), all.len());
    for given in all {
        let (described, samples) = &found[&(given.series.name.to_string(), given.sorted_labels())];
        assert_eq!((&samples.times_ns, &samples.words), (&given.times, &given.words), "{}", given.series.name);
        assert_eq!((described.form, described.metric), (given.series.form, given.series.metric));
        assert_eq!((described.scale.to_bits(), &*described.unit), (given.series.scale.to_bits(), &*given.series.unit));
    }
}

#[test]
fn whatever_was_given_comes_back_word_for_word() {
    let dir = tempfile::tempdir().unwrap();
    let all = everything(50);
    let written = write(dir.path(), FROM + 600, &all);
    // 9 series of one word, a histogram's three buckets, two sums.
    assert_eq!((written.rows, written.groups), (14 * 50, 1));
    let (mut cold, opened) = Cold::open(dir.path()).unwrap();
    assert_eq!(opened, Opened { files: 1, bytes: written.bytes, removed: 0 });
    check(&all_of(&cold, 0, u64::MAX).unwrap(), &all);
    // One of them, and some of its times.
    for given in &all {
        let found = cold.read(&given.series.name, &given.labels, given.times[7], given.times[9]).unwrap();
        let [(_, samples)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(samples.times_ns, given.times[7..10]);
        samples.words.iter().zip(&given.words).for_each(|(words, given)| assert_eq!(words, &given[7..10]));
    }
    let nobody = [("cpu".to_owned(), "0".to_owned())];
    assert!(cold.read("load", &nobody, 0, u64::MAX).unwrap().is_empty());
    assert_eq!(all_of(&cold, 0, FROM_NS - 1).unwrap().len(), 0);
    let mut names = 0;
    cold.series(FROM_NS, FROM_NS, |_| names += 1).unwrap();
    assert_eq!(names, all.len());
    assert_eq!(cold.remove_oldest().unwrap(), Some(Window::new(FROM, FROM + 600).unwrap()));
    assert_eq!((cold.remove_oldest().unwrap(), cold.bytes().unwrap()), (None, 0));
}

#[test]
fn any_words_of_any_series_come_back() {
    type Drawn = (u8, u8, Vec<(u32, u64)>);
    bolero::check!().with_iterations(100).with_type::<Vec<Drawn>>().for_each(|shapes| {
        let dir = tempfile::tempdir().unwrap();
        let mut all: Vec<Given> = Vec::new();
        for (number, (kind, scale, samples)) in shapes.iter().enumerate() {
            let form = [Form::Unsigned, Form::Signed, Form::Float, Form::Histogram(SHAPE)][usize::from(kind % 4)];
            let scale = [1.0, 1e-9, 0.1, 3.0, 1e9][usize::from(scale % 5)];
            let mut times: Vec<u64> = samples.iter().map(|(time, _)| FROM_NS + u64::from(*time)).collect();
            times.sort_unstable();
            let number = number.to_string();
            let words = |column: usize, row: usize| {
                let word: u64 = samples[row].1;
                if column.is_multiple_of(7) { word.rotate_left(u32::try_from(column).unwrap()) } else { 0 }
            };
            all.push(given("x", form, scale, &[("number", &number)], &times).with(words));
        }
        all.retain(|given| !given.times.is_empty());
        write(dir.path(), FROM + 600, &all);
        let (cold, _) = Cold::open(dir.path()).unwrap();
        check(&all_of(&cold, 0, u64::MAX).unwrap(), &all);
    });
}

/// What SQL is told to compute is what we do, bit for bit.
#[test]
fn divisor_and_multiplier_make_our_number() {
    let exported = onlooker_region::number::exported;
    let same = |stored: f64, scale: f64| {
        let (divisor, multiplier) = parts_of(scale);
        let (ours, theirs) = (exported(stored, scale), stored / divisor * multiplier);
        assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{stored} {scale}");
        assert!(divisor.to_bits() == 1f64.to_bits() || multiplier.to_bits() == 1f64.to_bits());
        assert!(scale.is_nan() || scale_of(divisor, multiplier).to_bits() == scale.to_bits(), "{scale}");
    };
    for scale in [1.0, 1e-9, 1e-6, 1e-3, 0.01, 0.1, 512.0, 1024.0, 0.0, -1.0, -0.25, 1.5, 1e300, 1e-300, 0.3] {
        [0.0, 3.0, -7.0, 1e18, f64::MAX].into_iter().for_each(|stored| same(stored, scale));
    }
    bolero::check!().with_type::<(u64, u64)>().for_each(|(stored, scale)| {
        same(f64::from_bits(*stored), f64::from_bits(*scale));
        #[allow(clippy::cast_precision_loss)]
        same(*stored as f64, 1.0 / (*scale >> 11) as f64);
    });
}

#[test]
fn long_and_doubled_series_and_several_files_are_one_series() {
    let dir = tempfile::tempdir().unwrap();
    let rows = ROW_GROUP_ROWS as u64 + 1_000;
    let long: Vec<u64> = (0..rows).map(|row| FROM_NS + row * 1_000_000).collect();
    let long = given("long", Form::Unsigned, 1.0, &[("instance", "a")], &long).with(|_, row| row as u64 / 3);
    let others = everything(20);
    let written = write(dir.path(), FROM + 7_200, &[&others[..], std::slice::from_ref(&long)].concat());
    assert_eq!(written.groups, 3);
    // The same names again, as those of a host that was started anew: behind each other in one file, and in another
    // one.
    let halves = |given: &Given| {
        [0..11, 11..20].map(|range| {
            let words = given.words.iter().map(|words| words[range.clone()].to_vec()).collect();
            Given { times: given.times[range.clone()].to_vec(), words, ..given.clone() }
        })
    };
    let halves: Vec<Given> = others.iter().flat_map(halves).collect();
    let other = tempfile::tempdir().unwrap();
    write(other.path(), FROM + 600, &halves);
    let (cold, _) = Cold::open(dir.path()).unwrap();
    check(&all_of(&cold, 0, u64::MAX).unwrap(), &[&others[..], &[long]].concat());
    let (cold, _) = Cold::open(other.path()).unwrap();
    check(&all_of(&cold, 0, u64::MAX).unwrap(), &others);

    let third = tempfile::tempdir().unwrap();
    let (first, second) = (halves.iter().step_by(2).cloned(), halves.iter().skip(1).step_by(2).cloned());
    let (mut cold, _) = Cold::open(third.path()).unwrap();
    cold.add(&write(third.path(), FROM + 600, &second.collect::<Vec<_>>()));
    cold.add(&write(third.path(), FROM + 600, &first.collect::<Vec<_>>()));
    assert_eq!(cold.windows().count(), 2);
    for given in &others {
        let found = cold.read(&given.series.name, &given.labels, 0, u64::MAX).unwrap();
        assert_eq!((found.len(), &found[0].1.times_ns, &found[0].1.words), (1, &given.times, &given.words));
    }
}

#[test]
fn gaps_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let gap = |instance: &str, from: u64, reason: &str| GapData {
        instance: instance.into(),
        region: "cpu".into(),
        from_ns: FROM_NS + from,
        to_ns: FROM_NS + from + 5,
        reason: reason.into(),
    };
    let gaps = [gap("a", 10, "late"), gap("b", 10, "late"), gap("a", 700, "timeout")];
    let mut writer = Writer::create(dir.path(), Window::new(FROM, FROM + 60).unwrap()).unwrap();
    gaps.iter().for_each(|gap| writer.gap(gap.clone()));
    let written = writer.finish().unwrap();
    let (cold, opened) = Cold::open(dir.path()).unwrap();
    assert_eq!((opened.bytes, opened.removed, written.rows), (written.bytes, 0, 0));
    assert_eq!(cold.gaps(0, u64::MAX).unwrap(), gaps);
    assert_eq!(cold.gaps(FROM_NS + 15, FROM_NS + 699).unwrap(), gaps[..2]);
    assert_eq!(cold.gaps(FROM_NS + 16, FROM_NS + 699).unwrap(), []);
    assert!(all_of(&cold, 0, u64::MAX).unwrap().is_empty());
}

#[test]
fn what_is_outside_of_the_window_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(dir.path(), Window::new(FROM, FROM + 60).unwrap()).unwrap();
    for time in [FROM_NS - 1, FROM_NS + 60_000_000_000, u64::MAX] {
        let error = given("x", Form::Unsigned, 1.0, &[], &[time]).with(|_, _| 0).push(&mut writer).unwrap_err();
        assert!(matches!(error, StoreError::Limit { .. }), "{error}");
    }
}

#[test]
fn what_a_kill_leaves_is_removed_and_what_is_whole_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let all = everything(20);
    let written = write(dir.path(), FROM + 600, &all);
    let cold = dir.path().join("cold");
    let index = written.path.with_extension("index");
    // A kill in the middle of the next file, and of one that was to have gaps.
    let mut writer = Writer::create(dir.path(), Window::new(FROM, FROM + 600).unwrap()).unwrap();
    all[0].push(&mut writer).unwrap();
    std::mem::forget(writer);
    let orphans = ["20251124T160000Z-20251124T161000Z-7.parquet", "20251124T160000Z-20251124T161000Z-7.parquet.tmp"];
    orphans.iter().for_each(|name| fs::write(cold.join("gaps").join(name), b"x").unwrap());
    fs::write(cold.join("20251124T160000Z-20251124T161000Z-7.index"), b"x").unwrap();
    // Before the index was there.
    fs::remove_file(&index).unwrap();
    // Somebody else's.
    fs::write(cold.join("readme.tmp"), b"x").unwrap();
    let (store, opened) = Cold::open(dir.path()).unwrap();
    assert_eq!((opened.files, opened.removed), (1, 4));
    check(&all_of(&store, 0, u64::MAX).unwrap(), &all);
    assert!(index.exists() && cold.join("readme.tmp").exists());
    let made = fs::read(&index).unwrap();
    // An index that is damaged, or of another file, is made again.
    for bytes in [Vec::new(), made[..made.len() / 2].to_vec(), [&made[..40], &[made[40] ^ 4], &made[41..]].concat()] {
        fs::write(&index, bytes).unwrap();
        let (store, _) = Cold::open(dir.path()).unwrap();
        check(&all_of(&store, 0, u64::MAX).unwrap(), &all);
        assert_eq!(fs::read(&index).unwrap(), made);
    }
}

/// Reads a file whose bytes somebody has changed: an error, or what was given.
fn read_changed(path: &Path, dir: &Path, bytes: &[u8], all: &[Given]) -> bool {
    fs::write(path, bytes).unwrap();
    let (cold, _) = Cold::open(dir).unwrap();
    match all_of(&cold, 0, u64::MAX) {
        Ok(found) => {
            check(&found, all);
            true
        }
        Err(_) => false,
    }
}

#[test]
fn cuts_and_flips_are_errors_and_never_wrong_samples() {
    let dir = tempfile::tempdir().unwrap();
    let all = everything(30);
    let written = write(dir.path(), FROM + 600, &all);
    let whole = fs::read(&written.path).unwrap();
    let index = written.path.with_extension("index");
    let index_bytes = fs::read(&index).unwrap();
    let mut harmless = [0; 2];
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at * 5 % 8);
        // With its index, and without.
        fs::write(&index, &index_bytes).unwrap();
        harmless[0] += usize::from(read_changed(&written.path, dir.path(), &flipped, &all));
        let _ = fs::remove_file(&index);
        if at % 3 == 0 {
            harmless[1] += usize::from(read_changed(&written.path, dir.path(), &flipped, &all));
            let _ = fs::remove_file(&index);
        }
        if at % 7 == 0 {
            assert!(!read_changed(&written.path, dir.path(), &whole[..at], &all), "{at}");
        }
    }
    // What nobody of ours reads: with its index the columns that name series, without it statistics and the bounds of
    // buckets.
    assert!(harmless.iter().all(|flips| flips * 2 < whole.len()), "{harmless:?} of {}", whole.len());
    assert!(read_changed(&written.path, dir.path(), &whole, &all));
}

#[test]
fn bytes_of_others_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("cold")).unwrap();
    let path = dir.path().join("cold/20251124T160000Z-20251124T161000Z-0.parquet");
    bolero::check!().with_type::<(Vec<u8>, u16)>().for_each(|(bytes, footer)| {
        let framed = [b"PAR1", &bytes[..], &u32::from(*footer).to_le_bytes(), b"PAR1"].concat();
        for bytes in [bytes, &framed] {
            fs::write(&path, bytes).unwrap();
            let (cold, _) = Cold::open(dir.path()).unwrap();
            assert!(all_of(&cold, 0, u64::MAX).is_err());
        }
    });
}

/// Rows as a host has them: most do not change, and those of a region have their times in common.
#[test]
fn samples_of_hosts_are_small() {
    const ROWS: u64 = 600;
    let dir = tempfile::tempdir().unwrap();
    let mix = |a: u64| {
        let a = a.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (a ^ a >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let mut writer = Writer::create(dir.path(), Window::new(FROM, FROM + 700).unwrap()).unwrap();
    let mut values = 0;
    for part in 0..8u64 {
        for host in 0..10u64 {
            let jitter = |row: u64| mix(part << 40 | host << 20 | row) % 300_000;
            let times: Vec<u64> = (0..ROWS).map(|row| FROM_NS + row * 1_000_000_000 + jitter(row)).collect();
            for series in 0..25u64 {
                let of = mix(part << 20 | series);
                let word = |_: usize, row: usize| match of % 10 {
                    0..6 => of % 1_000,
                    6..9 => (of >> 8) + row as u64 * (of % 50) / 10,
                    _ => (of >> 8) + mix(of + row as u64) % 64,
                };
                let (name, number, host) = (format!("part{part}_total"), series.to_string(), format!("host{host}"));
                let labels = [("instance", &*host), ("number", &*number)];
                given(&name, Form::Unsigned, 1.0, &labels, &times).with(word).push(&mut writer).unwrap();
                values += ROWS;
            }
        }
    }
    let written = writer.finish().unwrap();
    #[allow(clippy::cast_precision_loss)]
    let each = written.bytes as f64 / values as f64;
    assert!(each < 0.35, "{each:.3} bytes a value");
}
