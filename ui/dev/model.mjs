// SPDX-License-Identifier: Apache-2.0
// Made-up hosts and values for development and tests. Every value is a function of time, so that `range` and `live` agree and nothing need be stored.

import { crowd } from "./crowd.mjs";
import { machine, tables } from "./machine.mjs";

const TAU = 2 * Math.PI;
/** Every 25 s a gap of 1.5 s; before the last minutes, every 400 s. */
const GAP = { every: 25_000, at: 12_000, length: 1500, rare: 16, often_ms: 150_000 };
/** On web-5 the reader is late: a row now and then, and for longer now and then. */
const LATE = [{ every: 3000, at: 1000, length: 20, reason: "late" }, { every: 47_000, at: 20_000, length: 1200, reason: "behind" }];
const RESET_EVERY_MS = 20_000;
/** Every ten minutes all CPUs are busy for two rows. */
const BURST = { every: 600_000, at: 300_000, length: 20, share: 0.98 };

/** A reproducible number 0..1 from a text. */
export function hash(text) {
  let h = 2166136261;
  for (const c of text) h = Math.imul(h ^ c.codePointAt(0), 16777619);
  h ^= h >>> 15;
  h = Math.imul(h, 2246822507);
  return ((h ^ (h >>> 13)) >>> 0) / 2 ** 32;
}

/** A wandering value 0..1 and its integral over time in seconds: sines of unrelated periods. */
function wave(key) {
  const parts = [47, 13.7, 5.3, 1.9, 0.71].map((period, i) => ({ w: TAU / (period * (0.8 + 0.4 * hash(key + i))), p: TAU * hash(`${key}p${i}`), a: [0.2, 0.12, 0.09, 0.06, 0.04][i] }));
  const base = 0.5;
  return {
    at: (s) => parts.reduce((sum, { w, p, a }) => sum + a * Math.sin(w * s + p), base),
    integral: (s) => parts.reduce((sum, { w, p, a }) => sum - (a / w) * Math.cos(w * s + p), base * s),
  };
}

const text = (name, labels) => {
  const inner = Object.keys(labels).sort().map((key) => `${key}="${labels[key]}"`).join(",");
  return inner === "" ? name : `${name}{${inner}}`;
};

const SHARES = { user: 0.52, nice: 0.03, system: 0.22, irq: 0.02, softirq: 0.12, steal: 0.01, iowait: 0.08 };
const GIB = 2 ** 30;

const adder = (out) => (name, labels, type, unit, help, resolution_ms, region, value, acquisition = "computed") =>
  out.push({ series: text(name, labels), name, labels, type, unit, help, resolution_ms, acquisition, region, at: value });

