// SPDX-License-Identifier: Apache-2.0
//! Alerts: what is pending or firing on which host, and the rules that say so.

import { ALERT_HELP, ALERT_STATES, all, hostOf, nameOf, onChange, rankOf, set, severityOf, showAlertState, summaryOf } from "../alerts";
import { type Alert, type AlertState, type Rule, getAlerts, getRules } from "../api";
import { now, syncedStatus } from "../clock";
import { h, notice, scrolling, setClass, setHidden, setText } from "../dom";
import { age, count, duration, moment, quantity } from "../format";
import { poll } from "../poll";
import { hostAddress, queryAddress, replaceParameters } from "../router";
import { type Column, Table } from "../table";
import { type Page, Trouble } from "./page";

const POLL_MS = 5000;
const AGE_MS = 1000;

export function alertsPage(parameters: URLSearchParams): Page {
  let rules: Rule[] | null = null;
  let sampledAt = 0;
  const states = new Set<AlertState>(ALERT_STATES.filter((state) => parameters.getAll("state").includes(state)));
  const search = h("input", { type: "search", placeholder: "Search alerts", "aria-label": "Search alerts by name, host, label or text", value: parameters.get("q") ?? "" });
  const message = h("div", {}, notice("loading", "Reading the alerts …"));
  const summary = h("p", { class: "summary", role: "status" });
  const nothing = h("div");
  const list = new RuleList();
  const open = (alert: Alert): void => {
    const host = hostOf(alert);
    if (host !== null) location.hash = hostAddress(host);
  };
  const [column = "state", direction = ""] = (parameters.get("sort") ?? "state").split(".");
  const table = new Table<Alert>("Alerts", columns(), keyOf, open, rankOf, { column, descending: direction === "desc" }, () => remember());

  const remember = (): void => {
    const next = new URLSearchParams();
    if (search.value.trim() !== "") next.set("q", search.value.trim());
    for (const state of states) next.append("state", state);
    const { column: by, descending } = table.sorting;
    if (by !== "state" || descending) next.set("sort", descending ? `${by}.desc` : by);
    replaceParameters(next);
  };
  const chips = ALERT_STATES.map((state) => {
    const [number, sign] = [h("span", { class: "num" }), h("span")];
    showAlertState(sign, state);
    const toggle = (): void => {
      if (!states.delete(state)) states.add(state);
      remember();
      render();
    };
    return { state, number, chip: h("button", { type: "button", class: "chip", title: ALERT_HELP[state], on: { click: toggle } }, sign, " ", number) };
  });
  const toolbar = h("div", { class: "toolbar" }, search, h("div", { class: "chips", role: "group", "aria-label": "Alerts by state" }, ...chips.map(({ chip }) => chip)), summary);
  const content = h("div", { hidden: true }, toolbar, table.element, nothing, list.element);

  function render(): void {
    if (rules === null) return;
    for (const { state, number, chip } of chips) {
      setText(number, count(all().filter((alert) => alert.state === state).length));
      chip.setAttribute("aria-pressed", String(states.has(state)));
    }
    const found = all().filter((alert) => matches(alert, search.value, states));
    table.update(found);
    setText(summary, found.length === all().length ? "" : `${count(found.length)} of ${count(all().length)} alerts`);
    setHidden(table.element, found.length === 0);
    // As the search leads here.
    const quiet = states.size === 0 ? rules.find((rule) => rule.type === "alerting" && rule.name.toLowerCase() === search.value.trim().toLowerCase()) : undefined;
    const empty = quiet !== undefined ? notice("empty", `${quiet.name} is quiet`, h("p", {}, "None of its alerts is pending or firing. The rule is in the list below.")) : all().length > 0 ? notice("empty", "No alert matches", h("p", {}, "Change the search, or press Esc.")) : rules.length === 0 ? noRules() : notice("empty", "All quiet", h("p", {}, `No alert is pending or firing. ${count(rules.length)} rules are evaluated.`));
    nothing.replaceChildren(...(found.length === 0 ? [empty] : []));
  }

  function clear(): boolean | undefined {
    if (search.value === "" && states.size === 0) return false;
    search.value = "";
    states.clear();
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
    (signal) => Promise.all([getRules(signal), getAlerts(signal), syncedStatus(signal)]),
    ([got, found]) => {
      rules = got;
      sampledAt = performance.now();
      trouble.banner.show(null);
      setHidden(content, false);
      message.replaceChildren();
      list.show(got);
      set(found);
    },
    (error) => trouble.show(error, rules === null ? null : `Shown is what was known ${age(performance.now() - sampledAt)} ago.`),
  );
  const stop = onChange(render);
  const ages = setInterval(() => table.refresh(), AGE_MS);

  return {
    title: "Alerts",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Alerts"), trouble.banner.element, content, message),
    bindings: [
      { keys: ["F"], help: "Filter the table", run: () => { search.focus(); search.select(); return undefined; } },
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

/** Labels of an alert are its own. */
function keyOf(alert: Alert): string {
  return JSON.stringify(Object.entries(alert.labels).sort());
}

/** Labels that have a column. */
const SHOWN = new Set(["alertname", "instance", "severity"]);

function labelsOf(alert: Alert): string {
  return Object.entries(alert.labels).filter(([name]) => !SHOWN.has(name)).map(([name, value]) => `${name}=${value}`).sort().join(" · ");
}

function columns(): Column<Alert>[] {
  return [
    {
      id: "name", label: "Alert", sort: nameOf,
      cell: (node, alert) => {
        if (node.firstChild === null) node.append(h("span", { class: "alert-name" }), h("span", { class: "under" }));
        setText(node.firstElementChild!, nameOf(alert));
        setText(node.lastElementChild!, summaryOf(alert));
        node.title = [summaryOf(alert), alert.annotations["description"] ?? ""].filter((text) => text !== "").join("\n");
      },
    },
    { id: "state", label: "State", sort: rankOf, cell: (node, alert) => showAlertState(node, alert.state) },
    { id: "severity", label: "Severity", minor: true, sort: (alert) => rankOf(alert) % 100, cell: (node, alert) => { setText(node, severityOf(alert)); setClass(node, "bad", severityOf(alert) === "critical"); } },
    {
      id: "host", label: "Host", sort: (alert) => hostOf(alert) ?? "",
      cell: (node, alert) => {
        const host = hostOf(alert);
        if (host !== null && node.firstChild === null) node.append(h("a", { href: hostAddress(host), tabindex: -1 }, host));
      },
    },
    {
      id: "since", label: "For", title: "How long its condition has held", numeric: true, sort: (alert) => now() - alert.since_ms,
      cell: (node, alert) => {
        setText(node, duration(Math.floor((now() - alert.since_ms) / 1000) * 1000));
        node.title = `since ${moment(alert.since_ms, now())}`;
      },
    },
    { id: "value", label: "Value", title: "Of the rule’s expression", numeric: true, minor: true, sort: (alert) => alert.value, cell: (node, alert) => setText(node, quantity(alert.value, "")) },
    { id: "labels", label: "Labels", minor: true, sort: labelsOf, cell: (node, alert) => setText(node, labelsOf(alert)) },
  ];
}

function matches(alert: Alert, search: string, states: Set<AlertState>): boolean {
  if (states.size > 0 && !states.has(alert.state)) return false;
  const text = [...Object.entries(alert.labels).map(([name, value]) => `${name}=${value}`), ...Object.values(alert.annotations), alert.state].join(" ").toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

function noRules(): HTMLElement {
  return notice(
    "empty", "No rules",
    h("p", {}, "This controller evaluates no rules, so nothing can fire. In its configuration:"),
    h("pre", {}, h("code", {}, "[rules]\nshipped = true\nfiles = [\"/etc/onlooker/rules/*.yml\"]")),
    h("p", {}, "Files are Prometheus’ rule files, unchanged; a reload of the service reads them."),
  );
}

const HEADS = ["Rule", "Group", "State", "For", "Every", "Took", "Expression"];
const NUMERIC = new Set(["For", "Every", "Took"]);

/** The rules, those with a problem first. */
class RuleList {
  private readonly title = h("summary", {}, "Rules");
  private readonly body = h("tbody");
  readonly element = h(
    "details",
    { class: "rules folded card" },
    this.title,
    scrolling("Rules", h("table", {}, h("thead", {}, h("tr", {}, ...HEADS.map((head) => h("th", { scope: "col", class: NUMERIC.has(head) ? "num" : "" }, head)))), this.body)),
  );

  show(rules: Rule[]): void {
    const bad = rules.filter((rule) => rule.health === "err");
    setHidden(this.element, rules.length === 0);
    setText(this.title, `Rules: ${count(rules.length)}, ${bad.length === 0 ? "none with a problem" : `${count(bad.length)} with a problem`}`);
    const rows = [...bad, ...rules.filter((rule) => rule.health !== "err")].map((rule) =>
      h(
        "tr", {},
        h("th", { scope: "row" }, rule.name),
        h("td", { title: rule.file }, rule.group),
        h("td", { class: rule.health === "err" ? "problem" : "" }, rule.error ?? (rule.health === "unknown" ? "not evaluated yet" : rule.health)),
        h("td", { class: "num" }, rule.type === "recording" ? "" : duration(rule.for_s * 1000)),
        h("td", { class: "num" }, duration(rule.interval_s * 1000)),
        h("td", { class: "num" }, duration(rule.took_s * 1000)),
        h("td", { class: "expression" }, h("a", { href: queryAddress(rule.query.trim()), title: "Query this" }, h("code", {}, rule.query.trim()))),
      ),
    );
    this.body.replaceChildren(...rows);
  }
}
