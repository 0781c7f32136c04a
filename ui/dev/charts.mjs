// SPDX-License-Identifier: Apache-2.0
// Charts as a test sees them: by their names, by the pixels of their canvas, by the frames that the browser makes meanwhile.

export const chart = (page, name) => page.locator(`section.chart[aria-label^="${name}"]`);

/** Colours in a vertical strip of a chart's canvas, `at` 0..1 of the plot's width: how many pixels are near `wanted`. */
export function pixelsNear(page, name, variable, from, to) {
  return chart(page, name).locator("canvas").evaluate((canvas, [variable, from, to]) => {
    const hex = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    const over = canvas.parentElement.querySelector(".u-over").getBoundingClientRect();
    const box = canvas.getBoundingClientRect();
    const scale = canvas.width / box.width;
    const x0 = (over.left - box.left + over.width * from) * scale;
    const width = Math.max(1, over.width * (to - from) * scale);
    const { data } = canvas.getContext("2d").getImageData(x0, (over.top - box.top) * scale, width, over.height * scale);
    let near = 0;
    for (let i = 0; i < data.length; i += 4) if (wanted.every((channel, c) => Math.abs(data[i + c] - channel) < 24)) near++;
    return near;
  }, [variable, from, to]);
}

/** Share of the plot's width at which the widest hatched stripe lies that touches neither edge, or null. */
export async function gapPlace(page, name) {
  const COLUMNS = 400;
  const hatched = [];
  for (let i = 0; i < COLUMNS; i++) hatched.push((await pixelsNear(page, name, "--gap-line", i / COLUMNS, (i + 1) / COLUMNS)) > 3);
  let best = null;
  for (let from = 1; from < COLUMNS; from++) {
    if (!hatched[from] || hatched[from - 1]) continue;
    let to = from;
    while (to < COLUMNS && hatched[to]) to++;
    if (to < COLUMNS && to - from >= 4 && from > 0.2 * COLUMNS && (best === null || to - from > best.to - best.from)) best = { from, to };
  }
  return best === null ? null : { from: best.from / COLUMNS, to: best.to / COLUMNS };
}

/** Distances between animation frames for a time, ascending, in ms. */
export async function frameDistances(page, ms) {
  const deltas = await page.evaluate((ms) => new Promise((done) => {
    const out = [];
    let last = null;
    const end = performance.now() + ms;
    const frame = (now) => {
      if (last !== null) out.push(now - last);
      last = now;
      if (now < end) requestAnimationFrame(frame);
      else done(out);
    };
    requestAnimationFrame(frame);
  }), ms);
  return deltas;
}

export const quantile = (values, q) => values.toSorted((a, b) => a - b)[Math.min(values.length - 1, Math.floor(q * values.length))];
