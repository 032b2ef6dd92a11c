/** Leases: kept alive, lost, extended, and told about it in time. */
import assert from "node:assert/strict";
import type { HoldfastWarning, Lease } from "../../client/index.ts";
import { LeaseLostError, StoreUnavailableError } from "../../store/index.ts";
import { faultyStore } from "../faulty-store.ts";
import { type DefineTest, expectCode, LONG, PAST_SHORT, SHORT } from "./trial.ts";

export function clientLeases(test: DefineTest): void {
  // A3
  test("a lease lives on while its client does", async (trial) => {
    const locks = trial.client();
    const lease = await locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT * 2) }).acquire();
    const { fence } = lease;
    await trial.sleep(SHORT * 4);
    assert.ok(lease.held && lease.fence === fence);
    await trial.refuse(trial.mutex(trial.key()));
    assert.ok(locks.stats().renewals > 0);
  });

  // A3, E12. "A watchdog can outlive its unlock."
  test("renewals stop with the release", async (trial) => {
    const locks = trial.client();
    const lease = await locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT) }).acquire();
    await lease.release();
    const { renewals } = locks.stats();
    await trial.sleep(PAST_SHORT);
    assert.equal(locks.stats().renewals, renewals);
    await trial.expectIdle(trial.key());
  });

  // B5, C2
  test("a lease without renewal ends with its ttl, and the next one has a higher fence", async (trial) => {
    const fixed = { ttlMs: trial.ms(SHORT), renew: false };
    const lease = await trial.client().mutex(trial.key(), fixed).acquire();
    assert.equal(lease.held, true);
    await trial.sleep(PAST_SHORT);
    assert.equal(lease.held, false);
    assert.throws(() => lease.assertHeld(), LeaseLostError);
    const next = await trial
      .client(await trial.other())
      .mutex(trial.key())
      .tryAcquire();
    assert.ok(next !== null && next.fence > lease.fence);
  });

  // A2, B6, C5
  test("a holder that was paused past its ttl does not free its successor", async (trial) => {
    const paused = await trial
      .client()
      .mutex(trial.key(), { ttlMs: trial.ms(SHORT), renew: false })
      .acquire();
    await trial.sleep(PAST_SHORT);
    const successor = await trial
      .client(await trial.other())
      .mutex(trial.key())
      .acquire();
    assert.equal(await paused.release(), false);
    assert.equal(successor.held, true);
    assert.deepEqual(
      (await trial.status(trial.key())).held.map(({ id }) => id),
      [successor.id],
    );
  });

  // "A body that outlives its ttl rejects although it succeeded."
  test("a body that outlives its lease still returns its value", async (trial) => {
    const lock = trial.client().mutex(trial.key(), { ttlMs: trial.ms(SHORT), renew: false });
    const value = await lock.run(async (lease) => {
      await trial.sleep(PAST_SHORT);
      return lease.held ? "held" : "lost, and I noticed";
    });
    assert.equal(value, "lost, and I noticed");
  });

  test("a caller with a short ttl does not evict a lease with a long one", async (trial) => {
    const lease = await trial
      .client()
      .mutex(trial.key(), { ttlMs: trial.ms(LONG) })
      .acquire();
    const rival = trial.client(await trial.other()).mutex(trial.key(), { ttlMs: trial.ms(SHORT) });
    assert.equal(await rival.tryAcquire(), null);
    await expectCode("ACQUIRE_TIMEOUT", () =>
      trial.soon(trial.begin(rival.acquire({ waitMs: trial.ms(PAST_SHORT) }))),
    );
    assert.equal(lease.held, true);
    assert.equal(await lease.release(), true);
  });

  // "SQL stores compare each client's own clock."
  test("a client whose wall clock is a day off neither evicts nor is evicted", async (trial) => {
    const { clock } = trial;
    const setTimer = clock.setTimer.bind(clock);
    const monotonicMs = clock.monotonicMs.bind(clock);
    const off = (ms: number) => ({ wallMs: () => clock.wallMs() + ms, monotonicMs, setTimer });
    const dayMs = 86_400_000;
    const fast = trial.client(await trial.other(), { clock: off(dayMs) }).mutex(trial.key("a"));
    const slow = trial.client(await trial.other(), { clock: off(-dayMs) }).mutex(trial.key("b"));
    const [a, b] = [trial.client().mutex(trial.key("a")), trial.client().mutex(trial.key("b"))];
    const lease = await a.acquire();
    assert.equal(await fast.tryAcquire(), null);
    const slowLease = await slow.acquire();
    assert.equal(await b.tryAcquire(), null);
    assert.ok(lease.held && slowLease.held);
  });

  // A3, D3, E9
  test("a lease released by force is lost at its next heartbeat, and its signal says so", async (trial) => {
    const locks = trial.client();
    // Before the lease begins: opening a store may take longer than it lives.
    const admin = trial.client(await trial.other());
    const lease = await locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT) }).acquire();
    const states = collectStates(lease);
    assert.equal(await admin.forceRelease(trial.key(), lease.id), true);
    await trial.eventually("the signal aborts", () => lease.signal.aborted);
    assert.ok(lease.signal.reason instanceof LeaseLostError);
    assert.equal(lease.held, false);
    assert.equal(await lease.release(), false);
    assert.equal((await trial.soon(states)).at(-1)?.lost !== undefined, true);
  });

  // E9, E11
  test("a lost lease that is to be won again is, with a higher fence and a signal that stays quiet", async (trial) => {
    const lock = trial.client().mutex(trial.key(), { ttlMs: trial.ms(SHORT), reacquire: true });
    const lease = await lock.acquire();
    const { id, fence, signal } = lease;
    await trial.release({ key: trial.key(), id });
    await trial.eventually("the lease is held again", () => lease.held && lease.fence > fence);
    assert.equal(signal.aborted, false);
    const [claim] = (await trial.status(trial.key())).held;
    assert.deepEqual([claim?.id, claim?.fence], [lease.id, lease.fence]);
    assert.equal(await lease.release(), true);
    await trial.expectIdle(trial.key());
  });

  // A6, C5
  test("a lease that leaves its scope is released", async (trial) => {
    const lease = await trial.client().mutex(trial.key()).acquire();
    await lease[Symbol.asyncDispose]();
    assert.equal(lease.held, false);
    await trial.expectIdle(trial.key());
  });

  // E6
  test("extending a lease makes it last longer, once", async (trial) => {
    const lock = trial.client().mutex(trial.key(), { ttlMs: trial.ms(SHORT), renew: false });
    const lease = await lock.acquire();
    await lease.extend(trial.ms(LONG));
    await trial.sleep(PAST_SHORT);
    assert.equal(lease.held, true);
    await trial.refuse(trial.mutex(trial.key()));
    await lease.release();
    await expectCode("NOT_HELD", () => lease.extend(trial.ms(LONG)));
  });

  // A3, E10. "A failed refresh is an unhandled rejection."
  test("a renewal that fails is repeated, and is not a loss", async (trial) => {
    const store = faultyStore(trial.store, ({ verb, count }) =>
      verb === "renew" && count <= 2 ? { lose: count === 1 ? "request" : "reply" } : undefined,
    );
    const locks = trial.client(store);
    const lease = await locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT * 3) }).acquire();
    await trial.sleep(SHORT * 4);
    assert.equal(lease.held, true);
    assert.equal(locks.stats().failures, 2);
  });

  // A3, D3. "Abort fires after the lease is gone", "loss is declared at twice the ttl", "the holder is never told".
  test("a holder that is cut off knows that its lease is lost before anybody else has it", async (trial) => {
    let cut = false;
    const store = faultyStore(trial.store, () => (cut ? { lose: "request", hang: true } : undefined));
    const options = { ttlMs: trial.ms(SHORT) };
    const events: string[] = [];
    // Its first request has time, also where the machine is busy.
    const cutOff = trial.client(store, { requestTimeoutMs: trial.ms(SHORT * 5) });
    const lease = await cutOff.mutex(trial.key(), options).acquire();
    lease.signal.addEventListener("abort", () => events.push("lost"));
    const next = trial.begin(
      trial
        .client(await trial.other())
        .mutex(trial.key(), options)
        .run((successor) => {
          events.push(lease.held ? "both hold" : "acquired");
          assert.ok(successor.fence > lease.fence);
        }),
    );
    cut = true;
    await trial.soon(next);
    cut = false;
    assert.deepEqual(events, ["lost", "acquired"]);
    assert.ok(lease.signal.reason instanceof LeaseLostError);
  });

  // "No validity check: a slow acquire returns an already expired lock."
  test("an answer that comes after its ttl is not taken for a lease", async (trial) => {
    const store = faultyStore(
      trial.store,
      ({ verb, count }) =>
        verb === "acquire" && count === 1 ? { afterMs: trial.ms(PAST_SHORT) } : undefined,
      { clock: trial.clock },
    );
    const lock = trial.client(store).mutex(trial.key(), { ttlMs: trial.ms(SHORT), renew: false });
    const lease = await trial.soon(trial.begin(lock.acquire()));
    assert.equal(lease.held, true);
    assert.equal((await trial.status(trial.key())).heldCount, 1);
  });

  test("a store that always answers after the ttl leases nothing, and keeps nothing", async (trial) => {
    const store = faultyStore(
      trial.store,
      ({ verb }) => (verb === "acquire" ? { afterMs: trial.ms(PAST_SHORT) } : undefined),
      { clock: trial.clock },
    );
    const locks = trial.client(store, { requestTimeoutMs: trial.ms(SHORT * 3) });
    const lock = locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT) });
    await expectCode("STORE_UNAVAILABLE", () => trial.soon(trial.begin(lock.acquire())));
    await trial.sleep(PAST_SHORT);
    await trial.expectIdle(trial.key());
  });

  // B3
  test("a release repeated after a lost reply still says that it held", async (trial) => {
    const store = faultyStore(trial.store, ({ verb, count }) =>
      verb === "release" && count === 1 ? { lose: "reply" } : undefined,
    );
    const lease = await trial.client(store).mutex(trial.key()).acquire();
    assert.equal(await trial.soon(trial.begin(lease.release())), true);
    await trial.expectIdle(trial.key());
  });

  // A6, B2. "A failed release masks the body's error."
  test("a release that fails hides neither the body's error nor its value", async (trial) => {
    const refused = new StoreUnavailableError("as planned");
    let cut = false;
    const store = faultyStore(trial.store, () => (cut ? { error: refused } : undefined));
    const warnings: HoldfastWarning[] = [];
    const locks = trial.client(store, {
      requestTimeoutMs: trial.ms(SHORT * 3),
      onWarning: (warning) => warnings.push(warning),
    });
    const lock = locks.mutex(trial.key(), { ttlMs: trial.ms(SHORT), renew: false });
    const failure = new Error("the body's own");
    const failing = trial.begin(
      lock.run(async () => {
        cut = true;
        throw failure;
      }),
    );
    assert.equal(await trial.soon(failing.catch((error: unknown) => error)), failure);
    cut = false;
    const value = trial.begin(
      lock.run(async () => {
        cut = true;
        return "done";
      }),
    );
    assert.equal(await trial.soon(value), "done");
    cut = false;
    assert.deepEqual(
      warnings.map(({ code }) => code),
      ["RELEASE_FAILED", "RELEASE_FAILED"],
    );
  });

  // A5. "Tell held by another from store down."
  test("an unreachable store is an error, or on request nobody's turn", async (trial) => {
    const store = faultyStore(trial.store, () => ({ lose: "request" }));
    const locks = trial.client(store, { requestTimeoutMs: trial.ms(5) });
    const throwing = locks.mutex(trial.key()).tryAcquire();
    await expectCode("STORE_UNAVAILABLE", () => trial.soon(trial.begin(throwing)));
    const skipping = locks.mutex(trial.key(), { onUnavailable: "skip" }).tryRun(() => "ran");
    assert.deepEqual(await trial.soon(trial.begin(skipping)), { ran: false, reason: "unavailable" });
    assert.equal(locks.stats().skipped, 1);
  });
}

async function collectStates(lease: Lease) {
  const states = [];
  for await (const state of lease.watch()) states.push(state);
  return states;
}
