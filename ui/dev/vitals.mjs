// SPDX-License-Identifier: Apache-2.0
// How busy and how full the made-up hosts are: `/api/onlooker/v1/vitals`, and the series that a controller records of it.

import { crowdVital } from "./crowd.mjs";

const SAMPLED_MS = 5000;
const RESOURCES = ["cpu", "memory", "io"];
const KEYS = ["cpu", "cores", "load1", "memory", "swap", "filesystem", "mountpoint", "receive_bytes_per_s", "transmit_bytes_per_s", "retransmit"];

/** The time of a host's last values before `t`; null where it was not read. */
function endOf(fleet, host, t) {
  if (host.via === null) return null;
  const end = Math.min(t, fleet.newest(host, Date.now()) ?? 0);
  return t - end > 5000 ? null : end;
}

/** One of a host's vitals, as it was at `end`: the same times are asked for again and again. */
function vitalOf(fleet, host, end, key, resource) {
  if (host.crowd) return crowdVital(host, end, key, resource);
  const id = `${key} ${resource} ${end}`;
  if (!(host.vitals?.size < 20_000)) host.vitals = new Map();
  if (!host.vitals.has(id)) host.vitals.set(id, workedOut(fleet, host, end, key, resource));
  return host.vitals.get(id);
}

function workedOut(fleet, host, end, key, resource) {
  const series = fleet.byName(host);
  const all = (name, test = () => true) => (series.get(name) ?? []).filter(({ labels }) => test(labels));
  const sum = (items, at) => items.reduce((total, item) => total + item.at(at), 0);
  const rate = (items) => (sum(items, end) - sum(items, end - SAMPLED_MS)) / (SAMPLED_MS / 1000);
  const one = (name) => all(name)[0]?.at(end) ?? null;
  const share = (total, left) => (total === null || left === null || total === 0 ? null : 1 - left / total);
  const clamp = (value) => Math.min(1, Math.max(0, value));
  const fullest = () => all("node_filesystem_size_bytes").map((size) => {
    const { mountpoint } = size.labels;
    const [free, avail] = ["free", "avail"].map((part) => all(`node_filesystem_${part}_bytes`, (labels) => labels.mountpoint === mountpoint)[0]?.at(end));
    const used = size.at(end) - free;
    return { mountpoint, share: free === undefined || avail === undefined ? null : used / (used + avail) };
  }).filter((mount) => mount.share !== null).sort((a, b) => b.share - a.share)[0];
  const traffic = (direction) => rate(all(`node_network_${direction}_bytes_total`, ({ device }) => device !== "lo"));
  const [segments, again] = ["OutSegs", "RetransSegs"].map((name) => () => rate(all(`node_netstat_Tcp_${name}`)));
  const waiting = () => all(`node_pressure_${resource}_waiting_seconds_total`);
  return {
    cpu: () => clamp(1 - rate(all("node_cpu_seconds_total", ({ mode }) => mode === "idle" || mode === "iowait")) / host.cores), cores: () => host.cores, load1: () => one("node_load1"),
    memory: () => share(one("node_memory_MemTotal_bytes"), one("node_memory_MemAvailable_bytes")), swap: () => share(one("node_memory_SwapTotal_bytes"), one("node_memory_SwapFree_bytes")),
    filesystem: () => fullest()?.share ?? null, mountpoint: () => fullest()?.mountpoint ?? null, receive_bytes_per_s: () => traffic("receive"), transmit_bytes_per_s: () => traffic("transmit"),
    retransmit: () => (segments() + again() < 4 ? null : again() / (segments() + again())),
    pressure: () => (waiting().length === 0 ? null : clamp(rate(waiting()))),
  }[key]();
}

export function vitals(fleet, now) {
  const hosts = [...fleet.hosts.values()].flatMap((host) => {
    const end = endOf(fleet, host, now);
    if (end === null) return [];
    const one = { name: host.name, pressure: {} };
    for (const key of KEYS) one[key] = vitalOf(fleet, host, end, key);
    for (const resource of RESOURCES) one.pressure[resource] = vitalOf(fleet, host, end, "pressure", resource);
    return [one];
  });
  return { every_ms: SAMPLED_MS, hosts };
}

/** Names that the controller records them by. */
const RECORDED = {
  onlooker_host_cpu_ratio: "cpu", onlooker_host_memory_ratio: "memory", onlooker_host_filesystem_ratio: "filesystem",
  onlooker_host_receive_bytes_per_second: "receive_bytes_per_s", onlooker_host_transmit_bytes_per_second: "transmit_bytes_per_s", onlooker_host_retransmit_ratio: "retransmit", onlooker_host_pressure_ratio: "pressure",
};
/** Of what a host has at the end of a step: a made-up spread within it. */
const OVER = { min: 0.9, avg: 0.95, max: 1 };

/** The last questions, taken apart: a range asks each of them at every step. */
const asked = new Map();

function parsed(fleet, query) {
  if (asked.has(query)) return asked.get(query);
  if (asked.size > 20) asked.clear();
  const found = /^(?:round\()?(min|avg|max)_over_time\((\w+)\{(?:resource="(\w+)",)?instance(=~?)"((?:[^"\\]|\\.)*)"\}\[\d+s\]\)(?:(?:, ([\d.]+))?\))?$/s.exec(query);
  const key = RECORDED[found?.[2]];
  let result = null;
  if (key !== undefined) {
    const [, how, , resource, operator, quoted, step] = found;
    const text = quoted.replace(/\\(.)/g, "$1");
    const names = operator === "=" ? [text] : text.split("|").map((name) => name.replace(/\\(.)/g, "$1"));
    const digits = query.startsWith("round") ? (step?.split(".")[1]?.length ?? 0) : 17;
    result = { hosts: names.map((name) => fleet.hosts.get(name)).filter((host) => host !== undefined), key, resource, share: OVER[how], digits };
  }
  asked.set(query, result);
  return result;
}

function valueAt(fleet, host, { key, resource, share, digits }, t) {
  const end = endOf(fleet, host, t);
  const value = end === null ? null : vitalOf(fleet, host, end, key, resource);
  return value === null ? null : digits > 10 ? share * value : Number((share * value).toFixed(digits));
}

/** The value that `round(max_over_time(NAME{MATCHERS}[...]), ...)` has at `t`, by host, and those of `min` and `avg`; null: it is not one of these. */
export function recorded(fleet, query, t) {
  const question = parsed(fleet, query);
  return question && question.hosts.map((host) => ({ labels: { instance: host.name }, value: valueAt(fleet, host, question, t) })).filter(({ value }) => value !== null);
}

/** The same at many times, as a range has it. */
export function recordedRange(fleet, query, times) {
  const question = parsed(fleet, query);
  return question && question.hosts.map((host) => ({
    metric: { instance: host.name }, values: times.map((t) => [t, valueAt(fleet, host, question, t * 1000)]).filter(([, value]) => value !== null).map(([t, value]) => [t, String(value)]),
  })).filter(({ values }) => values.length > 0);
}
