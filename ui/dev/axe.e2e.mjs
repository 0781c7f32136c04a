// SPDX-License-Identifier: Apache-2.0
// Step of e2e.mjs: axe-core finds nothing on any page, in each of its states, light and dark, wide and on a phone. All rules of WCAG 2.0 to 2.2, A and AA, and its best practices.

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { chart } from "./charts.mjs";
import { start } from "./server.mjs";

/** By groups, since axe-core leaves some out unless they are named: those of WCAG 2.2 among them. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa", "best-practice"];
const WIDTHS = [1280, 390];
const SCHEMES = ["light", "dark"];
const SOURCE = await readFile(fileURLToPath(import.meta.resolve("axe-core/axe.min.js")), "utf8");

/** Each with the element and why. The source is evaluated as by a debugger, which the page's policy lets pass. */
async function violations(page, within) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(SOURCE);
  return page.evaluate(async ([values, include]) => {
    const { violations } = await window.axe.run({ include }, { runOnly: { type: "tag", values }, resultTypes: ["violations"] });
    return violations.flatMap(({ id, nodes }) => nodes.map(({ target, html, failureSummary }) => `${id} ${target.join(" ")} ${html.slice(0, 120)} ${failureSummary.split("\n").slice(1).join(";").slice(0, 200)}`));
  }, [RULES, within]);
}

/** The page as it is now, in both themes; or only what has come to it, where the rest was scanned before. */
async function scan(t, page, name, within = ["html"]) {
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme });
    await page.waitForFunction((theme) => document.documentElement.dataset.theme === theme, colorScheme);
    const found = await violations(page, within);
    t.check(`axe: ${name}, ${colorScheme}`, found.length === 0, found);
    await t.shot(page, `axe-${name.replaceAll(/\W+/g, "-")}-${colorScheme}`);
  }
}

async function fleet(t, page, at) {
  await t.go(page, "#/");
  await t.eventually(`axe: fleet, ${at}: hosts`, async () => (await page.locator("tbody tr td.c-cpu .meter").count()) > 10 && /0 to/.test(await page.locator(".fleet-heat-scale").innerText()));
  await scan(t, page, `fleet, ${at}`);
  await page.getByRole("button", { name: "Reading", exact: true }).click();
  await page.getByRole("button", { name: "dc=b 8" }).click();
  await page.locator(".fleet-heat-canvas").focus();
  await page.keyboard.press("ArrowDown");
  await scan(t, page, `fleet as Reading, ${at}`);
  await page.locator("tbody tr[data-key]").first().focus();
  for (const key of ["x", "j", "x"]) await page.keyboard.press(key);
  await t.eventually(`axe: fleet, ${at}: two hosts are chosen`, async () => page.locator(".compare-bar a").isVisible());
  await scan(t, page, `fleet with hosts chosen, ${at}`, ["main"]);
  await page.getByRole("searchbox").fill("no such host");
  await scan(t, page, `fleet without a match, ${at}`);
  await page.getByRole("button", { name: "Keyboard help" }).click();
  await scan(t, page, `help, ${at}`, ["dialog"]);
  await page.keyboard.press("Escape");
}

