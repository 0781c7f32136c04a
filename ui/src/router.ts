// SPDX-License-Identifier: Apache-2.0
//! Addresses behind `#`: the page is static files, and the controller need know none of them. `#/`, `#/host/NAME?w=1m&from=MS&to=MS&c=SERIES`, `#/reads`, `#/alerts`, `#/query?q=EXPR&w=1h&view=table`, `#/compare?host=NAME&host=NAME`, `#/telemetry?host=NAME&key=FLOW`, `#/boards`, `#/board/NAME?var-instance=web-1&w=1h`.
//! Over any of them may lie the search: `find=TEXT&in=all&metric=NAME`.

export interface Route {
  page: "fleet" | "host" | "reads" | "alerts" | "query" | "compare" | "boards" | "board" | "telemetry" | "unknown";
  /** Of the host, or of the board. */
  name: string;
  /** Those of the page. */
  parameters: URLSearchParams;
  /** What is searched; null: nothing. */
  search: Searched | null;
}

/** The search that lies over a page. */
export interface Searched {
  text: string;
  /** On a host's page: all hosts, not this one. */
  isEverywhere: boolean;
  /** The metric that is opened. */
  metric: string | null;
}

let searched: Searched | null = null;

function take(parameters: URLSearchParams): Searched | null {
  const text = parameters.get("find");
  const search = text === null ? null : { text, isEverywhere: parameters.get("in") === "all", metric: parameters.get("metric") };
  for (const name of ["find", "in", "metric"]) parameters.delete(name);
  return search;
}

function put({ text, isEverywhere, metric }: Searched, parameters: URLSearchParams): void {
  parameters.set("find", text);
  if (isEverywhere) parameters.set("in", "all");
  if (metric !== null) parameters.set("metric", metric);
}

/** The search of the address that is shown from now on: pages that change their own parameters leave it there. */
export function keepSearch(search: Searched | null): void {
  searched = search;
}

/** Another search, or none, over the same page; no step in the history. */
export function changeSearch(search: Searched | null): void {
  const { parameters } = parse(location.hash);
  searched = search;
  replaceParameters(parameters);
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const search = take(parameters);
  const parts = path.split("/").filter((part) => part !== "");
  if (parts.length === 0) return { page: "fleet", name: "", parameters, search };
  if ((parts[0] === "host" || parts[0] === "board") && parts.length === 2) return { page: parts[0], name: decode(parts[1]!), parameters, search };
  if ((parts[0] === "reads" || parts[0] === "alerts" || parts[0] === "query" || parts[0] === "compare" || parts[0] === "boards" || parts[0] === "telemetry") && parts.length === 1) return { page: parts[0], name: "", parameters, search };
  return { page: "unknown", name: "", parameters, search };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const hostAddress = (host: string): string => `#/host/${encodeURIComponent(host)}`;

export const boardAddress = (name: string): string => `#/board/${encodeURIComponent(name)}`;

/** `view`: parameters of the time shown. */
export const queryAddress = (query: string, view: [string, string][] = []): string => `#/query?${new URLSearchParams([["q", query], ...view]).toString()}`;

function withParameters(parameters: URLSearchParams): string {
  const path = location.hash.split("?")[0] ?? "#/";
  const all = new URLSearchParams(parameters);
  if (searched !== null) put(searched, all);
  const query = all.toString();
  return (path === "" ? "#/" : path) + (query === "" ? "" : `?${query}`);
}

/** Changes the parameters in the address bar without a step in the history and without leaving the page. */
export function replaceParameters(parameters: URLSearchParams): void {
  history.replaceState(history.state, "", withParameters(parameters));
}

/** The same with a step in the history, `at` which place of those of the page `depth` tells. */
export function pushParameters(parameters: URLSearchParams, at: number): void {
  history.pushState({ depth: at }, "", withParameters(parameters));
}

export function depth(): number {
  const { depth } = (history.state ?? {}) as { depth?: unknown };
  return typeof depth === "number" ? depth : 0;
}
