/** Clients that share no code with the server: grpc-js with the raw .proto files, and plain HTTP. */
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { LockServer } from "holdfast/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startLockServer } from "./lock-server.ts";

const protoFolder = fileURLToPath(new URL("../../proto", import.meta.url));
const definition = loadSync(
  ["holdfast/v1/locks.proto", "holdfast/v1/session.proto", "grpc/health/v1/health.proto"],
  { includeDirs: [protoFolder], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true },
);
const services = grpc.loadPackageDefinition(definition) as unknown as {
  holdfast: { v1: Record<"Locks" | "Session", grpc.ServiceClientConstructor> };
  grpc: { health: { v1: { Health: grpc.ServiceClientConstructor } } };
};

let server: LockServer;

beforeAll(async () => {
  server = await startLockServer();
});

afterAll(() => server.stop({ graceMs: 0 }));

type Answer = Record<string, never>;

/** Calls a unary method by its name. */
function call(client: grpc.Client, method: string, request: object): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const unary = (client as unknown as Record<string, (...args: unknown[]) => void>)[method]!;
    unary.call(client, request, (error: unknown, answer: Answer) =>
      error ? reject(error) : resolve(answer),
    );
  });
}

describe("grpc-js", () => {
  const open = (service: grpc.ServiceClientConstructor) => {
    return new service(`127.0.0.1:${server.port}`, grpc.credentials.createInsecure());
  };

  test("acquires with a stream of events, and releases", async () => {
    const locks = open(services.holdfast.v1.Locks);
    const stream = (
      locks as unknown as { acquire(request: object): grpc.ClientReadableStream<Answer> }
    ).acquire({
      key: "grpc-js",
      ttl_ms: 300,
      info: "from another toolchain",
    });
    const events: Answer[] = [];
    for await (const event of stream) {
      events.push(event as Answer);
      if (events.length === 2) {
        const { lease } = (events[0] as unknown as { acquired: { lease: object } }).acquired;
        expect(await call(locks, "release", lease)).toEqual({ released: true });
      }
    }
    expect(events).toMatchObject([
      {
        event: "acquired",
        acquired: { lease: { key: "grpc-js", fence: expect.stringMatching(/^\d{16}$/) } },
      },
      { event: "heartbeat" },
    ]);
    locks.close();
  });

  test("is told the reason of an error by its status and its detail", async () => {
    const locks = open(services.holdfast.v1.Locks);
    const error: grpc.ServiceError = await call(locks, "extend", { key: "k", id: "i", token: "t" }).then(
      () => expect.unreachable(),
      (reason) => reason,
    );
    expect(error.code).toBe(grpc.status.FAILED_PRECONDITION);
    const [details] = error.metadata.get("grpc-status-details-bin");
    expect(String(details)).toContain("holdfast.v1.Failure");
    locks.close();
  });

  test("opens a session, says hello, acquires, is pushed a grant, and releases", async () => {
    const client = open(services.holdfast.v1.Session);
    const stream = (client as unknown as { open(): grpc.ClientDuplexStream<object, Answer> }).open();
    const answers: Answer[] = [];
    stream.on("data", (message: Answer) => answers.push(message));
    const acquire = (number: number, id: string) => ({
      number,
      acquire: { terms: 0, key: "session", id, token: `secret-${id}`, wait: true },
    });
    const terms = [{ weight: 1, limit: 1, ttl_ms: 10_000, owner: "grpc-js" }];
    stream.write({ hello: { version: 1, agent: "a test" }, listen: ["grpc-js"] });
    stream.write({ terms, operations: [acquire(1, "first"), acquire(2, "second")] });
    await expect.poll(() => answers.flatMap(({ answers }) => answers)).toHaveLength(2);
    stream.write({
      operations: [
        { number: 3, release: { refs: [{ key: "session", id: "first", token: "secret-first" }] } },
      ],
    });
    await expect
      .poll(() => answers.flatMap(({ granted }) => granted))
      .toMatchObject([
        { owner: "grpc-js", key: "session", id: "second", fence: expect.stringMatching(/^\d{16}$/) },
      ]);
    expect(answers[0]).toMatchObject({ welcome: { version: 1, store: "memory", counts: true } });
    expect(answers.flatMap(({ answers }) => answers)).toMatchObject([
      { number: 1, acquired: { state: "STATE_HELD" } },
      { number: 2, acquired: { state: "STATE_WAITING" } },
      { number: 3, released: { released: [true] } },
    ]);
    const ended = once(stream, "status");
    stream.end();
    expect((await ended)[0]).toMatchObject({ code: grpc.status.OK });
    client.close();
  });

  test("a session that has said all it wanted in one go is answered all of it, and ends", async () => {
    const client = open(services.holdfast.v1.Session);
    const stream = (client as unknown as { open(): grpc.ClientDuplexStream<object, Answer> }).open();
    const answered: number[] = [];
    stream.on("data", ({ answers }: { answers: { number: number }[] }) => {
      answered.push(...answers.map(({ number }) => number));
    });
    const release = { refs: [{ key: "k", id: "i", token: "t" }] };
    const operations = (first: number) =>
      Array.from({ length: 100 }, (_, n) => ({ number: first + n, release }));
    stream.write({ hello: { version: 1 }, operations: operations(1) });
    stream.write({ operations: operations(101) });
    stream.end({ operations: operations(201) });
    expect((await once(stream, "status"))[0]).toMatchObject({ code: grpc.status.OK });
    expect(answered).toEqual(Array.from({ length: 300 }, (_, n) => n + 1));
    client.close();
  });

  test("asks for the health as load balancers do", async () => {
    const health = open(services.grpc.health.v1.Health);
    for (const service of ["", "holdfast.v1.Locks", "holdfast.v1.Session"]) {
      expect(await call(health, "check", { service })).toEqual({ status: "SERVING" });
    }
    await expect(call(health, "check", { service: "other" })).rejects.toMatchObject({
      code: grpc.status.NOT_FOUND,
    });
    health.close();
  });
});

