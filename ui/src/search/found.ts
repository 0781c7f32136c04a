// SPDX-License-Identifier: Apache-2.0
//! What a search found, in words, in order, and where it leads. Pure.

import type { SeriesType } from "../api";
import { count } from "../format";
import { quote } from "../promql";
import { hostAddress, queryAddress } from "../router";
import type { Found, FoundAlert, FoundHost, FoundMetric } from "./ask";
import { folded } from "./mark";

export type Kind = "hosts" | "metrics" | "alerts";

export const plural = (number: number, one: string, many = `${one}s`): string => `${count(number)} ${number === 1 ? one : many}`;

/** How many there are of each, and of how much. */
export function summaryOf({ searched, metrics, hosts, alerts }: Found, host: string | null): string {
  const parts = [
    ...(hosts.total > 0 ? [plural(hosts.total, "host")] : []),
    `${plural(metrics.total, "metric")}${metrics.total > 0 ? ` (${count(metrics.series)} series)` : ""}`,
    ...(alerts.total > 0 ? [plural(alerts.total, "alert")] : []),
  ];
  const where = host === null ? plural(searched.hosts, "host") : host;
  return `Found ${parts.join(", ")} among ${count(searched.series)} series of ${where}`;
}

/** How well a name fits: the best of its kind tells which kind comes first. */
function closeness(name: string, words: readonly string[]): number {
  const low = folded(name);
  const own = low.slice(low.indexOf("_") + 1);
  return Math.max(0, ...words.map((word) => (low === word ? 0 : low.startsWith(word) || own.startsWith(word) ? 1 : low.includes(word) ? 2 : 3)));
}

/** Kinds of which something was found, the one with the best name first. */
export function order(found: Found, words: readonly string[]): Kind[] {
  const kinds: Kind[] = ["hosts", "metrics", "alerts"];
  const best = (kind: Kind): number => closeness(found[kind].list[0]?.name ?? "", words);
  return kinds.filter((kind) => found[kind].list.length > 0).sort((a, b) => best(a) - best(b));
}

export function detailOf(metric: FoundMetric, host: string | null): string {
  const on = host === null ? ` on ${plural(metric.hosts, "host")}` : "";
  return [metric.type, metric.unit, `${count(metric.series)} series${on}`].filter((part) => part !== "").join(" · ");
}

/** Words that neither name nor help have: the labels do. */
export const inLabels = ({ name, help }: FoundMetric, words: readonly string[]): string[] => words.filter((word) => !folded(name).includes(word) && !folded(help).includes(word));

export const alertDetail = ({ group, firing, pending }: FoundAlert): string =>
  [`alert of ${group}`, firing > 0 ? `${count(firing)} firing` : "", pending > 0 ? `${count(pending)} pending` : "", firing + pending === 0 ? "quiet" : ""].filter((part) => part !== "").join(" · ");

export const labelsText = (host: FoundHost): string => Object.entries(host.labels).map(([name, value]) => `${name}=${value}`).sort().join(" ");

/** The time that a page shows goes along: `w`, `from`, `to`. */
export function timeOf(parameters: URLSearchParams): URLSearchParams {
  return new URLSearchParams(["w", "from", "to"].flatMap((name) => parameters.getAll(name).map((value) => [name, value])));
}

function withMore(address: string, more: URLSearchParams): string {
  const text = more.toString();
  return text === "" ? address : `${address}${address.includes("?") ? "&" : "?"}${text}`;
}

/** Whether all series of a metric make one chart: infos are none, and a heat map has one histogram. */
export const isDrawn = (type: SeriesType, series: number): boolean => type !== "info" && (type !== "histogram" || series === 1);

/** A host's chart of a metric; where there is none, the search for its series there. */
export function chartAddress(host: string, metric: Pick<FoundMetric, "name" | "type">, series: number, time: URLSearchParams): string {
  const what: [string, string][] = isDrawn(metric.type, series) ? [["f", metric.name]] : [["find", metric.name], ["metric", metric.name]];
  return withMore(hostAddress(host), new URLSearchParams([...time, ...what]));
}

/** A host's chart of one series. */
export const seriesAddress = (host: string, series: string, time: URLSearchParams): string => withMore(hostAddress(host), new URLSearchParams([...time, ["c", series]]));

/** The metric as a query, of all hosts or of one: counters as rates. */
export function queryOf({ name, type }: Pick<FoundMetric, "name" | "type">, host: string | null): string {
  const isPlain = /^[a-zA-Z_:][\w:]*$/.test(name);
  const matchers = [...(isPlain ? [] : [`__name__=${quote(name)}`]), ...(host === null ? [] : [`instance=${quote(host)}`])];
  const selector = `${isPlain ? name : ""}${matchers.length > 0 ? `{${matchers.join(",")}}` : ""}`;
  if (type === "histogram") return `histogram_quantile(0.99, rate(${selector}[5m]))`;
  return type === "counter" ? `rate(${selector}[5m])` : selector;
}

export const queryLink = (metric: Pick<FoundMetric, "name" | "type">, host: string | null, time: URLSearchParams): string => withMore(queryAddress(queryOf(metric, host)), time);

/** What to say where there is more than is shown; nothing where all is. */
export const rest = (shown: number, total: number, many: string): string => (shown < total ? `The first ${count(shown)} of ${count(total)} ${many}.` : "");
