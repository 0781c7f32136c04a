// SPDX-License-Identifier: Apache-2.0
// The dashboard in Firefox (Debian's firefox-esr, as it is, by WebDriver BiDi) against the fixture: `npm run firefox`. Each page works, by keyboard and by mouse, and says nothing on the console.
// It has dependencies of its own, whose types would become those of the dashboard. What e2e.mjs asks of Chromium in detail is asked here once. FIREFOX=PROGRAM; SHOTS=DIR keeps screenshots.

import puppeteer from "puppeteer-core";
import { frameDistances, quantile } from "../charts.mjs";
import { Harness } from "../harness.mjs";
import { start } from "../server.mjs";

const FIREFOX = process.env.FIREFOX ?? "/usr/bin/firefox-esr";
const HOSTS = 10_000;

const t = await Harness.start(null, () => puppeteer.launch({ browser: "firefox", executablePath: FIREFOX, headless: true }));
console.log(`in ${await t.browser.version()}`);

async function open(url, viewport = { width: 1280, height: 800 }) {
  const page = t.watch(await t.browser.newPage());
  await page.setViewport(viewport);
  await page.goto(url);
  return page;
}
const count = (page, selector) => page.$$eval(selector, (all) => all.length);
const text = (page, selector) => page.$eval(selector, (element) => element.innerText);
const attribute = (page, selector, name) => page.$eval(selector, (element, name) => element.getAttribute(name), name);

/** Of a canvas: how many colours of it are there. */
const colours = (page, selector) => page.$eval(selector, (canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
});
const isLive = async (page) => (await text(page, ".live")) === "live";
const CPU = 'section.chart[aria-label^="CPU by mode"]';

async function fleet(page) {
  await t.eventually("fleet: 24 hosts", async () => (await count(page, "tbody tr[data-key]")) === 24);
  await t.eventually("fleet: the heat map is drawn", async () => /0 to/.test(await text(page, ".fleet-heat-scale")) && (await colours(page, ".fleet-heat-canvas")) > 20);
  await t.shot(page, "firefox-fleet");
  await page.keyboard.press("F");
  await page.keyboard.type("web-1");
  await t.eventually("fleet: F filters", async () => (await count(page, "tbody tr[data-key]")) === 1);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Enter");
  await t.eventually("fleet: Enter opens the host", () => page.url().includes("#/host/web-1"));
}

async function host(page) {
  await t.eventually("host: is live", () => isLive(page));
  await t.eventually("host: charts are drawn", async () => (await colours(page, `${CPU} canvas`)) > 50);
  await t.shot(page, "firefox-host");
  const frames = await frameDistances(page, 4000);
  console.log(`     ${frames.length} frames of a live page: median ${quantile(frames, 0.5).toFixed(1)} ms, p95 ${quantile(frames, 0.95).toFixed(1)} ms`);
  const plot = await (await page.$(`${CPU} .u-over`)).boundingBox();
  const at = (share) => [plot.x + plot.width * share, plot.y + plot.height / 2];
  await page.mouse.move(...at(0.3));
  await t.eventually("host: the pointer reads values", async () => /\d\d:\d\d:\d\d/.test(await text(page, `${CPU} .tip`)));
  await page.mouse.down();
  await page.mouse.move(...at(0.5), { steps: 5 });
  await page.mouse.move(...at(0.7), { steps: 5 });
  await page.mouse.up();
  await t.eventually("host: a drag zooms", () => /from=.*to=/.test(page.url()));
  await t.eventually("host: what is past is drawn", async () => (await colours(page, `${CPU} canvas`)) > 50);
  await page.goBack();
  await t.eventually("host: back is live again", async () => !page.url().includes("from=") && (await isLive(page)));
  await page.keyboard.press("/");
  await page.keyboard.type("latency");
  await t.eventually("search: finds", async () => (await text(page, "dialog.search .found-metric .series-name")) === "app_latency_seconds");
  await page.keyboard.press("Enter");
  await t.eventually("search: Enter adds the chart", async () => (await attribute(page, "section.chart", "aria-label")).startsWith("app_latency_seconds"));
}

async function query(page) {
  await page.keyboard.press("q");
  await t.eventually("query: q opens the page, ready to type", () => page.evaluate(() => document.activeElement?.id === "query"));
  await page.keyboard.type("node_load1");
  await t.eventually("query: names are completed", async () => (await text(page, "#query-options li[role=option]")).includes("node_load1"));
  await page.keyboard.press("Escape");
  await page.keyboard.press("Enter");
  await t.eventually("query: a line a series", async () => /^\d\d series · [\d,\u202f]+ samples/.test(await text(page, ".query-summary")) && (await colours(page, ".query .chart canvas")) > 20);
  await t.shot(page, "firefox-query");
}

async function others(page) {
  const pages = {
    alerts: ["#/alerts", "tbody tr[data-key]"],
    boards: ["#/boards", "main a[href*='board/'], main button"],
    reads: ["#/reads", "main table, main section"],
    comparison: ["#/compare?host=web-1&host=db-1&w=10m", ".charts section.chart"],
  };
  for (const [name, [hash, selector]] of Object.entries(pages)) {
    await page.goto(t.server.url + hash);
    await t.eventually(`${name}: is there`, async () => (await count(page, selector)) > 0);
    await t.shot(page, `firefox-${name}`);
  }
}

async function crowd() {
  const server = await start("dist", 0, HOSTS);
  try {
    const page = await open(`${server.url}#/?sort=name`);
    await t.eventually("10,000 hosts: all are in the table, few are elements", async () => (await attribute(page, "table", "aria-rowcount")) === String(HOSTS + 1) && (await count(page, "tbody tr[data-key]")) < 120);
    await page.keyboard.press("j");
    await page.keyboard.press("End");
    await t.eventually("10,000 hosts: End goes to the last", () => page.evaluate((last) => document.activeElement.ariaRowIndex === last, String(HOSTS + 1)));
    await t.shot(page, "firefox-crowd");
    await page.close();
  } finally {
    server.close();
  }
}

try {
  const page = await open(`${t.server.url}#/`);
  await fleet(page);
  await host(page);
  await query(page);
  await others(page);
  await page.close();
  const phone = await open(`${t.server.url}#/host/web-1`, { width: 390, height: 844 });
  await t.eventually("phone: is live", () => isLive(phone));
  const [scroll, width] = await phone.evaluate(() => [document.documentElement.scrollWidth, window.innerWidth]);
  t.check("phone: nothing is wider than the screen", scroll <= width, scroll);
  await t.shot(phone, "firefox-phone");
  await phone.close();
  await crowd();
} catch (error) {
  t.fail("runs to its end", error.message);
}
await t.finish();
