import { defineConfig } from "vitest/config";

/** What `npm run mutation` runs once per mutant: the tests of the record alone, with few random histories. */
export default defineConfig({
  test: {
    include: ["test/record/{heap,record,growth,model,format}.test.ts"],
    env: { RECORD_MODEL_RUNS: "100", RECORD_MODEL_SEED: "1", RECORD_MODEL_SHRINK: "false" },
  },
});
