// SPDX-License-Identifier: Apache-2.0
//! Lines, bands and layers as canvas paths for uPlot. A line is never drawn across a gap; NaN (no point of this series at this time) is passed over.

import type uPlot from "uplot";

/** Whether nothing may be drawn between two neighbouring points. */
export type Breaks = (t0: number, t1: number) => boolean;

export interface Shape {
  stepped: boolean;
  /** Polygon between two arrays, in place of the default: none. */
  lower: Float64Array | null;
  upper: Float64Array | null;
  /** Lower edge where `lower` is null: the axis. */
  toAxis: boolean;
  /** Each point is marked. */
  dots: boolean;
}

/** Points further apart than this are marked one by one. */
const DOTS_APART_PX = 7;
const DOT_PX = 2;

/** Whether points so far apart in time are to be marked. */
export const areApart = (u: uPlot, distanceMs: number): boolean => (distanceMs * u.bbox.width) / devicePixelRatio / (u.scales["x"]!.max! - u.scales["x"]!.min!) >= DOTS_APART_PX;

interface Map2 {
  x: (t: number) => number;
  y: (value: number) => number;
}

/** Values to canvas pixels; uPlot's valToPos, resolved once. */
function mapping(u: uPlot): Map2 {
  const { left, top, width, height } = u.bbox;
  const xMin = u.scales["x"]!.min!;
  const yMin = u.scales["y"]!.min!;
  const perX = width / (u.scales["x"]!.max! - xMin);
  const perY = height / (u.scales["y"]!.max! - yMin);
  return { x: (t) => left + (t - xMin) * perX, y: (value) => top + height - (value - yMin) * perY };
}

export function build(u: uPlot, times: Float64Array, values: Float64Array, shape: Shape, breaks: Breaks): uPlot.Series.Paths {
  const map = mapping(u);
  const stroke = new Path2D();
  const fill = shape.upper === null ? null : new Path2D();
  let run: number[] = [];
  let before = -1;
  const flush = (): void => {
    if (run.length === 0) return;
    strokeRun(stroke, map, times, values, run, shape.stepped);
    if (shape.dots) for (const i of run) stroke.rect(map.x(times[i]!) - DOT_PX / 2, map.y(values[i]!) - DOT_PX / 2, DOT_PX, DOT_PX);
    if (fill !== null) fillRun(fill, map, u, times, run, shape);
    run = [];
  };
  for (let i = 0; i < times.length; i++) {
    if (Number.isNaN(values[i]!)) continue;
    if (before >= 0 && breaks(times[before]!, times[i]!)) flush();
    run.push(i);
    before = i;
  }
  flush();
  return { stroke, fill, clip: null, band: null, gaps: [], flags: 3 };
}

/** Upright lines at the places `drawn`. */
export function whiskers(u: uPlot, times: Float64Array, feet: Float64Array, tops: Float64Array, drawn: (at: number) => boolean): uPlot.Series.Paths {
  const map = mapping(u);
  const stroke = new Path2D();
  times.forEach((t, i) => {
    if (!drawn(i)) return;
    // Whole pixels: between two of them a thin line would be faint.
    const x = Math.round(map.x(t));
    stroke.moveTo(x, map.y(feet[i]!));
    stroke.lineTo(x, map.y(tops[i]!));
  });
  return { stroke, fill: null, clip: null, band: null, gaps: [], flags: 3 };
}

function strokeRun(path: Path2D, map: Map2, times: Float64Array, values: Float64Array, run: number[], stepped: boolean): void {
  let y = map.y(values[run[0]!]!);
  path.moveTo(map.x(times[run[0]!]!), y);
  if (run.length === 1) {
    // A point between two gaps would be invisible as a line.
    path.rect(map.x(times[run[0]!]!) - 0.5, y - 0.5, 1, 1);
    return;
  }
  for (let k = 1; k < run.length; k++) {
    const x = map.x(times[run[k]!]!);
    if (stepped) path.lineTo(x, y);
    y = map.y(values[run[k]!]!);
    path.lineTo(x, y);
  }
}

function fillRun(path: Path2D, map: Map2, u: uPlot, times: Float64Array, run: number[], shape: Shape): void {
  const upper = shape.upper!;
  const floor = u.bbox.top + u.bbox.height;
  if (shape.lower === null && !shape.toAxis) return;
  const edge = (array: Float64Array | null, i: number): number => (array === null ? floor : map.y(array[i]!));
  const trace = (array: Float64Array | null, order: number[], first: boolean): void => {
    order.forEach((i, k) => {
      const x = map.x(times[i]!);
      if (k === 0 && first) path.moveTo(x, edge(array, i));
      else {
        // A step holds its value until the next point, in whichever direction it is traced.
        if (shape.stepped && k > 0) path.lineTo(first ? x : map.x(times[order[k - 1]!]!), edge(array, first ? order[k - 1]! : i));
        path.lineTo(x, edge(array, i));
      }
    });
  };
  trace(upper, run, true);
  trace(shape.lower, [...run].reverse(), false);
  path.closePath();
}
