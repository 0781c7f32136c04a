// SPDX-License-Identifier: Apache-2.0
//! The search for metrics of a host: a combobox (WAI-ARIA) whose choice adds a chart.

import { type Series, getSeries } from "../api";
import { h, setText } from "../dom";
import { quantity } from "../format";

const LIMIT = 40;
const DEBOUNCE_MS = 150;

interface Option {
  node: HTMLElement;
  series: Series[];
}

export class MetricSearch {
  readonly element: HTMLElement;
  private readonly field: HTMLInputElement;
  private readonly list = h("ul", { id: "metric-results", role: "listbox", "aria-label": "Metrics", hidden: true });
  private readonly status = h("p", { class: "hidden", role: "status" });
  private options: Option[] = [];
  private active = -1;
  private timer: number | undefined;
  private abort = new AbortController();

  constructor(
    private readonly host: string,
    private readonly choose: (series: Series[]) => void,
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
    this.timer = setTimeout(() => void this.ask(), DEBOUNCE_MS);
  }

  private async ask(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    try {
      const { series, more } = await getSeries(this.host, this.field.value.trim(), LIMIT, signal);
      if (!signal.aborted && document.activeElement === this.field) this.show(series, more);
    } catch (error) {
      if (!signal.aborted) this.message(error instanceof Error ? error.message : String(error));
    }
  }

  private show(found: Series[], more: boolean): void {
    this.options = [];
    const names = new Map<string, Series[]>();
    for (const item of found) names.set(item.name, [...(names.get(item.name) ?? []), item]);
    for (const [name, members] of names) {
      const drawable = members.filter((item) => item.type !== "info");
      if (drawable.length > 1 && drawable[0]!.type !== "histogram") this.addOption(drawable, name, `all ${drawable.length}${more ? " found" : ""} in one chart`, drawable[0]!.help);
      for (const item of members) {
        const now = typeof item.value === "number" ? quantity(item.value, item.unit) : typeof item.value === "string" ? item.value : "";
        this.addOption(item.type === "info" ? [] : [item], item.series, `${item.type}${now === "" ? "" : ` · ${now}`}`, item.help);
      }
    }
    if (this.options.length === 0) {
      this.message(`Nothing matches “${this.field.value.trim()}”. All words must occur in the series or its help.`);
      return;
    }
    this.list.replaceChildren(...this.options.map(({ node }) => node));
    if (more) this.list.append(h("li", { class: "note", role: "presentation" }, `Only the first ${LIMIT}: more words narrow them down.`));
    this.open();
    setText(this.status, `${found.length}${more ? " or more" : ""} series`);
    this.activate(0);
  }

  private addOption(series: Series[], title: string, detail: string, help: string): void {
    const at = this.options.length;
    const node = h(
      "li",
      { role: "option", id: `metric-${at}`, "aria-selected": "false", "aria-disabled": series.length === 0 ? "true" : null, title: help, on: { mousedown: (event) => { event.preventDefault(); this.pick(at); } } },
      h("span", { class: "series-name" }, title),
      h("span", { class: "dim num" }, detail),
    );
    this.options.push({ node, series });
  }

  private message(text: string): void {
    this.options = [];
    this.active = -1;
    this.list.replaceChildren(h("li", { class: "note", role: "presentation" }, text));
    this.open();
    setText(this.status, text);
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "ArrowDown") this.activate(Math.min(this.options.length - 1, this.active + 1));
    else if (event.key === "ArrowUp") this.activate(Math.max(0, this.active - 1));
    else if (event.key === "Enter") this.pick(this.active);
    else if (event.key === "Escape") {
      // First the list, then the text, then the field.
      if (!this.list.hidden) this.close();
      else if (this.field.value !== "") this.field.value = "";
      else this.field.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private pick(at: number): void {
    const series = this.options[at]?.series ?? [];
    if (series.length === 0) return;
    this.choose(series);
    this.field.value = "";
    this.close();
  }

  private activate(at: number): void {
    this.active = at;
    this.options.forEach(({ node }, i) => node.setAttribute("aria-selected", String(i === at)));
    const node = this.options[at]?.node;
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
