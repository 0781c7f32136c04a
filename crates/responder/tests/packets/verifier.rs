// SPDX-License-Identifier: Apache-2.0
//! How much of the verifier's budget (1,000,000 instructions) the programs take. Kernels differ: 6.1 takes most.

use onlooker_responder::Config;
use onlooker_responder::Responder;

/// A quarter of the limit: room for a kernel that walks more than those tested.
const MOST_INSNS: u32 = 250_000;

#[test]
#[allow(clippy::print_stdout)]
fn programs_stay_far_below_the_verifier_s_limit() {
    println!("{:12} {:5} {:>14} {:>16} {:>12}", "program", "roce", "verified_insns", "translated_insns", "jited_bytes");
    for roce in [false, true] {
        let responder = Responder::load(&Config { max_read_bytes: 8192, roce, ..Config::new(4792) }).unwrap();
        for (name, program) in responder.programs() {
            let info = program.info().unwrap();
            let (verified, translated, jited) = (info.verified_insns, info.translated_insns, info.jited_bytes);
            println!("{name:12} {roce:5} {verified:>14} {translated:>16} {jited:>12}");
            assert!(verified > 0 && verified < MOST_INSNS, "{name}, roce {roce}: {info:?}");
            assert!(jited > 0, "{name} is not compiled: switch the JIT on (net.core.bpf_jit_enable)");
        }
    }
}
