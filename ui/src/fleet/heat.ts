// SPDX-License-Identifier: Apache-2.0
//! All hosts over time as colours: which host, and when. Rows are in the order of the table; where there are more hosts than rows of pixels, a row shows the
//! greatest of its hosts, and the pointer names it. A click opens the host at that time.

import { now } from "../clock";
import { h, setHidden, setText } from "../dom";
import { clockTime, count, duration, quantity } from "../format";
import { HeatImage } from "../charts/heat";
import { MAX_LINES } from "../query/result";
import { queryAddress } from "../router";
import { onChange } from "../theme";
import { type Pixels, hostsOf } from "./matrix";
import { HeatReader } from "./heatreader";
import { METRICS, type Metric, SPANS, stepOf, worst } from "./metrics";

const LEAST_HEIGHT_PX = 48;
const MOST_HEIGHT_PX = 200;
const MOST_ROW_PX = 14;

/** A cell of the image. */
interface Place {
  row: number;
  column: number;
}

interface Painted extends Pixels {
  order: readonly string[];
  columns: number;
  stepMs: number;
  from: number;
  to: number;
  full: number;
}

export class FleetHeat {
  metric: Metric;
  span: (typeof SPANS)[number];
  private order: readonly string[] = [];
  private painted: Painted | null = null;
  private readonly image = new HeatImage();
  private readonly canvas = h("canvas", { class: "fleet-heat-canvas", role: "application", tabindex: 0 });
  private readonly tip = h("p", { class: "readout num", role: "status" });
  private readonly scale = h("span", { class: "dim num" });
  /** How many hosts there are, where a row stands for several. */
  private readonly crowd = h("p", { class: "fleet-heat-crowd dim num" });
  private readonly link = h("a", { href: "#/query", "aria-label": "Query of hosts over time", title: `Open the query of the first ${MAX_LINES} of them` }, "Query");
  private readonly problem = h("p", { class: "problem", role: "alert", hidden: true });
  private readonly metricChips: HTMLButtonElement[];
  private readonly spanChips: HTMLButtonElement[];
  readonly element: HTMLElement;
  private readonly resize = new ResizeObserver(() => this.paint());
  private readonly stopTheme: () => void;
  private readonly reader = new HeatReader(() => this.later(), (problem) => {
    setText(this.problem, problem ?? "");
    setHidden(this.problem, problem === null);
  });
  private frame = 0;
  /** By keyboard. */
  private cursor: Place | null = null;
  /** By pointer, on the screen. */
  private pointer: MouseEvent | null = null;

