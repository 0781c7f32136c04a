// SPDX-License-Identifier: Apache-2.0
//! What is shown of a dashboard in Grafana's JSON (the classic model, docs/http.md#boards): panels and variables, and in words what is not. Pure.

import { type Json, listOf, numberOf, objectOf, objectsOf, textOf } from "./json";
import { type Scaled, scaledOf } from "./units";

/** Columns of the grid. */
export const COLUMNS = 24;

export type PanelKind = "chart" | "stat" | "table" | "text" | "unknown";

export interface Target {
  ref: string;
  expression: string;
  legend: string;
  /** Between two points at least, as it is written; empty: nothing is asked. */
  interval: string;
}

export interface Place {
  x: number;
  y: number;
  w: number;
  h: number;
}

/** From the value on, until the next one. */
export interface Threshold {
  from: number;
  colour: string;
}

export interface Panel {
  /** Where it is in the file: of `panels`, and of those of a row. */
  path: readonly number[];
  id: number | null;
  kind: PanelKind;
  /** As Grafana calls it. */
  type: string;
  title: string;
  description: string;
  place: Place;
  targets: Target[];
  /** Null: what its query has. */
  unit: Scaled | null;
  min: number | null;
  max: number | null;
  isStacked: boolean;
  /** Of a stat: what becomes of the values over time. */
  calculation: string;
  thresholds: Threshold[];
  text: string;
  /** Why it is not shown; empty where it is. */
  reason: string;
}

export interface Section {
  /** Null: what comes before the first row. */
  row: { title: string; path: readonly number[]; isCollapsed: boolean } | null;
  panels: Panel[];
}

export type VariableKind = "values" | "custom" | "interval" | "constant" | "text" | "unknown";

export interface Variable {
  name: string;
  label: string;
  kind: VariableKind;
  /** Several values, or a regular expression. */
  isMulti: boolean;
  hasAll: boolean;
  /** What stands for all; empty: `.+`. */
  allValue: string;
  /** Of kinds that list them. */
  options: { value: string; text: string }[];
  /** Of `values`: `label_values(...)`. */
  query: string;
  regex: string;
  /** What it is at first; several of them mean any. */
  current: string[];
  isHidden: boolean;
}

export interface Dashboard {
  title: string;
  description: string;
  sections: Section[];
  variables: Variable[];
  /** What is in the file and is not shown here: of whom, and why. */
  left: { what: string; why: string }[];
  /** What it asks to show: a length in ms; null where it says nothing that a live window could be. */
  lastMs: number | null;
}

export const ALL = "$__all";

const KINDS: Readonly<Record<string, PanelKind>> = { timeseries: "chart", graph: "chart", stat: "stat", singlestat: "stat", gauge: "stat", bargauge: "stat", table: "table", "table-old": "table", text: "text" };

export function dashboardOf(file: Json): Dashboard {
  const left: Dashboard["left"] = [];
  const sections: Section[] = [{ row: null, panels: [] }];
  const inOrder = objectsOf(file["panels"]).map((raw) => ({ raw, at: listOf(file["panels"]).indexOf(raw) }));
  inOrder.sort((a, b) => before(placeOf(a.raw), placeOf(b.raw)) || a.at - b.at);
  for (const { raw, at } of inOrder) {
    if (textOf(raw["type"]) !== "row") sections.at(-1)!.panels.push(panelOf(raw, [at], left));
    else {
      const nested = objectsOf(raw["panels"]).map((inner) => panelOf(inner, [at, listOf(raw["panels"]).indexOf(inner)], left)).sort((a, b) => before(a.place, b.place));
      sections.push({ row: { title: textOf(raw["title"]), path: [at], isCollapsed: raw["collapsed"] === true }, panels: nested });
      if (textOf(raw["repeat"]) !== "") left.push({ what: `The row “${textOf(raw["title"])}”`, why: `is not repeated by ${textOf(raw["repeat"])}: it is shown once` });
    }
  }
  const variables = objectsOf(objectOf(file["templating"])["list"]).flatMap((raw) => variableOf(raw, left));
  for (const raw of objectsOf(objectOf(file["annotations"])["list"])) {
    if (raw["builtIn"] !== 1) left.push({ what: `The annotation “${textOf(raw["name"])}”`, why: "annotations are not shown" });
  }
  return {
    title: textOf(file["title"]), description: textOf(file["description"]), variables, left, lastMs: lastOf(objectOf(file["time"])),
    sections: sections.filter(({ row, panels }) => row !== null || panels.length > 0),
  };
}

