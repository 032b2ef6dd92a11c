export type { Grant, Verb } from "./access.ts";
export { type LimitRange, limitRanges, type ServerLimits } from "./limits.ts";
export type { TlsOptions } from "./listener.ts";
export { type Log, openLog } from "./log.ts";
export { type LockServer, type ServerOptions, type StopOptions, startServer } from "./start-server.ts";
export { hashToken, type TokenEntry } from "./tokens.ts";
