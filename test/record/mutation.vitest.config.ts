import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const source = (path: string) => fileURLToPath(new URL(`../../src/${path}`, import.meta.url));

const claimTests = [
  ...[
    "claim-machine",
    "guards",
    "heartbeat",
    "waiting",
    "pushed-grants",
    "reacquire",
    "lost-data",
    "late-answers",
  ],
  ...["extensions", "outage", "closing", "blocked-process", "lease", "lease-end", "claim-id", "renewal"],
];

/** The tests that `npm run mutation` runs for each mutant: those of the record and of the claim, with few random histories. */
export default defineConfig({
  resolve: {
    alias: [
      { find: /^holdfast$/, replacement: source("index.ts") },
      { find: /^holdfast\/testing$/, replacement: source("testing/index.ts") },
    ],
  },
  test: {
    include: [
      "test/record/{heap,record,growth,model,format}.test.ts",
      `test/client/{${claimTests.join(",")}}.test.ts`,
    ],
    env: {
      RECORD_MODEL_RUNS: "100",
      RECORD_MODEL_SEED: "1",
      RECORD_MODEL_SHRINK: "false",
      CLAIM_RUNS: "500",
      CLAIM_SEED: "1",
      CLAIM_DEPTH: "4",
    },
  },
});
