// SPDX-License-Identifier: Apache-2.0
//! Named cases and a model: random requests, then every invariant of the module after each step.

use bolero::TypeGenerator;
use onlooker_region::SchemaId;

use super::*;
use crate::units::{Size, Span};

const PAGE: u64 = 4096;
const ENTRIES: u32 = 1000;

fn registry() -> Registry {
    let quota = Quota {
        regions_per_user: 6,
        bytes_per_user: Size::from_bytes(8 * PAGE),
        schema_bytes_per_user: Size::from_bytes(9 * PAGE),
        connections_per_user: 3,
        regions: 10,
        bytes: Size::from_bytes(12 * PAGE),
    };
    Registry::new(quota, Limits { grace: Span::from_ns(50), reuse_delay: Span::from_ns(20) }, ENTRIES, 5)
}

fn peer(uid: u32, pid: u32) -> Peer {
    Peer { process: Process { pid, start_ticks: 1 }, uid, image: "shop".into() }
}

fn schema(number: u8, blocks: u32) -> SchemaRef {
    SchemaRef { id: SchemaId([number; 16]), text_bytes: 100 + u32::from(number), blocks }
}

fn wanted(name: &str, schema: SchemaRef) -> Wanted {
    Wanted { name: name.into(), instance: String::new(), labels: Labels::new(), schema, adopted: false }
}

fn code<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Code {
    result.expect_err("a refusal").code
}

#[test]
fn a_broken_connection_is_resumed_by_the_same_process_only() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(1, 3)), 9, 0).unwrap().id;
    registry.published(id);
    let range = registry.region(id).unwrap().memory;
    assert_eq!(registry.disconnect(1, 10).orphans, [id]);
    assert_eq!(registry.next_deadline_ns(), Some(60));

    registry.connect(2, peer(7, 101)).unwrap();
    let other = registry.create(2, wanted("a", schema(1, 3)), 9, 20).unwrap();
    assert!(!other.resumed && other.ended.is_none(), "another process has a region of its own");

    registry.connect(3, peer(7, 100)).unwrap();
    let again = registry.create(3, wanted("a", schema(1, 3)), 77, 20).unwrap();
    assert!(again.resumed);
    let region = registry.region(again.id).unwrap();
    assert_eq!((again.id, region.generation, region.memory, region.state), (id, 9, range, State::Live));
    assert_eq!(registry.next_deadline_ns(), None);
    registry.remove(3, id, 30).unwrap();
}

#[test]
fn an_exec_or_a_new_schema_ends_the_orphan() {
    for (image, number) in [("other", 1), ("shop", 2)] {
        let mut registry = registry();
        registry.connect(1, peer(7, 100)).unwrap();
        let id = registry.create(1, wanted("a", schema(1, 3)), 9, 0).unwrap().id;
        registry.published(id);
        registry.disconnect(1, 10);
        registry.connect(2, Peer { image: image.into(), ..peer(7, 100) }).unwrap();
        let created = registry.create(2, wanted("a", schema(number, 3)), 10, 20).unwrap();
        assert!(!created.resumed);
        assert_eq!(created.ended.map(|region| region.id), Some(id));
        assert_eq!(registry.next_deadline_ns(), None);
    }
}

#[test]
fn a_process_that_changed_its_user_does_not_come_back_to_the_old_ones_slab() {
    let mut registry = registry();
    registry.connect(1, peer(0, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(1, 3)), 9, 0).unwrap().id;
    registry.published(id);
    registry.disconnect(1, 10);
    registry.connect(2, peer(7, 100)).unwrap();
    let created = registry.create(2, wanted("a", schema(1, 3)), 10, 20).unwrap();
    assert!(!created.resumed && created.ended.is_none() && created.id != id);
}

#[test]
fn names_are_unique_in_a_process_and_free_after_remove() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    registry.connect(2, peer(7, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(1, 1)), 9, 0).unwrap().id;
    assert_eq!(code(registry.create(2, wanted("a", schema(1, 1)), 9, 0)), Code::Duplicate);
    assert_eq!(code(registry.region_of(2, id)), Code::NotFound);
    registry.published(id);
    assert!(registry.remove(1, id, 0).unwrap().is_none());
    assert_eq!(code(registry.remove(1, id, 0)), Code::NotFound);
    let created = registry.create(1, wanted("a", schema(1, 1)), 9, 1).unwrap();
    assert!(!created.resumed, "what was removed does not come back");
    assert_eq!(created.ended.map(|region| region.id), Some(id));
}

