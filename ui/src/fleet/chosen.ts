// SPDX-License-Identifier: Apache-2.0
//! Hosts that are chosen to be compared: the boxes in the table, and the bar that says how many there are and leads to the comparison.

import { MOST_HOSTS, compareAddress } from "../compare/asked";
import { h, setHidden, setText } from "../dom";
import type { Known } from "../hosts";
import type { Column } from "../table";

export class Chosen {
  private readonly names: Set<string>;
  private readonly told = h("span", { role: "status" });
  private readonly link = h("a", { class: "chip compare", title: "Draw them in the same charts (c)" }, "Compare");
  readonly element = h("div", { class: "card compare-bar", role: "region", "aria-label": "Hosts to compare" },
    this.told, this.link, h("button", { type: "button", class: "quiet", on: { click: () => this.clear() } }, "Choose none"));

  constructor(
    names: readonly string[],
    private readonly changed: () => void,
  ) {
    this.names = new Set(names.slice(0, MOST_HOSTS));
    this.show("");
  }

  get all(): string[] {
    return [...this.names];
  }

  readonly column: Column<Known> = {
    id: "choice", label: "✓", title: "Chosen to be compared (key x); sorts by that", isControl: true, descendingFirst: true, sort: (host) => Number(this.names.has(host.name)),
    cell: (node, host) => {
      const box = (node.firstElementChild as HTMLInputElement | null) ?? h("input", { type: "checkbox", tabindex: -1, on: { change: () => this.toggle(box.dataset["host"]!) } });
      if (node.firstElementChild === null) node.append(box);
      if (box.dataset["host"] !== host.name) {
        box.dataset["host"] = host.name;
        box.ariaLabel = `Compare ${host.name}`;
      }
      box.checked = this.names.has(host.name);
    },
  };

  toggle(name: string): void {
    const isFull = this.names.size >= MOST_HOSTS && !this.names.has(name);
    if (!isFull && !this.names.delete(name)) this.names.add(name);
    this.show(isFull ? `${name} is one too many: ` : "");
    this.changed();
  }

  /** Whether there is anything to compare. */
  compare(): boolean {
    if (this.names.size < 2) return false;
    location.hash = compareAddress(this.all);
    return true;
  }

  private clear(): void {
    this.names.clear();
    this.show("");
    this.changed();
  }

  private show(problem: string): void {
    const { size } = this.names;
    setHidden(this.element, size === 0);
    setText(this.told, `${problem}${size === 1 ? "1 host chosen: one more, and they can be compared" : `${size} hosts chosen${size === MOST_HOSTS ? ", as many as a chart can show" : ""}`}`);
    setHidden(this.link, size < 2);
    setText(this.link, `Compare ${size}`);
    this.link.href = compareAddress(this.all);
  }
}
