// SPDX-License-Identifier: Apache-2.0
//! What every page is, and what pages have in common.

import { login } from "../api";
import { h, notice, setHidden, setText } from "../dom";
import { sentence } from "../format";
import type { Binding } from "../keys";
import { ApiError } from "../request";
import type { Choices } from "../search/dialog";

export interface Page {
  title: string;
  element: HTMLElement;
  bindings: Binding[];
  /** Once the element is in the document. */
  shown?: () => void;
  /** Other parameters of the same page, as by the browser's back; false: the page must be made anew. */
  follow?: (parameters: URLSearchParams) => boolean;
  /** What it does with what a search finds; null while it can do nothing. */
  choices?: () => Choices | null;
  destroy: () => void;
}

/** What went wrong, in place of a page or above one that shows what it knew before. */
export class Trouble {
  readonly banner = new Banner();
  private readonly again = h("button", { type: "button", on: { click: () => this.retry() } }, "Try again now");
  private readonly reason = h("p");
  private readonly box = notice("error", "This cannot be shown", this.reason, h("p", {}, "It is tried again automatically."), this.again);

  /** `content` is hidden and `message` filled where the page cannot be shown at all. */
  constructor(
    private readonly content: HTMLElement,
    private readonly message: HTMLElement,
    private readonly retry: () => void,
  ) {}

  /** `stale`: what to say of the data that is still shown, null without any. Gives whether asking again can help. */
  show(error: Error, stale: string | null): boolean {
    if (error instanceof ApiError && error.status === 401) {
      setHidden(this.content, true);
      this.banner.show(null);
      this.message.replaceChildren(tokenForm());
      return false;
    }
    if (stale !== null) this.banner.show(`${sentence(error.message)} ${stale}`);
    else {
      setText(this.reason, sentence(error.message));
      // Replaced only once: a button that is new each second cannot be clicked.
      if (this.box.parentElement !== this.message) this.message.replaceChildren(this.box);
    }
    return true;
  }
}

function tokenForm(): HTMLElement {
  const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "current-password", required: true });
  const problem = h("p", { role: "alert", class: "problem" });
  const submit = async (): Promise<void> => {
    try {
      await login(field.value);
      location.reload();
    } catch (error) {
      setText(problem, error instanceof Error ? error.message : String(error));
    }
  };
  const form = h(
    "form",
    { class: "token", on: { submit: (event) => { event.preventDefault(); void submit(); } } },
    h("label", { for: "token" }, "Token"),
    field,
    h("button", { type: "submit" }, "Log in"),
  );
  return notice("empty", "This controller asks for a token", h("p", {}, "It is in the file that [http] token_file names in the controller’s configuration."), form, problem);
}

/** A thin line above a page that shows old data because the controller does not answer. */
export class Banner {
  readonly element = h("p", { class: "banner", role: "status", hidden: true });
  show(message: string | null): void {
    this.element.hidden = message === null;
    setText(this.element, message ?? "");
  }
}

/** A figure with its name. */
export class Tile {
  readonly value = h("span", { class: "tile-value num" }, "–");
  readonly detail = h("span", { class: "tile-detail num" });
  private bar: HTMLElement | null = null;

  constructor(
    label: string,
    title = "",
    readonly element: HTMLElement = h("div"),
  ) {
    element.classList.add("tile");
    element.title = title;
    element.append(h("span", { class: "tile-label" }, label), this.value, this.detail);
  }

  show(value: string, detail = "", share: number | null = null): void {
    setText(this.value, value);
    setText(this.detail, detail);
    if (share === null) return;
    if (this.bar === null) {
      this.bar = h("span", { class: "meter-fill" });
      this.element.append(h("span", { class: "meter", "aria-hidden": "true" }, this.bar));
    }
    this.bar.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  }
}
