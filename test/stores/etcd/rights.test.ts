/** A server that wants to know who asks, and a user with rights for the prefix alone. */
import { Etcd3 } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { demandLogin, user } from "./users.ts";

describe.skipIf(!canRunEtcd())("etcd: rights", () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
    await demandLogin(server.url);
  }, 60_000);
  afterAll(() => server.stop());

  type Auth = { readonly username: string; readonly password: string };

  function open(
    auth: Auth | undefined,
    prefix = "holdfast",
    as: (client: Etcd3) => Etcd3 = (client) => client,
  ) {
    const client = new Etcd3({ hosts: server.url, ...(auth === undefined ? {} : { auth }) });
    const locks = createLocks(etcdStore(as(client), { prefix }), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      client.close();
    });
    return locks;
  }

  test("a user with rights for the prefix can do all that there is to do", async () => {
    const [one, other] = [open(user), open(user)];
    const lease = await one.mutex("k", { ttlMs: 3_000 }).acquire();
    const waiting = other.mutex("k", { ttlMs: 60_000 }).acquire();
    await until("it waits", async () => (await one.inspect("k")).waitingCount === 1);
    await lease.extend(10_000);
    const keys: string[] = [];
    for await (const { key } of one.list()) keys.push(key);
    expect(keys).toEqual(["k"]);
    await lease.release();
    // It is pushed: the waiter's own heartbeats are 20 s apart.
    expect((await waiting).fence).toBeGreaterThan(lease.fence);
    expect(await one.forceRelease("k", (await waiting).id)).toBe(true);
  });

  test("a server that tells its version to administrators alone, as etcd 3.6.5 does, will do, and rights are looked at all the same", async () => {
    const status = async () => {
      throw Object.assign(new Error("7 PERMISSION_DENIED: etcdserver: permission denied"), { code: 7 });
    };
    const without = (client: Etcd3): Etcd3 => Object.create(client, { maintenance: { value: { status } } });
    const lease = await open(user, "holdfast", without).mutex("unknown version").acquire();
    expect(await lease.release()).toBe(true);
    await expect(open(user, "elsewhere", without).mutex("k").tryAcquire()).rejects.toMatchObject({
      code: "UNAUTHORIZED",
    });
  });

  test.each([
    ["no login", undefined, "holdfast", "log in"],
    ["a wrong password", { ...user, password: "wrong" }, "holdfast", "password"],
    ["an unknown user", { ...user, username: "nobody" }, "holdfast", "password"],
    ["a prefix without rights", user, "elsewhere", "docs/stores/etcd.md"],
    ["a prefix that only begins alike", user, "holdfast2", "docs/stores/etcd.md"],
  ])("%s is UNAUTHORIZED, and says what to do", async (_, auth, prefix, what) => {
    const locks = open(auth, prefix);
    await expect(locks.mutex("k").tryAcquire()).rejects.toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining(what),
    });
  });
});
