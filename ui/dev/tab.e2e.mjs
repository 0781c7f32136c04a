// SPDX-License-Identifier: Apache-2.0
// Step of e2e.mjs: all pages without a mouse. Tab reaches whatever can be pressed, in the order of the page, and shows where it is; keys do what the pointer does.

import { chart } from "./charts.mjs";
import { viewOf } from "./time.mjs";

/** More stops than any page has. */
const MOST_STOPS = 600;

const focused = (page, selector) => page.evaluate((wanted) => document.activeElement.matches(wanted), selector);

/** Browsers go on from where the focus was: so it is put where the page begins. */
const toTop = (page) => page.locator("button.skip").focus();

/** Where Tab stops from the top of the page on, told by the elements' places in the document; and what it has not reached. */
async function walk(page) {
  await toTop(page);
  await page.evaluate(() => {
    window.stops = [];
    /** The element that has the focus now, false once there is none that was not seen before. */
    window.stop = () => {
      const node = document.activeElement;
      if (node === document.body || window.stops.some((stop) => stop.node === node)) return false;
      const { outlineStyle, outlineWidth } = getComputedStyle(node);
      const box = node.getBoundingClientRect();
      const [x, y] = [Math.min(window.innerWidth - 1, Math.max(0, box.left + Math.min(box.width, 20) / 2)), box.top + box.height / 2];
      const top = document.elementFromPoint(x, Math.min(window.innerHeight - 1, Math.max(0, y)));
      window.stops.push({ node, isRinged: outlineStyle !== "none" && outlineWidth !== "0px", isOnTop: top !== null && (node.contains(top) || top.contains(node)) });
      return true;
    };
  });
  for (let i = 0; i < MOST_STOPS && (await page.evaluate(() => window.stop())); i++) await page.keyboard.down("Tab");
  await page.keyboard.up("Tab");
  // On the way back what has the focus comes in at the top, where something may lie over it.
  const count = await page.evaluate(() => {
    const { node } = window.stops.at(-1);
    window.there = window.stops;
    window.stops = [];
    node.focus();
    return window.there.length;
  });
  await page.keyboard.down("Shift");
  for (let i = 0; i < count && (await page.evaluate(() => window.stop())); i++) await page.keyboard.down("Tab");
  await page.keyboard.up("Tab");
  await page.keyboard.up("Shift");
  return page.evaluate(() => {
    const told = (node) => (node.getAttribute("aria-label") ?? node.textContent).slice(0, 40) || node.outerHTML.slice(0, 60);
    const nodes = window.there.map(({ node }) => node);
    const all = [...window.there, ...window.stops];
    const there = [...document.querySelectorAll("a[href], button:not(:disabled), input, select, summary, [tabindex]")].filter((node) => node.tabIndex >= 0 && node.checkVisibility({ visibilityProperty: true }));
    return {
      count: Math.min(nodes.length, window.stops.length),
      missed: there.filter((node) => !nodes.includes(node)).map(told),
      disordered: nodes.filter((node, i) => i > 0 && (nodes[i - 1].compareDocumentPosition(node) & window.Node.DOCUMENT_POSITION_PRECEDING) !== 0).map(told),
      bare: all.filter(({ isRinged }) => !isRinged).map(({ node }) => told(node)),
      covered: all.filter(({ isOnTop }) => !isOnTop).map(({ node }) => told(node)),
    };
  });
}

async function whole(t, page, name, least) {
  const { count, missed, disordered, bare, covered } = await walk(page);
  t.check(`tab: ${name}: reaches all that can be pressed`, missed.length === 0 && count >= least, [count, ...missed]);
  t.check(`tab: ${name}: in the order of the page`, disordered.length === 0, disordered);
  t.check(`tab: ${name}: shows where it is`, bare.length === 0 && covered.length === 0, { bare, covered });
}

/** Presses Tab until the focus is on what is wanted. */
async function tabTo(t, page, what, selector) {
  for (let i = 0; i < MOST_STOPS && !(await focused(page, selector)); i++) await page.keyboard.press("Tab");
  t.check(`tab: reaches ${what}`, await focused(page, selector), await page.evaluate(() => document.activeElement.outerHTML.slice(0, 120)));
}

