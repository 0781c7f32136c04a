// SPDX-License-Identifier: Apache-2.0
//! One host: its state, what is short on it, sections of tables and charts, any metric by search, how it is read.

import { onChange } from "../alerts";
import { type HostDetail, type Series, getHost, getMetrics, getSeries } from "../api";
import { Board } from "../board";
import { PROGRAM_SEARCH, chartOf, programs } from "../charts/any";
import type { Chart } from "../charts/chart";
import type { ChartSpec } from "../charts/frame";
import { STANDARD_SEARCHES, standard } from "../charts/standard";
import { now, syncedStatus } from "../clock";
import { h, notice, setHidden, setText } from "../dom";
import { clockTime, duration, moment, sum } from "../format";
import { Asker } from "../host/asker";
import { deviceTables } from "../host/devicetables";
import { entityMetrics, entityTables } from "../host/entitytables";
import { Head } from "../host/head";
import { Overview } from "../host/overview";
import { Index, SECTION_IDS, Section, type SectionId } from "../host/sections";
import { Subject } from "../host/subject";
import type { Binding } from "../keys";
import type { LiveState } from "../live";
import { poll } from "../poll";
import { ApiError } from "../request";
import { replaceParameters } from "../router";
import { seriesOf } from "../search/ask";
import type { Choices } from "../search/dialog";
import { TimeBar } from "../timebar";
import { type View, fromParameters, toParameters } from "../view";
import { type Page, Trouble } from "./page";
import { RegionList } from "./regions";

const POLL_MS = 1000;
const AGE_MS = 100;
/** More than 500 cores have of their modes. */
const MAX_SERIES = 5000;
/** READs that the host's kernel answers. */
const READS_SEARCH = "onlooker_responder_packets_total answered";

