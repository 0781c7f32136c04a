// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::chunk::{Builder, Column, Shape};
use crate::types::{Kind, Line, TrackId};
use crate::warm::file;

/// Nothing can be had from it.
struct Nowhere;

impl Origin for Nowhere {
    fn group(&self, _: u32) -> Result<Arc<Group>, StoreError> {
        Err(self.damaged(Damage::Wrong("a group")))
    }

    fn damaged(&self, damage: Damage) -> StoreError {
        StoreError::Damaged { path: "nowhere".into(), offset: 0, damage }
    }
}

fn chunk() -> Vec<u8> {
    let columns = (0..5).map(|_| Column::Value(Kind::Counter)).collect();
    let mut builder = Builder::new(TrackId(7), Shape { columns, is_table: false, bucket_s: 0 });
    (0..50u64).for_each(|row| builder.push(Line::ONLY, row + 1, &[row, 9, row * row, row / 7, row << 20]));
    builder.finish().unwrap()
}

#[test]
fn a_name_has_that_of_the_cold_file() {
    let cold = "20261124T100000Z-20261124T110000Z-3";
    let path = path(Path::new("/s/warm"), Level::Raw, 12, cold);
    assert!(is_one(&path) && !is_one(&temporary(Path::new("/s/warm"), Level::Raw, 12, cold)));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert_eq!(name, "raw-0000000012-20261124T100000Z-20261124T110000Z-3.outline");
    assert_eq!(parse(name), Some(("raw-0000000012", cold)));
    assert_eq!(file::parse(name), Some((Level::Raw, 12)));
    for name in ["raw-0000000012.outline", "raw-0000000012-x.outline", "raw-0000000012.chunks", "", ".outline"] {
        assert_eq!(parse(name), None, "{name}");
    }
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let bytes = chunk();
    let front_bytes = Head::parse(&bytes).unwrap().front_bytes;
    let front = &bytes[..front_bytes];
    let parsed = Chunk::parse_front(front).unwrap();
    let read = |recipe: &[u8]| {
        let Ok(recipe) = Recipe::parse(recipe, &parsed) else { return };
        for column in 0..parsed.head().columns {
            let mut values = Vec::new();
            if recipe.column(&parsed, column, &mut values, &Nowhere).is_ok() {
                assert_eq!(values.len(), 50);
            }
        }
        let _ = recipe.whole(front, &parsed, &mut Vec::new(), &Nowhere);
    };
    let mut verbatim = Vec::new();
    recipe::put_verbatim(&bytes[front_bytes..], &mut verbatim);
    let recipe = Recipe::parse(&verbatim, &parsed).unwrap();
    let (mut values, mut again) = (Vec::new(), Vec::new());
    recipe.column(&parsed, 2, &mut values, &Nowhere).unwrap();
    assert_eq!(values[7], 49);
    recipe.whole(front, &parsed, &mut again, &Nowhere).unwrap();
    assert!(again == bytes);
    bolero::check!().for_each(|bytes: &[u8]| {
        read(bytes);
        let _ = (entry(bytes, 1, 0), unpack(bytes));
    });
    // What begins as a recipe does.
    bolero::check!().for_each(|bytes: &[u8]| read(&[&[1, 0, 2, 0, 50, 1, 50], bytes].concat()));
}
