// SPDX-License-Identifier: Apache-2.0
//! Heads against the rows that were pushed, whole and in pieces.

use super::*;
use crate::types::SECOND_NS;

type Row = (Line, u64, Vec<u64>);

fn kinds(columns: usize) -> Arc<[Kind]> {
    (0..columns).map(|at| [Kind::Counter, Kind::Float, Kind::Integer { signed: false }][at % 3]).collect()
}

fn rows_of(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows = vec![];
    snapshot.rows(|line, time_ns, words| rows.push((line, time_ns, words.to_vec()))).unwrap();
    rows
}

fn rows(head: &Head) -> Vec<Row> {
    rows_of(&head.snapshot())
}

/// `count` rows of so many columns, of `lines` lines by turns.
fn some(count: u64, columns: u64, lines: u32) -> Vec<Row> {
    let row = |number: u64| {
        let line = Line(u32::try_from(number).unwrap() % lines * 7);
        let words = (0..columns).map(|column| if column % 4 == 0 { number * column } else { column * column });
        (line, 1_790_000_000 * SECOND_NS + number / u64::from(lines) * SECOND_NS, words.collect())
    };
    (0..count).map(row).collect()
}

fn pushed(rows: &[Row], columns: usize, is_table: bool) -> Head {
    let mut head = Head::new(kinds(columns), is_table);
    rows.iter().for_each(|(line, time_ns, words)| head.push(*line, *time_ns, words).unwrap());
    head
}

#[test]
fn rows_come_back_whole_and_in_pieces() {
    for (columns, lines) in [(0, 1), (3, 1), (700, 1), (0, 5), (15, 40), (100, 3)] {
        let all = some(300, columns as u64, lines);
        let mut head = Head::new(kinds(columns), lines > 1);
        assert_eq!((head.times_ns(), head.newest(Line(0)), rows(&head)), (None, None, vec![]));
        let (mut again, mut offset) = (Head::new(kinds(columns), lines > 1), 0);
        for (number, (line, time_ns, words)) in all.iter().enumerate() {
            head.push(*line, *time_ns, words).unwrap();
            if columns > 0 {
                assert_eq!(head.newest(*line), Some(&words[..]));
            }
            if number % 7 == 3 || number == 299 {
                let before = again.rows();
                let count = again.extend(head.bytes_since(offset)).unwrap();
                assert_eq!(before + count, head.rows());
                offset = head.len_bytes();
            }
        }
        assert_eq!(rows(&head), all);
        assert_eq!(rows(&again), all);
        assert_eq!(again.snapshot().bytes(), head.snapshot().bytes());
        assert_eq!((head.rows(), head.times_ns()), (300, Some((all[0].1, all[299].1))));
        // What goes on in either is the same.
        let (line, time_ns, words) = &some(301, columns as u64, lines)[300];
        [&mut head, &mut again].into_iter().for_each(|head| head.push(*line, *time_ns, words).unwrap());
        assert_eq!(again.bytes_since(offset), head.bytes_since(offset));
    }
}

#[test]
fn any_rows_come_back() {
    bolero::check!().with_type::<(u8, Vec<(u32, u8, u64, u8, u64)>)>().for_each(|(columns, moves)| {
        let columns = usize::from(*columns) + 1;
        let mut row = vec![0; columns];
        let mut all = vec![];
        for (line, range, time_ns, column, word) in moves {
            row[usize::from(*column) % columns] = *word;
            all.push((Line(line >> (range % 32)), *time_ns, row.clone()));
        }
        assert_eq!(rows(&pushed(&all, columns, true)), all);
    });
}

#[test]
fn rows_out_of_order_have_their_span() {
    let head = pushed(&[(Line(0), 9, vec![1]), (Line(0), 5, vec![1]), (Line(0), 7, vec![2])], 1, false);
    assert_eq!(head.times_ns(), Some((5, 9)));
}

