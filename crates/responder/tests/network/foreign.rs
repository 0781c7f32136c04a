// SPDX-License-Identifier: Apache-2.0
//! Other owners of a device's hooks: who comes first, who is left alone, who is refused.

use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_rs::{TC_INGRESS, TcHookBuilder, libbpf_sys as libbpf};
use onlooker_responder::{Error, Exit, Hook, Pinned, probe};
use onlooker_testbed::run;

use crate::requester::UdpRequester;
use crate::support::{exits, unlimited};
use crate::upgrade::Way;
use crate::world::{PORT, RESPONDER_DEVICE, World, device, programs_shown};

/// What somebody else's program says of every packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// `TC_ACT_UNSPEC`: whoever comes next may decide.
    Next = -1,
    /// `TC_ACT_OK`: into the stack, whatever others would say.
    Ok = 0,
    /// `TC_ACT_SHOT`.
    Drop = 2,
}

/// A program of two instructions that returns a constant.
fn constant(program_type: u32, name: &std::ffi::CStr, value: i32) -> OwnedFd {
    // mov64 r0, value; exit: linux/bpf.h, struct bpf_insn.
    let instructions = [
        libbpf::bpf_insn { code: 0xb7, imm: value, ..Default::default() },
        libbpf::bpf_insn { code: 0x95, ..Default::default() },
    ];
    // SAFETY: name and licence are NUL-terminated, there are as many instructions as stated, null options are allowed; the result is a new descriptor.
    unsafe {
        let (name, licence) = (name.as_ptr(), c"GPL".as_ptr());
        let fd = libbpf::bpf_prog_load(program_type, name, licence, instructions.as_ptr(), 2, std::ptr::null_mut());
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

fn foreign(verdict: Verdict) -> OwnedFd {
    constant(libbpf::BPF_PROG_TYPE_SCHED_CLS, c"somebody_tc", verdict as i32)
}

/// At tcx ingress, behind those that are there.
fn link(program: &OwnedFd, attach_type: u32, flags: u32) -> OwnedFd {
    let sz = size_of::<libbpf::bpf_link_create_opts>() as libbpf::size_t;
    let options = libbpf::bpf_link_create_opts { sz, flags, ..Default::default() };
    let index = i32::try_from(device().index()).unwrap();
    // SAFETY: the options outlive the call; the result is a new descriptor.
    unsafe {
        let fd = libbpf::bpf_link_create(program.as_raw_fd(), index, attach_type, &raw const options);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(fd)
    }
}

fn filter(program: &OwnedFd, priority: u32) {
    let index = i32::try_from(device().index()).unwrap();
    let mut hook = TcHookBuilder::new(program.as_fd()).ifindex(index).priority(priority).handle(1).hook(TC_INGRESS);
    if !programs_shown().contains("clsact") {
        hook.create().unwrap();
    }
    hook.attach().unwrap();
}

/// Attaches both, in this order, by these ways; whether a READ is answered, and what the responder counted.
fn both(ours_first: bool, ours: Way, verdict: Verdict, theirs_by_filter: bool) -> (bool, Vec<(Exit, u64)>) {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    let program = foreign(verdict);
    let theirs = || {
        (!theirs_by_filter).then(|| link(&program, libbpf::BPF_TCX_INGRESS, 0)).or_else(|| {
            // Kernels choose 49152 downwards for filters without a priority.
            filter(&program, if ours_first { 50_000 } else { 1 });
            None
        })
    };
    let mut links = Vec::new();
    if !ours_first {
        links.extend(theirs());
    }
    // The packet before the last checks: the neighbour table is filled while nobody drops ARP.
    run(
        "ip",
        &["neighbour", "replace", crate::world::REQUESTER_IP4, "lladdr", "02:00:00:00:77:02", "dev", RESPONDER_DEVICE],
    );
    world.at_requester(|| {
        let device = crate::world::REQUESTER_DEVICE;
        run("ip", &["neighbour", "replace", crate::world::RESPONDER_IP4, "lladdr", "02:00:00:00:77:01", "dev", device]);
    });
    ours.attach(&world, &responder);
    if ours_first {
        links.extend(theirs());
    }
    let answered = UdpRequester::new(&world, false).read_at(0, 1024).is_some();
    let counted = exits(&responder.counters().unwrap());
    // Nothing of theirs goes with ours.
    responder.home().purge().unwrap();
    if theirs_by_filter {
        let shown = run("tc", &["filter", "show", "dev", RESPONDER_DEVICE, "ingress"]);
        assert!(shown.contains("somebody_tc"), "{shown}");
    }
    (answered, counted)
}

#[test]
fn whoever_is_first_decides_and_unspecified_means_the_next() {
    let mut tried = 0;
    for ours in [Way::Tc, Way::Filter] {
        for theirs_by_filter in [false, true] {
            for ours_first in [false, true] {
                for verdict in [Verdict::Next, Verdict::Ok, Verdict::Drop] {
                    if !probe::has_tcx() && (ours == Way::Tc || !theirs_by_filter) {
                        continue;
                    }
                    // tcx links run before clsact filters, whichever was first.
                    let ours_runs_first = match (ours, theirs_by_filter) {
                        (Way::Tc, true) => true,
                        (Way::Filter, false) => false,
                        _ => ours_first,
                    };
                    let expected = ours_runs_first || verdict == Verdict::Next;
                    let counted = if expected { vec![(Exit::Answered, 1)] } else { vec![] };
                    assert_eq!(
                        both(ours_first, ours, verdict, theirs_by_filter),
                        (expected, counted),
                        "ours {ours:?}, first {ours_first}; theirs by filter {theirs_by_filter}, says {verdict:?}"
                    );
                    tried += 1;
                }
            }
        }
    }
    assert!(tried >= 6);
}

#[test]
fn another_xdp_program_is_refused_by_its_name_and_no_obstacle_to_tc() {
    let world = World::new();
    let responder = world.responder(&unlimited(PORT));
    // XDP_PASS.
    let program = constant(libbpf::BPF_PROG_TYPE_XDP, c"somebody_xdp", 2);
    for (mode, flags) in [("native", libbpf::XDP_FLAGS_DRV_MODE), ("generic", libbpf::XDP_FLAGS_SKB_MODE)] {
        let theirs = link(&program, libbpf::BPF_XDP, flags);
        let error = responder.attach(&device(), Hook::Xdp).unwrap_err();
        assert!(matches!(&error, Error::Taken { hook: Hook::Xdp, .. }), "{error}");
        let text = error.to_string();
        let words = [RESPONDER_DEVICE, &format!("{mode} XDP program somebody_xdp (id "), "use tc, or stop the other"];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(responder.attachments(), []);
        let ours = responder.attach(&device(), Hook::Tc).unwrap();
        assert!(UdpRequester::new(&world, false).read_at(0, 1024).is_some(), "{mode}");
        responder.detach(&ours).unwrap();
        // Closing is not enough: a process that another test is just starting has the descriptor, too, until it executes.
        // SAFETY: the link is open.
        assert_eq!(unsafe { libbpf::bpf_link_detach(theirs.as_raw_fd()) }, 0);
    }
    responder.attach(&device(), Hook::Xdp).unwrap();
}

#[test]
fn a_purge_removes_our_qdisc_and_nobody_else_s() {
    for made_before in [false, true] {
        let world = World::new();
        let responder = world.responder(&unlimited(PORT));
        if made_before {
            run("tc", &["qdisc", "add", "dev", RESPONDER_DEVICE, "clsact"]);
        }
        responder.attach_by_filter(&device()).unwrap();
        let home = responder.home().clone();
        Pinned::open(&home).unwrap().home().purge().unwrap();
        assert_eq!(programs_shown().contains("clsact"), made_before);
    }
}
