// SPDX-License-Identifier: Apache-2.0
// Step of e2e.mjs: hosts are chosen in the fleet, and compared in the same charts. By keyboard alone, but for a drag.

import { viewOf } from "./time.mjs";

/** By the whole name: there is pressure of the same resource. */
const chart = (page, name) => page.locator(`section.chart[aria-label="${name}"]`);
const bar = (page) => page.locator(".compare-bar");
const entries = (page, name) => chart(page, name).locator(".legend li button[aria-pressed] .label").allInnerTexts();
const value = (page, name, i = 0) => chart(page, name).locator(".legend .value").nth(i).innerText();
const field = (page) => page.getByLabel("PromQL query");

export async function compare(t, page, scheme) {
  await t.go(page, "#/?sort=name");
  await t.eventually(`compare ${scheme}: the fleet`, async () => (await page.locator("tbody tr td.c-cpu .meter").count()) > 10);
  t.check(`compare ${scheme}: nothing is chosen yet`, await bar(page).isHidden());
  await page.keyboard.press("j");
  await page.keyboard.press("x");
  await t.eventually(`compare ${scheme}: one is not enough`, async () => (await bar(page).innerText()).includes("one more") && (await bar(page).locator("a").isHidden()));
  await page.keyboard.press("c");
  t.check(`compare ${scheme}: and is not compared`, !page.url().includes("compare"));
  for (const key of ["j", "x", "j", "j", "x"]) await page.keyboard.press(key);
  await t.eventually(`compare ${scheme}: three are chosen`, async () => (await bar(page).locator("a").innerText()) === "Compare 3");
  const chosen = await page.locator("tbody tr:has(input:checked)").evaluateAll((all) => all.map((row) => row.dataset.key));
  t.check(`compare ${scheme}: their boxes are checked`, chosen.join() === "api-1,api-2,api-4", chosen);
  await t.shot(page, `compare-chosen-${scheme}`);
  await page.reload();
  await t.eventually(`compare ${scheme}: the address keeps them`, async () => (await page.locator("tbody input:checked").count()) === 3 && (await bar(page).isVisible()));
  await page.keyboard.press("c");
  await t.eventually(`compare ${scheme}: c opens the comparison`, () => page.url().includes("#/compare?host=api-1&host=api-2&host=api-4"));
  await t.eventually(`compare ${scheme}: each chart has a line a host`, async () => (await entries(page, "CPU")).join() === chosen.join() && /%/.test(await value(page, "CPU", 2)));
  t.check(`compare ${scheme}: nine vitals`, (await page.locator(".charts section.chart").count()) === 9);
  await t.eventually(`compare ${scheme}: charts say how far points are apart`, async () => (await chart(page, "CPU").locator(".badges").innerText()).includes("shown every 15"));
  await t.shot(page, `compare-${scheme}`);
}

