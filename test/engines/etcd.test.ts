import { existsSync } from "node:fs";
import { Etcd3 } from "etcd3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isRunning, until } from "./engine.ts";
import { canRunEtcd, type EtcdCluster, type EtcdMember, startEtcd, startEtcdCluster } from "./etcd.ts";

describe.skipIf(!canRunEtcd())("etcd", () => {
  test("is spoken to, paused, killed and started again with its data, and leaves nothing", async () => {
    const member = await startEtcd();
    await write(member, "kept");
    member.pause();
    await isSilent(member);
    member.resume();
    expect(await read(member)).toBe("kept");
    await member.kill();
    await member.restart();
    await until("it kept its data", async () => (await read(member)) === "kept");
    await member.stop();
    expect([isRunning(member.process.pid!), existsSync(member.folder)]).toEqual([false, false]);
  });

  describe("a cluster of three", () => {
    let cluster: EtcdCluster;
    beforeAll(async () => {
      cluster = await startEtcdCluster();
    }, 60_000);
    afterAll(() => cluster.stop());

    test("loses a leader that is cut off, which then serves nobody, and takes it back", async () => {
      const leader = await cluster.leader();
      const [one] = cluster.members.filter((member) => member !== leader);
      cluster.cutOff(leader);
      // The old leader goes on believing for a while; a write is what it cannot do.
      await expect(write(leader, "lost", 500)).rejects.toThrow();
      await until("the others have another leader", async () => {
        const status = await one!.status();
        return status.leader !== undefined && status.leader !== (await leader.status()).id;
      });
      await write(one!, "kept");
      await expect(write(leader, "lost", 500)).rejects.toThrow();
      cluster.heal();
      await until("it has caught up", async () => (await read(leader)) === "kept");
    });

    test("goes on without a member that was killed, and takes it back", async () => {
      const leader = await cluster.leader();
      await leader.kill();
      const other = await cluster.leader();
      expect(other).not.toBe(leader);
      await until("a majority is enough", () => write(other, "without").then(() => true));
      await leader.restart();
      await until("it has caught up", async () => (await read(leader)) === "without");
    });

    test("stands still without a majority", async () => {
      const [one, two, three] = cluster.members;
      await until("all is well", () => write(one!, "before").then(() => true));
      two!.pause();
      three!.pause();
      await Promise.all([two!, three!].map(isSilent));
      await expect(write(one!, "never", 500)).rejects.toThrow();
      two!.resume();
      three!.resume();
      await until("it goes on", () => write(one!, "after").then(() => true));
    });
  });
});

/** A moment may pass until the last thread of a paused member has stopped. */
function isSilent(member: EtcdMember): Promise<void> {
  const answers = () =>
    member.status().then(
      () => true,
      () => false,
    );
  return until("it is silent", async () => !(await answers()));
}

async function write(member: EtcdMember, value: string, withinMs = 1_000): Promise<void> {
  await using client = closing(member);
  await client.etcd
    .put("key")
    .value(value)
    .options({ deadline: Date.now() + withinMs });
}

async function read(member: EtcdMember, withinMs = 1_000): Promise<string | null> {
  await using client = closing(member);
  return await client.etcd
    .get("key")
    .options({ deadline: Date.now() + withinMs })
    .string();
}

/** A client of its own each time: one that met an outage keeps away from its host for some seconds. */
function closing(member: EtcdMember) {
  const etcd = new Etcd3({ hosts: member.url });
  return { etcd, [Symbol.asyncDispose]: async () => etcd.close() };
}
