// SPDX-License-Identifier: Apache-2.0
//! Group responder.

use onlooker_metrics::groups::Group;
use onlooker_responder::Exit;

use crate::regions::Collecting;
use crate::support::{Ask, Outcome, SIDES};

#[test]
fn counters_are_those_of_the_responder() {
    let collecting = Collecting::new(&[Group::RESPONDER]);
    let sum = |exit: Exit, side| -> f64 {
        let values = collecting.read(Group::RESPONDER, side);
        let exit = format!("exit={}}}", exit.name());
        values.iter().filter(|(name, _)| name.ends_with(&exit)).map(|(_, value)| value).sum()
    };
    for side in SIDES {
        for _ in 0..3 {
            assert_eq!(collecting.rig.run(side, &Ask::v4().rkey(9).frame()), Outcome::Drop(Exit::Rkey));
        }
        assert_eq!(collecting.rig.run(side, &Ask::v4().at(0, 12).frame()), Outcome::Drop(Exit::Profile));
        for &exit in &Exit::ALL {
            let counted = collecting.rig.responder.counters().unwrap().get(exit);
            #[allow(clippy::cast_precision_loss)]
            let counted = counted as f64;
            // The READ that asks is answered after its block is computed; several READs ask for several blocks.
            assert_eq!(sum(exit, side), counted, "{exit}");
            if matches!(exit, Exit::Rkey | Exit::Profile) {
                assert!(counted >= 1.0, "{exit}");
            }
        }
    }
}
