// SPDX-License-Identifier: Apache-2.0
// Steps of the end-to-end test about time: what charts show, how it is chosen, what a burst or a gap looks like; and legends.

import { chart, pixelsNear } from "./charts.mjs";

const text = (page, selector) => page.locator(selector).first().innerText();

/** What `range` is asked for. */
function watchRanges(page) {
  const asked = [];
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.pathname.endsWith("/range")) asked.push({ from: Number(url.searchParams.get("from_ms")), to: Number(url.searchParams.get("to_ms")), points: Number(url.searchParams.get("points")) });
  });
  return asked;
}

export const viewOf = (page) => {
  const parameters = new URLSearchParams(page.url().split("?")[1]);
  return { from: Number(parameters.get("from")), to: Number(parameters.get("to")), w: parameters.get("w") };
};
const resting = (t, page) => t.eventually("time: what is shown is all read", async () => ["paused", "live"].includes(await text(page, ".live")));
const middleOf = async (page, name) => {
  const box = await chart(page, name).locator(".u-over").boundingBox();
  return { ...box, at: (share) => [box.x + box.width * share, box.y + 60] };
};

export async function time(t, page) {
  const asked = watchRanges(page);
  await t.go(page, "#/host/web-1?w=10m");
  await t.eventually("time: charts have values", async () => /\d/.test(await chart(page, "CPU by mode").locator(".legend .value").first().innerText()));
  const plot = await middleOf(page, "CPU by mode");
  await page.mouse.move(...plot.at(0.25));
  await page.mouse.down();
  await page.mouse.move(...plot.at(0.5), { steps: 4 });
  t.check("time: a drag is marked on other charts, too", await chart(page, "CPU busy").locator(".selection").isVisible());
  t.check("time: with its length", /^2\u202fmin (29|30|31)/.test(await chart(page, "CPU busy").locator(".selection").innerText()), await chart(page, "CPU busy").locator(".selection").innerText());
  await t.shot(page, "time-drag");
  await page.keyboard.press("Escape");
  await page.mouse.up();
  t.check("time: Esc gives it up, and leaves the page alone", viewOf(page).from === 0 && (await chart(page, "CPU by mode").locator(".selection").isHidden()), page.url());
  await page.mouse.move(...plot.at(0.25));
  await page.mouse.down();
  await page.mouse.move(...plot.at(0.5), { steps: 4 });
  await page.mouse.up();
  await t.eventually("time: and zooms", async () => Math.abs(viewOf(page).to - viewOf(page).from - 150_000) < 5000);
  await resting(t, page);
  await t.eventually("time: all charts show it", async () => (await chart(page, "CPU busy").locator(".badges").innerText()) === (await chart(page, "CPU by mode").locator(".badges").innerText()));
  await t.shot(page, "time-zoomed");
  const first = viewOf(page);

  asked.length = 0;
  await page.keyboard.down("Control");
  for (let i = 0; i < 8; i++) await page.mouse.wheel(0, -180);
  await page.keyboard.up("Control");
  await t.eventually("time: Ctrl and the wheel zoom", async () => viewOf(page).to - viewOf(page).from < 20_000);
  await resting(t, page);
  t.check("time: many notches, one request", asked.length === 1, asked);
  await page.keyboard.down("Control");
  await page.mouse.wheel(0, -900);
  await page.keyboard.up("Control");
  await t.eventually("time: to single rows", async () => viewOf(page).to - viewOf(page).from < 1500 && (await chart(page, "CPU by mode").locator(".badges").innerText()) === "read every 10\u202fms");
  await t.shot(page, "time-rows");
  asked.length = 0;
  for (let i = 0; i < 3; i++) await page.keyboard.press("+");
  await page.waitForTimeout(600);
  t.check("time: rows are not read again", asked.length === 0, asked);
  const narrow = viewOf(page);
  t.check("time: narrower by keys", narrow.to - narrow.from < 200, narrow);

  await page.keyboard.press("[");
  await t.eventually("time: [ goes back", async () => viewOf(page).from !== narrow.from);
  await page.goForward();
  await t.eventually("time: the browser's forward goes on", async () => viewOf(page).from === narrow.from);
  await page.reload();
  await t.eventually("time: an address keeps the view", async () => /\d/.test(await chart(page, "CPU by mode").locator(".legend .value").first().innerText()) && viewOf(page).from === narrow.from && (await text(page, ".range")).includes("ms)"));
  for (let i = 0; i < 20 && viewOf(page).from !== first.from; i++) {
    await page.keyboard.press("Backspace");
    await page.waitForTimeout(150);
  }
  t.check("time: and the way back", viewOf(page).from === first.from, [viewOf(page), first]);
  await page.goBack();
  await t.eventually("time: which begins live", async () => viewOf(page).from === 0 && (await text(page, ".live")) === "live");
  t.check("time: and no further", await page.getByRole("button", { name: "The view before" }).isDisabled());
  await page.keyboard.press("]");
  await t.eventually("time: ] is the next view", async () => viewOf(page).from === first.from);

  await resting(t, page);
  const again = await middleOf(page, "CPU by mode");
  await page.mouse.move(...again.at(0.5));
  await page.keyboard.down("Shift");
  await page.mouse.wheel(0, -200);
  await page.keyboard.up("Shift");
  await t.eventually("time: Shift and the wheel pan", async () => viewOf(page).from < first.from && Math.abs(viewOf(page).to - viewOf(page).from - (first.to - first.from)) < 3);
  const panned = viewOf(page);
  await page.mouse.wheel(0, 300);
  await t.eventually("time: a plain wheel scrolls the page", async () => (await page.evaluate(() => window.scrollY)) > 100);
  t.check("time: and nothing else", viewOf(page).from === panned.from);
  await page.evaluate(() => window.scrollTo(0, 0));
  await page.waitForTimeout(300);
  await page.mouse.dblclick(...again.at(0.5));
  await t.eventually("time: a double click zooms out", async () => Math.abs(viewOf(page).to - viewOf(page).from - 2 * (first.to - first.from)) < 3);
  const wide = viewOf(page);
  await page.keyboard.press("ArrowLeft");
  await t.eventually("time: ← is half of it earlier", async () => Math.abs(wide.from - viewOf(page).from - (wide.to - wide.from) / 2) < 3);
  await page.keyboard.press("l");
  await t.eventually("time: l is live again", async () => (await text(page, ".live")) === "live" && viewOf(page).w === "10m" && viewOf(page).from === 0);
  // Back to a fixed view of another window, and live from there.
  await page.keyboard.press(" ");
  await page.keyboard.press("1");
  await t.eventually("time: another window", async () => viewOf(page).w === "10s" && (await text(page, ".live")) === "live");
  await page.waitForTimeout(1500);
  await page.keyboard.press("[");
  await t.eventually("time: the fixed view before it", async () => viewOf(page).from > 0 && viewOf(page).w === "10m");
  await page.keyboard.press("l");
  await chart(page, "Processes running").scrollIntoViewIfNeeded();
  await t.eventually("time: Live has all of that view's window", async () => (await text(page, ".live")) === "live" && (await pixelsNear(page, "Processes running", "--line-0", 0.05, 0.5)) > 50);
  await t.go(page, "#/host/web-1?from=1700000000000&to=1700000060000");
  await t.eventually("time: of what the store no longer has, nothing else is shown", async () => (await chart(page, "CPU by mode").locator(".blank").innerText()) === "No values in this time." && (await text(page, ".range")).startsWith("2023-11-14"));
  await page.keyboard.press("l");
  await page.keyboard.press("5");
  await t.eventually("time: live windows up to a day", async () => viewOf(page).w === "6h" && (await chart(page, "Load average").locator(".badges").innerText()).includes("shown every 30"));
}

