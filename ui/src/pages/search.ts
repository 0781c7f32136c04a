// SPDX-License-Identifier: Apache-2.0
//! The search for metrics of a host: a combobox (WAI-ARIA) whose choice adds a chart.

import { type Metric, type Series, getMetrics, getSeries } from "../api";
import { h, setText } from "../dom";
import { type Action, type Row, rows } from "../found";

/** Metrics at first; each "Show more" shows four times as many. */
const FIRST_LIMIT = 50;
const MAX_LIMIT = 10_000;
/** Series of one metric. */
const SERIES_LIMIT = 200;
const DEBOUNCE_MS = 150;

export interface Choices {
  series: (series: Series) => void;
  /** All series of a metric in one chart. */
  family: (name: string) => void;
}

export class MetricSearch {
  readonly element: HTMLElement;
  private readonly field: HTMLInputElement;
  private readonly list = h("ul", { id: "metric-results", role: "listbox", "aria-label": "Metrics", hidden: true });
  private readonly status = h("p", { class: "hidden", role: "status" });
  private metrics: Metric[] = [];
  private more = false;
  private limit = FIRST_LIMIT;
  private readonly opened = new Map<string, Series[]>();
  private rows: Row[] = [];
  private nodes: HTMLElement[] = [];
  private active = -1;
  private timer: number | undefined;
  private abort = new AbortController();

  constructor(
    private readonly host: string,
    private readonly choices: Choices,
  ) {
    this.field = h("input", {
      type: "search", role: "combobox", placeholder: "Add a chart: search metrics", "aria-label": "Search metrics, to add a chart", "aria-expanded": "false",
      "aria-controls": "metric-results", "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false",
      on: {
        input: () => this.later(),
        focus: () => this.later(),
        keydown: (event) => this.key(event),
        // A click into the list comes after the blur that it causes.
        blur: () => setTimeout(() => this.close(), 150),
      },
    });
    this.element = h("div", { class: "metric-search" }, this.field, this.list, this.status);
  }

  focus(): void {
    this.field.focus();
    this.field.select();
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.abort.abort();
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.limit = FIRST_LIMIT;
      this.opened.clear();
      void this.ask(0);
    }, DEBOUNCE_MS);
  }

  private get words(): string {
    return this.field.value.trim();
  }

  /** `active`: the row that is chosen once the list is there. */
  private async ask(active: number): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    try {
      const { series, more } = await getMetrics(this.host, this.words, this.limit, signal);
      const only = series.length === 1 && series[0]!.count > 1 ? await this.members(series[0]!.name, signal) : null;
      if (signal.aborted || document.activeElement !== this.field) return;
      if (only !== null) this.opened.set(series[0]!.name, only);
      this.metrics = series;
      this.more = more && this.limit < MAX_LIMIT;
      this.show(active);
      setText(this.status, `${series.length}${more ? " or more" : ""} metrics`);
    } catch (error) {
      if (!signal.aborted) this.message(error instanceof Error ? error.message : String(error));
    }
  }

  /** Those series of a metric that were found. */
  private async members(name: string, signal: AbortSignal): Promise<Series[]> {
    const { series } = await getSeries(this.host, `${this.words} ${name}`, SERIES_LIMIT, signal);
    return series.filter((item) => item.name === name);
  }

  private async toggle(name: string): Promise<void> {
    const { signal } = this.abort;
    if (!this.opened.delete(name)) {
      try {
        const series = await this.members(name, signal);
        if (signal.aborted) return;
        this.opened.set(name, series);
      } catch (error) {
        if (!signal.aborted) this.message(error instanceof Error ? error.message : String(error));
        return;
      }
    }
    this.show(this.active);
  }

  private show(active: number): void {
    this.rows = rows(this.metrics, this.opened, this.more);
    if (this.rows.length === 0) {
      this.message(`Nothing matches “${this.words}”. All words must occur in the series or its help.`);
      return;
    }
    this.nodes = this.rows.map((row, at) => this.option(row, at));
    this.list.replaceChildren(...this.nodes);
    if (this.rows.some((row) => row.opens !== null)) this.list.append(h("li", { class: "note", role: "presentation" }, "Enter: a chart. → : the series of a metric."));
    this.open();
    this.activate(Math.min(active, this.rows.length - 1));
  }

  private option(row: Row, at: number): HTMLElement {
    const { opens } = row;
    // Names stand below each other, whether they open or not.
    const sign = opens === null ? (row.isChild ? null : h("span", { class: "opens" })) : h("span", { class: "opens", title: row.isOpen ? "Hide its series" : "Show its series", on: { mousedown: (event) => { event.preventDefault(); event.stopPropagation(); void this.toggle(opens); } } }, row.isOpen ? "▾" : "▸");
    return h(
      "li",
      {
        role: "option", id: `metric-${at}`, class: row.isChild ? "child" : null, "aria-selected": "false", "aria-disabled": row.action.do === "nothing" ? "true" : null, title: row.help,
        on: { mousedown: (event) => { event.preventDefault(); this.act(row.action); } },
      },
      sign,
      h("span", { class: "series-name" }, row.title),
      h("span", { class: "dim num" }, row.detail),
    );
  }

  private message(text: string): void {
    this.rows = [];
    this.nodes = [];
    this.active = -1;
    this.list.replaceChildren(h("li", { class: "note", role: "presentation" }, text));
    this.open();
    setText(this.status, text);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "ArrowDown") this.activate(Math.min(this.rows.length - 1, this.active + 1));
    else if (event.key === "ArrowUp") this.activate(Math.max(0, this.active - 1));
    else if (event.key === "Enter") this.act(this.rows[this.active]?.action ?? { do: "nothing" });
    // Within the text the arrows move the cursor.
    else if (event.key === "ArrowRight" && this.opens(false) && this.field.selectionStart === this.field.value.length) void this.toggle(this.rows[this.active]!.opens!);
    else if (event.key === "ArrowLeft" && this.opens(true)) void this.toggle(this.rows[this.active]!.opens!);
    else if (event.key === "Escape") {
      // First the list, then the text, then the field.
      if (!this.list.hidden) this.close();
      else if (this.field.value !== "") this.field.value = "";
      else this.field.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Whether the active row is a metric whose series are shown, or hidden. */
  private opens(isOpen: boolean): boolean {
    const row = this.rows[this.active];
    return !this.list.hidden && row !== undefined && row.opens !== null && row.isOpen === isOpen;
  }

  private act(action: Action): void {
    if (action.do === "nothing") return;
    if (action.do === "toggle") {
      void this.toggle(action.name);
      return;
    }
    if (action.do === "more") {
      this.limit = Math.min(MAX_LIMIT, this.limit * 4);
      void this.ask(this.active);
      return;
    }
    if (action.do === "series") this.choices.series(action.series);
    else this.choices.family(action.name);
    this.field.value = "";
    this.close();
  }

  private activate(at: number): void {
    this.active = at;
    this.nodes.forEach((node, i) => node.setAttribute("aria-selected", String(i === at)));
    const node = this.nodes[at];
    if (node === undefined) this.field.removeAttribute("aria-activedescendant");
    else {
      this.field.setAttribute("aria-activedescendant", node.id);
      node.scrollIntoView({ block: "nearest" });
    }
  }

  private open(): void {
    this.list.hidden = false;
    this.field.setAttribute("aria-expanded", "true");
  }

  private close(): void {
    this.abort.abort();
    clearTimeout(this.timer);
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
    this.field.removeAttribute("aria-activedescendant");
  }
}
