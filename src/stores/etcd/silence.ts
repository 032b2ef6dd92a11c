/** A network that forgets connections: the etcd3 client notices late. */
import type { EtcdClient } from "./client.ts";

/** The time for which the client's default policy avoids a host after three failures. */
const DEFAULT_REST_MS = 5_000;

const warned = new WeakSet<EtcdClient>();

/** The driver gives up after this share of `requestTimeoutMs`. */
export const PATIENCE = 0.9;

/** Warns once for each client whose default policy recovers later than two request timeouts. */
export function noteSilence(client: EtcdClient, patienceMs: number): void {
  const requestTimeoutMs = Math.round(patienceMs / PATIENCE);
  if (requestTimeoutMs >= DEFAULT_REST_MS || warned.has(client)) return;
  if (hasHostPolicy(client)) return;
  warned.add(client);
  process.emitWarning(
    `etcd did not answer in time. After three failures the client avoids a host for ${DEFAULT_REST_MS} ms, which exceeds requestTimeoutMs (${requestTimeoutMs} ms). Give the Etcd3 client a policy faultHandling.host with a shorter halfOpenAfter, as docs/stores/etcd.md shows.`,
    { type: "HoldfastWarning", code: "SLOW_RECOVERY" },
  );
}

/** Etcd3 keeps its options in a property that its types protect. */
function hasHostPolicy(client: EtcdClient): boolean {
  const { options } = Object(client) as { options?: { faultHandling?: { host?: unknown } } };
  return options?.faultHandling?.host !== undefined;
}
