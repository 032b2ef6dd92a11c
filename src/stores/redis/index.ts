export {
  type Connection,
  connectionOver,
  type IoRedisClient,
  type NodeRedisClient,
  type RedisClient,
} from "./client.ts";
export { mapError as mapRedisError, replyCode } from "./errors.ts";
export type { RedisStoreOptions } from "./options.ts";
export { redisStore } from "./redis-store.ts";
export { nextCall, replyTo } from "./script-call.ts";
