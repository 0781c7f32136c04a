// SPDX-License-Identifier: Apache-2.0
//! A collector's telemetry: what its tables have of a key, and its lists as they grow. The address has host and key: `#/telemetry?host=NAME&key=FLOW`.

import { getHosts } from "../api";
import { h, notice, scrolling, setHidden, setText } from "../dom";
import { age, count, sentence } from "../format";
import { HostList } from "../hosts";
import { type Poll, poll } from "../poll";
import { replaceParameters } from "../router";
import { type Entries, type KeyAnswer, type TelemetryTable, getEntries, getKey, getTables } from "../telemetry/ask";
import { type Page, Trouble } from "./page";

/** An event is to be seen within a second. */
const POLL_MS = 400;
const KEY_MS = 2000;
const MOST_ENTRIES = 200;
const MOST_NAMES = 200;

export function telemetryPage(parameters: URLSearchParams): Page {
  let host = parameters.get("host") ?? "";
  let key = parameters.get("key") ?? "";
  let polls: Poll[] = [];
  const abort = new AbortController();
  const message = h("div");
  const content = h("div", { hidden: true });
  const trouble = new Trouble(content, message, () => void open());
  const names = h("datalist", { id: "telemetry-hosts" });
  const hostField = h("input", { type: "search", list: "telemetry-hosts", placeholder: "Collector", "aria-label": "Collector: a host with telemetry tables", value: host });
  const keyField = h("input", { type: "search", class: "telemetry-key", placeholder: "10.0.0.1:443>10.0.0.2:5000/tcp", "aria-label": "Key: a flow, an address, u32:1,2, text:... or 0x...", value: key });
  const answers = h("tbody");
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const keyPart = h(
    "section", { class: "part" }, h("h2", {}, "What is known of a key"),
    h("form", { class: "toolbar", on: { submit: (event) => { event.preventDefault(); askFor(keyField.value.trim()); } } }, keyField, h("button", { type: "submit" }, "Ask")),
    problem,
    scrolling("Answers of tables", h("table", { class: "dense" }, h("thead", {}, h("tr", {}, ...["Table", "Answer", "Age", "Copies", "Note"].map((name) => h("th", { scope: "col" }, name)))), answers)),
  );
  const listParts = h("div");
  content.append(keyPart, listParts);

  const remember = (): void => {
    const next = new URLSearchParams();
    if (host !== "") next.set("host", host);
    if (key !== "") next.set("key", key);
    replaceParameters(next);
  };
  const stop = (): void => {
    for (const one of polls) one.stop();
    polls = [];
  };
  let tables: TelemetryTable[] = [];
  let keyPoll: Poll | null = null;

  const askFor = (wanted: string): void => {
    key = wanted;
    keyField.value = wanted;
    remember();
    keyPoll?.stop();
    keyPoll = null;
    answers.replaceChildren();
    setHidden(problem, true);
    if (key === "") return;
    const asked = tables.filter((table) => table.primitive !== "append");
    keyPoll = poll(
      KEY_MS,
      (signal) => Promise.all(asked.map((table) => getKey(host, table, key, signal))),
      (got) => {
        setHidden(problem, true);
        answers.replaceChildren(...got.map((answer, at) => answerRow(asked[at]!, answer)));
      },
      (error) => {
        setText(problem, sentence(error.message));
        setHidden(problem, false);
        return true;
      },
    );
  };

  const open = async (): Promise<void> => {
    stop();
    keyPoll?.stop();
    setHidden(content, true);
    if (host === "") {
      message.replaceChildren(notice("empty", "Which collector?", h("p", {}, "Type the name of a host that takes telemetry reports: [kernel.telemetry] of its agent.toml has tables.")));
      return;
    }
    message.replaceChildren(notice("loading", "Reading the tables …"));
    try {
      tables = await getTables(host, abort.signal);
    } catch (error) {
      if (!abort.signal.aborted) trouble.show(error instanceof Error ? error : new Error(String(error)), null);
      return;
    }
    if (tables.length === 0) {
      message.replaceChildren(notice("empty", `${host} has no telemetry tables`, h("p", {}, "[kernel.telemetry] of its agent.toml names tables, and who may report.")));
      return;
    }
    message.replaceChildren();
    setHidden(content, false);
    setHidden(keyPart, tables.every((table) => table.primitive === "append"));
    const lists = tables.filter((table) => table.primitive === "append").map((table) => new EventList(host, table, askFor));
    listParts.replaceChildren(...lists.map((one) => one.element));
    polls = lists.map((one) => one.start());
    askFor(key);
  };

  hostField.addEventListener("change", () => {
    host = hostField.value.trim();
    remember();
    void open();
  });
  void new HostList(getHosts).refresh([], abort.signal).then(
    (hosts) => names.append(...hosts.slice(0, MOST_NAMES).map((one) => h("option", { value: one.name }))),
    () => undefined, // The page says what is wrong when it asks.
  );
  void open();

  return {
    title: "Telemetry",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Telemetry"), trouble.banner.element, h("div", { class: "toolbar" }, hostField, names), content, message),
    bindings: [{ keys: ["k"], help: "Ask for a key", run: () => { keyField.focus(); keyField.select(); return undefined; } }],
    destroy: () => {
      abort.abort();
      stop();
      keyPoll?.stop();
    },
  };
}