async function host(t, page, at) {
  await t.go(page, "#/host/web-1?w=1m&f=app_latency_seconds");
  await t.eventually(`axe: host, ${at}: is live`, async () => (await page.locator(".live").innerText()) === "live");
  // Sections are empty until they come into view, and keep what they have afterwards.
  const links = await page.locator("nav.index a").count();
  for (let i = 1; i < links; i++) {
    await page.keyboard.press("s");
    await page.waitForTimeout(500);
  }
  await t.eventually(`axe: host, ${at}: tables are filled`, async () => (await page.locator("section.host-section tbody tr").count()) > 40);
  await page.getByRole("button", { name: /min, avg, max/ }).first().click();
  const processes = page.locator("section.host-section", { has: page.locator('h2:text-is("Processes")') });
  await processes.locator("tbody tr").first().click();
  await t.eventually(`axe: host, ${at}: a row is open`, async () => (await processes.locator("section.chart").count()) > 2);
  await page.locator("details.regions summary").click();
  await scan(t, page, `host, ${at}`);
  await page.keyboard.press("g");
  await scan(t, page, `host with the time picker, ${at}`, ["dialog"]);
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await t.eventually(`axe: host, ${at}: metrics are found`, async () => (await page.locator(".found-metric").count()) > 10);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowRight");
  await t.eventually(`axe: host, ${at}: a metric is open`, async () => page.locator(".found-members .found-main").first().isVisible());
  await scan(t, page, `host with the search, ${at}`, ["dialog"]);
  await page.locator("dialog input").fill("nosuch");
  await t.eventually(`axe: host, ${at}: nothing is found`, async () => page.locator("dialog .notice.empty").isVisible());
  await scan(t, page, `host with a search for nothing, ${at}`, ["dialog"]);
  const to = Date.now() - 60_000;
  await t.go(page, `#/host/web-1?from=${to - 300_000}&to=${to}&f=app_latency_seconds&s=cpu`);
  await t.eventually(`axe: host in a fixed view, ${at}: values`, async () => /\d/.test(await chart(page, "CPU by mode").locator(".legend .value").first().innerText()));
  await chart(page, "CPU by mode").locator(".legend button").first().click();
  await chart(page, "CPU by mode").locator(".plot").focus();
  await page.keyboard.press("Home");
  await scan(t, page, `host in a fixed view, ${at}`, [".toolbar", ".asked", 'section[aria-labelledby="section-overview"]', 'section[aria-labelledby="section-cpu"]']);
}

async function search(t, page, at) {
  await t.go(page, "#/?find=o&metric=node_load1");
  await t.eventually(`axe: search, ${at}: all kinds, one metric open`, async () => (await page.locator("dialog h2").count()) === 3);
  await scan(t, page, `search, ${at}`, ["dialog"]);
  await t.go(page, "#/?find=odd&metric=odd_pages_total");
  await t.eventually(`axe: odd search, ${at}: open`, async () => page.locator(".found-members .found-main").first().isVisible());
  await scan(t, page, `odd search, ${at}`, ["dialog"]);
  await t.play({ down: true });
  await page.locator("dialog input").fill("cpu");
  await t.eventually(`axe: search, ${at}: no answer`, async () => page.locator("dialog .notice.error").isVisible());
  await scan(t, page, `search without an answer, ${at}`, ["dialog"]);
  await t.play({ down: false });
}

async function comparison(t, page, at) {
  await t.go(page, "#/compare?host=web-1&host=web-2&host=nobody&q=node_load1&w=10m");
  await t.eventually(`axe: comparison, ${at}: values`, async () => /%/.test(await chart(page, "CPU").locator(".legend .value").first().innerText()) && page.locator(".query-answer .legend").isVisible());
  await scan(t, page, `comparison, ${at}`);
  await page.getByLabel("PromQL query").fill("rate(up[1m])");
  await page.getByLabel("PromQL query").press("Enter");
  await t.eventually(`axe: comparison, ${at}: a query is refused`, async () => page.locator("#query-problem").isVisible());
  await scan(t, page, `comparison with a query that is refused, ${at}`, [".compare-own"]);
  await t.go(page, "#/compare");
  await t.eventually(`axe: comparison of nothing, ${at}`, async () => page.locator(".notice").isVisible());
  await scan(t, page, `comparison of nothing, ${at}`);
}

/** Ten thousand, of which few rows are elements. */
async function many(t, page, at) {
  const server = await start("dist", 0, 10_000);
  try {
    await page.goto(server.url);
    await t.eventually(`axe: many hosts, ${at}`, async () => (await page.locator("table").getAttribute("aria-rowcount")) === "10001" && /0 to/.test(await page.locator(".fleet-heat-scale").innerText()));
    await page.evaluate(() => window.scrollTo(0, 100_000));
    await scan(t, page, `many hosts, ${at}`);
  } finally {
    server.close();
  }
}

