// SPDX-License-Identifier: Apache-2.0
// How fluid the dashboard is, for `bench/bench-ui`: pages of a controller are used as people do, and the distances of the browser's frames say how it looks.
// Usage: node dev/fluid.mjs URL rows|day|fleet|soak HOSTS SECONDS. QUICK=1: shorter. SHOTS=DIR keeps screenshots. Prints lines `figure NAME VALUE`.

import { readFile } from "node:fs/promises";
import { chart, frameDistances, quantile } from "./charts.mjs";
import { Harness } from "./harness.mjs";

const [url, part, hosts, seconds] = process.argv.slice(2);
const t = await Harness.start({ url, close: async () => {} });
const MS = process.env.QUICK ? 3000 : 15_000;
const NOTCH_MS = 50;
const figure = (name, value) => console.log(`figure ${name} ${value}`);

/** 95 of 100 frames come so soon after the one before; beside it what the machine can do at all. */
async function frames(page, name, act) {
  const [all] = await Promise.all([frameDistances(page, MS), act?.()]);
  figure(`${name}_frame_p50_ms`, quantile(all, 0.5).toFixed(2));
  figure(`${name}_frame_p95_ms`, quantile(all, 0.95).toFixed(2));
  figure(`${name}_frame_max_ms`, Math.max(...all).toFixed(1));
}

/** Frames while a wheel zooms in and out and pans, notch by notch, over the middle of a chart. */
async function wheel(page, name, title) {
  const plot = chart(page, title).locator(".u-over");
  await plot.scrollIntoViewIfNeeded();
  const { x, y, width } = await plot.boundingBox();
  await page.mouse.move(x + width / 2, y + 60);
  const notch = async (key, by) => {
    await page.keyboard.down(key);
    await page.mouse.wheel(0, by);
    await page.keyboard.up(key);
    await page.waitForTimeout(NOTCH_MS);
  };
  await frames(page, name, async () => {
    const until = performance.now() + MS;
    for (let i = 0; performance.now() < until; i++) await notch(i % 12 < 8 ? "Control" : "Shift", i % 8 < 4 ? -120 : 120);
  });
  // A wheel beside the chart would have been that of a page that rests.
  const before = page.url();
  await notch("Control", -120);
  await t.eventually(`${part}: the wheel moves the view`, () => page.url() !== before);
}

const hasValues = (page, title) => t.eventually(`${part}: ${title} has values`, async () => /\d/.test(await chart(page, title).locator(".legend .value").first().innerText()));

/** Rows that come every 10 ms in charts of 50 series and more, on a tall screen: as they come, and while a moment of them is looked through. */
async function rows() {
  const page = await t.page({ viewport: { width: 1280, height: 1600 } });
  let series = 0;
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (pathname.endsWith("/live")) series = Math.max(series, searchParams.getAll("series").length);
  });
  // Not every kernel has all of them.
  const more = ["node_pressure_cpu_waiting_seconds_total", "node_pressure_memory_waiting_seconds_total", "node_pressure_io_waiting_seconds_total", "node_context_switches_total", "node_softirqs_functions_total", "node_softirqs_total",
    "node_cpu_seconds_total", "onlooker_responder_packets_total", "node_cpu_guest_seconds_total", "node_schedstat_running_seconds_total", "node_intr_total"].map((name) => `f=${name}`).join("&");
  // Among those on the screen: of the others nobody asks for values.
  const title = "node_cpu_seconds_total";
  await t.go(page, `#/host/host-00?w=10s&${more}`);
  await hasValues(page, title);
  await page.waitForTimeout(4000);
  await frames(page, "live");
  figure("live_series", series);
  await t.shot(page, "fluid-live");
  const to = Date.now() - 3000;
  await t.go(page, `#/host/host-00?from=${to - 3000}&to=${to}&${more}`);
  await hasValues(page, title);
  await wheel(page, "rows", title);
  await t.shot(page, "fluid-rows");
  await page.context().close();
}

/** Time from a click until `isThere`, which is looked at in the page at each frame, holds: what it shows is drawn in that frame. */
async function drawn(page, button, isThere, ...given) {
  await page.evaluate(() => {
    window.clicked = null;
    window.addEventListener("click", ({ timeStamp }) => (window.clicked = timeStamp), { capture: true, once: true });
  });
  const seen = page.waitForFunction(`window.clicked !== null && (${isThere})(...${JSON.stringify(given)}) ? performance.now() - window.clicked : 0`, null, { polling: "raf" });
  await button.click();
  return (await seen).jsonValue();
}

const isHeatDone = (text) => {
  const heat = document.querySelector(".fleet-heat");
  return heat.ariaBusy === "false" && document.querySelector(".fleet-heat-canvas").ariaLabel?.startsWith(text);
};
const isChartThere = (title) => document.querySelector("section.chart")?.ariaLabel.startsWith(title);
const isHeatWhole = (page) => t.eventually(`${part}: the heat map is drawn`, async () => /0 to/.test(await page.locator(".fleet-heat-scale").innerText()) && (await page.locator(".fleet-heat").getAttribute("aria-busy")) === "false");

/** The same click several times, with others between them: the median. */
async function timed(name, once) {
  const all = [];
  for (let i = 0; i < 5; i++) all.push(await once());
  figure(`${name}_ms`, quantile(all, 0.5).toFixed(0));
  figure(`${name}_max_ms`, Math.max(...all).toFixed(0));
}

