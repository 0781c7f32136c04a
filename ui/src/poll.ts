// SPDX-License-Identifier: Apache-2.0
//! Asks again and again: not while the page is hidden, slower while nobody answers, and no more once asking cannot help.

const MAX_BACKOFF = 8;

export interface Poll {
  stop(): void;
  /** Ask at once, and further on. */
  soon(): void;
}

/** `failed` gives whether to ask again. */
export function poll<T>(everyMs: number, ask: (signal: AbortSignal) => Promise<T>, got: (value: T) => void, failed: (error: Error) => boolean): Poll {
  const abort = new AbortController();
  let timer: number | undefined;
  let busy = false;
  let failures = 0;
  let over = false;

  const stopped = (): boolean => abort.signal.aborted;
  const run = async (): Promise<void> => {
    if (busy || over || stopped()) return;
    clearTimeout(timer);
    if (document.hidden) return;
    busy = true;
    try {
      const value = await ask(abort.signal);
      failures = 0;
      if (!stopped()) got(value);
    } catch (error) {
      failures++;
      if (!stopped()) over = !failed(error instanceof Error ? error : new Error(String(error)));
    }
    busy = false;
    if (!over && !stopped()) timer = setTimeout(() => void run(), everyMs * Math.min(MAX_BACKOFF, 1 + failures));
  };
  const visible = (): void => void run();
  document.addEventListener("visibilitychange", visible);
  void run();
  return {
    stop: () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    },
    soon: () => {
      over = false;
      void run();
    },
  };
}
