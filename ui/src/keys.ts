// SPDX-License-Identifier: Apache-2.0
//! The keyboard: pages register what keys do while they are shown; the help overlay lists just that.

import { h } from "./dom";

export interface Binding {
  /** As in KeyboardEvent.key; several mean the same. */
  keys: string[];
  /** How the help shows the keys, where not as they are. */
  shown?: string;
  help: string;
  /** May return false: the key was not for this binding. */
  run: (event: KeyboardEvent) => boolean | undefined;
}

let global: Binding[] = [];
let page: Binding[] = [];

export function setGlobal(bindings: Binding[]): void {
  global = bindings;
}

export function setPage(bindings: Binding[]): void {
  page = bindings;
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches('input:not([type="checkbox"]), textarea, select, [contenteditable]');
}

export function start(): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") !== null) return;
    // In a field letters are text; its own listeners have seen Escape and the arrows already.
    if (typing(event.target)) return;
    // A focused button keeps its own Enter and space.
    if ((event.key === " " || event.key === "Enter") && event.target instanceof HTMLElement && event.target.closest("button, a, summary, input") !== null) return;
    for (const binding of [...page, ...global]) {
      if (binding.keys.includes(event.key) && binding.run(event) !== false) {
        event.preventDefault();
        return;
      }
    }
  });
}

const NAMES: Record<string, string> = { " ": "Space", ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" };

export function showHelp(): void {
  const rows = [...page, ...global].map((binding) => {
    const names = binding.shown === undefined ? binding.keys.map((key) => NAMES[key] ?? key) : binding.shown.split(" ");
    return h("div", { class: "help-row" }, h("dt", {}, ...names.map((name) => h("kbd", {}, name))), h("dd", {}, binding.help));
  });
  const close = h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Close");
  const dialog = h(
    "dialog",
    { "aria-labelledby": "help-title", class: "help", on: { close: () => dialog.remove() } },
    h("header", {}, h("h2", { id: "help-title" }, "Keyboard"), close),
    h("dl", {}, ...rows),
  );
  document.body.append(dialog);
  dialog.showModal();
}
