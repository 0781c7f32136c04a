// SPDX-License-Identifier: Apache-2.0
//! Queries: PromQL over all hosts, as a chart over the time shown or as a table at its end. The address has all of it.

import { askAdd } from "../boards/create";
import { grafanaUnit } from "../boards/units";
import { now, syncedStatus } from "../clock";
import { h, setText } from "../dom";
import { sentence } from "../format";
import { type Result, ask } from "../promql";
import { Answer } from "../query/answer";
import { QueryField } from "../query/field";
import { Known } from "../query/known";
import { forget, lastQueries, remember } from "../query/past";
import { faultOf } from "../query/place";
import { MAX_SERIES, type Shape, stepsOf, unitOf } from "../query/result";
import { ApiError } from "../request";
import { replaceParameters } from "../router";
import { TimeBar } from "../timebar";
import { AskedTime } from "../timed";
import { type Span, type View, fromParameters, spanOf, toParameters } from "../view";
import { type Page, Trouble } from "./page";

/** A live answer is asked for again: no sooner than so, and so that it is worked on for a tenth of the time at most. */
const EVERY_MS = 5000;
const SHARE = 10;
/** A view that changes is asked for once it rests. */
const REST_MS = 150;
/** Answers that come sooner need no way to stop them. */
const STOP_AFTER_MS = 400;
const DEFAULT_WINDOW = "1h";

const EXAMPLES: readonly [string, string][] = [
  ["Busy share of CPUs", 'sum by (instance) (rate(node_cpu_seconds_total{mode!="idle"}[1m])) / count by (instance) (node_cpu_seconds_total{mode="idle"})'],
  ["The five fullest file systems", "topk(5, 1 - node_filesystem_avail_bytes / node_filesystem_size_bytes)"],
  ["Memory that is left", "node_memory_MemAvailable_bytes"],
  ["Bytes each second that come in", 'sum by (instance) (rate(node_network_receive_bytes_total{device!="lo"}[1m]))'],
  ["Hosts that are not read", "up == 0"],
];

function viewOf(parameters: URLSearchParams): View {
  const known = new URLSearchParams(parameters);
  if (!known.has("w")) known.set("w", DEFAULT_WINDOW);
  return fromParameters(known);
}
const shapeOf = (parameters: URLSearchParams): Shape => (parameters.get("view") === "table" ? "table" : "chart");

