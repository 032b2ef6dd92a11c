/** Every verb of both services, with every kind of permission. */
import { Code, ConnectError } from "@connectrpc/connect";
import { HoldfastError, memoryStore, type Store } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { hashToken, type LockServer, type Verb } from "holdfast/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { claims } from "../../src/protocol/index.ts";
import { claimRequest } from "../record/claim-request.ts";
import { startLockServer } from "./lock-server.ts";
import { locksOf } from "./scene.ts";

/** The verbs that each token permits below "own/". All tokens permit everything below "shared/", and nothing elsewhere. */
const tokens: Readonly<Record<string, readonly Verb[]>> = {
  nothing: [],
  acquire: ["acquire"],
  read: ["read"],
  admin: ["admin"],
  all: ["acquire", "read", "admin"],
};

const store = memoryStore();
let server: LockServer;

beforeAll(async () => {
  server = await startLockServer({
    store,
    tokens: Object.entries(tokens).map(([name, verbs]) => ({
      name,
      sha256: hashToken(`token-${name}`),
      grants: [
        { prefix: "own/", verbs },
        { prefix: "shared/", verbs: ["acquire", "read", "admin"] },
      ],
    })),
  });
});

afterAll(() => server.stop({ graceMs: 0 }));

interface Caller {
  readonly locks: ReturnType<typeof locksOf>;
  readonly session: Store;
}

/** Everything that can be asked for, and the permission that it takes. */
const asks: readonly (readonly [
  name: string,
  verb: Verb,
  ask: (caller: Caller, key: string) => Promise<unknown>,
])[] = [
  ["Acquire", "acquire", ({ locks }, key) => first(locks.acquire({ key, detached: true, maxWaitMs: 0 }))],
  ["AcquireDetached", "acquire", ({ locks }, key) => locks.acquireDetached({ key, maxWaitMs: 0 })],
  [
    "AcquireMany",
    "acquire",
    ({ locks }, key) =>
      first(
        locks.acquireMany({
          keys: [{ key: "shared/also" }, { key }],
          terms: { maxWaitMs: 0, detached: true },
        }),
      ),
  ],
  ["Release", "acquire", ({ locks }, key) => locks.release({ key, id: "i", token: "t" })],
  ["Extend", "acquire", ({ locks }, key) => locks.extend({ key, id: "i", token: "t" }).catch(unlessNotHeld)],
  ["Status", "read", ({ locks }, key) => locks.status({ key })],
  ["List", "read", ({ locks }, key) => locks.list({ prefix: key })],
  ["Watch a key", "read", ({ locks }, key) => first(locks.watch({ what: { case: "key", value: key } }))],
  [
    "Watch a prefix",
    "read",
    ({ locks }, key) => first(locks.watch({ what: { case: "prefix", value: key } })),
  ],
  ["ForceRelease", "admin", ({ locks }, key) => locks.forceRelease({ key, id: "i" })],
  [
    "a session's acquire",
    "acquire",
    ({ session }, key) => session.acquire(claimRequest("i", { key, wait: false })),
  ],
  ["a session's renew", "acquire", ({ session }, key) => oneRenewed(session, { key, id: "i", token: "t" })],
  ["a session's renew without a token", "admin", ({ session }, key) => oneRenewed(session, { key, id: "i" })],
  ["a session's release", "acquire", ({ session }, key) => session.release([{ key, id: "i", token: "t" }])],
  ["a session's release without a token", "admin", ({ session }, key) => session.release([{ key, id: "i" }])],
  ["a session's look at a key", "read", ({ session }, key) => session.look({ key, maxClaims: 1 })],
  [
    "a session's listing",
    "read",
    ({ session }, key) => session.look({ prefix: key, limit: 1, maxClaims: 1 }),
  ],
];

