// SPDX-License-Identifier: Apache-2.0
//! The frame around the pages: header, navigation, theme and keyboard.

import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/charts.css";
import "./styles/fleet.css";
import "./styles/host.css";
import "./styles/query.css";
import "./styles/search.css";
import "./styles/boards.css";
import "./styles/compare.css";
import * as alerts from "./alerts";
import { h, notice, setHidden, setText, svg } from "./dom";
import * as keys from "./keys";
import { alertsPage } from "./pages/alerts";
import { boardPage } from "./pages/board";
import { boardsPage } from "./pages/boards";
import { comparePage } from "./pages/compare";
import { fleetPage } from "./pages/fleet";
import { hostPage } from "./pages/host";
import type { Page } from "./pages/page";
import { queryPage } from "./pages/query";
import { readsPage } from "./pages/reads";
import { telemetryPage } from "./pages/telemetry";
import { type Route, keepSearch, parse } from "./router";
import { type Below, Search } from "./search/dialog";
import { timeOf } from "./search/found";
import * as theme from "./theme";

const main = h("main", { id: "main", tabindex: -1 });
const firing = h("span", { class: "badge num", hidden: true });
const links: [Route["page"], HTMLAnchorElement][] = [
  ["fleet", h("a", { href: "#/" }, "Fleet")],
  ["alerts", h("a", { href: "#/alerts" }, "Alerts", firing)],
  ["query", h("a", { href: "#/query" }, "Query")],
  ["boards", h("a", { href: "#/boards" }, "Boards")],
  ["reads", h("a", { href: "#/reads" }, "Reads")],
  ["telemetry", h("a", { href: "#/telemetry" }, "Telemetry")],
];
const themeButton = h("button", { type: "button", class: "quiet theme", on: { click: () => theme.toggle() } });
const searchButton = h("button", { type: "button", class: "quiet open-search", title: "Search hosts, metrics and alerts (/)", "aria-label": "Search", on: { click: () => search.open() } }, svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("circle", { cx: 7, cy: 7, r: 4.5 }), svg("path", { d: "M10.5 10.5 14 14" })), h("span", { class: "open-search-name" }, "Search"), h("kbd", { "aria-hidden": "true" }, "/"));
const helpButton = h("button", { type: "button", class: "quiet", title: "Keyboard (?)", "aria-label": "Keyboard help", on: { click: () => keys.showHelp() } }, "?");

let page: Page | null = null;
let shownPath = "";
let shown: Route | null = null;

const below: Below = {
  get host() { return shown?.page === "host" ? shown.name : null; },
  choices: () => page?.choices?.() ?? null,
  time: () => (shown?.page === "host" || shown?.page === "query" || shown?.page === "board" ? timeOf(parse(location.hash).parameters) : new URLSearchParams()),
};
const search = new Search(below);

function show(): void {
  const route = parse(location.hash);
  keepSearch(route.search);
  showPage(route);
  search.follow(route.search);
}

function showPage(route: Route): void {
  // Pages change their own parameters; only another path is another page.
  const path = location.hash;
  if (shown?.page === route.page && shown.name === route.name && page?.follow?.(route.parameters) === true) return;
  if (page !== null && path === shownPath) return;
  shownPath = path;
  shown = route;
  page?.destroy();
  page = create(route);
  document.title = `${page.title} – Onlooker`;
  for (const [name, link] of links) {
    const isBelow = (name === "fleet" && (route.page === "host" || route.page === "compare")) || (name === "boards" && route.page === "board");
    if (name === route.page || isBelow) {
      link.setAttribute("aria-current", "page");
      link.parentElement?.scrollTo({ left: link.offsetLeft - link.parentElement.offsetLeft - link.parentElement.clientWidth / 2 });
    } else link.removeAttribute("aria-current");
  }
  keys.setPage(page.bindings);
  main.replaceChildren(page.element);
  window.scrollTo(0, 0);
  page.shown?.();
}

function create(route: Route): Page {
  if (route.page === "fleet") return fleetPage(route.parameters);
  if (route.page === "host") return hostPage(route.name, route.parameters, () => search.open());
  if (route.page === "reads") return readsPage(route.parameters);
  if (route.page === "telemetry") return telemetryPage(route.parameters);
  if (route.page === "query") return queryPage(route.parameters);
  if (route.page === "boards") return boardsPage();
  if (route.page === "board") return boardPage(route.name, route.parameters);
  if (route.page === "compare") return comparePage(route.parameters);
  if (route.page === "alerts") return alertsPage(route.parameters);
  const element = h("div", { class: "page" }, notice("empty", "There is no such page", h("p", {}, h("a", { href: "#/" }, "To the fleet"))));
  element.prepend(h("h1", { class: "hidden" }, "Unknown page"));
  return { title: "Unknown page", element, bindings: [], destroy: () => undefined };
}

function showTheme(): void {
  const dark = theme.current() === "dark";
  setText(themeButton, dark ? "Light" : "Dark");
  themeButton.title = `Change to ${dark ? "light" : "dark"} (t)`;
}

function showFiring(): void {
  const count = alerts.all().filter((alert) => alert.state === "firing").length;
  setHidden(firing, count === 0);
  setText(firing, String(count));
  firing.setAttribute("aria-label", `${count} firing`);
}

keys.setGlobal([
  { keys: ["/"], help: "Search hosts, metrics and alerts", run: () => { search.open(); return undefined; } },
  { keys: ["f"], help: "Fleet", run: () => { location.hash = "#/"; return undefined; } },
  { keys: ["a"], help: "Alerts", run: () => { location.hash = "#/alerts"; return undefined; } },
  { keys: ["q"], help: "Query", run: () => { location.hash = "#/query"; return undefined; } },
  { keys: ["b"], help: "Boards", run: () => { location.hash = "#/boards"; return undefined; } },
  { keys: ["r"], help: "Reads", run: () => { location.hash = "#/reads"; return undefined; } },
  { keys: ["y"], help: "Telemetry", run: () => { location.hash = "#/telemetry"; return undefined; } },
  { keys: ["t"], help: "Light or dark", run: () => { theme.toggle(); return undefined; } },
  { keys: ["?"], help: "This help", run: () => { keys.showHelp(); return undefined; } },
]);

theme.start();
theme.onChange(showTheme);
showTheme();
keys.start();
alerts.onChange(showFiring);
alerts.start();

const logo = h("img", { src: "./favicon.svg", alt: "", width: 20, height: 20 });
const skip = h("button", { type: "button", class: "skip", on: { click: () => main.focus() } }, "Skip to content");
document.getElementById("app")!.append(
  skip,
  h("header", { class: "top" }, h("a", { href: "#/", class: "brand" }, logo, "Onlooker"), h("nav", { "aria-label": "Pages" }, ...links.map(([, link]) => link)), h("div", { class: "top-right" }, searchButton, themeButton, helpButton)),
  main,
);
window.addEventListener("hashchange", show);
show();
