// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import rust from "../../crates/promql/src/eval/signature.rs?raw";
import type { Result } from "../src/promql";
import { type Metric, accepted, expressions, options } from "../src/query/complete";
import { AGGREGATIONS, FUNCTIONS } from "../src/query/functions";
import { faultOf } from "../src/query/place";
import { MAX_LINES, differing, drawingOf, seriesText, stepsOf, unitOf, whyEmpty } from "../src/query/result";
import { type Place, callsOf, metricsOf, placeAt } from "../src/query/typed";

/** The place of `|` in a text, which is the cursor. */
function at(text: string): Place {
  const caret = text.indexOf("|");
  return placeAt(text.replace("|", ""), caret);
}
const metric = (name: string, more: Partial<Metric> = {}): Metric => ({ name, type: "gauge", unit: "", help: "", ...more });

describe("what is being typed", () => {
  it("is an expression outside of braces, brackets and texts", () => {
    expect(at("|")).toMatchObject({ kind: "expression", word: "" });
    expect(at("node_cpu|")).toMatchObject({ kind: "expression", word: "node_cpu", from: 0, to: 8 });
    expect(at("sum(ra|te(x[1m]))")).toMatchObject({ kind: "expression", word: "ra", from: 4, to: 8 });
    expect(at("a / on (x) gro|")).toMatchObject({ kind: "expression", word: "gro" });
    expect(at("# only a |")).toEqual({ kind: "nothing" });
    expect(at("1 + 5|")).toEqual({ kind: "nothing" });
    expect(at('label_replace(up, "a|')).toEqual({ kind: "nothing" });
  });

  it("is a label in braces and in groupings", () => {
    expect(at("up{|")).toMatchObject({ kind: "label", word: "", selectors: ["up{}"], matches: true });
    expect(at('up{job="a", inst|ance="b"}')).toMatchObject({ kind: "label", word: "inst", from: 12, to: 20, selectors: ['up{job="a"}'] });
    expect(at("{|")).toMatchObject({ kind: "label", selectors: [] });
    expect(at("sum by (|) (rate(x_total[1m]))")).toMatchObject({ kind: "label", selectors: ["x_total"], matches: false });
    expect(at("a / ignoring (x, y|) b")).toMatchObject({ kind: "label", word: "y", selectors: ["a", "b"] });
    expect(at("up{a |")).toEqual({ kind: "nothing" });
  });

  it("is a value between quotes of a matcher", () => {
    expect(at('up{instance="we|')).toMatchObject({ kind: "value", label: "instance", word: "we", isRegex: false, selectors: ["up{}"] });
    expect(at('up{a="x,}", b=~"one|')).toMatchObject({ kind: "value", label: "b", word: "one", isRegex: true, selectors: ['up{a="x,}"}'] });
    expect(placeAt('up{b=~"one|tw"}', 13)).toMatchObject({ kind: "value", word: "tw", from: 11, to: 13 });
    expect(at("up{a='x|'}")).toMatchObject({ kind: "value", quote: "'", from: 6, to: 7 });
    expect(at('up{a="x\\"|')).toMatchObject({ kind: "value", word: 'x\\"' });
    expect(at('up{a="x"|')).toEqual({ kind: "nothing" });
    expect(at('up{"a"="x|')).toMatchObject({ kind: "value", label: "a" });
  });

  it("is a duration in square brackets", () => {
    expect(at("rate(x[|")).toMatchObject({ kind: "duration", word: "" });
    expect(at("rate(x[5|])")).toMatchObject({ kind: "duration", word: "5" });
    expect(at("x[6h:5|")).toMatchObject({ kind: "duration", word: "5" });
  });
});

describe("the names in a query", () => {
  it("are metrics, and neither functions, labels nor words of the language", () => {
    expect(metricsOf('sum by (instance) (rate(a_total{b="c"}[5m] offset 1h)) / on (d) group_left (e) f > bool 0 # g')).toEqual(["a_total", "f"]);
    expect(metricsOf("sum(x) without (y) and count or up @ end() + inf")).toEqual(["x", "count", "up"]);
    expect(metricsOf('"x" + vector(1)')).toEqual([]);
  });

  it("tells what is called and calculated with", () => {
    expect(callsOf('sum by (a) (rate(x{y!="z"}[5m])) / 2')).toEqual({ functions: ["sum", "rate"], operators: ["/"] });
    expect(callsOf("a and b >= 1").operators).toEqual(["and", ">="]);
  });
});

