// SPDX-License-Identifier: Apache-2.0
//! A table of the first of many (processes, control groups, ports): sorted and filtered by the controller, so that a host with thousands costs no more than one with twenty.

import { h, setHidden, setText } from "../dom";
import { count, duration } from "../format";
import { anyOf, instant, range } from "../promql";
import { type Column, Table } from "../table";
import type { Asker } from "./asker";
import { type Entity, type Kind, detailsQuery, entities, goneAfter, keyOf, keysOf, mainOf, matching, rankQuery, ranked, trendQuery } from "./entities";
import { trouble } from "./sections";
import { drawSpark } from "./spark";
import type { At, Subject } from "./subject";

const EVERY_MS = 2000;
const TOP = 20;
/** Rows at most: the rest is for the filter. Their names fit into one query. */
const MOST = 200;
const DEBOUNCE_MS = 250;
const MAX_TRENDS = 40;
const TREND_MS = 300_000;
const TREND_STEP_MS = 10_000;
const TREND_EVERY_MS = 10_000;

interface Trend {
  t_ms: number[];
  values: number[];
}

/** More chips that narrow what is shown: a label, and the matcher that it stands for. */
export interface Choice {
  label: string;
  title: string;
  matcher: string;
}

export class Ranked {
  readonly element: HTMLElement;
  private readonly table: Table<Entity>;
  private readonly filter: HTMLInputElement;
  private readonly all = h("button", { type: "button", class: "chip", hidden: true, on: { click: () => this.showAll() } });
  private readonly status = h("p", { class: "dim" });
  private readonly chips: HTMLElement[];
  private limit = TOP;
  private total: number | null = null;
  private timer: number | undefined;
  /** Grows when something else is wanted: what was asked before is of no use then. */
  private wanted = 0;
  /** Its rows have not come yet, and so no lines were asked for. */
  private isNew = true;
  private trends = new Map<string, Trend>();
  private trendsTo = 0;

  constructor(
    private readonly kind: Kind,
    private readonly subject: Subject,
    private readonly asker: Asker,
    title: string,
    columns: Column<Entity>[],
    private readonly choices: Choice[],
    open: (entity: Entity) => void,
  ) {
    const spark: Column<Entity> = {
      id: "trend", label: "5 min", title: `How ${kind.measures[0]!.id === "cpu" ? "its CPU" : "it"} went in the last 5 minutes`, minor: true, sort: (row) => row.values.get(kind.measures[0]!.id) ?? 0, descendingFirst: true,
      cell: (node, row) => this.drawTrend(node, row),
    };
    const [name, main, ...rest] = columns;
    this.table = new Table<Entity>(title, [name!, main!, spark, ...rest], (row) => row.key, open, () => 0, { column: main!.id, descending: true }, () => this.again());
    this.table.element.classList.add("dense");
    this.table.keepKeys();
    this.filter = h("input", { type: "search", placeholder: `Filter ${kind.many}`, "aria-label": `Filter ${kind.many}`, autocomplete: "off", spellcheck: "false", on: { input: () => this.later(), keydown: (event) => this.key(event) } });
    this.chips = choices.map(({ label, title: help }, i) => h("button", { type: "button", class: "chip", title: help, "aria-pressed": String(i === 0), on: { click: () => this.choose(i) } }, label));
    const tools = h("div", { class: "toolbar" }, this.filter, h("div", { class: "chips" }, ...this.chips, this.all), this.status);
    this.element = h("div", { class: "part" }, tools, this.table.element);
    asker.add({ element: this.element, everyMs: EVERY_MS, ask: (at, signal) => this.ask(at, signal), problem: trouble(this.element) });
    asker.add({ element: this.table.element, everyMs: TREND_EVERY_MS, ask: (at, signal) => this.askTrends(at, signal), problem: () => undefined });
  }

