/** One of several processes that call the same API. Together they must not have more than three calls open. */
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";

/** The limit of the API, which all workers name alike. */
const CALLS_AT_A_TIME = 3;

// A worker of this demo has no business without it: also when the demo itself was killed.
process.once("disconnect", () => process.exit(0));

const [locksUrl = "", apiUrl = "", calls = "0"] = process.argv.slice(2);
const locks = createLocks(remoteStore(locksUrl), { application: "api-rate-example" });
// The permits of a worker that dies come back after this long.
const permits = locks.semaphore("partner-api", CALLS_AT_A_TIME, { ttlMs: 4_000 });

// All at once: the semaphore lets through what the API allows, in the order in which it was asked.
await Promise.all(
  Array.from({ length: Number(calls) }, (_, call) => permits.run((lease) => callApi(call, lease.signal))),
);
await locks.close();
process.disconnect?.();

/** The signal ends a call whose permit was lost: somebody else may have it by then. */
async function callApi(call: number, signal: AbortSignal): Promise<void> {
  const response = await fetch(`${apiUrl}/calls/${call}`, { signal });
  await response.text();
  process.send?.({ call, status: response.status });
}
