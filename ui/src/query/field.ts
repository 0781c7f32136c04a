// SPDX-License-Identifier: Apache-2.0
//! The field for a query: as tall as its text, with a list of what may be typed, and a mark where an error is.

import { h, setHidden, setText } from "../dom";
import { type Option, accepted, expressions, options } from "./complete";
import type { Known } from "./known";
import { type Fault } from "./place";
import { type Place, placeAt } from "./typed";

const DEBOUNCE_MS = 80;

export class QueryField {
  readonly element: HTMLElement;
  private readonly field: HTMLTextAreaElement;
  /** The same text below the field, for its height and for the mark. */
  private readonly mirror = h("div", { class: "query-mirror", "aria-hidden": "true" });
  private readonly list = h("ul", { id: "query-options", role: "listbox", "aria-label": "What may stand here", hidden: true });
  private readonly problem = h("p", { id: "query-problem", class: "problem query-problem", role: "alert", hidden: true });
  private readonly status = h("p", { class: "hidden", role: "status" });
  private place: Place = { kind: "nothing" };
  private found: Option[] = [];
  private nodes: HTMLElement[] = [];
  /** -1: nothing is chosen yet, so Enter runs the query. */
  private active = -1;
  private timer: number | undefined;
  private turn = 0;

  constructor(
    private readonly known: Known,
    private readonly run: () => void,
    placeholder = "PromQL, such as rate(node_cpu_seconds_total[1m])",
  ) {
    this.field = h("textarea", {
      id: "query", rows: 1, spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder,
      "aria-label": "PromQL query", "aria-autocomplete": "list", "aria-haspopup": "listbox", "aria-controls": "query-options",
      on: {
        input: () => this.typed(),
        focus: () => void this.known.readMetrics().catch(() => undefined),
        keydown: (event) => this.key(event),
        blur: () => setTimeout(() => this.close(), 150),
        // The list is for the place at which it was opened.
        click: () => this.close(),
      },
    });
    this.element = h("div", { class: "query-field" }, h("div", { class: "query-text" }, this.mirror, this.field), this.list, this.problem, this.status);
    this.showFault(null, null);
  }

  get value(): string {
    return this.field.value;
  }

  set value(text: string) {
    this.field.value = text;
    this.close();
    this.showFault(null, null);
  }

  focus(): void {
    this.field.focus();
    this.field.setSelectionRange(this.field.value.length, this.field.value.length);
  }

  destroy(): void {
    clearTimeout(this.timer);
  }

  /** `message`: all that is known where the error has no place. */
  showFault(fault: Fault | null, message: string | null): void {
    const text = this.field.value;
    const { from, to } = fault?.mark ?? { from: text.length, to: text.length };
    // What is behind the text is marked as a space.
    const marked = fault === null ? null : h("mark", {}, text.slice(from, to) || " ");
    // A line that is empty has no height of its own.
    this.mirror.replaceChildren(text.slice(0, from), marked ?? "", text.slice(to), "\u200b");
    setHidden(this.problem, message === null && fault === null);
    setText(this.problem, fault !== null ? `Line ${fault.line}, column ${fault.column}: ${fault.text}` : (message ?? ""));
    const isBad = message !== null || fault !== null;
    this.field.setAttribute("aria-invalid", String(isBad));
    if (isBad) this.field.setAttribute("aria-errormessage", "query-problem");
    else this.field.removeAttribute("aria-errormessage");
  }

  private typed(): void {
    this.showFault(null, null);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.complete(false), DEBOUNCE_MS);
  }

  /** `asked`: also where nothing has been typed yet. */
  private async complete(asked: boolean): Promise<void> {
    const place = placeAt(this.field.value, this.field.selectionStart);
    const turn = ++this.turn;
    if (place.kind === "nothing" || (place.kind === "expression" && place.word === "" && !asked)) {
      this.close();
      return;
    }
    try {
      const found = place.kind === "expression" ? expressions(place.word, [...(await this.known.readMetrics()).values()]) : options(place, await this.known.names(place));
      if (turn !== this.turn || document.activeElement !== this.field) return;
      // What is typed in full already needs no list.
      if (found.length === 0 || (found.length === 1 && found[0]!.shown === place.word && !asked)) this.close();
      else this.open(place, found);
    } catch {
      // Who cannot be told what there is can type it all the same; the query's own error says what is the matter.
      this.close();
    }
  }

  private open(place: Place, found: Option[]): void {
    this.place = place;
    this.found = found;
    this.nodes = found.map((option, at) =>
      h(
        "li", { role: "option", id: `query-option-${at}`, "aria-selected": "false", title: option.help, on: { mousedown: (event) => { event.preventDefault(); this.accept(at); } } },
        h("span", { class: "series-name" }, option.shown), h("span", { class: "dim option-detail" }, option.detail), h("span", { class: "dim option-help" }, option.help),
      ),
    );
    this.list.replaceChildren(...this.nodes, h("li", { class: "note", role: "presentation" }, h("kbd", {}, "Tab"), " takes the first, ", h("kbd", {}, "↓"), " another, ", h("kbd", {}, "Enter"), " runs the query"));
    this.list.scrollTop = 0;
    setHidden(this.list, false);
    this.activate(-1);
    setText(this.status, `${found.length} possible: Tab takes ${found[0]!.shown}`);
  }

  private close(): void {
    clearTimeout(this.timer);
    this.turn++;
    this.found = [];
    setHidden(this.list, true);
    this.field.removeAttribute("aria-activedescendant");
  }

  private activate(at: number): void {
    this.active = at;
    this.nodes.forEach((node, i) => node.setAttribute("aria-selected", String(i === at)));
    const node = this.nodes[at];
    if (node === undefined) {
      this.field.removeAttribute("aria-activedescendant");
      return;
    }
    this.field.setAttribute("aria-activedescendant", node.id);
    node.scrollIntoView({ block: "nearest" });
  }

  private accept(at: number): void {
    const option = this.found[at];
    if (option === undefined || this.place.kind === "nothing") return;
    const { text, caret } = accepted(this.field.value, this.place, option);
    this.field.value = text;
    this.field.setSelectionRange(caret, caret);
    this.close();
    this.showFault(null, null);
    // A label leads on to its values.
    if (this.place.kind === "label" && option.then !== "") void this.complete(true);
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    const isOpen = this.found.length > 0;
    if (event.key === "Enter" && !event.shiftKey) {
      if (isOpen && this.active >= 0 && !event.ctrlKey && !event.metaKey) this.accept(this.active);
      else {
        this.close();
        this.run();
      }
    } else if (event.key === " " && event.ctrlKey) void this.complete(true);
    else if (event.key === "Escape") {
      if (isOpen) this.close();
      else this.field.blur();
    } else if (!isOpen) return;
    else if (event.key === "ArrowDown") this.activate((this.active + 1) % this.found.length);
    else if (event.key === "ArrowUp") this.activate((this.active <= 0 ? this.found.length : this.active) - 1);
    else if (event.key === "Tab" && !event.shiftKey) this.accept(Math.max(0, this.active));
    else {
      // The cursor leaves the place.
      if (["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) this.close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
