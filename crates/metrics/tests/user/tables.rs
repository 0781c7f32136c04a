// SPDX-License-Identifier: Apache-2.0
//! Descriptor tables: values equal to procfs's, and tables that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use onlooker_metrics::user::check;
use onlooker_testbed::try_often;

use crate::reading::{BUDGET, Files, SLOT, Served, between, check_one, file, sum};
use crate::support::SIDES;

fn value(from: &str, more: &str) -> String {
    format!("[[value]]\nmetric = \"m\"\nkind = \"gauge\"\nfrom = \"{from}\"\n{more}\n")
}

fn table(values: &str) -> String {
    format!("name = \"test\"\n{values}")
}

#[test]
fn an_array_of_the_network_namespace_is_sysctl_s() {
    let files = Files::new();
    let text = table(&value(
        "net.ipv4.sysctl_tcp_rmem[*]",
        "label = \"limit\"\nlabel_values = [\"min\", \"default\", \"max\"]",
    ));
    let served = Served::new(files.check(&text).unwrap());
    assert_eq!(served.checked.region, "user_test");
    for side in SIDES {
        let values = served.read(side);
        let sysctl = file("/proc/sys/net/ipv4/tcp_rmem");
        let expected: Vec<f64> = sysctl.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let read = ["min", "default", "max"].map(|limit| values[&format!("m{{limit={limit}}}")]);
        assert_eq!(&read[..], &expected[..]);
    }
}

