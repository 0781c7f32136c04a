// SPDX-License-Identifier: Apache-2.0
//! How much of the verifier's budget (1,000,000 instructions) the programs take. Kernels differ: 6.1 takes most.

use onlooker_kernel::Config;
use onlooker_kernel::Responder;

/// A quarter of the limit: room for a kernel that walks more than those tested.
const MOST_INSNS: u32 = 250_000;

#[test]
#[allow(clippy::print_stdout)]
fn programs_stay_far_below_the_verifier_s_limit() {
    let responder = Responder::load(&Config { max_read_bytes: 8192, ..Config::new(4792) }).unwrap();
    println!("{:12} {:>14} {:>16} {:>12}", "program", "verified_insns", "translated_insns", "jited_bytes");
    for (name, program) in responder.programs() {
        let info = program.info().unwrap();
        println!("{name:12} {:>14} {:>16} {:>12}", info.verified_insns, info.translated_insns, info.jited_bytes);
        assert!(info.verified_insns > 0 && info.verified_insns < MOST_INSNS, "{name}: {info:?}");
        assert!(info.jited_bytes > 0, "{name} is not compiled: switch the JIT on (net.core.bpf_jit_enable)");
    }
}
