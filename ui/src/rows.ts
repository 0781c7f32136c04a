// SPDX-License-Identifier: Apache-2.0
//! Which rows of a long table there are, and in which order: ten thousand are sorted within a frame, and only those near the screen are laid out. Pure.

/** Fewer rows are all laid out: the browser's own search finds each of them. */
export const MOST_WHOLE = 200;
/** Rows are laid out so far beyond the screen: what a turn of the wheel brings is there already. */
const SPARE_PX = 400;
const STEP = 4;

/** Places of rows: `from` is the first, `to` the one after the last. */
export interface Part {
  from: number;
  to: number;
}

/** Of `count` rows of a height, of which the first begins at `top` (of the screen; less than 0: above it), those near a screen of `height`. */
export function partInView(count: number, rowPx: number, top: number, height: number): Part {
  if (count <= MOST_WHOLE) return { from: 0, to: count };
  const place = (y: number): number => Math.min(count, Math.max(0, Math.floor((y - top) / rowPx)));
  // By fours, so that not each row that is passed changes the table; and at least some, by which rows are measured and Tab finds in.
  const from = Math.min(place(-SPARE_PX), count - STEP) & -STEP;
  return { from, to: Math.min(count, Math.max(from, place(height + SPARE_PX) & -STEP) + STEP) };
}

const TEXTS = new Intl.Collator("en", { numeric: true });

/** The order of texts, which takes long to find: it is found once for those that are there, and again when others come. */
export class TextOrder {
  private ranks = new Map<string, number>();

  /** Ranks of texts in their order; equal texts have equal ranks. */
  of(texts: readonly string[]): Float64Array {
    if (texts.some((text) => !this.ranks.has(text))) {
      const all = [...new Set(texts)].sort((a, b) => TEXTS.compare(a, b));
      this.ranks = new Map(all.map((text, rank) => [text, rank]));
    }
    return Float64Array.from(texts, (text) => this.ranks.get(text)!);
  }
}

/** Places of rows, sorted by the first of the lists of numbers, one for each row; equal ones by the next. NaN is the least. */
export function sorted(lists: readonly Float64Array[], signs: readonly number[]): number[] {
  const keys = lists.map((list) => list.map((value) => (Number.isNaN(value) ? -Infinity : value)));
  return Array.from(keys[0] ?? [], (_, place) => place).sort((a, b) => {
    for (let k = 0; k < keys.length; k++) {
      const one = keys[k]![a]!;
      const other = keys[k]![b]!;
      if (one !== other) return one < other ? -signs[k]! : signs[k]!;
    }
    return a - b;
  });
}

/** Room for columns: what is left over is shared by their widths; where it is too little, the widest give way, all to the same width, which is no less than `least`. */
export function shared(widths: readonly number[], room: number, least: number): number[] {
  const total = widths.reduce((sum, width) => sum + width, 0);
  if (total === 0) return [...widths];
  if (total <= room) return widths.map((width) => (width * room) / total);
  // The widest that fits: of columns in descending order the first n give way.
  const sorted = [...widths].sort((a, b) => b - a);
  let over = total - room;
  let cap = sorted[0]!;
  for (let n = 1; n <= sorted.length && over > 0; n++) {
    const next = Math.max(least, sorted[n] ?? 0);
    const gained = Math.min(over, n * Math.max(0, cap - next));
    cap -= gained / n;
    over -= gained;
    if (cap <= least) break;
  }
  return widths.map((width) => Math.min(width, Math.max(cap, least)));
}
