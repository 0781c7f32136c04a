// SPDX-License-Identifier: Apache-2.0
//! Threads that help read the same.

use onlooker_promql::{Helpers, Options, Query, Times};

use super::fixture::{S, T0, World, description, gauge};
use crate::StoreSource;

const HOSTS: u32 = 60;

#[test]
fn an_answer_is_the_same_with_helpers() {
    let mut world = World::new();
    for host in 0..HOSTS {
        let track = world.track(&description(&format!("host-{host}"), vec![vec![gauge("one"), gauge("two")]]));
        for second in 0..90u32 {
            let word = |number: u32| (f64::from(host * number) + f64::from(second) / 7.0).to_bits();
            world.append(track, T0 + u64::from(second) * S, &[word(1), word(2)]);
        }
    }
    world.writer.turn().unwrap();
    let at = |second: u64| (T0 + second * S).cast_signed();
    let range = Times { start_ns: at(0), end_ns: at(89), step_ns: S.cast_signed() };
    for (text, times) in [
        ("one", range),
        ("sum(max_over_time(two[10s]))", range),
        ("{__name__=~\".+\"}", Times::instant(at(50))),
        ("one[1m]", Times::instant(at(70))),
    ] {
        let query = Query::parse(text, times).unwrap();
        let run = |threads: usize| {
            let options = Options { helpers: Helpers::new(threads), ..Options::default() };
            format!("{:?}", query.run(&StoreSource::new(&world.store), &options).unwrap())
        };
        let alone = run(0);
        assert!(alone.matches("host-").count() >= HOSTS.try_into().unwrap() || text.starts_with("sum"), "{alone}");
        assert_eq!(run(3), alone, "{text}");
    }
}
