// SPDX-License-Identifier: Apache-2.0
//! The fleet: every host, searchable, sortable, filtered by label and state; updates itself.

import { nameOf, ofHost, onChange, summaryOf } from "../alerts";
import { HOST_STATES, type Host, type HostState, getHosts } from "../api";
import { h, notice, setClass, setHidden, setText } from "../dom";
import { age, count, duration, reasons, sum } from "../format";
import { HostList, type Known } from "../hosts";
import { poll } from "../poll";
import { hostAddress, replaceParameters } from "../router";
import { STATE_HELP, STATE_RANK, ageNow, pairText, showPair, showState } from "../state";
import { type Column, Table } from "../table";
import { type Page, Trouble } from "./page";

const POLL_MS = 1000;
const AGE_MS = 200;
/** A label with more values than this (an id, say) makes no filter. */
const MAX_LABEL_VALUES = 12;

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

  const [column = "state", direction = ""] = (parameters.get("sort") ?? "state").split(".");
  const table = new Table<Known>("Hosts", columns(), (host) => host.name, open, (host) => STATE_RANK[host.state], { column, descending: direction === "desc" }, () => remember());
  const content = h("div", { hidden: true }, h("div", { class: "toolbar" }, search, stateRow, summary), labelRow, table.element);

  const remember = (): void => {
    const next = new URLSearchParams();
    if (search.value.trim() !== "") next.set("q", search.value.trim());
    for (const state of states) next.append("state", state);
    for (const label of labels) next.append("label", label);
    const { column: by, descending } = table.sorting;
    if (by !== "state" || descending) next.set("sort", descending ? `${by}.desc` : by);
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
  let labelKey = "";

  function render(): void {
    if (hosts === null) return;
    for (const { state, chip, number } of stateChips) {
      setText(number, String(hosts.filter((host) => host.state === state).length));
      chip.setAttribute("aria-pressed", String(states.has(state)));
    }
    const offered = labelFilters(hosts);
    const key = JSON.stringify([offered, [...labels]]);
    if (key !== labelKey) {
      labelKey = key;
      labelRow.replaceChildren(
        ...offered.map(([label, n]) =>
          h("button", { type: "button", class: "chip", "aria-pressed": String(labels.has(label)), on: { click: () => toggle(labels, label) } }, label, h("span", { class: "num dim" }, ` ${n}`)),
        ),
      );
    }
    const found = hosts.filter((host) => matches(host, search.value, states, labels));
    table.update(found);
    setText(summary, found.length === hosts.length ? `${count(hosts.length)} hosts` : `${count(found.length)} of ${count(hosts.length)} hosts`);
    const nothing = hosts.length === 0 ? joinNotice() : found.length === 0 ? notice("empty", "No host matches", h("p", {}, "Change the search, or press Esc to clear search and filters.")) : null;
    setHidden(content, hosts.length === 0);
    setHidden(table.element, found.length === 0);
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
      hosts = got;
      sampledAt = performance.now();
      trouble.banner.show(null);
      render();
    },
    (error) => trouble.show(error, hosts === null ? null : `Shown is what was known ${age(performance.now() - sampledAt)} ago.`),
  );
  const ages = setInterval(() => table.refresh(), AGE_MS);
  const stop = onChange(render);

  return {
    title: "Fleet",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Fleet"), trouble.banner.element, content, message),
    bindings: [
      { keys: ["/"], help: "Search", run: () => { search.focus(); search.select(); return undefined; } },
      ...table.bindings,
      { keys: ["Escape"], help: "Clear search and filters", run: clear },
    ],
    destroy: () => {
      polling.stop();
      stop();
      clearInterval(ages);
    },
  };
}

