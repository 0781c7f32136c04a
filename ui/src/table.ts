// SPDX-License-Identifier: Apache-2.0
//! A sortable table whose rows stay the same elements while their values change; arrows, j, k and Enter go through it.

import { h, setClass, setHidden, setText } from "./dom";
import type { Binding } from "./keys";

export interface Column<T> {
  id: string;
  label: string;
  /** What the heading means, where that is not plain. */
  title?: string;
  numeric?: boolean;
  /** Texts whose greatest are looked for first; numbers are so anyway. */
  descendingFirst?: boolean;
  /** Left out on narrow screens. */
  minor?: boolean;
  sort: (row: T) => number | string;
  /** Writes the cell; called each time the rows come. */
  cell: (node: HTMLElement, row: T) => void;
}

export interface Sorting {
  column: string;
  descending: boolean;
}

/** Rows beyond this are not laid out: nobody reads them, and the search narrows. */
const MAX_ROWS = 500;
/** Steps of the keys that go through rows. */
const STEPS: Record<string, number> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

/** Made once: a table of ten thousand rows compares a hundred thousand times. */
const TEXTS = new Intl.Collator("en", { numeric: true });

interface Shown<T> {
  node: HTMLTableRowElement;
  cells: HTMLElement[];
  row: T;
}

export class Table<T> {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly heads = new Map<string, HTMLElement>();
  private readonly more = h("p", { class: "note", hidden: true });
  private readonly shown = new Map<string, Shown<T>>();
  /** Keys of the rows, from the top. */
  order: readonly string[] = [];
  private rows: T[] = [];
  private active: string | null = null;