describe.each(Object.keys(tokens))("the token %s", (name) => {
  const caller = (token: string): Caller => ({
    locks: locksOf(server, token),
    session: remoteStore(server.url, { token }),
  });

  test.each(asks)("%s", async (what, verb, ask) => {
    const asking = caller(`token-${name}`);
    const permitted = tokens[name]?.includes(verb) === true;
    try {
      const outcome = await outcomeOf(ask(asking, `own/${what}/${name}`));
      expect(outcome).toBe(permitted ? "permitted" : "UNAUTHORIZED");
      expect(await outcomeOf(ask(asking, `shared/${what}/${name}`))).toBe("permitted");
      // A prefix ends where it ends, and nobody has everything.
      for (const other of ["own", "other/key", "sharedx"]) {
        expect(await outcomeOf(ask(asking, other))).toBe("UNAUTHORIZED");
      }
    } finally {
      await asking.session.close();
    }
  });
});

describe.each([
  ["no token", undefined],
  ["an unknown token", "token-unknown"],
  ["the hash of a token", hashToken("token-all")],
])("%s", (_, token) => {
  test.each(asks)("%s", async (_what, _verb, ask) => {
    const session = remoteStore(server.url, token === undefined ? {} : { token });
    try {
      expect(await outcomeOf(ask({ locks: locksOf(server, token), session }, "shared/key"))).toBe(
        "UNAUTHORIZED",
      );
    } finally {
      await session.close();
    }
  });
});

test("a caller without a known token is told so in gRPC's own words", async () => {
  const error = await locksOf(server, undefined).status({ key: "k" }).catch(ConnectError.from);
  expect((error as ConnectError).code).toBe(Code.Unauthenticated);
  const forbidden = await locksOf(server, "token-read")
    .forceRelease({ key: "own/k", id: "i" })
    .catch(ConnectError.from);
  expect((forbidden as ConnectError).code).toBe(Code.PermissionDenied);
});

test("one claim that may not be renewed does not cost the others of the same heartbeat", async () => {
  const session = remoteStore(server.url, { token: "token-nothing" });
  const request = claimRequest("i", { key: "shared/mixed", ttlMs: 10_000 });
  await session.acquire(request);
  const answers = await session.renew([{ key: "own/k", id: "i", token: "t" }, request]);
  expect(answers).toMatchObject([{ state: "failed", error: { code: "UNAUTHORIZED" } }, { state: "held" }]);
  await session.close();
});

// Another client reads the owner in a listing and subscribes to it: the store pushes to one subscriber only.
test("grants are pushed only to the client that asked, also when another names its owner", async () => {
  const mine = remoteStore(server.url, { token: "token-acquire" });
  const theirs = remoteStore(server.url, { token: "token-all" });
  const told: string[] = [];
  mine.onGrant("owner-1", () => told.push("mine"));
  const key = "own/pushed";
  const holder = claimRequest("holder", { key, ttlMs: 10_000 });
  await mine.acquire(holder);
  theirs.onGrant("owner-1", () => told.push("theirs"));
  await theirs.look({ key, maxClaims: 1 });
  await mine.acquire(claimRequest("waiter", { key, ttlMs: 10_000, owner: "owner-1" }));
  await mine.release([holder]);
  await expect.poll(() => told).toEqual(["mine"]);
  await Promise.all([mine.close(), theirs.close()]);
});

async function first<T>(stream: AsyncIterable<T>): Promise<T | undefined> {
  for await (const event of stream) return event;
  return undefined;
}

async function oneRenewed(
  session: Store,
  ref: { key: string; id: string; token?: string },
): Promise<unknown> {
  const [answer] = await session.renew([ref]);
  if (answer?.state === "failed") throw answer.error;
  return answer;
}

/** A lease that is not there was looked for, so that was permitted. */
function unlessNotHeld(error: unknown): void {
  if (codeOf(error) !== "NOT_HELD") throw error;
}

async function outcomeOf(asked: Promise<unknown>): Promise<string> {
  try {
    await asked;
    return "permitted";
  } catch (error) {
    return codeOf(error);
  }
}

function codeOf(error: unknown): string {
  if (error instanceof HoldfastError) return error.code;
  const [detail] = ConnectError.from(error).findDetails(claims.FailureSchema);
  return detail === undefined ? String(error) : (claims.ErrorCode[detail.code] ?? "unknown");
}
