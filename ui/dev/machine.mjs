// SPDX-License-Identifier: Apache-2.0
// More of the made-up hosts: disks, file systems, TCP, pressure; and tables of processes, control groups and ports. Values are functions of time, as in model.mjs.

const GIB = 2 ** 30;
/** When tables get new values. */
const TABLE_MS = 5000;
/** This host shows what a page does with thousands. */
const CROWDED = "cache-2";
const CROWD = 5000;

const FILESYSTEMS = [
  ["/dev/nvme0n1p1", "ext4", "/", 60, 0.41], ["/dev/nvme0n1p2", "ext4", "/var", 200, 0.55], ["/dev/nvme0n1p1", "ext4", "/srv/chroot", 60, 0.41], ["/dev/sda1", "xfs", "/data", 1800, 0.93], ["tmpfs", "tmpfs", "/run", 3, 0.02],
];
const DISKS = [["nvme0n1", 0.3, 40e6], ["sda", 0.7, 120e6], ["dm-0", 0.3, 40e6]];
const STATES = { established: 240, time_wait: 90, close_wait: 3, listen: 14, rx_queued_bytes: 4096 };

/** What every host has. `add` and `wave` are the model's; a counter is a rate times the integral of a wave. */
export function machine(host, add, wave) {
  const e0 = host.epoch / 1000;
  const counter = (name, labels, unit, help, rate, region, resolution = 0.001) => {
    const shape = wave(`${host.name}${name}${JSON.stringify(labels)}`);
    const quantum = unit === "seconds" ? 1e-6 : 1;
    add(name, labels, "counter", unit, help, resolution, region, (t) => Math.floor((rate * (shape.integral(t / 1000) - shape.integral(e0))) / quantum) * quantum);
  };
  const gauge = (name, labels, unit, help, at, region, resolution = 5000) => add(name, labels, "gauge", unit, help, resolution, region, at, resolution > 1000 ? "sampled" : "computed");
  for (const [device, fstype, mountpoint, gib, share] of FILESYSTEMS) {
    const labels = { device, fstype, mountpoint };
    const used = host.name === "db-2" && mountpoint === "/var" ? 0.976 : share;
    const grown = (t) => Math.min(0.99, used + 0.002 * Math.sin(t / 60_000));
    gauge("node_filesystem_size_bytes", labels, "bytes", "Filesystem size in bytes.", () => gib * GIB, "node_filesystem");
    gauge("node_filesystem_free_bytes", labels, "bytes", "Filesystem free space in bytes.", (t) => Math.round(gib * GIB * (1 - 0.95 * grown(t))), "node_filesystem");
    gauge("node_filesystem_avail_bytes", labels, "bytes", "Filesystem space available to non-root users in bytes.", (t) => Math.round(gib * GIB * 0.95 * (1 - grown(t))), "node_filesystem");
    gauge("node_filesystem_files", labels, "", "Filesystem total file nodes.", () => gib * 65536, "node_filesystem");
    gauge("node_filesystem_files_free", labels, "", "Filesystem total free file nodes.", () => Math.round(gib * 65536 * (1 - share / 3)), "node_filesystem");
    gauge("node_filesystem_readonly", labels, "", "Filesystem read-only status.", () => 0, "node_filesystem");
  }
  for (const [device, busy, bytes] of DISKS) {
    const disk = (name, unit, help, rate) => counter(`node_disk_${name}`, { device }, unit, help, rate * host.busy, "node_disk");
    disk("io_time_seconds_total", "seconds", "Total seconds spent doing I/Os.", busy);
    disk("read_bytes_total", "bytes", "The total number of bytes read successfully.", bytes);
    disk("written_bytes_total", "bytes", "The total number of bytes written successfully.", bytes / 3);
    disk("reads_completed_total", "", "The total number of reads completed successfully.", bytes / 16_000);
    disk("writes_completed_total", "", "The total number of writes completed successfully.", bytes / 60_000);
    disk("read_time_seconds_total", "seconds", "The total number of seconds spent by all reads.", busy * 1.5);
    disk("write_time_seconds_total", "seconds", "This is the total number of seconds spent by all writes.", busy);
    gauge("node_disk_io_now", { device }, "", "The number of I/Os currently in progress.", (t) => Math.floor(4 * busy * (1 + Math.sin(t / 777))), "node_disk", 0.001);
  }
  for (const [device, gbit, errors, drops] of [["eth0", 10, 0, 4], ["eth1", 1, 2, 0], ["lo", 0, 0, 0]]) {
    for (const direction of ["receive", "transmit"]) {
      counter(`node_network_${direction}_errs_total`, { device }, "", `Network device statistic ${direction}_errs.`, errors, "node_network_sampled", 5000);
      counter(`node_network_${direction}_drop_total`, { device }, "", `Network device statistic ${direction}_drop.`, direction === "receive" ? drops : 0, "node_network");
    }
    gauge("node_network_up", { device }, "", "Value is 1 if operstate is 'up', 0 otherwise.", () => (device === "lo" ? 0 : 1), "node_network_sampled");
    if (gbit > 0) gauge("node_network_speed_bytes", { device }, "bytes", "Network device property: speed_bytes", () => gbit * 125e6, "node_network_sampled");
  }
  for (const [name, rate] of [["Tcp_OutSegs", 42_000], ["Tcp_InSegs", 39_000], ["Tcp_RetransSegs", host.index % 5 === 1 ? 900 : 30], ["TcpExt_TCPTimeouts", 2], ["TcpExt_ListenDrops", 0], ["TcpExt_ListenOverflows", 0], ["Tcp_OutRsts", 3], ["Tcp_ActiveOpens", 25], ["Tcp_PassiveOpens", 140]]) {
    counter(`node_netstat_${name}`, {}, "", `Statistic ${name}.`, rate, "node_netstat");
  }
  gauge("node_netstat_Tcp_CurrEstab", {}, "", "Statistic TcpCurrEstab.", (t) => 240 + Math.round(20 * Math.sin(t / 9000)), "node_netstat", 0.001);
  gauge("node_sockstat_TCP_tw", {}, "", "Number of TCP sockets in state tw.", () => 90, "node_sockstat", 0.001);
  for (const [state, n] of Object.entries(STATES)) gauge("node_tcp_connection_states", { state }, "", "Number of connection states.", (t) => Math.round(n * (1 + 0.1 * Math.sin(t / 8000))), "node_sockets");
  for (const [resource, share] of [["cpu", 0.14], ["memory", 0.01], ["io", 0.08]]) {
    counter(`node_pressure_${resource}_waiting_seconds_total`, {}, "seconds", `Total time in seconds that processes have waited for ${resource}.`, share * host.busy, "node_pressure", 2000);
    if (resource !== "cpu") counter(`node_pressure_${resource}_stalled_seconds_total`, {}, "seconds", `Total time in seconds no process could make progress due to ${resource}.`, share * 0.3 * host.busy, "node_pressure", 2000);
  }
  for (const [name, rate] of [["pswpin", 3], ["pswpout", 5], ["pgmajfault", 12]]) counter(`node_vmstat_${name}`, {}, "", `/proc/vmstat information field ${name}.`, rate, "node_vmstat");
  gauge("node_memory_SwapTotal_bytes", {}, "bytes", "Memory information field SwapTotal.", () => 4 * GIB, "node_memory_sampled");
  gauge("node_memory_SwapFree_bytes", {}, "bytes", "Memory information field SwapFree.", (t) => Math.round(GIB * (3.2 + 0.1 * Math.sin(t / 30_000))), "node_memory_sampled");
  counter("node_context_switches_total", {}, "", "Total number of context switches.", 24_000 * host.busy, "node_cpu");
  counter("node_intr_total", {}, "", "Total number of interrupts serviced.", 15_000 * host.busy, "node_stat");
  gauge("node_boot_time_seconds", {}, "seconds", "Node boot time, in unixtime.", () => Math.floor(host.epoch / 1000) - 86_400 * (3 + host.index), "node_cpu");
  if (host.via === "kernel") counter("onlooker_responder_packets_total", { cpu: "0", exit: "answered" }, "", "Packets by the way they left the responder.", 1340, "onlooker_responder");
}

