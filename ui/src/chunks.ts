// SPDX-License-Identifier: Apache-2.0
//! Names of series spread over requests. Pure.

/** Many servers and proxies refuse request lines beyond 8 KiB. */
const MAX_QUERY_BYTES = 7000;

/** Divides names so that each part fits into one URL (or into `maxBytes` of a form), and has at most `most`. */
export function chunks(series: readonly string[], most = Infinity, maxBytes = MAX_QUERY_BYTES): string[][] {
  const parts: string[][] = [];
  let part: string[] = [];
  let bytes = 0;
  for (const name of series) {
    // The longest parameter they are given by.
    const cost = encodeURIComponent(name).length + "&series=".length;
    if ((bytes + cost > maxBytes && part.length > 0) || part.length >= most) {
      parts.push(part);
      part = [];
      bytes = 0;
    }
    part.push(name);
    bytes += cost;
  }
  if (part.length > 0) parts.push(part);
  return parts;
}
