// SPDX-License-Identifier: Apache-2.0
// Saved boards of the fixture: kept in memory, with tags as the controller has them.

import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";

const tagOf = (text) => createHash("sha256").update(text).digest("hex").slice(0, 32);
const boards = new Map();
let isWritable = true;

/** Those of the beginning: the dashboard for Grafana that is shipped. Of one host at first, since this process makes up all values. */
export async function reset(writable = true) {
  boards.clear();
  isWritable = writable;
  const hosts = JSON.parse(await readFile(new URL("../../packaging/grafana/dashboards/hosts.json", import.meta.url), "utf8"));
  hosts.templating.list.find(({ name: variable }) => variable === "instance").current = { text: ["web-1"], value: ["web-1"] };
  boards.set("hosts", JSON.stringify(hosts));
}

/** Somebody else writes. */
export const put = (name, board) => boards.set(name, JSON.stringify(board));

/** Answers `/api/onlooker/v1/boards` and below: status, headers and body. */
export function answer(method, name, headers, body) {
  const json = { "Content-Type": "application/json", "Cache-Control": "no-cache" };
  const refuse = (status, error) => [status, json, JSON.stringify({ error })];
  if (name === undefined) {
    const all = [...boards].sort(([a], [b]) => (a < b ? -1 : 1)).map(([key, text]) => ({ name: key, title: JSON.parse(text).title ?? "", etag: tagOf(text), bytes: text.length, modified_ms: Date.now() - 60_000, writable: isWritable, error: null }));
    return [200, json, JSON.stringify({ boards: all, writable: isWritable })];
  }
  const now = boards.get(name);
  const tag = now === undefined ? null : `"${tagOf(now)}"`;
  if (method === "GET") return now === undefined ? refuse(404, `there is no board \`${name}\``) : [200, { ...json, ETag: tag }, now];
  if (!isWritable) return refuse(403, "the directory cannot be written by the controller: whoever provisions it changes it");
  const [match, none] = [headers["if-match"], headers["if-none-match"]];
  if (match === undefined && none !== "*") return refuse(428, "say which version this is made of");
  if (none === "*" && now !== undefined) return refuse(412, `there is a board \`${name}\` already`);
  if (match !== undefined && now === undefined) return refuse(404, `there is no board \`${name}\``);
  if (match !== undefined && match !== tag) return refuse(412, `\`${name}\` is another version of the board by now`);
  if (method === "DELETE") {
    boards.delete(name);
    return [204, {}, ""];
  }
  if (!Array.isArray(JSON.parse(body).panels)) return refuse(400, "the body is no board: it has no `panels`");
  boards.set(name, body);
  return [none === "*" ? 201 : 204, { ETag: `"${tagOf(body)}"` }, ""];
}
