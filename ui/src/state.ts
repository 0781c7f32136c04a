// SPDX-License-Identifier: Apache-2.0
//! Words and signs for a host's state: shape and word first, colour only besides.

import type { Host, HostState } from "./api";
import { h, setText } from "./dom";
import { count } from "./format";
import type { Known } from "./hosts";

const SIGNS: Record<HostState, string> = { reading: "●", connecting: "◌", silent: "▲", failed: "✕" };
/** The worst first. */
export const STATE_RANK: Record<HostState, number> = { failed: 0, silent: 1, connecting: 2, reading: 3 };

export const STATE_HELP: Record<HostState, string> = {
  reading: "is read",
  connecting: "bootstrap under way, or waiting for the next try",
  silent: "was read, does not answer now",
  failed: "cannot be read; the error says why and what to do",
};

export function showState(node: HTMLElement, state: HostState): void {
  if (node.dataset["state"] === state) return;
  node.dataset["state"] = state;
  node.replaceChildren(h("span", { class: `state ${state}`, title: STATE_HELP[state] }, h("span", { "aria-hidden": "true" }, SIGNS[state]), ` ${state}`));
}

/** Of a host that was there and is no longer. */
export function showRemoved(node: HTMLElement): void {
  node.dataset["state"] = "removed";
  node.replaceChildren(h("span", { class: "state failed", title: "is not among the controller’s hosts any more" }, h("span", { "aria-hidden": "true" }, "✕"), " removed"));
}

/** Who asks and who answers. */
export type Pair = Pick<Host, "via" | "requester">;

/** What a pair is called: in a column, where there is room for what it means, and as help. */
interface Words {
  short: string;
  long: string;
  help: string;
}

const PAIRS: Record<string, Words> = {
  "verbs-verbs": {
    short: "RDMA device to RDMA device",
    long: "its RDMA device, asked by ours; a read runs no code there",
    help: "The host’s RDMA device answers ours: a read runs no code on the host",
  },
  "verbs-kernel": {
    short: "RDMA device to kernel",
    long: "its kernel in softirq, asked by our RDMA device; a read wakes no process",
    help: "The kernel answers our RDMA device in softirq: a read wakes no process on the host",
  },
  "soft-verbs": {
    short: "RDMA device",
    long: "its RDMA device, asked by the controller; a read runs no code there",
    help: "The host’s RDMA device answers the controller: a read runs no code on the host",
  },
  "soft-kernel": {
    short: "kernel",
    long: "its kernel in softirq; a read wakes no process",
    help: "The kernel answers in softirq: a read wakes no process on the host",
  },
  "tcp-tcp": {
    short: "agent, TCP",
    long: "its agent’s process, over TCP",
    help: "The agent answers over TCP: a process wakes on the host for every READ",
  },
};

function words({ via, requester }: Pair): Words {
  if (via === null) return { short: "–", long: "–", help: "Nobody answers" };
  // One that a newer controller knows is called as it calls it.
  const name = `${requester ?? "?"}-${via}`;
  return PAIRS[name] ?? { short: name, long: name, help: name };
}

export function pairText(pair: Pair): string {
  return words(pair).short;
}

/** The same where there is room for what it means. */
export function pairLong(pair: Pair): string {
  return words(pair).long;
}

export function pairHelp(pair: Pair): string {
  return words(pair).help;
}

export function showPair(node: HTMLElement, pair: Pair): void {
  const { short, help } = words(pair);
  setText(node, short);
  if (node.title !== help) node.title = help;
}

/** What of a host is not kept, and why; null while all is. */
export function overQuota(host: Pick<Host, "over_quota">): string | null {
  const parts = host.over_quota.map(({ quota, of, limit, rows }) => `its ${of === "agent" ? "agent’s" : "programs’"} regions exceed [quota] ${quota} (${count(limit)}): ${count(rows)} rows not kept`);
  return parts.length === 0 ? null : `Not all of this host is kept: ${parts.join("; ")}.`;
}

/** The age of a host's values by now. While it is read the age is as sampled; when it is not, it grows. */
export function ageNow(host: Known): number | null {
  if (host.age_ms === null) return null;
  return host.state === "reading" ? host.age_ms : host.age_ms + (performance.now() - host.sampledAt);
}

const labelTexts = new WeakMap<Host, string[]>();

/** Worked out once for what came of a host: filters look at them with every change. */
export function labelsOf(host: Host): string[] {
  let texts = labelTexts.get(host);
  if (texts === undefined) {
    texts = Object.entries(host.labels).map(([name, value]) => `${name}=${value}`).sort();
    labelTexts.set(host, texts);
  }
  return texts;
}