export async function picker(t) {
  const page = await t.page({ timezoneId: "Asia/Kolkata" });
  await t.go(page, "#/host/web-1?w=1m");
  await t.eventually("picker: the host is live", async () => (await text(page, ".live")) === "live");
  t.check("picker: the zone is named", (await text(page, ".zone")) === "UTC+5:30", await text(page, ".zone"));
  await page.keyboard.press("g");
  const to = Math.floor((Date.now() - 1_200_000) / 1000) * 1000;
  const from = to - 90_500;
  const field = (ms) => new Date(ms).toISOString().slice(0, 23);
  t.check("picker: presets as far as the store reaches", (await page.locator("dialog .chip").allInnerTexts()).join() === "15 min,1 h,6 h", await page.locator("dialog .chip").allInnerTexts());
  await page.locator("#pick-from").fill(field(from + 19_800_000));
  await page.locator("#pick-to").fill(field(from + 19_700_000));
  await page.keyboard.press("Enter");
  t.check("picker: what makes no sense is said", (await text(page, "dialog .problem")).includes("must be later"));
  await page.locator("#pick-to").fill(field(to + 19_800_000));
  await t.shot(page, "time-picker");
  await page.locator("#pick-zone").selectOption("utc");
  t.check("picker: another zone tells the same moments otherwise", Date.parse(`${await page.locator("#pick-from").inputValue()}Z`) === from, await page.locator("#pick-from").inputValue());
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await t.eventually("picker: shows it", async () => viewOf(page).from === from && viewOf(page).to === to && (await text(page, ".live")) === "paused");
  t.check("picker: in UTC", (await text(page, ".range")).includes(field(from).slice(11, 19)) && (await text(page, ".zone")) === "UTC", await text(page, ".range"));
  await page.locator(".zone").click();
  t.check("picker: the button changes the zone", (await text(page, ".range")).includes(field(from + 19_800_000).slice(11, 19)), await text(page, ".range"));
  await page.getByRole("button", { name: "Live", exact: true }).click();
  await t.eventually("picker: Live returns", async () => (await text(page, ".live")) === "live");
  await page.context().close();
}

