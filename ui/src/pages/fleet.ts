// SPDX-License-Identifier: Apache-2.0
//! The fleet: every host with how busy and full it is, searchable, sortable, filtered by label and state, and all of them over time; updates itself.

import { onChange } from "../alerts";
import { HOST_STATES, type Host, type HostState, getHosts } from "../api";
import { h, notice, setClass, setHidden, setText } from "../dom";
import { Chosen } from "../fleet/chosen";
import { VIEWS, type View, columns } from "../fleet/columns";
import { filter, labelFilters } from "../fleet/filter";
import { FleetHeat } from "../fleet/heat";
import { METRICS, SPANS } from "../fleet/metrics";
import { FleetVitals } from "../fleet/vitals";
import { age, count } from "../format";
import { HostList, type Known } from "../hosts";
import { poll } from "../poll";
import { hostAddress, replaceParameters } from "../router";
import { STATE_HELP, STATE_RANK, showState } from "../state";
import { type Sorting, Table } from "../table";
import { type Page, Trouble } from "./page";

const POLL_MS = 1000;
/** As often as the controller samples them. */
const VITALS_MS = 5000;
const TRENDS_MS = 10_000;
const AGE_MS = 200;
/** After the last scrolling. */
const REST_MS = 250;

export function fleetPage(parameters: URLSearchParams): Page {
  const list = new HostList(getHosts);
  let hosts: Known[] | null = null;
  let sampledAt = 0;
  const states = new Set<HostState>(HOST_STATES.filter((state) => parameters.getAll("state").includes(state)));
  const labels = new Set(parameters.getAll("label"));

  const search = h("input", { type: "search", placeholder: "Search hosts", "aria-label": "Search hosts by name, address or label", value: parameters.get("q") ?? "" });
  const stateRow = h("div", { class: "chips", role: "group", "aria-label": "Hosts by state" });
  const labelRow = h("div", { class: "chips", role: "group", "aria-label": "Filter by label" });
  const summary = h("p", { class: "summary", role: "status" });
  const message = h("div", {}, notice("loading", "Reading the list of hosts …"));
  const open = (host: Host): void => { location.hash = hostAddress(host.name); };
  const vitals = new FleetVitals();
  let view: View = VIEWS.find((name) => name === parameters.get("view")) ?? "vitals";

  const heat = new FleetHeat(parameters, (host, { from, to }) => { location.hash = `${hostAddress(host)}?from=${Math.round(from)}&to=${Math.round(to)}`; }, () => remember());
  const chosen = new Chosen(parameters.getAll("x"), () => {
    remember();
    // Sorted by the boxes, the table changes.
    if (table.sorting.column === chosen.column.id) render();
    else table.refresh(chosen.column.id);
  });
  const [column = "state", direction = ""] = (parameters.get("sort") ?? "state").split(".");
  let table = tableOf({ column, descending: direction === "desc" });
  const place = h("div", { class: `${view}-view` }, table.element);
  const viewChips = VIEWS.map((name) => h("button", { type: "button", class: "chip", title: name === "vitals" ? "How busy and how full the hosts are" : "How the hosts are read", on: { click: () => show(name) } }, name === "vitals" ? "Vitals" : "Reading"));
  const content = h(
    "div", { hidden: true },
    h("div", { class: "toolbar" }, search, stateRow, h("div", { class: "chips", role: "group", "aria-label": "Columns" }, ...viewChips), summary),
    labelRow, heat.element, place, chosen.element,
  );

  function tableOf(sorting: Sorting): Table<Known> {
    const sorted = (): void => {
      remember();
      showHeat();
    };
    return new Table<Known>("Hosts", [chosen.column, ...columns(view, vitals)], (host) => host.name, open, (host) => STATE_RANK[host.state], sorting, sorted);
  }

  function show(next: View): void {
    view = next;
    const known = [chosen.column, ...columns(view, vitals)].some(({ id }) => id === table.sorting.column);
    table = tableOf(known ? table.sorting : { column: "state", descending: false });
    place.className = `${view}-view`;
    place.replaceChildren(table.element);
    remember();
    render();
  }

  /** A row a host, as in the table. */
  function showHeat(): void {
    queueMicrotask(() => heat.setHosts(table.order));
  }

  const remember = (): void => {
    const next = new URLSearchParams();
    if (search.value.trim() !== "") next.set("q", search.value.trim());
    for (const state of states) next.append("state", state);
    for (const label of labels) next.append("label", label);
    const { column: by, descending } = table.sorting;
    if (by !== "state" || descending) next.set("sort", descending ? `${by}.desc` : by);
    if (view !== "vitals") next.set("view", view);
    if (heat.metric !== METRICS[0]) next.set("heat", heat.metric.key);
    if (heat.span !== SPANS[1]) next.set("over", heat.span.key);
    for (const name of chosen.all) next.append("x", name);
    replaceParameters(next);
  };
  const toggle = <T>(set: Set<T>, item: T): void => {
    if (!set.delete(item)) set.add(item);
    remember();
    render();
  };

  const stateChips = HOST_STATES.map((state) => {
    const number = h("span", { class: "num" });
    const sign = h("span");
    showState(sign, state);
    const chip = h("button", { type: "button", class: "chip", title: STATE_HELP[state], on: { click: () => toggle(states, state) } }, sign, " ", number);
    return { state, chip, number };
  });
  stateRow.append(...stateChips.map(({ chip }) => chip));
  let counted = { version: -1, labels: "" };
  let offeredKey = "";

  function showCounts(all: Known[]): void {
    for (const { state, chip, number } of stateChips) {
      const n = all.filter((host) => host.state === state).length;
      setText(number, count(n));
      setClass(chip, "none", n === 0);
    }
    const offered = labelFilters(all);
    const key = JSON.stringify([offered, [...labels]]);
    if (key === offeredKey) return;
    offeredKey = key;
    labelRow.replaceChildren(
      ...offered.map(([label, n]) =>
        h("button", { type: "button", class: "chip", "aria-pressed": String(labels.has(label)), on: { click: () => toggle(labels, label) } }, label, h("span", { class: "num dim" }, ` ${n}`)),
      ),
    );
  }

  function render(): void {
    if (hosts === null) return;
    VIEWS.forEach((name, i) => viewChips[i]!.setAttribute("aria-pressed", String(name === view)));
    for (const { state, chip } of stateChips) chip.setAttribute("aria-pressed", String(states.has(state)));
    const pressed = JSON.stringify([...labels]);
    // Of ten thousand hosts that is worth doing only if they are others.
    if (counted.version !== list.version || counted.labels !== pressed) {
      counted = { version: list.version, labels: pressed };
      showCounts(hosts);
    }
    const found = filter(hosts, search.value, states, labels);
    // The table looks at its place on the screen.
    setHidden(content, hosts.length === 0);
    setHidden(place, found.length === 0);
    setHidden(heat.element, found.length === 0);
    table.update(found);
    showHeat();
    setText(summary, found.length === hosts.length ? `${count(hosts.length)} hosts` : `${count(found.length)} of ${count(hosts.length)} hosts`);
    const nothing = hosts.length === 0 ? joinNotice() : found.length === 0 ? notice("empty", "No host matches", h("p", {}, "Change the search, or press Esc to clear search and filters.")) : null;
    message.replaceChildren(...(nothing === null ? [] : [nothing]));
  }

  function clear(): boolean | undefined {
    if (search.value === "" && states.size === 0 && labels.size === 0) return false;
    search.value = "";
    states.clear();
    labels.clear();
    remember();
    render();
    return undefined;
  }

  search.addEventListener("input", () => { remember(); render(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      clear();
      search.blur();
    } else if (event.key === "Enter" || event.key === "ArrowDown") table.focus();
    else return;
    event.preventDefault();
  });

  const trouble = new Trouble(content, message, () => polling.soon());
  const polling = poll(
    POLL_MS,
    (signal) => list.refresh(table.inView, signal),
    (got) => {
      const isFirst = hosts === null;
      hosts = got;
      sampledAt = performance.now();
      trouble.banner.show(null);
      render();
      // Now there are hosts in view.
      if (isFirst) trends.soon();
    },
    (error) => trouble.show(error, hosts === null ? null : `Shown is what was known ${age(performance.now() - sampledAt)} ago.`),
  );
  // The list of hosts says what is wrong; without vitals their columns are empty.
  const sampling = poll(VITALS_MS, (signal) => vitals.refresh(signal), () => render(), () => true);
  const trends = poll(TRENDS_MS, (signal) => vitals.refreshTrends(view === "vitals" ? table.inView : [], signal), () => table.refresh("trend"), () => true);
  const ages = setInterval(() => table.refresh("age"), AGE_MS);
  const stop = onChange(render);
  // Hosts that come into view have small lines, too.
  let resting: number | undefined;
  const scrolled = (): void => {
    clearTimeout(resting);
    resting = setTimeout(() => trends.soon(), REST_MS);
  };
  window.addEventListener("scroll", scrolled, { passive: true });

  return {
    title: "Fleet",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Fleet"), trouble.banner.element, content, message),
    bindings: [
      { keys: ["F"], help: "Filter the table", run: () => { search.focus(); search.select(); return undefined; } },
      ...table.bindings.map((binding, i) => ({ ...binding, run: (event: KeyboardEvent) => table.bindings[i]!.run(event) })),
      { keys: ["x"], help: "Choose the host to be compared, or not", run: () => { if (table.activeRow !== null) chosen.toggle(table.activeRow.name); return undefined; } },
      { keys: ["c"], help: "Compare the hosts that are chosen", run: () => chosen.compare() },
      { keys: ["Escape"], help: "Clear search and filters", run: clear },
    ],
    destroy: () => {
      polling.stop();
      sampling.stop();
      trends.stop();
      heat.destroy();
      stop();
      window.removeEventListener("scroll", scrolled);
      clearTimeout(resting);
      clearInterval(ages);
    },
  };
}

function joinNotice(): HTMLElement {
  return notice(
    "empty", "No hosts yet",
    h("p", {}, "On each machine to be watched, run as root:"),
    h("pre", {}, h("code", {}, `onlooker-agent join ${location.origin} @FILE`)),
    h("p", {}, "FILE holds the join token, which [http] join_token_file names in this controller’s configuration (token_file, where there is none). The machine appears here once it is read."),
    h("p", {}, "To see first what it would change, without changing anything:"),
    h("pre", {}, h("code", {}, `onlooker-agent join ${location.origin} @FILE --dry-run`)),
  );
}
