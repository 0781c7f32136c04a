// SPDX-License-Identifier: Apache-2.0
//! Hosts over time as colours: which host, and when. A row a host, in the order of the table; a click opens the host at that time.

import { now } from "../clock";
import { h, setHidden, setText } from "../dom";
import { clockTime, duration, quantity } from "../format";
import { HeatImage } from "../charts/heat";
import { range } from "../promql";
import { queryAddress } from "../router";
import { onChange } from "../theme";
import { METRICS, type Metric, SPANS, stepOf, worst } from "./metrics";
import { type Line, byHost } from "./vitals";

/** Rows beyond are not asked for: a row would be no pixel, and the search narrows. */
export const MAX_ROWS = 200;
const LEAST_HEIGHT_PX = 48;
const MOST_HEIGHT_PX = 200;
const MOST_ROW_PX = 14;
/** Another order of the hosts, or another question, may be followed by the next one. */
const SETTLE_MS = 150;

interface Shown {
  hosts: string[];
  lines: Map<string, Line>;
  from: number;
  to: number;
  stepMs: number;
  full: number;
}

export class FleetHeat {
  metric: Metric;
  span: (typeof SPANS)[number];
  private hosts: string[] = [];
  private total = 0;
  private shown: Shown | null = null;
  private readonly image = new HeatImage();
  private readonly canvas = h("canvas", { class: "fleet-heat-canvas", role: "application", tabindex: 0 });
  private readonly tip = h("p", { class: "readout num", role: "status" });
  private readonly scale = h("span", { class: "dim num" });
  private readonly link = h("a", { href: "#/query", "aria-label": "Query of hosts over time", title: "Open its query" }, "Query");
  private readonly problem = h("p", { class: "problem", role: "alert", hidden: true });
  private readonly metricChips: HTMLButtonElement[];
  private readonly spanChips: HTMLButtonElement[];
  readonly element: HTMLElement;
  private readonly resize = new ResizeObserver(() => this.paint());
  private readonly stopTheme: () => void;
  private abort = new AbortController();
  private timer: number | undefined;
  /** By keyboard: row and column. */
  private cursor: [number, number] | null = null;

