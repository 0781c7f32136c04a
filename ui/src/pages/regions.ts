// SPDX-License-Identifier: Apache-2.0
//! The memory that a host lists: one row for each region.

import type { Region } from "../api";
import { h, scrolling, setClass, setText } from "../dom";
import { age, bytes, count } from "../format";

const HEADS = ["Region", "Labels", "Acquisition", "Via", "Size", "Owner", "Age", "Series", "State"];
const NUMERIC = new Set(["Size", "Age", "Series"]);

export class RegionList {
  private readonly title = h("summary", {}, "Regions");
  private readonly body = h("tbody");
  private readonly rows = new Map<string, HTMLElement[]>();
  readonly element = h(
    "details",
    { class: "regions folded card" },
    this.title,
    scrolling("Regions", h("table", {}, h("thead", {}, h("tr", {}, ...HEADS.map((head) => h("th", { scope: "col", class: NUMERIC.has(head) ? "num" : "" }, head)))), this.body)),
  );

  show(regions: Region[]): void {
    const troubled = regions.filter((region) => region.problem !== null).length;
    setText(this.title, `Regions: ${regions.length}${troubled === 0 ? "" : `, ${troubled} with a problem`}`);
    const seen = new Set<string>();
    for (const region of regions) {
      const labels = Object.entries(region.labels).map(([name, value]) => `${name}=${value}`).join(" · ");
      const key = `${region.name} ${labels} ${region.pid}`;
      seen.add(key);
      let cells = this.rows.get(key);
      if (cells === undefined) {
        cells = HEADS.map((head) => h("td", { class: NUMERIC.has(head) ? "num" : "" }));
        this.rows.set(key, cells);
        this.body.append(h("tr", {}, ...cells));
      }
      const state = region.problem ?? (region.orphan ? "orphan: its owner has ended" : "ok");
      const shown = [region.name, labels, region.acquisition.join(", "), region.via.join(", "), bytes(region.bytes), `pid ${region.pid}, uid ${region.uid}`, age(region.age_ms), count(region.series), state];
      shown.forEach((text, i) => setText(cells[i]!, text));
      setClass(cells[cells.length - 1]!, "problem", region.problem !== null);
    }
    for (const [key, cells] of this.rows) {
      if (seen.has(key)) continue;
      cells[0]!.parentElement?.remove();
      this.rows.delete(key);
    }
  }
}
