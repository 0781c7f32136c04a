# SPDX-License-Identifier: Apache-2.0
"""Control groups of version 2 in the guest as container runtimes make them, with processes that use CPU, memory, files and a disk: every row of the tables `cgroups`,
`processes` and `tcp_connections` against the guest's own files; rows of groups that end, come again under their name, and come and go a thousand a minute."""
import socket
import time

from guest import ADDRESS, Failed, Verdict, files, holds, is_between, run, shell, until

ROOT = "/sys/fs/cgroup"
ID = [format(number, "x") * 64 for number in range(1, 7)]
LISTENER_PORT = 9200
# Path, runtime, name, and what is set of it.
GROUPS = [
    (f"/system.slice/docker-{ID[0]}.scope", "docker", ID[0][:12], {"cpu.max": "20000 100000", "pids.max": "64"}),
    (f"/docker/{ID[1]}", "docker", ID[1][:12], {}),
    (f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-{ID[2]}.scope", "containerd", ID[2][:12], {"memory.max": "67108864"}),
    (f"/kubepods.slice/kubepods-pod3_4.slice/crio-{ID[3]}.scope", "crio", ID[3][:12], {}),
    (f"/kubepods/burstable/pod5-6/{ID[4]}", "kubernetes", ID[4][:12], {"memory.max": "16777216"}),
    (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID[5]}.scope", "podman", ID[5][:12], {}),
    (r"/machine.slice/machine-qemu\x2d1\x2dweb.scope", "machine", "qemu-1-web", {}),
    ("/lxc.payload.db", "lxc", "db", {}),
    ("/system.slice/nginx.service", "none", "nginx.service", {"pids.max": "16"}),
]
# Which of them kills a process for want of memory.
TOO_SMALL = 4

# Little of each: a guest is emulated, and answers that take longer than 100 ms are too late for whoever reads it.
WORKER = """#!/bin/sh
# CPU, anonymous memory (the shell's own), page cache, and reads and writes of the disk, for ever.
dd if=/dev/zero of=/dev/shm/work-$1 bs=64k count=$((16 + $1 * 8)) 2>/dev/null
words=
while [ ${#words} -lt 200000 ]; do words=$words$words.; done
while :; do
    n=0
    while [ $n -lt 2000 ]; do n=$((n + 1)); done
    dd if=/dev/vda of=/dev/null bs=64k count=4 skip=$1 iflag=direct 2>/dev/null
    dd if=/dev/zero of=/dev/vda bs=64k count=2 seek=$1 oflag=direct 2>/dev/null
    sleep 0.5
done
"""

# What each metric is in cgroupfs: file, key in it, factor, counter or gauge, slack of a gauge. Values that a file gives as `max` are 0.
FILES = ["cpu.stat", "memory.current", "memory.stat", "memory.swap.current", "memory.peak", "memory.max", "memory.events", "io.stat", "pids.current", "pids.max",
         "cpu.pressure", "memory.pressure", "io.pressure"]
# Each CPU keeps back up to 64 pages of a charge (MEMCG_CHARGE_BATCH), and memory.stat is brought up to date every 2 s.
MEMORY_SLACK = 4 << 20


def expected(of):
    """The values of a group's files, by metric: value, and slack for gauges (None: a counter)."""
    def words(name):
        return {row.split()[0]: int(row.split()[1]) for row in of.get(name, "").splitlines() if len(row.split()) == 2}

    def number(name):
        text = of.get(name, "0").strip()
        return 0 if text in ("max", "") else int(text)

    def pressure(name, kind):
        rows = [row for row in of.get(name, "").splitlines() if row.startswith(kind)]
        return int(rows[0].rpartition("total=")[2]) / 1e6 if rows else 0

    def devices(key):
        pairs = [pair.split("=") for row in of.get("io.stat", "").splitlines() for pair in row.split()[1:]]
        return sum(int(value) for name, value in pairs if name == key)

    cpu, memory, events = words("cpu.stat"), words("memory.stat"), words("memory.events")
    found = {
        "container_cpu_usage_seconds_total": (cpu.get("usage_usec", 0) / 1e6, None),
        "container_cpu_user_seconds_total": (cpu.get("user_usec", 0) / 1e6, None),
        "container_cpu_system_seconds_total": (cpu.get("system_usec", 0) / 1e6, None),
        "container_cpu_cfs_periods_total": (cpu.get("nr_periods", 0), None),
        "container_cpu_cfs_throttled_periods_total": (cpu.get("nr_throttled", 0), None),
        "container_cpu_cfs_throttled_seconds_total": (cpu.get("throttled_usec", 0) / 1e6, None),
        "container_memory_usage_bytes": (number("memory.current"), MEMORY_SLACK),
        "container_memory_working_set_bytes": (max(0, number("memory.current") - memory.get("inactive_file", 0)), MEMORY_SLACK),
        "container_memory_rss": (memory.get("anon", 0), MEMORY_SLACK),
        "container_memory_cache": (memory.get("file", 0), MEMORY_SLACK),
        "container_memory_swap": (number("memory.swap.current"), MEMORY_SLACK),
        "container_memory_max_usage_bytes": (number("memory.peak"), MEMORY_SLACK),
        "container_spec_memory_limit_bytes": (number("memory.max"), 0),
        "container_memory_failcnt": (events.get("max", 0), None),
        "container_oom_events_total": (events.get("oom_kill", 0), None),
        "container_threads": (number("pids.current"), 3),
        "container_threads_max": (number("pids.max"), 0),
    }
    for metric, key in [("reads_bytes", "rbytes"), ("writes_bytes", "wbytes"), ("reads", "rios"), ("writes", "wios")]:
        found[f"container_fs_{metric}_total"] = (devices(key), None)
    for resource in ("cpu", "memory", "io"):
        for kind, name in [("some", "waiting"), ("full", "stalled")]:
            found[f"container_pressure_{resource}_{name}_seconds_total"] = (pressure(f"{resource}.pressure", kind), None)
    return found


def all_groups():
    """Every group of the guest: path to inode."""
    rows = run(f"cd {ROOT} && find . -type d -exec stat -c '%i %n' {{}} +").splitlines()
    return {(row.split(" ", 1)[1][1:] or "/"): int(row.split(" ", 1)[0]) for row in rows}


def dump(paths):
    """The files of these groups: path to file to content."""
    wanted = {f"{ROOT}{path if path != '/' else ''}/{name}": (path, name) for path in paths for name in FILES}
    found = {}
    for file, content in files(wanted).items():
        path, name = wanted[file]
        found.setdefault(path, {})[name] = content
    return found


def rows_of(reading):
    """Rows of `cgroups`: labels (without their order) to values by name; infos as their text."""
    rows = {}
    for sample in reading["samples"]:
        labels = sample["labels"]
        if "cgroup" not in labels:
            continue
        key = (labels["runtime"], labels["name"], int(labels["cgroup"]))
        rows.setdefault(key, {})[sample["name"]] = sample["value"]
    return rows


def read(agent):
    return rows_of(agent.fresh("--region", "cgroups", probe="container_threads"))


def make():
    """The groups, each with a worker that moves in before it does anything."""
    run("cat >/tmp/worker <<'END'\n" + WORKER + "END\nchmod +x /tmp/worker; mkdir -p /tmp/workers")
    for number, (path, _, _, limits) in enumerate(GROUPS):
        parts = path.strip("/").split("/")
        lines = ["set -e", f"cd {ROOT}"]
        for part in parts:
            lines += ["echo '+cpu +memory +io +pids' >cgroup.subtree_control", f"mkdir -p '{part}'", f"cd '{part}'"]
        lines += [f"echo '{value}' >{name}" for name, value in limits.items()]
        lines += [f"sh -c 'echo $$ >cgroup.procs; exec sh /tmp/worker {number}' >/dev/null 2>&1 &", f"echo $! >/tmp/workers/{number}"]
        run("\n".join(lines))
    # One more process in one of them, and one that is killed for want of memory: tmpfs is charged to who fills it.
    run(f"cd '{ROOT}{GROUPS[1][0]}' && {{ sh -c 'echo $$ >cgroup.procs; exec sleep 100000' >/dev/null 2>&1 & }}")
    shell(f"cd '{ROOT}{GROUPS[TOO_SMALL][0]}' && sh -c 'echo $$ >cgroup.procs; exec dd if=/dev/zero of=/dev/shm/too-much bs=4M count=8' >/dev/null 2>&1; rm -f /dev/shm/too-much")


def at_work():
    """Until each has read and written the disk, and used a CPU."""
    def all_work():
        found = dump(path for path, *_ in GROUPS)
        values = [expected(of) for of in found.values()]
        names = ["container_fs_reads_bytes_total", "container_fs_writes_bytes_total"]
        return all(of["container_cpu_usage_seconds_total"][0] > 0.1 and all(of[name][0] > 0 for name in names) for of in values)
    until("work in every group", all_work, timeout_s=180, pause_s=3)


def compare(agent, verdict):
    """All rows against all groups' files."""
    groups = all_groups()
    before = dump(groups)
    rows = read(agent)
    after = dump(groups)
    by_inode = {key[2]: (key, values) for key, values in rows.items()}
    for path, inode in groups.items():
        if path not in before or path not in after:
            continue
        if not verdict.check(inode in by_inode, f"{path} has no row"):
            continue
        values = by_inode[inode][1]
        low, high = expected(before[path]), expected(after[path])
        for metric, (value, slack) in low.items():
            there = values.get(metric)
            good = there is not None and is_between(there, value, high[metric][0], slack or 0)
            verdict.check(good, f"{path}: {metric} is {there}, its file had {value} and then {high[metric][0]}")
    verdict.check(set(by_inode) <= set(groups.values()), f"rows of groups that are not there: {set(by_inode) - set(groups.values())}")
    return groups, rows


def labels(rows, verdict):
    """Who runs what, and that something moved: a comparison of zeroes is none."""
    for path, runtime, name, _ in GROUPS:
        found = [values for key, values in rows.items() if key[:2] == (runtime, name)]
        if not verdict.check(len(found) == 1, f"{path}: {len(found)} rows of {runtime} {name}"):
            continue
        values = found[0]
        verdict.check(values["container_cpu_usage_seconds_total"] > 0.1, f"{path}: no CPU time")
        verdict.check(values["container_fs_reads_bytes_total"] > 0 and values["container_fs_writes_bytes_total"] > 0, f"{path}: no reads or writes of a disk")
        verdict.check(values["container_memory_usage_bytes"] > 1 << 20, f"{path}: no memory")

    def of(number):
        path, runtime, name, _ = GROUPS[number]
        return next(values for key, values in rows.items() if key[:2] == (runtime, name))

    verdict.check(of(0)["container_cpu_cfs_throttled_seconds_total"] > 0, "the group with a CPU limit was not throttled")
    verdict.check(of(TOO_SMALL)["container_oom_events_total"] > 0, "no process was killed for want of memory")
    verdict.check(of(1)["container_threads"] >= 2, "the group with two processes has fewer")


def infos(agent, verdict):
    """Path and whole id, beside the key."""
    paths = {}
    for sample in agent.read("--region", "cgroups", "onlooker_cgroup_*_info")["samples"]:
        paths.setdefault(int(sample["labels"]["cgroup"]), {})[sample["name"]] = sample["value"]
    groups = all_groups()
    for number, (path, runtime, _, _) in enumerate(GROUPS):
        found = paths.get(groups[path], {})
        verdict.check(found.get("onlooker_cgroup_path_info") == path, f"{path}: path is {found.get('onlooker_cgroup_path_info')}")
        if runtime in ("docker", "containerd", "crio", "kubernetes", "podman"):
            verdict.check(found.get("onlooker_cgroup_container_info") == ID[number], f"{path}: id is {found.get('onlooker_cgroup_container_info')}")


def processes(agent, verdict):
    """Rows by control group: how many processes, and that they use something."""
    counts = {path: len(content.split()) for path, content in
              ((path, files([f"{ROOT}{path}/cgroup.procs"]).get(f"{ROOT}{path}/cgroup.procs", "")) for path, *_ in GROUPS)}
    reading = agent.fresh("--region", "processes", probe="onlooker_process_processes")
    for path, runtime, name, _ in GROUPS:
        values = {sample["name"]: sample["value"] for sample in reading["samples"]
                  if sample["labels"].get("name") == name and sample["labels"].get("runtime") == runtime and "mode" not in sample["labels"] and "state" not in sample["labels"]}
        count = values.get("onlooker_process_processes", 0)
        # A dd or a sleep of the worker may come or go.
        verdict.check(1 <= count and abs(count - counts[path]) <= 2, f"{path}: {count} processes, cgroup.procs has {counts[path]}")
        verdict.check(values.get("onlooker_process_resident_bytes", 0) > 0, f"{path}: its processes have no memory")


def connections(agent, verdict):
    """A connection of this machine's to the guest, with what it has transferred."""
    run(f"nc -l -p {LISTENER_PORT} -e /bin/cat >/dev/null 2>&1 &")
    def connected():
        return socket.create_connection((ADDRESS, LISTENER_PORT), timeout=5)
    with until("a connection", connected) as connection:
        connection.sendall(b"x" * 1000)
        port, got = connection.getsockname()[1], 0
        while got < 1000:
            got += len(connection.recv(1000))
        reading = agent.fresh("--region", "tcp_*", probe="onlooker_tcp_connection_state")
        values = {sample["name"]: sample["value"] for sample in reading["samples"]
                  if sample["labels"].get("local_port") == str(LISTENER_PORT) and sample["labels"].get("remote_port") == str(port)}
        for metric, wanted in [("state", 1), ("received_bytes_total", 1000), ("acked_bytes_total", 1000), ("receive_queue_bytes", 0)]:
            there = values.get(f"onlooker_tcp_connection_{metric}")
            # The other end's SYN counts, where this one has answered it.
            verdict.check(there is not None and wanted <= there <= wanted + (metric == "acked_bytes_total"), f"connection: {metric} is {there}, not {wanted}")


def again(agent, verdict):
    """A group removed, and one of the same name made: another row that begins anew, and the old one gone."""
    path, runtime, name, _ = GROUPS[1]
    before = {key: values for key, values in read(agent).items() if key[:2] == (runtime, name)}
    group = f"{ROOT}{path}"
    run(f"echo 1 >'{group}/cgroup.kill'; while [ -n \"$(cat '{group}/cgroup.procs')\" ]; do sleep 0.1; done; rmdir '{group}' && mkdir '{group}'")
    inode = all_groups()[path]
    after = {key: values for key, values in read(agent).items() if key[:2] == (runtime, name)}
    if not verdict.check(len(before) == 1 and len(after) == 1, f"{path}: {len(before)} rows before, {len(after)} after"):
        return
    ((old, was), (new, now)) = (next(iter(before.items())), next(iter(after.items())))
    verdict.check(new[2] == inode and old[2] != inode, f"{path}: row {old}, then {new}, its inode is {inode}")
    verdict.check(was["container_cpu_usage_seconds_total"] > 0.05 and now["container_cpu_usage_seconds_total"] == 0, f"{path}: the new group has the old one's CPU time")
    verdict.check(now["container_threads"] == 0, f"{path}: the new group has {now['container_threads']} tasks")


def churn(agent, verdict, seconds):
    """A thousand groups a minute, a process in each, while they are read. No row is one that ended, or another's."""
    run(f"mkdir {ROOT}/churn && echo '+cpu +memory +pids' >{ROOT}/churn/cgroup.subtree_control")
    run(f"""rm -f /tmp/churned; /bin/sh -c 'renice -n 5 -p $$; n=0
while [ ! -e /tmp/churned ]; do
  n=$((n + 1)); g={ROOT}/churn/job-$n; mkdir $g
  sh -c "echo \\$\\$ >$g/cgroup.procs; exec sleep 0.3" &
  o=$((n - 20)); [ $o -lt 1 ] || rmdir {ROOT}/churn/job-$o || {{ sleep 1; rmdir {ROOT}/churn/job-$o; }}
  sleep 0.01
done; sleep 2; rmdir {ROOT}/churn/job-*; echo $n >/tmp/churned' >/tmp/churn.log 2>&1 &""")
    end, begin, seen, twice = time.time() + seconds, time.time(), {}, 0
    while time.time() < end:
        rows = read(agent)
        jobs = [(key, values) for key, values in rows.items() if key[1].startswith("job-")]
        twice += len(jobs) != len({key[1] for key, _ in jobs})
        verdict.check(len(jobs) <= 40, f"{len(jobs)} rows of short groups, of which 21 can live")
        for (_, name, inode), values in jobs:
            verdict.check(seen.setdefault(inode, name) == name, f"{name}: its cgroup {inode} was that of {seen[inode]}")
            verdict.check(values["container_threads"] <= 2 and values["container_cpu_usage_seconds_total"] < 5, f"{name}: values of another group: {values}")
    made, lasted = 0, time.time() - begin
    run("touch /tmp/churned")
    try:
        made = int(until("the end of the short groups", lambda: run("cat /tmp/churned").strip() or None))
    except Failed as error:
        raise Failed(f"{error}; {run(f'tail -n 5 /tmp/churn.log; ls -d {ROOT}/churn/job-*; ps')}") from error
    # On a slow machine a process may have been late for the group's end.
    until("the removal of the last of them", lambda: holds(f"rmdir {ROOT}/churn/job-*; ! ls -d {ROOT}/churn/job-*"))
    verdict.check(twice == 0, f"{twice} readings had two rows of one name")
    rows = read(agent)
    verdict.check(not [key for key in rows if key[1].startswith("job-")], "rows of groups that have ended stay")
    run(f"rmdir {ROOT}/churn")
    told = {sample["name"]: sample["value"] for sample in agent.read("--region", "cgroups", "onlooker_table_*")["samples"]}
    verdict.check(told.get("onlooker_table_failed_runs_total") == 0 and told.get("onlooker_table_rows_missing") == 0, f"the table tells of itself: {told}")
    print(f"containers: {made} groups came and went in {lasted:.0f} s ({made / lasted * 60:.0f} a minute), {len(seen)} of them seen", flush=True)


def check(agent, is_quick):
    """All of it."""
    verdict = Verdict("containers")
    verdict.attempt("groups as docker, containerd, cri-o, podman, kubernetes, lxc and machined make them", make)
    verdict.attempt("their processes at work", at_work)
    seen = {}

    def look():
        _, rows = compare(agent, verdict)
        seen["rows"] = rows
    for _ in range(1 if is_quick else 3):
        verdict.attempt("rows against the files of cgroupfs", look)
    verdict.attempt("labels, and that values move", lambda: labels(seen["rows"], verdict))
    verdict.attempt("paths and container ids", lambda: infos(agent, verdict))
    verdict.attempt("processes by control group", lambda: processes(agent, verdict))
    verdict.attempt("a connection", lambda: connections(agent, verdict))
    verdict.attempt("a group of the same name", lambda: again(agent, verdict))
    verdict.attempt("a thousand groups a minute", lambda: churn(agent, verdict, 10 if is_quick else 30))
    shell(f"find {ROOT} -name cgroup.kill -path '*/*/*' -exec sh -c 'echo 1 >\"$1\"' sh {{}} \\; ; rm -f /dev/shm/work-*")
    return verdict
