export type { QuorumOptions, RedlockOptions } from "./options.ts";
export { quorumStore } from "./quorum-store.ts";
export { redlockStore } from "./redlock-store.ts";
