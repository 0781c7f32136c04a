// SPDX-License-Identifier: Apache-2.0
//! Asks from when to when, in local time or UTC; or for the last so much, as far as the store reaches.

import { h, setText } from "./dom";
import { moment } from "./format";
import { type Limits, NARROWEST_MS, type Span } from "./view";
import { type Zone, choose, current, fromField, fullName, toField } from "./zone";

const PRESETS: readonly [string, number][] = [
  ["15 min", 900_000], ["1 h", 3_600_000], ["6 h", 21_600_000], ["24 h", 86_400_000], ["7 days", 604_800_000],
];

/** Those that the store reaches, and the first that has all of it. */
function presets({ oldest, now }: Limits): readonly [string, number][] {
  const reach = now - (oldest ?? now);
  return PRESETS.filter((_, i) => i === 0 || PRESETS[i - 1]![1] < reach);
}

export function pick(shown: Span, limits: Limits, chosen: (span: Span) => void): void {
  let zone = current();
  const field = (id: string, ms: number): HTMLInputElement => h("input", { type: "datetime-local", id, step: "0.001", required: true, value: toField(ms, zone) });
  const from = field("pick-from", shown.from);
  const to = field("pick-to", shown.to);
  const problem = h("p", { class: "problem", role: "alert" });
  const select = h("select", { id: "pick-zone" }, ...(["local", "utc"] as Zone[]).map((name) => h("option", { value: name, selected: name === zone }, fullName(limits.now, name))));
  select.addEventListener("change", () => {
    const next = select.value as Zone;
    // The same moments, told otherwise.
    for (const input of [from, to]) {
      const ms = fromField(input.value, zone);
      if (!Number.isNaN(ms)) input.value = toField(ms, next);
    }
    zone = next;
  });
  const done = (span: Span): void => {
    dialog.close();
    if (zone !== current()) choose(zone);
    chosen(span);
  };
  const submit = (): void => {
    const span = { from: fromField(from.value, zone), to: fromField(to.value, zone) };
    if (!(span.to - span.from >= NARROWEST_MS)) setText(problem, "“To” must be later than “from”.");
    else if (limits.oldest !== null && span.to <= limits.oldest) setText(problem, `The store begins at ${moment(limits.oldest, limits.now)}.`);
    else if (span.from >= limits.now) setText(problem, "This is yet to come.");
    else done(span);
  };
  const close = h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Close");
  const dialog = h(
    "dialog",
    { class: "help picker", "aria-labelledby": "pick-title", on: { close: () => dialog.remove() } },
    h("header", {}, h("h2", { id: "pick-title" }, "Time shown"), close),
    h("div", { class: "chips", role: "group", "aria-label": "The last" }, h("span", { class: "dim" }, "The last"), ...presets(limits).map(([label, ms]) => h("button", { type: "button", class: "chip", on: { click: () => done({ from: limits.now - ms, to: limits.now }) } }, label))),
    h(
      "form",
      { on: { submit: (event) => { event.preventDefault(); submit(); } } },
      h("label", { for: "pick-from" }, "From"), from,
      h("label", { for: "pick-to" }, "To"), to,
      h("label", { for: "pick-zone" }, "Zone"), select,
      problem,
      h("button", { type: "submit" }, "Show"),
    ),
    limits.oldest === null ? null : h("p", { class: "dim" }, `The store has values since ${moment(limits.oldest, limits.now)}.`),
  );
  document.body.append(dialog);
  dialog.showModal();
}
