// SPDX-License-Identifier: Apache-2.0
//! The sample program: the C SDK's example, as built beside this executable, else compiled here from the same two files.

use super::ending::Ending;
use super::place::Place;
use super::process::Process;
use super::{DemoError, beside};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The program that `scripts/build` makes.
const PREBUILT: &str = "onlooker-demo-shop";
const SOURCE: &str = include_str!("../../../../sdk/c/examples/shop.c");
const HEADER: &str = include_str!("../../../../sdk/c/onlooker.h");

/// Where the program is, and how it came there; or why there is none.
pub(super) fn program(
    place: &mut Place,
    ending: &Ending,
) -> Result<Result<(PathBuf, &'static str), String>, DemoError> {
    if let Some(built) = beside(PREBUILT) {
        // Its regions are labelled with the name that it is run by.
        let path = place.path("shop");
        symlink(built, &path).map_err(|error| DemoError::System {
            operation: "link",
            object: path.clone(),
            source: error,
        })?;
        return Ok(Ok((path, "built with nothing but onlooker.h")));
    }
    let source = place.path("src/examples/shop.c");
    let (header, program) = (place.path("src/onlooker.h"), place.path("shop"));
    let write = |path: &Path, text| {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text)
    };
    for (path, text) in [(&source, SOURCE), (&header, HEADER)] {
        write(path, text).map_err(|error| DemoError::System {
            operation: "write",
            object: path.clone(),
            source: error,
        })?;
    }
    let paths = [source, program.clone()].map(|path| path.display().to_string());
    let arguments = ["-O1", "-pthread", paths[0].as_str(), "-o", paths[1].as_str()];
    let mut compiler = Process::start("cc", None, Path::new("cc"), &arguments, &[], place.path("cc.log"))?;
    if compiler.finish(ending)? {
        return Ok(Ok((program, "compiled now, with nothing but onlooker.h")));
    }
    let said = compiler.log().lines().next().unwrap_or("it failed").to_owned();
    Ok(Err(format!("no sample program: no {PREBUILT} beside this program or on PATH, and no C compiler ({said})")))
}
