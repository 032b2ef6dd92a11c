/** The limits for clients: their work, their memory and their claims. */
import { bounds, checkInteger } from "../store/index.ts";

export interface LimitRange {
  readonly default: number;
  readonly min: number;
  readonly max: number;
  readonly help: string;
}

function limit(help: string, usual: number, min = 1, max = 2_147_483_647): LimitRange {
  return { default: usual, min, max, help };
}

const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const { minTtlMs, maxTtlMs, infoBytes, keyBytes, defaultMaxWaiters } = bounds;

/** Each limit with its default and its range. Times are in milliseconds. */
export const limitRanges = {
  // The longest request for a claim must fit.
  maxMessageBytes: limit(
    "the longest message that the server reads, in bytes",
    1_048_576,
    16_384,
    67_108_864,
  ),
  // A client sends up to 1,000 heartbeats in one operation.
  maxOperations: limit("the most operations in one message of a session", 2_000, 1_000, 100_000),
  // Ten claims of a renewal or a release count as one operation.
  maxInFlight: limit("the most unanswered operations of a session", 10_000),
  maxBufferedBytes: limit("the most bytes that a client may leave unread", 4_194_304),
  slowReaderMs: limit(
    "how long a client may leave answers unread before the server cuts it off",
    10_000,
    100,
    HOUR_MS,
  ),
  maxKeptBytes: limit(
    "the most bytes of incomplete requests and unread answers, of all calls and sessions together",
    67_108_864,
    1_048_576,
    17_179_869_184,
  ),
  silenceMs: limit("how long a connection may be silent, pings included", 30_000, 100, HOUR_MS),
  maxConnections: limit("the most connections", 10_000),
  maxStreams: limit("the most calls and sessions of one connection", 1_000),
  maxCalls: limit("the most open calls and sessions of one token", 10_000),
  maxWaitingCalls: limit("the most calls of one token that wait for a lock", 5_000),
  maxWatches: limit("the most watches of one token", 500),
  maxClaims: limit("the most claims of one token, or of one address without tokens", 100_000),
  maxWaiters: limit(
    "the most claims that may wait for one key through this server",
    defaultMaxWaiters,
    0,
    1_000_000,
  ),
  maxOwners: limit("the most clients of the library that share one session", 1_000),
  maxTtlMs: limit("the longest ttl", maxTtlMs, minTtlMs, maxTtlMs),
  maxWaitMs: limit("the longest wait of a call", DAY_MS, 0),
  maxKeys: limit("the most keys of one call of AcquireMany", 100, 1, 1_000),
  maxInfoBytes: limit("the longest info, in bytes", infoBytes, 0, infoBytes),
  maxKeyBytes: limit("the longest key, in bytes", keyBytes, 1, keyBytes),
} as const;

export type LimitName = keyof typeof limitRanges;

/** Limits that differ from the defaults in {@link limitRanges}. */
export type ServerLimits = { readonly [Name in LimitName]?: number };

export type ResolvedLimits = Required<ServerLimits>;

export const limitNames = Object.keys(limitRanges) as LimitName[];

export function resolveLimits(limits: ServerLimits): ResolvedLimits {
  const resolved = limitNames.map((name) => {
    const { default: usual, min, max } = limitRanges[name];
    return [name, checkInteger(`limits.${name}`, limits[name] ?? usual, min, max)];
  });
  return Object.fromEntries(resolved) as ResolvedLimits;
}
