/** Heartbeats and releases travel together, and each is answered for itself. */
import assert from "node:assert/strict";
import { type DefineTest, expectCode, refOf } from "./trial.ts";

export function batches(test: DefineTest): void {
  test("a batch of heartbeats is answered in the order asked", async (trial) => {
    const [one, two] = [trial.key("one"), trial.key("two")];
    const holder = trial.mutex(one);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(one));
    const elsewhere = trial.mutex(two);
    await trial.hold(elsewhere);
    const unknown = trial.mutex(one);
    const nowhere = trial.mutex(trial.key("nowhere"));
    assert.equal(await trial.states(waiter, nowhere, holder, elsewhere, unknown, holder), "wghhgh");
    assert.equal(await trial.states(unknown, elsewhere, waiter), "ghw");
  });

  test("a batch of releases is answered in the order asked, one after the other", async (trial) => {
    const [one, two] = [trial.key("one"), trial.key("two")];
    const holder = trial.mutex(one);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(one));
    const last = await trial.queue(trial.mutex(one));
    const elsewhere = trial.mutex(two);
    await trial.hold(elsewhere);
    const unknown = trial.mutex(one);
    const nowhere = trial.mutex(trial.key("nowhere"));
    const refs = [unknown, holder, nowhere, waiter, holder, elsewhere].map(refOf);
    assert.deepEqual(await trial.store.release(refs), [false, true, false, true, false, true]);
    assert.equal(await trial.states(last), "h");
    await trial.expectIdle(two);
  });

  test("an empty batch is answered with nothing", async (trial) => {
    assert.deepEqual(await trial.store.renew([]), []);
    assert.deepEqual(await trial.store.release([]), []);
  });

  test("a large batch over many keys is answered whole", async (trial) => {
    const claims = Array.from({ length: 200 }, (_, index) => trial.mutex(trial.key(`many-${index % 50}`)));
    await Promise.all(claims.map((claim) => trial.store.acquire({ ...claim, wait: true })));
    const states = await trial.states(...claims);
    assert.equal(states.length, 200);
    assert.equal([...states].filter((state) => state === "h").length, 50);
    assert.equal([...states].filter((state) => state === "w").length, 150);
    const released = await trial.store.release(claims.map(refOf));
    assert.deepEqual(
      released,
      claims.map(() => true),
    );
    assert.deepEqual((await trial.store.look({ prefix: trial.prefix, limit: 100, maxClaims: 0 })).keys, []);
  });

  test("a batch with a bad entry is refused as a whole", async (trial) => {
    const holder = trial.mutex(trial.key());
    await trial.hold(holder);
    const bad = { key: "", id: "id" };
    await expectCode("INVALID_ARGUMENT", () => trial.store.release([refOf(holder), bad]));
    await expectCode("INVALID_ARGUMENT", () => trial.store.renew([refOf(holder), bad]));
    assert.equal(await trial.states(holder), "h");
  });
}
