// SPDX-License-Identifier: Apache-2.0
// Steps of e2e.mjs on the page of queries: typing and completion, errors at their place, chart and table, the address.

const field = (page) => page.getByLabel("PromQL query");
const listed = (page) => page.locator("#query-options li[role=option]");
const summary = (page) => page.locator(".query-summary").innerText();
const problem = (page) => page.locator("#query-problem");

async function ask(page, text) {
  await field(page).fill(text);
  await field(page).press("Enter");
}

export async function query(t, page, scheme) {
  await t.go(page, "#/");
  await page.keyboard.press("q");
  await t.eventually(`query ${scheme}: q opens the page, ready to type`, () => page.evaluate(() => document.activeElement?.id === "query"));
  t.check(`query ${scheme}: examples for who comes first`, (await page.locator(".query-past li").count()) >= 4);
  await t.shot(page, `query-begin-${scheme}`);
  await page.keyboard.type("node_lo");
  await t.eventually(`query ${scheme}: metrics with type and help`, async () => (await listed(page).first().innerText()).includes("node_load1") && (await listed(page).first().innerText()).includes("Load average"));
  await t.shot(page, `query-completion-${scheme}`);
  await page.keyboard.press("Tab");
  await page.keyboard.type("{in");
  await t.eventually(`query ${scheme}: labels of the metric`, async () => (await listed(page).allInnerTexts()).map((text) => text.trim()).join() === "instance");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await t.eventually(`query ${scheme}: a label leads to its values`, async () => (await listed(page).count()) === 3);
  await page.keyboard.type("web");
  await t.eventually(`query ${scheme}: values that fit`, async () => (await listed(page).count()) === 2);
  await page.keyboard.press("Tab");
  t.check(`query ${scheme}: what was chosen stands in the field`, (await field(page).inputValue()) === 'node_load1{instance="web-1"', await field(page).inputValue());
  await page.keyboard.press("Enter");
  await t.eventually(`query ${scheme}: an error says where it is`, async () => (await problem(page).innerText()).startsWith("Line 1, column 28: unexpected end"));
  t.check(`query ${scheme}: and marks the place`, (await page.locator(".query-mirror mark").count()) === 1 && (await field(page).getAttribute("aria-invalid")) === "true");
  await page.keyboard.type("}");
  t.check(`query ${scheme}: the mark goes with the next letter`, !(await problem(page).isVisible()));
  await page.keyboard.press("Enter");
  await t.eventually(`query ${scheme}: a chart, and what it is made of`, async () => /1 series · \d+ samples · a value every 10\u202fs/.test(await summary(page)));
  await t.eventually(`query ${scheme}: the line is drawn`, async () => (await page.locator(".chart h3").innerText()) === "node_load1" && (await page.locator(".chart .value").first().innerText()) !== "–");
  await t.shot(page, `query-chart-${scheme}`);

  await ask(page, "1 +\n  foo(up)");
  await t.eventually(`query ${scheme}: an error on the second line`, async () => (await problem(page).innerText()).startsWith('Line 2, column 3: unknown function with name "foo"'));
  t.check(`query ${scheme}: the mark is at the word`, (await page.locator(".query-mirror mark").innerText()) === "foo");
  await t.shot(page, `query-error-${scheme}`);

  await ask(page, "rate(node_load1[1m])");
  await t.eventually(`query ${scheme}: infos are shown`, async () => (await page.locator(".query-said li.info").innerText()).includes("might not be a counter"));
  await page.getByRole("button", { name: "Table", exact: true }).click();
  await ask(page, "node_memory_MemAvailable_bytes");
  await t.eventually(`query ${scheme}: a table with a row a host`, async () => (await page.locator("tbody tr[data-key]").count()) > 15 && (await page.locator("tbody td.c-value").first().innerText()).includes("iB"));
  t.check(`query ${scheme}: the table's time is told`, /\d+ series · at \d\d:\d\d:\d\d/.test(await summary(page)), await summary(page));
  await page.getByRole("button", { name: "Value", exact: true }).click();
  const before = await summary(page);
  await t.eventually(`query ${scheme}: a live answer is asked for again`, async () => (await summary(page)) !== before);
  t.check(`query ${scheme}: and stays sorted`, (await page.locator("th.c-value").getAttribute("aria-sort")) === "descending");
  await t.shot(page, `query-table-${scheme}`);
}

