import { createLocks, type HoldfastWarning, memoryStore } from "holdfast";
import { faultyStore, ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";
import { collectUncaught } from "./uncaught.ts";

const uncaught = collectUncaught();

/** A client whose releases fail, and whose warnings are answered with an error. */
function open() {
  const clock = new ManualClock();
  const store = faultyStore(memoryStore({ clock }), ({ verb }) =>
    verb === "release" ? { error: new Error("no release") } : undefined,
  );
  const broken = (warning: HoldfastWarning) => {
    throw new Error(`cannot log ${warning.code}`);
  };
  return createLocks(store, { clock, onWarning: broken });
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

test.each([
  ["onWarning", { onWarning: "console" as never }],
  ["clockDrift", { clockDrift: "0.01" as never }],
])("%s of the wrong type is refused", (name, options) => {
  expect(() => createLocks(memoryStore(), options)).toThrow(name);
});