function makeSeries(host) {
  const out = [];
  const add = adder(out);
  const e0 = host.epoch / 1000;
  const inBurst = (t) => t >= host.epoch + BURST.at && (t - host.epoch - BURST.at) % BURST.every < BURST.length;
  const tick = host.via === "tcp" ? 10 : 0.001;
  const step = (s) => (tick < 1 ? s : Math.floor(s * 100) / 100);

  for (let core = 0; core < host.cores; core++) {
    const busy = wave(`${host.name}cpu${core}`);
    const scale = host.busy * (0.7 + 0.6 * hash(`${host.name}core${core}`));
    const spent = (s) => scale * (busy.integral(s) - busy.integral(e0));
    const unused = (s) => s - e0 - spent(s);
    const ended = [];
    /** Seconds of bursts so far: a share of what is idle then. */
    const bursts = (s) => {
      let sum = 0;
      for (let k = 0, from = e0 + BURST.at / 1000; from < s; k++, from += BURST.every / 1000) {
        const to = from + BURST.length / 1000;
        if (s >= to) sum += ended[k] ??= BURST.share * (unused(to) - unused(from));
        else sum += BURST.share * (unused(s) - unused(from));
      }
      return sum;
    };
    for (const [mode, share] of Object.entries(SHARES)) {
      const more = mode === "system" ? bursts : () => 0;
      add("node_cpu_seconds_total", { cpu: String(core), mode }, "counter", "seconds", "Seconds the CPUs spent in each mode.", tick, "node_cpu", (t) => step(share * spent(t / 1000) + more(t / 1000)));
    }
    add("node_cpu_seconds_total", { cpu: String(core), mode: "idle" }, "counter", "seconds", "Seconds the CPUs spent in each mode.", tick, "node_cpu", (t) => step(unused(t / 1000) - bursts(t / 1000)));
    if (host.via !== "tcp" && host.cores <= 8) {
      add("node_run_queue_length", { cpu: String(core) }, "gauge", "", "Runnable tasks on the CPU's run queue now.", 0.001, "node_sched", (t) => Math.max(0, Math.round(scale * 4 * busy.at(t / 1000) - 0.6)));
    }
  }
  for (const [name, seconds] of [["node_load1", 60], ["node_load5", 300], ["node_load15", 900]]) {
    const load = wave(host.name + name);
    add(name, {}, "gauge", "", `Load average over ${seconds / 60} min.`, 5000, "node_load", (t) => host.cores * host.busy * (0.5 + load.at((Math.floor(t / 5000) * 5 * 60) / seconds)));
  }
  const total = host.cores * 2 * GIB;
  const used = wave(`${host.name}memory`);
  const free = wave(`${host.name}free`);
  add("node_memory_MemTotal_bytes", {}, "gauge", "bytes", "Memory information field MemTotal.", 100, "node_memory", () => total);
  add("node_memory_MemAvailable_bytes", {}, "gauge", "bytes", "Memory information field MemAvailable.", 100, "node_memory", (t) => Math.round(total * (1 - 0.25 - 0.3 * used.at(t / 9000))));
  add("node_memory_MemFree_bytes", {}, "gauge", "bytes", "Memory information field MemFree.", 100, "node_memory", (t) => Math.round(total * (0.08 + 0.1 * free.at(t / 9000))));
  for (const [device, scale] of [["eth0", 90e6], ["eth1", 22e6], ["lo", 6e6]]) {
    for (const direction of ["receive", "transmit"]) {
      const rate = wave(host.name + device + direction);
      const factor = scale * (direction === "receive" ? 1 : 0.6) * host.busy;
      add(`node_network_${direction}_bytes_total`, { device }, "counter", "bytes", `Bytes ${direction === "receive" ? "received" : "transmitted"} by the device.`, 0.001, "node_network", (t) => Math.round(factor * (rate.integral(t / 1000) - rate.integral(e0))));
      add(`node_network_${direction}_packets_total`, { device }, "counter", "packets", `Packets ${direction === "receive" ? "received" : "transmitted"} by the device.`, 0.001, "node_network", (t) => Math.round((factor / 900) * (rate.integral(t / 1000) - rate.integral(e0))));
    }
  }
  const running = wave(`${host.name}running`);
  add("node_procs_running", {}, "gauge", "", "Number of processes in runnable state.", 0.001, "node_cpu", (t) => Math.max(1, Math.round(host.cores * host.busy * 2 * running.at(t / 1000))) + (inBurst(t) ? 3 * host.cores : 0));
  add("node_procs_blocked", {}, "gauge", "", "Number of processes blocked waiting for I/O to complete.", 0.001, "node_cpu", (t) => Math.max(0, Math.round(3 * running.at(t / 1000 + 99) - 1)));
  add("node_uname_info", { machine: "x86_64", nodename: host.name, release: "6.12.48", sysname: "Linux" }, "gauge", "", "Labeled system information as provided by the uname system call.", 0, "node_info", () => 1);

  const requests = wave(`${host.name}requests`);
  const grown = (s) => 900 * (requests.integral(s) - requests.integral(e0));
  add("app_requests_total", { pid: "4321", program: "shop" }, "counter", "requests", "Requests served; the fixture's program restarts every 20 s.", 0.001, "shop", (t) => Math.floor(grown(t / 1000) - grown((Math.floor(t / RESET_EVERY_MS) * RESET_EVERY_MS) / 1000)), "direct");
  for (let shard = 0; shard < 50; shard++) {
    const depth = wave(`${host.name}shard${shard}`);
    add("app_queue_depth", { pid: "4321", program: "shop", shard: String(shard) }, "gauge", "", "Requests that wait, by shard.", 0.001, "shop", (t) => Math.round(40 * depth.at(t / 1000)), "direct");
  }
  if (host.name.startsWith("web")) add("app_latency_seconds", { pid: "4321", program: "shop" }, "histogram", "seconds", "Time to serve a request.", 0.001, "shop", histogram(host.epoch), "direct");
  // What programs call things is theirs: markup, and text that runs from right to left.
  if (host.name === "cache-3") {
    const odd = { pid: "99", program: "odd", page: "<img src=x onerror=alert(1)>", title: "\u202eשלום עולם\u202c <b>odd</b>" };
    add("odd_pages_total", odd, "counter", "pages", "</p><script>document.title = 'odd'</script> Pages, \u202esegap\u202c.", 0.001, "odd", (t) => Math.floor(t / 1000 - e0), "direct");
    for (let page = 0; page < 130; page++) add("odd_queue_length", { ...odd, page: `<i>${page}</i>` }, "gauge", "", "Waits.", 0.001, "odd", () => page, "direct");
  }
  machine(host, add, wave);
  return out;
}

/** Two hills, of which one wanders; bucket bounds are quarter octaves from 16 us. Sums are kept every 100 ms. */
function histogram(epoch) {
  const BUCKETS = 48;
  const bounds = Array.from({ length: BUCKETS }, (_, k) => 16e-6 * 2 ** (k / 4)).concat([null]);
  const sums = [new Float64Array(BUCKETS + 1)];
  const middle = wave("latency");
  return (t) => {
    const want = Math.max(0, Math.floor((t - epoch) / 100));
    while (sums.length <= want) {
      const s = (epoch + sums.length * 100) / 1000;
      const peak = 10 + 14 * middle.at(s / 2);
      const slow = 34 + 3 * Math.sin(s / 7);
      sums.push(sums[sums.length - 1].map((sum, k) => sum + Math.floor(90 * Math.exp(-((k - peak) ** 2) / 9) + 9 * Math.exp(-((k - slow) ** 2) / 4) + 0.5)));
    }
    const kept = [...sums[want]].map((n, k) => [bounds[k], n]).filter(([, n]) => n > 0);
    return { bounds: kept.map(([bound]) => bound), counts: kept.map(([, n]) => n) };
  };
}

