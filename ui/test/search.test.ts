// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { parse } from "../src/router";
import type { Found, FoundMetric } from "../src/search/ask";
import { chartAddress, detailOf, inLabels, order, queryLink, queryOf, rest, seriesAddress, summaryOf, timeOf } from "../src/search/found";
import { parts, wordsOf } from "../src/search/mark";

const metric = (name: string, more: Partial<FoundMetric> = {}): FoundMetric => ({ name, type: "counter", unit: "", help: "", series: 16, hosts: 2, ...more });
const found = (names: { hosts?: string[]; metrics?: string[]; alerts?: string[] }): Found => {
  const { hosts = [], metrics = [], alerts = [] } = names;
  return {
    searched: { hosts: 24, series: 60_290 },
    metrics: { total: metrics.length, series: 16 * metrics.length, list: metrics.map((name) => metric(name)) },
    hosts: { total: hosts.length, list: hosts.map((name) => ({ name, address: "", labels: {}, state: "reading", series: 0 })) },
    alerts: { total: alerts.length, list: alerts.map((name) => ({ name, group: "g", firing: 0, pending: 0 })) },
  };
};
const marks = (text: string, words: string): string => parts(text, wordsOf(words)).map((part) => (part.isHit ? `[${part.text}]` : part.text)).join("");

describe("words that are marked", () => {
  it("are those that the controller looks for", () => {
    expect(wordsOf(' node_cpu{cpu="0",mode="idle"}  CPU ')).toEqual(["node_cpu", "cpu=0", "mode=idle", "cpu"]);
    expect(wordsOf('  "" ')).toEqual([]);
  });

  it("are marked wherever they stand, in either case, over quotes, and together where they overlap", () => {
    expect(marks("node_cpu_seconds", "CPU")).toBe("node_[cpu]_seconds");
    expect(marks('x{cpu="0",mode="idle"}', "cpu=0")).toBe('x{[cpu="0]",mode="idle"}');
    expect(marks("abcabc", "ab bc")).toBe("[abcabc]");
    expect(marks("aaa", "aa")).toBe("[aaa]");
    expect(marks("nothing", "cpu")).toBe("nothing");
    expect(marks("", "cpu")).toBe("");
  });

  it("keep foreign texts whole: markup, letters of two units, letters that fold to two, text from right to left", () => {
    for (const text of ["<img src=x onerror=alert(1)>", "a😀b İx", "\u202eשלום\u202c <b>", '""']) {
      expect(parts(text, wordsOf("b x 😀 שלום <")).map((part) => part.text).join("")).toBe(text);
    }
    expect(marks("a😀b", "😀")).toBe("a[😀]b");
    expect(marks("İx", "x")).toBe("İ[x]");
  });
});

describe("what was found", () => {
  it("says how much there is, and of how much", () => {
    expect(summaryOf(found({ metrics: ["a", "b"], hosts: ["h"] }), null)).toBe("Found 1 host, 2 metrics (32 series) among 60\u202f290 series of 24 hosts");
    expect(summaryOf(found({ alerts: ["A", "B"] }), null)).toContain("0 metrics, 2 alerts among");
    expect(summaryOf(found({ metrics: ["a"] }), "web-1")).toContain("1 metric (16 series) among 60\u202f290 series of web-1");
    expect([rest(20, 20, "hosts"), rest(20, 4000, "hosts")]).toEqual(["", "The first 20 of 4000 hosts.".replace("4000", "4\u202f000")]);
  });

  it("begins with the kind that has the best name", () => {
    const words = ["web"];
    expect(order(found({ metrics: ["node_x"], hosts: ["web-1"] }), words)).toEqual(["hosts", "metrics"]);
    expect(order(found({ metrics: ["web_requests"], hosts: ["db-web"], alerts: ["Web"] }), words)).toEqual(["alerts", "metrics", "hosts"]);
    expect(order(found({}), words)).toEqual([]);
    expect(order(found({ metrics: ["a"], hosts: ["b"] }), [])).toEqual(["hosts", "metrics"]);
  });

  it("tells type, unit and numbers of a metric, and what of the words only labels have", () => {
    expect(detailOf(metric("m", { unit: "seconds" }), null)).toBe("counter · seconds · 16 series on 2 hosts");
    expect(detailOf(metric("m", { type: "gauge", series: 1, hosts: 1 }), "web-1")).toBe("gauge · 1 series");
    expect(inLabels(metric("node_cpu", { help: "Time." }), ["cpu", "time", "web"])).toEqual(["web"]);
  });

  it("leads to charts, with the time that is shown, or to the search where nothing can be drawn", () => {
    const time = timeOf(new URLSearchParams("w=1h&from=1&to=2&c=x&s=cpu"));
    expect(chartAddress("a/b", metric("m"), 16, time)).toBe("#/host/a%2Fb?w=1h&from=1&to=2&f=m");
    const infos = parse(chartAddress("a", metric("i_info", { type: "info" }), 1, new URLSearchParams()));
    expect([infos.name, infos.search]).toEqual(["a", { text: "i_info", isEverywhere: false, metric: "i_info" }]);
    expect(chartAddress("a", metric("h", { type: "histogram" }), 3, new URLSearchParams())).toContain("find=h");
    expect(chartAddress("a", metric("h", { type: "histogram" }), 1, new URLSearchParams())).toBe("#/host/a?f=h");
    expect(parse(seriesAddress("a", 'm{x="&<b>"}', time)).parameters.get("c")).toBe('m{x="&<b>"}');
  });

  it("leads to queries: counters as rates, of all hosts or one", () => {
    expect(queryOf(metric("m_total"), null)).toBe("rate(m_total[5m])");
    expect(queryOf(metric("m", { type: "gauge" }), 'a"b')).toBe('m{instance="a\\"b"}');
    expect(queryOf(metric("h", { type: "histogram" }), null)).toBe("histogram_quantile(0.99, rate(h[5m]))");
    expect(queryOf(metric("odd name", { type: "gauge" }), null)).toBe('{__name__="odd name"}');
    expect(parse(queryLink(metric("m_total"), "a", new URLSearchParams("w=1h"))).parameters.get("q")).toBe('rate(m_total{instance="a"}[5m])');
  });
});

describe("the address of a search", () => {
  it("lies over that of the page, whose own parameters it leaves alone", () => {
    const { page, name, parameters, search } = parse("#/host/web-1?w=1h&find=cpu%20idle&in=all&metric=node_cpu&f=x");
    expect([page, name, parameters.toString()]).toEqual(["host", "web-1", "w=1h&f=x"]);
    expect(search).toEqual({ text: "cpu idle", isEverywhere: true, metric: "node_cpu" });
    expect(parse("#/?q=x").search).toBeNull();
    expect(parse("#/?find=").search).toEqual({ text: "", isEverywhere: false, metric: null });
  });
});
