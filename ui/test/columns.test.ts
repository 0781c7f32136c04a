// SPDX-License-Identifier: Apache-2.0
import { afterEach, describe, expect, it, vi } from "vitest";
import example from "../../crates/controller/src/http/prometheus/columns/example.json?raw";
import { ContractError } from "../src/check";
import { COLUMNS, decoded, isColumns } from "../src/columns";
import { range } from "../src/promql";
import { ApiError } from "../src/request";

const HOLE = "020000000000f07f";

const bytesOf = (hex: string): number[] => (hex.match(/../g) ?? []).map((byte) => parseInt(byte, 16));
const buffer = (bytes: number[]): ArrayBuffer => Uint8Array.from(bytes).buffer;

/** A column of numbers, or of texts that hold a double's bytes. */
const doubles = (values: (number | string)[]): number[] =>
  values.flatMap((value) => (typeof value === "string" ? bytesOf(value) : [...new Uint8Array(Float64Array.of(value).buffer)]));

/** As the controller makes it; `padding` more or less of what aligns the values. */
function columns(head: string, values: (number | string)[], padding = 0): ArrayBuffer {
  const text = [...new TextEncoder().encode(head)];
  const spaces = new Array<number>(((12 - (text.length % 8)) % 8) + padding).fill(0x20);
  const length = text.length + spaces.length;
  return buffer([...new Uint8Array(Uint32Array.of(length).buffer), ...text, ...spaces, ...doubles(values)]);
}

const head = (series: { metric: unknown }[], more: Record<string, unknown> = {}): string =>
  JSON.stringify({ status: "success", data: { resultType: "matrix", start_ms: 1500, step_ms: 500, steps: 3, series: series.length, result: series, ...more } });

const two = [{ metric: { a: "é" } }, { metric: {} }];

