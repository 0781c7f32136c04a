// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import type { Host, HostChanges } from "../src/api";
import { type AskHosts, HostList, MAX_FRESH } from "../src/hosts";

const host = (name: string, cycles = 0): Host => ({
  name, address: `${name}:7177`, labels: {}, state: "reading", via: "kernel", requester: "soft", since_ms: 0, error: null, interval_ms: 100, priority: "normal", age_ms: 1, clock_error_ms: 1, regions: 1, series: 1,
  cycles, late: 0, gaps: {}, invalid_samples: {}, over_quota: [],
  reads: { done: 0, repeated: 0, timed_out: 0, refused: 0, retries: {}, latency_us: { p50: 1, p90: 1, p99: 1, max: 1 } }, lateness_us: { p50: 1, p99: 1, max: 1 },
});
const names = (count: number): string[] => Array.from({ length: count }, (_, i) => `h${i}`);

/** A controller with these hosts, which counts what it tells. */
class Controller {
  readonly hosts = new Map<string, { host: Host; changed: number }>();
  gone: { name: string; number: number }[] = [];
  number = 1;
  told = 0;
  wholes = 0;

  constructor(count: number) {
    for (const name of names(count)) this.set(name);
  }

  set(name: string, state: Host["state"] = "reading"): void {
    this.hosts.set(name, { host: { ...host(name), state }, changed: ++this.number });
  }

  remove(name: string): void {
    this.hosts.delete(name);
    this.gone.push({ name, number: ++this.number });
  }

  /** A reading of every host: nothing that is told at once. */
  read(): void {
    for (const item of this.hosts.values()) item.host = { ...item.host, cycles: item.host.cycles + 1 };
  }

  readonly ask: AskHosts = (since) => {
    const whole = since === null || since.cursor > this.number;
    const wanted = (item: { host: Host; changed: number }): boolean => whole || item.changed > since.cursor || since.fresh.includes(item.host.name);
    const hosts = [...this.hosts.values()].filter(wanted).map((item) => item.host);
    this.told += hosts.length;
    if (whole) this.wholes++;
    const gone = whole ? [] : this.gone.filter(({ name, number }) => number > since.cursor && !this.hosts.has(name)).map(({ name }) => name);
    return Promise.resolve<HostChanges>({ hosts, gone, whole, cursor: this.number });
  };
}

describe("the list of hosts", () => {
  it("knows all that changes, and figures of what is in view", async () => {
    const controller = new Controller(1000);
    let now = 0;
    const list = new HostList(controller.ask, () => now);
    expect((await list.refresh([])).length).toBe(1000);
    controller.told = 0;
    controller.read();
    controller.set("h7", "silent");
    controller.remove("h8");
    controller.set("new");
    now = 1000;
    const known = new Map((await list.refresh(["h1", "h2", "not here"])).map((item) => [item.name, item]));
    expect(controller.told).toBe(4);
    expect([known.size, known.get("h7")?.state, known.has("h8"), known.get("new")?.sampledAt]).toEqual([1000, "silent", false, 1000]);
    expect([known.get("h1"), known.get("h3")].map((item) => [item?.cycles, item?.sampledAt])).toEqual([[1, 1000], [0, 0]]);
  });

  it("is another version where hosts come, go or change, not where their figures do", async () => {
    const controller = new Controller(1000);
    let now = 0;
    const list = new HostList(controller.ask, () => now);
    const changes: [string, () => void][] = [
      ["all come", () => undefined], ["a state", () => controller.set("h7", "silent")], ["one goes", () => controller.remove("h8")], ["one comes", () => controller.set("new")],
      ["labels", () => { controller.set("h9"); controller.hosts.get("h9")!.host.labels = { dc: "a" }; }], ["all again, of which one is gone", () => { controller.hosts.delete("h3"); now += 20_000; }],
    ];
    for (const [what, change] of changes) {
      change();
      const before = list.version;
      await list.refresh(["h1"]);
      expect([what, list.version]).toEqual([what, before + 1]);
      controller.read();
      await list.refresh(["h1"]);
      expect([what, list.version]).toEqual([what, before + 1]);
    }
  });

  it("applied difference by difference is the whole", async () => {
    const controller = new Controller(300);
    let now = 0;
    const list = new HostList(controller.ask, () => now);
    await list.refresh([]);
    let seed = 1;
    const chance = (below: number): number => (seed = (seed * 48271) % 2147483647) % below;
    for (let step = 0; step < 200; step++) {
      for (let change = chance(4); change > 0; change--) {
        const name = `h${chance(320)}`;
        if (chance(3) === 0) controller.remove(name);
        else controller.set(name, chance(2) === 0 ? "failed" : "reading");
      }
      now += 10;
      const told = (await list.refresh([])).map(({ name, state }) => `${name} ${state}`).sort();
      expect(told).toEqual([...controller.hosts.values()].map((item) => `${item.host.name} ${item.host.state}`).sort());
    }
    expect(controller.wholes).toBe(1);
  });

  it("asks for all again: a few hosts each time, many after a while", async () => {
    for (const [count, wholes] of [[0, 60], [24, 60], [100, 60], [1000, 6], [10_000, 1]] as const) {
      const controller = new Controller(count);
      let now = 0;
      const list = new HostList(controller.ask, () => now);
      for (; now < 60_000; now += 1000) await list.refresh([]);
      expect([count, controller.wholes]).toEqual([count, wholes]);
    }
  });

  it("forgets everything where the controller is another one", async () => {
    const [first, second] = [new Controller(1000), new Controller(2)];
    const list = new HostList((since, signal) => (since === null ? first : second).ask(since, signal), () => 0);
    await list.refresh([]);
    expect((await list.refresh([])).map(({ name }) => name)).toEqual(names(2));
  });

  it("asks for no more than the first in view", async () => {
    let asked: string[] = [];
    const controller = new Controller(1000);
    const list = new HostList((since, signal) => { asked = since?.fresh ?? []; return controller.ask(since, signal); }, () => 0);
    await list.refresh(names(500));
    await list.refresh(names(500));
    expect(asked).toEqual(names(MAX_FRESH));
  });
});
