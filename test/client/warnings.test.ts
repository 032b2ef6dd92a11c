import { createLocks, type HoldfastWarning, memoryStore, StoreUnavailableError } from "holdfast";
import { faultyStore, ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";
import { collectProcessWarnings } from "./process-warnings.ts";
import { collectUncaught } from "./uncaught.ts";

const uncaught = collectUncaught();

/** A store whose releases fail. */
function storeWithoutRelease(clock: ManualClock) {
  return faultyStore(memoryStore({ clock }), ({ verb }) =>
    verb === "release" ? { error: new Error("no release") } : undefined,
  );
}

/** A client whose releases fail, and whose warnings are answered with an error. */
function open() {
  const clock = new ManualClock();
  const broken = (warning: HoldfastWarning) => {
    throw new Error(`cannot log ${warning.code}`);
  };
  return createLocks(storeWithoutRelease(clock), { clock, onWarning: broken });
}

test("a callback for warnings that throws does not hide the error of a body", async () => {
  const run = open()
    .mutex("k")
    .run(() => {
      throw new Error("body");
    });
  await expect(run).rejects.toThrow("body");
  await settled();
  expect(uncaught).toEqual([new Error("cannot log RELEASE_FAILED")]);
});

test("a callback for warnings that throws does not stop a client from closing", async () => {
  const locks = open();
  await locks.mutex("a").acquire();
  await locks.mutex("b").acquire();
  await locks.close();
  await expect(locks.store.look({ key: "a", maxClaims: 1 })).rejects.toMatchObject({ code: "CLOSED" });
  await settled();
  expect(uncaught).toHaveLength(2);
});

test("process warnings of a kind come one by one, then as a number, and one by one again after a pause", async () => {
  const told = collectProcessWarnings();
  const clock = new ManualClock();
  const locks = createLocks(storeWithoutRelease(clock), { clock });
  let runs = 0;
  const fail = async (times: number) => {
    for (let time = 0; time < times; time++) await locks.mutex(`k${++runs}`).run(() => {});
  };
  const news = () => told.splice(0).map(({ code, message }) => `${code} ${/"k\d+"|\d+ more/.exec(message)}`);

  await fail(7);
  expect(news()).toEqual([1, 2, 3, 4, 5].map((run) => `RELEASE_FAILED "k${run}"`));
  await clock.advance(9_999);
  expect(news()).toEqual([]);
  await clock.advance(1);
  expect(news()).toEqual(["RELEASE_FAILED 2 more"]);
  await fail(3);
  await clock.advance(10_000);
  expect(news()).toEqual(["RELEASE_FAILED 3 more"]);
  await clock.advance(10_000);
  await fail(1);
  expect(news()).toEqual(['RELEASE_FAILED "k11"']);
});

test("process warnings of one kind leave those of another alone", async () => {
  const told = collectProcessWarnings();
  const clock = new ManualClock();
  const store = storeWithoutRelease(clock);
  let down = false;
  const failing = faultyStore(store, () => (down ? { error: new StoreUnavailableError("down") } : undefined));
  const locks = createLocks(failing, { clock });
  for (let run = 0; run < 6; run++) await locks.mutex(`k${run}`).run(() => {});
  down = true;
  const attempt = locks.mutex("k", { onUnavailable: "skip" }).tryAcquire();
  await clock.advance(5_000);
  expect(await attempt).toBeNull();
  expect(told.map(({ code }) => code)).toEqual([...Array(5).fill("RELEASE_FAILED"), "SKIPPED_UNAVAILABLE"]);
});

test.each([
  ["onWarning", { onWarning: "console" as never }],
  ["clockDrift", { clockDrift: "0.01" as never }],
])("%s of the wrong type is refused", (name, options) => {
  expect(() => createLocks(memoryStore(), options)).toThrow(name);
});
