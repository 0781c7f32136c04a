// SPDX-License-Identifier: Apache-2.0
import js from "@eslint/js";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["dist", "node_modules"] },
  js.configs.recommended,
  {
    files: ["src/**/*.ts", "test/**/*.ts", "vite.config.ts"],
    extends: [...ts.configs.strictTypeChecked],
    languageOptions: { parserOptions: { project: "./tsconfig.json" } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/no-non-null-assertion": "off",
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
      "max-lines": ["error", 500],
    },
  },
  {
    files: ["dev/**/*.mjs"],
    languageOptions: {
      globals: {
        console: "readonly", process: "readonly", URL: "readonly", URLSearchParams: "readonly", fetch: "readonly", setInterval: "readonly", clearInterval: "readonly",
        setTimeout: "readonly", clearTimeout: "readonly", performance: "readonly", Buffer: "readonly",
        // Inside page.evaluate:
        document: "readonly", window: "readonly", requestAnimationFrame: "readonly", location: "readonly", getComputedStyle: "readonly",
      },
    },
    rules: { "max-lines": ["error", 500] },
  },
);
