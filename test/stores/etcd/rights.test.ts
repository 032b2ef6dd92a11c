/** A server that wants to know who asks, a user with rights for the prefix alone, and those who lack some, who leave nothing behind. */
import { Etcd3 } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { failure } from "../failure.ts";
import { late } from "./participants.ts";
import { demandLogin, reader, root, user, writer } from "./users.ts";

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
    const locks = createLocks(etcdStore(as(client), { prefix, ...late }), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      client.close();
    });
    return locks;
  }

  /** Every key with its revision, and every lease. Those of other tests may end at any time. */
  async function everything(): Promise<readonly string[]> {
    const admin = new Etcd3({ hosts: server.url, auth: root });
    const { kvs } = await admin.getAll().exec();
    const { leases } = await admin.leaseClient.leaseLeases();
    admin.close();
    return [
      ...kvs.map(({ key, mod_revision: revision }) => `${key} of revision ${revision}`),
      ...leases.map(({ ID }) => `lease ${ID}`),
    ];
  }

  async function expectNothingNew(before: readonly string[]): Promise<void> {
    expect((await everything()).filter((each) => !before.includes(each))).toEqual([]);
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
    ["no login", undefined, "holdfast", "login"],
    ["a wrong password", { ...user, password: "wrong" }, "holdfast", "password"],
    ["an unknown user", { ...user, username: "nobody" }, "holdfast", "password"],
    ["a prefix without rights", user, "elsewhere", "docs/stores/etcd.md"],
    ["a prefix that only begins alike", user, "holdfast2", "docs/stores/etcd.md"],
    ["a right to read alone", reader, "holdfast", "read and write"],
    ["a right to write alone", writer, "holdfast", "read and write"],
  ])("%s is UNAUTHORIZED, says what to do, and leaves nothing", async (_, auth, prefix, what) => {
    const holder = await open(user).mutex("taken").acquire();
    const before = await everything();
    const locks = open(auth, prefix);
    const refused = { code: "UNAUTHORIZED", message: expect.stringContaining(what) };
    for (const call of [
      () => locks.mutex("free").tryAcquire(),
      () => locks.mutex("free").acquire(),
      // That somebody else holds it is no answer to whoever may not ask.
      () => locks.mutex("taken").tryAcquire(),
      () => locks.mutex("taken").acquire({ waitMs: 10_000 }),
    ]) {
      expect(await failure(call())).toMatchObject(refused);
    }
    await locks.close();
    await expectNothingNew(before);
    expect(await holder.release()).toBe(true);
  });

  test("a user who may only read can look at locks, and frees none", async () => {
    const holder = await open(user).mutex("shown").acquire();
    const before = await everything();
    const locks = open(reader);
    expect(await locks.inspect("shown")).toMatchObject({ heldCount: 1, fence: holder.fence });
    expect((await locks.list({ prefix: "shown" }).next()).value).toMatchObject({
      key: "shown",
      heldCount: 1,
    });
    expect(await failure(locks.forceRelease("shown", holder.id))).toMatchObject({ code: "UNAUTHORIZED" });
    await expectNothingNew(before);
    expect(await holder.release()).toBe(true);
  });
});
