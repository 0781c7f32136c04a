// SPDX-License-Identifier: Apache-2.0
// Steps of e2e.mjs on a host's page: what is short, who takes it, and what is asked for that.

import { chart } from "./charts.mjs";

/** Requests of PromQL from here on, each with its query. */
function listen(page) {
  const asked = [];
  page.on("request", (request) => {
    if (/\/api\/v1\/query(_range)?$/.test(request.url())) asked.push({ at: performance.now(), query: new URLSearchParams(request.postData()).get("query") });
  });
  return asked;
}

const tile = (page, label) => page.locator(".vitals .tile", { has: page.locator(`.tile-label:text-is("${label}")`) });
const section = (page, title) => page.locator("section.host-section", { has: page.locator(`h2:text-is("${title}")`) });
const first = (page, title) => section(page, title).locator("tbody tr").first();
const rows = (page, title) => section(page, title).locator("tbody tr").count();

export async function overview(t, page, scheme) {
  const asked = listen(page);
  await t.go(page, "#/host/web-1?w=1m");
  await t.eventually(`overview ${scheme}: a share of the CPU, of so many cores`, async () => /^CPU[\s\S]*%[\s\S]*of 8 cores/.test(await tile(page, "CPU").innerText()));
  t.check(`overview ${scheme}: a disk that fills up is red`, (await tile(page, "Fullest file system").getAttribute("class")).includes("bad") && (await tile(page, "Fullest file system").innerText()).includes("/data"), await tile(page, "Fullest file system").innerText());
  t.check(`overview ${scheme}: memory is not`, !(await tile(page, "Memory").getAttribute("class")).includes("bad"));
  for (const [label, pattern] of [["Load, 1 min", /a core/], ["Swap", /of 4/], ["Pressure (PSI)", /CPU .*%/], ["Disk I/O", /read .*B\/s, written/], ["Network", /↓ .*B\/s[\s\S]*out/], ["Up", /\dd|\d.d/]]) {
    t.check(`overview ${scheme}: ${label}`, pattern.test(await tile(page, label).innerText()), await tile(page, label).innerText());
  }
  await t.eventually(`overview ${scheme}: lines beside figures`, async () => (await page.locator(".tile-spark path").count()) === 6);
  t.check(`overview ${scheme}: what the machine is`, /Kernel\s+Linux 6\.12\.48 x86_64[\s\S]*Cores\s+8[\s\S]*Memory\s+16/.test(await page.locator(".host-head .facts").innerText()), await page.locator(".host-head .facts").innerText());
  await t.shot(page, `host-overview-${scheme}`);
  t.check(`overview ${scheme}: nothing is asked for sections out of sight`, asked.length > 0 && !asked.some(({ query }) => query.includes("onlooker_process") || query.includes("container_")), asked.map(({ query }) => query.slice(0, 80)));
  await tile(page, "Fullest file system").click();
  await t.eventually(`overview ${scheme}: a tile leads to its section`, async () => (await page.evaluate(() => document.activeElement.id)) === "section-disks" && (await section(page, "Disks and file systems").boundingBox()).y < 200);
}

export async function sections(t, page) {
  await t.go(page, "#/host/web-1?w=1m");
  const index = page.locator("nav.index");
  await t.eventually("sections: an index", async () => (await index.locator("a").count()) === 10);
  const current = () => index.locator("a[aria-current]").innerText();
  await page.keyboard.press("s");
  await page.keyboard.press("s");
  await t.eventually("sections: s goes on", async () => (await current()) === "Memory and swap" && (await section(page, "Memory and swap").boundingBox()).y < 200);
  await page.keyboard.press("S");
  t.check("sections: S goes back", (await current()) === "CPU", await current());
  await index.getByRole("link", { name: "Containers" }).click();
  await t.eventually("sections: the index leads there, and it stays while tables above fill", async () => (await rows(page, "Processes")) === 20 && (await rows(page, "Containers")) === 8 && Math.abs((await section(page, "Containers").boundingBox()).y) < 120 && (await current()) === "Containers");
  await t.go(page, "#/host/db-1?s=processes");
  await t.eventually("sections: a link into a section", async () => (await current()) === "Processes");
  t.check("sections: what is not collected says what to switch on", (await section(page, "Processes").innerText()).includes("[processes] enabled = true") && (await section(page, "Containers").innerText()).includes("[cgroups] enabled = true"));
  t.check("sections: and is small", (await section(page, "Processes").boundingBox()).height < 90, await section(page, "Processes").boundingBox());
}

export async function devices(t, page) {
  await t.go(page, "#/host/web-1?s=disks");
  const storage = section(page, "Disks and file systems");
  await t.eventually("devices: the fullest file system first, red", async () => /^\/data[\s\S]*93|^\/data[\s\S]*92/.test(await first(page, "Disks and file systems").innerText()) && (await first(page, "Disks and file systems").locator("td.full").count()) === 1);
  t.check("devices: one row however often it is mounted", (await storage.locator("tbody tr", { hasText: "/ and 1 more" }).count()) === 1 && (await storage.locator("tbody tr", { hasText: "/srv/chroot" }).count()) === 0);
  await t.eventually("devices: disks with their latency", async () => /sda[\s\S]*%[\s\S]*MB\/s[\s\S]*s/.test(await storage.locator("table").nth(1).innerText()));
  await storage.getByRole("button", { name: "Free" }).click();
  t.check("devices: tables sort", (await storage.locator("th.c-available").getAttribute("aria-sort")) === "descending");
  await t.shot(page, "host-disks");
  await t.go(page, "#/host/web-1?s=network");
  const network = section(page, "Network and TCP");
  await t.eventually("devices: interfaces with errors and drops in red", async () => (await network.locator("tbody tr", { hasText: "eth1" }).locator("td.c-errors.bad").count()) === 1 && (await network.locator("tbody tr", { hasText: "eth0" }).locator("td.c-drops.bad").count()) === 1);
  await t.eventually("devices: TCP's retransmits and states", async () => /Retransmits\s+[\d.]+\s*%[\s\S]*established \d+, time wait \d+/.test(await network.innerText()));
  t.check("devices: READs are told beside the traffic they are part of", /the kernel answers \d+/.test(await network.innerText()));
  await t.eventually("devices: ports, with a full accept queue in red and the agent's own marked", async () => (await network.locator("td.c-queue.bad").innerText()) === "117 of 128" && (await network.locator("tr", { hasText: "7177" }).locator(".own").count()) === 1);
  await t.shot(page, "host-network");
}