describe("columns", () => {
  it("are read as the controller writes them", () => {
    const written = JSON.parse(example) as { length: string; head: string; columns: string[][] };
    const bytes = [...bytesOf(written.length), ...new TextEncoder().encode(written.head), ...bytesOf(written.columns.flat().join(""))];
    expect(decoded(buffer(bytes))).toEqual([
      { labels: {}, t_ms: [1500, 2000, 2500], values: [-Infinity, -Infinity, -Infinity] },
      { labels: { instance: "web-1" }, t_ms: [2500], values: [2.5] },
    ]);
  });

  it("have holes, and numbers that are none", () => {
    // Neither a quiet NaN of the same digits, nor a signalling one of others.
    const found = decoded(columns(head(two), [HOLE, "020000000000f87f", "010000000000f07f", 0.1, HOLE, Infinity]));
    expect(found).toEqual([{ labels: { a: "é" }, t_ms: [2000, 2500], values: [NaN, NaN] }, { labels: {}, t_ms: [1500, 2500], values: [0.1, Infinity] }]);
    expect(decoded(columns(head([{ metric: {} }]), [HOLE, HOLE, HOLE]))).toEqual([{ labels: {}, t_ms: [], values: [] }]);
    expect(decoded(columns(head([]), []))).toEqual([]);
    expect(decoded(columns(head(two, { steps: 0 }), []))).toEqual(two.map(({ metric }) => ({ labels: metric, t_ms: [], values: [] })));
  });

  it("may have times between milliseconds", () => {
    expect(decoded(columns(head([{ metric: {} }], { start_ms: 0.25, step_ms: 0.5 }), [1, 2, 3]))[0]!.t_ms).toEqual([0.25, 0.75, 1.25]);
  });

  it("that are damaged are refused, with what is wrong", () => {
    const whole = columns(head(two), [1, 2, 3, 4, 5, 6]);
    expect(decoded(whole)).toHaveLength(2);
    for (let bytes = 0; bytes < whole.byteLength; bytes++) expect(() => decoded(whole.slice(0, bytes)), String(bytes)).toThrow(ContractError);
    const wrong: [ArrayBuffer, RegExp][] = [
      [columns(head(two), [1, 2, 3, 4, 5, 6, 7]), /columns: expected \d+ bytes/],
      [columns(head(two, { steps: 2 }), [1, 2, 3, 4, 5, 6]), /columns: expected \d+ bytes/],
      [columns(head(two, { series: 3 }), [1, 2, 3, 4, 5, 6, 7, 8, 9]), /result: expected 3 series, got 2/],
      [columns(head(two, { steps: 1.5 }), [1, 2, 3]), /head\.data\.steps: expected how many, got 1\.5/],
      [columns(head(two, { steps: -3 }), []), /head\.data\.steps/],
      [columns(head(two, { start_ms: "1500" }), [1, 2, 3, 4, 5, 6]), /head\.data\.start_ms: expected a number/],
      [columns(head(two, { resultType: "vector" }), [1, 2, 3, 4, 5, 6]), /head\.data\.resultType/],
      [columns(head([{ metric: { a: 1 } }]), [1, 2, 3]), /head\.data\.result\[0\]\.metric\.a: expected a text/],
      [columns("{", []), /head: expected JSON, got "\{/],
      [columns("", []), /head: expected JSON/],
      [columns("null", []), /head: expected an object/],
      [columns(head(two), [1, 2, 3, 4, 5, 6], 1), /expected values at a multiple of 8 bytes/],
      [buffer([255, 255, 255, 255, 0, 0, 0, 0]), /expected a head of 4294967295 bytes, got "8 bytes"/],
    ];
    for (const [bytes, why] of wrong) {
      expect(() => decoded(bytes)).toThrow(ContractError);
      expect(() => decoded(bytes)).toThrow(why);
    }
  });
});

describe("a range", () => {
  const signal = new AbortController().signal;
  const span = { fromMs: 1500, toMs: 2500, stepMs: 500 };
  const answers = (body: BodyInit, type: string, status = 200) => {
    const fetched = vi.fn(() => Promise.resolve(new Response(body, { status, headers: { "Content-Type": type } })));
    vi.stubGlobal("fetch", fetched);
    return fetched;
  };
  afterEach(() => vi.unstubAllGlobals());

  it("is asked for in columns, and taken as what comes", async () => {
    const points = [{ labels: { a: "b" }, t_ms: [1500, 2500], values: [1, 3] }];
    const fetched = answers(columns(head([{ metric: { a: "b" } }]), [1, HOLE, 3]), COLUMNS);
    expect(await range("up", span, signal)).toEqual(points);
    const [path, sent] = fetched.mock.calls[0] as unknown as [string, RequestInit];
    expect([path, sent.headers, String(sent.body as URLSearchParams)]).toEqual(["api/v1/query_range", { Accept: `${COLUMNS}, application/json` }, "query=up&start=1.5&end=2.5&step=0.5"]);
    answers(JSON.stringify({ status: "success", data: { resultType: "matrix", result: [{ metric: { a: "b" }, values: [[1.5, "1"], [2.5, "3"]] }] } }), "application/json");
    expect(await range("up", span, signal)).toEqual(points);
  });

  it("that is refused or does not fit says why", async () => {
    answers(JSON.stringify({ status: "error", errorType: "execution", error: "too many series" }), "application/json", 422);
    await expect(range("up", span, signal)).rejects.toEqual(new ApiError(422, "too many series"));
    answers(columns(head(two), [1]), COLUMNS);
    await expect(range("up", span, signal)).rejects.toThrow(ContractError);
    vi.stubGlobal("fetch", () => Promise.resolve({ ok: true, headers: new Headers({ "Content-Type": COLUMNS }), arrayBuffer: () => Promise.reject(new Error("broken off")) }));
    await expect(range("up", span, signal)).rejects.toThrow("The controller cannot be reached");
  });

  it("is in columns by its type alone", () => {
    const typed = (type: string): boolean => isColumns(new Response("", { headers: { "Content-Type": type } }));
    expect([COLUMNS, "Application/Vnd.Onlooker.Columns; v=1", "application/json", `text/${COLUMNS}`, ""].map(typed)).toEqual([true, true, false, false, false]);
  });
});