const before = (a: Place, b: Place): number => a.y - b.y || a.x - b.x;

export function placeOf(raw: Json): Place {
  const place = objectOf(raw["gridPos"]);
  const whole = (name: string, least: number, most: number, otherwise: number): number => Math.min(most, Math.max(least, Math.round(numberOf(place[name]) ?? otherwise)));
  const isRow = textOf(raw["type"]) === "row";
  const w = isRow ? COLUMNS : whole("w", 1, COLUMNS, 12);
  return { w, x: whole("x", 0, COLUMNS - w, 0), y: whole("y", 0, 1e6, 0), h: isRow ? 1 : whole("h", 1, 60, 8) };
}

function panelOf(raw: Json, path: readonly number[], left: Dashboard["left"]): Panel {
  const type = textOf(raw["type"]);
  const title = textOf(raw["title"]);
  const options = objectOf(raw["options"]);
  const field = objectOf(objectOf(raw["fieldConfig"])["defaults"]);
  const targets = objectsOf(raw["targets"]).filter((target) => target["hide"] !== true).flatMap((target, i) => {
    const expression = textOf(target["expr"]).trim();
    const legend = textOf(target["legendFormat"]);
    return expression === "" ? [] : [{ ref: textOf(target["refId"]) || String(i + 1), expression, legend: legend === "__auto" ? "" : legend, interval: textOf(target["interval"]) || textOf(raw["interval"]) }];
  });
  const kind = KINDS[type] ?? "unknown";
  const source = sourceOf(raw);
  let reason = "";
  if (isLibrary(raw)) reason = "it is a panel of Grafana’s library, whose content is not in the file";
  else if (kind === "unknown") reason = `panels of the type ${type === "" ? "(none)" : type} are not shown here`;
  else if (kind !== "text" && source !== "") reason = `its data source is ${source}, and here is PromQL only`;
  else if (kind !== "text" && targets.length === 0) reason = "it has no query in PromQL";
  const what = `The panel “${title || type}”`;
  const tell = (why: string): void => { left.push({ what, why }); };
  if (reason !== "") tell(reason);
  else {
    const unit = textOf(field["unit"]);
    if (unit !== "" && scaledOf(unit) === null) tell(`values have no unit: ${unit} is not known here`);
    if (listOf(raw["transformations"]).length > 0) tell("transformations are not applied");
    if (listOf(objectOf(raw["fieldConfig"])["overrides"]).length > 0) tell("overrides of fields are not applied");
    if (textOf(raw["repeat"]) !== "") tell(`it is not repeated by ${textOf(raw["repeat"])}: it is shown once`);
  }
  const [axis] = objectsOf(raw["yaxes"]);
  return {
    path, id: numberOf(raw["id"]), kind: reason === "" ? kind : "unknown", type, title, description: textOf(raw["description"]), place: placeOf(raw), targets,
    unit: scaledOf(textOf(field["unit"]) || textOf(axis?.["format"]) || textOf(raw["format"])), min: numberOf(field["min"]) ?? numberOf(axis?.["min"]), max: numberOf(field["max"]) ?? numberOf(axis?.["max"]),
    isStacked: raw["stack"] === true || ["normal", "percent"].includes(textOf(objectOf(objectOf(field["custom"])["stacking"])["mode"])),
    calculation: textOf(listOf(objectOf(options["reduceOptions"])["calcs"])[0]) || CALCULATIONS[textOf(raw["valueName"])] || "lastNotNull",
    thresholds: thresholdsOf(objectOf(field["thresholds"]), numberOf(field["min"]), numberOf(field["max"])),
    text: textOf(options["content"]) || textOf(raw["content"]), reason,
  };
}

