// SPDX-License-Identifier: Apache-2.0
//! Messages and lines of network devices.

use super::*;

fn message(flags: u32, parts: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut message = vec![0; 16];
    message[8..12].copy_from_slice(&flags.to_ne_bytes());
    for (kind, value) in parts {
        message.extend_from_slice(&u16::try_from(value.len() + 4).unwrap().to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    message
}

fn device(flags: u32) -> Vec<u8> {
    let statistics: Vec<u8> = (0..25u64).flat_map(|at| (1u64 << at).to_ne_bytes()).collect();
    let parts =
        [(3, b"eth0\0".to_vec()), (4, 1500u32.to_ne_bytes().into()), (16, vec![6]), (33, vec![1]), (23, statistics)];
    message(flags, &parts)
}

#[test]
fn a_device_is_put_together_as_in_procfs() {
    let body = device(1);
    let link = parse(&body).unwrap();
    assert_eq!((link.name, link.state), ("eth0", Some((true, 1500, Some(true)))));
    let bit = |at: u32| 1u64 << at;
    let bits = |at: &[u32]| at.iter().map(|at| bit(*at)).sum::<u64>();
    let expected = [
        bit(2),
        bit(0),
        bit(4),
        bits(&[6, 15]),
        bit(14),
        bits(&[10, 11, 12, 13]),
        bit(21),
        bit(8),
        bit(3),
        bit(1),
        bit(5),
        bit(7),
        bit(18),
        bit(9),
        bits(&[16, 17, 19, 20]),
        bit(22),
        bit(23),
    ];
    assert_eq!(link.counters, expected);
    // One that is down has no carrier, and no speed.
    let body = device(0);
    let link = parse(&body).unwrap();
    assert_eq!([CARRIER_COLUMN, SPEED_COLUMN].map(|column| link.value(column)), [None, None]);
    assert_eq!((link.value(UP_COLUMN), link.value(MTU_COLUMN), link.value(16)), (Some(1), Some(1500), Some(bit(23))));
}

#[test]
fn damaged_messages_give_nothing() {
    let whole = device(1);
    for length in 0..whole.len() {
        assert!(parse(&whole[..length]).is_none(), "{length}");
    }
    assert!(parse(&message(1, &[(23, vec![0; 200])])).is_none(), "no name");
    assert!(parse(&message(1, &[(3, b"eth0\0".to_vec())])).is_none(), "no statistics");
    assert!(parse(&message(1, &[(3, vec![0xff, 0]), (23, vec![0; 200])])).is_none(), "no text");
    // Statistics of an older kernel end early.
    let body = message(1, &[(3, b"eth0\0".to_vec()), (23, 7u64.to_ne_bytes().repeat(23))]);
    assert_eq!(parse(&body).unwrap().value(16), Some(0));
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let _ = parse(bytes);
    });
}

#[test]
fn neighbours() {
    let line = b"21.0.0.1         0x1         0x2         aa:bb:cc:dd:ee:ff     *        eth0";
    assert_eq!(neighbour(line), Some("eth0"));
    for line in
        ["", "IP address       HW type     Flags       HW address            Mask     Device", "1.2.3.4 0x1 0x2 aa *"]
    {
        assert_eq!(neighbour(line.as_bytes()), None, "{line}");
    }
}

#[test]
fn what_is_left_of_many_devices_fits_the_agents_slab() {
    for widths in [vec![17, 2, 1, 1, 1], vec![13, 4, 2, 1, 1, 1]] {
        let mut last = 0;
        for devices in [0, 5, 16, 17, 40, 200, 3000] {
            let rows = left_rows(devices, &widths);
            assert!(rows >= last && rows >= 32, "{devices} devices, {rows} rows");
            last = rows;
            let blocks: u32 = widths
                .iter()
                .map(|width| {
                    let fields = (0..*width).map(field).collect();
                    rows::group("device", KEY_WORDS, fields, rows).blocks
                })
                .sum();
            assert!(blocks as usize <= MOST_LEFT_BLOCKS, "{devices} devices, {blocks} blocks");
        }
        assert!(last >= 256, "{last}");
    }
}

#[test]
fn netdev_lines() {
    let (device, counters) = netdev(b"  eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").unwrap();
    assert_eq!((device, counters[0], counters[15]), ("eth0", 1, 16));
    assert_eq!(netdev(b" eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16").map(|(device, _)| device), Some("eth0"));
    assert_eq!(netdev(b" face |bytes    packets errs drop"), None);
    assert_eq!(netdev(b"eth0: 1 2 3"), None);
    assert_eq!(netdev(b": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), None);
}

#[test]
fn no_line_breaks_a_parser() {
    bolero::check!().for_each(|line: &[u8]| {
        let _ = netdev(line);
    });
}

#[test]
fn this_machine_s_file_parses() {
    let mut lines = 0;
    let count = |line: &[u8]| lines += usize::from(netdev(line).is_some());
    Source::open("/proc/net/dev").unwrap().each_line(&mut [0; LINE_BYTES], count).unwrap();
    assert!(lines >= 1, "{lines}");
}
