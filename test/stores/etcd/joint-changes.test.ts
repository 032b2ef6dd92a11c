/** Changes that are made as one, and what becomes of them when one cannot be made. */
import type { ClaimRequest, Store } from "holdfast";
import { type EtcdClient, etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { connect, late } from "./participants.ts";

type Kv = EtcdClient["kv"];
type Txn = Parameters<Kv["txn"]>;

/** A transaction as it was sent: how many others were inside, or that one was inside for all. */
interface Sent {
  readonly inside: number | "joint";
}

describe.skipIf(!canRunEtcd())("etcd: joint changes", () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server?.stop());

  function open(around: (send: () => ReturnType<Kv["txn"]>) => ReturnType<Kv["txn"]> = (send) => send()) {
    const client = connect(server.url);
    const { kv, leaseClient, watchClient, maintenance } = client;
    const sent: Sent[] = [];
    const txn = (...args: Txn) => {
      const [{ success = [] }] = args;
      const inside = success.filter(({ request_txn: request }) => request !== undefined);
      const isJoint = (inside[0]?.request_txn?.success?.length ?? 0) > 1;
      sent.push({ inside: isJoint ? "joint" : inside.length });
      return around(() => kv.txn(...args));
    };
    const range: Kv["range"] = (request, options) => kv.range(request, options);
    const store = etcdStore({ kv: { range, txn }, leaseClient, watchClient, maintenance }, late);
    onTestFinished(async () => {
      await store.close();
      client.close();
    });
    return { store, sent };
  }

  function requestsFor(...keys: string[]): ClaimRequest[] {
    return keys.map((key) => claimRequest(`of ${key}`, { key, wait: false, ttlMs: 600_000 }));
  }

  async function acquire(store: Store, requests: readonly ClaimRequest[]): Promise<string[]> {
    const answers = await Promise.all(requests.map((request) => store.acquire(request)));
    return answers.map(({ state }) => state);
  }

  /** Makes the records, so that the store knows them. */
  async function use(store: Store, requests: readonly ClaimRequest[]): Promise<void> {
    await acquire(store, requests);
    await store.release(requests);
  }

  test("records that are known are changed jointly, new ones are not", async () => {
    const { store, sent } = open();
    const requests = requestsFor("new a", "new b");
    await acquire(store, requests);
    expect(sent.at(-1)?.inside).toBe(2);
    await store.release(requests);
    expect(await acquire(store, requests)).toEqual(["held", "held"]);
    expect(sent.slice(-2).map(({ inside }) => inside)).toEqual(["joint", "joint"]);
  });

  test("where others changed one of them, the rest are made at once, and then all go apart for a while", async () => {
    const { store, sent } = open();
    const requests = requestsFor("met a", "met b", "met c");
    await use(store, requests);
    await use(open().store, requestsFor("met b"));
    sent.length = 0;
    expect(await acquire(store, requests)).toEqual(["held", "held", "held"]);
    // All of them jointly, each by itself, and the one that was changed once more.
    expect(sent.map(({ inside }) => inside)).toEqual(["joint", 3, 1]);
    // Without the one that somebody was met at: its lane may rest for a moment.
    expect(await store.release(requestsFor("met a", "met c"))).toEqual([true, true]);
    expect(sent.map(({ inside }) => inside)).toEqual(["joint", 3, 1, 2]);
  });

  test("a refusal by another's claim is no less one", async () => {
    const { store } = open();
    const requests = requestsFor("taken a", "taken b");
    await use(store, requests);
    const [other] = [claimRequest("another", { key: "taken b", wait: false, ttlMs: 600_000 })];
    expect(await acquire(open().store, [other])).toEqual(["held"]);
    expect(await acquire(store, requests)).toEqual(["held", "refused"]);
  });

  // The client repeats a call whose reply it has missed. What was made the first time is then found as it was to be.
  test("joint changes that are sent twice are made once", async () => {
    let isRepeated = false;
    const { store } = open(async (send) => {
      if (isRepeated) await send();
      isRepeated = false;
      return send();
    });
    const requests = requestsFor("twice a", "twice b");
    await use(store, requests);
    isRepeated = true;
    expect(await acquire(store, requests)).toEqual(["held", "held"]);
    const { keys } = await store.look({ key: "twice a", maxClaims: 10 });
    expect(keys[0]?.heldCount).toBe(1);
    isRepeated = true;
    expect(await store.release(requests)).toEqual([true, true]);
  });
});