/** A day of all hosts: as a chart with a line for each of them, and as a heat map. */
async function day() {
  const page = await t.page({ bypassCSP: true });
  const span = `${seconds / 3600}h`;
  await t.go(page, `#/query?q=node_load1&w=${span}`);
  const isRead = async () => (await page.locator(".query-summary").innerText()).startsWith(`${hosts} series`) && (await page.locator("section.chart").count()) === 1;
  await t.eventually("day: a line for each host", isRead);
  let factor = 1;
  await timed("day_chart", async () => {
    const query = `node_load1 * ${++factor}`;
    await page.locator("textarea").fill(query);
    return drawn(page, page.getByRole("button", { name: "Run", exact: true }), isChartThere, query);
  });
  await t.shot(page, "fluid-day");
  const to = Date.now() - 60_000;
  await t.go(page, `#/query?q=node_load1&from=${to - seconds * 1000}&to=${to}`);
  await t.eventually("day: a line for each host again", isRead);
  await wheel(page, "day", "node_load1");
  await t.shot(page, "fluid-day-zoomed");
  await t.go(page, "#/?over=1h");
  await isHeatWhole(page);
  const over = (name, label) => drawn(page, page.locator(".fleet-heat").getByRole("button", { name, exact: true }), isHeatDone, `CPU of ${hosts} hosts over ${label}`);
  await timed("day_heat", async () => {
    const ms = await over("24 h", "24 h");
    await over("1 h", "1 h");
    return ms;
  });
  await page.context().close();
}

/** Hosts by the thousand: scrolled, sorted, filtered, and another metric of all of them. */
async function fleet() {
  const page = await t.page({ bypassCSP: true });
  await t.go(page, "#/nothing");
  await page.waitForTimeout(1000);
  await frames(page, "idle");
  await t.go(page, "#/?sort=name&over=10m");
  await t.eventually("fleet: all hosts are in the table", async () => (await page.locator("table").getAttribute("aria-rowcount")) === String(Number(hosts) + 1));
  await isHeatWhole(page);
  const heat = (name) => drawn(page, page.locator(".fleet-heat").getByRole("button", { name, exact: true }), isHeatDone, `${name} of `);
  await timed("fleet_heat", async () => {
    const ms = await heat("Memory");
    await heat("CPU");
    return ms;
  });
  await t.shot(page, "fluid-fleet");
  const every = async (ms, act) => {
    for (const until = performance.now() + MS; performance.now() < until;) {
      await act();
      await page.waitForTimeout(ms);
    }
  };
  // As fast as a wheel that is turned without a pause: 60 rows a second.
  await page.evaluate(() => {
    const step = () => {
      window.scrollBy(0, 35);
      window.scrolling = requestAnimationFrame(step);
    };
    step();
  });
  await frames(page, "scroll");
  await t.shot(page, "fluid-fleet-scrolled");
  await page.evaluate(() => {
    window.cancelAnimationFrame(window.scrolling);
    window.scrollTo(0, 0);
  });
  await frames(page, "sort", () => every(500, () => page.locator("th.c-name button").click()));
  const field = page.locator('input[type="search"]').first();
  let typed = 0;
  await frames(page, "filter", () => every(500, () => field.fill(typed++ % 2 === 0 ? "host-9" : "")));
  await page.context().close();
}

/** Pages that are left open, live: what they hold once all that is garbage is gone, every half minute. */
async function soak() {
  const tabs = { fleet: "#/", host: "#/host/host-00?w=1m", query: "#/query?q=rate(node_context_switches_total[10s])&w=10m" };
  const page = await t.page({ bypassCSP: true });
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable");
  const browser = await t.browser.newBrowserCDPSession();
  for (const [name, hash] of Object.entries(tabs)) {
    await t.go(page, hash);
    await page.waitForTimeout(5000);
    const all = [];
    const every = Math.min(30, seconds / 10);
    for (const until = performance.now() + (1000 * seconds) / Object.keys(tabs).length; performance.now() < until;) {
      await page.waitForTimeout(1000 * every);
      await client.send("HeapProfiler.collectGarbage");
      const { metrics } = await client.send("Performance.getMetrics");
      const of = (key) => metrics.find((one) => one.name === key).value;
      const { processInfo } = await browser.send("SystemInfo.getProcessInfo");
      const renderers = await Promise.all(processInfo.filter(({ type }) => type === "renderer").map(async ({ id }) => Number(/^Pss:\s+(\d+)/m.exec(await readFile(`/proc/${id}/smaps_rollup`, "utf8"))?.[1] ?? 0)));
      all.push({ heap: of("JSHeapUsedSize"), nodes: of("Nodes"), listeners: of("JSEventListeners"), pss: Math.max(...renderers) });
    }
    // The first third fills what is kept of the time shown.
    const [early, late] = [all.slice(Math.floor(all.length / 3), Math.ceil((2 * all.length) / 3)), all.slice(Math.floor((2 * all.length) / 3))];
    for (const key of ["heap", "nodes", "listeners", "pss"]) {
      const [before, after] = [early, late].map((some) => quantile(some.map((one) => one[key]), 0.5));
      figure(`${name}_${key}`, after);
      figure(`${name}_${key}_growth`, (after / before).toFixed(3));
    }
  }
  await page.context().close();
}

await { rows, day, fleet, soak }[part]();
await t.finish();
