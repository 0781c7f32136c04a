// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import shipped from "../../packaging/grafana/dashboards/hosts.json?raw";
import { ALL, type Panel, type Variable, dashboardOf, placeOf } from "../src/boards/dashboard";
import { type Answered, calculated, figuresOf, isOfEnd, linesOf, panelDrawing, shownUnit } from "../src/boards/draw";
import { added, canMove, emptyBoard, moved, newPanel, removed, renamed, resized, rewritten } from "../src/boards/edit";
import { type Json, objectOf, objectsOf } from "../src/boards/json";
import { ImportError, exported, imported, isName, nameOf } from "../src/boards/transfer";
import { Turns } from "../src/boards/turns";
import { grafanaUnit, scaledOf } from "../src/boards/units";
import { filled, labelQuery, lengthOf, narrowed, titled as titleOf, told, typed } from "../src/boards/variables";
import real from "./fixtures/grafana.json?raw";

const board = imported(real);
const shown = dashboardOf(board);
const panels = shown.sections.flatMap((section) => section.panels);
const titled = (title: string): Panel => panels.find((panel) => panel.title === title)!;
const variable = (name: string): Variable => shown.variables.find((item) => item.name === name)!;

describe("a dashboard that Grafana has exported", () => {
  it("has its panels in the order of the page, by rows", () => {
    expect(shown.title).toBe("Web tier");
    expect(shown.sections.map(({ row, panels: own }) => [row?.title ?? null, row?.isCollapsed, own.map(({ title }) => title)])).toEqual([
      [null, undefined, ["Requests", "Up", "Busy", "Notes"]],
      ["Details of $instance", false, ["Old graph", "Table", "Latency", "Logs", "Shared"]],
      ["Folded", true, ["Inner"]],
    ]);
    expect(panels.map(({ kind }) => kind)).toEqual(["chart", "stat", "stat", "text", "chart", "table", "unknown", "unknown", "unknown", "chart"]);
  });

  it("has queries, units, limits and thresholds of panels", () => {
    expect(titled("Requests")).toMatchObject({
      isStacked: true, unit: { unit: "", perSecond: true }, min: 0, place: { x: 0, y: 0, w: 12, h: 9 },
      targets: [{ ref: "A", expression: 'sum by (instance) (rate(app_requests_total{instance=~"$instance"}[$__rate_interval]))', legend: "{{instance}}", interval: "" }, { ref: "B", legend: "" }],
    });
    expect(titled("Busy")).toMatchObject({ type: "gauge", calculation: "mean", max: 100, unit: { unit: "share", scale: 0.01 }, thresholds: [{ from: -Infinity, colour: "green" }, { from: 80, colour: "dark-red" }] });
    expect(titled("Old graph")).toMatchObject({ isStacked: true, unit: { unit: "bytes" }, max: 1000 });
    expect(titled("Notes").text).toContain("<b>not</b>");
  });

  it("says what is not shown, and why", () => {
    const left = shown.left.map(({ what, why }) => `${what}: ${why}`);
    for (const part of [
      "“Latency”: panels of the type heatmap are not shown here", "“Logs”: its data source is loki", "“Shared”: it is a panel of Grafana’s library", "“Table”: transformations are not applied",
      "“Table”: overrides of fields", "The variable search: only label_values", "The variable filters: variables of the type adhoc", "The annotation “Deploys”", "“Old graph”: it is not repeated by instance",
    ]) expect(left.some((text) => text.includes(part)), part).toBe(true);
    expect(left).toHaveLength(9);
  });

  it("comes out as it went in, but for what belongs to one installation", () => {
    expect(JSON.parse(exported(board))).toEqual({ ...board, id: null });
    const edited = renamed(board, titled("Latency").path, "Other");
    const again = objectOf(JSON.parse(exported(edited)));
    expect(again["links"]).toEqual(board["links"]);
    expect(objectsOf(again["panels"])[6]).toEqual({ ...objectsOf(board["panels"])[6], title: "Other" });
  });

  it("is found in what else Grafana gives, and refused in words where it is none", () => {
    expect(imported(JSON.stringify({ meta: {}, dashboard: board }))).toEqual(board);
    expect(imported(JSON.stringify({ apiVersion: "dashboard.grafana.app/v1beta1", kind: "Dashboard", spec: board }))).toEqual(board);
    for (const [text, part] of [
      ["{", "no JSON"], ["[]", "an object"], ["{}", "“panels”"], ['{"rows": []}', "Grafana 4"], ['{"elements": {}, "layout": {}}', "Classic"], ['{"apiVersion": "dashboard.grafana.app/v2alpha1", "spec": {}}', "Classic"],
    ] as const) {
      expect(() => imported(text), text).toThrow(ImportError);
      expect(() => imported(text), text).toThrow(part);
    }
  });
});