/** The control that has the focus opens a dialog, which keeps the focus and gives it back. */
async function dialog(t, page, name, selector) {
  await page.keyboard.press("Enter");
  await t.eventually(`tab: ${name} opens`, async () => page.locator("dialog[open]").isVisible());
  for (let i = 0; i < 12; i++) await page.keyboard.press("Tab");
  t.check(`tab: ${name} keeps the focus`, await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest("dialog") !== null));
  await page.keyboard.press("Escape");
  await t.eventually(`tab: ${name} gives the focus back`, async () => (await page.locator("dialog").count()) === 0 && focused(page, selector));
}

async function fleet(t, page) {
  await t.go(page, "#/");
  await t.eventually("tab: fleet: hosts", async () => (await page.locator("tbody tr td.c-cpu .meter").count()) > 10 && /0 to/.test(await page.locator(".fleet-heat-scale").innerText()));
  await whole(t, page, "fleet", 40);
  await page.reload();
  await t.eventually("tab: fleet: hosts again", async () => (await page.locator("tbody tr").count()) === 24 && /0 to/.test(await page.locator(".fleet-heat-scale").innerText()));
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  t.check("tab: the first stop skips to the content", await focused(page, "main"));
  await tabTo(t, page, "the heat map", ".fleet-heat-canvas");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  const told = await page.locator(".fleet-heat .readout").innerText();
  await page.keyboard.press("Enter");
  await t.eventually("tab: opens a host from the heat map", () => page.url().includes(`#/host/${told.split(" ")[0]}?from=`));
  await page.keyboard.press("Escape");
  await t.eventually("tab: back in the fleet", async () => (await page.locator("tbody tr").count()) === 24);
  await tabTo(t, page, "a row", "tbody tr");
  for (let i = 0; i < 30 && !(await focused(page, '[data-key="web-1"]')); i++) await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await t.eventually("tab: opens a host from the table", async () => page.url().includes("#/host/web-1"));
}

/** On the page of web-1, which is live. */
async function host(t, page) {
  const sign = page.locator(".live");
  await t.eventually("tab: the host is live", async () => (await sign.innerText()) === "live");
  await tabTo(t, page, "the time shown", "button.range");
  await dialog(t, page, "the time picker", "button.range");
  await tabTo(t, page, "a chart", ".plot");
  const cpu = chart(page, "CPU by mode");
  // Without values there is no cursor, and Esc leaves the page.
  await t.eventually("tab: the chart has values", async () => /\d/.test(await cpu.locator(".legend .value").first().innerText()));
  await page.keyboard.press("Home");
  await t.eventually("tab: a chart's cursor moves", async () => cpu.locator(".tip").isVisible());
  await page.keyboard.press("Escape");
  await t.eventually("tab: and goes", async () => cpu.locator(".tip").isHidden());
  t.check("tab: Esc leaves the page alone", page.url().includes("#/host/web-1") && (await focused(page, ".plot")));
  const width = () => viewOf(page).to - viewOf(page).from;
  await page.keyboard.press("Shift+ArrowLeft");
  await t.eventually("tab: pans", async () => width() > 0 && (await sign.innerText()) === "paused");
  const wide = width();
  await page.keyboard.press("+");
  await t.eventually("tab: zooms", () => width() < wide);
  await page.keyboard.press("l");
  await t.eventually("tab: is live again", async () => (await sign.innerText()) === "live");
  const entries = cpu.locator(".legend li button[aria-pressed]");
  const pressed = async () => (await entries.evaluateAll((nodes) => nodes.map((node) => node.getAttribute("aria-pressed")))).join(" ");
  const all = await pressed();
  await tabTo(t, page, "an entry of its legend", ".legend li button[aria-pressed]");
  await page.keyboard.press("Enter");
  t.check("tab: shows one line alone", (await pressed()) === all.replaceAll("true", "false").replace("false", "true"), await pressed());
  await page.keyboard.press("Enter");
  t.check("tab: and all of them", (await pressed()) === all, await pressed());
  await page.keyboard.press("Shift+Enter");
  t.check("tab: hides one", (await pressed()) === all.replace("true", "false"), await pressed());
  await page.keyboard.press("Shift+Enter");
  await toTop(page);
  await tabTo(t, page, "the index", 'nav.index a[href$="s=processes"]');
  await page.keyboard.press("Enter");
  await t.eventually("tab: the index leads to a section", async () => focused(page, "#section-processes"));
  await t.eventually("tab: it has rows", async () => (await page.locator('section[aria-labelledby="section-processes"] tbody tr').count()) === 20);
  await tabTo(t, page, "a process", 'section[aria-labelledby="section-processes"] tbody tr');
  await page.keyboard.press("ArrowDown");
  const before = await page.locator("section.chart").count();
  await page.keyboard.press("Enter");
  await t.eventually("tab: opens a process", async () => (await page.locator("section.chart").count()) > before);
  await tabTo(t, page, "what removes its chart", ".remove");
  const opened = await page.locator("section.chart").count();
  await page.keyboard.press("Enter");
  await t.eventually("tab: removes it", async () => (await page.locator("section.chart").count()) === opened - 1);

  // Paused, since a page that moves has more and fewer rows while Tab goes through it; from above, so that all is there.
  await page.keyboard.press(" ");
  await t.eventually("tab: paused", async () => (await sign.innerText()) === "paused");
  await page.evaluate(() => window.scrollTo(0, 0));
  for (let i = 0; i < 10; i++) {
    await page.keyboard.press("s");
    await page.waitForTimeout(300);
  }
  await whole(t, page, "host", 100);
}

