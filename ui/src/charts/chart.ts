// SPDX-License-Identifier: Apache-2.0
//! One chart: a card with title, badges, plot and legend. uPlot gives axes, scales and the shared cursor; lines, gaps and heat are drawn by the modules beside.

import uPlot from "uplot";
import { now } from "../clock";
import { h, setClass, setHidden, setText } from "../dom";
import { count, duration, isBinary, moment, quantity, tick } from "../format";
import { invalidAt } from "../invalid";
import { axisTop } from "../ranges";
import { quantile } from "../series";
import { MOST_DASHED, colour, lineDash, onChange } from "../theme";
import type { Span } from "../view";
import { BINARY_STEPS, TIME_STEPS, decades, rowMarks, timeLabels, timeMarks } from "./axes";
import { type ChartSpec, type Fineness, type Frame, MAX_BANDS, type Scene, assemble, emptyFrame, extremes, nearest, ownValue, stands } from "./frame";
import { drawGaps, gapAt } from "./gaps";
import { type Navigator, listen } from "./gestures";
import { HeatImage, octaves, paintHistogram, paintRows } from "./heat";
import { drawInvalid } from "./invalid";
import { Legend, PEAK_COLOUR, paintOf } from "./legend";
import { areApart, build, whiskers } from "./paths";
import { Still } from "./still";

const HEIGHT_PX = 176;
/** Of a column of a histogram, about: each takes as long as a point. */
const CELLS = 50;
/** Numbers that change ten times a second cannot be read. */
const EXTREMES_EVERY_MS = 500;
/** Of lines that are not the one that the legend points at. */
const FADED = 0.2;