export class Fleet {
  /** `count`: of hosts in all; beyond the first ones they are a crowd. */
  constructor(now, count = 0) {
    this.epoch = Math.floor((now - 3_900_000) / RESET_EVERY_MS) * RESET_EVERY_MS;
    this.started = now;
    const names = [[8, "web"], [4, "db"], [4, "cache"], [6, "api"], [1, "batch"], [1, "edge"]].flatMap(([n, name]) => Array.from({ length: n }, (_, i) => `${name}-${i + 1}`));
    this.hosts = new Map(names.map((name, i) => [name, this.host(name, i)]));
    for (const host of crowd(Math.max(0, count - names.length), this.epoch, now)) this.hosts.set(host.name, host);
    const set = (name, change) => Object.assign(this.hosts.get(name), change);
    set("db-3", { state: "silent", since: now - 42_000 });
    set("batch-1", { state: "connecting", via: null, requester: null, since: now - 9000, error: "connect 10.0.4.1:7177: timed out; next try in 8 s. Does a firewall stand between? `onlooker doctor batch-1` tells." });
    set("edge-1", { state: "failed", via: null, requester: null, since: now - 600_000, error: "the agent refuses the token: give the token of `onlooker-agent token` on edge-1, then reload the targets" });
  }

  host(name, i) {
    const role = name.split("-")[0];
    const via = ["api-2", "api-5", "batch-1"].includes(name) ? "tcp" : name === "cache-4" ? "verbs" : "kernel";
    const requester = via === "kernel" ? "soft" : via;
    return {
      name, role, via, requester, index: i, state: "reading", since: this.epoch, error: null, epoch: this.epoch,
      address: `10.0.${["web", "db", "cache", "api", "batch", "edge"].indexOf(role)}.${Number(name.split("-")[1])}:7177`,
      labels: { dc: i % 3 === 0 ? "b" : "a", role, rack: `r${1 + (i % 4)}` },
      interval: role === "db" ? 100 : role === "batch" || role === "edge" ? 1000 : 10,
      cores: role === "db" ? 48 : 8, busy: 0.25 + 0.6 * hash(name), series: null,
    };
  }

  /** Without rows of tables. */
  machineOf(host) {
    host.machine ??= makeSeries(host);
    return host.machine;
  }

  seriesOf(host) {
    if (host.series === null) {
      host.series = [...this.machineOf(host)];
      tables(host, adder(host.series), wave);
    }
    return host.series;
  }

  byName(host) {
    if (host.named === undefined) {
      host.named = new Map();
      for (const item of this.seriesOf(host)) {
        if (!host.named.has(item.name)) host.named.set(item.name, []);
        host.named.get(item.name).push(item);
      }
    }
    return host.named;
  }

  /** Whether there is a value of `t`. */
  has(host, t) {
    if (t < this.epoch || host.via === null || host.state === "failed" || host.state === "connecting") return false;
    if (host.state === "silent" && t > host.since) return false;
    return !this.inGap(host, t) && (host.name !== "web-5" || LATE.every(({ every, at, length }) => { const since = (t - this.epoch) % every; return since <= at || since >= at + length; }));
  }

  /** Times between two others at which values change suddenly. */
  edges(from, to) {
    const first = this.epoch + BURST.at + Math.max(0, Math.floor((from - this.epoch - BURST.at) / BURST.every)) * BURST.every;
    return [first, first + BURST.every].flatMap((begin) => [0, 10, 20].map((ms) => begin + ms)).filter((t) => t > from && t < to);
  }

  inGap(host, t) {
    const at = (t - this.epoch) % GAP.every;
    return host.name === "web-1" && at > GAP.at && at < GAP.at + GAP.length && this.gapHappens(t - at);
  }

  gapHappens(period) {
    return period > this.started - GAP.often_ms || Math.round((period - this.epoch) / GAP.every) % GAP.rare === 0;
  }

  gaps(host, from, to) {
    const out = [];
    if (host.name === "web-5") {
      for (const { every, at, length, reason } of LATE) {
        const first = this.epoch + Math.max(0, Math.floor((from - this.epoch) / every)) * every + at;
        for (let start = first; start + length <= to; start += every) if (start + length > from) out.push({ from_ms: start, to_ms: start + length, reason });
      }
      return out.sort((a, b) => a.from_ms - b.from_ms);
    }
    if (host.name !== "web-1") return [];
    for (let start = this.epoch + GAP.at; start < to; start += GAP.every) {
      if (start + GAP.length > from && start + GAP.length <= to && this.gapHappens(start - GAP.at)) out.push({ from_ms: start, to_ms: start + GAP.length, reason: "timeout" });
    }
    return out;
  }

  newest(host, now) {
    if (host.via === null) return null;
    if (host.state === "silent") return host.since;
    return Math.floor((now - 2) / host.interval) * host.interval;
  }
}