  constructor(
    parameters: URLSearchParams,
    private readonly open: (host: string, at: { from: number; to: number }) => void,
    private readonly changed: () => void,
  ) {
    this.metric = METRICS.find((metric) => metric.key === parameters.get("heat")) ?? METRICS[0]!;
    this.span = SPANS.find((span) => span.key === parameters.get("over")) ?? SPANS[1]!;
    this.metricChips = METRICS.map((metric) => h("button", { type: "button", class: "chip", on: { click: () => this.choose(() => (this.metric = metric)) } }, metric.label));
    this.spanChips = SPANS.map((span) => h("button", { type: "button", class: "chip", on: { click: () => this.choose(() => (this.span = span)) } }, span.label));
    const fresh = (): void => { this.link.href = queryAddress(worst(this.metric, this.hosts, stepOf(this.span.ms)), [["w", this.span.key]]); };
    for (const event of ["pointerenter", "focus", "click"]) this.link.addEventListener(event, fresh);
    this.element = h(
      "section", { class: "card fleet-heat", "aria-label": "Hosts over time" },
      h("div", { class: "toolbar" },
        h("div", { class: "chips", role: "group", "aria-label": "Shown as colour" }, ...this.metricChips),
        h("div", { class: "chips", role: "group", "aria-label": "Time" }, ...this.spanChips),
        h("span", { class: "fleet-heat-scale" }, h("span", { class: "heat-ramp", "aria-hidden": "true" }), this.scale, this.link)),
      this.canvas, this.tip, this.problem,
    );
    this.canvas.addEventListener("pointermove", (event) => this.hover(this.place(event)));
    this.canvas.addEventListener("pointerleave", () => this.hover(null));
    this.canvas.addEventListener("click", (event) => this.openAt(this.place(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("blur", () => this.hover(null));
    this.resize.observe(this.canvas);
    this.stopTheme = onChange(() => {
      this.image.themeChanged();
      this.paint();
    });
    this.showChips();
  }

  /** Hosts from the top, of `total`. */
  setHosts(hosts: readonly string[], total: number): void {
    this.total = total;
    const next = hosts.slice(0, MAX_ROWS);
    if (next.join("\n") === this.hosts.join("\n")) return;
    this.hosts = next;
    this.soon(SETTLE_MS);
  }

  destroy(): void {
    this.abort.abort();
    clearTimeout(this.timer);
    this.resize.disconnect();
    this.stopTheme();
  }

  private choose(change: () => void): void {
    change();
    this.showChips();
    this.changed();
    this.soon(0);
  }

  private showChips(): void {
    METRICS.forEach((metric, i) => this.metricChips[i]!.setAttribute("aria-pressed", String(metric === this.metric)));
    SPANS.forEach((span, i) => this.spanChips[i]!.setAttribute("aria-pressed", String(span === this.span)));
  }

  private soon(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.load(), ms);
  }

  private async load(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const { metric, span, hosts } = this;
    const stepMs = stepOf(span.ms);
    const to = Math.floor(now() / stepMs) * stepMs;
    try {
      const all = hosts.length === 0 || document.hidden ? [] : await range(worst(metric, hosts, stepMs), { fromMs: to - span.ms, toMs: to, stepMs }, signal);
      const lines = byHost(all);
      const greatest = Math.max(0, ...all.map(({ values }) => values.reduce((most, value) => Math.max(most, value), 0)));
      this.shown = { hosts, lines, from: to - span.ms - stepMs, to, stepMs, full: metric.full ?? (greatest > 0 ? greatest : 1) };
      setHidden(this.problem, true);
      this.paint();
    } catch (error) {
      if (signal.aborted) return;
      setText(this.problem, error instanceof Error ? error.message : String(error));
      setHidden(this.problem, false);
    }
    if (!signal.aborted) this.soon(stepMs);
  }

  private paint(): void {
    const { shown, canvas } = this;
    const width = canvas.clientWidth;
    if (shown === null || width === 0) return;
    const rows = Math.max(1, shown.hosts.length);
    const height = Math.max(LEAST_HEIGHT_PX, Math.min(MOST_HEIGHT_PX, rows * MOST_ROW_PX));
    const ratio = devicePixelRatio;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    canvas.style.height = `${height}px`;
    canvas.setAttribute("aria-label", `${this.metric.label} of ${shown.hosts.length} hosts over ${this.span.label}, a row a host in the order of the table. Arrows move, Enter opens the host.`);
    this.image.begin(shown.from, shown.to, shown.stepMs, rows);
    shown.hosts.forEach((host, row) => {
      const line = shown.lines.get(host);
      line?.t_ms.forEach((t, i) => {
        const value = line.values[i]!;
        if (Number.isFinite(value)) this.image.cell(t - shown.stepMs, t, row, row + 1, value / shown.full);
      });
    });
    const context = canvas.getContext("2d")!;
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.image.draw(context, { left: 0, top: 0, width: canvas.width, height: canvas.height }, shown.from, shown.to);
    setText(this.scale, `0 to ${this.written(shown.full)}${this.total > shown.hosts.length ? ` · the first ${shown.hosts.length} of ${this.total} hosts` : ""}`);
    this.hover(this.cursor);
  }

  private written(value: number): string {
    return quantity(value, this.metric.unit, this.metric.unit === "bytes");
  }

  private place(event: MouseEvent): [number, number] | null {
    const { shown, canvas } = this;
    if (shown === null || shown.hosts.length === 0) return null;
    const box = canvas.getBoundingClientRect();
    const share = (at: number, size: number): number => Math.min(0.9999, Math.max(0, at / size));
    const columns = Math.round((shown.to - shown.from) / shown.stepMs);
    return [Math.floor(share(event.clientY - box.top, box.height) * shown.hosts.length), Math.floor(share(event.clientX - box.left, box.width) * columns)];
  }

  /** Host, and the end of the column. */
  private at(place: [number, number] | null): { host: string; t: number; stepMs: number } | null {
    const host = place === null ? undefined : this.shown?.hosts[place[0]];
    return host === undefined ? null : { host, t: this.shown!.from + (place![1] + 1) * this.shown!.stepMs, stepMs: this.shown!.stepMs };
  }

  private hover(place: [number, number] | null): void {
    const at = this.at(place);
    if (at === null) {
      setText(this.tip, `Each point is the most of ${duration(this.shown?.stepMs ?? stepOf(this.span.ms))}. A click opens the host at that time.`);
      return;
    }
    const line = this.shown!.lines.get(at.host);
    const found = line?.t_ms.findIndex((t) => Math.abs(t - at.t) < at.stepMs / 2) ?? -1;
    setText(this.tip, `${at.host} · ${clockTime(at.t, at.stepMs)} · ${found < 0 ? "not known" : this.written(line!.values[found]!)}`);
  }

  private openAt(place: [number, number] | null): void {
    const at = this.at(place);
    if (at === null) return;
    const around = Math.max(60_000, 5 * at.stepMs);
    this.open(at.host, { from: at.t - around, to: Math.min(now(), at.t + around) });
  }

  private key(event: KeyboardEvent): void {
    const { shown } = this;
    if (shown === null || shown.hosts.length === 0) return;
    const columns = Math.round((shown.to - shown.from) / shown.stepMs);
    const [row, column] = this.cursor ?? [0, columns - 1];
    const next: Record<string, [number, number]> = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], Home: [row, 0], End: [row, columns - 1] };
    if (event.key === "Enter") this.openAt(this.cursor ?? [row, column]);
    else if (next[event.key] !== undefined) {
      const [r, c] = this.cursor === null ? [row, column] : next[event.key]!;
      this.cursor = [Math.min(shown.hosts.length - 1, Math.max(0, r)), Math.min(columns - 1, Math.max(0, c))];
      this.hover(this.cursor);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
