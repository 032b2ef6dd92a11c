/** The bounds of everything that a client can make the server do or keep. */
import { bounds, checkInteger } from "../store/index.ts";

/** Every bound is a whole number; what is left out has the default. */
export interface ServerLimits {
  /** The longest message that is read, in bytes. Default 1,048,576. */
  readonly maxMessageBytes?: number;
  /** The most operations in one message of a session. Default 2,000. */
  readonly maxOperations?: number;
  /** The most unanswered operations of a session, ten claims of a renewal or a release as one; with more, nothing is read. Default 10,000. */
  readonly maxInFlight?: number;
  /** How much may lie unread by a client, in bytes, before the server reads no more from it. Default 4,194,304. */
  readonly maxBufferedBytes?: number;
  /** How long a client may leave unread what it was sent before it is cut off, in milliseconds. Default 10,000. */
  readonly slowReaderMs?: number;
  /** The most bytes of incomplete requests and unread answers, of all calls and sessions. With more, the oldest is cut off. Default 67,108,864. */
  readonly maxKeptBytes?: number;
  /** How long a connection may be silent, pings included, before it is cut off, in milliseconds. Default 30,000. */
  readonly silenceMs?: number;
  /** The most connections. Default 10,000. */
  readonly maxConnections?: number;
  /** The most streams of one connection: calls under way, sessions, waits and watches. Default 1,000. */
  readonly maxStreams?: number;
  /** The most calls and sessions of one client that are under way. Default 10,000. */
  readonly maxCalls?: number;
  /** The most calls of one client that wait for a lock. Default 5,000. */
  readonly maxWaitingCalls?: number;
  /** The most watches of one client. Default 500. */
  readonly maxWatches?: number;
  /** The most claims, waiting and held, of one client. Default 100,000. */
  readonly maxClaims?: number;
  /** The most claims that may wait for one key through this server. Default 10,000. */
  readonly maxWaiters?: number;
  /** The most owners whose grants one session listens to. Default 1,000. */
  readonly maxOwners?: number;
  /** The longest ttl, in milliseconds. Default 86,400,000. */
  readonly maxTtlMs?: number;
  /** The longest wait of a call, in milliseconds. A session's claims wait for as long as they are renewed. Default 86,400,000. */
  readonly maxWaitMs?: number;
  /** The most keys of one `AcquireMany`. Default 100. */
  readonly maxKeys?: number;
  /** The longest `info`, in bytes. Default 1,024. */
  readonly maxInfoBytes?: number;
  /** The longest key, in bytes. Default 512. */
  readonly maxKeyBytes?: number;
}

export type ResolvedLimits = Required<ServerLimits>;

const defaults: ResolvedLimits = {
  maxMessageBytes: 1_048_576,
  maxOperations: 2_000,
  maxInFlight: 10_000,
  maxBufferedBytes: 4_194_304,
  slowReaderMs: 10_000,
  maxKeptBytes: 67_108_864,
  silenceMs: 30_000,
  maxConnections: 10_000,
  maxStreams: 1_000,
  maxCalls: 10_000,
  maxWaitingCalls: 5_000,
  maxWatches: 500,
  maxClaims: 100_000,
  maxWaiters: bounds.defaultMaxWaiters,
  maxOwners: 1_000,
  maxTtlMs: bounds.maxTtlMs,
  maxWaitMs: 86_400_000,
  maxKeys: 100,
  maxInfoBytes: bounds.infoBytes,
  maxKeyBytes: bounds.keyBytes,
};

/** The least and the most that each can be set to, where that is not 1 and 2^31 - 1. */
const ranges: Partial<Record<keyof ServerLimits, readonly [number, number]>> = {
  // The longest request for a claim has to fit.
  maxMessageBytes: [16_384, 67_108_864],
  maxKeptBytes: [1_048_576, 17_179_869_184],
  // A client sends up to 1,000 heartbeats in one operation.
  maxOperations: [1_000, 100_000],
  slowReaderMs: [100, 3_600_000],
  silenceMs: [100, 3_600_000],
  maxWaiters: [0, 1_000_000],
  maxTtlMs: [bounds.minTtlMs, bounds.maxTtlMs],
  maxWaitMs: [0, 2_147_483_647],
  maxKeys: [1, 1_000],
  maxInfoBytes: [0, bounds.infoBytes],
  maxKeyBytes: [1, bounds.keyBytes],
};

/** What a limit is unless it is set, and the least and the most that it can be set to. */
export interface LimitRange {
  readonly default: number;
  readonly min: number;
  readonly max: number;
}

/** All limits, for programs that let people set them. */
export const limitRanges = Object.fromEntries(
  (Object.keys(defaults) as (keyof ServerLimits)[]).map((name) => {
    const [min, max] = ranges[name] ?? [1, 2_147_483_647];
    return [name, { default: defaults[name], min, max }];
  }),
) as Readonly<Record<keyof ServerLimits, LimitRange>>;

export function resolveLimits(limits: ServerLimits): ResolvedLimits {
  const resolved: Record<string, number> = {};
  for (const name of Object.keys(defaults) as (keyof ServerLimits)[]) {
    const { default: usual, min, max } = limitRanges[name];
    resolved[name] = checkInteger(`limits.${name}`, limits[name] ?? usual, min, max);
  }
  return resolved as unknown as ResolvedLimits;
}