/** Twenty ms of all CPUs, an hour wide, and then row by row. */
export async function burst(t, page) {
  const status = await (await fetch(`${t.server.url}api/onlooker/v1/status`)).json();
  const at = status.started_ms + 300_000 + 4 * 600_000;
  for (const [before, after] of [[2_000_000, 1_000_000], [1_013_000, 317_000], [210_000, 111_000], [31_000, 17_000]]) {
    const place = before / (before + after);
    await t.go(page, `#/host/web-2?from=${at - before}&to=${at + after}`);
    await t.eventually(`burst in ${(before + after) / 1000} s: the legend says what the peak is`, async () => chart(page, "CPU by mode").locator(".legend .peak").isVisible());
    const seen = (name, colour) => pixelsNear(page, name, colour, place - 0.008, place + 0.008);
    await t.eventually("burst: is seen in the stack", async () => (await seen("CPU by mode", "--muted")) > 4);
    await t.eventually("burst: and among rows of colour", async () => (await seen("CPU busy", "--heat-4")) > 4);
  }
  await chart(page, "Processes running").scrollIntoViewIfNeeded();
  await t.eventually("burst: as a band where lines are few", async () => Number(await chart(page, "Processes running").locator(".legend .stat").nth(2).innerText()) >= 24);
  await t.shot(page, "burst-wide");
  await t.go(page, `#/host/web-2?from=${at - 150}&to=${at + 150}`);
  const system = chart(page, "CPU by mode").locator(".legend li").nth(2);
  await chart(page, "CPU by mode").locator(".legend .more").click();
  await t.eventually("burst: and row by row", async () => parseFloat(await system.locator(".stat").nth(2).innerText()) > 40 && parseFloat(await system.locator(".stat").nth(0).innerText()) < 30);
  t.check("burst: without a peak, since nothing lies between", await chart(page, "CPU by mode").locator(".legend .peak").isHidden());
  await t.shot(page, "burst-rows");
}

