// SPDX-License-Identifier: Apache-2.0
// Many made-up hosts, for tests of thousands: each is a few numbers, and its vitals are sums of two sines.

import { hash } from "./model.mjs";

const ROLES = ["web", "db", "cache", "api", "batch", "edge"];
const ZONES = ["a", "b", "c"];
/** Of a thousand: some are not read. */
const SILENT = 3;
const FAILED = 2;

/** Hosts node-00001, node-00002 and so on. */
export function crowd(count, epoch, now) {
  return Array.from({ length: count }, (_, i) => {
    const name = `node-${String(i + 1).padStart(5, "0")}`;
    const role = ROLES[i % ROLES.length];
    const state = i % 1000 < SILENT ? "silent" : i % 1000 < SILENT + FAILED ? "failed" : "reading";
    const via = state === "failed" ? null : "kernel";
    return {
      name, role, via, requester: via && "soft", index: i, state, since: state === "reading" ? epoch : now - 60_000, epoch, interval: 100, cores: 8, busy: 0.15 + 0.7 * hash(name), series: null, crowd: true,
      error: state === "failed" ? "connect: timed out" : null, address: `10.${1 + (i >> 16)}.${(i >> 8) & 255}.${i & 255}:7177`, labels: { zone: ZONES[i % 3], role, row: `r${1 + (i % 40)}` },
    };
  });
}

/** A share that wanders; each name of a value has a phase of its own. */
function wander(host, t, phase) {
  const s = t / 1000;
  return Math.min(1, Math.max(0, host.busy + 0.2 * Math.sin(s / 240 + host.index + phase) + 0.08 * Math.sin(s / 31 + 7 * host.index * (phase + 1))));
}

const VALUES = {
  cpu: (host, t) => wander(host, t, 0), cores: (host) => host.cores, load1: (host, t) => host.cores * wander(host, t, 0.2), memory: (host, t) => 0.2 + 0.7 * wander(host, t / 20, 1), swap: () => 0,
  filesystem: (host, t) => 0.1 + 0.85 * wander(host, t / 500, 2), mountpoint: (host) => (host.index % 2 === 0 ? "/" : "/var"),
  receive_bytes_per_s: (host, t) => 2e8 * wander(host, t, 3), transmit_bytes_per_s: (host, t) => 1e8 * wander(host, t, 4),
  retransmit: (host, t) => 0.02 * Math.max(0, wander(host, t, 8) - 0.5),
  pressure: (host, t, resource) => Math.max(0, wander(host, t, { cpu: 5, memory: 6, io: 7 }[resource]) - 0.6),
};

/** As `vitalOf` of vitals.mjs. */
export const crowdVital = (host, t, key, resource) => VALUES[key](host, t, resource);
