// SPDX-License-Identifier: Apache-2.0
//! One panel of a board: what its queries give, as a chart, figures or a table; or a text. Its buttons, while the board is edited.

import { Chart } from "../charts/chart";
import type { Navigator } from "../charts/gestures";
import { h, notice, setHidden, setText } from "../dom";
import { quantity, sentence } from "../format";
import { Gaps } from "../gaps";
import { Tile } from "../pages/page";
import type { Result } from "../promql";
import type { Metric } from "../query/complete";
import { type Drawing, MAX_SERIES, type Steps, stepsOf, unitOf } from "../query/result";
import { ResultTable } from "../query/table";
import { ApiError } from "../request";
import { type Span } from "../view";
import type { Panel, Target } from "./dashboard";
import { type Answered, type State, figuresOf, isOfEnd, panelDrawing, shownUnit } from "./draw";
import type { Times } from "./variables";
import { SAMPLED_MS, lengthOf } from "./variables";

const ROW_PX = 38;
const GAP_PX = 8;
/** Of title and edges. */
const FRAME_PX = 52;
/** Of what is left, the plot's part beside its legend. */
const PLOT_SHARE = 0.62;
const LEAST_PLOT_PX = 90;
/** The first rows of a table on a board. */
const NO_GAPS = new Gaps();

export type Edit = "change" | "earlier" | "later" | "narrower" | "wider" | "lower" | "higher" | "remove";

/** What a panel needs of its page. */
export interface Env {
  navigator: () => Navigator | null;
  span: () => Span;
  fill: (text: string, times: Times) => string;
  /** A title or a text with the variables' values. */
  tell: (text: string) => string;
  ask: (query: string, when: { atMs: number } | Steps, limit: number, signal: AbortSignal) => Promise<Result>;
  metrics: () => ReadonlyMap<string, Metric>;
  /** Nobody has refused anything: the controller does not answer. */
  failed: (error: Error) => void;
  /** The address of a query at the time shown. */
  address: (query: string) => string;
  edit: (panel: Panel, edit: Edit) => void;
}

const EDITS: readonly [Edit, string, string][] = [
  ["change", "✎", "Change title or query"], ["earlier", "←", "Move before the one before"], ["later", "→", "Move behind the next one"], ["narrower", "⇤", "Narrower"], ["wider", "⇥", "Wider"],
  ["lower", "⤒", "Lower"], ["higher", "⤓", "Higher"], ["remove", "✕", "Remove"],
];

const SIGNS: Record<State, string> = { "": "", good: "● ", warn: "◆ ", bad: "▲ " };
const STATES: Record<State, string> = { "": "", good: "good, by the panel’s thresholds", warn: "a warning, by the panel’s thresholds", bad: "bad, by the panel’s thresholds" };

export class PanelView {
  readonly element = h("div", { class: "panel card", role: "group" });
  private readonly title = h("h3");
  private readonly links = h("span", { class: "panel-links" });
  private readonly buttons = h("span", { class: "panel-edits", hidden: true });
  private readonly problem = h("p", { class: "problem", role: "status", hidden: true });
  private readonly note = h("p", { class: "note", hidden: true });
  private readonly body = h("div", { class: "panel-body" });
  private chart: { chart: Chart; lines: string } | null = null;
  private drawing: Drawing | null = null;
  private stepMs = 0;
  private asked: AbortController | null = null;
  private isBusy = false;
  private readonly tables: ResultTable[] = [];
  private readonly tiles = new Map<number, Tile>();
  private readonly seen: IntersectionObserver;
  private readonly resize = new ResizeObserver(() => this.redraw());
  isVisible = false;
  /** The version of the page that it shows. */
  shown = -1;

  constructor(
    public panel: Panel,
    private readonly env: Env,
    onSight: () => void,
  ) {
    this.element.append(h("header", {}, this.title, this.links, this.buttons), this.problem, this.body, this.note);
    this.buttons.append(...EDITS.map(([edit, sign, label]) => h("button", { type: "button", class: "quiet", "data-edit": edit, title: label, on: { click: () => env.edit(this.panel, edit) } }, h("span", { "aria-hidden": "true" }, sign))));
    this.put(panel);
    if (panel.kind === "unknown") this.body.append(h("p", { class: "dim" }, sentence(`Not shown: ${panel.reason}`)));
    if (panel.kind === "text") {
      this.body.tabIndex = 0;
      this.body.setAttribute("role", "group");
      this.body.classList.add("panel-text");
    }
    this.seen = new IntersectionObserver((entries) => {
      this.isVisible = entries.some((entry) => entry.isIntersecting);
      if (this.isVisible) onSight();
    }, { rootMargin: "200px" });
    this.seen.observe(this.element);
    this.resize.observe(this.body);
  }

