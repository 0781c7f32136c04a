// SPDX-License-Identifier: Apache-2.0
//! Addresses behind `#`: the page is static files, and the controller need know none of them. `#/`, `#/host/NAME?w=1m&from=MS&to=MS&c=SERIES`, `#/reads`, `#/alerts`, `#/query?q=EXPR&w=1h&view=table`, `#/compare?host=NAME&host=NAME&m=METRIC&q=EXPR`.

export interface Route {
  page: "fleet" | "host" | "reads" | "alerts" | "query" | "compare" | "unknown";
  host: string;
  parameters: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const parts = path.split("/").filter((part) => part !== "");
  if (parts.length === 0) return { page: "fleet", host: "", parameters };
  if (parts[0] === "host" && parts.length === 2) return { page: "host", host: decode(parts[1]!), parameters };
  if ((parts[0] === "reads" || parts[0] === "alerts" || parts[0] === "query" || parts[0] === "compare") && parts.length === 1) return { page: parts[0], host: "", parameters };
  return { page: "unknown", host: "", parameters };
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const hostAddress = (host: string): string => `#/host/${encodeURIComponent(host)}`;

export const queryAddress = (query: string): string => `#/query?${new URLSearchParams({ q: query }).toString()}`;

function withParameters(parameters: URLSearchParams): string {
  const path = location.hash.split("?")[0] ?? "#/";
  const query = parameters.toString();
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
