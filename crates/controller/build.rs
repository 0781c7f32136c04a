// SPDX-License-Identifier: Apache-2.0
//! Says where the dashboard's files are: `ui/dist`, or where it has not been built (a test of this crate alone) a page that says so.

use std::path::Path;
use std::{env, fs};

fn main() {
    let built = Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../../ui/dist");
    println!("cargo::rerun-if-changed={}", built.display());
    let dir = if built.join("index.html").exists() {
        built
    } else {
        let dir = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("ui");
        fs::create_dir_all(&dir).expect("OUT_DIR can be written to");
        let page =
            "<!doctype html><title>Onlooker</title><p>The dashboard was not built into this program: run `make build`.";
        fs::write(dir.join("index.html"), page).expect("OUT_DIR can be written to");
        dir
    };
    println!("cargo::rustc-env=ONLOOKER_UI_DIR={}", dir.display());
}