  /** Takes a version of it that differs in place, title or buttons. */
  put(panel: Panel): void {
    const isTaller = panel.place.h !== this.panel.place.h;
    this.panel = panel;
    const { x, w, h: height } = panel.place;
    this.element.style.gridColumn = `${x + 1} / span ${w}`;
    this.element.style.setProperty("--rows", String(height));
    this.element.style.setProperty("--plot", `${this.plotPx}px`);
    const title = this.env.tell(panel.title) || (panel.kind === "text" ? "" : "Panel");
    setText(this.title, title);
    setHidden(this.title, title === "");
    this.title.title = [title, panel.description].filter((part) => part !== "").join("\n");
    const name = title || "Text";
    this.element.setAttribute("aria-label", name);
    if (panel.kind === "text") this.body.setAttribute("aria-label", `Text of ${name}`);
    for (const button of this.buttons.querySelectorAll("button")) button.setAttribute("aria-label", `${button.title}: ${name}`);
    if (isTaller) {
      this.removeChart();
      this.shown = -1;
    }
  }

  /** The line of its section's grid in which it begins. */
  setLine(line: number): void {
    this.element.style.gridRow = `${line + 1} / span ${this.panel.place.h}`;
  }

  /** `can`: what the place allows. */
  setEditing(isEditing: boolean, can: (edit: Edit) => boolean): void {
    setHidden(this.buttons, !isEditing);
    for (const button of this.buttons.querySelectorAll("button")) button.disabled = !can(button.dataset["edit"] as Edit);
  }

