// SPDX-License-Identifier: Apache-2.0
//! Ranges in columns (docs/promql.md#columns): a head in JSON, then the doubles of each series. Pure.

import { type Check, ContractError, list, number, object, oneOf, record, text } from "./check";
import type { Points } from "./promql";

export const COLUMNS = "application/vnd.onlooker.columns";

/** Who does not have them answers in JSON. */
export const isColumns = (answer: Response): boolean => (answer.headers.get("Content-Type") ?? "").split(";")[0]!.trim().toLowerCase() === COLUMNS;

const LENGTH_BYTES = 4;
const VALUE_BYTES = 8;
/** The lower and the upper half of the NaN that stands where there is no value. Any other NaN is a value. */
const HOLE = [0x0000_0002, 0x7ff0_0000] as const;

const count: Check<number> = (value, path) => {
  if (!Number.isSafeInteger(value) || (value as number) < 0) throw new ContractError(path, "how many", value);
  return value as number;
};
const headOf = object({
  data: object({ resultType: oneOf("matrix"), start_ms: number, step_ms: number, steps: count, series: count, result: list(object({ metric: record(text) })) }),
});

/** The series of an answer, each with the steps at which it has a value. */
export function decoded(buffer: ArrayBuffer): Points[] {
  const { length, head } = parsed(buffer);
  const { start_ms, step_ms, steps, series, result } = headOf(head, "head").data;
  if (result.length !== series) throw new ContractError("head.data.result", `${series} series`, result.length);
  const at = LENGTH_BYTES + length;
  const bytes = at + series * steps * VALUE_BYTES;
  if (buffer.byteLength !== bytes) throw new ContractError("columns", `${bytes} bytes`, buffer.byteLength);
  // Whatever runs a browser has its lowest byte first, as the answer has.
  const values = new Float64Array(buffer, at);
  const halves = new Uint32Array(buffer, at);
  const isHole = (i: number): boolean => halves[2 * i] === HOLE[0] && halves[2 * i + 1] === HOLE[1];
  return result.map(({ metric }, column) => {
    const points: Points = { labels: metric, t_ms: [], values: [] };
    for (let step = 0, i = column * steps; step < steps; step++, i++) {
      const value = values[i]!;
      if (Number.isNaN(value) && isHole(i)) continue;
      points.t_ms.push(start_ms + step * step_ms);
      points.values.push(value);
    }
    return points;
  });
}

/** The head, and how long it is. */
function parsed(buffer: ArrayBuffer): { length: number; head: unknown } {
  if (buffer.byteLength < LENGTH_BYTES) throw new ContractError("columns", "the length of a head", `${buffer.byteLength} bytes`);
  const length = new DataView(buffer).getUint32(0, true);
  const at = LENGTH_BYTES + length;
  if (at > buffer.byteLength) throw new ContractError("columns", `a head of ${length} bytes`, `${buffer.byteLength} bytes`);
  if (at % VALUE_BYTES !== 0) throw new ContractError("columns", `values at a multiple of ${VALUE_BYTES} bytes`, at);
  const written = new TextDecoder().decode(new Uint8Array(buffer, LENGTH_BYTES, length));
  try {
    return { length, head: JSON.parse(written) };
  } catch {
    throw new ContractError("head", "JSON", written);
  }
}
