import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import fastify, { type FastifyPluginAsync } from "fastify";
import { createLocks, memoryStore, StoreUnavailableError } from "holdfast";
import { type HoldfastPluginOptions, holdfastPlugin, locked } from "holdfast/fastify";
import { describe, expect, onTestFinished, test } from "vitest";
import { gate } from "../nestjs/gate.ts";

async function start(
  options: HoldfastPluginOptions = { store: memoryStore() },
  child: FastifyPluginAsync = async () => {},
) {
  const app = fastify();
  const passage = gate();
  await app.register(holdfastPlugin, options);
  app.post<{ Params: { id: string } }>(
    "/accounts/:id",
    locked<{ Params: { id: string } }>(
      (request) => `account:${request.params.id}`,
      async (request, _reply, lease) => {
        await passage.open;
        return { id: request.params.id, key: lease.key, held: lease.held };
      },
    ),
  );
  app.post(
    "/hurry",
    locked("busy", async () => "hurried", { waitMs: 0 }),
  );
  app.post(
    "/fail",
    locked("failing", () => {
      throw new Error("body");
    }),
  );
  app.register(child);
  onTestFinished(() => {
    passage.pass();
    return app.close();
  });
  await app.ready();
  return { app, locks: app.locks, passage };
}

describe("holdfastPlugin", () => {
  test("makes the client known to the instance and to everything below it", async () => {
    const { app } = await start().catch((error) => expect.fail(String(error)));
    expect(await app.locks.mutex("k").run(() => "ran")).toBe("ran");
    expect(app.hasDecorator("locks")).toBe(true);
    expect(app.printPlugins()).toContain("holdfast");
  });

  test("closes the store that it was given, but not a client", async () => {
    const store = memoryStore();
    const first = await start({ store });
    await first.app.close();
    await expect(store.look({ key: "k", maxClaims: 1 })).rejects.toMatchObject({ code: "CLOSED" });

    const locks = createLocks(memoryStore());
    const second = await start({ locks });
    await second.app.close();
    expect((await locks.mutex("k").acquire()).held).toBe(true);
    await locks.close();
  });

  test("its client has the second heartbeat that it was given", async () => {
    const started: unknown[] = [];
    const kept = { provenUntilMs: 0, loss: undefined, prove() {}, drop() {} };
    const thread = {
      start(client: unknown) {
        started.push(client);
        return { keep: () => kept, close: async () => {} };
      },
    };
    const { app } = await start({ store: memoryStore(), thread });
    expect(started).toHaveLength(1);
    await app.close();
    await expect(start({ locks: createLocks(memoryStore()), thread })).rejects.toThrow(
      /^thread must not be set together with/,
    );
  });

  test("of two servers that share a client, one stops without the other", async () => {
    const locks = createLocks(memoryStore());
    const first = await start({ locks });
    const second = await start({ locks });
    const lease = await locks.mutex("account:1").acquire();
    const send = (app: typeof first.app) => app.inject({ method: "POST", url: "/accounts/1" });
    const stopped = send(first.app);
    await expect.poll(() => locks.stats().waiting).toBe(1);
    const kept = send(second.app);
    await expect.poll(() => locks.stats().waiting).toBe(2);
    await first.app.close();
    expect((await stopped).statusCode).toBe(503);
    await lease.release();
    second.passage.pass();
    expect((await kept).json()).toMatchObject({ held: true });
    await locks.close();
  });

  test("is there in plugins of its own context, too", async () => {
    const { app, passage } = await start({ store: memoryStore() }, async (child) => {
      child.post(
        "/child",
        locked("child", async (_request, _reply, lease) => lease.held),
      );
    });
    passage.pass();
    expect((await app.inject({ method: "POST", url: "/child" })).json()).toBe(true);
  });

  test("refuses to start without a store", async () => {
    const app = fastify();
    app.register(holdfastPlugin, {});
    await expect(app.ready()).rejects.toThrow(/neither was given/);
  });
});