  private get matchers(): string[] {
    const chosen = this.choices[this.chips.findIndex((chip) => chip.getAttribute("aria-pressed") === "true")]?.matcher ?? "";
    return [...matching(this.kind, this.keys, this.filter.value.trim()), ...(chosen === "" ? [] : [chosen])];
  }

  private get keys(): string[] {
    return keysOf(this.kind, this.subject);
  }

  private async ask(at: At, signal: AbortSignal): Promise<void> {
    const { matchers, limit, kind, subject, keys } = this;
    const by = { id: this.table.sorting.column, descending: this.table.sorting.descending };
    const { wanted } = this;
    let { total } = this;
    // Where all are shown nothing need be ranked.
    let narrow = matchers;
    let wants: (row: Entity) => boolean = () => true;
    if (total === null || total > limit) {
      const found = ranked(await instant(rankQuery(kind, subject, at, by, limit, matchers), at.timeMs, signal), keys, limit);
      total = found.total;
      if (found.first.length > 0) {
        narrow = [...matchers, anyOf(keys[0]!, [...new Set(found.first.map(mainOf))])];
        const first = new Set(found.first);
        // A worker of the kernel takes other names under the same pid.
        wants = (row) => first.has(row.key);
      }
    }
    const rows = entities(await instant(detailsQuery(kind, subject, at, narrow), at.timeMs, signal), keys, goneAfter(kind, subject)).filter(wants);
    if (signal.aborted || wanted !== this.wanted) return;
    this.total = narrow === matchers ? rows.length : total;
    this.show(rows, subject.windowMs(kind.measures[0]!.metric, at));
  }

  private async askTrends(at: At, signal: AbortSignal): Promise<void> {
    const key = this.keys[0]!;
    const first = [...new Set(this.table.order.slice(0, MAX_TRENDS).map(mainOf))];
    if (first.length === 0) return;
    const toMs = Math.floor(at.timeMs / TREND_STEP_MS) * TREND_STEP_MS;
    const found = await range(trendQuery(this.kind, this.subject, { timeMs: toMs, windowMs: TREND_STEP_MS }, key, first), { fromMs: toMs - TREND_MS, toMs, stepMs: TREND_STEP_MS }, signal);
    this.trends = new Map(found.map(({ labels, ...line }) => [keyOf(labels, this.keys), line]));
    this.trendsTo = toMs;
    this.table.refresh();
  }

  private drawTrend(node: HTMLElement, row: Entity): void {
    const line = this.trends.get(row.key);
    drawSpark(node, line ?? null, this.trendsTo - TREND_MS, this.trendsTo);
  }

  private show(rows: Entity[], windowMs: number): void {
    const total = Math.max(this.total ?? 0, rows.length);
    this.table.update(rows);
    if (this.isNew && rows.length > 0) this.asker.soon(this.table.element);
    this.isNew &&= rows.length === 0;
    const isAll = rows.length >= total;
    setText(this.status, `${isAll ? `${count(total)} ${total === 1 ? this.kind.one : this.kind.many}` : `The first ${count(rows.length)} of ${count(total)} ${this.kind.many}`}, rates over ${duration(windowMs)}`);
    setHidden(this.all, total <= TOP);
    setText(this.all, this.limit === MOST ? `Show the first ${TOP}` : total <= MOST ? `Show all ${count(total)}` : `Show the first ${MOST}`);
  }

  private showAll(): void {
    this.limit = this.limit === MOST ? TOP : MOST;
    this.again();
  }

  private choose(at: number): void {
    this.chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(i === at)));
    this.again();
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "Escape") {
      this.filter.value = "";
      this.filter.blur();
      this.later();
    } else if (event.key === "Enter" || event.key === "ArrowDown") this.table.focus();
    else return;
    event.preventDefault();
  }

  private later(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.again(), DEBOUNCE_MS);
  }

  /** Something else is wanted: how many there are of it is not known. */
  private again(): void {
    this.total = null;
    this.wanted++;
    this.isNew = true;
    this.asker.soon(this.element);
  }
}
