// SPDX-License-Identifier: Apache-2.0
//! Writes a small store of everything that migration has to map, for its test: `record DIR` makes `DIR/store` and
//! `DIR/hot`. What stands in it is in `tests/migrate.rs` of the frame store.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use onlooker_region::histogram::Shape;
use onlooker_region::schema::{Acquisition, Metric};
use onlooker_series::series::{EntityKey, Form, Series};
use onlooker_store::{Appender, Config, Description, Gap, Store, TrackId, Writer};

/// Of a group; the last 50 are not sealed, but in hot memory only.
const ROWS: u64 = 1_000;
/// Rows that a line of a table has.
const LINE_ROWS: u64 = 300;
const SHAPE: Shape = Shape { grouping_power: 0, max_power: 4 };

fn series(name: &str, labels: &[(&str, &str)], metric: Metric, form: Form, at: usize) -> Series {
    let labels: Vec<(String, String)> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Series {
        name: name.into(),
        labels: labels.into(),
        metric,
        unit: "".into(),
        help: "".into(),
        scale: 1.0,
        resolution_ns: 0,
        acquisition: Acquisition::Computed,
        form,
        at,
    }
}

fn group(host: &str) -> Description {
    let instance = ("instance", host);
    let series = vec![
        series("orders_total", &[instance, ("shop", "a")], Metric::Counter, Form::Unsigned, 0),
        series("shop_info", &[instance, ("value", "1.2")], Metric::Info, Form::Text, 1),
        series("shop_load", &[instance], Metric::Gauge, Form::Float, 1),
        series("shop_balance", &[instance], Metric::Gauge, Form::Signed, 2),
        series("shop_seconds", &[instance], Metric::Histogram, Form::Histogram(SHAPE), 3),
    ];
    let entity = EntityKey { region: 7, group: 0, row: None };
    Description { host: host.into(), region: "shop".into(), entity, series }
}

fn line(host: &str, number: u32) -> Description {
    let labels = [("instance", host), ("queue", if number == 3 { "in" } else { "out" })];
    let series = vec![series("queue_length", &labels, Metric::Gauge, Form::Unsigned, 0)];
    let entity = EntityKey { region: 7, group: 1, row: Some((number, 9)) };
    Description { host: host.into(), region: "shop".into(), entity, series }
}

/// Row `at` of a group. After row 400 the clock was set back by a second; loads go up in hundredths, then they jump.
fn row(at: u64) -> (u64, Vec<u64>) {
    let time_ns = 2_000_000_000 + at * 10_000_000 - if at > 400 { 1_000_000_000 } else { 0 };
    #[allow(clippy::cast_precision_loss)]
    let load = if at < 500 { (at % 7) as f64 / 100.0 } else { (at as f64).sqrt() };
    let mut row = vec![at * 3, load.to_bits(), 5u64.wrapping_sub(at % 11)];
    row.extend((0..SHAPE.slots() as u64).map(|slot| at / (slot + 1)));
    (time_ns, row)
}

struct Track {
    id: TrackId,
    appender: Appender,
}

fn define(writer: &mut Writer, description: &Description) -> Track {
    let id = writer.define(description, 400).expect("a track");
    let appender = writer.appender(id).expect("nobody has it");
    Track { id, appender }
}

fn newest_segment(dir: &Path) -> (PathBuf, u64) {
    let files = fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("an entry").path());
    let newest = files.filter(|path| path.extension().is_some_and(|extension| extension == "olog")).max();
    let newest = newest.expect("a segment");
    let bytes = fs::metadata(&newest).expect("it is there").len();
    (newest, bytes)
}

/// Seals, and damages what that has written.
fn seal_damaged(writer: &mut Writer, dir: &Path) {
    let (path, from) = newest_segment(dir);
    writer.seal(u64::MAX).expect("a disk");
    let (same, end) = newest_segment(dir);
    assert_eq!(path, same);
    let file = File::options().write(true).open(path).expect("it is there");
    file.write_all_at(b"damage", from.midpoint(end)).expect("a disk");
}

fn write_host(writer: &mut Writer, host: &str, dir: &Path) {
    let mut shop = define(writer, &group(host));
    let mut lines = [3, 4].map(|number| define(writer, &line(host, number)));
    for at in 0..ROWS {
        let (time_ns, values) = row(at);
        shop.appender.append(time_ns, &values).expect("room");
        if at < LINE_ROWS {
            for line in &mut lines {
                line.appender.append(time_ns, &values[..1]).expect("room");
            }
        }
        // Tiles of one row, of two, of the two between which the clock was set back, and of hundreds.
        match at {
            699 if host == "b" => seal_damaged(writer, dir),
            0 | 2 | 99 | 299 | 399 | 401 | 599 | 699 | 799 | 949 => drop(writer.seal(u64::MAX).expect("a disk")),
            _ => {}
        }
    }
    let gap = |track, at: u64, reason: &str| Gap {
        track,
        from_ns: row(at).0 + 1,
        to_ns: row(at + 1).0 - 1,
        reason: reason.into(),
    };
    writer.gap(&gap(shop.id, 500, "late")).expect("a track");
    writer.gap(&gap(lines[1].id, 200, "timeout")).expect("a track");
    let [line, _] = lines;
    writer.retire(line.id, line.appender);
    writer.flush().expect("a disk");
}

fn main() {
    let dir = PathBuf::from(env::args().nth(1).expect("a directory"));
    let config = Config {
        dir: dir.join("store"),
        hot: dir.join("hot"),
        hot_bytes: 1 << 20,
        tile_rows: 400,
        segment_bytes: 1 << 12,
        max_bytes: 64 << 20,
    };
    let log = config.dir.clone();
    let (mut writer, _) = Store::open(config).expect("an empty directory");
    for host in ["a", "b"] {
        write_host(&mut writer, host, &log);
    }
}
