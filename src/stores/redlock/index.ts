export { type QuorumOptions, quorumStore } from "./quorum-store.ts";
export { type RedlockOptions, redlockStore } from "./redlock-store.ts";
