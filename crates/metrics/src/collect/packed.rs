// SPDX-License-Identifier: Apache-2.0
//! Region `node_packed`: the values of several computed groups in as few blocks as hold them (`bpf/packed.h`,
//! `packed.bpf.c`).
//!
//! A computed group answers a READ with a block of 124 words, and on a machine with few CPUs most groups have 3 to 62 of
//! them to tell. What a READ costs is mostly the packet. So the words of groups of one block each are put side by side:
//! eleven blocks become four. A packed block is one answer, made at one instant by one program after the other.
//!
//! Its schema has every field of the regions that it stands for, under the same names: whoever reads it can leave them out,
//! and has them still if it stays silent. Groups of several blocks (more than eight CPUs) and tables are not packed: their
//! blocks are full enough, or tell their rows by their place.

use std::collections::BTreeSet;
use std::ops::Range;

use onlooker_region::Schema;
use onlooker_region::limits::GUARDED_SLOTS;
use onlooker_region::schema::{Acquisition, Field, Group, Kind};
use onlooker_responder::Responder;
use onlooker_responder::error::{Result, absent, bpf};

use super::InstalledGroup;
use super::intf::{PACKED_PIECES, PackedPiece, packed_block_bytes};
use super::object::{Content, Image, Purpose};

/// The region's name.
pub const REGION: &str = onlooker_region::control::PACKED_REGION;
/// Its collector's slots: one is in use, and where the pieces change, the region that replaces it gets another one.
pub const SLOTS: Range<u32> = 20..22;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/packed.bpf.o"));
#[allow(clippy::cast_possible_truncation)] // 124
const SLOTS_OF_BLOCK: u32 = GUARDED_SLOTS as u32;

/// Pieces of blocks, and the schema of all of them.
#[derive(Debug)]
pub struct Packed {
    /// The region's class.
    pub schema: Schema,
    /// Slots of the groups whose words are in it.
    pub collectors: BTreeSet<u32>,
    image: Image,
}

/// A block of a group.
struct Piece<'a> {
    collector: u32,
    block: u32,
    words: u32,
    fields: &'a [Field],
}

impl Packed {
    /// Packs what can be packed of these groups; `None` where that saves no block.
    #[must_use]
    pub fn of<'a>(groups: impl IntoIterator<Item = &'a InstalledGroup>) -> Option<Self> {
        Self::pack(groups.into_iter().map(|group| (group.slot, &group.schema)))
    }

    fn pack<'a>(schemas: impl Iterator<Item = (u32, &'a Schema)>) -> Option<Self> {
        let mut pieces: Vec<Piece<'_>> = schemas
            .filter(|(_, schema)| schema.groups.iter().all(|group| group.kind == Kind::Computed && group.blocks == 1))
            .flat_map(|(collector, schema)| {
                let piece = move |(block, group): (u32, &'a Group)| Piece {
                    collector,
                    block,
                    words: words(&group.fields),
                    fields: &group.fields,
                };
                (0..).zip(&schema.groups).map(piece)
            })
            .collect();
        // The longest first, each into the first block that has room.
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.words));
        let mut blocks: Vec<(u32, Vec<PackedPiece>)> = Vec::new();
        let mut fields = Vec::new();
        for piece in &pieces {
            let has_room =
                |(used, pieces): &(u32, Vec<_>)| used + piece.words <= SLOTS_OF_BLOCK && pieces.len() < PACKED_PIECES;
            let number = blocks.iter().position(has_room).unwrap_or_else(|| {
                blocks.push((0, Vec::new()));
                blocks.len() - 1
            });
            let (used, of_block) = &mut blocks[number];
            let first_slot = u32::try_from(number).ok()? * SLOTS_OF_BLOCK + *used;
            fields.extend(piece.fields.iter().map(|field| Field { slot: first_slot + field.slot, ..field.clone() }));
            of_block.push(PackedPiece {
                collector: u8::try_from(piece.collector).ok()?,
                block: u8::try_from(piece.block).ok()?,
                at: u8::try_from(*used).ok()?,
                words: u8::try_from(piece.words).ok()?,
            });
            *used += piece.words;
        }
        let mut group = Group::new(Kind::Computed, u32::try_from(blocks.len()).ok()?, fields);
        group.acquisition = Acquisition::Computed;
        let schema = Schema { name: REGION.into(), groups: vec![group] };
        let elements = blocks.iter().map(|(_, pieces)| packed_block_bytes(pieces));
        let contents = vec![Content::array("packed_blocks", elements)];
        let collectors = pieces.iter().map(|piece| piece.collector).collect();
        let packed = Self { schema, collectors, image: Image { object: OBJECT, contents, maps: &[] } };
        (blocks.len() < pieces.len() && packed.schema.check().is_ok()).then_some(packed)
    }

    /// Puts the region's collector into a slot of [`SLOTS`]. The groups' own are to be there.
    ///
    /// # Errors
    /// [`crate::Error::Load`], [`crate::Error::Bpf`].
    pub fn install(&self, responder: &Responder, slot: u32) -> Result<()> {
        let object = self.image.load(Purpose::Serve(responder))?;
        let program = |name: &str| object.progs().find(|program| program.name() == name).ok_or_else(|| absent(name));
        let advice = "build it with this crate's build.rs";
        let tc = program("collect_tc").map_err(bpf("opening", "collect_tc", advice))?;
        let xdp = program("collect_xdp").map_err(bpf("opening", "collect_xdp", advice))?;
        responder.install_collector(slot, tc, xdp)
    }
}

