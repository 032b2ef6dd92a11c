/** A record that this version cannot read, in any store that keeps records as texts. */
import { createLocks, type Locks, type Store } from "holdfast";
import { expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { failure } from "./failure.ts";

export interface RecordTexts {
  /** Puts a text in place of the record of a key. No store is open. */
  put(key: string, text: string): Promise<unknown>;
  /** The stored text. No store is open. */
  textOf(key: string): Promise<unknown>;
  open(): Store;
}

const ttlMs = 30_000;

const damages = [
  ["not JSON", "not JSON", "not JSON"],
  ["cut off", '{"v":1,"held":', "not JSON"],
  ["of a later format", '{"v":99,"fence":"1","held":[],"waiting":[]}', "version is 99"],
  ["of a format of which nothing else is known", '{"v":2}', "version is 2"],
] as const;

export function testDamagedRecords({ put, textOf, open }: RecordTexts): void {
  test.each(damages)(
    "a record that is %s fails its key alone, and stays as it is",
    async (name, text, why) => {
      const key = `record ${name}`;
      const request = claimRequest("id", { key, ttlMs, wait: false });
      await put(key, text);
      const store = open();
      let closing: Promise<void> | undefined;
      const close = () => (closing ??= store.close());
      onTestFinished(close);
      const [odd, beside] = await Promise.all([
        failure(store.acquire(request)),
        // In the same round trip.
        store.acquire({ ...request, key: `beside ${key}` }),
      ]);
      expect(odd).toMatchObject({ code: "STORE_FAILURE", key });
      expect(odd.message).toContain(JSON.stringify(key));
      expect(odd.message).toContain(why);
      expect(beside).toMatchObject({ state: "held" });
      expect(await failure(store.acquire(request))).toMatchObject({ code: "STORE_FAILURE", key });
      await close();
      expect(await textOf(key)).toBe(text);
    },
  );

  test.each(damages)(
    "a listing that meets a record that is %s fails and names it, and all others can be looked at",
    async (name, text, why) => {
      const prefix = `listing ${name} `;
      const [before, key, after] = [`${prefix}a`, `${prefix}b`, `${prefix}c`];
      await put(key, text);
      const locks = createLocks(open());
      onTestFinished(() => locks.close());
      const leases = await Promise.all([before, after].map((each) => locks.mutex(each, { ttlMs }).acquire()));

      // Also where the listing gets there with a later page.
      for (const pageSize of [100, 1]) {
        const odd = await failure(keysOf(locks, prefix, pageSize));
        expect(odd).toMatchObject({ code: "STORE_FAILURE", key });
        expect(odd.message).toContain(JSON.stringify(key));
        expect(odd.message).toContain(why);
      }
      expect(await failure(locks.inspect(key))).toMatchObject({ code: "STORE_FAILURE", key });

      for (const { key: other, fence } of leases) {
        expect(await locks.inspect(other)).toMatchObject({ key: other, heldCount: 1, fence });
        expect(await keysOf(locks, other)).toEqual([other]);
      }
      await locks.close();
      expect(await textOf(key)).toBe(text);
    },
  );
}

async function keysOf(locks: Locks, prefix: string, pageSize = 100): Promise<readonly string[]> {
  const keys: string[] = [];
  for await (const { key } of locks.list({ prefix, pageSize })) keys.push(key);
  return keys;
}