describe("the dashboard that is shipped", () => {
  it("is shown with all its panels and queries", () => {
    const hosts = dashboardOf(imported(shipped));
    expect(hosts.left).toEqual([]);
    expect(hosts.sections).toHaveLength(1);
    const all = hosts.sections[0]!.panels;
    expect(all.map(({ kind }) => kind)).toEqual(new Array<string>(10).fill("chart"));
    expect(all.every(({ unit }) => unit !== null)).toBe(true);
    expect(hosts.variables.map(({ name, kind, current }) => [name, kind, ...current])).toEqual([["instance", "values", ALL], ["interval", "custom", "100ms"]]);
    const times = { fromMs: 0, toMs: 300_000, stepMs: 1000, sampledMs: 100 };
    expect(filled(all[0]!.targets[0]!.expression, hosts.variables, new Map(), times)).toBe('sum by (instance, mode) (rate(node_cpu_seconds_total{instance=~".+",mode!="idle"}[1100ms]))');
    expect(hosts.lastMs).toBe(300_000);
    expect(JSON.parse(exported(imported(shipped)))).toEqual({ ...objectOf(JSON.parse(shipped)), id: null });
  });
});

describe("variables", () => {
  const times = { fromMs: 1000, toMs: 61_000, stepMs: 200, sampledMs: 5000 };
  const fill = (text: string, chosen: Record<string, string[]> = {}): string => filled(text, shown.variables, new Map(Object.entries(chosen)), times);

  it("stand for one value, several, or all", () => {
    expect(fill('up{instance=~"$instance"}')).toBe('up{instance=~".+"}');
    expect(fill('up{instance=~"${instance}"}', { instance: ["web.1"] })).toBe('up{instance=~"web\\\\.1"}');
    expect(fill('up{instance=~"[[instance]]"}', { instance: ["a", "b"] })).toBe('up{instance=~"(a|b)"}');
    expect(fill('up{instance=~"$instance"}', { instance: ["web-.*"] })).toBe('up{instance=~"web-.*"}');
    expect(fill("${instance:csv} ${instance:pipe}", { instance: ["a", "b"] })).toBe("a,b a|b");
    expect(fill("$resolution $nothing $instances")).toBe("5m $nothing $instances");
    expect(fill("[$rate]", { rate: ["$__interval"] })).toBe("[200ms]");
  });

  it("never end the text in which they stand", () => {
    expect(fill('{a="$job"}', { job: ['x"} or up{b="'] })).toBe('{a="x\\"} or up{b=\\""}');
    expect(fill('{instance=~"$instance"}', { instance: ['\u202e<b>"\\'] })).toBe('{instance=~"\u202e<b>\\"\\\\\\\\"}');
  });

  it("of the time shown", () => {
    expect(fill("$__interval $__interval_ms ${__rate_interval} $__range $__range_s $__range_ms $__from $__to")).toBe("200ms 200 20s 60s 60 60000 1000 61000");
    expect(filled("$__rate_interval", [], new Map(), { ...times, stepMs: 60_000 })).toBe("65s");
    expect(filled("$__rate_interval $__range", [], new Map(), null)).toBe("$__rate_interval $__range");
  });

  it("are filled by label_values, and narrowed by a regular expression", () => {
    expect(variable("instance")).toMatchObject({ kind: "values", isMulti: true, hasAll: true, current: [ALL] });
    expect(labelQuery(variable("instance").query)).toEqual({ selector: 'up{job="web"}', label: "instance" });
    expect(labelQuery("label_values(device)")).toEqual({ selector: "", label: "device" });
    expect(labelQuery('label_values(a{x=~"b,c", y="(d)"}, e)')).toEqual({ selector: 'a{x=~"b,c", y="(d)"}', label: "e" });
    expect(labelQuery("query_result(up)")).toBeNull();
    expect(narrowed(["eth0", "lo", "eth1"], "/eth(.*)/")).toEqual(["0", "1"]);
    expect(narrowed(["eth0", "lo"], "")).toEqual(["eth0", "lo"]);
    expect(narrowed(["a"], "/(/")).toEqual(["a"]);
  });

  it("are told and typed", () => {
    expect(titleOf("Of $instance, ${device} and $x", shown.variables, new Map([["device", ["a.b", "c"]]]))).toBe("Of All, a.b, c and $x");
    expect(variable("resolution").options).toEqual([{ text: "1m", value: "1m" }, { text: "Five", value: "5m" }]);
    expect([typed("all", true), typed("", true), typed("a, b", true)]).toEqual([[ALL], [ALL], ["a", "b"]]);
    expect([told([ALL]), told(["a", "b"])]).toEqual(["All", "a, b"]);
    expect([lengthOf("100ms"), lengthOf(">10s"), lengthOf("1.5m"), lengthOf(""), lengthOf("$x")]).toEqual([100, 10_000, 90_000, null, null]);
  });
});

