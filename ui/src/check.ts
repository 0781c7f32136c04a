// SPDX-License-Identifier: Apache-2.0
//! Checks of foreign JSON: a controller of another version must lead to a message that names the field, never to "undefined" in a chart. What fits is given back as
//! it came, not copied: copies of 10,000 hosts would take most of the time, and leave as much to be collected.

/** What came is not what docs/http.md promises. `path` names the place, as in `hosts[3].state`. */
export class ContractError extends Error {
  constructor(
    readonly path: string,
    private readonly wanted: string,
    private readonly got: unknown,
  ) {
    const shown = got === undefined ? "nothing" : (JSON.stringify(got)).slice(0, 60);
    super(`${path}: expected ${wanted}, got ${shown}. Do controller and dashboard have the same version?`);
    this.name = "ContractError";
  }

  /** The same, of what lies at `outer`. */
  within(outer: string): ContractError {
    return new ContractError(joined(outer, this.path), this.wanted, this.got);
  }
}

const joined = (outer: string, inner: string): string => outer + (outer === "" || inner === "" || /^[.[]/.test(inner) ? "" : ".") + inner;

/** Where something does not fit, its place is put before; where all fits, which is nearly always, no place is ever made. */
function within(error: unknown, path: string, at: string): unknown {
  return error instanceof ContractError ? error.within(joined(path, at)) : error;
}

/** Reads a value at a path, or throws a ContractError. */
export type Check<T> = (value: unknown, path: string) => T;

export const number: Check<number> = (value, path) => {
  if (typeof value !== "number") throw new ContractError(path, "a number", value);
  return value;
};

export const text: Check<string> = (value, path) => {
  if (typeof value !== "string") throw new ContractError(path, "a text", value);
  return value;
};

export const boolean: Check<boolean> = (value, path) => {
  if (typeof value !== "boolean") throw new ContractError(path, "true or false", value);
  return value;
};

export const anything: Check<unknown> = (value) => value;

export function oneOf<const T extends string>(...choices: T[]): Check<T> {
  return (value, path) => {
    if (!choices.includes(value as T)) throw new ContractError(path, choices.join(" or "), value);
    return value as T;
  };
}

export function nullable<T>(inner: Check<T>): Check<T | null> {
  return (value, path) => (value === null ? null : inner(value, path));
}

/** A field that may be absent; `fallback` stands for it then. */
export function optional<T>(inner: Check<T>, fallback: T): Check<T> {
  return (value, path) => (value === undefined ? fallback : inner(value, path));
}

export function list<T>(inner: Check<T>): Check<T[]> {
  return (value, path) => {
    if (!Array.isArray(value)) throw new ContractError(path, "a list", value);
    let at = 0;
    try {
      for (; at < value.length; at++) {
        const read = inner(value[at], "");
        if (read !== value[at]) value[at] = read;
      }
      return value as T[];
    } catch (error) {
      throw within(error, path, `[${at}]`);
    }
  };
}

/** A list of numbers, or nulls if `nulls`: as `list` has it, but in one go, since there are many. */
function numberList<T>(nulls: boolean): Check<T[]> {
  return (value, path) => {
    if (!Array.isArray(value)) throw new ContractError(path, "a list", value);
    const wrong = value.findIndex((item: unknown) => typeof item !== "number" && !(nulls && item === null));
    if (wrong >= 0) throw new ContractError(`${path}[${wrong}]`, nulls ? "a number or null" : "a number", value[wrong]);
    return value as T[];
  };
}

export const numbers = numberList<number>(false);
export const numbersOrNulls = numberList<number | null>(true);

export function record<T>(inner: Check<T>): Check<Record<string, T>> {
  return (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new ContractError(path, "an object", value);
    let at = "";
    try {
      for (at of Object.keys(value)) {
        const was: unknown = (value as Record<string, unknown>)[at];
        const read = inner(was, "");
        // A field may be called as anything, `__proto__` too.
        if (read !== was) Object.defineProperty(value, at, { value: read, writable: true, enumerable: true, configurable: true });
      }
      return value as Record<string, T>;
    } catch (error) {
      throw within(error, path, at);
    }
  };
}

/** An object with these fields; others may be there, too, so that a newer controller may say more. */
export function object<T extends object>(fields: { [K in keyof T]: Check<T[K]> }): Check<T> {
  const names = Object.keys(fields) as (keyof T & string)[];
  return (value, path) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) throw new ContractError(path, "an object", value);
    let at = "";
    try {
      for (const name of names) {
        at = name;
        const read = fields[name]((value as Record<string, unknown>)[name], "");
        if (read !== (value as T)[name]) (value as T)[name] = read;
      }
      return value as T;
    } catch (error) {
      throw within(error, path, at);
    }
  };
}
