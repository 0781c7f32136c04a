// SPDX-License-Identifier: Apache-2.0
//! Asks for what the heat map shows: hosts in pages, those at the top of the table first; then of all hosts only what has come since.

import { chunks } from "../chunks";
import { now } from "../clock";
import { literal, quote, range } from "../promql";
import { Matrix } from "./matrix";
import { METRICS, type Metric, stepOf, worst } from "./metrics";

/** Another question may be followed by the next one. */
const SETTLE_MS = 150;
/** Of one answer: it is taken apart within a frame or two. */
const MAX_HOSTS = 1000;
/** Of names as a query has them: a request's form may have 64 KiB. */
const MAX_BYTES = 50_000;
/** Queries at a time: the controller has turns for four, of which others want some, too. */
const AT_ONCE = 2;
/** Nobody looks, or an answer has failed. */
const AGAIN_MS = 5000;

/** Hosts as one query can ask for them. */
export function pagesOf(hosts: readonly string[]): string[][] {
  let at = 0;
  return chunks(hosts.map((name) => quote(literal(name))), MAX_HOSTS, MAX_BYTES).map(({ length }) => hosts.slice(at, (at += length)));
}

export class HeatReader {
  /** What is known, of `metric`. */
  matrix: Matrix | null = null;
  metric: Metric = METRICS[0]!;
  /** Hosts of which something is still to come. */
  left = 0;
  private wanted = { metric: METRICS[0]!, spanMs: 0, hosts: [] as readonly string[] };
  /** Hosts that are being read; null: none are. */
  private reading: ReadonlySet<string> | null = null;
  private isDue = false;
  private abort = new AbortController();
  private timer: number | undefined;

  /** `came` is called after each answer, `failed` with the words of what went wrong, null once nothing does. */
  constructor(
    private readonly came: () => void,
    private readonly failed: (problem: string | null) => void,
  ) {}

  want(metric: Metric, spanMs: number, hosts: readonly string[]): void {
    const isOther = metric !== this.wanted.metric || spanMs !== this.wanted.spanMs;
    this.wanted = { metric, spanMs, hosts };
    // The same hosts in another order, or fewer of them: all of it is here, or comes.
    if (!isOther && this.isCovered(stepOf(spanMs, hosts.length), hosts)) return;
    this.isDue = true;
    this.soon(isOther ? 0 : SETTLE_MS);
  }

  /** Something else is to be shown than what is known. */
  get isBusy(): boolean {
    return this.isDue || this.reading !== null;
  }

  destroy(): void {
    this.abort.abort();
    clearTimeout(this.timer);
  }

  private isCovered(stepMs: number, hosts: readonly string[]): boolean {
    const { matrix, reading } = this;
    if (matrix?.stepMs !== stepMs) return false;
    return reading === null ? matrix.missing(hosts).size === 0 : hosts.every((host) => reading.has(host));
  }

  private soon(ms: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.read(), ms);
  }

  private async read(): Promise<void> {
    this.abort.abort();
    this.abort = new AbortController();
    const { signal } = this.abort;
    const { metric, spanMs, hosts } = this.wanted;
    if (document.hidden || hosts.length === 0) {
      this.soon(AGAIN_MS);
      return;
    }
    this.isDue = false;
    const stepMs = stepOf(spanMs, hosts.length);
    const columns = Math.round(spanMs / stepMs) + 1;
    const to = Math.floor(now() / stepMs) * stepMs;
    if (this.matrix?.stepMs !== stepMs || this.matrix.columns !== columns || this.metric !== metric) this.matrix = new Matrix(stepMs, columns, to);
    this.metric = metric;
    const { matrix } = this;
    matrix.advance(to);
    const pages = [...matrix.missing(hosts)].flatMap(([until, some]) => pagesOf(some).map((names) => ({ names, fromMs: until + stepMs })));
    this.left = pages.reduce((sum, { names }) => sum + names.length, 0);
    this.reading = new Set(hosts);
    const turn = async (): Promise<void> => {
      for (let page = pages.shift(); page !== undefined; page = pages.shift()) {
        const answer = await range(worst(metric, page.names, stepMs), { fromMs: page.fromMs, toMs: to, stepMs }, signal);
        if (signal.aborted) return;
        matrix.fill(page.names, answer, to);
        this.left -= page.names.length;
        this.came();
      }
    };
    let againMs = AGAIN_MS;
    try {
      await Promise.all(Array.from({ length: AT_ONCE }, turn));
      this.failed(null);
      againMs = Math.max(SETTLE_MS, to + stepMs - now());
    } catch (error) {
      if (signal.aborted) return;
      pages.length = 0;
      this.failed(error instanceof Error ? error.message : String(error));
    }
    if (signal.aborted) return;
    this.reading = null;
    this.came();
    this.soon(againMs);
  }
}
