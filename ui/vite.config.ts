// SPDX-License-Identifier: Apache-2.0
import { defineConfig } from "vitest/config";

export default defineConfig({
  // Relative, so that the controller may serve the dashboard below any prefix.
  base: "./",
  // The test of contrast reads the colours.
  test: { css: true },
  build: {
    target: "es2022",
    // Under `default-src 'self'` neither data: URLs nor inline scripts are allowed.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
});
