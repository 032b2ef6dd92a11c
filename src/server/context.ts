/** The parts of a server that its sessions and calls share. */
import type { Audit } from "./audit.ts";
import type { Callers } from "./callers.ts";
import type { ErrorLog } from "./error-log.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { MemoryBudget } from "./memory-budget.ts";
import type { Metrics } from "./metrics.ts";

export interface ServerContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly budget: MemoryBudget;
  readonly callers: Callers;
  readonly metrics: Metrics;
  readonly audit: Audit;
  readonly errors: ErrorLog;
}
