// SPDX-License-Identifier: Apache-2.0
// Steps of e2e.mjs on boards: the shipped one, editing by keyboard, two who edit at once, import and export, those that are only looked at; and links from charts to queries.

import { readFile } from "node:fs/promises";
import { chart } from "./charts.mjs";

const panel = (page, title) => page.locator(".panel", { has: page.locator(`header h3:text-is("${title}")`) });
const titles = (page) => page.locator(".panel > header h3").allInnerTexts();
const saved = (page) => page.locator(".board-head [role=status]").innerText();
/** Of what the controller has. */
const stored = (page, name) => page.evaluate(async (path) => (await fetch(path)).json(), `api/onlooker/v1/boards/${name}`);

export async function hosts(t, page, scheme) {
  await t.play({ boards: "writable" });
  await t.go(page, "#/");
  await page.keyboard.press("b");
  await t.eventually(`boards ${scheme}: b lists them`, async () => (await page.locator("tbody tr[data-key] a").allInnerTexts()).join() === "Onlooker: hosts");
  await t.shot(page, `boards-${scheme}`);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await t.eventually(`boards ${scheme}: Enter opens one`, async () => page.url().includes("#/board/hosts") && (await page.locator("h1").innerText()) === "Onlooker: hosts");
  await t.eventually(`boards ${scheme}: with its variables`, async () => (await page.locator("#variable-instance").inputValue()) === "web-1");
  await page.locator("#variable-instance").fill("web-2");
  await page.locator("#variable-instance").press("Enter");
  await t.eventually(`boards ${scheme}: a variable stands in the address`, () => page.url().includes("var-instance=web-2"));
  const value = panel(page, "Load, and tasks that run").locator(".legend .value").first();
  await t.eventually(`boards ${scheme}: its panels have values`, async () => /\d/.test(await value.innerText()) && (await panel(page, "CPU, cores in use").locator(".legend .label").first().innerText()).startsWith("web-2 "));
  t.check(`boards ${scheme}: all panels are there, in order`, (await titles(page)).length === 10 && (await titles(page))[2] === "Memory in use", await titles(page));
  t.check(`boards ${scheme}: nothing of it is left out`, await page.locator(".board > details, details.folded").isHidden());
  await t.shot(page, `board-${scheme}`);
  await page.reload();
  await t.eventually(`boards ${scheme}: a deep link keeps the variable`, async () => (await page.locator("#variable-instance").inputValue()) === "web-2" && /\d/.test(await value.innerText()));
  await panel(page, "Memory in use").getByRole("link", { name: /^Query/ }).click();
  await t.eventually(`boards ${scheme}: a panel leads to its query`, async () => (await page.getByLabel("PromQL query").inputValue()) === '1 - node_memory_MemAvailable_bytes{instance=~"web-2"} / node_memory_MemTotal_bytes{instance=~"web-2"}');
  await t.eventually(`boards ${scheme}: which gives values`, async () => (await page.locator(".query-summary").innerText()).startsWith("1 series"));
}

