import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createLocks, memoryStore } from "holdfast";
import { createFenceGate, type FenceGate, type FenceMarks } from "holdfast/fencing";
import { ManualClock, settled } from "holdfast/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../engines/engine.ts";
import { forkProgram } from "../programs.ts";
import { testFolder } from "../stores/file/folders.ts";
import { checkRegister, type WrittenValue } from "./register-model.ts";

const older = { fence: 5n, key: "report" };
const newer = { fence: 6n, key: "report" };
const stale = { code: "STALE_FENCE", key: "report", fence: 5n, mark: 6n };

/** Marks that the test looks after, and that take a turn of the event loop. */
function slowMarks(): FenceMarks & { readonly marks: Map<string, bigint> } {
  const marks = new Map<string, bigint>();
  return {
    marks,
    load: async (resource) => marks.get(resource),
    async save(resource, fence) {
      await new Promise((resolve) => setImmediate(resolve));
      marks.set(resource, fence);
    },
  };
}

const kinds: Record<string, () => FenceGate> = {
  memory: () => createFenceGate(),
  "a file": () => createFenceGate({ file: join(testFolder(), "fences.json") }),
  "marks of one's own": () => createFenceGate(slowMarks()),
};

describe.each(Object.entries(kinds))("a gate over %s", (_, newGate) => {
  test("lets the same holder in many times, a newer one, and then no older one", async () => {
    const gate = newGate();
    expect(await gate.run(older, ({ fence, resource }) => `${resource} ${fence}`)).toBe("report 5");
    await gate.run(older, () => {});
    await gate.run(newer, () => {});
    await expect(gate.run(older, () => expect.fail("It ran."))).rejects.toMatchObject(stale);
    await gate.run(newer, () => {});
    await gate.run({ fence: 1n, key: "other" }, () => {});
    await gate.close();
  });

  test("keeps the newer one waiting while the older one writes", async () => {
    const gate = newGate();
    const written: string[] = [];
    const pass = await gate.enter(older);
    const running = gate.run(newer, () => void written.push("newer"));
    await settled();
    written.push("older");
    pass.leave();
    await running;
    expect(written).toEqual(["older", "newer"]);
    await gate.close();
  });

  test("is left once, however often that is said", async () => {
    const gate = newGate();
    const first = await gate.enter(older);
    const entering = gate.enter(newer);
    first.leave();
    const second = await entering;
    first.leave();
    first[Symbol.dispose]();
    // Somebody is inside, and whoever comes now waits.
    let third = false;
    const next = gate.run(newer, () => {
      third = true;
    });
    await settled();
    expect(third).toBe(false);
    second.leave();
    await next;
    expect(third).toBe(true);
    await gate.close();
  });

  test("refuses an older one that waited while a newer one went in", async () => {
    const gate = newGate();
    const pass = await gate.enter(newer);
    const refused = expect(gate.enter(older)).rejects.toMatchObject(stale);
    pass.leave();
    await refused;
    // The resource is free again.
    (await gate.enter(newer)).leave();
    await gate.close();
  });

  test("is left when the body throws", async () => {
    const gate = newGate();
    const failing = gate.run(older, () => Promise.reject(new Error("mine")));
    await expect(failing).rejects.toThrow("mine");
    await gate.run(older, () => {});
    await gate.close();
  });

  test("agrees with the model for writers in any order", async () => {
    const gate = newGate();
    const histories = new Map<string, WrittenValue[]>();
    await checkRegister({
      runs: 40,
      rollsBack: false,
      async write({ resource, fence, value }) {
        const body = async () => {
          const history = histories.get(resource) ?? [];
          // A second writer that was let in meanwhile would be overwritten.
          await new Promise((resolve) => setImmediate(resolve));
          histories.set(resource, [...history, { fence, value }]);
        };
        await gate.run({ fence }, body, { resource });
      },
      written: async (resource) => histories.get(resource) ?? [],
    });
    await gate.close();
  });
});

