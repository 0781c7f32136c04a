// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { MOST_HOSTS, compareAddress, fromParameters, ownQuery, toParameters, vitalQuery, vitalSpec, vitalSteps, vitalTracks } from "../src/compare/asked";
import { METRICS } from "../src/fleet/metrics";
import type { Points } from "../src/promql";

const CPU = METRICS[0]!;
const parameters = (address: string): URLSearchParams => new URLSearchParams(address.split("?")[1]);

describe("the address of a comparison", () => {
  it("has hosts, metrics and query, and comes back as it was", () => {
    for (const metrics of [METRICS, METRICS.slice(2, 4), []]) {
      const of = { hosts: ["web-1", "<b>&=מארח"], metrics, query: 'rate(x{instance=~"$hosts"}[1m])' };
      expect(fromParameters(new URLSearchParams(new URLSearchParams(toParameters(of)).toString()))).toEqual(of);
    }
    expect(fromParameters(parameters(compareAddress(["a b", "c"])))).toEqual({ hosts: ["a b", "c"], metrics: METRICS, query: "" });
  });

  it("keeps what makes sense", () => {
    const many = Array.from({ length: 30 }, (_, i) => `host=h${i}`).join("&");
    expect(fromParameters(new URLSearchParams(`${many}&host=h1&m=cpu&m=nonsense`))).toEqual({ hosts: Array.from({ length: MOST_HOSTS }, (_, i) => `h${i}`), metrics: [CPU], query: "" });
    expect(fromParameters(new URLSearchParams("host=a&host=a&host=")).hosts).toEqual(["a"]);
  });
});

describe("what is asked for it", () => {
  it("steps are whole samples, at multiples, and not too many", () => {
    for (const width of [10_000, 60_000, 3_600_000, 86_400_000, 40 * 86_400_000, 4000 * 86_400_000]) {
      const { fromMs, toMs, stepMs } = vitalSteps({ from: 1e12 + 123, to: 1e12 + 123 + width });
      expect([stepMs % 5000, fromMs % stepMs, toMs % stepMs]).toEqual([0, 0, 0]);
      expect((toMs - fromMs) / stepMs).toBeLessThanOrEqual(300);
    }
  });

  it("a step with several samples has least and greatest; a short one misses none", () => {
    expect(vitalQuery(CPU, ["a"], 15_000)).toBe('label_replace(round(avg_over_time(onlooker_host_cpu_ratio{instance="a"}[15s]), 0.0001), "__part", "mean", "", "") or label_replace(round(min_over_time(onlooker_host_cpu_ratio{instance="a"}[15s]), 0.0001), "__part", "least", "", "") or label_replace(round(max_over_time(onlooker_host_cpu_ratio{instance="a"}[15s]), 0.0001), "__part", "most", "", "")');
    expect(vitalQuery(CPU, ["a"], 5000)).toBe('label_replace(round(avg_over_time(onlooker_host_cpu_ratio{instance="a"}[10s]), 0.0001), "__part", "mean", "", "")');
  });

  it("each host has its line in the order of hosts, whether there are values or not", () => {
    const part = (instance: string, __part: string, values: number[]): Points => ({ labels: { instance, __part }, t_ms: values.map((_, i) => 5000 * (i + 1)), values });
    const tracks = vitalTracks([part("b", "mean", [1, 2]), part("b", "least", [0, 1]), part("b", "most", [5, 9])], 5000);
    expect([...tracks.keys()]).toEqual(["b"]);
    expect(tracks.get("b")!.hasBand).toBe(true);
    expect(vitalSpec(CPU, ["b", "a"]).lines.map(({ label }) => label)).toEqual(["b", "a"]);
  });

  it("a metric is asked of the hosts alone, and so is what names them by $hosts", () => {
    expect(ownQuery(" node_load1 ", ["a.b", "c"])).toBe('node_load1{instance=~"a\\\\.b|c"}');
    expect(ownQuery('x{instance=~"$hosts"}', ["a.b", '"$&'])).toBe('x{instance=~"a\\\\.b|\\"\\\\$&"}');
    expect(ownQuery("rate(x[1m])", ["a"])).toBeNull();
  });
});
