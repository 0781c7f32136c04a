# SPDX-License-Identifier: Apache-2.0
"""What befalls a host while it is read: a CPU goes offline and comes back, network devices come, are renamed and go, BTF is hidden, the kernel is locked down. Values are
right or rows are gone, other regions have no gaps, and the agent says in one line what it has not got and serves the next best."""
import re
import time

from guest import Gaps, Verdict, files, holds, is_between, run, until

# All that is computed, and what of the rest is not made anew when CPUs or devices come and go.
STEADY = ["node_cpu", "node_load", "node_memory", "node_network", "node_netstat", "node_softnet", "node_sockstat", "node_stat", "node_schedstat", "node_pressure", "node_vmstat",
          "node_disk", "onlooker_responder", "onlooker_agent", "node_memory_sampled", "node_host_sampled", "node_cpu_sampled"]
MODES = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"]
# procfs rounds to ticks of 10 ms, each CPU for itself.
TICKS_S = 0.05
CPU1 = "/sys/devices/system/cpu/cpu1/online"


def gapless(gaps, verdict, what):
    """What the reader of gaps has seen."""
    found, readings = gaps.found, gaps.readings
    verdict.check(not found, f"{what}: gaps {found} in {readings} readings")
    verdict.check(readings > 5, f"{what}: only {readings} readings")
    print(f"faults: {what}: {readings} readings of all other regions, gaps: {found or 'none'}", flush=True)


# --- CPUs --------------------------------------------------------------------------------------------------------------------------------


def sums_of_procfs():
    """What procfs sums over all possible CPUs, as metric names have it."""
    found = files(["/proc/stat", "/proc/vmstat", "/proc/net/snmp"])
    sums = {}
    for row in found["/proc/stat"].splitlines():
        words = row.split()
        if words[0] == "cpu":
            sums.update({f"cpu {mode}": int(word) / 100 for mode, word in zip(MODES, words[1:])})
        elif words[0] in ("intr", "ctxt"):
            sums[words[0]] = int(words[1])
        elif words[0] == "softirq":
            sums["softirq"] = int(words[1])
        elif re.fullmatch(r"cpu\d+", words[0]):
            sums.update({f"{words[0]} {mode}": int(word) / 100 for mode, word in zip(MODES, words[1:])})
    for row in found["/proc/vmstat"].splitlines():
        name, value = row.split()
        if name in ("pgfault", "pgpgin", "pgpgout"):
            sums[name] = int(value)
    rows = [row.split() for row in found["/proc/net/snmp"].splitlines()]
    for names, values in zip(rows[::2], rows[1::2]):
        for name, value in zip(names[1:], values[1:]):
            if names[0] + name in ("Tcp:InSegs", "Tcp:OutSegs", "Udp:InDatagrams", "Udp:OutDatagrams"):
                sums[names[0] + name] = int(value)
    return sums


def sums_of(reading):
    """The same of a reading."""
    names = {"onlooker_interrupts_total": "intr", "onlooker_context_switches_total": "ctxt", "node_softirqs_functions_total": "softirq", "node_vmstat_pgfault": "pgfault",
             "node_vmstat_pgpgin": "pgpgin", "node_vmstat_pgpgout": "pgpgout", "node_netstat_Tcp_InSegs": "Tcp:InSegs", "node_netstat_Tcp_OutSegs": "Tcp:OutSegs",
             "node_netstat_Udp_InDatagrams": "Udp:InDatagrams", "node_netstat_Udp_OutDatagrams": "Udp:OutDatagrams"}
    sums = {}
    for sample in reading["samples"]:
        if sample["name"] == "node_cpu_seconds_total":
            for key in (f"cpu {sample['labels']['mode']}", f"cpu{sample['labels']['cpu']} {sample['labels']['mode']}"):
                sums[key] = sums.get(key, 0) + sample["value"]
        elif sample["name"] in names:
            key = names[sample["name"]]
            sums[key] = sums.get(key, 0) + sample["value"]
    return sums


def compare_cpus(agent, verdict, what):
    before = sums_of_procfs()
    ours = sums_of(agent.read("--region", "node_cpu", "--region", "node_stat", "--region", "node_vmstat", "--region", "node_netstat"))
    after = sums_of_procfs()
    for key, value in before.items():
        if key not in after:
            continue
        slack = TICKS_S if key.startswith("cpu") else 0
        there = ours.get(key)
        # Idle and iowait of a CPU that sleeps move to and fro between the two (docs/kernel-metrics.md), in procfs as well.
        slack = 0.2 if key.endswith(("idle", "iowait")) else slack
        verdict.check(there is not None and is_between(there, value, after[key], slack), f"{what}: {key} is {there}, procfs had {value} and then {after[key]}")
    return ours


