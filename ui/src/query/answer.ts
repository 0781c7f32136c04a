// SPDX-License-Identifier: Apache-2.0
//! What an answer looks like: a chart, a table, a text; how much of it is shown; what was said besides.

import { Chart } from "../charts/chart";
import type { Navigator } from "../charts/gestures";
import { now } from "../clock";
import { h, notice, setHidden, setText } from "../dom";
import { count, duration, moment } from "../format";
import { Gaps } from "../gaps";
import type { Result } from "../promql";
import type { Limits, Span } from "../view";
import type { Metric } from "./complete";
import { type Drawing, type Shape, type Steps, drawingOf, seriesCount, unitOf, whyEmpty } from "./result";
import { ResultTable } from "./table";

const HEIGHT_PX = 340;
const NO_GAPS = new Gaps();

export interface Asked {
  query: string;
  span: Span;
  steps: Steps;
  /** Of the answer, which may have no chart. */
  shape: Shape;
  tookMs: number;
}

export class Answer {
  private readonly summary = h("p", { class: "query-summary dim num", role: "status" });
  private readonly said = h("ul", { class: "query-said" });
  private readonly body = h("div", { class: "query-answer" });
  readonly element = h("div", { hidden: true }, this.summary, this.said, this.body);
  private chart: { chart: Chart; lines: string } | null = null;
  private drawing: Drawing | null = null;
  private readonly table = new ResultTable();
  private stepMs = 0;
  private frame = 0;
  private readonly resize = new ResizeObserver(() => this.redraw());
  private span: Span = { from: 0, to: 1 };
  private isBusy = false;
  private isDue = false;

  constructor(private readonly navigator: () => Navigator | null) {
    this.resize.observe(this.body);
    // The chart's values follow its cursor, once a frame.
    const follow = (): void => {
      if (this.isDue) this.paint();
      if (this.chart?.chart.areValuesDue === true) this.chart.chart.showValues();
      this.frame = requestAnimationFrame(follow);
    };
    this.frame = requestAnimationFrame(follow);
  }

  show(result: Result, asked: Asked, metrics: ReadonlyMap<string, Metric>, limits: Limits): void {
    setHidden(this.element, false);
    const isEmpty = result.kind !== "string" && result.series.every(({ points }) => points.length === 0);
    const drawing = asked.shape === "chart" && !isEmpty ? drawingOf(result, asked.query, asked.steps.stepMs, unitOf(asked.query, metrics)) : null;
    setText(this.summary, summaryOf(result, asked, drawing));
    const words: [string, string][] = [...(drawing?.left ?? []).map((text): [string, string] => ["limit", text]), ...result.warnings.map((text): [string, string] => ["warning", text]), ...result.infos.map((text): [string, string] => ["info", text])];
    this.said.replaceChildren(...words.map(([kind, text]) => h("li", { class: kind }, h("strong", {}, kind === "limit" ? "Not all" : kind === "warning" ? "Warning" : "Info"), ` ${text}`)));
    this.span = asked.span;
    if (drawing !== null) this.draw(drawing, asked.steps.stepMs);
    else {
      this.removeChart();
      if (isEmpty) this.put(emptyNotice(asked, metrics, limits));
      else if (result.kind === "string") this.put(h("pre", { class: "card query-string" }, result.text));
      else {
        this.table.show(result, unitOf(asked.query, metrics));
        this.put(this.table.element);
      }
    }
  }

  /** Another part of the time, before it has been asked for. */
  move(span: Span): void {
    this.span = span;
    this.redraw();
  }

  setBusy(isBusy: boolean): void {
    this.isBusy = isBusy;
    this.redraw();
  }

  showSelection(span: Span | null): void {
    this.chart?.chart.showSelection(span);
  }

  /** Once a frame, whatever has changed. */
  redraw(): void {
    this.isDue = true;
  }

  private paint(): void {
    this.isDue = false;
    const { drawing, stepMs } = this;
    if (drawing === null) return;
    const fine = { intervalMs: 0, shownMs: stepMs, resolutionMs: 0, stepped: false, rateError: 0, isExact: true as const };
    this.chart?.chart.draw({ ...this.span, tracks: drawing.tracks, gaps: NO_GAPS, silentSince: null, loading: this.isBusy, fineness: () => fine });
  }

  clear(): void {
    setHidden(this.element, true);
    this.removeChart();
    this.body.replaceChildren();
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.resize.disconnect();
    this.removeChart();
  }

  /** The chart stays while its lines are the same ones: what is hidden stays hidden. */
  private draw(drawing: Drawing, stepMs: number): void {
    const lines = JSON.stringify(drawing.spec);
    if (this.chart?.lines !== lines) {
      this.removeChart();
      const chart = new Chart({ ...drawing.spec, heightPx: HEIGHT_PX }, "query", this.navigator, null);
      this.body.replaceChildren(chart.element);
      this.chart = { chart, lines };
    }
    this.drawing = drawing;
    this.stepMs = stepMs;
    this.redraw();
  }

  private put(node: HTMLElement): void {
    if (this.body.firstChild !== node) this.body.replaceChildren(node);
  }

  private removeChart(): void {
    this.chart?.chart.destroy();
    this.chart = null;
    this.drawing = null;
  }
}

function summaryOf(result: Result, { span, steps, shape, tookMs }: Asked, drawing: Drawing | null): string {
  const samples = result.series.reduce((sum, { points }) => sum + points.length, 0);
  const when = shape === "table" ? `at ${moment(span.to, now(), 1)}` : `a value every ${duration(steps.stepMs)}`;
  const what = result.kind === "string" ? "a text" : result.kind === "scalar" ? "a number" : seriesCount(result, shape);
  const drawn = drawing !== null && drawing.spec.lines.length < result.series.length ? `${drawing.spec.lines.length} of them drawn` : "";
  return [what, drawn, shape === "chart" || result.kind === "matrix" ? `${count(samples)} samples` : "", when, `took ${duration(Math.round(tookMs))}`].filter((part) => part !== "").join(" · ");
}

function emptyNotice({ query, span, shape }: Asked, metrics: ReadonlyMap<string, Metric>, limits: Limits): HTMLElement {
  const why = whyEmpty(query, metrics, span, limits);
  return notice("empty", shape === "table" ? "No values at this time" : "No values in this time", h("ul", { class: "query-why" }, ...why.map((text) => h("li", {}, text))));
}
