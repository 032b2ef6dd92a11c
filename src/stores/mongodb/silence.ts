/** A server that does not answer, and a driver that takes long to notice. */
import { StoreUnavailableError } from "../../store/index.ts";
import type { MongodbClient } from "./database.ts";

const warned = new WeakSet<MongodbClient>();

/**
 * Only its monitor tells the driver that a silent server's connections are dead, after a heartbeat and a time to connect: 40 s by default. Until
 * then each of them is tried by itself, and two attempts to connect keep all others waiting.
 */
export function noteSilence(client: MongodbClient, timeoutMs: number): void {
  const { connectTimeoutMS = 0, heartbeatFrequencyMS = 0 } = client.options ?? {};
  if (connectTimeoutMS + heartbeatFrequencyMS <= 2 * timeoutMs || warned.has(client)) return;
  warned.add(client);
  process.emitWarning(
    `MongoDB did not answer within ${timeoutMs} ms. If the network has forgotten its connections, the driver notices only after connectTimeoutMS and heartbeatFrequencyMS, ${connectTimeoutMS + heartbeatFrequencyMS} ms in all. Give the MongoClient less of both, together at most ${2 * timeoutMs} ms.`,
    { type: "HoldfastWarning", code: "SLOW_RECOVERY" },
  );
}

export function unanswered(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `MongoDB is unavailable: it did not answer within ${timeoutMs} ms. The result of the request is unknown.`,
  );
}