def cpus(agent, verdict, rounds):
    verdict.check(holds(f"[ -w {CPU1} ]"), "CPU 1 cannot be taken offline here")
    compare_cpus(agent, verdict, "both CPUs")
    with Gaps(agent, STEADY) as gaps:
        for _ in range(rounds):
            last = sums_of(agent.read("--region", "node_cpu"))
            run(f"echo 0 >{CPU1}")
            ours = compare_cpus(agent, verdict, "CPU 1 offline")
            time.sleep(2)
            ours = compare_cpus(agent, verdict, "CPU 1 offline for 2 s")
            for mode in ("user", "system", "irq", "softirq"):
                key = f"cpu1 {mode}"
                verdict.check(key in ours and last[key] - TICKS_S <= ours[key] <= last[key] + 5, f"CPU 1 offline: {key} is {ours.get(key)}, last {last[key]}")
            run(f"echo 1 >{CPU1}")
            time.sleep(1)
            compare_cpus(agent, verdict, "CPU 1 back")
    gapless(gaps, verdict, "CPU 1 offline and back")


# --- devices -----------------------------------------------------------------------------------------------------------------------------

COUNTERS = {"receive_bytes": 0, "receive_packets": 1, "transmit_bytes": 8, "transmit_packets": 9}
TRAFFIC = "ping -q -c 5 -i 0.2 -w 10 192.0.2.2"


def devices_of_procfs():
    found = {}
    for row in run("cat /proc/net/dev").splitlines()[2:]:
        name, _, values = row.partition(":")
        values = values.split()
        found[name.strip()] = {counter: int(values[at]) for counter, at in COUNTERS.items()}
    return found


def devices_of(reading):
    """Counters by device, and in which regions it has a row."""
    found, regions = {}, {}
    names = {region["id"]: region["name"] for region in reading["regions"]}
    for sample in reading["samples"]:
        counter = re.fullmatch(r"node_network_(.*)_total", sample["name"])
        if not counter or counter[1] not in COUNTERS:
            continue
        device = sample["labels"]["device"]
        values = found.setdefault(device, {})
        values[counter[1]] = values.get(counter[1], 0) + sample["value"]
        regions.setdefault((device, counter[1]), set()).add(names[sample["region"]])
    return found, regions


def compare_devices(agent, verdict, what):
    """All devices, when the agent has sampled anew."""
    before = devices_of_procfs()
    ours, regions = devices_of(agent.fresh("--region", "node_network*", probe="node_network_mtu_bytes"))
    after = devices_of_procfs()
    for device, values in before.items():
        for counter, value in values.items():
            there = ours.get(device, {}).get(counter)
            good = there is not None and is_between(there, value, after[device][counter])
            verdict.check(good, f"{what}: {device} {counter} is {there}, procfs had {value} and then {after[device][counter]}")
    verdict.check(set(ours) <= set(after), f"{what}: rows of devices that are not there: {set(ours) - set(after)}")
    twice = {key: where for key, where in regions.items() if len(where) > 1}
    verdict.check(not twice, f"{what}: the same series in two regions: {twice}")


