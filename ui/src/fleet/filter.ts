// SPDX-License-Identifier: Apache-2.0
//! Which hosts are shown: by state, labels and words. Pure.

import { nameOf, ofHost } from "../alerts";
import type { Host, HostState } from "../api";
import { labelsOf, pairText } from "../state";

/** A label with more values than this (an id, say) makes no filter. */
const MAX_LABEL_VALUES = 12;

const nameOfLabel = (label: string): string => label.split("=", 1)[0]!;

/** Labels worth a filter: some hosts have them and others not, and they have few values. */
export function labelFilters(hosts: readonly Host[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const host of hosts) for (const label of labelsOf(host)) counts.set(label, (counts.get(label) ?? 0) + 1);
  const values = new Map<string, number>();
  for (const label of counts.keys()) values.set(nameOfLabel(label), (values.get(nameOfLabel(label)) ?? 0) + 1);
  return [...counts].filter(([label, n]) => n < hosts.length && values.get(nameOfLabel(label))! <= MAX_LABEL_VALUES).sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

const texts = new WeakMap<Host, string>();

/** What a search looks through, but for alerts: made once for what came of a host. */
function textOf(host: Host): string {
  let text = texts.get(host);
  if (text === undefined) {
    text = [host.name, host.address, host.state, pairText(host), host.error ?? "", ...labelsOf(host)].join(" ").toLowerCase();
    texts.set(host, text);
  }
  return text;
}

/** Values of one label are alternatives; different labels must all fit, and so must all words. */
export function filter<T extends Host>(hosts: readonly T[], search: string, states: ReadonlySet<HostState>, labels: ReadonlySet<string>): T[] {
  const words = search.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const byName = new Map<string, string[]>();
  for (const label of labels) byName.set(nameOfLabel(label), [...(byName.get(nameOfLabel(label)) ?? []), label]);
  const choices = [...byName.values()];
  return hosts.filter((host) => {
    if (states.size > 0 && !states.has(host.state)) return false;
    if (choices.length > 0) {
      const own = labelsOf(host);
      if (choices.some((wanted) => !wanted.some((label) => own.includes(label)))) return false;
    }
    if (words.length === 0) return true;
    const alerts = ofHost(host.name);
    const text = alerts.length === 0 ? textOf(host) : `${textOf(host)} ${alerts.map(nameOf).join(" ").toLowerCase()}`;
    return words.every((word) => text.includes(word));
  });
}
