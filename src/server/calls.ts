import type { Logger } from "pino";
import type { GuardedStore } from "./guarded-store.ts";
import type { Health } from "./health.ts";
import type { Identities } from "./identity.ts";
import type { ResolvedLimits } from "./limits.ts";
import type { AnyRequest, AnyResponse } from "./listener.ts";
import type { Metrics } from "./metrics.ts";

export interface CallsContext {
  readonly store: GuardedStore;
  readonly limits: ResolvedLimits;
  readonly identities: Identities;
  readonly metrics: Metrics;
  readonly health: Health;
  readonly logger: Logger;
  onError(error: unknown): void;
  onDrop(reason: string): void;
}

export function createCalls(_context: CallsContext) {
  return {
    handle(_request: AnyRequest, response: AnyResponse): void {
      response.statusCode = 404;
      response.end();
    },
    async leave(): Promise<void> {},
    async close(): Promise<void> {},
  };
}
