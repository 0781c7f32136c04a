// SPDX-License-Identifier: Apache-2.0
//! Pins: what may be where, and what is refused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use onlooker_responder::{Error, Home, Pinned};

use crate::support::unlimited;
use crate::world::{PORT, World};

#[test]
fn homes_are_on_bpffs_and_have_plain_names() {
    let world = World::new();
    for name in ["", "a/b", "..", "a.b", "a b", &"x".repeat(65)] {
        assert!(matches!(Home::new(world.bpffs(), name), Err(Error::Name { .. })), "{name}");
    }
    assert!(matches!(Home::new(Path::new("/proc"), "a"), Err(Error::NoBpffs { .. })));
    assert!(matches!(Home::new(Path::new("/no/such/place"), "a"), Err(Error::NoBpffs { .. })));
}

#[test]
fn a_taken_home_is_refused_and_left_alone() {
    let world = World::new();
    let home = world.home("one");
    let first = Pinned::load(&unlimited(PORT), &home).unwrap();
    assert!(matches!(Pinned::load(&unlimited(PORT), &home), Err(Error::Exists { .. })));
    let other = Pinned::load(&unlimited(PORT), &world.home("other")).unwrap();
    first.home().purge().unwrap();
    assert!(other.home().exists());
    Pinned::open(other.home()).unwrap();
}

#[test]
fn incomplete_and_foreign_pins_are_not_opened() {
    let world = World::new();
    let home = world.home("broken");
    assert!(matches!(Pinned::open(&home), Err(Error::Bpf { operation: "opening", .. })));
    let pinned = Pinned::load(&unlimited(PORT), &home).unwrap();
    std::fs::remove_file(home.path().join("programs/finish_xdp")).unwrap();
    assert!(matches!(Pinned::open(&home), Err(Error::Bpf { operation: "opening", .. })));
    // A map of another shape under the settings' name.
    std::fs::remove_file(home.path().join("settings")).unwrap();
    std::fs::rename(home.path().join("maps/lease"), home.path().join("settings")).unwrap();
    let error = Pinned::open(&home).unwrap_err();
    assert!(matches!(error, Error::Incompatible { .. }), "{error}");
    drop(pinned);
    home.purge().unwrap();
    assert!(!home.exists());
}

#[test]
fn a_slab_s_place_is_taken_once_and_free_again() {
    let world = World::new();
    let responder = Pinned::load(&unlimited(PORT), &world.home("slabs")).unwrap();
    for _ in 0..2 {
        responder.create_slab(3, 8).unwrap();
        assert!(matches!(responder.create_slab(3, 8), Err(Error::System { operation: "pinning", .. })));
        assert_eq!((responder.slabs().unwrap(), responder.slab(3).unwrap().blocks()), (vec![3], 8));
        responder.remove_slab(3).unwrap();
        assert!(responder.slab(3).is_err() && responder.remove_slab(3).is_err());
    }
}

/// On a file system as `mount -t bpf bpf` makes it everybody may make a directory.
#[test]
fn a_home_that_others_can_change_is_refused_by_all() {
    const NOBODY: u32 = 65_534;
    let world = World::new();
    let base = world.bpffs().join("onlooker");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let refused = |path: &Path, owner| match Home::new(world.bpffs(), "one") {
        Err(Error::NotOurs { path: found, owner: told, .. }) => {
            assert_eq!((Path::new(&found), told), (path, owner));
        }
        other => panic!("{other:?}"),
    };
    let home = world.home("one");
    // Somebody is there first.
    std::fs::create_dir(&base).unwrap();
    std::os::unix::fs::chown(&base, Some(NOBODY), None).unwrap();
    refused(&base, NOBODY);
    assert!(matches!(Pinned::load(&unlimited(PORT), &home), Err(Error::NotOurs { .. })));
    assert!(matches!(home.purge(), Err(Error::NotOurs { owner: NOBODY, .. })));
    std::fs::remove_dir_all(&base).unwrap();
    // As it is meant.
    let pinned = Pinned::load(&unlimited(PORT), &home).unwrap();
    for path in [&base, home.path(), &home.path().join("maps")] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700, "{}", path.display());
    }
    Pinned::open(&world.home("one")).unwrap();
    // What was so at first and is not any more.
    for path in [&base, home.path()] {
        mode(path, 0o777);
        refused(path, 0);
        mode(path, 0o700);
    }
    std::os::unix::fs::chown(home.path(), Some(NOBODY), None).unwrap();
    refused(home.path(), NOBODY);
    std::os::unix::fs::chown(home.path(), Some(0), None).unwrap();
    // The root of the file system: sticky, everybody may write; without that he may rename.
    mode(world.bpffs(), 0o777);
    refused(world.bpffs(), 0);
    mode(world.bpffs(), 0o1777);
    pinned.home().purge().unwrap();
}
