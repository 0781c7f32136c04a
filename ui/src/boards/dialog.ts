// SPDX-License-Identifier: Apache-2.0
//! A form in a dialog: it closes once what was asked for is done, and says why where it is not.

import { h, setHidden, setText } from "../dom";
import { sentence } from "../format";

export interface Field {
  name: string;
  label: string;
  value?: string;
  /** `lines`: as many as are needed. */
  kind?: "text" | "lines" | "code" | "select" | "file";
  options?: { value: string; text: string }[];
  hint?: string;
  isOptional?: boolean;
}

export type Answers = Readonly<Record<string, string>>;

type Control = HTMLInputElement | HTMLTextAreaElement | HTMLSelectElement;

function control({ name, value = "", kind = "text", options = [], isOptional }: Field): Control {
  const common = { id: `field-${name}`, name, required: isOptional !== true };
  if (kind === "select") return h("select", common, ...options.map((option) => h("option", { value: option.value, selected: option.value === value }, option.text)));
  if (kind === "file") return h("input", { ...common, type: "file", accept: ".json,application/json" });
  if (kind === "text") return h("input", { ...common, type: "text", value, autocomplete: "off" });
  const area = h("textarea", { ...common, rows: kind === "code" ? 3 : 6, spellcheck: "false", class: kind === "code" ? "code" : "" });
  area.value = value;
  return area;
}

/** `changed` is told of every change, with all controls by name. */
export function ask(title: string, fields: readonly Field[], verb: string, done: (answers: Answers) => Promise<void> | void, changed: (controls: ReadonlyMap<string, Control>) => void = () => undefined): void {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const controls = new Map(fields.map((field) => [field.name, control(field)]));
  const submit = h("button", { type: "submit" }, verb);
  const close = h("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Close");
  const run = async (): Promise<void> => {
    submit.disabled = true;
    setHidden(problem, true);
    try {
      await done(Object.fromEntries([...controls].map(([name, node]) => [name, node.value])));
      dialog.close();
    } catch (error) {
      setHidden(problem, false);
      setText(problem, sentence(error instanceof Error ? error.message : String(error)));
    }
    submit.disabled = false;
  };
  const form = h(
    "form", { on: { submit: (event) => { event.preventDefault(); void run(); }, input: () => { setHidden(problem, true); changed(controls); }, change: () => changed(controls) } },
    ...fields.flatMap(({ name, label, hint }) => {
      const node = controls.get(name)!;
      if (hint !== undefined) node.setAttribute("aria-describedby", `hint-${name}`);
      return [h("label", { for: node.id }, label), h("div", {}, node, hint === undefined ? null : h("p", { class: "dim", id: `hint-${name}` }, hint))];
    }),
    problem, submit,
  );
  const dialog = h("dialog", { class: "help ask", "aria-labelledby": "ask-title", on: { close: () => dialog.remove() } }, h("header", {}, h("h2", { id: "ask-title" }, title), close), form);
  document.body.append(dialog);
  dialog.showModal();
  changed(controls);
  const [first] = controls.values();
  first?.focus();
}
