// SPDX-License-Identifier: Apache-2.0
// A scripted person who looks for faults that `bench/bench-causes` has planted in a fleet: counts what he does, and stops the time until the answer is on the page.
// Usage: node dev/causes.mjs URL SINCE_S DISK. SINCE_S: a host was cut off so long ago; DISK: the file system that fills up. SHOTS=DIR keeps screenshots.
// Prints lines `figure NAME VALUE`.

import { availableParallelism } from "node:os";
import { chart } from "./charts.mjs";
import { Harness } from "./harness.mjs";

const [url, since, disk] = process.argv.slice(2);
const cores = availableParallelism();
const t = await Harness.start({ url, close: async () => {} });

class Search {
  actions = 0;

  static async begin(name) {
    const search = new Search();
    search.name = name;
    search.page = await t.page({ viewport: { width: 1440, height: 900 } });
    await t.go(search.page, "#/");
    await t.eventually(`${name}: the first page is there`, async () => /%/.test(await search.page.locator("td.c-cpu").first().innerText()));
    search.began = performance.now();
    return search;
  }

  async click(locator, options) {
    this.actions++;
    await locator.scrollIntoViewIfNeeded();
    await locator.click(options);
  }

  async press(key) {
    this.actions++;
    await this.page.keyboard.press(key);
  }

  async type(text) {
    this.actions++;
    await this.page.keyboard.type(text);
  }

  async host(name) {
    await this.click(this.page.locator(`tr[data-key="${name}"]`).getByText(name, { exact: true }));
  }

  async section(name) {
    await this.click(this.page.locator("nav.index").getByRole("link", { name, exact: true }));
  }

  part(id) {
    return this.page.locator(`section[aria-labelledby="section-${id}"]`);
  }

  async found(what, probe) {
    const seen = await t.eventually(`${this.name}: ${what}`, probe);
    console.log(`figure ${this.name}_actions ${seen ? this.actions : "none"}`);
    console.log(`figure ${this.name}_ms ${seen ? Math.round(performance.now() - this.began) : "none"}`);
    await t.shot(this.page, `cause-${this.name}`);
    return seen;
  }

  async end() {
    await this.page.context().close();
  }
}

/** Whether a chart of that has values. */
async function isDrawn(page, text) {
  return /\d/.test(await page.locator("section.chart", { hasText: text }).first().locator(".legend .value").first().innerText());
}

/** The greatest share of all cores, as the legend's last column says of a mode. */
async function most(page, mode) {
  const entry = chart(page, "CPU by mode").locator(".legend li", { hasText: mode });
  return Number.parseFloat(await entry.locator(".stat").last().innerText());
}

/** Who takes a CPU for 50 ms again and again? */
async function spin() {
  const search = await Search.begin("spin");
  const { page } = search;
  await search.host("host-02");
  await search.section("Processes");
  const row = search.part("processes").locator("tbody tr", { hasText: "spinner" });
  await t.eventually("spin: it is among the processes", () => row.isVisible());
  await search.click(row);
  await search.found("its CPU is drawn", () => isDrawn(page, "spinner"));
  await search.end();
}

/** The spins themselves: where each row is drawn, and where a point is hundreds of them. Shares are of all cores. */
async function spins() {
  let visible = 0;
  const page = await t.page({ viewport: { width: 1440, height: 900 } });
  const cpu = chart(page, "CPU by mode");
  for (const seconds of [4, 3600]) {
    const to = Date.now() - 5000;
    await t.go(page, `#/host/host-02?from=${to - seconds * 1000}&to=${to}`);
    await cpu.scrollIntoViewIfNeeded();
    await cpu.locator(".legend .more").click();
    await cpu.locator(".legend button", { hasText: "nice" }).click();
    const seen = await t.eventually(`spins: over ${seconds} s a core for a moment`, async () => (await most(page, "nice")) >= 90 / cores);
    await t.shot(page, `cause-spins-${seconds}`);
    if (seen) visible++;
  }
  console.log(`figure spin_visible ${visible}`);
  await page.context().close();
}

/** Whose memory grows? */
async function leak() {
  const search = await Search.begin("leak");
  await search.host("host-03");
  await search.section("Containers");
  const groups = search.part("containers");
  await t.eventually("leak: groups are there", async () => (await groups.locator("tbody tr").count()) > 2);
  await search.click(groups.getByRole("button", { name: "Memory", exact: true }));
  const row = groups.locator("tbody tr", { hasText: "onlooker-causes" });
  await t.eventually("leak: the group is among the first", () => row.isVisible());
  await search.click(row);
  await search.found("its memory is drawn", () => isDrawn(search.page, "onlooker-causes"));
  await search.end();
}

/** Which disk is full? */
async function full() {
  const search = await Search.begin("disk");
  await search.click(search.page.locator("thead").getByRole("button", { name: "Disk", exact: true }));
  // What is mounted is the machine's, so that another host may tell it, too.
  const first = search.page.locator("tbody tr").first();
  await t.eventually("disk: the fullest first", async () => (await first.locator("td.c-disk").getAttribute("class")).includes("full"));
  await search.click(first.getByText(await first.getAttribute("data-key"), { exact: true }));
  await search.found("the file system is named", async () => (await search.page.locator(".vitals .tile", { hasText: "Fullest file system" }).innerText()).includes(disk.split("/").at(-1)));
  await search.end();
}

/** Who has to send again? */
async function link() {
  const search = await Search.begin("link");
  await search.click(search.page.locator("thead").getByRole("button", { name: "Retrans", exact: true }));
  const first = search.page.locator("tbody tr").first();
  await search.found("its host comes first", async () => (await first.getAttribute("data-key")) === "host-05" && Number.parseFloat(await first.locator("td.c-retransmit").innerText()) > 0);
  await search.end();
}

/** Who was away, and when? */
async function stall() {
  const search = await Search.begin("stall");
  const { page } = search;
  const spans = since > 600 ? "1 h" : "10 min";
  await search.click(page.locator(".fleet-heat").getByRole("button", { name: spans }));
  const canvas = page.locator(".fleet-heat-canvas");
  await t.eventually("stall: the heat map is drawn", async () => (await page.locator(".fleet-heat-scale").innerText()).includes("0 to 100"));
  const rows = await page.locator("tbody tr").evaluateAll((all) => all.map((row) => row.dataset.key));
  const box = await canvas.boundingBox();
  const y = ((rows.indexOf("host-01") + 0.5) * box.height) / rows.length;
  // As the eye does, along the row: where nothing is known.
  let place = null;
  for (let x = box.width - 12; x > 0 && place === null; x -= 3) {
    await page.mouse.move(box.x + x, box.y + y);
    if ((await page.locator(".fleet-heat .readout").innerText()).includes("not known")) place = x;
  }
  t.check("stall: a hole in its row", place !== null);
  await search.click(canvas, { position: { x: place ?? 0, y } });
  await search.found("the charts of that time say why", async () => {
    const tip = page.locator("section.chart .tip").first();
    const over = page.locator("section.chart .u-over").first();
    const size = await over.boundingBox();
    for (let x = 4; x < size.width; x += size.width / 60) {
      await page.mouse.move(size.x + x, size.y + 30);
      if (/host missing|gap/.test(await tip.innerText())) return true;
    }
    return false;
  });
  await search.end();
}

for (const cause of [spin, spins, leak, full, link, stall]) {
  try {
    await cause();
  } catch (error) {
    t.fail(cause.name, error.stack);
  }
}
await t.finish();