describe("completion", () => {
  const metrics = [metric("node_cpu_seconds_total", { type: "counter", unit: "seconds" }), metric("node_load1"), metric("rate_limited_total"), metric("up")];
  const shown = (word: string): string[] => expressions(word, metrics).map((option) => option.shown);

  it("has what begins so first, then what has a part that does", () => {
    expect(shown("rat")[0]).toBe("rate");
    expect(shown("rat").indexOf("rate_limited_total")).toBeLessThan(shown("rat").indexOf("irate"));
    expect(shown("cpu")).toContain("node_cpu_seconds_total");
    expect(shown("cpusec")).toEqual(["node_cpu_seconds_total"]);
    expect(shown("up")[0]).toBe("up");
    expect(shown("node_lo")).toEqual(["node_load1"]);
    expect(shown("zzz")).toEqual([]);
  });

  it("tells type and unit of a metric", () => {
    expect(expressions("node_cpu_s", metrics)[0]).toMatchObject({ shown: "node_cpu_seconds_total", detail: "counter · seconds" });
  });

  /** The text and the cursor in it once the first option is taken. */
  function take(text: string, names: string[] = []): string {
    const caret = text.indexOf("|");
    const plain = text.replace("|", "");
    const place = placeAt(plain, caret);
    if (place.kind === "nothing") throw new Error("nothing to complete");
    const [first] = place.kind === "expression" ? expressions(place.word, metrics) : options(place, names);
    const got = accepted(plain, place, first!);
    return `${got.text.slice(0, got.caret)}|${got.text.slice(got.caret)}`;
  }

  it("puts in what follows, once", () => {
    expect(take("sum(irat|)")).toBe("sum(irate(|)");
    expect(take("irat|(x)")).toBe("irate|(x)");
    expect(take("up{ins|", ["instance"])).toBe('up{instance="|');
    expect(take('up{ins|="a"}', ["instance"])).toBe('up{instance|="a"}');
    expect(take("sum by (ins|) (up)", ["instance"])).toBe("sum by (instance|) (up)");
    expect(take('up{instance="|', ["web-1"])).toBe('up{instance="web-1"|');
    expect(take('up{instance="w|"}', ["web-1"])).toBe('up{instance="web-1"|}');
    expect(take("x[3|]")).toBe("x[30s|]");
  });

  it("writes values as their quotes need it", () => {
    const value = (quote: string, operator: string, name: string): string => {
      const text = `up{a${operator}${quote}`;
      const place = placeAt(text, text.length);
      return place.kind === "nothing" ? "" : accepted(text, place, options(place, [name])[0]!).text;
    };
    expect(value('"', "=", 'a"b\\')).toBe('up{a="a\\"b\\\\"');
    expect(value('"', "=~", "10.0.0.1")).toBe('up{a=~"10\\\\.0\\\\.0\\\\.1"');
    expect(value("`", "=~", "a.b")).toBe("up{a=~`a\\.b`");
  });

  it("knows the functions that the controller has, and no other", () => {
    const names = [...rust.matchAll(/"([a-z0-9_]+)"/g)].map(([, name]) => name!);
    const own = new Set(FUNCTIONS.map(({ name }) => name));
    expect(names.length).toBeGreaterThan(40);
    for (const name of names) expect(own, name).toContain(name);
    // Those of a value, and of a time, stand in files of their own.
    const elsewhere = /^(abs|a?(cos|sin|tan)h?|ceil|deg|exp|floor|ln|log10|log2|rad|sgn|sqrt|day_of_(month|week|year)|days_in_month|hour|minute|month|year)$/;
    expect([...own].filter((name) => !names.includes(name) && !elsewhere.test(name))).toEqual([]);
    expect(AGGREGATIONS).toHaveLength(12);
  });
});

