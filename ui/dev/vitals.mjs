// SPDX-License-Identifier: Apache-2.0
// How busy and how full the made-up hosts are: `/api/onlooker/v1/vitals`, and the series that a controller records of it.

const SAMPLED_MS = 5000;

/** Of a host at a time; null where it was not read. */
export function vital(fleet, host, t) {
  if (host.via === null) return null;
  const end = Math.min(t, fleet.newest(host, Date.now()) ?? 0);
  if (t - end > 5000) return null;
  const series = fleet.byName(host);
  const all = (name, test = () => true) => (series.get(name) ?? []).filter(({ labels }) => test(labels));
  const sum = (items, at) => items.reduce((total, item) => total + item.at(at), 0);
  const rate = (items) => (sum(items, end) - sum(items, end - SAMPLED_MS)) / (SAMPLED_MS / 1000);
  const one = (name) => all(name)[0]?.at(end) ?? null;
  const share = (total, left) => (total === null || left === null || total === 0 ? null : 1 - left / total);
  const idle = all("node_cpu_seconds_total", ({ mode }) => mode === "idle" || mode === "iowait");
  const mounts = all("node_filesystem_size_bytes").map((size) => {
    const { mountpoint } = size.labels;
    const [free, avail] = ["free", "avail"].map((part) => all(`node_filesystem_${part}_bytes`, (labels) => labels.mountpoint === mountpoint)[0]?.at(end));
    const used = size.at(end) - free;
    return { mountpoint, share: free === undefined || avail === undefined ? null : used / (used + avail) };
  });
  const [fullest] = mounts.filter((mount) => mount.share !== null).sort((a, b) => b.share - a.share);
  const pressure = (resource) => (all(`node_pressure_${resource}_waiting_seconds_total`).length === 0 ? null : Math.min(1, Math.max(0, rate(all(`node_pressure_${resource}_waiting_seconds_total`)))));
  const traffic = (direction) => rate(all(`node_network_${direction}_bytes_total`, ({ device }) => device !== "lo"));
  return {
    name: host.name, cpu: Math.min(1, Math.max(0, 1 - rate(idle) / host.cores)), cores: host.cores, load1: one("node_load1"),
    memory: share(one("node_memory_MemTotal_bytes"), one("node_memory_MemAvailable_bytes")), swap: share(one("node_memory_SwapTotal_bytes"), one("node_memory_SwapFree_bytes")),
    filesystem: fullest?.share ?? null, mountpoint: fullest?.mountpoint ?? null, receive_bytes_per_s: traffic("receive"), transmit_bytes_per_s: traffic("transmit"),
    pressure: { cpu: pressure("cpu"), memory: pressure("memory"), io: pressure("io") },
  };
}

export function vitals(fleet, now) {
  return { every_ms: SAMPLED_MS, hosts: [...fleet.hosts.values()].map((host) => vital(fleet, host, now)).filter((one) => one !== null) };
}

const RECORDED = {
  onlooker_host_cpu_ratio: (one) => one.cpu,
  onlooker_host_memory_ratio: (one) => one.memory,
  onlooker_host_filesystem_ratio: (one) => one.filesystem,
  onlooker_host_receive_bytes_per_second: (one) => one.receive_bytes_per_s,
  onlooker_host_transmit_bytes_per_second: (one) => one.transmit_bytes_per_s,
  onlooker_host_pressure_ratio: (one, resource) => one.pressure[resource],
};

/** The value that `max_over_time(NAME{MATCHERS}[...])` has at `t`, by host; null: it is not one of these. */
export function recorded(fleet, query, t) {
  const found = /^max_over_time\((\w+)\{(?:resource="(\w+)",)?instance(=~?)"((?:[^"\\]|\\.)*)"\}\[\d+s\]\)$/s.exec(query);
  const get = RECORDED[found?.[1]];
  if (get === undefined) return null;
  const text = found[4].replace(/\\(.)/g, "$1");
  const wanted = found[3] === "=" ? (name) => name === text : (name) => new RegExp(`^(?:${text})$`).test(name);
  const samples = [...fleet.hosts.values()].filter(({ name }) => wanted(name)).map((host) => {
    const one = vital(fleet, host, t);
    return { labels: { instance: host.name }, value: one === null ? null : get(one, found[2]) };
  });
  return samples.filter(({ value }) => value !== null);
}
