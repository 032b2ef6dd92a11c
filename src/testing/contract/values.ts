/** What keys, ids and other values may be, and what becomes of bad ones. */
import assert from "node:assert/strict";
import { bounds, type ClaimRequest, type LookQuery, UNLIMITED } from "../../store/index.ts";
import { type DefineTest, expectCode, refOf } from "./trial.ts";

/** Names that something on the way might take for the same, or for something of its own. */
const easilyConfused = [
  "a",
  "A",
  "a ",
  " a",
  "a  b",
  "a b",
  "a:b",
  "a::b",
  "a/b",
  "a|b",
  "a\\b",
  "a.b",
  "a:",
  ":a",
  "a:fence",
  "a:queue",
  "a:lock",
  "fence:a",
  "{a}",
  "{a}b",
  "a{b}",
  "a*",
  "a%",
  "a_",
  "a?",
  "a'b",
  'a"b',
  "a`b",
  "$1",
  "$a",
  "../a",
  "%61",
  "\u00e9",
  "e\u0301",
  "\u00c9",
  "e",
  "ß",
  "ss",
  "ı",
  "i",
  "日本",
  "🔒",
  "🔓",
  "\u2028",
  "\u200b",
  "\ufeff",
  "__proto__",
  "constructor",
  "null",
  "0",
  "00",
  "-0",
];

export function values(test: DefineTest): void {
  // B4. "A key can collide with its own fence counter's key."
  test("different keys never collide, however much alike", async (trial) => {
    const claims = easilyConfused.map((name) => trial.mutex(trial.key(name)));
    const answers = await Promise.all(claims.map((claim) => trial.store.acquire(claim)));
    for (const [index, answer] of answers.entries()) {
      assert.equal(answer.state, "held", `"${easilyConfused[index]}" collides with another key`);
    }
    for (const claim of claims) {
      const status = await trial.status(claim.key);
      assert.deepEqual(
        status.held.map(({ id }) => id),
        [claim.id],
      );
      assert.equal(await trial.release(claim), true);
      await trial.expectIdle(claim.key);
    }
  });

  test("different ids never collide, however much alike", async (trial) => {
    const key = trial.key();
    const claims = easilyConfused.map((id) => trial.reader(key, { id }));
    for (const claim of claims) await trial.hold(claim);
    assert.equal((await trial.status(key)).heldCount, claims.length);
    assert.deepEqual(
      await trial.store.release(claims.map(refOf)),
      claims.map(() => true),
    );
  });

  test("the longest and highest values are kept whole", async (trial) => {
    const filled = (start: string, bytes: number) => start + "é".repeat((bytes - start.length) / 2);
    const request = trial.reader(filled(trial.key("long-").padEnd(60, "."), bounds.keyBytes), {
      id: filled("id", bounds.idBytes),
      token: filled("to", bounds.idBytes),
      priority: bounds.maxPriority,
      ttlMs: bounds.maxTtlMs,
      owner: filled("ow", bounds.ownerBytes),
      info: filled("in", bounds.infoBytes),
      application: filled("ap", bounds.applicationBytes),
    });
    assert.equal(Buffer.byteLength(request.key), bounds.keyBytes);
    await trial.hold(request);
    const [claim] = (await trial.status(request.key)).held;
    const { key: _key, token: _token, wait: _wait, ...kept } = request;
    assert.deepEqual({ ...claim, ...kept }, claim);
    assert.equal(claim?.limit, UNLIMITED);
    await trial.hold(request);
    assert.equal(await trial.release(request), true);
  });

  test(
    "the highest limit is kept exactly",
    async (trial) => {
      const key = trial.key();
      await trial.hold(trial.permits(key, bounds.maxPermits - 1, bounds.maxPermits));
      await trial.refuse(trial.permits(key, 2, bounds.maxPermits));
      await trial.hold(trial.permits(key, 1, bounds.maxPermits));
      await trial.refuse(trial.permits(key, 1, bounds.maxPermits));
      assert.equal((await trial.status(key)).heldWeight, bounds.maxPermits);
    },
    { counts: true },
  );

  // C4
  test("a bad request is refused with the field's name, and leaves nothing", async (trial) => {
    const key = trial.key();
    const bad: [keyof ClaimRequest, unknown][] = [
      ["key", ""],
      ["key", "k".repeat(513)],
      ["key", `${key}\n`],
      ["key", `${key}\ud800`],
      ["key", 7],
      ["id", ""],
      ["id", "i".repeat(129)],
      ["id", "i\u0000"],
      ["token", ""],
      ["token", "t".repeat(129)],
      ["weight", 0],
      ["weight", 2],
      ["weight", 0.5],
      ["weight", Number.NaN],
      ["limit", 0],
      ["limit", -1],
      ["limit", 1_000_000_001],
      ["limit", Number.POSITIVE_INFINITY],
      ["priority", -1],
      ["priority", 65_536],
      ["priority", 1.5],
      ["ttlMs", 0],
      ["ttlMs", 9],
      ["ttlMs", 86_400_001],
      ["ttlMs", 100.5],
      ["ttlMs", Number.NaN],
      ["ttlMs", "1000"],
      ["owner", "o".repeat(257)],
      ["info", "i".repeat(1_025)],
      ["info", "\u0007"],
      ["application", "a".repeat(257)],
    ];
    for (const [field, value] of bad) {
      // What a caller without types could send.
      const request = { ...trial.mutex(key), wait: true, [field]: value } as ClaimRequest;
      const error = await expectCode("INVALID_ARGUMENT", () => trial.store.acquire(request));
      assert.match(error.message, new RegExp(`\\b${field}\\b`));
    }
    await trial.expectIdle(key);
  });

  test("a bad heartbeat, release or look is refused with the field's name", async (trial) => {
    const holder = trial.mutex(trial.key());
    await trial.hold(holder);
    const { key, id } = holder;
    const badRefs = [
      ["key", { key: "k".repeat(513), id }],
      ["id", { key, id: "" }],
      ["token", { key, id, token: "" }],
      ["ttlMs", { key, id, ttlMs: 1 }],
    ] as const;
    const badQueries: [string, LookQuery][] = [
      ["key", { key: "", maxClaims: 1 }],
      ["maxClaims", { key, maxClaims: -1 }],
      ["maxClaims", { key, maxClaims: 10_001 }],
      ["prefix", { prefix: "p\n", limit: 1, maxClaims: 1 }],
      ["limit", { prefix: "p", limit: 0, maxClaims: 1 }],
      ["limit", { prefix: "p", limit: 1_001, maxClaims: 1 }],
    ];
    for (const [field, ref] of badRefs) {
      const error = await expectCode("INVALID_ARGUMENT", () => trial.store.renew([ref]));
      assert.match(error.message, new RegExp(`\\b${field}\\b`));
      if (field !== "ttlMs") await expectCode("INVALID_ARGUMENT", () => trial.store.release([ref]));
    }
    for (const [field, query] of badQueries) {
      const error = await expectCode("INVALID_ARGUMENT", () => trial.store.look(query));
      assert.match(error.message, new RegExp(`\\b${field}\\b`));
    }
    assert.equal(await trial.states(holder), "h");
  });
}
