// SPDX-License-Identifier: Apache-2.0
//! Changes of a dashboard's JSON: each gives another one and leaves whatever it does not change as it is. Pure.

import { COLUMNS, type Place, placeOf } from "./dashboard";
import { type Json, listOf, numberOf, objectOf, objectsOf, textOf } from "./json";

/** Widths that a panel is given, in columns. */
const WIDTHS = [4, 6, 8, 12, 16, 18, COLUMNS];
const HEIGHT_STEP = 2;
const [LEAST_HEIGHT, MOST_HEIGHT] = [2, 40];

export type NewKind = "timeseries" | "stat" | "table" | "text";

/** The variable that lets Grafana choose where its data are; here it is the controller. */
const SOURCE = { name: "source", label: "Source", type: "datasource", query: "prometheus", current: {} };
const DATASOURCE = { type: "prometheus", uid: "${source}" };
/** The hosts, one, several or all. */
const INSTANCE = {
  name: "instance", label: "Host", type: "query", datasource: DATASOURCE, definition: "label_values(up, instance)", query: { query: "label_values(up, instance)", refId: "instances" },
  multi: true, includeAll: true, current: { text: "All", value: "$__all" }, refresh: 2, sort: 1,
};

export function emptyBoard(title: string): Json {
  return {
    title, tags: ["onlooker"], timezone: "browser", schemaVersion: 39, version: 1, editable: true, time: { from: "now-1h", to: "now" }, refresh: "5s",
    templating: { list: [SOURCE, INSTANCE] }, panels: [],
  };
}

/** A panel without a place. */
export function newPanel(kind: NewKind, title: string, content: string, unit: string): Json {
  if (kind === "text") return { type: kind, title, options: { mode: "markdown", content } };
  const target = { refId: "A", datasource: DATASOURCE, expr: content, ...(kind === "timeseries" ? {} : { instant: true }), ...(kind === "table" ? { format: "table" } : {}) };
  return { type: kind, title, datasource: DATASOURCE, targets: [target], fieldConfig: { defaults: unit === "" ? {} : { unit }, overrides: [] }, options: {} };
}

const SIZES: Readonly<Record<string, { w: number; h: number }>> = { timeseries: { w: 12, h: 8 }, stat: { w: 6, h: 4 }, table: { w: 12, h: 8 }, text: { w: 12, h: 4 } };

/** At the end, in the first place that fits. */
export function added(board: Json, panel: Json): Json {
  const panels = objectsOf(board["panels"]);
  const all = panels.flatMap((item) => [item, ...objectsOf(item["panels"])]);
  const id = Math.max(0, ...all.map((item) => numberOf(item["id"]) ?? 0)) + 1;
  const bottom = Math.max(0, ...panels.map((item) => placeOf(item).y + placeOf(item).h));
  const item = { id, ...panel, gridPos: { x: 0, y: bottom, ...(SIZES[textOf(panel["type"])] ?? { w: 12, h: 8 }) } };
  // A panel that names the variable is shown only where there is one.
  const list = listOf(objectOf(board["templating"])["list"]);
  const has = (name: string): boolean => objectsOf(list).some((variable) => variable["name"] === name);
  const missing = [SOURCE, INSTANCE].filter(({ name }) => JSON.stringify(panel).includes(name === "source" ? "${source}" : "$instance") && !has(name));
  const withVariables = missing.length === 0 ? board : { ...board, templating: { ...objectOf(board["templating"]), list: [...list, ...missing] } };
  return withPanels(withVariables, pack([...ordered(panels), item], new Set([panels.length])));
}

export function removed(board: Json, path: readonly number[]): Json {
  return within(board, path, (panels, at) => pack(panels.filter((_, i) => i !== at), new Set()));
}

export function renamed(board: Json, path: readonly number[], title: string): Json {
  return changed(board, path, (panel) => ({ ...panel, title }));
}

/** Another query of the first target, or another text. */
export function rewritten(board: Json, path: readonly number[], content: string): Json {
  return changed(board, path, (panel) => {
    if (textOf(panel["type"]) === "text") return { ...panel, options: { ...objectOf(panel["options"]), content } };
    let isDone = false;
    const targets = listOf(panel["targets"]).map((target) => {
      if (isDone || textOf(objectOf(target)["expr"]) === "") return target;
      isDone = true;
      return { ...objectOf(target), expr: content };
    });
    return { ...panel, targets };
  });
}

export const retitled = (board: Json, title: string): Json => ({ ...board, title });

/** Changes places with the panel, or the row, before or after it. */
export function moved(board: Json, path: readonly number[], by: 1 | -1): Json {
  return within(board, path, (panels, at) => {
    const to = at + by;
    if (to < 0 || to >= panels.length) return panels;
    const next = [...panels];
    [next[at], next[to]] = [panels[to]!, panels[at]!];
    return pack(next, new Set([at, to]));
  });
}

