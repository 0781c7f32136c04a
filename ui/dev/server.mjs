// SPDX-License-Identifier: Apache-2.0
// A controller that is none: docs/http.md over the made-up hosts of model.mjs, for development and tests only. `node dev/server.mjs --serve dist [--port 8080] [--hosts 10000]`.
// POST /fixture {"silence":"web-2"} | {"wake":"web-2"} | {"remove":"web-2"} | {"restore":"web-2"} | {"exceed":"web-2"} | {"empty":true} | {"down":true} | {"token":"secret"} changes what it plays;
// {"drop":true} breaks all streams, {"skip":2000} loses their rows for so many ms, as for a page that is too slow;
// {"boards":"writable"} | {"boards":"fixed"} makes boards as they were, {"board":{"name":"x","file":{...}}} writes one as somebody else.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { Fleet, hash } from "./model.mjs";
import * as boards from "./boards.mjs";
import { COLUMNS, columns } from "./columns.mjs";
import { vitals } from "./vitals.mjs";
import * as promql from "./promql.mjs";
import * as searched from "./search.mjs";

const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
export const CSP = "default-src 'self'";

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function start(root, port = 0, hosts = 0) {
  await boards.reset();
  const fleet = new Fleet(Date.now(), hosts);
  // Made before somebody searches all of it, host by host, so that nobody waits for long meanwhile. Of thousands nobody does.
  const left = hosts === 0 ? [...fleet.hosts.values()] : [];
  const make = () => {
    const host = left.pop();
    if (host === undefined) return;
    if (host.via !== null) fleet.seriesOf(host);
    setTimeout(make, 20).unref();
  };
  make();
  /** `asked`: requests of the own interface so far. */
  const play = { quiet: false, rules: true, empty: false, down: false, token: null, removed: null, exceed: null, asked: 0 };
  const server = createServer((request, response) => {
    handle(fleet, play, root, request, response).catch((error) => {
      const status = error instanceof Refusal ? error.status : 500;
      if (!(error instanceof Refusal)) console.error(error);
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify({ error: error.message }));
    });
  });
  return new Promise((done) => server.listen(port, "127.0.0.1", () => done({ url: `http://127.0.0.1:${server.address().port}/`, close: () => { server.closeAllConnections(); server.close(); } })));
}

async function handle(fleet, play, root, request, response) {
  const url = new URL(request.url, "http://x/");
  const parts = url.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (url.pathname === "/fixture") return control(fleet, play, request, response);
  if (url.pathname === "/login" && request.method === "POST") {
    if (JSON.parse(await body(request)).token !== play.token) throw new Refusal(401, "wrong token");
    return response.writeHead(204, { "Set-Cookie": "onlooker=1; HttpOnly; SameSite=Strict" }).end();
  }
  if (url.pathname === "/asked") return response.writeHead(200, { "Content-Type": "application/json" }).end(String(play.asked));
  if (parts[0] !== "api") return file(root, url.pathname, response);
  const isPrometheus = parts[1] === "v1";
  if (!isPrometheus) play.asked++;
  if (play.down) return request.destroy();
  if (play.token !== null && !(request.headers.cookie ?? "").includes("onlooker=1")) throw new Refusal(401, "this controller asks for a token: log in");
  const json = (value) => response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" }).end(JSON.stringify(value));
  if (isPrometheus && parts[2] === "alerts") return json({ status: "success", data: { alerts: play.quiet ? [] : alerts(fleet) } });
  if (isPrometheus && parts[2] === "rules") return json({ status: "success", data: { groups: play.rules ? RULES : [] } });
  const known = isPrometheus ? promql.metadata(fleet, [parts[2], parts[3]], url.searchParams) : undefined;
  if (known !== undefined) return json({ status: "success", data: known });
  const form = isPrometheus ? new URLSearchParams(await body(request)) : null;
  const answered = form !== null && promql.answer(fleet, parts[2], form);
  if (answered && answered.status === 200 && parts[2] === "query_range" && (request.headers.accept ?? "").includes(COLUMNS)) {
    return response.writeHead(200, { "Content-Type": COLUMNS, Vary: "Accept" }).end(columns(answered.body, form));
  }
  if (answered) return response.writeHead(answered.status, { "Content-Type": "application/json" }).end(JSON.stringify(answered.body));
  const [, , , what, name, sub] = parts;
  if (what === "status") return json(status(fleet, play));
  if (what === "vitals") return json(play.empty ? { every_ms: 5000, hosts: [] } : vitals(fleet, Date.now()));
  if (what === "boards") {
    const [status, headers, text] = boards.answer(request.method, name, request.headers, await body(request));
    return response.writeHead(status, headers).end(text);
  }
  if (what === "live") {
    if (url.searchParams.get("host") === play.removed) throw new Refusal(404, `no host \`${play.removed}\` is watched`);
    return live(fleet, url.searchParams, request, response);
  }
  const there = play.empty ? [] : [...fleet.hosts.values()].filter((host) => host.name !== play.removed);
  if (what === "search") {
    allow(url.searchParams, "search", "host", "limit");
    return json(searched.find(fleet, there, play.rules ? RULES : [], url.searchParams));
  }
  if (what === "metrics" && sub === "hosts") {
    allow(url.searchParams, "search", "limit");
    return json(searched.hostsOf(fleet, there, name, url.searchParams));
  }
  if (what !== "hosts") throw new Refusal(404, `no such path ${url.pathname}`);
  if (name === undefined) return json(list(fleet, play, url.searchParams));
  const host = fleet.hosts.get(name);
  if (host === undefined || name === play.removed) throw new Refusal(404, `no host \`${name}\` is watched; /api/onlooker/v1/hosts lists those that are`);
  if (sub === undefined) {
    const over = name === play.exceed ? [{ quota: "series", of: "programs", limit: 50_000, used: 1200, rows: 560, since_ms: Date.now() - 60_000, last_ms: Date.now() }] : [];
    return json({ ...summary(fleet, host), over_quota: over, regions_list: regions(fleet, host) });
  }
  if (sub === "telemetry") return json(telemetry(parts[6], parts[7], url.searchParams));
  if (sub === "series") return json(series(fleet, host, url.searchParams));
  if (sub === "range") return json(range(fleet, host, url.searchParams));
  throw new Refusal(404, `no such path ${url.pathname}`);
}

