/** The suites over a real etcd of one member. */
import { Etcd3 } from "etcd3";
import { driverContract, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunEtcd, type EtcdMember, startEtcd } from "../engines/etcd.ts";
import { etcdHarness, etcdSettings } from "./etcd-harness.ts";

describe.skipIf(!canRunEtcd())("etcd", () => {
  let server: EtcdMember;
  const { store, driver, end } = etcdHarness("one member", () => new Etcd3({ hosts: server.url }));

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