/** Whether it has something to change places with. */
export function canMove(board: Json, path: readonly number[], by: 1 | -1): boolean {
  const found = find(board, path);
  return found !== null && found.at + by >= 0 && found.at + by < found.panels.length;
}

/** Wider and higher by steps; what follows it makes room. */
export function resized(board: Json, path: readonly number[], { w = 0, h = 0 }: { w?: 1 | -1 | 0; h?: 1 | -1 | 0 }): Json {
  return within(board, path, (panels, at) => {
    const place = placeOf(panels[at]!);
    const width = w === 0 ? place.w : ((w > 0 ? WIDTHS.find((step) => step > place.w) : WIDTHS.findLast((step) => step < place.w)) ?? place.w);
    const height = h === 0 ? place.h : Math.min(MOST_HEIGHT, Math.max(LEAST_HEIGHT, place.h + h * HEIGHT_STEP));
    const next = panels.map((panel, i) => (i === at ? { ...panel, gridPos: { ...objectOf(panel["gridPos"]), ...place, w: width, h: height, x: Math.min(place.x, COLUMNS - width) } } : panel));
    const end = next.findIndex((panel, i) => i > at && textOf(panel["type"]) === "row");
    // Those beside and below flow into the room that there is now.
    return pack(next, new Set(w === 0 ? [] : next.map((_, i) => i).slice(at + 1, end < 0 ? undefined : end)));
  });
}

const before = (a: Place, b: Place): number => a.y - b.y || a.x - b.x;
const ordered = (panels: readonly Json[]): Json[] => panels.map((panel, i) => ({ panel, i, place: placeOf(panel) })).sort((a, b) => before(a.place, b.place) || a.i - b.i).map(({ panel }) => panel);
const withPanels = (board: Json, panels: readonly Json[]): Json => ({ ...board, panels });

/** The panels among which it is, in the order of the page, and its place there. */
function find(board: Json, path: readonly number[]): { panels: Json[]; at: number } | null {
  const [first, inner] = path;
  const whole = objectOf(listOf(board["panels"])[first ?? -1]);
  const all = inner === undefined ? objectsOf(board["panels"]) : objectsOf(whole["panels"]);
  const target = inner === undefined ? whole : listOf(whole["panels"])[inner];
  const panels = ordered(all);
  const at = panels.indexOf(target as Json);
  return at < 0 ? null : { panels, at };
}

function within(board: Json, path: readonly number[], change: (panels: Json[], at: number) => Json[]): Json {
  const found = find(board, path);
  if (found === null) return board;
  const next = change(found.panels, found.at);
  if (path.length === 1) return withPanels(board, next);
  return changed(board, path.slice(0, 1), (row) => ({ ...row, panels: next }));
}

function changed(board: Json, [first, inner]: readonly number[], change: (panel: Json) => Json): Json {
  return withPanels(board, listOf(board["panels"]).map((panel, i) => {
    if (i !== first) return panel as Json;
    if (inner === undefined) return change(objectOf(panel));
    return { ...objectOf(panel), panels: listOf(objectOf(panel)["panels"]).map((item, k) => (k === inner ? change(objectOf(item)) : item)) };
  }));
}

/** Puts panels one after the other as high as they fit, each in its columns; those that are `free` in the first ones that have room. Rows have a line of their own. */
function pack(panels: readonly Json[], free: ReadonlySet<number>): Json[] {
  const placed: Place[] = [];
  let floor = Math.min(...panels.map((panel) => placeOf(panel).y), Infinity);
  if (floor === Infinity) floor = 0;
  return panels.map((panel, i) => {
    const own = placeOf(panel);
    const isRow = textOf(panel["type"]) === "row";
    const fits = (x: number, y: number): boolean => placed.every((other) => x + own.w <= other.x || other.x + other.w <= x || y + own.h <= other.y || other.y + other.h <= y);
    // Not above the one before it: else the order would be another.
    let y = isRow ? Math.max(floor, ...placed.map((other) => other.y + other.h)) : free.has(i) ? Math.max(floor, placed.at(-1)?.y ?? floor) : floor;
    const columns = isRow ? [0] : free.has(i) ? Array.from({ length: COLUMNS - own.w + 1 }, (_, column) => column) : [own.x];
    const room = (): number | undefined => columns.find((column) => fits(column, y));
    let x = room();
    while (x === undefined) {
      y++;
      x = room();
    }
    if (isRow) floor = y + 1;
    const place = { x, y, w: own.w, h: own.h };
    placed.push(place);
    return { ...panel, gridPos: { ...objectOf(panel["gridPos"]), ...place } };
  });
}