export async function legend(t, page) {
  await t.go(page, "#/host/web-1?w=1m&f=app_queue_depth");
  const cpu = chart(page, "CPU by mode");
  const entry = (name) => cpu.locator(".legend li > button", { hasText: new RegExp(`^${name}`) });
  const pressed = () => cpu.locator(".legend li > button").evaluateAll((all) => all.filter((node) => node.getAttribute("aria-pressed") === "true").map((node) => node.querySelector(".label").textContent));
  await t.eventually("legend: charts have values", async () => /\d/.test(await cpu.locator(".legend .value").first().innerText()));
  await entry("system").click();
  t.check("legend: a click shows one line alone", (await pressed()).join() === "system", await pressed());
  await t.eventually("legend: on an axis of its own", async () => (await pixelsNear(page, "CPU by mode", "--mode-system", 0.3, 0.9)) > 100 && (await pixelsNear(page, "CPU by mode", "--mode-user", 0.3, 0.9)) === 0);
  await entry("system").click();
  t.check("legend: again, all are back", (await pressed()).length === 7, await pressed());
  await entry("user").click({ modifiers: ["Shift"] });
  t.check("legend: Shift hides one", (await pressed()).length === 6 && !(await pressed()).includes("user"), await pressed());
  await entry("user").focus();
  await page.keyboard.press("Shift+Enter");
  t.check("legend: the keyboard shows it again", (await pressed()).length === 7, await pressed());
  await cpu.locator(".legend .more").click();
  const stats = async () => (await entry("system").locator(".stat").allInnerTexts()).map(parseFloat);
  await t.eventually("legend: min, avg and max", async () => { const [min, avg, max] = await stats(); return min > 0 && min <= avg && avg <= max; });
  await t.shot(page, "legend");
  const depth = chart(page, "app_queue_depth");
  t.check("legend: labels in full when expanded", await depth.locator(".legend .more").click().then(() => depth.locator(".legend .label").first().evaluate((node) => node.scrollWidth <= node.clientWidth)));

  const plot = cpu.locator(".plot");
  await plot.focus();
  const url = page.url();
  await page.keyboard.press("ArrowLeft");
  const spoken = async () => cpu.locator("p[role=status]").innerText();
  const newest = await t.eventually("cursor: ← is the newest point, told in words", async () => /^\d\d:\d\d:\d\d\.\d.*, user \d/.test(await spoken()) && (await spoken()));
  // The chart is live: on a busy machine it moves on between two keys.
  await t.eventually("cursor: and on to earlier ones", async () => {
    for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowLeft");
    return (await spoken()) < newest && (await cpu.locator(".tip").isVisible());
  });
  t.check("cursor: the time shown stays", page.url() === url, page.url());
  await page.keyboard.press("Escape");
  await t.eventually("cursor: Esc puts it away", async () => cpu.locator(".tip").isHidden());
  await page.keyboard.press("Shift+ArrowLeft");
  await t.eventually("cursor: Shift and ← pan", async () => page.url().includes("from="));
}

export async function late(t, page) {
  await t.go(page, "#/host/web-5?w=1m");
  const cpu = chart(page, "CPU by mode");
  await t.eventually("late: charts have values", async () => /\d/.test(await cpu.locator(".legend .value").first().innerText()));
  await page.keyboard.press(" ");
  await resting(t, page);
  const near = (colour) => pixelsNear(page, "CPU by mode", colour, 0, 1);
  await t.eventually("late: the reader's gap is dotted", async () => (await near("--late-line")) > 20);
  t.check("late: and not hatched", (await near("--gap-line")) < 20, await near("--gap-line"));
  const plot = await middleOf(page, "CPU by mode");
  const tips = [];
  for (let x = 0.01; x < 1; x += 0.005) {
    await page.mouse.move(...plot.at(x));
    await page.waitForTimeout(20);
    tips.push(await cpu.locator(".tip").innerText());
  }
  const named = tips.filter((tip) => tip.includes("gap"));
  t.check("late: its word on hover", named.some((tip) => tip.includes("behind (reader late)")), named);
  // 20 ms every 3 s, and 1.2 s every 47 s: where there is none, none is named.
  t.check("late: only where it is", named.length > 0 && named.length < tips.length / 5, [named.length, tips.length]);
  await t.shot(page, "late");
}

