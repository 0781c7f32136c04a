// SPDX-License-Identifier: Apache-2.0
//! Where gaps are drawn, so that what is drawn and what the pointer finds are the same. Pure.
//!
//! A gap that takes points away is a hole. A shorter one (a reading that was missed, where ten make a point) takes no value away that
//! would be shown: a mark at the foot. Marks narrower than a pixel are one mark a pixel; an hour of them would else be one bar that
//! tells nothing, and the pointer would find gaps that lie seconds beside it. Marks of the host and of the reader stay apart.

import type { Gap } from "../api";
import { type GapKind, kindOf } from "../gaps";

/** However short, a hole is seen. */
const MIN_HOLE_PX = 2;

export interface Mark {
  isHole: boolean;
  kind: GapKind;
  /** As drawn. */
  from: number;
  to: number;
  /** Those that it stands for: one, or all of a pixel. */
  gaps: Gap[];
  /** How much of what is drawn was missed, 0 to 1. */
  share: number;
}

/** The gaps of a chart on which a pixel is `msPerPx` wide and a point `shownMs`. */
export function marks(gaps: readonly Gap[], msPerPx: number, shownMs: number): Mark[] {
  const out: Mark[] = [];
  const pixels: Partial<Record<GapKind, Mark>> = {};
  for (const gap of gaps) {
    const length = gap.to_ms - gap.from_ms;
    const kind = kindOf(gap.reason);
    if (length >= shownMs) out.push({ isHole: true, kind, from: gap.from_ms, to: Math.max(gap.to_ms, gap.from_ms + MIN_HOLE_PX * msPerPx), gaps: [gap], share: 1 });
    else if (length >= msPerPx) out.push({ isHole: false, kind, from: gap.from_ms, to: gap.to_ms, gaps: [gap], share: 1 });
    else {
      // Pixels of absolute time: what moves to the left keeps its neighbours.
      const from = Math.floor(gap.from_ms / msPerPx) * msPerPx;
      let pixel = pixels[kind];
      if (pixel?.from !== from) {
        pixel = pixels[kind] = { isHole: false, kind, from, to: from + msPerPx, gaps: [], share: 0 };
        out.push(pixel);
      }
      pixel.gaps.push(gap);
      pixel.share = Math.min(1, pixel.share + length / msPerPx);
    }
  }
  return out;
}

/** What is drawn at `t`; a hole before a mark, since it is why there is no value, and of these the host's before the reader's. */
export function markAt(all: readonly Mark[], t: number): Mark | null {
  const under = all.filter((mark) => mark.from <= t && t < mark.to);
  under.sort((a, b) => Number(b.isHole) - Number(a.isHole) || Number(a.kind === "reader") - Number(b.kind === "reader"));
  return under[0] ?? null;
}
