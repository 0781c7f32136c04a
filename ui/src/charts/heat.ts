// SPDX-License-Identifier: Apache-2.0
//! Colour over time: histograms (by value) and many lines (one row each). Painted into a small image, one pixel for each bin, and stretched: the cost is that of
//! the bins, not of the rectangles.

import { colour } from "../theme";
import type { Column } from "../series";
import { fullDensity } from "./density";

const LEVELS = 256;
const STOPS = 5;

/** From the theme's stops `--heat-0` .. `--heat-4`, perceptually ordered, as RGBA words in memory order. */
function palette(): Uint32Array {
  const stops = Array.from({ length: STOPS }, (_, i) => {
    const hex = colour(`--heat-${i}`);
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  });
  return Uint32Array.from({ length: LEVELS }, (_, level) => {
    const at = (level / (LEVELS - 1)) * (STOPS - 1);
    const low = Math.min(STOPS - 2, Math.floor(at));
    const mixed = stops[low]!.map((channel, c) => Math.round(channel + (stops[low + 1]![c]! - channel) * (at - low)));
    return ((255 << 24) | (mixed[2]! << 16) | (mixed[1]! << 8) | mixed[0]!) >>> 0;
  });
}

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export class HeatImage {
  private readonly canvas = document.createElement("canvas");
  private colours = palette();
  private pixels = new Uint32Array(0);
  private image: ImageData | null = null;
  private readonly context = this.canvas.getContext("2d")!;
  private from = 0;
  private binMs = 1;

  /** Begins an image of `rows` rows from `from` to `to`; bins stand at fixed times, so that a moving window does not shimmer. */
  begin(from: number, to: number, binMs: number, rows: number): void {
    this.binMs = binMs;
    this.from = Math.floor(from / binMs) * binMs;
    const width = Math.ceil((to - this.from) / binMs) + 1;
    if (this.image === null || this.image.width !== width || this.image.height !== rows) {
      this.canvas.width = width;
      this.canvas.height = rows;
      this.image = this.context.createImageData(width, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
  }

  /** The column of pixels that a cell from `t` begins with. */
  bin(t: number): number {
    return Math.max(0, Math.round((t - this.from) / this.binMs));
  }

  /** Paints a cell: `level` 0..1; row 0 is at the top. */
  cell(t0: number, t1: number, row0: number, row1: number, level: number): void {
    const { width, height } = this.image!;
    const word = this.colours[Math.max(0, Math.min(LEVELS - 1, Math.round(level * (LEVELS - 1))))]!;
    const x0 = this.bin(t0);
    const x1 = Math.min(width, Math.max(x0 + 1, this.bin(t1)));
    for (let y = Math.max(0, row0); y < Math.min(height, row1); y++) this.pixels.fill(word, y * width + x0, y * width + x1);
  }

  draw(context: CanvasRenderingContext2D, box: Box, from: number, to: number): void {
    this.context.putImageData(this.image!, 0, 0);
    const perMs = box.width / (to - from);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(this.canvas, box.left + (this.from - from) * perMs, box.top, this.image!.width * this.binMs * perMs, box.height);
    context.restore();
  }

  themeChanged(): void {
    this.colours = palette();
  }
}

/** log2 of the least and greatest value that any column saw, with whole octaves around. */
export function octaves(columns: Column[]): [number, number] {
  let low = Infinity;
  let high = -Infinity;
  for (const column of columns) {
    for (let i = 0; i < column.counts.length; i++) {
      if (column.counts[i] === 0) continue;
      if (column.lows[i]! > 0) low = Math.min(low, column.lows[i]!);
      if (column.highs[i] !== Infinity) high = Math.max(high, column.highs[i]!);
    }
  }
  if (low === Infinity || high === -Infinity) return [0, 1];
  const bottom = Math.floor(Math.log2(low));
  return [bottom, Math.max(bottom + 1, Math.ceil(Math.log2(high)))];
}

/** Rows of a histogram's image. */
const HISTOGRAM_ROWS = 96;

/** Paints a histogram; colour is observations for each octave of value and second, so that neither wide buckets nor long points look full. Returns the greatest count of a bucket. */
export function paintHistogram(image: HeatImage, columns: Column[], from: number, to: number, binMs: number, [bottom, top]: [number, number], breaks: (t0: number, t1: number) => boolean): number {
  image.begin(from, to, binMs, HISTOGRAM_ROWS);
  const row = (value: number): number => Math.round(((top - Math.log2(value)) / (top - bottom)) * HISTOGRAM_ROWS);
  const begins = columns.map((column, k) => {
    const before = columns[k - 1]?.t ?? -Infinity;
    return before === -Infinity || breaks(before, column.t) ? column.t - binMs : before;
  });
  const density = (column: Column, k: number, i: number): number => column.counts[i]! / (column.t - begins[k]!) / Math.max(0.05, Math.log2(Math.min(column.highs[i]!, 2 ** top) / Math.max(column.lows[i]!, 2 ** bottom)));
  const peaks = new Float64Array(columns.length);
  let most = 0;
  columns.forEach((column, k) => {
    for (let i = 0; i < column.counts.length; i++) {
      peaks[k] = Math.max(peaks[k]!, density(column, k, i));
      most = Math.max(most, column.counts[i]!);
    }
  });
  const full = fullDensity(peaks);
  columns.forEach((column, k) => {
    for (let i = 0; i < column.counts.length; i++) {
      if (column.counts[i] === 0) continue;
      const y0 = row(Math.min(column.highs[i]!, 2 ** top));
      const y1 = row(Math.max(column.lows[i]!, 2 ** bottom));
      image.cell(begins[k]!, column.t, y0, Math.max(y0 + 1, y1), Math.sqrt(density(column, k, i) / full));
    }
  });
  return most;
}

/** Paints one row for each line, of values 0..`top`. Where several points share a bin, the first `peaks` rows show the greatest, the others the last. */
export function paintRows(image: HeatImage, t: Float64Array, lines: Float64Array[], peaks: number, from: number, to: number, binMs: number, top: number, breaks: (t0: number, t1: number) => boolean): void {
  image.begin(from, to, binMs, Math.max(1, lines.length));
  lines.forEach((values, row) => {
    let before = -Infinity;
    let [bin, most] = [-Infinity, 0];
    for (let i = 0; i < t.length; i++) {
      if (Number.isNaN(values[i]!)) continue;
      const t0 = before === -Infinity || breaks(before, t[i]!) ? t[i]! - binMs : before;
      most = row < peaks && image.bin(t0) === bin ? Math.max(most, values[i]!) : values[i]!;
      bin = image.bin(t0);
      image.cell(t0, t[i]!, row, row + 1, most / top);
      before = t[i]!;
    }
  });
}
