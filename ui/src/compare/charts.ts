// SPDX-License-Identifier: Apache-2.0
//! Charts of vitals with a line for each host: those on the screen are asked for, and drawn as answers come.

import { Chart } from "../charts/chart";
import type { Navigator } from "../charts/gestures";
import { h } from "../dom";
import type { Metric } from "../fleet/metrics";
import { Gaps } from "../gaps";
import { range } from "../promql";
import type { NumberTrack } from "../series";
import type { Span } from "../view";
import { vitalQuery, vitalSpec, vitalSteps, vitalTracks } from "./asked";

/** Queries at a time: the controller has turns for four. */
const AT_ONCE = 2;
const NO_GAPS = new Gaps();
const NO_TRACKS: ReadonlyMap<string, NumberTrack> = new Map();

interface Drawn {
  metric: Metric;
  chart: Chart;
  tracks: ReadonlyMap<string, NumberTrack>;
  stepMs: number;
  /** What it was asked for last. */
  span: Span | null;
  isBusy: boolean;
}

export class VitalCharts {
  readonly element = h("div", { class: "charts" });
  private all: Drawn[] = [];
  private hosts: readonly string[] = [];
  private span: Span = { from: 0, to: 1 };
  private frame = 0;
  private readonly resize = new ResizeObserver(() => this.redraw());

  /** `onSight`: a chart has come onto the screen. */
  constructor(
    private readonly cursorKey: string,
    private readonly navigator: () => Navigator | null,
    private readonly onSight: () => void,
  ) {
    this.resize.observe(this.element);
    // Values follow the cursor, once a frame.
    const follow = (): void => {
      for (const { chart } of this.all) if (chart.areValuesDue) chart.showValues();
      this.frame = requestAnimationFrame(follow);
    };
    this.frame = requestAnimationFrame(follow);
  }

  /** Charts stay where their lines do: what is hidden stays hidden. */
  set(metrics: readonly Metric[], hosts: readonly string[]): void {
    const isSame = hosts.join("\n") === this.hosts.join("\n");
    this.hosts = hosts;
    const before = new Map(this.all.map((drawn) => [drawn.metric, drawn]));
    this.all = metrics.map((metric) => {
      const drawn = isSame ? before.get(metric) : undefined;
      if (drawn !== undefined) {
        before.delete(metric);
        return drawn;
      }
      const chart = new Chart(vitalSpec(metric, hosts), this.cursorKey, this.navigator, null);
      chart.onSight = this.onSight;
      return { metric, chart, tracks: NO_TRACKS, stepMs: 0, span: null, isBusy: false };
    });
    for (const { chart } of before.values()) chart.destroy();
    this.element.append(...this.all.map(({ chart }) => chart.element));
    this.redraw();
  }

  /** Asks for what is on the screen and not of this time yet. */
  async ask(span: Span, signal: AbortSignal): Promise<void> {
    const steps = vitalSteps(span);
    const due = this.all.filter(({ chart, span: of }) => chart.visible && (of?.from !== span.from || of.to !== span.to));
    const turn = async (): Promise<void> => {
      for (let drawn = due.shift(); drawn !== undefined; drawn = due.shift()) {
        drawn.isBusy = true;
        this.draw(drawn);
        try {
          drawn.tracks = vitalTracks(await range(vitalQuery(drawn.metric, this.hosts, steps.stepMs), steps, signal), steps.stepMs);
          [drawn.stepMs, drawn.span] = [steps.stepMs, span];
        } finally {
          drawn.isBusy = false;
          this.draw(drawn);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, turn));
  }

  /** Hosts that no chart has a value of, once all that is on the screen has come. */
  get silent(): string[] {
    const asked = this.all.filter(({ span }) => span !== null);
    return asked.length === 0 ? [] : this.hosts.filter((host) => !asked.some(({ tracks }) => tracks.has(host)));
  }

  /** Another part of the time, before it has been asked for. */
  move(span: Span): void {
    this.span = span;
    this.redraw();
  }

  showSelection(span: Span | null): void {
    for (const { chart } of this.all) chart.showSelection(span);
  }

  redraw(): void {
    for (const drawn of this.all) this.draw(drawn);
  }

  destroy(): void {
    cancelAnimationFrame(this.frame);
    this.resize.disconnect();
    for (const { chart } of this.all) chart.destroy();
  }

  private draw({ chart, tracks, stepMs, span, isBusy }: Drawn): void {
    const fine = { intervalMs: 0, shownMs: stepMs, resolutionMs: 0, stepped: false, rateError: 0, isExact: true as const };
    chart.draw({ ...this.span, tracks, gaps: NO_GAPS, silentSince: null, loading: isBusy || span === null, fineness: () => fine });
  }
}
