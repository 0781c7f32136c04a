// SPDX-License-Identifier: Apache-2.0
//! The frame around the pages: header, navigation, theme and keyboard.

import "uplot/dist/uPlot.min.css";
import "./styles/base.css";
import "./styles/components.css";
import "./styles/charts.css";
import "./styles/fleet.css";
import "./styles/host.css";
import "./styles/query.css";
import "./styles/compare.css";
import * as alerts from "./alerts";
import { h, notice, setHidden, setText } from "./dom";
import * as keys from "./keys";
import { alertsPage } from "./pages/alerts";
import { comparePage } from "./pages/compare";
import { fleetPage } from "./pages/fleet";
import { hostPage } from "./pages/host";
import type { Page } from "./pages/page";
import { queryPage } from "./pages/query";
import { readsPage } from "./pages/reads";
import { type Route, parse } from "./router";
import * as theme from "./theme";

const main = h("main", { id: "main", tabindex: -1 });
const firing = h("span", { class: "badge num", hidden: true });
const links: [Route["page"], HTMLAnchorElement][] = [
  ["fleet", h("a", { href: "#/" }, "Fleet")],
  ["alerts", h("a", { href: "#/alerts" }, "Alerts", firing)],
  ["query", h("a", { href: "#/query" }, "Query")],
  ["reads", h("a", { href: "#/reads" }, "Reads")],
];
const themeButton = h("button", { type: "button", class: "quiet", on: { click: () => theme.toggle() } });
const helpButton = h("button", { type: "button", class: "quiet", title: "Keyboard (?)", "aria-label": "Keyboard help", on: { click: () => keys.showHelp() } }, "?");

let page: Page | null = null;
let shownPath = "";
let shown: Route | null = null;

function show(): void {
  // Pages change their own parameters; only another path is another page.
  const path = location.hash;
  const route = parse(path);
  if (shown?.page === route.page && shown.host === route.host && page?.follow?.(route.parameters) === true) return;
  if (page !== null && path === shownPath) return;
  shownPath = path;
  shown = route;
  page?.destroy();
  page = create(route);
  document.title = `${page.title} – Onlooker`;
  for (const [name, link] of links) {
    if (name === route.page || (name === "fleet" && (route.page === "host" || route.page === "compare"))) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  keys.setPage(page.bindings);
  main.replaceChildren(page.element);
  window.scrollTo(0, 0);
  page.shown?.();
}

function create(route: Route): Page {
  if (route.page === "fleet") return fleetPage(route.parameters);
  if (route.page === "host") return hostPage(route.host, route.parameters);
  if (route.page === "reads") return readsPage(route.parameters);
  if (route.page === "query") return queryPage(route.parameters);
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
  { keys: ["f"], help: "Fleet", run: () => { location.hash = "#/"; return undefined; } },
  { keys: ["a"], help: "Alerts", run: () => { location.hash = "#/alerts"; return undefined; } },
  { keys: ["q"], help: "Query", run: () => { location.hash = "#/query"; return undefined; } },
  { keys: ["r"], help: "Reads", run: () => { location.hash = "#/reads"; return undefined; } },
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
  h("header", { class: "top" }, h("a", { href: "#/", class: "brand" }, logo, "Onlooker"), h("nav", { "aria-label": "Pages" }, ...links.map(([, link]) => link)), h("div", { class: "top-right" }, themeButton, helpButton)),
  main,
);
window.addEventListener("hashchange", show);
show();