#[test]
fn hidden_regions_go_at_once_and_an_idle_user_has_no_slab() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(1, 1)), 9, 0).unwrap().id;
    assert_eq!(registry.remove(1, id, 0).unwrap().map(|region| region.id), Some(id));
    let id = registry.create(1, wanted("a", schema(1, 1)), 9, 0).unwrap().id;
    let ended = registry.disconnect(1, 0);
    assert_eq!((ended.freed.len(), ended.freed[0].id, ended.slab), (1, id, Some(7)));
    assert_eq!((registry.len(), registry.bytes(), registry.next_deadline_ns()), (0, 0, None));
}

#[test]
fn a_kept_slab_is_its_users_for_ever() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    registry.set_slab(7, 2 * PAGE, true);
    registry.create(1, wanted("a", schema(1, 4)), 9, 0).unwrap();
    assert_eq!(registry.disconnect(1, 0).slab, None);
    registry.connect(2, peer(7, 101)).unwrap();
    registry.create(2, wanted("b", schema(1, 4)), 9, 1).unwrap();
    let refused = registry.create(2, wanted("c", schema(1, 4)), 9, 1).unwrap_err();
    assert!(refused.message.contains("do not fit"), "what was handed out before still rests: {}", refused.message);
}

#[test]
fn one_user_leaves_others_their_share_of_the_directory() {
    let mut registry = registry();
    registry.entries = 12;
    registry.connect(1, peer(7, 100)).unwrap();
    registry.connect(2, peer(8, 200)).unwrap();
    let mut create = |connection, number: u8| {
        let name = format!("n{number}");
        registry.create(connection, wanted(&name, schema(number, 1)), 9, 0).map(|created| created.id)
    };
    let first = create(1, 0).unwrap();
    create(1, 1).unwrap();
    create(1, 2).unwrap();
    let refusal = create(1, 3).unwrap_err();
    assert!(refusal.code == Code::Quota && refusal.message.contains("[kernel] control"), "{refusal:?}");
    create(2, 4).unwrap();
    assert_eq!(code(create(2, 5)), Code::Quota);
    assert_eq!(
        code(registry.check_update(1, first, Some(&schema(6, 1)), 0)),
        Code::Quota,
        "a schema has an entry, too"
    );
    registry.check_update(1, first, Some(&schema(2, 1)), 0).unwrap();
}

#[test]
fn a_user_and_its_subordinate_uids_have_one_share() {
    let mut registry = registry();
    registry.entries = 12;
    registry.set_subordinates(Subordinates::parse("7:100:50", ""));
    for (connection, uid) in [(1, 7), (2, 100), (3, 149)] {
        registry.connect(connection, peer(uid, uid)).unwrap();
    }
    let refusal = registry.connect(4, peer(120, 120)).unwrap_err();
    assert!(refusal.message.contains("user 7 already has 3 connections"), "{refusal}");
    registry.connect(5, peer(150, 150)).unwrap();
    let mut create = |connection, number: u8, blocks| {
        let name = format!("n{number}");
        registry.create(connection, wanted(&name, schema(number, blocks)), 9, 0).map(|created| created.id)
    };
    // Entries of the directory, then bytes.
    let ids = [create(1, 0, 4).unwrap(), create(2, 1, 4).unwrap(), create(3, 2, 4).unwrap()];
    assert!(create(2, 3, 1).unwrap_err().message.contains("user 7 has 6 entries"));
    create(5, 4, 1).unwrap();
    registry.entries = ENTRIES;
    let mut create = |connection, number: u8, blocks| {
        let name = format!("n{number}");
        registry.create(connection, wanted(&name, schema(number, blocks)), 9, 0).map(|created| created.id)
    };
    assert!(create(3, 3, 24).unwrap_err().message.contains("user 7 has 12288 of 32KiB"));
    create(3, 3, 20).unwrap();
    // Schemas.
    registry.remove(1, ids[0], 0).unwrap();
    let mut last = None;
    for number in 10..20 {
        last = Some(
            registry.create(2, wanted("x", schema(number, 1)), 9, 0).map(|created| registry.remove(2, created.id, 0)),
        );
        if last.as_ref().is_some_and(Result::is_err) {
            break;
        }
    }
    let refusal = last.unwrap().unwrap_err();
    assert!(refusal.message.contains("schemas of user 7 exceed"), "{refusal}");
}