describe("changes of a board", () => {
  const places = (file: Json): unknown[] => objectsOf(file["panels"]).map((panel) => {
    const { w, x, y, h } = placeOf(panel);
    return [panel["title"], w, x, y, h];
  });
  const four = ["A", "B", "C", "D"].reduce((file, title) => added(file, newPanel("timeseries", title, "up", "")), emptyBoard("Four"));

  it("add panels one after the other, with what they need", () => {
    expect(places(four)).toEqual([["A", 12, 0, 0, 8], ["B", 12, 12, 0, 8], ["C", 12, 0, 8, 8], ["D", 12, 12, 8, 8]]);
    expect(objectsOf(four["panels"]).map(({ id }) => id)).toEqual([1, 2, 3, 4]);
    const bare = added({ panels: [] }, newPanel("stat", "S", 'up{instance=~"$instance"}', "s"));
    expect(objectsOf(objectOf(bare["templating"])["list"]).map(({ name }) => name)).toEqual(["source", "instance"]);
    expect(dashboardOf(bare).sections[0]!.panels[0]).toMatchObject({ kind: "stat", unit: { unit: "seconds" }, targets: [{ expression: 'up{instance=~"$instance"}' }] });
  });

  it("move panels past one another", () => {
    const next = moved(four, [1], 1);
    expect(places(next)).toEqual([["A", 12, 0, 0, 8], ["C", 12, 12, 0, 8], ["B", 12, 0, 8, 8], ["D", 12, 12, 8, 8]]);
    expect(places(moved(next, [2], -1))).toEqual(places(four));
    expect([canMove(four, [0], -1), canMove(four, [0], 1), canMove(four, [3], 1)]).toEqual([false, true, false]);
    expect(moved(four, [0], -1)["panels"]).toEqual(four["panels"]);
  });

  it("make panels wider and higher, and the others make room", () => {
    expect(places(resized(four, [0], { w: 1 }))).toEqual([["A", 16, 0, 0, 8], ["B", 12, 0, 8, 8], ["C", 12, 12, 8, 8], ["D", 12, 0, 16, 8]]);
    expect(places(resized(four, [0], { h: 1 }))).toEqual([["A", 12, 0, 0, 10], ["B", 12, 12, 0, 8], ["C", 12, 0, 10, 8], ["D", 12, 12, 8, 8]]);
    expect(placeOf(objectsOf(resized(four, [1], { w: -1 })["panels"])[1]!)).toEqual({ x: 12, y: 0, w: 8, h: 8 });
  });

  it("remove and rewrite one and leave the others", () => {
    expect(places(removed(four, [0]))).toEqual([["B", 12, 12, 0, 8], ["C", 12, 0, 0, 8], ["D", 12, 12, 8, 8]]);
    const next = rewritten(four, [1], "up == 0");
    expect(dashboardOf(next).sections[0]!.panels[1]!.targets[0]!.expression).toBe("up == 0");
    expect(objectsOf(next["panels"])[0]).toBe(objectsOf(four["panels"])[0]);
  });

  it("reach panels of rows that are folded, and keep rows on lines of their own", () => {
    const inner = titled("Inner");
    expect(inner.path).toHaveLength(2);
    expect(dashboardOf(renamed(board, inner.path, "New")).sections[2]!.panels[0]!.title).toBe("New");
    expect(dashboardOf(removed(board, inner.path)).sections[2]!.panels).toEqual([]);
    // Over the row: the panel is now the first of those below.
    const over = moved(board, titled("Notes").path, 1);
    expect(dashboardOf(over).sections.map(({ panels: own }) => own.length)).toEqual([3, 6, 1]);
    const taken = objectsOf(over["panels"]).map(placeOf);
    taken.forEach((a, i) => taken.slice(i + 1).forEach((b) => expect(a.x + a.w <= b.x || b.x + b.w <= a.x || a.y + a.h <= b.y || b.y + b.h <= a.y, JSON.stringify([a, b])).toBe(true)));
  });

  it("are no different for files without ids and places", () => {
    const odd = { panels: [{ type: "text", options: { content: "x" } }, 7, null, { type: "text", gridPos: { x: 99, y: -1, w: 99, h: "a" } }] };
    expect(dashboardOf(odd).sections[0]!.panels.map(({ place }) => place)).toEqual([{ x: 0, y: 0, w: 12, h: 8 }, { x: 0, y: 0, w: 24, h: 8 }]);
  });
});

