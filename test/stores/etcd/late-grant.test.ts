/** A reply that is lost when etcd grants the lease that claims hang on. */
import { GRPCUnavailableError } from "etcd3";
import { createLocks } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { connect } from "./participants.ts";

describe.skipIf(!canRunEtcd())("etcd: a late grant", () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server?.stop());

  test("an etcd lease whose grant was not heard of until its time was up is given up for another", async () => {
    const client = connect(server.url);
    const { leaseClient } = client;
    const asked: unknown[] = [];
    const grant: typeof leaseClient.leaseGrant = async (request, options) => {
      asked.push(request.ID);
      const reply = await leaseClient.leaseGrant(request, options);
      if (asked.length === 1) throw new GRPCUnavailableError("the reply is lost");
      return reply;
    };
    // What etcd says of a lease that is over, until it has removed it.
    const timeToLive: typeof leaseClient.leaseTimeToLive = async (request, options) => ({
      ...(await leaseClient.leaseTimeToLive(request, options)),
      TTL: "0",
    });
    const { kv, watchClient, maintenance } = client;
    const late = new Proxy(leaseClient, {
      get(target, name) {
        if (name === "leaseGrant") return grant;
        if (name === "leaseTimeToLive") return timeToLive;
        const member: unknown = Reflect.get(target, name);
        return typeof member === "function" ? member.bind(target) : member;
      },
    });
    const locks = createLocks(etcdStore({ kv, watchClient, maintenance, leaseClient: late }));
    onTestFinished(async () => {
      await locks.close();
      client.close();
    });
    const lease = await locks.mutex("late grant", { ttlMs: 20_000 }).acquire();
    expect(lease.held).toBe(true);
    // The first one twice, then another.
    expect([asked[1], new Set(asked).size]).toEqual([asked[0], 2]);
  });
});
