/** What a closed store does, and what it says of itself while it is open. */
import assert from "node:assert/strict";
import { durabilities } from "../../store/index.ts";
import { type DefineTest, expectCode } from "./trial.ts";

export function closing(test: DefineTest): void {
  test("a closed store refuses every verb", async (trial) => {
    const store = await trial.other();
    const request = trial.mutex(trial.key());
    await trial.hold(request, store);
    await store.close();
    await expectCode("CLOSED", () => store.acquire(request));
    await expectCode("CLOSED", () => store.renew([request]));
    await expectCode("CLOSED", () => store.release([request]));
    await expectCode("CLOSED", () => store.look({ key: request.key, maxClaims: 1 }));
  });

  test("closing twice is safe", async (trial) => {
    const store = await trial.other();
    await Promise.all([store.close(), store.close()]);
    await store.close();
  });

  test(
    "closing one instance leaves the claims and the other instances as they are",
    async (trial) => {
      const store = await trial.other();
      const request = trial.mutex(trial.key());
      await trial.hold(request, store);
      await store.close();
      await trial.refuse(trial.mutex(request.key));
      assert.equal(await trial.states(request), "h");
    },
    { shared: true },
  );

  test("a store says what it is", async (trial) => {
    assert.ok(trial.store.name.length > 0);
    assert.ok(durabilities.includes(trial.store.durability));
  });
}
