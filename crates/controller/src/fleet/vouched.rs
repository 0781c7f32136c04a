// SPDX-License-Identifier: Apache-2.0
//! What the agent vouches for, and programs that say it, too: by schemas that claim the kernel's names, by labels, by
//! acquisition, by time.

use onlooker_region::guard::commit;
use onlooker_region::schema::Acquisition;

use super::fixture::{AHEAD_NS, BOOTSTRAP_NS, Host, Region, World};

const LOAD: &str = r#"{"name":"node_load","groups":[{"kind":"guarded","acquisition":"sampled","blocks":1,"fields":[
    {"name":"node_load1","metric":"gauge","type":"u64"}]}]}"#;
const COMPUTED: &str = r#"{"name":"node_load","groups":[{"kind":"computed","acquisition":"computed","blocks":1,"fields":[
    {"name":"node_load1","metric":"gauge","type":"u64"}]}]}"#;
/// By a table whose key has the labels that the agent gives, empty.
const ROW: &str = r#"{"name":"evil","groups":[{"kind":"table","acquisition":"computed","blocks":1,
    "key":[{"name":"pid","type":"text","bytes":8},{"name":"program","type":"text","bytes":8}],
    "fields":[{"name":"node_load1","metric":"gauge","type":"u64"}]}]}"#;
const DAY_NS: u64 = 86_400_000_000_000;

/// Writes a block's first value.
fn set(region: &Region, value: u64, host_ns: u64) {
    commit(region.words.block(0), region.entry.identity, host_ns, |payload| payload.set(0, value));
}

fn host_ns(world: &World) -> u64 {
    world.now_ns() + AHEAD_NS
}

#[test]
fn a_program_neither_hides_nor_replaces_what_the_agent_says() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    // Not even without a label of its own, as no agent would have it, and before the agent's is there.
    let evil = host.region(300, "node_load", &[], COMPUTED);
    let table = host.region(301, "node_load", &[("pid", "77"), ("program", "nobody")], ROW);
    commit(table.words.block(0), table.entry.identity, 9, |row| row.set_all(0, &[1 << 32 | 1, 0, 0, 98]));
    set(&evil, 99, host_ns(&world));
    world.read("a", &host);
    let load = r#"node_load1{instance="a"}"#;
    assert_eq!(world.shown("a")[load], 99.0);
    let agents = host.region(2, "node_load", &[], LOAD);
    set(&agents, 3, host_ns(&world));
    for _ in 0..3 {
        world.pass(1_000_000_000);
        set(&evil, 99, host_ns(&world));
        world.read("a", &host);
        let shown = world.shown("a");
        assert_eq!(shown[load], 3.0);
        assert_eq!(shown.len(), 3, "the agent's, the row by its own name, the boot time: {shown:?}");
        assert_eq!(shown[r#"node_load1{instance="a",pid="77",program="nobody"}"#], 98.0);
    }
    let shown = world.fleet.host("a").unwrap();
    let shown = shown.look();
    let (key, at) = shown.entities.find(load).unwrap();
    assert_eq!(shown.entities.get(&key).unwrap().named.series[at].acquisition, Acquisition::Sampled);
    let programs = shown.regions.iter().find(|region| region.entry.identity == evil.entry.identity).unwrap();
    assert_eq!(programs.acquisition, [Acquisition::Direct], "whatever the program's schema says");
}

#[test]
fn of_two_programs_the_older_stays_and_a_row_follows_itself() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let labels = [("pid", "77")];
    let shop = r#"{"name":"shop","groups":[{"kind":"table","blocks":1,"key":[{"name":"queue","type":"text","bytes":8}],
        "fields":[{"name":"shop_length","metric":"gauge","type":"u64"}]}]}"#;
    let older = host.region(900, "shop", &labels, shop);
    let text = r#"shop_length{instance="a",pid="77",queue="q"}"#;
    let row = |region: &Region, generation: u64, value: u64| {
        let words = [1 << 32 | generation, u64::from(b'q'), value];
        commit(region.words.block(0), region.entry.identity, 9 + generation, |payload| payload.set_all(0, &words));
    };
    row(&older, 1, 7);
    world.read("a", &host);
    // Its region's number is lower, and it says that it is computed.
    let newcomer =
        host.region(800, "shop", &labels, &shop.replace("\"blocks\":1", "\"blocks\":1,\"acquisition\":\"computed\""));
    row(&newcomer, 1, 666);
    world.read("a", &host);
    world.read("a", &host);
    assert_eq!(world.shown("a")[text], 7.0);
    row(&older, 2, 8);
    world.read("a", &host);
    assert_eq!(world.shown("a")[text], 8.0, "at once");
}

fn error_and_newest_ns(world: &World) -> (u64, u64) {
    let host = world.fleet.host("a").unwrap();
    let shown = host.look();
    (shown.relation.unwrap().error_ns(world.now_ns()), shown.newest_ns().unwrap())
}

#[test]
fn a_programs_times_move_no_clock() {
    for lie_ns in [-DAY_NS.cast_signed(), DAY_NS.cast_signed()] {
        let (mut world, mut host) = (World::new(), Host::new(64));
        let evil = host.region(300, "node_load", &[("pid", "77")], COMPUTED);
        let agents = host.region(2, "node_cpu", &[], LOAD);
        for _ in 0..5 {
            set(&agents, 3, host_ns(&world) - 1_000_000);
            set(&evil, 99, host_ns(&world).saturating_add_signed(lie_ns));
            world.read("a", &host);
            let (error_ns, newest_ns) = error_and_newest_ns(&world);
            assert!(error_ns >= BOOTSTRAP_NS, "nothing bounds the clock better than the bootstrap did: {error_ns}");
            let age_ns = World::utc_ns(world.now_ns()).checked_sub(newest_ns).expect("not from the future");
            assert!(age_ns < 2 * BOOTSTRAP_NS, "{age_ns}");
            world.pass(1_000_000);
        }
    }
}

/// Nothing is computed, as over TCP: the engine has the host bootstrapped again, and readings bring what that said.
#[test]
fn a_later_bootstrap_bounds_the_clock_again() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let agents = host.region(2, "node_load", &[], LOAD);
    for _ in 0..20 * 60 {
        set(&agents, 3, host_ns(&world));
        world.read("a", &host);
        let (error_ns, newest_ns) = error_and_newest_ns(&world);
        assert!(error_ns < 14_000_000, "{error_ns}");
        assert!(World::utc_ns(world.now_ns()).abs_diff(newest_ns) < 14_000_000);
        world.pass(1_000_000_000);
        if error_ns > 5_000_000 {
            world.renew("a", 1_000_000);
        }
    }
}

#[test]
fn the_agents_computed_blocks_bound_the_clock() {
    let (mut world, mut host) = (World::new(), Host::new(64));
    let agents = host.region(2, "node_load", &[], COMPUTED);
    let words = agents.words.clone();
    let (identity, rkey) = (agents.entry.identity, agents.entry.rkey);
    let computed_ns = host_ns(&world) + 1_000_000;
    host.memory.hook(move |_, read| {
        if read.rkey == rkey {
            commit(words.block(0), identity, computed_ns, |payload| payload.set(0, 1));
        }
        None
    });
    world.read("a", &host);
    assert!(error_and_newest_ns(&world).0 < BOOTSTRAP_NS / 10);
}