  constructor(
    parameters: URLSearchParams,
    private readonly open: (host: string, at: { from: number; to: number }) => void,
    private readonly changed: () => void,
  ) {
    this.metric = METRICS.find((metric) => metric.key === parameters.get("heat")) ?? METRICS[0]!;
    this.span = SPANS.find((span) => span.key === parameters.get("over")) ?? SPANS[1]!;
    this.metricChips = METRICS.map((metric) => h("button", { type: "button", class: "chip", on: { click: () => this.choose(() => (this.metric = metric)) } }, metric.label));
    this.spanChips = SPANS.map((span) => h("button", { type: "button", class: "chip", on: { click: () => this.choose(() => (this.span = span)) } }, span.label));
    const fresh = (): void => { this.link.href = queryAddress(worst(this.metric, this.order.slice(0, MAX_LINES), stepOf(this.span.ms)), [["w", this.span.key]]); };
    for (const event of ["pointerenter", "focus", "click"]) this.link.addEventListener(event, fresh);
    this.element = h(
      "section", { class: "card fleet-heat", "aria-label": "Hosts over time" },
      h("div", { class: "toolbar" },
        h("div", { class: "chips", role: "group", "aria-label": "Shown as colour" }, ...this.metricChips),
        h("div", { class: "chips", role: "group", "aria-label": "Time" }, ...this.spanChips),
        h("span", { class: "fleet-heat-scale" }, h("span", { class: "heat-ramp", "aria-hidden": "true" }), this.scale, this.link)),
      this.canvas, h("div", { class: "fleet-heat-foot" }, this.tip, this.crowd), this.problem,
    );
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("click", (event) => this.openAt(this.placeOf(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => {
      this.cursor = null;
      this.tell();
    });
    this.resize.observe(this.canvas);
    this.stopTheme = onChange(() => {
      this.image.themeChanged();
      this.paint();
    });
    this.showChips();
  }

  /** All hosts that are shown, from the top. */
  setHosts(order: readonly string[]): void {
    if (order === this.order) return;
    this.order = order;
    this.reader.want(this.metric, this.span.ms, order);
    this.later();
  }

  destroy(): void {
    this.reader.destroy();
    cancelAnimationFrame(this.frame);
    this.resize.disconnect();
    this.stopTheme();
  }

  private choose(change: () => void): void {
    change();
    this.showChips();
    this.changed();
    this.reader.want(this.metric, this.span.ms, this.order);
    this.later();
  }

  private showChips(): void {
    METRICS.forEach((metric, i) => this.metricChips[i]!.setAttribute("aria-pressed", String(metric === this.metric)));
    SPANS.forEach((span, i) => this.spanChips[i]!.setAttribute("aria-pressed", String(span === this.span)));
  }

  /** Once a frame, whatever comes. */
  private later(): void {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    const { canvas, order } = this;
    const { matrix } = this.reader;
    const width = canvas.clientWidth;
    if (matrix === null || width === 0) return;
    const height = Math.max(LEAST_HEIGHT_PX, Math.min(MOST_HEIGHT_PX, order.length * MOST_ROW_PX));
    const pixels = matrix.pixels(order, Math.max(1, Math.min(order.length, height)));
    const { from, to, stepMs, columns } = matrix;
    const full = this.reader.metric.full ?? (pixels.greatest > 0 ? pixels.greatest : 1);
    this.painted = { ...pixels, order, columns, stepMs, from, to, full };
    const ratio = devicePixelRatio;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    canvas.style.height = `${height}px`;
    const rows = pixels.rows < order.length ? "rows in the order of the table, each with the greatest of its hosts" : "a row a host in the order of the table";
    canvas.setAttribute("aria-label", `${this.reader.metric.label} of ${order.length} hosts over ${this.span.label}, ${rows}. Arrows move, Enter opens the host.`);
    this.image.begin(from, to, stepMs, pixels.rows);
    pixels.values.forEach((value, i) => {
      if (!Number.isFinite(value)) return;
      const row = Math.floor(i / columns);
      const t = from + (i - row * columns) * stepMs;
      this.image.cell(t, t + stepMs, row, row + 1, value / full);
    });
    const context = canvas.getContext("2d")!;
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.image.draw(context, { left: 0, top: 0, width: canvas.width, height: canvas.height }, from, to);
    const { left, isBusy } = this.reader;
    const crowd = pixels.rows < order.length ? `${count(order.length)} hosts, of some ${Math.round(order.length / pixels.rows)} in a row the greatest` : "";
    setText(this.scale, `0 to ${this.written(full)}`);
    setText(this.crowd, `${crowd}${left > 0 && crowd !== "" ? ` · ${count(left)} still to come` : ""}`);
    this.element.ariaBusy = String(isBusy);
    this.tell();
  }

  private written(value: number): string {
    const { unit } = this.reader.metric;
    return quantity(value, unit, unit === "bytes");
  }

  // --- what is under the pointer, or the keyboard's cursor --------------------------------------------------------------------------------

  private placeOf(event: MouseEvent): Place | null {
    const { painted, canvas } = this;
    if (painted === null || painted.order.length === 0) return null;
    const box = canvas.getBoundingClientRect();
    const part = (at: number, size: number, parts: number): number => Math.min(parts - 1, Math.max(0, Math.floor((at / size) * parts)));
    return { row: part(event.clientY - box.top, box.height, painted.rows), column: part(event.clientX - box.left, box.width, painted.columns) };
  }

  /** The host with the greatest value at a place, the first where none is known, and the end of the column. */
  private found({ row, column }: Place): { host: string; value: number; t: number; hosts: number } | null {
    const { painted } = this;
    if (painted === null) return null;
    const [first, end] = hostsOf(row, painted.order.length, painted.rows);
    const at = row * painted.columns + column;
    const value = painted.values[at] ?? NaN;
    const host = painted.order[Number.isNaN(value) ? first : painted.hosts[at]!];
    return host === undefined ? null : { host, value, t: painted.from + (column + 1) * painted.stepMs, hosts: end - first };
  }

  private point(event: MouseEvent | null): void {
    this.pointer = event;
    this.tell();
  }

  private tell(): void {
    const place = this.pointer === null ? this.cursor : this.placeOf(this.pointer);
    const found = place === null ? null : this.found(place);
    const stepMs = this.painted?.stepMs ?? 0;
    if (found === null) {
      setText(this.tip, stepMs === 0 ? "\u00a0" : `Each point is the most of ${duration(stepMs)}. A click opens the host at that time.`);
      return;
    }
    const crowd = found.hosts > 1 ? ` · the most of ${found.hosts} hosts` : "";
    setText(this.tip, `${found.host} · ${clockTime(found.t, stepMs)} · ${Number.isNaN(found.value) ? "not known" : this.written(found.value) + crowd}`);
  }

  private openAt(place: Place | null): void {
    const found = place === null ? null : this.found(place);
    if (found === null) return;
    const around = Math.max(60_000, 5 * this.painted!.stepMs);
    this.open(found.host, { from: found.t - around, to: Math.min(now(), found.t + around) });
  }

  private key(event: KeyboardEvent): void {
    const { painted } = this;
    if (painted === null || painted.order.length === 0) return;
    const last = { row: painted.rows - 1, column: painted.columns - 1 };
    const { row, column } = this.cursor ?? { row: 0, column: last.column };
    const next: Record<string, Place> = {
      ArrowUp: { row: row - 1, column }, ArrowDown: { row: row + 1, column }, ArrowLeft: { row, column: column - 1 }, ArrowRight: { row, column: column + 1 },
      Home: { row, column: 0 }, End: { row, column: last.column }, PageUp: { row: row - 20, column }, PageDown: { row: row + 20, column },
    };
    if (event.key === "Enter") this.openAt({ row, column });
    else if (next[event.key] !== undefined) {
      const to = this.cursor === null ? { row, column } : next[event.key]!;
      this.cursor = { row: Math.min(last.row, Math.max(0, to.row)), column: Math.min(last.column, Math.max(0, to.column)) };
      this.pointer = null;
      this.tell();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
