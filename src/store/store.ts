/**
 * The store contract: what a place that keeps lock records has to offer, and all that the client knows of it.
 *
 * A store applies the rules of `record.ts` atomically, one operation at a time per key, with its own clock. It
 * trusts no time from its callers. Every verb is safe to repeat: a request whose reply was lost can be sent again.
 *
 * How a verb fails: it rejects with `STORE_UNAVAILABLE` when the outcome is unknown or the store cannot be reached,
 * and with another {@link HoldfastError} code where repeating would not help. Contention is an answer.
 */

/** How much of a store's fences survives: a process (`ephemeral`), a disk (`local`), or a majority (`quorum`). */
export type Durability = "ephemeral" | "local" | "quorum";

export const durabilities: readonly Durability[] = ["ephemeral", "local", "quorum"];

/** Names a claim. Without a `token` it names it for an administrator, whoever asked for it last. */
export interface ClaimRef {
  readonly key: string;
  readonly id: string;
  /** The secret of the call that asked last with this id. Renew and release compare it. */
  readonly token?: string;
}

/** Asks for a heartbeat. `ttlMs` asks for at least that much from now on; without it, the claim's own. */
export interface RenewRef extends ClaimRef {
  readonly ttlMs?: number;
}

/** One request for a key. */
export interface ClaimRequest {
  readonly key: string;
  /** Asking again with the same id is the same claim. */
  readonly id: string;
  /**
   * Made up anew for every acquire call, and the same for its retries. A call with the same id and another token
   * takes the claim over, with a new fence; what the earlier caller still sends then changes nothing.
   */
  readonly token: string;
  /** How much of the limit this claim takes: 1 for mutexes, readers and writers. */
  readonly weight: number;
  /** The most that may be held together with this claim, itself included: 1 is exclusive, {@link UNLIMITED} is shared. */
  readonly limit: number;
  /** Higher goes first; equal ones go in order of arrival. */
  readonly priority: number;
  /** How long the claim lives after each heartbeat. */
  readonly ttlMs: number;
  /** Whether to queue when it cannot be held at once. */
  readonly wait: boolean;
  /** The client that asks. Grants are pushed to the listener of this name. */
  readonly owner: string;
  /** For people: why this is being asked for. */
  readonly info: string;
  /** For people: what asks. */
  readonly application: string;
}

/** The limit of a claim that tolerates any number of others, as a reader does. */
export const UNLIMITED = Number.MAX_SAFE_INTEGER;

/** The claim is held. Until `expiresInMs` after the request was sent, that is proven. */
export interface HeldAnswer {
  readonly state: "held";
  readonly fence: bigint;
  /** When it was granted, on the store's clock. */
  readonly acquiredAtMs: number;
  readonly expiresInMs: number;
}

/** The claim is queued. */
export interface WaitingAnswer {
  readonly state: "waiting";
  readonly expiresInMs: number;
  /** When asking again could bring a grant that nobody pushes, because whoever is in the way has died. */
  readonly retryInMs: number;
  /** The fence of the key's latest grant. Whatever this claim is granted later has a higher one. */
  readonly fence: bigint;
}

/** The claim does not exist, and nothing was left behind. */
export interface RefusedAnswer {
  readonly state: "refused";
  readonly reason: RefusalReason;
}

export type RefusalReason =
  /** It was a try, and it would have had to wait. */
  | "contended"
  /** The key has as many waiters as the store allows. */
  | "queue-full"
  /** There is a claim with this id and another weight, limit or priority. */
  | "id-reused";

/** There is no such claim (any more), or it is another caller's now. */
export interface GoneAnswer {
  readonly state: "gone";
  /** The owner of the call with the same id that has taken the claim over, if that is why. */
  readonly takenOverBy?: string;
}

/** Nothing is known of this claim, while others of the same call could be answered. It counts as a call that failed. */
export interface FailedAnswer {
  readonly state: "failed";
  /** Why, as the call would have rejected with. */
  readonly error: unknown;
}

