// SPDX-License-Identifier: Apache-2.0
//! The last queries, remembered by the browser.

const KEY = "onlooker.queries";
const MAX = 20;
/** Longer ones are kept by their address. */
const MAX_LENGTH = 4000;

let kept: string[] = [];

export function lastQueries(): string[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    if (Array.isArray(found)) kept = found.filter((item) => typeof item === "string").slice(0, MAX);
  } catch {
    // Storage may be forbidden, or hold what is none of ours.
  }
  return kept;
}

/** The newest first, each once. */
export function remember(query: string): void {
  if (query.length > MAX_LENGTH) return;
  kept = [query, ...lastQueries().filter((other) => other !== query)].slice(0, MAX);
  store(JSON.stringify(kept));
}

export function forget(): void {
  kept = [];
  store(null);
}

function store(text: string | null): void {
  try {
    if (text === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, text);
  } catch {
    // Then they are kept until the page is left.
  }
}
