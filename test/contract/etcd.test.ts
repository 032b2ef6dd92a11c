/** The suites over a real etcd of one member. */
import { driverContract, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../engines/etcd.ts";
import { connectSteadily } from "../stores/etcd/participants.ts";
import { etcdHarness, etcdSettings } from "./etcd-harness.ts";

describe.skipIf(!canRunEtcd())("etcd", () => {
  let server: EtcdMember;
  // All tests share a few clients, so one that keeps away from a server for a while would fail all that run beside it.
  const { store, driver, end } = etcdHarness("one member", () => connectSteadily(server.url));

  beforeAll(async () => {
    server = await startEtcd(etcdSettings);
  }, 60_000);

  afterAll(async () => {
    end();
    await server?.stop();
  });

  const concurrent = { describe: describe.concurrent, it };
  storeContract(store, concurrent);
  driverContract(driver, concurrent);
});
