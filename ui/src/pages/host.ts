// SPDX-License-Identifier: Apache-2.0
//! One host: its state, its charts, any metric by search, its regions.

import { nameOf, ofHost, onChange, showAlertState, summaryOf } from "../alerts";
import { ApiError, type HostDetail, type Series, getHost, getSeries } from "../api";
import { Board } from "../board";
import type { Chart } from "../charts/chart";
import type { ChartSpec } from "../charts/frame";
import { PROGRAM_SEARCH, STANDARD_SEARCHES, chartOf, programs, standard } from "../charts/standard";
import { now, syncedStatus } from "../clock";
import { h, notice, setClass, setHidden, setText } from "../dom";
import { age, clockTime, count, duration, moment, reasons, sum } from "../format";
import type { Binding } from "../keys";
import type { LiveState } from "../live";
import { poll } from "../poll";
import { hostAddress, replaceParameters } from "../router";
import { overQuota, pairHelp, pairLong, showRemoved, showState } from "../state";
import { TimeBar } from "../timebar";
import { type View, fromParameters, toParameters } from "../view";
import { type Page, Trouble } from "./page";
import { RegionList } from "./regions";
import { MetricSearch } from "./search";

const POLL_MS = 1000;
const AGE_MS = 100;
const MAX_SERIES = 1000;