/// Words up to the last that a field has.
fn words(fields: &[Field]) -> u32 {
    let end = |field: &Field| {
        let last = field.array.as_ref().map_or(0, |array| (array.count - 1) * array.stride);
        field.slot + last + u32::try_from(field.slots()).unwrap_or(u32::MAX)
    };
    fields.iter().map(end).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlooker_region::schema::{Array, Metric, Type};

    /// A region with a block for each of these: so many single values.
    fn region(name: &str, blocks: &[u32]) -> Schema {
        let group = |(number, values): (usize, &u32)| {
            let fields =
                (0..*values).map(|slot| Field::new(&format!("{name}_{number}_{slot}"), Metric::Gauge, Type::U64, slot));
            Group::new(Kind::Computed, 1, fields.collect())
        };
        Schema { name: name.into(), groups: blocks.iter().enumerate().map(group).collect() }
    }

    fn pack(schemas: &[Schema]) -> Option<Packed> {
        Packed::pack((1..).zip(schemas))
    }

    #[test]
    fn every_field_has_a_place_of_its_own_and_its_names() {
        let mut wide = region("wide", &[3]);
        wide.groups[0].fields[2].array = Some(Array { label: "cpu".into(), count: 4, stride: 31, values: None });
        let schemas = [region("a", &[62, 2]), wide, region("b", &[100]), region("c", &[20, 30, 60])];
        let packed = pack(&schemas).unwrap();
        packed.schema.check().unwrap();
        let group = &packed.schema.groups[0];
        assert_eq!((packed.schema.groups.len(), group.blocks), (1, 4));
        let names = |fields: &mut dyn Iterator<Item = &Field>| {
            let mut names: Vec<String> = fields.map(|field| field.name.clone()).collect();
            names.sort();
            names
        };
        let all = names(&mut schemas.iter().flat_map(|schema| &schema.groups).flat_map(|group| &group.fields));
        assert_eq!(names(&mut group.fields.iter()), all);
        // A field is where its collector puts it: as far behind its piece's first slot as in its own block.
        let [content] = &packed.image.contents[..] else { panic!() };
        let wide = group.fields.iter().find(|field| field.name == "wide_0_2").unwrap();
        let (block, slot) = (wide.slot / SLOTS_OF_BLOCK, wide.slot % SLOTS_OF_BLOCK);
        let (count, pieces) = content.elements[block as usize].1.split_first_chunk::<4>().unwrap();
        let pieces = &pieces.as_chunks::<4>().0[..u32::from_le_bytes(*count) as usize];
        let [_, 0, at, 96] = *pieces.iter().find(|piece| piece[0] == 2).unwrap() else { panic!("{pieces:?}") };
        assert_eq!(slot, u32::from(at) + 2);
    }

    #[test]
    fn what_saves_nothing_or_has_more_blocks_a_group_is_left_as_it_is() {
        assert!(pack(&[]).is_none());
        assert!(pack(&[region("a", &[62])]).is_none());
        assert!(pack(&[region("a", &[100]), region("b", &[100])]).is_none());
        let mut long = region("long", &[10]);
        long.groups[0].blocks = 2;
        let mut table = region("table", &[10]);
        table.groups[0].kind = Kind::Table;
        assert!(pack(&[long, table, region("a", &[10])]).is_none());
    }

    #[test]
    fn a_block_has_no_more_pieces_than_the_kernel_allows_tail_calls() {
        let many: Vec<Schema> = (0..40).map(|number| region(&format!("m{number}"), &[1])).collect();
        let packed = pack(&many).unwrap();
        assert_eq!(packed.schema.groups[0].blocks, 3);
    }
}