/** What a frame costs while 50 charts follow the hand. What the browser does with the canvases afterwards depends on its graphics, and is not counted. */
export async function dragging(t, page) {
  const charts = Array.from({ length: 40 }, (_, i) => `c=${encodeURIComponent(`node_cpu_seconds_total{cpu="${i % 8}",mode="${["user", "system", "irq", "softirq", "iowait"][Math.floor(i / 8)]}"}`)}`);
  await t.go(page, `#/host/web-1?w=1h&${charts.join("&")}`);
  await t.eventually("dragging: there are 50 charts", async () => (await page.locator("section.chart").count()) >= 50);
  await resting(t, page);
  await chart(page, "CPU by mode").scrollIntoViewIfNeeded();
  await page.waitForTimeout(1500);
  const plot = await middleOf(page, "CPU by mode");
  await page.mouse.move(...plot.at(0.5));
  const client = await page.context().newCDPSession(page);
  await client.send("Performance.enable", { timeDomain: "threadTicks" });
  const spent = async () => {
    const all = Object.fromEntries((await client.send("Performance.getMetrics")).metrics.map(({ name, value }) => [name, value]));
    return all.ScriptDuration + all.LayoutDuration + all.RecalcStyleDuration;
  };
  await page.keyboard.down("Shift");
  await page.mouse.down();
  await page.evaluate(() => {
    window.frames = 0;
    const count = () => { window.frames++; requestAnimationFrame(count); };
    requestAnimationFrame(count);
  });
  const before = await spent();
  for (let i = 0; i < 100; i++) await page.mouse.move(...plot.at(0.5 + 0.3 * Math.sin(i / 8)));
  const each = (((await spent()) - before) * 1000) / (await page.evaluate(() => window.frames));
  await page.mouse.up();
  await page.keyboard.up("Shift");
  console.log(`     script, style and layout of a frame: ${each.toFixed(1)} ms`);
  t.check("dragging: a frame is made in time for 60 a second", each < 12, each);
  await t.eventually("dragging: and tells the view", async () => page.url().includes("from="));
}

/** The pointer rests while charts are drawn for the first time. */
export async function cursor(t, page) {
  const size = page.viewportSize();
  const to = Date.now() - 60_000;
  await t.go(page, `#/host/web-1?from=${to - 60_000}&to=${to}`);
  const [here, under] = ["CPU by mode", "Disk busy"].map((name) => chart(page, name));
  const hasValues = async (one) => /\d/.test(await one.locator(".legend .value").first().innerText());
  const tip = (one) => one.locator(".tip").innerText();
  await t.eventually("cursor: a chart has values", () => hasValues(here));
  const plot = await middleOf(page, "CPU by mode");
  await page.mouse.move(...plot.at(0.25));
  await t.eventually("cursor: and the time under it", async () => /^\d\d:\d\d:\d\d/.test(await tip(here)));
  await page.setViewportSize({ ...size, height: 3000 });
  await t.eventually("cursor: charts that come onto the screen meanwhile have values", () => hasValues(under));
  await page.mouse.move(...plot.at(0.26));
  await t.eventually("cursor: and follow it", async () => (await tip(under)) !== "" && (await tip(under)) === (await tip(here)));
  await page.setViewportSize(size);
}
