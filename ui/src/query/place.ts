// SPDX-License-Identifier: Apache-2.0
//! Where in its query an error of PromQL is: its text has line and column, from 1, counted in bytes of UTF-8. Pure.

export interface Mark {
  from: number;
  to: number;
}

export interface Fault {
  text: string;
  /** As people count. */
  line: number;
  column: number;
  mark: Mark;
}

/** Null: the error names no place, as those of the evaluation. */
export function faultOf(message: string, query: string): Fault | null {
  const found = /(?:^|: )(\d+):(\d+): (.*)$/s.exec(message);
  if (found === null) return null;
  const line = Number(found[1]);
  const lines = query.split("\n");
  const own = lines[line - 1];
  if (own === undefined) return null;
  const begin = lines.slice(0, line - 1).reduce((sum, before) => sum + before.length + 1, 0);
  const column = characters(own, Number(found[2]) - 1);
  return { text: found[3]!.replace(/^parse error: /, ""), line, column: column + 1, mark: wordAt(query, begin + column) };
}

/** How many UTF-16 units the first `bytes` of a text have. */
function characters(text: string, bytes: number): number {
  return new TextDecoder().decode(new TextEncoder().encode(text).slice(0, Math.max(0, bytes))).length;
}

/** What stands at a place: a name, a number, a text, or one character; at the end nothing, which is marked as a space behind it. */
function wordAt(query: string, at: number): Mark {
  const found = /^(?:"[^"\n]*"?|'[^'\n]*'?|[\w:.]+|\S)/.exec(query.slice(at))?.[0];
  return { from: Math.min(at, query.length), to: Math.min(at, query.length) + (found?.length ?? 1) };
}
