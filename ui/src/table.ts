// SPDX-License-Identifier: Apache-2.0
//! A sortable table whose rows stay the same elements while their values change; arrows, j, k and Enter go through it.
//!
//! Of a long table only the rows near the screen are elements, and those that leave become those that come. Spacers stand for the others, and
//! `aria-rowcount` and `aria-rowindex` say what is not there. All rows of a long table are equally high.

import { h, setClass } from "./dom";
import type { Binding } from "./keys";
import { MOST_WHOLE, type Part, TextOrder, partInView, sorted } from "./rows";
import { ColumnWidths, Spacer, follow } from "./long";

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
  /** Holds something to press: it does not name the row. */
  isControl?: true;
  sort: (row: T) => number | string;
  /** Writes the cell, which may have been another row's; called each time the rows come. */
  cell: (node: HTMLElement, row: T) => void;
}

export interface Sorting {
  column: string;
  descending: boolean;
}

/** Steps of the keys that go through rows. */
const STEPS: Record<string, number> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };
/** Until rows have been measured. */
const ROW_PX = 35;
/** Columns get their widths once scrolling rests. */
const REST_MS = 150;

interface Shown<T> {
  node: HTMLTableRowElement;
  cells: HTMLElement[];
  row: T;
}

export class Table<T> {
  readonly element: HTMLElement;
  private readonly table: HTMLTableElement;
  private readonly head: HTMLTableSectionElement;
  private readonly body = h("tbody");
  private readonly above = new Spacer();
  private readonly below = new Spacer();
  private readonly heads = new Map<string, HTMLElement>();
  private readonly scroll: HTMLElement;
  private readonly shown = new Map<string, Shown<T>>();
  private readonly orders = new Map<string, TextOrder>();
  private readonly widths: ColumnWidths;
  /** Keys of all rows, from the top. */
  order: readonly string[] = [];
  private rows: T[] = [];
  /** As `order`. */
  private sorted: T[] = [];
  private places = new Map<string, number>();
  /** Of the rows of the last update: the next order is most often almost the same. */
  private sortedPlaces: number[] = [];
  /** What is laid out. */
  private part: Part = { from: 0, to: 0 };
  /** The first of these that is whole on the screen. */
  private firstSeen = 0;
  private rowPx = ROW_PX;
  private active: string | null = null;
  private resting: number | undefined;

  constructor(
    caption: string,
    private readonly columns: Column<T>[],
    private readonly key: (row: T) => string,
    /** Null: there is nothing to open. */
    private readonly open: ((row: T) => void) | null,
    private readonly rank: (row: T) => number,
    public sorting: Sorting,
    private readonly onSort: (sorting: Sorting) => void,
  ) {
    const heads = columns.map((column) => {
      const button = h("button", { type: "button", title: column.title ?? null, on: { click: () => this.sortBy(column.id) } }, column.label);
      const head = h("th", { scope: "col", class: classes(column) }, button);
      this.heads.set(column.id, head);
      return head;
    });
    this.head = h("thead", {}, h("tr", { "aria-rowindex": 1 }, ...heads));
    this.table = h("table", {}, h("caption", { class: "hidden" }, caption), this.head, this.above.element, this.body, this.below.element);
    this.scroll = h("div", { class: "table-scroll", tabindex: -1 }, this.table);
    this.element = h("div", {}, this.scroll);
    this.widths = new ColumnWidths(this.table, heads);
    follow(this.scroll, (isResized) => this.moved(isResized));
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("focusin", (event) => {
      const row = (event.target as HTMLElement).closest("tr");
      if (row !== null) this.activate(row.dataset["key"]!, false);
    });
  }

  update(rows: T[]): void {
    this.rows = rows;
    const column = this.columns.find((item) => item.id === this.sorting.column) ?? this.columns[0]!;
    for (const [id, head] of this.heads) head.setAttribute("aria-sort", id !== column.id ? "none" : this.sorting.descending ? "descending" : "ascending");
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    const keys = rows.map((row) => this.key(row));
    const lists = [this.numbers(column.id, rows.map((row) => column.sort(row))), Float64Array.from(rows, (row) => this.rank(row)), this.orderOf("").of(keys)];
    const places = (this.sortedPlaces = sorted(lists, [this.sorting.descending ? -1 : 1, 1, 1], this.sortedPlaces));
    this.sorted = places.map((at) => rows[at]!);
    const order = places.map((at) => keys[at]!);
    if (order.length !== this.order.length || order.some((key, i) => key !== this.order[i])) {
      this.order = order;
      this.places = new Map(order.map((key, i) => [key, i]));
    }
    if (this.active === null || !this.places.has(this.active)) this.active = order[0] ?? null;
    setClass(this.scroll, "long", this.isLong);
    this.layOut(true);
    if (!this.isLong) this.widths.free();
    else if (this.widths.isFixed) this.rest();
    else this.measure();
  }