  constructor(
    caption: string,
    private readonly columns: Column<T>[],
    private readonly key: (row: T) => string,
    /** Null: there is nothing to open. */
    private readonly open: ((row: T) => void) | null,
    private readonly rank: (row: T) => number,
    public sorting: Sorting,
    private readonly onSort: (sorting: Sorting) => void,
    /** How to see what is beyond the limit. */
    private readonly narrow = "Search to narrow them down.",
  ) {
    const heads = columns.map((column) => {
      const button = h("button", { type: "button", title: column.title ?? null, on: { click: () => this.sortBy(column.id) } }, column.label);
      const head = h("th", { scope: "col", class: classes(column) }, button);
      this.heads.set(column.id, head);
      return head;
    });
    const table = h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, ...heads)), this.body);
    this.element = h("div", {}, h("div", { class: "table-scroll", tabindex: -1 }, table), this.more);
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("focusin", (event) => {
      const row = (event.target as HTMLElement).closest("tr");
      if (row !== null) this.activate(row.dataset["key"]!, false);
    });
  }

  update(rows: T[]): void {
    this.rows = rows;
    const column = this.columns.find((item) => item.id === this.sorting.column) ?? this.columns[0]!;
    const sign = this.sorting.descending ? -1 : 1;
    const sorted = [...rows].sort((a, b) => sign * compare(column.sort(a), column.sort(b)) || this.rank(a) - this.rank(b) || compare(this.key(a), this.key(b)));
    const visible = sorted.slice(0, MAX_ROWS);
    for (const [id, head] of this.heads) head.setAttribute("aria-sort", id !== column.id ? "none" : this.sorting.descending ? "descending" : "ascending");
    setHidden(this.more, sorted.length <= MAX_ROWS);
    setText(this.more, `The first ${MAX_ROWS} of ${sorted.length}. ${this.narrow}`);

    const keys = visible.map((row) => this.key(row));
    const wanted = new Set(keys);
    for (const [key, item] of this.shown) {
      if (wanted.has(key)) continue;
      item.node.remove();
      this.shown.delete(key);
    }
    visible.forEach((row, i) => this.write(keys[i]!, row));
    if (keys.join("\n") !== this.order.join("\n")) {
      const focused = document.activeElement;
      this.body.append(...keys.map((key) => this.shown.get(key)!.node));
      if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
      this.order = keys;
    }
    if (this.active === null || !wanted.has(this.active)) this.activate(keys[0] ?? null, false);
  }

  /** Writes the cells again: for what changes by time alone. */
  refresh(): void {
    for (const [key, item] of this.shown) this.write(key, item.row);
  }

  get bindings(): Binding[] {
    return [
      { keys: ["j", "ArrowDown"], help: "Next row", run: () => this.move(1) },
      { keys: ["k", "ArrowUp"], help: "Row before", run: () => this.move(-1) },
      { keys: ["Enter"], help: "Open the host", run: () => this.openActive() },
    ];
  }

  /** Keys go through the rows while the focus is in them: for a table that shares its page with others. */
  keepKeys(): void {
    this.body.addEventListener("keydown", (event) => {
      if (event.target instanceof HTMLElement && event.target.closest("a, button, input") !== null) return;
      const by = STEPS[event.key];
      if (by !== undefined) this.move(by);
      else if (event.key !== "Enter" || this.openActive() === false) return;
      event.preventDefault();
    });
  }

  /** Keys of the rows that are on the screen, from the top. */
  get inView(): string[] {
    const height = document.documentElement.clientHeight;
    return this.order.filter((key) => {
      const box = this.shown.get(key)!.node.getBoundingClientRect();
      return box.bottom >= 0 && box.top <= height;
    });
  }

  /** Takes the keyboard to the active row. */
  focus(): void {
    if (this.active !== null) this.activate(this.active, true);
  }

  private write(key: string, row: T): void {
    let item = this.shown.get(key);
    if (item === undefined) {
      const cells = this.columns.map((column, i) => (i === 0 ? h("th", { scope: "row", class: classes(column) }) : h("td", { class: classes(column) })));
      item = { node: h("tr", { "data-key": key, class: this.open === null ? "" : "opens", tabindex: -1 }, ...cells), cells, row };
      this.shown.set(key, item);
    }
    item.row = row;
    this.columns.forEach((column, i) => column.cell(item.cells[i]!, row));
  }

  private sortBy(id: string): void {
    const column = this.columns.find((item) => item.id === id)!;
    const first = column.numeric === true || column.descendingFirst === true;
    this.sorting = { column: id, descending: this.sorting.column === id ? !this.sorting.descending : first };
    this.onSort(this.sorting);
    this.update(this.rows);
  }

  private move(by: number): undefined {
    if (this.order.length === 0) return;
    const at = this.active === null ? -1 : this.order.indexOf(this.active);
    const isFocused = this.body.contains(document.activeElement);
    const next = isFocused ? Math.max(0, Math.min(this.order.length - 1, at + by)) : Math.max(0, at);
    this.activate(this.order[next]!, true);
  }

  private openActive(): boolean | undefined {
    const item = this.active === null ? undefined : this.shown.get(this.active);
    if (item === undefined || this.open === null) return false;
    this.open(item.row);
    return undefined;
  }

  private activate(key: string | null, focus: boolean): void {
    for (const [name, item] of this.shown) {
      setClass(item.node, "active", name === key);
      item.node.tabIndex = name === key ? 0 : -1;
    }
    this.active = key;
    if (focus && key !== null) this.shown.get(key)?.node.focus();
  }

  private clicked(event: MouseEvent): void {
    const target = event.target as HTMLElement;
    // Links and buttons act for themselves; who selects text does not want to leave.
    if (this.open === null || target.closest("a, button") !== null || (getSelection()?.toString() ?? "") !== "") return;
    const key = target.closest("tr")?.dataset["key"];
    const item = key === undefined ? undefined : this.shown.get(key);
    if (item !== undefined) this.open(item.row);
  }
}

function classes(column: { numeric?: boolean; minor?: boolean; id: string }): string {
  return [`c-${column.id}`, column.numeric === true ? "num" : "", column.minor === true ? "minor" : ""].filter((name) => name !== "").join(" ");
}

function compare(a: number | string, b: number | string): number {
  if (typeof a === "number" && typeof b === "number") return (Number.isNaN(a) ? -Infinity : a) - (Number.isNaN(b) ? -Infinity : b) || 0;
  return TEXTS.compare(String(a), String(b));
}
