// SPDX-License-Identifier: Apache-2.0
//! The search that lies over any page: hosts, metrics and alerts, of all hosts or of the one whose page it is. The controller finds, ranks and counts; what is searched stands in the address.

import type { Series } from "../api";
import { h, notice, setHidden, setText } from "../dom";
import { sentence } from "../format";
import { type Searched, changeSearch } from "../router";
import { type Best, type Found, type FoundHost, type FoundMetric, find, hostsOf, seriesOf } from "./ask";
import { type Kind, order, rest, summaryOf } from "./found";
import { wordsOf } from "./mark";
import { type Scene, alertRow, hostRow, keyOf, marked, memberHost, memberSeries, metricRow } from "./rows";

const DEBOUNCE_MS = 150;
/** Of each kind at first; "Show more" has four times as many. */
const FIRST_LIMIT = 20;
const MAX_LIMIT = 1000;
/** Of hosts and alerts, so that metrics are not far below. */
const FIRST_FEW = 5;
/** An answer that takes longer is announced. */
const SLOW_MS = 400;

/** What a host's page does with what is chosen. */
export interface Choices {
  series: (series: Series) => void;
  /** All series of a metric in one chart. */
  family: (name: string) => void;
}

/** The page below. */
export interface Below {
  /** Whose page it is; null: no host's. */
  readonly host: string | null;
  /** Null: it has no charts, or none yet. */
  choices: () => Choices | null;
  /** The time that it shows. */
  time: () => URLSearchParams;
}

/** What a metric is opened to; null until the answer is there. */
type Members = { limit: number; hosts: Best<FoundHost> } | { limit: number; series: Best<Series> } | { limit: number; problem: string } | { limit: number };

const KIND_NAMES: Record<Kind, string> = { hosts: "Hosts", metrics: "Metrics", alerts: "Alerts" };

export class Search {
  private dialog: HTMLDialogElement | null = null;
  private readonly field = h("input", {
    type: "search", "aria-label": "Search hosts, metrics and alerts", placeholder: "Hosts, metrics, labels, alerts", autocomplete: "off", spellcheck: "false", enterkeyhint: "go", maxlength: 1000,
    on: { input: () => this.typed() },
  });
  private readonly here = h("button", { type: "button", class: "chip", on: { click: () => this.choose(false) } });
  private readonly everywhere = h("button", { type: "button", class: "chip", on: { click: () => this.choose(true) } }, "All hosts");
  private readonly status = h("p", { class: "found-summary dim", role: "status" });
  private readonly results = h("div", { class: "found" });
  private asked: Searched = { text: "", isEverywhere: false, metric: null };
  private found: Found | null = null;
  /** What `found` was asked for. */
  private words: string[] = [];
  private limit = FIRST_LIMIT;
  private readonly whole = new Set<Kind>();
  private readonly opened = new Map<string, Members>();
  private abort = new AbortController();
  private timer: number | undefined;
  private slow: number | undefined;
  /** Enter was pressed before the answer was there. */
  private isEntered = false;

  constructor(private readonly below: Below) {}

  /** The address says this now; the page below may be another. */
  follow(searched: Searched | null): void {
    if (searched === null) {
      this.close();
      return;
    }
    const isSame = this.dialog !== null && JSON.stringify(searched) === JSON.stringify(this.asked);
    this.asked = searched;
    this.show();
    if (!isSame) this.begin(0);
  }

  /** By key or button. */
  open(): void {
    if (this.dialog !== null) return;
    this.asked = { text: "", isEverywhere: false, metric: null };
    changeSearch(this.asked);
    this.show();
    this.begin(0);
  }

  /** The host that is searched; null: all. */
  private get host(): string | null {
    return this.asked.isEverywhere ? null : this.below.host;
  }

