// SPDX-License-Identifier: Apache-2.0
//! Boards that are made: new, from a file of Grafana, or by a panel that is added to one.

import { h } from "../dom";
import { boardAddress } from "../router";
import { type Answers, type Field, ask } from "./dialog";
import { type NewKind, added, emptyBoard, newPanel } from "./edit";
import { isChanged, listBoards, readBoard, writeBoard } from "./files";
import type { Json } from "./json";
import { MAX_BYTES, exported, imported, isName, nameOf, titleOf, written } from "./transfer";

/** Somebody who adds a panel at the same moment is no reason to refuse: it is added to their version. */
const TRIES = 3;
const NEW = "";

const KINDS: { value: NewKind; text: string }[] = [
  { value: "timeseries", text: "Chart" }, { value: "stat", text: "Single values" }, { value: "table", text: "Table" }, { value: "text", text: "Text" },
];
const NAME_HINT = "Of the file: letters, digits, hyphens, underscores and dots";

function checkedName(name: string): string {
  if (!isName(name)) throw new Error("A name has 1 to 64 letters of a-z, A-Z, 0-9, -, _ and ., and begins with a letter or a digit");
  return name;
}

async function create(name: string, board: Json): Promise<void> {
  if (new TextEncoder().encode(written(board)).length > MAX_BYTES) throw new Error("The board is longer than 1 MiB, which is what the controller takes");
  try {
    await writeBoard(checkedName(name), board, null);
  } catch (error) {
    if (isChanged(error)) throw new Error(`There is a board ${name} already: choose another name`, { cause: error });
    throw error;
  }
}

/** The name follows the title until it is typed. */
function naming(): (controls: ReadonlyMap<string, { value: string }>) => void {
  let last = "";
  return (controls) => {
    const [title, name] = [controls.get("title"), controls.get("name")];
    if (title === undefined || name === undefined || (name.value !== "" && name.value !== last)) return;
    last = title.value === "" ? "" : nameOf(title.value);
    name.value = last;
  };
}

export function askNew(): void {
  ask("New board", [{ name: "title", label: "Title" }, { name: "name", label: "Name", hint: NAME_HINT }], "Make it", async ({ title = "", name = "" }) => {
    await create(name, emptyBoard(title));
    location.hash = `${boardAddress(name)}?edit=1`;
  }, naming());
}

export function askImport(): void {
  let readFile: File | null = null;
  const follow = naming();
  const fields: Field[] = [
    { name: "file", label: "File", kind: "file", isOptional: true, hint: "A dashboard that Grafana has exported as JSON (Classic)" },
    { name: "text", label: "Or its text", kind: "lines", isOptional: true },
    { name: "title", label: "Title", isOptional: true, hint: "As in the file where it is empty" },
    { name: "name", label: "Name", isOptional: true, hint: `${NAME_HINT}; by the title where it is empty` },
  ];
  ask("Import a dashboard of Grafana", fields, "Import", async ({ text = "", title = "", name = "" }) => {
    const found = imported(text);
    const board = title === "" ? found : { ...found, title };
    const chosen = name === "" ? nameOf(titleOf(board)) : name;
    await create(chosen, board);
    location.hash = boardAddress(chosen);
  }, (controls) => {
    const input = controls.get("file") as HTMLInputElement | undefined;
    const file = input?.files?.[0] ?? null;
    if (file !== null && file !== readFile) {
      readFile = file;
      void file.text().then((text) => {
        controls.get("text")!.value = text;
        suggest(controls, text);
      });
    }
    suggest(controls, controls.get("text")!.value);
    follow(controls);
  });
}

function suggest(controls: ReadonlyMap<string, { value: string }>, text: string): void {
  const [title, name] = [controls.get("title")!, controls.get("name")!];
  if (text === "" || title.value !== "" || name.value !== "") return;
  try {
    title.value = titleOf(imported(text));
    name.value = nameOf(title.value);
  } catch {
    // What is the matter is told when it is to be imported.
  }
}

/** A file for Grafana. */
export function download(name: string, board: Json): void {
  const url = URL.createObjectURL(new Blob([exported(board)], { type: "application/json" }));
  h("a", { href: url, download: `${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A panel for a board that is shown. */
export function askPanel(done: (panel: Json) => void): void {
  const fields: Field[] = [
    { name: "kind", label: "Shown as", kind: "select", options: KINDS }, { name: "title", label: "Title", isOptional: true },
    { name: "content", label: "Query, or text", kind: "code", hint: "PromQL; $instance stands for the hosts that are chosen, $__rate_interval for a time that a rate needs" },
  ];
  ask("Add a panel", fields, "Add it", ({ kind = "timeseries", title = "", content = "" }: Answers) => done(newPanel(kind as NewKind, title, content.trim(), "")));
}

/** The query's panel goes to one of the boards, or to a new one. */
export async function askAdd(query: string, kind: NewKind, unit: string): Promise<void> {
  const { boards, writable } = await listBoards();
  const able = boards.filter((board) => board.writable && board.error === null);
  if (!writable && able.length === 0) throw new Error("Boards cannot be changed here: [http] boards of the controller’s configuration names no directory that it may write, or a token is needed");
  const fields: Field[] = [
    { name: "board", label: "Board", kind: "select", value: able[0]?.name ?? NEW, options: [...able.map(({ name, title }) => ({ value: name, text: title || name })), ...(writable ? [{ value: NEW, text: "A new board" }] : [])], isOptional: true },
    { name: "new", label: "Its title", isOptional: true, hint: "Of a new board" },
    { name: "kind", label: "Shown as", kind: "select", value: kind, options: KINDS.filter(({ value }) => value !== "text") },
    { name: "title", label: "Title of the panel", value: query.replace(/\s+/g, " ").slice(0, 80) },
  ];
  const add = async ({ board = NEW, new: newTitle = "", kind: shown = kind, title = "" }: Answers): Promise<void> => {
    const panel = newPanel(shown as NewKind, title, query, unit);
    const name = board === NEW ? nameOf(newTitle) : board;
    if (board === NEW && newTitle.trim() === "") throw new Error("A new board needs a title");
    if (board === NEW) await create(name, added(emptyBoard(newTitle.trim()), panel));
    else await addTo(name, panel);
    location.hash = boardAddress(name);
  };
  ask("Add to a board", fields, "Add it", add, (controls) => {
    const isNew = controls.get("board")!.value === NEW;
    const field = controls.get("new")!;
    field.disabled = !isNew;
  });
}

async function addTo(name: string, panel: Json): Promise<void> {
  for (let left = TRIES; ; left--) {
    const { board, etag } = await readBoard(name);
    try {
      await writeBoard(name, added(board, panel), etag);
      return;
    } catch (error) {
      if (!isChanged(error) || left <= 1) throw error;
    }
  }
}