/** A made-up collector: each second an event. */
function telemetry(table, entries, parameters) {
  const began = Math.floor(Date.now() / 1000) - 100;
  const flow = (number) => `10.0.${number % 4}.${number % 200}:443>10.0.9.9:${40_000 + (number % 400)}/tcp`;
  if (table === undefined) {
    allow(parameters);
    const known = { "flow_paths": ["key-write", 20], drops: ["append", 18], flow_bytes: ["key-increment", 8] };
    return { tables: Object.entries(known).map(([name, [primitive, payload_bytes]], number) => ({ name, number, primitive, payload_bytes, places: 4096, bytes: 131_072 })) };
  }
  if (entries !== undefined) {
    allow(parameters, "after", "format");
    const from = Number((parameters.get("after") ?? `${began}.${began}`).split(".")[1]);
    const to = began + 100;
    const numbers = Array.from({ length: Math.max(0, to - from) }, (_, at) => from + at);
    return { entries: numbers.map((number) => ({ number, age_ms: (to - number) * 1000, entry: `${flow(number)} 6 3` })), lost: 0, next: `${to}.${to}` };
  }
  allow(parameters, "key", "format", "strict", "copies");
  const key = parameters.get("key");
  if (!key.includes(">") && !/^[0-9.]+$/.test(key)) throw new Refusal(400, `"${key}" is no key or payload`);
  if (table === "flow_bytes") return { keys: [{ key, count: 154_000, count_before: 1_500_000 }], epoch: 3, began_ms: Date.now(), before_began_ms: Date.now() - 60_000 };
  return { keys: [key.includes(">") ? { key, outcome: "value", value: "1,6,3,0,0", age_ms: 230, copies: 2, disputed: false } : { key, outcome: "empty" }] };
}

const rule = (name, query, duration, more = {}) => ({ name, query, duration, type: "alerting", health: "ok", evaluationTime: 0.0021, lastEvaluation: new Date().toISOString(), labels: {}, ...more });
const RULES = [
  {
    name: "hosts", file: "shipped", interval: 10, rules: [
      rule("HostSilent", "onlooker_host_up == 0", 30), rule("DiskFull", "node_filesystem_avail_bytes / node_filesystem_size_bytes < 0.03", 300),
      rule("MemoryShort", "node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes < 0.05", 300),
    ],
  },
  { name: "shop", file: "/etc/onlooker/rules/shop.yml", interval: 0.5, rules: [rule("shop:visits:rate1m", "sum by (instance) (rate(shop_visits_total[1m]))", 0, { type: "recording", health: "err", lastError: "the query takes more than 10 s" })] },
];