#[test]
fn events_of_each_cpu_are_vmstat_s() {
    let files = Files::new();
    let values = value("vm_event_states.event[PGFAULT]", "").replace("gauge", "counter");
    let served = Served::new(files.check(&table(&values)).unwrap());
    let pgfault = || {
        let text = file("/proc/vmstat");
        let line = text.lines().find(|line| line.starts_with("pgfault ")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<f64>().unwrap()
    };
    for side in SIDES {
        try_often("page faults", || {
            let before = pgfault();
            let values = served.read(side);
            assert!(values.contains_key("m{cpu=0}"), "{values:?}");
            between(sum(&values, "m"), before, pgfault())
        });
    }
}

#[test]
fn arrays_of_each_cpu_have_both_labels() {
    let files = Files::new();
    let text = table(&value("kstat.softirqs[*]", "label = \"type\""));
    let served = Served::new(files.check(&text).unwrap());
    // /proc/softirqs: a line a type, a column a CPU, of those that are online.
    let softirqs = || -> Vec<Vec<f64>> {
        let text = file("/proc/softirqs");
        let numbers = |line: &str| line.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect();
        text.lines().skip(1).map(numbers).collect()
    };
    try_often("softirqs", || {
        let before = softirqs();
        let values = served.read(SIDES[0]);
        let after = softirqs();
        assert_eq!(before.len(), 10);
        for (kind, (before, after)) in before.iter().zip(&after).enumerate() {
            let value = values[&format!("m{{cpu=0,type={kind}}}")];
            between(value, before[0], after[0]).map_err(|reason| format!("type {kind}: {reason}"))?;
        }
        Ok(())
    });
}

#[test]
fn pointers_of_alloc_percpu_are_followed_to_each_cpu() {
    let files = Files::new();
    let values = value("net.mib.tcp_statistics[cpu].mibs[TCP_MIB_ACTIVEOPENS]", "").replace("gauge", "counter");
    let served = Served::new(files.check(&table(&values)).unwrap());
    let opens = || {
        let text = file("/proc/net/snmp");
        let mut lines = text.lines().filter(|line| line.starts_with("Tcp: ")).map(|line| line.split(' '));
        let (mut names, mut numbers) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.position(|name| name == "ActiveOpens").unwrap();
        numbers.nth(at).unwrap().parse::<f64>().unwrap()
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for side in SIDES {
        try_often("active opens", || {
            let before = opens();
            let value = sum(&served.read(side), "m");
            assert!(value >= 1.0);
            between(value, before, opens())
        });
    }
}

#[test]
fn the_first_task_leads_to_its_namespaces_and_signs_are_kept() {
    let files = Files::new();
    let values = [
        value("init_task.nsproxy->pid_ns_for_children->pid_allocated", ""),
        value("init_task.prio", "labels = { of = \"first\" }"),
        value("init_task.nsproxy->net_ns->net_cookie", "labels = { of = \"net\" }"),
        value("init_net.net_cookie", "labels = { of = \"init_net\" }"),
        // 32 bits with a sign, as it was declared and as it is not.
        value("init_task.static_prio", "labels = { of = \"static\" }\nwidth = 4"),
        value("init_task.on_cpu", "labels = { of = \"unsigned\" }\nsigned = false"),
        value("proto:TCP.max_header", "labels = { of = \"protocol\" }"),
    ];
    let served = Served::new(files.check(&table(&values.concat())).unwrap());
    assert!(served.checked.lines[0].contains("behind 2 pointers"), "{:?}", served.checked.lines);
    for side in SIDES {
        let values = served.read(side);
        assert!(values["m{}"] >= 2.0, "processes of the first namespace: {values:?}");
        assert!((values["m{of=net}"] - values["m{of=init_net}"]).abs() < 0.5, "{values:?}");
        assert!((values["m{of=static}"] - 120.0).abs() < 0.5, "{values:?}");
        assert!(values["m{of=protocol}"] > 0.0, "{values:?}");
    }
}

#[test]
fn tables_of_several_blocks_are_cut_at_their_ends() {
    let files = Files::new();
    // 9 x 16 numbers of one byte: some stand in both blocks.
    let array = |number: u32| value("init_task.comm[*]", &format!("labels = {{ copy = \"{number}\" }}"));
    let text = table(&(0..9).map(array).collect::<String>());
    let served = Served::new(files.check(&text).unwrap());
    assert_eq!(served.checked.schema.blocks(), 2);
    for side in SIDES {
        let values = served.read(side);
        for copy in 0..9 {
            let bytes: Vec<u8> = (0..16)
                .map(|index| {
                    let value = values[&format!("m{{copy={copy},index={index}}}")];
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a byte")]
                    let byte = value as u8;
                    byte
                })
                .collect();
            assert!(bytes.starts_with(b"swapper"), "copy {copy}: {bytes:?}");
        }
    }
}

#[test]
fn what_cannot_be_had_is_refused_with_key_and_reason() {
    let files = Files::new();
    let cases = [
        (
            value("net.ipv4.sysctl_tcp_rnem", ""),
            "from: net.ipv4 is struct netns_ipv4, which has no member sysctl_tcp_rnem; it has: sysctl_tcp_rmem",
        ),
        (value("net->ipv4", ""), "from: net is struct net, no pointer: write .ipv4 in place of ->ipv4"),
        (value("net.loopback_dev.ifindex", ""), "is a pointer: write ->ifindex in place of .ifindex"),
        (value("net.loopback_dev", ""), "is a pointer: addresses of the kernel are told to nobody"),
        (value("net.ipv4", ""), "is struct netns_ipv4, no number; it has: "),
        (value("net.ipv4.sysctl_tcp_rmem", ""), "is an array of 3, no number: write [*]"),
        (value("net.ipv4.sysctl_tcp_rmem[3]", ""), "is an array of 3 elements, and [3] is behind them"),
        (value("net.ipv4.sysctl_tcp_rmem[NO_SUCH]", ""), "BTF has no enumerator of that name"),
        (value("net.ipv4.sysctl_tcp_rmem[*]", "count = 4"), "count = 4: BTF says 3 elements"),
        (value("net.ipv4.sysctl_tcp_rmem[*]", "label_values = [\"a\"]"), "as many as the array has elements"),
        (value("net.ipv4.sysctl_tcp_rmem[0]", "count = 2"), "write [*] where the elements differ"),
        (value("net.ipv4.sysctl_tcp_rmem[0]", "width = 8"), "width = 8: BTF says 4 bytes; leave width out"),
        (value("net.net_cookie[0]", ""), "no array"),
        (value("no_such_variable", ""), "there is no root no_such_variable: it is no per-CPU variable of BTF"),
        (value("net.net_cookie", "symbol_type = \"long\""), "symbol_type: leave it out"),
        (value("proto:NOTCP.max_header", ""), "the kernel has no protocol \"NOTCP\"; it has: "),
        (value("runqueues[cpu].nr_running", ""), "is of each CPU already: leave [cpu] out"),
        (
            value("runqueues.nr_running", "").replace("gauge", "counter").replace("nr_running", "cpu"),
            "the number has a sign: set signed = false",
        ),
        (value("init_task.comm[*]", "").repeat(2), "the same series"),
        (
            value("init_task.real_parent->real_parent->real_parent->real_parent->real_parent->pid", ""),
            "follows more than 4 pointers",
        ),
        (value("init_task.mm->map_count", ""), "cannot be read now: pointer 1 of the path is null"),
        (value("vm_event_states.event[*]", "").repeat(40), "are left of the 1984 of 16 blocks"),
    ];
    // All at once: what is looked up of the kernel is looked up once.
    let paths = cases.iter().enumerate().map(|(number, (values, _))| {
        files.put(&format!("{number:02}.toml"), format!("name = \"test{number}\"\n{values}"))
    });
    let checked = check(&paths.collect::<Vec<_>>(), BUDGET);
    assert_eq!(checked.len(), cases.len());
    for ((values, part), checked) in cases.iter().zip(checked) {
        let Err(error) = checked.map_err(|refusal| refusal.reason) else { panic!("{values} is taken") };
        assert!(error.contains(part), "{error}, not {part}");
    }
}

#[test]
fn a_table_over_its_budget_is_refused_with_the_figure() {
    let files = Files::new();
    let path = files.put("test.toml", table(&value("init_task.comm[*]", "")));
    let error = check_one(path.clone(), Duration::from_nanos(1)).unwrap_err();
    assert!(error.contains("block 0 takes ") && error.contains("the budget is 1 ns"), "{error}");
    let checked = check_one(path, Duration::from_millis(1)).unwrap();
    assert!(checked.cost_ns.len() == 1 && checked.cost_ns[0] > 1, "{:?}", checked.cost_ns);
}

#[test]
fn only_files_that_nobody_else_can_write_are_read() {
    let files = Files::new();
    let path = files.put("test.toml", table(&value("init_task.pid", "")));
    assert!(check_one(path.clone(), Duration::from_millis(1)).is_ok());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let error = check_one(path.clone(), Duration::from_millis(1)).unwrap_err();
    assert!(error.contains("can be written by others (mode 0666)"), "{error}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(files.dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = check_one(path.clone(), Duration::from_millis(1)).unwrap_err();
    assert!(error.contains("mode 0777"), "{error}");
    fs::set_permissions(files.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&path, Some(1), None).unwrap();
    let error = check_one(path, Duration::from_millis(1)).unwrap_err();
    assert!(error.contains("belongs to user 1"), "{error}");
}

#[test]
fn one_bad_file_is_nothing_to_the_others_and_names_are_taken_once() {
    let files = Files::new();
    let good = files.put("a.toml", table(&value("init_task.pid", "")));
    let bad = files.put("b.toml", "name = \n");
    let twice = files.put("c.toml", table(&value("init_task.pid", "")));
    let missing = files.dir.path().join("d.toml");
    let checked = check(&[good, bad, twice, missing], Duration::from_millis(1));
    let told: Vec<String> =
        checked.iter().map(|one| one.as_ref().map_or_else(ToString::to_string, |one| one.region.clone())).collect();
    assert_eq!(told[0], "user_test");
    assert!(told[1].contains("b.toml: line 1"), "{told:?}");
    assert!(told[2].contains("another file has this name"), "{told:?}");
    assert!(told[3].contains("d.toml: cannot be read"), "{told:?}");
}

#[test]
fn a_table_s_program_stays_far_below_the_verifier_s_limit() {
    let files = Files::new();
    let served = Served::new(files.check(&table(&value("init_task.pid", ""))).unwrap());
    let programs = served.checked.install(&served.rig.responder, SLOT).unwrap();
    assert_eq!(programs.len(), 2);
    // A tenth of it.
    assert!(
        programs.iter().all(|program| program.verified_insns > 0 && program.verified_insns < 100_000),
        "{programs:?}"
    );
}

#[test]
fn a_slot_that_is_not_there_is_refused() {
    let files = Files::new();
    let served = Served::new(files.check(&table(&value("init_task.pid", ""))).unwrap());
    assert!(served.checked.install(&served.rig.responder, 64).unwrap_err().contains("1 to 63"));
    assert!(served.block(SLOT, 0, SIDES[0]).is_ok());
}

#[test]
fn symbols_are_taken_where_kallsyms_lists_data() {
    let files = Files::new();
    let values = [
        value("avenrun[*]", "symbol_type = \"unsigned long\"\ncount = 3\nscale = 0.00048828125"),
        // A variable that is a pointer: the process that is told of Ctrl-Alt-Del.
        value("cad_pid->level", "symbol_type = \"struct pid\"\nlabels = { of = \"init\" }"),
    ];
    let checked = files.check(&table(&values.concat()));
    let symbols = file("/proc/kallsyms");
    if !["avenrun", "cad_pid"].iter().all(|name| symbols.lines().any(|line| line.ends_with(&format!(" {name}")))) {
        assert!(checked.unwrap_err().contains("there is no root avenrun"));
        return;
    }
    let served = Served::new(checked.unwrap());
    let loads = || file("/proc/loadavg").split(' ').take(3).map(|load| load.parse().unwrap()).collect::<Vec<f64>>();
    for side in SIDES {
        try_often("load averages", || {
            let before = loads();
            let values = served.read(side);
            let after = loads();
            assert!(values["m{of=init}"] < 0.5, "{values:?}");
            for index in 0..3 {
                let rounding = 0.0051;
                let (low, high) =
                    (before[index].min(after[index]) - rounding, before[index].max(after[index]) + rounding);
                between(values[&format!("m{{index={index}}}")], low, high)?;
            }
            Ok(())
        });
    }
    let untyped = files.check(&table(&value("avenrun[0]", ""))).unwrap_err();
    assert!(untyped.contains("symbol_type: is missing"), "{untyped}");
}