export function hostPage(name: string, parameters: URLSearchParams): Page {
  const abort = new AbortController();
  const message = h("div", {}, notice("loading", `Reading ${name} …`));
  const grid = h("div", { class: "charts" });
  const head = new Head(name);
  const regions = new RegionList();
  let detail: HostDetail | null = null;
  let labels: string[] = [];
  let live: LiveState = "connecting";
  let problem: string | null = null;
  let removedAt: number | null = null;

  const board = new Board(name, fromParameters(parameters), grid, {
    live: (state) => { live = state; showLive(); },
    problem: (text) => { problem = text; showBanner(null); },
    host: () => showLive(),
  });
  const search = new MetricSearch(name, {
    series: (series) => choose(() => Promise.resolve([series])),
    family: (metric) => choose(() => family(metric)),
  });
  const timebar = new TimeBar(board, addressOf, () => showLive());
  const liveSign = h("span", { class: "live", role: "status" });
  const toolbar = h("div", { class: "toolbar sticky" }, search.element, timebar.element, liveSign);
  const more = h("p", { class: "dim more-programs", hidden: true });
  const content = h("div", { hidden: true }, head.element, toolbar, grid, more, regions.element);

  const added: { key: string; chart: Chart }[] = [];
  const unasked = new Map<string, Chart>();

  function choose(find: () => Promise<Series[]>): void {
    find().then((series) => {
      if (series.length === 0) throw new Error("This metric is no longer there.");
      addChart(series);
      remember();
    }).catch((error: unknown) => {
      if (!abort.signal.aborted) showBanner(error instanceof Error ? error.message : String(error));
    });
  }

  async function family(metric: string): Promise<Series[]> {
    const { series } = await getSeries(name, metric, MAX_SERIES, abort.signal);
    return series.filter((item) => item.name === metric);
  }

  /** Labels of the host itself. */
  const known = (): ReadonlySet<string> => new Set(["instance", ...labels]);

  const keyOf = (series: Series[]): string => (series.length === 1 ? `c=${series[0]!.series}` : `f=${series[0]!.name}`);

  /** A program's chart that nobody has asked for. */
  function addUnasked(spec: ChartSpec): void {
    const key = keyOf(spec.series);
    unasked.set(key, board.add(spec, () => removeUnasked(key)));
  }

  function removeUnasked(key: string): void {
    const chart = unasked.get(key);
    if (chart !== undefined) board.remove(chart);
    unasked.delete(key);
  }

  function addChart(series: Series[]): void {
    const key = keyOf(series);
    // The same below would be told twice.
    removeUnasked(key);
    const before = added.find((item) => item.key === key);
    if (before !== undefined) {
      reveal(before.chart);
      return;
    }
    const chart = board.add(chartOf(series, key, known()), () => {
      board.remove(chart);
      added.splice(added.findIndex((item) => item.chart === chart), 1);
      remember();
    });
    // What was asked for stands first.
    grid.prepend(chart.element);
    added.push({ key, chart });
    reveal(chart);
  }

  function reveal(chart: Chart): void {
    chart.element.scrollIntoView({ block: "nearest" });
    chart.element.classList.remove("fresh");
    chart.element.getBoundingClientRect(); // Restarts the animation.
    chart.element.classList.add("fresh");
  }

  function addressOf(view: View): URLSearchParams {
    const next = new URLSearchParams(toParameters(view));
    for (const { key } of added) next.append(key.slice(0, 1), key.slice(2));
    return next;
  }

  const remember = (): void => replaceParameters(addressOf(board.view));

  function showLive(): void {
    if (board.charts.length === 0) {
      setText(liveSign, detail === null ? "" : detail.state);
      liveSign.dataset["state"] = "wait";
      return;
    }
    const since = board.silentSince();
    const fixed = board.view.span === null ? null : { reading: "reading …", "open-ended": "end incomplete", complete: "paused" }[board.reading];
    const text = fixed !== null ? fixed : live === "lost" ? "connection lost, trying again" : live === "connecting" ? "connecting" : since !== null ? `silent since ${clockTime(since)}` : "live";
    setText(liveSign, text);
    liveSign.title = text === "end incomplete" ? "Rows of the last seconds may still come. They are read once more" : "";
    liveSign.dataset["state"] = fixed !== null ? "paused" : live === "connecting" ? "wait" : live === "open" && since === null ? "live" : "bad";
  }

  function showBanner(stale: string | null): void {
    trouble.banner.show(stale ?? problem);
  }

  /** False as long as there is nothing to show. */
  async function begin(host: HostDetail): Promise<boolean> {
    if (host.series === 0) {
      grid.replaceChildren(notice("empty", "Not read yet", h("p", {}, host.error === null ? "Charts come as soon as the host is read." : "The reason stands above; charts come as soon as the host is read.")));
      return false;
    }
    // Times of charts are the controller's.
    timebar.setOldest((await syncedStatus(abort.signal)).store.oldest_ms);
    const lists = await Promise.all([...STANDARD_SEARCHES, PROGRAM_SEARCH].map((text) => getSeries(name, text, MAX_SERIES, abort.signal)));
    const ofPrograms = lists.pop()!.series;
    const found = new Map(lists.flatMap((list) => list.series).map((item) => [item.series, item]));
    const specs = standard([...found.values()]);
    grid.replaceChildren();
    for (const spec of specs) board.add(spec, null);
    const { specs: own, left } = programs(ofPrograms, known());
    own.forEach(addUnasked);
    setHidden(more, left === 0);
    setText(more, `The programs on this host publish ${left} more metrics: press / and search.`);
    for (const text of parameters.getAll("c")) {
      const { series } = await getSeries(name, text, MAX_SERIES, abort.signal);
      const exact = series.filter((item) => item.series === text);
      if (exact.length > 0) addChart(exact);
    }
    for (const text of parameters.getAll("f")) {
      const series = await family(text);
      if (series.length > 0) addChart(series);
    }
    if (specs.length + own.length === 0 && added.length === 0) grid.append(notice("empty", "No kernel metrics here", h("p", {}, "This host gives none of the usual ones. Press / and search for what its programs publish.")));
    window.scrollTo(0, 0);
    return true;
  }

  let begun = false;
  const trouble = new Trouble(content, message, () => polling.soon());
  const polling = poll(
    POLL_MS,
    async (signal) => {
      const got = await getHost(name, signal);
      board.setHost(got.state, got.interval_ms, got.age_ms);
      labels = Object.keys(got.labels);
      if (!begun) {
        begun = await begin(got);
      }
      return got;
    },
    (got) => {
      if (removedAt !== null) {
        // Streams and charts of the host that was there before are of no use.
        location.reload();
        return;
      }
      detail = got;
      setHidden(content, false);
      message.replaceChildren();
      head.show(got);
      regions.show(got.regions_list);
      showBanner(null);
      showLive();
    },
    (error) => {
      if (error instanceof ApiError && error.status === 404) {
        showGone();
        return false;
      }
      const again = trouble.show(error, detail === null ? null : "Trying again.");
      // Without a token streams are refused as well.
      if (!again) board.end();
      return again;
    },
  );

  /** There is no such host, or no longer: nothing is asked for any more, what was read stays. */
  function showGone(): void {
    const again = h("button", { type: "button", on: { click: () => polling.soon() } }, "Look again");
    if (detail === null) {
      message.replaceChildren(notice("empty", `There is no host ${name}`, h("p", {}, "It may have been removed or renamed."), h("p", {}, h("a", { href: "#/" }, "To the fleet")), again));
      return;
    }
    removedAt ??= now();
    trouble.banner.show(null);
    message.replaceChildren(
      notice("error", `${name} is no longer watched`, h("p", {}, `It was removed from this controller’s hosts (noticed at ${clockTime(removedAt)}). Below is what was read before.`), h("p", {}, h("a", { href: "#/" }, "To the fleet")), again),
    );
    board.end();
    timebar.end();
    head.showRemoved();
    // Nothing in it would do anything.
    setHidden(toolbar, true);
  }

  const ages = setInterval(() => {
    if (removedAt === null) head.showAge(Number.isNaN(board.newestMs) ? null : now() - board.newestMs, board.silentSince() !== null);
    showLive();
  }, AGE_MS);
  const stopAlerts = onChange(() => head.showAlerts());

  const bindings: Binding[] = [
    { keys: ["/"], help: "Search metrics; Enter adds a chart", run: () => { search.focus(); return undefined; } },
    ...timebar.bindings,
    { keys: ["Escape"], help: "Back to the fleet", run: () => { location.hash = "#/"; return undefined; } },
  ];
  return {
    title: name,
    element: h("div", { class: "page" }, trouble.banner.element, message, content),
    bindings,
    follow: (next) => {
      const charts = [...next.getAll("c").map((text) => `c=${text}`), ...next.getAll("f").map((text) => `f=${text}`)];
      if (removedAt !== null || charts.some((key) => added.every((item) => item.key !== key))) return false;
      timebar.follow(fromParameters(next));
      remember();
      return true;
    },
    destroy: () => {
      abort.abort();
      timebar.destroy();
      polling.stop();
      stopAlerts();
      clearInterval(ages);
      search.destroy();
      board.destroy();
    },
  };
}

