// SPDX-License-Identifier: Apache-2.0
//! Addresses behind `#`: the page is static files, and the controller need know none of them. `#/`, `#/host/NAME?w=1m&c=SERIES`, `#/reads`, `#/alerts`.

export interface Route {
  page: "fleet" | "host" | "reads" | "alerts" | "unknown";
  host: string;
  parameters: URLSearchParams;
}

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parameters = new URLSearchParams(query);
  const parts = path.split("/").filter((part) => part !== "");
  if (parts.length === 0) return { page: "fleet", host: "", parameters };
  if (parts[0] === "host" && parts.length === 2) return { page: "host", host: decode(parts[1]!), parameters };
  if ((parts[0] === "reads" || parts[0] === "alerts") && parts.length === 1) return { page: parts[0], host: "", parameters };
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

/** Changes the parameters in the address bar without a step in the history and without leaving the page. */
export function replaceParameters(parameters: URLSearchParams): void {
  const path = location.hash.split("?")[0] ?? "#/";
  const query = parameters.toString();
  history.replaceState(null, "", (path === "" ? "#/" : path) + (query === "" ? "" : `?${query}`));
}
