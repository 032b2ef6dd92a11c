export {
  type Connection,
  connectionOver,
  type IoRedisClient,
  type NodeRedisClient,
  type RedisClient,
} from "./connection.ts";
export { mapError as mapRedisError, replyCode } from "./errors.ts";
export { nextCall, replyTo } from "./numbered-call.ts";
export { type RedisStoreOptions, redisStore } from "./redis-store.ts";
