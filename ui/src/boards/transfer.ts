// SPDX-License-Identifier: Apache-2.0
//! Dashboards from Grafana and for it. Files here are what Grafana reads, so there is little to do. Pure.

import { type Json, isObject, listOf, objectOf, textOf } from "./json";

/** As the controller takes them. */
export const MAX_BYTES = 1 << 20;
const MAX_NAME = 64;

export class ImportError extends Error {}

/** The dashboard in a text; or an ImportError that says what else it is. */
export function imported(text: string): Json {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch (error) {
    throw new ImportError(`This is no JSON: ${error instanceof Error ? error.message : String(error)}.`);
  }
  if (!isObject(found)) throw new ImportError("This is no dashboard: an object in braces is expected.");
  // What Grafana's API answers has the dashboard within.
  const board = isObject(found["dashboard"]) ? found["dashboard"] : found;
  if (isObject(board["spec"]) && textOf(board["apiVersion"]).startsWith("dashboard.grafana.app/v2")) throw new ImportError("This is a dashboard of Grafana’s new model (v2). Export it as Classic.");
  if (isObject(board["elements"])) throw new ImportError("This is a dashboard of Grafana’s new model (v2). Export it as Classic.");
  const classic = isObject(board["spec"]) && Array.isArray(board["spec"]["panels"]) ? board["spec"] : board;
  if (Array.isArray(classic["rows"]) && !Array.isArray(classic["panels"])) throw new ImportError("This was saved by Grafana 4 or older: open and save it with a newer one first.");
  if (!Array.isArray(classic["panels"])) throw new ImportError("This is no dashboard of Grafana: it has no “panels”.");
  return classic;
}

/** For a file of Grafana: the same, but for what belongs to one installation. */
export function exported(board: Json): string {
  return written({ ...board, id: null, schemaVersion: typeof board["schemaVersion"] === "number" ? board["schemaVersion"] : 39, title: textOf(board["title"]) || "Board", panels: listOf(board["panels"]) });
}

/** As files are written: people look at them, and compare versions. */
export const written = (board: Json): string => `${JSON.stringify(board, null, 1)}\n`;

/** A name of a file, of a title. */
export function nameOf(title: string): string {
  const name = title.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase().replace(/[^a-z0-9._]+/g, "-").replace(/^[-._]+/, "").slice(0, MAX_NAME).replace(/[-._]+$/, "");
  return name === "" ? "board" : name;
}

export const isName = (name: string): boolean => /^[A-Za-z0-9][-A-Za-z0-9._]{0,63}$/.test(name);

export const titleOf = (board: Json): string => textOf(objectOf(board)["title"]);