def devices(agent, verdict, rounds):
    run("ip netns add hot")
    with Gaps(agent, [region for region in STEADY if region != "node_network"]) as gaps:
        for number in range(rounds):
            # A veth counts per CPU (computed where the kernel says so), a dummy in a way of its own (sampled).
            run(f"""set -e
ip link add hot0 type veth peer name hot1 netns hot; ip addr add 192.0.2.1/24 dev hot0; ip link set hot0 up
ip -n hot addr add 192.0.2.2/24 dev hot1; ip -n hot link set hot1 up; ip -n hot link set lo up
ip link add hot2 type dummy; ip addr add 198.51.100.1/24 dev hot2; ip link set hot2 up
{TRAFFIC}; ping -q -c 2 -w 2 198.51.100.2 || true""")
            compare_devices(agent, verdict, f"round {number}: added")
            run(f"""set -e
ip link set hot0 down; ip link set hot0 name hot9; ip link set hot9 up; ip link set hot2 down; ip link set hot2 name hot0; ip link set hot0 up; {TRAFFIC}""")
            compare_devices(agent, verdict, f"round {number}: renamed, one to the other's name")
            run("ip link del hot9 && ip link del hot0")
            compare_devices(agent, verdict, f"round {number}: removed")
        # As fast as it goes: what is there must be of the device that has the name, each of which lives for less than a second.
        run("""rm -f /tmp/churned; /bin/sh -c 'renice -n 5 -p $$; n=0; while [ ! -e /tmp/churned ]; do n=$((n + 1))
ip link add hot0 type veth peer name hot1 netns hot; ip addr add 192.0.2.1/24 dev hot0; ip link set hot0 up; ip -n hot addr add 192.0.2.2/24 dev hot1; ip -n hot link set hot1 up
ping -q -c 1 -w 1 192.0.2.2; ip link set hot0 down; ip link set hot0 name hot5; ip link set hot5 up; ip link del hot5; done; echo $n >/tmp/churned' >/dev/null 2>&1 &""")
        end, readings, late = time.time() + 10, 0, agent.late
        while time.time() < end:
            ours, _ = devices_of(agent.read("--region", "node_network*"))
            readings += 1
            verdict.check({"lo", "eth0"} <= set(ours), f"devices that stay have rows: {sorted(ours)}")
            for device, values in ours.items():
                good = not device.startswith("hot") or (device in ("hot0", "hot5") and all(value < 200_000 for value in values.values()))
                verdict.check(good, f"devices as fast as it goes: {device} has {values}")
        run("touch /tmp/churned")
        made = until("the end of the fast devices", lambda: run("cat /tmp/churned").strip() or None)
        compare_devices(agent, verdict, "after many devices")
    gapless(gaps, verdict, f"{made} devices came, were renamed and went in 10 s ({readings} readings, {agent.late - late} of which tried again)")
    run("ip netns del hot")


# --- what the kernel does not give -------------------------------------------------------------------------------------------------------


def is_sampled(agent, verdict, reason):
    """The agent has no collectors: it says why in one line, and samples all of it for the kernel responder, which answers."""
    log = agent.log()
    lines = [row for row in log.splitlines() if "no kernel metrics are computed" in row]
    verdict.check(len(lines) == 1 and re.search(reason, lines[0]), f"the agent says {lines or log}")
    print("faults: the agent says: " + " | ".join(lines), flush=True)
    verdict.check("NO KERNEL RESPONDER" not in log, f"there is no kernel responder: {log}")
    # The agent's log is for people: a verifier's is not among it.
    strange = [row for row in log.splitlines() if not row.startswith("onlooker-agent: ")]
    verdict.check(not strange, f"lines in the agent's log that are nobody's: {strange[:5]}")
    before = sums_of_procfs()
    reading = agent.fresh(probe="node_cpu_seconds_total")
    after = sums_of_procfs()
    ours = sums_of(reading)
    for key in (f"cpu {mode}" for mode in ("user", "system", "softirq")):
        verdict.check(is_between(ours.get(key, -1), before[key], after[key], TICKS_S), f"{key} is {ours.get(key)}, procfs had {before[key]} and then {after[key]}")
    how = {acquisition for region in reading["regions"] for acquisition in region["acquisition"] if region["name"].startswith("node_")}
    verdict.check(how == {"sampled"}, f"how node_* are acquired: {how}")
    verdict.check(reading["host"]["via"] == "kernel", f"read via {reading['host']['via']}")


def without_btf(agent, verdict, parity):
    agent.stop()
    run("mount -t tmpfs tmpfs /sys/kernel/btf")
    try:
        agent.start()
        is_sampled(agent, verdict, "BTF")
        if parity:
            verdict.check(parity("no_btf"), "without BTF not every name is there, or equal")
    finally:
        agent.stop()
        run("umount /sys/kernel/btf")
    agent.start()
    verdict.check("no kernel metrics are computed" not in agent.log(), "with BTF again: they are computed")


def check(agent, is_quick, parity):
    """All of it, on a kernel that gives everything. `parity`: compares all names with node_exporter's."""
    verdict = Verdict("faults")
    rounds = 1 if is_quick else 3
    verdict.attempt("a CPU goes offline and comes back", lambda: cpus(agent, verdict, rounds))
    verdict.attempt("network devices come, are renamed and go", lambda: devices(agent, verdict, rounds))
    verdict.attempt("no BTF", lambda: without_btf(agent, verdict, None if is_quick else parity))
    return verdict


def check_lockdown(agent, parity):
    """On a kernel in lockdown."""
    verdict = Verdict("faults")

    def locked():
        verdict.check(holds("grep -qF '[confidentiality]' /sys/kernel/security/lockdown"), "the kernel is not in lockdown")
        is_sampled(agent, verdict, "lockdown|locked down")
        verdict.check(parity("lockdown"), "in lockdown not every name is there, or equal")
    verdict.attempt("lockdown=confidentiality", locked)
    return verdict
