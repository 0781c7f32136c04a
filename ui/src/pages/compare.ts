// SPDX-License-Identifier: Apache-2.0
//! Hosts side by side: each vital in a chart with a line a host, and a query of one's own. The address has hosts, metrics, query and time.

import { type Comparison, fromParameters, ownQuery, toParameters } from "../compare/asked";
import { VitalCharts } from "../compare/charts";
import { now, syncedStatus } from "../clock";
import { h, notice, setHidden, setText } from "../dom";
import { METRICS } from "../fleet/metrics";
import { sentence } from "../format";
import { ask } from "../promql";
import { Answer } from "../query/answer";
import { QueryField } from "../query/field";
import { Known } from "../query/known";
import { MAX_SERIES, stepsOf } from "../query/result";
import { ApiError } from "../request";
import { hostAddress } from "../router";
import { TimeBar } from "../timebar";
import { AskedTime } from "../timed";
import { type Span, type View, spanOf, fromParameters as timeOf, toParameters as timeParameters } from "../view";
import { type Page, Trouble } from "./page";

/** As often as the controller samples; and what is asked takes a tenth of the time at most. */
const EVERY_MS = 5000;
const SHARE = 10;
/** A view that changes is asked for once it rests. */
const REST_MS = 150;
const DEFAULT_WINDOW = "1h";
/** Charts of vitals and of the query have one cursor. */
const CURSOR = "query";
const HOW = 'Type a metric, as node_load1. PromQL needs {instance=~"$hosts"} with each metric: it stands for the hosts above.';

function viewOf(parameters: URLSearchParams): View {
  const known = new URLSearchParams(parameters);
  if (!known.has("w")) known.set("w", DEFAULT_WINDOW);
  return timeOf(known);
}

