/** Converts statuses of keys and claims to and from their messages. */
import { create } from "@bufbuild/protobuf";
import {
  type ClaimStatus,
  type Durability,
  type KeyStatus,
  type LookPage,
  UNLIMITED,
} from "../store/index.ts";
import {
  ClaimState,
  ClaimStatusSchema,
  KeyStatusSchema,
  type ClaimStatus as WireClaim,
  Durability as WireDurability,
  type KeyStatus as WireKey,
} from "./gen/holdfast/v1/claims_pb.ts";
import { type LookAnswer, LookAnswerSchema } from "./gen/holdfast/v1/session_pb.ts";

const MAX_UINT32 = 0xffff_ffff;

/** Rounds down, so that a claim does not seem to live longer than it does. */
export function wireMs(ms: number): number {
  return Math.min(MAX_UINT32, Math.max(0, Math.floor(ms)));
}

/** 0 in a message means unlimited. */
export function wireLimit(limit: number): number {
  return limit === UNLIMITED ? 0 : limit;
}

export function readLimit(limit: number): number {
  return limit === 0 ? UNLIMITED : limit;
}

export function wireKey(status: KeyStatus): WireKey {
  return create(KeyStatusSchema, {
    key: status.key,
    fence: status.fence,
    held: status.held.map(wireClaim),
    heldCount: status.heldCount,
    heldWeight: BigInt(status.heldWeight),
    waiting: status.waiting.map(wireClaim),
    waitingCount: status.waitingCount,
  });
}

function wireClaim(claim: ClaimStatus): WireClaim {
  return create(ClaimStatusSchema, {
    id: claim.id,
    state: claim.state === "held" ? ClaimState.HELD : ClaimState.WAITING,
    weight: BigInt(claim.weight),
    limit: BigInt(wireLimit(claim.limit)),
    priority: claim.priority,
    ttlMs: claim.ttlMs,
    owner: claim.owner,
    info: claim.info,
    application: claim.application,
    expiresInMs: wireMs(claim.expiresInMs),
    fence: claim.fence ?? 0n,
    acquiredAtMs: BigInt(Math.floor(claim.acquiredAtMs ?? 0)),
  });
}

export function wirePage(page: LookPage): LookAnswer {
  return create(LookAnswerSchema, { keys: page.keys.map(wireKey), cursor: page.cursor ?? "" });
}

export function readPage(page: LookAnswer): LookPage {
  const keys = page.keys.map(readKey);
  return page.cursor === "" ? { keys } : { keys, cursor: page.cursor };
}

export function readKey(status: WireKey): KeyStatus {
  return {
    key: status.key,
    fence: status.fence,
    held: status.held.map(readClaim),
    heldCount: status.heldCount,
    heldWeight: Number(status.heldWeight),
    waiting: status.waiting.map(readClaim),
    waitingCount: status.waitingCount,
  };
}

function readClaim(claim: WireClaim): ClaimStatus {
  const { id, priority, ttlMs, owner, info, application, expiresInMs, fence } = claim;
  const weight = Number(claim.weight);
  const limit = readLimit(Number(claim.limit));
  const common = { id, weight, limit, priority, ttlMs, owner, info, application, expiresInMs };
  if (claim.state !== ClaimState.HELD) return { ...common, state: "waiting" };
  return { ...common, state: "held", fence, acquiredAtMs: Number(claim.acquiredAtMs) };
}

export const wireDurabilities: Readonly<Record<Durability, WireDurability>> = {
  ephemeral: WireDurability.EPHEMERAL,
  local: WireDurability.LOCAL,
  quorum: WireDurability.QUORUM,
};

/** An unknown durability counts as the lowest. */
export function readDurability(durability: WireDurability): Durability {
  if (durability === WireDurability.QUORUM) return "quorum";
  return durability === WireDurability.LOCAL ? "local" : "ephemeral";
}
