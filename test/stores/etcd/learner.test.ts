/** A member that learns what the others know, and has no vote: etcd lets it serve nobody. */
import { Etcd3 } from "etcd3";
import { createLocks, type Locks } from "holdfast";
import { type EtcdClient, etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd, startEtcdLearner } from "../../engines/etcd.ts";
import { failure } from "../failure.ts";
import { connect } from "./participants.ts";

describe.skipIf(!canRunEtcd())("etcd: a learner", () => {
  let voter: EtcdMember;
  let learner: EtcdMember;
  beforeAll(async () => {
    voter = await startEtcd();
    learner = await startEtcdLearner(voter);
    await until("the learner knows the leader", async () => (await learner.status()).leader !== undefined);
  }, 60_000);
  afterAll(async () => {
    await learner?.stop();
    await voter?.stop();
  });

  function newClient(create: () => Etcd3): Etcd3 {
    const client = create();
    onTestFinished(() => client.close());
    return client;
  }

  function open(client: EtcdClient): Locks {
    const locks = createLocks(etcdStore(client), { onWarning: () => {}, requestTimeoutMs: 500 });
    onTestFinished(() => locks.close());
    return locks;
  }

  const refused = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("etcdctl member promote") };

  test("a client that reaches a learner alone is told what to do, also while it keeps away from it", async () => {
    const locks = open(newClient(() => new Etcd3({ hosts: learner.url })));
    for (const call of [
      () => locks.mutex("k").tryAcquire(),
      () => locks.mutex("k").acquire(),
      () => locks.inspect("k"),
      () => locks.list().next(),
    ]) {
      const error = await failure(call());
      expect(error).toMatchObject(refused);
      // Being patient with this member is of no use.
      expect(error.message).not.toContain("faultHandling");
    }
  });

  test("a client that reaches others as well is served by those, whoever has told of itself", async () => {
    // Which member answers what is left to chance by a client of both.
    const { maintenance } = newClient(() => connect(learner.url));
    const { kv, leaseClient, watchClient } = newClient(() => connect(voter.url));
    const lease = await open({ kv, leaseClient, watchClient, maintenance }).mutex("beside").acquire();
    expect(await lease.release()).toBe(true);
  });

  // The last one: it is a learner no more.
  test("whoever was refused is served when the learner has been promoted", async () => {
    const locks = open(newClient(() => connect(learner.url)));
    expect(await failure(locks.mutex("later").tryAcquire())).toMatchObject(refused);
    const admin = newClient(() => connect(voter.url));
    const { id } = await learner.status();
    await until("it has learnt enough", async () => {
      await admin.cluster.memberPromote({ ID: id });
      return true;
    });
    await until("it serves", () => locks.mutex("later").run(() => true));
  });
});