  private show(): void {
    this.field.value = this.asked.text;
    setHidden(this.here, this.below.host === null);
    if (this.below.host !== null) this.here.replaceChildren("On ", h("bdi", {}, this.below.host));
    this.showScope();
    if (this.dialog !== null) return;
    const close = h("button", { type: "button", class: "quiet", on: { click: () => this.close() } }, "Close");
    const dialog = h(
      "dialog", { class: "search", "aria-label": "Search", on: { close: () => { if (this.dialog === dialog) this.closed(); }, keydown: (event) => this.key(event), click: (event) => { if (event.target === dialog) this.close(); } } },
      h("div", { class: "search-head" }, this.field, h("div", { class: "chips", role: "group", "aria-label": "Where" }, this.here, this.everywhere), close),
      this.status, this.results,
    );
    this.dialog = dialog;
    document.body.append(dialog);
    dialog.showModal();
    this.field.focus();
    this.field.select();
  }

  private showScope(): void {
    this.here.setAttribute("aria-pressed", String(this.host !== null));
    this.everywhere.setAttribute("aria-pressed", String(this.host === null));
  }

  private close(): void {
    this.dialog?.close();
    // The event comes later: what is done next finds the address without a search.
    this.closed();
  }

  private closed(): void {
    if (this.dialog === null) return;
    this.dialog.remove();
    this.dialog = null;
    this.abort.abort();
    clearTimeout(this.timer);
    clearTimeout(this.slow);
    this.forget();
    changeSearch(null);
  }

  private forget(): void {
    this.found = null;
    this.limit = FIRST_LIMIT;
    this.whole.clear();
    this.opened.clear();
    this.isEntered = false;
    this.results.replaceChildren();
    setText(this.status, "");
  }

  private typed(): void {
    this.begin(DEBOUNCE_MS);
  }

  private choose(isEverywhere: boolean): void {
    this.asked = { ...this.asked, isEverywhere, metric: null };
    changeSearch(this.asked);
    this.showScope();
    this.begin(0);
  }