#[test]
fn the_slab_stays_until_the_last_orphan_is_over() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(1, 1)), 9, 0).unwrap().id;
    registry.published(id);
    assert_eq!(registry.disconnect(1, 0).slab, None);
    assert!(registry.expire(49).is_empty());
    let ended = registry.expire(50);
    assert_eq!((ended.len(), ended[0].0.id, ended[0].1), (1, id, Some(7)));
}

#[test]
fn quotas_name_their_key() {
    let mut registry = registry();
    for id in 0..3 {
        registry.connect(id, peer(7, 100)).unwrap();
    }
    let refusal = registry.connect(3, peer(7, 100)).unwrap_err();
    assert!(refusal.code == Code::Quota && refusal.message.contains("connections_per_user"));
    let ask = |registry: &mut Registry, name: &str, number, blocks| {
        let refusal = registry.create(0, wanted(name, schema(number, blocks)), 1, 0).unwrap_err();
        assert_eq!(refusal.code, Code::Quota);
        refusal.message
    };
    assert!(ask(&mut registry, "x", 1, 33).contains("bytes_per_user"));
    assert!(ask(&mut registry, "x", 1, 49).contains("[quota] bytes)"));
    for number in 0..6 {
        registry.create(0, wanted(&format!("r{number}"), schema(number, 1)), 1, 0).unwrap();
    }
    assert!(ask(&mut registry, "x", 1, 1).contains("regions_per_user"));
    let big = SchemaRef { text_bytes: 20_000, ..schema(200, 1) };
    let free = registry.region_of(0, 5).unwrap().id;
    registry.remove(0, free, 0).unwrap();
    assert!(registry.create(0, wanted("x", big), 1, 0).unwrap_err().message.contains("schema_bytes_per_user"));
    assert_eq!(registry.check_update(0, 6, Some(&big), 0).unwrap_err().code, Code::Quota);
    assert_eq!(registry.check_update(0, 6, Some(&schema(1, 2)), 0).unwrap_err().code, Code::Schema);
    registry.connect(10, peer(8, 1)).unwrap();
    for number in 0..5 {
        registry.create(10, wanted(&format!("r{number}"), schema(number, 1)), 1, 0).unwrap();
    }
    let refusal = registry.create(10, wanted("one more", schema(1, 1)), 1, 0).unwrap_err();
    assert!(refusal.message.contains("[quota] regions)"), "{refusal}");
}

#[test]
fn schemas_that_are_over_count_until_their_blocks_may_be_used_again() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    let id = registry.create(1, wanted("a", schema(0, 1)), 9, 0).unwrap().id;
    for number in 1..9 {
        registry.check_update(1, id, Some(&schema(number, 1)), 0).unwrap();
        registry.updated(id, None, Some(schema(number, 1)), 0);
    }
    assert_eq!(code(registry.check_update(1, id, Some(&schema(9, 1)), 19)), Code::Quota, "one in use, eight at rest");
    registry.check_update(1, id, Some(&schema(8, 1)), 19).unwrap();
    registry.check_update(1, id, Some(&schema(9, 1)), 20).unwrap();
}

#[test]
fn ids_wrap_past_those_in_use() {
    let mut registry = registry();
    registry.connect(1, peer(7, 100)).unwrap();
    assert_eq!(registry.create(1, wanted("a", schema(1, 1)), 9, 0).unwrap().id, 5);
    registry.next_id = MAX_REGION_ID;
    assert_eq!(registry.create(1, wanted("b", schema(1, 1)), 9, 0).unwrap().id, MAX_REGION_ID);
    assert_eq!(registry.create(1, wanted("c", schema(1, 1)), 9, 0).unwrap().id, 6, "5 is in use");
}

#[derive(Debug, Clone, TypeGenerator)]
enum Step {
    Connect { connection: u8, uid: u8, pid: u8 },
    Disconnect { connection: u8 },
    Create { connection: u8, name: u8, schema: u8, blocks: u8, adopted: bool },
    Publish { which: u8 },
    Update { which: u8, schema: u8 },
    Remove { which: u8 },
    Wait { ns: u8 },
}

