// SPDX-License-Identifier: Apache-2.0
//! The time of a page that asks for what it shows as a whole: until the next answer comes, the screen keeps the time of the one before.

import type { Navigator } from "./charts/gestures";
import { now } from "./clock";
import type { Timed } from "./timebar";
import { type Span, type View, spanOf } from "./view";

/** What a page draws. */
interface Drawn {
  /** Another time was chosen. */
  move(span: Span): void;
  redraw(): void;
  showSelection(span: Span | null): void;
}

export class AskedTime implements Timed {
  navigator: Navigator | null = null;
  /** What the answer on the screen is of; null: there is none of this view yet. */
  asked: Span | null = null;

  constructor(
    public view: View,
    private readonly drawn: Drawn,
  ) {}

  get span(): Span {
    return this.view.span ?? this.asked ?? spanOf(this.view, now());
  }

  show(view: View): void {
    this.view = view;
    this.asked = null;
    this.drawn.move(this.span);
  }

  redraw(): void {
    this.drawn.redraw();
  }

  showSelection(span: Span | null): void {
    this.drawn.showSelection(span);
  }
}
