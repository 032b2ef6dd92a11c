/** Ends requests to a silent server. The `mongodb` driver keeps its own connections. */
import { StoreUnavailableError } from "../../store/index.ts";
import type { MongodbClient } from "./client.ts";

const warned = new WeakSet<MongodbClient>();

/**
 * Aborts a request after `timeoutMs`, which ends its connection: the driver would keep both for as long as TCP does, up to a quarter of
 * an hour.
 */
export async function answered<T>(
  client: MongodbClient | undefined,
  timeoutMs: number,
  ask: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const request = new AbortController();
  const timer = setTimeout(() => {
    request.abort(
      new StoreUnavailableError(
        `MongoDB is unavailable: it did not answer within ${timeoutMs} ms. The result of the request is unknown.`,
      ),
    );
    if (client !== undefined) warnOfSlowRecovery(client, timeoutMs);
  }, timeoutMs);
  try {
    return await ask(request.signal);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * The driver replaces the connections of a silent server only after a heartbeat of its monitor and a time to connect: 40 s by default.
 * Until then it tries each of them.
 */
function warnOfSlowRecovery(client: MongodbClient, timeoutMs: number): void {
  const { connectTimeoutMS = 0, heartbeatFrequencyMS = 0 } = client.options ?? {};
  if (connectTimeoutMS + heartbeatFrequencyMS <= 2 * timeoutMs || warned.has(client)) return;
  warned.add(client);
  process.emitWarning(
    `MongoDB did not answer within ${timeoutMs} ms. If the network has forgotten its connections, the driver notices only after connectTimeoutMS and heartbeatFrequencyMS, ${connectTimeoutMS + heartbeatFrequencyMS} ms in all. Give the MongoClient less of both, together at most ${2 * timeoutMs} ms.`,
    { type: "HoldfastWarning", code: "SLOW_RECOVERY" },
  );
}
