// SPDX-License-Identifier: Apache-2.0
//! The zone in which times are shown and typed: the browser's, or UTC. Remembered.

export type Zone = "local" | "utc";

const KEY = "onlooker.zone";
const listeners = new Set<() => void>();
let chosen: Zone = remembered();

function remembered(): Zone {
  try {
    return localStorage.getItem(KEY) === "utc" ? "utc" : "local";
  } catch {
    return "local"; // Storage may be forbidden.
  }
}

export const current = (): Zone => chosen;

export function choose(zone: Zone): void {
  chosen = zone;
  try {
    if (zone === "local") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, zone);
  } catch {
    // Then it holds until the page is left.
  }
  for (const listener of listeners) listener();
}

/** Calls `listener` when the zone changes; returns how to stop that. */
export function onChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** How far clocks of the zone are ahead of UTC at `ms`. */
export function aheadMs(ms: number, zone = chosen): number {
  return zone === "utc" ? 0 : -60_000 * new Date(ms).getTimezoneOffset();
}

/** A date whose UTC parts are those that the zone's clocks and calendars show at `ms`. */
export const wall = (ms: number): Date => new Date(ms + aheadMs(ms));

/** As `UTC+5:30`. */
export function offsetName(ms: number, zone = chosen): string {
  const minutes = aheadMs(ms, zone) / 60_000;
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0 ? "UTC" : `UTC${minutes < 0 ? "−" : "+"}${hours}${rest === 0 ? "" : `:${String(rest).padStart(2, "0")}`}`;
}

/** As `Europe/Paris, UTC+1`. */
export function fullName(ms: number, zone: Zone): string {
  const name = zone === "utc" ? "UTC" : new Intl.DateTimeFormat().resolvedOptions().timeZone;
  const offset = offsetName(ms, zone);
  return name === offset ? name : `${name}, ${offset}`;
}

/** For `<input type="datetime-local">`, to the millisecond. */
export const toField = (ms: number, zone: Zone): string => new Date(ms + aheadMs(ms, zone)).toISOString().slice(0, 23);

/** NaN where there is nothing. */
export const fromField = (text: string, zone: Zone): number => Date.parse(zone === "utc" ? `${text}Z` : text);
