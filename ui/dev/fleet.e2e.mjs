// SPDX-License-Identifier: Apache-2.0
// Steps of e2e.mjs on the fleet's page: who is busy, who is full, and when.

const cell = (page, column, row = 1) => page.locator(`tbody tr:nth-child(${row}) td.c-${column}`);
const share = async (locator) => Number.parseFloat(await locator.innerText());

export async function vitals(t, page, scheme) {
  await t.go(page, "#/");
  const db = page.locator('tr[data-key="db-2"]');
  await t.eventually(`vitals ${scheme}: a host's figures`, async () => /%/.test(await db.locator("td.c-cpu").innerText()) && /B\/s/.test(await db.locator("td.c-in").innerText()));
  t.check(`vitals ${scheme}: a disk that fills up is red, and says where`, (await db.locator("td.c-disk").getAttribute("class")).includes("full") && (await db.locator("td.c-disk").getAttribute("title")).startsWith("/"));
  await page.getByRole("button", { name: "CPU", exact: true }).last().click();
  await t.eventually(`vitals ${scheme}: the busiest first`, async () => (await share(cell(page, "cpu"))) >= (await share(cell(page, "cpu", 5))));
  t.check(`vitals ${scheme}: a host that is not read has none`, (await page.locator('tr[data-key="edge-1"] td.c-cpu').innerText()).includes("–"));
  await t.eventually(`vitals ${scheme}: how the CPU went`, async () => (await page.locator("td.c-trend path").count()) > 3);
  await page.getByRole("button", { name: "Retrans", exact: true }).click();
  await t.eventually(`vitals ${scheme}: the link that loses most first`, async () => (await share(cell(page, "retransmit"))) > 1);
  await t.shot(page, `vitals-${scheme}`);
}

export async function heat(t, page) {
  await t.go(page, "#/?sort=cpu.desc");
  const canvas = page.locator(".fleet-heat-canvas");
  const scale = page.locator(".fleet-heat-scale");
  await t.eventually("heat: a scale in per cent", async () => (await scale.innerText()).includes("0 to 100"));
  const colours = () => canvas.evaluate((node) => {
    const { data } = node.getContext("2d").getImageData(0, 0, node.width, node.height);
    return new Set(Array.from({ length: data.length / 4 }, (_, i) => (data[4 * i] << 16) | (data[4 * i + 1] << 8) | data[4 * i + 2])).size;
  });
  await t.eventually("heat: hosts differ", async () => (await colours()) > 5);
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + 4);
  const busiest = await page.locator("tbody tr").first().getAttribute("data-key");
  await t.eventually("heat: the first row is the table's first host", async () => (await page.locator(".fleet-heat .readout").innerText()).startsWith(`${busiest} · `));
  await page.getByRole("button", { name: "Network in" }).click();
  await t.eventually("heat: another metric has another scale", async () => /0 to .*B\/s/.test(await scale.innerText()));
  await page.locator(".fleet-heat").getByRole("button", { name: "10 min" }).click();
  t.check("heat: what is chosen stands in the address", page.url().includes("heat=in") && page.url().includes("over=10m"), page.url());
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowLeft");
  await t.eventually("heat: keys go through it", async () => (await page.locator(".fleet-heat .readout").innerText()).includes(" · "));
  await page.keyboard.press("Enter");
  await t.eventually("heat: Enter opens the host at that time", () => /#\/host\/.*from=\d+&to=\d+/.test(page.url()));
}
