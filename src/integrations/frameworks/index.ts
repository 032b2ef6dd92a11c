export { type HostedLocks, type HostOptions, hostLocks } from "./hosted-locks.ts";
