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
  // Always as many, so that where some leave as many come; by fours, so that not each row that is passed changes the table; and at least some, by which rows are
  // measured and Tab finds in.
  const many = (Math.ceil((height + 2 * SPARE_PX) / rowPx) & -STEP) + 2 * STEP;
  const first = Math.floor((-SPARE_PX - top) / rowPx) & -STEP;
  const from = Math.max(0, Math.min(first, (count - STEP) & -STEP));
  return { from, to: Math.max(Math.min(from + STEP, count), Math.min(count, first + many)) };
}

const TEXTS = new Intl.Collator("en", { numeric: true });

/** The order of texts, which takes long to find: it is found once for those that are there, and again when others come. */
export class TextOrder {
  private ranks = new Map<string, number>();

  /** Ranks of texts in their order; equal texts have equal ranks. */
  of(texts: readonly string[]): Float64Array {
    const known = this.known(texts);
    if (known !== null) return known;
    const all = [...new Set(texts)].sort((a, b) => TEXTS.compare(a, b));
    this.ranks = new Map(all.map((text, rank) => [text, rank]));
    return this.known(texts)!;
  }

  /** Null: some text is none of those. */
  private known(texts: readonly string[]): Float64Array | null {
    const ranks = new Float64Array(texts.length);
    for (let i = 0; i < texts.length; i++) {
      const rank = this.ranks.get(texts[i]!);
      if (rank === undefined) return null;
      ranks[i] = rank;
    }
    return ranks;
  }
}

/**
 * Places of rows, sorted by the first of the lists of numbers, one for each row; equal ones by the next. NaN is the least.
 * `before`: an order that was right, of rows that have changed little since: from there few comparisons are needed.
 */
export function sorted(lists: readonly Float64Array[], signs: readonly number[], before: readonly number[] = []): number[] {
  const keys = lists.map((list) => list.map((value) => (Number.isNaN(value) ? -Infinity : value)));
  const count = keys[0]?.length ?? 0;
  return (before.length === count ? [...before] : Array.from({ length: count }, (_, place) => place)).sort((a, b) => {
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