export async function queryMore(t, page) {
  await t.go(page, "#/query?q=up%20%3D%3D%200&w=10m&view=table");
  await t.eventually("query: an address has query, window and view", async () => (await field(page).inputValue()) === "up == 0" && (await page.locator("tbody tr[data-key]").count()) >= 2 && (await page.getByRole("button", { name: "10 min", exact: true }).getAttribute("aria-pressed")) === "true");
  await page.reload();
  await t.eventually("query: a reload keeps it", async () => (await page.locator("tbody tr[data-key]").count()) >= 2);
  await ask(page, "up == 7");
  await t.eventually("query: an empty answer says why", async () => (await page.locator(".query-why").innerText()).includes("comparison"));
  await ask(page, "nothing_of_this_name");
  await t.eventually("query: a metric that is none is named", async () => (await page.locator(".query-why").innerText()).includes("No series of the store is called nothing_of_this_name."));
  await t.shot(page, "query-empty");
  await page.goBack();
  await t.eventually("query: back is the query before", async () => (await field(page).inputValue()) === "up == 7" && page.url().includes("q=up+%3D%3D+7"));
  await ask(page, "42");
  await t.eventually("query: a number", async () => (await summary(page)).startsWith("a number") && (await page.locator("td.c-value").innerText()) === "42");
  await page.getByRole("button", { name: "Chart", exact: true }).click();
  await ask(page, '"some text"');
  await t.eventually("query: a text has no chart and is shown all the same", async () => (await page.locator(".query-string").innerText()) === "some text");
  await ask(page, 'up{instance="web-1"}[30s]');
  await t.eventually("query: so has a range; its samples have their times", async () => (await page.locator("td.c-value div").count()) === 21 && (await page.locator("td.c-value").innerText()).includes("1 @ "));
  await ask(page, 'node_cpu_seconds_total{instance="db-1"}');
  await t.eventually("query: of many series the first are drawn, and it says so", async () => (await summary(page)).includes("100 of them drawn") && (await page.locator(".query-said").innerText()).includes("The chart has the first 100 of"));
  await t.shot(page, "query-many");
  const over = page.locator(".u-over");
  const box = await over.boundingBox();
  await page.mouse.move(box.x + 100, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 300, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await t.eventually("query: a drag in the chart zooms, and stands in the address", () => /from=\d+&to=\d+/.test(page.url()));
  await page.locator(".query-begin summary").click();
  await t.eventually("query: the last queries are remembered, the newest first", async () => (await page.locator(".query-past li code").first().innerText()).startsWith("node_cpu_seconds_total{"));
  await page.getByRole("button", { name: "Forget them" }).click();
  t.check("query: and forgotten when told so", (await page.locator(".query-past h2").first().innerText()) === "Examples");

  const forbidden = await t.page({ viewport: { width: 390, height: 800 }, hasTouch: true });
  await forbidden.addInitScript(() => Object.defineProperty(window, "localStorage", { get: () => { throw new Error("forbidden"); } }));
  await t.go(forbidden, "#/query");
  await ask(forbidden, "sum by (instance) (rate(node_network_receive_bytes_total{device!=\"lo\"}[1m]))");
  await t.eventually("query: without storage, on a phone", async () => (await summary(forbidden)).includes("series ·"));
  const wide = await forbidden.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  t.check("query: a phone has nothing to scroll sideways", wide === 0, wide);
  await t.shot(forbidden, "query-phone");
  await forbidden.getByRole("button", { name: "Table", exact: true }).click();
  await t.eventually("query: a table on a phone", async () => (await forbidden.locator("tbody tr[data-key]").count()) > 10);
  await t.shot(forbidden, "query-phone-table");
  await forbidden.context().close();
}
