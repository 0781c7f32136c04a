// SPDX-License-Identifier: Apache-2.0
//! Foreign JSON that is kept as it is: what is looked at has a type or is taken as absent, and nothing else is touched. Pure.

export type Json = Readonly<Record<string, unknown>>;

export const isObject = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
export const objectOf = (value: unknown): Json => (isObject(value) ? value : {});
export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
export const objectsOf = (value: unknown): Json[] => listOf(value).filter(isObject);
export const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
export const numberOf = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