export class Chart {
  readonly element: HTMLElement;
  visible = true;
  /** Whether it was ever on the screen: before that nobody asks for its values. */
  seen = false;
  /** It has come onto the screen. */
  onSight: () => void = () => undefined;
  /** When it was drawn last, by the frame clock, and what: the board's stamp of it. */
  drawnAt = -Infinity;
  drawn = NaN;
  /** Under the pointer. */
  isHot = false;
  /** The cursor has moved. */
  areValuesDue = false;
  private readonly plot: uPlot;
  private readonly legend: Legend | null;
  private readonly body = h("div", { class: "plot", tabindex: 0, role: "application" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly selection = h("div", { class: "selection num", hidden: true });
  private readonly links = h("span", { class: "chart-links" });
  private readonly badges = h("p", { class: "badges" });
  private readonly readout = h("p", { class: "readout num" });
  private readonly blank = h("p", { class: "blank" });
  /** What the keyboard's cursor finds, for those who do not see it. */
  private readonly spoken = h("p", { class: "hidden", role: "status" });
  private readonly heat: HeatImage | null;
  private readonly still = new Still();
  private readonly stops: (() => void)[] = [];
  private frame: Frame;
  private scene: Scene | null = null;
  private fine: Fineness = { intervalMs: 0, shownMs: 0, resolutionMs: 0, stepped: false, rateError: 0 };
  private top = 0;
  private octaves: [number, number] = [0, 1];
  private greatestCount = 0;
  private hidden: ReadonlySet<number> = new Set();
  private extremesAt = -Infinity;
  private isSized = false;
  private extremesTimer: number | undefined;

  constructor(
    readonly spec: ChartSpec,
    cursorKey: string,
    navigator: () => Navigator | null,
    onRemove: (() => void) | null,
  ) {
    this.frame = emptyFrame(0, 1, spec.lines.length);
    this.heat = spec.kind === "histogram" || spec.kind === "rows" ? new HeatImage() : null;
    this.legend = this.heat === null ? new Legend(spec, { hidden: (lines) => this.hide(lines), highlighted: (line) => this.plot.setSeries(line === null ? null : line + 1, { focus: true }), full: () => this.showExtremes() }) : null;
    const remove =
      onRemove === null ? null : h("button", { type: "button", class: "quiet remove", "aria-label": `Remove the chart ${spec.title}`, title: "Remove", on: { click: onRemove } }, "✕");
    this.body.append(this.tip, this.blank);
    this.element = h(
      "section",
      { class: "card chart", "aria-label": spec.detail === undefined ? spec.title : `${spec.title} ${spec.detail}` },
      h("header", { class: spec.removable ? "wide" : "" }, h("h3", { title: spec.series[0]?.help ?? spec.title }, spec.title), spec.detail === undefined ? null : h("span", { class: "dim detail", title: spec.detail }, spec.detail), this.links, remove, this.badges),
      this.body,
      this.spoken,
      this.legend?.element ?? null,
      this.legend === null ? this.readout : null,
      spec.note === undefined ? null : h("p", { class: "note" }, spec.note),
    );
    this.plot = new uPlot(this.options(cursorKey), [[], ...spec.lines.map(() => []), []], this.body);
    this.plot.ctx.canvas.setAttribute("role", "img");
    this.plot.ctx.canvas.setAttribute("aria-label", `${spec.title}, over time; the values stand below`);
    this.plot.over.append(this.selection);
    this.body.setAttribute("aria-label", `${spec.title}: arrow keys move the cursor`);
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("blur", () => this.setCursor(-10));
    this.body.addEventListener("pointerenter", () => (this.isHot = true));
    this.body.addEventListener("pointerleave", () => (this.isHot = false));
    const resize = new ResizeObserver(() => this.resize());
    resize.observe(this.body);
    const seen = new IntersectionObserver((entries) => {
      this.visible = entries.some((entry) => entry.isIntersecting);
      if (!this.visible) return;
      this.seen = true;
      this.onSight();
    }, { rootMargin: "120px" });
    seen.observe(this.element);
    this.stops.push(
      listen(this.plot.over, navigator),
      () => resize.disconnect(),
      () => seen.disconnect(),
      onChange(() => {
        this.heat?.themeChanged();
        this.paintHeat();
        this.plot.redraw(false, true);
      }),
    );
  }

  /** A link to its query, with the address as it is when somebody goes there. */
  linkTo(address: () => string): void {
    const fresh = (): void => { link.href = address(); };
    const link = h("a", { href: address(), "aria-label": `Query of ${this.element.getAttribute("aria-label") ?? this.spec.title}`, title: "Open its query", on: { pointerenter: fresh, focus: fresh, click: fresh } }, "Query");
    this.links.replaceChildren(link);
  }

  /** Of the part with values; 0 before it has a place in the page. */
  get width(): number {
    return this.isSized ? this.plot.bbox.width / devicePixelRatio : 0;
  }

  draw(scene: Scene): void {
    const { tracks } = this.scene ?? {};
    this.scene = scene;
    this.fine = scene.fineness(this.spec);
    // What was asked for is here: another part of its time is the same points.
    const isSame = scene.isMoving ?? (this.fine.isExact === true && tracks === scene.tracks);
    // The board's charts are drawn in turns.
    const drawNext = scene.isMoving === true ? () => { this.drawn = NaN; } : () => this.drawWhole(scene);
    this.still.isShown = isSame && this.still.does(this.plot, scene, scene.isMoving === true, drawNext);
    if (!this.still.isShown) this.drawWhole(scene);
    else this.plot.batch(() => this.plot.setScale("x", { min: scene.from, max: scene.to }));
  }

  private drawWhole(scene: Scene): void {
    this.still.isShown = false;
    this.frame = assemble(this.spec, scene.tracks, scene.from, scene.to, this.breaks, this.hidden);
    if (this.spec.kind === "histogram") this.fitOctaves();
    // Of a part of the lines the whole's greatest value says nothing.
    else this.top = (this.hidden.size === 0 ? this.spec.top : undefined) ?? axisTop(this.top, this.frame.greatest, this.isBinary);
    this.paintHeat();
    this.showBadges();
    const empty = this.frame.columns.length === 0 && this.frame.t.length === 0;
    setHidden(this.blank, !empty);
    if (empty) setText(this.blank, scene.loading ? "Reading the past …" : scene.silentSince === null ? "No values in this time." : "Nothing in this time: the host is silent.");
    if (this.element.ariaBusy !== String(scene.loading)) this.element.ariaBusy = String(scene.loading);
    const { plot, frame } = this;
    plot.batch(() => {
      plot.setData([frame.t, ...frame.lines.map((line) => line.values), frame.peak?.tops ?? []], false);
      plot.setScale("x", { min: scene.from, max: scene.to });
      plot.setScale("y", this.yRange());
    });
    this.still.was(scene, frame.t.length * this.spec.lines.length + frame.columns.length * CELLS);
    this.showValues();
    this.showExtremes();
  }

  /** What a drag on some chart has marked. */
  showSelection(span: Span | null): void {
    setHidden(this.selection, span === null);
    if (span === null) return;
    const { plot } = this;
    const [left, right] = [plot.valToPos(span.from, "x"), plot.valToPos(span.to, "x")].map((at) => Math.max(0, Math.min(this.width, at)));
    this.selection.style.left = `${left}px`;
    this.selection.style.width = `${right! - left!}px`;
    setText(this.selection, duration(span.to - span.from));
  }

  destroy(): void {
    clearTimeout(this.extremesTimer);
    this.still.destroy();
    for (const stop of this.stops) stop();
    this.legend?.destroy();
    this.plot.destroy();
    this.element.remove();
  }

  private readonly breaks = (t0: number, t1: number): boolean =>
    this.scene !== null && (t1 - t0 > (this.fine.isExact === true ? 1.5 : 3) * Math.max(this.fine.shownMs, this.fine.resolutionMs) || this.scene.gaps.between(t0, t1, this.fine.shownMs));

  private get height(): number {
    return this.spec.heightPx ?? HEIGHT_PX;
  }

  private get isBinary(): boolean {
    return isBinary(this.spec.unit, this.spec.perSecond);
  }

  private yRange(): { min: number; max: number } {
    if (this.spec.kind === "histogram") return { min: this.octaves[0], max: this.octaves[1] };
    if (this.spec.kind === "rows") return { min: 0, max: this.spec.lines.length + this.peakRows };
    const min = this.frame.least < 0 ? -axisTop(0, -this.frame.least, this.isBinary) : 0;
    return { min, max: this.top };
  }

  /** Rows of colour above the others: what any of them reached. */
  private get peakRows(): number {
    return this.frame.peak === null ? 0 : Math.ceil(this.spec.lines.length / 12);
  }

  /** The axis widens at once, and narrows only where more than two octaves are empty. */
  private fitOctaves(): void {
    const [low, high] = octaves(this.frame.columns);
    const [bottom, top] = this.octaves;
    const fits = low >= bottom && high <= top && low - bottom + (top - high) <= 2;
    if (!fits && this.frame.columns.length > 0) this.octaves = [low, high];
  }

  private paintHeat(): void {
    const { heat, frame } = this;
    if (heat === null || this.scene === null) return;
    // No narrower than a pixel: else some would be left out.
    const binMs = Math.max(this.fine.shownMs, (frame.to - frame.from) / Math.max(1, this.width));
    if (this.spec.kind === "histogram") {
      this.greatestCount = paintHistogram(heat, frame.columns, frame.from, frame.to, binMs, this.octaves, this.breaks);
    } else {
      const lines = [...frame.lines.map((line) => line.values), ...new Array<Float64Array>(this.peakRows).fill(frame.peak?.tops ?? frame.t)];
      paintRows(heat, frame.t, lines.reverse(), this.peakRows, frame.from, frame.to, binMs, this.top, this.breaks);
    }
  }

  private options(cursorKey: string): uPlot.Options {
    const { spec } = this;
    const binary = this.isBinary;
    const axis = (): string => colour("--muted");
    const grid = { stroke: () => colour("--grid"), width: 1 };
    const base = { stroke: axis, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: 400,
      height: this.height,
      ms: 1,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      cursor: {
        y: this.heat !== null,
        points: { show: false },
        drag: { x: false, y: false },
        // uPlot's own would show all that it has.
        bind: { dblclick: () => null },
        sync: { key: cursorKey, scales: ["x", null], setSeries: false },
        // A chart that was never drawn has no place for the time of the others' cursor.
        move: (_, left, top) => [Number.isFinite(left) ? left : -10, top],
      },
      scales: { x: { time: true, auto: false, range: (_, min, max) => [min, max] }, y: { auto: false, range: (_, min, max) => [min, max] } },
      focus: { alpha: FADED },
      axes: [
        // A line over colours would hide what is there.
        { ...base, grid: { ...grid, show: this.heat === null }, space: 80, size: 24, incrs: TIME_STEPS, splits: (_, __, min, max, step) => timeMarks(min, max, step), values: (u, splits, _, __, step) => timeLabels(u, splits, step) },
        {
          ...base,
          size: 64,
          space: 32,
          ...(binary && spec.kind !== "histogram" ? { incrs: BINARY_STEPS } : {}),
          ...(spec.kind === "histogram" ? { splits: (u: uPlot) => decades(u) } : {}),
          ...(spec.kind === "rows" ? { splits: () => [...rowMarks(spec.lines.length), ...(this.peakRows > 0 ? [spec.lines.length + this.peakRows / 2] : [])], grid: { show: false } } : {}),
          values: (_, splits) => splits.map((value) => this.yTick(value)),
        },
      ],
      series: [
        {},
        ...spec.lines.map((_, i): uPlot.Series => ({
          scale: "y",
          auto: false,
          show: this.heat === null,
          width: spec.kind === "stack" || spec.lines.length > MOST_DASHED ? 1 : 1.5,
          stroke: () => paintOf(spec, i),
          fill: () => paintOf(spec, i) + (spec.kind === "stack" ? "b0" : "30"),
          dash: spec.kind === "stack" ? [] : lineDash(i, spec.lines.length),
          points: { show: false },
          paths: (u) => (this.still.isShown ? null : this.path(u, i)),
        })),
        { scale: "y", auto: false, show: this.heat === null, width: 1, stroke: () => colour(PEAK_COLOUR), points: { show: false }, paths: (u) => (this.still.isShown ? null : this.peakPath(u)) },
      ],
      hooks: {
        drawClear: [(u) => this.drawBelow(u)],
        setCursor: [() => (this.areValuesDue = true)],
      },
    };
  }

  private yTick(value: number): string {
    if (this.spec.kind === "rows") return this.spec.lines[Math.floor(value)]?.label ?? "peak";
    return tick(this.spec.kind === "histogram" ? 2 ** value : value, this.spec.unit, this.spec.perSecond);
  }

  private path(u: uPlot, i: number): uPlot.Series.Paths {
    const { lines, t } = this.frame;
    const line = lines[i]!;
    const { stepped } = this.fine;
    const dots = areApart(u, this.fine.shownMs);
    const isStack = this.spec.kind === "stack";
    const below = isStack ? lines.slice(0, i).findLast((_, k) => !this.hidden.has(k)) : undefined;
    const hasBand = !isStack && lines.length - this.hidden.size <= MAX_BANDS;
    const shape = isStack ? { stepped, dots, upper: line.values, lower: below?.values ?? null, toAxis: true } : { stepped, dots, upper: hasBand ? line.highs : null, lower: hasBand ? line.lows : null, toAxis: false };
    return build(u, t, line.values, shape, this.breaks);
  }

  private peakPath(u: uPlot): uPlot.Series.Paths | null {
    const { t, peak } = this.frame;
    return peak === null ? null : whiskers(u, t, peak.feet, peak.tops, (at) => stands(this.frame, at));
  }

  private drawBelow(u: uPlot): void {
    if (this.scene === null) return;
    if (this.still.isShown) {
      this.still.paint(u, this.scene);
      return;
    }
    drawGaps(u, this.scene, this.fine.shownMs);
    const { left, top, width, height } = u.bbox;
    if (this.heat !== null && (this.frame.t.length > 0 || this.frame.columns.length > 0)) {
      this.heat.draw(u.ctx, { left, top, width, height }, this.frame.from, this.frame.to);
    }
    drawInvalid(u, this.spec, this.scene);
  }

  private showBadges(): void {
    const { fine } = this;
    const parts = fine.intervalMs > 0 ? [`read every ${duration(fine.intervalMs)}`] : [];
    if (fine.shownMs > fine.intervalMs * 1.01) parts.push(`shown every ${duration(fine.shownMs)}`);
    if (fine.resolutionMs >= 1) parts.push(`value moves every ${duration(fine.resolutionMs)}${fine.stepped ? ", drawn as steps" : ""}`);
    if (fine.rateError > 0) parts.push(`± ${quantity(fine.rateError, "share")}`);
    setText(this.badges, parts.join(" · "));
    setClass(this.badges, "coarse", fine.stepped || fine.rateError > 0);
  }

  /** Values at the cursor, or the newest; and what lies under the cursor where there is none. Once a frame: the cursor is that of all charts. */
  showValues(): void {
    const { plot, frame, scene } = this;
    this.areValuesDue = false;
    if (scene === null) return;
    const left = plot.cursor.left ?? -1;
    const hovered = left >= 0;
    const t = hovered ? plot.posToVal(left, "x") : scene.to;
    const found = hovered ? gapAt(scene, t, this.width, this.fine.shownMs) : null;
    const hole = found?.isHole === true ? found : null;
    setHidden(this.tip, !hovered);
    if (hovered) {
      const time = moment(t, now(), Math.min(100, this.fine.shownMs));
      const invalid = invalidAt(this.spec, scene, t, this.width);
      setText(this.tip, [time, found?.text, invalid].filter((part) => part != null).join(" – "));
      setClass(this.tip, "hole", hole?.kind === "host");
      setClass(this.tip, "late", found?.kind === "reader");
    }
    if (this.spec.kind === "histogram") this.showColumn(t, hole !== null);
    else if (this.spec.kind === "rows") this.showRow(t, hole !== null, hovered);
    else this.legend?.show(frame.lines.map((_, i) => (hole === null ? this.valueNear(i, t) : NaN)), frame.peak === null ? null : hole === null ? this.near(t, (i) => frame.peak!.tops[i]!) : NaN);
  }

  private showExtremes(): void {
    if (this.legend?.hasExtremes !== true || this.extremesTimer !== undefined) return;
    const wait = this.extremesAt + EXTREMES_EVERY_MS - performance.now();
    if (wait > 0) {
      this.extremesTimer = setTimeout(() => {
        this.extremesTimer = undefined;
        this.showExtremes();
      }, wait);
      return;
    }
    this.extremesAt = performance.now();
    this.spec.lines.forEach((_, i) => this.legend!.showExtremes(i, extremes(this.spec, this.frame, i)));
  }

  private hide(lines: ReadonlySet<number>): void {
    this.hidden = lines;
    if (this.scene !== null) this.draw(this.scene);
  }

  private valueNear(line: number, t: number): number {
    return this.near(t, (i) => ownValue(this.spec, this.frame, line, i));
  }

  /** The newest value at or before the nearest point of the axis: lines of different regions have points at different times. */
  private near(t: number, value: (at: number) => number): number {
    const times = this.frame.t;
    const reach = Math.max(1000, 3 * Math.max(this.fine.shownMs, this.fine.resolutionMs));
    for (let i = nearest(times, t); i >= 0 && Math.abs(times[i]! - t) <= reach; i--) {
      const found = value(i);
      if (!Number.isNaN(found)) return found;
    }
    return NaN;
  }

  private showColumn(t: number, hole: boolean): void {
    const { columns } = this.frame;
    const at = columns.findLast((item) => item.t <= t + this.fine.shownMs / 2);
    const unit = this.spec.unit;
    if (at === undefined || hole) {
      setText(this.readout, hole ? "no values" : "–");
      return;
    }
    const total = at.counts.reduce((sum, n) => sum + n, 0);
    const shown = [`${count(total)} new`, `p50 ≤ ${quantity(quantile(at, 0.5), unit)}`, `p99 ≤ ${quantity(quantile(at, 0.99), unit)}`, `up to ${count(this.greatestCount)} in a bucket`];
    setText(this.readout, shown.join(" · "));
  }

  private showRow(t: number, hole: boolean, hovered: boolean): void {
    const { lines } = this.spec;
    if (!hovered || hole) {
      const values = lines.map((_, i) => this.valueNear(i, t)).filter((value) => !Number.isNaN(value));
      const mean = values.reduce((total, value) => total + value, 0) / values.length;
      setText(this.readout, hole || values.length === 0 ? "no values" : `mean ${this.quantity(mean)} · max ${this.quantity(Math.max(...values))}`);
      return;
    }
    const row = Math.max(0, Math.floor(this.plot.posToVal(this.plot.cursor.top ?? 0, "y")));
    const highs = this.frame.lines[row]?.highs ?? this.frame.peak?.tops;
    const most = highs === undefined ? NaN : this.near(t, (i) => highs[i]!);
    const parts = [row < lines.length ? `${lines[row]!.label}: ${this.quantity(this.valueNear(row, t))}` : "any", Number.isNaN(most) ? "" : `up to ${this.quantity(most)}`];
    setText(this.readout, parts.filter((part) => part !== "").join(" · "));
  }

  private quantity(value: number): string {
    return quantity(value, this.spec.unit, this.spec.perSecond);
  }

  // --- the keyboard -----------------------------------------------------------------------------------------------------------------------

  private onKey(event: KeyboardEvent): void {
    const t = this.shownTimes();
    const at = this.plot.cursor.left ?? -1;
    const here = at < 0 ? t.length : nearest(t, this.plot.posToVal(at, "x"));
    const place = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: t.length - 1 }[event.key];
    if (event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape" && at >= 0) this.setCursor(-10);
    else if (place !== undefined && t.length > 0) {
      this.setCursor(this.plot.valToPos(t[Math.max(0, Math.min(t.length - 1, place))]!, "x"));
      this.showValues();
      this.speak();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Points on the screen. */
  private shownTimes(): Float64Array {
    const { frame } = this;
    const t = this.spec.kind === "histogram" ? Float64Array.from(frame.columns, (column) => column.t) : frame.t;
    return t.filter((ms) => ms >= frame.from && ms <= frame.to);
  }

  /** On all charts; a negative place is none. */
  private setCursor(left: number): void {
    this.plot.setCursor({ left, top: left < 0 ? -10 : this.plot.over.clientHeight / 2 }, true);
  }

  private speak(): void {
    const values = this.legend === null ? [this.readout.textContent] : this.spec.lines.map((line, i) => `${line.label} ${this.quantity(this.valueNear(i, this.plot.posToVal(this.plot.cursor.left!, "x")))}`);
    setText(this.spoken, [this.tip.textContent, ...values].join(", "));
  }

  private resize(): void {
    const width = Math.floor(this.body.clientWidth);
    this.isSized ||= width > 0;
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: this.height });
  }
}