/** Rows of tables: who has them at all is as in a fleet, where some agents have them switched on. */
export function tables(host, add, wave) {
  if (!["web", "api", "cache"].includes(host.role)) return;
  const e0 = host.epoch / 1000;
  const last = (t) => Math.floor(t / TABLE_MS) * TABLE_MS;
  const table = (region) => ({
    counter: (name, labels, unit, help, rate, shape) => add(name, labels, "counter", unit, help, TABLE_MS, region, (t) => Math.floor(100 * rate * (shape.integral(last(t) / 1000) - shape.integral(e0))) / 100, "sampled"),
    gauge: (name, labels, unit, help, at) => add(name, labels, "gauge", unit, help, TABLE_MS, region, (t) => at(last(t)), "sampled"),
  });
  const single = host.role !== "api";
  const { counter, gauge } = table("processes");
  for (const [i, [name, cores, mib, read, hidden]] of [...PROCESSES, ...crowd(host)].entries()) {
    const labels = single ? { name, pid: String(name === "shop" ? 4321 : 700 + 37 * i) } : { name };
    const shape = wave(`${host.name}${name}${i}`);
    for (const [mode, share] of [["user", 0.8], ["system", 0.2]]) counter("onlooker_process_cpu_seconds_total", { ...labels, mode }, "seconds", "CPU time.", 2 * cores * share * host.busy, shape);
    gauge("onlooker_process_resident_bytes", labels, "bytes", "Memory that is in use, shared pages counted for each process.", (t) => Math.round(mib * 2 ** 20 * (1 + 0.05 * Math.sin(t / 20_000 + i))));
    gauge("onlooker_process_threads", labels, "", "Threads.", () => 1 + (i % 9));
    gauge("onlooker_process_processes", labels, "", "Processes.", () => (single ? 1 : 1 + (i % 4)));
    gauge("onlooker_process_unreadable", labels, "", "Of these, processes whose I/O the agent may not read.", () => (hidden ? 1 : 0));
    counter("onlooker_process_read_bytes_total", labels, "bytes", "Bytes read from block devices.", hidden ? 0 : read, shape);
    counter("onlooker_process_written_bytes_total", labels, "bytes", "Bytes written to block devices.", hidden ? 0 : read / 4, shape);
    counter("onlooker_process_major_faults_total", labels, "", "Page faults with I/O.", read / 2e7, shape);
  }
  groups(host, table("cgroups"), add, wave);
  ports(host, table("tcp_ports"), wave);
}