describe("values of a panel", () => {
  const series = (labels: Record<string, string>, ...values: number[]): Answered["result"]["series"][number] => ({ labels, points: values.map((value, i) => ({ t_ms: i * 1000, value })) });
  const answer = (legend: string, ...all: Answered["result"]["series"]): Answered => ({ target: { ref: "A", expression: "up", legend, interval: "" }, result: { kind: "matrix", series: all, text: "", warnings: [], infos: [] } });

  it("are named by legends, or by what tells them apart", () => {
    expect(linesOf([answer("{{instance}} of {{ job }}", series({ instance: "a", job: "j" }, 1))]).map(({ label }) => label)).toEqual(["a of j"]);
    expect(linesOf([answer("", series({ instance: "a", job: "j" }, 1), series({ instance: "b", job: "j" }, 1))]).map(({ label }) => label)).toEqual(["instance a", "instance b"]);
    expect(linesOf([answer("", series({}, 1))]).map(({ label }) => label)).toEqual(["up"]);
    expect(linesOf([answer("{{evil}}", series({ evil: "<img src=x>" }, 1))])[0]!.label).toBe("<img src=x>");
  });

  it("are drawn in the panel's unit", () => {
    const { spec, tracks } = panelDrawing(titled("Busy"), [answer("", series({}, 50, 60))], 1000, shownUnit(titled("Busy"), { unit: "", perSecond: false }), 100);
    expect(spec).toMatchObject({ unit: "share", top: 1, kind: "lines" });
    expect([...tracks.values()][0]!.newest).toBe(1000);
  });

  it("become one figure each, with state and share", () => {
    const { figures } = figuresOf(titled("Busy"), [answer("{{i}}", series({ i: "a" }, 90, 110), series({ i: "b" }, 10, 40))], shownUnit(titled("Busy"), { unit: "", perSecond: false }));
    expect(figures).toEqual([{ label: "a", value: 1, state: "bad", share: 1 }, { label: "b", value: 0.25, state: "good", share: 0.25 }]);
    const points = [2, NaN, 6, 4].map((value, i) => ({ t_ms: i, value }));
    expect(["mean", "sum", "min", "max", "range", "count", "first", "diff", "lastNotNull"].map((name) => calculated(name, points))).toEqual([4, 12, 2, 6, 4, 3, 2, 2, 4]);
    expect(calculated("mean", [])).toBeNaN();
    expect([isOfEnd("lastNotNull"), isOfEnd("max")]).toEqual([true, false]);
  });

  it("have Grafana's units, and ours have names there", () => {
    expect([scaledOf("ms"), scaledOf("Bps"), scaledOf("currencyUSD")]).toEqual([{ unit: "seconds", perSecond: false, scale: 0.001 }, { unit: "bytes", perSecond: true, scale: 1 }, null]);
    for (const unit of [{ unit: "bytes", perSecond: true }, { unit: "seconds", perSecond: false }, { unit: "share", perSecond: false }]) expect(scaledOf(grafanaUnit(unit))).toMatchObject(unit);
  });
});

describe("names of files", () => {
  it("are made of titles and lead nowhere else", () => {
    expect([nameOf("Web tier: Überblick"), nameOf("../../etc"), nameOf("…"), nameOf("a".repeat(99))]).toEqual(["web-tier-uberblick", "etc", "board", "a".repeat(64)]);
    expect(["a", "A.b_c-1"].every(isName) && ["", ".a", "a/b", "..", "a b"].every((name) => !isName(name))).toBe(true);
  });
});

describe("turns", () => {
  it("let so many work at a time, and go on after a failure", async () => {
    const turns = new Turns(2);
    let [running, most] = [0, 0];
    const work = async (fails: boolean): Promise<void> => {
      running++;
      most = Math.max(most, running);
      await Promise.resolve();
      running--;
      if (fails) throw new Error("x");
    };
    const done = await Promise.allSettled([true, false, true, false, false].map((fails) => turns.take(() => work(fails))));
    expect([most, done.filter(({ status }) => status === "rejected").length]).toEqual([2, 2]);
  });
});
