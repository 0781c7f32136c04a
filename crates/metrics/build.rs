// SPDX-License-Identifier: Apache-2.0
//! Compiles every `*.bpf.c` under `src/` into OUT_DIR, as `<name>.bpf.o`. Nothing is listed here: a file that is there is
//! compiled.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Tests compile it once for each `REFUSED_<NAME>` in it, as `refused_<name>.bpf.o`.
const REFUSED: &str = "src/user/refused.bpf.c";
/// The example of an operator's collector, for tests.
const EXAMPLE: &str = "../../examples/collectors/run_queue.bpf.c";
/// Headers that groups share, and the responder's.
const HEADERS: [&str; 2] = ["bpf", "../responder/bpf"];
/// Headers for operators' collectors.
const USER_HEADERS: [&str; 1] = ["../responder/bpf/user"];

fn main() {
    // Whoever adds a folder names it there.
    println!("cargo::rerun-if-changed=src/groups/mod.rs");
    HEADERS.iter().chain([&EXAMPLE]).for_each(|path| println!("cargo::rerun-if-changed={path}"));
    for source in sources(Path::new("src")) {
        println!("cargo::rerun-if-changed={}", source.display());
        match source.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_suffix(".bpf.c")) {
            Some(_) if source == Path::new(REFUSED) => {
                for name in refused() {
                    let define = format!("-DREFUSED_{name}");
                    compile(&source, &format!("refused_{}", name.to_lowercase()), &USER_HEADERS, &define);
                }
            }
            Some(name) => compile(&source, name, &HEADERS, "-DONLOOKER"),
            // A header.
            None => {}
        }
    }
    compile(Path::new(EXAMPLE), "example_run_queue", &USER_HEADERS, "-DONLOOKER");
}

/// All files of C in a directory and below.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("a directory can be read").path());
    let found = paths.flat_map(|path| match path.extension().and_then(OsStr::to_str) {
        Some("c" | "h") => vec![path],
        _ if path.is_dir() => sources(&path),
        _ => Vec::new(),
    });
    found.collect()
}

fn refused() -> BTreeSet<String> {
    let text = fs::read_to_string(REFUSED).unwrap_or_else(|error| panic!("{REFUSED}: {error}"));
    let names = text.split("defined(REFUSED_").skip(1);
    names.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

fn compile(source: &Path, object: &str, headers: &[&str], define: &str) {
    let headers = headers.iter().map(|headers| format!("-I{headers}"));
    let flags: Vec<String> = headers.chain([define.to_owned()]).collect();
    onlooker_bpf_build::object(source, object, &flags);
}
