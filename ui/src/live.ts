// SPDX-License-Identifier: Apache-2.0
//! Values as they come: the event streams of one host. Series that do not fit into one URL are spread over several streams.

import { type Gap, type HostState, type LiveOpen, liveEvents, liveUrl } from "./api";
import { chunks } from "./chunks";

export type LiveState = "connecting" | "open" | "lost";

export interface LiveHandlers {
  /** Every stream has (again) begun: what came before must be read by `range`. */
  opened: (info: LiveOpen) => void;
  /** Values that were acquired at `t`; each comes once. */
  row: (t: number, series: string[], values: unknown[]) => void;
  gap: (gap: Gap) => void;
  host: (state: HostState) => void;
  skipped: (rows: number) => void;
  state: (state: LiveState) => void;
  /** What came cannot be understood. */
  failed: (error: Error) => void;
}

/** Browsers allow six connections to a server (HTTP/1.1); some must be left for requests. */
export const MAX_STREAMS = 3;
const RETRY_MS = [1000, 2000, 5000, 10_000];

interface Stream {
  source: EventSource | null;
  series: string[];
  isOpen: boolean;
  failures: number;
  timer: number | undefined;
}

/** How many of `series`, from the first, can be followed at once. */
export function affordable(series: string[]): string[] {
  return chunks(series).slice(0, MAX_STREAMS).flat();
}

export class Live {
  private readonly streams: Stream[];
  private closed = false;

  constructor(
    private readonly host: string,
    series: string[],
    private readonly everyMs: number,
    private readonly handlers: LiveHandlers,
  ) {
    this.streams = chunks(series)
      .slice(0, MAX_STREAMS)
      .map((part) => ({ source: null, series: part, isOpen: false, failures: 0, timer: undefined }));
    handlers.state("connecting");
    for (const stream of this.streams) this.connect(stream);
  }

  close(): void {
    this.closed = true;
    for (const stream of this.streams) {
      stream.source?.close();
      clearTimeout(stream.timer);
    }
  }

  private connect(stream: Stream): void {
    const source = new EventSource(liveUrl(this.host, stream.series, this.everyMs));
    stream.source = source;
    const first = this.streams[0] === stream;

    // An event named "open" arrives like EventSource's own; only the server's carries data.
    on(source, "open", (data) => this.guard(() => this.begun(stream, liveEvents.open(data))));
    on(source, "row", (data) => this.guard(() => {
      for (const row of liveEvents.row(data).rows) {
        this.handlers.row(row.t_ms, row.series.map((at) => stream.series[at] ?? ""), row.v);
      }
    }));
    // The host is the same for all streams: its events count once.
    on(source, "gap", (data) => this.guard(() => first && this.handlers.gap(liveEvents.gap(data))));
    on(source, "host", (data) => this.guard(() => first && this.handlers.host(liveEvents.host(data).state)));
    on(source, "skipped", (data) => this.guard(() => this.handlers.skipped(liveEvents.skipped(data).rows)));
    source.onerror = () => this.lost(stream);
  }

  private begun(stream: Stream, info: LiveOpen): void {
    // The server's order of series counts, whatever was asked.
    stream.series = info.series.map((item) => item.series);
    stream.isOpen = true;
    stream.failures = 0;
    if (this.streams.every((item) => item.isOpen)) {
      this.handlers.state("open");
      this.handlers.opened(info);
    }
  }

  private lost(stream: Stream): void {
    if (this.closed) return;
    stream.isOpen = false;
    this.handlers.state("lost");
    // A refused stream is not tried again by the browser, and others are only after a time of its own choice: so always close, and try again here.
    stream.source?.close();
    clearTimeout(stream.timer);
    stream.timer = setTimeout(() => this.connect(stream), RETRY_MS[Math.min(stream.failures++, RETRY_MS.length - 1)]);
  }

  private guard(run: () => unknown): void {
    if (this.closed) return;
    try {
      run();
    } catch (error) {
      this.close();
      this.handlers.state("lost");
      this.handlers.failed(error instanceof Error ? error : new Error(String(error)));
    }
  }
}

function on(source: EventSource, name: string, handler: (data: string) => void): void {
  source.addEventListener(name, (event: Event) => {
    if (event instanceof MessageEvent) handler(event.data as string);
  });
}