describe("locked", () => {
  test("runs a handler with the lease, one request of a key after the other", async () => {
    const { app, locks, passage } = await start();
    const requests = ["1", "1", "2"].map((id) => app.inject({ method: "POST", url: `/accounts/${id}` }));
    await expect.poll(() => locks.stats()).toMatchObject({ held: 2, waiting: 1 });
    expect((await locks.inspect("account:1")).held[0]?.info).toBe("POST /accounts/:id");
    passage.pass();
    const answers = await Promise.all(requests.map(async (request) => (await request).json()));
    expect(answers).toEqual(["1", "1", "2"].map((id) => ({ id, key: `account:${id}`, held: true })));
    expect(locks.stats()).toMatchObject({ held: 0, released: 3 });
  });

  test("answers 423 when the lock does not come free in time", async () => {
    const { app, locks } = await start();
    const lease = await locks.mutex("busy").acquire();
    const refused = await app.inject({ method: "POST", url: "/hurry" });
    expect(refused.statusCode).toBe(423);
    expect(refused.json()).toMatchObject({ code: "ACQUIRE_TIMEOUT" });
    await lease.release();
    expect((await app.inject({ method: "POST", url: "/hurry" })).body).toBe("hurried");
  });

  test("answers 503 when the store is unavailable", async () => {
    const store = memoryStore();
    store.acquire = () => Promise.reject(new StoreUnavailableError("Connection refused."));
    const { app } = await start({ store, requestTimeoutMs: 50 });
    const response = await app.inject({ method: "POST", url: "/hurry" });
    expect(response.statusCode).toBe(503);
    expect(response.json()).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("passes an error of the handler on, and frees the lock", async () => {
    const { app, locks } = await start();
    const response = await app.inject({ method: "POST", url: "/fail" });
    expect(response.json()).toMatchObject({ statusCode: 500, message: "body" });
    expect((await locks.inspect("failing")).heldCount).toBe(0);
  });

  test("stops waiting for somebody who has gone", async () => {
    const { app, locks } = await start();
    await app.listen({ port: 0, host: "127.0.0.1" });
    const { port } = app.server.address() as AddressInfo;
    const lease = await locks.mutex("account:1").acquire();
    const request = httpRequest({ port, host: "127.0.0.1", method: "POST", path: "/accounts/1" });
    request.on("error", () => {});
    request.end();
    await expect.poll(() => locks.stats().waiting).toBe(1);
    request.destroy();
    await expect.poll(() => locks.stats()).toMatchObject({ waiting: 0, cancelled: 1 });
    await lease.release();
  });

  test("stops waiting when the server closes, lets handlers end, and then closes the client", async () => {
    const { app, locks, passage } = await start();
    await app.listen({ port: 0, host: "127.0.0.1" });
    const { port } = app.server.address() as AddressInfo;
    // On connections that end with their request: others that are kept alive hold the end of a server up.
    const send = async () => {
      const sent = httpRequest({
        port,
        host: "127.0.0.1",
        method: "POST",
        path: "/accounts/1",
        agent: false,
      });
      const [response] = (await once(sent.end(), "response")) as [IncomingMessage];
      return { status: response.statusCode, body: await json(response) };
    };
    const first = send();
    await expect.poll(() => locks.stats().held).toBe(1);
    const second = send();
    await expect.poll(() => locks.stats().waiting).toBe(1);
    const closing = app.close();
    expect(await second).toMatchObject({ status: 503, body: { code: "CLOSED" } });
    expect(locks.stats()).toMatchObject({ held: 1, lost: 0 });
    passage.pass();
    expect((await first).body).toMatchObject({ held: true });
    await closing;
    expect(locks.stats()).toMatchObject({ held: 0, released: 1, lost: 0 });
    await expect(locks.mutex("k").tryAcquire()).rejects.toMatchObject({ code: "CLOSED" });
  });

  test("says what is missing without the plugin, and without a handler", async () => {
    const app = fastify();
    app.post(
      "/",
      locked("k", () => "ran"),
    );
    const response = await app.inject({ method: "POST", url: "/" });
    expect(response.json().message).toContain("app.register(holdfastPlugin");
    expect(() => locked("k", undefined as never)).toThrow(/needs a handler/);
  });
});