/** Name, state and the facts of one host. */
class Head {
  private readonly state = h("span");
  private readonly labels = h("span", { class: "dim" });
  private readonly error = h("p", { class: "problem", role: "alert", hidden: true });
  private readonly alerts = h("ul", { class: "host-alerts", "aria-label": "Alerts of this host", hidden: true });
  private readonly facts = new Map<string, HTMLElement>();
  readonly element: HTMLElement;

  constructor(private readonly name: string) {
    const list = h("dl", { class: "facts" });
    for (const label of ["Age", "Read every", "Read via", "Address", "Clock ±", "Series", "Regions", "Gaps", "Since"]) {
      const value = h("dd", { class: "num" }, "–");
      this.facts.set(label, value);
      list.append(h("div", {}, h("dt", {}, label), value));
    }
    const title = h("h1", {}, h("a", { href: hostAddress(name) }, name));
    this.element = h("header", { class: "host-head" }, h("div", { class: "host-title" }, title, this.state, this.labels), this.error, this.alerts, list);
    this.showAlerts();
  }

  showAlerts(): void {
    const alerts = ofHost(this.name);
    setHidden(this.alerts, alerts.length === 0);
    this.alerts.replaceChildren(
      ...alerts.map((alert) => {
        const state = h("span");
        showAlertState(state, alert.state);
        return h("li", {}, state, " ", h("a", { href: `#/alerts?q=${encodeURIComponent(nameOf(alert))}` }, nameOf(alert)), ` ${summaryOf(alert)} `, h("span", { class: "dim" }, `since ${moment(alert.since_ms, now())}`));
      }),
    );
  }

  show(host: HostDetail): void {
    showState(this.state, host.state);
    setText(this.labels, Object.entries(host.labels).map(([name, value]) => `${name}=${value}`).join(" · "));
    const problem = [host.error, overQuota(host)].filter((text) => text !== null).join(" ");
    setHidden(this.error, problem === "");
    setText(this.error, problem);
    setText(this.fact("Read via"), pairLong(host));
    this.fact("Read via").title = pairHelp(host);
    const gaps = sum(host.gaps);
    const shown: Record<string, string> = {
      "Read every": duration(host.interval_ms),
      Address: host.address,
      "Clock ±": duration(host.clock_error_ms),
      Series: count(host.series),
      Regions: count(host.regions),
      Gaps: gaps === 0 ? "0" : `${count(gaps)} (${reasons(host.gaps)})`,
      Since: moment(host.since_ms, now()),
    };
    for (const [label, text] of Object.entries(shown)) setText(this.fact(label), text);
  }

  showRemoved(): void {
    showRemoved(this.state);
    setHidden(this.error, true);
  }

  showAge(ms: number | null, bad: boolean): void {
    setText(this.fact("Age"), age(ms));
    setClass(this.fact("Age"), "bad", bad);
  }

  private fact(label: string): HTMLElement {
    return this.facts.get(label)!;
  }
}

