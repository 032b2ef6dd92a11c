/** How often a client asks for a server that is not there. */
import { once } from "node:events";
import { createServer } from "node:net";
import { remoteStore } from "holdfast/remote";
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";

describe("remote: the pauses between attempts to reach a server", () => {
  // The test owns the timers of the store. The network has timers of its own.
  beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] }));
  afterEach(() => void vi.useRealTimers());

  /** Addresses where every connection is ended at once, and how often somebody came to any of them. */
  async function nobodyAt(count: number) {
    const attempts = { count: 0 };
    const urls: string[] = [];
    for (let each = 0; each < count; each++) {
      const server = createServer((socket) => {
        attempts.count++;
        socket.on("error", () => {}).resetAndDestroy();
      });
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      onTestFinished(() => void server.close());
      urls.push(`http://127.0.0.1:${(server.address() as { port: number }).port}`);
    }
    return { attempts, urls };
  }

  /** How long the first pauses are while somebody listens for grants, with this for chance. */
  async function pausesOf(servers: number, chance: number): Promise<number[]> {
    const { attempts, urls } = await nobodyAt(servers);
    vi.spyOn(Math, "random").mockReturnValue(chance);
    onTestFinished(() => void vi.restoreAllMocks());
    const store = remoteStore(urls);
    onTestFinished(() => store.close());
    store.onGrant("owner", () => {});
    const pauses: number[] = [];
    for (let round = 1; round <= 8; round++) {
      // Each server was tried once more, and the pause is all that is left to wait for.
      while (attempts.count < round * servers || vi.getTimerCount() !== 1)
        await new Promise<void>((resolve) => setImmediate(resolve));
      const beforeMs = Date.now();
      vi.advanceTimersToNextTimer();
      pauses.push(Date.now() - beforeMs);
    }
    return pauses;
  }

  const longest = [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000];

  test.each([1, 2])("begin at 0.2 s, double, and end at 10 s, with %d servers", async (servers) => {
    expect(await pausesOf(servers, 1 - Number.EPSILON / 2)).toEqual(longest);
  });

  test("are half as long for other clients, so that not all come at once", async () => {
    expect(await pausesOf(1, 0)).toEqual(longest.map((ms) => ms / 2));
  });
});