export async function editing(t, page) {
  await t.play({ boards: "writable" });
  await t.go(page, "#/query?q=node_load1&w=10m");
  await t.eventually("boards: a query first", async () => (await page.locator(".query-summary").innerText()).includes("series"));
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press("B");
  await t.eventually("boards: B asks for the board", async () => page.locator("dialog[open]").isVisible());
  await page.locator("#field-board").selectOption({ label: "A new board" });
  await page.locator("#field-new").fill("My board");
  await page.locator("#field-title").fill("Load <b>now</b>");
  await t.shot(page, "board-add");
  await page.keyboard.press("Enter");
  await t.eventually("boards: a new one has the panel", async () => page.url().includes("#/board/my-board") && (await titles(page)).join() === "Load <b>now</b>");
  await t.eventually("boards: with values of all hosts", async () => /\d/.test(await page.locator(".panel .legend .value").first().innerText()));
  await page.keyboard.press("e");
  for (const [kind, title, content] of [["stat", "Hosts", "count(up)"], ["table", "Up", "up"], ["text", "Notes", "<script>x</script> \u202eabc"]]) {
    await page.keyboard.press("n");
    await page.locator("#field-kind").selectOption(kind);
    await page.locator("#field-title").fill(title);
    await page.locator("#field-content").fill(content);
    await page.getByRole("button", { name: "Add it" }).click();
    await t.eventually(`boards: n adds a ${kind}`, async () => (await page.locator("dialog").count()) === 0 && (await titles(page)).includes(title));
  }
  await t.eventually("boards: a figure", async () => (await panel(page, "Hosts").locator(".tile-value").innerText()) === "24");
  await t.eventually("boards: a table", async () => (await panel(page, "Up").locator("tbody tr").count()) === 24);
  t.check("boards: a text is text", (await panel(page, "Notes").locator(".panel-body").innerText()).startsWith("<script>"));
  await t.eventually("boards: all is saved", async () => (await saved(page)) === "saved" && (await stored(page, "my-board")).panels.length === 4);
  await t.shot(page, "board-editing");
  await panel(page, "Hosts").getByRole("button", { name: /^Move before/ }).focus();
  await page.keyboard.press("Enter");
  t.check("boards: a panel moves by keyboard", (await titles(page)).slice(0, 2).join() === "Hosts,Load <b>now</b>", await titles(page));
  t.check("boards: and keeps the focus", await page.evaluate(() => document.activeElement.closest(".panel")?.querySelector("h3").textContent === "Hosts"));
  const wide = async () => (await panel(page, "Hosts").boundingBox()).width;
  const before = await wide();
  await panel(page, "Hosts").getByRole("button", { name: /^Wider/ }).focus();
  await page.keyboard.press("Enter");
  await t.eventually("boards: wider", async () => (await wide()) > before * 1.2);
  await panel(page, "Hosts").getByRole("button", { name: /^Change/ }).click();
  await page.locator("#field-title").fill("All hosts");
  await page.getByRole("button", { name: "Change it" }).click();
  await t.eventually("boards: another title", async () => (await titles(page))[0] === "All hosts");
  await panel(page, "All hosts").getByRole("button", { name: /^Remove/ }).click();
  await t.eventually("boards: removed", async () => !(await titles(page)).includes("All hosts"));
  for (let i = 0; i < 4; i++) await page.keyboard.press("u");
  await t.eventually("boards: u undoes, change by change", async () => (await titles(page)).slice(0, 2).join() === "Load <b>now</b>,Hosts");
  await t.eventually("boards: what is undone is saved", async () => (await saved(page)) === "saved" && (await stored(page, "my-board")).panels[1].gridPos.w === 6);
  await page.keyboard.press("e");
  t.check("boards: e ends it", await page.locator(".panel-edits").first().isHidden());
}

/** On the board of `editing`. */
export async function conflict(t, page) {
  await page.keyboard.press("e");
  await t.play({ board: { name: "my-board", file: { title: "Theirs", panels: [] } } });
  await panel(page, "Hosts").getByRole("button", { name: /^Remove/ }).click();
  await t.eventually("boards: who comes late is told", async () => (await page.locator(".banner[role=alert]").innerText()).includes("Somebody else has changed this board"));
  t.check("boards: and overwrites nothing", (await stored(page, "my-board")).title === "Theirs");
  await t.shot(page, "board-conflict");
  await page.getByRole("button", { name: "Keep mine" }).click();
  await t.eventually("boards: one's own can be kept", async () => (await saved(page)) === "saved" && (await stored(page, "my-board")).title === "My board");
  await t.play({ board: { name: "my-board", file: { title: "Theirs", panels: [] } } });
  await panel(page, "Up").getByRole("button", { name: /^Remove/ }).click();
  await page.getByRole("button", { name: "Take theirs" }).click();
  await t.eventually("boards: or theirs taken", async () => (await page.locator("h1").innerText()) === "Theirs" && (await page.locator(".notice").innerText()).includes("This board is empty"));
  await page.getByRole("button", { name: "Delete board" }).click();
  await page.getByRole("button", { name: "Delete it" }).click();
  await t.eventually("boards: and deleted", async () => page.url().endsWith("#/boards") && (await page.locator("tbody tr[data-key]").count()) === 1);
}