export type AcquireAnswer = HeldAnswer | WaitingAnswer | RefusedAnswer;
export type RenewAnswer = HeldAnswer | WaitingAnswer | GoneAnswer | FailedAnswer;

/** What an administrator sees of a claim. Its token is not shown. */
export interface ClaimStatus {
  readonly id: string;
  readonly state: "held" | "waiting";
  readonly weight: number;
  readonly limit: number;
  readonly priority: number;
  readonly ttlMs: number;
  readonly owner: string;
  readonly info: string;
  readonly application: string;
  /** How long the claim still lives without a heartbeat. */
  readonly expiresInMs: number;
  /** Only when held. */
  readonly fence?: bigint;
  /** Only when held; on the store's clock. */
  readonly acquiredAtMs?: number;
}

/** What an administrator sees of a key. Long lists are cut to what was asked for; the counts are whole. */
export interface KeyStatus {
  readonly key: string;
  /** The fence of the latest grant that the store remembers, 0 for a key it knows nothing of. */
  readonly fence: bigint;
  /** In order of grant. */
  readonly held: readonly ClaimStatus[];
  readonly heldCount: number;
  readonly heldWeight: number;
  /** In order of turn. */
  readonly waiting: readonly ClaimStatus[];
  readonly waitingCount: number;
}

/** Which keys to look at: one, or those with a prefix, a page at a time. */
export type LookQuery =
  | { readonly key: string; readonly maxClaims: number }
  | {
      readonly prefix: string;
      /** From the page before; absent for the first. */
      readonly cursor?: string;
      /** How many keys at most. A page may be shorter, even empty, and yet not be the last. */
      readonly limit: number;
      readonly maxClaims: number;
    };

/** Keys that have a claim. A key that has one throughout a listing is shown at least once. */
export interface LookPage {
  readonly keys: readonly KeyStatus[];
  /** Absent on the last page. */
  readonly cursor?: string;
}

/** A waiting claim that has been granted. */
export interface GrantRef extends ClaimRef {
  /**
   * The fence it was granted with, where the store is sure of that. A client believes it if it is above all that it has
   * heard of the key since the claim began to wait, and asks the store otherwise.
   */
  readonly fence?: bigint;
}

/** Told which waiting claims have been granted. It may come late, more than once, or never. */
export type GrantListener = (refs: readonly GrantRef[]) => void;

export type Unsubscribe = () => void;

export interface Store {
  /** For people, in messages and metrics. */
  readonly name: string;
  readonly durability: Durability;
  /** Whether limits above 1 are kept exactly. Without it there are no semaphores. */
  readonly counts: boolean;
  acquire(request: ClaimRequest): Promise<AcquireAnswer>;
  /** Heartbeats, answered in the order asked. Where none could be answered for one reason, it rejects with that. */
  renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]>;
  /** Whether each claim was there and has been removed. Never touches another claim, nor another caller's. */
  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]>;
  look(query: LookQuery): Promise<LookPage>;
  /** Calls back when a waiting claim of this owner is granted. One listener an owner; losing a call costs time only. */
  onGrant(owner: string, listener: GrantListener): Unsubscribe;
  /** Lets go of what the store itself opened. Claims stay as they are, and expire. */
  close(): Promise<void>;
}

/** The fence and the time of a grant that several stores agree upon. */
export interface AgreedGrant {
  readonly fence: bigint;
  readonly acquiredAtMs: number;
  /** Who proposes it, up to 64 characters. Absent when it is known to be in force, and is only being put right. */
  readonly by?: string;
}

/** A store that can be one of several which decide by majority. */
export interface QuorumMember extends Store {
  /**
   * Puts the agreed grant in place of this store's own, and keeps every later fence of the key above it. Whether that
   * is so: not when the claim is not held here with this token and the fence `own`, which means that this store has
   * lost it in between. Safe to repeat.
   *
   * What somebody has proposed here, nobody else can replace by another proposal: they can only join it, and then it
   * stays. So of two who make one grant at the same time, one has its way. A grant that is in force replaces anything.
   */
  confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean>;
}
