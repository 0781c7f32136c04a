// SPDX-License-Identifier: Apache-2.0
//! Gaps as what they are, with their reason: hatched where the host was missing, dotted where the reader was late. So is the time since which a silent host gives
//! nothing. Short ones are marks at the foot (marks.ts).

import type uPlot from "uplot";
import { clockTime, duration } from "../format";
import type { GapKind } from "../gaps";
import { colour } from "../theme";
import type { Scene } from "./frame";
import { type Mark, markAt, marks } from "./marks";

const TILE_PX = 8;
const MARK_PX = 5;
/** A pixel of which little was missed is faint, but seen. */
const FAINTEST = 0.3;

const LOOKS: Record<GapKind, { ground: string; line: string; foot: string; word: string }> = {
  host: { ground: "--gap", line: "--gap-line", foot: "--gap-foot", word: "host missing" },
  reader: { ground: "--late", line: "--late-line", foot: "--late-foot", word: "reader late" },
};
const patterns: Partial<Record<GapKind, { key: string; fill: CanvasPattern | string }>> = {};

function pattern(context: CanvasRenderingContext2D, kind: GapKind): CanvasPattern | string {
  const key = colour(LOOKS[kind].line);
  const before = patterns[kind];
  if (before?.key === key) return before.fill;
  const size = TILE_PX * devicePixelRatio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const draw = tile.getContext("2d")!;
  if (kind === "host") {
    draw.strokeStyle = key;
    draw.lineWidth = devicePixelRatio;
    for (const shift of [-size, 0, size]) {
      draw.moveTo(shift, size);
      draw.lineTo(shift + size, 0);
    }
    draw.stroke();
  } else {
    draw.fillStyle = key;
    for (const at of [1, 5]) draw.fillRect((at * size) / 8, (at * size) / 8, size / 4, size / 4);
  }
  const fill = context.createPattern(tile, "repeat") ?? key;
  patterns[kind] = { key, fill };
  return fill;
}

/** Words of the wire as words of people. */
const readable = (reason: string): string => reason.replaceAll("_", " ");

/** Most charts of a scene are as wide as each other. */
const known = new WeakMap<Scene, Map<string, Mark[]>>();

function marksOf(scene: Scene, widthPx: number, shownMs: number): Mark[] {
  const key = `${widthPx} ${shownMs}`;
  const ofScene = known.get(scene) ?? new Map<string, Mark[]>();
  known.set(scene, ofScene);
  let found = ofScene.get(key);
  if (found === undefined) {
    found = marks(scene.gaps.within(scene.from, scene.to), (scene.to - scene.from) / Math.max(1, widthPx), shownMs);
    ofScene.set(key, found);
  }
  return found;
}

export function drawGaps(u: uPlot, scene: Scene, shownMs: number): void {
  for (const mark of marksOf(scene, u.bbox.width / devicePixelRatio, shownMs)) {
    if (mark.isHole) stripe(u, scene, mark.from, mark.to, mark.kind, `${LOOKS[mark.kind].word}: ${readable(mark.gaps[0]!.reason)}`);
    else foot(u, scene, mark);
  }
  if (scene.silentSince !== null) stripe(u, scene, scene.silentSince, scene.to, "host", `silent since ${clockTime(scene.silentSince)}`);
}

function foot(u: uPlot, scene: Scene, { from, to, share, kind }: Mark): void {
  const { ctx, bbox } = u;
  const perMs = bbox.width / (scene.to - scene.from);
  const place = (t: number): number => bbox.left + Math.min(bbox.width, Math.max(0, (t - scene.from) * perMs));
  const height = MARK_PX * devicePixelRatio;
  ctx.save();
  ctx.globalAlpha = Math.max(FAINTEST, share);
  ctx.fillStyle = colour(LOOKS[kind].foot);
  ctx.fillRect(place(from), bbox.top + bbox.height - height, place(to) - place(from), height);
  ctx.restore();
}

function stripe(u: uPlot, scene: Scene, from: number, to: number, kind: GapKind, label: string): void {
  if (to < scene.from || from > scene.to) return;
  const { ctx, bbox } = u;
  const place = (t: number): number => bbox.left + ((Math.min(scene.to, Math.max(scene.from, t)) - scene.from) / (scene.to - scene.from)) * bbox.width;
  const x = place(from);
  const width = place(to) - x;
  ctx.save();
  for (const fill of [colour(LOOKS[kind].ground), pattern(ctx, kind)]) {
    ctx.fillStyle = fill;
    ctx.fillRect(x, bbox.top, width, bbox.height);
  }
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const needed = ctx.measureText(label).width + 12 * devicePixelRatio;
  if (needed < width) {
    ctx.fillStyle = colour("--card");
    ctx.fillRect(x + (width - needed) / 2, bbox.top + 4 * devicePixelRatio, needed, 17 * devicePixelRatio);
    ctx.fillStyle = colour("--text");
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    ctx.fillText(label, x + width / 2, bbox.top + 13 * devicePixelRatio);
  }
  ctx.restore();
}

export interface Under {
  text: string;
  kind: GapKind;
  /** It is why there is no value. */
  isHole: boolean;
}

/** What is drawn at `t` on a chart of this width. */
export function gapAt(scene: Scene, t: number, widthPx: number, shownMs: number): Under | null {
  const mark = markAt(marksOf(scene, widthPx, shownMs), t);
  if (mark !== null) return { text: markText(mark), kind: mark.kind, isHole: mark.isHole };
  if (scene.silentSince !== null && t > scene.silentSince) return { text: `silent since ${clockTime(scene.silentSince)}`, kind: "host", isHole: true };
  return null;
}

function markText({ gaps, from, to, kind }: Mark): string {
  const length = duration(gaps.reduce((sum, gap) => sum + gap.to_ms - gap.from_ms, 0));
  const reasons = [...new Set(gaps.map((gap) => readable(gap.reason)))].join(", ");
  if (gaps.length === 1) return `gap: ${reasons} (${LOOKS[kind].word}), ${length} from ${clockTime(gaps[0]!.from_ms, 100)}`;
  return `${gaps.length} gaps in ${duration(to - from)}: ${reasons} (${LOOKS[kind].word}), ${length} in all`;
}