export async function transfer(t, page) {
  await t.play({ boards: "writable" });
  await t.go(page, "#/boards");
  const file = new URL("../test/fixtures/grafana.json", import.meta.url);
  await t.eventually("boards: the list", async () => (await page.locator("tbody tr[data-key]").count()) === 1);
  await page.keyboard.press("i");
  await page.locator("#field-text").fill("{}");
  await page.getByRole("button", { name: "Import", exact: true }).last().click();
  await t.eventually("boards: what is none is refused", async () => (await page.locator("dialog .problem").innerText()).includes("no dashboard of Grafana"));
  await page.locator("#field-text").fill("");
  await page.locator("#field-file").setInputFiles({ name: "web.json", mimeType: "application/json", buffer: await readFile(file) });
  await t.eventually("boards: a file brings title and name", async () => (await page.locator("#field-name").inputValue()) === "web-tier");
  await t.shot(page, "board-import");
  await page.locator("dialog button[type=submit]").click();
  await t.eventually("boards: an import is shown", async () => page.url().includes("#/board/web-tier") && (await page.locator("h1").innerText()) === "Web tier");
  await t.eventually("boards: with its figure and text", async () => (await panel(page, "Notes").innerText()).includes("<b>not</b>"));
  await t.eventually("boards: a panel that is not shown says why", async () => (await panel(page, "Latency").innerText()).includes("heatmap"));
  await page.locator("details.folded summary").click();
  t.check("boards: and all that is not shown is listed", (await page.locator(".board-left li").count()) === 9, await page.locator(".board-left").innerText());
  t.check("boards: a folded row stays folded", (await page.locator("details.board-row").nth(1).getAttribute("open")) === null);
  await t.shot(page, "board-imported");
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export" }).click()]);
  const [mine, theirs] = [JSON.parse(await readFile(await download.path(), "utf8")), JSON.parse(await readFile(file, "utf8"))];
  t.check("boards: the export is the import", JSON.stringify(mine) === JSON.stringify({ ...theirs, id: null }));
}

export async function fixed(t, page) {
  await t.play({ boards: "fixed" });
  await t.go(page, "#/boards");
  await t.eventually("boards: a directory that is provisioned says so", async () => (await page.locator(".hint").innerText()).includes("cannot be added here"));
  await t.go(page, "#/board/hosts");
  await t.eventually("boards: its boards are looked at", async () => (await page.locator(".panel").count()) === 10);
  t.check("boards: and not edited", await page.getByRole("button", { name: "Edit", exact: true }).isHidden());
  await t.go(page, "#/board/nothing");
  await t.eventually("boards: an unknown one is said", async () => (await page.locator(".notice").innerText()).includes("There is no board nothing"));
  await t.play({ boards: "writable" });
}

export async function links(t, page) {
  await t.go(page, "#/host/web-1?w=10m");
  await t.eventually("links: charts are there", async () => (await page.locator("section.chart").count()) > 5);
  const all = await page.locator("section.chart").evaluateAll((nodes) => nodes.map((node) => node.querySelector(".chart-links a")?.getAttribute("href") ?? ""));
  t.check("links: each chart has its query", all.every((href) => href.startsWith("#/query?q=") && href.includes("w=10m")), all);
  t.check("links: no label of the page's own", all.every((href) => !href.includes("__part")));
  const link = chart(page, "Load average").getByRole("link", { name: /^Query of Load average/ });
  await link.focus();
  await page.keyboard.press("Enter");
  await t.eventually("links: by keyboard to the query", async () => (await page.getByLabel("PromQL query").inputValue()).startsWith('label_replace(node_load1{instance="web-1"}, "line", "1 min"'));
  await t.eventually("links: which gives the same lines", async () => (await page.locator(".query-summary").innerText()).startsWith("3 series"));
  await t.go(page, "#/");
  await t.eventually("links: the heat map is there", async () => /0 to/.test(await page.locator(".fleet-heat-scale").innerText()));
  // Told by the address alone: this process would make up the values of all hosts for a while.
  const heat = page.getByRole("link", { name: "Query of hosts over time" });
  await heat.focus();
  const address = decodeURIComponent(await heat.getAttribute("href"));
  t.check("links: the heat map has its query", address.startsWith("#/query?q=round(max_over_time(onlooker_host_cpu_ratio{instance=~") && address.endsWith("&w=1h"), address);
}
