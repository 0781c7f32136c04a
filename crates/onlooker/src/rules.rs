// SPDX-License-Identifier: Apache-2.0
//! `onlooker rules`: checks rule files before a controller, or a Prometheus, reads them.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use onlooker_rules::{MAX_FILE_BYTES, Mistake};
use serde::Serialize;

use crate::output::{self, shown};
use crate::{End, Failure};

/// What the user asks for.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what is wrong in rule files: YAML, expressions, templates, each mistake with its place. Ends with 1 if
    /// something is
    Check(Check),
}

#[derive(Debug, clap::Args)]
struct Check {
    /// Files in the format of Prometheus
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// What a file has in it.
#[derive(Debug, Serialize)]
struct Checked<'a> {
    file: &'a Path,
    groups: usize,
    rules: usize,
    mistakes: Vec<Found>,
}

#[derive(Debug, Serialize)]
struct Found {
    line: usize,
    column: usize,
    of: String,
    text: String,
    offending: String,
}

impl From<Mistake> for Found {
    fn from(mistake: Mistake) -> Self {
        let Mistake { line, column, of, text, offending } = mistake;
        Self { line, column, of, text, offending }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<End, Failure> {
    let What::Check(Check { files, json }) = &arguments.what;
    let checked: Vec<_> = files.iter().map(|file| check(file)).collect();
    let mut out = output::stdout();
    if *json {
        let all = serde_json::to_string_pretty(&serde_json::json!({ "files": checked })).map_err(io::Error::from)?;
        writeln!(out, "{all}")?;
    } else {
        for Checked { file, groups, rules, mistakes } in &checked {
            let name = file.display();
            match mistakes.len() {
                0 => writeln!(out, "{name}: {}, {}", counted(*rules, "rule"), counted(*groups, "group"))?,
                count => writeln!(out, "{name}: {}", counted(count, "mistake"))?,
            }
            for mistake in mistakes {
                writeln!(out, "{}", line(file, mistake))?;
            }
        }
    }
    out.flush()?;
    let is_fine = checked.iter().all(|file| file.mistakes.is_empty());
    Ok(if is_fine { End::Done } else { End::Incomplete })
}

fn check(file: &Path) -> Checked<'_> {
    let text = text_of(file).map_err(|why| {
        let text = format!("it cannot be read: {why}");
        vec![Mistake { line: 0, column: 0, of: String::new(), text, offending: String::new() }]
    });
    match text.and_then(|text| onlooker_rules::read(file, &text)) {
        Ok(groups) => {
            let rules = groups.iter().map(|group| group.rules.len()).sum();
            Checked { file, groups: groups.len(), rules, mistakes: Vec::new() }
        }
        Err(mistakes) => {
            Checked { file, groups: 0, rules: 0, mistakes: mistakes.into_iter().map(Found::from).collect() }
        }
    }
}

/// No more of it than is looked at.
fn text_of(file: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `FILE:LINE:COLUMN: RULE: TEXT: OFFENDING`.
fn line(file: &Path, mistake: &Found) -> String {
    let Found { line, column, of, text, offending } = mistake;
    let mut out = file.display().to_string();
    if *line > 0 {
        out.push_str(&format!(":{line}:{column}"));
    }
    for part in [of, text, offending].into_iter().filter(|part| !part.is_empty()) {
        out.push_str(": ");
        out.push_str(&shown(part));
    }
    out
}
