// SPDX-License-Identifier: Apache-2.0
//! A board's variables: what each is, chosen or typed; the address has those that are not as the board says.

import { h } from "../dom";
import { labelValues } from "../promql";
import { ALL, type Variable } from "./dashboard";
import { type Values, filled, labelQuery, narrowed, told, typed } from "./variables";

/** A browser's list of more is of no use. */
const MAX_OPTIONS = 1000;

export class VariableBar {
  readonly element = h("div", { class: "variables", role: "group", "aria-label": "Variables" });
  private variables: Variable[] = [];
  private chosen = new Map<string, readonly string[]>();
  private readonly abort = new AbortController();
  private shown = "";

  constructor(private readonly changed: () => void) {}

  get all(): readonly Variable[] {
    return this.variables;
  }

  get values(): Values {
    return this.chosen;
  }

  /** Takes the variables of a version of the board; what was chosen stays. */
  put(variables: readonly Variable[], parameters: URLSearchParams): void {
    const stamp = JSON.stringify(variables);
    if (stamp === this.shown) return;
    this.shown = stamp;
    this.variables = variables.map((variable) => ({ ...variable }));
    this.element.hidden = variables.every(({ isHidden }) => isHidden);
    this.element.replaceChildren(...this.variables.filter(({ isHidden }) => !isHidden).map((variable) => this.control(variable)));
    this.follow(parameters);
    void this.ask(() => true);
  }

  /** What an address says. */
  follow(parameters: URLSearchParams): void {
    for (const { name } of this.variables) {
      const given = parameters.getAll(`var-${name}`).filter((value) => value !== "");
      if (given.length > 0) this.chosen.set(name, given.map((value) => (value === "All" ? ALL : value)));
      else this.chosen.delete(name);
    }
    this.write();
  }

  /** For the address. */
  parameters(): [string, string][] {
    return [...this.chosen].flatMap(([name, values]) => values.map((value): [string, string] => [`var-${name}`, value === ALL ? "All" : value]));
  }

  destroy(): void {
    this.abort.abort();
  }

  private valueOf(variable: Variable): readonly string[] {
    return this.chosen.get(variable.name) ?? variable.current;
  }

  private control(variable: Variable): HTMLElement {
    const id = `variable-${variable.name}`;
    const label = h("label", { for: id }, variable.label);
    if (!variable.isMulti && (variable.kind === "custom" || variable.kind === "interval" || variable.kind === "values")) {
      const select = h("select", { id, "data-name": variable.name, on: { change: () => this.choose(variable, [select.value]) } });
      return h("span", { class: "variable" }, label, select);
    }
    const list = h("datalist", { id: `${id}-list` });
    const field = h("input", {
      id, type: "text", list: list.id, autocomplete: "off", spellcheck: "false", "data-name": variable.name, title: variable.isMulti ? "A value, several with commas between, or a regular expression such as web-.*; All for all" : "",
      on: {
        // The browser's list has what fits the text: so the text gives way to it.
        focus: () => { field.value = ""; void this.ask((item) => item === variable); },
        blur: () => this.write(),
        change: () => {
          if (field.value.trim() !== "" || !variable.isMulti) this.choose(variable, variable.isMulti ? typed(field.value, variable.hasAll) : [field.value]);
          field.blur();
        },
        keydown: (event) => {
          if (event.key === "Escape") field.blur();
        },
      },
    });
    return h("span", { class: "variable" }, label, field, list);
  }

  private choose(variable: Variable, values: readonly string[]): void {
    this.chosen.set(variable.name, values);
    this.write();
    this.changed();
    void this.ask(({ query }) => query.includes(`$${variable.name}`) || query.includes(`\${${variable.name}`));
  }

  /** Into the controls, but for the one that is being typed into. */
  private write(): void {
    for (const variable of this.variables) {
      const node = this.element.querySelector<HTMLInputElement | HTMLSelectElement>(`[data-name="${CSS.escape(variable.name)}"]`);
      if (node === null) continue;
      const value = this.valueOf(variable);
      const options = [...(variable.hasAll ? [{ value: "All", text: "All" }] : []), ...variable.options].slice(0, MAX_OPTIONS);
      if (node instanceof HTMLSelectElement) {
        const shown = options.some((option) => option.value === value[0]) ? options : [...value.map((text) => ({ value: text, text })), ...options];
        node.replaceChildren(...shown.map((option) => h("option", { value: option.value, selected: option.value === value[0] }, option.text)));
      } else {
        node.list?.replaceChildren(...options.map((option) => h("option", { value: option.value }, option.text === option.value ? "" : option.text)));
        node.placeholder = told(value);
        if (document.activeElement !== node) node.value = told(value);
      }
    }
  }

  /** Fills those that label_values fills. Who cannot be told what there is can type it all the same. */
  private async ask(which: (variable: Variable) => boolean): Promise<void> {
    const { signal } = this.abort;
    await Promise.all(this.variables.filter((variable) => variable.kind === "values" && which(variable)).map(async (variable) => {
      const found = labelQuery(filled(variable.query, this.variables, this.chosen, null));
      if (found === null) return;
      const values = await labelValues(found.label, found.selector === "" ? [] : [found.selector], signal).catch(() => null);
      if (values === null || signal.aborted) return;
      variable.options = narrowed(values, variable.regex).map((value) => ({ value, text: value }));
      // One that has no value yet takes the first, as in Grafana.
      const isUnset = !this.chosen.has(variable.name) && variable.current.every((value) => value === "");
      if (isUnset && variable.options.length > 0) {
        variable.current = [variable.options[0]!.value];
        this.changed();
      }
    }));
    if (!signal.aborted) this.write();
  }
}
