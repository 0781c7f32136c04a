// SPDX-License-Identifier: Apache-2.0
// What the end-to-end tests stand on: fixture and browser, checks that wait, screenshots where SHOTS names a directory.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { start } from "./server.mjs";

// Without a card Chromium would emulate one (SwiftShader), which costs far more than to draw in software.
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** Generous: machines that run tests are busy. */
const PATIENCE_MS = 20_000;

export class Harness {
  passed = 0;
  problems = [];
  failures = [];

  /** Over the fixture, or over `server`: something with a `url` that ends in a slash, and `close()`. In Chromium, or in what `launch` gives. */
  static async start(server = null, launch = () => chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu"] })) {
    const harness = new Harness();
    harness.server = server ?? (await start("dist"));
    harness.browser = await launch();
    if (process.env.SHOTS) await mkdir(process.env.SHOTS, { recursive: true });
    return harness;
  }

  async page(options = {}) {
    const context = await this.browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    return this.watch(await context.newPage());
  }

  /** A refused style, a type that does not fit, an exception: none may happen. Requests that tests make fail are no such thing. */
  watch(page) {
    page.on("console", (message) => { if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) this.problems.push(message.text()); });
    page.on("pageerror", (error) => this.problems.push(error.message));
    return page;
  }

  async go(page, hash) {
    await page.goto("about:blank");
    await page.goto(this.server.url + hash);
  }

  async play(change) {
    await fetch(`${this.server.url}fixture`, { method: "POST", body: JSON.stringify(change) });
  }

  async shot(page, name) {
    if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${name}.png`) });
  }

  /** Passes once `probe` gives something true; gives that. */
  async eventually(what, probe) {
    const until = performance.now() + PATIENCE_MS;
    let seen;
    for (;;) {
      try {
        seen = await probe();
        if (seen) {
          this.ok(what);
          return seen;
        }
      } catch (error) {
        seen = error.message;
      }
      if (performance.now() > until) {
        this.fail(what, `still ${JSON.stringify(seen)} after ${PATIENCE_MS / 1000} s`);
        return seen;
      }
      await new Promise((done) => setTimeout(done, 100));
    }
  }

  check(what, holds, seen = holds) {
    if (holds) this.ok(what);
    else this.fail(what, `saw ${JSON.stringify(seen)}`);
  }

  ok(what) {
    this.passed++;
    console.log(`ok   ${what}`);
  }

  fail(what, why) {
    this.failures.push(what);
    console.log(`FAIL ${what}: ${why}`);
  }

  async finish() {
    await this.browser.close();
    await this.server.close();
    for (const problem of this.problems) this.fail("nothing on the console", problem);
    console.log(`${this.passed} passed, ${this.failures.length} failed`);
    process.exitCode = this.failures.length === 0 ? 0 : 1;
  }
}
