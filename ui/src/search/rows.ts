// SPDX-License-Identifier: Apache-2.0
//! The rows of the search. Each has one main control, `data-main`, which the arrows go through; whatever texts hosts have chosen are text, isolated in their direction.

import type { Series } from "../api";
import { h } from "../dom";
import { quantity } from "../format";
import { hostAddress } from "../router";
import { showState } from "../state";
import type { FoundAlert, FoundHost, FoundMetric } from "./ask";
import { alertDetail, chartAddress, detailOf, inLabels, isDrawn, labelsText, plural, queryLink, seriesAddress } from "./found";
import { parts } from "./mark";

/** What rows need to know. */
export interface Scene {
  /** The host that is searched; null: all. */
  host: string | null;
  words: readonly string[];
  /** Goes along with links. */
  time: URLSearchParams;
  /** What a link does in place of leading away; false where it leads. */
  takes: (event: MouseEvent, host: string, chosen: { metric: string } | { series: Series }) => boolean;
  toggle: (metric: FoundMetric) => void;
}

/** A foreign text with the words marked. */
export function marked(text: string, words: readonly string[]): HTMLElement {
  return h("bdi", {}, ...parts(text, words).map((part) => (part.isHit ? h("mark", {}, part.text) : part.text)));
}

function queryAnchor(metric: Pick<FoundMetric, "name" | "type">, host: string | null, time: URLSearchParams): HTMLElement {
  const of = host === null ? "" : ` of ${host}`;
  return h("a", { class: "found-query", href: queryLink(metric, host, time), "aria-label": `Query ${metric.name}${of}`, title: "As a query" }, "Query");
}

export function hostRow(found: FoundHost, { words, time }: Scene): HTMLElement {
  const state = h("span");
  showState(state, found.state);
  const labels = labelsText(found);
  const query = time.toString();
  return h(
    "li", { class: "found-row" },
    h(
      "a", { class: "found-main", href: `${hostAddress(found.name)}${query === "" ? "" : `?${query}`}`, "data-main": `host ${found.name}` },
      h("span", { class: "found-name" }, marked(found.name, words), " ", state),
      h("span", { class: "dim" }, marked(found.address, words), labels === "" ? null : " · ", labels === "" ? null : marked(labels, words)),
    ),
  );
}

export function alertRow(found: FoundAlert, { words }: Scene): HTMLElement {
  return h(
    "li", { class: "found-row" },
    h("a", { class: "found-main", href: `#/alerts?${new URLSearchParams({ q: found.name }).toString()}`, "data-main": `alert ${found.group} ${found.name}` }, h("span", { class: "found-name" }, marked(found.name, words)), h("span", { class: "dim" }, alertDetail(found))),
  );
}

export const keyOf = (metric: FoundMetric): string => `${metric.type} ${metric.name}`;

/** A metric; with what it is opened to, if it is. */
export function metricRow(metric: FoundMetric, members: HTMLElement | null, scene: Scene): HTMLElement {
  const { host, words, time } = scene;
  const labels = inLabels(metric, words);
  const texts = [
    h("span", { class: "found-name series-name" }, marked(metric.name, words)),
    h("span", { class: "dim" }, detailOf(metric, host)),
    metric.help === "" ? null : h("span", { class: "found-help" }, marked(metric.help, words)),
    labels.length === 0 ? null : h("span", { class: "dim" }, "in its labels: ", marked(labels.join(" "), words)),
  ];
  const key = `metric ${keyOf(metric)}`;
  const isOpen = members !== null;
  const sign = h("span", { "aria-hidden": "true" }, isOpen ? "▾" : "▸");
  const toggles = { type: "button", "aria-expanded": String(isOpen), on: { click: () => scene.toggle(metric) } };
  const main =
    host !== null && isDrawn(metric.type, metric.series)
      ? [
          h("button", { ...toggles, class: "found-opens quiet", "aria-label": `Series of ${metric.name}`, "data-opens": "" }, sign),
          h("a", { class: "found-main", "data-main": key, href: chartAddress(host, metric, metric.series, time), on: { click: (event) => { if (scene.takes(event, host, { metric: metric.name })) event.preventDefault(); } } }, ...texts),
        ]
      : [h("button", { ...toggles, class: "found-main", "data-main": key, "data-opens": "" }, h("span", { class: "found-opens" }, sign), ...texts)];
  return h("li", { class: "found-row found-metric" }, ...main, queryAnchor(metric, host, time), members);
}

/** A host that has the metric. */
export function memberHost(metric: FoundMetric, found: FoundHost, { words, time, takes }: Scene): HTMLElement {
  const state = h("span");
  showState(state, found.state);
  const chosen = { metric: metric.name };
  const take = (event: MouseEvent): void => { if (isDrawn(metric.type, found.series) && takes(event, found.name, chosen)) event.preventDefault(); };
  return h(
    "li", { class: "found-row" },
    h("a", { class: "found-main", "data-main": `member ${keyOf(metric)} ${found.name}`, href: chartAddress(found.name, metric, found.series, time), on: { click: take } }, h("span", { class: "found-name" }, marked(found.name, words)), h("span", { class: "dim" }, `${plural(found.series, "series", "series")} · `, state)),
    queryAnchor(metric, found.name, time),
  );
}

/** A series of the host that is searched. An info has no chart. */
export function memberSeries(host: string, series: Series, { words, time, takes }: Scene): HTMLElement {
  const value = typeof series.value === "number" ? quantity(series.value, series.unit) : typeof series.value === "string" ? series.value : "";
  const texts = [h("span", { class: "found-name series-name" }, marked(series.series, words)), h("span", { class: "dim num" }, h("bdi", {}, value))];
  if (series.type === "info") return h("li", { class: "found-row" }, h("span", { class: "found-main" }, ...texts));
  return h(
    "li", { class: "found-row" },
    h("a", { class: "found-main", "data-main": `member ${series.series}`, href: seriesAddress(host, series.series, time), on: { click: (event) => { if (takes(event, host, { series })) event.preventDefault(); } } }, ...texts),
  );
}