  /** Writes the cells again, of one column or of all: for what changes by time alone. */
  refresh(id?: string): void {
    this.columns.forEach((column, i) => {
      if (id === undefined || column.id === id) for (const { cells, row } of this.shown.values()) column.cell(cells[i]!, row);
    });
  }

  get bindings(): Binding[] {
    const far = (to: () => number): boolean | undefined => (this.hasFocus ? this.moveTo(to()) : false);
    const screen = (): number => Math.max(1, this.inView.length - 2);
    return [
      { keys: ["j", "ArrowDown"], help: "Next row", run: () => this.move(1) },
      { keys: ["k", "ArrowUp"], help: "Row before", run: () => this.move(-1) },
      { keys: ["Home", "End"], help: "In the table: first row, last row", run: ({ key }) => far(() => (key === "Home" ? 0 : this.order.length - 1)) },
      { keys: ["PageUp", "PageDown"], help: "In the table: a screen up, a screen down", run: ({ key }) => far(() => this.at + (key === "PageUp" ? -screen() : screen())) },
      { keys: ["Enter"], help: "Open the host", run: () => this.openActive() },
    ];
  }

  /** Keys go through the rows while the focus is in them: for a table that shares its page with others. */
  keepKeys(): void {
    this.scroll.addEventListener("keydown", (event) => {
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
    if (this.isLong) {
      const top = this.bodyTop;
      return this.order.slice(Math.max(0, Math.floor(-top / this.rowPx)), Math.max(0, Math.ceil((height - top) / this.rowPx)));
    }
    return this.order.filter((key) => {
      const box = this.shown.get(key)?.node.getBoundingClientRect();
      return box !== undefined && box.bottom >= 0 && box.top <= height;
    });
  }

  /** The row that keys act on. */
  get activeRow(): T | null {
    return this.sorted[this.at] ?? null;
  }

  /** Takes the keyboard to the active row. */
  focus(): void {
    if (this.active !== null) this.moveTo(this.at);
  }

  // --- what is laid out -------------------------------------------------------------------------------------------------------------------

  private get isLong(): boolean {
    return this.order.length > MOST_WHOLE;
  }

  /** The rows near the screen; `writes` also those that are there already. */
  private layOut(writes: boolean): void {
    const { order, isLong } = this;
    // Read before anything is written: later the browser would have to lay out the page for it.
    const top = isLong ? this.bodyTop : 0;
    const part = partInView(order.length, this.rowPx, top, document.documentElement.clientHeight);
    if (!writes && part.from === this.part.from && part.to === this.part.to) return;
    this.part = part;
    this.firstSeen = Math.max(part.from, Math.min(part.to - 1, Math.ceil(-top / this.rowPx)));
    const wanted = order.slice(part.from, part.to);
    const known = new Set(wanted);
    const focused = document.activeElement;
    const held = focused instanceof HTMLElement && this.body.contains(focused) ? focused : null;
    const spare: Shown<T>[] = [];
    for (const [key, item] of this.shown) {
      if (known.has(key)) continue;
      this.shown.delete(key);
      // Off the table before others are put in their places: where they stood, rows that stay would all be moved past them.
      item.node.remove();
      // The one with the focus is not used again, lest another row gets it.
      if (isLong && !item.node.contains(held)) spare.push(item);
    }
    let next = this.body.firstElementChild;
    wanted.forEach((key, i) => {
      const row = this.sorted[part.from + i]!;
      const old = this.shown.get(key);
      const item = old ?? this.take(key, row, spare.pop());
      item.row = row;
      if (writes || old === undefined) this.columns.forEach((column, c) => column.cell(item.cells[c]!, row));
      const index = String(part.from + i + 2);
      if (item.node.ariaRowIndex !== index) item.node.ariaRowIndex = index;
      if (item.node === next) next = next.nextElementSibling;
      else this.body.insertBefore(item.node, next);
    });
    this.above.set(part.from * this.rowPx);
    this.below.set((order.length - part.to) * this.rowPx);
    this.showActive();
    if (held !== null && !this.body.contains(held)) this.scroll.focus({ preventScroll: true });
    else if (held !== null && document.activeElement !== held) held.focus({ preventScroll: true });
    // The row that had the focus is back.
    else if (focused === this.scroll && this.active !== null) this.shown.get(this.active)?.node.focus({ preventScroll: true });
  }

  /** Of the screen; negative where it is above. */
  private get bodyTop(): number {
    return this.table.getBoundingClientRect().top + this.head.offsetHeight;
  }

  /** The elements of a row: those of one that is gone, where there is one. */
  private take(key: string, row: T, spare: Shown<T> | undefined): Shown<T> {
    const item = spare ?? this.make(row);
    item.node.dataset["key"] = key;
    this.shown.set(key, item);
    return item;
  }

  private make(row: T): Shown<T> {
    const naming = this.columns.findIndex(({ isControl }) => isControl !== true);
    const cells = this.columns.map((column, i) => (i === naming ? h("th", { scope: "row", class: classes(column) }) : h("td", { class: classes(column) })));
    return { node: h("tr", { class: this.open === null ? "" : "opens", tabindex: -1 }, ...cells), cells, row };
  }

  private moved(isResized: boolean): void {
    if (!this.element.isConnected) return;
    if (isResized) this.widths.free();
    this.layOut(false);
    this.rest();
  }

  private rest(): void {
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.measure(), REST_MS);
  }

  /** How wide columns and how high rows are. */
  private measure(): void {
    if (!this.isLong || this.scroll.clientWidth === 0) return;
    this.widths.fit(this.scroll.clientWidth);
    const rowPx = this.body.getBoundingClientRect().height / Math.max(1, this.part.to - this.part.from);
    if (rowPx === 0 || Math.abs(rowPx - this.rowPx) < 0.01) return;
    this.rowPx = rowPx;
    this.layOut(true);
  }

  // --- order ------------------------------------------------------------------------------------------------------------------------------

  private orderOf(id: string): TextOrder {
    const order = this.orders.get(id) ?? new TextOrder();
    this.orders.set(id, order);
    return order;
  }

  private numbers(id: string, values: readonly (number | string)[]): Float64Array {
    return values.some((value) => typeof value === "string") ? this.orderOf(id).of(values.map(String)) : Float64Array.from(values as number[]);
  }

  private sortBy(id: string): void {
    const column = this.columns.find((item) => item.id === id)!;
    const first = column.numeric === true || column.descendingFirst === true;
    this.sorting = { column: id, descending: this.sorting.column === id ? !this.sorting.descending : first };
    this.onSort(this.sorting);
    this.update(this.rows);
  }

  // --- the keyboard -----------------------------------------------------------------------------------------------------------------------

  /** Also of a row that has been scrolled away. */
  private get hasFocus(): boolean {
    return this.body.contains(document.activeElement) || document.activeElement === this.scroll;
  }

  private get at(): number {
    return this.active === null ? -1 : (this.places.get(this.active) ?? -1);
  }

  private move(by: number): undefined {
    this.moveTo(this.hasFocus ? this.at + by : Math.max(0, this.at));
  }

  private moveTo(place: number): undefined {
    if (this.order.length === 0) return;
    const at = Math.max(0, Math.min(this.order.length - 1, place));
    if (at < this.part.from || at >= this.part.to) this.scrollTo(at);
    this.activate(this.order[at]!, true);
  }

  /** Brings a row onto the screen that is not laid out. */
  private scrollTo(at: number): void {
    const height = document.documentElement.clientHeight;
    window.scrollBy({ top: this.bodyTop + at * this.rowPx - height / 2, behavior: "instant" });
    this.layOut(false);
  }

  private openActive(): boolean | undefined {
    const { activeRow } = this;
    if (activeRow === null || this.open === null) return false;
    this.open(activeRow);
    return undefined;
  }

  private activate(key: string, focus: boolean): void {
    this.active = key;
    this.showActive();
    if (focus) this.shown.get(key)?.node.focus();
  }

  /** Tab reaches the active row, or the first on the screen where that is elsewhere. */
  private showActive(): void {
    const stop = this.active !== null && this.shown.has(this.active) ? this.active : (this.order[this.firstSeen] ?? null);
    for (const [name, { node }] of this.shown) {
      setClass(node, "active", name === this.active);
      const tabIndex = name === stop ? 0 : -1;
      if (node.tabIndex !== tabIndex) node.tabIndex = tabIndex;
    }
  }

  private clicked(event: MouseEvent): void {
    const target = event.target as HTMLElement;
    // Links and controls act for themselves; who selects text does not want to leave.
    if (this.open === null || target.closest("a, button, input, label") !== null || (getSelection()?.toString() ?? "") !== "") return;
    const key = target.closest("tr")?.dataset["key"];
    const item = key === undefined ? undefined : this.shown.get(key);
    if (item !== undefined) this.open(item.row);
  }
}

function classes(column: { numeric?: boolean; minor?: boolean; id: string }): string {
  return [`c-${column.id}`, column.numeric === true ? "num" : "", column.minor === true ? "minor" : ""].filter((name) => name !== "").join(" ");
}
