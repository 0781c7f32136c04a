// SPDX-License-Identifier: Apache-2.0
// PromQL as far as the dashboard asks it, over the made-up hosts: selectors, `rate`, `sum`, `avg`, `max`, `count`, `topk`, `bottomk`, ages of values, comparisons with a number, and several of
// these put together by `label_replace(..., "__part" or "line", NAME, "", "") or ...`; sums, differences, products and quotients; numbers, texts and ranges alone. Whatever else is asked is refused, so that a test sees it.

import { recorded, recordedRange } from "./vitals.mjs";

class Unknown extends Error {}

/** Answers `/api/v1/query` and `/api/v1/query_range`; false for other paths. */
export function answer(fleet, path, form) {
  const query = form.get("query") ?? "";
  try {
    if (path !== "query" && path !== "query_range") return false;
    check(query);
    const limit = Number(form.get("limit") ?? Infinity);
    const success = (resultType, result) => {
      const isCut = ["vector", "matrix"].includes(resultType) && result.length > limit;
      const notCounter = /rate\((\w+)/.exec(query)?.[1];
      return {
        status: 200,
        body: {
          status: "success", data: { resultType, result: isCut ? result.slice(0, limit) : result },
          ...(isCut ? { warnings: ["results truncated due to limit"] } : {}),
          ...(notCounter && !/_(total|sum|count|bucket)$/.test(notCounter) ? { infos: [`PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "${notCounter}" (1:6)`] } : {}),
        },
      };
    };
    const text = /^"(.*)"$/.exec(query.trim());
    const window = /^(.*)\[(\d+)s\]$/.exec(query.trim());
    if (path === "query") {
      const t = Number(form.get("time"));
      if (text) return success("string", [t, text[1]]);
      if (isNumber(query)) return success("scalar", [t, query.trim()]);
      if (window) {
        const times = Array.from({ length: Number(window[2]) }, (_, i) => t - Number(window[2]) + i + 1);
        return success("matrix", evaluate(fleet, window[1], t * 1000).map(({ labels, value }) => ({ metric: labels, values: times.map((at) => [at, written(value)]) })));
      }
      return success("vector", evaluate(fleet, query, t * 1000).map(({ labels, value }) => ({ metric: labels, value: [t, written(value)] })));
    }
    if (text || window) throw new Unknown(`1:1: parse error: invalid expression type "${text ? "string" : "range vector"}" for range query, must be Scalar or instant Vector`);
    const [start, end, step] = ["start", "end", "step"].map((name) => Number(form.get(name)));
    const quick = recordedRange(fleet, query, Array.from({ length: Math.floor((end - start) / step) + 1 }, (_, i) => start + i * step));
    if (quick !== null) return success("matrix", quick);
    const series = new Map();
    for (let t = start; t <= end; t += step) {
      for (const { labels, value } of evaluate(fleet, query, t * 1000)) {
        const key = JSON.stringify(labels);
        if (!series.has(key)) series.set(key, { metric: labels, values: [] });
        series.get(key).values.push([t, written(value)]);
      }
    }
    return success("matrix", [...series.values()]);
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    return { status: 400, body: { status: "error", errorType: "bad_data", error: `invalid parameter "query": ${error.message}` } };
  }
}

const written = (value) => (value === Infinity ? "+Inf" : value === -Infinity ? "-Inf" : String(value));

const isNumber = (query) => /^[\d.]+$/.test(query.trim());

/** Refuses what is no PromQL, with line and column (in bytes) as Prometheus tells them. */
function check(query) {
  const at = (offset) => {
    const before = query.slice(0, offset).split("\n");
    return `${before.length}:${Buffer.byteLength(before.at(-1)) + 1}`;
  };
  const plain = query.replace(/"(?:[^"\\]|\\.)*"/g, (text) => "_".repeat(text.length));
  for (const { 1: name, index } of plain.matchAll(/(?<!\w)(\w+)\(/g)) {
    if (!KNOWN.has(name)) throw new Unknown(`${at(index)}: parse error: unknown function with name "${name}"`);
  }
  const depth = [...plain].reduce((sum, c) => sum + ("({[".includes(c) ? 1 : ")}]".includes(c) ? -1 : 0), 0);
  if (depth > 0) throw new Unknown(`${at(query.length)}: parse error: unexpected end of input`);
}
const KNOWN = new Set(["rate", "sum", "avg", "max", "count", "topk", "bottomk", "label_replace", "round", "min_over_time", "avg_over_time", "max_over_time", "time", "timestamp"]);

/** From the one that binds least. */
const ARITHMETIC = { "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b };

function evaluate(fleet, whole, t) {
  const query = whole.trim();
  if (isNumber(query)) return [{ labels: {}, value: Number(query) }];
  const vitals = recorded(fleet, query, t);
  if (vitals !== null) return vitals;
  const parts = split(query, " or ");
  if (parts.length > 1) return united(parts.map((part) => evaluate(fleet, part, t)));
  let found = /^label_replace\((.*), "(__part|line)", "([^"]*)", "", ""\)$/s.exec(query);
  if (found) return evaluate(fleet, found[1], t).map(({ labels, value }) => ({ labels: { ...labels, [found[2]]: found[3] }, value }));
  found = /^(topk|bottomk)\((\d+), (.*)\)$/s.exec(query);
  if (found) {
    const sign = found[1] === "topk" ? -1 : 1;
    return evaluate(fleet, found[3], t).sort((a, b) => sign * (a.value - b.value)).slice(0, Number(found[2]));
  }
  // All rows are as new as the host's last value.
  found = /^time\(\) - timestamp\((.*)\)$/s.exec(query);
  if (found) return select(fleet, found[1], t).map(({ labels, end }) => ({ labels, value: (t - end) / 1000 }));
  found = /^(.*) and \(time\(\) - timestamp\(\1\) < \d+\)$/s.exec(query);
  if (found) return evaluate(fleet, found[1], t);
  found = /^(.*) (==|>|<) ([\d.]+)$/s.exec(query);
  if (found) return evaluate(fleet, found[1], t).filter(({ value }) => (found[2] === "==" ? value === Number(found[3]) : found[2] === ">" ? value > Number(found[3]) : value < Number(found[3])));
  found = /^(sum|avg|max|count)(?: by \(([\w, ]+)\) )?\((.*)\)$/s.exec(query);
  if (found) return aggregate(found[1], found[2]?.split(", ") ?? [], evaluate(fleet, found[3], t));
  // Whatever has a number, or values of the same labels, on its other side.
  for (const [sign, apply] of Object.entries(ARITHMETIC)) {
    const sides = split(query, ` ${sign} `);
    if (sides.length !== 2) continue;
    const [a, b] = sides.map((side) => (isNumber(side) ? Number(side) : evaluate(fleet, side, t)));
    const plain = (labels) => Object.fromEntries(Object.entries(labels).filter(([label]) => label !== "__name__"));
    if (typeof a === "number") return b.map(({ labels, value }) => ({ labels: plain(labels), value: apply(a, value) }));
    if (typeof b === "number") return a.map(({ labels, value }) => ({ labels: plain(labels), value: apply(value, b) }));
    const right = new Map(b.map(({ labels, value }) => [JSON.stringify(Object.entries(plain(labels)).sort()), value]));
    return a.flatMap(({ labels, value }) => {
      const other = right.get(JSON.stringify(Object.entries(plain(labels)).sort()));
      return other === undefined ? [] : [{ labels: plain(labels), value: apply(value, other) }];
    });
  }
  found = /^rate\((.*)\[([\d.]+)(ms|s|m)\]\)$/s.exec(query);
  if (found) {
    const window = Number(found[2]) * { ms: 1, s: 1000, m: 60_000 }[found[3]];
    return select(fleet, found[1], t).map(({ item, labels, end }) => {
      const [before, after] = [item.at(end - window), item.at(end)];
      return { labels, value: ((after >= before ? after - before : after) / window) * 1000 };
    });
  }
  return select(fleet, query, t).map(({ item, labels, end }) => ({ labels: { __name__: item.name, ...labels }, value: item.type === "info" ? 1 : item.at(end) }));
}

/** Series that a selector finds, with the time of their last value before `t`. */
function select(fleet, selector, t) {
  const found = /^(\w+)(?:\{(.*)\})?$/s.exec(selector);
  if (!found) throw new Unknown(`1:1: parse error: the fixture does not know ${selector}`);
  const matchers = matchersOf(found[2] ?? "");
  const instance = matchers.find(({ label, operator }) => label === "instance" && operator === "=")?.text;
  const hosts = instance === undefined ? [...fleet.hosts.values()] : [fleet.hosts.get(instance)].filter((host) => host !== undefined);
  if (found[1] === "up") return hosts.map((host) => ({ item: { name: "up", at: () => Number(host.state === "reading") }, labels: { instance: host.name, role: host.role }, end: t })).filter(({ labels }) => matchers.every((one) => one.test(labels)));
  return hosts.flatMap((host) => {
    if (host.via === null) return [];
    const end = Math.min(t, fleet.newest(host, Date.now()) ?? 0);
    // As a series ends: five seconds after its last value.
    if (t - end > 5000) return [];
    const named = (fleet.byName(host).get(found[1]) ?? []).map((item) => ({ item, labels: { instance: host.name, ...item.labels }, end }));
    return named.filter(({ labels }) => matchers.every((one) => one.test(labels)));
  });
}

function matchersOf(texts) {
  return [...texts.matchAll(/(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"/g)].map(([, label, operator, quoted]) => {
    const text = quoted.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    const insensitive = text.startsWith("(?i)");
    const pattern = operator.endsWith("~") ? new RegExp(`^(?:${insensitive ? text.slice(4) : text})$`, insensitive ? "i" : "") : null;
    const want = operator.startsWith("=");
    return { label, operator, text, test: (labels) => (pattern === null ? (labels[label] ?? "") === text : pattern.test(labels[label] ?? "")) === want };
  });
}

/** Answers `/api/v1/labels`, `/api/v1/label/NAME/values` and `/api/v1/metadata` with what some hosts have; undefined for other paths. */
export function metadata(fleet, [what, name], parameters) {
  const hosts = ["web-1", "web-2", "db-1"].map((host) => fleet.hosts.get(host));
  if (what === "metadata") return Object.fromEntries(hosts.flatMap((host) => fleet.seriesOf(host).map(({ name: metric, type, unit, help }) => [metric, [{ type, unit, help }]])));
  if (what !== "labels" && what !== "label") return undefined;
  const selectors = parameters.getAll("match[]").map((selector) => /^(\w*)\{(.*)\}$/.exec(selector) ?? [selector, selector, ""]).map(([, metric, texts]) => ({ metric, matchers: matchersOf(texts) }));
  const series = [{ __name__: "up", instance: "web-1", role: "web" }, ...hosts.flatMap((host) => fleet.seriesOf(host).map((item) => ({ __name__: item.name, instance: host.name, ...item.labels })))];
  const found = series.filter((labels) => selectors.length === 0 || selectors.some(({ metric, matchers }) => (metric === "" || metric === labels.__name__) && matchers.every((one) => one.test(labels))));
  return [...new Set(found.flatMap((labels) => (what === "labels" ? Object.keys(labels) : [labels[name]].filter((value) => value !== undefined))))].sort();
}

/** Names of metrics do not tell values apart here. */
function united(all) {
  const seen = new Set();
  return all.flatMap((samples) => {
    const keys = samples.map(({ labels }) => JSON.stringify(Object.entries(labels).filter(([label]) => label !== "__name__").sort()));
    const fresh = samples.filter((_, i) => !seen.has(keys[i]));
    for (const key of keys) seen.add(key);
    return fresh;
  });
}

function aggregate(how, by, samples) {
  const groups = new Map();
  for (const { labels, value } of samples) {
    const kept = Object.fromEntries(by.map((label) => [label, labels[label] ?? ""]));
    const key = JSON.stringify(kept);
    if (!groups.has(key)) groups.set(key, { labels: kept, values: [] });
    groups.get(key).values.push(value);
  }
  const fold = { avg: (values) => values.reduce((total, value) => total + value, 0) / values.length, sum: (values) => values.reduce((total, value) => total + value, 0), max: (values) => Math.max(...values), count: (values) => values.length }[how];
  return [...groups.values()].map(({ labels, values }) => ({ labels, value: fold(values) }));
}

/** Parts of a text between separators that stand outside of brackets and quotes. */
function split(text, separator) {
  const parts = [];
  let depth = 0;
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === '"') for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
    if ("({[".includes(c)) depth++;
    if (")}]".includes(c)) depth--;
    if (depth === 0 && text.startsWith(separator, i)) {
      parts.push(text.slice(from, i));
      from = i + separator.length;
    }
  }
  return [...parts, text.slice(from)];
}
