// SPDX-License-Identifier: Apache-2.0
//! Messages of queueing disciplines. Real ones: tests/qdisc.rs.

use super::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = u16::try_from(value.len() + 4).unwrap().to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn message(parent: u32, statistics: &[u8]) -> Vec<u8> {
    let mut body = vec![0; MESSAGE_BYTES];
    body[4..8].copy_from_slice(&7u32.to_ne_bytes());
    body[12..16].copy_from_slice(&parent.to_ne_bytes());
    body.extend(attribute(1, b"tbf\0"));
    body.extend(attribute(7, statistics));
    body
}

fn statistics() -> Vec<u8> {
    let mut basic = 1_000_000_000_000u64.to_ne_bytes().to_vec();
    basic.extend(17u32.to_ne_bytes());
    let queue: Vec<u8> = [1u32, 2, 3, 4, 5].iter().flat_map(|value| value.to_ne_bytes()).collect();
    [attribute(1, &basic), attribute(3, &queue)].concat()
}

#[test]
fn roots_are_told_from_others() {
    let body = message(ROOT, &statistics());
    let root = parse(&body).unwrap();
    assert_eq!((root.device_index, root.kind), (7, "tbf"));
    assert_eq!(root.values, [1_000_000_000_000, 17, 3, 4, 5, 1, 2]);
    let many = [statistics(), attribute(8, &(1u64 << 33).to_ne_bytes())].concat();
    assert_eq!(parse(&message(ROOT, &many)).unwrap().values[1], 1 << 33);
    // A class of another discipline, and ingress.
    for parent in [0x10001, 0xffff_fff1] {
        assert_eq!(parse(&message(parent, &statistics())), None);
    }
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = parse(bytes);
    });
    for length in 0..body.len() {
        let _ = parse(&body[..length]);
    }
}
