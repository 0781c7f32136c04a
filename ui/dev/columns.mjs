// SPDX-License-Identifier: Apache-2.0
// Ranges in columns (docs/promql.md#columns), as the controller has them, of the fixture's JSON.

export const COLUMNS = "application/vnd.onlooker.columns";

/** No value, as a double's bytes. */
const HOLE = [0x02, 0, 0, 0, 0, 0, 0xf0, 0x7f];

/** The bytes of a matrix, of the times that `form` asks for. */
export function columns({ data, ...more }, form) {
  const [start, end, step] = ["start", "end", "step"].map((name) => Math.round(Number(form.get(name)) * 1000));
  const steps = Math.floor((end - start) / step) + 1;
  const times = { start_ms: start, step_ms: step, steps, series: data.result.length };
  const head = JSON.stringify({ ...more, data: { resultType: data.resultType, ...times, result: data.result.map(({ metric }) => ({ metric })) } });
  const length = 4 + Buffer.byteLength(head);
  const at = Math.ceil(length / 8) * 8;
  const out = Buffer.alloc(at + steps * data.result.length * 8, Buffer.from(HOLE));
  out.writeUInt32LE(at - 4);
  out.write(head + " ".repeat(at - length), 4);
  data.result.forEach(({ values }, series) => {
    for (const [t, written] of values) out.writeDoubleLE(numberOf(written), at + (series * steps + Math.round((t * 1000 - start) / step)) * 8);
  });
  return out;
}

const numberOf = (written) => (written === "+Inf" ? Infinity : written === "-Inf" ? -Infinity : Number(written));
