export { casStore } from "./cas-store.ts";
export type {
  AssumedKeepers,
  CasDriver,
  Change,
  ChangeResult,
  DriverLimits,
  Keepers,
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
export { type CasStoreOptions, casDefaults, casOptionNames } from "./options.ts";
