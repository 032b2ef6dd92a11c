/** What an administrator sees. */
import assert from "node:assert/strict";
import type { HoldfastError, KeyStatus, LookPage } from "../../store/index.ts";
import { type DefineTest, PAST_SHORT, SHORT, type Trial } from "./trial.ts";

export function looking(test: DefineTest): void {
  test("a key that nobody asked for is shown empty", async (trial) => {
    const key = trial.key();
    assert.deepEqual(await trial.status(key), {
      key,
      fence: 0n,
      held: [],
      heldCount: 0,
      heldWeight: 0,
      waiting: [],
      waitingCount: 0,
    });
  });

  // E3, E6
  test("a look shows all of a claim but its token, through any instance", async (trial) => {
    const key = trial.key();
    const reader = trial.reader(key, { owner: "host:1", info: "büro\u2028☂", application: "report" });
    const { fence, acquiredAtMs } = await trial.hold(reader);
    const writer = await trial.queue(trial.mutex(key, { priority: 7, info: "waits" }));
    const status = await trial.status(key, 10, await trial.other());
    assert.deepEqual(
      { ...status, held: status.held.map(withoutExpiry), waiting: status.waiting.map(withoutExpiry) },
      {
        key,
        fence,
        held: [{ ...shown(reader), state: "held", fence, acquiredAtMs }],
        heldCount: 1,
        heldWeight: 1,
        waiting: [{ ...shown(writer), state: "waiting" }],
        waitingCount: 1,
      },
    );
    for (const claim of [...status.held, ...status.waiting]) {
      // Two processes may know the store's time only within bounds, and then do not agree to the millisecond.
      assert.ok(claim.expiresInMs > 0 && claim.expiresInMs <= claim.ttlMs + trial.ms(SHORT));
    }
  });

  test("long lists of claims are cut to what was asked for, and the counts are whole", async (trial) => {
    const key = trial.key();
    const readers = Array.from({ length: 5 }, () => trial.reader(key));
    for (const reader of readers) await trial.hold(reader);
    const writers = Array.from({ length: 4 }, () => trial.mutex(key));
    for (const writer of writers) await trial.queue(writer);
    for (const maxClaims of [0, 2, 100]) {
      const status = await trial.status(key, maxClaims);
      assert.deepEqual([status.heldCount, status.heldWeight, status.waitingCount], [5, 5, 4]);
      assert.deepEqual(idsOf(status.held), idsOf(readers.slice(0, maxClaims)));
      assert.deepEqual(idsOf(status.waiting), idsOf(writers.slice(0, maxClaims)));
    }
  });

  // E6
  test("a listing shows every key with the prefix over several pages", async (trial) => {
    const keys = Array.from({ length: 23 }, (_, index) => trial.key(`page-${index}`));
    await Promise.all(keys.map((key) => trial.hold(trial.mutex(key))));
    await trial.hold(trial.mutex(trial.key("elsewhere")));
    const pages = await list(trial, `${trial.prefix}page-`, 5);
    for (const page of pages) assert.ok(page.keys.length <= 5, "a page is longer than its limit");
    const seen = pages.flatMap(keysOf);
    assert.deepEqual([...new Set(seen)].sort(), keys.sort());
  });

  test("a page that has to be asked for twice loses no key, nor does the last one", async (trial) => {
    for (let index = 0; index < 9; index++) await trial.hold(trial.mutex(trial.key(`again-${index}`)));
    const query = { prefix: trial.prefix, limit: 4, maxClaims: 0 };
    const seen = new Set<string>();
    let cursor: string | undefined;
    for (let turn = 0; turn === 0 || cursor !== undefined; turn++) {
      assert.ok(turn < 1_000, "the listing does not end");
      const next = cursor === undefined ? query : { ...query, cursor };
      // As if the reply to the first one had been lost.
      await trial.store.look(next);
      const page = await trial.store.look(next);
      for (const key of keysOf(page)) seen.add(key);
      cursor = page.cursor;
    }
    assert.equal(seen.size, 9);
  });

  test("a cursor of no page is refused as what it is, or begins somewhere", async (trial) => {
    await trial.hold(trial.mutex(trial.key()));
    const cursors = [
      "x".repeat(513),
      "x".repeat(10_000),
      "\0",
      "\ud800",
      "0.0.",
      "-1",
      `0.${"9".repeat(20)}.`,
      "9999.0.",
    ];
    for (const cursor of cursors) {
      const query = { prefix: "", limit: 10, maxClaims: 0, cursor };
      const answer = await trial.store.look(query).catch((error: unknown) => error);
      if (!(answer instanceof Error)) continue;
      assert.equal((answer as Partial<HoldfastError>).code, "INVALID_ARGUMENT", answer.message);
      assert.match(answer.message, /^cursor /);
    }
  });

  test("a listing shows claims as a look at the key does", async (trial) => {
    const key = trial.key();
    await trial.hold(trial.reader(key));
    await trial.hold(trial.reader(key));
    await trial.queue(trial.mutex(key));
    const [listed] = (await list(trial, trial.prefix, 10, 1)).flatMap((page) => page.keys);
    assert.deepEqual(listed && settled(listed), settled(await trial.status(key, 1)));
  });

  test("a listing takes its prefix literally", async (trial) => {
    const names = ["a_c", "abc", "a%", "a*", "a\\_", "A_c", "a", "a[b]", "á"];
    for (const name of names) await trial.hold(trial.mutex(trial.key(name)));
    for (const prefix of ["a_", "a%", "a*", "a\\", "A", "a", "a[", "a?", "á", "b"]) {
      const pages = await list(trial, trial.prefix + prefix, 10);
      const seen = pages.flatMap((page) => page.keys.map(({ key }) => key.slice(trial.prefix.length)));
      const expected = names.filter((name) => name.startsWith(prefix));
      assert.deepEqual([...new Set(seen)].sort(), expected.sort(), `the prefix is "${prefix}"`);
    }
  });

  test("a listing leaves out keys that are released or expired", async (trial) => {
    const released = trial.mutex(trial.key("released"));
    await trial.hold(released);
    await trial.release(released);
    await trial.hold(trial.mutex(trial.key("expired"), { ttlMs: trial.ms(SHORT) }));
    await trial.hold(trial.mutex(trial.key("held")));
    await trial.sleep(PAST_SHORT);
    const seen = (await list(trial, trial.prefix, 10)).flatMap(keysOf);
    assert.deepEqual(seen, [trial.key("held")]);
  });

  test("a listing misses no key that is held throughout, whatever else comes and goes", async (trial) => {
    const claims = Array.from({ length: 12 }, (_, index) => trial.mutex(trial.key(`n-${index}`)));
    for (const claim of claims) await trial.hold(claim);
    const [leaving, staying] = [claims.filter((_, n) => n % 3 === 0), claims.filter((_, n) => n % 3 !== 0)];
    const seen = new Set<string>();
    let page = await trial.store.look({ prefix: trial.prefix, limit: 3, maxClaims: 0 });
    for (let turn = 0; ; turn++) {
      for (const status of page.keys) seen.add(status.key);
      if (page.cursor === undefined) break;
      const left = leaving[turn];
      if (left !== undefined) await trial.release(left);
      await trial.hold(trial.mutex(trial.key(`m-${turn}`)));
      assert.ok(turn < 100, "the listing does not end");
      page = await trial.store.look({ prefix: trial.prefix, limit: 3, maxClaims: 0, cursor: page.cursor });
    }
    for (const claim of staying) assert.ok(seen.has(claim.key), `"${claim.key}" is missing`);
  });
}

async function list(trial: Trial, prefix: string, limit: number, maxClaims = 10): Promise<LookPage[]> {
  const pages = [await trial.store.look({ prefix, limit, maxClaims })];
  for (let cursor = pages[0]?.cursor; cursor !== undefined; ) {
    const page = await trial.store.look({ prefix, limit, maxClaims, cursor });
    pages.push(page);
    cursor = page.cursor;
    assert.ok(pages.length < 1_000, "the listing does not end");
  }
  return pages;
}

function shown(request: ReturnType<Trial["mutex"]>): object {
  const { key: _key, token: _token, wait: _wait, ...rest } = request;
  return rest;
}

function withoutExpiry({ expiresInMs: _, ...claim }: KeyStatus["held"][number]): object {
  return claim;
}

/** A status without what changes from one moment to the next. */
function settled(status: KeyStatus): object {
  return { ...status, held: status.held.map(withoutExpiry), waiting: status.waiting.map(withoutExpiry) };
}

function keysOf(page: LookPage): string[] {
  return page.keys.map((status) => status.key);
}

function idsOf(claims: readonly { readonly id: string }[]): string[] {
  return claims.map((claim) => claim.id);
}