function columns(): Column<Known>[] {
  return [
    {
      id: "name", label: "Host", sort: (host) => host.name,
      cell: (node, host) => {
        if (node.firstChild === null) node.append(h("a", { href: hostAddress(host.name), tabindex: -1 }, host.name), h("span", { class: "dim under" }));
        // What is wrong is worth more than an address.
        setText(node.lastElementChild!, host.error ?? host.address);
        setClass(node.lastElementChild!, "problem", host.error !== null);
        node.title = host.error ?? "";
      },
    },
    { id: "state", label: "State", sort: (host) => STATE_RANK[host.state], cell: (node, host) => showState(node, host.state) },
    {
      id: "alerts", label: "Alerts", title: "That fire, or are pending", descendingFirst: true,
      sort: (host) => ofHost(host.name).reduce((sum, alert) => sum + (alert.state === "firing" ? 1000 : 1), 0),
      cell: (node, host) => {
        const alerts = ofHost(host.name);
        const [first] = alerts;
        setText(node, first === undefined ? "" : nameOf(first) + (alerts.length > 1 ? ` +${alerts.length - 1}` : ""));
        setClass(node, "bad", first?.state === "firing");
        setClass(node, "dim", first?.state === "pending");
        node.title = alerts.map((alert) => `${alert.state}: ${nameOf(alert)}. ${summaryOf(alert)}`).join("\n");
      },
    },
    { id: "via", label: "Read via", title: "Who answers the READs on the host", minor: true, sort: (host) => pairText(host), cell: (node, host) => showPair(node, host) },
    {
      id: "age", label: "Age", title: "Of the newest values", numeric: true, sort: (host) => ageNow(host) ?? -1,
      cell: (node, host) => {
        setText(node, age(ageNow(host)));
        setClass(node, "bad", host.state === "silent");
      },
    },
    { id: "interval", label: "Interval", title: "Between two readings", numeric: true, minor: true, sort: (host) => host.interval_ms, cell: (node, host) => setText(node, duration(host.interval_ms)) },
    {
      id: "gaps", label: "Gaps", title: "Readings that failed, since the controller began", numeric: true, sort: (host) => sum(host.gaps),
      cell: (node, host) => {
        setText(node, count(sum(host.gaps)));
        setClass(node, "dim", sum(host.gaps) === 0);
        node.title = reasons(host.gaps);
      },
    },
    { id: "late", label: "Late", title: "Readings that began later than they were due", numeric: true, minor: true, sort: (host) => host.late, cell: (node, host) => { setText(node, count(host.late)); setClass(node, "dim", host.late === 0); } },
    { id: "series", label: "Series", numeric: true, minor: true, sort: (host) => host.series, cell: (node, host) => setText(node, count(host.series)) },
    {
      id: "labels", label: "Labels", minor: true, sort: (host) => labelsOf(host).join(),
      cell: (node, host) => setText(node, labelsOf(host).join(" · ")),
    },
  ];
}

const labelTexts = new WeakMap<Host, string[]>();

/** Worked out once for what came of a host: filters look at them with every change. */
function labelsOf(host: Host): string[] {
  let texts = labelTexts.get(host);
  if (texts === undefined) {
    texts = Object.entries(host.labels).map(([name, value]) => `${name}=${value}`).sort();
    labelTexts.set(host, texts);
  }
  return texts;
}

/** Labels worth a filter: some hosts have them and others not, and they have few values. */
function labelFilters(hosts: Host[]): [string, number][] {
  const counts = new Map<string, number>();
  const values = new Map<string, number>();
  for (const label of hosts.flatMap(labelsOf)) {
    if (!counts.has(label)) values.set(label.split("=")[0]!, (values.get(label.split("=")[0]!) ?? 0) + 1);
    counts.set(label, (counts.get(label) ?? 0) + 1);
  }
  return [...counts].filter(([label, n]) => n < hosts.length && (values.get(label.split("=")[0]!) ?? 0) <= MAX_LABEL_VALUES).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

/** Values of one label are alternatives; different labels must all fit. */
function matches(host: Host, search: string, states: Set<HostState>, labels: Set<string>): boolean {
  if (states.size > 0 && !states.has(host.state)) return false;
  const own = labelsOf(host);
  const wanted = new Map<string, string[]>();
  for (const label of labels) wanted.set(label.split("=")[0]!, [...(wanted.get(label.split("=")[0]!) ?? []), label]);
  if ([...wanted.values()].some((choices) => !choices.some((label) => own.includes(label)))) return false;
  const text = [host.name, host.address, host.state, pairText(host), host.error ?? "", ...ofHost(host.name).map(nameOf), ...own].join(" ").toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
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
