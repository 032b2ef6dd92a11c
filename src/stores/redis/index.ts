export type { IoRedisClient, NodeRedisClient, RedisClient } from "./connection.ts";
export { type RedisStoreOptions, redisStore } from "./redis-store.ts";
