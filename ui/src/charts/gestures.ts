// SPDX-License-Identifier: Apache-2.0
//! What mouse, wheel and fingers do on a chart, as spans of time. A drag selects (Esc gives up); shift and drag, and a finger, pan; two fingers zoom. A plain wheel scrolls the page.

import { type Span, panned, zoomed } from "../view";

export interface Navigator {
  /** What is on the screen. */
  span: () => Span;
  /** What a drag has marked so far, to be shown on all charts; null: no more. */
  mark: (span: Span | null) => void;
  select: (span: Span) => void;
  /** One of many steps of a movement. */
  move: (span: Span) => void;
  /** One step of the zoom, out. */
  widen: (at: number) => void;
}

/** A shorter drag is a click. */
const MIN_DRAG_PX = 6;
/** A notch of a wheel is 100 px in most browsers: it zooms by a third. */
const ZOOM_PER_PX = 0.003;
const LINE_PX = 16;

/** A finger or the pressed mouse, and the time that it holds. */
interface Grip {
  x: number;
  t: number;
}

export function listen(over: HTMLElement, navigator: () => Navigator | null): () => void {
  const stop = new AbortController();
  const { signal } = stop;
  const grips = new Map<number, Grip>();
  let selection: { begin: number; end: number } | null = null;

  // Measured once a gesture: to ask the browser while charts change would make it lay out the page each time.
  let box = { left: 0, width: 1 };
  const measure = (): void => { box = over.getBoundingClientRect(); };
  const x = (event: MouseEvent): number => event.clientX - box.left;
  const timeAt = (at: number, { from, to }: Span): number => from + (at / box.width) * (to - from);
  const marked = (span: Span): Span | null => {
    if (selection === null || Math.abs(selection.end - selection.begin) < MIN_DRAG_PX) return null;
    const [left, right] = [Math.min(selection.begin, selection.end), Math.max(selection.begin, selection.end)];
    return { from: timeAt(Math.max(0, left), span), to: timeAt(Math.min(box.width, right), span) };
  };
  const end = (): void => {
    grips.clear();
    selection = null;
    navigator()?.mark(null);
    document.removeEventListener("keydown", onKey, true);
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.key !== "Escape") return;
    event.preventDefault();
    event.stopPropagation();
    end();
  };

  over.addEventListener("pointerdown", (event) => {
    const to = navigator();
    if (to === null || (event.pointerType === "mouse" && event.button !== 0)) return;
    over.setPointerCapture(event.pointerId);
    measure();
    document.addEventListener("keydown", onKey, true);
    if (event.pointerType === "mouse" && !event.shiftKey) selection = { begin: x(event), end: x(event) };
    else grips.set(event.pointerId, { x: x(event), t: timeAt(x(event), to.span()) });
  }, { signal });

  over.addEventListener("pointermove", (event) => {
    const to = navigator();
    if (to === null) return;
    if (selection !== null) {
      selection.end = x(event);
      to.mark(marked(to.span()));
      return;
    }
    const grip = grips.get(event.pointerId);
    if (grip === undefined) return;
    grip.x = x(event);
    const span = held([...grips.values()], to.span(), box.width);
    if (span !== null) to.move(span);
  }, { signal });

  over.addEventListener("pointerup", () => {
    const to = navigator();
    const span = to === null ? null : marked(to.span());
    end();
    if (span !== null) to?.select(span);
  }, { signal });
  over.addEventListener("pointercancel", end, { signal });

  over.addEventListener("wheel", (event) => {
    const to = navigator();
    if (to === null) return;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1;
    const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
    const span = to.span();
    measure();
    if (event.ctrlKey || event.metaKey) to.move(zoomed(span, Math.exp(dy * ZOOM_PER_PX), timeAt(x(event), span)));
    else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) to.move(panned(span, ((dx === 0 ? dy : dx) / box.width) * (span.to - span.from)));
    else return;
    event.preventDefault();
  }, { signal, passive: false });

  over.addEventListener("dblclick", (event) => {
    const to = navigator();
    measure();
    to?.widen(timeAt(x(event), to.span()));
  }, { signal });

  // A click does not take the keyboard's place, so that keys mean the same before and after; but it leaves a field.
  over.addEventListener("mousedown", (event) => {
    event.preventDefault();
    if (document.activeElement instanceof HTMLElement && document.activeElement.matches("input")) document.activeElement.blur();
  }, { signal });
  return () => {
    end();
    stop.abort();
  };
}

/** The span in which each grip's time is where the grip is. */
export function held(grips: Grip[], span: Span, widthPx: number): Span | null {
  const [a, b] = grips;
  if (a === undefined) return null;
  const perPx = b === undefined ? (span.to - span.from) / widthPx : (b.t - a.t) / (b.x - a.x);
  // Fingers that have crossed would turn time around.
  if (!(perPx > 0) || !Number.isFinite(perPx)) return null;
  const from = a.t - a.x * perPx;
  return { from, to: from + widthPx * perPx };
}