async function others(t, page, at) {
  await t.go(page, "#/host/edge-1");
  await t.eventually(`axe: host that is not read, ${at}: why`, async () => page.locator(".host-head .problem").isVisible());
  await scan(t, page, `host that is not read, ${at}`);
  await t.go(page, "#/alerts");
  await page.locator("details.rules summary").click();
  await scan(t, page, `alerts, ${at}`);
  await t.go(page, "#/telemetry?host=web-1&key=10.0.0.1:443%3E10.0.9.9:40001/tcp");
  await t.eventually(`axe: telemetry, ${at}: events and a path`, async () => (await page.locator("tbody tr").count()) > 100);
  await scan(t, page, `telemetry, ${at}`);
  await t.go(page, "#/reads");
  await t.eventually(`axe: reads, ${at}: hosts`, async () => (await page.locator("tbody tr").count()) === 24);
  await scan(t, page, `reads, ${at}`);
  await t.go(page, "#/nonsense");
  await scan(t, page, `unknown page, ${at}`);
  await t.go(page, "#/host/nobody");
  await t.eventually(`axe: unknown host, ${at}: is said`, async () => page.locator(".notice.empty").isVisible());
  await scan(t, page, `unknown host, ${at}`);
}

async function boards(t, page, at) {
  await t.play({ boards: "writable" });
  await t.go(page, "#/boards");
  await t.eventually(`axe: boards, ${at}`, async () => (await page.locator("tbody tr[data-key]").count()) === 1);
  await scan(t, page, `boards, ${at}`);
  await page.getByRole("button", { name: "Import" }).click();
  await page.locator("#field-text").fill("{}");
  await page.locator("dialog button[type=submit]").click();
  await t.eventually(`axe: an import that is refused, ${at}`, async () => page.locator("dialog .problem").isVisible());
  await scan(t, page, `import, ${at}`, ["dialog"]);
  await t.play({ board: { name: "web", file: JSON.parse(await readFile(new URL("../test/fixtures/grafana.json", import.meta.url), "utf8")) } });
  await t.go(page, "#/board/web?edit=1");
  await t.eventually(`axe: a board, ${at}`, async () => (await page.locator(".panel").count()) >= 9 && /\d/.test(await page.locator(".tile-value").first().innerText()));
  await page.locator("details.folded summary").click();
  await scan(t, page, `board that is edited, ${at}`);
  await t.go(page, "#/board/hosts");
  await t.eventually(`axe: the shipped board, ${at}`, async () => /\d/.test(await page.locator(".panel .legend .value").first().innerText()));
  await scan(t, page, `board, ${at}`);
}

async function troubles(t, page, at) {
  await t.go(page, "#/host/web-4?w=10s");
  await t.eventually(`axe: a host that will be removed, ${at}: charts`, async () => (await page.locator("section.chart").count()) > 5);
  await t.play({ remove: "web-4" });
  await t.eventually(`axe: a host is removed, ${at}`, async () => page.locator(".notice.error").isVisible());
  await scan(t, page, `host removed, ${at}`, [".notice", ".host-head"]);
  await t.play({ restore: true });
  const notice = async (play, text) => {
    await t.play(play);
    await t.go(page, "#/");
    await t.eventually(`axe: ${text}, ${at}`, async () => (await page.locator(".notice").innerText()).includes(text));
    await scan(t, page, `${text}, ${at}`);
  };
  await t.go(page, "#/");
  await t.eventually(`axe: an answer first, ${at}`, async () => (await page.locator("tbody tr").count()) > 10);
  await t.play({ down: true });
  await t.eventually(`axe: no answer, ${at}`, async () => page.locator(".banner").isVisible());
  await scan(t, page, `no answer, ${at}`);
  await notice({ down: true }, "This cannot be shown");
  await notice({ down: false, empty: true }, "No hosts yet");
  await notice({ empty: false, token: "secret" }, "asks for a token");
  await t.play({ token: null });
  await t.play({ rules: false, quiet: true });
  await t.go(page, "#/alerts");
  await t.eventually(`axe: no rules, ${at}`, async () => (await page.locator(".notice").innerText()).includes("No rules"));
  await scan(t, page, `no rules, ${at}`);
  await t.play({ rules: true, quiet: false });
}

export async function axe(t) {
  for (const width of WIDTHS) {
    const page = await t.page({ viewport: { width, height: 844 }, reducedMotion: "reduce" });
    const at = `${width} px`;
    for (const part of [fleet, search, host, comparison, many, others, boards, troubles]) await part(t, page, at);
    await page.context().close();
  }
}