describe("HTTP and JSON", () => {
  const post = async (method: string, body: unknown) => {
    const response = await fetch(`${server.url}/holdfast.v1.Locks/${method}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return { status: response.status, body: (await response.json()) as Record<string, never> };
  };

  test("fences are decimal strings, because JSON numbers lose digits", async () => {
    const acquired = await post("AcquireDetached", { key: "json", ttlMs: 10_000, info: "by fetch" });
    expect(acquired).toMatchObject({
      status: 200,
      body: { acquired: true, lease: { key: "json", fence: expect.stringMatching(/^\d{16}$/) } },
    });
    const { key, id, token } = acquired.body["lease"] as unknown as Record<string, string>;
    expect((await post("AcquireDetached", { key: "json", maxWaitMs: 0 })).body).toEqual({});
    expect((await post("Status", { key })).body).toMatchObject({
      status: { key, heldCount: 1, held: [{ id, info: "by fetch", fence: expect.any(String) }] },
    });
    expect((await post("Release", { key, id, token })).body).toEqual({ released: true });
  });

  test("an error is a status, a code, and a detail with Holdfast's own", async () => {
    expect(await post("AcquireDetached", { key: "" })).toMatchObject({
      status: 400,
      body: {
        code: "invalid_argument",
        details: [{ type: "holdfast.v1.Failure", debug: { code: "ERROR_CODE_INVALID_ARGUMENT" } }],
      },
    });
  });

  test("a method without side effects can be asked for with GET", async () => {
    const message = encodeURIComponent(JSON.stringify({ key: "by-get" }));
    const response = await fetch(
      `${server.url}/holdfast.v1.Locks/Status?connect=v1&encoding=json&message=${message}`,
    );
    expect(await response.json()).toEqual({ status: { key: "by-get" } });
  });

  test("what there is not is 404", async () => {
    expect((await fetch(`${server.url}/nowhere`)).status).toBe(404);
    expect((await fetch(`${server.url}/holdfast.v1.Session/Open`, { method: "POST" })).status).toBe(404);
  });
});

describe("pages", () => {
  test("healthz and readyz answer, and readyz says when the store does not", async () => {
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
    expect((await fetch(`${server.url}/readyz`)).status).toBe(200);
    const { memoryStore } = await import("holdfast");
    const closed = memoryStore();
    const other = await startLockServer({ store: closed });
    await closed.close();
    expect((await fetch(`${other.url}/healthz`)).status).toBe(200);
    expect((await fetch(`${other.url}/readyz`)).status).toBe(503);
    await other.stop({ graceMs: 0 });
  });

  test("metrics count what happens", async () => {
    const other = await startLockServer();
    const post = async (method: string, body: object) => {
      const response = await fetch(`${other.url}/holdfast.v1.Locks/${method}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return (await response.json()) as { lease: { key: string; id: string; token: string } };
    };
    const { lease } = await post("AcquireDetached", { key: "k", requestId: "i", token: "t" });
    await post("Extend", { key: "k", id: "i", token: "t" });
    await post("AcquireDetached", { key: "k", maxWaitMs: 0 });
    const waiting = post("AcquireDetached", { key: "k", ttlMs: 60_000 });
    await expect
      .poll(() => metrics(other))
      .toMatchObject({ holdfast_waiting_claims: 1, holdfast_longest_queue: 1 });
    // A lease has fields besides those of a reference to it.
    const { key, id, token } = lease;
    await post("Release", { key, id, token });
    await waiting;
    await post("AcquireDetached", { key: "" });
    await post("AcquireDetached", { key: "short", ttlMs: 50 });
    await expect
      .poll(() => metrics(other), { timeout: 5_000 })
      .toMatchObject({
        holdfast_grants_total: 3,
        holdfast_renewals_total: expect.any(Number),
        holdfast_releases_total: 1,
        holdfast_held_claims: 1,
        holdfast_waiting_claims: 0,
        holdfast_expiries_total: 1,
        'holdfast_refusals_total{reason="contended"}': 1,
        'holdfast_errors_total{code="INVALID_ARGUMENT"}': 1,
        holdfast_wait_seconds_count: 3,
        holdfast_hold_seconds_count: 1,
        'holdfast_store_seconds_count{verb="acquire"}': expect.any(Number),
        holdfast_connections: expect.any(Number),
      });
    await other.stop({ graceMs: 0 });
  });
});

async function metrics(of: LockServer): Promise<Record<string, number>> {
  const text = await (await fetch(`${of.url}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith("holdfast_"));
  return Object.fromEntries(lines.map((line) => [line.replace(/ \S+$/, ""), Number(line.split(" ").at(-1))]));
}