export function hostPage(name: string, parameters: URLSearchParams, search: () => void): Page {
  const abort = new AbortController();
  /** Until its head is there. */
  const title = h("h1", { class: "hidden" }, name);
  const message = h("div", {}, notice("loading", `Reading ${name} …`));
  const asked = h("div", { class: "charts asked" });
  const empty = h("div");
  const head = new Head(name);
  const subject = new Subject(name);
  const asker = new Asker();
  const sections = Object.fromEntries(SECTION_IDS.map((id) => [id, new Section(id)])) as Record<SectionId, Section>;
  const index = new Index(name, sections);
  const regions = new RegionList();
  let detail: HostDetail | null = null;
  let labels: string[] = [];
  let live: LiveState = "connecting";
  let problem: string | null = null;
  let removedAt: number | null = null;
  /** Series of charts that the address names, until they are shown. */
  let ofAddress: Series[][] | null = null;

  const board = new Board(name, fromParameters(parameters), asked, {
    live: (state) => { live = state; showLive(); },
    problem: (text) => { problem = text; showBanner(null); },
    host: () => showLive(),
  });
  const choices: Choices = {
    series: (series) => choose(() => Promise.resolve([series])),
    family: (metric) => choose(() => family(metric)),
  };
  const timebar = new TimeBar(board, addressOf, () => showLive());
  const liveSign = h("span", { class: "live", role: "status" });
  const toolbar = h("div", { class: "toolbar sticky" }, h("button", { type: "button", class: "open-search", on: { click: search } }, "Add a chart", h("kbd", { "aria-hidden": "true" }, "/")), timebar.element, liveSign);
  const layout = h("div", { class: "host-layout" }, index.element, h("div", { class: "host-sections" }, h("h2", { class: "hidden" }, "Added charts"), asked, ...SECTION_IDS.map((id) => sections[id].element)));
  const content = h("div", { hidden: true }, head.element, toolbar, empty, layout);
  sections.reading.body.append(head.reading.element, regions.element);
  // Of a host that is not read yet that alone is known.
  const later = [index.element, ...SECTION_IDS.filter((id) => id !== "reading").map((id) => sections[id].element)];
  for (const element of later) setHidden(element, true);

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

  async function single(text: string): Promise<Series[]> {
    const { series } = await getSeries(name, text, MAX_SERIES, abort.signal);
    return series.filter((item) => item.series === text);
  }

  async function family(metric: string): Promise<Series[]> {
    return (await seriesOf(name, metric, "", MAX_SERIES, abort.signal)).list;
  }

  /** Labels of the host itself. */
  const known = (): ReadonlySet<string> => new Set(["instance", ...labels]);

  const keyOf = (series: Series[]): string => (series.length === 1 ? `c=${series[0]!.series}` : `f=${series[0]!.name}`);

  /** A program's chart that nobody has asked for. */
  function addUnasked(spec: ChartSpec): void {
    const key = keyOf(spec.series);
    unasked.set(key, board.add(spec, () => removeUnasked(key), sections.programs.charts));
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
    asked.prepend(chart.element);
    added.push({ key, chart });
    reveal(chart);
  }

  function reveal(chart: Chart): void {
    chart.element.scrollIntoView({ block: "nearest" });
    chart.element.classList.remove("fresh");
    chart.element.getBoundingClientRect(); // Restarts the animation.
    chart.element.classList.add("fresh");
  }

  /** Charts of a row of a table, until they are removed. */
  function addCharts(section: Section, specs: ChartSpec[]): void {
    const charts = specs.map((spec): Chart => {
      const chart: Chart = board.charts.find((before) => before.spec.id === spec.id) ?? board.add(spec, () => board.remove(chart), section.charts);
      return chart;
    });
    section.charts.prepend(...charts.map((chart) => chart.element));
    charts.forEach(reveal);
  }

  function addressOf(view: View): URLSearchParams {
    const next = new URLSearchParams(toParameters(view));
    for (const { key } of added) next.append(key.slice(0, 1), key.slice(2));
    return next;
  }

  const remember = (): void => replaceParameters(addressOf(board.view));

  /** Figures and tables of another time than now: while charts stand still, and of a host's last moment; with rates over so long before it, or null for as short a time as values allow. */
  function showTime(timeMs: number | null, windowMs: number | null): void {
    if (!asker.setTime(timeMs, windowMs)) return;
    const rates = windowMs === null ? "" : `, rates over the ${duration(windowMs)} before`;
    sections.overview.say(...(timeMs === null ? [] : [`Figures and tables are those of ${moment(timeMs, now())}${rates}.`]));
  }

  function showLive(): void {
    const { span } = board.view;
    if (span === null) showTime(board.silentSince(), null);
    else showTime(span.to, span.to - span.from);
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
      empty.replaceChildren(notice("empty", "Not read yet", h("p", {}, host.error === null ? "Charts come as soon as the host is read." : "The reason stands above; charts come as soon as the host is read.")));
      return false;
    }
    // Times of charts are the controller's.
    timebar.setOldest((await syncedStatus(abort.signal)).store.oldest_ms);
    const [metrics, ofTables, wanted, ...lists] = await Promise.all([
      getMetrics(name, "node_", MAX_SERIES, abort.signal),
      entityMetrics(host, abort.signal),
      Promise.all([...parameters.getAll("c").map(single), ...parameters.getAll("f").map(family)]),
      ...[READS_SEARCH, PROGRAM_SEARCH, ...STANDARD_SEARCHES].map((text) => getSeries(name, text, MAX_SERIES, abort.signal)),
    ]);
    const [reads, ofPrograms, ...usual] = lists.map((list) => list.series);
    const found = new Map(usual.flat().map((item) => [item.series, item]));
    subject.intervalMs = host.interval_ms;
    subject.learn([...found.values(), ...metrics.series, ...ofTables, ...reads!]);
    empty.replaceChildren();
    for (const element of later) setHidden(element, false);
    head.showMachine(subject);
    new Overview(subject, asker, sections.overview, index);
    deviceTables(subject, asker, sections.disks, sections.network);
    entityTables({ host, subject, asker, signal: abort.signal, addCharts }, sections.processes, sections.containers, sections.network);
    for (const [id, specs] of Object.entries(standard([...found.values()])) as [SectionId, ChartSpec[]][]) {
      const section = sections[id];
      for (const spec of specs) board.add(spec, null, section.charts);
      if (specs.length === 0) section.say("This host gives no such metrics: groups in its agent.toml may leave them out, and the log of its agent says what it cannot read.");
    }
    const { specs: own, left } = programs(ofPrograms!, known());
    own.forEach(addUnasked);
    if (own.length === 0) sections.programs.say("No program on this host publishes metrics of its own: docs/sdk-c.md and docs/sdk-rust.md say how.");
    if (left > 0) sections.programs.say(`The programs on this host publish ${left} more metrics: press / and search.`);
    ofAddress = wanted;
    return true;
  }

  /** What the address says besides: once there is a page, or nothing could be scrolled to. */
  function restore(series: Series[][]): void {
    for (const some of series) if (some.length > 0) addChart(some);
    const at = SECTION_IDS.find((id) => id === parameters.get("s"));
    if (at !== undefined) index.jump(at);
    else window.scrollTo(0, 0);
  }

  let begun = false;
  const trouble = new Trouble(content, message, () => polling.soon());
  const polling = poll(
    POLL_MS,
    async (signal) => {
      const got = await getHost(name, signal);
      board.setHost(got.state, got.interval_ms, got.age_ms);
      board.setInvalid(sum(got.invalid_samples), got.labels);
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
      setHidden(title, true);
      message.replaceChildren();
      if (ofAddress !== null) restore(ofAddress);
      ofAddress = null;
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
      setHidden(title, !content.hidden);
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
    asker.end();
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
    ...timebar.bindings,
    { keys: ["s"], help: "Next section", run: () => { index.step(1); return undefined; } },
    { keys: ["S"], help: "Section before", run: () => { index.step(-1); return undefined; } },
    // Tables have them while the focus is in their rows.
    { keys: [], shown: "↓ ↑ Enter", help: "In a table: next row, row before, its charts", run: () => false },
    { keys: ["Escape"], help: "Back to the fleet", run: () => { location.hash = "#/"; return undefined; } },
  ];
  return {
    title: name,
    element: h("div", { class: "page" }, title, trouble.banner.element, message, content),
    bindings,
    follow: (next) => {
      const charts = [...next.getAll("c").map((text) => `c=${text}`), ...next.getAll("f").map((text) => `f=${text}`)];
      if (removedAt !== null || charts.some((key) => added.every((item) => item.key !== key))) return false;
      timebar.follow(fromParameters(next));
      remember();
      return true;
    },
    choices: () => (detail === null || detail.series === 0 || removedAt !== null ? null : choices),
    destroy: () => {
      abort.abort();
      timebar.destroy();
      polling.stop();
      stopAlerts();
      clearInterval(ages);
      asker.end();
      index.destroy();
      board.destroy();
    },
  };
}
