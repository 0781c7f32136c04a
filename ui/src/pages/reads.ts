// SPDX-License-Identifier: Apache-2.0
//! The reads: what reading costs and how well it goes, by host; credits and store.

import { type Host, type Status, getHosts } from "../api";
import { syncedStatus } from "../clock";
import { h, notice, setClass, setHidden, setText, svg } from "../dom";
import { age, bytes, count, duration, micros, quantity, reasons, sum } from "../format";
import { showLink } from "../host/cells";
import { HostList } from "../hosts";
import { poll } from "../poll";
import { hostAddress, replaceParameters } from "../router";
import { pairText, showPair, showState } from "../state";
import { type Column, Table } from "../table";
import { type Page, Tile, Trouble } from "./page";

const POLL_MS = 1000;

export function readsPage(parameters: URLSearchParams): Page {
  const list = new HostList(getHosts);
  let hosts: Host[] = [];
  let sampledAt: number | null = null;
  const message = h("div", {}, notice("loading", "Reading the figures …"));
  const search = h("input", { type: "search", placeholder: "Search hosts", "aria-label": "Search hosts by name", value: parameters.get("q") ?? "" });
  const tiles = new Tiles();
  const [column = "p99", direction = "desc"] = (parameters.get("sort") ?? "p99.desc").split(".");
  const open = (host: Host): void => { location.hash = hostAddress(host.name); };
  const table = new Table<Host>("Reads by host", columns(), (host) => host.name, open, () => 0, { column, descending: direction === "desc" }, () => remember());
  const none = notice("empty", "No host matches", h("p", {}, "Change the search, or press Esc."));
  table.element.classList.add("dense");
  const content = h("div", { hidden: true }, tiles.element, h("div", { class: "toolbar" }, search, scaleLegend()), table.element, none);

  const remember = (): void => {
    const next = new URLSearchParams();
    if (search.value.trim() !== "") next.set("q", search.value.trim());
    next.set("sort", `${table.sorting.column}.${table.sorting.descending ? "desc" : "asc"}`);
    replaceParameters(next);
  };
  const render = (): void => {
    const found = hosts.filter((host) => host.name.toLowerCase().includes(search.value.trim().toLowerCase()));
    setHidden(none, found.length > 0);
    setHidden(table.element, found.length === 0);
    table.update(found);
  };
  search.addEventListener("input", () => { remember(); render(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      search.value = "";
      search.blur();
      remember();
      render();
    } else if (event.key === "Enter" || event.key === "ArrowDown") table.focus();
    else return;
    event.preventDefault();
  });

  const trouble = new Trouble(content, message, () => polling.soon());
  const polling = poll(
    POLL_MS,
    (signal) => Promise.all([syncedStatus(signal), list.refresh(table.inView, signal)]),
    ([status, got]) => {
      hosts = got;
      sampledAt = performance.now();
      trouble.banner.show(status.store.failed === null ? null : `The store does not write: ${status.store.failed}`);
      setHidden(content, false);
      message.replaceChildren();
      tiles.show(status);
      render();
    },
    (error) => trouble.show(error, sampledAt === null ? null : `Shown is what was known ${age(performance.now() - sampledAt)} ago.`),
  );

  return {
    title: "Reads",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Reads"), trouble.banner.element, content, message),
    bindings: [{ keys: ["F"], help: "Filter the table", run: () => { search.focus(); search.select(); return undefined; } }, ...table.bindings],
    destroy: () => polling.stop(),
  };
}

class Tiles {
  private readonly reads = new Tile("READs", "Requests sent to all hosts together. One READ fetches one or more blocks of 1 KiB out of a host’s memory");
  private readonly rows = new Tile("Rows", "Taken in by the store. A row holds all values that a region had at one moment");
  private readonly credits = new Tile("Credits in flight", "Bytes that have been requested and not yet answered, and how many may be at once, so that answers do not overrun the network");
  private readonly decreases = new Tile("Credit decreases", "How often answers were marked (ECN), lost or late, which lowers the credits");
  private readonly store = new Tile("Store");
  private readonly hot = new Tile("In memory", "The newest values, which are not yet packed into the log");
  private readonly lag = new Tile("Durable after", "How long after it was read a value is safe on the disk");
  private readonly oldest = new Tile("Oldest value", "How far back the store goes");
  private readonly since = new Tile("Running since");
  readonly element = h("section", { class: "tiles", "aria-label": "The controller" }, ...[this.reads, this.rows, this.credits, this.decreases, this.store, this.hot, this.oldest, this.lag, this.since].map((tile) => tile.element));

  show(status: Status): void {
    const { credits, store } = status;
    this.reads.show(quantity(status.reads_per_s, "", true), `${quantity(status.blocks_per_s, "", true)} blocks`);
    this.rows.show(quantity(status.rows_per_s, "", true));
    this.credits.show(bytes(credits.in_flight_bytes), `of ${bytes(credits.total_bytes)}`, credits.in_flight_bytes / credits.total_bytes);
    this.decreases.show(count(credits.decreases));
    this.store.show(store.failed === null ? bytes(store.bytes) : "failed", store.failed ?? `of ${bytes(store.max_bytes)}`, store.bytes / store.max_bytes);
    setClass(this.store.element, "bad", store.failed !== null);
    this.hot.show(bytes(store.hot_bytes), "not yet in the log");
    this.oldest.show(store.oldest_ms === null ? "–" : duration(status.now_ms - store.oldest_ms), "ago");
    this.lag.show(duration(store.durable_lag_ms));
    this.since.show(duration(status.now_ms - status.started_ms), `version ${status.version}`);
  }
}

