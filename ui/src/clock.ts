// SPDX-License-Identifier: Apache-2.0
//! The controller's clock: all times of the API are its, and the browser's may be wrong.

import { getStatus, type Status } from "./api";

let offsetMs = 0;

/** Now, by the controller's clock. */
export const now = (): number => Date.now() + offsetMs;

/** Reads the status and sets the clock by it; good to half of the round trip. */
export async function syncedStatus(signal?: AbortSignal): Promise<Status> {
  const before = Date.now();
  const status = await getStatus(signal);
  offsetMs = status.now_ms - (before + Date.now()) / 2;
  return status;
}
