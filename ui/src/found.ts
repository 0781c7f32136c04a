// SPDX-License-Identifier: Apache-2.0
//! What a search found, as rows of a list: one a metric, and below a metric that is opened its series. Pure.

import type { Metric, Series } from "./api";
import { quantity } from "./format";

/** What choosing a row does. */
export type Action =
  | { do: "series"; series: Series }
  | { do: "family"; name: string }
  | { do: "toggle"; name: string }
  | { do: "more" }
  /** Infos are no charts. */
  | { do: "nothing" };

export interface Row {
  title: string;
  detail: string;
  help: string;
  /** Below its metric. */
  isChild: boolean;
  /** The metric whose series this row can show or hide; null: there are none beside the row itself. */
  opens: string | null;
  isOpen: boolean;
  action: Action;
}

/** Rows of the metrics as the server ranked them. `opened`: series of those metrics that are opened. */
export function rows(metrics: readonly Metric[], opened: ReadonlyMap<string, readonly Series[]>, more: boolean): Row[] {
  const out = metrics.flatMap((metric) => (metric.count === 1 ? [single(metric, false)] : [family(metric, opened.has(metric.name)), ...(opened.get(metric.name) ?? []).map((item) => single(item, true))]));
  if (more) out.push({ title: "Show more", detail: "or type another word", help: "", isChild: false, opens: null, isOpen: false, action: { do: "more" } });
  return out;
}

function single(series: Series, isChild: boolean): Row {
  const value = typeof series.value === "number" ? quantity(series.value, series.unit) : typeof series.value === "string" ? series.value : "";
  const action: Action = series.type === "info" ? { do: "nothing" } : { do: "series", series };
  return { title: series.series, detail: `${series.type}${value === "" ? "" : ` · ${value}`}`, help: series.help, isChild, opens: null, isOpen: false, action };
}

function family(metric: Metric, isOpen: boolean): Row {
  // A heat map shows one histogram, and an info none: these only open.
  const action: Action = metric.type === "histogram" || metric.type === "info" ? { do: "toggle", name: metric.name } : { do: "family", name: metric.name };
  return { title: metric.name, detail: `${metric.type} · ${metric.count} series`, help: metric.help, isChild: false, opens: metric.name, isOpen, action };
}