/** Name, cores, memory in MiB, bytes read each second, whether its I/O is hidden from the agent. */
const PROCESSES = [
  ["shop", 1.6, 820, 2e6], ["postgres", 0.7, 2400, 38e6], ["nginx", 0.35, 120, 4e5, true], ["java", 0.9, 3900, 1e6], ["redis-server", 0.22, 640, 0], ["kworker/0:1", 0.02, 0, 0], ["systemd", 0.004, 14, 0],
  ["onlooker-agent", 0.0009, 5, 0], ["sshd", 0.001, 9, 0, true], ["rsyslogd", 0.01, 22, 3e5], ["containerd", 0.03, 90, 2e4], ["dockerd", 0.02, 130, 1e4], ["chronyd", 0, 4, 0, true], ["cron", 0, 3, 0],
  ...Array.from({ length: 26 }, (_, i) => [`worker-${i}`, 0.05 / (i + 1), 60 + i, 0]),
];

function crowd(host) {
  return host.name === CROWDED ? Array.from({ length: CROWD - PROCESSES.length }, (_, i) => [`task-${i}`, i % 50 === 0 ? 0.01 : 0, 8 + (i % 60), 0]) : [];
}

function groups(host, { counter, gauge }, add, wave) {
  for (const [i, [name, runtime, path, cores, mib, limit]] of GROUPS.entries()) {
    const labels = { cgroup: String(1 + 64 * i), name, runtime };
    const shape = wave(`${host.name}${path}`);
    counter("container_cpu_usage_seconds_total", labels, "seconds", "Cumulative CPU time consumed.", 2 * cores * host.busy, shape);
    counter("container_cpu_cfs_throttled_seconds_total", labels, "seconds", "Total time duration the container has been throttled.", name === "8f3a0c1d2e4b" ? 0.2 : 0, shape);
    gauge("container_memory_usage_bytes", labels, "bytes", "Current memory usage, including all memory.", () => mib * 2 ** 20 * 1.2);
    gauge("container_memory_working_set_bytes", labels, "bytes", "Current working set.", (t) => Math.round(mib * 2 ** 20 * (1 + 0.03 * Math.sin(t / 15_000 + i))));
    gauge("container_spec_memory_limit_bytes", labels, "bytes", "Memory limit for the container.", () => limit * 2 ** 20);
    gauge("container_oom_events_total", labels, "", "Count of out of memory events.", () => (limit > 0 && mib / limit > 0.9 ? 2 : 0));
    gauge("container_threads", labels, "", "Number of threads running inside the container.", () => 3 + 5 * i);
    counter("container_fs_reads_bytes_total", labels, "bytes", "Cumulative count of bytes read.", cores * 4e6, shape);
    counter("container_fs_writes_bytes_total", labels, "bytes", "Cumulative count of bytes written.", cores * 1e6, shape);
    add("onlooker_cgroup_path_info", { ...labels, value: path }, "info", "", "Path of the group.", TABLE_MS, "cgroups", () => 1, "sampled");
  }
}

