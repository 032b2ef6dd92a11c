/** The suites over three real members of etcd. Each instance has a member of its own to talk to, which need not be the leader. */
import { driverContract, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunEtcd, type EtcdCluster, startEtcdCluster } from "../engines/etcd.ts";
import { connectSteadily } from "../stores/etcd/participants.ts";
import { etcdHarness, etcdSettings } from "./etcd-harness.ts";

describe.skipIf(!canRunEtcd())("etcd: a cluster", () => {
  let cluster: EtcdCluster;
  const { store, driver, end } = etcdHarness("three members", (place) => {
    const { members } = cluster;
    return connectSteadily(members[place % members.length]!.url);
  });

  beforeAll(async () => {
    cluster = await startEtcdCluster(etcdSettings);
  }, 60_000);

  afterAll(async () => {
    end();
    await cluster?.stop();
  });

  const concurrent = { describe: describe.concurrent, it };
  storeContract(store, concurrent);
  driverContract(driver, concurrent);
});