/// Steps through the registry beside the plainest bookkeeping there is.
struct Model {
    registry: Registry,
    now_ns: u64,
    generation: u32,
    /// (uid, range, until) of ranges that were freed.
    resting: Vec<(u32, Range, u64)>,
    seen: BTreeSet<(u32, u32)>,
}

impl Model {
    fn step(&mut self, step: &Step) {
        let now_ns = self.now_ns;
        let pick = |registry: &Registry, which: u8| {
            let ids: Vec<u32> = registry.regions.keys().copied().collect();
            (!ids.is_empty()).then(|| ids[usize::from(which) % ids.len()])
        };
        match *step {
            Step::Connect { connection, uid, pid } => {
                let connection = u64::from(connection % 8);
                if self.registry.peer(connection).is_none() {
                    let _ = self.registry.connect(connection, peer(u32::from(uid % 3), u32::from(pid % 4)));
                }
            }
            Step::Disconnect { connection } => {
                let ended = self.registry.disconnect(u64::from(connection % 8), now_ns);
                ended.freed.iter().for_each(|region| self.rest(region));
                self.drop_slab(ended.slab);
            }
            Step::Create { connection, name, schema: number, blocks, adopted } => {
                self.create(connection, name, number, blocks, adopted)
            }
            Step::Publish { which } => {
                if let Some(id) = pick(&self.registry, which)
                    && self.registry.region(id).is_some_and(|region| region.state == State::Hidden)
                {
                    self.registry.published(id);
                }
            }
            Step::Update { which, schema: number } => {
                let Some(id) = pick(&self.registry, which) else { return };
                let region = self.registry.region(id).unwrap();
                let (connection, new) = (region.connection, schema(number % 12, region.schema.blocks));
                if let Some(connection) = connection
                    && self.registry.check_update(connection, id, Some(&new), now_ns).is_ok()
                {
                    self.registry.updated(id, None, Some(new), now_ns);
                }
            }
            Step::Remove { which } => {
                if let Some(id) = pick(&self.registry, which)
                    && let Some(connection) = self.registry.region(id).and_then(|region| region.connection)
                    && let Some(region) = self.registry.remove(connection, id, now_ns).unwrap()
                {
                    self.rest(&region);
                }
            }
            Step::Wait { ns } => {
                self.now_ns += u64::from(ns);
                for (region, slab) in self.registry.expire(self.now_ns) {
                    self.rest(&region);
                    self.drop_slab(slab);
                }
            }
        }
    }

    fn create(&mut self, connection: u8, name: u8, number: u8, blocks: u8, adopted: bool) {
        self.generation += 1;
        let wanted = Wanted {
            adopted,
            ..wanted(["a", "b", "c", "d"][usize::from(name % 4)], schema(number % 12, u32::from(blocks % 20) + 1))
        };
        let before = self.registry.len();
        let Ok(created) = self.registry.create(u64::from(connection % 8), wanted, self.generation, self.now_ns) else {
            assert_eq!(self.registry.len(), before, "a refusal changes nothing");
            return;
        };
        if let Some(ended) = &created.ended {
            self.rest(ended);
        }
        let region = self.registry.region(created.id).unwrap();
        assert_eq!(
            self.seen.insert((region.id, region.generation)),
            !created.resumed,
            "an identity names one region for ever"
        );
        if let (Memory::Slab(range), false) = (region.memory, created.resumed) {
            for (uid, other, until_ns) in &self.resting {
                let apart = *uid != region.owner.uid
                    || other.offset + other.bytes <= range.offset
                    || range.offset + range.bytes <= other.offset;
                assert!(apart || *until_ns <= self.now_ns, "{range:?} was given out while {other:?} rests");
            }
        }
    }

    fn rest(&mut self, region: &Region) {
        if let Memory::Slab(range) = region.memory {
            self.resting.push((region.owner.uid, range, self.now_ns + 20));
        }
    }

    fn drop_slab(&mut self, uid: Option<u32>) {
        self.resting.retain(|(other, _, _)| Some(*other) != uid);
    }

