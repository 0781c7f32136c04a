// SPDX-License-Identifier: Apache-2.0
//! Requests to the controller and why they fail, whatever is asked for.

import { type Check, object, text } from "./check";

/** A request that failed. `status` is 0 where no answer came at all. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** Relative, so that the controller may be served below a prefix. */
export const BASE = "api/onlooker/v1";
export const PROMETHEUS = "api/v1";

const REQUEST_TIMEOUT_MS = 10_000;

export interface Asking {
  /** Asked by POST, for what a URL has no room for. */
  form?: Record<string, string>;
  timeoutMs?: number;
  /** Types that the answer may have. */
  accept?: string;
}

/** The body of an answer, as `take` takes it. */
export async function answered<T>(
  path: string,
  take: (answer: Response) => Promise<T>,
  signal?: AbortSignal,
  { form, timeoutMs = REQUEST_TIMEOUT_MS, accept = "application/json" }: Asking = {},
): Promise<T> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const either = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
  let answer: Response;
  let refusal: string;
  try {
    const post = form === undefined ? {} : { method: "POST", body: new URLSearchParams(form) };
    answer = await fetch(path, { signal: either, headers: { Accept: accept }, credentials: "same-origin", ...post });
    if (answer.ok) return await take(answer);
    refusal = await answer.text();
  } catch (error) {
    if (signal?.aborted === true) throw error;
    const why = timeout.aborted ? `gave no answer within ${timeoutMs / 1000} s` : "cannot be reached";
    throw new ApiError(0, `The controller ${why}. Is it running, and does the network lead to it?`);
  }
  throw new ApiError(answer.status, errorText(refusal) ?? `The controller answered ${answer.status} to ${path.split("?")[0] ?? path}.`);
}

/** Answers of so many characters are taken apart in steps: of 10,000 hosts in one go it would take as long as some frames. */
const LONG = 250_000;

/** What else waits, a frame say, is done first. */
const turn = (): Promise<void> => new Promise((done) => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    done();
  };
  port2.postMessage(null);
});

/** An answer in JSON. */
export async function request<T>(path: string, check: Check<T>, signal?: AbortSignal, asking?: Asking): Promise<T> {
  const written = await answered(path, (answer) => answer.text(), signal, asking);
  const isLong = written.length > LONG;
  if (isLong) await turn();
  const value: unknown = JSON.parse(written);
  if (isLong) await turn();
  const checked = check(value, "");
  if (isLong) await turn();
  return checked;
}

export function errorText(body: string): string | null {
  try {
    return object<{ error: string }>({ error: text })(JSON.parse(body), "").error;
  } catch {
    return null; // A proxy's HTML, say: the status has to do.
  }
}

export function query(parameters: [string, string | number][]): string {
  return parameters.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
}
