/** What a session needs of its server. */
import type { GuardedStore } from "./guarded-store.ts";
import type { Visitor } from "./identity.ts";
import type { Kept } from "./kept.ts";
import type { ResolvedLimits } from "./limits.ts";

export interface SessionContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly kept: Kept;
  readonly visitor: Visitor;
  /** Told of every operation that failed, and of a token that is gone. */
  onError(error: unknown): void;
  /** Told when the client was cut off, and why. */
  onDrop(reason: string): void;
  /** Told of errors that no part of the server expects. They end the session. */
  onUnexpected(error: unknown): void;
  onEnd(): void;
}