function answerRow(table: TelemetryTable, answer: KeyAnswer): HTMLElement {
  const cells: [string, string, string, string] =
    answer.count !== undefined
      ? [count(answer.count), "", "", answer.count_before == null ? "this epoch" : `this epoch; ${count(answer.count_before)} in the one before`]
      : answer.outcome === "value"
        ? [answer.value ?? "", `${age(answer.age_ms ?? 0)} ago`, String(answer.copies ?? ""), answer.disputed === true ? "other copies differ" : ""]
        : ["–", "", "", answer.outcome === "conflict" ? "copies differ" : "never written, or overwritten"];
  return h("tr", {}, h("th", { scope: "row" }, table.name), ...cells.map((cell) => h("td", {}, cell)));
}

/** A list's newest entries, the newest first. */
class EventList {
  private readonly rows = h("tbody");
  private readonly said = h("p", { class: "dim", role: "status" }, "Nothing yet.");
  readonly element: HTMLElement;
  private next: string | null = null;
  private seen = 0;
  private lost = 0;

  constructor(
    private readonly host: string,
    private readonly table: TelemetryTable,
    private readonly askFor: (key: string) => void,
  ) {
    const head = h("tr", {}, ...["Number", "Seen", "Entry"].map((name) => h("th", { scope: "col" }, name)));
    this.element = h("section", { class: "part telemetry-list" }, h("h2", {}, table.name), this.said, scrolling(`Entries of ${table.name}`, h("table", { class: "dense telemetry-events" }, h("thead", {}, head), this.rows)));
  }

  start(): Poll {
    return poll(
      POLL_MS,
      (signal) => getEntries(this.host, this.table, this.next, signal),
      (got) => this.show(got),
      (error) => {
        setText(this.said, sentence(error.message));
        return true;
      },
    );
  }

  private show({ entries, lost, next }: Entries): void {
    this.next = next;
    this.lost += lost;
    this.seen += entries.length;
    const now = Date.now();
    const fresh = entries.slice(-MOST_ENTRIES).reverse().map((entry) => {
      const time = new Date(now - entry.age_ms);
      // What a flow's event says behind the flow is no part of its key.
      const key = entry.entry.split(" ")[0] ?? "";
      const shown = key.includes(">") ? h("button", { type: "button", class: "quiet", title: "Ask what is known of it", on: { click: () => this.askFor(key) } }, entry.entry) : entry.entry;
      return h("tr", {}, h("td", {}, String(entry.number)), h("td", {}, h("time", { datetime: time.toISOString() }, time.toLocaleTimeString())), h("td", {}, shown));
    });
    this.rows.prepend(...fresh);
    while (this.rows.children.length > MOST_ENTRIES) this.rows.lastElementChild!.remove();
    if (this.seen > 0) setText(this.said, `${count(this.seen)} entries since this page is open or just before${this.lost > 0 ? `, ${count(this.lost)} lost before they could be read` : ""}.`);
  }
}
