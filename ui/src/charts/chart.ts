// SPDX-License-Identifier: Apache-2.0
//! One chart: a card with title, badges, plot and legend. uPlot gives axes, scales and the shared cursor; lines, gaps and heat are drawn by the modules beside.

import uPlot from "uplot";
import { h, setClass, setHidden, setText } from "../dom";
import { clockTime, count, duration, isBinary, quantity, tick } from "../format";
import { axisTop } from "../ranges";
import { quantile } from "../series";
import { colour, lineDash, onChange } from "../theme";
import { type ChartSpec, type Fineness, type Frame, type Scene, assemble, emptyFrame, nearest, ownValue } from "./frame";
import { HeatImage, octaves, paintHistogram, paintRows } from "./heat";
import { Legend, paintOf } from "./legend";
import { build } from "./paths";
import { drawGaps, gapAt } from "./gaps";

const HEIGHT_PX = 176;

export class Chart {
  readonly element: HTMLElement;
  visible = true;
  /** Whether it was ever on the screen: before that nobody asks for its values. */
  seen = false;
  /** It has come onto the screen. */
  onSight: () => void = () => undefined;
  /** When it was drawn last, by the board's frame clock. */
  drawnAt = -Infinity;
  private readonly plot: uPlot;
  private readonly legend: Legend | null;
  private readonly body = h("div", { class: "plot" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly badges = h("p", { class: "badges" });
  private readonly readout = h("p", { class: "readout num" });
  private readonly blank = h("p", { class: "blank" });
  private readonly heat: HeatImage | null;
  private readonly stops: (() => void)[] = [];
  private frame: Frame;
  private scene: Scene | null = null;
  private fine: Fineness = { intervalMs: 0, shownMs: 0, resolutionMs: 0, stepped: false, rateError: 0 };
  private top = 0;
  private octaves: [number, number] = [0, 1];
  private greatestCount = 0;

  constructor(
    readonly spec: ChartSpec,
    cursorKey: string,
    onRemove: (() => void) | null,
  ) {
    this.frame = emptyFrame(0, 1, spec.lines.length);
    this.heat = spec.kind === "histogram" || spec.kind === "rows" ? new HeatImage() : null;
    this.legend = this.heat === null ? new Legend(spec) : null;
    const remove =
      onRemove === null ? null : h("button", { type: "button", class: "quiet remove", "aria-label": `Remove the chart ${spec.title}`, title: "Remove", on: { click: onRemove } }, "✕");
    this.body.append(this.tip, this.blank);
    this.element = h(
      "section",
      { class: "card chart", "aria-label": spec.detail === undefined ? spec.title : `${spec.title} ${spec.detail}` },
      h("header", { class: spec.removable ? "wide" : "" }, h("h3", { title: spec.series[0]?.help ?? spec.title }, spec.title), spec.detail === undefined ? null : h("span", { class: "dim detail", title: spec.detail }, spec.detail), remove, this.badges),
      this.body,
      this.legend?.element ?? null,
      this.legend === null ? this.readout : null,
      spec.note === undefined ? null : h("p", { class: "note" }, spec.note),
    );
    this.plot = new uPlot(this.options(cursorKey), [[], ...spec.lines.map(() => [])], this.body);
    this.plot.ctx.canvas.setAttribute("role", "img");
    this.plot.ctx.canvas.setAttribute("aria-label", `${spec.title}, over time; the values stand below`);
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
      () => resize.disconnect(),
      () => seen.disconnect(),
      onChange(() => {
        this.heat?.themeChanged();
        this.paintHeat();
        this.plot.redraw(false, true);
      }),
    );
  }

  get width(): number {
    return this.plot.bbox.width / devicePixelRatio;
  }

  draw(scene: Scene): void {
    this.scene = scene;
    this.fine = scene.fineness(this.spec);
    this.frame = assemble(this.spec, scene.tracks, scene.from, scene.to, this.breaks);
    if (this.spec.kind === "histogram") this.fitOctaves();
    else this.top = this.spec.top ?? axisTop(this.top, this.frame.greatest, isBinary(this.spec.unit, this.spec.perSecond));
    this.paintHeat();
    this.showBadges();
    const empty = this.frame.columns.length === 0 && this.frame.t.length === 0;
    setHidden(this.blank, !empty);
    if (empty) setText(this.blank, scene.loading ? "Reading the past …" : scene.silentSince === null ? "No values in this window yet." : "Nothing in this window: the host is silent.");
    const { plot, frame } = this;
    plot.batch(() => {
      plot.setData([frame.t, ...frame.lines.map((line) => line.values)], false);
      plot.setScale("x", { min: scene.from, max: scene.to });
      plot.setScale("y", this.yRange());
    });
    this.showValues();
  }

  destroy(): void {
    for (const stop of this.stops) stop();
    this.legend?.destroy();
    this.plot.destroy();
    this.element.remove();
  }

  private readonly breaks = (t0: number, t1: number): boolean =>
    this.scene !== null && (t1 - t0 > 3 * Math.max(this.fine.shownMs, this.fine.resolutionMs) || this.scene.gaps.between(t0, t1, this.scene.shownMs));

  private yRange(): { min: number; max: number } {
    if (this.spec.kind === "histogram") return { min: this.octaves[0], max: this.octaves[1] };
    if (this.spec.kind === "rows") return { min: 0, max: this.spec.lines.length };
    const min = this.frame.least < 0 ? -axisTop(0, -this.frame.least, isBinary(this.spec.unit, this.spec.perSecond)) : 0;
    return { min, max: this.top };
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
    const binMs = Math.max(this.fine.shownMs, (frame.to - frame.from) / 900);
    if (this.spec.kind === "histogram") {
      this.greatestCount = paintHistogram(heat, frame.columns, frame.from, frame.to, binMs, this.octaves, this.breaks);
    } else {
      const lines = frame.lines.map((line) => line.values);
      paintRows(heat, frame.t, [...lines].reverse(), frame.from, frame.to, binMs, this.top, this.breaks);
    }
  }

  private options(cursorKey: string): uPlot.Options {
    const { spec } = this;
    const binary = isBinary(spec.unit, spec.perSecond);
    const axis = (): string => colour("--muted");
    const grid = { stroke: () => colour("--grid"), width: 1 };
    const base = { stroke: axis, grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: 400,
      height: HEIGHT_PX,
      ms: 1,
      legend: { show: false },
      padding: [8, 8, 0, 0],
      cursor: {
        y: this.heat !== null,
        points: { show: false },
        drag: { x: false, y: false },
        sync: { key: cursorKey, scales: ["x", null], setSeries: false },
      },
      scales: { x: { time: true, auto: false, range: (_, min, max) => [min, max] }, y: { auto: false, range: (_, min, max) => [min, max] } },
      axes: [
        { ...base, space: 80, size: 24, splits: (_, __, min, max, step) => marks(min, max, step), values: (u, splits, _, __, step) => splits.map((ms) => (isCut(u, ms) ? "" : clockTime(ms, step))) },
        {
          ...base,
          size: 64,
          space: 32,
          ...(binary && spec.kind !== "histogram" ? { incrs: BINARY_STEPS } : {}),
          ...(spec.kind === "histogram" ? { splits: (u: uPlot) => decades(u) } : {}),
          ...(spec.kind === "rows" ? { splits: () => rowMarks(spec.lines.length), grid: { show: false } } : {}),
          values: (_, splits) => splits.map((value) => this.yTick(value)),
        },
      ],
      series: [
        {},
        ...spec.lines.map((_, i): uPlot.Series => ({
          scale: "y",
          auto: false,
          show: this.heat === null,
          width: spec.kind === "stack" ? 1 : 1.5,
          stroke: () => paintOf(spec, i),
          fill: () => paintOf(spec, i) + (spec.kind === "stack" ? "b0" : "30"),
          dash: spec.kind === "stack" ? [] : lineDash(i),
          points: { show: false },
          paths: (u) => this.path(u, i),
        })),
      ],
      hooks: {
        drawClear: [(u) => this.drawBelow(u)],
        setCursor: [() => this.showValues()],
      },
    };
  }

  private yTick(value: number): string {
    if (this.spec.kind === "rows") return this.spec.lines[Math.floor(value)]?.label ?? "";
    return tick(this.spec.kind === "histogram" ? 2 ** value : value, this.spec.unit, this.spec.perSecond);
  }

  private path(u: uPlot, i: number): uPlot.Series.Paths {
    const line = this.frame.lines[i]!;
    const { stepped } = this.fine;
    const shape =
      this.spec.kind === "stack"
        ? { stepped, upper: line.values, lower: i === 0 ? null : this.frame.lines[i - 1]!.values, toAxis: true }
        : { stepped, upper: line.highs, lower: line.lows, toAxis: false };
    return build(u, this.frame.t, line.values, shape, this.breaks);
  }

  private drawBelow(u: uPlot): void {
    if (this.scene === null) return;
    drawGaps(u, this.scene);
    const { left, top, width, height } = u.bbox;
    if (this.heat !== null && (this.frame.t.length > 0 || this.frame.columns.length > 0)) {
      this.heat.draw(u.ctx, { left, top, width, height }, this.frame.from, this.frame.to);
    }
  }

  private showBadges(): void {
    const { fine } = this;
    const parts = [`read every ${duration(fine.intervalMs)}`];
    if (fine.shownMs > fine.intervalMs * 1.01) parts.push(`shown every ${duration(fine.shownMs)}`);
    if (fine.resolutionMs >= 1) parts.push(`value moves every ${duration(fine.resolutionMs)}${fine.stepped ? ", drawn as steps" : ""}`);
    if (fine.rateError > 0) parts.push(`± ${quantity(fine.rateError, "share")}`);
    setText(this.badges, parts.join(" · "));
    setClass(this.badges, "coarse", fine.stepped || fine.rateError > 0);
  }

  /** Values at the cursor, or the newest; and what lies under the cursor where there is none. */
  private showValues(): void {
    const { plot, frame, scene } = this;
    if (scene === null) return;
    const left = plot.cursor.left ?? -1;
    const hovered = left >= 0;
    const t = hovered ? plot.posToVal(left, "x") : scene.to;
    const found = hovered ? gapAt(scene, t, plot.over.clientWidth) : null;
    const hole = found?.isHole === true ? found : null;
    setHidden(this.tip, !hovered);
    if (hovered) {
      setText(this.tip, found === null ? clockTime(t, 100) : `${clockTime(t, 100)} – ${found.text}`);
      setClass(this.tip, "hole", hole !== null);
    }
    if (this.spec.kind === "histogram") this.showColumn(t, hole !== null);
    else if (this.spec.kind === "rows") this.showRow(t, hole !== null, hovered);
    else this.legend?.show(frame.lines.map((_, i) => (hole === null ? this.valueNear(i, t) : NaN)));
  }

  /** The newest point of a line at or before the nearest point of the axis: lines of different regions have points at different times. */
  private valueNear(line: number, t: number): number {
    const { frame } = this;
    const at = nearest(frame.t, t);
    const reach = 3 * Math.max(this.fine.shownMs, this.fine.resolutionMs);
    for (let i = at; i >= 0 && Math.abs(frame.t[i]! - t) <= Math.max(reach, 1000); i--) {
      const value = ownValue(this.spec, frame, line, i);
      if (!Number.isNaN(value)) return value;
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
    const { lines, unit } = this.spec;
    if (!hovered || hole) {
      const values = lines.map((_, i) => this.valueNear(i, t)).filter((value) => !Number.isNaN(value));
      const mean = values.reduce((total, value) => total + value, 0) / values.length;
      setText(this.readout, hole || values.length === 0 ? "no values" : `mean ${quantity(mean, unit)} · max ${quantity(Math.max(...values), unit)}`);
      return;
    }
    const row = Math.max(0, Math.min(lines.length - 1, Math.floor(this.plot.posToVal(this.plot.cursor.top ?? 0, "y"))));
    setText(this.readout, `${lines[row]!.label}: ${quantity(this.valueNear(row, t), unit, this.spec.perSecond)}`);
  }

  private resize(): void {
    const width = Math.floor(this.body.clientWidth);
    if (width > 0 && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT_PX });
  }
}

/** Multiples of the step. uPlot's own depend on the fraction of a second at which the axis begins, which moves. */
function marks(min: number, max: number, step: number): number[] {
  const first = Math.ceil(min / step);
  return Array.from({ length: Math.max(0, Math.floor(max / step) - first + 1) }, (_, i) => (first + i) * step);
}

/** A label so near to the right edge would be cut off. */
function isCut(u: uPlot, ms: number): boolean {
  const { min, max } = u.scales["x"]!;
  return ((max! - ms) / (max! - min!)) * u.bbox.width < 24 * devicePixelRatio;
}

/** The middles of at most nine rows. */
function rowMarks(rows: number): number[] {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, rows / 8)));
  return Array.from({ length: Math.ceil(rows / step) }, (_, i) => i * step + 0.5);
}

const BINARY_STEPS: number[] = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Axis marks at 1, 10, 100, ...; with 2 and 5 between where that leaves room. Values are log2. */
function decades(u: uPlot): number[] {
  const { min, max } = u.scales["y"]!;
  const low = 2 ** min!;
  const high = 2 ** max!;
  const marks = (factors: number[]): number[] => {
    const out: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      for (const factor of factors) {
        const value = factor * 10 ** power;
        if (value >= low && value <= high) out.push(Math.log2(value));
      }
    }
    return out;
  };
  const fine = marks([1, 2, 5]);
  return fine.length <= 6 ? fine : marks([1]);
}
