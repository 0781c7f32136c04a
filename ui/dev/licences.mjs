// SPDX-License-Identifier: Apache-2.0
// Refuses dependencies, of whatever depth, whose licence is not one that Onlooker takes.

import { readFile } from "node:fs/promises";

const ALLOWED = new Set(["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"]);
/** Taken for development only, by name, with the reason. */
const TOOLS = new Map([
  // Whoever changes a file of it must pass that file on. Tests run it as it is, and nothing of it is built in.
  ["node_modules/axe-core", "MPL-2.0"],
]);
const allowed = (name, { license, dev }) => ALLOWED.has(license) || (dev === true && TOOLS.get(name) === license);
const { packages } = JSON.parse(await readFile(new URL("../package-lock.json", import.meta.url), "utf8"));
const refused = Object.entries(packages).filter(([name, item]) => name !== "" && !allowed(name, item));
for (const [name, item] of refused) console.error(`${name}: licence ${item.license ?? "unknown"} is not one of ${[...ALLOWED].join(", ")}`);
process.exit(refused.length === 0 ? 0 : 1);