  focusEdit(edit: Edit): void {
    const buttons = [...this.buttons.querySelectorAll("button")];
    (buttons.find((button) => button.dataset["edit"] === edit && !button.disabled) ?? buttons[0])?.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  get isAsking(): boolean {
    return this.asked !== null;
  }

  /** Asks its queries over the time shown. */
  async ask(version: number): Promise<void> {
    this.asked?.abort();
    this.shown = version;
    const { panel, env } = this;
    if (panel.kind === "text") setText(this.body, env.tell(panel.text));
    if (panel.kind === "text" || panel.kind === "unknown") return;
    const mine = new AbortController();
    this.asked = mine;
    this.setBusy(true);
    const span = env.span();
    try {
      const isOfRange = panel.kind === "chart" || (panel.kind === "stat" && !isOfEnd(panel.calculation));
      const limit = panel.kind === "table" ? MAX_SERIES.table : MAX_SERIES.chart;
      const asked = panel.targets.map((target) => ({ target, ...this.timesOf(target, span) }));
      this.showLinks(asked.map(({ target, times }) => env.fill(target.expression, times)));
      const answers = await Promise.all(asked.map(async ({ target, steps, times }): Promise<Answered> => {
        const query = env.fill(target.expression, times);
        return { target: { ...target, legend: env.fill(target.legend, times) }, result: await env.ask(query, isOfRange ? steps : { atMs: span.to }, limit, mine.signal) };
      }));
      if (mine.signal.aborted) return;
      this.finish(mine);
      this.showProblem(null);
      this.show(answers, Math.max(...asked.map(({ steps }) => steps.stepMs)));
    } catch (error) {
      if (mine.signal.aborted) return;
      this.finish(mine);
      if (error instanceof ApiError && (error.status === 400 || error.status === 422)) {
        this.showProblem(sentence(error.message.replace(/^invalid parameter "query": /, "")));
        this.clear();
      } else env.failed(error instanceof Error ? error : new Error(String(error)));
    }
  }

  /** Another part of the time, before it has been asked for. */
  redraw(): void {
    if (this.drawing === null || this.chart === null) return;
    const fine = { intervalMs: 0, shownMs: this.stepMs, resolutionMs: 0, stepped: false, rateError: 0, isExact: true as const };
    this.chart.chart.draw({ ...this.env.span(), tracks: this.drawing.tracks, gaps: NO_GAPS, silentSince: null, loading: this.isBusy, fineness: () => fine });
  }

  /** The cursor of all charts has moved. */
  follow(): void {
    if (this.chart?.chart.areValuesDue === true) this.chart.chart.showValues();
  }

  showSelection(span: Span | null): void {
    this.chart?.chart.showSelection(span);
  }

  destroy(): void {
    this.asked?.abort();
    this.seen.disconnect();
    this.resize.disconnect();
    this.removeChart();
    this.element.remove();
  }

  private get plotPx(): number {
    const inner = this.panel.place.h * ROW_PX - GAP_PX - FRAME_PX;
    return Math.max(LEAST_PLOT_PX, Math.round(inner * PLOT_SHARE));
  }

  private timesOf(target: Target, span: Span): { steps: Steps; times: Times } {
    const plain = stepsOf(span);
    const bounds = { fromMs: span.from, toMs: span.to };
    const least = lengthOf(this.env.fill(target.interval, { ...bounds, stepMs: plain.stepMs, sampledMs: SAMPLED_MS }));
    const stepMs = Math.max(plain.stepMs, least ?? 0);
    const fromMs = Math.ceil(span.from / stepMs) * stepMs;
    return { steps: { fromMs, toMs: Math.max(fromMs, Math.floor(span.to / stepMs) * stepMs), stepMs }, times: { ...bounds, stepMs, sampledMs: least ?? SAMPLED_MS } };
  }

  private finish(mine: AbortController): void {
    if (this.asked === mine) this.asked = null;
    this.setBusy(false);
  }

  private setBusy(isBusy: boolean): void {
    this.isBusy = isBusy;
    this.redraw();
  }

  private show(answers: Answered[], stepMs: number): void {
    const { panel } = this;
    const unit = shownUnit(panel, unitOf(panel.targets[0]!.expression.replace(/\$\{?\w+\}?/g, "1m"), this.env.metrics()));
    const notes = [...new Set(answers.flatMap(({ result }) => result.warnings))];
    if (answers.every(({ result }) => result.kind !== "string" && result.series.length === 0)) {
      this.clear();
      this.body.append(notice("empty", "No values in this time"));
    } else if (panel.kind === "chart") {
      const drawing = panelDrawing(panel, answers, stepMs, unit, this.plotPx);
      notes.push(...drawing.left);
      this.draw(drawing, stepMs);
    } else if (panel.kind === "stat") {
      const { figures, left } = figuresOf(panel, answers, unit);
      if (left > 0) notes.push(`The first ${figures.length} of ${figures.length + left} values are shown.`);
      const tiles = figures.map(({ label, value, state, share }, i) => {
        const tile = this.tiles.get(i) ?? new Tile("");
        this.tiles.set(i, tile);
        setText(tile.element.firstElementChild!, figures.length > 1 || answers[0]!.target.legend !== "" ? label : "");
        tile.show(`${SIGNS[state]}${quantity(value, unit.unit, unit.perSecond)}`, "", share);
        tile.element.title = [label, STATES[state]].filter((part) => part !== "").join("\n");
        tile.element.dataset["state"] = state;
        return tile.element;
      });
      this.keep(h("div", { class: "figures" }), tiles);
    } else {
      const tables = answers.map(({ result }, i) => {
        this.tables[i] ??= new ResultTable();
        this.tables[i].show(result, unit);
        return this.tables[i].element;
      });
      this.keep(h("div", { class: "query-answer" }), tables);
    }
    setHidden(this.note, notes.length === 0);
    setText(this.note, notes.join(" "));
  }

  /** The same elements stay where they are. */
  private keep(holder: HTMLElement, children: HTMLElement[]): void {
    const before = this.body.firstElementChild;
    if (before instanceof HTMLElement && before.className === holder.className && this.body.childElementCount === 1) {
      if (before.childElementCount !== children.length || children.some((child, i) => before.children[i] !== child)) before.replaceChildren(...children);
      return;
    }
    this.clear();
    holder.append(...children);
    this.body.append(holder);
  }

  private draw(drawing: Drawing, stepMs: number): void {
    const lines = JSON.stringify(drawing.spec);
    if (this.chart?.lines !== lines) {
      this.clear();
      const chart = new Chart(drawing.spec, "board", this.env.navigator, null);
      // The panel has its name already.
      chart.element.removeAttribute("aria-label");
      this.body.append(chart.element);
      this.chart = { chart, lines };
    }
    this.drawing = drawing;
    this.stepMs = stepMs;
    this.redraw();
  }

  private showLinks(queries: string[]): void {
    const addresses = queries.map((query) => this.env.address(query));
    const shown = [...this.links.querySelectorAll("a")];
    if (shown.length === addresses.length) {
      shown.forEach((link, i) => { link.href = addresses[i]!; });
      return;
    }
    this.links.replaceChildren(...addresses.map((href, i) => {
      const name = addresses.length === 1 ? "Query" : `Query ${this.panel.targets[i]!.ref}`;
      return h("a", { href, "aria-label": `${name} of ${this.element.getAttribute("aria-label") ?? ""}` }, name);
    }));
  }

  private showProblem(text: string | null): void {
    setHidden(this.problem, text === null);
    setText(this.problem, text ?? "");
  }

  private clear(): void {
    this.removeChart();
    this.body.replaceChildren();
  }

  private removeChart(): void {
    this.chart?.chart.destroy();
    this.chart = null;
    this.drawing = null;
  }
}
