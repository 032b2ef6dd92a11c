export { type CasStoreOptions, casStore } from "./cas-store.ts";
export type {
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