async function comparison(t, page) {
  await t.go(page, "#/compare?host=web-1&host=web-2&m=cpu&m=memory&w=10m");
  await t.eventually("tab: comparison", async () => /%/.test(await chart(page, "Memory").locator(".legend .value").first().innerText()));
  await page.keyboard.press(" ");
  await t.eventually("tab: comparison: paused", () => /from=\d+/.test(page.url()));
  await whole(t, page, "comparison", 30);
}

async function others(t, page) {
  await t.go(page, "#/alerts");
  await t.eventually("tab: alerts", async () => (await page.locator("tbody tr[data-key]").count()) === 4);
  await tabTo(t, page, "the rules", "details.rules summary");
  await page.keyboard.press("Enter");
  t.check("tab: opens the rules", await page.locator(".rules tbody tr").first().isVisible());
  await whole(t, page, "alerts", 15);
  await toTop(page);
  await tabTo(t, page, "an alert", "tbody tr[data-key]");
  await page.keyboard.press("Enter");
  await t.eventually("tab: opens an alert's host", () => page.url().includes("#/host/"));
  await t.go(page, "#/reads");
  await t.eventually("tab: reads", async () => (await page.locator("tbody tr").count()) === 24);
  await whole(t, page, "reads", 15);
  await toTop(page);
  await tabTo(t, page, "the help", 'button[aria-label="Keyboard help"]');
  await dialog(t, page, "the help", 'button[aria-label="Keyboard help"]');
  await toTop(page);
  await tabTo(t, page, "the search", "header .open-search");
  await dialog(t, page, "the search", "header .open-search");
  await t.play({ token: "secret" });
  await t.go(page, "#/");
  await t.eventually("tab: a token is asked for", async () => page.locator("#token").isVisible());
  await tabTo(t, page, "the token", "#token");
  await page.keyboard.type("secret");
  await page.keyboard.press("Enter");
  await t.eventually("tab: logs in", async () => (await page.locator("tbody tr").count()) === 24);
  await t.play({ token: null });
}

async function board(t, page) {
  await t.play({ boards: "writable" });
  // Paused: panels that are asked again may have more and fewer lines while Tab goes through them.
  const to = Date.now() - 60_000;
  await t.go(page, `#/board/hosts?from=${to - 60_000}&to=${to}&edit=1`);
  await t.eventually("tab: a board", async () => (await page.locator(".panel").count()) === 10 && /\d/.test(await page.locator(".panel .legend .value").first().innerText()));
  for (let i = 0; i < 10; i++) {
    await page.locator(".panel").nth(i).scrollIntoViewIfNeeded();
    await t.eventually(`tab: its panel ${i + 1}`, async () => (await page.locator(".panel").nth(i).locator(".legend .value").count()) > 0);
  }
  await page.evaluate(() => window.scrollTo(0, 0));
  await whole(t, page, "board", 100);
}

export async function tab(t) {
  const page = await t.page({ reducedMotion: "reduce" });
  for (const part of [fleet, host, comparison, others, board]) await part(t, page);
  await page.context().close();
}
