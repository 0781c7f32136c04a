// SPDX-License-Identifier: Apache-2.0
//! Words and signs for a host's state: shape and word first, colour only besides.

import type { Host, HostState } from "./api";
import { h, setText } from "./dom";

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

export function viaText(via: string | null): string {
  if (via === "kernel") return "kernel";
  if (via === "tcp") return "agent, TCP";
  return via ?? "–";
}

/** The same where there is room for what it means. */
export function viaLong(via: string | null): string {
  if (via === "kernel") return "its kernel in softirq; a read wakes no process";
  if (via === "tcp") return "its agent’s process, over TCP";
  return viaText(via);
}

export function viaHelp(via: string | null): string {
  if (via === "kernel") return "The kernel answers in softirq: a read wakes no process on the host";
  if (via === "tcp") return "The agent answers over TCP: a process wakes on the host for every READ";
  return "Nobody answers";
}

export function showVia(node: HTMLElement, via: string | null): void {
  setText(node, viaText(via));
  if (node.title !== viaHelp(via)) node.title = viaHelp(via);
}

/** The age of a host's values by now. While it is read the age is as sampled; when it is not, it grows. */
export function ageNow(host: Host, sampledAt: number): number | null {
  if (host.age_ms === null) return null;
  return host.state === "reading" ? host.age_ms : host.age_ms + (performance.now() - sampledAt);
}
