// SPDX-License-Identifier: Apache-2.0
//! Boards at the controller (docs/http.md#boards). Each version has a tag; a change names the one that it is made of.

import { boolean, list, nullable, number, object, text } from "../check";
import { ApiError, BASE, errorText, request } from "../request";
import { type Json, isObject } from "./json";
import { written } from "./transfer";

export interface Listed {
  name: string;
  title: string;
  etag: string;
  bytes: number;
  modified_ms: number;
  writable: boolean;
  /** Why it cannot be shown. */
  error: string | null;
}

export interface Boards {
  boards: Listed[];
  /** Whether boards can be added. */
  writable: boolean;
}

export interface Version {
  board: Json;
  etag: string;
}

const listed = object<Boards>({
  boards: list(object<Listed>({ name: text, title: text, etag: text, bytes: number, modified_ms: number, writable: boolean, error: nullable(text) })),
  writable: boolean,
});

const TIMEOUT_MS = 15_000;
const pathOf = (name: string): string => `${BASE}/boards/${encodeURIComponent(name)}`;

export const listBoards = (signal?: AbortSignal): Promise<Boards> => request(`${BASE}/boards`, listed, signal);

/** Somebody else has written meanwhile, or the name is taken. */
export const isChanged = (error: unknown): boolean => error instanceof ApiError && error.status === 412;

async function sent(path: string, options: RequestInit, signal?: AbortSignal): Promise<Response> {
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let answer: Response;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options, signal: signal === undefined ? timeout : AbortSignal.any([signal, timeout]) });
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new ApiError(0, `The controller ${timeout.aborted ? `gave no answer within ${TIMEOUT_MS / 1000} s` : "cannot be reached"}. Is it running, and does the network lead to it?`);
  }
  if (!answer.ok) throw new ApiError(answer.status, errorText(await answer.text()) ?? `The controller answered ${answer.status} to ${path}.`);
  return answer;
}

const tagOf = (answer: Response): string => answer.headers.get("ETag") ?? "";

export async function readBoard(name: string, signal?: AbortSignal): Promise<Version> {
  const answer = await sent(pathOf(name), { headers: { Accept: "application/json" } }, signal);
  const board: unknown = JSON.parse(await answer.text());
  if (!isObject(board)) throw new ApiError(200, `The board ${name} is no object.`);
  return { board, etag: tagOf(answer) };
}

/** `etag` of the version that it is made of; null: there is none yet. Gives that of the new one. */
export async function writeBoard(name: string, board: Json, etag: string | null): Promise<string> {
  const base = etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  return tagOf(await sent(pathOf(name), { method: "PUT", headers: { "Content-Type": "application/json", ...base }, body: written(board) }));
}

export async function removeBoard(name: string, etag: string): Promise<void> {
  await sent(pathOf(name), { method: "DELETE", headers: { "If-Match": etag } });
}
