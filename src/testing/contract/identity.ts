/** Rule 4: which claim a request, a heartbeat or a release is about. */
import assert from "node:assert/strict";
import { UNLIMITED } from "../../store/index.ts";
import { type DefineTest, PAST_SHORT, SHORT } from "./trial.ts";

export function identity(test: DefineTest): void {
  // E4. "A repeated acquire with the same id is contention."
  test("a held claim asked for again is the same claim, with the same fence", async (trial) => {
    const key = trial.key();
    const request = trial.mutex(key);
    const first = await trial.hold(request);
    const other = await trial.other();
    const again = await trial.hold(request, other);
    assert.deepEqual([again.fence, again.acquiredAtMs], [first.fence, first.acquiredAtMs]);
    // Of several servers a majority answers for all. Whoever looks has been heard by the rest as well; a request that they
    // heard only after the release would be a claim of its own.
    for (const store of [trial.store, other]) {
      assert.equal((await trial.status(key, 100, store)).heldCount, 1);
    }
    await trial.release(request);
    await trial.expectIdle(key);
  });

  test("a waiting claim asked for again keeps its place in the queue", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const first = await trial.queue(trial.mutex(key));
    const second = await trial.queue(trial.mutex(key));
    await trial.wait(first, await trial.other());
    assert.equal((await trial.status(key)).waitingCount, 2);
    await trial.release(holder);
    assert.equal(await trial.states(first, second), "hw");
  });

  test("of one request sent many times at once comes one claim", async (trial) => {
    const key = trial.key();
    const request = trial.mutex(key, { wait: true });
    const stores = [trial.store, await trial.other()];
    const answers = await Promise.all([0, 1, 2, 3].map((n) => trial.hold(request, stores[n % 2])));
    assert.equal(new Set(answers.map((answer) => answer.fence)).size, 1);
    assert.equal((await trial.status(key)).heldCount, 1);
  });

  // E4, E10
  test("another token takes a held claim over, with a higher fence", async (trial) => {
    const key = trial.key();
    const former = trial.mutex(key);
    const { fence } = await trial.hold(former);
    const latter = { ...former, token: "another-token", owner: "another-owner", info: "taken over" };
    const taken = await trial.hold(latter, await trial.other());
    assert.ok(taken.fence > fence, `fence ${taken.fence} does not follow ${fence}`);
    assert.equal((await trial.renew(former)).state, "gone");
    assert.equal(await trial.release(former), false);
    assert.equal((await trial.renewHeld(latter)).fence, taken.fence);
    const [shown] = (await trial.status(key)).held;
    assert.deepEqual([shown?.owner, shown?.info, shown?.fence], ["another-owner", "taken over", taken.fence]);
    assert.equal(await trial.release(latter), true);
  });

  // A request that was given up, comes late and takes over its own retry is released as soon as it is answered. The
  // retry still believes then.
  test("a lease that was taken over is not free before its former holder's time is up", async (trial) => {
    const key = trial.key();
    // Six calls have to fit into it, also on a busy machine.
    const former = trial.mutex(key, { ttlMs: trial.ms(3 * SHORT) });
    await trial.hold(former);
    const next = await trial.queue(trial.mutex(key));
    const latter = { ...former, token: "another-token" };
    await trial.hold(latter);
    assert.equal(await trial.release(latter), true);
    assert.equal((await trial.renew(latter)).state, "gone");
    assert.equal(await trial.states(next), "w");
    await trial.sleep(2 * SHORT + PAST_SHORT);
    assert.equal(await trial.states(next), "h");
  });

  test("another token takes a waiting claim over, at its place in the queue", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const former = await trial.queue(trial.mutex(key));
    const behind = await trial.queue(trial.mutex(key));
    const latter = await trial.queue({ ...former, token: "another-token" });
    assert.equal(await trial.states(former, latter, behind), "gww");
    assert.equal(await trial.release(former), false);
    await trial.release(holder);
    assert.equal(await trial.states(former, latter, behind), "ghw");
  });

  test("an id used again with another limit or priority is refused, and its claim goes on", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(key));
    for (const claim of [holder, waiter]) {
      for (const token of [claim.token, "another-token"]) {
        await trial.refuse({ ...claim, token, limit: UNLIMITED }, "id-reused");
        await trial.refuse({ ...claim, token, priority: 1 }, "id-reused");
      }
    }
    assert.equal(await trial.states(holder, waiter), "hw");
  });

  test(
    "an id used again with another weight is refused, and its claim goes on",
    async (trial) => {
      const key = trial.key();
      const holder = trial.permits(key, 1, 4);
      await trial.hold(holder);
      await trial.refuse({ ...holder, weight: 2 }, "id-reused");
      assert.equal((await trial.status(key)).heldWeight, 1);
      assert.equal(await trial.states(holder), "h");
    },
    { counts: true },
  );

  test("the same id on two keys is two claims", async (trial) => {
    const [one, two] = [trial.key("one"), trial.key("two")];
    const request = trial.mutex(one);
    await trial.hold(request);
    await trial.hold({ ...request, key: two });
    await trial.release(request);
    assert.equal(await trial.states(request, { ...request, key: two }), "gh");
  });

  test("an id is free again after a release, for any claim", async (trial) => {
    const key = trial.key();
    const request = trial.mutex(key);
    const { fence } = await trial.hold(request);
    await trial.release(request);
    const again = await trial.hold({ ...request, limit: UNLIMITED, priority: 3 });
    assert.ok(again.fence > fence);
  });

  // A2
  test("a stranger's token neither renews nor releases a claim", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(key));
    for (const claim of [holder, waiter]) {
      const stranger = { ...claim, token: "guessed" };
      assert.equal((await trial.renew(stranger)).state, "gone");
      assert.equal(await trial.release(stranger), false);
    }
    assert.equal(await trial.states(holder, waiter), "hw");
  });

  // A2, B6, C5. "In memory, a late release frees the next holder."
  test("a late release does not free the next holder", async (trial) => {
    const key = trial.key();
    const late = trial.mutex(key, { ttlMs: trial.ms(SHORT) });
    await trial.hold(late);
    await trial.sleep(PAST_SHORT);
    const next = trial.mutex(key);
    await trial.hold(next);
    assert.equal(await trial.release(late), false);
    assert.equal((await trial.renew(late)).state, "gone");
    await trial.refuse(trial.mutex(key));
    assert.equal(await trial.states(next), "h");
  });

  // B3
  test("a second release says that there was nothing to release", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const waiter = await trial.queue(trial.mutex(key));
    assert.equal(await trial.release(holder), true);
    assert.equal(await trial.release(holder), false);
    assert.equal(await trial.release(waiter), true);
    assert.equal(await trial.release(waiter), false);
    await trial.expectIdle(key);
  });

  test("an administrator releases by id alone, held and waiting claims alike", async (trial) => {
    const key = trial.key();
    const holder = trial.mutex(key);
    await trial.hold(holder);
    const [first, second] = [await trial.queue(trial.mutex(key)), await trial.queue(trial.mutex(key))];
    const store = await trial.other();
    assert.equal(await trial.release({ key, id: first.id }, store), true);
    assert.equal(await trial.release({ key, id: holder.id }, store), true);
    assert.equal(await trial.states(holder, first, second), "ggh");
    assert.equal(await trial.release({ key, id: "unknown" }, store), false);
  });
}
