/** The wall clock of the server's machine may be set at any time. It decides nothing. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { afterEach, expect, test, vi } from "vitest";
import { locks as wire } from "../../src/protocol/index.ts";
import { startLockServer } from "./lock-server.ts";

const HOUR_MS = 3_600_000;

afterEach(() => {
  vi.restoreAllMocks();
});

/** As `date --set` would: from now on every reading is off by so much. */
function setWallClock(byMs: number): void {
  const now = Date.now.bind(Date);
  vi.spyOn(Date, "now").mockImplementation(() => now() + byMs);
}

test.each([-HOUR_MS, HOUR_MS])(
  "heartbeats and expiries go on when the wall clock is set by %d ms",
  async (byMs) => {
    const server = await startLockServer();
    const locks = createClient(wire.Locks, createGrpcTransport({ baseUrl: server.url }));
    const ttlMs = 1_500;
    try {
      const events = locks
        .acquireMany({ keys: [{ key: "a" }, { key: "b" }], terms: { ttlMs } })
        [Symbol.asyncIterator]();
      const acquired = ((await events.next()).value as wire.AcquireManyEvent).event;
      expect(acquired.case).toBe("acquired");
      setWallClock(byMs);
      for (let beats = 0; beats < 3; beats++) {
        const { event } = (await events.next()).value as wire.AcquireManyEvent;
        expect(event.case).toBe("heartbeat");
        const { expiresInMs } = event.value as wire.Heartbeat;
        expect(expiresInMs).toBeGreaterThan(0);
        expect(expiresInMs).toBeLessThanOrEqual(ttlMs);
      }
      const { lease } = await locks.acquireDetached({ key: "c", ttlMs });
      expect(lease?.expiresInMs).toBeGreaterThan(0);
      expect(lease?.expiresInMs).toBeLessThanOrEqual(ttlMs);
    } finally {
      await server.stop({ graceMs: 0 });
    }
  },
);