/** Name, runtime, path, cores, memory in MiB, its limit. */
const GROUPS = [
  ["", "none", "/", 4.2, 9800, 0], ["system.slice", "none", "/system.slice", 3.9, 9000, 0], ["8f3a0c1d2e4b", "docker", "/system.slice/docker-8f3a0c1d2e4b5f60.scope", 1.7, 970, 1024],
  ["51be77a0c9d3", "docker", "/system.slice/docker-51be77a0c9d3a1b2.scope", 0.9, 3900, 8192], ["c0ffee123456", "containerd", "/kubepods/pod7/c0ffee1234567890", 0.3, 600, 2048],
  ["postgresql.service", "none", "/system.slice/postgresql.service", 0.7, 2400, 0], ["onlooker-agent.service", "none", "/system.slice/onlooker-agent.service", 0.0009, 6, 64], ["ssh.service", "none", "/system.slice/ssh.service", 0.001, 12, 0],
];

function ports(host, { counter, gauge }, wave) {
  for (const [port, connections, queue, bytes] of [[443, 180, 3, 40e6], [80, 20, 0, 1e6], [5432, 44, 117, 9e6], [7177, 2, 0, 2e4], [22, 1, 0, 300], [0, 60, 0, 2e6]]) {
    const labels = { port: String(port) };
    const shape = wave(`${host.name}port${port}`);
    for (const [state, share] of [["established", 0.7], ["time_wait", 0.3], ["close_wait", 0]]) {
      gauge("onlooker_tcp_port_connections", { ...labels, state }, "", "Sockets.", (t) => Math.round(connections * share * (1 + 0.1 * Math.sin(t / 7000))));
    }
    gauge("onlooker_tcp_port_accept_queue", labels, "", "Connections that wait to be accepted.", () => queue);
    gauge("onlooker_tcp_port_accept_queue_limit", labels, "", "How many may.", () => (port === 0 ? 0 : 128));
    counter("onlooker_tcp_port_received_bytes_total", labels, "bytes", "Bytes received.", bytes / 4, shape);
    counter("onlooker_tcp_port_acked_bytes_total", labels, "bytes", "Bytes sent and acknowledged.", bytes, shape);
    counter("onlooker_tcp_port_sent_segments_total", labels, "", "Segments sent.", bytes / 1400, shape);
    counter("onlooker_tcp_port_retransmits_total", labels, "", "Segments sent again.", port === 443 ? bytes / 70_000 : 0, shape);
  }
}
