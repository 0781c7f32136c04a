// SPDX-License-Identifier: Apache-2.0
//! Alerts that are pending or firing: asked for in one place for all pages, and how they are shown.

import { type Alert, type AlertState, getAlerts } from "./api";
import { h } from "./dom";
import { poll } from "./poll";
import { ApiError } from "./request";

const POLL_MS = 5000;

let known: Alert[] = [];
let byHost = new Map<string, Alert[]>();
const listeners = new Set<() => void>();

/** The worst first. */
const SEVERITIES = ["critical", "error", "warning", "info"];
const SIGNS: Record<AlertState, string> = { firing: "▲", pending: "◌" };
export const ALERT_STATES: readonly AlertState[] = ["firing", "pending"];
export const ALERT_HELP: Record<AlertState, string> = { firing: "its condition has held for as long as its rule asks", pending: "its condition holds, not yet for as long as its rule asks" };

export const nameOf = (alert: Alert): string => alert.labels["alertname"] ?? "";
export const hostOf = (alert: Alert): string | null => alert.labels["instance"] ?? null;
export const severityOf = (alert: Alert): string => alert.labels["severity"] ?? "";
/** What its rule says of it, the shorter text first. */
export const summaryOf = (alert: Alert): string => alert.annotations["summary"] ?? alert.annotations["description"] ?? alert.annotations["message"] ?? "";

/** The least of those that are looked at first. */
export function rankOf(alert: Alert): number {
  const severity = SEVERITIES.indexOf(severityOf(alert).toLowerCase());
  return (alert.state === "firing" ? 0 : 100) + (severity < 0 ? SEVERITIES.length : severity);
}

export function start(): void {
  // Pages say that a controller does not answer; the page is loaded again after a login.
  poll(POLL_MS, getAlerts, set, (error) => !(error instanceof ApiError && error.status === 401));
}

/** In the order in which they are looked at. */
export function set(alerts: Alert[]): void {
  known = [...alerts].sort((a, b) => rankOf(a) - rankOf(b) || a.since_ms - b.since_ms);
  byHost = new Map();
  for (const alert of known) {
    const host = hostOf(alert);
    if (host !== null) byHost.set(host, [...(byHost.get(host) ?? []), alert]);
  }
  for (const listener of listeners) listener();
}

export const all = (): readonly Alert[] => known;
export const ofHost = (host: string): readonly Alert[] => byHost.get(host) ?? [];

/** Calls `listener` when alerts have been asked for; returns how to stop that. */
export function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function showAlertState(node: HTMLElement, state: AlertState): void {
  if (node.dataset["state"] === state) return;
  node.dataset["state"] = state;
  node.replaceChildren(h("span", { class: `state ${state}`, title: ALERT_HELP[state] }, h("span", { "aria-hidden": "true" }, SIGNS[state]), ` ${state}`));
}
