// SPDX-License-Identifier: Apache-2.0
//! The boards that are kept at the controller.

import { askImport, askNew } from "../boards/create";
import { type Boards, type Listed, listBoards } from "../boards/files";
import { now } from "../clock";
import { h, notice, setHidden, setText } from "../dom";
import { bytes, moment } from "../format";
import { poll } from "../poll";
import { boardAddress } from "../router";
import { type Column, Table } from "../table";
import { type Page, Trouble } from "./page";

const POLL_MS = 10_000;

const COLUMNS: Column<Listed>[] = [
  {
    id: "title", label: "Board", sort: ({ title, name }) => title || name,
    cell: (node, { title, name, error }) => {
      if (node.firstChild === null) node.append(h("a", { tabindex: -1 }), h("span", { class: "under problem" }));
      const link = node.firstElementChild as HTMLAnchorElement;
      link.href = boardAddress(name);
      setText(link, title || name);
      setText(node.lastElementChild!, error ?? "");
    },
  },
  { id: "file", label: "Name", minor: true, sort: ({ name }) => name, cell: (node, { name }) => setText(node, name) },
  { id: "writable", label: "Changed by", minor: true, sort: ({ writable }) => Number(writable), cell: (node, { writable }) => setText(node, writable ? "people, here" : "its files alone") },
  { id: "modified", label: "Last change", numeric: true, sort: ({ modified_ms }) => modified_ms, cell: (node, { modified_ms }) => setText(node, moment(modified_ms, now())) },
  { id: "size", label: "Size", numeric: true, minor: true, sort: ({ bytes: size }) => size, cell: (node, { bytes: size }) => setText(node, bytes(size)) },
];

export function boardsPage(): Page {
  const make = h("button", { type: "button", title: "New board (n)", on: { click: askNew } }, "New board");
  const take = h("button", { type: "button", title: "Import a dashboard of Grafana (i)", on: { click: askImport } }, "Import");
  const table = new Table<Listed>("Boards", COLUMNS, ({ name }) => name, ({ name }) => { location.hash = boardAddress(name); }, () => 0, { column: "title", descending: false }, () => undefined);
  const why = h("p", { class: "hint", hidden: true }, "Boards cannot be added here: [http] boards of the controller’s configuration names no directory that it may write, or it asks for no token and this is another machine.");
  const empty = h("div");
  const tools = h("div", { class: "toolbar" }, make, take);
  const message = h("div", {}, notice("loading", "Reading the boards …"));
  const content = h("div", { hidden: true }, tools, why, empty, table.element);
  const trouble = new Trouble(content, message, () => polling.soon());
  let isWritable = false;

  function show({ boards, writable }: Boards): void {
    isWritable = writable;
    setHidden(content, false);
    message.replaceChildren();
    trouble.banner.show(null);
    setHidden(tools, !writable);
    setHidden(why, writable);
    setHidden(table.element, boards.length === 0);
    empty.replaceChildren(...(boards.length > 0 ? [] : [notice("empty", "No boards yet", h("p", {}, "A board has charts, figures and tables of PromQL, for all who use this controller. Make one here, import one of Grafana’s dashboards, or add a query’s chart to a board on the page of queries."))]));
    table.update(boards);
  }

  const polling = poll(POLL_MS, listBoards, show, (error) => trouble.show(error, content.hidden ? null : "What is shown is as it was."));
  const when = (act: () => void) => (): boolean | undefined => {
    if (!isWritable) return false;
    act();
    return undefined;
  };
  return {
    title: "Boards",
    element: h("div", { class: "page" }, h("h1", { class: "hidden" }, "Boards"), trouble.banner.element, message, content),
    bindings: [
      { keys: ["n"], help: "New board", run: when(askNew) },
      { keys: ["i"], help: "Import a dashboard of Grafana", run: when(askImport) },
      ...table.bindings.map((binding) => (binding.keys.includes("Enter") ? { ...binding, help: "Open the board" } : binding)),
    ],
    destroy: () => polling.stop(),
  };
}
