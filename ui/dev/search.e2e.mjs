// SPDX-License-Identifier: Apache-2.0
// Steps of e2e.mjs for the search: charts of a host, all hosts, and what programs call things.

import { chart, pixelsNear } from "./charts.mjs";

const found = (page) => page.locator("dialog.search .found-metric > .found-main .series-name");
const summary = (page) => page.locator(".found-summary").innerText();
const isClosed = async (page) => (await page.locator("dialog").count()) === 0;
const focusedText = (page) => page.evaluate(() => document.activeElement.innerText);

/** What was asked last is answered. */
const isAnswered = async (page, text) => new URLSearchParams(page.url().split(/#[^?]*[?]/)[1]).get("find") === text && (await page.locator("dialog.search .found[aria-busy]").count()) === 0;

/** Opens the search, types, and waits until that is answered, and the first metric is the wanted one. */
async function type(t, page, text, first) {
  await page.keyboard.press("/");
  await page.keyboard.type(text);
  await t.eventually(`search: ${text} finds ${first}`, async () => (await isAnswered(page, text)) && (await found(page).first().innerText()) === first);
}

export async function charts(t, page) {
  await t.go(page, "#/host/web-1?w=1m");
  // Programs have charts at once; one that is asked for is the same, first.
  await t.eventually("programs have charts", async () => (await chart(page, "app_queue_depth").count()) === 1);
  const charts = await page.locator("section.chart").count();
  const first = async (name) => (await page.locator("section.chart").first().getAttribute("aria-label")).startsWith(name) && (await page.locator("section.chart").count()) === charts;
  await type(t, page, "requests_total shop", "app_requests_total");
  t.check("search: by words, on the host", (await found(page).count()) === 1 && (await summary(page)).endsWith("series of web-1"), await summary(page));
  await t.shot(page, "search");
  await page.keyboard.press("Enter");
  await t.eventually("search: Enter puts the chart first", async () => (await first("app_requests_total")) && (await isClosed(page)));
  t.check("search: the address is the page's again", !page.url().includes("find="), page.url());
  await type(t, page, "latency", "app_latency_seconds");
  await found(page).first().click();
  await t.eventually("search: a click does so with a heat map", () => first("app_latency_seconds"));
  await page.getByRole("button", { name: "Add a chart" }).click();
  await page.keyboard.type("queue_depth");
  await t.eventually("search: the only metric is open", async () => (await page.locator(".found-members .found-main").count()) === 20);
  t.check("search: what is not shown is said", (await page.locator(".found-members .note").innerText()).startsWith("The first 20 of 50 series."));
  await page.keyboard.press("Enter");
  await t.eventually("search: a family in one chart", async () => (await chart(page, "app_queue_depth").locator(".legend .value").count()) === 16);
  await type(t, page, "node_load", "node_load1");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  await t.eventually("search: → shows the series with their values", async () => /node_load1\s*[\d.]+/.test(await page.locator(".found-members .found-main").first().innerText()));
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  await t.eventually("search: ← hides them, and keeps the place", async () => (await page.locator(".found-members").count()) === 0 && (await focusedText(page)).startsWith("node_load1"));
  await page.keyboard.press("Escape");
  await t.eventually("search: Esc closes it", () => isClosed(page));
  await rates(t, page, charts, first);
}

async function rates(t, page, charts, first) {
  await t.eventually("heat: cells are painted", async () => (await pixelsNear(page, "app_latency_seconds", "--heat-3", 0.3, 1)) > 10);
  await t.eventually("heat: quantiles are told", async () => (await chart(page, "app_latency_seconds").locator(".readout").innerText()).includes("p99"));
  const rate = chart(page, "app_requests_total").locator(".legend .value");
  await rate.scrollIntoViewIfNeeded();
  await t.eventually("the added chart has values", async () => /\d/.test(await rate.innerText()));
  const rates = [];
  for (let i = 0; i < 25; i++) {
    rates.push(await rate.innerText());
    await page.waitForTimeout(100);
  }
  // The fixture's program serves 100 to 900 a second, and begins anew every 20 s.
  t.check("a reset counter's rate stays true", rates.every((shown) => shown === "–" || (parseFloat(shown) > 50 && parseFloat(shown) < 1000)), rates);
  const lowest = await page.evaluate(async (name) => (await fetch(name)).json(), `api/onlooker/v1/hosts/web-1/range?series=${encodeURIComponent('app_requests_total{pid="4321",program="shop"}')}&from_ms=${Date.now() - 60_000}&to_ms=${Date.now()}&points=600`);
  t.check("and the window does have resets", lowest.series[0].last.some((value, i, all) => i > 0 && value < all[i - 1]));
  await t.shot(page, "host-added");
  const url = page.url();
  t.check("added charts stand in the address", url.includes("c=app_requests_total") && url.includes("f=app_queue_depth"), url);
  await page.reload();
  await t.eventually("a deep link brings them back", () => first("app_queue_depth"));
  await page.getByRole("button", { name: "Remove the chart app_queue_depth" }).click();
  await t.eventually("charts can be removed", async () => (await page.locator("section.chart").count()) === charts - 1);
}

export async function everywhere(t, page) {
  await t.go(page, "#/");
  await t.eventually("search: the fleet is there", async () => (await page.locator("tbody tr").count()) === 24);
  await type(t, page, "load1", "node_load1");
  const row = page.locator(".found-metric").first();
  t.check("search: type, and series on hosts", (await row.innerText()).includes("gauge · 22 series on 22 hosts"), await row.innerText());
  t.check("search: what fits is marked", (await row.locator("mark").first().innerText()) === "load1");
  t.check("search: all is counted", /^Found 2 metrics \(44 series\) among 60.\d{3} series of 24 hosts$/.test(await summary(page)), await summary(page));
  await page.keyboard.press("Enter");
  const hosts = page.locator(".found-members a.found-main");
  await t.eventually("search: Enter opens to its hosts", async () => (await hosts.count()) === 20);
  t.check("search: says how many more", (await page.locator(".found-members .note").innerText()).startsWith("The first 20 of 22 hosts."));
  await page.getByRole("button", { name: "Show more" }).focus();
  await page.keyboard.press("Enter");
  await t.eventually("search: shows more, and goes on there", async () => (await hosts.count()) === 22 && (await focusedText(page)).startsWith("web-7"));
  await t.shot(page, "search-everywhere");
  t.check("search: stands in the address", page.url().includes("find=load1&metric=node_load1"), page.url());
  await page.reload();
  await t.eventually("search: a deep link opens it", async () => (await hosts.count()) === 20);
  for (let i = 0; i < 2; i++) await page.keyboard.press("ArrowDown");
  t.check("search: arrows go through it", (await focusedText(page)).startsWith("api-1"), await focusedText(page));
  await page.keyboard.press("Enter");
  await t.eventually("search: leads to a host's chart", async () => page.url().endsWith("#/host/api-1?f=node_load1") || (await page.locator("section.chart").first().getAttribute("aria-label")).startsWith("node_load1"));
  await t.eventually("search: and is gone", () => isClosed(page));
  await page.goBack();
  await t.eventually("search: back leads to it again", async () => (await hosts.count()) === 20);
  await page.getByRole("link", { name: "Query node_load1", exact: true }).click();
  await t.eventually("search: leads to the query", async () => page.url().includes("#/query?q=node_load1") && (await isClosed(page)) && (await page.locator(".legend .value").count()) > 10);

  await t.go(page, "#/host/web-1?w=1h");
  await t.eventually("search: a host's page", async () => (await page.locator("section.chart").count()) > 5);
  await type(t, page, "load15", "node_load15");
  t.check("search: of the host at first", (await page.getByRole("button", { name: "On web-1" }).getAttribute("aria-pressed")) === "true");
  await page.getByRole("button", { name: "All hosts" }).click();
  await t.eventually("search: all hosts by a click, in the address", async () => (await page.locator(".found-metric").innerText()).includes("on 22 hosts") && page.url().includes("in=all"));
  await t.eventually("search: links keep the time", async () => (await hosts.first().getAttribute("href")) === "#/host/api-1?w=1h&f=node_load15");
  await page.keyboard.press("Escape");

  await t.go(page, "#/reads");
  await page.keyboard.press("/");
  await page.keyboard.type("db-2");
  await t.eventually("search: hosts by name", async () => (await page.locator(".found h2").first().innerText()) === "Hosts");
  await page.keyboard.press("Enter");
  await t.eventually("search: Enter opens the host", async () => /#\/host\/db-2([?]|$)/.test(page.url()) && (await isClosed(page)));
  await page.keyboard.press("/");
  await page.getByRole("button", { name: "All hosts" }).click();
  await page.locator("dialog.search input").fill("hostsilent");
  await t.eventually("search: alerts by name", async () => (await page.locator(".found .found-main").innerText()).includes("2 firing"));
  await page.locator("dialog.search input").focus();
  await page.keyboard.press("Enter");
  await t.eventually("search: leads to the alerts", () => page.url().includes("#/alerts?q=HostSilent"));
}

export async function oddities(t, page) {
  await t.go(page, "#/host/cache-3");
  await t.eventually("search: an odd host", async () => (await page.locator("section.chart").count()) > 5);
  const title = await page.title();
  await type(t, page, "odd", "odd_pages_total");
  const text = await page.locator("dialog.search .found").innerText();
  t.check("search: markup is text", text.includes("</p><script>document.title") && (await page.title()) === title && (await page.locator("dialog.search img, dialog.search script, dialog.search i").count()) === 0, text);
  await page.locator(".found-metric").first().getByRole("button", { name: "Series of odd_pages_total" }).click();
  await t.eventually("search: labels are, too", async () => (await page.locator(".found-members").innerText()).includes("<img src=x onerror=alert(1)>"));
  const fits = () => page.evaluate(() => { const box = document.querySelector("dialog.search .found"); return box.scrollWidth <= box.clientWidth; });
  t.check("search: nothing reaches beyond it", await fits());
  await t.shot(page, "search-odd");
  await page.locator("dialog.search input").fill("no such thing");
  await t.eventually("search: nothing is found, and why", async () => /Nothing has “?.?no such thing/.test(await page.locator(".found .notice").innerText()));
  await t.shot(page, "search-nothing");
  await page.getByRole("button", { name: "Search all hosts" }).click();
  await t.eventually("search: nor anywhere", async () => page.url().includes("in=all") && (await page.locator(".found .notice button").count()) === 0);
  await t.play({ down: true });
  await page.locator("dialog.search input").fill("cpu");
  await t.eventually("search: says that nobody answers", async () => (await page.locator(".found .notice.error").innerText()).includes("cannot be reached"));
  await t.shot(page, "search-error");
  await t.play({ down: false });
  await page.getByRole("button", { name: "Try again", exact: true }).click();
  await t.eventually("search: and tries again", async () => (await found(page).first().innerText()) === "node_cpu_seconds_total");
  await page.keyboard.press("Escape");
  await t.eventually("search: Esc closes it at once", async () => (await isClosed(page)) && !page.url().includes("find="));
}
