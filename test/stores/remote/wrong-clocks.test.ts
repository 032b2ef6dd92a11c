import { memoryStore } from "holdfast";
import type { LockServer } from "holdfast/server";
import { afterAll, beforeAll, describe } from "vitest";
import { startLockServer } from "../../server/lock-server.ts";
import { testWrongClocks } from "../wrong-clocks.ts";

describe("remote: wrong clocks", { timeout: 60_000 }, () => {
  let server: LockServer;
  beforeAll(async () => {
    server = await startLockServer({ store: memoryStore(), closeStore: true });
  });
  afterAll(() => server?.stop({ graceMs: 0 }));

  testWrongClocks({
    holder: { store: "remote", target: () => server.url },
    stampsFences: true,
  });
});
