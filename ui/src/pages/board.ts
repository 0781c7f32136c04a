// SPDX-License-Identifier: Apache-2.0
//! One board: its variables, its time, its panels; and while it is edited, what changes them. Each change is saved at once, and can be undone.

import { askPanel, download } from "../boards/create";
import { type Dashboard, type Panel, type Section, dashboardOf } from "../boards/dashboard";
import { ask as askForm } from "../boards/dialog";
import { added, canMove, moved, removed, renamed, resized, retitled, rewritten } from "../boards/edit";
import { isChanged, listBoards, readBoard, removeBoard, writeBoard } from "../boards/files";
import type { Json } from "../boards/json";
import { type Edit, type Env, PanelView } from "../boards/panel";
import { Turns } from "../boards/turns";
import { VariableBar } from "../boards/varbar";
import { filled, titled } from "../boards/variables";
import { now, syncedStatus } from "../clock";
import { h, notice, setHidden, setText } from "../dom";
import { sentence } from "../format";
import { ask } from "../promql";
import { Known } from "../query/known";
import { WINDOWS } from "../ranges";
import { ApiError } from "../request";
import { queryAddress, replaceParameters } from "../router";
import { TimeBar } from "../timebar";
import { AskedTime } from "../timed";
import { type View, fromParameters, spanOf, toParameters } from "../view";
import { type Page, Trouble } from "./page";

const EVERY_MS = 5000;
const SHARE = 10;
const REST_MS = 150;
/** The controller evaluates four queries at a time. */
const AT_ONCE = 4;
const MAX_UNDO = 100;

