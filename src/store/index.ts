export { newClaimIds } from "./claim-ids.ts";
export { commonFailure } from "./common-failure.ts";
export {
  AcquireTimeoutError,
  type ErrorCode,
  type ErrorDetails,
  HoldfastError,
  LeaseLostError,
  type LossReason,
  StoreUnavailableError,
} from "./errors.ts";
export { batches, heartbeatCalls } from "./heartbeat-calls.ts";
export {
  answerTimeoutMs,
  provenUntil,
  retryAt,
  retryPauseMs,
  type Verdict,
  verdictOn,
} from "./holding.ts";
export { NewRequest } from "./new-request.ts";
export { type ConnectionPool, PoolConnections, SilenceGuard } from "./pool-connections.ts";
export {
  type AcquireAnswer,
  type AgreedGrant,
  type ClaimRef,
  type ClaimRequest,
  type ClaimStatus,
  type Durability,
  durabilities,
  type FailedAnswer,
  type GoneAnswer,
  type GrantListener,
  type GrantRef,
  type HeldAnswer,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RefusalReason,
  type RefusedAnswer,
  type RenewAnswer,
  type RenewRef,
  type Store,
  UNLIMITED,
  type Unsubscribe,
  type WaitingAnswer,
} from "./store.ts";
export { acquireFrom, callStore, isSound, releaseFrom, unsoundError } from "./store-calls.ts";
export { classesOf, closedStore, type ErrorMeaning, isMistake, meaning, storeError } from "./store-errors.ts";
export { didYouMean, nearest } from "./suggestion.ts";
export {
  bounds,
  checkApplication,
  checkBoolean,
  checkChoice,
  checkDuration,
  checkFraction,
  checkId,
  checkInfo,
  checkInteger,
  checkKey,
  checkOptionNames,
  checkOwner,
  checkPrefix,
  checkPriority,
  checkQuery,
  checkRenewRef,
  checkRequest,
  checkStore,
  checkToken,
  checkTtl,
  DEFAULT_CLOCK_DRIFT,
  invalid,
} from "./validation.ts";
