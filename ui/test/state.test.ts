// SPDX-License-Identifier: Apache-2.0
import { describe, expect, it } from "vitest";
import { pairHelp, pairLong, pairText } from "../src/state";

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
