// SPDX-License-Identifier: Apache-2.0
//! Elements without a framework: build once, then change only what differs.

type Child = Node | string | null;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** Attributes as in HTML; `on` holds listeners. `true` sets an attribute, `false` and null leave it out. Never `style`: the CSP forbids it. */
export interface Attributes {
  [name: string]: string | number | boolean | null | Handlers | undefined;
  on?: Handlers;
}

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const node = document.createElement(tag);
  set(node, attributes);
  node.append(...children.filter((child) => child !== null));
  return node;
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Node[]): SVGElement {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(node, attributes);
  node.append(...children);
  return node;
}

function set(node: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "object" && value !== null) {
      for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler as EventListener);
    } else if (value !== false && value !== null && value !== undefined) {
      node.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

/** Writes text only when it differs: a page that changes ten times a second must not lay out what stays. */
export function setText(node: Element, shown: string): void {
  if (node.textContent !== shown) node.textContent = shown;
}

export function setTitle(node: HTMLElement, shown: string): void {
  if (node.title !== shown) node.title = shown;
}

export function setClass(node: Element, name: string, on: boolean): void {
  if (node.classList.contains(name) !== on) node.classList.toggle(name, on);
}

export function setHidden(node: HTMLElement, hidden: boolean): void {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** A table with nothing in it that could get the focus, which scrolls sideways where it must: by keyboard, too. */
export function scrolling(label: string, table: HTMLElement): HTMLElement {
  return h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

/** A box that says what is the case and what to do. */
export function notice(kind: "empty" | "error" | "loading", title: string, ...more: Child[]): HTMLElement {
  return h("div", { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status" }, h("h2", {}, title), ...more);
}
