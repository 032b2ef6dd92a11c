/** A lock server and its callers. Each ends with the test. */
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import type { Store } from "holdfast";
import { remoteStore } from "holdfast/remote";
import type { LockServer, ServerOptions } from "holdfast/server";
import { onTestFinished } from "vitest";
import { locks as wire } from "../../src/protocol/index.ts";
import { startLockServer } from "./lock-server.ts";

export async function serve(options: Partial<ServerOptions> = {}): Promise<LockServer> {
  const server = await startLockServer(options);
  onTestFinished(() => server.stop({ graceMs: 0 }));
  return server;
}

/** A session, as the client of the library has it. */
export function sessionOf(server: LockServer, token?: string): Store {
  const store = remoteStore(server.url, token === undefined ? {} : { token });
  onTestFinished(() => store.close());
  return store;
}

/** A caller of the simple service. */
export function locksOf({ url }: LockServer, token?: string) {
  const transport = createGrpcTransport({
    baseUrl: url,
    interceptors: [
      (next) => (request) => {
        if (token !== undefined) request.header.set("authorization", `Bearer ${token}`);
        return next(request);
      },
    ],
  });
  return createClient(wire.Locks, transport);
}
