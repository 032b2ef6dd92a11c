export { casStore } from "./cas-store.ts";
export type { Answer, Asked } from "./combine.ts";
export type {
  AssumedLeases,
  CasDriver,
  Change,
  ChangeResult,
  DriverLimits,
  ListedRecord,
  ListReply,
  OnWake,
  ReadReply,
  StoredRecord,
  SwapBatch,
  SwapReply,
  Timed,
  Version,
  Wake,
} from "./driver.ts";
export type { ChangeLifetimes, Lifetimes, LifetimesHost } from "./lifetimes.ts";
export { type CasStoreOptions, casDefaults, casOptionNames } from "./options.ts";
export type { TimeBounds, TimeSource } from "./server-time.ts";