export function comparePage(parameters: URLSearchParams): Page {
  const abort = new AbortController();
  const known = new Known();
  const field = new QueryField(known, () => run(), "A metric, or PromQL such as rate(node_disk_read_bytes_total{instance=~\"$hosts\"}[1m])");
  let of: Comparison = fromParameters(parameters);
  let oldest: number | null = null;
  let asking: AbortController | null = null;
  let timer: number | undefined;

  const hostRow = h("ul", { class: "chips compare-hosts", "aria-label": "Hosts that are compared" });
  const metricChips = METRICS.map((metric) => h("button", { type: "button", class: "chip", on: { click: () => change({ metrics: METRICS.filter((one) => of.metrics.includes(one) !== (one === metric)) }) } }, metric.label));
  const said = h("p", { class: "dim", role: "status" });
  const timed = new AskedTime(viewOf(parameters), {
    move: (span) => {
      charts.move(span);
      answer.move(span);
      later(REST_MS);
    },
    redraw: () => {
      charts.redraw();
      answer.redraw();
    },
    showSelection: (span) => {
      charts.showSelection(span);
      answer.showSelection(span);
    },
  });
  const charts = new VitalCharts(CURSOR, () => timed.navigator, () => later(0));
  const answer = new Answer(() => timed.navigator);
  const addressOf = (view: View): URLSearchParams => new URLSearchParams([...toParameters(of), ...timeParameters(view)]);
  const timebar = new TimeBar(timed, addressOf, () => undefined);
  const message = h("div");
  const content = h(
    "div", {},
    h("div", { class: "toolbar" }, hostRow),
    h("div", { class: "toolbar" }, h("div", { class: "chips", role: "group", "aria-label": "Charts" }, ...metricChips), timebar.element),
    said, h("h2", { class: "hidden" }, "Vitals"), charts.element,
    h("section", { class: "compare-own", "aria-labelledby": "compare-own" },
      h("h2", { id: "compare-own" }, "A metric or query of these hosts"),
      h("div", { class: "query-head" }, field.element, h("button", { type: "button", class: "run", on: { click: () => run() } }, "Run")), answer.element),
  );
  const trouble = new Trouble(content, message, () => void evaluate());

  /** Something else is compared: one more entry of the browser's history. */
  function change(next: Partial<Comparison>): void {
    of = { ...of, ...next };
    timebar.enter();
    show();
    void evaluate();
  }

  function run(): void {
    if (field.value.trim() !== of.query) change({ query: field.value.trim() });
    else void evaluate();
  }

  function show(): void {
    METRICS.forEach((metric, i) => metricChips[i]!.setAttribute("aria-pressed", String(of.metrics.includes(metric))));
    const others = `#/?${new URLSearchParams(of.hosts.map((name) => ["x", name])).toString()}`;
    hostRow.replaceChildren(
      ...of.hosts.map((name) => h("li", { class: "chip" },
        h("a", { href: `${hostAddress(name)}?${new URLSearchParams(timeParameters(timed.view)).toString()}` }, name),
        h("button", { type: "button", class: "quiet remove", "aria-label": `Without ${name}`, title: `Without ${name}`, on: { click: () => change({ hosts: of.hosts.filter((one) => one !== name) }) } }, "✕"))),
      h("li", {}, h("a", { class: "chip", href: others, title: "Back to the fleet, where these are chosen" }, "Others …")),
    );
    const isEmpty = of.hosts.length === 0;
    message.replaceChildren(...(isEmpty ? [notice("empty", "No hosts to compare", h("p", {}, "Choose some in the fleet: by their boxes, or with the key x."), h("p", {}, h("a", { href: "#/" }, "To the fleet")))] : []));
    setHidden(content, isEmpty);
    charts.set(isEmpty ? [] : of.metrics, of.hosts);
    timed.asked = null;
    charts.move(timed.span);
  }

  function later(ms: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => void evaluate(), ms);
  }

  async function evaluate(): Promise<void> {
    asking?.abort();
    clearTimeout(timer);
    if (document.hidden || of.hosts.length === 0) return;
    const mine = new AbortController();
    asking = mine;
    const began = performance.now();
    // What came a moment ago is live enough for a chart that comes into view now.
    const isRecent = timed.asked !== null && now() - timed.asked.to < EVERY_MS;
    const span = timed.view.span ?? (isRecent ? timed.asked! : spanOf(timed.view, now()));
    if (timed.asked === null || !isRecent) charts.move(span);
    timed.asked = span;
    try {
      await Promise.all([charts.ask(span, mine.signal), evaluateOwn(span, mine.signal)]);
      if (mine.signal.aborted) return;
      trouble.banner.show(null);
      const { silent } = charts;
      setText(said, silent.length === 0 ? "" : `Nothing is known of ${silent.join(", ")} in this time.`);
      if (timed.view.span === null) later(Math.max(EVERY_MS, SHARE * (performance.now() - began)));
    } catch (error) {
      if (mine.signal.aborted) return;
      mine.abort();
      timed.asked = null;
      if (trouble.show(error instanceof Error ? error : new Error(String(error)), "What is shown is as it was.") && timed.view.span === null) later(EVERY_MS);
    }
  }

  async function evaluateOwn(span: Span, signal: AbortSignal): Promise<void> {
    field.showFault(null, null);
    if (of.query === "") {
      answer.clear();
      return;
    }
    const query = ownQuery(of.query, of.hosts);
    if (query === null) {
      answer.clear();
      field.showFault(null, HOW);
      return;
    }
    const began = performance.now();
    const steps = stepsOf(span);
    answer.setBusy(true);
    try {
      const [result, metrics] = await Promise.all([ask(query, steps, MAX_SERIES.chart, signal), known.readMetrics().catch(() => known.metrics)]);
      if (signal.aborted) return;
      answer.show(result, { query: of.query, span, steps, shape: "chart", tookMs: performance.now() - began }, metrics, { oldest, now: now() });
    } catch (error) {
      if (!(error instanceof ApiError) || (error.status !== 400 && error.status !== 422)) throw error;
      answer.clear();
      field.showFault(null, sentence(error.message.replace(/^invalid parameter "query": /, "")));
    } finally {
      answer.setBusy(false);
    }
  }

  async function start(): Promise<void> {
    try {
      oldest = (await syncedStatus(abort.signal)).store.oldest_ms;
      timebar.setOldest(oldest);
    } catch {
      // The queries' own failure says it.
      if (abort.signal.aborted) return;
    }
    void evaluate();
  }

  const visible = (): void => { if (!document.hidden && timed.view.span === null) void evaluate(); };
  document.addEventListener("visibilitychange", visible);
  field.value = of.query;
  show();
  void start();

  return {
    title: "Compare",
    element: h("div", { class: "page compare" }, h("h1", { class: "hidden" }, "Hosts compared"), trouble.banner.element, content, message),
    bindings: [
      { keys: ["e"], help: "To the query", run: () => { field.focus(); return undefined; } },
      { keys: ["Escape"], help: "To the fleet, with these hosts chosen", run: () => { location.hash = `#/?${new URLSearchParams(of.hosts.map((name) => ["x", name])).toString()}`; return undefined; } },
      ...timebar.bindings,
    ],
    follow: (next) => {
      of = fromParameters(next);
      field.value = of.query;
      show();
      timebar.follow(viewOf(next));
      return true;
    },
    destroy: () => {
      asking?.abort();
      clearTimeout(timer);
      abort.abort();
      known.destroy();
      field.destroy();
      timebar.destroy();
      charts.destroy();
      answer.destroy();
      document.removeEventListener("visibilitychange", visible);
    },
  };
}
