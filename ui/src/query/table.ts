// SPDX-License-Identifier: Apache-2.0
//! The answer at one time as a table: a column for each label, values as they are.

import { h, setText } from "../dom";
import { moment, quantity } from "../format";
import type { Point, Result } from "../promql";
import { type Column, Table } from "../table";
import { type Unit, seriesText } from "./result";

/** More labels than this are one text. */
const MAX_LABELS = 7;
/** Samples of a range that are listed. */
const MAX_SAMPLES = 20;

interface Row {
  at: number;
  labels: Record<string, string>;
  points: Point[];
}

export function resultTable(result: Result, unit: Unit, now: number): HTMLElement {
  const names = [...new Set(result.series.flatMap(({ labels }) => Object.keys(labels)))].sort((a, b) => Number(b === "__name__") - Number(a === "__name__") || (a < b ? -1 : 1));
  const text = (name: string, label: string, of: (row: Row) => string): Column<Row> => ({ id: name, label, sort: of, cell: (node, row) => setText(node, of(row)) });
  const labels = names.length > MAX_LABELS ? [text("series", "Series", (row) => seriesText(row.labels))] : names.map((name, i) => text(`label${i}`, name === "__name__" ? "Metric" : name, (row) => row.labels[name] ?? ""));
  const columns: Column<Row>[] = [
    { id: "n", label: "#", title: "As the query sorts", numeric: true, minor: true, sort: ({ at }) => at, cell: (node, row) => setText(node, String(row.at + 1)) },
    ...labels,
    { id: "value", label: result.kind === "matrix" ? "Samples" : "Value", numeric: true, sort: ({ points }) => sizeOf(points.at(-1)), cell: (node, row) => { if (node.firstChild === null) node.append(...valueOf(row.points, result.kind === "matrix", unit, now)); } },
  ];
  const table = new Table<Row>("Answer", columns, ({ at }) => String(at), null, ({ at }) => at, { column: "n", descending: false }, () => undefined, "topk(…) or a label narrows them down.");
  table.keepKeys();
  table.update(result.series.map(({ labels: own, points }, at) => ({ at, labels: own, points })));
  return table.element;
}

const sizeOf = (point: Point | undefined): number => (point === undefined ? NaN : "value" in point ? point.value : point.count);

function valueOf(points: Point[], isRange: boolean, unit: Unit, now: number): (Node | string)[] {
  if (!isRange) return points.slice(0, 1).flatMap((point) => [written(point), ...readable(point, unit)]);
  const shown = points.slice(-MAX_SAMPLES).map((point) => h("div", {}, `${written(point)} @ ${moment(point.t_ms, now, 1)}`));
  return points.length > shown.length ? [h("div", { class: "dim" }, `the last ${shown.length} of ${points.length}`), ...shown] : shown;
}

/** As Prometheus writes it. */
export function written(point: Point): string {
  if (!("value" in point)) return `count ${point.count}, sum ${point.sum}`;
  return point.value === Infinity ? "+Inf" : point.value === -Infinity ? "-Inf" : String(point.value);
}

/** With its unit, where that is known. */
function readable(point: Point, { unit, perSecond }: Unit): Node[] {
  return unit === "" || !("value" in point) ? [] : [h("span", { class: "dim readable" }, quantity(point.value, unit, perSecond))];
}