/** The strip's scale: 10 us to 100 ms, logarithmic. */
const STRIP = { low: 10, high: 100_000, width: 112, height: 16 };
const place = (us: number): number => {
  const at = (Math.log10(us) - Math.log10(STRIP.low)) / (Math.log10(STRIP.high) - Math.log10(STRIP.low));
  return Math.round(Math.min(1, Math.max(0, at)) * (STRIP.width - 8) * 10) / 10 + 4;
};

/** p50 to p99 as a bar, p90 in it, the maximum as a tick: shape tells more than four numbers. */
function drawStrip(node: HTMLElement, host: Host): void {
  const { p50, p90, p99, max } = host.reads.latency_us;
  const key = [p50, p90, p99, max].join();
  if (node.dataset["key"] === key) return;
  node.dataset["key"] = key;
  if (!(p50 > 0)) {
    node.title = "";
    node.replaceChildren("–");
    return;
  }
  const middle = STRIP.height / 2;
  const parts = [100, 1000, 10_000].map((us) => svg("line", { class: "strip-grid", x1: place(us), x2: place(us), y1: 0, y2: STRIP.height }));
  parts.push(
    svg("line", { class: "strip-range", x1: place(p50), x2: place(max), y1: middle, y2: middle }),
    svg("rect", { class: "strip-p99", x: place(p50), y: middle - 3, width: Math.max(1, place(p99) - place(p50)), height: 6 }),
    svg("rect", { class: "strip-p90", x: place(p50), y: middle - 3, width: Math.max(1, place(p90) - place(p50)), height: 6 }),
    svg("circle", { class: "strip-p50", cx: place(p50), cy: middle, r: 3 }),
    svg("line", { class: "strip-max", x1: place(max), x2: place(max), y1: middle - 4, y2: middle + 4 }),
  );
  const label = `p50 ${micros(p50)}, p90 ${micros(p90)}, p99 ${micros(p99)}, max ${micros(max)}`;
  node.title = label;
  node.replaceChildren(svg("svg", { class: "strip", viewBox: `0 0 ${STRIP.width} ${STRIP.height}`, width: STRIP.width, height: STRIP.height, role: "img", "aria-label": label }, ...parts));
}

function scaleLegend(): HTMLElement {
  return h("p", { class: "dim" }, "Strips: from p50 (dot) over p90 and p99 to max (tick), logarithmic from 10 µs to 100 ms; lines at 100 µs, 1 ms, 10 ms.");
}

/** A number of microseconds, of which less is better. */
function time(id: string, label: string, value: (host: Host) => number, minor = false, title = ""): Column<Host> {
  return { id, label, title, numeric: true, minor, sort: value, cell: (node, host) => setText(node, micros(value(host))) };
}

/** A count that should be zero. */
function fault(id: string, label: string, title: string, counts: (host: Host) => Record<string, number>): Column<Host> {
  return {
    id, label, title, minor: true, sort: (host) => sum(counts(host)), descendingFirst: true,
    cell: (node, host) => {
      const shown = reasons(counts(host));
      setText(node, shown === "" ? "0" : shown);
      setClass(node, "dim", shown === "");
    },
  };
}

function columns(): Column<Host>[] {
  return [
    {
      id: "name", label: "Host", sort: (host) => host.name,
      cell: (node, host) => {
        if (node.firstChild === null) node.append(h("a", { tabindex: -1 }), " ", h("span"));
        showLink(node.firstChild as HTMLAnchorElement, host.name);
        const sign = node.lastElementChild as HTMLElement;
        setHidden(sign, host.state === "reading");
        showState(sign, host.state);
      },
    },
    { id: "via", label: "Via", title: "Who sends the READs and who answers them", minor: true, sort: (host) => pairText(host), cell: (node, host) => showPair(node, host) },
    { id: "strip", label: "Latency", title: "Of a READ, from request to answer", sort: (host) => host.reads.latency_us.p50, numeric: false, cell: drawStrip },
    time("p50", "p50", (host) => host.reads.latency_us.p50),
    time("p90", "p90", (host) => host.reads.latency_us.p90, true),
    time("p99", "p99", (host) => host.reads.latency_us.p99),
    time("max", "max", (host) => host.reads.latency_us.max),
    time("late50", "Late p50", (host) => host.lateness_us.p50, true, "How long after its due time a reading began"),
    time("late99", "p99", (host) => host.lateness_us.p99, true, "Lateness, 99th percentile"),
    time("latemax", "max", (host) => host.lateness_us.max, true, "Lateness, max"),
    { id: "done", label: "READs", title: "Done since the controller began", numeric: true, minor: true, sort: (host) => host.reads.done, cell: (node, host) => setText(node, quantity(host.reads.done, "")) },
    fault("lost", "Lost", "Timed out, refused, or sent again", (host) => ({ "timed out": host.reads.timed_out, refused: host.reads.refused, repeated: host.reads.repeated })),
    fault("retries", "Retries", "Blocks read again because a writer was at work, by reason", (host) => host.reads.retries),
    fault("gaps", "Gaps", "Readings that failed, by reason", (host) => host.gaps),
  ];
}
