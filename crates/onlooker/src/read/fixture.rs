// SPDX-License-Identifier: Apache-2.0
//! A host in memory with a metric of every type, and a reading of it.

use onlooker_reader::drive::read_host;
use onlooker_reader::{Limits, Session, Via};
use onlooker_region::guard::commit;
use onlooker_region::schema::Schema;
use onlooker_region::table::{KeyValue, Table, pack_key};

#[path = "../../../reader/tests/common/memory.rs"]
#[allow(unreachable_pub, dead_code)]
mod memory;

#[path = "../../../reader/tests/common/direct.rs"]
#[allow(unreachable_pub)]
mod direct;

use direct::Direct;
pub(crate) use memory::{Host, Region, Shared};

/// Acquisition time of the host's guarded blocks; its clock says 1000 s at bootstrap.
pub(crate) const ACQUIRED_NS: u64 = 999_500_000_000;

pub(crate) const SHOP: &str = r#"{"name":"shop","groups":[
    {"kind":"plain","blocks":1,"fields":[
        {"name":"shop_requests_total","metric":"counter","type":"u64","help":"Requests served.",
         "array":{"label":"cpu","count":2,"stride":1}},
        {"name":"shop_latency_seconds","metric":"histogram","type":"u64","slot":2,"unit":"seconds","scale":1e-9,"help":"Time to serve.",
         "histogram":{"grouping_power":0,"max_power":4}}]},
    {"kind":"guarded","blocks":1,"fields":[{"name":"shop_version","metric":"info","type":"text","bytes":16,"resolution_ns":5}]},
    {"kind":"table","blocks":2,"key":[{"name":"device","type":"text","bytes":8},{"name":"pid","type":"u64"}],
     "fields":[{"name":"queue_depth","metric":"gauge","type":"i64","help":"Waiting\\now."}]}]}"#;

pub(crate) fn host() -> Host {
    host_of(64)
}

/// With a control region of so many blocks, for many regions.
pub(crate) fn host_of(control_blocks: usize) -> Host {
    let mut host = Host::new(control_blocks);
    let region = host.region(1, "shop", &[("pid", "4321"), ("program", "my shop")], SHOP);
    let identity = region.entry.identity;
    region.words.set(0, 1, u64::MAX);
    region.words.set(0, 2, 7);
    for (slot, value) in [(2, 2), (3, 1), (6, 4), (7, 100)] {
        region.words.set(0, 1 + slot, value);
    }
    commit(region.words.block(1), identity.at(1), ACQUIRED_NS, |p| {
        p.set(0, u64::from_le_bytes(*b"v1 \"x\"\\\n"));
    });
    let schema = Schema::parse(SHOP).unwrap();
    let words = &region.words.as_ref()[2 * 128..];
    let mut table = Table::new(schema.groups[2].layout().unwrap(), words, identity.at(2), ACQUIRED_NS);
    let key = pack_key(&schema.groups[2].key, &[KeyValue::Text("eth0"), KeyValue::U64(3)]).unwrap();
    table.upsert(&key, ACQUIRED_NS, |values| values.set(0, (-5i64).cast_unsigned())).unwrap();
    host
}

/// A reading at 2 s of the reader's clock, which always says so.
pub(crate) fn read(host: &Host) -> Session {
    read_at(host, 2_000_000_000)
}

/// A reading at another time.
pub(crate) fn read_at(host: &Host, now_ns: u64) -> Session {
    let mut session = session_of(host);
    read_into(host, &mut session, now_ns);
    session
}

/// A session that has read nothing.
pub(crate) fn session_of(host: &Host) -> Session {
    Session::new(&host.answer(1), Via::Tcp, 64, Limits { tries: 1, ..Limits::default() })
}

pub(crate) fn read_into(host: &Host, session: &mut Session, now_ns: u64) {
    read_host(&mut Direct::new(host), session, u64::MAX, || now_ns).unwrap();
}

pub(crate) fn session() -> Session {
    read(&host())
}

/// The host's clock said 1000 s when the reader's said 1 s.
pub(crate) fn relation() -> onlooker_reader::clock::Relation {
    use onlooker_reader::clock::Moment;
    let at = |steady_ns| Moment { steady_ns, utc_ns: 1_700_000_000_000_000_000 };
    onlooker_reader::clock::Relation::new(1_000_000_000_000, at(1_000_000_000), at(1_000_000_000))
}