/** Of panels of the type singlestat. */
const CALCULATIONS: Readonly<Record<string, string>> = { avg: "mean", min: "min", max: "max", total: "sum", first: "firstNotNull" };

const isLibrary = (raw: Json): boolean => textOf(objectOf(raw["libraryPanel"])["uid"]) !== "" && raw["targets"] === undefined && raw["options"] === undefined;

/** The kind of its data source, where that is told and is none that has PromQL. Its own name tells nothing. */
function sourceOf(raw: Json): string {
  const types = [raw, ...objectsOf(raw["targets"])].map((item) => textOf(objectOf(item["datasource"])["type"]));
  return types.find((type) => type !== "" && !/prometheus|mimir|cortex|thanos|victoriametrics|datasource/.test(type)) ?? "";
}

function thresholdsOf(raw: Json, min: number | null, max: number | null): Threshold[] {
  const share = raw["mode"] === "percentage";
  const [low, high] = [min ?? 0, max ?? 100];
  return objectsOf(raw["steps"]).map((step) => {
    const value = numberOf(step["value"]);
    return { from: value === null ? -Infinity : share ? low + ((high - low) * value) / 100 : value, colour: textOf(step["color"]) };
  }).sort((a, b) => a.from - b.from);
}

const VARIABLES: Readonly<Record<string, VariableKind>> = { query: "values", custom: "custom", interval: "interval", constant: "constant", textbox: "text" };

function variableOf(raw: Json, left: Dashboard["left"]): Variable[] {
  const type = textOf(raw["type"]);
  const name = textOf(raw["name"]);
  // All data sources are the controller here.
  if (type === "datasource" || name === "") return [];
  let kind = VARIABLES[type] ?? "unknown";
  const query = textOf(raw["definition"]) || textOf(raw["query"]) || textOf(objectOf(raw["query"])["query"]);
  if (kind === "values" && !/^\s*label_values\(/.test(query)) kind = "unknown";
  if (kind === "unknown") left.push({ what: `The variable ${name}`, why: type === "query" ? "only label_values(…) fills a variable here: type its value" : `variables of the type ${type} are not filled here: type its value` });
  const current = objectOf(raw["current"])["value"];
  const values = (Array.isArray(current) ? current : [current]).filter((value) => typeof value === "string");
  const listed = objectsOf(raw["options"]).map((option) => ({ value: textOf(option["value"]), text: textOf(option["text"]) })).filter(({ value }) => value !== ALL && !value.startsWith("$__auto"));
  const options = kind === "custom" || kind === "interval" ? optionsOf(textOf(raw["query"])) : [];
  const all = options.length > 0 ? options : listed;
  const first = kind === "constant" || kind === "text" ? query : (all[0]?.value ?? "");
  const hasAll = raw["includeAll"] === true;
  const chosen = values.filter((value) => value !== "" && !value.startsWith("$__auto"));
  return [{
    name, label: textOf(raw["label"]) || name, kind, isMulti: raw["multi"] === true || hasAll, hasAll, allValue: textOf(raw["allValue"]), options: kind === "values" ? [] : all, query, regex: textOf(raw["regex"]),
    current: chosen.length > 0 ? chosen : hasAll ? [ALL] : [first], isHidden: raw["hide"] === 2 || kind === "constant",
  }];
}

/** `a,b : c`: values, and names of values. */
function optionsOf(list: string): Variable["options"] {
  return list.split(/(?<!\\),/).map((part) => part.replaceAll("\\,", ",").trim()).filter((part) => part !== "" && part !== "auto").map((part) => {
    const [, text = part, value = part] = /^(.*?)\s+:\s+(.*)$/.exec(part) ?? [];
    return { text, value };
  });
}

const LENGTHS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };

function lastOf(time: Json): number | null {
  const [, count, unit] = /^now-(\d+)([smhdw])$/.exec(textOf(time["from"])) ?? [];
  return textOf(time["to"]) === "now" && unit !== undefined ? Number(count) * LENGTHS[unit]! : null;
}