describe("waiting at a gate", () => {
  test("ends with the caller's signal, after waitMs, and when the gate is closed", async () => {
    const clock = new ManualClock();
    const gate = createFenceGate({ clock });
    const pass = await gate.enter(older);
    const controller = new AbortController();
    const cancelled = expect(gate.enter(newer, { signal: controller.signal })).rejects.toThrow(
      "no longer wanted",
    );
    const late = expect(gate.enter(newer, { waitMs: 100 })).rejects.toMatchObject({
      code: "ACQUIRE_TIMEOUT",
    });
    const open = expect(gate.enter(newer)).rejects.toMatchObject({ code: "CLOSED" });
    controller.abort(new Error("no longer wanted"));
    await cancelled;
    await clock.advance(100);
    await late;
    await gate.close();
    await open;
    pass.leave();
    await expect(gate.enter(newer)).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("does not let in whoever lost its lease meanwhile", async () => {
    const clock = new ManualClock();
    const locks = createLocks(memoryStore({ clock }), { clock });
    const lease = await locks.mutex("report", { ttlMs: 1_000, renew: false }).acquire();
    const gate = createFenceGate();
    const pass = await gate.enter({ fence: 1n, key: "report" });
    const waiting = expect(gate.enter(lease)).rejects.toMatchObject({ code: "LEASE_LOST" });
    await clock.advance(2_000);
    pass.leave();
    await waiting;
    await expect(gate.enter(lease)).rejects.toMatchObject({ code: "LEASE_LOST" });
    await locks.close();
  });

  test("leaves no place behind that was given up", async () => {
    const gate = createFenceGate();
    const pass = await gate.enter(older);
    const controller = new AbortController();
    const given = gate.enter(newer, { signal: controller.signal }).catch(() => "given up");
    const next = gate.enter(newer);
    controller.abort();
    expect(await given).toBe("given up");
    pass.leave();
    (await next).leave();
    await expect(gate.enter(newer, { signal: AbortSignal.abort() })).rejects.toThrow();
    (await gate.enter(newer, { waitMs: 0 })).leave();
  });
});

describe("the marks of a gate", () => {
  test("are saved before anybody is let in", async () => {
    let saved = () => {};
    const saving = new Promise<void>((resolve) => {
      saved = resolve;
    });
    const gate = createFenceGate({ load: () => undefined, save: () => saving });
    let entered = false;
    const entering = gate.run(older, () => {
      entered = true;
    });
    await settled();
    expect(entered).toBe(false);
    saved();
    await entering;
    expect(entered).toBe(true);
  });

  test("that cannot be loaded or saved let nobody in, and the next one is tried anew", async () => {
    const marks = slowMarks();
    let fails: "load" | "save" | undefined = "load";
    const gate = createFenceGate({
      load: (resource) => (fails === "load" ? Promise.reject(new Error("down")) : marks.load(resource)),
      save(resource, fence) {
        if (fails === "save") throw new Error("full");
        return marks.save(resource, fence);
      },
    });
    const refused = { code: "STORE_UNAVAILABLE", cause: expect.any(Error) };
    await expect(gate.run(newer, () => expect.fail("It ran."))).rejects.toMatchObject(refused);
    fails = "save";
    await expect(gate.run(newer, () => expect.fail("It ran."))).rejects.toMatchObject(refused);
    fails = undefined;
    // Nobody newer has written.
    expect(await gate.run(older, () => "older")).toBe("older");
    expect(await gate.run(newer, () => "newer")).toBe("newer");
  });

  test.each([null, "7", 7])("that are loaded as %o let nobody in", async (mark) => {
    const gate = createFenceGate({ load: () => mark as never, save: () => {} });
    await expect(gate.run(older, () => expect.fail("It ran."))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("bigint"),
    });
  });

  test("are bounded, and none is dropped for another", async () => {
    for (const options of [{}, { file: join(testFolder(), "fences.json") }]) {
      const gate = createFenceGate({ ...options, maxResources: 2 });
      for (const key of ["a", "b"]) await gate.run({ fence: 5n, key }, () => {});
      await expect(gate.run({ fence: 5n, key: "c" }, () => {})).rejects.toMatchObject({
        code: "STORE_FAILURE",
      });
      await gate.run({ fence: 6n, key: "a" }, () => {});
      await expect(gate.run({ fence: 5n, key: "a" }, () => {})).rejects.toMatchObject({
        code: "STALE_FENCE",
      });
    }
  });

  test.each([{ load: () => undefined }, { save: () => {} }, { file: "" }, { maxResources: 0 }])(
    "are refused as %o",
    (options) => {
      expect(() => createFenceGate(options)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    },
  );
});

describe("a file of marks", () => {
  function newFile(): string {
    return join(testFolder(), "fences.json");
  }

  test("outlives its process", async () => {
    const file = newFile();
    const keys = ["report", "__proto__", "näßt", "constructor"];
    const before = createFenceGate({ file });
    await Promise.all(keys.map((key) => before.run({ fence: 2n ** 60n + 1n, key }, () => {})));
    await before.run({ fence: 1n, key: "later" }, () => {});
    await before.close();
    const after = createFenceGate({ file });
    for (const key of keys) {
      await expect(after.run({ fence: 2n ** 60n, key }, () => {})).rejects.toMatchObject({
        code: "STALE_FENCE",
        mark: 2n ** 60n + 1n,
      });
    }
  });

  test("that is damaged, or of somebody else, lets nobody in", async () => {
    for (const text of [
      "",
      "{",
      '{"format":"holdfast fences 2","marks":{}}',
      '{"format":"holdfast fences 1","marks":{"a":"x"}}',
    ]) {
      const file = newFile();
      writeFileSync(file, text);
      const gate = createFenceGate({ file });
      await expect(gate.run(older, () => {})).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining(file),
      });
      expect(readFileSync(file, "utf8")).toBe(text);
      // Once it is put right, it goes on.
      writeFileSync(file, '{"format":"holdfast fences 1","marks":{"report":"6"}}');
      await expect(gate.run(older, () => {})).rejects.toMatchObject(stale);
    }
  });

  test("that somebody else changes or removes lets nobody in from then on", async () => {
    const changes: ((file: string) => unknown)[] = [
      (file) => rmSync(file),
      (file) => writeFileSync(file, '{"format":"holdfast fences 1","marks":{"theirs":"9"}}'),
    ];
    for (const change of changes) {
      const file = newFile();
      const gate = createFenceGate({ file });
      await gate.run(older, () => {});
      await change(file);
      await expect(gate.run(newer, () => expect.fail("It ran."))).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("Another program"),
      });
    }
  });

  test("belongs to one gate, until that is closed and left by all", async () => {
    const file = newFile();
    // A service and its next version, of which the first one has not ended yet.
    const [former, next] = [createFenceGate({ file }), createFenceGate({ file })];
    const refused = {
      code: "STORE_UNAVAILABLE",
      retryable: true,
      message: expect.stringContaining("Another gate"),
    };
    expect(await former.run(older, () => "older")).toBe("older");
    await expect(next.run(newer, () => expect.fail("It ran."))).rejects.toMatchObject(refused);
    const pass = await former.enter({ fence: 7n, key: "report" });
    await former.close();
    await expect(next.run({ fence: 8n, key: "other" }, () => expect.fail("It ran."))).rejects.toMatchObject(
      refused,
    );
    pass.leave();
    await expect(next.run(newer, () => expect.fail("It ran."))).rejects.toMatchObject({
      code: "STALE_FENCE",
      mark: 7n,
    });
    expect(await next.run({ fence: 8n, key: "report" }, () => "newest")).toBe("newest");
    await next.close();
    expect(readdirSync(dirname(file))).toEqual(["fences.json"]);
  });

  // Each process makes a gate, goes through it with a fence of this moment, and closes it. Without the lock, O reads the marks, N's gate
  // reads, writes and admits N, and then O's gate replaces the file and admits O.
  test("admits no older holder after a newer one, whichever process's gates they come to", async () => {
    const file = newFile();
    const log = `${file}.log`;
    writeFileSync(log, "");
    const children = Array.from({ length: 3 }, () =>
      forkProgram(new URL("./gate-process.ts", import.meta.url), [file, "handovers", log]),
    );
    onTestFinished(() => {
      for (const child of children) child.kill("SIGKILL");
    });
    const fences = () => readFileSync(log, "utf8").split("\n").slice(0, -1).map(BigInt);
    await until("there were many writes", async () => fences().length >= 400);
    const written = fences();
    expect(written.filter((fence, place) => fence < (written[place - 1] ?? 0n))).toEqual([]);
  });

  test("whose marks many resources share is its own while it is being written", async () => {
    const gate = createFenceGate({ file: newFile() });
    const writers = Array.from({ length: 20 }, async (_, writer) => {
      for (let fence = 1n; fence <= 10n; fence++) {
        const lease = { fence: fence / 2n + 1n, key: `report-${writer}` };
        await gate.run(lease, () => {});
      }
    });
    await expect(Promise.all(writers)).resolves.toHaveLength(20);
  });

  test("in a folder that is not there is told, and nobody is let in", async () => {
    const gate = createFenceGate({ file: join(testFolder(), "missing", "fences.json") });
    await expect(gate.run(older, () => {})).rejects.toMatchObject({ code: "STORE_FAILURE" });
  });

  test.skipIf(process.getuid?.() === 0)("that may not be read is told", async () => {
    const file = newFile();
    writeFileSync(file, "{}");
    chmodSync(file, 0o000);
    const refused = createFenceGate({ file }).run(older, () => {});
    await expect(refused).rejects.toMatchObject({ code: "STORE_FAILURE" });
  });

  test("has every mark whose writer was let in, however its process is killed", async () => {
    const file = newFile();
    let highest = 0;
    for (let round = 0; round < 3; round++) {
      const child = forkProgram(new URL("./gate-process.ts", import.meta.url), [file, `${highest}`]);
      onTestFinished(() => void child.kill("SIGKILL"));
      const target = highest + 20 + round * 7;
      await reaches(child, target, (fence) => {
        highest = fence;
      });
      const exit = once(child, "exit");
      child.kill("SIGKILL");
      await exit;
      const gate = createFenceGate({ file });
      // The gate had admitted this fence before the last message.
      const refused = gate.run({ fence: BigInt(highest - 1), key: "report" }, () => {});
      await expect(refused).rejects.toMatchObject({ code: "STALE_FENCE" });
      await gate.close();
    }
  });
});

/** Resolves when the process has been let in with this fence. All that it says is passed on, also what comes later. */
function reaches(child: ChildProcess, target: number, heard: (fence: number) => void): Promise<void> {
  return new Promise((resolve) => {
    child.on("message", (fence) => {
      heard(Number(fence));
      if (Number(fence) >= target) resolve();
    });
  });
}
