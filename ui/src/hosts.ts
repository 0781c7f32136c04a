// SPDX-License-Identifier: Apache-2.0
//! All hosts as the controller lists them, kept up to date by what has changed.
//!
//! With a few hosts each question gets all of them. With many, a question gets those that changed (states, problems, hosts that come and go: at once) and the
//! figures of the hosts in view; the figures of all others come again after a while, so that columns of them can be sorted.

import type { Host, HostChanges } from "./api";

/** A host, and when (by `performance.now`) its figures were so. */
export interface Known extends Host {
  readonly sampledAt: number;
}

export type AskHosts = (since: { cursor: number; fresh: string[] } | null, signal?: AbortSignal) => Promise<HostChanges>;

/** All hosts come again after as long as makes so many of them a second; after the longest time at the latest. */
const HOSTS_PER_S = 100;
const LONGEST_MS = 60_000;
/** Hosts in view beyond these are not asked for each time. */
export const MAX_FRESH = 100;

export class HostList {
  private known = new Map<string, Known>();
  private cursor = 0;
  private wholeAt = -Infinity;
  /** Another one once hosts have come, have gone, or have another state or other labels. */
  version = 0;

  constructor(
    private readonly ask: AskHosts,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Asks for what has changed, and for the hosts `inView` in any case. */
  async refresh(inView: string[], signal?: AbortSignal): Promise<Known[]> {
    const isWholeDue = this.now() - this.wholeAt >= this.periodMs;
    const fresh = inView.filter((name) => this.known.has(name)).slice(0, MAX_FRESH);
    this.apply(await this.ask(isWholeDue ? null : { cursor: this.cursor, fresh }, signal));
    return [...this.known.values()];
  }

  private get periodMs(): number {
    return Math.min(LONGEST_MS, (this.known.size / HOSTS_PER_S) * 1000);
  }

  private apply(got: HostChanges): void {
    const sampledAt = this.now();
    const before = this.known;
    if (got.whole) {
      this.known = new Map();
      this.wholeAt = sampledAt;
    }
    let isOther = got.whole && got.hosts.length !== before.size;
    for (const name of got.gone) isOther = this.known.delete(name) || isOther;
    for (const host of got.hosts) {
      isOther ||= !isAlike(before.get(host.name), host);
      this.known.set(host.name, Object.assign(host, { sampledAt }));
    }
    if (isOther) this.version++;
    this.cursor = got.cursor;
  }
}

function isAlike(one: Host | undefined, other: Host): boolean {
  const [labels, others] = [Object.entries(one?.labels ?? {}), Object.keys(other.labels)];
  return one?.state === other.state && labels.length === others.length && labels.every(([name, value]) => other.labels[name] === value);
}
