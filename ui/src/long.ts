// SPDX-License-Identifier: Apache-2.0
//! What a long table needs, of which only the rows near the screen are laid out: the page's scrolling, spacers, columns that keep their widths.

import { h } from "./dom";
import { shared } from "./rows";

/** By their elements, so that a table that is gone costs nothing. */
const followers = new WeakMap<Element, (isResized: boolean) => void>();
let isFollowing = false;

/** Tells of the page's scrolling and of its size while `element` has the class `long`. */
export function follow(element: Element, moved: (isResized: boolean) => void): void {
  followers.set(element, moved);
  if (isFollowing) return;
  isFollowing = true;
  // The browser tells it just before it draws: rows that come into view are in the same frame.
  const tell = (isResized: boolean) => (): void => { for (const one of [...document.getElementsByClassName("long")]) followers.get(one)?.(isResized); };
  addEventListener("scroll", tell(false), { passive: true });
  addEventListener("resize", tell(true), { passive: true });
}

/** As high as the rows that it stands for; nothing where there are none. */
export class Spacer {
  readonly element = h("tbody", { "aria-hidden": "true" });
  private readonly cell = h("td", { class: "spacer" });
  private readonly row = h("tr", {}, this.cell);

  set(px: number): void {
    if (px <= 0) this.row.remove();
    else {
      if (this.row.parentNode === null) this.element.append(this.row);
      this.cell.style.height = `${px}px`;
    }
  }
}

/** A column that needs more than this gives way where there is no room for all. */
const LEAST_PX = 120;

/** Columns keep their widths while rows come and go: as wide as the widest cell so far, where there is room for that. */
export class ColumnWidths {
  private widest: number[] = [];
  private room = 0;
  private cut: ReadonlySet<number> = new Set();
  isFixed = false;

  constructor(
    private readonly table: HTMLTableElement,
    private readonly heads: HTMLElement[],
  ) {}

  /** The browser decides, and what was known is forgotten. */
  free(): void {
    this.widest = [];
    if (this.isFixed) this.loosen();
  }

  fit(roomPx: number): void {
    if (this.isFixed && roomPx === this.room && !this.isTight()) return;
    this.loosen();
    this.table.style.width = "max-content";
    const now = this.heads.map((head) => head.getBoundingClientRect().width);
    this.widest = now.map((width, i) => Math.max(width, this.widest[i] ?? 0));
    const widths = shared(this.widest, roomPx, LEAST_PX);
    this.cut = new Set(widths.flatMap((width, i) => (width < this.widest[i]! ? [i] : [])));
    this.heads.forEach((head, i) => (head.style.width = `${widths[i]!}px`));
    const total = widths.reduce((sum, width) => sum + width, 0);
    this.table.style.width = `${total}px`;
    this.table.classList.add("fixed");
    this.room = roomPx;
    this.isFixed = true;
    // Where nothing scrolls sideways the headings can stay in sight.
    this.table.parentElement!.classList.toggle("fits", total <= roomPx + 0.5);
  }

  /** Whether a cell has no room in a column that could be wider. */
  private isTight(): boolean {
    return [...this.table.rows].some((row) => row.cells.length === this.heads.length && [...row.cells].some((cell, i) => !this.cut.has(i) && cell.scrollWidth > cell.clientWidth));
  }

  private loosen(): void {
    this.table.classList.remove("fixed");
    this.table.style.width = "";
    for (const head of this.heads) head.style.width = "";
    this.isFixed = false;
  }
}
