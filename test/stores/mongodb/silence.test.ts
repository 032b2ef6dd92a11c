/** Connections that a network has forgotten: nothing comes back over them, and no end is told. */
import { once } from "node:events";
import { createLocks } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb";
import { MongoClient as MongoClient6 } from "mongodb6";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunMongod, canRunMongodb, type MongodbServer, startMongodb } from "../../engines/mongodb.ts";
import { forgetful } from "../forgetful-network.ts";
import { openSockets } from "../open-sockets.ts";

const timeoutMs = 1_000;

// The other server is too old for version 7 of the driver.
const versions = (await canRunMongod("silent connections of driver 7")) ? [6, 7] : [6];

describe.skipIf(!(await canRunMongodb()))("mongodb: silent connections", { timeout: 60_000 }, () => {
  let server: MongodbServer;
  beforeAll(async () => {
    server = await startMongodb();
  }, 60_000);
  afterAll(() => server?.stop());

  const urlAt = (port: number) => server.url.replace(`:${server.port}`, `:${port}`);

  function open(client: MongoClient | MongoClient6, requestTimeoutMs: number) {
    const store = mongodbStore(client.db("silence"), { requestTimeoutMs: timeoutMs });
    const locks = createLocks(store, { requestTimeoutMs, onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      await client.close();
    });
    return locks;
  }

  /** What the page of the store advises. */
  const advised = { connectTimeoutMS: timeoutMs, heartbeatFrequencyMS: timeoutMs / 2 };

  function clientAt(port: number, options: { readonly minPoolSize?: number } = {}, version = 6) {
    const settings = { ...advised, ...options };
    return version === 6 ? new MongoClient6(urlAt(port), settings) : new MongoClient(urlAt(port), settings);
  }

  test.each(versions)(
    "driver %d works again within two timeouts after the network does, and nothing piles up meanwhile",
    async (version) => {
      const network = await forgetful(server.port);
      onTestFinished(() => network.reset());
      const client = clientAt(network.port, {}, version);
      const locks = open(client, timeoutMs);
      await Promise.all(["a", "b", "c", "d"].map((key) => locks.mutex(key).run(() => {})));
      const before = openSockets(network.port);
      network.fallSilent();
      for (let round = 0; round < 5; round++) {
        const asked = ["a", "b", "c", "d"].map((key) => locks.mutex(key).tryAcquire());
        for (const { status } of await Promise.allSettled(asked)) expect(status).toBe("rejected");
        expect(openSockets(network.port)).toBeLessThanOrEqual(before + 6);
      }
      network.comeBack();
      const after = createLocks(mongodbStore(client.db("silence"), { requestTimeoutMs: timeoutMs }), {
        requestTimeoutMs: 3 * timeoutMs,
      });
      expect(await (await after.mutex("after").tryAcquire())?.release()).toBe(true);
      await after.close();
    },
  );

  test("connections that are forgotten in a moment are replaced within two timeouts", async () => {
    const network = await forgetful(server.port);
    onTestFinished(() => network.reset());
    const client = clientAt(network.port, { minPoolSize: 10 });
    const locks = open(client, 3 * timeoutMs);
    await Promise.all(Array.from({ length: 10 }, (_, nth) => locks.mutex(`k${nth}`).run(() => {})));
    network.fallSilent();
    network.comeBack();
    expect(await (await locks.mutex("after").tryAcquire())?.release()).toBe(true);
  });

  test("a client with slow recovery gets one warning with the options to set", async () => {
    const network = await forgetful(server.port);
    onTestFinished(() => network.reset());
    const locks = open(new MongoClient6(urlAt(network.port)), timeoutMs);
    await locks.mutex("told").run(() => {});
    network.fallSilent();
    const warnings: unknown[] = [];
    const note = (warning: unknown) => warnings.push(warning);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));
    const warned = once(process, "warning");
    await expect(locks.mutex("told").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await warned;
    await expect(locks.mutex("told").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(warnings).toMatchObject([
      {
        code: "SLOW_RECOVERY",
        message: expect.stringContaining("connectTimeoutMS and heartbeatFrequencyMS"),
      },
    ]);
    network.reset();
  });
});
