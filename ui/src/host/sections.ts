// SPDX-License-Identifier: Apache-2.0
//! The parts of a host's page, each with a heading, and the index that leads to them.

import { h, setHidden, setText } from "../dom";
import { sentence } from "../format";
import { hostAddress } from "../router";

export const SECTIONS = {
  overview: "Overview",
  cpu: "CPU",
  memory: "Memory and swap",
  disks: "Disks and file systems",
  network: "Network and TCP",
  scheduler: "Pressure and scheduler",
  processes: "Processes",
  containers: "Containers",
  programs: "Programs",
  reading: "Reading",
} as const;
export type SectionId = keyof typeof SECTIONS;
export const SECTION_IDS = Object.keys(SECTIONS) as SectionId[];

/** Sections that begin higher up on the screen are being read. */
const TOP_PX = 140;
/** Tables that fill above a section push it away: for so long after a jump it is held where it is. */
const HOLD_MS = 5000;
const MOVES = ["wheel", "touchstart", "pointerdown", "keydown"];

/** A line in `parent` for what went wrong there; null: all is well again. */
export function trouble(parent: HTMLElement): (message: string | null) => void {
  const line = h("p", { class: "problem", role: "status", hidden: true });
  parent.append(line);
  return (message) => {
    setHidden(line, message === null);
    setText(line, message === null ? "" : sentence(message));
  };
}

export class Section {
  /** Above the charts: tiles, tables. */
  readonly body = h("div", { class: "section-body" });
  readonly charts = h("div", { class: "charts" });
  readonly element: HTMLElement;
  private readonly heading: HTMLElement;
  private readonly hint = h("p", { class: "hint", hidden: true });

  constructor(readonly id: SectionId) {
    this.heading = h("h2", { id: `section-${id}`, tabindex: -1 }, SECTIONS[id]);
    this.element = h("section", { class: "host-section", "aria-labelledby": `section-${id}` }, this.heading, this.hint, this.body, this.charts);
  }

  /** Why there is nothing, and what to do about it; null where there is something. */
  say(...text: (string | HTMLElement)[]): void {
    setHidden(this.hint, text.length === 0);
    this.hint.replaceChildren(...text);
  }

  reveal(): void {
    this.element.scrollIntoView();
    this.heading.focus({ preventScroll: true });
  }
}

export class Index {
  readonly element: HTMLElement;
  private readonly links = new Map<SectionId, HTMLElement>();
  private current: SectionId = "overview";
  private request = 0;
  private heldUntil = 0;
  private readonly resized = new ResizeObserver(() => {
    if (performance.now() < this.heldUntil) this.sections[this.current].element.scrollIntoView();
  });

  constructor(
    host: string,
    private readonly sections: Record<SectionId, Section>,
  ) {
    for (const { element } of Object.values(sections)) this.resized.observe(element);
    for (const name of MOVES) window.addEventListener(name, this.letGo, { passive: true, capture: true });
    for (const id of SECTION_IDS) this.links.set(id, this.link(host, id, SECTIONS[id]));
    this.element = h("nav", { class: "index", "aria-label": "Sections" }, h("ol", {}, ...[...this.links.values()].map((link) => h("li", {}, link))));
    window.addEventListener("scroll", this.onScroll, { passive: true });
    this.mark("overview");
  }

  /** A link that leads to a section; opened elsewhere, it is the page at this section. */
  link(host: string, id: SectionId, ...content: (string | HTMLElement)[]): HTMLAnchorElement {
    const go = (event: MouseEvent): void => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.jump(id);
    };
    return h("a", { href: `${hostAddress(host)}?s=${id}`, on: { click: go } }, ...content);
  }

  jump(id: SectionId): void {
    this.sections[id].reveal();
    this.mark(id);
    this.heldUntil = performance.now() + HOLD_MS;
  }

  /** To the next section, or the one before. */
  step(by: number): void {
    const at = SECTION_IDS.indexOf(this.current) + by;
    this.jump(SECTION_IDS[Math.max(0, Math.min(SECTION_IDS.length - 1, at))]!);
  }

  destroy(): void {
    cancelAnimationFrame(this.request);
    this.resized.disconnect();
    window.removeEventListener("scroll", this.onScroll);
    for (const name of MOVES) window.removeEventListener(name, this.letGo, { capture: true });
  }

  private readonly letGo = (): void => {
    this.heldUntil = 0;
  };

  private readonly onScroll = (): void => {
    cancelAnimationFrame(this.request);
    this.request = requestAnimationFrame(() => this.follow());
  };

  /** The last section that begins at the top is the one that is read; at the end of the page, where not all can come up there, the one that was chosen stays. */
  private follow(): void {
    if (performance.now() < this.heldUntil) return;
    const { scrollTop, scrollHeight, clientHeight } = document.documentElement;
    const read = SECTION_IDS.findLast((id) => this.sections[id].element.getBoundingClientRect().top < TOP_PX) ?? "overview";
    const isEnd = scrollTop + clientHeight > scrollHeight - 2;
    if (!isEnd || SECTION_IDS.indexOf(this.current) < SECTION_IDS.indexOf(read)) this.mark(read);
  }

  private mark(id: SectionId): void {
    this.links.get(this.current)?.removeAttribute("aria-current");
    this.current = id;
    const link = this.links.get(id)!;
    link.setAttribute("aria-current", "true");
    // Where the index is a row, only part of it is in sight.
    const { parentElement: item } = link;
    if (item !== null) this.element.scrollTo({ left: item.offsetLeft - this.element.clientWidth / 3 });
  }
}
