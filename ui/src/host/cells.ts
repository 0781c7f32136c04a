// SPDX-License-Identifier: Apache-2.0
//! Cells that the tables of a host's page have in common: figures, shares as bars, and the mark of what is Onlooker's own.

import { h, setClass, setText } from "../dom";
import { cores, quantity } from "../format";
import { hostAddress } from "../router";
import type { Column } from "../table";

/** From here on a disk, a memory, or a limit is a problem. */
export const FULL = 0.9;

/** A share as a number with a bar below; `fullAt`: red from there on. */
export function showShare(node: HTMLElement, share: number | null, shown: string, fullAt = Infinity): void {
  if (node.firstElementChild === null) node.append(h("span", { class: "share-value" }), h("span", { class: "meter", "aria-hidden": "true" }, h("span", { class: "meter-fill" })));
  const [value, meter] = [...node.children] as HTMLElement[];
  setText(value!, shown);
  (meter!.firstElementChild as HTMLElement).style.width = `${Math.min(100, Math.max(0, (share ?? 0) * 100 || 0))}%`;
  setClass(node, "full", share !== null && share >= fullAt);
}

type Get<T> = (row: T) => number | null;

function written(value: number | null, unit: string, perSecond: boolean): string {
  if (unit === "cores") return cores(value);
  // One of them in a minute and a half: more digits say nothing.
  if (unit === "" && perSecond && value !== null && value > 0 && value < 0.01) return "<0.01\u202f/s";
  return quantity(value, unit, perSecond);
}

/** A column of numbers in a unit. Zeros are faint: what is not zero is what one looks for. */
export function figure<T>(id: string, label: string, title: string, get: Get<T>, unit: string, perSecond = false, minor = false): Column<T> {
  return {
    id, label, title, numeric: true, minor, sort: (row) => get(row) ?? NaN,
    cell: (node, row) => {
      const value = get(row);
      setText(node, written(value, unit, perSecond));
      setClass(node, "dim", value === 0);
    },
  };
}

/** A column of numbers that should be zero. */
export function fault<T>(id: string, label: string, title: string, get: Get<T>, perSecond = true, unit = ""): Column<T> {
  const column = figure(id, label, title, get, unit, perSecond);
  return {
    ...column,
    cell: (node, row) => {
      column.cell(node, row);
      setClass(node, "bad", (get(row) ?? 0) > 0);
    },
  };
}

/** Less than a thousandth of something that fills up is nothing to look at. */
const percent = (share: number | null): string => (share !== null && share > 0 && share < 0.001 ? "<0.1\u202f%" : quantity(share, "share"));

/** A column of shares as bars. `of`: what is written, if not the share itself. */
export function bar<T>(id: string, label: string, title: string, share: Get<T>, fullAt?: number, of?: { get: Get<T>; show: (value: number | null) => string }): Column<T> {
  return {
    id, label, title, numeric: true, sort: (row) => (of?.get ?? share)(row) ?? NaN,
    cell: (node, row) => showShare(node, share(row), of === undefined ? percent(share(row)) : of.show(of.get(row)), fullAt),
  };
}

/** The link to a host, which may have been another one's. */
export function showLink(link: HTMLAnchorElement, host: string): void {
  if (link.textContent === host) return;
  link.textContent = host;
  link.href = hostAddress(host);
}

/** The mark of what Onlooker itself takes. */
export const ownMark = (): HTMLElement => h("span", { class: "own", title: "This is Onlooker itself" }, "Onlooker");
