export { type HeartbeatThreadOptions, heartbeatThread } from "./heartbeat-thread.ts";