describe("the place of an error", () => {
  it("is a word, by line and column", () => {
    const query = "1 +\n  foo(1)";
    const fault = faultOf('invalid parameter "query": 2:3: parse error: unknown function with name "foo"', query)!;
    expect(fault).toMatchObject({ line: 2, column: 3, text: 'unknown function with name "foo"' });
    expect(query.slice(fault.mark.from, fault.mark.to)).toBe("foo");
  });

  it("counts bytes, as Prometheus does", () => {
    const query = '"é" + foo(1)';
    const fault = faultOf("1:8: parse error: unknown function", query)!;
    expect(query.slice(fault.mark.from, fault.mark.to)).toBe("foo");
    expect(fault.column).toBe(7);
  });

  it("may be behind the end", () => {
    expect(faultOf("1:4: parse error: unexpected end of input", "up{")!.mark).toEqual({ from: 3, to: 4 });
    expect(faultOf("found duplicate series for the match group", "a / b")).toBeNull();
    expect(faultOf("7:1: parse error: x", "a")).toBeNull();
  });
});

describe("an answer", () => {
  const result = (series: Result["series"]): Result => ({ kind: "matrix", series, text: "", warnings: [], infos: [] });
  const points = (...values: number[]) => values.map((value, i) => ({ t_ms: 1000 * i, value }));

  it("has steps at multiples of their length, some 500 at most", () => {
    expect(stepsOf({ from: 1_000_000_123, to: 1_003_600_123 })).toEqual({ fromMs: 1_000_010_000, toMs: 1_003_600_000, stepMs: 10_000 });
    for (const width of [50, 10_000, 3_600_000, 86_400_000, 1e11]) {
      const { fromMs, toMs, stepMs } = stepsOf({ from: 1e12, to: 1e12 + width });
      expect((toMs - fromMs) / stepMs).toBeLessThanOrEqual(500);
      expect(toMs).toBeGreaterThanOrEqual(fromMs);
    }
  });

  it("names lines by what differs", () => {
    const all = ["0", "1"].map((cpu) => ({ labels: { __name__: "x", cpu, host: "a" }, points: points(1, 2) }));
    expect(differing(all)).toEqual(["cpu"]);
    const { spec } = drawingOf(result(all), "x", 1000, { unit: "", perSecond: false });
    expect(spec).toMatchObject({ title: "x", detail: "host=a" });
    expect(spec.lines.map(({ label }) => label)).toEqual(["cpu 0", "cpu 1"]);
    expect(seriesText({ __name__: "x", b: 'y"', a: "z" })).toBe('x{a="z", b="y\\""}');
  });

  it("says what it does not draw", () => {
    const many = Array.from({ length: MAX_LINES + 1 }, (_, i) => ({ labels: { i: String(i) }, points: points(1) }));
    const drawn = drawingOf(result(many), "x", 1000, { unit: "", perSecond: false });
    expect(drawn.spec.lines).toHaveLength(MAX_LINES);
    expect(drawn.left[0]).toContain("of 101 series");
    const odd = drawingOf(result([{ labels: {}, points: [...points(1, NaN, Infinity), { t_ms: 9000, count: 3, sum: 1 }] }]), "x", 1000, { unit: "", perSecond: false });
    expect(odd.left.map((text) => text.slice(0, 20))).toEqual(["2 values are not fin", "1 values are native "]);
    expect([...odd.tracks.values()][0]!.ring.length).toBe(1);
  });

  it("has the unit of its metric while nothing is calculated with it", () => {
    const known = new Map([["b_total", metric("b_total", { unit: "bytes" })], ["a", metric("a", { unit: "bytes" })]]);
    expect(unitOf('a{x="y"}', known)).toEqual({ unit: "bytes", perSecond: false });
    expect(unitOf("sum by (x) (rate(b_total[5m]))", known)).toEqual({ unit: "bytes", perSecond: true });
    for (const query of ["a * 8", "a / b_total", "count(a)", "changes(a[5m])", "a > 1", "c"]) expect(unitOf(query, known), query).toEqual({ unit: "", perSecond: false });
  });

  it("says why it may be empty", () => {
    const limits = { oldest: 5000, now: 9000 };
    const known = new Map([["a", metric("a")]]);
    expect(whyEmpty("b", known, { from: 6000, to: 9000 }, limits)[0]).toContain("called b");
    expect(whyEmpty("a", known, { from: 1000, to: 4000 }, limits)[0]).toContain("begins");
    expect(whyEmpty("a == 1", known, { from: 6000, to: 9000 }, limits).join()).toContain("comparison");
    expect(whyEmpty('rate(a{b="c"}[1s])', known, { from: 6000, to: 9000 }, limits)).toHaveLength(3);
  });
});
