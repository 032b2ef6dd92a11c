/** Converts an `AcquireRequest` to options of the client library. */
import type { AcquireOptions, Lock, LockOptions, Locks, PermitOptions, Semaphore } from "../client/index.ts";
import { claims, create, locks as wire } from "../protocol/index.ts";
import { bounds, checkInteger, type Durability, invalid } from "../store/index.ts";
import type { ResolvedLimits } from "./limits.ts";

const DEFAULT_WAIT_MS = 3_600_000;
const DEFAULT_TTL_MS = 30_000;

export interface KeyTerms {
  readonly key: string;
  readonly mode: wire.Mode;
  readonly permits: number;
  readonly limit: number;
}

export interface Terms {
  readonly keys: readonly KeyTerms[];
  readonly lock: LockOptions;
  readonly acquire: AcquireOptions;
  readonly detached: boolean;
  readonly releaseOnDisconnect: boolean;
}

const { SHARED, PERMITS } = wire.Mode;

export function termsOf(request: wire.AcquireRequest, limits: ResolvedLimits): Terms {
  const { key, mode, permits, limit } = request;
  return commonTerms(request, [{ key, mode, permits, limit }], limits);
}

export function termsOfMany(request: wire.AcquireManyRequest, limits: ResolvedLimits): Terms {
  const { keys, terms = create(wire.AcquireRequestSchema) } = request;
  checkInteger("keys", keys.length, 1, limits.maxKeys);
  if (terms.key !== "" || terms.mode !== 0 || terms.permits !== 0 || terms.limit !== 0) {
    throw invalid("terms must not have key, mode, permits or limit. Set them in keys.");
  }
  const wrong = keys.find(({ mode }) => mode === PERMITS);
  if (wrong !== undefined)
    throw invalid("AcquireMany accepts exclusive and shared keys, not permits.", wrong.key);
  return commonTerms(
    terms,
    keys.map(({ key, mode }) => ({ key, mode, permits: 0, limit: 0 })),
    limits,
  );
}

/** The lock of one key. The library refuses bad values. */
export function lockOf(
  locks: Locks,
  { key, mode, permits, limit }: KeyTerms,
  options: LockOptions,
): Lock | Semaphore {
  if (mode !== PERMITS && (permits !== 0 || limit !== 0)) {
    throw invalid("permits and limit require MODE_PERMITS. Set mode, or remove them.", key);
  }
  if (mode === PERMITS)
    return locks.semaphore(key, checkInteger("limit", limit, 1, bounds.maxPermits), options);
  return mode === SHARED ? locks.rwLock(key, options).read : locks.mutex(key, options);
}

export function permitsOf({ mode, permits }: KeyTerms): PermitOptions {
  return mode === PERMITS && permits !== 0 ? { permits } : {};
}

function commonTerms(request: wire.AcquireRequest, keys: readonly KeyTerms[], limits: ResolvedLimits): Terms {
  for (const { key, mode } of keys) checkInteger(`mode of "${key}"`, mode, 0, PERMITS);
  const waitMs = request.maxWaitMs ?? Math.min(DEFAULT_WAIT_MS, limits.maxWaitMs);
  checkInteger("maxWaitMs", waitMs, 0, limits.maxWaitMs);
  const durability = durabilityOf(request.durability);
  return {
    keys,
    lock: {
      ttlMs: checkInteger(
        "ttlMs",
        request.ttlMs || Math.min(DEFAULT_TTL_MS, limits.maxTtlMs),
        1,
        limits.maxTtlMs,
      ),
      ...(durability !== undefined && { durability }),
    },
    acquire: {
      waitMs,
      priority: request.priority,
      info: request.info,
      application: request.application,
      ...(request.requestId !== "" && { id: request.requestId }),
      ...(request.token !== "" && { token: request.token }),
    },
    detached: request.detached,
    releaseOnDisconnect: request.releaseOnDisconnect,
  };
}

function durabilityOf(durability: claims.Durability): Durability | undefined {
  switch (durability) {
    case claims.Durability.UNSPECIFIED:
      return undefined;
    case claims.Durability.EPHEMERAL:
      return "ephemeral";
    case claims.Durability.LOCAL:
      return "local";
    case claims.Durability.QUORUM:
      return "quorum";
    default:
      throw invalid(`durability ${String(durability)} does not exist. Use a value of the enum Durability.`);
  }
}
