// SPDX-License-Identifier: Apache-2.0
import { expect, it } from "vitest";
import { all, ofHost, onChange, set } from "../src/alerts";
import type { Alert, AlertState } from "../src/api";

const alert = (alertname: string, instance: string | null, severity: string, state: AlertState, since_ms: number): Alert => ({
  labels: { alertname, severity, ...(instance === null ? {} : { instance }) }, annotations: {}, state, since_ms, value: 1,
});

it("shows what fires first, then the worst, then the oldest, and finds those of a host", () => {
  let changes = 0;
  const stop = onChange(() => changes++);
  set([
    alert("pending", "a", "critical", "pending", 1), alert("unknown", "b", "odd", "firing", 2), alert("later", "a", "Warning", "firing", 4),
    alert("earlier", null, "warning", "firing", 3), alert("worst", "a", "critical", "firing", 9),
  ]);
  expect(all().map((one) => one.labels["alertname"])).toEqual(["worst", "earlier", "later", "unknown", "pending"]);
  expect(ofHost("a").map((one) => one.labels["alertname"])).toEqual(["worst", "later", "pending"]);
  expect(ofHost("c")).toEqual([]);
  stop();
  set([]);
  expect([all(), ofHost("a"), changes]).toEqual([[], [], 1]);
});
