// SPDX-License-Identifier: Apache-2.0
// PromQL as far as the dashboard asks it, over the made-up hosts: selectors, `rate`, `sum`, `max`, `count`, `topk`, `bottomk`, ages of values, and several of these put together by
// `label_replace(..., "__part", NAME, "", "") or ...`. Whatever else is asked is refused, so that a test sees it.

import { recorded } from "./vitals.mjs";

class Unknown extends Error {}

/** Answers `/api/v1/query` and `/api/v1/query_range`; false for other paths. */
export function answer(fleet, path, form) {
  const query = form.get("query") ?? "";
  try {
    if (path === "query") {
      const t = Number(form.get("time"));
      const result = evaluate(fleet, query, t * 1000).map(({ labels, value }) => ({ metric: labels, value: [t, written(value)] }));
      return { status: 200, body: { status: "success", data: { resultType: "vector", result } } };
    }
    if (path !== "query_range") return false;
    const [start, end, step] = ["start", "end", "step"].map((name) => Number(form.get(name)));
    const series = new Map();
    for (let t = start; t <= end; t += step) {
      for (const { labels, value } of evaluate(fleet, query, t * 1000)) {
        const key = JSON.stringify(labels);
        if (!series.has(key)) series.set(key, { metric: labels, values: [] });
        series.get(key).values.push([t, written(value)]);
      }
    }
    return { status: 200, body: { status: "success", data: { resultType: "matrix", result: [...series.values()] } } };
  } catch (error) {
    if (!(error instanceof Unknown)) throw error;
    return { status: 400, body: { status: "error", errorType: "bad_data", error: error.message } };
  }
}

const written = (value) => (value === Infinity ? "+Inf" : value === -Infinity ? "-Inf" : String(value));

function evaluate(fleet, query, t) {
  const vitals = recorded(fleet, query, t);
  if (vitals !== null) return vitals;
  const parts = split(query, " or ");
  if (parts.length > 1) return united(parts.map((part) => evaluate(fleet, part, t)));
  let found = /^label_replace\((.*), "__part", "(\w+)", "", ""\)$/s.exec(query);
  if (found) return evaluate(fleet, found[1], t).map(({ labels, value }) => ({ labels: { ...labels, __part: found[2] }, value }));
  found = /^(topk|bottomk)\((\d+), (.*)\)$/s.exec(query);
  if (found) {
    const sign = found[1] === "topk" ? -1 : 1;
    return evaluate(fleet, found[3], t).sort((a, b) => sign * (a.value - b.value)).slice(0, Number(found[2]));
  }
  found = /^(sum|max|count)(?: by \(([\w, ]+)\) )?\((.*)\)$/s.exec(query);
  if (found) return aggregate(found[1], found[2]?.split(", ") ?? [], evaluate(fleet, found[3], t));
  // All rows are as new as the host's last value.
  found = /^time\(\) - timestamp\((.*)\)$/s.exec(query);
  if (found) return select(fleet, found[1], t).map(({ labels, end }) => ({ labels, value: (t - end) / 1000 }));
  found = /^(.*) and \(time\(\) - timestamp\(\1\) < \d+\)$/s.exec(query);
  if (found) return evaluate(fleet, found[1], t);
  found = /^rate\((.*)\[([\d.]+)(ms|s)\]\)$/s.exec(query);
  if (found) {
    const window = Number(found[2]) * (found[3] === "s" ? 1000 : 1);
    return select(fleet, found[1], t).map(({ item, labels, end }) => {
      const [before, after] = [item.at(end - window), item.at(end)];
      return { labels, value: ((after >= before ? after - before : after) / window) * 1000 };
    });
  }
  return select(fleet, query, t).map(({ item, labels, end }) => ({ labels: { __name__: item.name, ...labels }, value: item.type === "info" ? 1 : item.at(end) }));
}

/** Series that a selector finds, with the time of their last value before `t`. */
function select(fleet, selector, t) {
  const found = /^(\w+)\{(.*)\}$/s.exec(selector);
  if (!found) throw new Unknown(`1:1: parse error: the fixture does not know ${selector}`);
  const matchers = [...found[2].matchAll(/(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"/g)].map(([, label, operator, quoted]) => ({ label, operator, text: quoted.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c)) }));
  const host = fleet.hosts.get(matchers.find(({ label }) => label === "instance")?.text);
  if (host === undefined || host.via === null) return [];
  const end = Math.min(t, fleet.newest(host, Date.now()) ?? 0);
  // As a series ends: five seconds after its last value.
  if (t - end > 5000) return [];
  const tests = matchers.filter(({ label }) => label !== "instance").map(({ label, operator, text }) => {
    const insensitive = text.startsWith("(?i)");
    const pattern = operator.endsWith("~") ? new RegExp(`^(?:${insensitive ? text.slice(4) : text})$`, insensitive ? "i" : "") : null;
    const want = operator.startsWith("=");
    return (labels) => (pattern === null ? (labels[label] ?? "") === text : pattern.test(labels[label] ?? "")) === want;
  });
  const named = fleet.byName(host).get(found[1]) ?? [];
  return named.filter(({ labels }) => tests.every((test) => test(labels))).map((item) => ({ item, labels: { instance: host.name, ...item.labels }, end }));
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
  const fold = { sum: (values) => values.reduce((total, value) => total + value, 0), max: (values) => Math.max(...values), count: (values) => values.length }[how];
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