export async function processes(t, page) {
  const asked = listen(page);
  const title = "Processes";
  const part = section(page, title);
  await t.go(page, "#/host/web-1?s=processes");
  const cores = async () => (await part.locator("tbody td.c-cpu .share-value").allInnerTexts()).map((text) => parseFloat(text.replace("<", "")));
  await t.eventually("processes: who takes the CPU, first", async () => (await cores()).length === 20 && (await cores()).every((value, i, all) => i === 0 || value <= all[i - 1]) && (await cores())[0] > 0.1);
  t.check("processes: by name and pid", /shop\s+4321/.test(await part.innerText()));
  await t.eventually("processes: small lines of the last minutes", async () => (await part.locator("td .spark path").count()) > 10);
  t.check("processes: I/O that is not known is no zero", (await part.locator("tr", { hasText: "nginx" }).locator("td.c-read").innerText()) === "–");
  await t.shot(page, "host-processes");
  await part.getByRole("button", { name: "Memory" }).click();
  await t.eventually("processes: sorted by memory", async () => /^java/.test(await first(page, title).innerText()) && asked.some(({ query }) => query.includes("topk(20, onlooker_process_resident_bytes")));
  await part.getByRole("button", { name: "Show all 40" }).click();
  await t.eventually("processes: all of them", async () => (await rows(page, title)) === 40);
  t.check("processes: Onlooker's own is marked", (await part.locator("tr", { hasText: "onlooker-agent" }).locator(".own").count()) === 1);
  await part.getByRole("searchbox").fill("postg");
  await t.eventually("processes: a filter", async () => (await rows(page, title)) === 1 && (await part.innerText()).includes("1 process, rates over 15"));
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await t.eventually("processes: a row opens its charts", async () => (await chart(page, "CPU pid=737").count()) === 1 && (await part.locator("section.chart").count()) === 4);
  await t.eventually("processes: which are live", async () => /cores/.test(await chart(page, "CPU pid=737").locator(".legend .value").first().innerText()));
  await t.shot(page, "host-process-charts");
  await part.getByRole("button", { name: "Remove the chart CPU" }).click();
  t.check("processes: and can be removed", (await part.locator("section.chart").count()) === 3);
  await page.keyboard.press(" ");
  await page.waitForTimeout(1500);
  const [before, shown] = [asked.length, await first(page, title).innerText()];
  await page.waitForTimeout(4500);
  t.check("processes: a page that is paused asks nothing and stays", asked.length === before && (await first(page, title).innerText()) === shown, asked.length - before);
  await page.evaluate(() => window.scrollTo(0, 0));
  await t.eventually("processes: figures of the same moment", async () => (await section(page, "Overview").innerText()).includes("Figures and tables are those of"));
  await page.keyboard.press(" ");
  await t.go(page, "#/host/api-1?s=containers");
  await t.eventually("containers: a limit that is reached is red, OOM kills too", async () => (await page.locator("tr", { hasText: "8f3a0c1d2e4b" }).locator("td.full, td.bad").count()) === 3);
  await page.getByRole("button", { name: "Containers", exact: true }).click();
  await t.eventually("containers: only those", async () => (await rows(page, "Containers")) === 3);
  await t.shot(page, "host-containers");
}

/** Thousands of processes: the controller sorts, so that the page does not freeze. */
export async function crowd(t, page) {
  const asked = listen(page);
  await t.go(page, "#/host/cache-2?s=processes");
  const part = section(page, "Processes");
  await t.eventually("crowd: the first 20 of 5000", async () => /The first 20 of 5.000 processes/.test(await part.innerText()) && (await rows(page, "Processes")) === 20);
  await part.getByRole("button", { name: "Show the first 200" }).click();
  await t.eventually("crowd: 200 rows", async () => (await rows(page, "Processes")) === 200);
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  const taskSeconds = async () => (await client.send("Performance.getMetrics")).metrics.find(({ name }) => name === "TaskDuration").value;
  const [from, began] = [asked.length, await taskSeconds()];
  await page.waitForTimeout(8000);
  const [busy, since] = [((await taskSeconds()) - began) / 8, asked.slice(from)];
  console.log(`     200 rows: ${(busy * 100).toFixed(0)} % of the main thread, ${since.length} queries in 8 s`);
  t.check("crowd: the page is not busy with it", busy < 0.6, busy);
  t.check("crowd: few queries", since.length <= 16, since.map(({ query }) => query.slice(0, 60)));
  await part.getByRole("searchbox").fill("task-4999");
  await t.eventually("crowd: the filter finds what is not among the first", async () => (await part.innerText()).includes("No process matches") || (await rows(page, "Processes")) === 0);
  await part.getByRole("searchbox").fill("TASK-4900");
  await t.eventually("crowd: whatever its case", async () => (await rows(page, "Processes")) === 1 && (await first(page, "Processes").innerText()).startsWith("task-4900"));
}