    fn check(&self) {
        let registry = &self.registry;
        assert!(registry.len() <= 10 && registry.bytes() <= 12 * PAGE);
        for (uid, user) in &registry.users {
            let own = || registry.regions().filter(|region| region.owner.uid == *uid);
            assert_eq!(own().count(), user.regions as usize);
            assert!(
                user.regions <= 6 && user.connections <= 3 && user.taken() <= 8 * PAGE && user.schema_bytes <= 9 * PAGE
            );
            let distinct: BTreeMap<_, _> =
                own().map(|region| (region.schema.id, region.schema.control_bytes())).collect();
            assert_eq!(distinct.values().sum::<u64>(), user.schema_bytes);
            let mut ranges: Vec<Range> = own()
                .filter_map(|region| if let Memory::Slab(range) = region.memory { Some(range) } else { None })
                .collect();
            ranges.sort_by_key(|range| range.offset);
            assert!(
                ranges.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset),
                "live ranges overlap"
            );
            assert!(ranges.iter().all(|range| range.offset + range.bytes <= 8 * PAGE));
            let had = registry.had(*uid, self.now_ns);
            assert!(had.regions <= 6 && had.connections <= 3 && had.bytes <= 8 * PAGE);
        }
        for region in registry.regions() {
            assert!(registry.users.contains_key(&region.owner.uid));
            let orphan = matches!(region.state, State::Orphan { .. });
            assert_eq!(orphan, region.connection.is_none());
            assert_eq!(orphan, registry.deadlines.iter().any(|(_, id)| *id == region.id));
            assert!(
                region
                    .connection
                    .is_none_or(|connection| registry.connections[&connection].regions.contains(&region.id))
            );
        }
        assert_eq!(registry.deadlines.len(), registry.regions().filter(|region| region.connection.is_none()).count());
        assert!(registry.next_deadline_ns().is_none_or(|deadline| deadline <= self.now_ns + 50));
    }
}

#[test]
fn no_sequence_of_requests_breaks_an_invariant() {
    bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
        let mut model =
            Model { registry: registry(), now_ns: 0, generation: 0, resting: Vec::new(), seen: BTreeSet::new() };
        model.registry.set_subordinates(Subordinates::parse("1:2:1", ""));
        for step in steps {
            model.step(step);
            model.check();
        }
        for connection in 0..8 {
            model.step(&Step::Disconnect { connection });
        }
        model.step(&Step::Wait { ns: 200 });
        assert!(
            model.registry.is_empty() && model.registry.users.is_empty() && model.registry.names.is_empty(),
            "all comes to an end"
        );
    });
}

#[test]
fn what_an_earlier_agent_left_is_resumed_once_and_by_its_process_only() {
    let mut registry = registry();
    let restored = |id: u32, name: &str, offset: u64, removed: bool| Restored {
        id,
        generation: 9,
        name: name.into(),
        instance: String::new(),
        labels: Labels::new(),
        schema: schema(1, 3),
        range: Range { offset, bytes: PAGE },
        owner: peer(7, 100),
        removed,
        created_ns: 1,
    };
    assert!(!registry.restore(restored(9, "a", 0, false), 10), "a user without slab");
    registry.set_slab(7, 8 * PAGE, false);
    assert!(registry.restore(restored(9, "a", 0, false), 10));
    assert!(!registry.restore(restored(9, "b", PAGE, false), 10), "one id");
    assert!(!registry.restore(restored(10, "a", PAGE, false), 10), "one name");
    assert!(!registry.restore(restored(10, "b", 0, false), 10), "one range");
    assert!(registry.restore(restored(11, "b", PAGE, true), 10));
    registry.rest(7, Range { offset: 2 * PAGE, bytes: PAGE }, 500);

    registry.connect(1, peer(7, 100)).unwrap();
    let again = registry.create(1, wanted("a", schema(1, 3)), 77, 20).unwrap();
    assert!(again.resumed && again.id == 9);
    let new = registry.create(1, wanted("b", schema(1, 3)), 78, 20).unwrap();
    assert!(!new.resumed && new.id > 11, "nobody comes back to what was removed");
    let Memory::Slab(range) = registry.region(new.id).unwrap().memory else { panic!("in the slab") };
    assert_eq!(range.offset, 3 * PAGE, "what may be written to still is not given out");
    let ended: Vec<u32> = registry.expire(30).iter().map(|(region, _)| region.id).collect();
    assert_eq!(ended, [11], "after the reuse delay, not after the grace");
}
