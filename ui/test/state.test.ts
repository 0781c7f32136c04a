// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { overQuota, pairHelp, pairLong, pairText } from "../src/state";

describe("who asks and who answers", () => {
  it.each([
    ["verbs", "verbs", "RDMA device to RDMA device", "its RDMA device, asked by ours"],
    ["verbs", "kernel", "RDMA device to kernel", "its kernel in softirq, asked by our RDMA device"],
    ["soft", "verbs", "RDMA device", "its RDMA device, asked by the controller"],
    ["soft", "kernel", "kernel", "its kernel in softirq;"],
    ["tcp", "tcp", "agent, TCP", "its agent’s process"],
    ["soft", "later", "soft-later", "soft-later"],
  ])("%s asks %s", (requester, via, short, long) => {
    expect(pairText({ requester, via })).toBe(short);
    expect(pairLong({ requester, via }).startsWith(long)).toBe(true);
  });

  it("is nobody while a host is not read", () => {
    const pair = { requester: null, via: null };
    expect([pairText(pair), pairLong(pair), pairHelp(pair)]).toEqual(["–", "–", "Nobody answers"]);
  });
});

describe("a host that costs more than it may", () => {
  it("says what is not kept", () => {
    expect(overQuota({ over_quota: [] })).toBeNull();
    expect(overQuota({ over_quota: [{ quota: "series", of: "programs", limit: 50_000, used: 1200, rows: 560 }] })).toBe(
      "Not all of this host is kept: its programs’ regions exceed [quota] series (50\u202f000): 560 rows not kept.",
    );
  });
});
