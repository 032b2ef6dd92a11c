/** What lock cycles cost, in calls to a real etcd. */
import type { ClaimRequest } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { connect, late } from "./participants.ts";
import { watchedClient } from "./watched-client.ts";

describe.skipIf(!canRunEtcd())("etcd: round trips", () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server.stop());

  /** A store that has a lease, and what an action asks of etcd. */
  async function open() {
    const client = connect(server.url);
    let calls: string[] = [];
    const onCall = (method: string) => {
      calls.push(method);
      return undefined;
    };
    const store = etcdStore(watchedClient(client, onCall), late);
    onTestFinished(async () => {
      await store.close();
      client.close();
    });
    await store.acquire(attempt("warm"));
    const callsOf = async (action: () => Promise<unknown>) => {
      calls = [];
      await action();
      return calls.join(" ");
    };
    return { store, callsOf };
  }

  /** Signs of life are a sixth of this apart, so that none comes between. */
  function attempt(key: string, id = key): ClaimRequest {
    return claimRequest(id, { key, wait: false, ttlMs: 600_000 });
  }

  test("an acquire that nobody contends takes one, and so does its release, and a refusal", async () => {
    const { store, callsOf } = await open();
    const request = attempt("one");
    expect(await callsOf(() => store.acquire(request))).toBe("txn");
    expect(await callsOf(() => store.acquire(attempt("one", "another")))).toBe("txn");
    expect(await callsOf(() => store.release([request]))).toBe("txn");
    expect(await callsOf(() => store.acquire(attempt("one", "next")))).toBe("txn");
  });

  test("a heartbeat takes a sign of life and a look, for all claims together, and writes nothing", async () => {
    const { store, callsOf } = await open();
    const requests = Array.from({ length: 100 }, (_, index) => attempt(`held ${index}`));
    const acquire = () => Promise.all(requests.map((request) => store.acquire(request)));
    expect(await callsOf(acquire)).toBe("txn");
    const before = await revision();
    expect(await callsOf(() => store.renew(requests))).toBe("leaseKeepAlive txn");
    expect(await revision()).toBe(before);
    expect(await callsOf(() => store.release(requests))).toBe("txn");
  });

  test("the first call greets the server, makes a lease and its key, and looks", async () => {
    const client = connect(server.url);
    const calls: string[] = [];
    const onCall = (method: string) => {
      calls.push(method);
      return undefined;
    };
    const store = etcdStore(watchedClient(client, onCall), late);
    expect((await store.acquire(attempt("first"))).state).toBe("held");
    expect(calls.join(" ")).toBe("status range leaseGrant txn txn txn");
    await store.close();
    client.close();
  });

  /** Grows with every write. */
  async function revision(): Promise<string> {
    const client = connect(server.url);
    const { header } = await client.kv.range({ key: Buffer.from("nothing") });
    client.close();
    return header.revision;
  }
});
