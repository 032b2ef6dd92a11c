/** Pushed grants: hints that must reach the right owner when nothing is broken. */
import assert from "node:assert/strict";
import type { ClaimRef, GrantRef, Store } from "../../store/index.ts";
import type { DefineTest, Trial } from "./trial.ts";

export function pushing(test: DefineTest): void {
  test("a grant is pushed to the claim's owner, through the owner's own instance", async (trial) => {
    const key = trial.key();
    const store = await trial.other();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const told = listen(store, trial, "waiter");
    const waiter = await trial.queue(trial.mutex(key, { owner: owner(trial, "waiter") }), store);
    await trial.release(holder);
    await trial.eventually("the grant is pushed", () => told.includes(`${key} ${waiter.id}`));
    assert.equal(await trial.states(waiter), "h");
  });

  test("a grant is pushed to nobody but the claim's owner", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key, { owner: owner(trial, "holder") });
    await trial.hold(holder);
    const [told, toldHolder, toldNext] = [
      listen(trial.store, trial, "waiter"),
      listen(trial.store, trial, "holder"),
      listen(trial.store, trial, "next"),
    ];
    await trial.queue(trial.mutex(key, { owner: owner(trial, "waiter") }));
    await trial.queue(trial.mutex(key, { owner: owner(trial, "next") }));
    await trial.release(holder);
    await trial.eventually("the grant is pushed", () => told.length > 0);
    await trial.sleep(3);
    assert.deepEqual([toldHolder, toldNext], [[], []]);
  });

  test("a push that names a fence names the grant's, which is above what the waiter was told", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    const { fence: first } = await trial.hold(holder);
    const told: GrantRef[] = [];
    trial.store.onGrant(owner(trial, "waiter"), (refs) => told.push(...refs));
    const waiter = trial.mutex(key, { owner: owner(trial, "waiter") });
    assert.equal((await trial.wait(waiter)).fence, first);
    await trial.release(holder);
    await trial.eventually("the grant is pushed", () => told.length > 0);
    const [held] = await trial.store.renew([waiter]);
    assert.ok(held?.state === "held" && held.fence > first, "held with a higher fence");
    for (const { fence } of told) assert.ok(fence === undefined || fence === held.fence, "the same fence");
  });

  test("each of several claims granted together is pushed", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const told = listen(trial.store, trial, "reader");
    const toldOther = listen(trial.store, trial, "other");
    const first = await trial.queue(trial.reader(key, { owner: owner(trial, "reader") }));
    const second = await trial.queue(trial.reader(key, { owner: owner(trial, "other") }));
    const third = await trial.queue(trial.reader(key, { owner: owner(trial, "reader") }));
    await trial.release(holder);
    await trial.eventually("all grants are pushed", () =>
      [first, third].every((claim) => told.includes(`${key} ${claim.id}`)),
    );
    await trial.eventually("the other's grant is pushed", () => toldOther.includes(`${key} ${second.id}`));
  });

  test("whoever leaves the queue causes a push to those it was in the way of", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.reader(key));
    const writer = await trial.queue(trial.mutex(key));
    const told = listen(trial.store, trial, "reader");
    const reader = await trial.queue(trial.reader(key, { owner: owner(trial, "reader") }));
    await trial.release(writer);
    await trial.eventually("the grant is pushed", () => told.includes(`${key} ${reader.id}`));
  });

  test("an unsubscribed listener is not called", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const told: ClaimRef[] = [];
    const unsubscribe = trial.store.onGrant(owner(trial, "gone"), (refs) => told.push(...refs));
    const toldNext = listen(trial.store, trial, "next");
    const waiter = await trial.queue(trial.mutex(key, { owner: owner(trial, "gone") }));
    await trial.queue(trial.mutex(key, { owner: owner(trial, "next") }));
    unsubscribe();
    unsubscribe();
    await trial.release(holder);
    await trial.release(waiter);
    await trial.eventually("the next grant is pushed", () => toldNext.length > 0);
    await trial.sleep(3);
    assert.deepEqual(told, []);
  });

  test("a subscription ends with its own unsubscribe and not with an older one", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const unsubscribe = trial.store.onGrant(owner(trial, "again"), () => {});
    unsubscribe();
    const told = listen(trial.store, trial, "again");
    unsubscribe();
    const waiter = await trial.queue(trial.mutex(key, { owner: owner(trial, "again") }));
    await trial.release(holder);
    await trial.eventually("the grant is pushed", () => told.includes(`${key} ${waiter.id}`));
  });

  test("an owner that listens anew, as one that comes back, is told of claims that waited before", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const unsubscribe = trial.store.onGrant(owner(trial, "back"), () => {});
    const waiter = await trial.queue(trial.mutex(key, { owner: owner(trial, "back") }));
    unsubscribe();
    const told = listen(trial.store, trial, "back");
    // A store listens before it lets a claim wait, so from here on it does.
    await trial.queue(trial.mutex(key, { owner: owner(trial, "back") }));
    await trial.release(holder);
    await trial.eventually("the grant is pushed", () => told.includes(`${key} ${waiter.id}`));
  });
}

/** Owners are names that all tests on a backend share, so each test makes its own. */
function owner(trial: Trial, name: string): string {
  return `${trial.prefix}${name}`;
}

function listen(store: Store, trial: Trial, name: string): string[] {
  const told: string[] = [];
  store.onGrant(owner(trial, name), (refs) => told.push(...refs.map((ref) => `${ref.key} ${ref.id}`)));
  return told;
}
