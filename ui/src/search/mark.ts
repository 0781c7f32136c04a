// SPDX-License-Identifier: Apache-2.0
//! Where what was typed stands in a text: the same words as the controller looks for (docs/http.md), so that what it found can be marked. Pure.

export interface Part {
  text: string;
  isHit: boolean;
}

/** What is compared: neither case nor double quotes count. */
export const folded = (text: string): string => text.toLowerCase().replaceAll('"', "");

/** Words are parted by spaces, commas and braces. */
export const wordsOf = (text: string): string[] => [...new Set(folded(text).split(/[\s,{}]+/).filter((word) => word !== ""))];

/** The text in parts, of which some are words. A letter may fold to several, so each place in the folded text knows its own in the text. */
export function parts(text: string, words: readonly string[]): Part[] {
  let compared = "";
  const places: number[] = [];
  let at = 0;
  for (const sign of text) {
    for (const unit of folded(sign)) {
      compared += unit;
      for (let i = 0; i < unit.length; i++) places.push(at);
    }
    at += sign.length;
  }
  const isHit = new Array<boolean>(text.length).fill(false);
  for (const word of words) {
    for (let from = compared.indexOf(word); from >= 0; from = compared.indexOf(word, from + 1)) {
      const last = places[from + word.length - 1]!;
      const end = last + String.fromCodePoint(text.codePointAt(last)!).length;
      // Quotes within are marked, too.
      isHit.fill(true, places[from], end);
    }
  }
  const out: Part[] = [];
  for (let from = 0, to = 0; from < text.length; from = to) {
    while (to < text.length && isHit[to] === isHit[from]) to++;
    out.push({ text: text.slice(from, to), isHit: isHit[from] === true });
  }
  return out;
}
