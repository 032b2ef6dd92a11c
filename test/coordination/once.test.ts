import { createLocks } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene } from "../client/scene.ts";

const WINDOW_MS = 60_000;

describe("once", () => {
  test("runs for the first who comes in a window, over all clients, and says who did not", async () => {
    const scene = new Scene();
    const mine = scene.locks.once("mail", { windowMs: WINDOW_MS });
    const theirs = scene.rival().once("mail", { windowMs: WINDOW_MS });
    expect(await mine.tryRun(() => "sent")).toEqual({ ran: true, value: "sent" });
    expect(await mine.tryRun(() => "again")).toEqual({ ran: false, reason: "contended" });
    expect(await theirs.tryRun(() => "again")).toEqual({ ran: false, reason: "contended" });
  });

  test("the window counts from the start of the run, and then the next one runs", async () => {
    const scene = new Scene();
    const mail = scene.locks.once("mail", { windowMs: WINDOW_MS });
    const long = scene.begin(
      mail.tryRun(() => new Promise<void>((resolve) => scene.clock.setTimer(40_000, resolve))),
    );
    await scene.clock.advance(59_999);
    expect(long.state).toBe("fulfilled");
    expect((await mail.tryRun(() => {})).ran).toBe(false);
    await scene.clock.advance(1);
    expect((await mail.tryRun(() => {})).ran).toBe(true);
  });

  test("the window stays closed when the runner's client is closed, in the middle or afterwards", async () => {
    const scene = new Scene();
    await scene.locks.once("done", { windowMs: WINDOW_MS }).tryRun(() => {});
    let reason: unknown;
    const cut = scene.begin(
      scene.locks.once("cut", { windowMs: WINDOW_MS }).tryRun(
        ({ signal }) =>
          new Promise((_, reject) =>
            signal.addEventListener("abort", () => {
              reason = signal.reason;
              reject(signal.reason);
            }),
          ),
      ),
    );
    await scene.clock.advance(0);
    await scene.locks.close();
    expect(cut.state).toBe("rejected");
    expect(reason).toMatchObject({ code: "LEASE_LOST", reason: "closed" });
    const rival = scene.rival();
    for (const key of ["done", "cut"]) {
      expect((await rival.once(key, { windowMs: WINDOW_MS }).tryRun(() => {})).ran).toBe(false);
    }
    await scene.clock.advance(WINDOW_MS);
    for (const key of ["done", "cut"]) {
      expect((await rival.once(key, { windowMs: WINDOW_MS }).tryRun(() => {})).ran).toBe(true);
    }
  });

  test("a body that throws keeps its window closed, unless it is told to free it", async () => {
    const { locks } = new Scene();
    const fails = () => Promise.reject(new Error("half done"));
    const keeps = locks.once("keeps", { windowMs: WINDOW_MS });
    await expect(keeps.tryRun(fails)).rejects.toThrow("half done");
    expect((await keeps.tryRun(() => {})).ran).toBe(false);
    const frees = locks.once("frees", { windowMs: WINDOW_MS, onError: "free" });
    await expect(frees.tryRun(fails)).rejects.toThrow("half done");
    expect((await frees.tryRun(() => {})).ran).toBe(true);
  });

  test("a body that takes longer than the window is told before another can run", async () => {
    const scene = new Scene();
    const mail = scene.locks.once("mail", { windowMs: WINDOW_MS });
    let signal: AbortSignal | undefined;
    scene.begin(
      mail.tryRun((lease) => {
        signal = lease.signal;
        return new Promise(() => {});
      }),
    );
    await scene.clock.advance(59_950);
    expect(signal?.reason).toMatchObject({ reason: "expired" });
    // The window is the store's to end, and not over before that.
    expect(
      (
        await scene
          .rival()
          .once("mail", { windowMs: WINDOW_MS })
          .tryRun(() => {})
      ).ran,
    ).toBe(false);
    await scene.clock.advance(50);
    expect(
      (
        await scene
          .rival()
          .once("mail", { windowMs: WINDOW_MS })
          .tryRun(() => {})
      ).ran,
    ).toBe(true);
  });

  test("an outage is not contention", async () => {
    const scene = new Scene({ requestTimeoutMs: 500 });
    scene.refuseCalls();
    const thrown = scene.begin(scene.locks.once("k", { windowMs: WINDOW_MS }).tryRun(() => {}));
    const skipping = scene.locks.once("k", { windowMs: WINDOW_MS, onUnavailable: "skip" });
    const skipped = scene.begin(skipping.tryRun(() => {}));
    await scene.clock.advance(2_000);
    expect(thrown.error).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(skipped.value).toEqual({ ran: false, reason: "unavailable" });
  });

  test("an administrator can open the window", async () => {
    const { locks } = new Scene();
    const mail = locks.once("mail", { windowMs: WINDOW_MS });
    await mail.tryRun(() => {}, { info: "the morning mail" });
    const [claim] = (await mail.inspect()).held;
    expect(claim?.info).toBe("the morning mail");
    await locks.forceRelease("mail", claim?.id ?? "");
    expect((await mail.tryRun(() => {})).ran).toBe(true);
  });

  test("what is wrong is said at once", async () => {
    const locks = createLocks();
    expect(() => locks.once("k", { windowMs: 86_400_001 })).toThrow(/windowMs .* from 10 to 86400000/);
    expect(() => locks.once("k", {} as never)).toThrow(/windowMs/);
    expect(() => locks.once("k", undefined as never)).toThrow(/windowMs/);
    expect(() => locks.once("k", { windowMs: 100, onError: "retry" as never })).toThrow(/onError must be/);
    expect(() => locks.once("", { windowMs: 100 })).toThrow(/key must be/);
    await locks.close();
  });
});
