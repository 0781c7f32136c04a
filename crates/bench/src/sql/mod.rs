// SPDX-License-Identifier: Apache-2.0
//! Cold files of made-up hosts, and what our own reader and our PromQL answer to the questions of
//! bench/sql/questions.sql; `bench/sql-interop` compares the answers.
//!
//! ```text
//! sql make DIR             a store with two files of five minutes each, of three hosts; prints what PromQL answers while the
//!                          rows are in the log, in chunks, in cold files: a line a row with place, question, cells
//! sql answer DIR           what our reader of cold files answers: a line a row with question, cells; floats as their bits
//! sql loop DIR             files without end, for somebody to kill
//! sql check DIR            what a kill has left: opens the store and prints rows, sum and times of each file, which SQL must find, too
//! ```

mod answers;
mod data;
mod promql;
mod stages;

use std::path::Path;

use anyhow::{Result, bail, ensure};
use onlooker_framestore::cold::{Cold, Window};

pub(crate) fn run(what: &str, dir: &str) -> Result<()> {
    let dir = Path::new(dir);
    match what {
        "make" => stages::make(dir),
        "answer" => answers::print(dir),
        "loop" => make_short(dir),
        "check" => check(dir),
        _ => bail!("make DIR, answer DIR, loop DIR or check DIR"),
    }
}

/// Goes on where a kill has ended the one before.
fn make_short(dir: &Path) -> Result<()> {
    let (cold, _) = Cold::open(dir)?;
    let first = u64::try_from(cold.windows().count())?;
    (first..).try_for_each(|number| data::short(dir, number))
}

/// Of each file: from, to, rows, sum of the whole numbers, least and largest time. Each must be as it was written.
fn check(dir: &Path) -> Result<()> {
    let (cold, opened) = Cold::open(dir)?;
    let windows: Vec<Window> = cold.windows().collect();
    for window in windows {
        let (mut rows, mut sum, mut least, mut most) = (0, 0u64, u64::MAX, 0);
        cold.scan(
            window.from_ns(),
            window.to_ns() - 1,
            |_| true,
            |_, samples| {
                rows += samples.times_ns.len();
                sum = samples.words[0].iter().fold(sum, |sum, word| sum + word);
                least = samples.times_ns.iter().fold(least, |least, time| least.min(*time));
                most = samples.times_ns.iter().fold(most, |most, time| most.max(*time));
            },
        )?;
        let number = (window.from_ns() / 1_000_000_000 - data::FROM) / 60;
        ensure!((rows, sum) == data::short_sums(number), "window {number} has {rows} rows, sum {sum}");
        println!("file\t{}\t{rows}\t{sum}\t{least}\t{most}", window.from_ns());
    }
    println!("removed\t{}", opened.removed);
    Ok(())
}