export function boardPage(name: string, parameters: URLSearchParams): Page {
  const abort = new AbortController();
  const known = new Known();
  const turns = new Turns(AT_ONCE);
  let file: Json | null = null;
  let etag = "";
  let dashboard: Dashboard | null = null;
  let isWritable = false;
  let isEditing = parameters.get("edit") === "1";
  const undone: Json[] = [];
  let saving: Promise<void> | null = null;
  let isDirty = false;
  let hasConflict = false;
  let version = 0;
  let timer: number | undefined;
  let frame = 0;
  const panels = new Map<string, PanelView>();
  const opened = new Set<string>();

  const heading = h("h1");
  const saved = h("span", { class: "dim", role: "status" });
  const editButton = h("button", { type: "button", class: "chip", title: "Edit (e)", "aria-pressed": "false", on: { click: () => toggleEdit() } }, "Edit");
  const tools = h(
    "span", { class: "chips", hidden: true },
    button("Add panel", "Add a panel (n)", () => addPanel()), button("Undo", "Undo the last change (u)", () => undo()), button("Title", "Change the board’s title", () => retitle()), button("Delete board", "Delete the board", () => removal()),
  );
  const undoButton = tools.children[1] as HTMLButtonElement;
  const exportButton = button("Export", "Download it for Grafana", () => { if (file !== null) download(name, file); });
  const conflict = h("div", { class: "banner", role: "alert", hidden: true });
  const left = h("details", { class: "folded card", hidden: true });
  const grid = h("div", { class: "board" });
  const variables = new VariableBar(() => {
    timebar.enter();
    // Titles name them.
    show();
    again();
  });

  const timed = new AskedTime(fromParameters(parameters), {
    move: () => {
      for (const panel of panels.values()) panel.redraw();
      again(REST_MS);
    },
    redraw: () => { for (const panel of panels.values()) panel.redraw(); },
    showSelection: (span) => { for (const panel of panels.values()) panel.showSelection(span); },
  });
  const addressOf = (view: View): URLSearchParams => new URLSearchParams([...variables.parameters(), ...toParameters(view)]);
  const timebar = new TimeBar(timed, addressOf, () => undefined);
  const message = h("div", {}, notice("loading", "Reading the board …"));
  const content = h("div", { hidden: true }, h("div", { class: "board-head" }, heading, saved, tools, editButton, exportButton), conflict, h("div", { class: "toolbar sticky" }, variables.element, timebar.element), grid, left);
  const trouble = new Trouble(content, message, () => { if (file === null) void start(); else again(); });

  function button(text: string, title: string, act: () => void): HTMLButtonElement {
    return h("button", { type: "button", title, on: { click: act } }, text);
  }

  const env: Env = {
    navigator: () => timed.navigator,
    span: () => timed.span,
    fill: (text, times) => filled(text, variables.all, variables.values, times),
    tell: (text) => titled(text, variables.all, variables.values),
    ask: (query, when, limit, signal) => turns.take(() => { signal.throwIfAborted(); return ask(query, when, limit, signal); }),
    metrics: () => known.metrics,
    failed: (error) => { trouble.show(error, "What is shown is as it was."); },
    address: (query) => queryAddress(query, toParameters(timed.view)),
    edit: (panel, edit) => act(panel, edit),
  };

  // --- what is shown ------------------------------------------------------------------------------------------------------------------------

  const keyOf = ({ path, id }: Panel): string => (id === null ? `at ${path.join("-")}` : `${path.length === 2 ? `in ${path[0]} ` : ""}id ${id}`);
  /** What makes another panel of it. */
  const contentOf = (panel: Panel): string => JSON.stringify({ ...panel, path: [], place: null, title: "", description: "" });

  function show(): void {
    if (file === null) return;
    dashboard = dashboardOf(file);
    setText(heading, dashboard.title || name);
    document.title = `${dashboard.title || name} – Onlooker`;
    variables.put(dashboard.variables, new URLSearchParams(location.hash.split("?")[1] ?? ""));
    const before = new Map(panels);
    panels.clear();
    const focused = document.activeElement;
    grid.replaceChildren(...dashboard.sections.map((section) => sectionOf(section, before)), ...(dashboard.sections.length === 0 ? [emptyNotice()] : []));
    for (const view of before.values()) view.destroy();
    if (focused instanceof HTMLElement && grid.contains(focused)) focused.focus({ preventScroll: true });
    showLeft(dashboard.left);
    showTools();
    askVisible();
  }

  function sectionOf({ row, panels: own }: Section, before: Map<string, PanelView>): HTMLElement {
    const first = own.reduce((least, panel) => Math.min(least, panel.place.y), Infinity);
    const views = own.map((panel) => {
      const key = panels.has(keyOf(panel)) ? `${keyOf(panel)} ${panel.path.join("-")}` : keyOf(panel);
      let view = before.get(key);
      if (view !== undefined && contentOf(view.panel) === contentOf(panel)) {
        before.delete(key);
        view.put(panel);
      } else view = new PanelView(panel, env, () => askVisible());
      view.setLine(panel.place.y - first);
      view.setEditing(isEditing, (edit) => can(panel, edit));
      panels.set(key, view);
      return view.element;
    });
    const body = h("div", { class: "board-grid" }, ...views);
    if (row === null) return h("section", { "aria-labelledby": "board-panels" }, h("h2", { class: "hidden", id: "board-panels" }, "Panels"), body);
    const title = titled(row.title, variables.all, variables.values) || "Row";
    const key = `${row.path.join("-")} ${title}`;
    const details = h("details", { class: "board-row", open: opened.has(key) === row.isCollapsed }, h("summary", {}, h("h2", {}, title)), body);
    details.addEventListener("toggle", () => {
      if (details.open === row.isCollapsed) opened.add(key);
      else opened.delete(key);
    });
    return details;
  }

  function emptyNotice(): HTMLElement {
    return notice("empty", "This board is empty", h("p", {}, isWritable ? "Add a panel here, or a query’s chart on the page of queries." : "Whoever provisions it puts panels into its file."));
  }

  function showLeft(items: Dashboard["left"]): void {
    const wasOpen = left.open;
    setHidden(left, items.length === 0);
    left.replaceChildren(h("summary", {}, `Not shown, and kept in the file: ${items.length}`), h("ul", { class: "board-left" }, ...items.map(({ what, why }) => h("li", {}, h("strong", {}, what), `: ${why}.`))));
    left.open = wasOpen;
  }

  function showTools(): void {
    setHidden(editButton, !isWritable);
    setHidden(tools, !isWritable || !isEditing);
    editButton.setAttribute("aria-pressed", String(isEditing && isWritable));
    grid.classList.toggle("editing", isEditing && isWritable);
    undoButton.disabled = undone.length === 0;
    setText(saved, hasConflict ? "not saved" : isDirty ? "saving …" : isEditing && isWritable ? "saved" : "");
  }

  // --- values -------------------------------------------------------------------------------------------------------------------------------

  /** All panels are of another time, or of other variables. */
  function again(ms = 0): void {
    clearTimeout(timer);
    timer = setTimeout(() => {
      version++;
      timed.asked = spanOf(timed.view, now());
      askVisible();
    }, ms);
  }

  function askVisible(): void {
    if (document.hidden || dashboard === null) return;
    const due = [...panels.values()].filter((panel) => panel.isVisible && panel.shown !== version);
    if (due.length === 0) return;
    timed.asked ??= spanOf(timed.view, now());
    const began = performance.now();
    const mine = version;
    void Promise.all(due.map((panel) => panel.ask(mine))).then(() => {
      if (abort.signal.aborted || mine !== version || [...panels.values()].some((panel) => panel.isAsking)) return;
      if (timed.view.span === null) again(Math.max(EVERY_MS, SHARE * (performance.now() - began)));
    });
  }

  // --- changes ------------------------------------------------------------------------------------------------------------------------------

  function can(panel: Panel, edit: Edit): boolean {
    if (file === null) return false;
    if (edit === "earlier" || edit === "later") return canMove(file, panel.path, edit === "earlier" ? -1 : 1);
    return edit !== "change" || panel.kind !== "unknown";
  }

  function act(panel: Panel, edit: Edit): void {
    if (file === null || !isWritable) return;
    const { path } = panel;
    if (edit === "change") {
      askForm("Change the panel", [
        { name: "title", label: "Title", value: panel.title, isOptional: true },
        { name: "content", label: panel.kind === "text" ? "Text" : panel.targets.length > 1 ? `Query ${panel.targets[0]!.ref}` : "Query", kind: panel.kind === "text" ? "lines" : "code", value: panel.kind === "text" ? panel.text : (panel.targets[0]?.expression ?? "") },
      ], "Change it", ({ title = "", content: next = "" }) => {
        if (file !== null) change(rewritten(renamed(file, path, title), path, next.trim()));
      });
      return;
    }
    const next = {
      earlier: () => moved(file!, path, -1), later: () => moved(file!, path, 1), narrower: () => resized(file!, path, { w: -1 }), wider: () => resized(file!, path, { w: 1 }),
      lower: () => resized(file!, path, { h: -1 }), higher: () => resized(file!, path, { h: 1 }), remove: () => removed(file!, path),
    }[edit]();
    change(next);
    const view = [...panels.values()].find((item) => item.panel.id !== null && item.panel.id === panel.id);
    if (view === undefined) editButton.focus();
    else view.focusEdit(edit);
  }

  function change(next: Json): void {
    if (file === null || next === file) return;
    undone.push(file);
    if (undone.length > MAX_UNDO) undone.shift();
    take(next);
  }

  function take(next: Json): void {
    file = next;
    isDirty = true;
    show();
    void save();
  }

  function undo(): void {
    const before = undone.pop();
    if (before !== undefined) take(before);
  }

  /** One write at a time; what changed meanwhile is written after it. */
  function save(): Promise<void> {
    saving ??= (async () => {
      while (isDirty && file !== null && !hasConflict) {
        const written = file;
        try {
          etag = await writeBoard(name, written, etag);
          if (written === file) isDirty = false;
          setHidden(conflict, true);
        } catch (error) {
          failed(error instanceof Error ? error : new Error(String(error)));
          break;
        }
      }
      saving = null;
      showTools();
    })();
    showTools();
    return saving;
  }

  function failed(error: Error): void {
    const isOther = isChanged(error) || (error instanceof ApiError && error.status === 404);
    hasConflict = true;
    const retry = (base: () => Promise<string | null>): void => {
      void base().then(async (tag) => {
        if (file === null) return;
        etag = await writeBoard(name, file, tag);
        hasConflict = isDirty = false;
        setHidden(conflict, true);
        showTools();
      }).catch((again: unknown) => failed(again instanceof Error ? again : new Error(String(again))));
    };
    const current = async (): Promise<string | null> => (await readBoard(name).catch((cause: unknown) => {
      if (cause instanceof ApiError && cause.status === 404) return null;
      throw cause;
    }))?.etag ?? null;
    conflict.replaceChildren(
      isOther ? "Somebody else has changed this board meanwhile. Your last change is not saved. " : `${sentence(error.message)} Your last change is not saved. `,
      ...(isOther ? [button("Take theirs", "Your changes since then are lost", () => void reload()), " ", button("Keep mine", "Their changes are lost", () => retry(current))] : [button("Try again", "Save it now", () => retry(() => Promise.resolve(etag)))]),
      " ", button("Export mine", "Download your version", () => { if (file !== null) download(name, file); }),
    );
    setHidden(conflict, false);
    showTools();
  }

  async function reload(): Promise<void> {
    try {
      ({ board: file, etag } = await readBoard(name, abort.signal));
      hasConflict = isDirty = false;
      undone.length = 0;
      setHidden(conflict, true);
      show();
    } catch (error) {
      if (!abort.signal.aborted) failed(error instanceof Error ? error : new Error(String(error)));
    }
  }

  function addPanel(): void {
    askPanel((panel) => {
      if (file !== null) change(added(file, panel));
      [...panels.values()].at(-1)?.element.scrollIntoView({ block: "nearest" });
    });
  }

  function retitle(): void {
    askForm("Title of the board", [{ name: "title", label: "Title", value: dashboard?.title ?? "" }], "Change it", ({ title = "" }) => { if (file !== null) change(retitled(file, title)); });
  }

  function removal(): void {
    askForm(`Delete the board ${name}`, [], "Delete it", async () => {
      await saving;
      await removeBoard(name, etag);
      location.hash = "#/boards";
    });
  }

  function toggleEdit(): undefined {
    isEditing = !isEditing;
    for (const view of panels.values()) view.setEditing(isEditing && isWritable, (edit) => can(view.panel, edit));
    showTools();
    return undefined;
  }

  // --- the page -----------------------------------------------------------------------------------------------------------------------------

  async function start(): Promise<void> {
    try {
      const [found, { boards }, status] = await Promise.all([readBoard(name, abort.signal), listBoards(abort.signal), syncedStatus(abort.signal), known.readMetrics().catch(() => undefined)]);
      ({ board: file, etag } = found);
      isWritable = boards.find((board) => board.name === name)?.writable ?? false;
      isEditing &&= isWritable;
      timebar.setOldest(status.store.oldest_ms);
      message.replaceChildren();
      setHidden(content, false);
      const { lastMs } = dashboardOf(file);
      const window = WINDOWS.findLast((item) => item.ms <= (lastMs ?? 0));
      if (!parameters.has("w") && !parameters.has("from") && window !== undefined) {
        timed.view = { window, span: null };
        timebar.follow(timed.view);
      }
      show();
      replaceParameters(addressOf(timed.view));
    } catch (error) {
      if (abort.signal.aborted) return;
      if (error instanceof ApiError && error.status === 404) {
        message.replaceChildren(notice("empty", `There is no board ${name}`, h("p", {}, sentence(error.message)), h("p", {}, h("a", { href: "#/boards" }, "To the boards"))), h("h1", { class: "hidden" }, name));
        return;
      }
      if (trouble.show(error instanceof Error ? error : new Error(String(error)), null)) timer = setTimeout(() => void start(), EVERY_MS);
    }
  }

  const visible = (): void => { if (!document.hidden && timed.view.span === null) again(); };
  document.addEventListener("visibilitychange", visible);
  const leave = (event: BeforeUnloadEvent): void => { if (isDirty) event.preventDefault(); };
  window.addEventListener("beforeunload", leave);
  const follow = (): void => {
    for (const panel of panels.values()) panel.follow();
    frame = requestAnimationFrame(follow);
  };
  frame = requestAnimationFrame(follow);
  void start();

  const when = (run: () => void) => (): boolean | undefined => {
    if (!isWritable || !isEditing) return false;
    run();
    return undefined;
  };
  return {
    title: name,
    element: h("div", { class: "page" }, trouble.banner.element, message, content),
    bindings: [
      { keys: ["e"], help: "Edit the board, or only look at it", run: () => (isWritable ? toggleEdit() : false) },
      { keys: ["n"], help: "While it is edited: add a panel", run: when(addPanel) },
      { keys: ["u"], help: "While it is edited: undo the last change", run: when(undo) },
      ...timebar.bindings,
      { keys: ["Escape"], help: "Back to the boards", run: () => { location.hash = "#/boards"; return undefined; } },
    ],
    follow: (next) => {
      if (file === null) return false;
      variables.follow(next);
      timebar.follow(fromParameters(next));
      show();
      again();
      return true;
    },
    destroy: () => {
      abort.abort();
      clearTimeout(timer);
      cancelAnimationFrame(frame);
      document.removeEventListener("visibilitychange", visible);
      window.removeEventListener("beforeunload", leave);
      known.destroy();
      variables.destroy();
      timebar.destroy();
      for (const panel of panels.values()) panel.destroy();
    },
  };
}
