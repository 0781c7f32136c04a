// SPDX-License-Identifier: Apache-2.0
//! Who is asked next what it wants under way: hosts in a reading, by their class ([`Priority`]), and within it who has
//! waited longest first.
//!
//! Who gets something goes to the end. Who gets nothing keeps its place, and while that is for want of credit nobody
//! behind it gets any: large READs do not wait for small ones for ever. So whoever is refused is first after those that
//! have waited longer, and what is under way only shrinks until it goes. Cost: one move a host and round.

use crate::Priority;

/// How a host has fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// It has what it may have, or wants nothing now.
    Done,
    /// There is no room on its way: nothing to others.
    NoRoom,
    /// The credit of all is used up. Whether something went before.
    NoCredit {
        /// It did.
        some: bool,
    },
}

/// The line, by class.
#[derive(Debug)]
pub struct Line<T> {
    classes: [Vec<T>; Priority::COUNT],
    served: Vec<T>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { classes: [Vec::new(), Vec::new(), Vec::new()], served: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Line<T> {
    /// Somebody comes, last of its class.
    pub fn push(&mut self, who: T, priority: Priority) {
        self.classes[priority as usize].push(who);
    }

    /// Leaves only those for whom `keeps` is true.
    pub fn retain(&mut self, mut keeps: impl FnMut(T) -> bool) {
        self.classes.iter_mut().for_each(|class| class.retain(|who| keeps(*who)));
    }

    /// All in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.classes.iter().flatten().copied()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Serves each once, in order. `serve` is told who, and whether it is too late for credit: somebody before has not
    /// got all that it wants. True: somebody has not got all, for want of credit or room.
    pub fn serve(&mut self, mut serve: impl FnMut(T, bool) -> Served) -> bool {
        let Self { classes, served: done } = self;
        let (mut is_short, mut lacks) = (false, false);
        for class in classes {
            let mut kept = 0;
            for at in 0..class.len() {
                let who = class[at];
                let served = serve(who, is_short);
                match served {
                    Served::Done | Served::NoCredit { some: true } if !is_short => done.push(who),
                    _ => {
                        class[kept] = who;
                        kept += 1;
                    }
                }
                is_short |= matches!(served, Served::NoCredit { .. });
                lacks |= served != Served::Done;
            }
            class.truncate(kept);
            class.append(done);
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves with credit for so many; a capital letter has no room. Who was asked, and the line after.
    fn serve(line: &mut Line<char>, mut credit: u32, wants: u32) -> (String, String) {
        let mut asked = String::new();
        line.serve(|who, is_late| {
            if is_late {
                return Served::Done;
            }
            asked.push(who);
            if who.is_uppercase() {
                return Served::NoRoom;
            }
            let got = credit.min(wants);
            credit -= got;
            if got < wants { Served::NoCredit { some: got > 0 } } else { Served::Done }
        });
        (asked, line.iter().collect())
    }

    #[test]
    fn who_was_refused_comes_first_the_next_time() {
        let mut line = Line::default();
        "abCde".chars().for_each(|who| line.push(who, Priority::Normal));
        assert_eq!(serve(&mut line, 9, 1), ("abCde".into(), "Cabde".into()));
        assert_eq!(serve(&mut line, 1, 1), ("Cab".into(), "Cbdea".into()));
        assert_eq!(serve(&mut line, 3, 2), ("Cbd".into(), "Ceabd".into()), "a part is something, too");
        assert_eq!(serve(&mut line, 0, 1), ("Ce".into(), "Ceabd".into()), "nobody overtakes");
        line.retain(|who| who != 'C');
        line.push('f', Priority::Normal);
        assert_eq!(serve(&mut line, 5, 1), ("eabdf".into(), "eabdf".into()));
        assert_eq!((line.len(), line.is_empty()), (5, false));
        assert!(line.serve(|_, _| Served::NoRoom), "who has no room lacks something, too");
        assert!(!line.serve(|_, _| Served::Done));
    }

    #[test]
    fn each_class_has_what_those_before_it_leave() {
        let mut line = Line::default();
        for (who, priority) in
            [('n', Priority::Normal), ('l', Priority::Low), ('h', Priority::High), ('i', Priority::High)]
        {
            line.push(who, priority);
        }
        assert_eq!(serve(&mut line, 4, 1), ("hinl".into(), "hinl".into()));
        assert_eq!(serve(&mut line, 1, 1), ("hi".into(), "ihnl".into()), "within a class they take turns");
        assert_eq!(serve(&mut line, 3, 1), ("ihnl".into(), "ihnl".into()));
        line.retain(|who| who != 'n');
        assert_eq!((line.len(), serve(&mut line, 9, 1).0), (3, "ihl".into()));
    }

    /// With credit for one a round, n hosts are served once each in n rounds, whatever they were served before.
    #[test]
    fn each_gets_its_turn() {
        bolero::check!().with_type::<(u8, Vec<(u8, u8)>)>().for_each(|(hosts, before)| {
            let mut line = Line::default();
            (0..=*hosts % 20).for_each(|who| line.push(char::from(b'a' + who), Priority::Normal));
            for (credit, wants) in before {
                serve(&mut line, (*credit).into(), u32::from(*wants) + 1);
            }
            let mut got: Vec<char> = (0..line.len())
                .map(|_| {
                    let first = line.iter().next().unwrap();
                    serve(&mut line, 1, 1);
                    first
                })
                .collect();
            got.sort_unstable();
            got.dedup();
            assert_eq!(got.len(), line.len());
        });
    }
}
