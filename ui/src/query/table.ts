// SPDX-License-Identifier: Apache-2.0
//! The answer at one time as a table: a column for each label, values as they are.

import { now } from "../clock";
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

export class ResultTable {
  readonly element = h("div");
  private table: Table<Row> | null = null;
  private heads = "";
  private unit: Unit = { unit: "", perSecond: false };

  show(result: Result, unit: Unit): void {
    const isRange = result.kind === "matrix";
    const names = [...new Set(result.series.flatMap(({ labels }) => Object.keys(labels)))].sort((a, b) => Number(b === "__name__") - Number(a === "__name__") || (a < b ? -1 : 1));
    const heads = JSON.stringify([isRange, names]);
    this.unit = unit;
    // The same columns: sorting, focus and place stay as they are.
    if (this.table === null || heads !== this.heads) {
      this.heads = heads;
      this.table = new Table<Row>("Answer", this.columns(names, isRange), ({ labels }) => seriesText(labels), null, ({ at }) => at, { column: "n", descending: false }, () => undefined);
      this.table.keepKeys();
      this.element.replaceChildren(this.table.element);
    }
    this.table.update(result.series.map(({ labels, points }, at) => ({ at, labels, points })));
  }

  private columns(names: string[], isRange: boolean): Column<Row>[] {
    const text = (id: string, label: string, of: (row: Row) => string): Column<Row> => ({ id, label, sort: of, cell: (node, row) => setText(node, of(row)) });
    return [
      { id: "n", label: "#", title: "As the query sorts", numeric: true, minor: true, sort: ({ at }) => at, cell: (node, row) => setText(node, String(row.at + 1)) },
      ...(names.length > MAX_LABELS ? [text("series", "Series", ({ labels }) => seriesText(labels))] : names.map((name, i) => text(`label${i}`, name === "__name__" ? "Metric" : name, ({ labels }) => labels[name] ?? ""))),
      {
        id: "value", label: isRange ? "Samples" : "Value", numeric: true, sort: ({ points }) => sizeOf(points.at(-1)),
        cell: (node, { points }) => {
          const parts = isRange ? samplesOf(points) : points.slice(0, 1).flatMap((point) => [h("span", {}, written(point)), ...readable(point, this.unit)]);
          if (node.textContent !== parts.map((part) => part.textContent).join("")) node.replaceChildren(...parts);
        },
      },
    ];
  }
}

const sizeOf = (point: Point | undefined): number => (point === undefined ? NaN : "value" in point ? point.value : point.count);

function samplesOf(points: Point[]): HTMLElement[] {
  const shown = points.slice(-MAX_SAMPLES).map((point) => h("div", {}, `${written(point)} @ ${moment(point.t_ms, now(), 1)}`));
  return points.length > shown.length ? [h("div", { class: "dim" }, `the last ${shown.length} of ${points.length}`), ...shown] : shown;
}

/** As Prometheus writes it. */
function written(point: Point): string {
  if (!("value" in point)) return `count ${point.count}, sum ${point.sum}`;
  return point.value === Infinity ? "+Inf" : point.value === -Infinity ? "-Inf" : String(point.value);
}

/** With its unit, where that is known. */
function readable(point: Point, { unit, perSecond }: Unit): HTMLElement[] {
  return unit === "" || !("value" in point) ? [] : [h("span", { class: "dim readable" }, quantity(point.value, unit, perSecond))];
}
