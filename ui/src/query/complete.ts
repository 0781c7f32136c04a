// SPDX-License-Identifier: Apache-2.0
//! What may stand where something is being typed, the best first, and the text once one is chosen. Pure.

import { literal } from "../promql";
import { AGGREGATIONS, FUNCTIONS, GROUPINGS, KEYWORDS } from "./functions";
import type { Place } from "./typed";

export interface Metric {
  name: string;
  type: string;
  unit: string;
  help: string;
}

export interface Option {
  shown: string;
  detail: string;
  help: string;
  /** What is put in, and the text that need not be put in again where it stands there already. */
  insert: string;
  then: string;
}

/** More are not read; another letter leaves fewer. */
export const MAX_OPTIONS = 50;
const DURATIONS = ["5s", "10s", "30s", "1m", "5m", "15m", "1h", "6h", "1d"];

/** How well a name fits what is typed: the same, its beginning, that of one of its parts, anywhere, those of several; null: not at all. */
function fit(name: string, word: string): number | null {
  const [whole, part] = [name.toLowerCase(), word.toLowerCase()];
  if (whole === part) return 0;
  const at = whole.indexOf(part);
  if (at === 0) return 1;
  if (at > 0) return PARTS.test(whole[at - 1]!) || whole.includes(`_${part}`) ? 2 : 3;
  return begin(whole.split(PARTS), part.replaceAll("_", "")) ? 4 : null;
}

const PARTS = /[_:.\-/]/;

/** Whether a word is made of beginnings of parts, in their order: `cpusec` of `node_cpu_seconds_total`. */
function begin(parts: string[], word: string): boolean {
  if (word === "") return true;
  return parts.some((part, i) => {
    let length = 0;
    while (length < part.length && part[length] === word[length]) length++;
    for (; length > 0; length--) if (begin(parts.slice(i + 1), word.slice(length))) return true;
    return false;
  });
}

function best(options: Option[], word: string): Option[] {
  const ranked = options.flatMap((option) => {
    const rank = fit(option.shown, word);
    return rank === null ? [] : [{ option, rank }];
  });
  ranked.sort((a, b) => a.rank - b.rank);
  return ranked.slice(0, MAX_OPTIONS).map(({ option }) => option);
}

/** Of a function, a metric or a keyword: in this order where they fit alike. */
export function expressions(word: string, metrics: readonly Metric[]): Option[] {
  const called = [...AGGREGATIONS, ...FUNCTIONS].map(({ name, takes, help }) => ({ shown: name, detail: `(${takes})`, help, insert: name, then: "(" }));
  const named = metrics.map(({ name, type, unit, help }) => ({ shown: name, detail: [type, unit].filter((part) => part !== "").join(" · "), help, insert: name, then: "" }));
  const keywords = KEYWORDS.map(({ name, takes, help }) => ({ shown: name, detail: takes, help, insert: name, then: GROUPINGS.has(name) ? " (" : " " }));
  return best([...called, ...named, ...keywords], word);
}

/** `names`: labels or values that there are. */
export function options(place: Place, names: readonly string[]): Option[] {
  if (place.kind === "duration") return best(DURATIONS.map((name) => plain(name)), place.word);
  if (place.kind === "label") return best(names.filter((name) => name !== "__name__").map((name) => ({ ...plain(name), then: place.matches ? '="' : "" })), place.word);
  if (place.kind !== "value") return [];
  return best(names.map((name) => ({ ...plain(name), insert: quoted(place.isRegex ? literal(name) : name, place.quote), then: place.quote })), place.word);
}

const plain = (name: string): Option => ({ shown: name, detail: "", help: "", insert: name, then: "" });

/** As it stands between quotes. */
function quoted(text: string, quote: string): string {
  return quote === "`" ? text : text.replaceAll("\\", "\\\\").replaceAll(quote, `\\${quote}`).replaceAll("\n", "\\n");
}

/** The text with what was chosen, and where the cursor stands then: behind it. */
export function accepted(text: string, place: Exclude<Place, { kind: "nothing" }>, option: Option): { text: string; caret: number } {
  const rest = text.slice(place.to);
  const isThere = follows(place, rest, option.then.trim());
  const put = option.insert + (isThere ? "" : option.then);
  // A quote that is there already is passed.
  const caret = place.from + put.length + (place.kind === "value" && isThere ? 1 : 0);
  return { text: text.slice(0, place.from) + put + rest, caret };
}

/** Whether what should follow stands there already. */
function follows(place: Place, rest: string, then: string): boolean {
  if (place.kind === "label") return /^\s*[=!]/.test(rest);
  if (place.kind === "value") return rest.startsWith(place.quote) || rest.startsWith("|");
  return then !== "" && rest.trimStart().startsWith(then);
}