export async function compareMore(t, page) {
  await t.go(page, "#/compare?host=web-1&host=db-1&host=nobody&m=cpu&m=in&w=10m");
  await t.eventually("compare: the address has hosts, metrics and time", async () => (await page.locator(".charts section.chart").count()) === 2 && /%/.test(await value(page, "CPU")) && /B\/s/.test(await value(page, "Network in")));
  await t.eventually("compare: says of which host nothing is known", async () => (await page.locator(".compare p.dim[role=status]").first().innerText()) === "Nothing is known of nobody in this time.");
  t.check("compare: which has its entry all the same", (await entries(page, "CPU")).join() === "web-1,db-1,nobody" && (await value(page, "CPU", 2)) === "–");
  await page.getByRole("button", { name: "Without nobody" }).press("Enter");
  await t.eventually("compare: one host less", async () => !page.url().includes("nobody") && (await entries(page, "CPU")).join() === "web-1,db-1");
  await page.goBack();
  await t.eventually("compare: back brings it again", async () => page.url().includes("nobody") && (await entries(page, "CPU")).length === 3);
  await page.goForward();
  await t.eventually("compare: and forward", async () => (await entries(page, "CPU")).length === 2);
  await page.getByRole("button", { name: "Memory", exact: true }).press("Enter");
  await t.eventually("compare: one more chart", async () => page.url().includes("m=cpu&m=memory&m=in") && /%/.test(await value(page, "Memory")));
  const box = await chart(page, "CPU").locator(".u-over").boundingBox();
  await page.mouse.move(box.x + 100, box.y + 60);
  await page.mouse.down();
  await page.mouse.move(box.x + 250, box.y + 60, { steps: 4 });
  await page.mouse.up();
  await t.eventually("compare: a drag zooms all charts", () => /from=\d+&to=\d+/.test(page.url()));
  const { from, to } = viewOf(page);
  await t.eventually("compare: and values are those of that time", async () => /%/.test(await value(page, "Memory")) && (await chart(page, "Memory").getAttribute("aria-busy")) === "false");
  await chart(page, "CPU").locator(".plot").focus();
  await page.keyboard.press("Home");
  await t.eventually("compare: the cursor is that of all charts", async () => chart(page, "Network in").locator(".tip").isVisible());
  await page.keyboard.press("Escape");
  t.check("compare: Esc puts the cursor away, not the page", page.url().includes("#/compare"));
  await page.keyboard.press("e");
  await page.keyboard.type("node_load1");
  await page.keyboard.press("Enter");
  await t.eventually("compare: a metric of the same hosts", async () => (await page.locator(".query-answer .legend .label").allInnerTexts()).slice(0, 2).join() === "instance db-1,instance web-1" || (await page.locator(".query-answer .legend .label").allInnerTexts()).slice(0, 2).join() === "instance web-1,instance db-1");
  t.check("compare: stands in the address, the time stays", page.url().includes("q=node_load1") && viewOf(page).from === from && viewOf(page).to === to, page.url());
  await field(page).fill('rate(node_network_receive_bytes_total[1m])');
  await field(page).press("Enter");
  await t.eventually("compare: what would ask all hosts is refused, with what to do", async () => (await page.locator("#query-problem").innerText()).includes('{instance=~"$hosts"}'));
  await field(page).fill('sum by (instance) (rate(node_network_receive_bytes_total{instance=~"$hosts"}[1m]))');
  await field(page).press("Enter");
  await t.eventually("compare: $hosts are the hosts above", async () => (await page.locator(".query-summary").innerText()).includes("2 series"));
  await t.shot(page, "compare-query");
  await page.reload();
  await t.eventually("compare: a reload keeps it all", async () => (await page.locator(".query-summary").innerText()).includes("2 series") && (await page.locator(".charts section.chart").count()) === 3);
  await page.keyboard.press("Escape");
  await t.eventually("compare: Esc leads to the fleet, where they are chosen", async () => (await page.locator("tbody input:checked").count()) === 2);
  await t.go(page, "#/compare");
  await t.eventually("compare: without hosts it says how to choose some", async () => (await page.locator(".notice").innerText()).includes("key x"));

  const many = Array.from({ length: 8 }, (_, i) => `host=web-${i + 1}`).concat(Array.from({ length: 6 }, (_, i) => `host=api-${i + 1}`), Array.from({ length: 4 }, (_, i) => `host=cache-${i + 1}`), ["host=db-1", "host=db-2"]);
  await t.go(page, `#/?${many.map((one) => one.replace("host", "x")).join("&")}&sort=name`);
  await t.eventually("compare: twenty are the most", async () => (await bar(page).innerText()).includes("as many as a chart can show"));
  await page.locator('tr[data-key="db-4"] input').focus();
  await page.keyboard.press(" ");
  await t.eventually("compare: one more is refused, and said", async () => (await bar(page).innerText()).includes("db-4 is one too many") && !(await page.locator('tr[data-key="db-4"] input').isChecked()));
  const phone = await t.page({ viewport: { width: 390, height: 844 }, hasTouch: true });
  await t.go(phone, `#/compare?${many.join("&")}&m=cpu&m=disk`);
  await t.eventually("compare: twenty on a phone", async () => /%/.test(await value(phone, "CPU")) && (await entries(phone, "CPU")).length === 20);
  const wide = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  t.check("compare: a phone has nothing to scroll sideways", wide === 0, wide);
  await t.shot(phone, "compare-phone");
  await phone.context().close();
}
