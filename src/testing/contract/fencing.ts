/** Rule 5: fences only grow. */
import assert from "node:assert/strict";
import { type DefineTest, expectGrowing, PAST_SHORT, SHORT } from "./trial.ts";

export function fencing(test: DefineTest): void {
  // A1
  test("fences grow from holder to holder, whoever asks through whichever instance", async (trial) => {
    const key = trial.key();
    const stores = [trial.store, await trial.other()];
    const fences: bigint[] = [];
    for (let turn = 0; turn < 6; turn++) {
      const request = trial.mutex(key);
      fences.push((await trial.hold(request, stores[turn % 2])).fence);
      await trial.release(request);
    }
    expectGrowing(fences);
  });

  test("fences grow along a queue", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    const fences = [(await trial.hold(holder)).fence];
    const queue = [await trial.queue(trial.mutex(key)), await trial.queue(trial.mutex(key))];
    let leaving = holder;
    for (const next of queue) {
      await trial.release(leaving);
      fences.push((await trial.renewHeld(next)).fence);
      leaving = next;
    }
    expectGrowing(fences);
  });

  test("fences grow across an expiry", async (trial) => {
    const key = trial.key();
    const { fence } = await trial.hold(trial.mutex(key, { ttlMs: trial.ms(SHORT) }));
    await trial.sleep(PAST_SHORT);
    expectGrowing([fence, (await trial.hold(trial.mutex(key))).fence]);
  });

  test("fences grow across a key that was idle while others were busy", async (trial) => {
    const key = trial.key();
    const request = trial.mutex(key);
    const { fence } = await trial.hold(request);
    await trial.release(request);
    for (let other = 0; other < 5; other++) await trial.hold(trial.mutex(trial.key(`other-${other}`)));
    await trial.sleep(1);
    expectGrowing([fence, (await trial.hold(trial.mutex(key))).fence]);
  });

  test("fences grow across a forced release", async (trial) => {
    const key = trial.key();
    const request = trial.mutex(key);
    const { fence } = await trial.hold(request);
    await trial.release({ key, id: request.id });
    expectGrowing([fence, (await trial.hold(trial.mutex(key))).fence]);
  });

  // A store whose stamp is its clock may hand out fences ahead of it here, and must not forget that.
  test("fences grow after many claims were granted and released together", async (trial) => {
    const key = trial.key();
    const writer = trial.mutex(key);
    const fences = [(await trial.hold(writer)).fence];
    const readers = Array.from({ length: 20 }, () => trial.reader(key));
    for (const reader of readers) await trial.queue(reader);
    await trial.release(writer);
    const answers = await trial.store.renew(readers);
    for (const answer of answers) {
      assert.equal(answer.state, "held");
      fences.push(answer.fence);
    }
    assert.ok((await trial.store.release(readers)).every(Boolean));
    fences.push((await trial.hold(trial.mutex(key))).fence);
    expectGrowing(fences);
  });

  test("readers that hold together have a fence each", async (trial) => {
    const key = trial.key();
    const fences: bigint[] = [];
    for (let count = 0; count < 4; count++) fences.push((await trial.hold(trial.reader(key))).fence);
    expectGrowing(fences);
  });

  test("a look shows the fence of each holder and of the latest grant", async (trial) => {
    const key = trial.key();
    const first = await trial.hold(trial.reader(key));
    const second = await trial.hold(trial.reader(key));
    const status = await trial.status(key);
    assert.equal(status.fence, second.fence);
    assert.deepEqual(
      status.held.map((claim) => claim.fence),
      [first.fence, second.fence],
    );
  });
}