#[test]
fn a_head_that_was_taken_begins_anew() {
    let all = some(100, 15, 4);
    let mut head = pushed(&all, 15, true);
    let bytes = head.bytes_since(0).to_vec();
    let (before, taken) = (head.snapshot(), head.take());
    assert_eq!(rows_of(&taken), all);
    assert_eq!((taken.len(), taken.times_ns(), taken.number()), (100, before.times_ns(), before.number()));
    assert_eq!((head.rows(), head.len_bytes(), head.newest(Line(0))), (0, 0, None));
    assert!(head.number() > taken.number());
    assert!(head.take().is_empty());
    all.iter().for_each(|(line, time_ns, words)| head.push(*line, *time_ns, words).unwrap());
    assert_eq!(head.bytes_since(0), bytes, "nothing is left of what was before");
    assert_eq!(rows_of(&before), all);
}

#[test]
fn damaged_bytes_change_nothing() {
    let all = some(40, 20, 3);
    let (first, second) = all.split_at(25);
    let mut whole = pushed(first, 20, true);
    let offset = whole.len_bytes();
    second.iter().for_each(|(line, time_ns, words)| whole.push(*line, *time_ns, words).unwrap());
    let added = whole.bytes_since(offset);
    let mut head = Head::new(kinds(20), true);
    head.extend(&whole.bytes_since(0)[..offset]).unwrap();
    let mut refused = 0;
    for bit in 0..added.len() * 8 {
        let mut damaged = added.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // Which bits cannot be right is not for the encoding to tell: the log has checksums.
        if head.extend(&damaged).is_err() {
            refused += 1;
            assert_eq!((head.rows(), head.len_bytes()), (25, offset));
        } else {
            head = Head::new(kinds(20), true);
            head.extend(&whole.bytes_since(0)[..offset]).unwrap();
        }
    }
    assert!(refused > 0);
    assert!(head.extend(&added[..added.len() - 1]).is_err(), "a part of a row");
    assert_eq!(head.extend(added), Ok(15));
    assert_eq!(rows(&head), all);
    assert_eq!((head.times_ns(), head.rows()), (whole.times_ns(), 40));
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    bolero::check!().with_type::<(u16, bool, Vec<u8>)>().for_each(|(columns, is_table, bytes)| {
        let mut head = Head::new(kinds(usize::from(*columns % 600)), *is_table);
        match head.extend(bytes) {
            Ok(count) => assert_eq!(rows(&head).len(), count as usize),
            Err(_) => assert_eq!((head.rows(), head.len_bytes()), (0, 0)),
        }
    });
}

#[test]
fn lines_are_bounded_the_same_for_all_who_come() {
    const COLUMNS: usize = 1 << 16;
    let row = vec![0; COLUMNS];
    let mut head = Head::new(kinds(COLUMNS), true);
    let mut lines = 0;
    while head.push(Line(lines), 1, &row).is_ok() {
        lines += 1;
    }
    assert!((60..65).contains(&lines), "{lines}");
    assert_eq!((head.rows(), rows(&head).len()), (lines, lines as usize));
    assert_eq!(head.push(Line(3), 2, &row), Ok(()), "those that are in it go on");
    // The same bytes with one line more.
    let bytes = head.bytes_since(0).to_vec();
    let mut again = Head::new(kinds(COLUMNS), true);
    assert_eq!(again.extend(&bytes), Ok(lines + 1));
    let mut narrow = Head::new(kinds(COLUMNS), true);
    narrow.push(Line(lines), 1, &row).unwrap();
    assert!(again.extend(narrow.bytes_since(0)).is_err());
    head.take();
    assert_eq!(head.push(Line(lines), 1, &row), Ok(()));
}

#[test]
fn memory_is_what_it_says() {
    let mut head = Head::new(kinds(700), false);
    assert!(head.memory_bytes() < 300);
    let all = some(256, 700, 1);
    all.iter().for_each(|(line, time_ns, words)| head.push(*line, *time_ns, words).unwrap());
    let least = 700 * 16 + head.len_bytes();
    assert!((least..least * 5 / 4 + 2_000).contains(&head.memory_bytes()), "{} of {least}", head.memory_bytes());
    let table = pushed(&some(2_000, 15, 1_000), 15, true);
    let least = 1_000 * (15 * 16 + 9) + table.len_bytes();
    assert!((least..least * 5 / 2).contains(&table.memory_bytes()), "{} of {least}", table.memory_bytes());
}