  /** Another question: what was opened and unfolded was the old one's. */
  private begin(ms: number): void {
    this.abort.abort();
    this.isEntered = false;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const text = this.field.value.trim();
      if (text !== this.asked.text) {
        this.asked = { ...this.asked, text, metric: null };
        changeSearch(this.asked);
      }
      this.limit = FIRST_LIMIT;
      this.whole.clear();
      this.opened.clear();
      void this.ask();
    }, ms);
  }

  private get isPending(): boolean {
    return this.found === null || this.field.value.trim() !== this.asked.text || this.results.getAttribute("aria-busy") === "true";
  }

  private async ask(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const { text, metric: opened } = this.asked;
    this.results.setAttribute("aria-busy", "true");
    clearTimeout(this.slow);
    this.slow = setTimeout(() => setText(this.status, "Searching …"), SLOW_MS);
    try {
      const found = await find(text, this.host, this.limit, signal);
      if (signal.aborted) return;
      this.found = found;
      this.words = wordsOf(text);
      const { list, total } = found.metrics;
      // What is the only one, or what the address names, need not be opened by hand.
      const open = list.filter((metric) => metric.name === opened || (total === 1 && found.hosts.total + found.alerts.total === 0 && metric.series > 1));
      for (const metric of open) if (!this.opened.has(keyOf(metric))) void this.read(metric, FIRST_LIMIT);
      this.results.removeAttribute("aria-busy");
      this.render();
      setText(this.status, summaryOf(found, this.host));
      if (this.isEntered) this.enter();
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    } finally {
      if (!signal.aborted) clearTimeout(this.slow);
    }
  }

  private fail(error: unknown): void {
    this.found = null;
    this.results.removeAttribute("aria-busy");
    setText(this.status, "");
    const again = h("button", { type: "button", "data-main": "again", on: { click: () => { this.field.focus(); void this.ask(); } } }, "Try again");
    this.results.replaceChildren(notice("error", "Nothing could be searched", h("p", {}, sentence(error instanceof Error ? error.message : String(error))), again));
  }

  private toggle(metric: FoundMetric): void {
    const key = keyOf(metric);
    if (this.opened.delete(key)) {
      this.asked = { ...this.asked, metric: null };
      this.render();
    } else {
      this.asked = { ...this.asked, metric: metric.name };
      void this.read(metric, FIRST_LIMIT);
    }
    changeSearch(this.asked);
  }

  /** Which hosts, or which series of the host, the metric has. */
  private async read(metric: FoundMetric, limit: number): Promise<void> {
    const { signal } = this.abort;
    const { host, asked: { text } } = this;
    const key = keyOf(metric);
    if (!this.opened.has(key)) this.opened.set(key, { limit });
    this.render();
    let members: Members;
    try {
      members = host === null ? { limit, hosts: await hostsOf(metric.name, text, limit, signal) } : { limit, series: await seriesOf(host, metric.name, text, limit, signal) };
    } catch (error) {
      members = { limit, problem: sentence(error instanceof Error ? error.message : String(error)) };
    }
    if (signal.aborted || !this.opened.has(key)) return;
    this.opened.set(key, members);
    this.render();
  }

  private more(kind: Kind): void {
    const isWhole = kind === "metrics" || this.whole.has(kind) || (this.found?.[kind].list.length ?? 0) <= FIRST_FEW;
    this.whole.add(kind);
    if (isWhole && this.limit < MAX_LIMIT) {
      this.limit = Math.min(MAX_LIMIT, this.limit * 4);
      void this.ask();
    } else this.render();
  }

  private render(): void {
    if (this.found === null) return;
    const before = this.mains;
    const at = before.findIndex((node) => node === this.focusedMain);
    const key = before[at]?.dataset["main"];
    const found = this.found;
    const scene: Scene = { host: this.host, words: this.words, time: this.below.time(), takes: (event, host, chosen) => this.takes(event, host, chosen), toggle: (metric) => this.toggle(metric) };
    const kinds = order(found, this.words);
    this.results.replaceChildren(...(kinds.length === 0 ? [this.nothing(found)] : kinds.map((kind) => this.section(kind, found, scene))));
    if (key === undefined) return;
    // Whoever has asked for more goes on with the first that came.
    const again = key.startsWith("more") ? undefined : this.mains.find((node) => node.dataset["main"] === key);
    (again ?? this.mains[at] ?? this.field).focus();
  }

  /** The main control of the row that has the focus. */
  private get focusedMain(): Element | null {
    const focused = document.activeElement;
    if (!this.results.contains(focused)) return null;
    return focused?.closest("[data-main]") ?? focused?.closest("li")?.querySelector("[data-main]") ?? null;
  }

  private nothing({ searched }: Found): HTMLElement {
    if (searched.hosts === 0) return notice("empty", "No hosts yet", h("p", {}, "The fleet’s page says how they join."));
    const { host, asked: { text } } = this;
    const where = host === null ? "All words must occur in a host’s name, address or labels, in an alert’s, or in a metric’s name, labels or help." : `All words must occur in a metric’s name, labels or help.`;
    const all = host === null ? null : h("button", { type: "button", "data-main": "all", on: { click: () => { this.field.focus(); this.choose(true); } } }, "Search all hosts");
    return notice("empty", "Nothing is found", h("p", {}, "Nothing has ", h("q", {}, marked(text, [])), host === null ? "" : " on ", host === null ? "" : h("bdi", {}, host), ". ", where), all);
  }

  private section(kind: Kind, found: Found, scene: Scene): HTMLElement {
    const { total, list } = found[kind];
    const most = kind === "metrics" || this.whole.has(kind) ? list.length : Math.min(FIRST_FEW, list.length);
    const rows = {
      hosts: () => found.hosts.list.slice(0, most).map((host) => hostRow(host, scene)),
      alerts: () => found.alerts.list.slice(0, most).map((alert) => alertRow(alert, scene)),
      metrics: () => found.metrics.list.map((metric) => metricRow(metric, this.members(metric, scene), scene)),
    }[kind]();
    const title = KIND_NAMES[kind];
    const left = rest(most, total, title.toLowerCase());
    const canMore = most < list.length || (list.length < total && this.limit < MAX_LIMIT);
    return h("section", { "aria-labelledby": `found-${kind}` }, h("h2", { id: `found-${kind}` }, title), h("ul", {}, ...rows, this.end(`more ${kind}`, left, canMore ? () => this.more(kind) : null)));
  }

  /** Says what is not shown, and offers more of it. */
  private end(key: string, left: string, more: (() => void) | null): HTMLElement | null {
    if (left === "") return null;
    return h("li", { class: "note" }, `${left} `, more === null ? "Another word narrows them." : h("button", { type: "button", "data-main": key, on: { click: more } }, "Show more"));
  }

  private members(metric: FoundMetric, scene: Scene): HTMLElement | null {
    const members = this.opened.get(keyOf(metric));
    if (members === undefined) return null;
    if ("problem" in members) return h("ul", { class: "found-members" }, h("li", { class: "note problem" }, h("span", { role: "alert" }, members.problem)));
    const next = members.limit < MAX_LIMIT ? () => void this.read(metric, Math.min(MAX_LIMIT, members.limit * 4)) : null;
    const key = `more of ${keyOf(metric)}`;
    if ("hosts" in members) {
      const { list, total } = members.hosts;
      return h("ul", { class: "found-members" }, ...list.map((host) => memberHost(metric, host, scene)), this.end(key, rest(list.length, total, "hosts"), next));
    }
    if ("series" in members && scene.host !== null) {
      const { list, total } = members.series;
      return h("ul", { class: "found-members" }, ...list.map((series) => memberSeries(scene.host!, series, scene)), this.end(key, rest(list.length, total, "series"), next));
    }
    return h("ul", { class: "found-members" }, h("li", { class: "note" }, "Reading …"));
  }

  /** A host's page puts what is chosen into a chart of its own; other buttons than the first, and keys with it, open the link as browsers do. */
  private takes(event: MouseEvent, host: string, chosen: { metric: string } | { series: Series }): boolean {
    const choices = host === this.below.host ? this.below.choices() : null;
    if (choices === null || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return false;
    this.close();
    if ("series" in chosen) choices.series(chosen.series);
    else choices.family(chosen.metric);
    return true;
  }

  private get mains(): HTMLElement[] {
    return [...this.results.querySelectorAll<HTMLElement>("[data-main]")];
  }

  /** The first of what was found. */
  private enter(): void {
    this.isEntered = false;
    const [first, second] = this.mains;
    // What is open already is not closed again.
    const isOpen = first?.getAttribute("aria-expanded") === "true";
    (isOpen ? (second ?? first) : first)?.focus();
    // Who has typed nothing has asked for nothing.
    if (!isOpen && this.asked.text !== "") first?.click();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isField = event.target === this.field;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") this.step(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Escape") this.close();
    else if (isField && event.key === "Enter") {
      if (!this.isPending) this.enter();
      else {
        this.begin(0);
        this.isEntered = true;
      }
    } else if (!isField && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      if (!this.unfold(event.key === "ArrowRight")) return;
    } else if (!isField && event.key === "/") this.field.focus();
    else {
      // Who types means the field.
      if (!isField && event.key.length === 1 && event.key !== " ") this.field.focus();
      return;
    }
    event.preventDefault();
  }

  private step(by: 1 | -1): void {
    const { mains } = this;
    const at = mains.findIndex((node) => node === this.focusedMain) + by;
    if (at < 0) this.field.focus();
    else mains[Math.min(at, mains.length - 1)]?.focus();
  }

  /** Opens the metric that has the focus, or closes it, also from within; false: there is nothing to do. */
  private unfold(isOpen: boolean): boolean {
    const row = document.activeElement?.closest(".found-metric");
    const opens = row?.querySelector<HTMLElement>("[data-opens]");
    if (opens === null || opens === undefined || (opens.getAttribute("aria-expanded") === "true") === isOpen) return false;
    row?.querySelector<HTMLElement>("[data-main]")?.focus();
    opens.click();
    return true;
  }
}
