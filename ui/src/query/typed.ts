// SPDX-License-Identifier: Apache-2.0
//! What is being typed where in a PromQL text that need not be complete, and which metrics it names. Pure.

import { CALLED, GROUPINGS, KEYWORDS } from "./functions";

/** What is being typed: `word`, up to the cursor; what is chosen takes the place from `from` to `to`. */
interface Typed {
  word: string;
  from: number;
  to: number;
}

export type Place =
  | { kind: "nothing" }
  | (Typed & { kind: "expression" | "duration" })
  /** `selectors`: the series whose labels may stand here; none: all. */
  | (Typed & { kind: "label"; selectors: string[]; matches: boolean })
  | (Typed & { kind: "value"; label: string; isRegex: boolean; quote: string; selectors: string[] });

const NOTHING: Place = { kind: "nothing" };

interface Token {
  kind: "word" | "string" | "comment" | "symbol";
  text: string;
  from: number;
  to: number;
}

// A number has its unit with it, so that `5m` is no word; a text or a comment may lack its end.
const TOKEN = /(?<comment>#[^\n]*)|(?<string>"(?:[^"\\]|\\[^])*(?:"|\\?$)|'(?:[^'\\]|\\[^])*(?:'|\\?$)|`[^`]*(?:`|$))|(?<word>:*[a-zA-Z_][\w:]*|[\d.][\w.]*)|(?<symbol>[=!]~|[=!<>]=|[^\s])/g;

function tokens(text: string): Token[] {
  return [...text.matchAll(TOKEN)].map((found) => {
    const { comment, string, word } = found.groups!;
    const kind = comment !== undefined ? "comment" : string !== undefined ? "string" : word !== undefined ? "word" : "symbol";
    return { kind, text: found[0], from: found.index, to: found.index + found[0].length };
  });
}

interface Open {
  bracket: string;
  at: number;
  /** The word before it. */
  word: string;
  /** Where the part begins that follows the last comma. */
  part: number;
}

const CLOSES = new Set(["}", ")", "]"]);
const OPENS = new Set(["{", "(", "["]);
const NOT_A_METRIC: ReadonlySet<string> = new Set([...KEYWORDS.map(({ name }) => name), "inf", "nan", "smoothed", "anchored"]);
const isName = (text: string): boolean => /^[a-zA-Z_:]/.test(text);

/** Calls `each` for every token with the brackets around it; gives those that are open at the end. */
function walk(all: Token[], each: (token: Token, open: Open[], at: number) => void = () => undefined): Open[] {
  const open: Open[] = [];
  all.forEach((token, at) => {
    const before = all[at - 1];
    if (token.kind === "symbol" && CLOSES.has(token.text)) open.pop();
    each(token, open, at);
    if (token.kind !== "symbol") return;
    if (OPENS.has(token.text)) open.push({ bracket: token.text, at: token.from, word: before?.kind === "word" ? before.text : "", part: token.to });
    const last = open.at(-1);
    if (token.text === "," && last !== undefined) last.part = token.to;
  });
  return open;
}

const isGrouping = ({ bracket, word }: Open): boolean => bracket === "(" && GROUPINGS.has(word.toLowerCase());

/** Before its arguments, or before what an aggregation groups by: `sum by (x) (y)`. */
const isCalled = (word: string, next: Token | undefined): boolean => CALLED.has(word.toLowerCase()) && /^(\(|by|without)$/i.test(next?.text ?? "");

/** Names of metrics in a text, each once. */
export function metricsOf(text: string): string[] {
  const all = tokens(text);
  const found = new Set<string>();
  walk(all, ({ kind, text: word }, open, at) => {
    if (kind !== "word" || !isName(word) || NOT_A_METRIC.has(word.toLowerCase()) || all[at + 1]?.text === "(") return;
    if (isCalled(word, all[at + 1])) return;
    if (open.every((one) => one.bracket === "(" && !isGrouping(one))) found.add(word);
  });
  return [...found];
}

/** Functions that a text calls, and the symbols that it calculates or compares with. */
export function callsOf(text: string): { functions: string[]; operators: string[] } {
  const all = tokens(text);
  const functions: string[] = [];
  const operators: string[] = [];
  walk(all, ({ kind, text: word }, open, at) => {
    if (kind === "word" && isCalled(word, all[at + 1])) functions.push(word.toLowerCase());
    const isInner = open.some(({ bracket }) => bracket !== "(");
    if (!isInner && (kind === "symbol" ? /[-+*/%^<>=!]/.test(word) : kind === "word" && /^(and|or|unless|atan2)$/i.test(word))) operators.push(word);
  });
  return { functions, operators };
}

export function placeAt(text: string, caret: number): Place {
  const before = tokens(text.slice(0, caret));
  const open = walk(before);
  const within = open.at(-1);
  const last = before.at(-1);
  if (last?.kind === "comment") return NOTHING;
  if (last?.kind === "string" && !CLOSED.test(last.text)) return within?.bracket === "{" ? valueAt(text, caret, before, within) : NOTHING;
  const word = last?.kind === "word" && last.to === caret ? last.text : "";
  const from = caret - word.length;
  const to = caret + /^[\w:]*/.exec(text.slice(caret))![0].length;
  const typed = { word, from, to };
  const previous = before.at(word === "" ? -1 : -2)?.text ?? "";
  if (within?.bracket === "[") return /^[[:]$/.test(previous) ? { kind: "duration", ...typed } : NOTHING;
  if (word !== "" && !isName(word)) return NOTHING;
  const begins = previous === "," || previous === within?.bracket;
  if (within?.bracket === "{") return begins ? { kind: "label", ...typed, selectors: selectorOf(text, within), matches: true } : NOTHING;
  if (within !== undefined && isGrouping(within)) return begins ? { kind: "label", ...typed, selectors: metricsOf(text), matches: false } : NOTHING;
  return { kind: "expression", ...typed };
}

/** A text with its closing quote; without it the cursor is in it. */
const CLOSED = /^(?:"(?:[^"\\]|\\[^])*"|'(?:[^'\\]|\\[^])*'|`[^`]*`)$/;

function valueAt(text: string, caret: number, before: Token[], within: Open): Place {
  const [label, operator, string] = before.slice(-3);
  if (label === undefined || operator === undefined || string === undefined || !/^(=~?|!=|!~)$/.test(operator.text)) return NOTHING;
  const quote = string.text[0]!;
  const isRegex = operator.text.endsWith("~");
  const whole = string.text.slice(1);
  // Of alternatives the last one is typed.
  const word = isRegex ? whole.slice(whole.lastIndexOf("|") + 1) : whole;
  const rest = /^[^"'`|\n,}]*/.exec(text.slice(caret))![0];
  const to = text[caret + rest.length] === quote || (isRegex && text[caret + rest.length] === "|") ? caret + rest.length : caret;
  return { kind: "value", word, from: caret - word.length, to, label: label.kind === "string" ? label.text.slice(1, -1) : label.text, isRegex, quote, selectors: selectorOf(text, within) };
}

/** The series of the braces, as far as they are told before the matcher that is typed. */
function selectorOf(text: string, { word, at, part }: Open): string[] {
  const matchers = text.slice(at + 1, part).replace(/,\s*$/, "").trim();
  return word === "" && matchers === "" ? [] : [`${word}{${matchers}}`];
}
