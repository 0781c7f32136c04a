// SPDX-License-Identifier: Apache-2.0
//! Cold files of made-up hosts, and what our own reader answers to the questions of bench/sql/questions.sql; `bench/sql-interop` compares the answers.
//!
//! ```text
//! sql-answers make DIR             two files of five minutes each, of three hosts
//! sql-answers answer DIR           the answers, a line a row: question, tab, cells; floats as their bits
//! sql-answers loop DIR             files without end, for somebody to kill
//! sql-answers check DIR            what a kill has left: opens the store and prints rows, sum and times of each file, which SQL must find, too
//! ```
#![allow(clippy::print_stdout, reason = "a program for the terminal")]

mod answers;
mod data;

use std::error::Error;
use std::path::Path;

use onlooker_framestore::cold::{Cold, Window};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["make", dir] => data::make(Path::new(dir)),
        ["answer", dir] => answers::print(Path::new(dir)),
        ["loop", dir] => make_short(Path::new(dir)),
        ["check", dir] => check(Path::new(dir)),
        _ => Err("make DIR, answer DIR, loop DIR or check DIR".into()),
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
        if (rows, sum) != data::short_sums(number) {
            return Err(format!("window {number} has {rows} rows, sum {sum}").into());
        }
        println!("file\t{}\t{rows}\t{sum}\t{least}\t{most}", window.from_ns());
    }
    println!("removed\t{}", opened.removed);
    Ok(())
}