export function queryPage(parameters: URLSearchParams): Page {
  const abort = new AbortController();
  const known = new Known();
  const field = new QueryField(known, () => run());
  let shape = shapeOf(parameters);
  /** What the address has and the answer is of; the field may be further. */
  let query = parameters.get("q") ?? "";
  let oldest: number | null = null;
  let asking: AbortController | null = null;
  let timer: number | undefined;
  let stopTimer: number | undefined;
  let isStoppable = false;

  const runButton = h("button", { type: "button", class: "run", title: "Run the query (Enter)", on: { click: () => (isStoppable ? stop() : run()) } }, "Run");
  const shapes = (["chart", "table"] as Shape[]).map((name) => ({ name, chip: h("button", { type: "button", class: "chip", title: name === "chart" ? "Values over the time shown (v)" : "Values at its end (v)", on: { click: () => choose(name) } }, name === "chart" ? "Chart" : "Table") }));
  const addButton = h("button", { type: "button", class: "chip", title: "Add this query to a board (B)", on: { click: () => void addToBoard() } }, "Add to board");
  const past = h("div", { class: "query-past" });
  const begin = h("details", { class: "query-begin folded card", on: { toggle: () => showPast() } }, h("summary", {}, "Last queries and examples"), past);

  const timed = new AskedTime(viewOf(parameters), {
    move: (span) => {
      answer.move(span);
      later(REST_MS);
    },
    redraw: () => void evaluate(),
    showSelection: (span) => answer.showSelection(span),
  });
  const answer = new Answer(() => timed.navigator);
  const addressOf = (view: View): URLSearchParams => {
    const own = new URLSearchParams(query === "" ? [] : [["q", query]]);
    for (const [name, value] of toParameters(view)) own.set(name, value);
    if (shape === "table") own.set("view", shape);
    return own;
  };
  const timebar = new TimeBar(timed, addressOf, () => undefined);
  const message = h("div");
  const content = h(
    "div", {},
    h("div", { class: "query-head" }, field.element, runButton),
    h("div", { class: "toolbar" }, h("div", { class: "chips", role: "group", "aria-label": "Shown as" }, ...shapes.map(({ chip }) => chip)), addButton, timebar.element),
    begin, answer.element,
  );
  const trouble = new Trouble(content, message, () => void evaluate());

  function run(): void {
    const isOther = field.value !== query;
    query = field.value;
    if (query.trim() !== "") remember(query.trim());
    showPast();
    if (isOther) timebar.enter();
    begin.open = query.trim() === "";
    void evaluate();
  }

  async function addToBoard(): Promise<void> {
    if (query.trim() === "") {
      field.showFault(null, "Type a query first: it is what is added to a board.");
      return;
    }
    try {
      await askAdd(query.trim(), shape === "table" ? "table" : "timeseries", grafanaUnit(unitOf(query, known.metrics)));
    } catch (error) {
      if (!abort.signal.aborted) trouble.show(error instanceof Error ? error : new Error(String(error)), "");
    }
  }

  function choose(next: Shape): undefined {
    shape = next;
    showShape();
    replaceParameters(addressOf(timed.view));
    void evaluate();
    return undefined;
  }

  function stop(): void {
    asking?.abort();
    setAsking(null);
    clearTimeout(timer);
  }

  function setAsking(next: AbortController | null): void {
    asking = next;
    answer.setBusy(next !== null);
    clearTimeout(stopTimer);
    if (next === null) offerStop(false);
    else stopTimer = setTimeout(() => offerStop(true), STOP_AFTER_MS);
  }

  function offerStop(offered: boolean): void {
    isStoppable = offered;
    setText(runButton, offered ? "Stop" : "Run");
    runButton.title = offered ? "Give up the query" : "Run the query (Enter)";
  }

  function later(ms: number): void {
    clearTimeout(timer);
    timer = setTimeout(() => void evaluate(), ms);
  }

  async function evaluate(): Promise<void> {
    stop();
    field.showFault(null, null);
    if (query.trim() === "") {
      answer.clear();
      return;
    }
    if (document.hidden) return;
    const mine = new AbortController();
    setAsking(mine);
    const began = performance.now();
    const span = spanOf(timed.view, now());
    const steps = stepsOf(span);
    try {
      const [{ result, as }, metrics] = await Promise.all([askAs(shape, span, mine.signal), known.readMetrics().catch(() => known.metrics)]);
      if (mine.signal.aborted) return;
      trouble.banner.show(null);
      timed.asked = span;
      const tookMs = performance.now() - began;
      setAsking(null);
      answer.show(result, { query, span, steps, shape: as, tookMs }, metrics, { oldest, now: now() });
      if (timed.view.span === null) later(Math.max(EVERY_MS, steps.stepMs, SHARE * tookMs));
    } catch (error) {
      if (mine.signal.aborted) return;
      setAsking(null);
      fail(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** A text, or a range vector, has no values over time: it is shown as it is at the end. */
  async function askAs(wanted: Shape, span: Span, signal: AbortSignal): Promise<{ result: Result; as: Shape }> {
    if (wanted === "table") return { result: await ask(query, { atMs: span.to }, MAX_SERIES.table, signal), as: wanted };
    try {
      return { result: await ask(query, stepsOf(span), MAX_SERIES.chart, signal), as: wanted };
    } catch (error) {
      if (error instanceof ApiError && error.message.includes("for range query, must be Scalar or instant Vector")) return askAs("table", span, signal);
      throw error;
    }
  }

  function fail(error: Error): void {
    if (!(error instanceof ApiError)) {
      field.showFault(null, sentence(error.message));
      return;
    }
    // Nobody has refused the query: what is known stays, and it is tried again.
    const isRefused = error.status === 400 || error.status === 422;
    if (!isRefused) {
      if (trouble.show(error, "What is shown is as it was.") && timed.view.span === null) later(EVERY_MS);
      return;
    }
    trouble.banner.show(null);
    answer.clear();
    const fault = field.value === query ? faultOf(error.message, query) : null;
    field.showFault(fault, fault === null ? sentence(error.message.replace(/^invalid parameter "query": /, "")) : null);
  }

  function showShape(): void {
    for (const { name, chip } of shapes) chip.setAttribute("aria-pressed", String(name === shape));
  }

  function showPast(): void {
    const item = (text: string, label: string | null): HTMLElement =>
      h("li", {}, h("button", { type: "button", class: "quiet", on: { click: () => { field.value = text; run(); field.focus(); } } }, label === null ? null : h("span", { class: "dim" }, label), h("code", {}, text)));
    const last = lastQueries();
    past.replaceChildren(
      ...(last.length === 0 ? [] : [h("h2", {}, "Last queries"), h("ul", {}, ...last.map((text) => item(text, null))), h("button", { type: "button", on: { click: () => { forget(); showPast(); } } }, "Forget them")]),
      h("h2", {}, "Examples"), h("ul", {}, ...EXAMPLES.map(([label, text]) => item(text, label))),
    );
  }

  async function start(): Promise<void> {
    try {
      oldest = (await syncedStatus(abort.signal)).store.oldest_ms;
      timebar.setOldest(oldest);
    } catch (error) {
      if (abort.signal.aborted) return;
      // The query's own failure says it, too; without one nobody would.
      if (query.trim() === "") trouble.show(error instanceof Error ? error : new Error(String(error)), "");
    }
    void evaluate();
  }

  const visible = (): void => { if (!document.hidden && (timed.view.span === null || timed.asked === null)) void evaluate(); };
  document.addEventListener("visibilitychange", visible);
  field.value = query;
  begin.open = query.trim() === "";
  showPast();
  showShape();
  void start();

  return {
    title: "Query",
    element: h("div", { class: "page query" }, h("h1", { class: "hidden" }, "Query"), trouble.banner.element, content, message),
    bindings: [
      { keys: ["e"], help: "To the query", run: () => { field.focus(); return undefined; } },
      { keys: ["B"], help: "Add the query to a board", run: () => { void addToBoard(); return undefined; } },
      { keys: ["v"], help: "Chart or table", run: () => choose(shape === "chart" ? "table" : "chart") },
      { keys: [], shown: "Enter Shift+Enter", help: "In the query: run it, a new line", run: () => false },
      { keys: [], shown: "Tab ↓ Ctrl+Space Esc", help: "In the query: take the first of the list, choose, open it, close it", run: () => false },
      ...timebar.bindings,
    ],
    shown: () => { if (query === "") field.focus(); },
    follow: (next) => {
      query = next.get("q") ?? "";
      field.value = query;
      shape = shapeOf(next);
      showShape();
      begin.open = query.trim() === "";
      timebar.follow(viewOf(next));
      return true;
    },
    destroy: () => {
      stop();
      abort.abort();
      known.destroy();
      field.destroy();
      timebar.destroy();
      answer.destroy();
      document.removeEventListener("visibilitychange", visible);
    },
  };
}