/** Those of the hosts that are not read, and some of others. */
function alerts(fleet) {
  const alert = (alertname, instance, severity, state, age_s, value, summary, labels = {}) =>
    ({ labels: { alertname, instance, severity, ...labels }, annotations: { summary }, state, activeAt: new Date(Date.now() - age_s * 1000).toISOString(), value: String(value) });
  const silent = [...fleet.hosts.values()].filter((host) => host.state === "silent" || host.state === "failed");
  return [
    alert("DiskFull", "db-2", "warning", "pending", 95, "2.4e-02", "/var of db-2 has 2.4% left", { device: "/dev/nvme0n1p2", fstype: "ext4", mountpoint: "/var" }),
    ...silent.map((host) => alert("HostSilent", host.name, "critical", "firing", (Date.now() - host.since) / 1000, "0e+00", `${host.name} has not been read for half a minute or more`)),
    alert("MemoryShort", "db-3", "warning", "firing", 700, "4.1e-02", "db-3 has 4.1% of its memory left"),
  ];
}

async function body(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

async function control(fleet, play, request, response) {
  const { silence, wake, remove, restore, drop, skip, boards: written, board, ...rest } = JSON.parse(await body(request));
  if (drop) for (const stream of streams) stream.response.destroy();
  if (skip) for (const stream of streams) stream.skipUntil = Date.now() + skip;
  if (silence) Object.assign(fleet.hosts.get(silence), { state: "silent", since: Date.now() });
  if (wake) Object.assign(fleet.hosts.get(wake), { state: "reading", since: Date.now() });
  if (remove) {
    play.removed = remove;
    for (const stream of streams) stream.response.destroy();
  }
  if (restore) play.removed = null;
  if (written) await boards.reset(written === "writable");
  if (board) boards.put(board.name, board.file);
  Object.assign(play, rest);
  response.writeHead(204).end();
}

async function file(root, path, response) {
  const name = normalize(path === "/" ? "/index.html" : path);
  try {
    const content = await readFile(join(root, name));
    response.writeHead(200, { "Content-Type": TYPES[extname(name)] ?? "application/octet-stream", "Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff" }).end(content);
  } catch {
    throw new Refusal(404, `no such file ${name}`);
  }
}

function allow(parameters, ...known) {
  for (const name of parameters.keys()) if (!known.includes(name)) throw new Refusal(400, `unknown parameter ${name}: known are ${known.join(", ")}`);
}

function status(fleet, play) {
  const now = Date.now();
  const hosts = { reading: 0, connecting: 0, silent: 0, failed: 0 };
  if (!play.empty) for (const host of fleet.hosts.values()) hosts[host.state]++;
  const wobble = Math.sin(now / 3000);
  return {
    version: "0.1.0", started_ms: fleet.epoch, now_ms: now, hosts, reads_per_s: 13_400 + 90 * wobble, blocks_per_s: 21_000 + 130 * wobble, rows_per_s: 2010 + 14 * wobble,
    credits: { total_bytes: 4_194_304, in_flight_bytes: Math.round(61_440 + 20_000 * wobble), decreases: 2 },
    store: { bytes: 1_834_567_890 + (now - fleet.started) * 90, max_bytes: 10_737_418_240, hot_bytes: 8_388_608, durable_lag_ms: 640 + 80 * wobble, oldest_ms: fleet.epoch, failed: null },
  };
}

/** All hosts, or those that have changed since a time and those that are wanted in any case. */
function list(fleet, play, parameters) {
  allow(parameters, "since", "fresh");
  const now = Date.now();
  const since = play.empty || !parameters.has("since") ? null : Number(parameters.get("since"));
  const fresh = new Set(parameters.getAll("fresh"));
  const found = play.empty ? [] : [...fleet.hosts.values()].filter((host) => since === null || host.since >= since || fresh.has(host.name));
  const hosts = found.map((host) => summary(fleet, host));
  return { hosts, gone: [], whole: since === null, cursor: now, total: hosts.length };
}

const seriesCount = (fleet, host) => (host.crowd ? 1240 : fleet.machineOf(host).length);

function summary(fleet, host) {
  const now = Date.now();
  const newest = fleet.newest(host, now);
  const ran = Math.max(0, (newest ?? fleet.epoch) - fleet.epoch);
  const cycles = host.via === null ? 0 : Math.floor(ran / host.interval);
  const h = hash(host.name);
  const p50 = { tcp: 160 + 40 * h, kernel: 38 + 9 * h, verbs: 12 + 3 * h }[host.via] ?? 0;
  const jitter = 1 + 0.03 * Math.sin(now / 2000 + 9 * h);
  const gaps = host.name === "web-1" ? { timeout: fleet.gaps(host, fleet.epoch, now).length } : h > 0.75 ? { timeout: Math.round(4 * h), torn: 1 } : {};
  const read = host.via !== null;
  return {
    name: host.name, address: host.address, labels: host.labels, state: host.state, via: host.via, requester: host.requester, since_ms: host.since, error: host.error, interval_ms: host.interval, priority: host.priority ?? "normal",
    age_ms: newest === null ? null : now - newest, clock_error_ms: read ? 0.04 + 0.1 * h : null, regions: read ? 7 : 0, series: read ? seriesCount(fleet, host) : 0, cycles,
    late: read ? Math.floor(ran / 400_000 + 9 * h) : 0, gaps, invalid_samples: {},
    reads: {
      done: cycles * 7, repeated: read ? Math.round(30 * h) : 0, timed_out: gaps.timeout ?? 0, refused: 0, retries: read ? { busy: Math.round(cycles / 9000), torn: Math.round(3 * h) } : {},
      latency_us: read ? { p50: p50 * jitter, p90: p50 * 1.35 * jitter, p99: p50 * (2 + 2 * h) * jitter, max: 900 + 9000 * h } : null,
    },
    lateness_us: read ? { p50: 9 + 6 * h, p99: 60 + 90 * h, max: 500 + 3000 * h } : null,
  };
}

function regions(fleet, host) {
  if (host.via === null) return [];
  const now = Date.now();
  const names = [...new Set(fleet.seriesOf(host).map((item) => item.region))];
  return names.map((name) => {
    const members = fleet.seriesOf(host).filter((item) => item.region === name);
    return {
      name, labels: name === "shop" ? { pid: "4321", program: "shop" } : {}, acquisition: [members[0].acquisition], via: [host.via], bytes: 1024 * Math.ceil(members.length / 60), pid: name === "shop" ? 4321 : 812,
      uid: name === "shop" ? 1000 : 0, orphan: false, age_ms: now - fleet.newest(host, now), problem: name === "node_info" && host.name === "web-2" ? "block 0: bad CRC, read 8 times" : null, series: members.length,
    };
  });
}

const publicPart = ({ at, ...rest }, value) => ({ ...rest, value: at === undefined ? null : value });

function series(fleet, host, parameters) {
  allow(parameters, "search", "metric", "limit", "by");
  const limit = Number(parameters.get("limit") ?? 100);
  const all = searched.seriesOf(fleet, host, parameters.get("search") ?? "", parameters.get("metric")).map(({ item }) => item);
  const t = fleet.newest(host, Date.now());
  const counts = new Map();
  for (const { name } of all) counts.set(name, (counts.get(name) ?? 0) + 1);
  const byMetric = parameters.get("by") === "metric";
  const found = byMetric ? [...counts].map(([name, count]) => ({ ...all.find((item) => item.name === name), count })) : all;
  return { series: found.slice(0, limit).map((item) => publicPart(item, item.at(t))), more: found.length > limit, total: found.length };
}

function wanted(fleet, host, parameters) {
  const byText = new Map(fleet.seriesOf(host).map((item) => [item.series, item]));
  return parameters.getAll("series").map((text) => byText.get(text) ?? (() => { throw new Refusal(404, `${host.name} has no series ${text}`); })());
}

/** Of whole milliseconds, seconds, tens of seconds or minutes, as long as one of these. */
function bucketOf(ms) {
  const unit = [60_000, 10_000, 1000, 1].find((unit) => ms >= unit) ?? 1;
  return Math.ceil(ms / unit) * unit;
}

function range(fleet, host, parameters) {
  allow(parameters, "series", "from_ms", "to_ms", "points");
  const [from, to] = [Number(parameters.get("from_ms")), Number(parameters.get("to_ms"))];
  const newest = fleet.newest(host, Date.now()) ?? 0;
  const points = Number(parameters.get("points") ?? 1000);
  if (!(points >= 1 && points <= 5000)) throw new Refusal(400, "points must be 1 to 5000");
  if (!(from <= to)) throw new Refusal(400, "from_ms must not be after to_ms");
  const rows = (to - from) / host.interval;
  const bucket = rows > points ? bucketOf((to - from) / points) : 0;
  const times = [];
  const step = Math.max(bucket, host.interval);
  for (let t = Math.ceil(Math.max(from, fleet.epoch) / step) * step; t <= Math.min(to, newest); t += step) if (fleet.has(host, t)) times.push(t);
  const gaps = fleet.gaps(host, from, to);
  const bridged = (t0, t1) => t1 - t0 > step * 1.5;
  /** Times of rows in the bucket that ends at `t`: some, and those where something happens. */
  const within = (t) => (bucket === 0 ? [t] : [...new Set([...[0.8, 0.6, 0.4, 0.2, 0].map((part) => t - part * bucket), ...fleet.edges(t - bucket, t)])].sort((a, b) => a - b));
  const series = wanted(fleet, host, parameters).map((item) => {
    const values = times.map((t) => item.at(t));
    const base = { series: item.series, type: item.type, t_ms: times };
    if (item.type === "histogram") {
      const all = [...new Set(values.flatMap((value) => value.bounds))].sort((a, b) => (a ?? Infinity) - (b ?? Infinity));
      const maps = values.map((value) => new Map(value.bounds.map((bound, k) => [bound, value.counts[k]])));
      const counts = maps.map((map, i) => (i === 0 || bridged(times[i - 1], times[i]) ? null : all.map((bound) => (map.get(bound) ?? 0) - (maps[i - 1].get(bound) ?? 0))));
      return { ...base, bounds: all, counts };
    }
    if (item.type === "counter") {
      const rateOf = (v0, v1, ms) => ((v1 >= v0 ? v1 - v0 : v1) / ms) * 1000;
      const rate = values.map((v, i) => (i === 0 || bridged(times[i - 1], times[i]) ? null : rateOf(values[i - 1], v, times[i] - times[i - 1])));
      const extremes = times.map((t, i) => {
        if (rate[i] === null || bucket === 0) return [rate[i], rate[i]];
        const at = within(t);
        const seen = at.map((ms) => item.at(ms));
        const rates = seen.slice(1).map((v, k) => rateOf(seen[k], v, at[k + 1] - at[k]));
        return [Math.min(rate[i], ...rates), Math.max(rate[i], ...rates)];
      });
      return { ...base, last: values, rate, rate_min: extremes.map(([least]) => least), rate_max: extremes.map(([, most]) => most) };
    }
    const seen = times.map((t) => within(t).map((ms) => item.at(ms)));
    return { ...base, last: values, min: seen.map((some) => Math.min(...some)), max: seen.map((some) => Math.max(...some)) };
  });
  return { bucket_ms: bucket, series, gaps };
}

const streams = new Set();

function live(fleet, parameters, request, response) {
  allow(parameters, "host", "series", "every_ms");
  const host = fleet.hosts.get(parameters.get("host") ?? "");
  if (host === undefined) throw new Refusal(404, `no host \`${parameters.get("host")}\` is watched`);
  const series = wanted(fleet, host, parameters);
  const every = Math.max(10, Number(parameters.get("every_ms") ?? 100), host.interval);
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  const send = (name, data) => response.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
  send("open", { series: series.map(({ series: text, type, unit }) => ({ series: text, type, unit })), interval_ms: host.interval });
  let state = host.state;
  let last = fleet.newest(host, Date.now());
  if (state !== "reading") send("host", { state });
  const stream = { response, skipUntil: 0 };
  streams.add(stream);
  let skipped = 0;
  const timer = setInterval(() => {
    if (host.state !== state) {
      state = host.state;
      send("host", { state });
    }
    const newest = fleet.newest(host, Date.now());
    if (newest === null || host.state !== "reading") return;
    if (Date.now() < stream.skipUntil) {
      skipped += Math.round((newest - last) / every);
      last = newest;
      return;
    }
    if (skipped > 0) send("skipped", { rows: skipped });
    skipped = 0;
    // This process computes `range` in between; what is due meanwhile is sent afterwards, as a controller with threads would in time.
    for (let t = last + every; t <= newest; t += every) {
      if (!fleet.has(host, t)) continue;
      for (const gap of fleet.gaps(host, last, t)) send("gap", gap);
      last = t;
      send("row", { rows: [{ t_ms: t, series: series.map((_, i) => i), v: series.map((item) => item.at(t)) }] });
    }
  }, every);
  request.on("close", () => {
    clearInterval(timer);
    streams.delete(stream);
  });
}

const at = process.argv.indexOf("--serve");
if (at > 0) {
  const port = process.argv.indexOf("--port");
  const hosts = process.argv.indexOf("--hosts");
  const running = await start(process.argv[at + 1], port > 0 ? Number(process.argv[port + 1]) : 8080, hosts > 0 ? Number(process.argv[hosts + 1]) : 0);
  console.log(`The fixture serves ${process.argv[at + 1]} at ${running.url}`);
}
