/** Ways to take a lock of a server: the remote store's session, and one call for each step. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import * as grpc from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { locks as wire } from "../../src/protocol/index.ts";
import type { Contender } from "../redis/contenders.ts";

const TTL_MS = 30_000;

export type RemoteName = "Holdfast" | "unary gRPC by grpc-js" | "unary gRPC by Connect";

interface Address {
  readonly url: string;
  readonly port: number;
}

export const remoteContenders: Readonly<Record<RemoteName, (server: Address) => Promise<Contender>>> = {
  Holdfast: async ({ url }) => {
    // A machine that is too busy shows as latency, not as an outage.
    const locks = createLocks(remoteStore(url), { requestTimeoutMs: 60_000 });
    return {
      async acquire(key) {
        const lease = await locks.mutex(key, { ttlMs: TTL_MS }).acquire();
        return () => lease.release();
      },
      close: () => locks.close(),
    };
  },

  "unary gRPC by grpc-js": async ({ port }) => {
    const definition = loadSync("holdfast/v1/locks.proto", { includeDirs: ["proto"], longs: String });
    const { holdfast } = grpc.loadPackageDefinition(definition) as unknown as {
      holdfast: { v1: { Locks: grpc.ServiceClientConstructor } };
    };
    const client = new holdfast.v1.Locks(`127.0.0.1:${port}`, grpc.credentials.createInsecure());
    const call = (method: string, request: object) =>
      new Promise<{ lease: object }>((resolve, reject) => {
        const unary = (client as unknown as Record<string, (...args: unknown[]) => void>)[method]!;
        unary.call(client, request, (error: unknown, answer: { lease: object }) =>
          error ? reject(error) : resolve(answer),
        );
      });
    return {
      async acquire(key) {
        const { lease } = await call("acquireDetached", { key, ttlMs: TTL_MS });
        return () => call("release", lease);
      },
      close: async () => client.close(),
    };
  },

  "unary gRPC by Connect": async ({ url }) => {
    const client = createClient(wire.Locks, createGrpcTransport({ baseUrl: url }));
    return {
      async acquire(key) {
        const { lease } = await client.acquireDetached({ key, ttlMs: TTL_MS });
        const { id, token } = lease!;
        return () => client.release({ key, id, token });
      },
      close: async () => {},
    };
  },
};
